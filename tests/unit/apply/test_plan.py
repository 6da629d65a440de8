"""All effects of a plan: repositories, then state and status; what a run that was asked to end left."""

import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from reconciler.apply import plan
from reconciler.apply.dashboard import DashboardWriter
from reconciler.apply.outcome import EffectKind, Result, failed_result, merge_results
from reconciler.apply.plan import apply_changes
from reconciler.apply.state import Branch, read_branch, write_branch
from reconciler.base import effects
from reconciler.base.errors import Exit, RefusedError
from reconciler.base.reasons import Reason
from reconciler.git.repository import Mirror, Mirrors
from reconciler.http.client import LimitedError
from reconciler.inventory.inventory import Commit, Control, Inventory, RepositoryRole, ReviewedLock
from reconciler.inventory.shard import Shard
from reconciler.names.ids import ObjectName, Oid, PackageKey
from reconciler.plan.changes import Change, Effect, LockProposal, MoveRef, Outcome, Plan, Refusal, Unfinished
from reconciler.policy import CommitPolicy, Limits, Policy
from reconciler.read.state import state_ref, status_ref
from reconciler.records.state import (
    REFUSED_DELETIONS,
    SETS_DIRECTORY,
    WANTED_LOCK,
    SetRecord,
    UpstreamLock,
    WantedLockRecord,
    lock_bytes,
    lock_path,
    record_bytes,
    record_path,
)
from reconciler.report.report import Names
from tests.support.git import EPOCH, make_repository
from tests.support.plan_values import a_record
from tests.support.values import replace
from tests.unit.apply.test_dashboard import Issues, forge_of, transport
from tests.unit.apply.world import Edge


def test_failed_effect_and_each_of_its_packages_have_error_and_hint() -> None:
    error = RefusedError("no", hint="Ask.")
    web, db = PackageKey("u", "web"), PackageKey("u", "db")

    result = failed_result("edge", error, [web, db], "drafts/web", pushed=True)

    assert [(e.repository, e.what, e.ref, e.error, e.hint) for e in result.effects] == [
        ("edge", EffectKind.PUSHED, "drafts/web", "no", "Ask.")
    ]
    assert result.unfinished == dict.fromkeys([web, db], Unfinished("no", "Ask.", pushed=True))
    assert result.exits == {Exit.REFUSED}


def test_package_that_two_results_left_unfinished_has_the_first_reason() -> None:
    web, db = PackageKey("u", "web"), PackageKey("u", "db")
    first, second = (failed_result("edge", RefusedError(why), [web], why) for why in ("one", "two"))

    merged = merge_results([first, second, Result(unfinished={db: Unfinished("three")}, remaining=2)])

    assert {package.path: why.message for package, why in merged.unfinished.items()} == {
        "web": "one",
        "db": "three",
    }
    assert ([effect.ref for effect in merged.effects], merged.remaining) == (["one", "two"], 2)


