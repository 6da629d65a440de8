"""The life of a fleet as a state machine: people and runs on real repositories, nothing is ever lost.

Every step is something a person does; then both instances run until they rest. Now and then the
first of these runs is killed at any of its failpoints, or two are planned on one world and applied
one after the other. What must hold is asserted after every run (tests/support/lifecycle.py): no
commit of a person is lost, main and published tags are never moved by a run, one draft and one pull
request per package, each package once in the plan and nothing wanted left out, records name what
exists, and a second run writes nothing, with an empty cache too, chains of variants included.

`RECONCILER_FUZZ=N` in the environment plays N times as many lives as the six of the test suite.
"""

import json
import os
import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pygit2
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from tests.faults.world import Runner
from tests.support.lifecycle import BLUEPRINTS, EDGE, FAR, INSTANCES, WEB, Life, app, paths
from tests.support.world import World

FUZZ = int(os.environ.get("RECONCILER_FUZZ", "1"))
Disturb = Callable[[], None]
PICK = st.integers(0, 5)
HOW = st.sampled_from(["merge", "squash", "rebase"])
TAG = st.sampled_from(["v1", "v2", "v3"])
SELECTORS = st.sampled_from(
    [", revision: 1", ", revision: 2", ", revision: 3", ", tag: stable", ", branch: main", ""]
)


@cache
def runner() -> Runner:
    """Return the runner of runs that are killed, with a log of its own."""
    return Runner(Path(tempfile.mkdtemp(prefix="lifecycle-runner-")) / "points")


def teardown_module() -> None:
    if runner.cache_info().currsize:
        shutil.rmtree(runner().log.parent, ignore_errors=True)


