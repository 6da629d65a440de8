"""set-namespace: every namespaced object, and what refers to it, into one namespace."""

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from reconciler.api.kptfile import PACKAGE_CONTEXT_NAME
from reconciler.functions.builtin.call import Call, FunctionFailedError, info, reference
from reconciler.functions.resource import Resource
from reconciler.functions.runtime import FunctionResult
from reconciler.functions.scope import is_namespaced

ORIGIN: Final = "internal.kpt.dev/upstream-identifier"
DEPENDS_ON: Final = "config.kubernetes.io/depends-on"
_CLUSTER: Final = "~C"
_NAMESPACED_REFERENCE: Final = re.compile(r"([^/]*)/namespaces/([^/]+)/([^/]+)/([^/]+)\Z")
_EXPECT: Final = "Expect `ConfigMap.v1` or `SetNamespace.v1alpha1.fn.kpt.dev`"


class _Wanted(NamedTuple):
    new: str
    matcher: str


class _Slot(NamedTuple):
    """A field that holds a namespace: its mapping, its key, and the namespace it had upstream."""

    holder: dict[str, Any]
    key: str
    origin: str


def set_namespace(call: Call) -> Iterator[FunctionResult]:
    """Set the namespace of every object, and of what names it.

    Source: krm-functions-catalog functions/go/set-namespace/transformer/namespace.go.
    Differs: a field that is absent is never made in a CustomResourceDefinition or an APIService, and
        objects without an upstream are no warning, unless upstream's behaviour is asked for.
    """
    try:
        wanted = _wanted(call)
    except FunctionFailedError as failed:
        if call.profile == "plain":
            raise
        yield from (
            FunctionResult(r.message, r.severity, resource_ref={}, file={"index": -1}) for r in failed.results
        )
        return
    seen = [resource for resource in call.items if not resource.is_local_config]
    before = {_identity(resource) for resource in seen}
    if call.profile == "plain":
        yield from _plain(seen, wanted.new, before, call)
        return
    if call.compatible:
        yield from _without_origin(seen)
    matcher = wanted.matcher
    problem = "" if matcher else _origin_problem(seen)
    if problem:
        yield FunctionResult(problem, "error")
        return
    slots = [slot for resource in seen for slot in _slots(resource, call)]
    yield info(_summary(_replace(slots, wanted), wanted.new, plain=False))
    depends = [slot for resource in seen for slot in _depends_on(resource, before, wanted)]
    yield info(_summary(depends, wanted.new, plain=False))


def _wanted(call: Call) -> _Wanted:
    """Read the configuration.

    Raises:
        FunctionFailedError: There is none, it is of another kind, or it names no namespace.
    """
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


def _named(new: str, matcher: str, complaint: str) -> _Wanted:
    if not new:
        raise FunctionFailedError(complaint)
    return _Wanted(new, matcher)


def _without_origin(resources: Iterable[Resource]) -> Iterator[FunctionResult]:
    for resource in resources:
        if ORIGIN not in resource.annotations:
            where = f"{resource.namespace}/{resource.name}" if resource.namespace else resource.name
            message = f"{resource.kind} {where} does not have upstream origin."
            yield FunctionResult(message, "warning", reference(resource))


def _origin_problem(resources: Iterable[Resource]) -> str:
    found = sorted(
        {
            _origin(resource).namespace
            for resource in resources
            if ORIGIN in resource.annotations and is_namespaced(resource)
        }
    )
    if len(found) <= 1:
        return ""
    listed = " ".join(found)
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
    parts = str(resource.annotations.get(ORIGIN, "")).split("|")
    return _Identity(*parts) if len(parts) == len(_Identity._fields) else _identity(resource)


