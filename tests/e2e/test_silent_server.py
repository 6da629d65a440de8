"""A server that accepts connections and never answers costs the packages of its own repository only."""

import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from reconciler.cli.main import invoke
from tests.support.small_world import write_world
from tests.support.world import World, refs

READ_S = 2
SILENT = """\
apiVersion: config.porch.kpt.dev/v1alpha1
kind: Repository
metadata:
  name: silent-{number}
  namespace: default
spec:
  type: git
  git:
    repo: {scheme}127.0.0.1:{port}/silent-{number}.git
    branch: main
"""


@pytest.fixture
def port() -> Iterator[int]:
    """Accept connections, by the kernel's queue, and never answer."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(64)
        yield server.getsockname()[1]


@pytest.mark.parametrize("scheme", ["http://", pytest.param("ssh://git@", marks=pytest.mark.needs("ssh"))])
def test_silent_servers_cost_one_deadline_and_everything_else_is_written(
    tmp_path: Path, port: int, monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    monkeypatch.setenv("RECONCILER_LIMITS_READ_SECONDS", str(READ_S))
    world = World(tmp_path / "world")
    silent = {
        f"manifests/silent-{n}.yaml": SILENT.format(number=n, port=port, scheme=scheme) for n in range(4)
    }
    write_world(world.root, more=silent)

    begun = time.monotonic()
    applied = world.run("apply")
    seconds = time.monotonic() - begun

    assert applied.code == 5, applied
    for number in range(4):
        lines = [line for line in (applied.out + applied.err).splitlines() if f"silent-{number}.git" in line]
        assert len(lines) == 1, applied
    assert "limits.readSeconds" in applied.out + applied.err
    for edge in ("edge-1", "edge-2", "edge-3"):
        assert any("drafts/web/" in ref for ref in refs(world.root / f"{edge}.git"))
    # Four servers are waited for side by side; what is left is the run itself on a busy machine.
    assert seconds < READ_S * 4 + 60 * int(os.environ.get("RECONCILER_SLOW", "1"))


def test_silent_control_repository_costs_the_deadline_of_the_environment(
    tmp_path: Path, port: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its configuration cannot say how long to wait for it."""
    monkeypatch.setenv("RECONCILER_LIMITS_READ_SECONDS", "1")
    address = f"http://127.0.0.1:{port}/control.git"

    code = invoke(["plan", "--control", address, "--cache-dir", str(tmp_path / "cache")])

    assert code == 5
    error = capsys.readouterr().err
    assert "no answer within 1 s" in error
    assert "raise limits.readSeconds" in error
