"""The pull request of another lock, each state as the whole proposal, and the pins that change, in words."""

from typing import Any

import pytest

from reconciler.base.reasons import Reason
from reconciler.dependencies.lock.format import ClusterLock, ClusterUpdate, LockUpdate
from reconciler.dependencies.lock.format import next_lock as next_cluster_lock
from reconciler.dependencies.lock.update import effective_locks
from reconciler.dependencies.model.instances import Instance, Resolution, Resolved, Slot, SlotKind
from reconciler.dependencies.model.packages import Ecosystem
from reconciler.expand import Desired
from reconciler.inventory.inventory import Commit, LockBranch, PullRequest, PullState, ReviewedLock
from reconciler.names.ids import ObjectName, PackageKey
from reconciler.names.objects import File, Files, tree_id
from reconciler.plan.changes import Change, ClosePull, LockProposal, Op, PinChange, WriteDraft, WriteRemoval
from reconciler.plan.proposals import (
    ComputedLock,
    LockPlan,
    compute_lock,
    lock_package,
    moved_pins,
    plan_lock,
    propose_lock,
    with_pins,
)
from reconciler.plan.requests import lock_pull
from reconciler.policy import Policy
from reconciler.records.state import UpstreamLock, WantedLockRecord, lock_bytes, lock_upstream, record_bytes
from reconciler.resolve.fleet import ResolvedFleet
from reconciler.resolve.resolution import Resolution as FleetResolution
from reconciler.resolve.resolution import WaitingVariant
from tests.support.plan_values import WEB, a_change, a_desired, a_pin, a_record, a_resolved, a_write, oid
from tests.support.sets import world
from tests.support.values import replace

HEAD = "reconciler/default/lock"
REF = f"refs/heads/{HEAD}"
CONTROL = world().control
A: Files = {"notes.md": File.of(b"1")}
B: Files = {"notes.md": File.of(b"2")}
PIN = PinChange("PackageVariant default/web", "stable@11111111", "stable@22222222", "tag stable moved")
LOCK = ComputedLock(B, (PIN,), 40)
BRANCH = LockBranch(Commit(oid("a9"), 30), files=B)
MESSAGE = (
    "Lock PackageVariant default/web at stable@22222222\n\n"
    "PackageVariant default/web: stable@11111111 -> stable@22222222 (tag stable moved)\n"
)
WRITE = a_write(
    ref=REF, onto=CONTROL.commit.oid, path="locks", files=B, tree=tree_id(B), message=MESSAGE, time=40
)


def pull_of(pins: tuple[PinChange, ...] = (PIN,), edited: tuple[str, ...] = (), **fields: Any) -> PullRequest:
    title = fields.pop("title", "Lock PackageVariant default/web at stable@22222222")
    planned = PullRequest(HEAD, "main", title, "", draft=False)
    return replace(lock_pull(planned, None, world(), pins, edited), **fields)


PULL = pull_of()
OPEN = pull_of(number=3)
CHANGE = a_change(
    package=PackageKey(CONTROL.url, "locks"),
    repository=ObjectName("", "control"),
    op=Op.CREATE,
    reason=Reason.LOCK_PENDING,
    before=tree_id(A),
    tree=tree_id(B),
    writes=(WRITE,),
    pull=PULL,
)
STANDS = replace(CHANGE, op=Op.KEEP, before=tree_id(B), writes=(), pull=None)


def proposal(
    lock: ComputedLock = LOCK,
    branch: LockBranch | None = None,
    *pulls: PullRequest,
    policy: Policy | None = None,
    **reviewed: Any,
) -> LockProposal | None:
    given = {"base": "main", "files": A, "branch": branch, **reviewed}
    inventory = world(pulls={CONTROL.url: pulls}, policy=policy or Policy())
    return propose_lock(lock, ReviewedLock(**given), inventory)


def proposed(change: Change, *edited: str) -> LockProposal:
    return LockProposal(change, (PIN,), edited)


