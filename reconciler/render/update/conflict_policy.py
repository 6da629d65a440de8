"""Conflict policies: the side that wins a conflict, by its place, field pattern, annotation or default."""

from collections.abc import Mapping
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from msgspec import Struct, field

from reconciler.krm.merge import ConflictResolver, Steps, Winner, path_text
from reconciler.krm.values import value_at
from reconciler.names.trailers import BOX
from reconciler.policy import OnConflict

ON_CONFLICT = "reconciler.dev/on-conflict"
"""Annotation of a resource or Kptfile with the winner of conflicts: `upstream`, `local`, `ask` or `fail`."""

_WINNERS = {OnConflict.UPSTREAM: Winner.UPSTREAM, OnConflict.LOCAL: Winner.LOCAL}

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
        return _WINNERS.get(choice, Winner.OPEN)

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