class World:
    """A control repository beside the repository `edge`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.edge = Edge(root)
        self.control = make_repository(root / "control.git", {"x": "1"})
        self.policy = Policy(instance="demo", commits=CommitPolicy(name="Bot", email="bot@example.com"))

    def mirror(self) -> Mirror:
        mirror = Mirrors(self.root / "cache").open(str(self.control.path))
        mirror.fetch()
        return mirror

    def inventory(self, **fields: Any) -> Inventory:
        refs = self.mirror().refs()
        control = Control(
            "control",
            str(self.control.path),
            Commit(self.control.oid("main"), EPOCH + 5),
            "main",
            refs.get(state_ref("demo")),
            refs.get(status_ref("demo")),
        )
        return Inventory(self.policy, control, **fields)

    def apply(
        self, plan: Plan, inventory: Inventory | None = None, seen: list[Effect] | None = None
    ) -> Outcome:
        targets = {change.package.url: self.edge.target() for change in plan.changes}
        targets["control"] = self.edge.target()
        effects = [] if seen is None else seen
        return apply_changes(plan, inventory or self.inventory(), targets, self.mirror(), effects.extend)

    def files(self, ref: str) -> Mapping[str, bytes]:
        mirror = self.mirror()
        return read_branch(mirror, mirror.refs().get(ref), Limits())


STATE, STATUS = state_ref("demo"), status_ref("demo")


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_repositories_are_written_before_state_and_status(world: World) -> None:
    plan = Plan(
        (world.edge.created(),), records={"packagevariants/d/web.json": b"{}"}, status={"status.json": b"[]"}
    )
    seen: list[Effect] = []

    outcome = world.apply(plan, seen=seen)

    assert [(effect.repository, effect.what) for effect in seen] == [
        ("edge", EffectKind.PUSHED),
        ("edge", EffectKind.OPENED),
        ("control", EffectKind.RECORDED),
        ("control", EffectKind.RECORDED),
    ]
    assert (list(outcome.effects), outcome.exits) == (seen, frozenset())
    assert world.files(STATE) == {"packagevariants/d/web.json": b"{}"}
    assert world.files(STATUS) == {"status.json": b"[]"}
    messages = {STATE: "Record what was applied\n", STATUS: "Record conditions\n"}
    for ref, message in messages.items():
        commit = world.control.git[world.control.oid(ref)]
        assert (commit.message, commit.committer.name, commit.committer.time) == (message, "Bot", EPOCH + 5)


VARIANT = a_record(namespace="default", name="web", uid="u", manifest="m", url="file:///edge", path="web")
SET = SetRecord(namespace="default", name="fleet", uid="u", manifest="m", targets=1)
PIN = UpstreamLock(
    namespace="default",
    name="web",
    repository="up",
    package="web",
    selector={},
    commit="1" * 40,
    tree="2" * 40,
)
WEB = PackageKey("file:///edge", "web")
OLD = {
    record_path(VARIANT): record_bytes(VARIANT),
    record_path(SET): record_bytes(SET),
    lock_path(PIN): lock_bytes(PIN),
    WANTED_LOCK: record_bytes(WantedLockRecord(tree="3" * 40)),
}


@pytest.mark.parametrize("path", OLD)
@pytest.mark.parametrize("fails", [True, False])
def test_files_that_wait_for_a_package_stay_as_they_were_where_it_failed(
    world: World, path: str, fails: bool
) -> None:
    plan = Plan((world.edge.created(),), records={path: b"new", "other": b"new"}, record_owners={path: WEB})
    inventory = world.inventory(
        records={VARIANT.key: VARIANT},
        set_records={SET.key: SET},
        locks={PIN.key: PIN},
        reviewed=ReviewedLock("main", computed_tree=Oid("3" * 40)),
    )
    if fails:
        world.edge.repo.point("refs/heads/drafts/web", world.edge.repo.oid("main"))

    outcome = world.apply(plan, inventory)

    assert world.files(STATE) == {path: OLD[path] if fails else b"new", "other": b"new"}
    assert outcome.exits == ({Exit.REFUSED} if fails else set())


def test_lock_that_was_never_computed_is_not_recorded(world: World) -> None:
    world.edge.repo.point("refs/heads/drafts/web", world.edge.repo.oid("main"))
    plan = Plan((world.edge.created(),), records={WANTED_LOCK: b"new"}, record_owners={WANTED_LOCK: WEB})

    world.apply(plan, world.inventory(reviewed=ReviewedLock("main")))

    assert world.files(STATE) == {}


def test_change_of_the_lock_is_applied_beside_those_of_packages(world: World) -> None:
    lock = replace(world.edge.created("lock"), package=PackageKey("control", "lock"))

    world.apply(Plan((world.edge.created(),), lock=LockProposal(lock)))

    assert {"refs/heads/drafts/lock/packagevariant-1", "refs/heads/drafts/web/packagevariant-1"} <= {
        *world.edge.repo.refs()
    }


def test_repositories_are_written_in_order_until_the_run_is_asked_to_end(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was not begun is counted, without what stays as it is, and left to the next run."""
    monkeypatch.setattr(effects, "requested", effects.Flag())
    edges = {f"file:///{name}": Edge(tmp_path / name) for name in "bac"}
    changes = [
        replace(change, package=PackageKey(url, change.package.path))
        for url, edge in edges.items()
        for change in (edge.created("web"), edge.created("db"), edge.change("same"))
    ]
    there = Edge(tmp_path / "there")
    move = MoveRef("refs/heads/main", there.repo.oid("main"), there.repo.oid("main"))
    changes.insert(0, replace(there.change("db", move), package=PackageKey("file:///0", "db")))
    targets = {url: edge.target() for url, edge in {**edges, "file:///0": there}.items()}
    world.policy = replace(world.policy, limits=Limits(repositories_at_once=1))
    seen: list[list[tuple[str, str]]] = []

    def end(done: Sequence[Effect]) -> None:
        seen.append([(effect.ref, effect.error) for effect in done])
        if done:
            effects.request_shutdown()

    outcome = apply_changes(Plan(tuple(changes)), world.inventory(), targets, world.mirror(), end)

    message, hint = str(effects.StoppedError()), effects.StoppedError.hint
    assert {f"drafts/{name}/packagevariant-1" for name in ("web", "db")} < {ref for ref, _ in seen[1]}
    assert [seen[0], *seen[2:]] == [[], [], [], [("", f"4 changes left: {message}")], []]
    assert [len(edge.repo.refs()) > 1 for edge in edges.values()] == [False, True, False]
    assert outcome.exits == {Exit.PARTIAL}
    left = {PackageKey(f"file:///{name}", path) for name in "bc" for path in ("web", "db")}
    assert outcome.unfinished == dict.fromkeys(left, Unfinished(message, hint, is_left=True))
    last = outcome.effects[-1]
    assert (last.repository, last.hint, last.is_left) == ("2 repositories", hint, True)


