"""Limits and schedule of new pull requests: which are opened now, and that the rest follows in order."""

from typing import Any

import pytest

from reconciler.api.porch import Downstream, PackageVariantSpec, Upstream
from reconciler.base.reasons import Phase, Reason
from reconciler.inventory.inventory import Opening, PullState
from reconciler.plan.changes import Op, Plan
from reconciler.plan.status import current_statuses
from reconciler.policy import GroupBy, Policy, PullRequestPolicy
from tests.support.model import ModelWorld, blueprint

CLOSED = Opening(is_open=False, opens="2026-07-16 08:00 Europe/Berlin")
EDGES = ("east", "west")
PACKAGES = ("a", "b", "c")


@pytest.fixture
def world() -> ModelWorld:
    world = ModelWorld()
    world.add_repository("blueprints")
    world.publish("blueprints", "web", blueprint("web", a_yaml="a: 1\n"), 1)
    world.publish("blueprints", "web", blueprint("web", a_yaml="a: 2\n"), 2)
    for edge in EDGES:
        world.add_repository(edge)
        for package in PACKAGES:
            declare(world, edge, package)
    return world


def declare(world: ModelWorld, edge: str, package: str, revision: int = 1) -> None:
    world.variants[f"{edge}-{package}"] = PackageVariantSpec(
        upstream=Upstream(repo="blueprints", package="web", revision=revision),
        downstream=Downstream(repo=edge, package=package),
    )


def limit(world: ModelWorld, **settings: Any) -> None:
    world.policy = Policy(instance="fleet", pull_requests=PullRequestPolicy(**settings))


def opened(plan: Plan) -> list[str]:
    return [
        f"{change.repository.name}/{change.package.path}"
        for change in plan.changes
        if change.pull is not None and not change.pull.number
    ]


@pytest.mark.parametrize(
    ("settings", "runs"),
    [
        ({}, [6, 0]),
        ({"max_new": 4}, [4, 2, 0]),
        ({"max_new_per_repository": 1}, [2, 2, 2, 0]),
        ({"max_new_per_repository": 2, "max_new": 3}, [3, 3, 0]),
        ({"max_open": 4}, [4, 0]),
        ({"max_open_per_repository": 2}, [4, 0]),
        ({"max_open": 5, "max_new": 3}, [3, 2, 0]),
    ],
)
def test_every_run_opens_pull_requests_up_to_the_limits(world: ModelWorld, settings, runs) -> None:
    limit(world, **settings)

    assert [len(opened(world.run())) for _ in runs] == runs


def test_limited_run_writes_every_draft_and_the_next_one_nothing(world: ModelWorld) -> None:
    limit(world, max_open=1)
    world.run()

    again = world.plan()

    assert [len(world.drafts(edge)) for edge in EDGES] == [3, 3]
    assert again.is_empty
    assert (again.records, again.status) == (world.state, world.status)


def test_pull_request_that_waited_is_opened_before_a_newer_one(world: ModelWorld) -> None:
    limit(world, max_new=5)
    world.run()
    waiting = [c.package.path for c in world.plan().changes if c.pull is not None]
    declare(world, "east", "0-newer")
    limit(world, max_new=1)

    assert [c.package.path for c in world.run().changes if c.pull is not None] == waiting
    assert opened(world.run()) == ["east/0-newer"]


def test_merged_pull_request_makes_room_for_the_next(world: ModelWorld) -> None:
    limit(world, max_open_per_repository=1)
    first, *_ = opened(world.run())
    edge, package = first.split("/")
    world.merge(edge, f"refs/heads/drafts/{package}/packagevariant-1")

    assert [name.split("/")[0] for name in opened(world.run())] == [edge]


def test_package_that_waits_for_a_limit_is_pending_with_the_setting(world: ModelWorld) -> None:
    limit(world, max_open=5)

    first = world.run()
    (waiting,) = [c for c in world.plan().changes if c.postponed]

    assert [c.op for c in first.changes if c.postponed] == [Op.CREATE]
    assert (waiting.op, waiting.reason) == (Op.KEEP, Reason.RATE_LIMITED)
    assert waiting.detail == "Its pull request waits: pullRequests.maxOpen is 5"
    (status,) = [s for s in current_statuses(world.plan()) if s.phase is Phase.PENDING]
    assert (status.package, status.reason) == (waiting.package, "RateLimited")


def test_closed_schedule_opens_nothing_and_says_when_it_does(world: ModelWorld) -> None:
    world.opening = CLOSED
    plan = world.run()
    status = world.status

    assert opened(plan) == []
    assert {c.op for c in plan.changes} == {Op.CREATE}
    (detail,) = {c.detail for c in world.plan().changes}
    assert detail == (
        "Its pull request waits for pullRequests.schedule; it opens at 2026-07-16 08:00 Europe/Berlin"
    )
    # Another day does not change what is recorded.
    world.opening = CLOSED._replace(opens="2026-07-17 08:00 Europe/Berlin")
    assert world.plan().status == status
    world.opening = Opening()
    assert len(opened(world.run())) == 6


def test_closed_schedule_lets_open_pull_requests_be_updated_and_closed(world: ModelWorld) -> None:
    world.run()
    world.opening = CLOSED
    declare(world, "east", "a", revision=2)
    del world.variants["west-b"]

    plan = world.run()

    assert [c.package.path for c in plan.changes if c.pull] == ["a"]
    assert [c.package.path for c in plan.changes if c.close] == ["b"]
    assert sum(p.state is PullState.OPEN for e in EDGES for p in world.repositories[e].pulls) == 5


def test_packages_of_one_group_are_one_pull_request_to_limits(world: ModelWorld) -> None:
    limit(world, max_open=1, group_by=GroupBy.REPOSITORY)

    plan = world.plan()

    assert {c.package.url for c in plan.changes if c.pull} == {world.repositories["east"].url}
    assert {c.package.url for c in plan.changes if c.postponed} == {world.repositories["west"].url}
