"""Fields of built-in kinds that no update may change, with the versions of Kubernetes that enforce them.

Main has the object as the cluster has it. Defaults are filled in on both sides, and an absent field equals an
empty one. What depends on a value that only the cluster has is no refusal.
"""

import base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final, NamedTuple

from reconciler.admission.defaults import TEMPLATES, field, items, with_defaults, without_nulls
from reconciler.api.meta import LabelSelector, SelectorError, compile_selector
from reconciler.cel.kubernetes import parse_quantity

Version = tuple[int, int]
"""Major and minor version of Kubernetes."""
_IMMUTABLE: Final = "field is immutable"


class Fault(NamedTuple):
    """A field that the API server refuses, and why."""

    path: str
    reason: str
    is_update: bool = True
    """Whether it may be had by deleting the object and creating it anew."""
    is_sure: bool = True
    """Whether it is refused; else it cannot be judged."""


class ImmutableField(NamedTuple):
    """An immutable field, enforced from version `since` until `before`."""

    path: str
    flags: frozenset[str]
    """`once` lets it be set where it was absent; the order of a `set` is none."""
    since: Version
    before: Version

    @property
    def reason(self) -> str:
        """The reason in the words of the API server."""
        return _REASONS.get(self.path, _IMMUTABLE)


_REASONS: Final[Mapping[str, str]] = {
    **{
        f: f"updates to {f} are forbidden"
        for f in ("provisioner", "parameters", "reclaimPolicy", "driverName")
    },
    "roleRef": "cannot change roleRef",
    "value": "may not be changed in an update",
}
_ROWS: Final = """\
Deployment.apps ReplicaSet.apps: spec.selector # ValidateUpdate of deploymentStrategy, rsStrategy 1.30
DaemonSet.apps: spec.selector # ValidateUpdate of daemonSetStrategy 1.16
ControllerRevision.apps: data # ValidateControllerRevisionUpdate 1.32
Job.batch: spec.selector, spec.completionMode, spec.podFailurePolicy >=1.26 # ValidateJobSpecUpdate 1.36
Job.batch: spec.backoffLimitPerIndex >=1.29, spec.successPolicy >=1.31 # ValidateJobSpecUpdate 1.36
Job.batch: spec.managedBy >=1.32 # ValidateJobSpecUpdate 1.36
PersistentVolume: spec.volumeMode # ValidatePersistentVolumeUpdate 1.33
PersistentVolume: spec.nodeAffinity once <1.35 # validatePvNodeAffinity 1.33
ResourceQuota: spec.scopes set # ValidateResourceQuotaUpdate 1.33
Secret: type # ValidateSecretUpdate 1.33
RoleBinding.rbac.authorization.k8s.io: roleRef # ValidateRoleBindingUpdate 1.36
ClusterRoleBinding.rbac.authorization.k8s.io: roleRef # ValidateClusterRoleBindingUpdate 1.36
PriorityClass.scheduling.k8s.io: value, preemptionPolicy >=1.24 # ValidatePriorityClassUpdate 1.36
IngressClass.networking.k8s.io: spec.controller # validateIngressClassSpecUpdate 1.36
IPAddress.networking.k8s.io: spec.parentRef # ValidateIPAddressUpdate 1.36
RuntimeClass.node.k8s.io: handler # ValidateRuntimeClassUpdate 1.36
EndpointSlice.discovery.k8s.io: addressType # ValidateEndpointSliceUpdate 1.21
StorageClass.storage.k8s.io: provisioner, parameters, reclaimPolicy # ValidateStorageClassUpdate 1.36
StorageClass.storage.k8s.io: volumeBindingMode # ValidateStorageClassUpdate 1.36
VolumeAttributesClass.storage.k8s.io: driverName, parameters # ValidateVolumeAttributesClassUpdate 1.36
CSIDriver.storage.k8s.io: spec.attachRequired, spec.volumeLifecycleModes # ValidateCSIDriverUpdate 1.36
CSIStorageCapacity.storage.k8s.io: nodeTopology, storageClassName # ValidateCSIStorageCapacityUpdate 1.36
VolumeAttachment.storage.k8s.io: spec # ValidateVolumeAttachmentUpdate 1.36
CustomResourceDefinition.apiextensions.k8s.io: spec.group, spec.names.plural # ...SpecUpdate 1.37
CustomResourceDefinition.apiextensions.k8s.io: spec.scope, spec.names.kind # ...SpecUpdate 1.37
"""
"""Kinds, their fields, and the function of Kubernetes with which the row was compared, in about this version.

A version that has a field only as alpha drops it before it is compared. What other fields decide is below.
"""


