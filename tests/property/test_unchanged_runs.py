"""A second run writes nothing, after whatever changed before the first one (law 1)."""

import random
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pygit2
import pytest

from reconciler.names.ids import Oid
from reconciler.workdir.starter import SEPARATE, write_demo
from tests.support.git import Repo
from tests.support.samples import sample
from tests.support.shards import split_root
from tests.support.world import EPOCH, World, git

pytestmark = pytest.mark.slow

CLUSTER = "cluster-europe-01"
HEAD = "apiVersion: apiextensions.k8s.io/v1\nkind: "
CHANGES: dict[str, Callable[[World], None]] = {}
Change = Callable[[World], None]


FINAL = {"repository_is_away", "default_branch_is_another"}
"""Changes after which nothing more can be changed."""


def change(apply: Change) -> Change:
    CHANGES[apply.__name__] = apply
    return apply


def edit(world: World, repository: str, path: str, old: str, new: str) -> None:
    with world.edit(repository, "Change it") as copy:
        text = (copy / path).read_text()
        assert old in text
        (copy / path).write_text(text.replace(old, new, 1))


def repo(world: World, name: str) -> Repo:
    return Repo(world.root / f"{name}.git", EPOCH + 200_000)


@change
def object_leaves_the_snapshot(world: World) -> None:
    edit(world, "control", "snapshot/clusters.yaml", 'traffic: "yes"', 'traffic: "no"')


@change
def object_has_another_label_value(world: World) -> None:
    edit(world, "control", "snapshot/clusters.yaml", "environment: staging", "environment: production")


@change
def schema_comes_into_the_snapshot(world: World) -> None:
    with world.edit("control", "Add a kind") as copy:
        (copy / "snapshot/kinds.yaml").write_text(f"{HEAD}CustomResourceDefinition\nmetadata:\n  name: a.b\n")


@change
def repository_has_another_label(world: World) -> None:
    edit(world, "control", "manifests/repositories.yaml", "region: europe", "region: asia")


@change
def repository_is_another_directory(world: World) -> None:
    edit(
        world,
        "control",
        "manifests/repositories.yaml",
        "branch: main\n---",
        "branch: main\n    directory: d\n---",
    )


@change
def variant_follows_another_revision(world: World) -> None:
    edit(world, "control", "manifests/web.yaml", "revision: 1", "revision: 2")


@change
def policy_is_another(world: World) -> None:
    edit(world, "control", "reconciler.yaml", "spec:\n", "spec:\n  publish:\n    tags: false\n")


@change
def runs_are_suspended(world: World) -> None:
    edit(world, "control", "reconciler.yaml", "spec:\n", "spec:\n  suspend: true\n")


@change
def person_edits_a_draft(world: World) -> None:
    branch = world.draft_branch(CLUSTER, "monitoring")
    with world.edit(CLUSTER, "Edit", branch=branch) as copy:
        (copy / "monitoring/more.yaml").write_text(
            "kind: ConfigMap\napiVersion: v1\nmetadata:\n  name: more\n"
        )


@change
def draft_branch_is_deleted(world: World) -> None:
    repo(world, CLUSTER).delete(f"refs/heads/{world.draft_branch(CLUSTER, 'monitoring')}")


@change
def published_package_is_edited(world: World) -> None:
    edit(world, CLUSTER, "web/deployment.yaml", "replicas: 2", "replicas: 9")


@change
def published_package_is_removed(world: World) -> None:
    with world.edit(CLUSTER, "Remove it") as copy:
        shutil.rmtree(copy / "web")


@change
def foreign_package_is_added(world: World) -> None:
    with world.edit(CLUSTER, "Add one") as copy:
        (copy / "own").mkdir()
        (copy / "own/Kptfile").write_text("apiVersion: kpt.dev/v1\nkind: Kptfile\nmetadata:\n  name: own\n")


@change
def upstream_tag_moves(world: World) -> None:
    repo(world, "blueprints").tag("web/v1", "web/v2")


@change
def upstream_tag_becomes_annotated(world: World) -> None:
    blueprints = repo(world, "blueprints")
    commit = blueprints.oid("web/v1")
    blueprints.delete("refs/tags/web/v1")
    blueprints.tag("web/v1", commit, message="Signed off")


@change
def published_tag_is_deleted(world: World) -> None:
    repo(world, CLUSTER).delete("refs/tags/web/v1")


@change
def function_digest_is_locked(world: World) -> None:
    repo(world, "control").commit(
        {"locks/functions/images.json": '{"apiVersion": "reconciler.dev/v1alpha1", "kind": "ImagesLock"}'},
        branch="reconciler/demo/state",
    )


