"""Who owns a package survives renames, and ignorance never deletes: twenty targets on real Git."""

import json
from collections import Counter
from pathlib import Path

import pytest

from reconciler.git.working_copy import NewCommit, create_bare
from tests.support.small_world import CONFIGURATION, repository
from tests.support.world import EPOCH, World, git, refs

TARGETS = 20

CONTROL = {
    "reconciler.yaml": CONFIGURATION,
    "manifests/repositories.yaml": "---\n".join(map(repository, ("blueprints", "cluster"))),
}


def package_set(name: str) -> str:
    packages = "".join(f"      - web-{number:02}\n" for number in range(TARGETS))
    return f"""\
apiVersion: config.porch.kpt.dev/v1alpha2
kind: PackageVariantSet
metadata:
  name: {name}
  namespace: default
spec:
  upstream:
    repo: blueprints
    package: web
    revision: 1
  targets:
  - repositories:
    - name: cluster
      packageNames:
{packages}"""


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Twenty packages of one set: half of them published, half of them drafts."""
    root = tmp_path / "w"
    root.mkdir()
    kptfile = b"apiVersion: kpt.dev/v1\nkind: Kptfile\nmetadata:\n  name: web\n"
    create_bare(root / "blueprints.git", [NewCommit("Release", {"web/Kptfile": kptfile}, EPOCH, ("web/v1",))])
    create_bare(root / "cluster.git", [NewCommit("Start", {"README.md": b"# cluster\n"}, EPOCH)])
    files = CONTROL | {"manifests/web.yaml": package_set("web")}
    create_bare(root / "control.git", [NewCommit("Start", {p: t.encode() for p, t in files.items()}, EPOCH)])
    world = World(root)
    assert world.run("apply", "--quiet").code == 0
    for number in range(0, TARGETS, 2):
        assert world.run("approve", f"cluster/web-{number:02}").code == 0
    assert world.run("apply", "--quiet").code == 0
    return world


def planned(world: World) -> Counter[str]:
    """Count what the plan does, by operation."""
    said = world.run("plan", "--output", "json")
    return Counter(change["op"] for change in json.loads(said.out)["changes"])


def test_renaming_a_set_transfers_every_package_and_deletes_none(world: World) -> None:
    with world.edit("control", "Rename the set") as copy:
        (copy / "manifests/web.yaml").write_text(package_set("frontend"))

    assert planned(world) == {"transfer": TARGETS}

    assert world.run("apply", "--quiet").code == 0
    assert planned(world) == {"keep": TARGETS}
    drafts = [n for n in refs(world.root / "cluster.git") if n.startswith("refs/heads/drafts/")]
    assert len(drafts) == TARGETS


def test_losing_the_state_and_the_set_at_once_deletes_nothing(world: World) -> None:
    before = refs(world.root / "cluster.git")
    with world.edit("control", "Remove the set") as copy:
        (copy / "manifests/web.yaml").unlink()
    git(world.control, "update-ref", "-d", "refs/heads/reconciler/fleet/state")

    assert planned(world) == {"keep": TARGETS}

    world.run("apply", "--quiet")
    assert refs(world.root / "cluster.git") == before


def test_removing_the_set_alone_is_refused_without_consent(world: World) -> None:
    before = world.all_refs()
    with world.edit("control", "Remove the set") as copy:
        (copy / "manifests/web.yaml").unlink()
    after_edit = world.all_refs()

    said = world.run("apply", "--quiet")

    assert said.code == 4
    assert unobserved(world.all_refs()) == unobserved(after_edit)
    assert {k: v for k, v in after_edit.items() if k != "control.git"} == {
        k: v for k, v in before.items() if k != "control.git"
    }
    world.consent()
    assert planned(world) == {"delete": TARGETS}


def unobserved(found: dict[str, dict[str, str]]) -> dict[str, dict[str, str]]:
    """Return refs without the branches of records: they note that the set is gone, and the refusal."""
    return {
        name: {r: o for r, o in refs.items() if not r.endswith(("/status", "/state"))}
        for name, refs in found.items()
    }
