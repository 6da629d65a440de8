"""Functions that add or remove resources: upsert-resource, remove-local-config-resources, gen-pkg-context."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from reconciler.api.kptfile import KPTFILE, PACKAGE_CONTEXT_FILE, PACKAGE_CONTEXT_NAME
from reconciler.functions.builtin.call import BuiltinCall, FunctionFailedError, file_of
from reconciler.functions.protocol import PROTOCOL_ANNOTATIONS, FunctionResult, default_path, path_below
from reconciler.functions.resources import LOCAL_CONFIG, Resource
from reconciler.krm.values import copy_value, mapping_at, value_at

TARGET_PATH: Final = "config.kubernetes.io/target-path"
_FUNCTION: Final = ("config.kubernetes.io/function", "config.k8s.io/function")
_DROPPED: Final = frozenset((TARGET_PATH, *_FUNCTION)) | PROTOCOL_ANNOTATIONS


def upsert_resource(call: BuiltinCall) -> Iterator[FunctionResult]:
    """Replace the objects that the configuration names, or add them. Yields no results.

    Source: krm-functions-catalog functions/go/upsert-resource/upsertresource/upsert_resource.go.
    """
    if call.config is None:
        raise FunctionFailedError("failed to configure function: functionConfig is missing")
    for manifest in _read_objects(call.config):
        value = copy_value(dict(manifest))
        new = Resource(value, package=call.package)
        target = new.annotations.get(TARGET_PATH)
        target = path_below("", target) if isinstance(target, str) else ""
        annotations = mapping_at(value, "metadata", "annotations")
        for name in _DROPPED & annotations.keys():
            del annotations[name]
        if not annotations and value_at(value, "metadata", "annotations") is not None:
            del value["metadata"]["annotations"]
        replaced = False
        for resource in call.items:
            # The configuration of a function is no object of the package.
            if any(name in resource.annotations for name in _FUNCTION):
                continue
            if resource.identity == new.identity and (not target or resource.file == target):
                resource.value = copy_value(value)
                replaced = True
        if not replaced:
            new.path = path_below(call.package, target or default_path(new))
            call.items.append(new)
    yield from ()


def _read_objects(config: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    if config.get("kind") != "List":
        return [config]
    items = config.get("items")
    if not isinstance(items, list) or not all(isinstance(item, Mapping) for item in items):
        raise FunctionFailedError("failed to configure function: the List has no items")
    return items


def remove_local_config_resources(call: BuiltinCall) -> Iterator[FunctionResult]:
    """Remove every object with the local-config annotation `true`. Made for an output stage.

    Source: krm-functions-catalog functions/go/remove-local-config-resources/main.go.
    """
    removed = [item for item in call.items if str(item.annotations.get(LOCAL_CONFIG, "")).lower() == "true"]
    call.items[:] = [item for item in call.items if item not in removed]
    if not removed:
        yield FunctionResult("found no local config resources to prune", "warning")
        return
    yield FunctionResult(f"Number of resources pruned: {len(removed)}")
    for resource in removed:
        yield FunctionResult(f"Resource name: [{resource.name}]", file=file_of(resource))


def gen_pkg_context(call: BuiltinCall) -> Iterator[FunctionResult]:
    """Write the package's own name into the ConfigMap package-context.yaml; further data of it is kept.

    Source: kpt internal/builtins/pkg_context.go.
    Differs: keys that people added to the ConfigMap stay.
    """
    prefix = f"{call.package}/" if call.package else ""
    kptfile = next((item for item in call.items if item.path == f"{prefix}{KPTFILE}"), None)
    if kptfile is None:
        return
    context = next((item for item in call.items if _is_context(item, prefix)), None)
    if context is None:
        value = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": PACKAGE_CONTEXT_NAME, "annotations": {LOCAL_CONFIG: "true"}},
        }
        context = Resource(value, prefix + PACKAGE_CONTEXT_FILE, call.package)
        call.items.append(context)
    context.value["data"] = mapping_at(context.value, "data") | {"name": kptfile.name}
    yield FunctionResult("generated package context")


def _is_context(resource: Resource, prefix: str) -> bool:
    return (
        resource.kind == "ConfigMap"
        and resource.name == PACKAGE_CONTEXT_NAME
        and resource.path == prefix + PACKAGE_CONTEXT_FILE
    )