@change
def state_is_lost(world: World) -> None:
    repo(world, "control").delete("refs/heads/reconciler/demo/state")


@change
def status_is_lost(world: World) -> None:
    repo(world, "control").delete("refs/heads/reconciler/demo/status")


@change
def record_is_damaged(world: World) -> None:
    path = f"packagevariants/default/{CLUSTER}.jsonl"
    repo(world, "control").commit({path: "damaged"}, branch="reconciler/demo/state")


@change
def pull_request_is_closed(world: World) -> None:
    assert world.run("pr", "close", f"{CLUSTER}/monitoring", cache="another").code == 0


@change
def draft_is_approved(world: World) -> None:
    assert world.run("approve", f"{CLUSTER}/monitoring", cache="another").code == 0


@change
def object_joins_the_snapshot(world: World) -> None:
    path = "snapshot/clusters.yaml"
    with world.edit("control", "Add a cluster") as copy:
        text = (copy / path).read_text()
        first = text.split("---\n")[0]
        (copy / path).write_text(f"{text.rstrip()}\n---\n{first.replace('name: ', 'name: another-', 1)}")


@change
def object_is_written_in_another_order(world: World) -> None:
    path = "snapshot/clusters.yaml"
    with world.edit("control", "Turn the order") as copy:
        documents = (copy / path).read_text().split("---\n")
        (copy / path).write_text("---\n".join(f"{d.rstrip()}\n" for d in reversed(documents)))


@change
def unrelated_file_joins_the_control_repository(world: World) -> None:
    with world.edit("control", "Add a page") as copy:
        (copy / "NOTES.md").write_text("Nothing reads this.\n")


@change
def manifest_is_removed(world: World) -> None:
    with world.edit("control", "Remove a set") as copy:
        (copy / "manifests/web.yaml").unlink()


@change
def manifest_is_no_longer_valid(world: World) -> None:
    edit(world, "control", "manifests/web.yaml", "kind: PackageVariantSet", "kind: PackageVariantSet\nx: y")


@change
def manifest_moves_to_another_file(world: World) -> None:
    with world.edit("control", "Move it") as copy:
        (copy / "manifests/web.yaml").rename(copy / "manifests/www.yaml")


@change
def variants_are_paused(world: World) -> None:
    text = "metadata:\n  annotations:\n    reconciler.dev/paused: 'true'\n"
    edit(world, "control", "manifests/web.yaml", "metadata:\n", text)


@change
def limit_of_open_pull_requests_is_set(world: World) -> None:
    edit(world, "control", "reconciler.yaml", "spec:\n", "spec:\n  pullRequests:\n    maxOpen: 1\n")


@change
def window_for_pull_requests_is_set(world: World) -> None:
    schedule = "spec:\n  pullRequests:\n    schedule: ['* 3 29 2 *']\n    timezone: UTC\n"
    edit(world, "control", "reconciler.yaml", "spec:\n", schedule)


@change
def function_image_is_pinned(world: World) -> None:
    images = f"{{example.com/fn:v1: 'sha256:{'0' * 64}'}}"
    edit(world, "control", "reconciler.yaml", "spec:\n", f"spec:\n  functions:\n    images: {images}\n")


@change
def locked_function_digest_is_another(world: World) -> None:
    images = f'"images": {{"example.com/fn:v1": "sha256:{"1" * 64}"}}'
    text = f'{{"apiVersion": "reconciler.dev/v1alpha1", "kind": "FunctionImagesLock", {images}}}'
    repo(world, "control").commit({"locks/functions/images.json": text}, branch="reconciler/demo/state")


@change
def upstream_publishes_another_revision(world: World) -> None:
    edit(world, "blueprints", "web/deployment.yaml", "replicas: 2", "replicas: 3")
    repo(world, "blueprints").tag("web/v9", "main")


@change
def upstream_branch_moves(world: World) -> None:
    edit(world, "blueprints", "web/deployment.yaml", "replicas: 2", "replicas: 4")


@change
def commit_beside_packages_is_pushed(world: World) -> None:
    with world.edit(CLUSTER, "Add a page") as copy:
        (copy / "NOTES.md").write_text("No package.\n")


@change
def branch_of_somebody_is_pushed(world: World) -> None:
    repo(world, CLUSTER).commit({"NOTES.md": "Soon.\n"}, branch="feature/login", start="main")


@change
def draft_branch_is_made_again(world: World) -> None:
    cluster, branch = repo(world, CLUSTER), world.draft_branch(CLUSTER, "monitoring")
    commit = cluster.git[cluster.oid(branch)].peel(pygit2.Commit)
    parents = [Oid(str(parent)) for parent in commit.parent_ids]
    made = cluster.write(str(commit.tree_id), parents, message="The same by a person\n")
    cluster.point(f"refs/heads/{branch}", made)


