"""Digests of function images in the lock: pulled once, kept by every run, and what says which code runs."""

import json
from pathlib import Path

import pytest

from reconciler.cli.main import invoke
from tests.support.schema import output_violations
from tests.support.small_world import app, manifest, variant, write_fleet
from tests.support.world import World, git

DIGEST = "sha256:" + "6f" * 32
IMAGE = "example.com/acme/rename:v1"
LOCK = "locks/functions/images.json"
ENGINE = f"""#!/bin/sh
# A stand-in for a container engine: it has one image, which renames a ConfigMap.
PATH=/usr/bin:/bin
case "$1 $2 $*" in
pull*) ;;
"image inspect "*RepoDigests*) printf 'example.com/acme/rename@{DIGEST}\\nid:1\\n' ;;
"image inspect "*{DIGEST}) echo 1 ;;
run*{DIGEST}) sed 's/^    name: web$/    name: renamed/' ;;
*) exit 1 ;;
esac
"""
KPTFILE = (
    "apiVersion: kpt.dev/v1\nkind: Kptfile\nmetadata:\n  name: web\n"
    f"pipeline:\n  mutators:\n  - image: {IMAGE}\n"
)
CONFIGURATION = (
    "apiVersion: reconciler.dev/v1alpha1\nkind: Reconciler\nmetadata:\n  name: fleet\n"
    "spec:\n  functions:\n    runtime: podman\n"
)
REVIEWED = CONFIGURATION + "  lock:\n    mode: reviewed\n"


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """One edge with a package that needs an image, on a machine whose engine has it."""
    (tmp_path / "bin").mkdir()
    engine = tmp_path / "bin/podman"
    engine.write_text(ENGINE)
    engine.chmod(0o755)
    monkeypatch.setenv("PATH", str(engine.parent), prepend=":")
    revision = {"Kptfile": KPTFILE, "app.yaml": app("web", 1)}
    files = {manifest("edge-1", "web"): variant("edge-1", "web")}
    return write_fleet(tmp_path / "w", "web", [revision], ["edge-1"], files, configuration=CONFIGURATION)


def locked(world: World, branch: str = "reconciler/fleet/state") -> dict[str, str]:
    images = json.loads(git(world.control, "show", f"{branch}:{LOCK}"))["images"]
    assert isinstance(images, dict)
    return images


def unready(world: World) -> list[str]:
    said = world.run("plan", "--output", "json")
    assert said.out, said.err
    (change,) = json.loads(said.out)["changes"]
    return list(change["unready"])


def drafted(world: World) -> str:
    return git(world.root / "edge-1.git", "show", "drafts/web/packagevariant-1:web/app.yaml")


def test_what_is_pulled_is_locked_runs_and_stays(world: World) -> None:
    before = unready(world)
    pulled = world.run("functions", "pull", IMAGE, "-o", "json")
    assert output_violations("Images", pulled.out) == []
    applied = world.run("apply")
    settled = world.all_refs()
    again = world.run("apply")

    assert "not pinned" in before[0]
    assert pulled.code == 0, pulled.err
    assert applied.code == 0, applied.out + applied.err
    assert "  name: renamed\n" in drafted(world)
    assert locked(world) == {IMAGE: DIGEST}
    assert again.code == 0
    assert world.all_refs() == settled


def test_a_reviewed_lock_is_written_to_the_working_copy_and_counts_once_merged(world: World) -> None:
    with world.edit("control", "Review the lock") as directory:
        (directory / "reconciler.yaml").write_text(REVIEWED)
    refused = world.run("functions", "pull", IMAGE)
    with world.edit("control", "Pin the image") as directory:
        pulled = _pull_into(directory, world)
        written = json.loads((directory / LOCK).read_text())["images"]
    applied = world.run("apply")
    settled = world.all_refs()

    assert refused.code == 2
    assert "no working copy" in refused.err
    assert pulled == 0
    assert written == {IMAGE: DIGEST}
    assert applied.code in (0, 7), applied.out + applied.err
    assert "  name: renamed\n" in drafted(world)
    world.run("apply")
    assert world.all_refs() == settled
    assert locked(world, "main") == {IMAGE: DIGEST}


def _pull_into(directory: Path, world: World) -> int:
    cache = str(world.root / "cache")
    return invoke(["functions", "pull", IMAGE, "--control", str(directory), "--cache-dir", cache])
