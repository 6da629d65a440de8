"""With `commits.sign` and `commits.signOff` every commit of ours bears both, and is the same in every run."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.git import Repo, make_repository
from tests.support.signing import Key, make_key, verify
from tests.support.small_world import CONFIGURATION, manifest, repository, variant, write_world
from tests.support.world import World, git, refs

OURS = "package-reconciler@reconciler.dev"
EMPTY = "edge-2"


@pytest.fixture
def key(tmp_path: Path) -> Key:
    return make_key(tmp_path / "key")


def settings_of(key: Key) -> str:
    return f"sign: ssh, signingKeyFile: {key.private}"


def make(root: Path, settings: str) -> World:
    """Make a world of two downstreams, one of them still without a branch."""
    config = f"{CONFIGURATION}  commits: {{{settings}}}\n"
    asking = repository(EMPTY) + "    createBranch: true\n"
    more = {"reconciler.yaml": config, f"manifests/repositories/{EMPTY}.yaml": asking}
    write_world(root, ("edge-1", EMPTY), more=more)
    (root / f"{EMPTY}.git").rename(root / "unused")
    make_repository(root / f"{EMPTY}.git", {})
    return World(root)


def live(world: World) -> None:
    """Draft, publish, change, delete: every kind of commit that a run and an approval make."""
    assert world.run("apply", "--quiet").code == 0
    assert world.run("approve", "--all").code == 0
    files = {manifest("edge-1", "web"): variant("edge-1", "web", revision=2), manifest("edge-1", "db"): None}
    Repo(world.control).commit(files)
    assert world.run("apply", "--quiet").code == 0


def ours(world: World) -> Iterator[tuple[Path, str]]:
    """Yield every commit that any ref of any repository reaches and that we committed."""
    for repo in world.repositories():
        for ref in refs(repo):
            if ref.startswith("refs/reconciler/"):
                yield repo, git(repo, "rev-parse", ref).strip()
        log = git(repo, "log", "--all", "--format=%H %ce")
        yield from ((repo, line.split()[0]) for line in log.splitlines() if line.endswith(OURS))


def test_every_commit_is_verified_by_git_and_signed_off(tmp_path: Path, key: Key) -> None:
    world = make(tmp_path / "w", f"{settings_of(key)}, signOff: true")
    live(world)

    found = set(ours(world))

    said = {git(repo, "show", "-s", "--format=%s", oid).split()[0] for repo, oid in found}
    assert {"Initial", "Approving", "Record", "Pull", "Delete"} <= said
    assert [pair for pair in found if not verify(*pair, key)] == []
    for repo, oid in found:
        assert (
            git(repo, "show", "-s", "--format=%(trailers:key=Signed-off-by)", oid)
            .strip()
            .endswith(f"<{OURS}>")
        )
        git(repo, "fsck", "--strict")


def test_a_plan_needs_no_key_and_an_apply_without_it_pushes_nothing(tmp_path: Path) -> None:
    world = make(tmp_path / "w", f"sign: ssh, signingKeyFile: {tmp_path / 'gone'}")
    before = world.all_refs()

    planned, applied = world.run("plan"), world.run("apply")

    assert planned.code == 0
    assert applied.code == 5
    assert "failed: push 2, all for one cause: Commits cannot be signed" in applied.out
    assert world.all_refs() == before


def packages(world: World) -> dict[str, dict[str, str]]:
    """Return the refs of every repository but the control repository."""
    return {name: found for name, found in world.all_refs().items() if name != "control.git"}


def test_run_with_another_key_writes_no_commit_again(tmp_path: Path, key: Key) -> None:
    world = make(tmp_path / "w", settings_of(make_key(tmp_path / "first")))
    assert world.run("apply", "--quiet").code == 0
    before = packages(world)

    with world.edit("control", "Sign with another key") as copy:
        path = copy / "reconciler.yaml"
        config = path.read_text().partition("  commits:")[0]
        path.write_text(f"{config}  commits: {{{settings_of(key)}}}\n")

    assert world.run("apply", "--quiet").code == 0
    assert packages(world) == before
