"""Dates that people write decide nothing: times count from the runs that saw something first (D27)."""

import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from reconciler.base.errors import Exit
from reconciler.read.snapshot import format_time
from tests.support.git import EPOCH, Repo, kptfile
from tests.support.small_world import CONFIGURATION, app, package_set, write_fleet
from tests.support.world import World, build_world, git

pytestmark = pytest.mark.slow

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures/worlds"
EDGES = ("east", "north", "west")
DAY_S, HOUR_S, FAR_AWAY = 24 * 3600, 3600, 4_102_444_800
WAVES = """\
  rollouts:
  - waves:
    - name: canary
      size: 1
      {}
    - name: rest
"""
SOAK = "soak: 1h"
TARGETS = "{repositories: [{name: east}, {name: north}, {name: west}]}"


def make_world(root: Path, canary: str) -> World:
    """Return a fleet with web/v1 everywhere and web/v2 in review in the canary, the east."""
    revisions = ({"Kptfile": kptfile("web"), "app.yaml": app("web", 1)}, {"app.yaml": app("web", 2)})
    world = write_fleet(root, "web", revisions, EDGES, {"manifests/web.yaml": package_set("web", TARGETS)})
    world.timed = True
    world.publish()
    configuration = CONFIGURATION + WAVES.format(canary)
    change(
        world,
        {"reconciler.yaml": configuration, "manifests/web.yaml": package_set("web", TARGETS, revision=2)},
    )
    assert world.run("apply").out.count("opened") == 1
    world.clock += 5 * DAY_S
    return world


def change(world: World, files: dict[str, str], name: str = "control") -> None:
    world.clock += 60
    Repo(world.root / f"{name}.git").commit(files, time=world.clock)


def fast_forward(world: World, edge: str) -> None:
    """Merge as forges with "fast-forward merge" do: main gets the commit of the draft, with its old date."""
    git(world.root / f"{edge}.git", "update-ref", "refs/heads/main", world.draft_branch(edge, "web"))


def merge_at(when: int) -> Callable[[World, str], None]:
    """Return a merge by a person who writes any date on it."""

    def merge(world: World, edge: str) -> None:
        with tempfile.TemporaryDirectory(dir=world.root) as scratch:
            copy, draft = Path(scratch) / "copy", world.draft_branch(edge, "web")
            git(world.root, "clone", "-q", str(world.root / f"{edge}.git"), str(copy))
            git(copy, "merge", "--no-ff", "-q", "-m", "Merge", f"origin/{draft}", when=when)
            git(copy, "push", "-q", "origin", "HEAD:main", f":{draft}")

    return merge


MERGES = {"ff": fast_forward, "back-dated": merge_at(EPOCH), "dated 2100": merge_at(FAR_AWAY)}


def moved(world: World, command: str = "plan") -> bool:
    """Tell whether a run moves the packages behind the canary."""
    return "update  north/web" in world.run(command).out


@pytest.mark.parametrize("merge", MERGES.values(), ids=MERGES)
def test_soak_counts_from_the_run_that_first_saw_the_package_on_main(
    merge: Callable[[World, str], None], tmp_path: Path
) -> None:
    world = make_world(tmp_path / "w", SOAK)
    merge(world, "east")

    planned, applied = world.run("plan"), world.run("apply")

    due = format_time(world.clock + HOUR_S)[:16].replace("T", " ")
    assert f"wave canary: verifying, 1 of 1 published, soaks until {due} UTC" in planned.out
    assert planned.out == applied.out[: len(planned.out)]
    before, seen = world.all_refs(), world.clock
    for later in (0, 60, HOUR_S - 1):
        world.clock = seen + later
        assert not moved(world, "apply"), later
        assert world.all_refs() == before, later
    world.clock = seen + HOUR_S
    assert moved(world, "apply")


def test_without_the_state_soak_counts_from_now(tmp_path: Path) -> None:
    world = make_world(tmp_path / "w", SOAK)
    fast_forward(world, "east")
    world.run("apply")
    world.clock += HOUR_S
    assert moved(world)

    git(world.control, "update-ref", "-d", "refs/heads/reconciler/fleet/state")

    assert not moved(world)
    assert not moved(world, "apply")
    world.clock += HOUR_S
    assert moved(world)


def test_a_wrong_date_in_the_control_repository_is_named_with_its_commit(tmp_path: Path) -> None:
    world = gone_cluster(tmp_path)
    commit = Repo(world.control).commit({"README.md": "Later\n"}, time=FAR_AWAY)

    said = world.run("plan").out

    assert "keep    cluster-1/web  SnapshotStale" in said
    assert "The snapshot is from 2026-01-02 03:47 UTC, more than snapshot.maxAge before commit " in said
    assert f"commit {commit[:8]} of the control repository, which is dated 2100-01-01 00:00 UTC" in said
    assert "Import a newer one with `reconciler snapshot import`" in said
    Repo(world.control).commit({"README.md": "Now\n"}, time=world.clock)
    assert "delete  cluster-1/web" in world.run("plan").out


def gone_cluster(tmp_path: Path) -> World:
    """Return a fleet of which one cluster left the snapshot."""
    world = build_world(FIXTURES / "02-object-selector", tmp_path / "w")
    assert world.run("apply").code == Exit.DONE
    with world.edit("control", "A cluster is gone") as copy:
        (copy / "snapshot/clusters/cluster-1.yaml").unlink()
        header = copy / "snapshot/snapshot.yaml"
        header.write_text(header.read_text().replace("count: 3", "count: 2"))
    return world
