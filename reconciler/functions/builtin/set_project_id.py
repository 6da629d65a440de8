"""set-project-id: the project of Config Connector resources, as annotation and as setter."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from reconciler.functions.builtin.call import Call, FunctionFailedError, ensure_mapping, file_of
from reconciler.functions.catalog import parse_image
from reconciler.functions.resource import Resource
from reconciler.functions.runtime import FunctionResult

_ANNOTATION: Final = "cnrm.cloud.google.com/project-id"
_SETTER: Final = "project-id"
_CONNECTOR: Final = re.compile(r"(?!core\.)\w+\.cnrm\.cloud\.google\.com/\w+\Z")
"""Resources of the cloud; those of the `core` group configure the connector itself."""
_APPLY_SETTERS: Final = "gcr.io/kpt-fn/apply-setters:v0.2"


def set_project_id(call: Call) -> Iterator[FunctionResult]:
    """Set the project where none is set yet: in the setters of every package, and as annotation.

    Source: krm-functions-catalog functions/go/set-project-id/main.go.
    """
    project = call.data.get(_SETTER, "")
    if not project:
        raise FunctionFailedError("failed to configure function: `project-id` is required")
    for resource in call.items:
        if _CONNECTOR.match(resource.api_version) and _ANNOTATION not in resource.annotations:
            ensure_mapping(resource.value, "metadata", "annotations")[_ANNOTATION] = project
            yield FunctionResult(f'set annotation {_ANNOTATION} to "{project}"', file=file_of(resource))
    for kptfile in [item for item in call.items if item.kind == "Kptfile"]:
        changed = _set_setter(kptfile, call.items, project)
        if changed is not None:
            yield FunctionResult(f'set setter {_SETTER} to "{project}"', file=file_of(changed))


def _set_setter(kptfile: Resource, items: list[Resource], project: str) -> Resource | None:
    mutators = ensure_mapping(kptfile.value, "pipeline").setdefault("mutators", [])
    if not isinstance(mutators, list):
        raise FunctionFailedError(f"pipeline.mutators of {kptfile.path} is no list")
    step = next((each for each in mutators if _is_apply_setters(each)), None)
    if step is None:
        mutators.append({"image": _APPLY_SETTERS, "configMap": {_SETTER: project}})
        return kptfile
    if not step.get("configPath"):
        return kptfile if _add(ensure_mapping(step, "configMap"), project) else None
    directory = kptfile.path.rpartition("/")[0]
    path = f"{directory}/{step['configPath']}" if directory else str(step["configPath"])
    setters = next((item for item in items if item.path == path), None)
    if setters is None:
        raise FunctionFailedError(f"{kptfile.path}: its setters {step['configPath']} are not here")
    return setters if _add(ensure_mapping(setters.value, "data"), project) else None


def _add(data: dict[str, Any], project: str) -> bool:
    if data.get(_SETTER):
        return False
    data[_SETTER] = project
    return True


def _is_apply_setters(step: Any) -> bool:
    image = step.get("image") if isinstance(step, Mapping) else None
    parsed = parse_image(image) if isinstance(image, str) else None
    return parsed is not None and parsed.short == "apply-setters"
