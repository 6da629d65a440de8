"""The records of the state branch: what was applied, as the last run left it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from pydantic import ValidationError

from reconciler.errors import ConfigurationError, Location, Problem
from reconciler.git.files import PackageRefusedError
from reconciler.ids import ObjectName, Oid
from reconciler.policy import Limits
from reconciler.read.files import FoundFile, Objects, Walk
from reconciler.reasons import Reason
from reconciler.state import SCHEMA, SETS_DIRECTORY, VARIANTS_DIRECTORY, PackageVariantRecord, SetRecord

R = TypeVar("R", PackageVariantRecord, SetRecord)


@dataclass(frozen=True, slots=True)
class State:
    """What the state branch holds; `problems` are records that cannot be read, which own nothing then."""

    records: Mapping[ObjectName, PackageVariantRecord] = field(default_factory=dict)
    set_records: Mapping[ObjectName, SetRecord] = field(default_factory=dict)
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
    variants = {}
    for path, data in _files(objects, commit, VARIANTS_DIRECTORY, limits, problems):
        if record := _record(path, data, PackageVariantRecord, problems):
            variants[record.key] = record
    sets = {}
    for path, data in _files(objects, commit, SETS_DIRECTORY, limits, problems):
        if set_record := _record(path, data, SetRecord, problems):
            sets[set_record.key] = set_record
    return State(variants, sets, tuple(sorted(problems)))


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
            problems.append(_unreadable(file.path, error.why))


def _record(path: str, data: bytes, model: type[R], problems: list[Problem]) -> R | None:
    _check_schema(path, data)
    try:
        return model.model_validate_json(data, by_alias=True, by_name=False)
    except ValidationError as error:
        problems.append(_unreadable(path, error.errors(include_url=False)[0]["msg"]))
        return None


def _unreadable(path: str, why: str) -> Problem:
    hint = "Remove the file from the state branch; what it owned is kept as it is."
    return Problem(Location(path), Reason.INVALID_STATE, f"The record cannot be read: {why}", hint)


def _check_schema(path: str, data: bytes) -> None:
    """Refuse a state of a newer version.

    Raises:
        ConfigurationError: The record's apiVersion is not ours.
    """
    if f'"{SCHEMA}"'.encode() not in data and b'"reconciler.dev/' in data:
        message = "The state was written by a newer version of reconciler"
        raise ConfigurationError(message, location=Location(path), hint="Use that version, or a newer one.")
