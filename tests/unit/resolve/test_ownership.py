"""Whose a package is when the Repository that its location names is called otherwise."""

import pytest

from reconciler.api.porch import Downstream, PackageVariantSpec, Upstream
from reconciler.plan.changes import Change, Op, WriteDraft
from reconciler.reasons import Reason
from tests.support.model import MAIN, ModelWorld, blueprint


@pytest.fixture
def world() -> ModelWorld:
    """One package is published, in a repository that is then registered under another name."""
    world = ModelWorld()
    world.add_repository("blueprints")
    world.add_repository("edge")
    world.publish("blueprints", "web", blueprint("web", a_yaml="a: 1\n"), 1)
    want(world, "web", "edge")
    world.run()
    world.merge("edge", world.drafts("edge")[0])
    world.run()
    world.rename_repository("edge", "edge-1")
    return world


def want(world: ModelWorld, name: str, repository: str) -> None:
    world.variants[name] = PackageVariantSpec(
        upstream=Upstream(repo="blueprints", package="web", revision=1),
        downstream=Downstream(repo=repository, package="web"),
    )


def the_change(world: ModelWorld, path: str = "web") -> Change:
    return next(change for change in world.plan().changes if change.package.path == path)


def test_a_renamed_repository_keeps_its_packages(world: ModelWorld) -> None:
    want(world, "web", "edge-1")

    change = the_change(world)
    (write,) = change.writes

    assert change.op is Op.EDIT
    assert isinstance(write, WriteDraft)
    assert b"reconciler.dev/location: edge-1/web" in write.files["Kptfile"].data
    world.run()
    world.merge("edge-1", world.drafts("edge-1")[0])
    world.run()
    assert world.plan().is_empty


def test_a_variant_named_after_the_repository_hands_its_package_over(world: ModelWorld) -> None:
    del world.variants["web"]
    want(world, "web-edge-1", "edge-1")

    change = the_change(world)

    assert (change.op, change.reason) == (Op.TRANSFER, Reason.OWNER_CHANGED)


def test_a_variant_that_goes_with_the_old_name_is_deleted_as_ever(world: ModelWorld) -> None:
    del world.variants["web"]

    assert the_change(world).op is Op.DELETE


def test_two_repositories_may_change_names(world: ModelWorld) -> None:
    world.add_repository("west")
    world.rename_repository("west", "edge")
    want(world, "web", "edge-1")

    assert the_change(world).op is Op.EDIT


def test_a_copy_stays_nobodys(world: ModelWorld) -> None:
    want(world, "web", "edge-1")
    world.push("edge-1", {"copy": world.repositories["edge-1"].at(MAIN).packages["web"]})

    change = the_change(world, "copy")

    assert (change.op, change.reason) == (Op.KEEP, Reason.NOT_OURS)


def test_without_a_record_a_name_that_nobody_knows_proves_nothing(world: ModelWorld) -> None:
    want(world, "web", "edge-1")
    world.lose_state()

    assert the_change(world).op is Op.KEEP
