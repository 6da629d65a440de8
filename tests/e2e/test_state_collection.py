"""The state and status branches hold what exists: what came and went leaves nothing there but history."""

from pathlib import Path

from tests.support.records import recorded
from tests.support.small_world import manifest, variant, write_world
from tests.support.world import World, git


def files(world: World) -> dict[str, set[str]]:
    """Return the names of all records, and of all files of the status branch."""
    status = git(world.control, "ls-tree", "-r", "--name-only", "reconciler/fleet/status")
    return {"state": set(recorded(world.control)), "status": set(status.split())}


def test_records_of_variants_that_came_and_went_are_collected(tmp_path: Path) -> None:
    world = write_world(tmp_path / "world", ("edge-1",))
    world.publish()
    before = files(world)

    for name in ("extra-1", "extra-2"):
        with world.edit("control", f"Add {name}") as copy:
            wanted = variant("edge-1", name).replace(f"package: {name}\n    rev", "package: db\n    rev")
            (copy / manifest("edge-1", name)).write_text(wanted)
        world.publish()
        assert any(name in path for path in files(world)["state"])
        assert any(name in path for path in files(world)["status"])

        with world.edit("control", f"Remove {name}") as copy:
            (copy / manifest("edge-1", name)).unlink()
        world.publish()

        assert files(world) == before
    tip = git(world.control, "rev-parse", "reconciler/fleet/state")
    assert world.run("apply").code == 0
    assert git(world.control, "rev-parse", "reconciler/fleet/state") == tip
