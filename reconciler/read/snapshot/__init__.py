"""The cluster snapshot at a commit: its objects, and in which lists of them absence means anything."""

import gc
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import NamedTuple

from reconciler.api.snapshot import FILE, ObjectList, SnapshotHeader
from reconciler.api.validation import parse_model
from reconciler.errors import Location, Problem
from reconciler.git.trees import PackageRefusedError
from reconciler.ids import GroupKind, Oid, group_of
from reconciler.krm.yaml import Document, YamlError, YamlLimits, load_documents
from reconciler.policy import Limits, Policy
from reconciler.read.files import FileEntry, GitObjects, UnreadPath, Walk
from reconciler.read.snapshot.objects import SUFFIXES, FileObjects, parse_snapshot_file
from reconciler.reasons import Reason
from reconciler.snapshot import ALL_NAMESPACES, Snapshot, SnapshotObject

_HINT = "Import the snapshot again: `reconciler snapshot import`."


class Header(NamedTuple):
    """What snapshot.yaml says, each list with its place; without that file nothing is complete."""

    cluster: str = ""
    lists: tuple[tuple[ObjectList, Location], ...] = ()
    served: frozenset[tuple[str, str]] | None = None
    time: int | None = None
    problems: tuple[Problem, ...] = ()
    versions: Mapping[str, str] = MappingProxyType({})


@dataclass(slots=True)
class _Objects:
    """The objects read so far, by identity: the first of several with one identity counts."""

    by_key: dict[tuple[str, str, str, str], SnapshotObject] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def add(self, found: FileObjects) -> None:
        self.problems += found.problems
        for one in found.objects:
            key = (one.api_version, one.kind, one.namespace, one.name)
            first = self.by_key.setdefault(key, one)
            if first is not one and first.body != one.body:
                self.problems.append(_differs(first, one))

    def by_kind(self) -> dict[tuple[str, str], tuple[SnapshotObject, ...]]:
        kinds: dict[tuple[str, str], list[SnapshotObject]] = {}
        for (api_version, kind, _, _), one in sorted(self.by_key.items()):
            kinds.setdefault((api_version, kind), []).append(one)
        return {kind: tuple(objects) for kind, objects in kinds.items()}


def read_snapshot(objects: GitObjects, commit: Oid, policy: Policy) -> Snapshot:
    """Return the snapshot below the policy's path; one without `present` if there is none.

    A directory with a snapshot.yaml is the snapshot of the cluster that it is called after; if there is
    just one and nothing beside it, it also stands for all that name no cluster. Every file is read for
    itself: one that is not understood is a problem of its snapshot and makes that `unreadable`, so that
    nothing counts as absent there, while its other objects are there.

    Raises:
        UnavailableError: The control repository cannot be read.
    """
    path = policy.snapshot_path
    tree = objects.subtree(commit, path) if path else None
    if tree is None:
        return Snapshot(path=path)
    walked = list(Walk(SUFFIXES, depth=policy.limits.path_depth).below(objects, tree, path))
    objects.ensure(file.oid for file in walked if isinstance(file, FileEntry))
    homes = {directory: _inside(walked, directory) for directory in _cluster_directories(walked, path)}
    beside = [file for file in walked if not any(file in inside for inside in homes.values())]
    times = objects.last_touched(commit, [path, *homes])
    with _no_collection():
        clusters = {
            directory.rpartition("/")[2]: _read_cluster(objects, inside, directory, policy, times)
            for directory, inside in homes.items()
        }
        if not beside and len(clusters) == 1:
            root = next(iter(clusters.values()))
        elif beside or not clusters:
            root = _read_one(objects, beside, path, policy, times)
        else:
            root = Snapshot(path=path)
    problems = {*root.problems, *(problem for one in clusters.values() for problem in one.problems)}
    return replace(root, clusters=clusters, path=path, problems=tuple(sorted(problems)))


def _cluster_directories(walked: Iterable[FileEntry | UnreadPath], path: str) -> list[str]:
    """Return the directories of single clusters: where one has a header, all that are called like clusters.

    A directory that lost its header must not become everybody's. Directories of kinds begin with a
    capital letter, as kinds do.
    """
    below = [file.path.removeprefix(f"{path}/").split("/") for file in walked]
    if not any(parts[1:] == [FILE] for parts in below):
        return []
    return sorted({f"{path}/{parts[0]}" for parts in below if parts[1:] and not parts[0][:1].isupper()})


def _inside(walked: Iterable[FileEntry | UnreadPath], directory: str) -> list[FileEntry | UnreadPath]:
    return [file for file in walked if file.path.startswith(f"{directory}/")]


def _read_cluster(
    objects: GitObjects,
    walked: Iterable[FileEntry | UnreadPath],
    path: str,
    policy: Policy,
    times: Mapping[str, int],
) -> Snapshot:
    """Return the snapshot in a cluster's directory; of another cluster's, absence says nothing."""
    found = _read_one(objects, walked, path, policy, times)
    name = path.rpartition("/")[2]
    if found.cluster in ("", name):
        return replace(found, cluster=name)
    message = f"This is the snapshot of cluster {found.cluster}, in the directory of cluster {name}"
    problem = Problem(
        Location(f"{path}/{FILE}"), Reason.INVALID_SNAPSHOT, message, f"Import it into {found.cluster}/."
    )
    return replace(found, cluster=name, unreadable=True, problems=(*found.problems, problem))


