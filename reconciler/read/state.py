"""Read the records of the state branch, the statuses of the status branch, and reviewed locks."""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from operator import attrgetter
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar, cast

import orjson
from msgspec import Struct, field
from msgspec.structs import force_setattr, replace

from reconciler.base.defects import DefectError, guard
from reconciler.base.errors import ConfigurationError, Location, UnavailableError
from reconciler.base.lazy import regex
from reconciler.base.reasons import Reason
from reconciler.base.text import Text, plural
from reconciler.base.values import Record, Refused, read_record
from reconciler.forge.local.merge import find_outside
from reconciler.git.commits import CommitData
from reconciler.git.repository import Mirror
from reconciler.git.trees import PackageRefusedError
from reconciler.git.urls import parse_remote
from reconciler.inventory.inventory import LockBranch, RecordedStatus, ReviewedLock
from reconciler.names.ids import ObjectName, Oid, RolloutKey
from reconciler.names.objects import Commit, Files
from reconciler.names.problems import Problem
from reconciler.names.refs import HEADS, lock_ref
from reconciler.policy import Limits, Policy
from reconciler.read.control import OpenControl, absolute_remote
from reconciler.read.files import FileEntry, fetch_files, read_directory
from reconciler.read.repositories.packages import newest_time, split_by_author
from reconciler.records.state import (
    APPLIED,
    IMAGES_PATH,
    LINES_SUFFIX,
    LOCKS_DIRECTORY,
    MOST_BYTES,
    NOTHING_REFUSED,
    PULLS_DIRECTORY,
    REFUSED_DELETIONS,
    ROLLOUTS_DIRECTORY,
    SETS_DIRECTORY,
    UPSTREAMS_DIRECTORY,
    VARIANTS_DIRECTORY,
    VARIANTS_FORMAT,
    WANTED_LOCK,
    AppliedRecord,
    ImagesLock,
    PackageVariantRecord,
    PullHistory,
    RecordedDownstream,
    RefusedDeletionsRecord,
    RefusedPackage,
    RolloutRecord,
    SetRecord,
    SharedSpec,
    UpstreamLock,
    WantedLockRecord,
    check_schema,
    is_lines_file,
    lock_path,
    split_lines,
)

R = TypeVar("R", SetRecord, RolloutRecord, UpstreamLock)
P = TypeVar("P", PackageVariantRecord, RecordedDownstream, RefusedPackage)
M = TypeVar("M", bound=Record | PackageVariantRecord)


class State(Struct, frozen=True):
    """The content of the state branch; `problems` are unreadable records.

    An unreadable record is replaced by its newest readable version in the history of the branch, if any.
    `locks` are the pins of floating upstreams, `wanted_lock` is the tree of the reviewed lock that the last
    run computed, `applied` the control commit that was applied last. `refused` is None if its record is
    unreadable.
    """

    records: Mapping[ObjectName, PackageVariantRecord] = field(default_factory=dict)
    set_records: Mapping[ObjectName, SetRecord] = field(default_factory=dict)
    rollouts: Mapping[RolloutKey, RolloutRecord] = field(default_factory=dict)
    locks: Mapping[ObjectName, UpstreamLock] = field(default_factory=dict)
    wanted_lock: Oid | None = None
    applied: Oid | None = None
    refused: RefusedDeletionsRecord | None = NOTHING_REFUSED
    problems: tuple[Problem, ...] = ()


def state_ref(instance: str) -> str:
    """Return the branch for the state of an instance: decisions that the next run needs."""
    return f"refs/heads/reconciler/{instance}/state"


def status_ref(instance: str) -> str:
    """Return the branch for the statuses of an instance: observations for people."""
    return f"refs/heads/reconciler/{instance}/status"


