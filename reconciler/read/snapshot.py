"""Read the cluster snapshot at a commit: its objects, and the lists that are complete."""

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from itertools import chain
from sys import intern
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, field
from msgspec.structs import replace

from reconciler.api.snapshot import FILE, ObjectList, SnapshotHeader
from reconciler.api.validation import parse_model
from reconciler.base.defects import DefectError, guard
from reconciler.base.errors import Location
from reconciler.base.lazy import regex
from reconciler.base.reasons import Reason
from reconciler.base.text import LATEST_S, plural, some, verb
from reconciler.dependencies.dialects import GROUPS
from reconciler.git.repository import Mirror
from reconciler.git.trees import PackageRefusedError
from reconciler.inventory.snapshot import ALL_NAMESPACES, Snapshot, SnapshotObject
from reconciler.krm.yaml import Document, YamlError, YamlLimits, json_value, load_documents, load_json
from reconciler.names.ids import KNOWN_VERSIONS, GroupKind, Oid, group_of
from reconciler.names.problems import Problem, defect_problem
from reconciler.policy import Limits, Policy
from reconciler.policy.rollouts import HEALTH_KINDS
from reconciler.read.files import LEFT_OUT, FileEntry, ParsedObject, UnreadPath, Walk, parse_file

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
JSON_LINES = (".ndjson", ".jsonl")
SUFFIXES = (".yaml", ".yml", ".json", *JSON_LINES)

_NOTHING: dict[str, str] = {}
_OBJECT_HINT = "Write what `kubectl get -o json` or `-o yaml` prints."


class FileObjects(NamedTuple):
    """The objects of one file, in order, its problems, and its typed lists.

    `lists` are (apiVersion, kind) of lists that name their kind even if they are empty. With `partial` the
    server split a list, and the rest is missing.
    """

    objects: tuple[SnapshotObject, ...] = ()
    problems: tuple[Problem, ...] = ()
    lists: tuple[tuple[str, str], ...] = ()
    partial: bool = False


# The collector need not track these: they have no cycles, and a snapshot has a hundred thousand of them.
class _Metadata(Struct, gc=False):
    name: str | None = None
    namespace: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class _Object(Struct, gc=False, rename={"api_version": "apiVersion"}):
    api_version: str = ""
    kind: str = ""
    metadata: _Metadata | None = None


class _ListMetadata(Struct, gc=False, rename={"rest": "continue"}):
    rest: str | None = None


class _List(Struct, gc=False, rename={"api_version": "apiVersion"}):
    api_version: str = ""
    kind: str = ""
    metadata: _ListMetadata | None = None
    items: list[Raw] | UnsetType | None = UNSET


_as_object = msgspec.json.Decoder(_Object).decode
_as_list = msgspec.json.Decoder(_List).decode
_LONGEST_INTEGER = 4000
_HUGE_INTEGER = regex(rb"[0-9]{%d}" % _LONGEST_INTEGER)


class JsonBody:
    """The body of one object, decoded by the first call. Most are never used."""

    __slots__ = ("_raw", "_value")

    def __init__(self, raw: bytes | Raw) -> None:
        self._raw: bytes | Raw = raw
        self._value: dict[str, Any] | None = None

    def __call__(self) -> dict[str, Any]:
        """Return the body without its private parts."""
        value = self._value
        if value is None:
            value = self._value = drop_private(json_value(self._raw))
            self._raw = b""
        return value

    def __eq__(self, other: object) -> bool:
        return self() == other() if isinstance(other, JsonBody) else NotImplemented

    def __hash__(self) -> int:
        return hash(JsonBody)


