"""Health of objects as their controllers tell it."""

from typing import Any, NamedTuple

import pytest

from reconciler.resolve.rollout_model import Verdict
from reconciler.resolve.rollouts import object_health


class Case(NamedTuple):
    reason: str
    kind: str
    status: Any
    result: Verdict
    message: str = ""
    generation: int = 2


def application(health: str, sync: str = "Synced", message: str = "") -> dict[str, Any]:
    return {"health": {"status": health, "message": message}, "sync": {"status": sync}}


def ready(status: str, message: str = "", observed: int = 2, **others: str) -> dict[str, Any]:
    conditions = [{"type": "Ready", "status": status, "message": message}]
    conditions += [{"type": name, "status": value} for name, value in others.items()]
    return {"observedGeneration": observed, "conditions": conditions}


def replicas(updated: int, number: int, reason: str = "NewReplicaSetAvailable") -> dict[str, Any]:
    progressing = {"type": "Progressing", "status": "True", "reason": reason, "message": "Too slow."}
    return {
        "observedGeneration": 2,
        "readyReplicas": number,
        "updatedReplicas": updated,
        "conditions": [progressing],
    }


NODES = {"desiredNumberScheduled": 2, "numberReady": 2, "updatedNumberScheduled": 2, "observedGeneration": 2}
OWN = {
    "Application": "argoproj.io/v1alpha1",
    "Kustomization": "kustomize.toolkit.fluxcd.io/v1",
    "HelmRelease": "helm.toolkit.fluxcd.io/v2",
}
CASES = [
    Case("no status", "Deployment", None, Verdict.WAITING, "has no status in the snapshot"),
    Case("status of another type", "Deployment", [1], Verdict.WAITING, "has no status in the snapshot"),
    Case("healthy and synced", "Application", application("Healthy"), Verdict.PASSED),
    Case("not synced", "Application", application("Healthy", "OutOfSync"), Verdict.WAITING, "is OutOfSync"),
    Case("progressing", "Application", application("Progressing"), Verdict.WAITING, "is Progressing"),
    Case("degraded", "Application", application("Degraded", message="Back-off.\nPulling"), Verdict.FAILED,
        "is Degraded: Back-off"),
    Case("missing", "Application", application("Missing"), Verdict.FAILED, "is Missing"),
    Case("no health", "Application", {"sync": {"status": "Synced"}}, Verdict.WAITING, "is of unknown health"),
    Case("ready", "Kustomization", ready("True"), Verdict.PASSED),
    Case("ready for an older generation", "Kustomization", ready("True", observed=1), Verdict.WAITING,
        "has a change that its controller has not seen"),
    Case("not ready", "HelmRelease", ready("False", "x: y"), Verdict.FAILED, "is not ready: x: y"),
    Case("reconciling", "Kustomization", ready("False", "wait", Reconciling="True"), Verdict.WAITING,
        "is not ready: wait"),
    Case("stalled while reconciling", "Kustomization",
        ready("Unknown", "no", Reconciling="True", Stalled="True"), Verdict.FAILED, "is not ready: no"),
    Case("unknown", "Kustomization", ready("Unknown", "x"), Verdict.WAITING, "is not ready: x"),
    Case("no condition", "Kustomization", {"conditions": "x"}, Verdict.WAITING, "has no condition Ready"),
    Case("all replicas", "Deployment", replicas(3, 3), Verdict.PASSED),
    Case("old replicas", "StatefulSet", replicas(1, 3), Verdict.WAITING,
        "has 3 of 3 replicas ready and 1 updated"),
    Case("missing replicas", "Deployment", replicas(3, 2), Verdict.WAITING,
        "has 2 of 3 replicas ready and 3 updated"),
    Case("deadline exceeded", "Deployment", replicas(3, 3, "ProgressDeadlineExceeded"), Verdict.FAILED,
        "does not progress: Too slow"),
    Case("every node", "DaemonSet", NODES, Verdict.PASSED),
    Case("one node is not ready", "DaemonSet", {**NODES, "numberReady": 1}, Verdict.WAITING,
        "has 1 of 2 replicas ready and 2 updated"),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.kind}: {case.reason}")
def test_health(case: Case) -> None:
    body = {
        "apiVersion": OWN.get(case.kind, "apps/v1"),
        "kind": case.kind,
        "metadata": {"namespace": "apps", "name": "web", "generation": case.generation},
        "spec": {"replicas": 3},
        **({} if case.status is None else {"status": case.status}),
    }

    health = object_health(body)

    text = f"{case.kind} apps/web {case.message}" if case.message else ""
    assert health[:2] == (case.result, text)
