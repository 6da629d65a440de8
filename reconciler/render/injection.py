"""Config injection: what the cluster holds, put into the points that a package declares."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from reconciler.api.kptfile import INJECTION_PREFIX as PREFIX
from reconciler.api.kptfile import KPTFILE
from reconciler.api.porch import InjectionSelector
from reconciler.ids import group_of
from reconciler.krm.yaml import (
    PACKAGE_LIMITS,
    DeleteItem,
    DeleteKey,
    Edit,
    InsertItem,
    SetValue,
    YamlError,
    load_documents,
)
from reconciler.objects import Files
from reconciler.reasons import Reason
from reconciler.render.editing import edit_file
from reconciler.render.points import InjectionPoint, check_points, find_points
from reconciler.render.rendered import Blocked
from reconciler.snapshot import Snapshot, SnapshotObject

INJECTED = "kpt.dev/injected-resource"
INJECTED_NAME = "kpt.dev/injected-resource-name"
_NO_MATCH = "no resource matched any injection selector for this injection point"


@dataclass(frozen=True, slots=True)
class Injected:
    """A package after injection. `failure` says which required points are empty; None: it has no points."""

    files: Files
    failure: str | None = None


@dataclass(frozen=True, slots=True)
class Filling:
    """What one point gets: an object, or why none."""

    point: InjectionPoint
    source: SnapshotObject | None = None
    error: str = ""


def inject_config(
    files: Files, injectors: Sequence[InjectionSelector], snapshot: Snapshot, namespace: str
) -> Injected | Blocked:
    """Return the package with every point filled that an injector matches, and a condition for each.

    Idempotent. A required point that stays empty does not stop the package: it is not ready.

    Source: porch packagevariant injection.go, ensureConfigInjection; seed 000, Configuration Injection.
    Differs: conditions and gates of points that are gone go too; an injector may name its point;
    both annotations are written, Porch's and the seed's.
    """
    points = find_points(files)
    if error := check_points(points):
        return Blocked(Reason.INVALID_PACKAGE, error, "Correct the annotations in the upstream package.")
    fillings = [choose_source(point, injectors, snapshot, namespace) for point in points]
    try:
        for filling in fillings:
            if filling.source is not None:
                path = filling.point.file
                edits = _fill(filling.point, filling.source)
                files = {**files, path: edit_file(files[path], edits, index=filling.point.index)}
        files = _with_conditions(files, fillings)
    except YamlError as error_:
        return Blocked(Reason.INVALID_PACKAGE, f"Configuration cannot be injected: {error_}")
    empty = [f"{f.point.condition_type}: {f.error}" for f in fillings if f.error and f.point.required]
    return Injected(files, "; ".join(empty) if fillings else None)


def condition_entries(fillings: Iterable[Filling]) -> Iterator[dict[str, str]]:
    """Yield the condition of every point, as a Kptfile holds it."""
    for filling in fillings:
        source = filling.source
        yield {
            "type": filling.point.condition_type,
            "status": "True" if source else "False",
            "message": f'injected resource "{source.name}" from cluster' if source else filling.error,
            "reason": "ConfigInjected" if source else "NoResourceSelected",
        }


def merged_conditions(existing: Any, fillings: Sequence[Filling]) -> list[Any]:
    """Return a Kptfile's conditions with the points' own upserted, and those of vanished points gone."""
    mine = {entry["type"]: entry for entry in condition_entries(fillings)}
    kept = [c for c in _entries(existing) if _type_of(c) in mine or not _type_of(c).startswith(PREFIX)]
    present = {_type_of(c) for c in kept}
    new = [mine[name] for name in sorted(mine.keys() - present)]
    return [*(mine.get(_type_of(c), c) for c in kept), *new]


def merged_gates(existing: Any, fillings: Sequence[Filling]) -> list[Any]:
    """Return a Kptfile's readiness gates with those of required points, without those of vanished ones.

    A gate that people put on an optional point stays.
    """
    points = {filling.point.condition_type for filling in fillings}
    kept = [g for g in _entries(existing) if _gate_of(g) in points or not _gate_of(g).startswith(PREFIX)]
    required = {filling.point.condition_type for filling in fillings if filling.point.required}
    new = sorted(required - {_gate_of(gate) for gate in kept})
    return [*kept, *({"conditionType": name} for name in new)]


def choose_source(
    point: InjectionPoint, injectors: Sequence[InjectionSelector], snapshot: Snapshot, namespace: str
) -> Filling:
    """Choose the object of the first injector that fits the point and names one in the namespace."""
    if not injectors:
        return Filling(point, error="no injectors defined")
    if not snapshot.present and snapshot.cluster:
        return Filling(point, error=f"there is no snapshot of cluster {snapshot.cluster} in {snapshot.path}")
    api_version, kind = str(point.resource.get("apiVersion", "")), str(point.resource.get("kind", ""))
    if snapshot.served is not None and (api_version, kind) not in snapshot.served:
        return Filling(point, error=f"the cluster has no schema for {api_version}.{kind}")
    return _chosen_object(point, injectors, snapshot, namespace)


def _chosen_object(
    point: InjectionPoint, injectors: Sequence[InjectionSelector], snapshot: Snapshot, namespace: str
) -> Filling:
    api_version, kind = str(point.resource.get("apiVersion", "")), str(point.resource.get("kind", ""))
    objects = {o.name: o for o in snapshot.of_kind(api_version, kind) if o.namespace == namespace}
    if not objects:
        return Filling(point, error=f"no in-cluster resources of type {api_version}.{kind}")
    for injector in injectors:
        source = objects.get(injector.name or "") if _fits(injector, point, api_version, kind) else None
        if source is not None:
            field = injected_field(api_version, kind)
            if field not in source.body or source.body[field] is None:
                return Filling(point, error=f'field "{field}" not found in resource "{source.name}"')
            return Filling(point, source)
    return Filling(point, error=_NO_MATCH)


def _fits(injector: InjectionSelector, point: InjectionPoint, api_version: str, kind: str) -> bool:
    target = injector.target
    pairs = (
        (injector.group, group_of(api_version)),
        (injector.version, api_version.rpartition("/")[2]),
        (injector.kind, kind),
        (target.kind if target else None, kind),
        (target.name if target else None, point.name),
    )
    return all(wanted is None or wanted == found for wanted, found in pairs)


def injected_field(api_version: str, kind: str) -> str:
    """Return the field of an object that is injected, whole."""
    return "data" if (api_version, kind) == ("v1", "ConfigMap") else "spec"


def _fill(point: InjectionPoint, source: SnapshotObject) -> Iterator[Edit]:
    annotations = point.resource["metadata"]["annotations"]
    for name in (INJECTED, INJECTED_NAME):
        if annotations.get(name) != source.name:
            yield SetValue(("metadata", "annotations", name), source.name)
    field = injected_field(source.api_version, source.kind)
    if point.resource.get(field) != source.body[field]:
        yield SetValue((field,), source.body[field])


def _with_conditions(files: Files, fillings: Sequence[Filling]) -> Files:
    file = files.get(KPTFILE)
    value = load_documents(file.data, PACKAGE_LIMITS)[0].value if file else None
    if file is None or not isinstance(value, dict):
        return files
    info, status = value.get("info"), value.get("status")
    gates = info.get("readinessGates") if isinstance(info, dict) else None
    conditions = status.get("conditions") if isinstance(status, dict) else None
    if not fillings and PREFIX not in f"{gates}{conditions}":
        return files
    edits = [
        *_list_edits(("info", "readinessGates"), gates, merged_gates(gates, fillings), _gate_of),
        *_list_edits(("status", "conditions"), conditions, merged_conditions(conditions, fillings), _type_of),
    ]
    return {**files, KPTFILE: edit_file(file, edits)}


def _list_edits(
    path: tuple[str, ...], old: Any, new: list[dict[str, Any]], name_of: Callable[[dict[str, Any]], str]
) -> Iterator[Edit]:
    """Yield the edits that make one list another: items that stay keep their place, bytes and comments."""
    if not new:
        if old:
            yield DeleteKey(path)
        return
    if not isinstance(old, list) or len(_entries(old)) < len(old):
        if new != old:
            yield SetValue(path, new)
        return
    wanted = {name_of(entry): entry for entry in new}
    for index, entry in enumerate(old):
        for key, value in wanted.get(name_of(entry), {}).items():
            if entry.get(key) != value:
                yield SetValue((*path, index, key), value)
    gone = [index for index, entry in enumerate(old) if name_of(entry) not in wanted]
    for index in reversed(gone):
        yield DeleteItem((*path, index))
    present = {name_of(entry) for entry in old}
    added = [entry for entry in new if name_of(entry) not in present]
    for index, entry in enumerate(added, len(old) - len(gone)):
        yield InsertItem(path, index, entry)


def _type_of(condition: dict[str, Any]) -> str:
    return str(condition.get("type", ""))


def _gate_of(gate: dict[str, Any]) -> str:
    return str(gate.get("conditionType", ""))


def _entries(found: Any) -> list[dict[str, Any]]:
    return [entry for entry in found if isinstance(entry, dict)] if isinstance(found, list) else []
