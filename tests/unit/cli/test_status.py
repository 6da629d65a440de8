"""`status`: filters, order and forms, and which exit code its owners give."""

import csv
import io
import json
from types import SimpleNamespace
from typing import Any

import pytest

from reconciler.base.errors import Exit
from reconciler.cli.main import invoke
from reconciler.cli.status import SORT_KEYS, STATES
from reconciler.plan.status import Phase
from reconciler.report import status as report
from reconciler.report.status import row, sort_owners, status_csv, status_lines
from reconciler.run import queries
from reconciler.run.queries import FleetStatus


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


def show(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *owners: dict[str, Any],
    arguments: tuple[str, ...] = (),
    exits: frozenset[Exit] = frozenset(),
) -> tuple[int, str]:
    """Return the exit code and the output."""
    inputs = SimpleNamespace(inventory=SimpleNamespace(sets=()))
    desired = SimpleNamespace(variants=(), targets={})
    planned: Any = SimpleNamespace(desired=desired, inputs=inputs)
    monkeypatch.setattr(queries, "read_status", lambda _: FleetStatus(list(owners), planned, exits=exits))
    code = invoke(["status", "--control", "unused", *arguments])
    return code, capsys.readouterr().out


def names(text: str) -> list[str]:
    return [item["name"] for item in json.loads(text)["items"]]


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
    ("arguments", "chosen"),
    [
        ((), "abc"),
        (("default/a",), "a"),
        (("edge/*",), "ac"),
        (("core/b", "edge/c"), "bc"),
        (("fleet",), "a"),
        (("--set", "default/fleet"), "a"),
        (("--set", "fl*"), "a"),
        (("--state", "stalled", "--state", "in review"), "bc"),
        (("--repository", "core"), "b"),
        (("--label", "team"), "ab"),
        (("--label", "team=x"), "a"),
        (("--label", "team", "--state", "in review"), "b"),
        (("--set", "fleet", "--state", "stalled"), ""),
    ],
)
def test_filters_choose_packages(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    chosen: str,
) -> None:
    _, text = show(monkeypatch, capsys, *OWNERS, arguments=(*arguments, "-o", "json"))

    assert names(text) == list(chosen)


@pytest.mark.parametrize(
    "arguments", [("edge/x",), ("--set", "x"), ("--label", "x"), ("--label", "team=z"), ("--repository", "x")]
)
def test_filter_that_names_nothing_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]
) -> None:
    assert show(monkeypatch, capsys, *OWNERS, arguments=arguments)[0] == Exit.USAGE


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


def test_lists_of_states_and_sort_keys_are_complete() -> None:
    assert tuple(str(phase) for phase in Phase) == STATES
    assert SORT_KEYS == report.SORT_KEYS


def test_csv_is_inert_and_complete() -> None:
    subject = owner(message='=HYPERLINK("x"), "quoted"')

    (heads, cells) = csv.reader(io.StringIO(status_csv([subject])))

    assert (heads[0], cells[0]) == ("package", "edge/web")
    assert cells[-1] == '\'=HYPERLINK("x"), "quoted"'


@pytest.mark.parametrize("form", ["json", "yaml", "jsonl", "csv", "wide", "text"])
def test_every_form_names_every_package(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], form: str
) -> None:
    code, text = show(monkeypatch, capsys, *OWNERS, arguments=("-o", form))

    assert code == Exit.INVALID_INPUT
    assert all(text.count(f"{name}") for name in "abc")
    if form == "jsonl":
        assert [json.loads(line)["name"] for line in text.splitlines()] == ["b", "a", "c"]


def test_watch_needs_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert show(monkeypatch, capsys, owner(), arguments=("--watch",))[0] == Exit.USAGE


def test_chosen_owner_has_its_own_exit_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    exits = frozenset({Exit.INVALID_INPUT, Exit.UNAVAILABLE})

    assert show(monkeypatch, capsys, *OWNERS, arguments=("edge/a",), exits=exits)[0] == Exit.DONE
    assert show(monkeypatch, capsys, *OWNERS, arguments=("edge/c",))[0] == Exit.INVALID_INPUT


@pytest.mark.parametrize("code", [Exit.WAITING, Exit.PARTIAL, Exit.PENDING, Exit.REFUSED])
def test_what_a_run_would_do_is_no_exit_code_of_status(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], code: Exit
) -> None:
    assert show(monkeypatch, capsys, owner(), exits=frozenset({code}))[0] == Exit.DONE


def test_unread_repository_is_an_exit_code_of_status(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    exits = frozenset({Exit.UNAVAILABLE, Exit.INVALID_INPUT})

    assert show(monkeypatch, capsys, owner(), exits=exits)[0] == Exit.UNAVAILABLE


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
