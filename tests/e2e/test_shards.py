"""Several shards together do exactly what one run does, one after the other and side by side."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Collection
from pathlib import Path

import pytest

from reconciler.inventory.shard import shard_of
from reconciler.names.ids import normalise_url
from tests.e2e.test_check import run
from tests.support import records
from tests.support.git import Repo
from tests.support.shards import shard_in, split_root
from tests.support.small_world import manifest, variant, write_world

pytestmark = pytest.mark.slow

EDGES = tuple(f"edge-{n}" for n in range(1, 8))
MACHINE = "refs/heads/reconciler/fleet/"


def everything(root: Path) -> dict[str, object]:
    """Return every ref, and of machine-owned branches the content: their history is each run's own."""
    found: dict[str, object] = {}
    for path in sorted(root.glob("*.git")):
        repo = Repo(path)
        for ref, oid in repo.refs().items():
            found[f"{path.name} {ref}"] = repo.tree(ref) if ref.startswith(MACHINE) else oid
    return found


def story(root: Path, shards: int) -> list[dict[str, object]]:
    """Return what stands after each step: drafts, one published and one removed, one moved, one refused."""
    control, steps = Repo(root / "control.git"), []
    apply(root, shards)
    steps.append(everything(root))
    Repo(root / "edge-1.git").merge("drafts/web/packagevariant-1", how="squash")
    control.commit({manifest("edge-1", "web"): None, manifest("edge-2", "db"): None})
    apply(root, shards)
    steps.append(everything(root))
    Repo(root / "edge-3.git").merge("drafts/web/packagevariant-1", how="squash")
    moved = variant("edge-3", "web").replace("repo: edge-3", "repo: edge-4").replace("e: web\n", "e: web-2\n")
    control.commit({manifest("edge-3", "web"): moved.replace("package: web-2", "package: web", 1)})
    apply(root, shards)
    steps.append(everything(root))
    refuse = root / "edge-5.git" / "hooks" / "pre-receive"
    refuse.parent.mkdir(exist_ok=True)
    refuse.write_text("#!/bin/sh\nexit 1\n")
    refuse.chmod(0o755)
    control.commit({manifest("edge-5", "web"): variant("edge-5", "web", revision=2)})
    apply(root, shards, codes={0, 4})
    steps.append(everything(root))
    return steps


def apply(root: Path, shards: int, *options: str, codes: Collection[int] = (0,)) -> None:
    for index in range(shards):
        ran = run(root, "apply", "--control", "control.git", "--shard", f"{index}/{shards}", *options)
        assert ran.code in codes, ran


@pytest.mark.parametrize("shards", [2, 3])
def test_shards_one_after_the_other_equal_one_run(tmp_path: Path, shards: int) -> None:
    at = tmp_path / "w"
    write_world(at, EDGES)
    one = story(at, 1)
    at.rename(tmp_path / "one")
    write_world(at, EDGES)

    assert story(at, shards) == one


def test_shards_side_by_side_equal_one_run(tmp_path: Path) -> None:
    at = tmp_path / "w"
    write_world(at, EDGES)
    apply(at, 1)
    one = everything(at)
    at.rename(tmp_path / "one")
    write_world(at, EDGES)
    runs = [start(at, tmp_path, index) for index in range(4)]

    ended = [(job.communicate()[1], job.returncode) for job in runs]

    assert [code for _, code in ended] == [0] * 4, ended
    assert everything(at) == one


def start(at: Path, caches: Path, index: int) -> subprocess.Popen[str]:
    """Start one of four shards as a process of its own, as an Indexed Job does."""
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "reconciler.cli.main"),
            *("apply", "--control", "control.git", "--shard", "auto/4"),
        ],
        cwd=at,
        env={
            "PATH": "/usr/bin:/bin",
            "JOB_COMPLETION_INDEX": str(index),
            "XDG_CACHE_HOME": str(caches / f"c{index}"),
        },
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def test_a_killed_shard_delays_only_its_own_repositories(tmp_path: Path) -> None:
    at = tmp_path / "w"
    write_world(at, EDGES)
    apply(at, 1)
    one = everything(at)
    at.rename(tmp_path / "one")
    write_world(at, EDGES)
    killed = shard_of(normalise_url(f"{at}/edge-1.git"), 4)
    own = {f"{edge}.git" for edge in EDGES if shard_of(normalise_url(f"{at}/{edge}.git"), 4) == killed}
    hook, reached = at / "edge-1.git/hooks/pre-receive", tmp_path / "reached"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {reached}\nsleep 5\nexit 1\n")
    hook.chmod(0o755)

    runs = {index: start(at, tmp_path, index) for index in range(4)}
    while not reached.exists():
        assert runs[killed].poll() is None
        time.sleep(0.05)
    os.killpg(runs[killed].pid, signal.SIGKILL)
    ended = {index: (job.communicate()[1], job.returncode) for index, job in runs.items()}

    assert {index: code for index, (_, code) in ended.items()} == {**dict.fromkeys(range(4), 0), killed: -9}
    assert {name: oid for name, oid in drafts(everything(at)).items() if name.split()[0] not in own} == {
        name: oid for name, oid in drafts(one).items() if name.split()[0] not in own
    }
    assert not any(name.startswith("edge-1.git") for name in drafts(everything(at)))
    hook.unlink()
    again = start(at, tmp_path, killed)
    assert (again.communicate()[1], again.returncode) == ("", 0)
    assert everything(at) == one


def drafts(refs: dict[str, object]) -> dict[str, object]:
    """Return the refs of drafts."""
    return {name: oid for name, oid in refs.items() if " refs/heads/drafts/" in name}


@pytest.mark.parametrize("last", [True, False], ids=["after", "before"])
def test_a_shard_keeps_the_records_of_others(tmp_path: Path, last: bool) -> None:
    """A record is a finalizer: what another shard could not do yet must not look done."""
    root = split_root(tmp_path, *EDGES[:2])
    write_world(root, EDGES)
    control = Repo(root / "control.git")
    written = control.read("main", "reconciler.yaml").decode()
    control.commit({"reconciler.yaml": f"{written}  deletions: {{share: 1.0}}\n"})
    apply(root, 2)
    theirs = next(edge for edge in EDGES if shard_in(root, edge) == 1)
    Repo(root / f"{theirs}.git").merge("drafts/web/packagevariant-1", how="squash")
    apply(root, 2)
    before = recorded(root, theirs)
    refuse = root / f"{theirs}.git" / "hooks" / "pre-receive"
    refuse.parent.mkdir(exist_ok=True)
    refuse.write_text("#!/bin/sh\nexit 1\n")
    refuse.chmod(0o755)
    Repo(root / "control.git").commit(
        {manifest(theirs, "web"): None, manifest(theirs, "db"): None}
        | {manifest(edge, "db"): None for edge in EDGES if edge != theirs}
    )

    codes = {
        part: run(root, "apply", "--control", "control.git", "--shard", f"{part}/2").code
        for part in ((1, 0) if last else (0, 1))
    }

    assert codes == {0: 0, 1: 4}
    assert len(before) == 2
    assert recorded(root, theirs) == before


def recorded(root: Path, edge: str) -> dict[str, bytes]:
    """Return the records of one repository's variants, by their paths on the state branch."""
    found = records.recorded(root / "control.git")
    return {path: data for path, data in found.items() if path.endswith(f"-{edge}.json")}