@pytest.mark.parametrize(("limit", "most"), [(1, 1), (3, 3), (100, 8)])
def test_repositories_are_written_side_by_side_and_reported_in_order(
    world: World, monkeypatch: pytest.MonkeyPatch, limit: int, most: int
) -> None:
    lock, busy, seen = threading.Lock(), 0, []

    def write(target: Any, _: Sequence[Change]) -> Result:
        nonlocal busy
        with lock:
            busy += 1
            seen.append(busy)
        time.sleep(0.05)
        with lock:
            busy -= 1
        return Result((Effect(target.names, "pushed"),))

    monkeypatch.setattr(plan, "apply_repository", write)
    targets = {f"r{n}": replace(world.edge.target(), names=cast("Any", f"r{n}")) for n in range(8)}
    world.policy = replace(world.policy, limits=Limits(repositories_at_once=limit))
    created = world.edge.created()
    changes = [replace(created, package=PackageKey(url, "web")) for url in reversed(targets)]

    outcome = apply_changes(Plan(tuple(changes)), world.inventory(), targets, world.mirror())

    assert [effect.repository for effect in outcome.effects] == [*targets]
    assert max(seen) == most


def test_recorded_error_of_a_remote_quotes_no_secret(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_TOKEN", "a-secret-of-the-environment")
    hook = world.edge.repo.path / "hooks" / "update"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\necho a-secret-of-the-environment; exit 1\n")
    hook.chmod(0o755)

    outcome = world.apply(Plan((world.edge.created(),)))

    (unfinished,) = outcome.unfinished.values()
    assert unfinished.message.endswith("hook declined: ***")


MINE, THEIRS, LOCK = "packagevariants/d/mine.json", "packagevariants/d/theirs.json", "locks/c.json"
SETS = "packagevariantsets/d/s.json"
RECORDS = (MINE, THEIRS, LOCK, SETS, REFUSED_DELETIONS)
LEFT = ("locks/gone.json", f"{SETS_DIRECTORY}/d/gone.json", "other.json")
CONDITIONS = ("conditions/mine", "conditions/theirs", "conditions/packages/c.json")


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("is_whole", [False, True])
def test_shard_writes_what_it_decides_and_leaves_the_files_of_others(
    world: World, is_whole: bool, fails: bool
) -> None:
    records = dict.fromkeys((*RECORDS, *LEFT), b"old")
    world.apply(Plan(records=records, status=dict.fromkeys(CONDITIONS, b"old")))
    views = {} if is_whole else {ObjectName("d", "x"): SimpleNamespace(role=RepositoryRole.SKIPPED)}
    plan = Plan(
        (world.edge.created(),),
        records=dict.fromkeys(RECORDS, b"new"),
        record_owners={MINE: WEB, THEIRS: PackageKey("file:///other", "x")},
        status=dict.fromkeys(CONDITIONS, b"new"),
        other_files=frozenset({THEIRS, "conditions/theirs"}),
    )
    if fails:
        world.edge.repo.point("refs/heads/drafts/web", world.edge.repo.oid("main"))

    world.apply(plan, world.inventory(repositories=cast("Any", views)))

    state, status = world.files(STATE), world.files(STATUS)
    decided = {SETS, *(() if fails else (MINE,)), *((LOCK, REFUSED_DELETIONS) if is_whole else ())}
    if not is_whole:  # what the plan records and nobody owns, every shard decides alike
        decided |= {LOCK, REFUSED_DELETIONS}
    assert {path for path, data in state.items() if data == b"new"} == decided
    observed = {"conditions/mine", *(CONDITIONS[2:] if is_whole else ())}
    assert {path for path, data in status.items() if data == b"new"} == observed
    # A file that the plan has no more is removed by the shards that decide on it.
    kept = {"other.json", *(() if is_whole else ("locks/gone.json",))}
    assert ({*state}, {*status}) == ({*RECORDS} | kept, {*CONDITIONS})


def test_whole_shard_leaves_the_locks_that_another_run_decided_meanwhile(world: World) -> None:
    def apply(lock: bytes, inventory: Inventory | None = None) -> Outcome:
        return world.apply(Plan(records={LOCK: lock, SETS: lock}, other_files=frozenset()), inventory)

    apply(b"old")
    read = world.inventory()
    apply(b"newer")

    outcome = apply(b"mine", read)

    assert world.files(STATE) == {LOCK: b"newer", SETS: b"mine"}
    assert outcome.exits == {Exit.UNAVAILABLE}


def test_bug_in_a_repository_leaves_what_was_to_be_written_there(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "apply_repository", lambda *_: 1 / 0)

    outcome = world.apply(Plan((world.edge.created(), world.edge.change("same"))))

    assert [package.path for package in outcome.unfinished] == ["web"]
    assert [effect.repository for effect in outcome.effects if effect.error] == ["edge"]
    assert outcome.exits == {Exit.BUG}


REFUSED = Plan(refusals=(Refusal(Reason.DELETION_GUARD, "too many", "Ask."),), records={"a": b"1"})


def apply_with(world: World, dashboards: DashboardWriter, plan: Plan = REFUSED) -> list[tuple[str, str, str]]:
    """Apply a plan and return its effects."""
    targets = {change.package.url: world.edge.target() for change in plan.changes}
    seen: list[Effect] = []
    outcome = apply_changes(
        plan, world.inventory(), targets, world.mirror(), seen.extend, dashboards=dashboards
    )
    assert list(outcome.effects) == seen
    return [(effect.repository, effect.what, effect.ref) for effect in seen]


RECORDED = [("control", EffectKind.RECORDED, f"reconciler/demo/{branch}") for branch in ("state", "status")]
UPDATED = ("acme/control", EffectKind.UPDATED, "#1 Dashboard of demo")


def test_dashboard_of_several_shards_has_the_parts_of_the_status_branch(world: World) -> None:
    issues = Issues()
    dashboards = DashboardWriter(forge_of(issues), Names("demo"), Shard(0, 2))
    write_branch(
        world.mirror(),
        Branch(STATUS, None, {"dashboard-1-of-2.md": b"The second part"}, "x\n"),
        CommitPolicy(),
        EPOCH,
    )
    theirs = frozenset({"dashboard-1-of-2.md"})

    effects = apply_with(world, dashboards, replace(REFUSED, other_files=theirs))

    assert effects == [UPDATED, *RECORDED]
    first, second = issues.texts[0].split("\n\n<!-- reconciler:shard 1/2 -->\n")
    assert "too many" in first
    assert second == "The second part\n<!-- reconciler:shard end -->"
    assert set(world.files(STATUS)) == {"dashboard-0-of-2.md", "dashboard-1-of-2.md"}


def test_dashboard_that_cannot_be_written_stops_nothing(world: World) -> None:
    effects = apply_with(world, DashboardWriter(forge_of(Issues(down=True)), Names("demo")))

    assert effects == [("acme/control", EffectKind.UPDATED, "Dashboard of demo"), RECORDED[0]]


@pytest.mark.parametrize("has_dashboard", [True, False])
def test_one_write_of_a_forge_is_kept_for_the_dashboard(world: World, has_dashboard: bool) -> None:
    over = transport(per_hour=2, per_minute=60, max_wait_s=1)
    target = replace(world.edge.target(), forge=forge_of(Issues(), over))
    dashboards = DashboardWriter(world.edge.target().forge, Names("demo")) if has_dashboard else None

    apply_changes(Plan(), world.inventory(), {"file:///edge": target}, world.mirror(), dashboards=dashboards)

    with over.budget.write():
        over.clock.sleep(60)
    with pytest.raises(LimitedError) if has_dashboard else nullcontext(), over.budget.write():
        pass
