"""Owners that want the same downstream package: all of them stall, and each message names the others."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any

from reconciler.expand.findings import Finding
from reconciler.expand.owners import Candidate, describe
from reconciler.ids import ObjectKey
from reconciler.reasons import Reason

_SHOWN = 5
"""How many claims one message names."""
_REPORTED = 10
"""How many collisions of one owner are told one by one."""


def find_collisions(candidates: Sequence[Candidate]) -> Mapping[ObjectKey, tuple[Finding, ...]]:
    """Return for every owner in a collision what collides with what. Order-free.

    A downstream is the repository's URL and the full path in it, so two Repository objects that
    view one place collide too. A name is unique in its namespace: names made of other parts may
    be equal, and one would silently overwrite the other.

    Source: porch packagevariantset_controller.go, ensurePackageVariants.
    Differs: there the last one wins.
    """
    found: dict[ObjectKey, list[Finding]] = defaultdict(list)
    for group in _groups(candidates, attrgetter("package")):
        _report(group, Reason.DUPLICATE_DOWNSTREAM, _downstream_message, found)
    for group in _groups(candidates, attrgetter("variant.key")):
        if len({candidate.package for candidate in group}) > 1:
            _report(group, Reason.AMBIGUOUS_IDENTIFIER, _name_message, found)
    return {owner: tuple(findings) for owner, findings in found.items()}


def _groups(candidates: Iterable[Candidate], key: Callable[[Candidate], Any]) -> Iterable[list[Candidate]]:
    groups: dict[Any, list[Candidate]] = defaultdict(list)
    for candidate in candidates:
        groups[key(candidate)].append(candidate)
    return (sorted(groups[one], key=_place) for one in sorted(groups) if len(groups[one]) > 1)


def _report(
    group: Sequence[Candidate],
    reason: Reason,
    describe_group: Callable[[Sequence[Candidate]], str],
    found: dict[ObjectKey, list[Finding]],
) -> None:
    first_of = {candidate.owner: candidate for candidate in reversed(group)}
    waiting = [candidate for owner, candidate in first_of.items() if len(found[owner]) < _REPORTED]
    message = describe_group(group) if waiting else ""
    hint = "Change or remove one of them: nothing is changed for either until then."
    for candidate in waiting:
        found[candidate.owner].append(Finding(candidate.path, message, reason, hint))


def _downstream_message(group: Sequence[Candidate]) -> str:
    repo, package = group[0].downstream
    return f"{_claims(group)} have one downstream: package {package} in repository {repo}"


def _name_message(group: Sequence[Candidate]) -> str:
    name = group[0].variant.key.name
    wanted = " and ".join(
        f"{package} in {repo}" for repo, package in dict.fromkeys(c.downstream for c in group)
    )
    return f"{_claims(group)} give one name to different variants: {name} is {wanted}"


def _claims(group: Sequence[Candidate]) -> str:
    claims = [f"{describe(c.owner)} ({c.source.at(*c.path)}{_of(c)})" for c in group[:_SHOWN]]
    more = len(group) - len(claims)
    return " and ".join(claims) + (f" and {more} more" if more else "")


def _of(candidate: Candidate) -> str:
    return f", target {candidate.selected}" if candidate.selected else ""


def _place(candidate: Candidate) -> tuple[ObjectKey, tuple[tuple[int, str], ...], str]:
    steps = tuple((step, "") if isinstance(step, int) else (0, step) for step in candidate.path)
    return candidate.owner, steps, str(candidate.selected or "")
