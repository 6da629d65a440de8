"""Reviewers and assignees of pull requests: by rules of the configuration, and by CODEOWNERS (D22)."""

from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from typing import NamedTuple

from reconciler.api.kptfile import KPTFILE
from reconciler.api.meta import LabelSelector
from reconciler.expand.selectors import compile_selector
from reconciler.plan.changes import Change
from reconciler.plan.code_owners import find_code_owners
from reconciler.plan.context import PlanContext
from reconciler.policy import ReviewRule


class People(NamedTuple):
    """Reviewers and assignees of a pull request."""

    reviewers: tuple[str, ...]
    assignees: tuple[str, ...]


def find_people(members: Iterable[Change], context: PlanContext) -> People:
    """Return reviewers and assignees of the pull request of some packages. Order-free."""
    policy = context.inventory.policy.pull_requests
    reviewers: set[str] = set()
    assignees: set[str] = set()
    if not policy.reviews and not policy.code_owners:
        return People((), ())
    for change in members:
        for rule in _rules(change, context):
            reviewers |= set(rule.reviewers)
            assignees |= set(rule.assignees)
        # Every draft of a package changes its Kptfile: upstream, owner or both.
        owned = f"{change.package.path}/{KPTFILE}"
        reviewers |= set(find_code_owners(context.targets[change.package].view.code_owners, owned))
    return People(tuple(sorted(reviewers)), tuple(sorted(assignees)))


def _rules(change: Change, context: PlanContext) -> Iterator[ReviewRule]:
    view = context.targets[change.package].view
    variant = context.variants.get(change.variant) if change.variant else None
    set_name = variant.set_key.name if variant is not None and variant.set_key is not None else None
    for rule in context.inventory.policy.pull_requests.reviews:
        selects = compile_selector(LabelSelector.model_validate(rule.selector))
        is_set = not rule.sets or (set_name is not None and _is_named(set_name, rule.sets))
        is_repository = not rule.repositories or _is_named(view.key.name, rule.repositories)
        if is_set and is_repository and selects(view.manifest.metadata.labels or {}):
            yield rule


def _is_named(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
