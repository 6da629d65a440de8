"""upsert-resource: put given objects into the package, in place of those that they name."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from reconciler.functions.builtin.call import Call, FunctionFailedError
from reconciler.functions.differences import copy_value
from reconciler.functions.resource import Resource
from reconciler.functions.runtime import FunctionResult
from reconciler.functions.wire import OURS, default_path
from reconciler.ids import group_of

TARGET_PATH: Final = "config.kubernetes.io/target-path"
_FUNCTION: Final = ("config.kubernetes.io/function", "config.k8s.io/function")
_DROPPED: Final = frozenset((TARGET_PATH, *_FUNCTION)) | OURS


def upsert_resource(call: Call) -> Iterator[FunctionResult]:
    """Replace every object that a given one names, or add it where there is none. Gives no results.

    Source: krm-functions-catalog functions/go/upsert-resource/upsertresource/upsert_resource.go.
    """
    if call.config is None:
        raise FunctionFailedError("failed to configure function: functionConfig is missing")
    for given in _given(call.config):
        _upsert(call, given)
    yield from ()


def _given(config: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    if config.get("kind") != "List":
        return [config]
    items = config.get("items")
    if not isinstance(items, list) or not all(isinstance(item, Mapping) for item in items):
        raise FunctionFailedError("failed to configure function: the List has no items")
    return items


def _upsert(call: Call, given: Mapping[str, Any]) -> None:
    value = copy_value(dict(given))
    fresh = Resource(value, package=call.package)
    target = fresh.annotations.get(TARGET_PATH)
    target = target if isinstance(target, str) else ""
    _drop(value)
    wanted = (group_of(fresh.api_version), fresh.kind, fresh.namespace, fresh.name)
    found = False
    for resource in call.items:
        if any(name in resource.annotations for name in _FUNCTION):
            continue
        have = (resource.group, resource.kind, resource.namespace, resource.name)
        if have == wanted and (not target or resource.file == target):
            resource.value = copy_value(value)
            found = True
    if not found:
        prefix = f"{call.package}/" if call.package else ""
        fresh.path = prefix + (target or default_path(fresh))
        call.items.append(fresh)


def _drop(value: dict[str, Any]) -> None:
    metadata = value.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    if not isinstance(metadata, dict) or not isinstance(annotations, dict):
        return
    for name in _DROPPED & annotations.keys():
        del annotations[name]
    if not annotations:
        del metadata["annotations"]
