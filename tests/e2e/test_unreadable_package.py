"""A package on main that cannot be read is told as such, and everything beside it proceeds."""

from pathlib import Path

from tests.support.small_world import write_world
from tests.support.world import refs


def test_package_with_an_unreadable_kptfile_is_not_called_somebody_elses(tmp_path: Path) -> None:
    world = write_world(tmp_path / "world", ("edge-1",))
    with world.edit("edge-1", "Break web") as copy:
        (copy / "web").mkdir()
        (copy / "web" / "Kptfile").write_text("kind: Kptfile\nmetadata: {name: [web\n")

    applied = world.run("apply")

    assert applied.code == 3, applied
    assert "Package web in repository edge-1 exists, and its Kptfile cannot be read" in applied.out
    assert "is not ours" not in applied.out
    assert any("drafts/db/" in ref for ref in refs(world.root / "edge-1.git"))
