"""Publications: which untagged states of main become revisions, and under which numbers (D4)."""

from functools import cache

import pytest

from reconciler.api.kptfile import KptfileHeader
from reconciler.api.porch import GROUP
from reconciler.expand import Desired, expand
from reconciler.inventory.inventory import (
    Commit,
    Inventory,
    PackageRevision,
    RepositoryView,
    UnpublishedRevision,
)
from reconciler.names.ids import Lifecycle, ObjectKey, Oid, PackageKey
from reconciler.policy import Policy, PublishPolicy
from reconciler.resolve.ownership import downstream_packages
from reconciler.resolve.variants import find_publications
from tests.support.decision_table import Case, DecisionTable, Row
from tests.support.plan_values import oid
from tests.support.sets import a_package, blueprints, repository, variant, world
from tests.support.values import replace

KEY = PackageKey("host/edge", "mine")
OURS = KptfileHeader(owner="default/default/mine", location="edge/mine")
THEIRS = KptfileHeader()


def a_state(tree: str, header: KptfileHeader = OURS, **workspaces: str) -> UnpublishedRevision:
    numbers = {int(name.removeprefix("v")): workspace for name, workspace in workspaces.items()}
    return UnpublishedRevision(Commit(oid(f"f{tree}"), 1), oid(tree), header, numbers)


def a_tag(number: int, tree: str) -> PackageRevision:
    ref, commit = f"refs/tags/mine/v{number}", Commit(oid("e1"), 1)
    return PackageRevision("mine", f"v{number}", number, Lifecycle.PUBLISHED, ref, commit, oid(tree))


def an_edge(
    *states: UnpublishedRevision, tags: tuple[PackageRevision, ...] = (), **fields: object
) -> RepositoryView:
    header = states[-1].header if states else OURS
    package = a_package("mine", main_tree=oid("b9"), main_header=header, published=tags, unpublished=states)
    given = {"tags": {tag.ref.removeprefix("refs/tags/"): tag.commit for tag in tags}, **fields}
    return repository("edge", packages={"mine": package}, **given)


def published(view: RepositoryView, policy: Policy | None = None) -> list[tuple[int, str, Oid]]:
    """Return number, workspace and tree of every revision that is tagged."""
    inventory = world(variant(), views=(blueprints(), view), policy=policy or Policy())
    desired = expand(inventory)
    revisions = find_publications(downstream_packages(desired.variants, inventory), desired, inventory)
    return [(r.revision, r.workspace, r.tree) for r in revisions.get(KEY, ())]


def test_states_are_numbered_in_the_order_of_main_after_the_latest_revision() -> None:
    edge = an_edge(a_state("c1"), a_state("c2"), tags=(a_tag(2, "b2"), a_tag(7, "b7")))

    assert published(edge) == [(8, "v8", oid("c1")), (9, "v9", oid("c2"))]


def test_number_of_a_tag_that_is_no_revision_of_the_package_is_skipped() -> None:
    names = {f"mine/v{number}": Commit(oid("e1"), 1) for number in (1, 3, 4)}
    edge = an_edge(a_state("c1"), a_state("c2"), a_state("c3"))

    assert [n for n, _, _ in published(replace(edge, tags=names))] == [2, 5, 6]


def test_state_without_another_content_or_from_before_the_package_was_ours_is_no_revision() -> None:
    same = an_edge(a_state("b1"), a_state("c1"), a_state("c1"), a_state("b1"), tags=(a_tag(1, "b1"),))
    adopted = an_edge(a_state("c1", THEIRS), a_state("c2"))

    assert [tree for _, _, tree in published(same)] == [oid("c1"), oid("b1")]
    assert [tree for _, _, tree in published(adopted)] == [oid("c2")]


TABLE: DecisionTable[bool] = DecisionTable(
    {
        "tags": ("published", "switched off"),
        "variants": ("one", "two"),
        "owner": ("the variant", "another variant", "a stalled variant", "another instance", "none"),
        "paused": ("no", "yes"),
        "main": ("has an untagged state", "is tagged", "cannot be read"),
    },
    [
        ({"main": ("is tagged", "cannot be read")}, False, "nothing is there to tag"),
        ({"tags": "switched off"}, False, "the configuration publishes no tags"),
        ({"variants": "two"}, False, "the package is contested"),
        ({"owner": ("another instance", "none")}, False, "the package is not ours"),
        ({"owner": "a stalled variant"}, False, "its owner is not understood"),
        ({"paused": "yes"}, False, "the package is paused"),
        ({}, True, "what main has was approved"),
    ],
)
HEADERS = {
    "the variant": OURS,
    "another variant": replace(OURS, owner="default/default/other"),
    "a stalled variant": replace(OURS, owner="default/default/other"),
    "another instance": replace(OURS, owner="other/default/mine"),
    "none": THEIRS,
}


@cache
def inventory_of(owner: str, main: str, *, paused: bool) -> Inventory:
    annotations = {"reconciler.dev/paused": "true"} if paused else {}
    states = (a_state("c1", HEADERS[owner]),) if main == "has an untagged state" else ()
    edge = an_edge(*states, annotations=annotations)
    if main == "cannot be read":
        edge = replace(edge, packages={})
    return world(variant("mine"), variant("rival"), views=(blueprints(), edge))


def is_published(case: Case) -> bool:
    inventory = inventory_of(case["owner"], case["main"], paused=case["paused"] == "yes")
    tags = PublishPolicy(tags=case["tags"] == "published")
    stalled = {ObjectKey(GROUP, "PackageVariant", "default", "other")}
    inventory = replace(
        inventory,
        policy=Policy(publish=tags),
        stalled=frozenset(stalled if case["owner"] == "a stalled variant" else ()),
    )
    alone = replace(inventory, variants=inventory.variants[:1])
    (mine,) = expand(alone).variants
    desired = Desired(variants=(mine,) if case["variants"] == "one" else (mine, replace(mine, uid="rival")))
    return bool(find_publications(downstream_packages(desired.variants, inventory), desired, inventory))


@pytest.mark.parametrize("row", TABLE.rows, ids=str)
def test_main_is_tagged_only_where_its_package_is_ours_and_nothing_speaks_against_it(row: Row[bool]) -> None:
    assert TABLE.mistakes(row, is_published) == []