def read_state(
    objects: Mirror,
    commit: Oid | None,
    limits: Limits,
    left_out: Mapping[ObjectName, DefectError] = MappingProxyType({}),
) -> State:
    """Return the records at a commit of the state branch; none without a commit.

    A record that cannot be read is a problem, and its last readable version counts. Damage lets nothing
    pass that the record held back: a pin that a person holds, content that was rejected. Records about
    objects that are `left_out` are not read.

    Raises:
        ConfigurationError: A record was written by a newer version; nothing may be concluded.
        UnavailableError: The control repository cannot be read.
    """
    if commit is None:
        return State()
    reader = _Reader(objects, commit, limits, left_out)
    return State(
        records=reader.variants(),
        set_records=reader.records(SETS_DIRECTORY, SetRecord),
        rollouts={record.rollout: record for record in reader.each(ROLLOUTS_DIRECTORY, RolloutRecord)},
        locks=reader.records(UPSTREAMS_DIRECTORY, UpstreamLock),
        wanted_lock=reader.wanted_lock(),
        applied=reader.applied(),
        refused=reader.refused_deletions(),
        problems=tuple(sorted(reader.problems)),
    )


def at_addresses(state: State, control: str) -> State:
    """Return the records with the identity that each relative address has beside this control repository.

    The identity in a record is that of the last run, maybe at another path or on another server.
    """
    places = (place for record in state.records.values() for place in record.downstreams)
    moved = dict(_moved({(place.url, place.remote) for place in places}, control))
    if not moved:
        return state

    def moved_to(place: P) -> P:
        return replace(place, url=moved[place.url]) if place.url in moved else place

    records = {
        key: replace(moved_to(record), former=tuple(map(moved_to, record.former)))
        for key, record in state.records.items()
    }
    refused = state.refused
    if refused is not None:
        refused = replace(refused, packages=tuple(map(moved_to, refused.packages)))
    return replace(state, records=records, refused=refused)


def _moved(places: Iterable[tuple[str, str]], control: str) -> Iterator[tuple[str, str]]:
    """Yield the recorded identity of each repository that has another one now, with that."""
    for url, remote in places:
        if remote.startswith("."):
            with suppress(UnavailableError):
                now = parse_remote(absolute_remote(remote, control)).url
                if now != url:
                    yield url, now


def recorded_names(objects: Mirror, commit: Oid | None, limits: Limits) -> set[ObjectName]:
    """Return the names of the objects that the records of a commit are about."""
    if commit is None:
        return set()
    reader = _Reader(objects, commit, limits)
    directories = (VARIANTS_DIRECTORY, SETS_DIRECTORY, ROLLOUTS_DIRECTORY, UPSTREAMS_DIRECTORY)
    return {
        name for directory in directories for file in reader.files(directory) for name in reader.names(file)
    }


def _name(line: bytes) -> ObjectName:
    try:
        value = orjson.loads(line)
        return ObjectName(value["namespace"], value["name"])
    except (ValueError, KeyError, TypeError):
        return ObjectName("", "")


def read_applied(objects: Mirror, commit: Oid | None, limits: Limits) -> Oid | None:
    """Return the control commit that was applied last, as a commit of the state branch names it."""
    return _Reader(objects, commit, limits).applied() if commit else None


_REPEATED = (
    *("api_version", "kind", "namespace", "manifest", "set_name", "url", "repository", "deletion_policy"),
    *("upstream_commit", "upstream_tree", "branch", "remote", "registration"),
)
"""Texts of records that many variants of a fleet share."""
_OID = regex(r"[0-9a-f]{40}")
_repeated = attrgetter(*_REPEATED)