def drop_private(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return a body without a Secret's data, managed fields, kubectl's last applied object and status."""
    public = dict(body)
    # Status changes with every heartbeat: only installed packages need all of it, for their version, gates of
    # rollouts what tells the health of an object, and upgrades the versions in which a kind is stored.
    api_version = str(public.get("apiVersion") or "")
    if group_of(api_version) not in GROUPS:
        status = public.pop("status", None)
        if (group_of(api_version), public.get("kind")) in HEALTH_KINDS and isinstance(status, Mapping):
            selected = {name: status[name] for name in _HEALTH_FIELDS if name in status}
            health, sync, conditions = status.get("health"), status.get("sync"), status.get("conditions")
            if isinstance(health, Mapping):
                selected["health"] = {name: health[name] for name in ("status", "message") if name in health}
            if isinstance(sync, Mapping) and "status" in sync:
                selected["sync"] = {"status": sync["status"]}
            if isinstance(conditions, list):
                items = (item for item in conditions if isinstance(item, Mapping))
                selected["conditions"] = [
                    {k: item[k] for k in _CONDITION_FIELDS if k in item} for item in items
                ]
            public["status"] = selected
        elif group_of(api_version) == "apiextensions.k8s.io" and isinstance(status, Mapping):
            stored = status.get("storedVersions")
            public |= {"status": {"storedVersions": stored}} if stored else {}
    if public.get("kind") == "Secret" and public.get("apiVersion") == "v1":
        public.pop("data", None)
        public.pop("stringData", None)
    metadata = public.get("metadata")
    if isinstance(metadata, Mapping):
        metadata = {k: v for k, v in metadata.items() if k != "managedFields"}
        annotations = metadata.get("annotations")
        if isinstance(annotations, Mapping) and LAST_APPLIED in annotations:
            metadata["annotations"] = {k: v for k, v in annotations.items() if k != LAST_APPLIED}
        public["metadata"] = metadata
    return public


_HEALTH_FIELDS = (
    *("health", "observedGeneration"),
    *("readyReplicas", "updatedReplicas"),
    *("numberReady", "updatedNumberScheduled", "desiredNumberScheduled"),
)
_CONDITION_FIELDS = ("type", "status", "reason", "message")
"""Group and kind: kubectl may print another version of them."""


def parse_snapshot_file(path: str, data: bytes, limits: YamlLimits) -> FileObjects:
    """Return the objects of a file: YAML documents, one JSON value, or JSON lines. Total."""
    if len(data) > limits.max_bytes:
        message = f"The file has {plural(len(data), 'byte')}; the limit is {limits.max_bytes}"
        hint = "Split it, or raise spec.limits.snapshotFileBytes."
        return FileObjects(problems=(Problem(Location(path), Reason.INVALID_SNAPSHOT, message, hint),))
    if path.endswith(JSON_LINES):
        return _parse_lines(path, data, limits)
    if data.lstrip()[:1] == b"{":
        return _parse_json(path, data, limits)
    return _parse_yaml(path, data, limits)


def _parse_json(path: str, data: bytes, limits: YamlLimits) -> FileObjects:
    try:
        top = _as_list(data)
    except (msgspec.DecodeError, RecursionError) as error:
        # One JSON value per line is no JSON document: recognize it by its first line.
        first, _, rest = data.lstrip().partition(b"\n")
        if rest.lstrip().startswith(b"{") and _is_json(first):
            return _parse_lines(path, data, limits)
        if path.endswith(".json"):
            return FileObjects(problems=(_object_problem(Location(path), str(error)),))
        return _parse_yaml(path, data, limits)
    if top.items is UNSET:
        return _collect([_object(path, 1, Raw(data), limits)])
    return _parse_items(path, data, top, limits)


def _is_json(line: bytes) -> bool:
    try:
        msgspec.json.decode(line, type=Raw)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


def _parse_items(path: str, data: bytes, top: _List, limits: YamlLimits) -> FileObjects:
    """Parse a list from kubectl (`kind: List`) or from the API server (`kind: ClusterList`)."""
    items = top.items or []
    if len(items) > limits.max_documents:
        return _too_many(path, limits)
    kind = top.kind.removesuffix("List")
    typed = ((top.api_version, kind),) if kind else ()
    partial = bool(top.metadata and top.metadata.rest)
    lines = item_lines(data, len(items)) if items else ()
    default = (top.api_version, kind) if kind else ("", "")
    objects = (_object(path, line, raw, limits, default) for line, raw in zip(lines, items, strict=True))
    return _collect(objects)._replace(lists=typed, partial=partial)


def _too_many(path: str, limits: YamlLimits) -> FileObjects:
    message = f"The file has more than {plural(limits.max_documents, 'object')}"
    return FileObjects(problems=(_object_problem(Location(path), message),))


def _parse_lines(path: str, data: bytes, limits: YamlLimits) -> FileObjects:
    if data.count(b"\n") > limits.max_documents:
        return _too_many(path, limits)
    return _collect(
        _object(path, number, Raw(line), limits)
        for number, line in enumerate(data.split(b"\n"), start=1)
        if line and not line.isspace()
    )


def _object(
    path: str, line: int, raw: Raw, limits: YamlLimits, default: tuple[str, str] = ("", "")
) -> SnapshotObject | Problem:
    """Return the object of one JSON value, or what is wrong with it: a defect is of this object alone."""
    try:
        with guard(path):
            return _read_object(path, line, raw, limits, default)
    except DefectError as error:
        return defect_problem(error, Location(path, line))


def _read_object(
    path: str, line: int, raw: Raw, limits: YamlLimits, default: tuple[str, str]
) -> SnapshotObject | Problem:
    """Return the object of one JSON value; `default` is the apiVersion and kind of its list."""
    api_version, kind = default
    try:
        header = _as_object(raw)
        _check_body(raw, limits)
        metadata = header.metadata
        if metadata is None or not metadata.name:
            return _object_problem(Location(path, line), "An object has no metadata.name")
        if kind and not header.kind:
            filled = {"apiVersion": api_version, "kind": kind, **json_value(raw)}
            return _object(path, line, Raw(msgspec.json.encode(filled)), limits)
        if not header.kind or not header.api_version:
            return _object_problem(Location(path, line), "An object has no apiVersion or kind")
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        return _object_problem(Location(path, line), str(error))
    except YamlError as error:
        return _object_problem(Location(path, line), error.message)
    # Strip now: data of secrets must not stay in memory until the body is decoded.
    if header.kind == "Secret":
        raw = Raw(msgspec.json.encode(drop_private(json_value(raw))))
    return _snapshot_object(header, metadata, metadata.name, JsonBody(raw), _place(path, line))


@lru_cache(maxsize=1)
def _place(path: str, line: int) -> Location:
    return Location(path, line)


def _check_body(raw: Raw, limits: YamlLimits) -> None:
    """Refuse an object that could not be decoded later, or is nested too deeply.

    Raises:
        YamlError: It is nested deeper than the limit for YAML.
        DecodeError: It has a number that no computer reads.
        UnicodeDecodeError: It is no text.
    """
    data = bytes(raw)
    if not data.isascii():
        data.decode()
    if len(data) > _LONGEST_INTEGER and _HUGE_INTEGER.search(data):
        json_value(raw)
    # Counting brackets is fast, and few objects have so many that they must be parsed.
    if data.count(b"{") + data.count(b"[") > limits.max_depth:
        load_json(data, limits, check_duplicates=False)


def _snapshot_object(
    header: _Object, metadata: _Metadata, name: str, body: Mapping[str, Any] | JsonBody, where: Location
) -> SnapshotObject:
    labels, annotations = metadata.labels or _NOTHING, metadata.annotations or _NOTHING
    if LAST_APPLIED in annotations:
        annotations = {k: v for k, v in annotations.items() if k != LAST_APPLIED}
    # A snapshot has few kinds and namespaces, and often few sets of labels: all objects share one of each.
    api_version, kind, namespace = (
        intern(header.api_version),
        intern(header.kind),
        intern(metadata.namespace or ""),
    )
    labels, annotations = _shared(labels), _shared(annotations)
    return SnapshotObject(api_version, kind, namespace, name, labels, annotations, body, where)


@lru_cache(maxsize=4096)
def _first(items: tuple[tuple[str, str], ...]) -> dict[str, str]:
    return dict(items)


def _shared(texts: dict[str, str]) -> dict[str, str]:
    """Return one dictionary for all equal ones of a snapshot; nothing changes them."""
    return _first(tuple(texts.items())) if texts else _NOTHING


def item_lines(data: bytes, count: int) -> Sequence[int]:
    """Return the first line, from 1, of each of `count` items of an indented JSON list; 0 if unclear."""
    # Only items start a line at their depth, so the JSON need not be parsed a second time for positions.
    if b"\n" not in data.strip():
        return [1] * count
    for indent in (4, 8, 2, 6):
        opening = b"\n" + b" " * indent + b"{"
        if data.count(opening) == count:
            return list(_lines_of(data, opening))
    return [0] * count


def _lines_of(data: bytes, opening: bytes) -> Iterator[int]:
    line, last = 1, 0
    start = data.find(opening)
    while start >= 0:
        line += data.count(b"\n", last, start + 1)
        yield line
        last = start + 1
        start = data.find(opening, last)


def _parse_yaml(path: str, data: bytes, limits: YamlLimits) -> FileObjects:
    content = parse_file(path, data, limits)
    broken = (
        b.problem
        if b.problem.reason == Reason.DEFECT
        else replace(b.problem, reason=Reason.INVALID_SNAPSHOT, hint=b.problem.hint or _OBJECT_HINT)
        for b in content.broken
    )
    return _collect(chain(map(_from_yaml, content.objects), broken))


def _from_yaml(parsed: ParsedObject) -> SnapshotObject | Problem:
    try:
        with guard(parsed.place.path):
            return _read_yaml_object(parsed)
    except DefectError as error:
        return defect_problem(
            error, Location(parsed.place.path, parsed.place.line + parsed.place.lines_above)
        )


def _read_yaml_object(parsed: ParsedObject) -> SnapshotObject | Problem:
    value, place = parsed
    where = place.location
    if not isinstance(value, Mapping):
        return _object_problem(where, "This is not a Kubernetes object")
    body = drop_private(value)
    try:
        header = msgspec.convert(body, _Object)
    except msgspec.ValidationError as error:
        return _object_problem(where, str(error))
    metadata = header.metadata
    if metadata is None or not metadata.name:
        return _object_problem(where, "An object has no metadata.name")
    if not header.kind or not header.api_version:
        return _object_problem(where, "An object has no apiVersion or kind")
    return _snapshot_object(header, metadata, metadata.name, body, where)


def _collect(parsed: Iterable[SnapshotObject | Problem]) -> FileObjects:
    parsed = tuple(parsed)
    objects = tuple(item for item in parsed if isinstance(item, SnapshotObject))
    return FileObjects(objects, tuple(item for item in parsed if isinstance(item, Problem)))


def _object_problem(where: Location, message: str) -> Problem:
    return Problem(where, Reason.INVALID_SNAPSHOT, message[:1].upper() + message[1:], _OBJECT_HINT)


_MOST_FILES = 2


def unknown_versions(snapshot: Snapshot, policy: Policy) -> Iterator[str]:
    """Yield a note for every unknown version of a kind that rules and checks read.

    Kinds with a health are read by the gates of rollouts alone.
    """
    waves = (wave for rollout in policy.rollouts for wave in rollout.waves)
    gated = {(group_of(gate.api_version), gate.kind) for wave in waves for gate in wave.gates.objects}
    places: dict[tuple[str, str], set[tuple[str, str, str]]] = {}
    for of_cluster in (snapshot, *snapshot.clusters.values()):
        for (api_version, kind), objects in of_cluster.objects.items():
            key = GroupKind(group_of(api_version), kind)
            is_read = key not in HEALTH_KINDS or key in gated
            if is_read and api_version not in KNOWN_VERSIONS.get(key, (api_version,)):
                members = ((item.location.path, item.namespace, item.name) for item in objects)
                places.setdefault((api_version, kind), set()).update(members)
    for (api_version, kind), objects_there in sorted(places.items()):
        files, count = sorted({path for path, _, _ in objects_there}), len(objects_there)
        closest = KNOWN_VERSIONS[GroupKind(group_of(api_version), kind)][0]
        yield (
            f"{kind} of {api_version} is not known: {plural(count, 'object')} in {some(files, _MOST_FILES)} "
            f"{verb(count, 'is', 'are')} read as {closest}, and passed over where that is not possible"
        )


_HINT = "Import the snapshot again: `reconciler snapshot import`."


class Header(NamedTuple):
    """The content of snapshot.yaml, each list with its location; without that file nothing is complete."""

    cluster: str = ""
    lists: tuple[tuple[ObjectList, Location], ...] = ()
    served: frozenset[tuple[str, str]] | None = None
    time: int | None = None
    problems: tuple[Problem, ...] = ()
    versions: Mapping[str, str] = MappingProxyType({})
    resources: Mapping[GroupKind, tuple[str, bool]] = MappingProxyType({})


class _Objects(Struct):
    """Objects by identity; of duplicates the first counts."""

    by_key: dict[tuple[str, str, str, str], SnapshotObject] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def add(self, file: FileObjects) -> None:
        self.problems += file.problems
        for item in file.objects:
            first = self.by_key.setdefault((item.api_version, item.kind, item.namespace, item.name), item)
            if first is not item and first.body != item.body:
                where = f"{item.namespace}/{item.name}" if item.namespace else item.name
                message = f"{item.kind} {where} is also at {first.location}, with different content"
                self.problems.append(_problem(item.location, message))

    def by_kind(self) -> dict[tuple[str, str], tuple[SnapshotObject, ...]]:
        kinds: dict[tuple[str, str], list[SnapshotObject]] = {}
        for (api_version, kind, _, _), item in sorted(self.by_key.items()):
            kinds.setdefault((api_version, kind), []).append(item)
        return {kind: tuple(objects) for kind, objects in kinds.items()}


def read_snapshot(objects: Mirror, commit: Oid, policy: Policy, left_out: Container[str] = ()) -> Snapshot:
    """Return the snapshot below the policy's path, without `present` if there is none.

    A directory with a snapshot.yaml is the snapshot of the cluster of that name. A single one without files
    beside it is also the snapshot for variants that name no cluster. An invalid file is a problem and makes
    its snapshot `unreadable`: nothing counts as absent there, while its other objects are present. So does a
    file that is `left_out`, which is not read.

    Raises:
        UnavailableError: The control repository is unreadable.
    """
    path, limits = policy.snapshot.path, policy.limits
    tree = objects.subtree(commit, path) if path else None
    if tree is None:
        return Snapshot(path=path)
    below = Walk(SUFFIXES, depth=limits.path_depth).below(objects, tree, path)
    walked = [UnreadPath(path.path, LEFT_OUT) if path.path in left_out else path for path in below]
    objects.ensure(file.oid for file in walked if isinstance(file, FileEntry))
    inside = {
        directory: [file for file in walked if file.path.startswith(f"{directory}/")]
        for directory in _cluster_directories(walked, path)
    }
    beside = [file for file in walked if not any(file in files for files in inside.values())]
    times = objects.last_touched(commit, [path, *inside])
    read = (_read_cluster(objects, files, directory, limits) for directory, files in inside.items())
    clusters = {snapshot.cluster: replace(snapshot, time=times.get(snapshot.path, 0)) for snapshot in read}
    if not beside and len(clusters) == 1:
        root = next(iter(clusters.values()))
    elif beside or not clusters:
        root = replace(_read_one(objects, beside, path, limits), time=times.get(path, 0))
    else:
        root = Snapshot(path=path)
    problems = {*root.problems, *(problem for snapshot in clusters.values() for problem in snapshot.problems)}
    return replace(root, clusters=clusters, path=path, problems=tuple(sorted(problems)))


def _cluster_directories(walked: Iterable[FileEntry | UnreadPath], path: str) -> list[str]:
    """Return the directories of single clusters, if any of them has a header."""
    # Also those without a header: their objects must not count for every cluster. Kinds are capitalized.
    below = [file.path.removeprefix(f"{path}/").split("/") for file in walked]
    if not any(parts[1:] == [FILE] for parts in below):
        return []
    return sorted({f"{path}/{parts[0]}" for parts in below if parts[1:] and not parts[0][:1].isupper()})


def _read_cluster(
    objects: Mirror, walked: Iterable[FileEntry | UnreadPath], path: str, limits: Limits
) -> Snapshot:
    """Return the snapshot in a cluster's directory; that of another cluster is unreadable."""
    snapshot = _read_one(objects, walked, path, limits)
    name = path.rpartition("/")[2]
    if snapshot.cluster in ("", name):
        return replace(snapshot, cluster=name)
    message = f"This is the snapshot of cluster {snapshot.cluster}, in the directory of cluster {name}"
    hint = f"Import it into {snapshot.cluster}/."
    problem = Problem(Location(f"{path}/{FILE}"), Reason.INVALID_SNAPSHOT, message, hint)
    return replace(snapshot, cluster=name, unreadable=True, problems=(*snapshot.problems, problem))


def _read_one(
    objects: Mirror, walked: Iterable[FileEntry | UnreadPath], path: str, limits: Limits
) -> Snapshot:
    items, header = _read_files(objects, walked, path, limits)
    kinds = items.by_kind()
    complete, miscounts = _complete(header, kinds)
    times = [parse_time(listed.time) for listed, _ in header.lists if listed.complete and listed.time]
    return Snapshot(
        present=True,
        objects=kinds,
        complete=complete,
        served=header.served,
        resources=header.resources,
        taken=min(times, default=header.time),
        unreadable=bool(items.problems),
        cluster=header.cluster,
        versions=header.versions,
        problems=tuple(sorted((*header.problems, *(items.problems or miscounts)))),
        path=path,
    )


def _read_files(
    objects: Mirror, walked: Iterable[FileEntry | UnreadPath], path: str, limits: Limits
) -> tuple[_Objects, Header]:
    walked = tuple(walked)
    files = sorted(f for f in walked if isinstance(f, FileEntry))
    items, header = _Objects(), Header()
    for file in walked:
        if isinstance(file, UnreadPath):
            items.problems.append(_problem(Location(file.path), f"The path was not read: {file.why}"))
    for file in files:
        try:
            data = objects.blob(file.oid, limits.snapshot_file_bytes)
        except PackageRefusedError as error:
            items.problems.append(_problem(Location(file.path), f"The file was not read: {error.reason}"))
            continue
        if file.path == f"{path}/{FILE}":
            header = parse_header(file.path, data)
        else:
            items.add(parse_snapshot_file(file.path, data, snapshot_limits(limits)))
    return items, header


def snapshot_limits(limits: Limits) -> YamlLimits:
    """Return the limits of one snapshot file."""
    return YamlLimits(
        max_bytes=limits.snapshot_file_bytes,
        max_documents=max(limits.yaml_documents, 1_000_000),
        max_nodes=max(limits.yaml_nodes, 20_000_000),
        max_depth=limits.yaml_depth,
    )


def parse_header(path: str, data: bytes) -> Header:
    """Return the content of snapshot.yaml; an invalid one has only problems. Total."""
    try:
        documents = load_documents(data)
    except YamlError as error:
        return Header(problems=(_problem(Location(path, error.line, error.column), error.message),))
    if len(documents) != 1:
        return Header(problems=(_problem(Location(path), "One document is expected"),))
    parsed = parse_model(SnapshotHeader, documents[0].value)
    if isinstance(parsed, tuple):
        faults = (Problem(_at(path, documents[0], f.path), f.reason, f.message, f.hint) for f in parsed)
        return Header(problems=tuple(faults))
    return _header(path, documents[0], parsed)


def _header(path: str, document: Document, parsed: SnapshotHeader) -> Header:
    problems: list[Problem] = []

    def seconds(text: str | None, *field: str | int) -> int | None:
        try:
            return parse_time(text) if text else None
        except ValueError:
            problems.append(_problem(_at(path, document, field), f"{text!r} is not a time"))
            return None

    time = seconds(parsed.spec.time, "spec", "time")
    lists = []
    for index, listed in enumerate(parsed.spec.lists):
        place = ("spec", "lists", index)
        taken = seconds(listed.time, *place, "time") or time
        dated = listed.model_copy(update={"time": None if taken is None else format_time(taken)})
        lists.append((dated, _at(path, document, place)))
    served = parsed.spec.served
    pairs = None if served is None else frozenset(_served(text) for text in served)
    versions = parsed.spec.versions or {}
    resources = dict(_resource(text) for text in parsed.spec.resources or ())
    return Header(parsed.metadata.name, tuple(lists), pairs, time, tuple(problems), versions, resources)


def _resource(text: str) -> tuple[GroupKind, tuple[str, bool]]:
    name, plural_name, scope = (*text.split(), "", "", "")[:3]
    kind, _, group = name.partition(".")
    return GroupKind(group, kind), (plural_name, scope == "Namespaced")


def _served(text: str) -> tuple[str, str]:
    api_version, _, kind = text.strip().partition(" ")
    return api_version, kind.strip()


def _complete(
    header: Header, kinds: Mapping[tuple[str, str], Iterable[SnapshotObject]]
) -> tuple[frozenset[tuple[GroupKind, str]], list[Problem]]:
    """Return the complete lists; a list with another count than declared is a problem instead."""
    counts = _counts(kinds)
    complete: set[tuple[GroupKind, str]] = set()
    problems: list[Problem] = []
    for listed, where in header.lists:
        namespace = listed.namespace
        key = GroupKind(listed.group, listed.kind), namespace
        if counts[key] != listed.count:
            place = {ALL_NAMESPACES: "all namespaces", "": "the cluster"}.get(namespace, namespace)
            message = (
                f"{key[0]} in {place} should have {plural(listed.count, 'object')}, but has {counts[key]}"
            )
            problems.append(_problem(where, message))
        elif listed.complete:
            complete.add(key)
    return frozenset(complete), problems


def _counts(kinds: Mapping[tuple[str, str], Iterable[SnapshotObject]]) -> Counter[tuple[GroupKind, str]]:
    counts: Counter[tuple[GroupKind, str]] = Counter()
    versions = Counter(GroupKind(group_of(v), kind) for v, kind in kinds)
    seen: set[tuple[GroupKind, str, str]] = set()
    for (api_version, kind_name), objects in kinds.items():
        kind = GroupKind(group_of(api_version), kind_name)
        spaces = [o.namespace for o in objects]
        if versions[kind] > 1:
            names = {(kind, o.namespace, o.name) for o in objects} - seen
            seen |= names
            spaces = [namespace for _, namespace, _ in names]
        counts.update({(kind, namespace): count for namespace, count in Counter(spaces).items()})
        counts[kind, ALL_NAMESPACES] += len(spaces)
    return counts


def parse_time(text: str) -> int:
    """Return seconds since the epoch of an RFC 3339 time, or of a plain number of seconds.

    Raises:
        ValueError: The text is neither.
    """
    if text.isdigit() and int(text) > LATEST_S:
        raise ValueError(f"{text} is no time")
    if text.isdigit():
        return int(text)
    time = datetime.fromisoformat(text)
    return int((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp())


def format_time(seconds: int) -> str:
    """Return a time as Kubernetes writes it."""
    return datetime.fromtimestamp(seconds, tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _at(path: str, document: Document, field: tuple[str | int, ...]) -> Location:
    return Location(path, *document.mark(field))


def _problem(where: Location, message: str) -> Problem:
    return Problem(where, Reason.INVALID_SNAPSHOT, message, _HINT)
