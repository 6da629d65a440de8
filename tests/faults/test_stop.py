"""SIGTERM, as a cluster stops a pod: the effect under way is finished, none begins, what is left is said."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from reconciler.base import effects
from reconciler.base.errors import Exit
from tests.support.forges.server import Answer
from tests.support.forges.world import forge_world
from tests.support.git import Repo
from tests.support.records import recorded
from tests.support.small_world import repository, write_world

pytestmark = pytest.mark.slow

EDGES = tuple(f"edge-{n}" for n in range(1, 8))
AT_ONCE = 4
_PATIENCE_S = 60.0


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_world(tmp_path / "w", EDGES)
    control = Repo(tmp_path / "w/control.git")
    text = control.read("main", "reconciler.yaml").decode()
    control.commit({"reconciler.yaml": f"{text}  limits: {{repositoriesAtOnce: {AT_ONCE}}}\n"})
    return tmp_path / "w"


@contextmanager
def running(root: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run the command line as a process of its own; it does not outlive the block."""
    command = [sys.executable, "-m", "reconciler.cli.main", *arguments, "--control", "control.git"]
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("GITHUB_", "CI_", "RECONCILER_"))}
    process = subprocess.Popen(
        command,
        cwd=root,
        env={**environment, "XDG_CACHE_HOME": str(root / "cache")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def hold_pushes(root: Path) -> tuple[Path, Path]:
    """Let every push say that it arrived, and wait until it may go on."""
    here, go = root / "here", root / "go"
    here.mkdir()
    for edge in EDGES:
        hook = root / f"{edge}.git" / "hooks" / "pre-receive"
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(f"#!/bin/sh\ntouch {here}/{edge}\nwhile ! test -e {go}; do sleep 0.05; done\n")
        hook.chmod(0o755)
    return here, go


def wait(until: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    end = time.monotonic() + _PATIENCE_S
    while not until():
        if process.poll() is not None or time.monotonic() > end:
            assert process.stdout is not None
            process.kill()
            raise AssertionError(f"it did not come to that: {process.stdout.read()}")
        time.sleep(0.02)


def stop(process: subprocess.Popen[str]) -> None:
    """Send SIGTERM, and wait until the process tells that it has noticed."""
    assert process.stdout is not None
    process.send_signal(signal.SIGTERM)
    while "note: Stopping: " not in (line := process.stdout.readline()):
        assert line, "it ended, and did not tell that it stops"


def drafts(root: Path) -> set[str]:
    """Return the repositories that have any draft."""
    return {edge for edge in EDGES if any("/drafts/" in ref for ref in Repo(root / f"{edge}.git").refs())}


def test_a_stopped_apply_ends_between_two_effects_and_the_next_one_goes_on(root: Path) -> None:
    here, go = hold_pushes(root)
    with running(root, "apply") as stopped:
        wait(lambda: len(list(here.iterdir())) == AT_ONCE, stopped)
        stop(stopped)
        go.touch()
        said, _ = stopped.communicate(timeout=_PATIENCE_S)

    assert stopped.returncode == Exit.PARTIAL, said
    assert len(drafts(root)) == AT_ONCE
    assert "3 repositories: 6 changes left: The run was stopped by a signal" in said
    variants = [path for path in recorded(root / "control.git") if path.startswith("packagevariants/")]
    assert len(variants) == 2 * AT_ONCE

    with running(root, "apply") as again:
        rest, _ = again.communicate(timeout=_PATIENCE_S)
    assert again.returncode == Exit.DONE, rest
    assert drafts(root) == set(EDGES)
    with running(root, "plan", "--detailed-exitcode") as nothing:
        left, _ = nothing.communicate(timeout=_PATIENCE_S)
    assert nothing.returncode == Exit.DONE, left


def test_a_run_that_still_reads_ends_at_once_and_has_written_nothing(root: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}/edge.git"
        deaf = repository("deaf").replace("../deaf.git", address)
        Repo(root / "control.git").commit({"manifests/repositories/deaf.yaml": deaf})
        before = {path.name: Repo(path).refs() for path in root.glob("*.git")}
        with running(root, "apply") as stopped:
            silent.settimeout(_PATIENCE_S)
            connection, _ = silent.accept()
            stopped.send_signal(signal.SIGTERM)
            began = time.monotonic()
            said, _ = stopped.communicate(timeout=_PATIENCE_S)
            connection.close()

    assert stopped.returncode == Exit.PARTIAL, said
    assert "The run was stopped by a signal" in said
    assert time.monotonic() - began < 20
    assert {path.name: Repo(path).refs() for path in root.glob("*.git")} == before


def test_pull_requests_that_were_not_opened_are_left_to_the_next_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(effects, "requested", effects.Flag())
    with forge_world("github", tmp_path / "forge", monkeypatch, edges=["edge-1"]) as world:
        answer = world.simulator.answer

        def stopping_at_the_first(method: str, path: str, query: dict[str, str], body: object) -> Answer:
            if method == "POST" and path.endswith("/pulls"):
                effects.request_shutdown()
            return answer(method, path, query, body)

        world.simulator.answer = stopping_at_the_first  # type: ignore[method-assign]
        first = world.run()
        said = [effect.error for effect in first.outcome.effects if effect.error]

        assert first.code is Exit.PARTIAL
        assert len(world.pulls("edge-1")) == 1
        assert any("1 pull request is left: The run was stopped by a signal" in error for error in said)

        monkeypatch.setattr(effects, "requested", effects.Flag())
        world.simulator.answer = answer  # type: ignore[method-assign]
        assert world.run().code is Exit.DONE
        assert len(world.open_heads()) == 2
        assert world.run().plan.is_empty
