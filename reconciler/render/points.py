"""Injection points: the resources of a package that ask to be filled from the cluster."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from reconciler.krm.yaml import PACKAGE_LIMITS, YamlError, load_documents
from reconciler.objects import Files

ANNOTATION = "kpt.dev/config-injection"
REQUIRED, OPTIONAL = "required", "optional"
PREFIX = "config.injection."


@dataclass(frozen=True, slots=True)
class InjectionPoint:
    """One annotated resource: where it stands, and the condition that tells how it fared.

    `errors` say why nothing can be injected; `resource` is its content.
    """

    file: str
    required: bool
    condition_type: str
    errors: tuple[str, ...] = ()
    index: int = 0
    resource: dict[str, Any] = field(default_factory=dict, compare=False)


def find_points(files: Files) -> tuple[InjectionPoint, ...]:
    """Return the injection points of a package, by file and place in it.

    Total: a file that is not YAML is opaque text and has none.

    Source: porch packagevariant injection.go, findInjectionPoints.
    Differs: Porch stops at the first file that is not YAML, a Helm template say.
    """
    return tuple(point for path in sorted(files) for point in _points(path, files[path].data))


def check_points(points: Iterable[InjectionPoint]) -> str:
    """Return what is wrong with a package's points in one sentence, empty if nothing is.

    Source: porch packagevariant injection.go, validateInjectionPoints.
    """
    errors: list[str] = []
    seen: dict[str, str] = {}
    for point in points:
        errors += point.errors
        before = seen.get(point.condition_type)
        if before is not None:
            name = point.condition_type
            errors.append(f'duplicate injection conditionType "{name}" ({before} and {point.file})')
        seen[point.condition_type] = point.file
    return f"errors in injection points: {', '.join(errors)}" if errors else ""


def _points(path: str, data: bytes) -> Iterator[InjectionPoint]:
    name = path.rpartition("/")[2]
    if not (name == "Kptfile" or name.endswith((".yaml", ".yml"))) or ANNOTATION.encode() not in data:
        return
    try:
        documents = load_documents(data, PACKAGE_LIMITS)
    except YamlError:
        return
    for index, document in enumerate(documents):
        if isinstance(document.value, dict) and (point := _point(path, index, document.value)):
            yield point


def _point(path: str, index: int, resource: dict[str, Any]) -> InjectionPoint | None:
    metadata = resource.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    if not isinstance(metadata, dict) or not isinstance(annotations, dict) or ANNOTATION not in annotations:
        return None
    kind, name, value = resource.get("kind", ""), metadata.get("name", ""), annotations[ANNOTATION]
    errors: tuple[str, ...] = ()
    if value not in (REQUIRED, OPTIONAL):
        errors = (f'{path}: {kind}/{name} has invalid "{ANNOTATION}" annotation value of "{value}"',)
    return InjectionPoint(path, value == REQUIRED, f"{PREFIX}{kind}.{name}", errors, index, resource)
