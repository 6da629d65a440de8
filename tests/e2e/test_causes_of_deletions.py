"""A deletion names its cause, the object, manifest or target that left, wherever it is told."""

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support import small_world
from tests.support.git import Repo
from tests.support.small_world import manifest, package_set, write_world
from tests.support.world import World, git


def commit(world: World, files: Mapping[str, str | None]) -> str:
    return str(Repo(world.control, time=1_767_300_000).commit(files))


@pytest.fixture
def published() -> World:
    return small_world.published()


def test_removed_manifest_is_named_with_its_commit(published: World) -> None:
    path = manifest("edge-1", "web")
    removed = commit(published, {path: None})
    commit(published, {"README.md": "Nothing to do with it.\n"})
    cause = f"{path}, which declared PackageVariant default/web-edge-1, was removed in commit {removed}"

    assert re.search(rf"delete +edge-1/web +NotDesired +{cause}", published.run("plan").out)
    published.run("apply")

    assert cause in published.run("pr", "show", "edge-1/web").out
    assert cause in published.run("explain", "edge-1/web").out
    assert cause in published.run("status").out


@pytest.mark.parametrize("name", ["web-edge-1", "renamed"])
def test_variant_that_is_stalled_in_another_namespace_deletes_nothing_at_its_former_name(
    published: World, name: str
) -> None:
    path = manifest("edge-1", "web")
    text = git(published.control, "show", f"main:{path}").replace("name: web-edge-1", f"name: {name}", 1)
    commit(published, {path: text.replace("namespace: default", "namespace: defalt", 1)})

    said = published.run("plan", "--all").out

    heir = f"PackageVariant defalt/{name}, which names this downstream, is stalled"
    assert re.search(rf"keep +edge-1/web +OwnerStalled .*{heir}", said), said


SET = package_set("web", annotations='{reconciler.dev/allow-deletes: "9"}')


@pytest.mark.parametrize("is_set", [False, True], ids=["a variant", "a set"])
def test_last_word_about_a_manifest_that_went_is_in_git(tmp_path: Path, *, is_set: bool) -> None:
    write_world(tmp_path / "w", ("edge-1",))
    world, path = World(tmp_path / "w"), manifest("edge-1", "web")
    given, orphan = git(world.control, "show", f"main:{path}"), "  deletionPolicy: orphan\n"
    kept = given + orphan
    if is_set:
        given = f"{SET}  - repositories: [{{name: edge-1}}]\n"
        kept = f"{given}    template: {{{orphan.strip()}}}\n"
        commit(world, {path: given})
    world.publish()
    commit(world, {path: kept})
    commit(world, {path: None})

    assert re.search(r"orphan +edge-1/web +Orphaned", world.run("plan").out)
    commit(world, {path: given})
    commit(world, {path: None})

    assert re.search(r"delete +edge-1/web +NotDesired", world.run("plan").out)
    world.run("apply")
    commit(world, {path: kept})
    commit(world, {path: None})

    assert re.search(r"orphan +edge-1/web +Orphaned", world.run("plan").out)


def test_set_that_says_orphan_keeps_what_it_loses_in_the_same_commit(tmp_path: Path) -> None:
    world = write_world(tmp_path / "w", ("edge-1",))
    commit(
        world, {"manifests/set.yaml": f"{SET}  - repositories: [{{name: edge-1, packageNames: [a, b]}}]\n"}
    )
    world.publish()
    template = "    template: {deletionPolicy: orphan}\n"
    left = f"{SET}  - repositories: [{{name: edge-1, packageNames: [b]}}]\n{template}"
    commit(world, {"manifests/set.yaml": left})

    assert re.search(r"orphan +edge-1/a +Orphaned", world.run("plan").out)
