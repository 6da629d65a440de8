"""Deletions that people consented to once, and that wait to be merged, need no second consent."""

from reconciler.api.porch import Downstream, PackageVariantSpec, Upstream
from reconciler.base.reasons import Reason
from tests.support.model import ModelWorld, blueprint
from tests.support.values import replace


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
    (refusal,) = world.plan().refusals
    assert world.plan().is_empty, "nothing is deleted without consent"
    careful = world.policy
    world.policy = replace(careful, consents={refusal.consent: "meant"})
    world.run()
    world.policy = careful

    plan = world.plan()

    assert plan.refusals == ()
    waiting = [c for c in plan.changes if c.reason is Reason.DELETION_PROPOSED]
    assert len(waiting) == 6
    assert plan.is_empty


def fleet(count: int, prefix: str = "web") -> ModelWorld:
    """Return a fleet of published packages."""
    world = ModelWorld()
    world.add_repository("blueprints")
    world.add_repository("edge")
    world.publish("blueprints", "web", blueprint("web"), 1)
    for number in range(count):
        world.variants[f"web-{number:02}"] = PackageVariantSpec(
            upstream=Upstream(repo="blueprints", package="web", revision=1),
            downstream=Downstream(repo="edge", package=f"{prefix}-{number:02}"),
        )
    settle(world)
    return world


def settle(world: ModelWorld) -> None:
    """Run, and let people merge everything, until nothing is left to do."""
    for _ in range(5):
        world.run()
        for draft in world.drafts("edge"):
            world.merge("edge", draft)


def test_a_refused_deletion_stays_refused_when_orphans_have_left() -> None:
    world = fleet(12)
    names = sorted(world.variants)
    for name in names[6:]:
        world.variants[name] = world.variants[name].model_copy(update={"deletion_policy": "orphan"})
    settle(world)
    world.variants.clear()
    assert [refusal.message for refusal in world.plan().refusals] == [
        "6 of 12 PackageVariants would be deleted, 50% is over 30%"
    ]

    settle(world)

    assert len(world.records) == 6, "the orphans have left"
    plan = world.plan()
    assert [refusal.message for refusal in plan.refusals] == [
        "6 of 12 PackageVariants would be deleted, 50% is over 30%"
    ]
    assert plan.is_empty
    assert (plan.records, plan.status) == (world.state, world.status), "the second run writes nothing"
    (refusal,) = plan.refusals
    world.policy = replace(world.policy, consents={refusal.consent: "reviewed"})
    world.run()
    assert "deletions.json" not in world.state
    assert world.plan().refusals == ()


def test_packages_left_behind_by_moves_stay_refused_when_new_ones_have_come() -> None:
    world = fleet(12)
    for name in sorted(world.variants)[:5]:
        spec = world.variants[name]
        world.variants[name] = spec.model_copy(
            update={"downstream": Downstream(repo="edge", package=f"site-{name}")}
        )
    first = world.run()
    assert len(first.refusals) == 1

    settle(world)

    plan = world.plan()
    assert [refusal.message for refusal in plan.refusals] == [first.refusals[0].message]
    assert plan.is_empty
    assert (plan.records, plan.status) == (world.state, world.status)
    careful = world.policy
    world.policy = replace(careful, consents={first.refusals[0].consent: "meant"})
    world.run()
    assert "deletions.json" not in world.state
