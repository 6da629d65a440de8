"""The port to runtimes of functions that are not built in, and the ResourceList that they read and write."""

import posixpath
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, Protocol

from msgspec import Struct

from reconciler.functions.charts import ChartCall, RenderedTemplate
from reconciler.functions.resources import Resource
from reconciler.krm.values import copy_value, mapping_at
from reconciler.names.objects import file_path_error


class FunctionResult(Struct, frozen=True):
    """One result of a function in the ResourceList protocol."""

    message: str
    severity: str = "info"
    resource_ref: Mapping[str, str] | None = None
    field: Mapping[str, Any] | None = None
    file: Mapping[str, Any] | None = None
    tags: Mapping[str, str] | None = None


class FunctionRun(Struct, frozen=True):
    """Output of one function; `items` is None if it failed, `charts` what each chart of the call gave."""

    items: Sequence[Mapping[str, Any]] | None
    results: tuple[FunctionResult, ...] = ()
    exit_code: int = 0
    stderr: str = ""
    error: str = ""
    charts: tuple[tuple[RenderedTemplate, ...], ...] = ()


class FunctionCall(Struct, frozen=True):
    """One function with its configuration and input items.

    `image` includes the registry and the tag or digest; `claimed` is the catalog's name of the function if
    the catalog claims this version. `charts` are those that its configuration asks for.
    """

    image: str = ""
    exec: str = ""
    config: Mapping[str, Any] | None = None
    items: Sequence[Mapping[str, Any]] = ()
    claimed: str = ""
    charts: tuple[ChartCall, ...] = ()


class FunctionRuntime(Protocol):
    """Runs functions that are not built in. A failure of a function is a value, not an exception."""

    def can_run(self, call: FunctionCall) -> str:
        """Return the reason why this runtime cannot run the function, "" if it can."""
        ...

    def run(self, call: FunctionCall) -> FunctionRun:
        """Run the function on its items, within the configured limits."""
        ...


API_VERSION: Final = "config.kubernetes.io/v1"
KIND: Final = "ResourceList"
_INTERNAL: Final = "internal.config.kubernetes.io/"
_ID: Final = f"{_INTERNAL}id"
_OLD_ID: Final = "config.k8s.io/id"
_PATHS: Final = (f"{_INTERNAL}path", "config.kubernetes.io/path")
_INDEXES: Final = (f"{_INTERNAL}index", "config.kubernetes.io/index")
_PACKAGE: Final = f"{_INTERNAL}package-path"
PROTOCOL_ANNOTATIONS: Final = frozenset(
    (
        *_PATHS,
        *_INDEXES,
        _ID,
        _OLD_ID,
        _PACKAGE,
        f"{_INTERNAL}seqindent",
        f"{_INTERNAL}annotations-migration-resource-id",
        f"{_INTERNAL}kpt-resource-id",
        "internal.config.k8s.io/kpt-resource-id",
    )
)
"""Annotations of the protocol; they are never written to a file."""


class ProtocolError(Exception):
    """The output of a function is no list of resources."""


def to_items(resources: Sequence[Resource]) -> list[dict[str, Any]]:
    """Return the items of a ResourceList: copies, each with its path, its index and an id from 1."""
    return [_item(resource, number) for number, resource in enumerate(resources, 1)]


def _item(resource: Resource, number: int) -> dict[str, Any]:
    value: dict[str, Any] = copy_value(resource.value)
    metadata = value["metadata"] = mapping_at(value, "metadata")
    annotations = metadata["annotations"] = mapping_at(metadata, "annotations")
    index = str(resource.index or 0)
    annotations.update(dict.fromkeys(_PATHS, resource.file) | dict.fromkeys(_INDEXES, index))
    annotations.update({_ID: str(number), _OLD_ID: str(number), _PACKAGE: resource.package or "."})
    return value


