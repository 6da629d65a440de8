"""What a cluster printed, as snapshot files: one file per kind and namespace, and a header. Pure."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

import orjson

from reconciler import __version__
from reconciler.api.snapshot import API_VERSION, FILE, KIND, ObjectList, SnapshotHeader
from reconciler.errors import ConfigurationError, Location, RefusedError, UsageError
from reconciler.ids import GroupKind, group_of
from reconciler.krm.yaml import YamlLimits, emit, load_documents
from reconciler.read.snapshot import format_time, parse_header
from reconciler.read.snapshot.objects import FileObjects, parse_snapshot_file
from reconciler.snapshot import ALL_NAMESPACES, SnapshotObject

CLUSTER_SCOPED = "_cluster"
"""File of the objects without a namespace; no namespace can be called so."""

_KIND = re.compile(r"[A-Za-z][A-Za-z0-9]{0,62}")
_GROUP = re.compile(r"([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\.|$))*")
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_CHURN = ("resourceVersion", "selfLink")
_CRD = GroupKind("apiextensions.k8s.io", "CustomResourceDefinition")


_NAMESPACED = frozenset({"true", "false"})


class ApiResources(NamedTuple):
    """What a cluster serves: (apiVersion, kind) where the table says it, else only names.

    `plurals` are the kinds of the table by name, and `names` those without a kind: `plural.group`.
    """

    served: frozenset[tuple[str, str]] = frozenset()
    plurals: Mapping[str, GroupKind] = MappingProxyType({})
    names: frozenset[str] = frozenset()


NO_RESOURCES = ApiResources()


def parse_api_resources(text: str) -> ApiResources:
    """Return what `kubectl api-resources` printed, with or without `-o wide`, `-o name` or headers. Total.

    In a table the column NAMESPACED is the only one that says true or false; the apiVersion stands
    before it and the kind after it, whether a resource has short names or not.
    """
    served: set[tuple[str, str]] = set()
    plurals: dict[str, GroupKind] = {}
    names: set[str] = set()
    for line in text.splitlines():
        words = line.split()
        where = next((i for i, word in enumerate(words) if i and word in _NAMESPACED), 0)
        if where and where + 1 < len(words):
            api_version, kind = words[where - 1], GroupKind(group_of(words[where - 1]), words[where + 1])
            served.add((api_version, kind.kind))
            plurals[_qualified(words[0], kind.group)] = kind
        elif len(words) == 1:
            names.add(words[0])
    return ApiResources(frozenset(served), plurals, frozenset() if served else frozenset(names))


def _qualified(plural: str, group: str) -> str:
    return f"{plural}.{group}" if group else plural


def guess_plural(kind: GroupKind) -> str:
    """Return the resource name that a kind usually has, with its group.

    Source: apimachinery pkg/api/meta restmapper.go, UnsafeGuessKindToResource.
    """
    word = kind.kind.lower()
    if word.endswith("s"):
        plural = f"{word}es"
    elif word.endswith("y"):
        plural = f"{word[:-1]}ies"
    else:
        plural = f"{word}s"
    return _qualified(plural, kind.group)


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """What the person who imports knows and the objects do not say.

    `kinds` were asked for, so that one without objects is empty and not unknown. `namespace` is the
    only one that was listed, "" for all. `partial` tells that selectors left objects out. `time` is
    in seconds. `versions` are those of what the cluster runs; one that is not named stays as it was.
    """

    time: int
    cluster: str = ""
    kinds: tuple[GroupKind, ...] = ()
    namespace: str = ""
    partial: bool = False
    resources: ApiResources = NO_RESOURCES
    versions: Mapping[str, str] = field(default_factory=dict)


class KindCount(NamedTuple):
    """One imported kind: how many objects it has now and had before, and whether they are all."""

    kind: GroupKind
    now: int
    before: int
    complete: bool


@dataclass(frozen=True, slots=True)
class SnapshotFiles:
    """What an import changes: files to write and to remove, by path from the snapshot's directory."""

    write: Mapping[str, bytes]
    remove: frozenset[str]
    counts: tuple[KindCount, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(slots=True)
class _Lists:
    """Objects of one import by kind, with the kinds that are known to be empty or cut off."""

    objects: dict[GroupKind, list[SnapshotObject]] = field(default_factory=dict)
    cut_off: set[GroupKind] = field(default_factory=set)


def parse_kinds(text: str, resources: ApiResources) -> tuple[GroupKind, ...]:
    """Return the kinds of a list as kubectl takes it: `Kind.group`, or resource names that the table knows.

    Raises:
        UsageError: A resource name whose kind nobody knows.
    """
    return tuple(_parse_kind(word.strip(), resources.plurals) for word in text.split(",") if word.strip())


def _parse_kind(word: str, plurals: Mapping[str, GroupKind]) -> GroupKind:
    if word in plurals:
        return plurals[word]
    kind, _, group = word.partition(".")
    if not kind[:1].isupper():
        hint = "Write Kind.group, Cluster.example.com say: kubectl takes that too."
        raise UsageError(f"The kind of resource {word} is not known", hint=hint)
    return GroupKind(group, kind)


def plan_import(
    inputs: Sequence[tuple[str, bytes]],
    existing: Mapping[str, bytes],
    options: ImportOptions,
    limits: YamlLimits,
) -> SnapshotFiles:
    """Return the files that replace each imported kind whole. Deterministic.

    Args:
        inputs: Name and content of what kubectl printed.
        existing: The snapshot's files, by path from its directory.
        options: What else is known.
        limits: Bounds on one input.

    Raises:
        ConfigurationError: An input or the existing header is not understood.
        RefusedError: Another file of the snapshot holds objects of an imported kind.
        UsageError: There is nothing to import.
    """
    lists = _parse(inputs, options, limits)
    _check_strangers(existing, lists, limits)
    header = _existing_header(existing)
    write: dict[str, bytes] = {}
    remove: set[str] = set()
    for kind, objects in sorted(lists.objects.items()):
        files = {file_path(kind, ns): render_objects(o) for ns, o in _by_namespace(objects).items()}
        remove |= {path for path in existing if _is_replaced(path, kind, options.namespace)} - files.keys()
        write |= files
    counts = {kind: len(objects) for kind, objects in lists.objects.items()}
    header_bytes, notes = _header(header, lists, options)
    write[FILE] = header_bytes
    changed = {path: data for path, data in write.items() if existing.get(path) != data}
    before = _totals(header)
    reported = tuple(
        KindCount(kind, count, before.get(kind, 0), _is_complete(kind, lists, options))
        for kind, count in sorted(counts.items())
    )
    return SnapshotFiles(changed, frozenset(remove), reported, notes)


def file_path(kind: GroupKind, namespace: str) -> str:
    """Return where the objects of a kind in a namespace stand: `Cluster.example.com/default.json`."""
    return f"{kind}/{namespace or CLUSTER_SCOPED}.json"


def render_objects(objects: Iterable[SnapshotObject]) -> bytes:
    """Return the file of some objects: a list as kubectl prints it, sorted, one field on each line."""
    ordered = sorted(objects, key=lambda o: (o.name, o.api_version))
    value = {"apiVersion": "v1", "items": [_body(o) for o in ordered], "kind": "List"}
    option = orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE
    return orjson.dumps(value, option=option)


def _body(one: SnapshotObject) -> dict[str, Any]:
    """Return an object without what changes although nothing did."""
    body = dict(one.body)
    metadata = body.get("metadata")
    if isinstance(metadata, Mapping):
        body["metadata"] = {k: v for k, v in metadata.items() if k not in _CHURN}
    return body


def _parse(inputs: Sequence[tuple[str, bytes]], options: ImportOptions, limits: YamlLimits) -> _Lists:
    lists = _Lists({kind: [] for kind in options.kinds})
    for name, data in inputs:
        _add(lists, name, data, parse_snapshot_file(name, data, limits))
    if not lists.objects:
        hint = "Name what was asked for with --kinds, so that an empty list means that nothing is there."
        raise UsageError("There is nothing to import: no object, and no kind is named", hint=hint)
    for kind, objects in lists.objects.items():
        _check_names(kind, objects)
        if options.namespace:
            strange = next((o for o in objects if o.namespace != options.namespace), None)
            if strange is not None:
                message = f"{kind} {strange.namespace}/{strange.name} is not in {options.namespace}"
                raise UsageError(message, hint="Leave --namespace out for a list over all namespaces.")
        lists.objects[kind] = list({(o.api_version, o.namespace, o.name): o for o in objects}.values())
    return lists


def _add(lists: _Lists, name: str, data: bytes, found: FileObjects) -> None:
    if not data.strip():
        message = f"{name} is empty"
        raise ConfigurationError(message, hint="Did kubectl fail? Nothing was changed.")
    if found.problems:
        first, *others = found.problems
        more = f" (and {len(others)} more)" if others else ""
        raise ConfigurationError(f"{first.message}{more}", location=first.location, hint=first.hint)
    kinds = {GroupKind(group_of(api_version), kind) for api_version, kind in found.lists}
    for one in found.objects:
        kind = GroupKind(group_of(one.api_version), one.kind)
        kinds.add(kind)
        lists.objects.setdefault(kind, []).append(one)
    for kind in kinds:
        lists.objects.setdefault(kind, [])
    if found.partial:
        lists.cut_off |= kinds


def _check_names(kind: GroupKind, objects: Iterable[SnapshotObject]) -> None:
    """Refuse names that cannot be paths.

    Raises:
        ConfigurationError: A group, kind or namespace that no API server would accept.
    """
    if not _KIND.fullmatch(kind.kind) or not _GROUP.fullmatch(kind.group):
        raise ConfigurationError(f"{str(kind)!r} is not a kind of Kubernetes", location=Location(str(kind)))
    for one in objects:
        if one.namespace and not _NAMESPACE.fullmatch(one.namespace):
            message = f"{one.namespace!r} is not a namespace of Kubernetes"
            raise ConfigurationError(message, location=one.location)


def _by_namespace(objects: Iterable[SnapshotObject]) -> dict[str, list[SnapshotObject]]:
    spaces: dict[str, list[SnapshotObject]] = {}
    for one in objects:
        spaces.setdefault(one.namespace, []).append(one)
    return spaces


def _is_replaced(path: str, kind: GroupKind, namespace: str) -> bool:
    directory, _, name = path.rpartition("/")
    return directory == str(kind) and (not namespace or name == f"{namespace}.json")


def _check_strangers(existing: Mapping[str, bytes], lists: _Lists, limits: YamlLimits) -> None:
    """Refuse to import a kind beside objects of it that somebody keeps in a file of their own.

    Raises:
        RefusedError: There is such a file.
    """
    ours = {str(kind) for kind in lists.objects}
    for path, data in sorted(existing.items()):
        if path == FILE or path.partition("/")[0] in ours:
            continue
        for one in parse_snapshot_file(path, data, limits).objects:
            kind = GroupKind(group_of(one.api_version), one.kind)
            if kind in lists.objects:
                hint = f"Remove it first: the import writes {file_path(kind, one.namespace)}."
                raise RefusedError(f"{path} of the snapshot holds objects of kind {kind}", hint=hint)


def _existing_header(existing: Mapping[str, bytes]) -> SnapshotHeader:
    data = existing.get(FILE)
    if data is None:
        return SnapshotHeader(api_version=API_VERSION, kind=KIND)
    problems = parse_header(FILE, data).problems
    if problems:
        hint = "Correct or remove the file."
        raise ConfigurationError(problems[0].message, location=problems[0].location, hint=hint)
    return SnapshotHeader.model_validate(load_documents(data)[0].value, by_alias=True, by_name=False)


def _totals(header: SnapshotHeader) -> dict[GroupKind, int]:
    """Return how many objects of each kind there were: as its list over all namespaces says, else the sum."""
    totals: dict[GroupKind, int] = {}
    for one in sorted(header.spec.lists, key=lambda o: o.namespace == ALL_NAMESPACES):
        kind = GroupKind(one.group, one.kind)
        more = 0 if one.namespace == ALL_NAMESPACES else totals.get(kind, 0)
        totals[kind] = more + one.count
    return totals


def _is_complete(kind: GroupKind, lists: _Lists, options: ImportOptions) -> bool:
    return not options.partial and kind not in lists.cut_off


def _header(old: SnapshotHeader, lists: _Lists, options: ImportOptions) -> tuple[bytes, tuple[str, ...]]:
    cluster = options.cluster or old.metadata.name
    if not cluster:
        hint = "Say which cluster was listed: --cluster NAME."
        raise UsageError("The snapshot does not say yet which cluster it is of", hint=hint)
    if old.metadata.name and cluster != old.metadata.name:
        hint = "Import another cluster into another directory."
        raise RefusedError(
            f"This is the snapshot of cluster {old.metadata.name}, not of {cluster}", hint=hint
        )
    served, notes = _served(old, lists, options)
    versions = {**(old.spec.versions or {}), **options.versions, "reconciler": __version__}
    spec: dict[str, Any] = {"time": format_time(options.time), "versions": dict(sorted(versions.items()))}
    if served is not None:
        spec["served"] = served
    spec["lists"] = [_entry(one, spec["time"]) for one in _lists_after(old, lists, options)]
    value = {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": cluster}, "spec": spec}
    return (emit(value) + "\n").encode(), notes


def _lists_after(old: SnapshotHeader, lists: _Lists, options: ImportOptions) -> list[ObjectList]:
    """Return every list of the new header: the imported ones anew, the others with the time they had."""
    kept = []
    for one in old.spec.lists:
        kind = GroupKind(one.group, one.kind)
        if kind not in lists.objects or (options.namespace and one.namespace not in ("*", options.namespace)):
            kept.append(one.model_copy(update={"time": one.time or old.spec.time}))
    fresh = [entry for kind in lists.objects for entry in _fresh(kind, lists, options)]
    return sorted([*kept, *fresh], key=lambda o: (o.group, o.kind, o.namespace))


def _fresh(kind: GroupKind, lists: _Lists, options: ImportOptions) -> Iterator[ObjectList]:
    complete = _is_complete(kind, lists, options)
    counts = {space: len(objects) for space, objects in _by_namespace(lists.objects[kind]).items()}

    def entry(namespace: str, count: int) -> ObjectList:
        return ObjectList(
            group=kind.group, kind=kind.kind, namespace=namespace, count=count, complete=complete
        )

    if options.namespace:
        yield entry(options.namespace, counts.get(options.namespace, 0))
        return
    yield entry(ALL_NAMESPACES, sum(counts.values()))
    yield from (entry(space, count) for space, count in counts.items() if space)


def _entry(one: ObjectList, time: str) -> dict[str, Any]:
    value = one.model_dump(by_alias=True, exclude_none=True)
    if value.get("time") == time:
        del value["time"]
    return {key: v for key, v in value.items() if v != "" and v is not False}


def _served(
    old: SnapshotHeader, lists: _Lists, options: ImportOptions
) -> tuple[list[str] | None, tuple[str, ...]]:
    """Return the served APIs, None if nobody knows them all, and what is to be said about it."""
    resources = options.resources
    if resources.served:
        return sorted({f"{version} {kind}" for version, kind in resources.served}), ()
    if not resources.names:
        return old.spec.served, ()
    known = dict(_known_resources(lists))
    unknown = sorted(resources.names - known.keys())
    if not unknown:
        return sorted({api for name in resources.names for api in known[name]}), ()
    note = (
        f"{len(unknown)} resource names are of unknown kinds ({', '.join(unknown[:3])}, …): the served APIs "
        "are not recorded; give the table of `kubectl api-resources` in place of `-o name`"
    )
    return old.spec.served, (note,)


def _known_resources(lists: _Lists) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield resource names with their apiVersions and kinds, as far as the objects tell."""
    for kind, objects in lists.objects.items():
        versions = {o.api_version for o in objects}
        if versions:
            yield guess_plural(kind), frozenset(f"{version} {kind.kind}" for version in versions)
    for crd in lists.objects.get(_CRD, ()):
        spec = crd.body.get("spec")
        if isinstance(spec, Mapping) and isinstance(names := spec.get("names"), Mapping):
            served = [
                v.get("name") for v in spec.get("versions", ()) if isinstance(v, Mapping) and v.get("served")
            ]
            apis = frozenset(f"{spec.get('group')}/{version} {names.get('kind')}" for version in served)
            yield f"{names.get('plural')}.{spec.get('group')}", apis
