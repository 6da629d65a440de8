"""A deletion names its cause, the object, manifest or target that left, wherever it is told."""

import json
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support import small_world
from tests.support.git import Repo
from tests.support.small_world import manifest, write_world
from tests.support.world import World, build_world, git

WORLDS = Path(__file__).resolve().parents[2] / "fixtures/worlds"


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


def test_manifest_that_declares_something_else_is_named(published: World) -> None:
    path = manifest("edge-1", "web")
    other = git(published.control, "show", f"main:{manifest('edge-1', 'db')}")
    commit(published, {path: other, manifest("edge-1", "db"): None})

    assert f"{path} does not declare PackageVariant default/web-edge-1 any more" in published.run("plan").out


SET = """\
apiVersion: config.porch.kpt.dev/v1alpha2
kind: PackageVariantSet
metadata:
  name: web
  namespace: default
  annotations: {reconciler.dev/allow-deletes: "9"}
spec:
  upstream: {repo: blueprints, package: web, revision: 1}
  targets:
"""


@pytest.mark.parametrize(
    ("targets", "others", "cause"),
    [
        (
            "  - repositories: [{name: edge-1, packageNames: [a, b]}]\n",
            "  - repositories: [{name: edge-1, packageNames: [b]}]\n",
            "PackageVariantSet default/web has no target for edge-1/a any more; it makes edge-1/b there",
        ),
        (
            "  - repositorySelector: {matchLabels: {tier: edge}}\n",
            "  - repositorySelector: {matchLabels: {tier: core}}\n",
            "PackageVariantSet default/web does not select Repository default/edge-1 any more",
        ),
        (
            "  - repositorySelector: {matchLabels: {tier: edge}}\n",
            (
                "  - repositorySelector: {matchLabels: {tier: edge}}\n"
                "    template: {downstream: {package: web-new}}\n"
            ),
            "PackageVariant default/web-edge-1-web-new has its package now: edge-1/web-new",
        ),
    ],
)
def test_target_that_left_the_set_is_named(tmp_path: Path, targets: str, others: str, cause: str) -> None:
    write_world(tmp_path / "w", ("edge-1",))
    world = World(tmp_path / "w")
    registered = git(world.control, "show", "main:manifests/repositories/edge-1.yaml")
    label = "  labels: {tier: edge}\n"
    labelled = registered.replace("  namespace: default\n", f"  namespace: default\n{label}")
    singles = {manifest("edge-1", name): None for name in ("web", "db")}
    files = {"manifests/repositories/edge-1.yaml": labelled, "manifests/set.yaml": SET + targets}
    commit(world, {**singles, **files})
    for line in (("apply",), ("approve", "--all"), ("apply",)):
        world.run(*line)
    commit(world, {"manifests/set.yaml": SET + others})

    assert f"{cause}\n" in world.run("plan").out
    world.run("apply")

    assert f"{cause}\n" in world.run("plan").out
    assert cause in world.run("status").out


def test_a_set_that_went_after_a_target_of_it_did_not_let_that_one_go(tmp_path: Path) -> None:
    write_world(tmp_path / "w", ("edge-1",))
    world = World(tmp_path / "w")
    both = "  - repositories: [{name: edge-1, packageNames: [a, b]}]\n"
    singles = {manifest("edge-1", name): None for name in ("web", "db")}
    commit(world, {**singles, "manifests/set.yaml": SET + both})
    for line in (("apply",), ("approve", "--all"), ("apply",)):
        world.run(*line)
    commit(world, {"manifests/set.yaml": SET + both.replace("[a, b]", "[b]")})
    world.run("apply")
    removed = commit(world, {"manifests/set.yaml": None})

    rows = json.loads(world.run("plan", "-o", "json").out)["changes"]

    gone = (
        f"manifests/set.yaml, which declared PackageVariantSet default/web, was removed in commit {removed}"
    )
    assert {row["package"]["path"]: row["message"] for row in rows} == {
        "a": f"PackageVariantSet default/web has no target for edge-1/a any more; {gone}",
        "b": gone,
    }


