"""Rows of `status`: set, cluster, revisions on main and in review, and what a package waits for."""

from typing import Any

import pytest

from reconciler.api.kptfile import GitUpstream, KptfileHeader
from reconciler.base.reasons import Reason
from reconciler.expand import Desired
from reconciler.names.ids import ObjectName
from reconciler.plan.changes import Approval, Change, Plan, Postponed
from reconciler.plan.context import PlanTarget
from reconciler.policy import Policy, PullRequestPolicy, ReviewRule
from reconciler.report.build import package_overviews, variant_set, version_label
from reconciler.report.report import PackageOverview
from tests.support.plan_values import (
    BRANCH,
    EDGE,
    KEPT,
    PACKAGE,
    WEB,
    a_conflict,
    a_desired,
    a_draft,
    a_record,
    a_target,
    a_write,
    oid,
    plan_of,
    web_context,
)
from tests.support.sets import a_package
from tests.support.values import replace

WRITE = a_write()
V1 = KptfileHeader(upstream_lock=GitUpstream(repo="r", directory="web", ref="web/v1", commit="a" * 40))
V2 = KptfileHeader(upstream_lock=GitUpstream(repo="r", directory="web", ref="web/v2", commit="b" * 40))
ON_MAIN = a_package(main_tree=oid("b1"), main_header=V1)


def overview(change: Change = KEPT, target: PlanTarget | None = None, **fields: Any) -> PackageOverview:
    context = web_context(target or a_target(package=ON_MAIN), **fields)
    return package_overviews(plan_of(change, context))[WEB, PACKAGE]


def test_package_on_main_waits_for_nothing() -> None:
    assert overview() == PackageOverview(main="web/v1")


def test_package_with_a_draft_shows_both_revisions_and_its_set_and_cluster() -> None:
    target = a_target(package=ON_MAIN, draft=a_draft(header=V2), view=replace(EDGE, cluster="prod"))
    fleet = replace(a_desired(), set_key=ObjectName("default", "fleet"))

    assert overview(target=target, variants={WEB: fleet}) == PackageOverview(
        "default/fleet", "prod", "web/v1", "web/v2", "review"
    )


def test_variant_without_a_package_has_its_set_and_what_it_waits_for() -> None:
    context = web_context(downstreams={}, variants={WEB: replace(a_desired(), set_key=ObjectName("a", "b"))})

    assert package_overviews(Plan(context=context)) == {
        (WEB, None): PackageOverview("a/b", waiting_for="a fix of its manifest or repository")
    }
    assert package_overviews(Plan()) == {}


@pytest.mark.parametrize(
    ("change", "waiting_for"),
    [
        ({"unready": ("gate",)}, "its functions and readiness gates"),
        ({"conflicts": (a_conflict("a", "b", "1", "2"),)}, "an answer to its conflicts"),
        ({"reason": Reason.REJECTED}, "another change, or reconciler.dev/retry"),
        ({"reason": Reason.PAUSED}, "the end of the pause"),
        ({"writes": (WRITE,)}, "the next apply"),
        ({"reason": Reason.DELETION_GUARD}, "consent to its deletion"),
        ({"reason": Reason.UPSTREAM_TAG_MOVED}, "consent to the moved tag"),
        ({"reason": Reason.SNAPSHOT_INCOMPLETE}, "a complete snapshot"),
        ({"reason": Reason.SNAPSHOT_STALE}, "a newer snapshot"),
        ({"reason": Reason.STILL_NEEDED}, "the packages that need it"),
        ({"reason": Reason.HELD_BACK}, "a person"),
        ({"waits": True}, "a person"),
        ({"postponed": Postponed(Reason.AWAITING_WAVE, "")}, "its rollout"),
        ({"postponed": Postponed(Reason.AWAITING_SCHEDULE, "")}, "its schedule"),
        ({"postponed": Postponed(Reason.RATE_LIMITED, "")}, "a limit of pull requests"),
        ({"reason": Reason.LOCK_PENDING}, "review of its lock"),
        ({"approve": Approval(1, BRANCH, "", by_forge=True)}, "the next apply"),
    ],
)
def test_what_a_package_waits_for(change: dict[str, Any], waiting_for: str) -> None:
    assert overview(replace(KEPT, **change)) == PackageOverview(main="web/v1", waiting_for=waiting_for)


RULE = ReviewRule(reviewers=("ann", "bob"))
REVIEWED = {"policy": Policy(pull_requests=PullRequestPolicy(reviews=(RULE,)))}


def test_review_names_the_people_who_are_asked() -> None:
    drafted = a_target(package=ON_MAIN, draft=a_draft())

    assert overview(target=drafted, inventory=REVIEWED).waiting_for == "review by ann, bob"
    assert overview(inventory=REVIEWED).waiting_for == ""
    paused = replace(KEPT, reason=Reason.PAUSED)
    assert overview(paused, drafted, inventory=REVIEWED).waiting_for == "the end of the pause"


def test_review_of_a_deletion_is_told() -> None:
    proposed = a_target(
        package=ON_MAIN,
        view=replace(EDGE, branches={"reconciler/default/delete/web": a_draft().tip}),
    )
    change = replace(KEPT, reason=Reason.DELETION_PROPOSED)

    assert overview(change, proposed, downstreams={}).waiting_for == "review of its deletion"
    assert (
        overview(change, proposed, downstreams={}, inventory=REVIEWED).waiting_for
        == "review of its deletion by ann, bob"
    )


@pytest.mark.parametrize(
    ("record", "name"),
    [(a_record(set_name="fleet"), "default/fleet"), (a_record(), ""), (None, "")],
)
def test_set_of_a_variant_that_is_gone_is_the_recorded_one(record: Any, name: str) -> None:
    records = {WEB: record} if record else {}
    context = web_context(variants={}, desired=Desired(), inventory={"records": records})

    assert variant_set(WEB, context) == name


def test_set_of_a_declared_variant_is_that_of_its_manifest() -> None:
    context = web_context(inventory={"records": {WEB: a_record(set_name="old")}})

    assert variant_set(WEB, context) == ""


@pytest.mark.parametrize(
    ("ref", "commit", "label"),
    [
        ("web/v2", "b" * 40, "web/v2"),
        ("v12", "b" * 40, "v12"),
        ("main", "b" * 40, "main@bbbbbbbb"),
        ("web/vnext", "b" * 40, "web/vnext@bbbbbbbb"),
        ("web/2", "b" * 40, "web/2@bbbbbbbb"),
        ("v2/main", "b" * 40, "v2/main@bbbbbbbb"),
        ("v", "b" * 40, "v@bbbbbbbb"),
        ("main", "", "main"),
        ("", "b" * 40, ""),
    ],
)
def test_label_of_an_upstream_revision(ref: str, commit: str, label: str) -> None:
    lock = GitUpstream(repo="r", directory="web", ref=ref, commit=commit)

    assert version_label(KptfileHeader(upstream_lock=lock)) == label


def test_package_without_upstream_has_no_label() -> None:
    assert version_label(None) == version_label(KptfileHeader()) == ""
