"""Fields of built-in kinds that no update may change, with the versions of Kubernetes that enforce them.

Main has the object as the cluster has it. Defaults are filled in on both sides, and an absent field equals an
empty one. What depends on a value that only the cluster has is no refusal.
"""

import base64
from collections.abc import Callable, Iterator, Mapping
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
    """An immutable field; `once` lets it be set where it was absent.

    It is enforced from version `since` until `before`.
    """

    path: str
    once: bool = False
    reason: str = _IMMUTABLE
    since: Version = (1, 0)
    before: Version = (1, 1000)


_SELECTOR = (ImmutableField("spec.selector"),)
_ROLE = (ImmutableField("roleRef", reason="cannot change roleRef"),)
FIELDS: Final[Mapping[str, tuple[ImmutableField, ...]]] = {
    # apps: the ValidateUpdate of each strategy, since apps/v1; StatefulSet is below.
    "Deployment.apps": _SELECTOR,
    "DaemonSet.apps": _SELECTOR,
    "ReplicaSet.apps": _SELECTOR,
    # What ValidateJobSpecUpdate of batch compares, but for what depends on other fields.
    "Job.batch": (
        ImmutableField("spec.selector"),
        ImmutableField("spec.completionMode"),
        ImmutableField("spec.podFailurePolicy", since=(1, 26)),
        ImmutableField("spec.backoffLimitPerIndex", since=(1, 28)),
        ImmutableField("spec.successPolicy", since=(1, 30)),
        ImmutableField("spec.managedBy", since=(1, 30)),
    ),
    # core: ValidatePersistentVolumeUpdate, ValidateSecretUpdate
    "PersistentVolume": (
        ImmutableField("spec.volumeMode"),
        ImmutableField(
            "spec.nodeAffinity", once=True, reason="field is immutable once it is set", before=(1, 35)
        ),
    ),
    "Secret": (ImmutableField("type"),),
    # rbac, scheduling, networking, node, storage: Validate...Update of each
    "RoleBinding.rbac.authorization.k8s.io": _ROLE,
    "ClusterRoleBinding.rbac.authorization.k8s.io": _ROLE,
    "PriorityClass.scheduling.k8s.io": (
        ImmutableField("value", reason="may not be changed in an update"),
        ImmutableField("preemptionPolicy", since=(1, 24)),
    ),
    "IngressClass.networking.k8s.io": (ImmutableField("spec.controller"),),
    "RuntimeClass.node.k8s.io": (ImmutableField("handler"),),
    "EndpointSlice.discovery.k8s.io": (ImmutableField("addressType"),),
    "VolumeAttributesClass.storage.k8s.io": (ImmutableField("driverName"), ImmutableField("parameters")),
    "StorageClass.storage.k8s.io": (
        ImmutableField("provisioner", reason="updates to provisioner are forbidden"),
        ImmutableField("parameters", reason="updates to parameters are forbidden"),
        ImmutableField("reclaimPolicy", reason="updates to reclaimPolicy are forbidden"),
        ImmutableField("volumeBindingMode"),
    ),
    # In validateCustomResourceDefinitionSpecUpdate of apiextensions, once it is established.
    "CustomResourceDefinition.apiextensions.k8s.io": (
        ImmutableField("spec.group"),
        ImmutableField("spec.scope"),
        ImmutableField("spec.names.kind"),
        ImmutableField("spec.names.plural"),
    ),
}
_STATEFUL: Final = (
    *("replicas", "template", "updateStrategy", "persistentVolumeClaimRetentionPolicy"),
    *("minReadySeconds", "ordinals", "revisionHistoryLimit"),
)
"""Fields of a StatefulSet that may change; the last one only since 1.33 (kubernetes#130263)."""
_LIMIT_SINCE: Final = (1, 33)
_VOLUME: Final = frozenset(
    {
        *("capacity", "accessModes", "claimRef", "persistentVolumeReclaimPolicy", "storageClassName"),
        *("mountOptions", "volumeMode", "nodeAffinity", "volumeAttributesClassName"),
    }
)
"""Fields of a PersistentVolume that are no source."""
_CLAIM: Final = frozenset({"resources", "volumeAttributesClassName"})
_PLACING: Final = frozenset({"nodeSelector", "affinity", "tolerations", "schedulingGates"})
_POD: Final = frozenset(
    {"activeDeadlineSeconds", "tolerations", "schedulingGates", "terminationGracePeriodSeconds"}
)
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
        is_enforced = first <= version < last if version else (first, last) == ((1, 0), (1, 1000))
        path = rule.path.split(".")
        was, will = field(before, *path), field(after, *path)
        if is_enforced and not (rule.once and _is_empty(was)) and not same(was, will):
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
    free = _STATEFUL[:-1] if is_old else _STATEFUL
    for name in sorted({*_spec(old), *_spec(new)} - set(free)):
        was, will = field(old, "spec", name), field(new, "spec", name)
        if name == "volumeClaimTemplates":
            was, will = map(_claims, (was, will))
        if not same(was, will):
            allowed = ", ".join(f"'{free_name}'" for free_name in free)
            reason = f"updates to statefulset spec for fields other than {allowed} are forbidden"
            yield Fault(f"spec.{name}", reason)