@pytest.mark.parametrize("newcomer", ["", "front"])
def test_a_refused_deletion_names_no_set_that_is_gone(tmp_path: Path, newcomer: str) -> None:
    write_world(tmp_path / "w", ("edge-1",))
    world = World(tmp_path / "w")
    names = ", ".join(f"p{number}" for number in range(12))
    target = f"  - repositories: [{{name: edge-1, packageNames: [{names}]}}]\n"
    plain = SET.replace('  annotations: {reconciler.dev/allow-deletes: "9"}\n', "") + target
    singles = {manifest("edge-1", name): None for name in ("web", "db")}
    commit(world, {**singles, "manifests/set.yaml": plain})
    world.run("apply")
    other = plain.replace("name: web\n", "name: front\n").replace("name: edge-1,", "name: edge-1, bogus: 1,")
    commit(world, {"manifests/set.yaml": other if newcomer else None})

    said = world.run("plan").out

    assert "refused: DeletionGuard" in said
    assert "annotate PackageVariantSet" not in said
    first = "Correct PackageVariantSet default/front first, if it takes these over."
    assert (first in said) is bool(newcomer)


def test_object_that_left_the_snapshot_is_named(tmp_path: Path) -> None:
    world = build_world(WORLDS / "02-object-selector", tmp_path / "w")
    world.run("apply")
    header = git(world.control, "show", "main:snapshot/snapshot.yaml").replace("count: 3", "count: 2")
    commit(world, {"snapshot/clusters/cluster-1.yaml": None, "snapshot/snapshot.yaml": header})

    said = world.run("plan")

    cause = "Cluster default/cluster-1, which PackageVariantSet default/web selected"
    assert f"{cause}, is not in the snapshot any more" in said.out


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
    for line in (("apply",), ("approve", "--all"), ("apply",)):
        world.run(*line)
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


def test_last_word_is_that_of_the_last_name_of_a_renamed_variant(tmp_path: Path) -> None:
    write_world(tmp_path / "w", ("edge-1",))
    world, path = World(tmp_path / "w"), manifest("edge-1", "web")
    for line in (("apply",), ("approve", "--all"), ("apply",)):
        world.run(*line)
    given = git(world.control, "show", f"main:{path}").replace("name: web-edge-1", "name: renamed")
    commit(world, {path: given + "  deletionPolicy: orphan\n"})
    commit(world, {path: None})

    planned = world.run("plan").out

    assert re.search(r"orphan +edge-1/web +Orphaned", planned)
    assert "was removed in commit" in planned


def test_set_that_says_orphan_keeps_what_it_loses_in_the_same_commit(tmp_path: Path) -> None:
    write_world(tmp_path / "w", ("edge-1",))
    world = World(tmp_path / "w")
    commit(
        world, {"manifests/set.yaml": f"{SET}  - repositories: [{{name: edge-1, packageNames: [a, b]}}]\n"}
    )
    for line in (("apply",), ("approve", "--all"), ("apply",)):
        world.run(*line)
    template = "    template: {deletionPolicy: orphan}\n"
    left = f"{SET}  - repositories: [{{name: edge-1, packageNames: [b]}}]\n{template}"
    commit(world, {"manifests/set.yaml": left})

    assert re.search(r"orphan +edge-1/a +Orphaned", world.run("plan").out)


@pytest.mark.parametrize("name", ["web", "renamed"])
def test_emptied_selector_beside_named_packages_is_refused_until_people_consent(
    tmp_path: Path, name: str
) -> None:
    write_world(tmp_path / "w", ("edge-1", "edge-2"))
    world, path = World(tmp_path / "w"), "manifests/repositories/edge-1.yaml"
    registered = git(world.control, "show", f"main:{path}")
    labelled = registered.replace("  namespace: default\n", "  namespace: default\n  labels: {tier: edge}\n")
    targets = "  - repositorySelector: {matchLabels: {tier: edge}}\n  - repositories: [{name: edge-2}]\n"
    given = SET.replace('  annotations: {reconciler.dev/allow-deletes: "9"}\n', "") + targets
    singles = {manifest(edge, name): None for edge in ("edge-1", "edge-2") for name in ("web", "db")}
    commit(world, {**singles, path: labelled, "manifests/set.yaml": given})
    for line in (("apply",), ("approve", "--all"), ("apply",)):
        world.run(*line)
    renamed = given.replace("  name: web\n", f"  name: {name}\n")
    commit(world, {path: registered, "manifests/set.yaml": renamed})
    cause = f"spec.targets[0] of PackageVariantSet default/{name} selects nothing any more; it had 1 variant"

    first, refs = world.run("apply"), world.all_refs()
    again = world.run("apply")

    assert (first.code, again.code) == (4, 4)
    assert cause in first.out
    assert cause in again.out
    assert world.all_refs() == refs
