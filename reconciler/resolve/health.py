"""Health of an object of a snapshot, as its own controller tells it.

Source: Argo CD's `status.health` and `status.sync`; kstatus of sigs.k8s.io/cli-utils for all others.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from reconciler.resolve.rollout_model import GateResult, Verdict

_PASSED = GateResult(Verdict.PASSED)
_FAILING = frozenset({"Degraded", "Missing"})


def object_health(body: Mapping[str, Any]) -> GateResult:
    """Return the health of an object. Total: what its status does not tell is waited for."""
    status = body.get("status")
    name = _name(body)
    if not isinstance(status, Mapping) or not status:
        return GateResult(Verdict.WAITING, f"{name} has no status in the snapshot")
    if body.get("kind") == "Application":
        return _application(name, status)
    generation, observed = _generation(body), status.get("observedGeneration")
    if generation is not None and isinstance(observed, int) and observed < generation:
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
    stalled = conditions.get("Stalled", {}).get("status") == "True"
    return GateResult(Verdict.WAITING if is_busy and not stalled else Verdict.FAILED, text)


def _workload(name: str, body: Mapping[str, Any], status: Mapping[str, Any]) -> GateResult:
    progressing = _conditions(status).get("Progressing", {})
    if progressing.get("reason") == "ProgressDeadlineExceeded":
        return GateResult(
            Verdict.FAILED, _because(f"{name} does not progress", str(progressing.get("message") or ""))
        )
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


def _generation(body: Mapping[str, Any]) -> int | None:
    metadata = body.get("metadata")
    generation = metadata.get("generation") if isinstance(metadata, Mapping) else None
    return generation if isinstance(generation, int) else None


def _name(body: Mapping[str, Any]) -> str:
    metadata = body.get("metadata")
    metadata = metadata if isinstance(metadata, Mapping) else {}
    parts = (metadata.get("namespace"), metadata.get("name"))
    return f"{body.get('kind')} {'/'.join(str(part) for part in parts if part)}"


def _text(status: Mapping[str, Any], *path: str) -> str:
    value: Any = status
    for step in path:
        value = value.get(step) if isinstance(value, Mapping) else None
    return value if isinstance(value, str) else ""


def _because(text: str, why: str) -> str:
    first = why.strip().splitlines()[0].rstrip(".") if why.strip() else ""
    return f"{text}: {first}" if first else text
