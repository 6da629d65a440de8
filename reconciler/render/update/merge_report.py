"""Results of an update: the files, and the conflicts with their winners."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from msgspec import Struct, field

from reconciler.base.errors import Exit
from reconciler.krm.merge import FieldConflict, Node, Winner, path_text
from reconciler.names.objects import Files
from reconciler.policy import OnConflict
from reconciler.render.update.conflict_policy import (
    ConflictPolicy,
    Place,
    Rule,
    RuleKind,
    find_rule,
    resolver_for,
)

SUBPACKAGE = "Package"
"""The resource of a conflict about a whole sub-package."""

REPLACED = "Replaced"
"""The reason of a conflict about a file that an update strategy replaces as a whole."""

_WINNERS = {Winner.UPSTREAM: OnConflict.UPSTREAM, Winner.LOCAL: OnConflict.LOCAL}


class Conflict(Struct, frozen=True, order=True):
    """One value that both sides changed differently, or that one side deleted and the other changed.

    Each side is the text of its value, None where it has none.
    """

    path: str
    """The file."""
    resource: str
    """Identity of the resource in the file; empty for a text file."""
    field: str
    """Path of the value, as `spec.containers[name=app].image`; empty for the whole."""
    base: str | None
    upstream: str | None
    local: str | None
    reason: str
    name: str = ""
    """Its name in commit messages."""
    hidden: bool = False
    """Whether its file holds a Secret, so that no value is printed."""
    template: str = ""
    """The template of a chart that gave the file, once it is known."""

    @property
    def place(self) -> Place:
        """The file, the resource and the field."""
        return self.path, self.resource, self.field

    def __str__(self) -> str:
        return ": ".join(part for part in self.place if part)


class DecidedConflict(NamedTuple):
    """A conflict that a rule decided, and the side that wins it."""

    conflict: Conflict
    winner: OnConflict
    rule: Rule


class Updated(Struct, frozen=True):
    """A package after an update.

    `conflicts` need a decision of a person, `decided` had one by a policy or rule. `fallbacks` counts the
    documents that were written anew because no edit could express the change.
    """

    files: Files
    conflicts: tuple[Conflict, ...] = ()
    decided: tuple[DecidedConflict, ...] = ()
    fallbacks: int = 0

    @property
    def notes(self) -> tuple[str, ...]:
        """One line for each decided conflict, sorted."""
        return tuple(sorted(map(_note, self.decided)))


class UpdateRefused(Exception):  # noqa: N818 - a result about one package, not a failure of the run
    """A package cannot be updated; nothing of it was changed.

    `reason` is one word for machines, `paths` are the files that cause it, `exit_code` is that of a command.
    """

    def __init__(
        self,
        reason: str,
        message: str,
        *,
        paths: tuple[str, ...] = (),
        conflicts: tuple[Conflict, ...] = (),
        exit_code: Exit = Exit.REFUSED,
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.paths = paths
        self.conflicts = conflicts
        self.exit_code = exit_code


class MergeReport(Struct):
    """Collects the conflicts of the merge of one part of a package."""

    policy: ConflictPolicy
    conflicts: list[Conflict] = field(default_factory=list)
    fatal: list[Conflict] = field(default_factory=list)
    decided: list[DecidedConflict] = field(default_factory=list)
    fallbacks: int = 0

    def record_whole(
        self,
        path: str,
        resource: str,
        sides: tuple[str | None, str | None, str | None],
        reason: str,
        data: Any = None,
    ) -> bool:
        """Record a conflict about a whole file or resource; return whether upstream wins it.

        Local keeps its deletion and its change of a deleted resource, whatever the policy.
        """
        winner = resolver_for(self.policy, path, resource, data)(())
        # Upstream winning would delete an edit, or bring back a deletion.
        if winner is Winner.UPSTREAM and None in sides[1:]:
            winner = Winner.LOCAL
        self._record(Conflict(path, resource, "", *sides, reason), winner, data)
        return winner is Winner.UPSTREAM

    def record_fields(self, path: str, resource: str, conflicts: Iterable[FieldConflict], data: Any) -> None:
        """Record the conflicts within one resource."""
        for item in conflicts:
            texts = (_text(item.base), _text(item.upstream), _text(item.local))
            conflict = Conflict(path, resource, path_text(item.path), *texts, item.reason)
            if item.rule:
                self.record_decided(conflict, _WINNERS[item.winner], Rule(RuleKind.MERGE, item.rule))
            else:
                place = (path, resource, path_text(item.policy_path or item.path))
                self._record(conflict, item.winner, data, place)

    def record_decided(self, conflict: Conflict, winner: OnConflict, rule: Rule) -> None:
        """Record a conflict that a rule decides without a policy: `winner` is the side that stays."""
        self.decided.append(DecidedConflict(conflict, winner, rule))

    def has_place(self, place: Place) -> bool:
        """Return whether a conflict about the whole file or resource at a place is recorded."""
        conflicts = (*self.conflicts, *self.fatal, *(decision.conflict for decision in self.decided))
        return any(conflict.place == place for conflict in conflicts)

    def add(self, other: "MergeReport") -> None:
        """Add the report of another part."""
        self.conflicts += other.conflicts
        self.fatal += other.fatal
        self.decided += other.decided
        self.fallbacks += other.fallbacks

    def updated(self, files: Files) -> Updated:
        """Return the updated package with everything recorded, in a stable order."""
        return Updated(
            files,
            tuple(sorted(self.conflicts, key=_order)),
            tuple(sorted(self.decided, key=lambda decision: _order(decision.conflict))),
            self.fallbacks,
        )

    def _record(self, conflict: Conflict, winner: Winner, data: Any, place: Place | None = None) -> None:
        choice, rule = find_rule(self.policy, place or conflict.place, data)
        if winner is not Winner.OPEN:
            self.decided.append(DecidedConflict(conflict, _WINNERS[winner], rule))
        else:
            (self.fatal if choice is OnConflict.FAIL else self.conflicts).append(conflict)


def _note(decided: DecidedConflict) -> str:
    conflict, winner, rule = decided
    if rule.kind in (RuleKind.STRATEGY, RuleKind.MERGE):
        return f"{conflict}: {winner} stays: {rule.text}"
    return f"{conflict}: both sides changed it; {winner} wins by policy"


def _order(conflict: Conflict) -> tuple[str, str, str, str]:
    return *conflict.place, conflict.reason


def _text(node: Node | None) -> str | None:
    return None if node is None else node.as_value().text
