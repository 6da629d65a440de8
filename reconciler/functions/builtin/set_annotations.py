"""set-annotations: annotations on every object and on the pods that it makes."""

from collections.abc import Iterator
from typing import Any, Final

import orjson

from reconciler.functions.builtin.call import Call, FunctionFailedError, as_text, file_of
from reconciler.functions.builtin.slots import FieldSpec, find_slots, read_specs
from reconciler.functions.resource import Resource
from reconciler.functions.runtime import FunctionResult

_TEMPLATE: Final = "spec/template/metadata/annotations"
_DEFAULTS: Final = (
    FieldSpec("metadata/annotations", create=True),
    FieldSpec(_TEMPLATE, "", "v1", "ReplicationController", create=True),
    *(FieldSpec(_TEMPLATE, kind=kind, create=True) for kind in ("Deployment", "ReplicaSet", "DaemonSet")),
    FieldSpec(_TEMPLATE, "apps", "", "StatefulSet", create=True),
    FieldSpec(_TEMPLATE, "batch", "", "Job", create=True),
    FieldSpec("spec/jobTemplate/metadata/annotations", "batch", "", "CronJob", create=True),
    FieldSpec("spec/jobTemplate/spec/template/metadata/annotations", "batch", "", "CronJob", create=True),
)
_KINDS: Final = ("SetAnnotations", "SetAnnotationConfig")


def set_annotations(call: Call) -> Iterator[FunctionResult]:
    """Set annotations in the usual places and in those that the configuration adds, which come first.

    Source: krm-functions-catalog functions/go/set-annotations/main.go.
    """
    try:
        annotations, specs = _read(call)
    except FunctionFailedError as failed:
        raise FunctionFailedError(f"failed to configure function: {failed}") from failed
    text = orjson.dumps(annotations, option=orjson.OPT_SORT_KEYS).decode()
    found = [
        FunctionResult(f"set annotations: {text}", field={"path": path}, file=file_of(resource))
        for resource in call.items
        for path in _set(resource, annotations, [*specs, *_DEFAULTS])
    ]
    yield from sorted(found, key=_place)
    if not found:
        yield FunctionResult("no annotations applied")


def _place(result: FunctionResult) -> tuple[str, int, str]:
    file, field = result.file or {}, result.field or {}
    return str(file.get("path", "")), int(file.get("index", 0)), str(field.get("path", ""))


def _read(call: Call) -> tuple[dict[str, str], list[FieldSpec]]:
    config: Any = call.config or {}
    specs: list[FieldSpec] = []
    if call.config_kind == "ConfigMap" and call.config_api_version == "v1":
        given = config.get("data")
    elif call.config_kind in _KINDS and call.config_api_version.startswith("fn.kpt.dev/"):
        given = config.get("annotations")
        if config.get("fieldSpecs") and config.get("additionalAnnotationFields"):
            raise FunctionFailedError("only one of fieldSpecs and additionalAnnotationFields may be set")
        field = "fieldSpecs" if config.get("fieldSpecs") else "additionalAnnotationFields"
        specs = read_specs(config.get(field), field)
    else:
        raise FunctionFailedError("`functionConfig` must be a `ConfigMap` or `SetAnnotations`")
    if not isinstance(given, dict) or not given:
        raise FunctionFailedError("input annotation list cannot be empty")
    return {key: as_text(value) for key, value in sorted(given.items())}, specs


def _set(resource: Resource, annotations: dict[str, str], specs: list[FieldSpec]) -> Iterator[str]:
    for spec in specs:
        if not spec.fits(resource):
            continue
        for slot in find_slots(resource.value, spec.path.split("/"), create=spec.create):
            found = slot.holder.get(slot.key)
            if not isinstance(found, dict):
                found = slot.holder[slot.key] = {}
            found.update(annotations)
            yield spec.path.replace("/", ".")
