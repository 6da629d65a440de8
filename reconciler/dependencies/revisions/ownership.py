"""Ownership of CRDs and compositions: one controller each, claimed all together or not at all."""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from msgspec import Struct

from reconciler.dependencies.lock.format import OwnershipEntry, current_holder, keeps_ownership, package_name
from reconciler.dependencies.model.packages import Candidate


class OwnedResource(NamedTuple):
    """A resource with one owner in a cluster: a kind in all of its versions, or a composition."""

    is_composition: bool
    name: str

    def __str__(self) -> str:
        return f"the composition {self.name}" if self.is_composition else self.name


OwnedResources = frozenset[OwnedResource]


OwnershipTable = Mapping[OwnedResource, OwnershipEntry]
"""Owner of every owned resource; a missing resource has none."""


class OwnershipClaim(Struct, frozen=True):
    """Claim of a package to control all resources of its active revision.

    `package` is its instance and `order` breaks ties. `running` is the revision that controls now,
    `target` the revision that should; either may be missing. `resources` are those of each revision.
    `take_over` are the names of packages that hand over their resources to this one.
    """

    package: str
    order: tuple[str, str]
    is_user: bool
    running: str
    target: str
    resources: Mapping[str, OwnedResources]
    take_over: frozenset[str] = frozenset()

    def resources_of(self, revision: str) -> OwnedResources:
        """Return the resources of a revision of this package."""
        return self.resources.get(revision, frozenset())


class RefusedClaim(NamedTuple):
    """A refused claim: the contested resource and its current owner."""

    package: str
    resource: OwnedResource
    holder: str


def owned_resources(candidate: Candidate) -> OwnedResources:
    """Return the resources of a version of a package: the kinds that it serves, and its compositions."""
    kinds = {OwnedResource(False, str(gvk.group_kind)) for gvk in candidate.provides if gvk.version}
    return frozenset(kinds | {OwnedResource(True, name) for name in candidate.compositions})


def refuse_claims(table: OwnershipTable, claims: Iterable[OwnershipClaim]) -> dict[str, RefusedClaim]:
    """Return the claims that conflict, by package; all others are granted. Order-free.

    A claim is for all resources of a revision or for none. An owner keeps its resources, unless the
    claiming package takes over from it and it releases them in the same step. Of two claims for a free
    resource, a user's package wins, then the lowest kind and name. A refused package keeps its running
    revision with all resources of that.

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
    """Yield the claims that conflict, given the claims that are already refused."""
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
    """Return the resources that each package would control."""
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
    """Yield the lower-ranked claim of two packages for one resource."""
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
    """Apply all releases and claims to the ownership table atomically. Order-free.

    Args:
        table: The owners before the step.
        claims: The claims of every package of the cluster.
        refused: Packages that keep their running revision.
        kept: Retained revisions of each package: they own their resources.
        prunes: Packages with CRDs that are removed together with the last revision that has them.

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