@change
def draft_is_merged_by_a_person(world: World) -> None:
    repo(world, CLUSTER).merge(world.draft_branch(CLUSTER, "monitoring"))


@change
def draft_is_squashed_into_main(world: World) -> None:
    repo(world, CLUSTER).merge(world.draft_branch(CLUSTER, "monitoring"), how="squash")


@change
def draft_is_proposed(world: World) -> None:
    cluster, branch = repo(world, CLUSTER), world.draft_branch(CLUSTER, "monitoring")
    cluster.point(f"refs/heads/{branch.replace('drafts/', 'proposed/', 1)}", cluster.oid(branch))
    cluster.delete(f"refs/heads/{branch}")


@change
def published_tag_moves(world: World) -> None:
    cluster = repo(world, CLUSTER)
    with world.edit(CLUSTER, "Add a page") as copy:
        (copy / "NOTES.md").write_text("No package.\n")
    cluster.delete("refs/tags/web/v1")
    cluster.tag("web/v1", "main")


@change
def person_publishes_a_revision(world: World) -> None:
    edit(world, CLUSTER, "web/deployment.yaml", "replicas: 2", "replicas: 7")
    repo(world, CLUSTER).tag("web/v2", "main")


@change
def repository_is_away(world: World) -> None:
    (world.root / f"{CLUSTER}.git").rename(world.root / "away")


@change
def default_branch_is_another(world: World) -> None:
    git(world.control, "branch", "next", "main")
    git(world.control, "symbolic-ref", "HEAD", "refs/heads/next")


@pytest.fixture(scope="module")
def settled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fleet with published packages and a draft in review, at which nothing is left to do."""
    root = tmp_path_factory.mktemp("settled") / "w"
    write_demo(root, SEPARATE, clusters=2)
    world = World(root)
    assert world.run("apply").code == 0
    assert world.run("approve", f"{CLUSTER}/web", "cluster-america-01/web").code == 0
    shutil.rmtree(root / "cache")
    return root


@pytest.fixture
def world(settled: Path, tmp_path: Path) -> World:
    shutil.copytree(settled, tmp_path / "w", symlinks=True)
    world = World(tmp_path / "w")
    assert world.run("apply").code == 0  # records have addresses, which are paths here
    return world


def settles(world: World, *options: str) -> bool:
    """Tell whether a second run says the same and writes nothing; also one with an empty cache."""
    world.run("apply", *options)
    before = world.all_refs()
    planned = world.run("plan", *options)
    again = [world.run("apply", *options, cache=cache) for cache in ("cache", "empty", "cache")]
    plans = [world.run("plan", *options, cache=cache) for cache in ("cache", "empty")]
    shutil.rmtree(world.root / "empty")
    return world.all_refs() == before and again == again[:1] * 3 and plans == [planned] * 2


def test_second_run_of_an_unchanged_world_says_the_same_and_writes_nothing(world: World) -> None:
    planned, applied = world.run("plan"), world.run("apply")

    assert settles(world)
    assert "2 published" in planned.out
    assert "1 in review" in planned.out
    assert "Nothing was written.\n" in applied.out


@pytest.mark.parametrize("name", sample(list(CHANGES), 4))
def test_second_run_after_a_change_writes_nothing(name: str, world: World) -> None:
    CHANGES[name](world)

    assert settles(world)


@pytest.mark.parametrize("seed", sample(range(4), 2))
def test_second_run_after_each_of_many_changes_writes_nothing(seed: int, world: World) -> None:
    drawn, moving = random.Random(seed), []
    for name in drawn.sample(sorted(CHANGES.keys() - FINAL), 4):
        with suppress(AssertionError, OSError, KeyError, ValueError):  # an earlier change may exclude it
            CHANGES[name](world)
        moving += [] if settles(world) else [name]

    assert moving == []


SHARDS = ("0/2", "1/2")


@pytest.fixture
def divided(settled: Path, tmp_path: Path) -> World:
    """The same fleet where its two clusters belong to different ones of two shards."""
    root = split_root(tmp_path, CLUSTER, "cluster-america-01")
    shutil.copytree(settled, root, symlinks=True)
    world = World(root)
    assert world.run("apply").code == 0
    return world


@pytest.mark.parametrize("name", sample(list(CHANGES), 8))
def test_second_run_of_each_shard_after_a_change_writes_nothing(name: str, divided: World) -> None:
    CHANGES[name](divided)
    for shard in SHARDS:
        divided.run("apply", "--shard", shard)

    assert [settles(divided, "--shard", shard) for shard in SHARDS] == [True, True]
