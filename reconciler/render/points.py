"""Injection points: the resources of a package that ask to be filled from the cluster."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from reconciler.api.kptfile import INJECTION_PREFIX as PREFIX
from reconciler.krm.merge import identity_of, root_of
from reconciler.objects import File, Files
from reconciler.render.update.chunks import Document, split_documents

ANNOTATION = "kpt.dev/config-injection"
REQUIRED, OPTIONAL = "required", "optional"


@dataclass(frozen=True, slots=True)
class InjectionPoint:
    """One annotated resource: where it stands, and the condition that tells how it fared.

    `errors` say why nothing can be injected; `resource` is its content, `name` its name as written.
    """

    file: str
    required: bool
    condition_type: str
    errors: tuple[str, ...] = ()
    index: int = 0
    resource: dict[str, Any] = field(default_factory=dict, compare=False)
    name: str = field(default="", compare=False)


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
    chunked = split_documents(File.of(data))
    for document in chunked.documents if chunked is not None else ():
        if isinstance(document.data, dict) and (point := _point(path, document)):
            yield point


def _point(path: str, document: Document) -> InjectionPoint | None:
    resource = document.data
    metadata = resource.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    if not isinstance(metadata, dict) or not isinstance(annotations, dict) or ANNOTATION not in annotations:
        return None
    # As written: `name: n` is a boolean for Kubernetes, and a name for who reads the message.
    _, kind, _, name = identity_of(root_of(document.tree))
    value = annotations[ANNOTATION]
    errors: tuple[str, ...] = ()
    if value not in (REQUIRED, OPTIONAL):
        errors = (f'{path}: {kind}/{name} has invalid "{ANNOTATION}" annotation value of "{value}"',)
    condition = f"{PREFIX}{kind}.{name}"
    return InjectionPoint(path, value == REQUIRED, condition, errors, document.index, resource, name)
