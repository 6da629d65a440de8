"""set-namespace: move every namespaced object, and the references to it, into one namespace."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from reconciler.api.kptfile import PACKAGE_CONTEXT_NAME
from reconciler.base.lazy import regex
from reconciler.functions.builtin.call import BuiltinCall, FunctionFailedError
from reconciler.functions.builtin.fields import FieldSpec, configured_specs
from reconciler.functions.protocol import FunctionResult
from reconciler.functions.resources import Resource
from reconciler.krm.schema import is_namespaced_kind
from reconciler.krm.values import mappings_at

_ORIGIN: Final = "internal.kpt.dev/upstream-identifier"
_DEPENDS_ON: Final = "config.kubernetes.io/depends-on"
_CLUSTER: Final = "~C"
_NAMESPACED_REFERENCE: Final = regex(r"([^/]*)/namespaces/([^/]+)/([^/]+)/([^/]+)\Z")
_KUSTOMIZE: Final = ("default-subjects", "account-subjects")
"""Profiles of v0.1 and v0.2: kustomize's transformer, and with it the accounts of the package."""
_EXPECT: Final = "Expect `ConfigMap.v1` or `SetNamespace.v1alpha1.fn.kpt.dev`"


class _Replacement(NamedTuple):
    """The new namespace, and the one that is replaced; an empty matcher replaces all."""

    new: str
    matcher: str


class _Slot(NamedTuple):
    """A field with a namespace: its mapping, its key, and the namespace of the object upstream."""

    holder: dict[str, Any]
    key: str
    origin: str


def set_namespace(call: BuiltinCall) -> Iterator[FunctionResult]:
    """Set the namespace of every object and of the references to it.

    Source: krm-functions-catalog functions/go/set-namespace/transformer/namespace.go.
    Differs: a field that is absent is never made in a CustomResourceDefinition or an APIService, and
        objects without an upstream are no warning, unless upstream's behaviour is asked for.
    """
    if call.profile in _KUSTOMIZE:
        _like_kustomize(call)
        return
    try:
        replacement = _read_replacement(call)
    except FunctionFailedError as failed:
        if call.profile == "plain":
            raise
        yield from (
            # As upstream reports an invalid configuration.
            FunctionResult(r.message, r.severity, resource_ref={}, file={"index": -1})
            for r in failed.results
        )
        return
    resources = [resource for resource in call.items if not resource.is_local_config]
    before = {_identity(resource) for resource in resources}
    if call.profile == "plain":
        yield from _plain(resources, replacement.new, before, call)
        return
    one_origin = call.profile == "one-origin"
    if call.compatible and one_origin:
        for resource in resources:
            if _ORIGIN not in resource.annotations:
                where = f"{resource.namespace}/{resource.name}" if resource.namespace else resource.name
                message = f"{resource.kind} {where} does not have upstream origin."
                fields = {
                    "apiVersion": resource.api_version,
                    "kind": resource.kind,
                    "namespace": resource.namespace,
                    "name": resource.name,
                }
                yield FunctionResult(
                    message, "warning", {key: value for key, value in fields.items() if value}
                )
    problem = _origin_problem(resources) if one_origin and not replacement.matcher else ""
    if problem:
        yield FunctionResult(problem, "error")
        return
    slots = [slot for resource in resources for slot in _slots(resource, call)]
    yield FunctionResult(_summary(_replace(slots, replacement), replacement.new, plain=False))
    depends = [slot for resource in resources for slot in _depends_on(resource, before, replacement)]
    yield FunctionResult(_summary(depends, replacement.new, plain=False))


def _read_replacement(call: BuiltinCall) -> _Replacement:
    if call.config is None:
        raise FunctionFailedError(f"FunctionConfig is missing. {_EXPECT}")
    kind, version = call.config_kind, call.config_api_version
    if kind == "ConfigMap" and version == "v1":
        data = call.data
        if call.config_name == PACKAGE_CONTEXT_NAME:
            return _named(data.get("name", ""), "", "`data.name` should not be empty")
        return _named(
            data.get("namespace", ""),
            data.get("namespaceMatcher", ""),
            "`data.namespace` should not be empty",
        )
    if kind == "SetNamespace" and version.partition("/")[0] == "fn.kpt.dev":
        new, matcher = call.config.get("namespace"), call.config.get("namespaceMatcher")
        return _named(str(new or ""), str(matcher or ""), "`namespace` should not be empty")
    raise FunctionFailedError(f"unknown FunctionConfig Kind={kind} ApiVersion={version}. {_EXPECT}")