class _Reader(Struct, frozen=True):
    """Reads the records of one commit and collects their problems.

    Records about objects that are `left_out` are not read. `texts`, `parts` and `specs` are values that
    records share: parts by their representation, specs by their parts.
    """

    objects: Mirror
    commit: Oid
    limits: Limits
    left_out: Mapping[ObjectName, DefectError] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict)
    parts: dict[str, Any] = field(default_factory=dict)
    specs: dict[tuple[tuple[str, int], ...], dict[str, Any]] = field(default_factory=dict)

    def files(self, directory: str) -> list[FileEntry]:
        """Return the files with records below a directory, without those that are left out as a whole."""
        files = fetch_files(self.objects, self.commit, directory, (".json", LINES_SUFFIX))
        records = [file for file in files if file.path != VARIANTS_FORMAT]
        return (
            [f for f in records if any(name not in self.left_out for name in self.names(f))]
            if self.left_out
            else records
        )

    def names(self, file: FileEntry) -> set[ObjectName]:
        """Return the names of the objects that the records of a file are about."""
        if is_lines_file(file.path):
            return set(map(_name, split_lines(self.objects.blob(file.oid, MOST_BYTES))))
        return {ObjectName(*PurePosixPath(file.path).with_suffix("").parts[-2:])}

    def records(self, directory: str, model: type[R]) -> dict[ObjectName, R]:
        """Return the readable records below a directory by the name of their object."""
        return {record.key: record for record in self.each(directory, model)}

    def each(self, directory: str, model: type[R]) -> Iterator[R]:
        """Yield the readable records below a directory."""
        read = (self._record(file.path, file.oid, model) for file in self.files(directory))
        return (record for record in read if record)

    def variants(self) -> dict[ObjectName, PackageVariantRecord]:
        """Return the readable records of variants, lines and files of one record."""
        oid = self._blob(self.commit, VARIANTS_FORMAT)
        if oid is not None:
            with suppress(PackageRefusedError):
                check_schema(VARIANTS_FORMAT, self.objects.blob(oid, self.limits.manifest_bytes))
        files = self.files(VARIANTS_DIRECTORY)
        single = (file for file in files if not is_lines_file(file.path))
        read = (self._record(file.path, file.oid, PackageVariantRecord) for file in single)
        records = {record.key: record for record in read if record}
        for file in files:
            if is_lines_file(file.path):
                records |= self._lines(file.path, file.oid)
        return records

    def _lines(self, path: str, oid: Oid) -> dict[ObjectName, PackageVariantRecord]:
        """Return the records of a file; of damaged lines, report the problem and use an earlier version.

        Such a line does not tell what it was, so all records that are missing are taken from there.
        """
        lines = self._parsed_lines(oid)
        if not lines.damage:
            return lines.records
        records, version = dict(lines.records), None
        for commit, earlier in self._versions(path):
            before = self._parsed_lines(earlier)
            records = before.records | records
            if not before.damage:
                version = commit
                break
        (line, why), more = lines.damage[0], len(lines.damage) - 1
        many = f", and {plural(more, 'more line')}" if more else ""
        counts = f"; what commit {version} has instead counts" if version else ""
        self.problems.append(_unreadable(self.commit, path, f"{why}{many}{counts}", line))
        return records

    def _parsed_lines(self, oid: Oid) -> "_Lines":
        """Return the records of a fetched file, and why some of its lines are unreadable."""
        lines = _Lines({}, [])
        try:
            data = self.objects.blob(oid, MOST_BYTES)
        except PackageRefusedError as error:
            return _Lines({}, [(1, error.reason)])
        for number, line in enumerate(split_lines(data), start=1):
            if self.left_out and _name(line) in self.left_out:
                continue
            why = _line_error(line, self.limits)
            if why:
                lines.damage.append((number, why))
                continue
            read = _parse(PackageVariantRecord, line)
            if isinstance(read, Refused):
                lines.damage.append((number, read.why))
            else:
                lines.records[read.key] = self._shared(read)
        return lines

    def _shared(self, record: PackageVariantRecord) -> PackageVariantRecord:
        """Return the record, with equal values of other records as one object: a fleet has few."""
        share, fresh = self.texts.setdefault, cast("Any", record)
        for name, text in zip(_REPEATED, _repeated(record), strict=True):
            if (shared := share(text, text)) is not text:
                force_setattr(fresh, name, shared)
        force_setattr(fresh, "spec", self._shared_spec(record.spec))
        for name, part in (("facts", record.facts), ("objects", record.objects)):
            force_setattr(fresh, name, self.parts.setdefault(repr(part), part))
        if record.output_tree == record.local_tree:
            force_setattr(fresh, "output_tree", record.local_tree)
        return record

    def _shared_spec(self, spec: Mapping[str, Any]) -> Mapping[str, Any]:
        parts = {
            key: self.parts.setdefault(repr(value), value)
            for key, value in spec.items()
            if key != "downstream"  # it is the variant's own
        }
        match spec.get("downstream"):
            case {"repo": str(repo), "package": str(package), **more} if not more:
                # `parts` holds one object for equal values to the end, so that an id stands for its value.
                shared = self.specs.setdefault(tuple((key, id(part)) for key, part in parts.items()), parts)
                return SharedSpec(shared, self.texts.setdefault(repo, repo), package)
        return {**spec, **parts}

    def wanted_lock(self) -> Oid | None:
        """Return the tree of the reviewed lock that the last run computed."""
        oid = self._blob(self.commit, WANTED_LOCK)
        record = self._record(WANTED_LOCK, oid, WantedLockRecord) if oid else None
        return Oid(record.tree) if record else None

    def applied(self) -> Oid | None:
        """Return the control commit that was applied last."""
        oid = self._blob(self.commit, APPLIED)
        record = self._record(APPLIED, oid, AppliedRecord) if oid else None
        return Oid(record.commit) if record and _OID.fullmatch(record.commit) else None

    def refused_deletions(self) -> RefusedDeletionsRecord | None:
        """Return the deletions that wait for consent, None if the file exists and is unreadable."""
        oid = self._blob(self.commit, REFUSED_DELETIONS)
        if oid is None and self.objects.subtree(self.commit, REFUSED_DELETIONS) is None:
            return NOTHING_REFUSED
        read = (
            self._parsed(REFUSED_DELETIONS, oid, RefusedDeletionsRecord)
            if oid
            else Refused("it is a directory")
        )
        if isinstance(read, RefusedDeletionsRecord):
            return read
        problem = _unreadable(self.commit, REFUSED_DELETIONS, read.why)
        self.problems.append(replace(problem, hint=_CONSENT_HINT))
        return None

    def _record(self, path: str, oid: Oid, model: type[M]) -> M | None:
        """Return a record; of a damaged one, report the problem and return its newest readable version."""
        read = self._parsed(path, oid, model)
        if not isinstance(read, Refused):
            return read
        version, record = self._earlier(path, model)
        counts = f"; that of commit {version} counts" if version else ""
        self.problems.append(_unreadable(self.commit, path, f"{read.why}{counts}"))
        return record

    def _earlier(self, path: str, model: type[M]) -> tuple[Oid | None, M | None]:
        """Return the newest readable version of a record before the commit, with its commit."""
        for commit, oid in self._versions(path):
            read = self._parsed(path, oid, model)
            if not isinstance(read, Refused):
                return commit, read
        return None, None

    def _versions(self, path: str) -> Iterator[tuple[Oid, Oid]]:
        """Yield the versions of a file before the commit, the newest first: commit and fetched blob."""
        commit = self.commit
        for _ in range(self.limits.record_versions):
            touched = self.objects.last_touching(commit, [path]).get(path)
            data = self.objects.find_commit(touched) if touched else None
            parent = data.parents[0] if data and data.parents else None
            oid = self._blob(parent, path) if parent else None
            if parent is None or oid is None:
                return
            yield parent, oid
            commit = parent

    def _blob(self, commit: Oid, path: str) -> Oid | None:
        oid = self.objects.blob_at(commit, path)
        if oid is not None:
            self.objects.ensure([oid])
        return oid

    def _parsed(self, path: str, oid: Oid, model: type[M]) -> M | Refused:
        try:
            data = self.objects.blob(oid, self.limits.manifest_bytes)
        except PackageRefusedError as error:
            return Refused(error.reason)
        check_schema(path, data)
        return _parse(model, data)


