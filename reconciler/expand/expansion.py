"""From manifests to PackageVariants: what every owner asks for, who collides, who stalls."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any

from reconciler.api.meta import Condition
from reconciler.errors import Problem
from reconciler.expand.authored import expand_variant
from reconciler.expand.findings import (
    SET_EMPTY,
    SET_READY,
    VALID,
    Finding,
    problems_of,
    stalled_set,
    stalled_variant,
)
from reconciler.expand.generated import expand_set
from reconciler.expand.variants import (
    Desired,
    OwnerExpansion,
    VariantCandidate,
    describe,
    set_key,
    variant_key,
)
from reconciler.ids import ObjectKey, ObjectName
from reconciler.inventory import Inventory, RepositoryView
from reconciler.reasons import Reason

Namespaces = Mapping[str, Mapping[str, RepositoryView]]


def expand(inventory: Inventory, *, trace: bool = False) -> Desired:
    """Return every PackageVariant that the manifests ask for, and who stalls.

    Pure and order-free: shuffling anything changes nothing. A set is all or nothing: one bad
    target stalls the set and nothing of it changes, while every other owner proceeds.

    Args:
        inventory: The world.
        trace: Also say for every field of every variant which literal or expression gave it.
    """
    asked = _ask(inventory, trace=trace)
    collisions = find_collisions([candidate for one in asked for candidate in one.candidates])
    settled = [_with_collisions(one, collisions.get(one.owner, ())) for one in asked]
    variants = [candidate.variant for one in settled for candidate in one.candidates]
    stalled = {one.owner for one in settled if one.findings}
    return Desired(
        variants=tuple(sorted(variants, key=lambda variant: variant.key)),
        stalled=inventory.stalled | stalled,
        conditions={**_unread(inventory), **_conditions(settled)},
        targets={
            ObjectName(one.owner.namespace, one.owner.name): len(one.candidates)
            for one in settled
            if one.owner.kind == "PackageVariantSet" and not one.findings
        },
        problems=_problems(settled),
    )


def _ask(inventory: Inventory, *, trace: bool) -> list[OwnerExpansion]:
    namespaces = _by_namespace(inventory.repositories)
    asked = [
        expand_variant(variant, namespaces.get(variant.key.namespace, {}), inventory.policy)
        for variant in inventory.variants
        if variant_key(variant.key) not in inventory.stalled
    ]
    asked += [
        expand_set(pvs, namespaces.get(pvs.key.namespace, {}), inventory, trace=trace)
        for pvs in inventory.sets
        if set_key(pvs.key) not in inventory.stalled
    ]
    return sorted(asked, key=lambda one: one.owner)


def _by_namespace(repositories: Mapping[ObjectName, RepositoryView]) -> Namespaces:
    namespaces: dict[str, dict[str, RepositoryView]] = {}
    for name in sorted(repositories):
        namespaces.setdefault(name.namespace, {})[name.name] = repositories[name]
    return namespaces


def _with_collisions(asked: OwnerExpansion, findings: Sequence[Finding]) -> OwnerExpansion:
    return replace(asked, candidates=(), findings=tuple(findings)) if findings else asked


def _conditions(settled: Iterable[OwnerExpansion]) -> Mapping[ObjectKey, tuple[Condition, ...]]:
    conditions: dict[ObjectKey, tuple[Condition, ...]] = {}
    for one in settled:
        if one.owner.kind == "PackageVariantSet":
            ready = SET_READY if one.candidates else SET_EMPTY
            conditions[one.owner] = stalled_set(one.findings, valid=one.valid) if one.findings else ready
        elif one.findings:
            conditions[one.owner] = stalled_variant(one.findings)
        for candidate in one.candidates:
            conditions[variant_key(candidate.variant.key)] = (VALID,)
    return conditions


def _unread(inventory: Inventory) -> Mapping[ObjectKey, tuple[Condition, ...]]:
    """Return the conditions of owners whose manifests could not even be read."""
    conditions: dict[ObjectKey, tuple[Condition, ...]] = {}
    for owner in inventory.stalled:
        said = sorted(p.message for p in inventory.problems if p.subject == describe(owner))
        findings = [Finding((), message) for message in said]
        if owner.kind == "PackageVariantSet":
            conditions[owner] = stalled_set(findings, valid=False)
        elif owner.kind == "PackageVariant":
            conditions[owner] = stalled_variant(findings)
    return conditions


def _problems(settled: Iterable[OwnerExpansion]) -> tuple[Problem, ...]:
    return tuple(
        problem for one in settled for problem in problems_of(one.findings, one.source, describe(one.owner))
    )


_SHOWN = 5
"""How many claims one message names."""
_REPORTED = 10
"""How many collisions of one owner are told one by one."""


def find_collisions(candidates: Sequence[VariantCandidate]) -> Mapping[ObjectKey, tuple[Finding, ...]]:
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


def _groups(
    candidates: Iterable[VariantCandidate], key: Callable[[VariantCandidate], Any]
) -> Iterable[list[VariantCandidate]]:
    groups: dict[Any, list[VariantCandidate]] = defaultdict(list)
    for candidate in candidates:
        groups[key(candidate)].append(candidate)
    return (sorted(groups[one], key=_place) for one in sorted(groups) if len(groups[one]) > 1)


def _report(
    group: Sequence[VariantCandidate],
    reason: Reason,
    describe_group: Callable[[Sequence[VariantCandidate]], str],
    found: dict[ObjectKey, list[Finding]],
) -> None:
    first_of = {candidate.owner: candidate for candidate in reversed(group)}
    waiting = [candidate for owner, candidate in first_of.items() if len(found[owner]) < _REPORTED]
    message = describe_group(group) if waiting else ""
    hint = "Change or remove one of them: nothing is changed for either until then."
    for candidate in waiting:
        found[candidate.owner].append(Finding(candidate.path, message, reason, hint))


def _downstream_message(group: Sequence[VariantCandidate]) -> str:
    repo, package = group[0].downstream
    return f"{_claims(group)} have one downstream: package {package} in repository {repo}"


def _name_message(group: Sequence[VariantCandidate]) -> str:
    name = group[0].variant.key.name
    wanted = " and ".join(
        f"{package} in {repo}" for repo, package in dict.fromkeys(c.downstream for c in group)
    )
    return f"{_claims(group)} give one name to different variants: {name} is {wanted}"


def _claims(group: Sequence[VariantCandidate]) -> str:
    claims = [f"{describe(c.owner)} ({c.source.at(*c.path)}{_of(c)})" for c in group[:_SHOWN]]
    more = len(group) - len(claims)
    return " and ".join(claims) + (f" and {more} more" if more else "")


def _of(candidate: VariantCandidate) -> str:
    return f", target {candidate.selected}" if candidate.selected else ""


def _place(candidate: VariantCandidate) -> tuple[ObjectKey, tuple[tuple[int, str], ...], str]:
    steps = tuple((step, "") if isinstance(step, int) else (0, step) for step in candidate.path)
    return candidate.owner, steps, str(candidate.selected or "")