def _named(new: str, matcher: str, complaint: str) -> _Replacement:
    if not new:
        raise FunctionFailedError(complaint)
    return _Replacement(new, matcher)


def _origin_problem(resources: Iterable[Resource]) -> str:
    origins = sorted(
        {
            _origin(resource).namespace
            for resource in resources
            if _ORIGIN in resource.annotations and is_namespaced(resource)
        }
    )
    if len(origins) <= 1:
        return ""
    listed = " ".join(origins)
    return f"unable to use origin `namespace` to match. expect a single upstream namespace, found [{listed}]"


class _Identity(NamedTuple):
    group: str
    kind: str
    namespace: str
    name: str


def _identity(resource: Resource) -> _Identity:
    namespace = (resource.namespace or "default") if is_namespaced(resource) else _CLUSTER
    return _Identity(resource.group, resource.kind, namespace, resource.name)


def _origin(resource: Resource) -> _Identity:
    parts = str(resource.annotations.get(_ORIGIN, "")).split("|")
    return _Identity(*parts) if len(parts) == len(_Identity._fields) else _identity(resource)


def _slots(resource: Resource, call: BuiltinCall) -> Iterator[_Slot]:
    origin = _origin(resource)
    if is_namespaced(resource):
        if origin.namespace != _CLUSTER:
            yield _Slot(resource.value.setdefault("metadata", {}), "namespace", origin.namespace)
        return
    kind = resource.kind
    if kind == "Namespace" and resource.group == "":
        yield _Slot(resource.metadata, "name", origin.name)
    service = _service(resource, create=call.compatible)
    if service is not None:
        yield _Slot(service, "namespace", origin.namespace)
    if kind in ("ClusterRoleBinding", "RoleBinding"):
        yield from _subjects(resource, origin.namespace)


def _subjects(resource: Resource, origin: str) -> Iterator[_Slot]:
    for subject in mappings_at(resource.value, "subjects"):
        if "namespace" in subject:
            yield _Slot(subject, "namespace", origin)


_SERVICES: Final = {
    ("apiextensions.k8s.io", "CustomResourceDefinition"): (
        *("spec", "conversion", "webhook", "clientConfig", "service"),
    ),
    ("apiregistration.k8s.io", "APIService"): ("spec", "service"),
}
"""The place of a service with a namespace in objects without one, by their group and kind."""


def _service(resource: Resource, *, create: bool) -> dict[str, Any] | None:
    """Return the service of a cluster-scoped object that has a namespace, or may get one."""
    path = _SERVICES.get((resource.group, resource.kind))
    if path is None:
        return None
    value = resource.value
    for step in path:
        child = value.get(step)
        if child is None and create:
            child = value[step] = {}
        if not isinstance(child, dict):
            return None
        value = child
    return value if create or "namespace" in value else None


def _replace(slots: Iterable[_Slot], replacement: _Replacement) -> list[str]:
    changed = []
    for slot in slots:
        current = str(slot.holder.get(slot.key) or "default")
        if replacement.matcher and replacement.matcher not in (current, slot.origin):
            if not slot.holder.get(slot.key):
                slot.holder[slot.key] = current
            continue
        if slot.holder.get(slot.key) != replacement.new:
            slot.holder[slot.key] = replacement.new
            if current != replacement.new:
                changed.append(current)
    return changed


def _depends_on(resource: Resource, before: set[_Identity], replacement: _Replacement) -> Iterator[str]:
    """Change the namespace of a depends-on reference to an object of this package; yield the former one."""
    annotations = resource.annotations
    match = _NAMESPACED_REFERENCE.match(str(annotations.get(_DEPENDS_ON, "")))
    if match is None:
        return
    group, namespace, kind, name = match.groups()
    if _Identity(group, kind, namespace, name) not in before:
        return
    if namespace != replacement.new and replacement.matcher in ("", namespace):
        annotations[_DEPENDS_ON] = f"{group}/namespaces/{replacement.new}/{kind}/{name}"
        yield namespace


