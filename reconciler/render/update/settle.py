"""Who wins: conflict policies by field pattern, by the resource's annotation, by default."""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

from reconciler.krm.merge import Judge, Steps, Verdict, path_text
from reconciler.policy import OnConflict
from reconciler.render.update.model import ConflictPolicy

ANNOTATION = "reconciler.dev/on-conflict"
"""On a resource: who wins its conflicts, `upstream`, `local`, `ask` or `fail`."""

_VERDICTS = {OnConflict.UPSTREAM: Verdict.UPSTREAM, OnConflict.LOCAL: Verdict.LOCAL}


def judge_of(policy: ConflictPolicy, resource: Any = None) -> Judge:
    """Return who decides the conflicts of one resource, given as data, or of a file that is none."""
    default = annotated(resource) or policy.default

    def judge(steps: Steps) -> Verdict:
        return _VERDICTS.get(policy_at(policy, path_text(steps), default), Verdict.OPEN)

    return judge


def policy_at(policy: ConflictPolicy, field: str, default: OnConflict) -> OnConflict:
    """Return what holds for one field; the first pattern that matches it decides."""
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