def place_of(item: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a result's `file` for an item of the list, None where the item names no file."""
    annotations = _annotations(dict(item))
    path, index = _newer(annotations, _PATHS, ""), _number(_newer(annotations, _INDEXES, ""))
    if not path:
        return None
    return {"path": path, "index": index} if index else {"path": path}


def from_items(items: Iterable[Mapping[str, Any]], sent: Sequence[Resource], package: str) -> list[Resource]:
    """Return the resources of a function's output: the sent ones with their new values, and new ones.

    A new resource belongs to `package`; without a path its file is `<namespace>/<kind>_<name>.yaml`.

    Raises:
        ProtocolError: An item is no resource.
    """
    by_id = {str(number): resource for number, resource in enumerate(sent, 1)}
    by_place = {(resource.file, str(resource.index or 0)): str(n) for n, resource in enumerate(sent, 1)}
    resources: list[Resource] = []
    for item in items:
        if not isinstance(item, Mapping):
            raise ProtocolError("The function's output has an item that is no mapping")
        value = copy_value(dict(item))
        annotations = _annotations(value)
        path, index = _newer(annotations, _PATHS, ""), _newer(annotations, _INDEXES, "")
        # The id is the identity of an item; functions that lose annotations are matched by path and index.
        source = by_id.pop(annotations.get(_ID, annotations.get(_OLD_ID, "")), None)
        if source is None and not annotations.keys() & {_ID, _OLD_ID}:
            source = _same_object(by_id.pop(by_place.get((path, index), ""), None), value, by_id, sent)
        if source is not None:
            # Functions change the old or the new annotation of a place: the one that differs counts.
            path = _newer(_differing(annotations, _PATHS, source.file), _PATHS, path)
            index = _newer(_differing(annotations, _INDEXES, str(source.index or 0)), _INDEXES, index)
        resources.append(_updated(source, value, path, index, package))
    return resources


def _same_object(
    candidate: Resource | None, value: dict[str, Any], by_id: dict[str, Resource], sent: Sequence[Resource]
) -> Resource | None:
    """Return the resource at the path and index of an item without an id; None if the kinds differ."""
    if candidate is None or candidate.kind == value.get("kind"):
        return candidate
    # Another kind is another object: the candidate may still be matched by its id.
    by_id[str(sent.index(candidate) + 1)] = candidate
    return None


def _updated(source: Resource | None, value: dict[str, Any], path: str, index: str, package: str) -> Resource:
    _restore_annotations(value, source)
    if source is None:
        new = Resource(value, package=package, index=_number(index))
        new.path = path_below(package, path or default_path(new))
        return new
    source.value = value
    if path and path != source.file:
        source.path, source.index = path_below(source.package, path), _number(index)
    elif index and index != str(source.index or 0):
        source.index = _number(index)
    return source


def default_path(resource: Resource) -> str:
    """Return the file of a new resource without a path annotation.

    Source: kpt thirdparty/kyaml/pathutil, and kyaml kio/kioutil CreatePathAnnotationValue.
    """
    name = f"{resource.kind.lower()}_{resource.name}.yaml"
    return f"{resource.namespace}/{name}" if resource.namespace else name


@lru_cache(maxsize=4096)
def check_path(path: str) -> str:
    """Return the reason why a function may not write a file, "" if it may."""
    clean = posixpath.normpath(path) if path else ""
    if not clean or clean.startswith(("/", "../")) or clean in (".", ".."):
        return f"function must not modify resources outside of package: resource has path {path}"
    if ".git" in clean.split("/"):
        return f"function must not write to .git: resource has path {path}"
    why = file_path_error(clean)
    return f"function must not write {path!r}: {why}" if why else ""


def parse_results(value: Any) -> tuple[FunctionResult, ...]:
    """Return the results of a function, in any of the shapes that functions write. Total."""
    listed = value.get("items") if isinstance(value, Mapping) else value
    items = listed if isinstance(listed, Sequence) and not isinstance(listed, str) else ()
    return tuple(_result(item) for item in items if isinstance(item, Mapping))


def _result(item: Mapping[str, Any]) -> FunctionResult:
    reference, field = _mapping(item.get("resourceRef")), _mapping(item.get("field"))
    nested = _mapping(reference.pop("metadata", None) if reference else None)
    if reference is not None and nested:
        reference |= {key: value for key, value in nested.items() if key in ("name", "namespace")}
    if field and "suggestedValue" in field:
        field["proposedValue"] = field.pop("suggestedValue")
    severity = item.get("severity")
    return FunctionResult(
        str(item.get("message") or ""),
        severity if severity in ("error", "warning", "info") else "info",
        reference,
        field,
        _mapping(item.get("file")),
        _mapping(item.get("tags")),
    )


def _mapping(value: Any) -> dict[str, Any] | None:
    return dict(value) if isinstance(value, Mapping) else None


def result_value(result: FunctionResult) -> dict[str, Any]:
    """Return a result as the ResourceList protocol writes it."""
    value: dict[str, Any] = {"message": result.message, "severity": result.severity}
    parts = {
        "resourceRef": result.resource_ref,
        "field": result.field,
        "file": result.file,
        "tags": result.tags,
    }
    return value | {name: dict(part) for name, part in parts.items() if part}


def _annotations(value: dict[str, Any]) -> dict[str, str]:
    return {key: str(text) for key, text in mapping_at(value, "metadata", "annotations").items()}


def _newer(annotations: Mapping[str, str], names: tuple[str, str], default: str) -> str:
    return annotations.get(names[0], annotations.get(names[1], default))


def _differing(annotations: Mapping[str, str], names: Iterable[str], before: str) -> Mapping[str, str]:
    return {name: annotations[name] for name in names if annotations.get(name, before) != before}


def _restore_annotations(value: dict[str, Any], source: Resource | None) -> None:
    """Remove the annotations of the protocol; those that the package itself has get their former values."""
    metadata = value.get("metadata")
    if not isinstance(metadata, dict) or not isinstance(metadata.get("annotations"), dict):
        return
    annotations: dict[str, Any] = metadata["annotations"]
    before = source.annotations if source is not None else {}
    for name in PROTOCOL_ANNOTATIONS & annotations.keys():
        if name in before:
            annotations[name] = before[name]
        else:
            del annotations[name]
    if not annotations and (source is None or "annotations" not in source.metadata):
        del metadata["annotations"]
    if not metadata and source is not None and "metadata" not in source.value:
        del value["metadata"]


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None  # noqa: PLR2004


def path_below(package: str, path: str) -> str:
    """Return the path from the root; `/a` is below the package, as kpt joins them."""
    path = posixpath.normpath(path).lstrip("/") if path.startswith("/") else path
    return f"{package}/{path}" if package else path
