"""Who wins: conflict policies by field pattern, by the resource's annotation, by default."""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

from reconciler.krm.merge import ConflictResolver, Steps, Winner, path_text
from reconciler.policy import OnConflict
from reconciler.render.update.model import ConflictPolicy, Decision, Place, Rule, RuleKind

ANNOTATION = "reconciler.dev/on-conflict"
"""On a resource: who wins its conflicts, `upstream`, `local`, `ask` or `fail`."""

_VERDICTS = {OnConflict.UPSTREAM: Winner.UPSTREAM, OnConflict.LOCAL: Winner.LOCAL}


def judge_of(policy: ConflictPolicy, path: str, resource: str, data: Any = None) -> ConflictResolver:
    """Return who decides the conflicts of one resource, given as data too, or of a file that is none."""

    def judge(steps: Steps) -> Winner:
        choice, _ = rule_at(policy, (path, resource, path_text(steps)), data)
        return _VERDICTS.get(choice, Winner.OPEN)

    return judge


def rule_at(policy: ConflictPolicy, place: Place, data: Any = None) -> tuple[OnConflict, Rule]:
    """Return what holds for one place of a resource, given as data too, and which rule says so.

    A rule for the place comes first, then the first pattern that matches its field, then the resource's
    annotation, then the default.
    """
    if place in policy.places:
        return policy.places[place], Rule(RuleKind.PLACE)
    for pattern, choice in policy.fields.items():
        if fnmatchcase(place[2], pattern):
            return choice, Rule(RuleKind.FIELD, pattern)
    choice_of_resource = annotated(data)
    if choice_of_resource is not None:
        return choice_of_resource, Rule(RuleKind.RESOURCE)
    return policy.default, Rule(RuleKind.DEFAULT)


def describe_decision(policy: ConflictPolicy, winner: OnConflict, rule: Rule, path: str) -> Decision:
    """Return a decision about a conflict in the file at `path` as people read it."""
    if rule.kind is RuleKind.RESOURCE:
        return Decision(winner, f"{ANNOTATION}: {winner}", path)
    if rule.kind in (RuleKind.FIELD, RuleKind.DEFAULT):
        name, source = policy.origins.get(rule.text, ("onConflict", ""))
        value = f"{rule.text}={winner}" if rule.text else winner
        return Decision(winner, f"{name}: {value}", source)
    if rule.kind is RuleKind.STRATEGY:
        return Decision(winner, f"updateStrategy: {rule.text}", "Kptfile")
    return Decision(winner, rule.text)


def annotated(resource: Any) -> OnConflict | None:
    """Return what a resource's annotation says, None if it says nothing valid."""
    metadata = resource.get("metadata") if isinstance(resource, Mapping) else None
    annotations = metadata.get("annotations") if isinstance(metadata, Mapping) else None
    value = annotations.get(ANNOTATION) if isinstance(annotations, Mapping) else None
    return OnConflict(value) if value in set(OnConflict) else None
