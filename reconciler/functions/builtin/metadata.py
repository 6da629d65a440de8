"""set-labels, set-annotations and delete-annotations: labels and annotations of objects and of their pods."""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import orjson

from reconciler.functions.builtin.call import BuiltinCall, FunctionFailedError, as_text, file_of
from reconciler.functions.builtin.fields import FieldRef, FieldSpec, configured_specs, find_spec
from reconciler.functions.protocol import FunctionResult
from reconciler.functions.resources import Resource

_ANNOTATION_TEMPLATE: Final = "spec/template/metadata/annotations"
_ANNOTATION_SPECS: Final = (
    FieldSpec("metadata/annotations", create=True),
    FieldSpec(_ANNOTATION_TEMPLATE, "", "v1", "ReplicationController", create=True),
    *(
        FieldSpec(_ANNOTATION_TEMPLATE, kind=kind, create=True)
        for kind in ("Deployment", "ReplicaSet", "DaemonSet")
    ),
    FieldSpec(_ANNOTATION_TEMPLATE, "apps", "", "StatefulSet", create=True),
    FieldSpec(_ANNOTATION_TEMPLATE, "batch", "", "Job", create=True),
    FieldSpec("spec/jobTemplate/metadata/annotations", "batch", "", "CronJob", create=True),
    FieldSpec("spec/jobTemplate/spec/template/metadata/annotations", "batch", "", "CronJob", create=True),
)
_ANNOTATION_KINDS: Final = ("SetAnnotations", "SetAnnotationConfig")


def set_annotations(call: BuiltinCall) -> Iterator[FunctionResult]:
    """Set annotations in the fields of the configuration, then in the default ones.

    Source: krm-functions-catalog functions/go/set-annotations/main.go.
    """
    try:
        annotations, specs = _read_annotations(call)
    except FunctionFailedError as failed:
        raise FunctionFailedError(f"failed to configure function: {failed}") from failed
    text = orjson.dumps(annotations, option=orjson.OPT_SORT_KEYS).decode()
    results = [
        FunctionResult(f"set annotations: {text}", field={"path": path}, file=file_of(resource))
        for resource in call.items
        for path in _set_annotations(resource, annotations, [*specs, *_ANNOTATION_SPECS])
    ]
    yield from sorted(results, key=_position)
    if not results:
        yield FunctionResult("no annotations applied")


def _position(result: FunctionResult) -> tuple[str, int, str]:
    file, field = result.file or {}, result.field or {}
    return str(file.get("path", "")), int(file.get("index", 0)), str(field.get("path", ""))


def _read_annotations(call: BuiltinCall) -> tuple[dict[str, str], list[FieldSpec]]:
    config: Any = call.config or {}
    specs: list[FieldSpec] = []
    if call.config_kind == "ConfigMap" and call.config_api_version == "v1":
        annotations = config.get("data")
    elif call.config_kind in _ANNOTATION_KINDS and call.config_api_version.startswith("fn.kpt.dev/"):
        annotations = config.get("annotations")
        specs = configured_specs(config, "additionalAnnotationFields")
    else:
        raise FunctionFailedError("`functionConfig` must be a `ConfigMap` or `SetAnnotations`")
    if not isinstance(annotations, dict) or not annotations:
        raise FunctionFailedError("input annotation list cannot be empty")
    return {key: as_text(value) for key, value in sorted(annotations.items())}, specs


def _set_annotations(
    resource: Resource, annotations: dict[str, str], specs: list[FieldSpec]
) -> Iterator[str]:
    for spec in specs:
        for field in spec.find(resource):
            existing = field.value if isinstance(field.value, dict) else {}
            field.put(existing)
            existing.update(annotations)
            yield spec.path.replace("/", ".")


def delete_annotations(call: BuiltinCall) -> Iterator[FunctionResult]:
    """Delete the annotations that `data.annotationKeys` lists, separated by commas.

    Source: krm-functions-catalog contrib/functions/ts/delete-annotations.
    """
    keys = [key.strip() for key in call.data.get("annotationKeys", "").split(",") if key.strip()]
    if not keys:
        raise FunctionFailedError("failed to configure function: `annotationKeys` is required")
    results = [result for resource in call.items for result in _delete_annotations(resource, keys)]
    yield FunctionResult(f"Number of annotations removed: {len(results)}")
    yield from results


def _delete_annotations(resource: Resource, keys: list[str]) -> Iterator[FunctionResult]:
    annotations = resource.annotations
    for key in keys:
        if key in annotations:
            del annotations[key]
            message = f"Annotation: [{key}] removed from resource: [{resource.name}]"
            yield FunctionResult(message, file=file_of(resource))
    if not annotations and "annotations" in resource.metadata:
        del resource.metadata["annotations"]


class _LabelRule(NamedTuple):
    """Label fields of some kinds: `create` makes absent ones, `present` only overwrites labels.

    What is above a `/` is never made: without a pod template, none gets labels. An object of the core group
    fits every group, as in the Go SDK's comparison.
    """

    kinds: frozenset[str]
    group: str = ""
    create: tuple[str, ...] = ()
    present: tuple[str, ...] = ()


