"""Read the records of the state branch, and the statuses of the status branch."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import field, replace
from datetime import datetime
from typing import Any, TypeVar

import orjson
from pydantic import BaseModel, ValidationError

from reconciler.api.validation import first_error
from reconciler.errors import ConfigurationError, Location, Problem
from reconciler.git.repository import Mirror
from reconciler.git.trees import PackageRefusedError
from reconciler.ids import ObjectName, Oid
from reconciler.inventory import RecordedStatus
from reconciler.policy import Limits
from reconciler.read.files import fetch_files
from reconciler.reasons import Reason
from reconciler.state import (
    NOTHING_REFUSED,
    PULLS_DIRECTORY,
    REFUSED_DELETIONS,
    ROLLOUTS_DIRECTORY,
    SCHEMA,
    SETS_DIRECTORY,
    VARIANTS_DIRECTORY,
    WANTED_LOCK,
    PackageVariantRecord,
    PullHistory,
    RefusedDeletionsRecord,
    RolloutRecord,
    SetRecord,
    WantedLockRecord,
)
from reconciler.upstream_lock import UPSTREAMS_DIRECTORY, UpstreamLock
from reconciler.values import dataclass

R = TypeVar("R", PackageVariantRecord, SetRecord, RolloutRecord, UpstreamLock)
M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class State:
    """The content of the state branch; `problems` are unreadable records.

    An unreadable record is replaced by its newest readable version in the history of the branch, if any.
    `locks` are the pins of floating upstreams, `wanted_lock` is the tree of the reviewed lock that the last
    run computed. `refused` is None if its record is unreadable.
    """

    records: Mapping[ObjectName, PackageVariantRecord] = field(default_factory=dict)
    set_records: Mapping[ObjectName, SetRecord] = field(default_factory=dict)
    rollouts: Mapping[ObjectName, RolloutRecord] = field(default_factory=dict)
    locks: Mapping[ObjectName, UpstreamLock] = field(default_factory=dict)
    wanted_lock: Oid | None = None
    refused: RefusedDeletionsRecord | None = NOTHING_REFUSED
    problems: tuple[Problem, ...] = ()


def state_ref(instance: str) -> str:
    """Return the branch for the state of an instance: decisions that the next run needs."""
    return f"refs/heads/reconciler/{instance}/state"


def status_ref(instance: str) -> str:
    """Return the branch for the statuses of an instance: observations for people."""
    return f"refs/heads/reconciler/{instance}/status"


def read_state(objects: Mirror, commit: Oid | None, limits: Limits) -> State:
    """Return the records at a commit of the state branch; none without a commit.

    A record that cannot be read is a problem, and its last readable version counts. Damage lets nothing
    pass that the record held back: a pin that a person holds, content that was rejected.

    Raises:
        ConfigurationError: A record was written by a newer version; nothing may be concluded.
        UnavailableError: The control repository cannot be read.
    """
    if commit is None:
        return State()
    reader = _Reader(objects, commit, limits)
    return State(
        records=reader.records(VARIANTS_DIRECTORY, PackageVariantRecord),
        set_records=reader.records(SETS_DIRECTORY, SetRecord),
        rollouts=reader.records(ROLLOUTS_DIRECTORY, RolloutRecord),
        locks=reader.records(UPSTREAMS_DIRECTORY, UpstreamLock),
        wanted_lock=reader.wanted_lock(),
        refused=reader.refused_deletions(),
        problems=tuple(sorted(reader.problems)),
    )


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads the records of one commit and collects their problems."""

    objects: Mirror
    commit: Oid
    limits: Limits
    problems: list[Problem] = field(default_factory=list)

    def records(self, directory: str, model: type[R]) -> dict[ObjectName, R]:
        """Return the readable records below a directory by the name of their object."""
        files = fetch_files(self.objects, self.commit, directory)
        read = (self._record(file.path, file.oid, model) for file in files)
        return {record.key: record for record in read if record}

    def wanted_lock(self) -> Oid | None:
        """Return the tree of the reviewed lock that the last run computed."""
        oid = self._blob(self.commit, WANTED_LOCK)
        record = self._record(WANTED_LOCK, oid, WantedLockRecord) if oid else None
        return Oid(record.tree) if record else None

    def refused_deletions(self) -> RefusedDeletionsRecord | None:
        """Return the deletions that wait for consent, None if the file exists and is unreadable."""
        oid = self._blob(self.commit, REFUSED_DELETIONS)
        if oid is None and self.objects.subtree(self.commit, REFUSED_DELETIONS) is None:
            return NOTHING_REFUSED
        read = self._parsed(REFUSED_DELETIONS, oid, RefusedDeletionsRecord) if oid else "it is a directory"
        if isinstance(read, RefusedDeletionsRecord):
            return read
        problem = _unreadable(self.commit, REFUSED_DELETIONS, read)
        self.problems.append(replace(problem, hint=_CONSENT_HINT))
        return None

    def _record(self, path: str, oid: Oid, model: type[M]) -> M | None:
        """Return a record; of a damaged one, report the problem and return its newest readable version."""
        read = self._parsed(path, oid, model)
        if not isinstance(read, str):
            return read
        version, record = self._earlier(path, model)
        counts = f"; that of commit {version} counts" if version else ""
        self.problems.append(_unreadable(self.commit, path, f"{read}{counts}"))
        return record

    def _earlier(self, path: str, model: type[M]) -> tuple[Oid | None, M | None]:
        """Return the newest readable version of a record before the commit, with its commit."""
        commit = self.commit
        for _ in range(self.limits.record_versions):
            touched = self.objects.last_touching(commit, [path]).get(path)
            data = self.objects.find_commit(touched) if touched else None
            parent = data.parents[0] if data and data.parents else None
            oid = self._blob(parent, path) if parent else None
            if parent is None or oid is None:
                break
            read = self._parsed(path, oid, model)
            if not isinstance(read, str):
                return parent, read
            commit = parent
        return None, None

    def _blob(self, commit: Oid, path: str) -> Oid | None:
        """Return the blob at a path of a commit, fetched; None if there is no regular file."""
        oid = self.objects.blob_at(commit, path)
        if oid is not None:
            self.objects.ensure([oid])
        return oid

    def _parsed(self, path: str, oid: Oid, model: type[M]) -> M | str:
        """Return the record of a fetched blob, or why it is unreadable."""
        try:
            data = self.objects.blob(oid, self.limits.manifest_bytes)
        except PackageRefusedError as error:
            return error.reason
        check_schema(path, data)
        try:
            return model.model_validate_json(data, by_alias=True, by_name=False)
        except ValidationError as error:
            return first_error(model, error)


