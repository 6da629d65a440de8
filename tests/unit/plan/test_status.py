"""Status of packages: phase, branch, age and revision after the effects, and the files about them."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from reconciler.api.meta import Condition
from reconciler.base.errors import Location
from reconciler.base.reasons import Reason
from reconciler.expand import Desired
from reconciler.expand.variants import variant_key
from reconciler.inventory.inventory import Commit, PullState, RecordedStatus, RepositoryRole
from reconciler.names.ids import ObjectKey, ObjectName, PackageKey
from reconciler.names.problems import Problem
from reconciler.plan.changes import (
    Approval,
    Change,
    MoveRef,
    Op,
    Postponed,
    Unfinished,
    WaitsFor,
    WriteGroup,
    WriteRemoval,
)
from reconciler.plan.compose import with_after
from reconciler.plan.context import PlanTarget
from reconciler.plan.status import PackageStatus, Phase, package_statuses, plan_status, status_owners
from reconciler.resolve.resolution import Resolution
from tests.support.plan_values import (
    BRANCH,
    EDGE,
    KEPT,
    PACKAGE,
    URL,
    WEB,
    a_conflict,
    a_desired,
    a_draft,
    a_pull,
    a_record,
    a_target,
    a_write,
    oid,
    web_context,
)
from tests.support.sets import world
from tests.support.values import replace

REF = f"refs/heads/{BRANCH}"
DELETION = "reconciler/default/delete/web"
WRITE = a_write(ref=REF, expect=oid("d2"))
GROUP = WriteGroup("refs/heads/reconciler/default/group/g", None, oid("b2"), (), "", 80)
REMOVAL = WriteRemoval(f"refs/heads/{DELETION}", None, oid("b2"), "web", "", 90)
QUESTION = "1 conflict in a.yaml: answer it in the pull request, or with reconciler answer"
CONFLICT = a_conflict("a.yaml", "spec", "1", "2", name="a")
VARIANT_FILE = "conditions/packagevariants/default/web.json"
CLAIMED = Problem(Location("web.yaml", 1), Reason.UPSTREAM_NOT_FOUND, "It is not there", "").owned_by(
    variant_key(WEB)
)

KNOWN = web_context().targets[PACKAGE]
DONE = with_after(KEPT, KNOWN)
CONTESTED = replace(KEPT, variant=None)


def status_of(
    change: Change = KEPT,
    target: PlanTarget | None = None,
    *,
    missing: Unfinished | None = None,
    opened: Mapping[tuple[str, str], Any] | None = None,
    **fields: Any,
) -> PackageStatus | None:
    context = web_context(target, **fields)
    unfinished = {PACKAGE: missing} if missing else {}
    done = with_after(change, context.targets[PACKAGE])
    return next(package_statuses(context, [done], unfinished, opened), None)


PUBLISHED = PackageStatus(Phase.PUBLISHED, WEB, PACKAGE, EDGE.key, "web", since=50)
DRAFTED = replace(
    PUBLISHED,
    phase=Phase.IN_REVIEW,
    since=20,
    head=BRANCH,
    revision="edge.web.packagevariant-1",
    waits_for=WaitsFor.REVIEW,
)


def word(change: Change, target: PlanTarget | None = None, **more: Any) -> tuple[str, str, str] | None:
    status = status_of(change, target, **more)
    return (str(status.phase), status.reason, status.message) if status else None


def test_package_in_review_has_the_time_and_pull_request_of_its_draft() -> None:
    target = a_target(draft=a_draft(), pulls=(a_pull(number=4, url="https://forge/4"),))

    assert status_of(target=target) == replace(DRAFTED, pull=4, url="https://forge/4")


@pytest.mark.parametrize(
    ("change", "want"),
    [
        pytest.param({"reason": Reason.PAUSED, "writes": (WRITE,)}, ("in review", "", ""),
            id="it is written"),
        pytest.param({"reason": Reason.PAUSED, "writes": (WRITE,), "op": Op.BLOCK},
            ("paused", "Paused", "Why"), id="a block is no change"),
        pytest.param({"reason": Reason.MERGE_CONFLICT, "conflicts": (CONFLICT,)},
            ("conflict", "MergeConflict", QUESTION),
            id="conflicts are named, not why it was kept"),
        pytest.param({"reason": Reason.MERGE_CONFLICT}, ("published", "", ""), id="answered conflict"),
        pytest.param({"unready": ("a gate", "another")}, ("not ready", "NotReady", "a gate; another"),
            id="unmet gates"),
        pytest.param({"unready": ("FunctionsVerified: no",)},
            ("not ready", "NotReady", "FunctionsVerified: no"), id="a gate that is called as functions are"),
        pytest.param({"unready": ("Functions failed", "a gate"), "failed": True},
            ("not ready", "PipelineFailed", "Functions failed; a gate"), id="a function failed"),
        pytest.param({"waits": True}, ("held back", "UpToDate", "Why"), id="a person must act"),
        pytest.param({"waits": True, "unready": ("a gate",), "conflicts": (CONFLICT,)},
            ("conflict", "MergeConflict", QUESTION),
            id="conflicts come first"),
        pytest.param({"waits": True, "unready": ("a gate",)}, ("not ready", "NotReady", "a gate"),
            id="then gates"),
        pytest.param({}, ("published", "", ""), id="nothing holds it"),
        pytest.param({"postponed": Postponed(Reason.RATE_LIMITED, "5 are open"), "waits": True},
            ("pending", "RateLimited", "5 are open"), id="its pull request is postponed"),
    ],
)  # fmt: skip
def test_phase_of_what_proceeds(change: Mapping[str, Any], want: tuple[str, str, str]) -> None:
    assert word(replace(KEPT, message="Why", **change)) == want


WITH_DRAFT = {"draft": a_draft()}
WITH_PROPOSAL = {"view": replace(EDGE, branches={DELETION: Commit(oid("a9"), 25)})}


@pytest.mark.parametrize(
    ("change", "target", "missing", "is_wanted", "want"),
    [
        pytest.param({}, WITH_DRAFT, None, True, (BRANCH, 20), id="draft"),
        pytest.param({"group": "g"}, WITH_DRAFT, None, True, ("g", 20), id="group"),
        pytest.param({"writes": (WRITE,)}, {}, None, True, (BRANCH, 70), id="new draft"),
        pytest.param({"writes": (GROUP, WRITE)}, {}, None, True, (BRANCH, 80),
            id="newest of what is written"),
        pytest.param({"writes": (REMOVAL,)}, WITH_DRAFT, None, False, (DELETION, 90), id="new proposal"),
        pytest.param({}, WITH_PROPOSAL, None, False, (DELETION, 25), id="proposal of deletion"),
        pytest.param({}, WITH_PROPOSAL, None, True, ("", 50), id="proposal of a wanted package"),
        pytest.param({}, {**WITH_DRAFT, **WITH_PROPOSAL}, None, False, (DELETION, 20),
            id="proposal before a draft"),
        pytest.param({"writes": (MoveRef(REF, oid("d2"), None),)}, WITH_DRAFT, None, True, ("", 50),
            id="draft is removed"),
        pytest.param({"writes": (MoveRef(REF, oid("d2"), None),)}, {**WITH_DRAFT, **WITH_PROPOSAL}, None,
            False, (DELETION, 20), id="draft is removed, the proposal stays"),
        pytest.param({"writes": (MoveRef(REF, None, oid("d2")),)}, WITH_DRAFT, None, True, (BRANCH, 20),
            id="draft is moved"),
        pytest.param({"writes": (replace(GROUP, ref=REF),)}, WITH_DRAFT, None, True, ("", 50),
            id="group that is left"),
        pytest.param({"approve": Approval(1, BRANCH, "")}, WITH_DRAFT, None, True, ("", 50),
            id="merged by this run"),
        pytest.param({"writes": (MoveRef(REF, oid("d2"), None),)}, WITH_DRAFT, Unfinished("no"), True,
            (BRANCH, 20), id="removal that was not pushed"),
        pytest.param({"writes": (WRITE,)}, WITH_PROPOSAL, Unfinished("no"), False, (DELETION, 70),
            id="write not pushed"),
        pytest.param({"approve": Approval(1, BRANCH, "")}, WITH_DRAFT, Unfinished("no", pushed=True), True,
            (BRANCH, 20), id="merge that failed"),
        pytest.param({"writes": (WRITE,)}, {}, Unfinished("no", pushed=True), True, (BRANCH, 70),
            id="write was pushed"),
    ],
)  # fmt: skip
def test_branch_that_waits_after_the_effects(change, target, missing, is_wanted, want) -> None:
    fields = {} if is_wanted else {"downstreams": {}}

    status = status_of(replace(KEPT, **change), a_target(**target), missing=missing, **fields)

    assert status is not None
    assert (status.head, status.since) == want


def test_time_without_a_branch_or_main_is_that_of_the_configuration() -> None:
    change = replace(KEPT, unready=("a gate",))

    assert status_of(change).since == world().control.commit.time
    merged = replace(KEPT, approve=Approval(1, BRANCH, ""))
    early, late = (a_draft(tip=Commit(oid("d2"), time)) for time in (20, 99))
    assert status_of(merged, a_target(draft=early)).since == 50
    assert status_of(merged, a_target(draft=late)).since == 99
    assert status_of(target=a_target(view=replace(EDGE, head=None))).since == 0


@pytest.mark.parametrize(
    ("pulls", "want"),
    [
        pytest.param([a_pull(PullState.CLOSED, closed=44)], (1, 44), id="closed"),
        pytest.param([a_pull(PullState.CLOSED, closed=44, head=DELETION)], (1, 44),
            id="of its deletion"),
        pytest.param([a_pull(PullState.CLOSED, closed=44, head="drafts/webs/x")], (0, 33),
            id="other's"),
        pytest.param([a_pull(PullState.CLOSED)], (1, 33), id="closed at an unknown time"),
        pytest.param([a_pull(PullState.MERGED)], (0, 33), id="merged"),
        pytest.param([a_pull(PullState.CLOSED, number=2, closed=44), a_pull(PullState.MERGED, number=3)],
            (0, 33), id="merged later"),
        pytest.param([a_pull(PullState.CLOSED, number=3, closed=44), a_pull(PullState.MERGED, number=2)],
            (3, 44), id="closed later"),
        pytest.param([], (0, 33), id="none"),
    ],
)  # fmt: skip
def test_rejected_package_names_the_pull_request_that_a_person_closed(pulls, want) -> None:
    change = replace(KEPT, reason=Reason.REJECTED)
    control = replace(world().control, commit=Commit(oid("c"), 33))

    fields: dict[str, Any] = {"downstreams": {}} if any(pull.head == DELETION for pull in pulls) else {}
    target = a_target(pulls=tuple(pulls), main_owner=WEB)

    status = status_of(change, target, inventory={"control": control}, variants={}, **fields)

    assert status is not None
    assert (status.pull, status.since) == want


@pytest.mark.parametrize(
    ("placed", "problems", "want"),
    [
        (True, (), (Phase.HELD_BACK, "DuplicateDownstream", "")),
        (True, (CLAIMED,), (Phase.STALLED, "UpstreamNotFound", "It is not there")),
        (False, (CLAIMED,), (Phase.STALLED, "UpstreamNotFound", "It is not there")),
        (False, (CLAIMED.owned_by(variant_key(ObjectName("default", "w"))),), (Phase.STALLED, "Error", "")),
    ],
)
def test_variant_without_a_package_has_a_status_too(placed, problems, want) -> None:
    fields: dict[str, Any] = {} if placed else {"downstreams": {}}
    context = web_context(resolution=Resolution(problems=problems), **fields)

    (status,) = package_statuses(context, [CONTESTED] if placed else [], {})

    phase, reason, message = want
    waits_for = WaitsFor.MANIFEST if phase is Phase.STALLED else WaitsFor.DECISION
    placeless = PackageStatus(phase, WEB, since=33, reason=reason, message=message, waits_for=waits_for)
    named = replace(placeless, repository=ObjectName("default", "edge"), name="web")
    assert status == (named if phase is Phase.STALLED else placeless)


@pytest.mark.parametrize(
    ("recorded", "since"),
    [
        (RecordedStatus("held back", 5, ""), 5),
        (RecordedStatus("held back", 5, "drafts/web/w1"), 33),
        (RecordedStatus("stalled", 5, ""), 33),
        (RecordedStatus("held back", 0, ""), 33),
    ],
)
def test_variant_without_a_package_keeps_the_time_of_the_same_status(recorded, since) -> None:
    context = web_context(inventory={"statuses": {WEB: recorded}})

    assert [status.since for status in package_statuses(context, [CONTESTED], {})] == [since]


@pytest.mark.parametrize(
    ("view", "count"),
    [
        ({"role": RepositoryRole.SKIPPED}, 0),
        ({}, 0),
        ({"problem": Problem(Location("edge.yaml"), Reason.REPOSITORY_UNAVAILABLE, "It is down")}, 1),
    ],
)
def test_record_of_an_unread_repository_has_a_status_unless_another_shard_reads_it(view, count) -> None:
    read = {"views": (replace(EDGE, **view),), "records": {WEB: a_record(repository="edge")}}
    context = web_context(inventory=read, desired=Desired(), downstreams={})

    assert len([*package_statuses(context, [], {})]) == count


def test_package_of_another_shard_has_no_status_here() -> None:
    assert not [*package_statuses(web_context(), [], {})]


def test_each_variant_is_listed_once() -> None:
    assert [status.variant for status in package_statuses(web_context(), [DONE], {})] == [WEB]


# The files of the status branch


CONDITION = Condition(type="Ready", status="True", reason="NoErrors", message="fine")
KEY = ObjectKey("config.porch.kpt.dev", "PackageVariant", "default", "web")
SET_KEY = ObjectKey("config.porch.kpt.dev", "PackageVariantSet", "default", "fleet")


def files_of(
    conditions: Mapping[ObjectKey, tuple[Condition, ...]], *statuses: PackageStatus, **fields: Any
) -> dict[str, Any]:
    files = plan_status(web_context(**fields), conditions, statuses)
    return {path: json.loads(data) for path, data in files.items()}


PACKAGE_VALUE = {
    "phase": "in review",
    "since": "1970-01-01T00:00:20Z",
    "repository": "edge",
    "name": "web",
    "head": BRANCH,
    "pullRequest": {"number": 4, "url": "https://forge/4"},
    "reason": "r",
    "message": "m",
}
FULL = replace(DRAFTED, pull=4, url="https://forge/4", reason="r", message="m")


def test_file_of_a_variant_has_its_conditions_labels_and_package() -> None:
    web = a_desired(labels={"a": "b"}, annotations={"c": "d"})

    assert files_of({KEY: (CONDITION,), SET_KEY: ()}, FULL, desired=Desired(variants=(web,))) == {
        VARIANT_FILE: {
            "kind": "PackageVariant",
            "namespace": "default",
            "name": "web",
            "conditions": [{"type": "Ready", "status": "True", "reason": "NoErrors", "message": "fine"}],
            "labels": {"a": "b"},
            "annotations": {"c": "d"},
            "package": PACKAGE_VALUE,
            "downstreamTargets": [{"name": "edge.web.packagevariant-1"}],
        },
        "conditions/packagevariantsets/default/fleet.json": {
            "kind": "PackageVariantSet",
            "namespace": "default",
            "name": "fleet",
            "conditions": [],
        },
    }


def test_empty_labels_are_written_as_none() -> None:
    value = files_of({KEY: ()})[VARIANT_FILE]

    assert (value["labels"], value["annotations"]) == ({}, {})
    assert "package" not in value


def test_files_are_sorted_and_end_with_a_line() -> None:
    files = plan_status(web_context(), {SET_KEY: (), KEY: ()})

    assert list(files) == [VARIANT_FILE, "conditions/packagevariantsets/default/fleet.json"]
    assert files["conditions/packagevariantsets/default/fleet.json"] == (
        b'{\n  "conditions": [],\n  "kind": "PackageVariantSet",\n'
        b'  "name": "fleet",\n  "namespace": "default"\n}\n'
    )


def test_files_about_variants_belong_to_the_packages_that_they_are_about() -> None:
    def name(of: str) -> ObjectName:
        return ObjectName("default", of)

    inventory = {
        "statuses": {
            name("left"): RecordedStatus("published", repository="edge"),
            name("lost"): RecordedStatus("published", repository="nowhere"),
        },
        "records": {name("old"): a_record(name="old", path="old"), WEB: a_record(path="before")},
    }
    change = replace(KEPT, package=PackageKey(URL, "changed"), variant=name("changed"))
    moved = replace(KEPT, package=PackageKey(URL, "from"))

    owners = status_owners(web_context(inventory=inventory), [change, moved, replace(KEPT, variant=None)])

    assert {
        path.removeprefix("conditions/packagevariants/default/"): key for path, key in owners.items()
    } == {
        "left.json": PackageKey(URL, ""),
        "old.json": PackageKey(URL, "old"),
        "changed.json": PackageKey(URL, "changed"),
        "web.json": PACKAGE,
    }
