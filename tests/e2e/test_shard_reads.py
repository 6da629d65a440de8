"""A shard contacts the repositories that it needs, and those of others change nothing for it."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from reconciler.inventory.shard import Shard
from reconciler.names.ids import normalise_url
from tests.support.git import Repo, kptfile, make_repository
from tests.support.http_git import HttpGit, serve
from tests.support.shards import split_root
from tests.support.small_world import manifest, package_set, repository, variant, write_world
from tests.support.standing import standing
from tests.support.world import World

pytestmark = pytest.mark.slow

EDGES = tuple(f"edge-{n}" for n in range(1, 7))
SOURCES = tuple(f"for-{edge}" for edge in EDGES)
NAMES = ("blueprints", *EDGES, *SOURCES)
SPLITS = [Shard(part, parts) for parts in range(2, 9) for part in range(parts)]


def needed(shard: Shard, where: str) -> set[str]:
    """Return the repositories that a shard owns, and those that its packages are made from."""
    own = {name for name in NAMES if shard.holds(normalise_url(f"{where}/{name}.git"))}
    return own | {"blueprints"} | {f"for-{edge}" for edge in EDGES if edge in own}


def write_fleet(root: Path) -> None:
    """Write a world in which web comes from `blueprints` and db from a repository for each edge."""
    write_world(root, EDGES)
    changes = {}
    for edge in EDGES:
        source = make_repository(
            root / f"for-{edge}.git", {"db/Kptfile": kptfile("db"), "db/a.yaml": "a: 1\n"}
        )
        source.tag("db/v1")
        changes[f"manifests/repositories/for-{edge}.yaml"] = repository(f"for-{edge}")
        changes[manifest(edge, "db")] = variant(edge, "db").replace("repo: blueprints", f"repo: for-{edge}")
    Repo(root / "control.git").commit(changes)


class ServedFleet:
    """A fleet behind a server that writes down which repositories are asked for."""

    def __init__(self, world: World, server: HttpGit) -> None:
        self.world, self.server = world, server

    def contacted(self, *line: str) -> set[str]:
        """Run a command with an empty cache; return the repositories that it contacted."""
        self.server.requests.clear()
        shutil.rmtree(self.world.root / "cache", ignore_errors=True)
        self.said = self.world.run(*line)
        paths = (path for _, path, _ in self.server.requests)
        return {path.split("/")[1].partition("?")[0].removesuffix(".git") for path in paths}

    def needed(self, shard: Shard) -> set[str]:
        return needed(shard, self.server.address)

    def plan(self, shard: Shard) -> set[str]:
        return self.contacted("plan", "--shard", f"{shard.part}/{shard.parts}")


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[ServedFleet]:
    write_fleet(tmp_path / "w")
    with serve(tmp_path / "w") as server:
        control = Repo(tmp_path / "w" / "control.git")
        control.commit(
            {
                f"manifests/repositories/{name}.yaml": repository(name).replace("../", f"{server.address}/")
                for name in NAMES
            }
        )
        yield ServedFleet(World(tmp_path / "w"), server)


def test_a_shard_contacts_its_repositories_and_their_upstreams(fleet: ServedFleet) -> None:
    for shard in SPLITS[:2]:
        assert fleet.plan(shard) == fleet.needed(shard)
        assert fleet.said.code == 0, fleet.said
    assert fleet.contacted("plan") == set(NAMES)


def test_a_question_about_a_package_contacts_its_repository_and_upstreams(fleet: ServedFleet) -> None:
    edge = EDGES[1]
    for question in ("explain", "status"):
        assert fleet.contacted(question, f"{edge}/web") == {"blueprints", edge, f"for-{edge}"}
        assert (fleet.said.code, edge in fleet.said.out) == (0, True), fleet.said
        assert fleet.contacted(question, f"{edge}/none") == set(NAMES)
        assert fleet.said.code == 2
    assert fleet.contacted("status", f"{edge}/web", "edge-3/web") == set(NAMES)


def test_a_set_that_stalls_for_another_shard_collides_with_nobody(tmp_path: Path) -> None:
    """Its downstream in the other repository is invalid unless it exists: that must be read."""

    root = split_root(tmp_path, *EDGES[:2])

    def applied(*shards: str) -> dict[str, str]:
        write_world(root, EDGES[:2])
        own, other = EDGES[:2]
        targets = f"[{{name: {own}, packageNames: [web]}}, {{name: {other}, packageNames: [not.new]}}]"
        bad = package_set("both", f"{{repositories: {targets}}}")
        Repo(root / "control.git").commit({"manifests/set.yaml": bad})
        for number, shard in enumerate(shards):
            World(root).run("apply", *(["--shard", shard] if shard else []), cache=f"cache-{number}")
        found = standing(root)
        root.rename(tmp_path / f"applied-by-{len(shards)}")
        return found

    one = applied("")

    assert any(f"{EDGES[0]}.git refs/heads/drafts/web/" in key for key in one)
    assert applied("0/2", "1/2") == one