def _fields() -> Mapping[str, tuple[ImmutableField, ...]]:
    fields: dict[str, tuple[ImmutableField, ...]] = {}
    for row in _ROWS.splitlines():
        kinds, rules = row.partition(" # ")[0].split(": ")
        for path, *flags in map(str.split, rules.split(", ")):
            bounds = {
                flag.partition("1.")[0]: (1, int(flag.partition("1.")[2])) for flag in flags if "1." in flag
            }
            rule = ImmutableField(path, frozenset(flags), bounds.get(">=", _FIRST), bounds.get("<", _LAST))
            fields |= {kind: (*fields.get(kind, ()), rule) for kind in kinds.split()}
    return fields


_FIRST: Final[Version] = (1, 0)
_LAST: Final[Version] = (1, 1000)
FIELDS: Final = _fields()
_STATEFUL: Final = (
    *("replicas", "template", "updateStrategy", "persistentVolumeClaimRetentionPolicy"),
    *("minReadySeconds", "ordinals", "revisionHistoryLimit"),
)
"""Fields of a StatefulSet that may change; the last one only since 1.33 (kubernetes#130263)."""
_LIMIT_SINCE: Final = (1, 33)
_SHRINKS_SINCE: Final = (1, 32)
"""A claim may be smaller than before, but not smaller than its volume, which it had in general."""
_RESIZED_SINCE: Final = (1, 35)
"""The resources of the Pods of a suspended Job may change."""
_VOLUME: Final = frozenset(
    {
        *("capacity", "accessModes", "claimRef", "persistentVolumeReclaimPolicy", "storageClassName"),
        *("mountOptions", "volumeMode", "nodeAffinity", "volumeAttributesClassName"),
    }
)
"""Fields of a PersistentVolume that are no source."""
_CHOSEN: Final = frozenset({"storageClassName", "volumeName", "dataSource", "dataSourceRef"})
"""Fields of a claim that the cluster fills in where main has none."""
_PLACING: Final = frozenset({"nodeSelector", "tolerations", "schedulingGates"})
_POD: Final = frozenset({"activeDeadlineSeconds", "tolerations", "schedulingGates"})
_ASSIGNED: Final = frozenset(
    {
        *("nodeName", "serviceAccountName", "serviceAccount", "priority", "priorityClassName", "overhead"),
        *("preemptionPolicy", "imagePullSecrets", "runtimeClassName"),
    }
)
"""Fields of a Pod that the cluster fills in where main has none."""
FORCED: Final[Mapping[str, Callable[[str], bool]]] = {
    "kustomize.toolkit.fluxcd.io/force": lambda text: text.lower() in ("enabled", "true"),
    "argocd.argoproj.io/sync-options": lambda text: (
        {"Force=true", "Replace=true"} <= {part.strip() for part in text.split(",")}
    ),
    "kapp.k14s.io/update-strategy": lambda text: text in ("fallback-on-replace", "always-replace"),
}
"""Annotations by which an object asks to be deleted and created anew where an update is refused."""
_HOOKS: Final = ("argocd.argoproj.io/hook", "helm.sh/hook")


def is_forced(value: Mapping[str, Any]) -> bool:
    """Tell whether an object asks its deployer to recreate it."""
    notes = field(value, "metadata", "annotations")
    return isinstance(notes, Mapping) and any(
        isinstance(notes.get(name), str) and asks(notes[name]) for name, asks in FORCED.items()
    )


def is_hook(value: Mapping[str, Any]) -> bool:
    """Tell whether its deployer deletes an object before it creates the next one of its name."""
    notes = field(value, "metadata", "annotations")
    return isinstance(notes, Mapping) and any(notes.get(name) for name in _HOOKS)