_CONSENT_HINT = (
    "Until the next apply writes it anew, every deletion needs consent. "
    "Each refusal of the plan prints how to consent."
)


def _unreadable(commit: Oid, path: str, why: str) -> Problem:
    # Commits of the branch are never rewritten: its history is the backup.
    hint = (
        "What it owned is kept as it is. The next apply replaces the record; "
        f"`git show {commit}:{path}` in the control repository still shows it."
    )
    return Problem(Location(path), Reason.INVALID_STATE, f"The record cannot be read: {why}", hint)


def check_schema(path: str, data: bytes) -> None:
    """Refuse a state of a newer version.

    Raises:
        ConfigurationError: The record has an unknown apiVersion.
    """
    # Compare bytes: a record of a newer version may not match any model.
    if f'"{SCHEMA}"'.encode() not in data and b'"reconciler.dev/' in data:
        message = "The state was written by a newer version of reconciler"
        raise ConfigurationError(message, location=Location(path), hint="Use that version, or a newer one.")


STATUS_DIRECTORY = "conditions/packagevariants"


def read_statuses(objects: Mirror, commit: Oid | None, limits: Limits) -> dict[ObjectName, RecordedStatus]:
    """Return the statuses at a commit of the status branch; unreadable files are skipped."""
    statuses = {}
    for file in fetch_files(objects, commit, STATUS_DIRECTORY):
        try:
            value = orjson.loads(objects.blob(file.oid, limits.manifest_bytes))
        except (PackageRefusedError, orjson.JSONDecodeError):
            continue
        status = _status(value)
        if status is not None:
            statuses[ObjectName(str(value["namespace"]), str(value["name"]))] = status
    return statuses


def read_histories(objects: Mirror, commit: Oid | None, limits: Limits) -> dict[str, PullHistory]:
    """Return the histories of pull requests at a commit of the status branch, by URL.

    Without a readable one, everything is listed anew.
    """
    histories = {}
    for file in fetch_files(objects, commit, PULLS_DIRECTORY):
        with suppress(PackageRefusedError, ValidationError):
            data = objects.blob(file.oid, limits.manifest_bytes)
            history = PullHistory.model_validate_json(data, by_alias=True, by_name=False)
            histories[history.url] = history
    return histories


def _status(value: Any) -> RecordedStatus | None:
    if not isinstance(value, dict) or not isinstance(value.get("package"), dict):
        return None
    if not {"namespace", "name"} <= value.keys():
        return None
    package = value["package"]
    return RecordedStatus(
        phase=str(package.get("phase", "")),
        since=_seconds(package.get("since")),
        head=str(package.get("head", "")),
        message=str(package.get("message", "")),
        repository=str(package.get("repository", "")),
    )


def _seconds(text: Any) -> int:
    try:
        return int(datetime.fromisoformat(text).timestamp())
    except (TypeError, ValueError):
        return 0
