"""Ownership of CRDs and compositions: one controller each, claimed all together or not at all."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from reconciler.dependencies.lock.format import OwnershipEntry, current_holder, keeps_ownership, package_name
from reconciler.dependencies.model.packages import Candidate


class OwnedResource(NamedTuple):
    """What a package may own in a cluster: a kind in all of its versions, or a composition."""

    is_composition: bool
    name: str

    def __str__(self) -> str:
        return f"the composition {self.name}" if self.is_composition else self.name


OwnedResources = frozenset[OwnedResource]


OwnershipTable = Mapping[OwnedResource, OwnershipEntry]
"""Whose everything is; what is not in it is nobody's."""


@dataclass(frozen=True, slots=True)
class OwnershipClaim:
    """A package that is to control all that its active revision has.

    `package` is its instance and `order` what decides between equals. `running` is the revision
    that controls now, `wanted` the one that would; either may be missing. `has` tells what is in
    each revision. `take_over` are the names of packages whose things it may get.
    """

    package: str
    order: tuple[str, str]
    is_user: bool
    running: str
    target: str
    resources: Mapping[str, OwnedResources]
    take_over: frozenset[str] = frozenset()

    def resources_of(self, revision: str) -> OwnedResources:
        """Return what a revision of this package has; nothing for none."""
        return self.resources.get(revision, frozenset())


class RefusedClaim(NamedTuple):
    """Why a package does not get control: what it claims, and whose that is."""

    package: str
    resource: OwnedResource
    holder: str


def owned_resources(candidate: Candidate) -> OwnedResources:
    """Return what a version of a package has: the kinds that it serves, and its compositions."""
    kinds = {OwnedResource(False, str(gvk.group_kind)) for gvk in candidate.provides if gvk.version}
    return frozenset(kinds | {OwnedResource(True, name) for name in candidate.compositions})


def refuse_claims(table: OwnershipTable, claims: Iterable[OwnershipClaim]) -> dict[str, RefusedClaim]:
    """Return who does not get what the wanted revision claims, by package; all others do. Order-free.

    A claim is for all things of a revision or for none. What is another package's stays with it,
    unless the claimant says that it takes over from that one, and that one lets go of the thing in
    the same step. Of two that claim what is nobody's, a user's own wins, then the one with the
    lowest kind and name. A package that is refused keeps what it runs, and what that one controls.

    Source: crossplane, packages-v2 design, PackageLock: of two packages exactly one gets all.
    """
    ordered = {
        claim.package: claim for claim in sorted(claims, key=lambda claim: (claim.order, claim.package))
    }
    refused: dict[str, RefusedClaim] = {}
    while (conflict := next(_conflicts(table, ordered, refused), None)) is not None:
        refused[conflict.package] = conflict
    return refused


def _conflicts(
    table: OwnershipTable, claims: Mapping[str, OwnershipClaim], refused: Mapping[str, RefusedClaim]
) -> Iterator[RefusedClaim]:
    """Yield the claims that cannot stand, given those that were refused already."""
    active = _active(claims, refused)
    for package, claim in claims.items():
        if package not in refused:
            for resource in sorted(active[package]):
                holder = current_holder(table.get(resource))
                if holder not in ("", package) and not _may_transfer(claim, holder, resource, active):
                    yield RefusedClaim(package, resource, holder)
    yield from _contested_claims(claims, active, refused)


def _active(
    claims: Mapping[str, OwnershipClaim], refused: Mapping[str, RefusedClaim]
) -> dict[str, OwnedResources]:
    """Return what each package would control."""
    return {
        package: claim.resources_of(claim.running if package in refused else claim.target)
        for package, claim in claims.items()
    }


def _may_transfer(
    claim: OwnershipClaim, holder: str, resource: OwnedResource, active: Mapping[str, OwnedResources]
) -> bool:
    lets_go = resource not in active.get(holder, frozenset())
    return lets_go and (not keeps_ownership(holder) or package_name(holder) in claim.take_over)


def _contested_claims(
    claims: Mapping[str, OwnershipClaim],
    active: Mapping[str, OwnedResources],
    refused: Mapping[str, RefusedClaim],
) -> Iterator[RefusedClaim]:
    """Yield who loses where two would control one thing."""
    winners: dict[OwnedResource, str] = {}
    ranked = sorted(claims.values(), key=lambda claim: (claim.package not in refused, not claim.is_user))
    for claim in ranked:
        for resource in sorted(active[claim.package]):
            winner = winners.setdefault(resource, claim.package)
            if winner != claim.package and claim.package not in refused:
                yield RefusedClaim(claim.package, resource, winner)


def transfer_ownership(
    table: OwnershipTable,
    claims: Iterable[OwnershipClaim],
    refused: Mapping[str, RefusedClaim],
    kept: Mapping[str, frozenset[str]],
    prunes: frozenset[str],
) -> dict[OwnedResource, OwnershipEntry]:
    """Return whose everything is after a step: what is released and what is claimed, at once. Order-free.

    Args:
        table: Whose everything was.
        claims: Every package of the cluster.
        refused: Those that keep what they run.
        kept: Which revisions of each package are retained: they own what they have.
        prunes: Packages whose kinds go with the last revision that has them.

    Source: crossplane, internal/controller/pkg/revision, Establisher: kinds outlive their revisions,
    because their objects are users' data.
    Differs: crossplane ties them to the Package, and deletes them with it.
    """
    by_package = {claim.package: claim for claim in claims}
    active = _active(by_package, refused)
    controls = {resource: package for package, things in active.items() for resource in things}
    owners: dict[OwnedResource, set[str]] = {}
    for package, claim in by_package.items():
        for revision in kept.get(package, frozenset()):
            for resource in claim.resources_of(revision):
                owners.setdefault(resource, set()).add(revision)
    after: dict[OwnedResource, OwnershipEntry] = {}
    for resource in sorted({*table, *controls, *owners}):
        before, mine = table.get(resource), sorted(owners.get(resource, ()))
        package = controls.get(resource) or current_holder(before)
        if resource in controls:
            claim = by_package[package]
            controller = claim.running if package in refused else claim.target
            after[resource] = OwnershipEntry(package=package, controller=controller, owners=tuple(mine))
        elif mine or (package and _is_retained(resource, package, prunes)):
            after[resource] = OwnershipEntry(package=package, owners=tuple(mine), retained=bool(package))
    return after


def _is_retained(resource: OwnedResource, package: str, prunes: frozenset[str]) -> bool:
    """Whether something stays in the cluster when no revision has it any more: its objects may be data."""
    return not resource.is_composition and keeps_ownership(package) and package not in prunes