def find_faults(
    old: Mapping[str, Any] | None, new: Mapping[str, Any], kind: str, version: Version | None
) -> Iterator[Fault]:
    """Yield the fields of an object of a built-in kind that its cluster would refuse.

    Without a `version` of Kubernetes what only some versions refuse is let pass.
    """
    if kind not in FIELDS and kind not in TEMPLATES and kind not in _SPECIAL:
        return
    yield from _unmatched(new, kind)
    if old is None:
        return
    before, after = with_defaults(old, kind), with_defaults(new, kind)
    for rule in FIELDS.get(kind, ()):
        first, last = rule.since, rule.before
        is_enforced = first <= version < last if version else (first, last) == (_FIRST, _LAST)
        path = rule.path.split(".")
        was, will = field(before, *path), field(after, *path)
        if "set" in rule.flags and isinstance(was, list) and isinstance(will, list):
            was, will = ([*sorted({*map(str, side)})] for side in (was, will))
        if is_enforced and not ("once" in rule.flags and _is_empty(was)) and not same(was, will):
            yield Fault(rule.path, rule.reason)
    special = _SPECIAL.get(kind)
    if special is not None:
        yield from special(before, after, version)


def _unmatched(value: Mapping[str, Any], kind: str) -> Iterator[Fault]:
    """Yield a selector that does not select the Pods of its own template."""
    selector = field(value, "spec", "selector")
    if kind not in TEMPLATES or kind == "ReplicationController" or not isinstance(selector, Mapping):
        return
    labels = field(value, *TEMPLATES[kind], "metadata", "labels")
    labels = without_nulls(labels) if isinstance(labels, Mapping) else {}
    selector = without_nulls(selector)
    try:
        selects = compile_selector(LabelSelector.model_validate(selector, by_alias=True, by_name=False))
    except (SelectorError, ValueError):
        return
    if not selects(labels):
        yield Fault("spec.template.metadata.labels", "`selector` does not match template `labels`", False)


def _stateful_set(old: Mapping[str, Any], new: Mapping[str, Any], version: Version | None) -> Iterator[Fault]:
    is_old = version is not None and version < _LIMIT_SINCE
    for name in sorted({*_spec(old), *_spec(new)} - {*(_STATEFUL[:-1] if is_old else _STATEFUL)}):
        was, will = field(old, "spec", name), field(new, "spec", name)
        if name == "volumeClaimTemplates":
            was, will = map(_claims, (was, will))
        if not same(was, will):
            yield Fault(f"spec.{name}", "updates to statefulset spec for this field are forbidden")


def _claims(value: Any) -> list[Any]:
    """Return templates of claims without fields that are not of the claim."""
    return [
        {"spec": item.get("spec"), "metadata": _without(item.get("metadata"), "creationTimestamp")}
        for item in items({"claims": value}, "claims")
    ]


def _job(old: Mapping[str, Any], new: Mapping[str, Any], version: Version | None) -> Iterator[Fault]:
    was, will = field(old, "spec", "completions"), field(new, "spec", "completions")
    is_elastic = (version or (1, 27)) >= (1, 27) and field(new, "spec", "completionMode") == "Indexed"
    if not same(was, will) and not (is_elastic and field(new, "spec", "parallelism") == will):
        yield Fault("spec.completions", _IMMUTABLE)
    templates = [field(side, "spec", "template") for side in (old, new)]
    if field(old, "spec", "suspend") is True:
        is_resized = version is None or version >= _RESIZED_SINCE
        templates = [_unplaced(template, is_resized=is_resized) for template in templates]
    if not same(*templates):
        yield Fault("spec.template", _IMMUTABLE)


def _unplaced(template: Any, *, is_resized: bool) -> Any:
    """Return a template without what may change while a Job is suspended: metadata, placement, resources."""
    spec = {key: part for key, part in _spec(template or {}).items() if key not in _PLACING}
    spec["affinity"] = _without(spec.get("affinity"), "nodeAffinity")
    for name in ("containers", "initContainers") if is_resized else ():
        if name in spec:
            spec[name] = [_without(container, "resources") for container in items(spec, name)]
    return spec


