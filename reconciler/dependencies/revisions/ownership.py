"""Ownership of CRDs and compositions: one controller each, claimed all together or not at all."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from reconciler.dependencies.lock.format import OwnedKind, holder_of, is_guarded, name_of
from reconciler.dependencies.model.packages import Candidate


class Thing(NamedTuple):
    """What a package may own in a cluster: a kind in all of its versions, or a composition."""

    is_composition: bool
    name: str

    def __str__(self) -> str:
        return f"the composition {self.name}" if self.is_composition else self.name


Things = frozenset[Thing]


Ledger = Mapping[Thing, OwnedKind]
"""Whose everything is; what is not in it is nobody's."""


@dataclass(frozen=True, slots=True)
class Claimant:
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
    has: Mapping[str, Things]
    take_over: frozenset[str] = frozenset()

    def things(self, revision: str) -> Things:
        """Return what a revision of this package has; nothing for none."""
        return self.has.get(revision, frozenset())


class Refusal(NamedTuple):
    """Why a package does not get control: what it claims, and whose that is."""

    package: str
    thing: Thing
    holder: str


def things_of(candidate: Candidate) -> Things:
    """Return what a version of a package has: the kinds that it serves, and its compositions."""
    kinds = {Thing(False, str(gvk.group_kind)) for gvk in candidate.provides if gvk.version}
    return frozenset(kinds | {Thing(True, name) for name in candidate.compositions})


def refusals(ledger: Ledger, claimants: Iterable[Claimant]) -> dict[str, Refusal]:
    """Return who does not get what the wanted revision claims, by package; all others do. Order-free.

    A claim is for all things of a revision or for none. What is another package's stays with it,
    unless the claimant says that it takes over from that one, and that one lets go of the thing in
    the same step. Of two that claim what is nobody's, a user's own wins, then the one with the
    lowest kind and name. A package that is refused keeps what it runs, and what that one controls.

    Source: crossplane, packages-v2 design, PackageLock: of two packages exactly one gets all.
    """
    ordered = {one.package: one for one in sorted(claimants, key=lambda one: (one.order, one.package))}
    refused: dict[str, Refusal] = {}
    while (found := next(_conflicts(ledger, ordered, refused), None)) is not None:
        refused[found.package] = found
    return refused


def _conflicts(
    ledger: Ledger, claimants: Mapping[str, Claimant], refused: Mapping[str, Refusal]
) -> Iterator[Refusal]:
    """Yield the claims that cannot stand, given those that were refused already."""
    active = _active(claimants, refused)
    for package, one in claimants.items():
        if package not in refused:
            for thing in sorted(active[package]):
                holder = holder_of(ledger.get(thing))
                if holder not in ("", package) and not _may_take(one, holder, thing, active):
                    yield Refusal(package, thing, holder)
    yield from _rivals(claimants, active, refused)


def _active(claimants: Mapping[str, Claimant], refused: Mapping[str, Refusal]) -> dict[str, Things]:
    """Return what each package would control."""
    return {
        package: one.things(one.running if package in refused else one.wanted)
        for package, one in claimants.items()
    }


def _may_take(one: Claimant, holder: str, thing: Thing, active: Mapping[str, Things]) -> bool:
    lets_go = thing not in active.get(holder, frozenset())
    return lets_go and (not is_guarded(holder) or name_of(holder) in one.take_over)


def _rivals(
    claimants: Mapping[str, Claimant], active: Mapping[str, Things], refused: Mapping[str, Refusal]
) -> Iterator[Refusal]:
    """Yield who loses where two would control one thing."""
    winners: dict[Thing, str] = {}
    ranked = sorted(claimants.values(), key=lambda one: (one.package not in refused, not one.is_user))
    for one in ranked:
        for thing in sorted(active[one.package]):
            winner = winners.setdefault(thing, one.package)
            if winner != one.package and one.package not in refused:
                yield Refusal(one.package, thing, winner)


def hand_over(
    ledger: Ledger,
    claimants: Iterable[Claimant],
    refused: Mapping[str, Refusal],
    kept: Mapping[str, frozenset[str]],
    prunes: frozenset[str],
) -> dict[Thing, OwnedKind]:
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
    owners: dict[Thing, set[str]] = {}
    for package, one in several.items():
        for revision in kept.get(package, frozenset()):
            for thing in one.things(revision):
                owners.setdefault(thing, set()).add(revision)
    after: dict[Thing, OwnedKind] = {}
    for thing in sorted({*ledger, *controls, *owners}):
        before, mine = ledger.get(thing), sorted(owners.get(thing, ()))
        package = controls.get(thing) or holder_of(before)
        if thing in controls:
            one = several[package]
            controller = one.running if package in refused else one.wanted
            after[thing] = OwnedKind(package=package, controller=controller, owners=tuple(mine))
        elif mine or (package and _outlives(thing, package, prunes)):
            after[thing] = OwnedKind(package=package, owners=tuple(mine), retained=bool(package))
    return after


def _outlives(thing: Thing, package: str, prunes: frozenset[str]) -> bool:
    """Whether something stays in the cluster when no revision has it any more: its objects may be data."""
    return not thing.is_composition and is_guarded(package) and package not in prunes
