"""Gates of one published package: the health of its objects in the snapshot, and checks on main."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from reconciler.base.text import time_text
from reconciler.expand.variants import DesiredVariant
from reconciler.inventory.inventory import CheckState, Inventory
from reconciler.inventory.snapshot import Snapshot
from reconciler.policy.rollouts import ObjectGate, Wave
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
    head = (view.url, view.head.oid if view.head else "")
    passed, others = inventory.passed_checks.get(head, frozenset()), inventory.other_checks.get(head, {})
    for check in wave.gates.checks:
        if check in passed:
            yield _PASSED
        elif others.get(check) is CheckState.FAILED:
            yield GateResult(Verdict.FAILED, f"check {check} failed on {view.branch}")
        else:
            yield GateResult(Verdict.WAITING, f"check {check} has not passed on {view.branch}", seen=False)


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
        return GateResult(Verdict.WAITING, f"there is no {place}", seen=False)
    if why := _untimely(snapshot.taken, publication):
        return GateResult(Verdict.WAITING, f"the {place} {why}", seen=False)
    objects = [
        item
        for item in snapshot.of_kind(gate.api_version, gate.kind)
        if item.name == name and item.namespace == namespace
    ]
    if not objects:
        where = "/".join(part for part in (namespace, name) if part)
        return GateResult(Verdict.WAITING, f"the {place} has no {gate.kind} {where}", seen=False)
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


_FAILING = frozenset({"Degraded", "Missing"})


def object_health(body: Mapping[str, Any]) -> GateResult:
    """Return the health of an object. Total: what its status does not tell is waited for.

    Source: Argo CD's `status.health` and `status.sync`; kstatus of sigs.k8s.io/cli-utils for all others.
    """
    status = body.get("status")
    metadata = body.get("metadata")
    metadata = metadata if isinstance(metadata, Mapping) else {}
    parts = (metadata.get("namespace"), metadata.get("name"))
    name = f"{body.get('kind')} {'/'.join(str(part) for part in parts if part)}"
    if not isinstance(status, Mapping) or not status:
        return GateResult(Verdict.WAITING, f"{name} has no status in the snapshot")
    if body.get("kind") == "Application":
        return _application(name, status)
    # A controller that has not seen the newest generation tells about the former one.
    generation, observed = metadata.get("generation"), status.get("observedGeneration")
    if isinstance(generation, int) and isinstance(observed, int) and observed < generation:
        return GateResult(Verdict.WAITING, f"{name} has a change that its controller has not seen")
    if str(body.get("apiVersion")).startswith("apps/"):
        return _workload(name, body, status)
    return _ready(name, _conditions(status))


def _application(name: str, status: Mapping[str, Any]) -> GateResult:
    health, sync = _text(status, "health", "status"), _text(status, "sync", "status")
    if health in _FAILING:
        return GateResult(Verdict.FAILED, _because(f"{name} is {health}", _text(status, "health", "message")))
    if health != "Healthy":
        return GateResult(Verdict.WAITING, f"{name} is {health or 'of unknown health'}")
    # Healthy alone may be about the former revision: Argo CD judges what runs, not what is in Git.
    return _PASSED if sync == "Synced" else GateResult(Verdict.WAITING, f"{name} is {sync or 'not synced'}")


def _ready(name: str, conditions: Mapping[str, Mapping[str, Any]]) -> GateResult:
    """Return the health by the condition Ready, as Flux's controllers write it."""
    ready = conditions.get("Ready")
    if ready is None:
        return GateResult(Verdict.WAITING, f"{name} has no condition Ready")
    if ready.get("status") == "True":
        return _PASSED
    text = _because(f"{name} is not ready", str(ready.get("message") or ready.get("reason") or ""))
    is_busy = conditions.get("Reconciling", {}).get("status") == "True" or ready.get("status") != "False"
    # kstatus: Reconciling is progress, and Stalled is a failure whatever else is there.
    stalled = conditions.get("Stalled", {}).get("status") == "True"
    return GateResult(Verdict.WAITING if is_busy and not stalled else Verdict.FAILED, text)


def _workload(name: str, body: Mapping[str, Any], status: Mapping[str, Any]) -> GateResult:
    progressing = _conditions(status).get("Progressing", {})
    # After spec.progressDeadlineSeconds the controller goes on trying: this condition alone tells it.
    if progressing.get("reason") == "ProgressDeadlineExceeded":
        return GateResult(
            Verdict.FAILED, _because(f"{name} does not progress", str(progressing.get("message") or ""))
        )
    # A DaemonSet has no spec.replicas: nodes decide, and its status counts under other names.
    is_daemon = body.get("kind") == "DaemonSet"
    spec = body.get("spec")
    desired = (spec.get("replicas", 1) if isinstance(spec, Mapping) else 1) if not is_daemon else None
    desired = status.get("desiredNumberScheduled", 0) if desired is None else desired
    updated = status.get("updatedNumberScheduled" if is_daemon else "updatedReplicas", 0)
    ready = status.get("numberReady" if is_daemon else "readyReplicas", 0)
    if all(isinstance(count, int) for count in (desired, updated, ready)) and min(updated, ready) >= desired:
        return _PASSED
    return GateResult(
        Verdict.WAITING, f"{name} has {ready} of {desired} replicas ready and {updated} updated"
    )


def _conditions(status: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    listed = status.get("conditions")
    items = listed if isinstance(listed, Sequence) and not isinstance(listed, str) else ()
    return {str(item.get("type")): item for item in items if isinstance(item, Mapping)}


def _text(status: Mapping[str, Any], *path: str) -> str:
    value: Any = status
    for step in path:
        value = value.get(step) if isinstance(value, Mapping) else None
    return value if isinstance(value, str) else ""


def _because(text: str, why: str) -> str:
    first = why.strip().splitlines()[0].rstrip(".") if why.strip() else ""
    return f"{text}: {first}" if first else text