def _claim(old: Mapping[str, Any], new: Mapping[str, Any], version: Version | None) -> Iterator[Fault]:
    was, will = map(_claimed, (old, new))
    for name in sorted(was.keys() | will.keys()):
        if name in _CHOSEN and (name not in was or (name.startswith("data") and name not in will)):
            continue  # the cluster may have the same value, or fill in one data source from the other one
        if not same(was.get(name), will.get(name), amounts=True):
            exceptions = "resources.requests and volumeAttributesClassName for bound claims"
            yield Fault(f"spec.{name}", f"spec is immutable after creation except {exceptions}")
    classes = [field(side, "spec", "volumeAttributesClassName") for side in (old, new)]
    if classes[0] and not classes[1]:
        yield Fault("spec.volumeAttributesClassName", "update from non-nil value to nil is forbidden")
    path = ("spec", "resources", "requests", "storage")
    sizes = [quantity(field(side, *path)) for side in (old, new)]
    if sizes[0] is not None and sizes[1] is not None and sizes[1] < sizes[0]:
        least = "status.capacity" if version and version >= _SHRINKS_SINCE else "previous value"
        yield Fault(".".join(path), f"field can not be less than {least}")


def _claimed(claim: Mapping[str, Any]) -> dict[str, Any]:
    """Return what may not change of a claim."""
    spec = {key: part for key, part in _spec(claim).items() if key != "volumeAttributesClassName"}
    resources = spec.get("resources")
    if isinstance(resources, Mapping):
        spec["resources"] = {**resources, "requests": _without(resources.get("requests"), "storage")}
    return spec


def _volume(old: Mapping[str, Any], new: Mapping[str, Any], _: Version | None) -> Iterator[Fault]:
    was, will = map(_spec, (old, new))
    for name in sorted({*was, *will} - _VOLUME):
        sides = [was.get(name), will.get(name)]
        if name == "csi" and field(sides[0], "controllerExpandSecretRef") is None:
            sides = [_without(side, "controllerExpandSecretRef") for side in sides]
        if not same(*sides):
            yield Fault(f"spec.{name}", "spec.persistentvolumesource is immutable after creation")


def _spec(value: Mapping[str, Any]) -> Mapping[str, Any]:
    spec = value.get("spec")
    return spec if isinstance(spec, Mapping) else {}


def _without(value: Any, name: str) -> Any:
    return {k: v for k, v in value.items() if k != name} if isinstance(value, Mapping) else value


def _service(old: Mapping[str, Any], new: Mapping[str, Any], _: Version | None) -> Iterator[Fault]:
    was, will = map(_spec, (old, new))
    if "ExternalName" in (was.get("type"), will.get("type")):
        return
    # An address that is left out stays. One that is new may be the one that the cluster has, but for `None`.
    before, after = (
        [ip for ip in _list(spec, "clusterIPs") or [spec.get("clusterIP")] if ip] for spec in (was, will)
    )
    if _moves(before, after) or (not before and after[:1] == ["None"]):
        yield Fault("spec.clusterIP", "may not change once set")
    if _moves(_list(was, "ipFamilies"), _list(will, "ipFamilies")):
        yield Fault("spec.ipFamilies", "may not change once set")
    kinds, classes = ([spec.get(key) or "" for spec in (was, will)] for key in ("type", "loadBalancerClass"))
    if kinds == ["LoadBalancer"] * 2:
        if classes[0] != classes[1]:
            yield Fault("spec.loadBalancerClass", "may not change once set")
        ports = [spec.get("healthCheckNodePort") for spec in (was, will)]
        is_local = was.get("externalTrafficPolicy") == will.get("externalTrafficPolicy") == "Local"
        if is_local and all(ports) and ports[0] != ports[1]:
            yield Fault("spec.healthCheckNodePort", _IMMUTABLE)


def _list(spec: Mapping[str, Any], name: str) -> list[Any]:
    value = spec.get(name)
    return value if isinstance(value, list) else []


def _moves(old: Sequence[Any], new: Sequence[Any]) -> bool:
    """Tell whether lists differ but for members that are added or removed at the end."""
    return any(was != will for was, will in zip(old, new, strict=False))


def _ranges(old: Mapping[str, Any], new: Mapping[str, Any], _: Version | None) -> Iterator[Fault]:
    """Yield changes of a ServiceCIDR; a second range may be added."""
    was, will = (_list(_spec(side), "cidrs") for side in (old, new))
    if len(will) < len(was) or _moves(was, will):
        yield Fault("spec.cidrs", _IMMUTABLE)


