"""A run whose inputs did not change repeats its report; after any change it does what `--full` does."""

import random
import shutil
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import pygit2
import pytest
from msgspec.structs import fields

import reconciler.read.repositories
import reconciler.run.inputs
import reconciler.run.plan
import reconciler.run.report_cache
from reconciler.forge.registry import Forges
from reconciler.git import effects
from reconciler.http.client import Clock
from reconciler.inventory.inventory import Inventory
from reconciler.names.ids import Oid
from reconciler.run.report_cache import ReportCache
from reconciler.workdir.demo import SEPARATE, write_demo
from tests.support.git import Repo
from tests.support.samples import sample
from tests.support.shards import split_root
from tests.support.world import EPOCH, Said, World, git

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


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The runs that were computed."""
    runs: list[str] = []
    plan_run = reconciler.run.plan.plan_run

    def counted(*arguments: object, **options: object) -> object:
        runs.append("plan")
        return plan_run(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(reconciler.run.plan, "plan_run", counted)
    return runs


def test_unchanged_world_is_computed_once(world: World, computed: list[str]) -> None:
    first, second = world.run("plan"), world.run("plan")
    applied, again = world.run("apply"), world.run("apply")

    assert first == second == world.run("plan", "--full")
    assert "2 published" in first.out
    assert "1 in review" in first.out
    assert applied == again == world.run("apply", "--full")
    assert "Nothing was written.\n" in applied.out
    assert computed == ["plan"] * 4


@pytest.mark.parametrize("name", sample(list(CHANGES), 4))
def test_run_after_a_change_does_what_a_full_one_does(
    name: str, world: World, computed: list[str], tmp_path: Path
) -> None:
    world.run("plan")
    world.run("apply")
    before = len(computed)
    CHANGES[name](world)

    planned, applied = _both(world, tmp_path, "plan"), _both(world, tmp_path, "apply")

    assert planned[0] == planned[1]
    assert applied[0] == applied[1]
    assert len(computed) - before >= 4, "a report was repeated"


@pytest.mark.parametrize("seed", sample(range(4), 2))
def test_runs_between_many_changes_do_what_full_ones_do(seed: int, world: World, tmp_path: Path) -> None:
    drawn, differences = random.Random(seed), []
    for name in drawn.sample(sorted(CHANGES.keys() - FINAL), 4):
        with suppress(AssertionError, OSError, KeyError, ValueError):  # an earlier change may exclude it
            CHANGES[name](world)
        for _ in range(drawn.randrange(3)):
            world.run(drawn.choice(("plan", "apply")))

        for command in ("plan", "apply"):
            plain, full = _both(world, tmp_path, command)
            differences += [] if plain == full else [(name, command, plain, full)]

    assert differences == []


SHARDS = ("0/2", "1/2")


@pytest.fixture
def divided(settled: Path, tmp_path: Path) -> World:
    """The same fleet where its two clusters belong to different ones of two shards."""
    root = split_root(tmp_path, CLUSTER, "cluster-america-01")
    shutil.copytree(settled, root, symlinks=True)
    world = World(root)
    assert world.run("apply").code == 0
    return world


def test_unchanged_shards_are_computed_once(divided: World, computed: list[str]) -> None:
    for command in ("plan", "apply"):
        first = [divided.run(command, "--shard", shard) for shard in SHARDS]

        assert first == [divided.run(command, "--shard", shard) for shard in SHARDS]
        assert first == [divided.run(command, "--shard", shard, "--full") for shard in SHARDS]
        assert [said.code for said in first] == [0, 0]
    assert len(computed) == 8


@pytest.mark.parametrize("name", sample(list(CHANGES), 8))
def test_shards_after_a_change_do_what_full_ones_do(name: str, divided: World) -> None:
    for shard in SHARDS:
        divided.run("plan", "--shard", shard)
    CHANGES[name](divided)

    plain = [divided.run("plan", "--shard", shard) for shard in SHARDS]

    assert plain == [divided.run("plan", "--shard", shard, "--full") for shard in SHARDS]


MORNING, EVENING = 1_767_344_400, 1_767_376_800
SCHEDULE = "spec:\n  pullRequests:\n    schedule:\n    - '* 8-16 * * *'\n    timezone: UTC\n"


@pytest.mark.parametrize(
    ("first", "second"), [(EVENING, MORNING), (MORNING, EVENING)], ids=["opens", "closes"]
)
def test_run_at_another_time_does_what_a_full_one_does(
    first: int, second: int, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    edit(world, "control", "reconciler.yaml", "spec:\n", SCHEDULE)
    CHANGES["upstream_publishes_another_revision"](world)
    edit(world, "control", "manifests/web.yaml", "revision: 1", "revision: 9")

    def set_time(now: int) -> None:
        clock = Clock(lambda: now, effects.sleep)
        monkeypatch.setattr(reconciler.run.inputs, "Forges", partial(Forges, clock=clock))
        monkeypatch.setattr(reconciler.run.report_cache, "ReportCache", partial(ReportCache, now=clock.now))

    set_time(first)
    for _ in range(2):
        world.run("apply")
    kept = [world.run(command) for command in ("plan", "apply")]

    set_time(second)
    planned, applied = _both(world, tmp_path, "plan"), _both(world, tmp_path, "apply")

    assert planned[0] == planned[1]
    assert applied[0] == applied[1]
    assert ([planned[0][0], applied[0][0]] != kept) is (first == EVENING)


def _both(world: World, tmp_path: Path, command: str) -> list[tuple[Said, dict[str, dict[str, str]]]]:
    """Run a command as it is and with --full, from the same state; return what each said and left."""
    said = []
    for options in ((), ("--full",)):
        backup = tmp_path / "backup"
        shutil.copytree(world.root, backup, symlinks=True)
        said.append((world.run(command, *options), world.all_refs()))
        shutil.rmtree(world.root)
        backup.rename(world.root)
    return said


def test_plan_with_something_to_do_is_always_computed(world: World, computed: list[str]) -> None:
    CHANGES["variant_follows_another_revision"](world)

    first, second = world.run("plan"), world.run("plan")

    assert first == second
    assert len(computed) == 2


CONTROL = "by the commit of the control repository, the environment and the program"
STATE = "by the refs of the control repository: the branches of state and status are among them"
REFS = "by the refs of every repository"
COMMITS = "by the refs, and by whether each commit that only a lock names is still there"
FORGE = "by the refs where it is local; elsewhere by the replies to the requests of the run, made again"
NEVER = "with such an input no report is kept"
CLOCK = "by computing it again"
NOTICED = {
    "policy": STATE,  # the configuration, and the image digests of the lock
    "control": STATE,
    "variants": CONTROL,
    "sets": CONTROL,
    "stalled": CONTROL,
    "claims": CONTROL,
    "repositories": REFS,
    "former": REFS,
    "snapshot": CONTROL,
    "records": STATE,
    "broken_records": NEVER,  # each is a problem
    "set_records": STATE,
    "rollouts": STATE,
    "refused": STATE,
    "statuses": STATE,
    "pulls": FORGE,
    "histories": FORGE,
    "is_history_due": FORGE,
    "unreadable_pulls": NEVER,
    "trees": COMMITS,
    "subpackages": COMMITS,
    "times": COMMITS,
    "earlier": REFS,
    "locks": STATE,
    "reviewed": STATE,
    "retry_requests": FORGE,
    "passed_checks": FORGE,
    "other_checks": FORGE,
    "documents": CONTROL,
    "index": CONTROL,
    "images": STATE,
    "opening": CLOCK,
    "now": NEVER,  # rollouts wait for a time
    "trust": NEVER,  # keys expire
    "problems": NEVER,
    "notes": STATE,  # and by the uncommitted files of the working copy
}
"""How a run notices that an input changed. Who adds an input decides here, and in `run/report_cache.py`."""


def test_every_input_has_a_decision_how_its_changes_are_noticed() -> None:
    assert NOTICED.keys() == {field.name for field in fields(Inventory)}
