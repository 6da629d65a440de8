"""Who wins: conflict policies by field pattern, by the resource's annotation, by default."""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

from reconciler.krm.merge import Judge, Steps, Verdict, path_text
from reconciler.policy import OnConflict
from reconciler.render.update.model import ConflictPolicy, Place

ANNOTATION = "reconciler.dev/on-conflict"
"""On a resource: who wins its conflicts, `upstream`, `local`, `ask` or `fail`."""

_VERDICTS = {OnConflict.UPSTREAM: Verdict.UPSTREAM, OnConflict.LOCAL: Verdict.LOCAL}


def judge_of(policy: ConflictPolicy, path: str, resource: str, data: Any = None) -> Judge:
    """Return who decides the conflicts of one resource, given as data too, or of a file that is none."""
    default = annotated(data) or policy.default

    def judge(steps: Steps) -> Verdict:
        choice = policy_at(policy, (path, resource, path_text(steps)), default)
        return _VERDICTS.get(choice, Verdict.OPEN)

    return judge


def policy_at(policy: ConflictPolicy, place: Place, default: OnConflict) -> OnConflict:
    """Return what holds for one place, or else for its field; the first pattern that matches it decides."""
    if place in policy.places:
        return policy.places[place]
    field = place[2]
    for pattern, choice in policy.fields.items():
        if fnmatchcase(field, pattern):
            return choice
    return default


def annotated(resource: Any) -> OnConflict | None:
    """Return what a resource's annotation says, None if it says nothing valid."""
    metadata = resource.get("metadata") if isinstance(resource, Mapping) else None
    annotations = metadata.get("annotations") if isinstance(metadata, Mapping) else None
    value = annotations.get(ANNOTATION) if isinstance(annotations, Mapping) else None
    return OnConflict(value) if value in set(OnConflict) else None
