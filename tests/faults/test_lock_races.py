"""Two runs that lock one cluster at one moment: one wins, the other decides again, nothing is lost."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reconciler.git.working_copy import NewCommit, create_bare
from tests.faults.world import PROJECT
from tests.support.git import EPOCH, Repo
from tests.support.notes import note
from tests.support.small_world import CONFIGURATION

pytestmark = pytest.mark.slow

RACES = 100 if os.environ.get("RECONCILER_FAULTS") else 20
"""A hundred by `make faults`."""
LEAST_REJECTED = 0.3
STATE = "refs/heads/reconciler/fleet/state"
LOCK = "locks/dev.json"
PACKAGES = ("cache.io", "db.io")

SHOP = """apiVersion: packaging.carvel.dev/v1alpha1
kind: PackageInstall
metadata: {name: shop, namespace: shop}
spec: {packageRef: {refName: web.io, versionSelection: {constraints: 1.0.0}}}
"""


def version(name: str, number: int, *needs: str) -> dict[str, str]:
    """Return the index folder of one version of a package."""
    wanted = "".join(f"\n  - package: {{refName: {need}}}" for need in needs) or " []"
    text = (
        f"apiVersion: reconciler.dev/v1alpha1\nkind: PackageVersion\nsource: {name}\nversion: {number}.0.0\n"
        "---\napiVersion: data.packaging.carvel.dev/v1alpha1\nkind: Package\n"
        f"metadata: {{name: {name}.{number}.0.0}}\n"
        f"spec:\n  refName: {name}\n  version: {number}.0.0\n  dependencies:{wanted}\n"
    )
    return {f"index/{name}/{number}.0.0/package.yaml": text}


class Track:
    """A control repository, and a process that lets two runs race on it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        files = {"reconciler.yaml": CONFIGURATION, "manifests/clusters/dev/shop.yaml": SHOP}
        files |= version("web.io", 1, *PACKAGES) | version("cache.io", 1) | version("db.io", 1)
        data = {path: text.encode() for path, text in files.items()}
        create_bare(root / "control.git", [NewCommit("Start", data, EPOCH)])
        self.repo = Repo(root / "control.git")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.racer"],
            cwd=PROJECT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def race(self, *lines: tuple[str, ...]) -> list[dict[str, Any]]:
        """Run every line at once, each with a cache of its own."""
        assert self.process.stdin
        assert self.process.stdout
        places = ("--control", str(self.root / "control.git"))
        request = [
            [*line, *places, "--cache-dir", str(self.root / f"cache{number}")]
            for number, line in enumerate(lines)
        ]
        self.process.stdin.write(json.dumps({"lines": request}) + "\n")
        self.process.stdin.flush()
        answer: list[dict[str, Any]] = json.loads(self.process.stdout.readline())
        return answer

    def publish(self, number: int) -> None:
        """Publish a version of both packages, and keep no more than the one before."""
        changes: dict[str, Any] = {}
        for name in PACKAGES:
            changes |= version(name, number)
            if number > 2:
                changes |= dict.fromkeys(version(name, number - 2))
        self.repo.commit(changes)

    def locks(self) -> list[dict[str, Any]]:
        """Return the cluster's lock in every commit of the state branch, oldest first, with its pins."""
        found = []
        oid = self.repo.refs().get(STATE)
        while oid:
            commit = self.repo.git[oid]
            lock = json.loads(commit.tree[LOCK].data)
            body = commit.tree[f"locks/resolutions/{lock['resolution'].removeprefix('sha256:')}.json"]
            packages = json.loads(body.data)["packages"]
            found.append({**lock, "pins": {p["instance"]["name"]: p["version"] for p in packages}})
            oid = str(commit.parent_ids[0]) if commit.parent_ids else ""
        return found[::-1]

    def stop(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait(10)
        assert self.process.stdout
        self.process.stdout.close()


@pytest.fixture
def track(tmp_path: Path) -> Iterator[Track]:
    made = Track(tmp_path)
    yield made
    made.stop()


def test_races_lose_no_upgrade_and_no_generation(track: Track) -> None:
    first = track.race(("lock",))
    assert [one["code"] for one in first] == [0], first
    rejected = 0

    for number in range(2, RACES + 2):
        track.publish(number)
        both = track.race(*(("lock", "--upgrade", name) for name in PACKAGES))
        assert [one["code"] for one in both] == [0, 0], both
        rejected += sum(one["pushes"] - 1 for one in both)
        assert track.locks()[-1]["pins"] == {"web.io": "1.0.0"} | dict.fromkeys(PACKAGES, f"{number}.0.0")

    note(f"{RACES} races of two processes for one lock: {rejected} pushes rejected")
    assert [lock["generation"] for lock in track.locks()] == list(range(1, 2 * RACES + 2))
    assert rejected >= LEAST_REJECTED * RACES


def test_two_runs_that_decide_the_same_write_it_once(track: Track) -> None:
    both = track.race(("lock",), ("lock",))

    assert [one["code"] for one in both] == [0, 0], both
    assert [lock["generation"] for lock in track.locks()] == [1]
