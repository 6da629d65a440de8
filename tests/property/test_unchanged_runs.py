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
IMAGES = '{"apiVersion": "reconciler.dev/v1alpha1", "kind": "%s"}'
DIGEST = "sha256:" + "1" * 64
Change = Callable[[World], object]


def edit(path: str, old: str, new: str, repository: str = "control") -> Change:
    """Return a change of a text, the first of its kind in a file."""

    def change(world: World) -> None:
        with world.edit(repository, "Change it") as copy:
            text = (copy / path).read_text()
            assert old in text
            (copy / path).write_text(text.replace(old, new, 1))

    return change


def configure(text: str) -> Change:
    return edit("reconciler.yaml", "spec:\n", f"spec:\n{text}")


def add(repository: str, branch: str, path: str, text: str) -> Change:
    return lambda world: repo(world, repository).commit({path: text}, branch=branch, start="main")


def repo(world: World, name: str) -> Repo:
    return Repo(world.root / f"{name}.git", EPOCH + 200_000)


def annotate_an_upstream_tag(world: World) -> None:
    blueprints = repo(world, "blueprints")
    commit = blueprints.oid("web/v1")
    blueprints.delete("refs/tags/web/v1")
    blueprints.tag("web/v1", commit, message="Signed off")


def turn_the_order_of_objects(world: World) -> None:
    control = repo(world, "control")
    documents = control.read("main", "snapshot/clusters.yaml").decode().split("---\n")
    control.commit({"snapshot/clusters.yaml": "---\n".join(f"{d.rstrip()}\n" for d in reversed(documents))})


def move_a_manifest(world: World) -> None:
    control = repo(world, "control")
    text = control.read("main", "manifests/web.yaml")
    control.commit({"manifests/web.yaml": None, "manifests/www.yaml": text})


def make_a_draft_again(world: World) -> None:
    cluster, branch = repo(world, CLUSTER), world.draft_branch(CLUSTER, "monitoring")
    commit = cluster.git[cluster.oid(branch)].peel(pygit2.Commit)
    parents = [Oid(str(parent)) for parent in commit.parent_ids]
    made = cluster.write(str(commit.tree_id), parents, message="The same by a person\n")
    cluster.point(f"refs/heads/{branch}", made)


def propose_a_draft(world: World) -> None:
    cluster, branch = repo(world, CLUSTER), world.draft_branch(CLUSTER, "monitoring")
    cluster.point(f"refs/heads/{branch.replace('drafts/', 'proposed/', 1)}", cluster.oid(branch))
    cluster.delete(f"refs/heads/{branch}")


def move_a_published_tag(world: World) -> None:
    cluster = repo(world, CLUSTER)
    cluster.commit({"NOTES.md": "No package.\n"})
    cluster.delete("refs/tags/web/v1")
    cluster.tag("web/v1", "main")


def publish_a_revision(world: World) -> None:
    edit("web/deployment.yaml", "replicas: 2", "replicas: 7", CLUSTER)(world)
    repo(world, CLUSTER).tag("web/v2", "main")


def choose_another_default_branch(world: World) -> None:
    git(world.control, "branch", "next", "main")
    git(world.control, "symbolic-ref", "HEAD", "refs/heads/next")


STATE = "reconciler/demo/state"
RECORD = f"packagevariants/default/{CLUSTER}.jsonl"
CHANGES: dict[str, Change] = {
    "schema comes": add("control", "main", "snapshot/kinds.yaml", f"{HEAD}X\nmetadata:\n  name: a.b\n"),
    "objects in another order": turn_the_order_of_objects,
    "label of an object": edit("snapshot/clusters.yaml", "environment: staging", "environment: production"),
    "label of a Repository": edit("manifests/repositories.yaml", "region: europe", "region: asia"),
    "tags are not published": configure("  publish:\n    tags: false\n"),
    "suspended": configure("  suspend: true\n"),
    "limit of pull requests": configure("  pullRequests:\n    maxOpen: 1\n"),
    "window": configure("  pullRequests:\n    schedule: ['* 3 29 2 *']\n    timezone: UTC\n"),
    "pinned image": configure(f"  functions:\n    images: {{example.com/fn:v1: '{DIGEST}'}}\n"),
    "locked digests": add("control", STATE, "locks/functions/images.json", IMAGES % "ImagesLock"),
    "state is lost": lambda world: repo(world, "control").delete(f"refs/heads/{STATE}"),
    "status is lost": lambda world: repo(world, "control").delete("refs/heads/reconciler/demo/status"),
    "damaged record": add("control", STATE, RECORD, "damaged"),
    "file that nothing reads": add("control", "main", "NOTES.md", "Nothing reads this.\n"),
    "invalid manifest": edit(
        "manifests/web.yaml", "kind: PackageVariantSet", "kind: PackageVariantSet\nx: y"
    ),
    "manifest in another file": move_a_manifest,
    "paused": edit(
        "manifests/web.yaml", "metadata:\n", "metadata:\n  annotations: {reconciler.dev/paused: 'true'}\n"
    ),
    "branch of upstream moves": edit("web/deployment.yaml", "replicas: 2", "replicas: 4", "blueprints"),
    "annotated tag of upstream": annotate_an_upstream_tag,
    "commit beside packages": add(CLUSTER, "main", "NOTES.md", "No package.\n"),
    "branch of somebody": add(CLUSTER, "feature/login", "NOTES.md", "Soon.\n"),
    "draft made again": make_a_draft_again,
    "draft proposed": propose_a_draft,
    "published tag moves": move_a_published_tag,
    "published tag is gone": lambda world: repo(world, CLUSTER).delete("refs/tags/web/v1"),
    "revision of a person": publish_a_revision,
    "another default branch": choose_another_default_branch,
}
"""What the steps of drawn lives (`tests/support/combination`) do not change."""
FINAL = {"another default branch"}
"""Changes after which nothing more can be changed."""


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