def _summary(old: list[str], new: str, *, plain: bool) -> str:
    names = list(dict.fromkeys(sorted(old)))
    if plain:
        listed = ",".join(f'"{name}"' for name in names)
        nothing = f'all namespaces are already "{new}". no value changed'
    else:
        listed = f"[{' '.join(names)}]"
        nothing = f'all matching namespaces are already "{new}". no value changed'
    return f'namespace {listed} updated to "{new}", {len(old)} value(s) changed' if old else nothing


def _plain(
    resources: list[Resource], new: str, before: set[_Identity], call: BuiltinCall
) -> Iterator[FunctionResult]:
    """Set namespaces as v0.4.1 does: replace any namespace, also in the subjects of any binding."""
    slots = []
    for resource in resources:
        if is_namespaced(resource):
            slots.append(_Slot(resource.value.setdefault("metadata", {}), "namespace", ""))
        elif resource.kind == "Namespace" and resource.api_version == "v1":
            slots.append(_Slot(resource.metadata, "name", ""))
        elif (resource.group, resource.kind) in _SERVICES:
            slots += [slot for slot in _slots(resource, call) if slot.key == "namespace"]
        if resource.kind in ("ClusterRoleBinding", "RoleBinding"):
            slots += _subjects(resource, "")
    replacement = _Replacement(new, "")
    changed = _replace(slots, replacement)
    yield FunctionResult(_summary(changed, new, plain=True))
    for resource in resources:
        for _ in _depends_on(resource, before, replacement):
            pass
    for message in _duplicates(resources):
        yield FunctionResult(message, "error")


def _like_kustomize(call: BuiltinCall) -> None:
    """Set namespaces as v0.1.4 and v0.2.0 do: in every object, the Kptfile included, if it may have one.

    Source: kustomize api/filters/namespace and its default field specs, v0.8.11; of v0.2.0 also
        krm-functions-catalog functions/go/set-namespace/namespace_transformer.go.
    """
    new, specs = _read_fields(call)
    accounts = {item.name for item in call.items if item.kind == "ServiceAccount"}
    if call.profile == "default-subjects":
        accounts = set()
    for resource in call.items:
        if is_namespaced_kind(resource.api_version, resource.kind) is not False:
            resource.value.setdefault("metadata", {})["namespace"] = new
        elif resource.kind == "Namespace":
            resource.metadata["name"] = new
        for reference in (field for spec in specs for field in spec.find(resource)):
            reference.put(new)
        service = _service(resource, create=call.compatible and resource.kind == "APIService")
        if service is not None:
            service["namespace"] = new
        if resource.kind in ("RoleBinding", "ClusterRoleBinding"):
            for subject in mappings_at(resource.value, "subjects"):
                is_account = subject.get("kind") == "ServiceAccount" and subject.get("name") in accounts
                if is_account or subject.get("name") == "default":
                    subject["namespace"] = new


def _read_fields(call: BuiltinCall) -> tuple[str, list[FieldSpec]]:
    """Read the configuration of v0.1 and v0.2: the namespace, and more fields that hold one."""
    config: Mapping[str, Any] = call.config or {}
    specs: list[FieldSpec] = []
    if call.config_kind == "ConfigMap" and call.config_api_version == "v1":
        new = call.data.get("namespace", "")
    elif (
        call.config_kind in ("SetNamespace", "SetNamespaceConfig")
        and call.config_api_version == "fn.kpt.dev/v1alpha1"
    ):
        new = str(config.get("namespace") or "")
        specs = configured_specs(config, "additionalNamespaceFields")
    else:
        raise FunctionFailedError(
            "failed to configure function: `functionConfig` must be a `ConfigMap` or `SetNamespace`"
        )
    if not new:
        raise FunctionFailedError("failed to configure function: input namespace cannot be empty")
    return new, specs


def _duplicates(resources: Iterable[Resource]) -> Iterator[str]:
    seen: set[tuple[str, str, str, str]] = set()
    for resource in resources:
        key = (resource.api_version, resource.kind, resource.namespace, resource.name)
        if key in seen:
            name = f"{resource.namespace}/{resource.name}"
            yield f"duplicate {resource.kind} {name} after the namespace was set"
        seen.add(key)


def is_namespaced(resource: Resource) -> bool:
    """Return whether an object is namespaced; one of an unknown kind is if it has a namespace.

    Source: kpt-functions-sdk go/fn, precomputedIsNamespaceScoped.
    """
    namespaced = is_namespaced_kind(resource.api_version, resource.kind)
    return "namespace" in resource.metadata if namespaced is None else namespaced