def test_lock_that_loses_its_last_pin_is_removed() -> None:
    dropped = PinChange("PackageVariant default/web", "stable@11111111", "", "no variant asks for it")
    message = (
        "Drop the lock of PackageVariant default/web\n\n"
        "PackageVariant default/web: stable@11111111 (no variant asks for it)\n"
    )

    found = proposal(ComputedLock({}, (dropped,), 40))

    title = "Drop the lock of PackageVariant default/web"
    assert found == LockProposal(
        replace(
            CHANGE,
            tree=None,
            writes=(WriteRemoval(REF, None, CONTROL.commit.oid, "locks", message, 40),),
            pull=pull_of((dropped,), title=title),
        ),
        (dropped,),
    )


def test_several_changes_are_counted_and_listed() -> None:
    need = PinChange("cluster prod", "", "", "needs are met otherwise, by the same versions")

    found = proposal(LOCK._replace(pins=(PIN, need)))

    assert found is not None
    (write,) = found.change.writes
    assert isinstance(write, WriteDraft)
    assert write.message == (
        "Lock 2 changes\n\n"
        "PackageVariant default/web: stable@11111111 -> stable@22222222 (tag stable moved)\n"
        "cluster prod: needs are met otherwise, by the same versions\n"
    )
    assert found.change.pull == pull_of((PIN, need), title="Lock 2 changes")


# A branch that is there


def test_branch_that_proposes_the_lock_waits_for_a_review() -> None:
    waits = replace(STANDS, message="Pull request #3 waits for a review")

    assert proposal(LOCK, BRANCH, OPEN) == proposed(waits)


def test_double_pull_requests_are_closed() -> None:
    comment = "Pull request #3 proposes the same branch and was opened first; this one is closed."
    doubles = (ClosePull(5, HEAD, comment, 3),)
    other = pull_of(number=7, head="drafts/x")

    assert proposal(LOCK, BRANCH, replace(OPEN, number=5), OPEN, other) == proposed(
        replace(STANDS, op=Op.UPDATE, reason=Reason.PULL_REQUEST_DUPLICATE, pull=OPEN, close=doubles)
    )


EDITED = replace(
    BRANCH,
    files={"notes.md": File.of(b"3"), "mine": File.of(b"m")},
    edited_files=frozenset({"mine", "gone.json"}),
    has_foreign_commits=True,
    foreign_commit_time=90,
)


def test_commit_is_as_old_as_the_newest_of_its_inputs() -> None:
    found = proposal(LOCK._replace(time=95), EDITED)

    assert found is not None
    assert [write.time for write in found.change.writes] == [95]


# Refusals


CLOSED = replace(OPEN, state=PullState.CLOSED)
MERGED = replace(OPEN, state=PullState.MERGED)
WAS_CLOSED = "Pull request #3 with these pins was closed. They are proposed again when they change"
IS_CLOSED = f"{WAS_CLOSED}, or when it is opened again"
WAS_MERGED = (
    "Pull request #3 was merged, and main does not have these pins. They are proposed again when they change"
)
BY_HAND = "; `reconciler lock` in a working copy writes them all the same, to be committed"


@pytest.mark.parametrize(
    ("branch", "pull", "computed", "message"),
    [
        pytest.param(BRANCH, CLOSED, None, IS_CLOSED, id="closed, and its branch is there"),
        pytest.param(None, CLOSED, tree_id(B), WAS_CLOSED + BY_HAND, id="closed, and its branch is gone"),
        pytest.param(None, MERGED, tree_id(B), WAS_MERGED + BY_HAND, id="merged, and main went back"),
        pytest.param(None, CLOSED, tree_id(A), "", id="another lock was closed"),
        pytest.param(None, CLOSED, None, "", id="nothing was recorded"),
        pytest.param(replace(BRANCH, files={}), CLOSED, tree_id(B), "", id="its branch has another lock"),
        pytest.param(None, None, tree_id(B), "", id="it was never proposed"),
        pytest.param(None, OPEN, tree_id(B), "", id="it is open"),
    ],
)
def test_lock_that_people_refused_is_not_proposed_again(branch, pull, computed, message) -> None:
    found = proposal(LOCK, branch, *((pull,) if pull else ()), computed_tree=computed)

    assert found is not None
    if message:
        before = tree_id(branch.files) if branch else tree_id(A)
        refused = replace(STANDS, reason=Reason.REJECTED, message=message, waits=True, before=before)
        assert found == proposed(refused)
    else:
        assert found.change.reason is Reason.LOCK_PENDING


