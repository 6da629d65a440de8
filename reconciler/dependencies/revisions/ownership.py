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
    wanted: str
    has: Mapping[str, OwnedResources]
    take_over: frozenset[str] = frozenset()

    def things(self, revision: str) -> OwnedResources:
        """Return what a revision of this package has; nothing for none."""
        return self.has.get(revision, frozenset())


class RefusedClaim(NamedTuple):
    """Why a package does not get control: what it claims, and whose that is."""

    package: str
    thing: OwnedResource
    holder: str


def owned_resources(candidate: Candidate) -> OwnedResources:
    """Return what a version of a package has: the kinds that it serves, and its compositions."""
    kinds = {OwnedResource(False, str(gvk.group_kind)) for gvk in candidate.provides if gvk.version}
    return frozenset(kinds | {OwnedResource(True, name) for name in candidate.compositions})


def refuse_claims(ledger: OwnershipTable, claimants: Iterable[OwnershipClaim]) -> dict[str, RefusedClaim]:
    """Return who does not get what the wanted revision claims, by package; all others do. Order-free.

    A claim is for all things of a revision or for none. What is another package's stays with it,
    unless the claimant says that it takes over from that one, and that one lets go of the thing in
    the same step. Of two that claim what is nobody's, a user's own wins, then the one with the
    lowest kind and name. A package that is refused keeps what it runs, and what that one controls.

    Source: crossplane, packages-v2 design, PackageLock: of two packages exactly one gets all.
    """
    ordered = {one.package: one for one in sorted(claimants, key=lambda one: (one.order, one.package))}
    refused: dict[str, RefusedClaim] = {}
    while (found := next(_conflicts(ledger, ordered, refused), None)) is not None:
        refused[found.package] = found
    return refused


def _conflicts(
    ledger: OwnershipTable, claimants: Mapping[str, OwnershipClaim], refused: Mapping[str, RefusedClaim]
) -> Iterator[RefusedClaim]:
    """Yield the claims that cannot stand, given those that were refused already."""
    active = _active(claimants, refused)
    for package, one in claimants.items():
        if package not in refused:
            for thing in sorted(active[package]):
                holder = current_holder(ledger.get(thing))
                if holder not in ("", package) and not _may_take(one, holder, thing, active):
                    yield RefusedClaim(package, thing, holder)
    yield from _rivals(claimants, active, refused)


def _active(
    claimants: Mapping[str, OwnershipClaim], refused: Mapping[str, RefusedClaim]
) -> dict[str, OwnedResources]:
    """Return what each package would control."""
    return {
        package: one.things(one.running if package in refused else one.wanted)
        for package, one in claimants.items()
    }


def _may_take(
    one: OwnershipClaim, holder: str, thing: OwnedResource, active: Mapping[str, OwnedResources]
) -> bool:
    lets_go = thing not in active.get(holder, frozenset())
    return lets_go and (not keeps_ownership(holder) or package_name(holder) in one.take_over)


def _rivals(
    claimants: Mapping[str, OwnershipClaim],
    active: Mapping[str, OwnedResources],
    refused: Mapping[str, RefusedClaim],
) -> Iterator[RefusedClaim]:
    """Yield who loses where two would control one thing."""
    winners: dict[OwnedResource, str] = {}
    ranked = sorted(claimants.values(), key=lambda one: (one.package not in refused, not one.is_user))
    for one in ranked:
        for thing in sorted(active[one.package]):
            winner = winners.setdefault(thing, one.package)
            if winner != one.package and one.package not in refused:
                yield RefusedClaim(one.package, thing, winner)


def transfer_ownership(
    ledger: OwnershipTable,
    claimants: Iterable[OwnershipClaim],
    refused: Mapping[str, RefusedClaim],
    kept: Mapping[str, frozenset[str]],
    prunes: frozenset[str],
) -> dict[OwnedResource, OwnershipEntry]:
    """Return whose everything is after a step: what is released and what is claimed, at once. Order-free.

    Args:
        ledger: Whose everything was.
        claimants: Every package of the cluster.
        refused: Those that keep what they run.
        kept: Which revisions of each package are retained: they own what they have.
        prunes: Packages whose kinds go with the last revision that has them.

    Source: crossplane, internal/controller/pkg/revision, Establisher: kinds outlive their revisions,
    because their objects are users' data.
    Differs: crossplane ties them to the Package, and deletes them with it.
    """
    several = {one.package: one for one in claimants}
    active = _active(several, refused)
    controls = {thing: package for package, things in active.items() for thing in things}
    owners: dict[OwnedResource, set[str]] = {}
    for package, one in several.items():
        for revision in kept.get(package, frozenset()):
            for thing in one.things(revision):
                owners.setdefault(thing, set()).add(revision)
    after: dict[OwnedResource, OwnershipEntry] = {}
    for thing in sorted({*ledger, *controls, *owners}):
        before, mine = ledger.get(thing), sorted(owners.get(thing, ()))
        package = controls.get(thing) or current_holder(before)
        if thing in controls:
            one = several[package]
            controller = one.running if package in refused else one.wanted
            after[thing] = OwnershipEntry(package=package, controller=controller, owners=tuple(mine))
        elif mine or (package and _outlives(thing, package, prunes)):
            after[thing] = OwnershipEntry(package=package, owners=tuple(mine), retained=bool(package))
    return after


def _outlives(thing: OwnedResource, package: str, prunes: frozenset[str]) -> bool:
    """Whether something stays in the cluster when no revision has it any more: its objects may be data."""
    return not thing.is_composition and keeps_ownership(package) and package not in prunes
