"""A cluster publishes its snapshot with the two commands of the documentation, word for word, in a shell."""

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from reconciler.git.repository import Mirrors
from reconciler.git.working_copy import NewCommit, create_bare
from reconciler.inventory.snapshot import Snapshot as ClusterSnapshot
from reconciler.names.ids import GroupKind
from reconciler.policy import Policy
from reconciler.read.snapshot import read_snapshot
from tests.support.command_server import write_client
from tests.support.world import IDENTITY, git

DOCUMENT = Path(__file__).resolve().parents[2] / "docs/snapshot.md"
KINDS = "Cluster.example.com,Secret"
CANARY = "Y2FuYXJ5"
CONFIGURATION = "apiVersion: reconciler.dev/v1alpha1\nkind: Reconciler\nmetadata:\n  name: fleet\n"


def documented() -> list[str]:
    """Return the two commands."""
    (block,) = re.findall(r"^```sh\n(.*?)^```", DOCUMENT.read_text(), re.MULTILINE | re.DOTALL)
    commands: list[str] = block.splitlines()
    assert len(commands) == 2
    return commands


def cluster(name: str, namespace: str = "default") -> dict[str, Any]:
    metadata = {
        "name": name,
        "namespace": namespace,
        "resourceVersion": "7",
        "managedFields": [{"a": CANARY}],
    }
    return {"apiVersion": "example.com/v1", "kind": "Cluster", "metadata": metadata}


SECRET = {
    "apiVersion": "v1",
    "kind": "Secret",
    "metadata": {"name": "token", "namespace": "default"},
    "data": {"token": CANARY},
}


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A working copy of a control repository."""
    configuration = {"reconciler.yaml": CONFIGURATION.encode()}
    create_bare(tmp_path / "control.git", [NewCommit("Start", configuration, 1_767_225_600)])
    git(tmp_path, "clone", "-q", str(tmp_path / "control.git"), str(tmp_path / "copy"))
    return tmp_path / "copy"


def publish(copy: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    script = "set -eo pipefail\n" + "\n".join(documented())
    path = f"{write_client(copy.parent / 'bin')}:{os.environ['PATH']}"
    return subprocess.run(
        ["bash", "-c", script],
        cwd=copy,
        env={**os.environ, **IDENTITY, "KINDS": KINDS, "PATH": path, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def published(copy: Path) -> ClusterSnapshot:
    mirror = Mirrors(copy.parent / "cache").open(str(copy.parent / "control.git"))
    mirror.fetch()
    return read_snapshot(mirror, mirror.refs()["refs/heads/main"], Policy())


def names(snapshot: ClusterSnapshot) -> list[str]:
    return [f"{o.namespace}/{o.name}" for o in snapshot.of_kind("example.com/v1", "Cluster")]


class Kubectl:
    """A stand-in on the PATH that prints what kubectl would, for exactly the documented arguments."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(exist_ok=True)

    def prints(self, *items: dict[str, Any], code: int = 0) -> None:
        value = {"apiVersion": "v1", "items": items, "kind": "List", "metadata": {"resourceVersion": ""}}
        (self.directory / "objects.json").write_text(json.dumps(value, indent=4) if items or not code else "")
        script = f"""#!/bin/sh
        [ "$*" = "get {KINDS} -A -o json" ] || {{ echo "unexpected: $*" >&2; exit 9; }}
        cat {self.directory}/objects.json
        exit {code}
        """
        (self.directory / "kubectl").write_text(script)
        (self.directory / "kubectl").chmod(0o755)


@pytest.fixture
def kubectl(tmp_path: Path) -> Kubectl:
    return Kubectl(tmp_path / "bin")


def test_two_commands_publish_a_snapshot(copy: Path, kubectl: Kubectl) -> None:
    kubectl.prints(cluster("a"), cluster("b", "east"), SECRET)
    ran = publish(copy, {})

    assert ran.returncode == 0, ran.stderr
    assert "Cluster.example.com: 2 objects (before: 0)" in ran.stdout
    snapshot = published(copy)
    assert (names(snapshot), snapshot.cluster, snapshot.problems) == (
        ["default/a", "east/b"],
        "management",
        (),
    )
    assert snapshot.is_complete(GroupKind("example.com", "Cluster"), "default")
    assert snapshot.taken is not None
    stored = b"".join(p.read_bytes() for p in (copy / "snapshot").rglob("*.json"))
    assert CANARY.encode() not in stored


def test_the_last_object_can_go(copy: Path, kubectl: Kubectl) -> None:
    kubectl.prints(cluster("a"))
    publish(copy, {})
    kubectl.prints()
    ran = publish(copy, {})

    assert ran.returncode == 0, ran.stderr
    snapshot = published(copy)
    assert names(snapshot) == []
    assert snapshot.is_complete(GroupKind("example.com", "Cluster"), "default")


@pytest.mark.parametrize("items", [(), (SECRET,)], ids=["nothing printed", "a part printed"])
def test_a_list_that_failed_publishes_nothing(
    copy: Path, kubectl: Kubectl, items: tuple[dict[str, Any], ...]
) -> None:
    kubectl.prints(cluster("a"))
    publish(copy, {})
    before = git(copy.parent / "control.git", "rev-parse", "main")
    kubectl.prints(*items, code=1)
    ran = publish(copy, {})

    assert ran.returncode != 0
    assert git(copy.parent / "control.git", "rev-parse", "main") == before
    assert names(published(copy)) == ["default/a"]
