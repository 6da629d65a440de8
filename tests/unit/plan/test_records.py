"""Records: one leaves after its package did, never before, and never unseen (D3)."""

import pytest

from reconciler.api.porch import Downstream, PackageVariantSpec, Upstream
from reconciler.base.reasons import Reason
from reconciler.names.ids import ObjectName
from reconciler.plan.changes import Op
from tests.support.decision_table import Case, DecisionTable, Row
from tests.support.model import NAMESPACE, ModelWorld, blueprint

LEAVES: DecisionTable[bool] = DecisionTable(
    {
        "variant": ("gone", "renamed", "declared"),
        "package": (
            "in an untouched draft",
            "in a draft with a person's commit",
            "on main",
            "on main, with its deletion merged",
            "released on main",
        ),
        "repository": ("is read", "cannot be read"),
    },
    [
        ({"variant": "declared"}, False, "the variant is declared"),
        ({"repository": "cannot be read"}, False, "whether the package left cannot be seen"),
        (
            {"package": ("on main, with its deletion merged", "released on main")},
            True,
            "nothing is left of the package, or no annotation of ours",
        ),
        (
            {"variant": "gone", "package": "in an untouched draft"},
            True,
            "this plan removes all that there is of the package",
        ),
        (
            {
                "variant": "renamed",
                "package": ("in an untouched draft", "in a draft with a person's commit"),
            },
            True,
            "this plan writes the new owner into the only draft",
        ),
        ({}, False, "the package still carries its name"),
    ],
)
WEB = ObjectName(NAMESPACE, "web")


def spec(deletion: str) -> PackageVariantSpec:
    return PackageVariantSpec(
        upstream=Upstream(repo="blueprints", package="web", revision=1),
        downstream=Downstream(repo="edge", package="web"),
        deletion_policy=deletion,
    )


def make_world(package: str) -> ModelWorld:
    world = ModelWorld()
    world.add_repository("blueprints")
    world.add_repository("edge")
    world.publish("blueprints", "web", blueprint("web", a_yaml="a: 1\n"), 1)
    released = package == "released on main"
    world.variants["web"] = spec("orphan" if released else "delete")
    world.run()
    (draft,) = world.drafts("edge")
    if "person" in package:
        world.edit("edge", "web", {"mine.yaml": "b: 1\n"}, ref=draft)
    if "main" in package:
        world.merge("edge", draft)
        world.run()
    if released or "deletion" in package:
        wanted = world.variants.pop("web")
        world.run()
        (branch,) = [r for r in world.repositories["edge"].refs if "/delete/" in r or "/drafts/" in r]
        world.merge("edge", branch, keep_branch=not released)
        world.variants["web"] = wanted
    return world


def leaves(case: Case) -> bool:
    world = make_world(case["package"])
    wanted = world.variants["web"]
    if case["variant"] != "declared":
        del world.variants["web"]
    if case["variant"] == "renamed":
        world.variants["site"] = wanted
    world.repositories["edge"].down = case["repository"] == "cannot be read"
    plan = world.plan()
    return "packagevariants/default/web.json" not in plan.records


def test_table_of_leaving_records_is_complete() -> None:
    LEAVES.check_complete()


@pytest.mark.parametrize("row", LEAVES.rows, ids=str)
def test_record_leaves_only_after_its_package(row: Row[bool]) -> None:
    assert LEAVES.mistakes(row, leaves) == []


@pytest.mark.parametrize("life", ["draft", "published"])
def test_package_that_was_deleted_because_its_variant_moved_is_proposed_again_when_it_comes_back(
    life: str,
) -> None:
    world = ModelWorld()
    world.add_repository("blueprints")
    world.add_repository("edge")
    world.publish("blueprints", "web", blueprint("web", a_yaml="a: 1\n"), 1)
    world.push("edge", {"theirs": blueprint("theirs")})
    world.variants["web"] = spec("delete")
    world.run()
    if life == "published":
        world.merge("edge", world.drafts("edge")[0])
        world.run()
    # The variant cannot have the other package, so its record stays that of the first one.
    world.variants["web"] = spec("delete").model_copy(
        update={"downstream": Downstream(repo="edge", package="theirs")}
    )
    world.run()
    if life == "published":
        world.merge("edge", "refs/heads/reconciler/fleet/delete/web")
        world.run()
    world.variants["web"] = spec("delete")

    (change,) = (change for change in world.run().changes if change.package.path == "web")

    assert (change.op, change.reason) == (Op.CREATE, Reason.NEW)
    assert world.plan().is_empty
