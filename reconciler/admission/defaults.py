"""Defaults that the API server fills in before policies see an object, and before it compares two of them.

Source: kubernetes, SetDefaults_* and SetObjectDefaults_* of core/v1, apps/v1, batch/v1, rbac/v1, storage/v1.
"""

from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import suppress
from typing import Any, Final

Value = MutableMapping[str, Any]
_MODE: Final = 0o644
_POD: Final[Mapping[str, Any]] = {
    "restartPolicy": "Always",
    "dnsPolicy": "ClusterFirst",
    "schedulerName": "default-scheduler",
    "terminationGracePeriodSeconds": 30,
    "enableServiceLinks": True,
}
_CONTAINER: Final[Mapping[str, Any]] = {
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
}
_PROBE: Final[Mapping[str, Any]] = {
    "timeoutSeconds": 1,
    "periodSeconds": 10,
    "successThreshold": 1,
    "failureThreshold": 3,
}
_VOLUMES: Final[Mapping[str, Mapping[str, Any]]] = {
    "secret": {"defaultMode": _MODE},
    "configMap": {"defaultMode": _MODE},
    "downwardAPI": {"defaultMode": _MODE},
    "projected": {"defaultMode": _MODE},
    "hostPath": {"type": ""},
}
_SPECS: Final[Mapping[str, Mapping[str, Any]]] = {
    "Deployment.apps": {"replicas": 1, "revisionHistoryLimit": 10, "progressDeadlineSeconds": 600},
    "ReplicaSet.apps": {"replicas": 1},
    "StatefulSet.apps": {"replicas": 1, "revisionHistoryLimit": 10, "podManagementPolicy": "OrderedReady"},
    "DaemonSet.apps": {"revisionHistoryLimit": 10},
    "Job.batch": {"backoffLimit": 6, "completionMode": "NonIndexed", "suspend": False},
    "CronJob.batch": {
        "concurrencyPolicy": "Allow",
        "suspend": False,
        "successfulJobsHistoryLimit": 3,
        "failedJobsHistoryLimit": 1,
    },
    "Service": {"type": "ClusterIP", "sessionAffinity": "None"},
    "PersistentVolumeClaim": {"volumeMode": "Filesystem"},
    "PersistentVolume": {"volumeMode": "Filesystem", "persistentVolumeReclaimPolicy": "Retain"},
    "HorizontalPodAutoscaler.autoscaling": {"minReplicas": 1},
    "CSIDriver.storage.k8s.io": {"attachRequired": True, "volumeLifecycleModes": ["Persistent"]},
    "Pod": {},
}
_OBJECTS: Final[Mapping[str, Mapping[str, Any]]] = {
    "StorageClass.storage.k8s.io": {"reclaimPolicy": "Delete", "volumeBindingMode": "Immediate"},
    "PriorityClass.scheduling.k8s.io": {"preemptionPolicy": "PreemptLowerPriority"},
    "Secret": {"type": "Opaque"},
}
TEMPLATES: Final[Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys(
        (
            *(f"{kind}.apps" for kind in ("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet")),
            *("Job.batch", "ReplicationController"),
        ),
        ("spec", "template"),
    ),
    "CronJob.batch": ("spec", "jobTemplate", "spec", "template"),
}
"""The Pod templates of workloads, by kind."""


def field(value: object, *path: str) -> Any:
    """Return a field, None where there is none."""
    for key in path:
        if not isinstance(value, Mapping):
            return None
        value = value.get(key)
    return value


def items(value: object, *path: str) -> Iterator[Any]:
    """Yield the members of a list that are mappings."""
    listed = field(value, *path)
    yield from (item for item in (listed if isinstance(listed, list) else ()) if isinstance(item, Mapping))


