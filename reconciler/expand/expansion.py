"""Expand manifests into PackageVariants and detect conflicts between their owners."""

from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from functools import partial
from operator import attrgetter
from types import MappingProxyType
from typing import Any

from msgspec.structs import replace

from reconciler.api.meta import Condition
from reconciler.api.porch import PackageVariant, PackageVariantSet
from reconciler.api.validation import PartialModel
from reconciler.base.defects import DefectError, guard
from reconciler.base.reasons import Reason
from reconciler.base.text import some
from reconciler.base.values import grouped
from reconciler.expand.findings import (
    SET_EMPTY,
    SET_READY,
    Finding,
    problems_of,
    stalled_set,
    stalled_variant,
)
from reconciler.expand.owners import check_declared_set, check_declared_variant, expand_set, expand_variant
from reconciler.expand.variants import Desired, OwnerExpansion, VariantCandidate, set_key, variant_key
from reconciler.inventory.inventory import Inventory, RepositoryView, Source, Sourced
from reconciler.names.ids import ObjectKey, ObjectName, PackageKey
from reconciler.names.problems import Problem, defect_problem
from reconciler.policy import Limits
from reconciler.records.state import PackageVariantRecord

_MAX_CLAIMS = 5
"""Claims that one message lists."""
_MAX_CONFLICTS = 10
"""Conflicts of one owner that are reported one by one."""


def expand(inventory: Inventory, *, trace: bool = False) -> Desired:
    """Expand all manifests into PackageVariants, with the conditions of their owners.

    Pure and order-free. A set is all or nothing: one invalid target stalls the set and nothing of it changes,
    while every other owner proceeds. With `trace` every field of every variant has the literal or expression
    that set it.
    """
    expansions = _expand_owners(inventory, trace=trace)
    candidates = [c for expansion in expansions for c in expansion.candidates]
    conflicts = find_conflicts(candidates, inventory.records)
    expansions = [
        replace(e, candidates=(), findings=conflicts[e.owner]) if e.owner in conflicts else e
        for e in expansions
    ]
    variants = [candidate.variant for e in expansions for candidate in e.candidates]
    stalled = {expansion.owner for expansion in expansions if expansion.findings}
    return Desired(
        variants=tuple(sorted(variants, key=lambda variant: variant.key)),
        stalled=inventory.stalled | stalled,
        conditions={**_unreadable_owners(inventory), **_conditions(expansions)},
        targets={
            e.owner.object_name: len(e.candidates)
            for e in expansions
            if e.owner.kind == "PackageVariantSet" and not e.findings
        },
        problems=tuple(problem for e in expansions for problem in problems_of(e.findings, e.source, e.owner)),
    )


def _expand_owners(inventory: Inventory, *, trace: bool) -> list[OwnerExpansion]:
    namespaces: dict[str, dict[str, RepositoryView]] = {}
    for name in sorted(inventory.repositories):
        namespaces.setdefault(name.namespace, {})[name.name] = inventory.repositories[name]
    expansions = [
        expand_variant(variant, namespaces.get(variant.key.namespace, {}), inventory)
        for variant in inventory.variants
        if variant_key(variant.key) not in inventory.stalled
    ]
    expansions += [
        expand_set(pvs, namespaces.get(pvs.key.namespace, {}), inventory, trace=trace)
        for pvs in inventory.sets
        if set_key(pvs.key) not in inventory.stalled
    ]
    return sorted(expansions, key=lambda expansion: expansion.owner)


def _conditions(expansions: Iterable[OwnerExpansion]) -> Mapping[ObjectKey, tuple[Condition, ...]]:
    """Return the conditions of sets and of invalid variants; those of others follow from their package."""
    conditions: dict[ObjectKey, tuple[Condition, ...]] = {}
    for expansion in expansions:
        owner, findings = expansion.owner, expansion.findings
        if owner.kind == "PackageVariantSet":
            ready = SET_READY if expansion.candidates else SET_EMPTY
            conditions[owner] = stalled_set(findings, valid=expansion.valid) if findings else ready
        elif findings:
            conditions[owner] = stalled_variant(findings)
    return conditions


