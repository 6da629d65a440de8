"""Variants that take configuration from the cluster: causes of drafts, readiness, conditions."""

import pytest

from reconciler.api.porch import Downstream, InjectionSelector, PackageVariantSpec, Upstream
from reconciler.base.errors import Location
from reconciler.base.reasons import Reason
from reconciler.expand import expand
from reconciler.inventory.inventory import Inventory
from reconciler.inventory.snapshot import Snapshot, SnapshotObject
from reconciler.plan.build import build_plan
from reconciler.plan.changes import Op
from reconciler.render import render_packages
from reconciler.resolve import ResolvedFleet
from tests.support.model import ModelWorld, blueprint, resolve
from tests.support.points import team_point
from tests.support.values import replace

POINT = team_point("required")
COUNT, TEAMS = 200, 40
TAKES = COUNT // TEAMS


class ClusterWorld(ModelWorld):
    """A world with a snapshot of teams, by name and code."""

    def inventory(self) -> Inventory:
        key = ("hr.example.com/v1", "Team")
        objects = tuple(
            SnapshotObject(*key, "default", name, {}, {}, {"spec": {"code": code}}, Location("s.yaml"))
            for name, code in sorted(self.teams.items())
        )
        return replace(super().inventory(), snapshot=Snapshot(present=True, objects={key: objects}))

    teams: dict[str, str]


@pytest.fixture
def world() -> ClusterWorld:
    world = ClusterWorld()
    world.teams = {f"team-{n}": "old" for n in range(TEAMS)}
    world.add_repository("blueprints")
    world.add_repository("edge")
    world.publish("blueprints", "web", blueprint("web", team_yaml=POINT), 1)
    for number in range(COUNT):
        world.variants[f"web-{number}"] = PackageVariantSpec(
            upstream=Upstream(repo="blueprints", package="web", revision=1),
            downstream=Downstream(repo="edge", package=f"web-{number}"),
            injectors=[InjectionSelector(name=f"team-{number % TEAMS}")],
        )
    world.run()
    return world


def test_one_changed_object_changes_exactly_the_drafts_that_used_it(world: ClusterWorld) -> None:
    world.teams["team-3"] = "new"

    plan = world.run()

    changed = [change for change in plan.changes if change.op is not Op.KEEP]
    assert sorted(c.package.path for c in changed) == sorted(f"web-{n}" for n in range(3, COUNT, TEAMS))
    assert len(changed) == TAKES
    assert {(c.op, c.reason) for c in changed} == {(Op.EDIT, Reason.CONTENT_CHANGED)}
    assert {c.message for c in changed} == {"Object Team team-3 changed"}
    assert world.plan().is_empty


def test_nothing_is_read_while_nothing_that_counts_changes(world: ClusterWorld) -> None:
    world.teams["nobody-uses-me"] = "x"
    inventory = world.inventory()

    assert dict(resolve(inventory, expand(inventory)).needs.trees) == {}


def test_the_same_plan_without_a_record(world: ClusterWorld) -> None:
    status = dict(world.status)
    world.lose_state()
    inventory = world.inventory()
    desired = expand(inventory)
    resolution = resolve(inventory, desired)

    rendered = render_packages(resolution, world.contents(resolution), inventory)
    plan = build_plan(inventory, ResolvedFleet(desired, resolution), rendered)

    assert plan.is_empty
    assert plan.status == status