class Lifecycle(RuleBasedStateMachine):
    """A person, and two instances that share a downstream repository."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="lifecycle-"))
        self.disturb: Disturb | None = None

    def teardown(self) -> None:
        shutil.rmtree(self.root, ignore_errors=True)

    @initialize(is_published=st.booleans())
    def begin(self, *, is_published: bool) -> None:
        self.life = Life(self.root / "w")
        self.rest()
        if is_published:
            self.approve_everything()

    def rest(self) -> None:
        """Let the instances run until there is nothing left to do; what disturbs them comes first."""
        disturb, self.disturb = self.disturb, None
        if disturb is not None:
            disturb()
        self.life.rest()

    # what disturbs the runs after the next step

    @rule(point=st.integers(1, 40), instance=st.sampled_from(sorted(INSTANCES)))
    def kill_the_next_run(self, point: int, instance: str) -> None:
        self.disturb = lambda: self.life.run_killed(runner(), instance, point)

    @rule(pair=st.sampled_from([("fleet", "fleet"), ("fleet", "rival"), ("rival", "fleet")]))
    def let_the_next_runs_race(self, pair: tuple[str, str]) -> None:
        self.disturb = lambda: self.life.run_stale(*pair)

    # the control repository

    @rule(selector=SELECTORS)
    def choose_upstream(self, selector: str) -> None:
        self.life.wish.selector = selector
        self.life.publish_wish()
        self.rest()

    @rule(revision=st.integers(1, 3))
    def choose_revision_of_the_set(self, revision: int) -> None:
        self.life.wish.revision = revision
        self.life.publish_wish()
        self.rest()

    @rule()
    def rename_the_variant(self) -> None:
        self.life.wish.name = f"one-{self.life.next()}"
        self.life.publish_wish()
        self.rest()

    @rule()
    def rename_the_set(self) -> None:
        self.life.wish.set_name = f"sites-{self.life.next()}"
        self.life.publish_wish()
        self.rest()

    @rule(packages=st.sampled_from([("alpha",), ("beta",), ("alpha", "beta"), ("alpha", "gamma")]))
    def choose_targets(self, packages: tuple[str, ...]) -> None:
        self.life.wish.packages = packages
        self.life.publish_wish()
        self.rest()

    @rule(deletion=st.sampled_from(["delete", "orphan"]))
    def remove_or_restore_the_variant(self, deletion: str) -> None:
        self.life.wish.present = not self.life.wish.present
        self.life.wish.deletion = deletion
        self.life.publish_wish()
        self.rest()

    @rule()
    def ask_again(self) -> None:
        """Ask for what was rejected, by the annotation of its variant."""
        self.life.wish.retry = self.life.next()
        self.life.publish_wish()
        self.rest()

    # the upstream

    @rule(tag=TAG)
    def move_the_floating_tag(self, tag: str) -> None:
        self.life.repos[BLUEPRINTS].tag(f"{WEB}/stable", f"{WEB}/{tag}")
        self.rest()

    @rule(old=TAG, consents=st.booleans())
    def move_a_numbered_tag(self, old: str, *, consents: bool) -> None:
        self.life.blueprint(f"shade-{self.life.next()}")
        new = self.life.repos[BLUEPRINTS].oid("main")
        self.life.repos[BLUEPRINTS].tag(f"{WEB}/{old}", new)
        if consents:
            self.life.wish.follow = new
            self.life.publish_wish()
        self.rest()

    # the downstream

    @precondition(lambda self: self.life.packages())
    @rule(pick=PICK, field=st.sampled_from(["color", "size", "notes"]))
    def edit_main(self, pick: int, field: str) -> None:
        package = self._pick(self.life.packages(), pick)
        self.life.edge.commit(self._edit(package, field), message="Hotfix\n")
        self.rest()

    @precondition(lambda self: self.life.drafts())
    @rule(pick=PICK, field=st.sampled_from(["color", "size", "notes", "nothing"]))
    def push_to_a_draft(self, pick: int, field: str) -> None:
        branch = self._pick(self.life.drafts(), pick)
        package = branch.split("/", 1)[1].rpartition("/")[0]
        changes = {"README.md": f"{self.life.next()}\n"}
        if field != "nothing" and package in self.life.packages(branch):
            changes = self._edit(package, field)
        self.life.edge.commit(changes, branch=branch, message="Mine\n")
        self.rest()

    @precondition(lambda self: self.life.drafts())
    @rule(pick=PICK, how=HOW, keeps_branch=st.booleans())
    def merge(self, pick: int, how: str, *, keeps_branch: bool) -> None:
        branch = self._pick(self.life.drafts(), pick)
        edge = self.life.edge
        if edge.git.merge_commits(edge.oid("main"), edge.oid(branch)).conflicts:
            return
        if how == "rebase" and _has_merges(edge.git, edge.oid("main"), edge.oid(branch)):
            how = "squash"
        edge.merge(branch, how=how)
        if not keeps_branch:
            edge.delete(f"refs/heads/{branch}")
        self.rest()

    @precondition(lambda self: self.life.drafts(FAR))
    @rule()
    def merge_the_chained_package(self) -> None:
        branch = self.life.drafts(FAR)[0]
        self.life.repos[FAR].merge(branch, how="merge")
        self.rest()

    @rule()
    def approve_everything(self) -> None:
        World(self.life.root).run("approve", "--all")
        self.rest()

    @precondition(lambda self: self.life.drafts())
    @rule(pick=PICK)
    def close_a_pull_request(self, pick: int) -> None:
        branch = self._pick(self.life.drafts(), pick)
        package = branch.split("/", 1)[1].rpartition("/")[0]
        World(self.life.root).run("pr", "close", f"{EDGE}/{package}")
        self.rest()

    @precondition(lambda self: self.life.rejected())
    @rule(pick=PICK)
    def reopen_a_pull_request(self, pick: int) -> None:
        said = World(self.life.root).run("pr", "reopen", self._pick(self.life.rejected(), pick))
        assert said.code in (0, 4), said
        self.rest()

    @precondition(lambda self: self.life.drafts())
    @rule(pick=PICK)
    def delete_a_branch(self, pick: int) -> None:
        self.life.edge.delete(f"refs/heads/{self._pick(self.life.drafts(), pick)}")
        self.rest()

    @precondition(lambda self: self._published())
    @rule(pick=PICK)
    def revert_on_main(self, pick: int) -> None:
        self.life.revert(self._pick(self._published(), pick))
        self.rest()

    @precondition(lambda self: self.life.packages())
    @rule(pick=PICK)
    def copy_a_package(self, pick: int) -> None:
        self.life.copy(self._pick(self.life.packages(), pick))
        self.rest()

    def _published(self) -> list[str]:
        tags = [r.removeprefix("refs/tags/") for r in self.life.edge.refs() if r.startswith("refs/tags/")]
        return sorted({tag.rpartition("/")[0] for tag in tags} & set(self.life.packages()))

    def _edit(self, package: str, field: str) -> dict[str, str]:
        number = self.life.next()
        match field:
            case "color":
                return {f"{package}/app.yaml": app(f"mine-{number}")}
            case "size":
                return {f"{package}/app.yaml": app("red", f"mine-{number}")}
            case _:
                return {f"{package}/notes.txt": f"{number}\n"}

    @staticmethod
    def _pick(found: list[str], number: int) -> str:
        return found[number % len(found)]


def _has_merges(repository: pygit2.Repository, main: str, tip: str) -> bool:
    walker = repository.walk(pygit2.Oid(hex=tip))
    walker.hide(pygit2.Oid(hex=main))
    return any(len(commit.parents) > 1 for commit in walker)


TestLifecycle = Lifecycle.TestCase
TestLifecycle.settings = settings(max_examples=6 * FUZZ, stateful_step_count=12, deadline=None)


def test_the_helpers_see_what_is_there(tmp_path: Path) -> None:
    life = Life(tmp_path / "w")
    life.rest()

    assert life.packages() == []
    assert [branch.split("/")[1] for branch in life.drafts()] == ["alpha", "beta", "web"]
    assert "web/app.yaml" in paths(life.edge, life.drafts()[2])


def test_status_rests_after_a_draft_without_a_package_is_orphaned(tmp_path: Path) -> None:
    life = Life(tmp_path / "w")
    life.wish.deletion = "orphan"
    life.publish_wish()
    life.rest()

    life.wish.present = False
    life.publish_wish()
    life.rest()

    assert "one.json" not in " ".join(paths(life.repos["control"], "reconciler/fleet/status"))


def test_status_rests_after_the_branch_of_a_deletion_is_removed(tmp_path: Path) -> None:
    life = Life(tmp_path / "w")
    life.rest()
    World(life.root).run("approve", "--all")
    life.rest()
    life.wish.packages = ("alpha",)
    life.publish_wish()
    life.rest()

    life.edge.delete("refs/heads/reconciler/fleet/delete/beta")
    life.rest()

    status = json.loads(World(life.root).run("status", "-o", "json").out)
    packages = {item["name"]: item["package"] for item in status["items"] if "package" in item}
    assert packages["sites-edge-beta"]["phase"] == "rejected"
    assert packages["sites-edge-alpha"]["phase"] == "published"
