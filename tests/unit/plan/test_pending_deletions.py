"""Deletions that people consented to once, and that wait to be merged, need no second consent."""

from dataclasses import replace

from reconciler.api.porch import Downstream, PackageVariantSpec, Upstream
from reconciler.policy import DeletionGuard
from reconciler.reasons import Reason
from tests.support.model import ModelWorld, blueprint


def test_a_proposed_deletion_is_not_refused_while_it_waits() -> None:
    world = ModelWorld()
    world.add_repository("blueprints")
    world.add_repository("edge")
    world.publish("blueprints", "web", blueprint("web"), 1)
    for number in range(12):
        world.variants[f"web-{number}"] = PackageVariantSpec(
            upstream=Upstream(repo="blueprints", package="web", revision=1),
            downstream=Downstream(repo="edge", package=f"web-{number}"),
        )
    world.run()
    for draft in world.drafts("edge"):
        world.merge("edge", draft)
    world.run()
    world.variants = {f"web-{n}": world.variants[f"web-{n}"] for n in range(6)}
    assert world.plan().refusals
    assert world.plan().is_empty, "nothing is deleted without consent"
    careful = world.policy
    world.policy = replace(careful, deletions=DeletionGuard(allowed=6))
    world.run()
    world.policy = careful

    plan = world.plan()

    assert plan.refusals == ()
    waiting = [c for c in plan.changes if c.reason is Reason.DELETION_PROPOSED]
    assert len(waiting) == 6
    assert plan.is_empty
