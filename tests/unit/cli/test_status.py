"""`status`: its rows, their filters and their order."""

import csv
import io
from typing import Any

import pytest

from reconciler.report.status import StatusFilter, row, sort_owners, status_csv, status_lines


def owner(
    name: str = "web",
    *,
    stalled: str = "False",
    labels: dict[str, str] | None = None,
    summary: dict[str, str] | None = None,
    **package: Any,
) -> dict[str, Any]:
    overview = {"set": "", "cluster": "c1", "main": "web/v1", "review": "", "waitingFor": ""}
    return {
        "kind": "PackageVariant",
        "namespace": "default",
        "name": name,
        "labels": labels or {},
        "package": {"repository": "edge", "name": name, "phase": "published", **package},
        "summary": {**overview, **(summary or {})},
        "conditions": [
            {"type": "Ready", "status": "True", "reason": "WhyReady", "message": "It is ready"},
            {"type": "Stalled", "status": stalled, "reason": "WhyStalled", "message": "It is stalled"},
        ],
    }


SET = {"kind": "PackageVariantSet", "namespace": "default", "name": "fleet", "conditions": []}


@pytest.mark.parametrize(
    ("subject", "cells"),
    [
        (owner(), ("edge/web", "c1", "web/v1", "", "published", "", "", "")),
        (
            owner(phase="in review", since="2026-01-02T03:04:05Z", pullRequest={"number": 7, "url": "u"}),
            ("edge/web", "c1", "web/v1", "", "in review", "2026-01-02", "u", ""),
        ),
        (
            owner(phase="in review", pullRequest={"number": 7}, summary={"waitingFor": "review"}),
            ("edge/web", "c1", "web/v1", "", "in review", "", "edge#7", "review"),
        ),
        (
            owner(phase="rejected", message="Closed", summary={"waitingFor": "a retry", "review": "web/v2"}),
            ("edge/web", "c1", "web/v1", "web/v2", "rejected", "", "", "a retry: Closed"),
        ),
        (
            owner(stalled="True", phase="stalled", summary={"waitingFor": "a fix"}),
            ("edge/web", "c1", "web/v1", "", "stalled", "", "", "a fix: It is stalled"),
        ),
        (
            {**SET, "conditions": [{"type": "Stalled", "status": "True", "message": "It is stalled"}]},
            ("default/fleet", "", "", "", "stalled", "", "", "It is stalled"),
        ),
        (
            {"kind": "App", "cluster": "dev", "namespace": "shop", "name": "db"},
            ("dev/shop/db", "dev", "", "", "", "", "", ""),
        ),
    ],
)
def test_row_has_what_people_ask_for_first(subject: dict[str, Any], cells: tuple[str, ...]) -> None:
    assert row(subject) == cells


def test_wide_row_has_owner_set_conditions_reason_and_message() -> None:
    assert row(owner(summary={"set": "default/fleet"}), wide=True)[7:] == (
        *("PackageVariant default/web", "default/fleet", "False", "True"),
        *("WhyReady", "", "It is ready"),
    )


def test_sets_are_shown_if_they_stall_or_the_table_is_wide() -> None:
    assert [line.split()[0] for line in status_lines([SET, owner()])] == ["PACKAGE", "edge/web"]
    assert len(list(status_lines([SET, owner()], wide=True))) == 3


OWNERS = (
    owner("a", labels={"team": "x"}, summary={"set": "default/fleet"}),
    owner("b", phase="in review", repository="core", labels={"team": "y"}),
    owner("c", phase="stalled", stalled="True"),
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
    assert "".join(each["name"] for each in filters.select(OWNERS)) == chosen


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
        owner("a", since="2026-01-01", summary={"cluster": "c1", "main": "v2"}),
        owner("b", since=None, phase="pending", repository="core", summary={"cluster": "c2", "main": ""}),
        owner("c", since="2026-01-02", phase="stalled", summary={"cluster": "c3", "main": "v1"}),
    ]

    assert "".join(each["name"] for each in sort_owners(subjects, key)) == order


def test_csv_is_inert_and_complete() -> None:
    subject = owner(message='=HYPERLINK("x"), "quoted"')

    (heads, cells) = csv.reader(io.StringIO(status_csv([subject])))

    assert (heads[0], cells[0]) == ("package", "edge/web")
    assert cells[-1] == '\'=HYPERLINK("x"), "quoted"'


@pytest.mark.parametrize(("cluster", "is_left_out"), [("edge", True), ("c1", False)])
def test_narrow_table_leaves_out_clusters_that_repositories_name(cluster: str, is_left_out: bool) -> None:
    pull = {"number": 7, "url": "https://forge.example/pull/7"}
    subject = owner("web-with-a-long-name", pullRequest=pull, summary={"cluster": cluster})

    assert ("CLUSTER" not in next(status_lines([subject], width=80))) is is_left_out
    assert "CLUSTER" in next(status_lines([subject], width=200))


def test_packages_in_review_share_a_row_that_counts_their_pull_requests() -> None:
    alike = [
        owner("web", phase="in review", repository=f"edge-{n}", pullRequest={"number": n, "url": ""})
        for n in range(1, 8)
    ]

    _, *rows = status_lines(alike, folds=True)

    assert [" ".join(line.split()) for line in rows] == [
        "edge-1/web and 6 more c1 web/v1 in review 7 pull requests"
    ]
