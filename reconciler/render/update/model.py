"""What an update takes and gives: values, no behaviour."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from reconciler.objects import Files
from reconciler.policy import OnConflict


@dataclass(frozen=True, slots=True)
class UpstreamRef:
    """The upstream that a package is updated to, as `upstream` and `upstreamLock` record it.

    `commit` is a full commit id; empty leaves `upstreamLock` alone.
    """

    repo: str
    directory: str
    ref: str
    commit: str = ""


Place = tuple[str, str, str]
"""Where a conflict is: file, resource, field."""


@dataclass(frozen=True, slots=True, order=True)
class Conflict:
    """One value that both sides changed differently, or that one side deleted and the other changed.

    `path` is the file, `resource` the identity of the resource in it (empty for a file that
    is no resource), `field` the way to the value (`spec.template.spec.containers[name=app].image`,
    empty for the whole). Each side is the text of its value, None where it has none. `name` is how
    commit messages name it; of one that is `hidden`, because its file holds a Secret, no value is shown.
    """

    path: str
    resource: str
    field: str
    base: str | None
    upstream: str | None
    local: str | None
    reason: str
    name: str = ""
    hidden: bool = False

    @property
    def place(self) -> Place:
        """Where it is."""
        return self.path, self.resource, self.field


class RuleKind(StrEnum):
    """Where the rule that decides a conflict is written."""

    PLACE = "place"
    FIELD = "field"
    RESOURCE = "resource"
    DEFAULT = "default"
    STRATEGY = "strategy"
    MERGE = "merge"


class Rule(NamedTuple):
    """What decided a conflict: `text` is the field pattern, the update strategy, or the rule of the merge."""

    kind: RuleKind
    text: str = ""


class Settled(NamedTuple):
    """A conflict that nobody is asked about, the side that wins it, and why."""

    conflict: Conflict
    winner: OnConflict
    rule: Rule


class Decision(NamedTuple):
    """The side that wins a conflict, the policy that says so as it is written, and where it is written."""

    winner: OnConflict
    policy: str = ""
    source: str = ""


@dataclass(frozen=True, slots=True)
class Updated:
    """A package after an update.

    `conflicts` are those that still wait for a person, `settled` those that a policy or a rule decided;
    `notes` tell of these too. `fallbacks` counts the documents that no splice could express.
    """

    files: Files
    conflicts: tuple[Conflict, ...] = ()
    settled: tuple[Settled, ...] = ()
    notes: tuple[str, ...] = ()
    fallbacks: int = 0


class UpdateRefused(Exception):  # noqa: N818 - an answer about one package, not a failure of the run
    """This package must not be updated as asked; nothing of it was changed.

    `reason` is one word for machines, `paths` the files that are to blame.
    """

    def __init__(
        self, reason: str, message: str, *, paths: tuple[str, ...] = (), conflicts: tuple[Conflict, ...] = ()
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.paths = paths
        self.conflicts = conflicts


@dataclass(frozen=True, slots=True)
class ConflictPolicy:
    """Who wins a conflict: by its place, by field pattern, by the resource's annotation, else `default`.

    A pattern is matched against the conflict's field path; `*` stands for any text. `origins` say where each
    pattern is written, and under "" where the default is: the annotation or setting, and its file or object.
    """

    default: OnConflict = OnConflict.ASK
    fields: Mapping[str, OnConflict] = field(default_factory=dict)
    places: Mapping[Place, OnConflict] = field(default_factory=dict)
    origins: Mapping[str, tuple[str, str]] = field(default_factory=dict)