def _parse(model: type[M], data: bytes) -> M | Refused:
    try:
        return read_record(data, model)
    except ValueError as error:
        return Refused(str(error))


_CONSENT_HINT = (
    "Until the next apply writes it anew, every deletion needs consent. "
    "Each refusal of the plan prints how to consent."
)


class _Lines(NamedTuple):
    """The readable records of a file, and the numbers of its other lines, each with what is wrong."""

    records: dict[ObjectName, PackageVariantRecord]
    damage: list[tuple[int, Text]]


def _line_error(line: bytes, limits: Limits) -> str:
    """Return why a line cannot be a whole record; "" if it may be one."""
    if not line.endswith(b"\n"):
        return "the file is cut off" if line else "the file is empty"
    most = limits.manifest_bytes
    return f"it has {plural(len(line), 'byte')}, more than the limit {most}" if len(line) > most else ""


def _unreadable(commit: Oid, path: str, why: Text, line: int = 0) -> Problem:
    # Commits of the branch are never rewritten: its history is the backup.
    hint = (
        "What it owned is kept as it is. The next apply replaces the record; "
        f"`git show {commit}:{path}` in the control repository still shows it."
    )
    return Problem(Location(path, line), Reason.INVALID_STATE, f"The record cannot be read: {why}", hint)