def _constraints(pod: str) -> str:
    return f"{pod}.spec.topologySpreadConstraints[].labelSelector.matchLabels"


_TEMPLATE: Final = "spec.template/metadata.labels"
_SELECTOR: Final = "spec.selector.matchLabels"
_LABEL_RULES: Final = (
    _LabelRule(frozenset({"Service", "ReplicationController"}), "", ("spec.selector",)),
    _LabelRule(frozenset({"ReplicationController"}), "", (_TEMPLATE,), (_constraints("spec.template"),)),
    _LabelRule(
        frozenset({"Deployment", "ReplicaSet", "DaemonSet"}),
        "",
        (_SELECTOR, _TEMPLATE),
        (_constraints("spec.template"),),
    ),
    _LabelRule(
        frozenset({"StatefulSet"}),
        "apps",
        (_SELECTOR, _TEMPLATE, "spec.volumeClaimTemplates[]/metadata.labels"),
        (_constraints("spec.template"),),
    ),
    _LabelRule(frozenset({"Job"}), "batch", (_TEMPLATE,), (_SELECTOR, _constraints("spec.template"))),
    _LabelRule(frozenset({"PodDisruptionBudget"}), "policy", (), (_SELECTOR,)),
    _LabelRule(
        frozenset({"CronJob"}),
        "batch",
        ("spec.jobTemplate/metadata.labels", "spec.jobTemplate.spec.template/metadata.labels"),
        ("spec.jobTemplate.spec.selector.matchLabels", _constraints("spec.jobTemplate.spec.template")),
    ),
    _LabelRule(
        frozenset({"NetworkPolicy"}),
        "networking.k8s.io",
        (),
        (
            "spec.podSelector.matchLabels",
            "spec.ingress[].from[].podSelector.matchLabels",
            "spec.egress[].to[].podSelector.matchLabels",
        ),
    ),
)


def set_labels(call: BuiltinCall) -> Iterator[FunctionResult]:
    """Set labels and the selectors that depend on them. Selectors are immutable on live Deployments.

    Source: krm-functions-catalog functions/go/set-labels/setlabels/set_labels.go.
    """
    resources = [resource for resource in call.items if not resource.is_local_config]
    if not resources:
        yield FunctionResult("no input resources")
        return
    labels = _read_labels(call)
    if not labels:
        yield FunctionResult("no `labels` arguments are given in FunctionConfig", "warning")
        return
    total = sum(_set_labels(resource, labels) for resource in resources)
    yield FunctionResult(f"set {total} labels in total")


def _read_labels(call: BuiltinCall) -> dict[str, str]:
    kind, version = call.config_kind, call.config_api_version
    if call.config is None or (
        kind == "ConfigMap" and call.config_name == "function-input" and not call.data
    ):
        raise FunctionFailedError("`FunctionConfig` is not given", severity="info")
    group = version.partition("/")[0] if "/" in version else ""
    if kind == "ConfigMap" and version == "v1":
        return _texts(call.config.get("data"), "data")
    if kind == "SetLabels" and group == "fn.kpt.dev":
        return _texts(call.config.get("labels"), "labels")
    raise FunctionFailedError(
        f"unknown FunctionConfig `{kind}.{group}`, expect `SetLabels.fn.kpt.dev` or `ConfigMap.v1`"
    )


def _texts(texts: Any, field: str) -> dict[str, str]:
    if texts is None:
        return {}
    if not isinstance(texts, dict):
        raise FunctionFailedError(_wrong_type(texts, field, "map[string]string"))
    for value in texts.values():
        if not isinstance(value, str):
            raise FunctionFailedError(_wrong_type(value, field, "string"))
    return dict(sorted(texts.items()))


def _wrong_type(value: Any, field: str, expected: str) -> str:
    """Return the message of Go's JSON decoder, so that a search for it finds the upstream function."""
    names = {list: "array", dict: "object", bool: "bool", str: "string"}
    actual = names.get(type(value), "number")
    return (
        "unable to convert object to *setlabels.SetLabels with error: json: "
        f"cannot unmarshal {actual} into Go struct field SetLabels.{field} of type {expected}"
    )


def _set_labels(resource: Resource, labels: dict[str, str]) -> int:
    count = _put_labels(resource.value, "metadata.labels", labels, create=True)
    for rule in _LABEL_RULES:
        if resource.kind in rule.kinds and (rule.group in ("", resource.group) or not resource.group):
            count += sum(_put_labels(resource.value, path, labels, create=True) for path in rule.create)
            count += sum(_put_labels(resource.value, path, labels, create=False) for path in rule.present)
    return count


def _put_labels(value: dict[str, Any], path: str, labels: dict[str, str], *, create: bool) -> int:
    count = 0
    above, _, path = path.rpartition("/")
    holders = find_spec(value, above.split("."), create=False) if above else (FieldRef({"": value}, ""),)
    fields = (field for item in holders for field in find_spec(item.value, path.split("."), create=create))
    for field in fields:
        if field.value is None and create:
            field.put({})
        existing = field.value
        if not isinstance(existing, dict):
            continue
        written = labels if create else {key: text for key, text in labels.items() if key in existing}
        existing.update(written)
        count += len(written)
    return count