def with_defaults(value: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """Return an object of a kind as the API server completes it, without fields that are null. Total.

    What is no kind of this table stays as it is, but for these fields, and so does one of a wrong shape.
    """
    done: dict[str, Any] = without_nulls(value)
    with suppress(AttributeError):
        _complete(done, kind)
    return done


def _complete(done: dict[str, Any], kind: str) -> None:
    _fill(done, _OBJECTS.get(kind, {}))
    spec = done.get("spec")
    if kind in _SPECS and isinstance(spec, dict):
        _fill(spec, _SPECS[kind])
        _of_kind(kind, spec)
    path = {**TEMPLATES, "Pod": (), "PodTemplate": ("template",)}.get(kind)
    template = field(done, *path) if path is not None else None
    if isinstance(pod := field(template, "spec"), dict):
        _pod(pod)
    if kind.endswith("RoleBinding.rbac.authorization.k8s.io") and isinstance(done.get("roleRef"), dict):
        _fill(done["roleRef"], {"apiGroup": "rbac.authorization.k8s.io"})


def without_nulls(value: Any) -> Any:
    """Return a copy of a value without fields that are null."""
    if isinstance(value, Mapping):
        return {key: without_nulls(part) for key, part in value.items() if part is not None}
    return [without_nulls(part) for part in value] if isinstance(value, list) else value


def _fill(value: Value, defaults: Mapping[str, Any]) -> None:
    for key, default in defaults.items():
        value.setdefault(key, default)


def _of_kind(kind: str, spec: dict[str, Any]) -> None:
    """Fill in what depends on other fields of the spec of a kind."""
    match kind:
        case "Deployment.apps":
            strategy = spec.setdefault("strategy", {})
            strategy.setdefault("type", "RollingUpdate")
            if strategy["type"] == "RollingUpdate":
                _fill(strategy.setdefault("rollingUpdate", {}), {"maxUnavailable": "25%", "maxSurge": "25%"})
        case "StatefulSet.apps" | "DaemonSet.apps":
            spec.setdefault("updateStrategy", {}).setdefault("type", "RollingUpdate")
            for claim in items(spec, "volumeClaimTemplates"):
                _fill(claim.setdefault("spec", {}), {"volumeMode": "Filesystem"})
        case "Job.batch":
            if "completions" not in spec and "parallelism" not in spec:
                spec["completions"] = 1
            spec.setdefault("parallelism", 1)
        case "Service":
            if spec["type"] != "ExternalName":
                spec.setdefault("internalTrafficPolicy", "Cluster")
            for port in items(spec, "ports"):
                port.setdefault("protocol", "TCP")
                port.setdefault("targetPort", port.get("port"))


def _pod(spec: dict[str, Any]) -> None:
    _fill(spec, _POD)
    spec.setdefault("securityContext", {})
    if "serviceAccountName" in spec:
        spec.setdefault("serviceAccount", spec["serviceAccountName"])
    for volume in items(spec, "volumes"):
        for source, defaults in _VOLUMES.items():
            if isinstance(volume.get(source), dict):
                _fill(volume[source], defaults)
        if not any(isinstance(part, dict) for part in volume.values()):
            volume["emptyDir"] = {}  # fields that are no source are unknown
        for source in items(volume, "projected", "sources"):
            if isinstance(source.get("serviceAccountToken"), dict):
                source["serviceAccountToken"].setdefault("expirationSeconds", 3600)
            _references(items(source, "downwardAPI", "items"), lambda item: item)
        _references(items(volume, "downwardAPI", "items"), lambda item: item)
    for container in containers(spec):
        _container(container, is_on_host=spec.get("hostNetwork") is True)


def containers(spec: object) -> Iterator[Any]:
    """Yield every container of a Pod's spec."""
    for name in ("initContainers", "containers", "ephemeralContainers"):
        yield from items(spec, name)


def _container(container: Value, *, is_on_host: bool) -> None:
    _fill(container, _CONTAINER)
    image = str(container.get("image") or "")
    tag = image.rpartition("/")[2].partition("@")[0].partition(":")[2]
    is_floating = tag == "latest" or (not tag and "@" not in image)
    container.setdefault("imagePullPolicy", "Always" if is_floating else "IfNotPresent")
    for port in items(container, "ports"):
        port.setdefault("protocol", "TCP")
        if is_on_host and "containerPort" in port:
            port.setdefault("hostPort", port["containerPort"])
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        if isinstance(probe := container.get(name), dict):
            _fill(probe, _PROBE)
            _http(probe.get("httpGet"))
            if isinstance(probe.get("grpc"), dict):
                probe["grpc"].setdefault("service", "")
    for hook in ("postStart", "preStop"):
        _http(field(container, "lifecycle", hook, "httpGet"))
    _references(items(container, "env"), lambda item: item.get("valueFrom"))
    resources = container.setdefault("resources", {})
    if isinstance(limits := field(resources, "limits"), dict) and limits:
        requests = resources.setdefault("requests", {})
        if isinstance(requests, dict):
            _fill(requests, limits)


def _http(action: object) -> None:
    if isinstance(action, dict):
        _fill(action, {"scheme": "HTTP", "path": "/"})


def _references(members: Iterator[Any], of: Callable[[Any], Any]) -> None:
    for member in members:
        if isinstance(reference := field(of(member), "fieldRef"), dict):
            reference.setdefault("apiVersion", "v1")
