"""A server without disk space or descriptors is unavailable: it refuses nothing, and nobody was faster."""

from pathlib import Path

import pytest

from reconciler.base.errors import Exit
from tests.faults.world import FaultWorld, Runner, make_world
from tests.support.small_world import EDGES

pytestmark = pytest.mark.slow

WORDS = {
    "full disk": "error: remote unpack failed: unable to create temporary file: No space left on device",
    "quota": "fatal: unable to write loose object file: Disk quota exceeded",
    "descriptors": "error: cannot lock ref 'refs/heads/x': unable to create lock: Too many open files",
    "read only": "error: cannot lock ref 'refs/heads/x': Read-only file system",
}


@pytest.fixture
def world(tmp_path: Path) -> FaultWorld:
    return make_world(tmp_path / "w", Runner(tmp_path / "points"), EDGES[:2])


@pytest.mark.parametrize("limit", list(WORDS))
def test_a_server_at_its_limits_is_unavailable_and_the_others_proceed(limit: str, world: FaultWorld) -> None:
    hook = world.root / "edge-1.git" / "hooks" / "pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f'#!/bin/sh\necho "{WORDS[limit]}" >&2\nexit 1\n')
    hook.chmod(0o755)

    ran = world.run("apply", "--output", "json")
    errors = [effect for effect in ran.effects if effect["error"]]

    assert ran.code == Exit.UNAVAILABLE
    assert {effect["repository"] for effect in errors} == {"edge-1"}
    assert not any("moved" in effect["error"] or "refuses" in effect["error"] for effect in errors)
    assert all(effect["hint"] for effect in errors)
    assert "refs/heads/drafts/web/packagevariant-1" in world.refs()["edge-2.git"]
    hook.unlink()
    assert world.run("apply").code == Exit.DONE
    assert "refs/heads/drafts/web/packagevariant-1" in world.refs()["edge-1.git"]
