"""A damaged cache costs a fetch: the run after it ends as if the cache had been whole."""

import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.http_git import serve
from tests.support.small_world import manifest, variant, write_world
from tests.support.world import git, run_line

pytestmark = pytest.mark.slow

SEEDS = range(24 * int(os.environ.get("RECONCILER_FUZZ", "1")))


class Fleet:
    """A fleet behind a server, one of whose packages is to be updated, and a filled cache."""

    def __init__(self, root: Path, address: str) -> None:
        self.root = root
        self.cache = root / "cache"
        self.control = f"{address}/control.git"

    def run(self, *arguments: str) -> tuple[int, str]:
        """Run a command with the cache; return its exit code and its lines."""
        said = run_line(*arguments, "--control", self.control, "--cache-dir", str(self.cache))
        return said.code, said.out + said.err


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    world = write_world(tmp_path_factory.mktemp("damage") / "world", ("edge-1",))
    world.publish()
    with world.edit("control", "Move web to v2") as copy:
        (copy / manifest("edge-1", "web")).write_text(variant("edge-1", "web", revision=2))
    for repository in world.repositories():
        git(repository, "config", "uploadpack.allowFilter", "true")
        git(repository, "config", "http.receivepack", "true")
    shutil.rmtree(world.root / "cache")
    with serve(world.root) as server:
        fleet = Fleet(world.root, server.address)
        fleet.run("plan")
        shutil.copytree(fleet.cache, world.root / "whole")
        yield fleet


@pytest.fixture(scope="module")
def planned(fleet: Fleet) -> tuple[int, str]:
    result = fleet.run("plan")
    assert "edge-1/web" in result[1]
    assert result[0] in {0, 10}
    return result


@pytest.mark.parametrize("seed", SEEDS)
def test_run_with_a_damaged_cache_plans_as_with_a_whole_one(
    fleet: Fleet, planned: tuple[int, str], seed: int
) -> None:
    shutil.rmtree(fleet.cache, ignore_errors=True)
    shutil.copytree(fleet.root / "whole", fleet.cache)
    log = [damage(fleet.cache, random.Random(f"{seed}.{n}")) for n in range(1 + seed % 3)]

    assert fleet.run("plan") == planned, log
    assert fleet.run("plan") == planned, log


def test_apply_with_damaged_stores_of_new_objects_ends_well(tmp_path: Path) -> None:
    """A local repository is read in place; the cache holds only the objects that a run made."""
    world = write_world(tmp_path / "world", ("edge-1",))
    assert world.run("apply").code == 0
    for path in (world.root / "cache").rglob("*"):
        if path.is_file():
            path.chmod(0o644)
            path.write_bytes(path.read_bytes()[:40] + b"\xff\0garbage")
    assert world.run("approve", "--all").code == 0
    with world.edit("control", "Move web to v2") as copy:
        (copy / manifest("edge-1", "web")).write_text(variant("edge-1", "web", revision=2))

    applied = world.run("apply")

    assert applied.code == 0, applied
    assert "drafts/web/" in "".join(world.all_refs()["edge-1.git"])


def test_something_else_in_the_place_of_a_mirror_is_replaced(fleet: Fleet, planned: tuple[int, str]) -> None:
    shutil.rmtree(fleet.cache, ignore_errors=True)
    shutil.copytree(fleet.root / "whole", fleet.cache)
    mirror = next(fleet.cache.glob("edge-1*.git"))
    shutil.rmtree(mirror)
    mirror.symlink_to("/proc/1")  # neither a repository nor writable

    assert fleet.run("plan") == planned


def damage(cache: Path, draw: random.Random) -> str:
    """Damage one file of a cache as disks, kills and people do; return what was done."""
    files = sorted(path for path in cache.rglob("*") if path.is_file() and path.suffix != ".flock")
    kinds = ("*.pack", "*.idx", "HEAD", "config", "packed-refs", "refs/*", "functions/*", "*")
    pattern = draw.choice(kinds)
    path = draw.choice([path for path in files if path.match(pattern)] or files)
    data = path.read_bytes()
    path.chmod(0o644)
    how = draw.choice(("truncate", "flip", "garbage", "remove", "empty", "zeros"))
    if how == "remove":
        path.unlink()
        return f"{how} {path}"
    at = draw.randrange(len(data) or 1)
    flipped = data[:at] + bytes([(data[at] if data else 0) ^ (1 << draw.randrange(8))]) + data[at + 1 :]
    path.write_bytes(
        {
            "truncate": data[:at],
            "flip": flipped,
            "garbage": draw.randbytes(len(data) or 7),
            "empty": b"",
            "zeros": bytes(len(data)),
        }[how]
    )
    return f"{how} {path} at {at}"
