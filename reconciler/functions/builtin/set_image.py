"""set-image: change name, tag or digest of an image in every workload."""

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from reconciler.functions.builtin.call import BuiltinCall, FunctionFailedError, as_text
from reconciler.functions.builtin.fields import FieldSpec, parse_specs
from reconciler.functions.patterns import Pattern, PatternError, compile_pattern
from reconciler.functions.protocol import FunctionResult

_WORKLOADS: Final = ("Deployment", "StatefulSet", "ReplicaSet", "DaemonSet")
_FIELDS: Final = ("name", "newName", "newTag", "digest")


# The fields of the upstream function.
_COMPATIBLE: Final = (
    FieldSpec("spec/containers[]/image", kind="Pod"),
    *(FieldSpec("spec/template/spec/containers[]/image", kind=kind) for kind in _WORKLOADS),
)
_MORE: Final = (
    FieldSpec("spec/initContainers[]/image", kind="Pod"),
    *(
        FieldSpec("spec/template/spec/initContainers[]/image", kind=kind)
        for kind in (*_WORKLOADS, "Job", "ReplicationController")
    ),
    *(FieldSpec("spec/template/spec/containers[]/image", kind=k) for k in ("Job", "ReplicationController")),
    FieldSpec("spec/jobTemplate/spec/template/spec/containers[]/image", kind="CronJob"),
    FieldSpec("spec/jobTemplate/spec/template/spec/initContainers[]/image", kind="CronJob"),
    FieldSpec("template/spec/containers[]/image", kind="PodTemplate"),
    FieldSpec("template/spec/initContainers[]/image", kind="PodTemplate"),
)


class _Image(NamedTuple):
    name: str
    new_name: str
    new_tag: str
    digest: str


def set_image(call: BuiltinCall) -> Iterator[FunctionResult]:
    """Change name, tag or digest of one image in every workload.

    Source: krm-functions-catalog functions/go/set-image/setimage/set_image.go.
    Differs: initContainers, Jobs, CronJobs, ReplicationControllers and PodTemplates are covered, and a
        new name alone keeps the tag, unless upstream's behaviour is asked for.
    """
    image, specs = _read(call)
    try:
        pattern = compile_pattern(f"^{image.name}(:[a-zA-Z0-9_.{{}}-]*)?(@sha256:[a-zA-Z0-9_.{{}}-]*)?$")
    except PatternError as error:
        raise FunctionFailedError(str(error)) from error
    every = (*_COMPATIBLE, *(() if call.compatible else _MORE), *specs)
    count = 0
    for resource in call.items:
        for spec in every:
            for field in spec.find(resource):
                new = _rewrite(field.value, image, pattern, compatible=call.compatible)
                if new is not None and new != field.value:
                    field.put(new)
                    count += 1
    yield FunctionResult(f"summary: updated a total of {count} image(s)")


def _read(call: BuiltinCall) -> tuple[_Image, list[FieldSpec]]:
    config: Mapping[str, Any] = call.config or {}
    specs: list[FieldSpec] = []
    if call.config_kind == "SetImage" and call.config_api_version.startswith("fn.kpt.dev/"):
        image_fields = config.get("image")
        specs = parse_specs(config.get("additionalImageFields"), "additionalImageFields")
    elif call.config_kind == "ConfigMap":
        image_fields = config.get("data")
    else:
        _refuse("`functionConfig` must be a `ConfigMap` or `SetImage`")
        image_fields = None
    values = image_fields if isinstance(image_fields, Mapping) else {}
    image = _Image(*(as_text(values.get(field)) for field in _FIELDS))
    if not image.name:
        _refuse("must specify `name`")
    if not (image.new_name or image.new_tag or image.digest):
        _refuse("must specify one of `newName`, `newTag`, or `digest`")
    return image, specs


def _refuse(message: str) -> None:
    raise FunctionFailedError(message, f"function is terminated: {message}")


def _rewrite(current: Any, image: _Image, pattern: Pattern, *, compatible: bool) -> str | None:
    match = pattern.search(current) if isinstance(current, str) else None
    if match is None:
        return None
    name = image.new_name or image.name
    if image.digest:
        return f"{name}@{image.digest}"
    if image.new_tag:
        return f"{name}:{image.new_tag}"
    tag, digest = match.groups()
    tag = (tag or "")[1:] if compatible else tag
    return f"{name}{tag or ''}{digest or ''}"
