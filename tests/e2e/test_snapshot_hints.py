"""Hints for a missing snapshot or kind are commands: running them ends what they are about."""

import json
import re
import shlex
from pathlib import Path

import pytest

from reconciler.base.errors import Exit
from reconciler.cli.main import invoke
from tests.e2e.test_cluster_snapshots import CLUSTERS, SET, build, snapshot
from tests.support.world import World, git


def listed(kind: str, name: str) -> str:
    """Return what `kubectl get -A -o json` prints of one object."""
    item = {
        "apiVersion": "hr.example.com/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": "default", "uid": "u", "resourceVersion": "7"},
    }
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": [item]})


def publish(world: World, line: list[str], text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run an import in a working copy of the control repository, as a cluster does, and push."""
    world.clock += 60
    copy = world.root / "publisher"
    git(world.root, "clone", "-q", str(world.control), str(copy))
    (world.root / "objects.json").write_text(text)
    monkeypatch.chdir(copy)
    assert invoke([*line, str(world.root / "objects.json")]) == Exit.DONE
    git(copy, "add", "-A")
    git(copy, "commit", "-qm", "Snapshot", when=world.clock)
    git(copy, "push", "-q", "origin", "HEAD:main")


def test_command_of_the_hint_imports_the_missing_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {"manifests/teams.yaml": SET.format(clusters=CLUSTERS)}
    world = build(tmp_path / "w", {**files, **snapshot("edge-1", "red")})
    before = world.run("plan")
    assert before.code == Exit.INVALID_INPUT
    command = re.search(
        r"There is no snapshot in snapshot/edge-2: import one with `reconciler (.+?)`", before.out
    )
    assert command

    publish(world, shlex.split(command[1]), listed("Team", "blue"), monkeypatch)
    after = world.run("plan")

    assert after.code == Exit.DONE, after.out
    assert "create  edge-1/of-red" in after.out
    assert "create  edge-2/of-blue" in after.out


def test_option_of_the_hint_adds_the_missing_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = SET.format(clusters="    reconciler.dev/clusters: edge-1\n").replace("kind: Team", "kind: Squad")
    world = build(tmp_path / "w", {"manifests/squads.yaml": chosen, **snapshot("edge-1", "red")})
    before = world.run("plan")
    assert before.code == Exit.INVALID_INPUT
    option = re.search(r"or list the kind when the snapshot is imported: (--kinds [\w.]+)\.\n", before.out)
    assert option

    line = ["snapshot", "import", "--cluster", "edge-1", *option[1].split()]
    publish(world, line, listed("Squad", "blue"), monkeypatch)

    assert "create  edge-1/of-blue" in world.run("plan").out
