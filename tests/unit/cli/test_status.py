"""`status`: its rows, their filters and their order."""

import csv
import io
from typing import Any

import pytest

from reconciler.api.meta import Condition
from reconciler.base.errors import Exit
from reconciler.base.reasons import Phase, Reason
from reconciler.cli.status import chosen_exits
from reconciler.names.ids import ObjectName
from reconciler.plan.status import OwnerStatus, PackageStatus
from reconciler.report.report import PackageOverview, StatusRow
from reconciler.report.status import StatusFilter, row_cells, sort_rows, status_csv, status_lines
from tests.support.values import replace

DAY = 86_400
ON_MAIN = PackageOverview(cluster="c1", main="web/v1")


def web(
    name: str = "web",
    *,
    stalled: bool = False,
    labels: dict[str, str] | None = None,
    summary: PackageOverview = ON_MAIN,
    repository: str = "edge",
    phase: Phase = Phase.PUBLISHED,
    **package: Any,
) -> StatusRow:
    conditions = (
        Condition(type="Ready", status="True", reason="WhyReady", message="It is ready"),
        Condition(type="Stalled", status=str(stalled), reason="WhyStalled", message="It is stalled"),
    )
    owner = OwnerStatus("PackageVariant", "default", name, conditions, labels or {}, {})
    status = PackageStatus(phase, repository=ObjectName("default", repository), name=name, **package)
    return StatusRow(owner, status, summary, repository)


STALLED = Condition(type="Stalled", status="True", message="It is stalled")
SET = OwnerStatus("PackageVariantSet", "default", "fleet")


@pytest.mark.parametrize(
    ("subject", "cells"),
    [
        (web(), ("edge/web", "c1", "web/v1", "", "published", "", "", "")),
        (web(phase=Phase.IN_REVIEW, since=DAY, pull=7, url="u"),
            ("edge/web", "c1", "web/v1", "", "in review", "1970-01-02", "u", "")),
        (web(phase=Phase.IN_REVIEW, pull=7, summary=PackageOverview(waiting_for="review")),
            ("edge/web", "", "", "", "in review", "", "edge#7", "review")),
        (web(phase=Phase.REJECTED, message="Closed",
            summary=PackageOverview(review="web/v2", waiting_for="a retry")),
            ("edge/web", "", "", "web/v2", "rejected", "", "", "a retry: Closed")),
        (web(stalled=True, phase=Phase.STALLED, summary=PackageOverview(waiting_for="a fix")),
            ("edge/web", "", "", "", "stalled", "", "", "a fix: It is stalled")),
        (StatusRow(OwnerStatus(SET.kind, *SET.key, (STALLED,))),
            ("default/fleet", "", "", "", "stalled", "", "", "It is stalled")),
        (StatusRow(OwnerStatus("App", "shop", "db", cluster="dev")),
            ("dev/shop/db", "dev", "", "", "", "", "", "")),
    ],
)  # fmt: skip
def test_row_has_what_people_ask_for_first(subject: StatusRow, cells: tuple[str, ...]) -> None:
    assert row_cells(subject) == cells


def test_wide_row_has_owner_set_conditions_reason_and_message() -> None:
    assert row_cells(web(summary=PackageOverview("default/fleet")), wide=True)[7:] == (
        *("PackageVariant default/web", "default/fleet", "False", "True"),
        *("WhyReady", "", "It is ready"),
    )


def test_sets_are_shown_if_they_stall_or_the_table_is_wide() -> None:
    rows = [StatusRow(SET), web()]

    assert [line.split()[0] for line in status_lines(rows)] == ["PACKAGE", "edge/web"]
    assert len(list(status_lines(rows, wide=True))) == 3


ROWS = (
    web("a", labels={"team": "x"}, summary=PackageOverview("default/fleet")),
    web("b", phase=Phase.IN_REVIEW, repository="core", labels={"team": "y"}),
    web("c", phase=Phase.STALLED, stalled=True),
)


@pytest.mark.parametrize(
    ("filters", "chosen"),
    [
        (StatusFilter(), "abc"),
        (StatusFilter(names=("default/a",)), "a"),
        (StatusFilter(names=("edge/*",)), "ac"),
        (StatusFilter(names=("core/b", "edge/c")), "bc"),
        (StatusFilter(names=("fleet",)), "a"),
        (StatusFilter(sets=("default/fleet",)), "a"),
        (StatusFilter(sets=("fl*",)), "a"),
        (StatusFilter(states=("stalled", "in review")), "bc"),
        (StatusFilter(repositories=("core",)), "b"),
        (StatusFilter(labels=("team",)), "ab"),
        (StatusFilter(labels=("team=x",)), "a"),
        (StatusFilter(labels=("team=x", "tier")), ""),
        (StatusFilter(labels=("team",), states=("in review",)), "b"),
        (StatusFilter(sets=("fleet",), states=("stalled",)), ""),
    ],
)
def test_filters_choose_packages(filters: StatusFilter, chosen: str) -> None:
    assert "".join(row.owner.name for row in filters.select(ROWS)) == chosen


