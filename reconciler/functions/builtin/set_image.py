"""set-image: another name, tag or digest for an image, wherever it runs."""

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from reconciler.functions.builtin.call import Call, FunctionFailedError, as_text, info
from reconciler.functions.builtin.slots import FieldSpec, find_slots, read_specs
from reconciler.functions.patterns import Pattern, PatternError, compile_pattern
from reconciler.functions.runtime import FunctionResult

_WORKLOADS: Final = ("Deployment", "StatefulSet", "ReplicaSet", "DaemonSet")
_FIELDS: Final = ("name", "newName", "newTag", "digest")


def _containers(prefix: str, kind: str) -> Iterator[FieldSpec]:
    yield FieldSpec(f"{prefix}/containers[]/image", kind=kind)


_COMPATIBLE: Final = (
    *_containers("spec", "Pod"),
    *(spec for kind in _WORKLOADS for spec in _containers("spec/template/spec", kind)),
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


def set_image(call: Call) -> Iterator[FunctionResult]:
    """Rewrite the references to one image.

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
            if not spec.fits(resource):
                continue
            for slot in find_slots(resource.value, spec.path.split("/"), create=spec.create):
                new = _rewritten(slot.holder.get(slot.key), image, pattern, compatible=call.compatible)
                if new is not None and new != slot.holder[slot.key]:
                    slot.holder[slot.key] = new
                    count += 1
    yield info(f"summary: updated a total of {count} image(s)")


def _read(call: Call) -> tuple[_Image, list[FieldSpec]]:
    config: Mapping[str, Any] = call.config or {}
    specs: list[FieldSpec] = []
    if call.config_kind == "SetImage" and call.config_api_version.startswith("fn.kpt.dev/"):
        given = config.get("image")
        specs = read_specs(config.get("additionalImageFields"), "additionalImageFields")
    elif call.config_kind == "ConfigMap":
        given = config.get("data")
        for key in given if isinstance(given, dict) else ():
            if key not in _FIELDS:
                _refuse(f"ConfigMap has wrong field name {key}")
    else:
        _refuse("`functionConfig` must be a `ConfigMap` or `SetImage`")
        given = None
    values = given if isinstance(given, Mapping) else {}
    image = _Image(*(as_text(values.get(field)) for field in _FIELDS))
    if not image.name:
        _refuse("must specify `name`")
    if not (image.new_name or image.new_tag or image.digest):
        _refuse("must specify one of `newName`, `newTag`, or `digest`")
    return image, specs


def _refuse(message: str) -> None:
    raise FunctionFailedError(message, f"function is terminated: {message}")


def _rewritten(current: Any, image: _Image, pattern: Pattern, *, compatible: bool) -> str | None:
    found = pattern.search(current) if isinstance(current, str) else None
    if found is None:
        return None
    name = image.new_name or image.name
    if image.digest:
        return f"{name}@{image.digest}"
    if image.new_tag:
        return f"{name}:{image.new_tag}"
    tag, digest = found.groups()
    tag = (tag or "")[1:] if compatible else tag
    return f"{name}{tag or ''}{digest or ''}"