def _slots(resource: Resource, call: Call) -> Iterator[_Slot]:
    origin = _origin(resource)
    if is_namespaced(resource):
        if origin.namespace != _CLUSTER:
            yield _Slot(resource.value.setdefault("metadata", {}), "namespace", origin.namespace)
        return
    kind = resource.kind
    if kind == "Namespace" and resource.group == "":
        yield _Slot(resource.metadata, "name", origin.name)
    if kind in _SERVICES and resource.group == _SERVICES[kind].group:
        holder = _holder(resource.value, _SERVICES[kind].path, create=call.compatible)
        if holder is not None and ("namespace" in holder or call.compatible):
            yield _Slot(holder, "namespace", origin.namespace)
    if kind in ("ClusterRoleBinding", "RoleBinding"):
        yield from _subjects(resource, origin.namespace)


def _subjects(resource: Resource, origin: str) -> Iterator[_Slot]:
    subjects = resource.value.get("subjects")
    for subject in subjects if isinstance(subjects, list) else ():
        if isinstance(subject, dict) and "namespace" in subject:
            yield _Slot(subject, "namespace", origin)


class _Service(NamedTuple):
    group: str
    path: tuple[str, ...]


_SERVICES: Final = {
    "CustomResourceDefinition": _Service(
        "apiextensions.k8s.io", ("spec", "conversion", "webhook", "clientConfig", "service")
    ),
    "APIService": _Service("apiregistration.k8s.io", ("spec", "service")),
}


def _holder(value: dict[str, Any], path: tuple[str, ...], *, create: bool) -> dict[str, Any] | None:
    for step in path:
        found = value.get(step)
        if found is None and create:
            found = value[step] = {}
        if not isinstance(found, dict):
            return None
        value = found
    return value


def _replace(slots: Iterable[_Slot], wanted: _Wanted) -> list[str]:
    """Write the namespace where it is due, and return the former ones."""
    changed = []
    for slot in slots:
        current = str(slot.holder.get(slot.key) or "default")
        if wanted.matcher and wanted.matcher not in (current, slot.origin):
            if not slot.holder.get(slot.key):
                slot.holder[slot.key] = current
            continue
        if slot.holder.get(slot.key) != wanted.new:
            slot.holder[slot.key] = wanted.new
            if current != wanted.new:
                changed.append(current)
    return changed


def _depends_on(resource: Resource, before: set[_Identity], wanted: _Wanted) -> Iterator[str]:
    """Change the namespace in a depends-on that names an object of this package; yield the former one."""
    annotations = resource.annotations
    found = _NAMESPACED_REFERENCE.match(str(annotations.get(DEPENDS_ON, "")))
    if found is None:
        return
    group, namespace, kind, name = found.groups()
    if _Identity(group, kind, namespace, name) not in before:
        return
    if namespace != wanted.new and (not wanted.matcher or wanted.matcher == namespace):
        annotations[DEPENDS_ON] = f"{group}/namespaces/{wanted.new}/{kind}/{name}"
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


def _plain(seen: list[Resource], new: str, before: set[_Identity], call: Call) -> Iterator[FunctionResult]:
    """Do as v0.4.1: replace every namespace whatever it was, also in the subjects of any binding."""
    slots = []
    for resource in seen:
        if is_namespaced(resource):
            slots.append(_Slot(resource.value.setdefault("metadata", {}), "namespace", ""))
        elif resource.kind == "Namespace" and resource.api_version == "v1":
            slots.append(_Slot(resource.metadata, "name", ""))
        elif resource.kind in _SERVICES:
            slots += [slot for slot in _slots(resource, call) if slot.key == "namespace"]
        if resource.kind in ("ClusterRoleBinding", "RoleBinding"):
            slots += _subjects(resource, "")
    wanted = _Wanted(new, "")
    changed = _replace(slots, wanted)
    yield info(_summary(changed, new, plain=True))
    for resource in seen:
        for _ in _depends_on(resource, before, wanted):
            pass
    for message in _duplicates(seen):
        yield FunctionResult(message, "error")


def _duplicates(resources: Iterable[Resource]) -> Iterator[str]:
    known: set[tuple[str, str, str, str]] = set()
    for resource in resources:
        key = (resource.api_version, resource.kind, resource.namespace, resource.name)
        if key in known:
            name = f"{resource.namespace}/{resource.name}"
            yield f"duplicate {resource.kind} {name} after the namespace was set"
        known.add(key)