@pytest.mark.parametrize(
    ("key", "order"),
    [
        ("name", "bac"),
        ("cluster", "abc"),
        ("main", "cab"),
        ("review", "bac"),
        ("state", "cba"),
        ("since", "acb"),
    ],
)
def test_rows_are_sorted_by_a_key_then_by_name_and_without_a_value_last(key: str, order: str) -> None:
    subjects = [
        web("a", since=DAY, summary=PackageOverview(cluster="c1", main="v2")),
        web("b", phase=Phase.PENDING, repository="core", summary=PackageOverview(cluster="c2")),
        web("c", since=2 * DAY, phase=Phase.STALLED, summary=PackageOverview(cluster="c3", main="v1")),
    ]

    assert "".join(row.owner.name for row in sort_rows(subjects, key)) == order


def test_csv_is_inert_and_complete() -> None:
    subject = web(message='=HYPERLINK("x"), "quoted"')

    (heads, cells) = csv.reader(io.StringIO(status_csv([subject])))

    assert (heads[0], cells[0]) == ("package", "edge/web")
    assert cells[-1] == '\'=HYPERLINK("x"), "quoted"'


@pytest.mark.parametrize(("cluster", "is_left_out"), [("edge", True), ("c1", False)])
def test_narrow_table_leaves_out_clusters_that_repositories_name(cluster: str, is_left_out: bool) -> None:
    summary = PackageOverview(cluster=cluster, main="web/v1")
    subject = web("web-with-a-long-name", pull=7, url="https://forge.example/pull/7", summary=summary)

    assert ("CLUSTER" not in next(status_lines([subject], width=80))) is is_left_out
    assert "CLUSTER" in next(status_lines([subject], width=200))


def test_packages_in_review_share_a_row_that_counts_their_pull_requests() -> None:
    alike = [web(phase=Phase.IN_REVIEW, repository=f"edge-{number}", pull=number) for number in range(1, 8)]

    checked = replace(ON_MAIN, waiting_for="its checks")
    others = [replace(row, summary=checked) for row in alike[:6]]

    _, *rows = status_lines([*alike, *others], folds=True)

    assert [" ".join(line.split()) for line in rows] == [
        "edge-1/web and 6 more c1 web/v1 in review 7 pull requests",
        "edge-1/web and 5 more c1 web/v1 in review 6 pull requests its checks",
    ]


def stalled_by(*reasons: Reason) -> list[StatusRow]:
    row = web(stalled=True)
    valid = (Condition(type="Valid", status="False", reason=reason) for reason in reasons)
    owners = (replace(row.owner, conditions=(*row.owner.conditions, condition)) for condition in valid)
    return [web(), *(replace(row, owner=owner) for owner in owners)]


AWAY, WRONG = Reason.REPOSITORY_UNAVAILABLE, Reason.INVALID_MANIFEST
FLEET = frozenset({Exit.BUG, Exit.INVALID_INPUT, Exit.UNAVAILABLE, Exit.WAITING})


@pytest.mark.parametrize(
    ("exits", "chosen", "expected"),
    [
        (FLEET, None, {Exit.BUG, Exit.INVALID_INPUT, Exit.UNAVAILABLE}),
        (FLEET, (), {Exit.BUG}),
        (FLEET, (WRONG,), {Exit.BUG, Exit.INVALID_INPUT}),
        (FLEET, (AWAY,), {Exit.BUG, Exit.UNAVAILABLE}),
        (FLEET - {Exit.UNAVAILABLE, Exit.BUG}, (AWAY,), set()),
        (FLEET, (AWAY, WRONG), {Exit.BUG, Exit.INVALID_INPUT, Exit.UNAVAILABLE}),
        (FLEET, (Reason.DEFECT,), {Exit.BUG}),
        (frozenset[Exit](), (WRONG,), {Exit.INVALID_INPUT}),
    ],
)
def test_exit_codes_are_those_of_the_chosen_owners(
    exits: frozenset[Exit], chosen: tuple[Reason, ...] | None, expected: set[Exit]
) -> None:
    assert chosen_exits(exits, None if chosen is None else stalled_by(*chosen)) == expected
