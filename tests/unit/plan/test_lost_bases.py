"""Updates whose base is gone, and upstreams that are another repository: told at the variant, alone."""

import pytest

from reconciler.api.porch import Downstream, PackageVariantSpec, Upstream
from reconciler.base.errors import Exit
from reconciler.base.reasons import Reason
from reconciler.plan.changes import Op, Plan
from tests.support.model import ModelWorld, blueprint


def spec(repo: str, package: str = "web", revision: int = 1) -> PackageVariantSpec:
    return PackageVariantSpec(
        upstream=Upstream(repo=repo, package="web", revision=revision),
        downstream=Downstream(repo="edge", package=package),
    )


@pytest.fixture
def world() -> ModelWorld:
    world = ModelWorld()
    for name in ("old", "new"):
        world.add_repository(name)
        world.publish(name, "web", blueprint("web", a_yaml=f"a: {name}\n"), 1)
    world.add_repository("edge")
    world.variants = {"web": spec("old"), "other": spec("new", "other")}
    world.run()
    for ref in world.drafts("edge"):
        world.merge("edge", ref)
    world.run()
    return world


def row(plan: Plan, package: str) -> tuple[Op, Reason]:
    return next((c.op, c.reason) for c in plan.changes if c.package.path == package)


@pytest.mark.parametrize("state", ["recorded", "lost"])
def test_a_base_that_is_gone_is_a_problem_of_its_variant_alone(world: ModelWorld, state: str) -> None:
    del world.repositories["old"]
    world.publish("new", "web", blueprint("web", a_yaml="a: newer\n"), 2)
    world.variants = {"web": spec("new", revision=2), "other": spec("new", "other", 2)}
    if state == "lost":
        world.lose_state()

    plan = world.plan()

    assert row(plan, "web") == (Op.BLOCK, Reason.BASE_NOT_FOUND)
    assert row(plan, "other") == (Op.UPDATE, Reason.UPSTREAM_CHANGED)
    (problem,) = plan.problems
    assert (problem.reason, problem.subject) == (Reason.BASE_NOT_FOUND, "PackageVariant default/web")
    assert problem.message.startswith("Package web: There is no base to merge from: commit ")
    assert "upstreamLock of the Kptfile" in problem.hint
    assert Exit.INVALID_INPUT in plan.exits


def test_another_upstream_repository_is_no_moved_tag(world: ModelWorld) -> None:
    world.variants["web"] = spec("new")

    plan = world.plan()

    change = next(c for c in plan.changes if c.package.path == "web")
    assert (change.op, change.reason) == (Op.UPDATE, Reason.UPSTREAM_CHANGED)
    assert "moved" not in change.message
    assert change.message.startswith("The upstream repository was ")
