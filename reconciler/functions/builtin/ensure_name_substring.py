"""ensure-name-substring: add a prefix or suffix to every name and to the references to it."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from reconciler.base.lazy import regex
from reconciler.functions.builtin.call import BuiltinCall, FunctionFailedError, as_text
from reconciler.functions.builtin.fields import FieldSpec, parse_specs
from reconciler.functions.protocol import FunctionResult
from reconciler.functions.resources import Resource

# kustomize's prefix transformer skips these kinds, apart from the Kptfile.
_NEVER_RENAMED: Final = frozenset(("Namespace", "CustomResourceDefinition", "APIService", "Kptfile"))
_DEPENDS_ON: Final = "config.kubernetes.io/depends-on"
_OBJECT: Final = regex(r"([^/,\s]*)/(?:namespaces/([^/,\s]+)/)?([^/,\s]+)/([^/,\s]+)")
_FIELDS: Final = {
    "configMapKeyRef": ("name", "ConfigMap"),
    "configMapRef": ("name", "ConfigMap"),
    "configMap": ("name", "ConfigMap"),
    "secretKeyRef": ("name", "Secret"),
    "secretRef": ("name", "Secret"),
    "imagePullSecrets": ("name", "Secret"),
    "secret": ("secretName", "Secret"),
    "tls": ("secretName", "Secret"),
    "persistentVolumeClaim": ("claimName", "PersistentVolumeClaim"),
    "service": ("name", "Service"),
}
"""A mapping, or a list of mappings, under this key names an object of this kind in that field."""

_SCALARS: Final = {
    "serviceAccountName": "ServiceAccount",
    "serviceAccount": "ServiceAccount",
    "serviceName": "Service",
    "volumeName": "PersistentVolume",
    "storageClassName": "StorageClass",
    "priorityClassName": "PriorityClass",
    "runtimeClassName": "RuntimeClass",
    "ingressClassName": "IngressClass",
}
_BY_KIND: Final = frozenset(("roleRef", "scaleTargetRef", "subjects", "targetRef", "resourceRef"))


class _Substring(NamedTuple):
    prefix: str
    suffix: str
    specs: tuple[FieldSpec, ...]

    def add_to(self, text: str) -> str:
        """Return a name with the substring; a name that contains it anywhere stays."""
        return text if self.prefix + self.suffix in text else f"{self.prefix}{text}{self.suffix}"


def ensure_name_substring(call: BuiltinCall) -> Iterator[FunctionResult]:
    """Add a missing prefix or suffix to every name, and update the references. Yields no results.

    Source: krm-functions-catalog functions/go/ensure-name-substring/main.go.
    Differs: references are found by the names of their fields, and resources stay in their files.
    """
    substring = _read_substring(call)
    renamed: dict[tuple[str, str, str], str] = {}
    for resource in call.items:
        if resource.kind in _NEVER_RENAMED or not resource.name:
            continue
        new = substring.add_to(resource.name)
        if new != resource.name:
            renamed[resource.kind, resource.namespace, resource.name] = new
            resource.metadata["name"] = new
    for resource in call.items:
        for spec in substring.specs:
            for field in spec.find(resource):
                if isinstance(field.value, str):
                    field.put(substring.add_to(field.value))
        _rename(resource.value, resource.namespace, renamed)
        _rename_dependencies(resource, renamed)
    yield from ()


def _read_substring(call: BuiltinCall) -> _Substring:
    if call.config_kind == "ConfigMap":
        prefix, suffix = call.data.get("prepend", ""), call.data.get("append", "")
        if bool(prefix) == bool(suffix):
            raise FunctionFailedError("failed to configure function: one of prepend and append must be given")
        return _Substring(prefix, suffix, ())
    if call.config_kind != "EnsureNameSubstring":
        raise FunctionFailedError(
            "failed to configure function: `functionConfig` must be a `ConfigMap` or `EnsureNameSubstring`"
        )
    config: Mapping[str, Any] = call.config or {}
    text, mode = as_text(config.get("substring")), config.get("editMode")
    if not text or mode not in ("prepend", "append"):
        raise FunctionFailedError("failed to configure function: substring and editMode must be given")
    field = "fieldSpecs" if config.get("fieldSpecs") else "additionalNameFields"
    specs = tuple(spec._replace(create=False) for spec in parse_specs(config.get(field), field))
    return _Substring(text, "", specs) if mode == "prepend" else _Substring("", text, specs)


def _rename(value: Any, namespace: str, renamed: Mapping[tuple[str, str, str], str]) -> None:
    """Rename every reference below a value, to objects of this namespace or of none."""
    if isinstance(value, list):
        for item in value:
            _rename(item, namespace, renamed)
    if not isinstance(value, dict):
        return
    for key, child in value.items():
        kind = _SCALARS.get(key)
        if kind is not None and isinstance(child, str):
            value[key] = _new_name(kind, namespace, child, renamed)
        for holder in child if isinstance(child, list) else (child,):
            if isinstance(holder, dict):
                _rename_reference(key, holder, namespace, renamed)
        _rename(child, namespace, renamed)


def _rename_reference(
    key: str, holder: dict[str, Any], namespace: str, renamed: Mapping[tuple[str, str, str], str]
) -> None:
    field, kind = _FIELDS.get(key, ("name", str(holder.get("kind") or "") if key in _BY_KIND else ""))
    name = holder.get(field)
    if kind and isinstance(name, str):
        holder[field] = _new_name(kind, str(holder.get("namespace") or namespace), name, renamed)


def _new_name(kind: str, namespace: str, name: str, renamed: Mapping[tuple[str, str, str], str]) -> str:
    return renamed.get((kind, namespace, name), renamed.get((kind, "", name), name))


def _rename_dependencies(resource: Resource, renamed: Mapping[tuple[str, str, str], str]) -> None:
    objects = resource.annotations.get(_DEPENDS_ON)
    if not isinstance(objects, str):
        return

    def rename(match: re.Match[str]) -> str:
        start = match[0][: -len(match[4])]
        return start + _new_name(match[3], match[2] or "", match[4], renamed)

    resource.annotations[_DEPENDS_ON] = _OBJECT.sub(rename, objects)
