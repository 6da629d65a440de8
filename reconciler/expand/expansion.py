"""From manifests to PackageVariants: what every owner asks for, who collides, who stalls."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from reconciler.api.meta import Condition
from reconciler.errors import Problem
from reconciler.expand.authored import ask_variant
from reconciler.expand.collisions import find_collisions
from reconciler.expand.conditions import SET_EMPTY, SET_READY, VALID, stalled_set, stalled_variant
from reconciler.expand.findings import Finding, problems_of
from reconciler.expand.generated import ask_set
from reconciler.expand.owners import Asked, describe, set_key, variant_key
from reconciler.expand.variants import Desired
from reconciler.ids import ObjectKey, ObjectName
from reconciler.inventory import Inventory, RepositoryView

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


def _ask(inventory: Inventory, *, trace: bool) -> list[Asked]:
    namespaces = _by_namespace(inventory.repositories)
    asked = [
        ask_variant(variant, namespaces.get(variant.key.namespace, {}), inventory.policy)
        for variant in inventory.variants
        if variant_key(variant.key) not in inventory.stalled
    ]
    asked += [
        ask_set(pvs, namespaces.get(pvs.key.namespace, {}), inventory, trace=trace)
        for pvs in inventory.sets
        if set_key(pvs.key) not in inventory.stalled
    ]
    return sorted(asked, key=lambda one: one.owner)


def _by_namespace(repositories: Mapping[ObjectName, RepositoryView]) -> Namespaces:
    namespaces: dict[str, dict[str, RepositoryView]] = {}
    for name in sorted(repositories):
        namespaces.setdefault(name.namespace, {})[name.name] = repositories[name]
    return namespaces


def _with_collisions(asked: Asked, findings: Sequence[Finding]) -> Asked:
    return replace(asked, candidates=(), findings=tuple(findings)) if findings else asked


def _conditions(settled: Iterable[Asked]) -> Mapping[ObjectKey, tuple[Condition, ...]]:
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


def _problems(settled: Iterable[Asked]) -> tuple[Problem, ...]:
    return tuple(
        problem for one in settled for problem in problems_of(one.findings, one.source, describe(one.owner))
    )
