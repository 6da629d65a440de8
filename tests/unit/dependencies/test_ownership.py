"""Whose a kind is: one controller each, all together or not at all, handed over by consent only."""

from itertools import permutations

from reconciler.dependencies.lock.revisions import (
    OwnershipClaim,
    OwnershipTable,
    RefusedClaim,
    refuse_claims,
    transfer_ownership,
)
from reconciler.dependencies.model.instances import Instance, OwnedResource, OwnershipEntry, Slot, SlotKind
from reconciler.dependencies.model.packages import Ecosystem

X, Y, Z = (OwnedResource(is_composition=False, name=f"{name}.io") for name in ("X", "Y", "Z"))
COMPOSITION = OwnedResource(is_composition=True, name="network")


def package(name: str) -> Instance:
    return Instance(Ecosystem.XPKG, f"x.io/{name}", Slot(SlotKind.CLUSTER))


def claimant(
    name: str,
    *things: OwnedResource,
    running: str = "",
    had: tuple[OwnedResource, ...] = (),
    user: bool = True,
    takes: tuple[str, ...] = (),
    kind: str = "Provider",
) -> OwnershipClaim:
    """Return a package whose new revision `name-2` has things; `running` had others."""
    return OwnershipClaim(
        package(name),
        (kind, name),
        user,
        running,
        f"{name}-2",
        {f"{name}-2": frozenset(things), **({running: frozenset(had)} if running else {})},
        frozenset(f"x.io/{one}" for one in takes),
    )


def held(name: str, *things: OwnedResource) -> dict[OwnedResource, OwnershipEntry]:
    revision = f"{name}-1"
    return {
        one: OwnershipEntry(package=package(name), controller=revision, owners=(revision,)) for one in things
    }


def after(
    ledger: OwnershipTable, *claimants: OwnershipClaim, prunes: tuple[str, ...] = ()
) -> dict[OwnedResource, OwnershipEntry]:
    refused = refuse_claims(ledger, claimants)
    kept = {one.package: frozenset(one.resources) for one in claimants}
    return transfer_ownership(ledger, claimants, refused, kept, frozenset(map(package, prunes)))


def test_what_is_nobodys_is_claimed() -> None:
    found = after({}, claimant("a", X, COMPOSITION))

    entry = OwnershipEntry(package=package("a"), controller="a-2", owners=("a-2",))
    assert found == {X: entry, COMPOSITION: entry}


def test_an_upgrade_releases_and_claims_in_one_step_and_the_old_revision_stays_an_owner() -> None:
    found = after(held("a", X, Y), claimant("a", X, Z, running="a-1", had=(X, Y)))

    assert found[X] == OwnershipEntry(package=package("a"), controller="a-2", owners=("a-1", "a-2"))
    assert found[Y] == OwnershipEntry(package=package("a"), owners=("a-1",), retained=True)
    assert found[Z] == OwnershipEntry(package=package("a"), controller="a-2", owners=("a-2",))


def test_a_retained_revision_keeps_its_kinds_even_with_consent_to_remove_them() -> None:
    upgraded = claimant("a", X, running="a-1", had=(X, Y))

    kept = OwnershipEntry(package=package("a"), owners=("a-1",), retained=True)
    assert after(held("a", X, Y), upgraded, prunes=("a",))[Y] == kept
    assert Y not in after(held("a", X, Y), claimant("a", X), prunes=("a",))


def test_of_two_that_want_the_same_one_gets_all_and_the_other_nothing() -> None:
    for order in permutations([claimant("a", X, Y), claimant("b", Y, Z)]):
        assert refuse_claims({}, order) == {package("b"): RefusedClaim(package("b"), Y, package("a"))}
        found = after({}, *order)
        assert {thing: entry.controller for thing, entry in found.items()} == {X: "a-2", Y: "a-2", Z: ""}


def test_who_has_it_wins_then_a_users_own_then_the_lowest_kind_and_name() -> None:
    mine, theirs = claimant("a", X), claimant("b", X)

    assert set(refuse_claims(held("b", X), [mine, claimant("b", X, running="b-1", had=(X,))])) == {
        package("a")
    }
    assert set(refuse_claims({}, [claimant("a", X, user=False), theirs])) == {package("a")}
    assert set(refuse_claims({}, [mine, theirs])) == {package("b")}
    assert set(refuse_claims({}, [mine, claimant("b", X, kind="Configuration")])) == {package("a")}


def test_what_another_package_lets_go_of_is_taken_only_by_who_says_so() -> None:
    ledger = held("old", X, Y)
    splits = claimant("old", Y, running="old-1", had=(X, Y))

    assert set(refuse_claims(ledger, [splits, claimant("new", X)])) == {package("new")}
    found = after(ledger, splits, claimant("new", X, takes=("old",)))
    assert found[X] == OwnershipEntry(package=package("new"), controller="new-2", owners=("new-2", "old-1"))
    assert found[Y].controller == "old-2"


def test_nothing_is_taken_from_who_keeps_it_whatever_one_says() -> None:
    keeps = claimant("old", X, running="old-1", had=(X,))

    assert set(refuse_claims(held("old", X), [keeps, claimant("new", X, takes=("old",))])) == {package("new")}


def test_kinds_go_with_their_last_revision_only_by_consent() -> None:
    assert after(held("old", X), prunes=("old",)) == {}
    assert after(held("old", X), prunes=("other",)) != {}