# Suspension and records


def lock_plan(*, suspend: bool = False, **reviewed: Any) -> LockPlan:
    given = {"base": "main", "files": A, **reviewed}
    inventory = world(reviewed=ReviewedLock(**given), policy=Policy(suspend=suspend))
    return plan_lock(inventory, ResolvedFleet(Desired(), FleetResolution()))


def test_what_was_proposed_is_recorded() -> None:
    assert plan_lock(world(), ResolvedFleet(Desired(), FleetResolution())) == LockPlan()
    path, package = "lock.json", lock_package(world())
    recorded = {path: record_bytes(WantedLockRecord(tree=tree_id(A)))}
    assert lock_plan() == LockPlan(None, recorded, {path: package})
    before = {path: record_bytes(WantedLockRecord(tree=tree_id(B)))}
    for unproposed in (
        lock_plan(is_open=False, computed_tree=tree_id(B)),
        lock_plan(suspend=True, computed_tree=tree_id(B)),
    ):
        assert unproposed == LockPlan(None, before, {path: package})
    assert lock_plan(files={}) == LockPlan(None, {}, {path: package})


def test_suspended_lock_is_kept() -> None:
    branch = replace(BRANCH, files=B)

    running, suspended = lock_plan(branch=branch).proposal, lock_plan(branch=branch, suspend=True).proposal

    assert running is not None
    assert suspended is not None
    assert running.change.op is Op.CLOSE
    assert suspended.change == a_change(
        package=running.change.package,
        repository=running.change.repository,
        reason=Reason.PAUSED,
        message="The configuration suspends every change",
        before=running.change.before,
        tree=running.change.before,
    )
    mine = replace(branch, edited_files=frozenset({"other"}))
    waiting = lock_plan(branch=mine, suspend=True).proposal
    assert waiting is not None
    assert waiting.change.reason is Reason.DRAFT_EDITED


# Pins


def a_lock(
    digit: str, selector: dict[str, Any] | None = None, *, held: bool = False, name: str = "web"
) -> UpstreamLock:
    upstream = {
        "repo": "blueprints",
        "package": "web",
        **({"tag": "stable"} if selector is None else selector),
    }
    lock = lock_upstream(
        ObjectName("default", name), upstream, commit=digit * 40, tree=oid("c2"), ref="web/stable", held=held
    )
    assert lock is not None
    return lock


def moved(
    pins: UpstreamLock | None,
    selector: dict[str, Any],
    *,
    digit: str = "2",
    is_offered: bool = True,
    **more: Any,
) -> list[Any]:
    variant = a_desired(upstream={"repo": "blueprints", "package": "web", **selector})
    offers = a_pin(0, ref="web/stable", commit=Commit(digit * 40, 70)) if is_offered else None
    if more.get("waits"):
        resolution = FleetResolution(waiting=(WaitingVariant(variant, offers),))
    else:
        resolved = a_resolved(variant=variant, pin=a_pin(1), offers=offers)
        resolution = FleetResolution(variants=(resolved,))
    return list(moved_pins({WEB: pins} if pins else {}, more.get("broken", frozenset()), resolution))


