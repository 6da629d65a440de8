"""Rows of `status`: set, cluster, revisions on main and in review, and what a package waits for."""

from typing import Any

import pytest

from reconciler.api.kptfile import GitUpstream, KptfileHeader
from reconciler.names.ids import ObjectName
from reconciler.plan.changes import Change, Op, Plan
from reconciler.plan.context import PlanTarget
from reconciler.report.build import package_overviews, version_label
from reconciler.report.report import DraftOverview
from tests.support.plan_values import (
    EDGE,
    KEPT,
    PACKAGE,
    WEB,
    a_change,
    a_desired,
    a_draft,
    a_target,
    a_write,
    oid,
    plan_of,
    web_context,
)
from tests.support.sets import a_package
from tests.support.values import replace

V1 = KptfileHeader(upstream_lock=GitUpstream(repo="r", directory="web", ref="web/v1", commit="a" * 40))
V2 = KptfileHeader(upstream_lock=GitUpstream(repo="r", directory="web", ref="web/v2", commit="b" * 40))
ON_MAIN = a_package(main_tree=oid("b1"), main_header=V1)


def overview(change: Change = KEPT, target: PlanTarget | None = None, **fields: Any) -> DraftOverview:
    context = web_context(target or a_target(package=ON_MAIN), **fields)
    return package_overviews(plan_of(change, context))[WEB, PACKAGE]


def test_package_on_main_waits_for_nothing() -> None:
    assert overview() == DraftOverview(main="web/v1")


def test_package_with_a_draft_shows_both_revisions_and_its_set_and_cluster() -> None:
    target = a_target(package=ON_MAIN, draft=a_draft(header=V2), view=replace(EDGE, cluster="prod"))
    fleet = replace(a_desired(), set_key=ObjectName("default", "fleet"))

    assert overview(target=target, variants={WEB: fleet}) == DraftOverview(
        "default/fleet", "prod", "web/v1", "web/v2", "review"
    )


def test_variant_without_a_package_has_its_set_and_what_it_waits_for() -> None:
    context = web_context(downstreams={}, variants={WEB: replace(a_desired(), set_key=ObjectName("a", "b"))})

    assert package_overviews(Plan(context=context)) == {
        (WEB, None): DraftOverview("a/b", waiting_for="a fix of its manifest or repository")
    }
    assert package_overviews(Plan()) == {}


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


@pytest.mark.parametrize(
    ("change", "review"),
    [
        (a_change(upstream_to="web/v2", writes=(a_write(),)), "web/v2"),
        (a_change(upstream_to="", writes=(a_write(),)), "web/v1"),
        (a_change(upstream_to="web/v2"), "web/v1"),
        (a_change(upstream_to="web/v2", op=Op.DELETE, writes=(a_write(),)), "web/v1"),
    ],
)
def test_what_a_change_writes_is_in_review_after_it(change: Change, review: str) -> None:
    assert DraftOverview(review="web/v1").review_after(change) == review