def _unreadable_owners(inventory: Inventory) -> Mapping[ObjectKey, tuple[Condition, ...]]:
    conditions: dict[ObjectKey, tuple[Condition, ...]] = {}
    for owner in inventory.stalled:
        messages = sorted(str(p.message) for p in inventory.problems if p.owner == owner)
        findings = [Finding((), message) for message in messages]
        if owner.kind == "PackageVariantSet":
            conditions[owner] = stalled_set(findings, valid=False)
        elif owner.kind == "PackageVariant":
            conditions[owner] = stalled_variant(findings)
    return conditions


def check_declared(
    variants: Iterable[Sourced[PackageVariant]], sets: Iterable[Sourced[PackageVariantSet]], limits: Limits
) -> tuple[Problem, ...]:
    """Return what is wrong with manifests by themselves: what `expand` finds without any repository. Pure."""
    problems: list[Problem] = []

    def check(owner: ObjectKey, source: Source, find: Callable[[], Iterable[Finding]]) -> None:
        try:
            with guard(owner):
                problems.extend(problems_of(find(), source, owner))
        except DefectError as error:
            problems.append(defect_problem(error, source.location, owner))

    for variant in variants:
        check(variant_key(variant.key), variant.source, partial(check_declared_variant, variant))
    for pvs in sets:
        check(set_key(pvs.key), pvs.source, partial(_set_findings, pvs, limits))
    return tuple(problems)


def _set_findings(pvs: Sourced[PackageVariantSet], limits: Limits) -> tuple[Finding, ...]:
    return check_declared_set(pvs, limits)[1]


def check_partial(partial: PartialModel[Any], source: Source, limits: Limits) -> tuple[Problem, ...]:
    """Return what else is wrong with a manifest by itself, and nothing about its fields with errors."""
    model = partial.model
    if not isinstance(model, PackageVariant | PackageVariantSet):
        return ()
    name = ObjectName(model.metadata.namespace, model.metadata.name)
    if isinstance(model, PackageVariant):
        owner, findings = variant_key(name), check_declared_variant(Sourced(name, model, source))
    else:
        owner, (_, findings) = set_key(name), check_declared_set(Sourced(name, model, source), limits)
    others = (finding for finding in findings if not partial.concerns(finding.path))
    return problems_of(others, source, owner)


def find_conflicts(
    candidates: Sequence[VariantCandidate],
    records: Mapping[ObjectName, PackageVariantRecord] = MappingProxyType({}),
) -> Mapping[ObjectKey, tuple[Finding, ...]]:
    """Return the conflicts of every owner: two variants with one downstream, or with one name. Order-free.

    A downstream is the repository's URL and the full path in it, so two Repository objects for one
    place conflict too. A name is unique in its namespace: names joined from different parts may be
    equal, and one variant would silently overwrite the other. Where a record tells who has a downstream
    already, the others alone are in conflict: a newcomer stops no set that was there before.

    Source: porch packagevariantset_controller.go, ensurePackageVariants.
    Differs: there the last one wins.
    """
    conflicts: dict[ObjectKey, list[Finding]] = defaultdict(list)
    for group in _groups(candidates, attrgetter("package")):
        newcomers = _newcomers(group, records)
        _report(group, Reason.DUPLICATE_DOWNSTREAM, _downstream_message, conflicts, newcomers)
    for group in _groups(candidates, attrgetter("variant.key")):
        # With one package it is a conflict of downstreams, which is reported already.
        if len({candidate.package for candidate in group}) > 1:
            _report(group, Reason.AMBIGUOUS_IDENTIFIER, _name_message, conflicts)
    return {owner: tuple(findings) for owner, findings in conflicts.items()}


