"""How many requests a run takes: one for a repository, and a constant number for each pull request."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.forges.bench import DIALECTS
from tests.support.forges.server import HOUR
from tests.support.forges.world import ForgeWorld, forge_world
from tests.support.small_world import manifest, variant

DOCUMENT = Path(__file__).parents[2] / "docs" / "forges.md"
MANY, ONE = "edge-1", "edge-2"
PACKAGES = ("api", "db", "web")
NAMES = {"github": "GitHub", "gitlab": "GitLab", "gitea": "Gitea, Forgejo"}
APPROVAL = "  approval:\n    auto:\n    - {selector: {}}\n"


@pytest.fixture(params=list(DIALECTS))
def world(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ForgeWorld]:
    """Return a fleet of a repository with three packages and one with one."""
    more = "  pullRequests:\n    labels: [fleet]\n"
    with forge_world(
        request.param, tmp_path / "world", monkeypatch, edges=(MANY, ONE), packages=PACKAGES, more=more
    ) as made:
        surplus = {manifest(ONE, package): None for package in PACKAGES[1:]}
        made.repo("control").commit(surplus, message="Keep one\n")
        yield made


def measure(world: ForgeWorld) -> tuple[int, int]:
    """Return the requests of a run for each pull request that it writes, and those for each repository.

    GraphQL has one path for all repositories: its requests are written for a pull request each.
    """
    world.simulator.clock.sleep(24 * HOUR)
    before = len(world.simulator.journal)
    world.run()
    paths = [entry.path.replace("%2F", "/") for entry in world.simulator.journal[before:]]
    many, one = (sum(f"acme/{edge}" in path for path in paths) for edge in (MANY, ONE))
    each, rest = divmod(many - one, len(PACKAGES) - 1)
    graphql, more = divmod(sum(path.endswith("/graphql") for path in paths), len(PACKAGES) + 1)
    assert (rest, more) == (0, 0)
    return each + graphql, one - each


def upgrade(world: ForgeWorld) -> None:
    files = {manifest(MANY, package): variant(MANY, package, revision=2) for package in PACKAGES}
    files |= {manifest(ONE, PACKAGES[0]): variant(ONE, PACKAGES[0], revision=2)}
    world.repo("control").commit(files, message="Upgrade\n")


def approve(world: ForgeWorld) -> None:
    text = world.repo("control").read("main", "reconciler.yaml").decode()
    world.repo("control").commit({"reconciler.yaml": text + APPROVAL}, message="Approve\n")


def test_requests_are_as_many_as_documented(world: ForgeWorld, request: pytest.FixtureRequest) -> None:
    opened, _ = measure(world)
    upgrade(world)
    updated, _ = measure(world)
    approve(world)
    merged, _ = measure(world)
    measure(world)

    before = len(world.simulator.journal)
    nothing = measure(world)

    # GitHub does not count a confirmed reply; Gitea's API has no tags.
    confirmed = {entry.status for entry in world.simulator.journal[before:]}
    assert confirmed == {304 if world.simulator.has_etags else 200}
    name = NAMES[request.node.callspec.params["world"]]
    assert nothing == (0, 1)
    assert f"| {name} | 1 or 2 | {opened} | {updated} | {merged} |\n" in DOCUMENT.read_text(encoding="utf-8")
