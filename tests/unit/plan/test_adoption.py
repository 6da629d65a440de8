"""Adoption: every combination of policy, what is at the path, drafts of others and packages inside."""

from dataclasses import replace
from itertools import product

import pytest

from reconciler.api.porch import Downstream, PackageVariantSpec, Upstream
from reconciler.ids import Oid
from reconciler.inventory import Inventory
from reconciler.objects import Files, tree_id
from reconciler.plan.changes import Op
from reconciler.reasons import Reason
from reconciler.resolve.resolution import Resolution
from tests.support.model import MAIN, ModelWorld, blueprint, kptfile, package

POLICIES = ("adoptNone", "adoptExisting")
PLACES = ("nothing", "file", "directory", "package", "package of another instance")
DRAFTS = ("no draft", "draft of other people")
INSIDE = ("nothing inside", "package inside")
CELLS = list(product(POLICIES, PLACES, DRAFTS, INSIDE))
POSSIBLE = [
    (policy, place, draft, inside)
    for policy, place, draft, inside in CELLS
    if inside == "nothing inside" or place in {"nothing", "directory"}
]
FOREIGN = (
    "  annotations:\n    reconciler.dev/owner: other/default/web\n    reconciler.dev/location: edge/web\n"
)
DIRECTORY = package({"README.md": "mine\n", "a.yaml": "a: 7\n"})


def expected(policy: str, place: str, draft: str, inside: str) -> Reason:
    """Return the reason that the design gives, cell by cell, without asking the planner."""
    if inside == "package inside":
        return Reason.NESTED_PACKAGE
    if place == "file":
        return Reason.PATH_TAKEN
    if place == "package of another instance":
        return Reason.PACKAGE_EXISTS
    if place == "nothing" and draft == "no draft":
        return Reason.NEW
    if policy == "adoptNone":
        return Reason.PACKAGE_EXISTS
    return Reason.FOREIGN_DRAFT if draft != "no draft" else Reason.ADOPTED


class Place(ModelWorld):
    """A world whose downstream repository has files beside its packages."""

    place = "nothing"

    def inventory(self) -> Inventory:
        inventory = super().inventory()
        views = {
            key: replace(
                view,
                files=frozenset({"web"} if self.place == "file" else ()),
                directories={"web": tree_id(DIRECTORY)} if self.place == "directory" else {},
            )
            if key.name == "edge"
            else view
            for key, view in inventory.repositories.items()
        }
        return replace(inventory, repositories=views)

    def contents(self, resolution: Resolution) -> dict[Oid, Files]:
        wanted = {tree for trees in resolution.needs.trees.values() for tree in trees}
        found = super().contents(resolution)
        return {**found, **({tree_id(DIRECTORY): DIRECTORY} if tree_id(DIRECTORY) in wanted else {})}


def make_world(policy: str, place: str, draft: str, inside: str) -> Place:
    world = Place()
    world.place = place
    world.add_repository("blueprints")
    edge = world.add_repository("edge")
    world.publish("blueprints", "web", blueprint("web", a_yaml="a: 1\n", b_yaml="b: 1\n"), 1)
    if place == "package":
        world.push("edge", {"web": blueprint("web", a_yaml="a: 7\n")})
    elif place == "package of another instance":
        world.push("edge", {"web": package({"Kptfile": kptfile("web", FOREIGN)})})
    if inside == "package inside":
        world.push("edge", {"web/in": blueprint("in")})
    if draft != "no draft":
        edge.refs["refs/heads/drafts/web/theirs"] = edge.refs[MAIN]
        world.push("edge", {"web": blueprint("web", c_yaml="c: 1\n")}, ref="refs/heads/drafts/web/theirs")
    world.variants["web"] = PackageVariantSpec(
        upstream=Upstream(repo="blueprints", package="web", revision=1),
        downstream=Downstream(repo="edge", package="web"),
        adoption_policy=policy,
    )
    return world


def test_table_covers_every_combination() -> None:
    assert len(CELLS) == 2 * 5 * 2 * 2
    assert len(POSSIBLE) == len(CELLS) - 2 * 3 * 2


@pytest.mark.parametrize(("policy", "place", "draft", "inside"), POSSIBLE)
def test_adoption(policy: str, place: str, draft: str, inside: str) -> None:
    world = make_world(policy, place, draft, inside)
    reason = expected(policy, place, draft, inside)

    plan = world.plan()

    (change,) = [c for c in plan.changes if c.package.path == "web"]
    assert change.reason is reason, change
    writes = reason in {Reason.NEW, Reason.ADOPTED}
    assert bool(change.writes) is writes
    assert change.waits is (reason is Reason.FOREIGN_DRAFT)
    assert bool(plan.problems) is (not writes and not change.waits)
    if reason is Reason.ADOPTED:
        assert change.op is Op.ADOPT
        assert change.written is not None
        assert change.written.files["a.yaml"].data == b"a: 7\n"
        assert change.written.files["b.yaml"].data == b"b: 1\n"
    if place == "directory" and writes:
        assert change.written is not None
        assert change.written.files["README.md"].data == b"mine\n"
