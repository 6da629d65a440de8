"""Conflicts between package paths: within one repository only, and indexed once for the whole fleet."""

from collections.abc import Iterator

import pytest

from reconciler.api.porch import Downstream, PackageVariantSpec, Upstream
from reconciler.base.errors import Location
from reconciler.base.reasons import Reason
from reconciler.expand import expand
from reconciler.inventory.inventory import Commit
from reconciler.names.problems import Problem
from reconciler.plan.changes import Plan
from reconciler.plan.context import PlanContext, build_context
from reconciler.plan.path_conflicts import index_neighbours, index_refs
from reconciler.render import render_packages
from reconciler.resolve.fleet import ResolvedFleet
from tests.support.model import ModelWorld, blueprint, resolve
from tests.support.plan_values import oid
from tests.support.sets import repository
from tests.support.values import replace


def want(world: ModelWorld, repository: str, *paths: str) -> None:
    """Declare a variant for each path in a repository."""
    for path in paths:
        world.variants[f"{repository}-{path.replace('/', '-')}"] = PackageVariantSpec(
            upstream=Upstream(repo="blueprints", package="web", revision=1),
            downstream=Downstream(repo=repository, package=path),
        )


def fleet_of(repositories: int) -> ModelWorld:
    """Return a world with a published blueprint and empty downstream repositories."""
    world = ModelWorld()
    world.add_repository("blueprints")
    world.publish("blueprints", "web", blueprint("web"), 1)
    for number in range(repositories):
        world.add_repository(f"edge-{number}")
    return world


@pytest.fixture
def world() -> ModelWorld:
    return fleet_of(2)


def reasons(plan: Plan) -> dict[str, Reason]:
    return {f"{change.repository.name}/{change.package.path}": change.reason for change in plan.changes}


def context_of(world: ModelWorld) -> PlanContext:
    inventory = world.inventory()
    desired = expand(inventory)
    resolution = resolve(inventory, desired)
    rendered = render_packages(resolution, world.contents(resolution), inventory)
    return build_context(inventory, ResolvedFleet(desired, resolution), rendered)


def test_existing_package_blocks_nested_paths_in_its_own_repository(world: ModelWorld) -> None:
    world.push("edge-0", {"web": blueprint("web")})
    want(world, "edge-0", "web/inner")
    want(world, "edge-1", "web/inner")

    assert reasons(world.plan()) == {
        "edge-0/web": Reason.NOT_OURS,
        "edge-0/web/inner": Reason.NESTED_PACKAGE,
        "edge-1/web/inner": Reason.NEW,
    }


def test_draft_that_this_plan_deletes_frees_its_path(world: ModelWorld) -> None:
    want(world, "edge-0", "web")
    want(world, "edge-1", "web")
    world.run()
    del world.variants["edge-0-web"]
    want(world, "edge-0", "web/inner")
    want(world, "edge-1", "web/inner")

    assert reasons(world.plan()) == {
        "edge-0/web": Reason.NOT_DESIRED,
        "edge-0/web/inner": Reason.NEW,
        "edge-1/web": Reason.UP_TO_DATE,
        "edge-1/web/inner": Reason.NESTED_PACKAGE,
    }


def test_only_repositories_with_new_packages_are_indexed(world: ModelWorld) -> None:
    want(world, "edge-0", "web")
    world.run()
    world.merge("edge-0", world.drafts("edge-0")[0])
    want(world, "edge-1", "web")

    assert set(index_neighbours(context_of(world))) == {world.repositories["edge-1"].url}


class CountingMap(dict):
    """A mapping that counts the entries that its readers visit."""

    visited = 0

    def values(self) -> Iterator:  # type: ignore[override]
        for value in super().values():
            self.visited += 1
            yield value


@pytest.mark.parametrize("repositories", [2, 12])
def test_index_visits_each_package_once_however_many_repositories_there_are(repositories: int) -> None:
    world = fleet_of(repositories)
    for number in range(repositories):
        want(world, f"edge-{number}", "web")
    context = context_of(world)
    targets = CountingMap(context.targets)

    index = index_neighbours(replace(context, targets=targets))

    assert len(index) == repositories
    assert targets.visited == len(targets)


@pytest.mark.parametrize(
    ("ref", "blocker"),
    [
        ("refs/heads/drafts/web/packagevariant-1", "refs/heads/drafts"),
        ("refs/tags/web/v1", "refs/tags/web"),
        ("refs/heads/other", ""),
    ],
)
def test_refs_of_a_repository_are_those_of_the_view_that_was_read(ref: str, blocker: str) -> None:
    at = Commit(oid("a1"), 1)
    read = repository("edge", branches={"drafts": at}, tags={"web": at})
    unread = replace(repository("alias", url=read.url), problem=Problem(Location("r.yaml"), "down", "down"))

    assert index_refs([unread, read]).find_blocker(ref) == blocker
    assert index_refs([unread]).find_blocker(ref) == ""
