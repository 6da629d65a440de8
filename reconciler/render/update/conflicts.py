"""Conflicts of an update: the policy that decides each, and what is reported of them."""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from msgspec import Struct, field

from reconciler.base.errors import Exit
from reconciler.krm.merge import ConflictResolver, FieldConflict, Node, Steps, Winner, path_text
from reconciler.krm.values import value_at
from reconciler.names.objects import Files
from reconciler.names.trailers import BOX
from reconciler.policy import OnConflict

ON_CONFLICT = "reconciler.dev/on-conflict"
"""Annotation of a resource or Kptfile with the winner of conflicts: `upstream`, `local`, `ask` or `fail`."""

_CHOICES = {OnConflict.UPSTREAM: Winner.UPSTREAM, OnConflict.LOCAL: Winner.LOCAL}

Place = tuple[str, str, str]
"""The place of a conflict: file, resource, field."""


class ConflictPolicy(Struct, frozen=True):
    """Policy for the conflicts of one package.

    The order of precedence is `places`, the first of `fields` that matches, the resource's annotation,
    `default`. A pattern is matched against the field path; `*` matches any text. `origins` are the
    annotation or setting, and its file or object, of each pattern, and under "" of the default.
    """

    default: OnConflict = OnConflict.ASK
    fields: Mapping[str, OnConflict] = field(default_factory=dict)
    places: Mapping[Place, OnConflict] = field(default_factory=dict)
    origins: Mapping[str, tuple[str, str]] = field(default_factory=dict)


class RuleKind(StrEnum):
    """The level of the rule that decides a conflict."""

    PLACE = "place"
    FIELD = "field"
    RESOURCE = "resource"
    DEFAULT = "default"
    STRATEGY = "strategy"
    MERGE = "merge"


class Rule(NamedTuple):
    """The rule that decided a conflict: `text` is the field pattern, update strategy, or merge rule."""

    kind: RuleKind
    text: str = ""


class ConflictDecision(NamedTuple):
    """The winner of a conflict, with the policy as it is written and the file or object that has it."""

    winner: OnConflict
    policy: str = ""
    source: str = ""


def resolver_for(policy: ConflictPolicy, path: str, resource: str, data: Any = None) -> ConflictResolver:
    """Return the resolver for the conflicts of one resource, given as `data` too, or of a text file."""

    def resolve(steps: Steps) -> Winner:
        choice, _ = find_rule(policy, (path, resource, path_text(steps)), data)
        return _CHOICES.get(choice, Winner.OPEN)

    return resolve


def find_rule(policy: ConflictPolicy, place: Place, data: Any = None) -> tuple[OnConflict, Rule]:
    """Return the choice for one place of a resource, given as `data` too, and the rule that makes it."""
    # A box that a person ticked in the pull request is closer than any setting.
    if place in policy.places:
        return policy.places[place], Rule(RuleKind.PLACE)
    for pattern, choice in policy.fields.items():
        if fnmatchcase(place[2], pattern):
            return choice, Rule(RuleKind.FIELD, pattern)
    value = value_at(data, "metadata", "annotations", ON_CONFLICT)
    annotated = OnConflict(value) if value in set(OnConflict) else None
    if annotated is not None:
        return annotated, Rule(RuleKind.RESOURCE)
    return policy.default, Rule(RuleKind.DEFAULT)


def describe_decision(policy: ConflictPolicy, winner: OnConflict, rule: Rule, path: str) -> ConflictDecision:
    """Return a decision about a conflict in the file at `path`, in the words of the user's settings."""
    if rule.kind is RuleKind.RESOURCE:
        return ConflictDecision(winner, f"{ON_CONFLICT}: {winner}", path)
    if rule.kind in (RuleKind.FIELD, RuleKind.DEFAULT):
        name, source = policy.origins.get(rule.text, ("onConflict", ""))
        value = f"{rule.text}={winner}" if rule.text else winner
        return ConflictDecision(winner, f"{name}: {value}", source)
    if rule.kind is RuleKind.PLACE:
        return ConflictDecision(winner, BOX)
    if rule.kind is RuleKind.STRATEGY:
        return ConflictDecision(winner, f"updateStrategy: {rule.text}", "Kptfile")
    return ConflictDecision(winner, rule.text)


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
