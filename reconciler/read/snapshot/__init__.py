"""Read the cluster snapshot at a commit: its objects, and the lists that are complete."""

from collections import Counter
from collections.abc import Container, Iterable, Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from reconciler.api.snapshot import FILE, ObjectList, SnapshotHeader
from reconciler.api.validation import parse_model
from reconciler.base.errors import Location
from reconciler.base.reasons import Reason
from reconciler.base.text import LATEST_S, plural
from reconciler.git.repository import Mirror
from reconciler.git.trees import PackageRefusedError
from reconciler.inventory.snapshot import ALL_NAMESPACES, Snapshot, SnapshotObject
from reconciler.krm.yaml import Document, YamlError, YamlLimits, load_documents
from reconciler.names.ids import GroupKind, Oid, group_of
from reconciler.names.problems import Problem
from reconciler.policy import Limits, Policy
from reconciler.read.files import LEFT_OUT, FileEntry, UnreadPath, Walk
from reconciler.read.snapshot.objects import SUFFIXES, FileObjects, parse_snapshot_file

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
    """Count the objects of each kind by namespace; an object in two API versions counts once."""
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
