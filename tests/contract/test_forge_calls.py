"""How many requests a run takes: a constant number for a repository, and for each pull request."""

from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.forges.bench import DIALECTS
from tests.support.forges.server import HOUR
from tests.support.forges.world import ForgeWorld, Serve
from tests.support.small_world import manifest, variant

pytestmark = pytest.mark.one_forge

DOCUMENT = Path(__file__).parents[2] / "docs" / "contributing" / "forges.md"
PACKAGES = {"edge-1": 1, "edge-2": 2, "edge-3": 5}
"""How many packages each repository has: with three sizes a count that grows faster is no straight line."""
NAMES = tuple(f"p{number}" for number in range(max(PACKAGES.values())))
FORGES = {
    "github": "GitHub", "gitlab": "GitLab", "gitea": "Gitea, Forgejo", "azure": "Azure DevOps",
    "bitbucket": "Bitbucket Cloud",
}  # fmt: skip
APPROVAL = "  approval:\n    auto:\n    - {selector: {}}\n"
LABELS = "  pullRequests:\n    labels: [fleet]\n"
ENDED = 120
"""More ended pull requests than a page of any forge has."""


class Requests(NamedTuple):
    """The requests of a run: for each pull request that it writes, and besides for each repository."""

    pull: int
    repository: int

    def __str__(self) -> str:
        return f"{self.pull}, +{self.repository}"


@pytest.fixture(params=list(DIALECTS))
def world(request: pytest.FixtureRequest, serve: Serve) -> ForgeWorld:
    made = serve(request.param, edges=list(PACKAGES), packages=NAMES, more=LABELS)
    surplus = {manifest(edge, name): None for edge, count in PACKAGES.items() for name in NAMES[count:]}
    made.repo("control").commit(surplus, message="Keep some\n")
    return made


def measure(world: ForgeWorld) -> Requests:
    """Run a day later, and return its requests.

    Requests whose path names no repository are divided: GraphQL's among all pull requests, others among all
    repositories.
    """
    world.simulator.clock.sleep(24 * HOUR)
    before = len(world.simulator.journal)
    world.run()
    paths = [entry.path.replace("%2F", "/") for entry in world.simulator.journal[before:]]
    counts = {edge: sum(edge in path.split("/") for path in paths) for edge in PACKAGES}
    first, second, _ = PACKAGES
    pull = counts[second] - counts[first]
    repository = counts[first] - pull
    assert counts == {edge: repository + pull * count for edge, count in PACKAGES.items()}
    in_graphql = sum(path.endswith("/graphql") for path in paths)
    graphql, rest = divmod(in_graphql, sum(PACKAGES.values()))
    others, rest_of_others = divmod(len(paths) - sum(counts.values()) - in_graphql, len(PACKAGES))
    assert (rest, rest_of_others) == (0, 0)
    return Requests(pull + graphql, repository + others)


def upgrade(world: ForgeWorld) -> None:
    files = {
        manifest(edge, name): variant(edge, name, revision=2)
        for edge, count in PACKAGES.items()
        for name in NAMES[:count]
    }
    world.repo("control").commit(files, message="Upgrade\n")


def approve(world: ForgeWorld) -> None:
    text = world.repo("control").read("main", "reconciler.yaml").decode()
    world.repo("control").commit({"reconciler.yaml": text + APPROVAL}, message="Approve\n")


def add_ended(world: ForgeWorld) -> None:
    """Let people open and close pull requests in every repository, an hour each."""
    for _ in range(ENDED):
        world.simulator.clock.sleep(HOUR)
        for edge in PACKAGES:
            hosted = world.simulator.repositories[f"acme/{edge}"]
            pull = world.simulator.new_pull(hosted, title="T", body="", head="f", base="main", fork=True)
            world.simulator.close(hosted.name, pull.number)


def measure_nothing(world: ForgeWorld) -> Requests | int:
    """Return the requests for a repository of a run that writes nothing."""
    nothing = measure(world)
    return nothing if nothing.pull else nothing.repository


def test_requests_are_as_many_as_documented(world: ForgeWorld, request: pytest.FixtureRequest) -> None:
    opened = measure(world)
    measure(world)
    nothing = measure_nothing(world)
    upgrade(world)
    updated = measure(world)
    approve(world)
    merged = measure(world)
    add_ended(world)
    measure(world)  # lists everything once more, and records what ended
    measure(world)
    later = measure_nothing(world)

    name = FORGES[request.node.callspec.params["world"]]
    row = f"| {name} | {nothing} | {later} | {opened} | {updated} | {merged} |\n"
    assert row in DOCUMENT.read_text(encoding="utf-8")
