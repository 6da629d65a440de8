"""A variant with `deletionPolicy: orphan` that goes: main is let go of, and a first draft stays."""

import re
from pathlib import Path

import pytest

from tests.support.git import Repo
from tests.support.small_world import manifest, package_set, variant, write_world

WEB = manifest("edge-1", "web")
SET = package_set("web", "{repositories: [{name: edge-1}], template: {deletionPolicy: orphan}}")


@pytest.mark.parametrize("text", [variant("edge-1", "web") + "  deletionPolicy: orphan\n", SET])
def test_first_draft_that_nobody_asks_for_keeps_its_title_and_is_listed(tmp_path: Path, text: str) -> None:
    world = write_world(tmp_path / "w", ("edge-1",))
    control = Repo(world.control, time=1_767_300_000)
    control.commit({WEB: text, manifest("edge-1", "db"): None})
    assert world.run("apply").code == 0
    shown, refs = world.run("pr", "show", "edge-1/web").out, world.all_refs()["edge-1.git"]
    control.commit({WEB: None})

    plan = world.run("plan").out
    applied = world.run("apply")

    assert re.search(
        r"keep +edge-1/web +Orphaned .*was removed in commit .*Nobody asks for it any more", plan
    )
    assert applied.code == 0
    assert world.all_refs()["edge-1.git"] == refs
    assert "Create web" in shown.splitlines()[0]
    assert world.run("pr", "show", "edge-1/web").out.splitlines()[0] == shown.splitlines()[0]
    assert "Stop managing" not in world.run("pr", "list").out
    assert re.search(r"edge-1/web .*in review", world.run("status").out)
    everything = world.run("approve", "--all")
    assert "edge-1/web" in everything.out + everything.err
    assert world.all_refs()["edge-1.git"] == refs
    quiet = world.all_refs()
    world.run("apply")
    assert world.all_refs() == quiet

    world.run("pr", "close", "edge-1/web")
    assert re.search(r"delete +edge-1/web +NotDesired", world.run("apply").out)
    assert not [name for name in world.all_refs()["edge-1.git"] if "drafts/web" in name]


def test_first_draft_that_people_merge_nevertheless_is_let_go_of(tmp_path: Path) -> None:
    world = write_world(tmp_path / "w", ("edge-1",))
    control = Repo(world.control, time=1_767_300_000)
    control.commit({WEB: variant("edge-1", "web") + "  deletionPolicy: orphan\n"})
    world.run("apply")
    control.commit({WEB: None})
    world.run("apply")

    assert world.run("approve", "edge-1/web").code == 0
    assert re.search(r"orphan +edge-1/web +Orphaned", world.run("apply").out)
    assert "Stop managing web" in world.run("pr", "list").out


@pytest.mark.parametrize("policy", ["adoptNone", "adoptExisting"])
def test_package_whose_release_is_open_is_taken_by_nobody(tmp_path: Path, policy: str) -> None:
    world = write_world(tmp_path / "w", ("edge-1",))
    control = Repo(world.control, time=1_767_300_000)
    control.commit({WEB: variant("edge-1", "web") + "  deletionPolicy: orphan\n"})
    world.publish()
    control.commit({WEB: None})
    world.run("apply")
    other = variant("edge-1", "web").replace("name: web-edge-1", "name: three")
    control.commit({"manifests/three.yaml": f"{other}  adoptionPolicy: {policy}\n"})

    while_open = world.run("apply")

    assert while_open.code == 3
    assert "lets go of package web: its release is open" in while_open.out + while_open.err
    assert "Hand over" not in world.run("pr", "list").out
    assert world.run("approve", "edge-1/web").code == 0
    merged = world.run("apply")
    if policy == "adoptNone":
        assert "PackageExists" in merged.out
    else:
        assert re.search(r"adopt +edge-1/web +Adopted", merged.out)
