"""A full disk and few file descriptors are told, harm nothing, and the next run completes the work."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.http_git import serve
from tests.support.small_world import manifest, variant, write_world
from tests.support.world import World, git

pytestmark = pytest.mark.slow


@pytest.fixture
def world(tmp_path: Path) -> World:
    return write_world(tmp_path / "world", ("edge-1", "edge-2"))


def limited(limit: str, command: str, control: str, cache: Path) -> subprocess.CompletedProcess[str]:
    """Run a command in a shell with a limit."""
    line = f'ulimit {limit}; exec "$@"'
    arguments = [sys.executable, "-m", "reconciler.cli.main", command, "--control", control]
    return subprocess.run(
        ["bash", "-c", line, "bash", *arguments, "--cache-dir", str(cache)],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("limit", ["-n 6", "-n 8", "-n 12", "-n 16", "-n 20", "-n 28", "-f 0", "-f 1"])
def test_limits_of_the_process_are_told_and_harm_nothing(world: World, limit: str) -> None:
    ran = limited(limit, "apply", str(world.control), world.root / "cache")

    assert "Traceback" not in ran.stderr, ran.stderr
    assert ran.returncode in {0, 5}, ran
    if ran.returncode:
        assert "hint:" in ran.stdout + ran.stderr, ran
    assert world.run("apply").code == 0
    assert world.run("plan").code == 0


def test_full_disk_under_the_cache_is_not_blamed_on_the_server(world: World) -> None:
    for repository in world.repositories():
        git(repository, "config", "uploadpack.allowFilter", "true")
    with serve(world.root) as server:
        ran = limited("-f 1", "plan", f"{server.address}/control.git", world.root / "cache")

        assert ran.returncode == 5, ran
        assert "Traceback" not in ran.stderr, ran.stderr
        assert "Cannot read http" not in ran.stdout + ran.stderr, ran
        assert "ulimit -f" in ran.stdout + ran.stderr


@pytest.mark.parametrize("last", ["edge-2", "blueprints"])
def test_what_a_run_does_not_hold_waits_for_the_next_run_and_for_no_person(
    world: World, monkeypatch: pytest.MonkeyPatch, last: str
) -> None:
    """Whichever repository comes last in the order of addresses."""
    (world.root / f"{last}.git").rename(world.root / "last.git")
    with world.edit("control", "Read it last") as copy:
        place = copy / f"manifests/repositories/{last}.yaml"
        place.write_text(place.read_text().replace(f"{last}.git", "last.git"))
    world.publish()
    # A package that differs from another in its values alone takes no memory of its own.
    with world.edit("last" if last == "edge-2" else "edge-2", "Write a note") as copy:
        (copy / "web/note.md").write_text("by hand\n")
    with world.edit("control", "Move to v2") as copy:
        for edge in ("edge-1", "edge-2"):
            (copy / manifest(edge, "web")).write_text(variant(edge, "web", revision=2))
    monkeypatch.setenv("RECONCILER_LIMITS_RUN_BYTES", "1800")

    first = world.run("apply")
    second = world.run("apply")

    assert (first.code, second.code) == (6, 0), first.out
    assert first.out.count("NotInThisRun") == 1
    assert "limits.runBytes" in first.out
    assert "InvalidPackage" not in first.out
    assert first.out.count("drafts/web/packagevariant-2") == 1
    assert second.out.count("drafts/web/packagevariant-3") == 1  # the note is v2