def _claims(value: Any) -> list[Any]:
    """Return templates of claims without fields that are not of the claim."""
    return [
        {**{k: v for k, v in item.items() if k == "spec"}, "metadata": _without_time(item.get("metadata"))}
        for item in items({"claims": value}, "claims")
    ]


def _without_time(metadata: Any) -> Any:
    is_mapping = isinstance(metadata, Mapping)
    return {k: v for k, v in metadata.items() if k != "creationTimestamp"} if is_mapping else metadata


def _job(old: Mapping[str, Any], new: Mapping[str, Any], version: Version | None) -> Iterator[Fault]:
    was, will = field(old, "spec", "completions"), field(new, "spec", "completions")
    is_elastic = (version or (1, 27)) >= (1, 27) and field(new, "spec", "completionMode") == "Indexed"
    if not same(was, will) and not (is_elastic and field(new, "spec", "parallelism") == will):
        yield Fault("spec.completions", _IMMUTABLE)
    templates = [field(side, "spec", "template") for side in (old, new)]
    if field(old, "spec", "suspend") is True:
        templates = [_unplaced(template) for template in templates]
    if not same(*templates):
        yield Fault("spec.template", _IMMUTABLE)


def _unplaced(template: Any) -> Any:
    """Return a template without what may change while a Job is suspended: metadata, placement, resources."""
    spec = {key: part for key, part in _spec(template or {}).items() if key not in _PLACING}
    for name in ("containers", "initContainers"):
        if name in spec:
            spec[name] = [_without(container, "resources") for container in items(spec, name)]
    return spec


def _claim(old: Mapping[str, Any], new: Mapping[str, Any], _: Version | None) -> Iterator[Fault]:
    was, will = map(_spec, (old, new))
    for name in sorted(was.keys() & will.keys() - _CLAIM):
        # Where one side lacks a field the cluster may have chosen the same value.
        if not same(was[name], will[name]):
            reason = (
                "spec is immutable after creation except resources.requests and volumeAttributesClassName"
            )
            yield Fault(f"spec.{name}", reason)
    path = ("resources", "requests", "storage")
    sizes = [quantity(field(spec, *path)) for spec in (was, will)]
    if sizes[0] is not None and sizes[1] is not None and sizes[1] < sizes[0]:
        yield Fault(f"spec.{'.'.join(path)}", "field can not be less than previous value")


def _volume(old: Mapping[str, Any], new: Mapping[str, Any], _: Version | None) -> Iterator[Fault]:
    was, will = map(_spec, (old, new))
    for name in sorted({*was, *will} - _VOLUME):
        sides = [was.get(name), will.get(name)]
        if name == "csi" and field(sides[0], "controllerExpandSecretRef") is None:
            sides = [_without(side, "controllerExpandSecretRef") for side in sides]
        if not same(*sides):
            yield Fault(f"spec.{name}", "the source of a volume is immutable after creation")


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
    before, after = was.get("clusterIP") or "", will.get("clusterIP") or ""
    if before != after and ((before and after) or after == "None"):
        yield Fault("spec.clusterIP", "may not change once set")
    first, second = (next(iter(spec.get("ipFamilies") or ()), "") for spec in (was, will))
    if first and second and first != second:
        yield Fault("spec.ipFamilies", "may not change once set")
    kinds, classes = ([spec.get(key) or "" for spec in (was, will)] for key in ("type", "loadBalancerClass"))
    if kinds == ["LoadBalancer"] * 2 and classes[0] != classes[1]:
        yield Fault("spec.loadBalancerClass", "may not change once set")


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
    def fixed(value: Mapping[str, Any]) -> Mapping[str, Any]:
        spec = {key: part for key, part in _spec(value).items() if key not in _POD}
        for name in ("containers", "initContainers"):
            if name in spec:
                spec[name] = [_without(_without(c, "image"), "imagePullPolicy") for c in items(spec, name)]
        return spec

    if not same(fixed(old), fixed(new)):
        yield Fault("spec", "pod updates may not change fields other than images and tolerations")


_SPECIAL: Final[Mapping[str, Callable[..., Iterator[Fault]]]] = {
    "StatefulSet.apps": _stateful_set,
    "Job.batch": _job,
    "PersistentVolumeClaim": _claim,
    "PersistentVolume": _volume,
    "Service": _service,
    "ConfigMap": _frozen,
    "Secret": _frozen,
    "Pod": _pod,
}


# Values


def _is_empty(value: object) -> bool:
    return value is None or value in ({}, [], "")


_AMOUNTS: Final = frozenset({"requests", "limits", "capacity"})


def same(old: object, new: object, *, amounts: bool = False) -> bool:
    """Tell whether values are the same to the API server: an absent field equals an empty one.

    Where they are `amounts` of resources, `1Gi` is the same as `1024Mi`.
    """
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        return all(
            same(old.get(k), new.get(k), amounts=k in _AMOUNTS or amounts) for k in old.keys() | new.keys()
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
