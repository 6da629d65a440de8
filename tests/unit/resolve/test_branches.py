"""A followed branch: its package counts, not every commit to its repository."""

import pytest

from reconciler.api.porch import Downstream, PackageVariantSpec, Upstream
from reconciler.base.reasons import Reason
from reconciler.plan.changes import Op
from tests.support.model import ModelWorld, blueprint


@pytest.fixture
def world() -> ModelWorld:
    world = ModelWorld()
    world.add_repository("blueprints")
    world.add_repository("edge")
    world.push("blueprints", {"web": blueprint("web", a_yaml="a: 1\n")})
    world.variants["web"] = PackageVariantSpec(
        upstream=Upstream(repo="blueprints", package="web", branch="main"),
        downstream=Downstream(repo="edge", package="web"),
    )
    world.run()
    return world


@pytest.mark.parametrize("is_merged", [False, True])
def test_a_commit_elsewhere_in_the_repository_changes_nothing(world: ModelWorld, *, is_merged: bool) -> None:
    if is_merged:
        world.merge("edge", world.drafts("edge")[0])
        world.run()
    world.push("blueprints", {"db": blueprint("db")})

    plan = world.plan()

    assert {change.op for change in plan.changes} == {Op.KEEP}
    assert plan.records == world.state


def test_a_commit_to_the_package_is_followed(world: ModelWorld) -> None:
    world.push("blueprints", {"web": blueprint("web", a_yaml="a: 2\n")})

    (change,) = world.run().changes

    assert (change.op, change.reason) == (Op.UPDATE, Reason.UPSTREAM_CHANGED)
    assert world.plan().is_empty
