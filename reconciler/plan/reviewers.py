"""Reviewers and assignees of pull requests: by rules of the configuration, and by CODEOWNERS (D22)."""

import re
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import NamedTuple

from reconciler.api.kptfile import KPTFILE
from reconciler.api.meta import LabelSelector, compile_selector
from reconciler.plan.changes import Change
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


_SECTION = re.compile(r"\^?\[([^\]]+)\](?:\[\d+\])?\s*(.*)")
_OWNER = re.compile(r"@([A-Za-z0-9_][A-Za-z0-9_./-]*)")


class _Entry(NamedTuple):
    pattern: re.Pattern[str]
    owners: tuple[str, ...]


def find_code_owners(text: str, path: str) -> tuple[str, ...]:
    """Return the users and teams that own the file at `path`, sorted; a malformed line owns nothing.

    The last pattern that matches decides, in each section.

    Source: GitHub's documentation of code owners, and GitLab's for sections with default owners.
    Differs: addresses of email are left out, which no forge takes as reviewers. Gitea's file has expressions
    instead of patterns; its server asks the owners by itself.
    """
    owners: dict[str, tuple[str, ...]] = {}
    for section, entry in _parse(text):
        if entry.pattern.fullmatch(path):
            owners[section] = entry.owners
    return tuple(sorted({name for names in owners.values() for name in names}))


@lru_cache(maxsize=64)
def _parse(text: str) -> tuple[tuple[str, _Entry], ...]:
    return tuple(_entries(text))


def _entries(text: str) -> Iterator[tuple[str, _Entry]]:
    section, default = "", _owners("")
    for line in text.splitlines():
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        if header := _SECTION.fullmatch(stripped):
            section, default = header[1].lower(), _owners(header[2])
            continue
        # A space in a pattern is escaped.
        pattern, *rest = re.split(r"(?<!\\)\s+", stripped, maxsplit=1)
        expression = _expression(pattern.replace("\\ ", " ").replace("\\#", "#"))
        names = rest[0].partition("#")[0].strip() if rest else ""
        owners = _owners(names) if names else default
        if expression is not None:
            yield section, _Entry(expression, owners)


def _owners(text: str) -> tuple[str, ...]:
    return tuple(match[1] for word in text.split() if (match := _OWNER.fullmatch(word)))


def _expression(pattern: str) -> re.Pattern[str] | None:
    """Return the paths that a pattern names; None for what GitHub refuses: negation and character ranges.

    As in .gitignore a pattern with a slash inside starts at the root, and a directory is all that is below;
    but `docs/*` names only the files in it.
    """
    if pattern.startswith("!") or "[" in pattern:
        return None
    anchored = "/" in pattern.rstrip("/")
    body = pattern.strip("/")
    parts = re.split(r"(\*\*/|/\*\*$|\*\*|\*|\?)", body)
    wild = {"**/": "(?:[^/]+/)*", "/**": "/.*", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    expression = "".join(wild.get(part) or re.escape(part) for part in parts)
    below = "/.+" if pattern.endswith("/") else "" if body.endswith("/*") else "(?:/.+)?"
    return re.compile(f"{'' if anchored else '(?:.*/)?'}{expression}{below}", re.DOTALL)