def _read_one(
    objects: GitObjects,
    walked: Iterable[FileEntry | UnreadPath],
    path: str,
    policy: Policy,
    times: Mapping[str, int],
) -> Snapshot:
    found, header = _read_files(objects, walked, path, policy)
    kinds = found.by_kind()
    complete, wrong = _complete(header, kinds)
    return Snapshot(
        present=True,
        objects=kinds,
        complete=complete,
        served=header.served,
        taken=_oldest(header),
        time=times.get(path, 0),
        unreadable=bool(found.problems),
        cluster=header.cluster,
        versions=header.versions,
        problems=tuple(sorted((*header.problems, *(found.problems or wrong)))),
        path=path,
    )


def _read_files(
    objects: GitObjects, walked: Iterable[FileEntry | UnreadPath], path: str, policy: Policy
) -> tuple[_Objects, Header]:
    limits = policy.limits
    walked = tuple(walked)
    files = sorted(f for f in walked if isinstance(f, FileEntry))
    found, header = _Objects(), Header()
    for file in walked:
        if isinstance(file, UnreadPath):
            found.problems.append(_problem(Location(file.path), f"The path was not read: {file.why}"))
    for file in files:
        try:
            data = objects.blob(file.oid, limits.snapshot_file_bytes)
        except PackageRefusedError as error:
            found.problems.append(_problem(Location(file.path), f"The file was not read: {error.reason}"))
            continue
        if file.path == f"{path}/{FILE}":
            header = parse_header(file.path, data)
        else:
            found.add(parse_snapshot_file(file.path, data, snapshot_limits(limits)))
    return found, header


def snapshot_limits(limits: Limits) -> YamlLimits:
    """Return what the policy allows one snapshot file."""
    return YamlLimits(
        max_bytes=limits.snapshot_file_bytes,
        max_documents=max(limits.yaml_documents, 1_000_000),
        max_nodes=max(limits.yaml_nodes, 20_000_000),
        max_depth=limits.yaml_depth,
    )


def parse_header(path: str, data: bytes) -> Header:
    """Return what snapshot.yaml says; one that is not understood says nothing but a problem. Total."""
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
    for index, one in enumerate(parsed.spec.lists):
        place = ("spec", "lists", index)
        taken = seconds(one.time, *place, "time") or time
        dated = one.model_copy(update={"time": None if taken is None else format_time(taken)})
        lists.append((dated, _at(path, document, place)))
    served = parsed.spec.served
    pairs = None if served is None else frozenset(_served(text) for text in served)
    versions = parsed.spec.versions or {}
    return Header(parsed.metadata.name, tuple(lists), pairs, time, tuple(problems), versions)


def _served(text: str) -> tuple[str, str]:
    api_version, _, kind = text.strip().partition(" ")
    return api_version, kind.strip()


def _complete(
    header: Header, kinds: Mapping[tuple[str, str], Iterable[SnapshotObject]]
) -> tuple[frozenset[tuple[GroupKind, str]], list[Problem]]:
    """Return the lists that are complete and have as many objects as they say; the others are problems."""
    counts = _counts(kinds)
    complete: set[tuple[GroupKind, str]] = set()
    problems: list[Problem] = []
    for one, where in header.lists:
        key = GroupKind(one.group, one.kind), one.namespace
        if counts[key] != one.count:
            place = {ALL_NAMESPACES: "all namespaces", "": "the cluster"}.get(one.namespace, one.namespace)
            message = f"{key[0]} in {place} should have {one.count} objects, but has {counts[key]}"
            problems.append(_problem(where, message))
        elif one.complete:
            complete.add(key)
    return frozenset(complete), problems


def _counts(kinds: Mapping[tuple[str, str], Iterable[SnapshotObject]]) -> Counter[tuple[GroupKind, str]]:
    """Count the objects of each kind by namespace, one that stands there in two versions once."""
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


def _oldest(header: Header) -> int | None:
    times = [parse_time(one.time) for one, _ in header.lists if one.complete and one.time]
    return min(times, default=header.time)


def parse_time(text: str) -> int:
    """Return seconds since the epoch of an RFC 3339 time, or of a plain number of seconds.

    Raises:
        ValueError: The text is neither.
    """
    if text.isdigit():
        return int(text)
    time = datetime.fromisoformat(text)
    return int((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp())


def format_time(seconds: int) -> str:
    """Return a time as Kubernetes writes it."""
    return datetime.fromtimestamp(seconds, tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _differs(first: SnapshotObject, other: SnapshotObject) -> Problem:
    where = f"{other.namespace}/{other.name}" if other.namespace else other.name
    message = f"{other.kind} {where} also stands at {first.location}, and differs"
    return _problem(other.location, message)


def _at(path: str, document: Document, field: tuple[str | int, ...]) -> Location:
    return Location(path, *document.mark(field))


def _problem(where: Location, message: str) -> Problem:
    return Problem(where, Reason.INVALID_SNAPSHOT, message, _HINT)


@contextmanager
def _no_collection() -> Iterator[None]:
    """Stop the cycle collector: a hundred thousand new objects without a cycle make it half of the work."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
