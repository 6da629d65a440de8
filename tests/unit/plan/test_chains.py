"""Variants of variants: what a plan publishes, the next link of the chain takes in the same run (law 1)."""

from itertools import pairwise

import pytest

from reconciler.api.porch import Downstream, PackageVariantSpec, Upstream
from reconciler.base.reasons import Reason
from reconciler.plan.changes import MoveRef, Op, WriteDraft
from tests.support.model import MAIN, ModelWorld, blueprint

LINKS = ("blueprints", "near", "far", "farther")


def chain_of(world: ModelWorld, *, selector: dict[str, str | int] | None = None) -> ModelWorld:
    """Let each repository's package come from the one before."""
    for name in LINKS:
        world.add_repository(name)
    world.publish("blueprints", "web", blueprint("web", a_yaml="a: 1\n"), 1)
    for before, here in pairwise(LINKS):
        chosen = (selector or {}) if before != "blueprints" else {}
        world.variants[here] = PackageVariantSpec(
            upstream=Upstream(repo=before, package="web", **chosen),
            downstream=Downstream(repo=here, package="web"),
        )
    return world


def tags(world: ModelWorld, name: str) -> list[str]:
    return sorted(r for r in world.repositories[name].refs if r.startswith("refs/tags/"))


def assert_at_rest(world: ModelWorld) -> None:
    again = world.plan()
    assert again.is_empty, [change for change in again.changes if change.pending]
    assert (again.records, again.status) == (world.state, world.status)


@pytest.mark.parametrize("selector", [{}, {"revision": 1}, {"workspace_name": "v1"}, {"tag": "v1"}], ids=str)
def test_a_chained_variant_takes_what_the_same_plan_publishes(selector: dict[str, str | int]) -> None:
    world = chain_of(ModelWorld(), selector=selector)
    world.run()
    for here in LINKS[1:]:
        (draft,) = world.drafts(here)
        world.merge(here, draft)

        world.run()

        assert tags(world, here) == ["refs/tags/web/v1"]
        assert_at_rest(world)
    assert world.repositories["farther"].at(MAIN).header("web").upstream_lock.ref == "web/v1"


def test_merges_along_the_whole_chain_are_one_run() -> None:
    world = chain_of(ModelWorld())
    for here in LINKS[1:]:
        world.run()
        world.merge(here, world.drafts(here)[0])
    world.run()
    for here in LINKS[1:]:
        world.edit(here, "web", {f"{here}.yaml": "mine: 1\n"})

    world.run()

    assert all(tags(world, here)[-1] == "refs/tags/web/v2" for here in LINKS[1:])
    assert world.drafts("near") == []
    assert len(world.drafts("far")) == len(world.drafts("farther")) == 1
    assert_at_rest(world)


def test_what_is_blocked_is_published_all_the_same() -> None:
    """What main has was approved; that its next content cannot be made is another matter."""
    world = chain_of(ModelWorld())
    world.run()
    world.merge("near", world.drafts("near")[0])
    world.annotations["near"] = {"reconciler.dev/on-conflict": "fail"}
    world.edit("near", "web", {"a.yaml": "a: mine\n"})
    world.publish("blueprints", "web", blueprint("web", a_yaml="a: 2\n"), 2)

    plan = world.run()

    (near,) = [c for c in plan.changes if c.repository.name == "near"]
    assert (near.op, near.reason) == (Op.BLOCK, Reason.MERGE_CONFLICT)
    assert tags(world, "near") == ["refs/tags/web/v1", "refs/tags/web/v2"]
    assert len(world.drafts("far")) == 1
    assert_at_rest(world)


def test_what_a_link_says_does_not_tell_whether_the_package_before_it_is_there() -> None:
    """This plan makes it, or takes it away: the words would change with the second run."""
    world = chain_of(ModelWorld())
    world.run()
    assert_at_rest(world)
    del world.variants["near"]

    world.run()

    assert world.drafts("near") == []
    assert_at_rest(world)


def test_an_unresolved_variant_publishes_what_main_has() -> None:
    world = chain_of(ModelWorld())
    world.run()
    world.merge("near", world.drafts("near")[0])
    gone = Upstream(repo="blueprints", package="web", revision=9)
    world.variants["near"] = world.variants["near"].model_copy(update={"upstream": gone})

    plan = world.run()

    (near,) = [c for c in plan.changes if c.repository.name == "near"]
    (far,) = [c for c in plan.changes if c.repository.name == "far"]
    assert (near.op, near.reason) == (Op.PUBLISH, Reason.OWNER_STALLED)
    assert [type(write) for write in far.writes] == [WriteDraft]
    assert_at_rest(world)


@pytest.mark.parametrize("paused", ["variant", "repository"])
def test_what_is_paused_is_published_for_nobody(paused: str) -> None:
    world = chain_of(ModelWorld())
    world.run()
    world.merge("near", world.drafts("near")[0])
    note = {"reconciler.dev/paused": "true"}
    if paused == "variant":
        world.annotations["near"] = note
    else:
        world.repositories["near"].annotations.update(note)

    plan = world.run()

    assert not [w for c in plan.changes for w in c.writes if isinstance(w, MoveRef)]
    assert {c.repository.name: c.op for c in plan.changes}["far"] is not Op.CREATE
    assert_at_rest(world)
