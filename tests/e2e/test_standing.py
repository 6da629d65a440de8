"""A run knows where it stands: outdated checkouts write nothing, a commit proves each deletion (D28)."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from reconciler.base.errors import Exit
from reconciler.inventory.shard import parse_shard
from reconciler.run.apply import apply_plan
from reconciler.run.options import RunOptions
from reconciler.run.plan import plan_run
from tests.support.git import Repo
from tests.support.http_git import serve
from tests.support.small_world import manifest, package_set, published, variant, write_world
from tests.support.world import Said, World, build_world, git, refs, run_line

WORLDS = Path(__file__).parents[2] / "fixtures/worlds"
STATE = "reconciler/fleet/state"
WEB = manifest("edge-1", "web")
SET = package_set("sites", "{repositories: [{name: edge-1, packageNames: [NAMES]}]}")


def another(package: str, *, name: str = "", edge: str = "edge-1") -> str:
    """Return the manifest of a variant of the package web under another name."""
    text = variant(edge, "web").replace(f"name: web-{edge}", f"name: {name or package}")
    head, _, tail = text.rpartition("package: web")
    return f"{head}package: {package}{tail}"


@dataclass
class Clone(World):
    """Commands are run against a clone of the control repository."""

    name: str = "copy"

    @property
    def control(self) -> Path:
        """The working copy."""
        return self.root / self.name

    def pull(self) -> None:
        """Take over what is on the remote."""
        git(self.control, "pull", "-q")


def clone(world: World, *options: str, name: str = "copy", at: str = "") -> Clone:
    """Clone the control repository; `at` detaches HEAD there, as build jobs do."""
    url = f"file://{world.root / 'control.git'}"
    if at:
        git(world.root, "init", "-q", "-b", "main", name)
        git(world.root / name, "remote", "add", "origin", url)
        git(world.root / name, "fetch", "-q", *options, "origin", at)
        git(world.root / name, "checkout", "-q", "--detach", at)
    else:
        git(world.root, "clone", "-q", *options, url, name)
    return Clone(world.root, name=name)


def commit(world: World, files: Mapping[str, str | None], *, branch: str = "main", start: str = "") -> str:
    repo = Repo(world.root / "control.git", time=1_767_300_000 + 60 * len(list_commits(world)))
    return str(repo.commit(files, branch=branch, start=start))


def list_commits(world: World) -> list[str]:
    return git(world.root / "control.git", "rev-list", "--all").split()


def move_main(world: World, to: str) -> None:
    git(world.root / "control.git", "update-ref", "refs/heads/main", to)


def applied(world: World) -> str:
    """Return the control commit that the state branch names."""
    return str(json.loads(git(world.root / "control.git", "show", f"{STATE}:applied.json"))["commit"])


@pytest.fixture
def world() -> World:
    """Two published packages of one repository."""
    return published()


def bring(world: World, commits: int = 1) -> None:
    """Bring one new package, published, and more commits that change nothing."""
    commit(world, {"manifests/b.yaml": another("b")})
    for number in range(commits - 1):
        commit(world, {"NOTES.md": f"{number}\n"})
    world.publish()


# Outdated checkouts


WRITING = {
    "apply": ("apply",),
    "apply of a shard": ("apply", "--shard", "0/2"),
    "approve everything": ("approve", "--all"),
    "approve one": ("approve", "edge-1/late"),
    "propose": ("approve", "--propose-only", "edge-1/late"),
    "merge": ("pr", "merge", "edge-1/late"),
    "close": ("pr", "close", "edge-1/late"),
    "reopen": ("pr", "reopen", "edge-1/late"),
    "lock": ("lock",),
    "lock --prune": ("lock", "--prune"),
    "hold": ("lock", "hold", "web-edge-1"),
    "follow": ("lock", "follow", "web-edge-1"),
    "pin an image": ("functions", "pull", "--runtime", "docker", "--offline", "example/image:v1"),
}
READING = {
    "plan": ("plan", "--all"),
    "status": ("status",),
    "explain": ("explain", "edge-1/late"),
    "why not": ("explain", "edge-1/web", "--why-not", "newest"),
    "history": ("explain", "edge-1/web", "--history"),
    "graph": ("graph",),
    "expand": ("expand",),
    "pull requests": ("pr", "list", "--all"),
    "pull request": ("pr", "show", "edge-1/late"),
    "lock --check": ("lock", "--check"),
    "lock --frozen": ("lock", "--frozen"),
    "kinds of snapshots": ("snapshot", "kinds"),
}


@pytest.fixture(scope="module")
def outdated(tmp_path_factory: pytest.TempPathFactory) -> Clone:
    """A checkout that two commits left behind: they brought a package, and a draft in review."""
    root = tmp_path_factory.mktemp("outdated") / "w"
    world = write_world(root, ("edge-1",))
    world.publish()
    behind = clone(world)
    bring(world)
    commit(world, {"manifests/late.yaml": another("late")})
    assert world.run("apply").code == 0
    return behind


@pytest.mark.slow
@pytest.mark.parametrize("name", WRITING)
def test_outdated_checkout_writes_nothing(outdated: Clone, name: str) -> None:
    before, tip = outdated.all_refs(), git(outdated.root / "control.git", "rev-parse", "main")[:8]

    said = outdated.run(*WRITING[name])

    assert said.code == Exit.REFUSED
    assert said.err.startswith(
        f"error: This checkout is 2 commits behind main ({tip} is the tip): pull, or run from the tip\n"
    )
    assert "`git pull`" in said.err
    assert outdated.all_refs() == before


@pytest.mark.slow
@pytest.mark.parametrize("name", READING)
def test_outdated_checkout_is_read_with_a_note(outdated: Clone, name: str) -> None:
    before = outdated.all_refs()

    said = outdated.run(*READING[name])

    assert said.code in (Exit.DONE, Exit.PENDING)
    assert "note: This checkout is 2 commits" in said.out + said.err
    assert "was removed" not in said.out.replace("proves that it was removed", "")
    assert outdated.all_refs() == before


@pytest.mark.slow
@pytest.mark.parametrize("depth", [(), ("--depth=1",)], ids=["whole", "depth 1"])
@pytest.mark.parametrize("command", ["apply", "action"])
def test_job_that_is_run_again_writes_nothing(
    world: World, depth: tuple[str, ...], command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = git(world.root / "control.git", "rev-parse", "main").strip()
    bring(world, 3)
    git(world.root / "control.git", "config", "uploadpack.allowAnySHA1InWant", "true")
    job = clone(world, *depth, at=old)
    before = world.all_refs()

    said = run_job(job, command, monkeypatch)

    assert said.code == Exit.REFUSED
    assert "This checkout is 3 commits behind main" in said.err
    assert "git fetch origin main && git checkout FETCH_HEAD" in said.err
    assert world.all_refs() == before

    git(job.control, "fetch", "-q", "origin", "main")
    git(job.control, "checkout", "-q", "FETCH_HEAD")
    assert run_job(job, command, monkeypatch).code == 0


def run_job(job: Clone, command: str, monkeypatch: pytest.MonkeyPatch) -> Said:
    if command == "apply":
        return job.run("apply")
    for name, value in {"INPUT_MODE": "apply", "INPUT_CONTROL": str(job.control)}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("GITHUB_WORKSPACE", str(job.control))
    monkeypatch.setenv("RUNNER_TEMP", str(job.root))
    monkeypatch.setenv("XDG_CACHE_HOME", str(job.root / "cache"))
    return run_line("action")


FLOATING = variant("edge-1", "web").replace("revision: 1", "branch: main")
NEWER = {
    "another name": FLOATING.replace("name: web-edge-1", "name: renamed"),
    "another upstream": FLOATING.replace("branch: main", "revision: 1"),
    "other labels": f"{FLOATING}  labels: {{team: b}}\n",
}
"""What a newer commit makes of the floating variant."""


@pytest.mark.slow
@pytest.mark.parametrize("name", NEWER)
def test_outdated_checkout_announces_nothing_that_newer_commits_decided(world: World, name: str) -> None:
    commit(world, {WEB: FLOATING})
    assert world.run("apply").code == 0
    behind = clone(world)
    commit(world, {WEB: NEWER[name]})
    world.publish()

    planned, locked = behind.run("plan", "--detailed-exitcode"), behind.run("lock", "--check")

    assert (planned.code, locked.code) == (Exit.DONE, Exit.DONE), planned.out + locked.out
    assert not [word for word in ("pin:", "gets other labels") if word in planned.out]
    assert "edge-1/web  CheckoutOutdated" in planned.out
    assert "No pin changed" in locked.out


@pytest.mark.slow
def test_outdated_checkout_keeps_what_newer_commits_locked(tmp_path: Path) -> None:
    source = WORLDS / "70-crossplane-delivery"
    world = build_world(source, tmp_path / "w")
    world.publish()
    behind = clone(world)
    world.lay(source / "steps/net-1.6")
    assert "v1.5.0 -> v1.6.0" in world.run("lock", "--upgrade", "x.example.com/acme/net").out
    world.publish()

    planned, locked = behind.run("plan", "--detailed-exitcode"), behind.run("lock", "--check")

    assert (planned.code, locked.code) == (Exit.DONE, Exit.DONE), planned.out + locked.out
    assert "Nothing to do: " in planned.out
    assert "1 cluster, 0 changed, 0 dependency pins changed" in locked.out


# Unmerged commits


def test_branch_ahead_of_main_is_planned_and_not_applied(world: World) -> None:
    tip = commit(world, {WEB: None}, branch="topic", start="main")
    copy = clone(world, "--branch", "topic")
    before = world.all_refs()

    assert f"was removed in commit {tip}" in copy.run("plan").out
    refused = copy.run("apply")

    assert refused.code == Exit.REFUSED
    assert "Branch topic is not the default branch main" in refused.err
    assert world.all_refs() == before


@pytest.mark.parametrize("command", ["plan", "check"])
def test_branch_that_left_main_early_removes_what_it_removed_and_nothing_else(
    world: World, command: str
) -> None:
    names = "a, b"
    commit(world, {"manifests/set.yaml": SET.replace("NAMES", names)})
    world.publish()
    commit(world, {WEB: None, "manifests/set.yaml": SET.replace("NAMES", "a")}, branch="topic", start="main")
    commit(world, {"manifests/c.yaml": another("c"), "manifests/set.yaml": SET.replace("NAMES", "a, b, d")})
    world.publish()
    copy = clone(world, "--branch", "topic")

    said = copy.run(command)

    deleted = set(re.findall(r"^delete +(edge-1/\w+)", said.out, re.MULTILINE))
    assert deleted == {"edge-1/web", "edge-1/b"}


# A main that was moved


def consents(said: Said) -> list[str]:
    return re.findall(r"spec\.consents: \{(\w+)", said.out + said.err)


def test_rewound_main_changes_nothing_and_asks_for_consent(world: World) -> None:
    old = git(world.root / "control.git", "rev-parse", "main").strip()
    bring(world)
    last = applied(world)
    move_main(world, old)
    before = world.all_refs()

    plan, said = world.run("plan"), world.run("apply")

    moved = f"Branch main was moved back: its tip is 1 commit behind {last[:8]}, which was applied last"
    assert moved in plan.out
    assert consents(plan)
    assert "delete" not in {line.split()[0] for line in plan.out.splitlines() if line}
    assert (said.code, moved in said.err) == (Exit.REFUSED, True)
    assert world.all_refs() == before

    consent(world, consents(plan))
    assert world.run("apply").code == 0
    assert "refs/heads/reconciler/fleet/delete/b" in refs(world.root / "edge-1.git")
    assert rests(world)
    assert world.run("approve", "--all").code == 0
    world.run("apply")
    assert applied(world) == git(world.root / "control.git", "rev-parse", "main").strip()
    assert rests(world)
    assert "moved" not in world.run("plan").out


def consent(world: World, sums: list[str]) -> str:
    text = git(world.root / "control.git", "show", "main:reconciler.yaml")
    given = "".join(f"    {each}: meant\n" for each in sums)
    return commit(world, {"reconciler.yaml": f"{text}  consents:\n{given}"})


def rests(world: World) -> bool:
    """Whether a run writes nothing, also without any cache."""
    before = world.all_refs()
    world.run("apply", cache=f"cache-{len(list(world.root.iterdir()))}")
    return world.all_refs() == before


def test_main_that_went_on_after_it_was_moved_back_deletes_only_with_consent(world: World) -> None:
    old = git(world.root / "control.git", "rev-parse", "main").strip()
    commit(world, {"manifests/b.yaml": another("b"), "manifests/draft.yaml": another("draft")})
    assert world.run("apply").code == 0
    assert world.run("approve", "edge-1/b").code == 0
    assert world.run("apply").code == 0
    move_main(world, old)
    commit(world, {"manifests/c.yaml": another("c")})
    drafts = refs(world.root / "edge-1.git")

    said = world.run("apply")

    assert said.code == Exit.REFUSED
    assert "Branch main was moved: it does not contain" in said.out
    now = refs(world.root / "edge-1.git")
    assert {ref: now[ref] for ref in drafts if "/draft/" in ref or "/b/" in ref} == {
        ref: oid for ref, oid in drafts.items() if "/draft/" in ref or "/b/" in ref
    }
    assert "refs/heads/drafts/c/packagevariant-1" in now
    assert rests(world)

    consent(world, consents(world.run("plan")))
    assert world.run("apply").code == 0
    now = refs(world.root / "edge-1.git")
    assert "refs/heads/reconciler/fleet/delete/b" in now
    assert not [ref for ref in now if ref.startswith("refs/heads/drafts/draft/")]
    shown = world.run("pr", "show", "edge-1/late").out
    assert "was removed in commit" not in shown
    assert rests(world)


def test_rebased_main_with_the_same_content_goes_on(world: World) -> None:
    old = git(world.root / "control.git", "rev-parse", "main").strip()
    bring(world)
    stale = clone(world)
    move_main(world, old)
    commit(world, {"NOTES.md": "Below\n"})
    tip = commit(world, {"manifests/b.yaml": another("b")})

    plan = world.run("plan")
    assert "Branch main was moved: it does not contain" in plan.out
    assert not consents(plan)
    left = stale.run("apply")
    assert (left.code, "main was moved" in left.err) == (Exit.REFUSED, True)

    assert world.run("apply").code == 0
    assert applied(world) == tip
    assert rests(world)
    assert "moved" not in world.run("plan").out


# Evidence


def test_history_that_is_cut_off_keeps_and_names_the_depth(world: World) -> None:
    commit(world, {WEB: None})
    commit(world, {"NOTES.md": "Later\n"})
    git(world.root, "clone", "-q", "--depth=1", f"file://{world.root / 'control.git'}", "lone")
    git(world.root / "lone", "fetch", "-q", "--depth=1", "origin", f"+refs/heads/{STATE}:refs/heads/{STATE}")
    git(world.root / "lone", "remote", "remove", "origin")
    lone = Clone(world.root, name="lone")

    said = lone.run("plan")

    assert re.search(r"keep +edge-1/web +RemovalUnproven", said.out)
    assert "`fetch-depth: 0`" in said.out


# Races


@pytest.mark.parametrize("shard", ["", "0/1", "0/2"])
def test_older_run_that_ends_last_records_nothing(world: World, shard: str) -> None:
    commit(world, {"manifests/b.yaml": another("b")})
    options = RunOptions(str(world.root / "control.git"), world.root / "cache-older")
    if shard:
        options = RunOptions(options.control, options.cache_dir, parse_shard(shard, {}))
    older = plan_run(options, to_apply=True)
    newer = commit(world, {"manifests/c.yaml": another("c")})
    assert world.run("apply").code == 0
    state = refs(world.root / "control.git")[f"refs/heads/{STATE}"]

    outcome = apply_plan(older)

    assert Exit.UNAVAILABLE in outcome.exits
    assert applied(world) == newer
    assert refs(world.root / "control.git")[f"refs/heads/{STATE}"] == state
    assert world.run("apply").code == 0
    assert rests(world)


def test_remote_main_is_judged_without_a_cache(world: World) -> None:
    old = git(world.root / "control.git", "rev-parse", "main").strip()
    bring(world)
    with serve(world.root) as server:
        control = ("--control", server.url("control.git"))
        removed = commit(world, {"manifests/b.yaml": None})
        plan = run_line("plan", *control, "--cache-dir", str(world.root / "cache-1"))
        assert f"was removed in commit {removed}" in plan.out

        move_main(world, old)
        plan = run_line("plan", *control, "--cache-dir", str(world.root / "cache-2"))
        assert "Branch main was moved back: its tip is 1 commit behind" in plan.out
        assert consents(plan)
