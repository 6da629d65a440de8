"""Warn of what a function makes or leaves that its author hardly meant: no function fails because of it."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from reconciler.functions.builtin.call import file_of
from reconciler.functions.package_files import PackageResources
from reconciler.functions.resource import Resource
from reconciler.functions.runtime import FunctionResult
from reconciler.krm.documents import DocumentKind
from reconciler.krm.values import mapping_at

_DEPENDS_ON: Final = "config.kubernetes.io/depends-on"
_TEXTS: Final = (("metadata", "labels"), ("metadata", "annotations"), ("data",))
_CHART: Final = "Chart.yaml"


def check_output(
    function: str, resources: Iterable[Resource], package: PackageResources
) -> Iterator[FunctionResult]:
    """Yield warnings about the resources that a function returned.

    A text that became a number or a boolean, which the API server refuses; and a list of references of which
    `set-namespace` changes none, as that of the catalog.
    """
    for resource in resources:
        file = package.split.get(resource.source)
        written = file.documents[resource.part].value if file and resource.part is not None else {}
        for path in _TEXTS if resource.kind == "ConfigMap" else _TEXTS[:2]:
            values, before = mapping_at(resource.value, *path), mapping_at(written, *path)
            for name in _untyped(values, before):
                field = ".".join((*path, name))
                message = f"{field} of {resource.kind} {resource.name} was text before: quote the field"
                yield FunctionResult(message, "warning", file=file_of(resource))
        depends = str(resource.annotations.get(_DEPENDS_ON) or "")
        if function == "set-namespace" and "," in depends and "/namespaces/" in depends:
            message = f"{resource.kind} {resource.name}: set-namespace leaves a list in {_DEPENDS_ON} alone"
            yield FunctionResult(message, "warning", file=file_of(resource))


def _untyped(values: Mapping[str, Any], before: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names of values that are numbers or booleans, and were texts."""
    for name, value in values.items():
        if type(value) in (int, float, bool) and type(before.get(name)) is str:
            yield name


def unseen_documents(package: PackageResources) -> Iterator[str]:
    """Yield a warning for each file with objects without a name, or that is no YAML: no function sees them.

    Charts have such files, and other data is none of functions.
    """
    charts = tuple(path.removesuffix(_CHART) for path in package.files if path.rpartition("/")[2] == _CHART)
    for path, split in package.split.items():
        if charts and path.startswith(charts):
            continue
        why = f"it is no YAML: {split.problem}" if split.problem is not None else ""
        for document in split.documents:
            if document.kind is DocumentKind.DATA and isinstance(document.value, dict):
                has_kind = document.value.get("apiVersion") and document.value.get("kind")
                why = why or ("it has no metadata.name" if has_kind else "")
        if why:
            yield f"Functions do not see {path}: {why}"