def _frozen(old: Mapping[str, Any], new: Mapping[str, Any], _: Version | None) -> Iterator[Fault]:
    """Yield changes of a ConfigMap or Secret that is `immutable`."""
    if old.get("immutable") is not True:
        return
    reason = "field is immutable when `immutable` is set"
    if new.get("immutable") is not True:
        yield Fault("immutable", reason)
    if not same(_data(old), _data(new)):
        yield Fault("data", reason)
    if not same(old.get("binaryData"), new.get("binaryData")):
        yield Fault("binaryData", reason)


def _data(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return the data of a ConfigMap or Secret, with that which a Secret has as text."""
    data, texts = (
        {**part} if isinstance(part := value.get(n), Mapping) else {} for n in ("data", "stringData")
    )
    return data | {key: base64.b64encode(str(text).encode()).decode() for key, text in texts.items()}


def _pod(old: Mapping[str, Any], new: Mapping[str, Any], _: Version | None) -> Iterator[Fault]:
    is_gated = bool(field(old, "spec", "schedulingGates"))
    free = {*_POD, *_ASSIGNED - (_spec(old).keys() & _spec(new).keys())}
    free |= {"nodeSelector", "affinity"} if is_gated else set()

    def fixed(value: Mapping[str, Any]) -> Mapping[str, Any]:
        spec = {key: part for key, part in _spec(value).items() if key not in free}
        for name in ("containers", "initContainers"):
            if name in spec:
                spec[name] = [_without(_without(c, "image"), "imagePullPolicy") for c in items(spec, name)]
        return spec

    if not same(fixed(old), fixed(new)):
        yield Fault("spec", "pod updates may not change fields other than images and tolerations")


_SPECIAL: Final[Mapping[str, Callable[..., Iterator[Fault]]]] = {
    "StatefulSet.apps": _stateful_set,  # ValidateStatefulSetUpdate, 1.32 and 1.35
    "Job.batch": _job,  # validatePodTemplateUpdate, validateCompletions, 1.36
    "PersistentVolumeClaim": _claim,  # ValidatePersistentVolumeClaimUpdate, 1.33
    "PersistentVolume": _volume,  # ValidatePersistentVolumeUpdate, 1.33
    "Service": _service,  # ValidateServiceUpdate, 1.33
    "ServiceCIDR.networking.k8s.io": _ranges,  # ValidateServiceCIDRUpdate, 1.36
    "ConfigMap": _frozen,  # ValidateConfigMapUpdate, 1.33
    "Secret": _frozen,  # ValidateSecretUpdate, 1.33
    "Pod": _pod,  # ValidatePodUpdate, 1.33
}


# Values


def _is_empty(value: object) -> bool:
    return value is None or value in ({}, [], "")


_AMOUNTS: Final = frozenset({"requests", "limits", "capacity", "sizeLimit", "divisor"})
_PLAIN: Final = frozenset(
    {*("hostNetwork", "hostPID", "hostIPC", "hostPort", "readOnly", "stdin", "stdinOnce", "tty", "value")}
)
"""Fields for which the API server cannot tell `false` or 0 from an absent one."""


def same(old: object, new: object, *, amounts: bool = False) -> bool:
    """Tell whether values are the same to the API server: an absent field equals an empty one.

    Where they are `amounts` of resources, `1Gi` is the same as `1024Mi`.
    """
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        return all(
            same(old.get(k), new.get(k), amounts=k in _AMOUNTS or amounts)
            or (k in _PLAIN and not old.get(k) and not new.get(k))
            for k in old.keys() | new.keys()
        )
    if isinstance(old, list) and isinstance(new, list):
        return len(old) == len(new) and all(map(same, old, new))
    if old == new or (_is_empty(old) and _is_empty(new)):
        return type(old) is not bool or type(new) is not int
    if isinstance(old, Mapping) or isinstance(new, Mapping):
        # A mapping of fields that are all empty is one that is absent.
        rest, other = (old, new) if isinstance(old, Mapping) else (new, old)
        return _is_empty(other) and isinstance(rest, Mapping) and all(map(_is_empty, rest.values()))
    first, second = (quantity(old), quantity(new)) if amounts else (None, None)
    return first is not None and first == second


def quantity(value: object) -> Decimal | None:
    """Return the number that a quantity is, such as `1500m` or `2Gi`; None for what is none."""
    try:
        return None if isinstance(value, bool) else parse_quantity(str(value))
    except ValueError:
        return None