@pytest.mark.parametrize(
    ("old", "selector", "change"),
    [
        pytest.param(None, {"tag": "stable"}, ("", "asks for tag stable"), id="first pin"),
        pytest.param(None, {}, ("", "asks for the latest revision"), id="first pin of no selector"),
        pytest.param(a_lock("1"), {"tag": "stable"}, ("web/stable@11111111", "tag stable moved"), id="tag"),
        pytest.param(a_lock("1", {"branch": "main"}), {"branch": "main"},
            ("web/stable@11111111", "branch main moved"), id="branch"),
        pytest.param(a_lock("1", {"version": "^1"}), {"version": "^1"},
            ("web/stable@11111111", "the newest that ^1 allows"), id="range of versions"),
        pytest.param(a_lock("1", {}), {}, ("web/stable@11111111", "the latest published revision"),
            id="latest revision"),
        pytest.param(a_lock("1", {"branch": "main"}), {"tag": "stable"},
            ("web/stable@11111111", "asks for tag stable"), id="another selector"),
        pytest.param(a_lock("2", {"branch": "main"}), {"tag": "stable"},
            ("web/stable@22222222", "asks for tag stable"), id="another selector of the same commit"),
        pytest.param(a_lock("1", {"branch": "main"}, held=True), {"tag": "stable"},
            ("web/stable@11111111", "asks for tag stable"), id="held for another selector"),
        pytest.param(a_lock("2"), {"tag": "stable"}, None, id="current"),
        pytest.param(a_lock("1", held=True), {"tag": "stable"}, None, id="held"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("waits", [False, True])
def test_pin_moves_to_what_its_upstream_means(old, selector, change, waits) -> None:
    found = moved(old, selector, waits=waits)

    if change is None:
        assert found == []
    else:
        before, why = change
        want = PinChange("PackageVariant default/web", before, "web/stable@22222222", why)
        lock = lock_upstream(
            WEB,
            {"repo": "blueprints", "package": "web", **selector},
            commit="2" * 40,
            tree=oid("c0"),
            ref="web/stable",
        )
        assert found == [(WEB, lock, want, 70)]


def test_pin_of_an_exact_upstream_goes() -> None:
    gone = PinChange("PackageVariant default/web", "web/stable@11111111", "", "names one revision by itself")

    assert moved(a_lock("1"), {"revision": 1}, is_offered=False) == [(WEB, None, gone, 0)]
    assert moved(None, {"revision": 1}, is_offered=False) == []


def test_pin_that_cannot_be_read_stays() -> None:
    assert moved(None, {"tag": "stable"}, broken=frozenset({WEB})) == []


def test_choices_of_people_come_before_what_upstreams_mean() -> None:
    choices = (a_lock("3", held=True, name="api"), a_lock("4"), a_lock("5", name="dns"))
    main = {choices[2].key: choices[2]}

    assert with_pins(ComputedLock(A, (PIN,), 40), choices, ReviewedLock(pins=main)) == ComputedLock(
        {
            **A,
            "upstreams/default/api.json": File.of(lock_bytes(choices[0])),
            "upstreams/default/web.json": File.of(lock_bytes(choices[1])),
            "upstreams/default/dns.json": File.of(lock_bytes(choices[2])),
        },
        (
            PinChange("PackageVariant default/api", "", "web/stable@33333333", "held by a person"),
            PinChange("PackageVariant default/web", "", "web/stable@44444444", "follows its upstream"),
        ),
        40,
    )


# Locks of clusters


def locked(digest: str = "i", **versions: str) -> ClusterLock:
    packages = tuple(
        Resolved(
            instance=Instance(ecosystem=Ecosystem.CARVEL, name=name, slot=Slot(SlotKind.CLUSTER)),
            dialect="carvel",
            version=version,
            by_user=True,
        )
        for name, version in sorted(versions.items())
    )
    resolution = Resolution(packages=packages)
    return ClusterLock(next_cluster_lock("dev", input_digest=digest, resolution=resolution), resolution)


def computed(
    before: ClusterLock | None, after: ClusterLock | None, files: Files | None = None
) -> ComputedLock:
    decision = LockUpdate((ClusterUpdate("dev", before, after),))
    return compute_lock(ReviewedLock(files=files or {}), world(), Desired(), FleetResolution(), decision)


def test_packages_of_clusters_are_told_with_what_happens_to_them() -> None:
    before, after = locked(db="1.0.0", log="1.0.0"), locked("j", db="2.0.0", dns="1.0.0")

    found = computed(before, after)

    assert {(pin.what.rpartition(" ")[0], pin.before, pin.after) for pin in found.pins} == {
        ("cluster dev:", "1.0.0", "2.0.0"),
        ("cluster dev:", "", "1.0.0"),
        ("cluster dev:", "1.0.0", ""),
    }
    assert len({pin.why for pin in found.pins} - {""}) == 3
    assert sorted(path.rpartition("/")[2] for path in found.files) == sorted(
        path.rpartition("/")[2] for path in computed(None, after).files
    )
    assert len(found.files) == 2
    assert found.time == CONTROL.commit.time


def test_lock_of_a_cluster_that_only_was_made_from_something_else_stays_byte_for_byte() -> None:
    before = locked(db="1.0.0")
    files = {path: File.of(b" " + file.data) for path, file in computed(None, before).files.items()}

    assert computed(before, locked("j", db="1.0.0"), files) == ComputedLock(files, (), CONTROL.commit.time)
    assert computed(before, locked("j", db="1.0.0")).files.keys() == files.keys()


def test_cluster_that_needs_nothing_any_more_has_no_lock() -> None:
    before = locked(db="1.0.0")
    files = {**computed(None, before).files, "README.md": File.of(b"Ours")}

    found = computed(before, None, files)

    assert found.files == {"README.md": File.of(b"Ours")}
    assert [pin.why for pin in found.pins] == ["nothing requires it any more"]
    empty = computed(locked(), None)
    assert empty.pins == (PinChange("cluster dev", "", "", "no package is locked"),)
    assert computed(None, None) == ComputedLock({}, (), CONTROL.commit.time)


def test_pin_leaves_after_its_package() -> None:
    pins = {WEB: a_lock("1")}
    files = {"upstreams/default/web.json": File.of(lock_bytes(a_lock("1")))}
    reviewed = ReviewedLock(pins=pins, files=files)
    dropped = PinChange("PackageVariant default/web", "web/stable@11111111", "", "no variant asks for it")

    def lock(desired: Desired, **fields: Any) -> ComputedLock:
        return compute_lock(reviewed, world(**fields), desired, FleetResolution(), LockUpdate())

    assert lock(Desired()) == ComputedLock({}, (dropped,), CONTROL.commit.time)
    stays = ComputedLock(files, (), CONTROL.commit.time)
    assert lock(Desired(variants=(a_desired(),))) == stays
    assert lock(Desired(), records={WEB: a_record()}) == stays
    assert lock(Desired(), control=replace(CONTROL, readable=False)) == stays
    assert lock(Desired(), control=replace(CONTROL, broken=frozenset({"a"}))) == stays


@pytest.mark.parametrize(
    ("behind", "edited", "only_locks", "renews"),
    [
        ({"a"}, set(), True, True),
        (set(), set(), True, False),
        ({"a"}, {"a"}, True, False),
        ({"a"}, {"b"}, True, True),
        ({"a"}, set(), False, False),
    ],
)
def test_branch_starts_anew_where_that_undoes_nothing(behind, edited, only_locks, renews) -> None:
    branch = replace(BRANCH, behind=frozenset(behind), edited_files=frozenset(edited), only_locks=only_locks)

    assert branch.renews is renews


DB, DB2, LOG = {"db": "1.0.0"}, {"db": "2.0.0"}, {"log": "1.0.0"}


@pytest.mark.parametrize(
    ("before", "after", "lenient", "strict"),
    [
        pytest.param(None, DB, "after", "before", id="a first lock holds at once, or waits"),
        pytest.param(DB, DB | LOG, "after", "before", id="what is new is taken"),
        pytest.param(DB | LOG, DB, "after", "before", id="what nobody wants goes"),
        pytest.param(DB, DB2, "before", "before", id="a pin that moves waits"),
        pytest.param(DB, DB2 | LOG, "before", "before", id="what is new waits with a pin that moves"),
    ],
)
def test_what_stands_while_a_lock_waits_for_a_review(before, after, lenient, strict) -> None:
    sides = {"before": locked(**before) if before else None, "after": locked(**after)}

    for is_strict, side in ((False, lenient), (True, strict)):
        update = LockUpdate((ClusterUpdate("dev", *sides.values()),))
        (stands,) = effective_locks(update, strict=is_strict).scopes
        assert stands.after == sides[side]
