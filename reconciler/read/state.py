"""The records of the state branch: what was applied, as the last run left it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from reconciler.errors import ConfigurationError, Location, Problem
from reconciler.git.files import PackageRefusedError
from reconciler.ids import ObjectName, Oid
from reconciler.lock import UPSTREAMS_DIRECTORY, UpstreamLock
from reconciler.policy import Limits
from reconciler.read.files import FoundFile, Objects, Walk
from reconciler.reasons import Reason
from reconciler.state import (
    NOTHING_REFUSED,
    REFUSED_DELETIONS,
    SCHEMA,
    SETS_DIRECTORY,
    VARIANTS_DIRECTORY,
    WANTED_LOCK,
    PackageVariantRecord,
    RefusedDeletionsRecord,
    SetRecord,
    WantedLockRecord,
)

R = TypeVar("R", PackageVariantRecord, SetRecord, UpstreamLock)
M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class State:
    """What the state branch holds; `problems` are records that cannot be read, which own nothing then.

    `locks` are the pins of floating upstreams; one that cannot be read is decided anew. `wanted_lock`
    is the tree of the reviewed lock that the last run wanted. `refused` is None if its record cannot
    be read.
    """

    records: Mapping[ObjectName, PackageVariantRecord] = field(default_factory=dict)
    set_records: Mapping[ObjectName, SetRecord] = field(default_factory=dict)
    locks: Mapping[ObjectName, UpstreamLock] = field(default_factory=dict)
    wanted_lock: Oid | None = None
    refused: RefusedDeletionsRecord | None = NOTHING_REFUSED
    problems: tuple[Problem, ...] = ()


def state_ref(instance: str) -> str:
    """Return the branch of an instance's decisions."""
    return f"refs/heads/reconciler/{instance}/state"


def status_ref(instance: str) -> str:
    """Return the branch of an instance's observations."""
    return f"refs/heads/reconciler/{instance}/status"


def read_state(objects: Objects, commit: Oid | None, limits: Limits) -> State:
    """Return the records at a commit of the state branch; none without a commit.

    A record that cannot be read is a problem: what it owned is then nobody's, and kept.

    Raises:
        ConfigurationError: A record was written by a newer version; nothing may be concluded.
        UnavailableError: The control repository cannot be read.
    """
    if commit is None:
        return State()
    problems: list[Problem] = []

    tip = commit

    def records(directory: str, model: type[R]) -> dict[ObjectName, R]:
        files = _files(objects, tip, directory, limits, problems)
        found = (_record(tip, path, data, model, problems) for path, data in files)
        return {record.key: record for record in found if record}

    return State(
        records=records(VARIANTS_DIRECTORY, PackageVariantRecord),
        set_records=records(SETS_DIRECTORY, SetRecord),
        locks=records(UPSTREAMS_DIRECTORY, UpstreamLock),
        wanted_lock=_wanted_lock(objects, commit, limits, problems),
        refused=_refused_deletions(objects, commit, limits, problems),
        problems=tuple(sorted(problems)),
    )


def _wanted_lock(objects: Objects, commit: Oid, limits: Limits, problems: list[Problem]) -> Oid | None:
    data = _single(objects, commit, WANTED_LOCK, limits, problems)
    record = _record(commit, WANTED_LOCK, data, WantedLockRecord, problems) if data else None
    return Oid(record.tree) if record else None


def _refused_deletions(
    objects: Objects, commit: Oid, limits: Limits, problems: list[Problem]
) -> RefusedDeletionsRecord | None:
    """Return the deletions that wait for consent; None if the file is there and cannot be read."""
    wrong: list[Problem] = []
    data = _single(objects, commit, REFUSED_DELETIONS, limits, wrong)
    if data is None and not wrong:
        return NOTHING_REFUSED
    record = (
        _record(commit, REFUSED_DELETIONS, data, RefusedDeletionsRecord, wrong) if data is not None else None
    )
    problems += (replace(problem, hint=_CONSENT_HINT) for problem in wrong)
    return record


_CONSENT_HINT = (
    "Until the next apply writes it anew, every deletion needs consent. "
    "Each refusal of the plan prints how to consent."
)


def _single(
    objects: Objects, commit: Oid, path: str, limits: Limits, problems: list[Problem]
) -> bytes | None:
    """Return the bytes of one file; None if it is not there, or, with a problem, cannot be read."""
    oid = objects.blob_at(commit, path)
    if oid is None:
        if objects.subtree(commit, path) is not None:
            problems.append(_unreadable(commit, path, "it is a directory"))
        return None
    objects.ensure([oid])
    try:
        return objects.blob(oid, limits.manifest_bytes)
    except PackageRefusedError as error:
        problems.append(_unreadable(commit, path, error.why))
        return None


def _files(
    objects: Objects, commit: Oid, directory: str, limits: Limits, problems: list[Problem]
) -> Iterator[tuple[str, bytes]]:
    tree = objects.subtree(commit, directory)
    walked = Walk((".json",)).below(objects, tree, directory) if tree else iter(())
    files = [file for file in walked if isinstance(file, FoundFile)]
    objects.ensure(file.oid for file in files)
    for file in files:
        try:
            yield file.path, objects.blob(file.oid, limits.manifest_bytes)
        except PackageRefusedError as error:
            problems.append(_unreadable(commit, file.path, error.why))


def _record(commit: Oid, path: str, data: bytes, model: type[M], problems: list[Problem]) -> M | None:
    check_schema(path, data)
    try:
        return model.model_validate_json(data, by_alias=True, by_name=False)
    except ValidationError as error:
        problems.append(_unreadable(commit, path, error.errors(include_url=False)[0]["msg"]))
        return None


def _unreadable(commit: Oid, path: str, why: str) -> Problem:
    # Commits of the branch are never rewritten, so its history is the copy.
    hint = (
        "What it owned is kept as it is. The next apply replaces the record; "
        f"`git show {commit}:{path}` in the control repository still shows it."
    )
    return Problem(Location(path), Reason.INVALID_STATE, f"The record cannot be read: {why}", hint)


def check_schema(path: str, data: bytes) -> None:
    """Refuse a state of a newer version.

    Raises:
        ConfigurationError: The record's apiVersion is not ours.
    """
    if f'"{SCHEMA}"'.encode() not in data and b'"reconciler.dev/' in data:
        message = "The state was written by a newer version of reconciler"
        raise ConfigurationError(message, location=Location(path), hint="Use that version, or a newer one.")
