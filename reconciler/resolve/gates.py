"""Gates of one published package: the health of its objects in the snapshot, and checks on main."""

from collections.abc import Iterator

from reconciler.expand.variants import DesiredVariant
from reconciler.inventory import CheckState, Inventory, RepositoryView
from reconciler.policy.rollouts import ObjectGate, Wave
from reconciler.resolve.resolution import ResolvedVariant
from reconciler.rollout.health import object_health
from reconciler.rollout.model import GateResult, Verdict
from reconciler.rollout.waves import time_text
from reconciler.snapshot import Snapshot

_PASSED = GateResult(Verdict.PASSED)


def gate_results(
    wave: Wave, variant: DesiredVariant, outcome: ResolvedVariant, published: int, inventory: Inventory
) -> Iterator[GateResult]:
    """Yield the result of every gate of a wave for one published package. Pure.

    An object counts in a snapshot that was taken after the package was published and had its soak time: an
    older one tells the health of the previous revision. An object that fails counts as soon as the snapshot
    is younger than the publication.
    """
    view = inventory.repositories[outcome.view]
    words = {
        "cluster": view.cluster,
        "namespace": variant.key.namespace,
        "package": outcome.downstream.path.rpartition("/")[2],
        "repository": view.key.name,
        "variant": variant.key.name,
    }
    for gate in wave.gates.objects:
        snapshot = inventory.snapshot.of(_filled(gate.cluster, words) or view.cluster)
        yield _object_result(gate, words, snapshot, published, wave.soak_s)
    yield from _checks(wave, view, inventory)


def _filled(text: str, words: dict[str, str]) -> str:
    for name, value in words.items():
        text = text.replace(f"{{{name}}}", value)
    return text


def _object_result(
    gate: ObjectGate, words: dict[str, str], snapshot: Snapshot, published: int, soak_s: int
) -> GateResult:
    namespace, name = _filled(gate.namespace, words), _filled(gate.name, words)
    place = f"snapshot of cluster {snapshot.cluster}" if snapshot.cluster else "snapshot"
    taken = snapshot.taken if snapshot.taken is not None else snapshot.time
    if not snapshot.present:
        return GateResult(Verdict.WAITING, f"there is no {place}")
    if taken <= published:
        return GateResult(Verdict.WAITING, f"the {place} is not newer than the package on main")
    objects = [
        item
        for item in snapshot.of_kind(gate.api_version, gate.kind)
        if item.name == name and item.namespace == namespace
    ]
    if not objects:
        where = "/".join(part for part in (namespace, name) if part)
        return GateResult(Verdict.WAITING, f"the {place} has no {gate.kind} {where}")
    health = object_health(objects[0].body)
    if health.result is Verdict.PASSED and taken < published + soak_s:
        due = time_text(published + soak_s)
        return GateResult(Verdict.WAITING, f"the {place} is from before the end of the soak time, {due}")
    return health


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
