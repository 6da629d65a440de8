"""Repositories whose objects have SHA-256 names are called that, and cost themselves only."""

import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from reconciler.base.errors import Exit
from tests.support.command_server import run_reconciler
from tests.support.http_git import serve
from tests.support.small_world import repository, write_world
from tests.support.world import World, refs

WORDS = "uses SHA-256 object names, which are not supported"


def git(*arguments: str, cwd: Path | None = None) -> None:
    person = ("-c", "user.name=Kim", "-c", "user.email=kim@example.com")
    subprocess.run(["git", *person, *arguments], cwd=cwd, check=True, capture_output=True)


def convert(path: Path, *, is_empty: bool = False) -> None:
    """Replace a bare repository by one with SHA-256 names and the same content."""
    old = path.with_name(f"{path.name}.old")
    if path.exists():
        path.rename(old)
    git("init", "-q", "--bare", "-b", "main", "--object-format=sha256", str(path))
    if not is_empty:
        content = subprocess.run(
            ["git", "fast-export", "--all"], cwd=old, check=True, stdout=subprocess.PIPE
        ).stdout
        subprocess.run(["git", "fast-import", "--quiet"], cwd=path, check=True, input=content)
    git("update-server-info", cwd=path)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return write_world(tmp_path / "world")


def has_draft(world: World, edge: str) -> bool:
    return any("drafts/web/" in ref for ref in refs(world.root / f"{edge}.git"))


@pytest.mark.parametrize("is_empty", [False, True], ids=["with commits", "empty"])
def test_a_downstream_on_this_machine_costs_itself(world: World, *, is_empty: bool) -> None:
    convert(world.root / "edge-2.git", is_empty=is_empty)

    applied = world.run("apply")

    assert applied.code == Exit.UNAVAILABLE, applied
    assert f"edge-2.git {WORDS}" in applied.out + applied.err
    assert [has_draft(world, edge) for edge in ("edge-1", "edge-3")] == [True, True]


def test_an_upstream_and_the_control_repository_are_named(world: World) -> None:
    convert(world.root / "blueprints.git")
    planned = world.run("plan")
    assert planned.code == Exit.UNAVAILABLE
    assert f"blueprints.git {WORDS}" in planned.out + planned.err

    convert(world.root / "control.git")
    planned = world.run("plan")
    assert planned.code == Exit.UNAVAILABLE
    assert f"error: {world.root / 'control.git'} {WORDS}" in planned.err


@contextmanager
def dumb(root: Path) -> Iterator[str]:
    """Serve files as they are: Git's dumb protocol."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(root))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize("role", ["blueprints", "edge-2"])
@pytest.mark.parametrize("server", ["smart", "dumb"])
def test_a_repository_of_a_server_is_named(role: str, server: str, world: World) -> None:
    convert(world.root / f"{role}.git")
    with serve(world.root) as http, dumb(world.root) as files:
        address = f"{http.address if server == 'smart' else files}/{role}.git"
        with world.edit("control", "Read it from a server") as copy:
            file = copy / "manifests" / "repositories" / f"{role}.yaml"
            file.write_text(repository(role).replace(f"../{role}.git", address))

        applied = world.run("apply")
        options = ["--control", f"{http.address}/{role}.git", "--cache-dir", str(world.root / "other-cache")]
        control = run_reconciler(["plan", *options], cwd=world.root)

    assert applied.code == Exit.UNAVAILABLE, applied
    assert f"{address} {WORDS}" in applied.out + applied.err
    assert has_draft(world, "edge-1") is (role != "blueprints")
    assert control.returncode == Exit.UNAVAILABLE, control
    assert f"{role}.git {WORDS}" in control.stderr