STATUS_DIRECTORY = "conditions/packagevariants"


def read_statuses(objects: Mirror, commit: Oid | None, limits: Limits) -> Mapping[ObjectName, RecordedStatus]:
    """Return the statuses at a commit of the status branch; unreadable files are skipped."""
    return _Statuses(objects, fetch_files(objects, commit, STATUS_DIRECTORY), limits)


class _Statuses(Mapping[ObjectName, RecordedStatus]):
    """Statuses in fetched files, each parsed when it is looked up: a plan needs few of them."""

    def __init__(self, objects: Mirror, files: Iterable[FileEntry], limits: Limits) -> None:
        self._objects = objects
        self._blobs = {
            ObjectName(*file.path.removesuffix(".json").split("/")[-2:]): file.oid for file in files
        }
        self._limits = limits
        self._parsed: dict[ObjectName, RecordedStatus | None] = {}

    def __getitem__(self, key: ObjectName) -> RecordedStatus:
        if key not in self._parsed:
            blob = self._blobs[key]
            with guard(f"status of {key}"):  # or a KeyError of ours would tell that there is none
                self._parsed[key] = _status(self._value(blob), key)
        status = self._parsed[key]
        if status is None:
            raise KeyError(key)
        return status

    def __iter__(self) -> Iterator[ObjectName]:
        return (key for key in self._blobs if key in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _value(self, blob: Oid) -> Any:
        try:
            return orjson.loads(self._objects.blob(blob, self._limits.manifest_bytes))
        except (PackageRefusedError, orjson.JSONDecodeError):
            return None


def read_histories(objects: Mirror, commit: Oid | None, limits: Limits) -> dict[str, PullHistory]:
    """Return the histories of pull requests at a commit of the status branch, by URL.

    Without a readable one, everything is listed anew.
    """
    histories = {}
    for file in fetch_files(objects, commit, PULLS_DIRECTORY):
        with suppress(PackageRefusedError, ValueError):
            history = read_record(objects.blob(file.oid, limits.manifest_bytes), PullHistory)
            histories[history.url] = history
    return histories


def _status(value: Any, key: ObjectName) -> RecordedStatus | None:
    if not isinstance(value, dict) or not isinstance(value.get("package"), dict):
        return None
    if (value.get("namespace"), value.get("name")) != key:
        return None
    package = value["package"]
    return RecordedStatus(
        phase=str(package.get("phase", "")),
        since=_seconds(package.get("since")),
        head=str(package.get("head", "")),
        message=str(package.get("message", "")),
        repository=str(package.get("repository", "")),
        reason=str(package.get("reason", "")),
    )


def _seconds(text: Any) -> int:
    try:
        return int(datetime.fromisoformat(text).timestamp())
    except (TypeError, ValueError):
        return 0


MAX_LOCK_BYTES = 1 << 30
MAX_LOCK_FILES = 1_000_000
"""A fleet has more lock files than a package has files."""


def read_reviewed_lock(opened: OpenControl, policy: Policy, computed_tree: Oid | None) -> ReviewedLock | None:
    """Return the lock at the opened commit, None if pins are not reviewed.

    An unreadable pin is a problem, and its variant does not move. `computed_tree` is the tree of the lock
    that the last run computed.

    Raises:
        ConfigurationError: The lock as a whole is unreadable, or was written by a newer version.
        UnavailableError: The control repository cannot be read.
    """
    if not policy.lock.is_reviewed:
        return None
    files = _files(opened.objects, opened.commit.oid, policy.limits)
    base = opened.mirror.head_branch
    branch = _read_branch(opened, policy, files, base)
    return replace(_parsed(files), base=base, computed_tree=computed_tree, branch=branch)


def read_working_lock(directory: Path, merged: ReviewedLock) -> ReviewedLock:
    """Return the lock in a working copy, committed or not.

    Raises:
        ConfigurationError: It is unreadable as a whole, or was written by a newer version.
    """
    files = read_directory(directory) if directory.is_dir() else {}
    return replace(_parsed(files), base=merged.base, computed_tree=merged.computed_tree, branch=merged.branch)


def _parsed(files: Files) -> ReviewedLock:
    pins, problems = parse_pins({f"{LOCKS_DIRECTORY}/{path}": file.data for path, file in files.items()})
    broken = frozenset(filter(None, (_variant_at(problem.location.path) for problem in problems)))
    return ReviewedLock(files=files, pins=pins, broken=broken, problems=problems)


def parse_pins(files: Mapping[str, bytes]) -> tuple[Mapping[ObjectName, UpstreamLock], tuple[Problem, ...]]:
    """Return the pins of upstreams among the files of a lock, and the problems of unreadable ones.

    Raises:
        ConfigurationError: One was written by a newer version.
    """
    pins: dict[ObjectName, UpstreamLock] = {}
    problems: list[Problem] = []
    for path, data in sorted(files.items()):
        if not _variant_at(path):
            continue
        check_schema(path, data)
        try:
            lock = read_record(data, UpstreamLock)
        except ValueError as error:
            problems.append(_unreadable_pin(path, str(error)))
            continue
        if lock_path(lock) == path:
            pins[lock.key] = lock
        else:
            problems.append(
                _unreadable_pin(path, f"It is the pin of {lock.key}, which has a file of its own")
            )
    return pins, tuple(problems)


def _unreadable_pin(path: str, why: str) -> Problem:
    hint = "Correct it, or remove it and take the pin that `reconciler lock` finds."
    return Problem(Location(path), Reason.INVALID_STATE, f"The pin cannot be read: {why}", hint)


def _variant_at(path: str) -> ObjectName | None:
    """Return the variant of a pin's path, None for any other path."""
    parts = PurePosixPath(path)
    if parts.suffix != ".json" or str(parts.parent.parent) != UPSTREAMS_DIRECTORY:
        return None
    return ObjectName(parts.parent.name, parts.stem)


def _files(mirror: Mirror, commit: Oid, limits: Limits) -> Files:
    tree = mirror.subtree(commit, LOCKS_DIRECTORY)
    if tree is None:
        return {}
    try:
        lock_limits = dataclasses.replace(limits, package_files=MAX_LOCK_FILES, package_bytes=MAX_LOCK_BYTES)
        mirror.ensure(mirror.list_blobs(tree, lock_limits))
        return mirror.files(tree, lock_limits)
    except PackageRefusedError as error:
        message = f"The lock cannot be read: {error}"
        raise ConfigurationError(message, location=Location(LOCKS_DIRECTORY)) from error


def _read_branch(opened: OpenControl, policy: Policy, main: Files, into: str) -> LockBranch | None:
    mirror, refs = opened.mirror, opened.mirror.refs()
    tip = refs.get(lock_ref(policy.instance))
    if tip is None:
        return None
    base = refs.get(f"{HEADS}{into}")
    merged = mirror.ancestry(base) if base else frozenset()
    ours, foreign = split_by_author(map(mirror.commit, mirror.walk(tip, merged)), policy.commits)
    files = _files(mirror, tip, policy.limits)
    # A file that people removed is only in the lock that we wrote.
    written = _files(mirror, ours[0].oid, policy.limits) if foreign and ours else {}
    paths = {f"{LOCKS_DIRECTORY}/{path}" for path in (*main, *files, *written)}
    edited = {path for commit in foreign for path in _changed(mirror, commit, paths)}
    start = mirror.merge_base(base, tip) if base else None
    tree = mirror.commit(start).tree if start else None
    moved = mirror.changed_paths(tree, mirror.commit(base).tree, paths) if base else ()
    return LockBranch(
        tip=Commit(tip, mirror.commit(tip).committer.time),
        files=files,
        edited_files=_below(edited),
        has_foreign_commits=bool(foreign),
        foreign_commit_time=newest_time(foreign),
        behind=_below(moved),
        only_locks=not foreign
        or (start is not None and find_outside(mirror, start, tip, LOCKS_DIRECTORY) is None),
    )


def _below(paths: Iterable[str]) -> frozenset[str]:
    return frozenset(path.removeprefix(f"{LOCKS_DIRECTORY}/") for path in paths)


def _changed(mirror: Mirror, commit: CommitData, paths: Iterable[str]) -> Iterator[str]:
    """Yield the paths at which a commit differs from every parent: a merge alone edits nothing."""
    remaining = set(paths)
    for parent in commit.parents or (None,):
        before = mirror.commit(parent).tree if parent else None
        remaining = mirror.changed_paths(before, commit.tree, remaining)
    yield from remaining


class ImageDigests(NamedTuple):
    """The lock of function images; empty with a `problem` if it is unreadable."""

    lock: ImagesLock = ImagesLock()
    problem: Problem | None = None


def read_image_digests(objects: Mirror, commit: Oid | None, limit: int) -> ImageDigests:
    """Return the image digests that a commit locks.

    An unreadable lock pins nothing: packages that need it stall.

    `commit` is one of the state branch, or of main if the lock is reviewed.

    Raises:
        ConfigurationError: The lock was written by a newer version.
        UnavailableError: The repository is unreadable.
    """
    oid = objects.blob_at(commit, IMAGES_PATH) if commit else None
    if oid is None:
        return ImageDigests()
    objects.ensure([oid])
    try:
        data = objects.blob(oid, limit)
        check_schema(IMAGES_PATH, data)
        return ImageDigests(read_record(data, ImagesLock))
    except ValueError as error:
        return ImageDigests(problem=_unreadable_images(str(error)))
    except PackageRefusedError as error:
        return ImageDigests(problem=_unreadable_images(error.reason))


def with_image_digests(policy: Policy, lock: ImagesLock) -> Policy:
    """Return the policy with the locked digests; digests of the configuration take precedence."""
    functions = policy.functions
    return dataclasses.replace(
        policy, functions=dataclasses.replace(functions, images={**lock.images, **functions.images})
    )


def _unreadable_images(why: str) -> Problem:
    hint = "Remove the file, and pin the images again with `reconciler functions pull`."
    message = f"The lock of function images cannot be read: {why}"
    return Problem(Location(IMAGES_PATH), Reason.INVALID_STATE, message, hint)
