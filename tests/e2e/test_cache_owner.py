"""Only the user that applies may write the cache: others are refused, or left out by what writes nothing."""

import os
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from reconciler.base.errors import Exit
from tests.support.command_server import run_reconciler
from tests.support.small_world import write_world
from tests.support.world import refs

EDGES = ("edge-1", "edge-2")
OTHER = 12345
is_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_world(tmp_path / "world", EDGES)
    return tmp_path / "world"


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def run(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command with the cache `cache`, under the umask of this process."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("GITHUB_", "RECONCILER_"))
    }
    environment = {**kept, "RECONCILER_CACHE_DIR": str(root / "cache")}
    return run_reconciler([*arguments, "--control", "control.git"], cwd=root, env=environment)


def is_written(root: Path) -> bool:
    return any("/drafts/" in ref for edge in EDGES for ref in refs(root / f"{edge}.git"))


def test_a_cache_that_others_may_write_is_refused(root: Path) -> None:
    assert run(root, "plan").returncode == Exit.DONE
    (root / "cache").chmod(0o770)

    for command in (["apply"], ["approve", "--all"], ["lock"]):
        done = run(root, *command)
        assert done.returncode == Exit.REFUSED, (command, done)
        assert "may be written by" in done.stderr
        assert "--cache-dir" in done.stderr
    assert not is_written(root)

    planned = run(root, "plan")
    assert planned.returncode == Exit.DONE, planned
    assert "4 to create" in planned.stdout
    assert "note: " in planned.stderr
    assert "uses a temporary one" in planned.stderr


@is_root
@pytest.mark.parametrize("below", ["", "functions", "functions/x"])
def test_a_cache_of_another_user_is_refused(below: str, root: Path) -> None:
    assert run(root, "plan").returncode == Exit.DONE
    file = root / "cache" / below
    file.mkdir(parents=True, exist_ok=True)
    for each in (file, file.parent) if "/" in below else (file,):
        os.chown(each, OTHER, OTHER)

    done = run(root, "apply")
    planned = run(root, "plan")

    assert done.returncode == Exit.REFUSED, done
    assert f"belongs to another user ({OTHER})" in done.stderr
    assert not is_written(root)
    assert planned.returncode == Exit.DONE
    assert "uses a temporary one" in planned.stderr


@pytest.mark.parametrize("mask", [0o002, 0o022, 0o077, 0o000])
def test_the_cache_that_a_run_makes_is_its_user_s_whatever_the_umask(mask: int, root: Path) -> None:
    with umask(mask):
        for _ in range(3):
            assert run(root, "apply").returncode == Exit.DONE
    cache = root / "cache"

    assert stat.S_IMODE(cache.stat().st_mode) == 0o700
    directories = [path for path in cache.iterdir() if path.is_dir()]
    assert [path for path in directories if path.stat().st_mode & 0o022] == []
