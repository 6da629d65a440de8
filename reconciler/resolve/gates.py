"""Gates of one published package: the health of its objects in the snapshot, and checks on main."""

from collections.abc import Iterator
from typing import NamedTuple

from reconciler.base.wording import time_text
from reconciler.expand.variants import DesiredVariant
from reconciler.inventory.inventory import CheckState, Inventory, RepositoryView
from reconciler.inventory.snapshot import Snapshot
from reconciler.policy.rollouts import ObjectGate, Wave
from reconciler.resolve.health import object_health
from reconciler.resolve.resolution import ResolvedVariant
from reconciler.resolve.rollout_model import GateResult, Verdict
from reconciler.resolve.waves import CLOCK_SKEW_S

_PASSED = GateResult(Verdict.PASSED)


class _Publication(NamedTuple):
    """When a run first saw a package on main, the end of its soak time, and the time of this run."""

    seen: int
    soaked: int
    now: int


def gate_results(
    wave: Wave, variant: DesiredVariant, outcome: ResolvedVariant, published: int, inventory: Inventory
) -> Iterator[GateResult]:
    """Yield the result of every gate of a wave for one published package. Pure.

    An object counts in a snapshot that was taken after a run first saw the package on main and had its soak
    time: an older one tells the health of the previous revision. An object that fails counts as soon as the
    snapshot is younger than that. Only the time in snapshot.yaml counts: the commit of a snapshot may be much
    younger than what it holds.
    """
    view = inventory.repositories[outcome.view]
    publication = _Publication(published, published + wave.soak_s, inventory.now)
    words = {
        "cluster": view.cluster,
        "namespace": variant.key.namespace,
        "package": outcome.downstream.path.rpartition("/")[2],
        "repository": view.key.name,
        "variant": variant.key.name,
    }
    for gate in wave.gates.objects:
        snapshot = inventory.snapshot.of(_filled(gate.cluster, words) or view.cluster)
        yield _object_result(gate, words, snapshot, publication)
    yield from _checks(wave, view, inventory)


def _filled(text: str, words: dict[str, str]) -> str:
    for name, value in words.items():
        text = text.replace(f"{{{name}}}", value)
    return text


def _object_result(
    gate: ObjectGate, words: dict[str, str], snapshot: Snapshot, publication: _Publication
) -> GateResult:
    namespace, name = _filled(gate.namespace, words), _filled(gate.name, words)
    place = f"snapshot of cluster {snapshot.cluster}" if snapshot.cluster else "snapshot"
    if not snapshot.present:
        return GateResult(Verdict.WAITING, f"there is no {place}")
    if why := _untimely(snapshot.taken, publication):
        return GateResult(Verdict.WAITING, f"the {place} {why}")
    objects = [
        item
        for item in snapshot.of_kind(gate.api_version, gate.kind)
        if item.name == name and item.namespace == namespace
    ]
    if not objects:
        where = "/".join(part for part in (namespace, name) if part)
        return GateResult(Verdict.WAITING, f"the {place} has no {gate.kind} {where}")
    health = object_health(objects[0].body)
    if health.result is Verdict.PASSED and (snapshot.taken or 0) < publication.soaked:
        due = time_text(publication.soaked)
        return GateResult(Verdict.WAITING, f"the {place} is from before the end of the soak time, {due}")
    return health


def _untimely(taken: int | None, publication: _Publication) -> str:
    """Return why a snapshot does not count for a published package, "" if it does."""
    if taken is None:
        return "does not tell when it was taken: import it with `reconciler snapshot import`"
    if taken > publication.now + CLOCK_SKEW_S:
        return f"claims to be from {time_text(taken)}, which is in the future: import it again"
    if taken <= publication.seen:
        return f"is not newer than the package on main, seen there since {time_text(publication.seen)}"
    return ""


def _checks(wave: Wave, view: RepositoryView, inventory: Inventory) -> Iterator[GateResult]:
    head = (view.url, view.head.oid if view.head else "")
    passed, others = inventory.passed_checks.get(head, frozenset()), inventory.other_checks.get(head, {})
    for check in wave.gates.checks:
        if check in passed:
            yield _PASSED
        elif others.get(check) is CheckState.FAILED:
            yield GateResult(Verdict.FAILED, f"check {check} failed on {view.branch}")
        else:
            yield GateResult(Verdict.WAITING, f"check {check} has not passed on {view.branch}")
