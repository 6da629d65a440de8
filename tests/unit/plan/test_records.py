"""Records: one leaves after its package did, never before, and never unseen (D3)."""

import pytest

from reconciler.api.porch import Downstream, PackageVariantSpec, Upstream
from reconciler.base.reasons import Reason
from reconciler.plan.changes import Op
from tests.support.model import ModelWorld, blueprint


def spec(deletion: str) -> PackageVariantSpec:
    return PackageVariantSpec(
        upstream=Upstream(repo="blueprints", package="web", revision=1),
        downstream=Downstream(repo="edge", package="web"),
        deletion_policy=deletion,
    )


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