def _groups(
    candidates: Sequence[VariantCandidate], key: Callable[[VariantCandidate], Any]
) -> Iterable[list[VariantCandidate]]:
    groups = grouped((key(candidate), candidate) for candidate in candidates)
    contested = {shared: group for shared, group in groups.items() if len(group) > 1}
    return (sorted(contested[shared], key=_order) for shared in sorted(contested))


def _report(
    group: Sequence[VariantCandidate],
    reason: Reason,
    describe_group: Callable[[Sequence[VariantCandidate]], str],
    conflicts: dict[ObjectKey, list[Finding]],
    newcomers: Container[ObjectKey] | None = None,
) -> None:
    # Reversed, so that of equal keys the first candidate remains.
    first_of = {candidate.owner: candidate for candidate in reversed(group)}
    if newcomers is not None:
        first_of = {owner: candidate for owner, candidate in first_of.items() if owner in newcomers}
    reported = [c for owner, c in first_of.items() if len(conflicts[owner]) < _MAX_CONFLICTS]
    # Locating every claim is slow: thousands of sets may generate the same names.
    message = describe_group(group) if reported else ""
    hint = (
        "Change or remove one of them: nothing is changed for either until then."
        if newcomers is None
        else "Give it another downstream, or remove the other manifest first. The other one goes on."
    )
    for candidate in reported:
        conflicts[candidate.owner].append(Finding(candidate.path, message, reason, hint))


def _newcomers(
    group: Sequence[VariantCandidate], records: Mapping[ObjectName, PackageVariantRecord]
) -> frozenset[ObjectKey] | None:
    """Return the owners that claim what one other has already; None if none or several have it."""

    def has_it(candidate: VariantCandidate) -> bool:
        record = records.get(candidate.variant.key)
        return record is not None and PackageKey(record.url, record.path) == candidate.package

    owners = frozenset(candidate.owner for candidate in group)
    established = {candidate.owner for candidate in group if has_it(candidate)}
    return owners - established if len(established) == 1 and len(owners) > 1 else None


def _downstream_message(group: Sequence[VariantCandidate]) -> str:
    repo, package = group[0].downstream
    return f"{_claims(group)} have one downstream: package {package} in repository {repo}"


def _name_message(group: Sequence[VariantCandidate]) -> str:
    name = group[0].variant.key.name
    downstreams = dict.fromkeys(candidate.downstream for candidate in group)
    packages = " and ".join(f"{package} in {repo}" for repo, package in downstreams)
    return f"{_claims(group)} give one name to different variants: {name} is {packages}"


def _claims(group: Sequence[VariantCandidate]) -> str:
    claims = [f"{c.owner.subject} ({c.source.at(*c.path)}{_target(c)})" for c in group]
    return some(claims, _MAX_CLAIMS, " and ")


def _target(candidate: VariantCandidate) -> str:
    return f", target {candidate.selected}" if candidate.selected else ""


def _order(candidate: VariantCandidate) -> tuple[ObjectKey, tuple[tuple[int, str], ...], str]:
    steps = tuple((step, "") if isinstance(step, int) else (0, step) for step in candidate.path)
    return candidate.owner, steps, str(candidate.selected)


def empty_selections(desired: Desired, inventory: Inventory) -> Iterator[str]:
    """Yield a sentence about each valid set, or target of one, that selects nothing: often a mistake."""
    used = {(variant.set_key, variant.target_path) for variant in desired.variants}
    for pvs in inventory.sets:
        count = desired.targets.get(pvs.key)
        if count == 0:
            yield f"{pvs.source.location}: PackageVariantSet {pvs.key} selects no target"
        for number, _ in enumerate(pvs.manifest.spec.targets or () if count else ()):
            if (pvs.key, ("spec", "targets", number)) not in used:
                where = pvs.source.at("spec", "targets", number)
                yield f"{where}: spec.targets[{number}] of PackageVariantSet {pvs.key} selects nothing"
