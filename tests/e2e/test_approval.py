"""Approval by policy in Git alone: the local forge merges what a rule lets pass, and nothing else."""

import re
from pathlib import Path

import pytest

from reconciler.base.errors import Exit
from tests.support.git import Repo
from tests.support.small_world import CONFIGURATION, manifest, write_world
from tests.support.world import World, git

EDGE = ("edge-1",)


def make_world(root: Path, rule: str) -> World:
    return write_world(
        root, EDGE, more={"reconciler.yaml": f"{CONFIGURATION}  approval:\n    auto:\n    - {rule}\n"}
    )


def edge(world: World) -> Repo:
    return Repo(world.root / "edge-1.git")


def tags(world: World) -> set[str]:
    return {ref for ref in edge(world).refs() if ref.startswith("refs/tags/")}


def test_a_required_check_never_passes_where_nobody_runs_checks(tmp_path: Path) -> None:
    world = make_world(tmp_path / "w", "{checks: [ci]}")
    world.run("apply")

    assert "Nothing was written" in world.run("apply").out
    assert tags(world) == set()


def test_a_deletion_is_never_approved(tmp_path: Path) -> None:
    world = make_world(tmp_path / "w", "{}")
    for _ in range(3):
        world.run("apply")
    Repo(world.control, time=1_767_400_000).commit({manifest("edge-1", "web"): None}, message="Gone\n")
    world.run("apply")

    assert "in review" in world.run("apply").out
    assert edge(world).read("main", "web/Kptfile")


_NO_YAML = "a: [\n: }"
_NO_OWNER = "without the line of the owner"
_WRONG_PIPELINE = """\
pipeline:
  mutators:
  - image: ghcr.io/kptdev/krm-functions-catalog/set-namespace:v0.4.1
    configMap: {nothing: x}
"""


@pytest.mark.parametrize(
    ("file", "text", "why"),
    [
        ("app.yaml", _NO_YAML, "app.yaml, which had resources before, is broken"),
        ("Kptfile", _NO_YAML, "and its Kptfile cannot be read"),
        ("Kptfile", _WRONG_PIPELINE, "data.nothing is no field of set-namespace"),
        ("Kptfile", _NO_OWNER, "is no package of ours: Package web in repository edge-1 exists"),
        ("link.yaml", "/etc/passwd", "could not be read: link.yaml: in the target of the link"),
    ],
    ids=["a file of resources", "the Kptfile", "the pipeline", "the owner", "a link out of it"],
)
def test_a_draft_that_a_person_broke_is_approved_by_nobody(
    tmp_path: Path, file: str, text: str, why: str
) -> None:
    world = make_world(tmp_path / "w", "{edited: true}")
    world.run("apply")
    branch = world.draft_branch("edge-1", "web")
    with world.edit("edge-1", "Break it", branch=branch) as copy:
        path = copy / "web" / file
        if text.startswith("/"):
            path.symlink_to(text)
        elif text == _NO_OWNER:
            path.write_text(re.sub(".*reconciler.dev/owner.*\n", "", path.read_text()))
        else:
            path.write_text(text if text == _NO_YAML else f"{path.read_text()}{text}")
    for _ in range(2):
        world.run("apply")

    refused = world.run("approve", "--all")

    assert refused.code == Exit.REFUSED
    assert why in refused.out
    assert tags(world) == {"refs/tags/db/v1"}


def test_a_draft_that_a_person_broke_has_one_reason_and_the_step_that_mends_it(tmp_path: Path) -> None:
    world = make_world(tmp_path / "w", "{}")
    world.run("apply")
    branch = world.draft_branch("edge-1", "web")
    with world.edit("edge-1", "Break it", branch=branch) as copy:
        (copy / "web/app.yaml").write_text(_NO_YAML)
    world.run("apply")

    forms = [["plan"], ["explain", "edge-1/web"], ["status", "-o", "csv"], ["status", "-o", "json"]]
    page = tmp_path / "page.html"
    texts = [world.run(*form).out for form in forms]
    world.run("status", "--html", str(page))

    assert ["PipelineFailed" in text for text in (*texts, page.read_text())] == [True] * 5
    assert ["DraftEdited" in text for text in (*texts, page.read_text())] == [False] * 5
    hint = world.run("approve", "edge-1/web").out
    assert f"hint: Correct what people committed to {branch}, or the pipeline or its inputs, and run" in hint
    assert f"`git log -p origin/main..origin/{branch}` in a clone shows it." in hint


@pytest.mark.parametrize("grouped", ["package", "repository"])
def test_plan_tells_that_the_local_forge_merges_no_file_beside_packages(tmp_path: Path, grouped: str) -> None:
    world = make_world(tmp_path / "w", f"{{edited: true}}\n  pullRequests:\n    groupBy: {grouped}")
    world.run("apply")
    branch = world.draft_branch("edge-1", "web")
    edge(world).commit({"NOTES.md": "mine\n", "web/notes.txt": "mine\n"}, branch=branch)

    told, done = world.run("plan").out, world.run("apply")

    assert re.search(r"edge-1/web +MergeRefused .*NOTES.md.* Remove that change", told)
    assert (done.code, "failed:" in done.out, "refs/tags/web/v1" in tags(world)) == (7, False, False)
    edge(world).commit({"NOTES.md": None}, branch=branch)
    assert world.run("apply").code == Exit.DONE
    assert edge(world).read("main", "web/notes.txt")


def test_everything_is_what_this_instance_owns(tmp_path: Path) -> None:
    world = write_world(tmp_path / "w", EDGE)
    world.run("apply")
    text = git(world.control, "show", "main:reconciler.yaml").replace("fleet", "other")
    gone = {manifest("edge-1", package): None for package in ("web", "db")}
    Repo(world.control).commit({"reconciler.yaml": text, **gone})

    listed, said = world.run("pr", "list").out, world.run("approve", "--all")

    assert listed.count("belongs to instance fleet") == 2
    assert (said.code, said.out) == (Exit.DONE, "Nothing of this instance is open.\n")
    assert "edge-1/web, belongs to instance fleet and is left; name it to approve it" in said.err
    assert tags(world) == set()
    assert world.run("approve", "edge-1/web").code == Exit.DONE
    assert tags(world) == {"refs/tags/web/v1"}


def test_repositories_are_pushed_to_side_by_side(tmp_path: Path) -> None:
    """A server that waits for the others keeps none of them waiting; results keep their order."""
    clusters = ("edge-1", "edge-2", "edge-3")
    world = write_world(tmp_path / "w", clusters)
    world.run("apply")
    for name in clusters:
        hook = world.root / f"{name}.git/hooks/pre-receive"
        hook.parent.mkdir(exist_ok=True)
        others = " ".join(f"[ -e ../at-{each} ] &&" for each in clusters)
        hook.write_text(
            f"#!/bin/sh\ntouch ../at-{name}\n"
            f"for _ in $(seq 100); do {others} exit 0; sleep 0.1; done\nexit 1\n"
        )
        hook.chmod(0o755)

    said = world.run("approve", "--all")

    assert said.code == Exit.DONE, said
    packages = [line.split()[1] for line in said.out.splitlines()]
    assert packages == sorted(packages)
    assert len(packages) == 2 * len(clusters)
