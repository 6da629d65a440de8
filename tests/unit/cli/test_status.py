"""`status`: which words a row shows, and which exit code its owners give."""

import re
from itertools import product
from typing import Any

import pytest

from reconciler.cli.main import invoke
from reconciler.errors import Exit
from reconciler.run import queries
from reconciler.run.queries import FleetStatus

SPACES = re.compile(r"\s{2,}")


def owner(
    name: str = "web", *, stalled: str = "False", ready: str = "True", **package: Any
) -> dict[str, Any]:
    return {
        "kind": "PackageVariant",
        "namespace": "default",
        "name": name,
        "package": {"repository": "edge", "name": name, "phase": "published", **package},
        "conditions": [
            {"type": "Ready", "status": ready, "reason": "WhyReady", "message": "It is ready"},
            {"type": "Stalled", "status": stalled, "reason": "WhyStalled", "message": "It is stalled"},
        ],
    }


def show(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *owners: dict[str, Any],
    names: tuple[str, ...] = (),
    exits: frozenset[Exit] = frozenset(),
) -> tuple[int, list[list[str]]]:
    """Return the exit code and the cells of each row below the heads."""
    monkeypatch.setattr(queries, "read_status", lambda _: FleetStatus(list(owners), (), exits))
    code = invoke(["status", "--no-color", "--control", "unused", *names])
    lines = capsys.readouterr().out.splitlines()
    return code, [SPACES.split(line.rstrip()) for line in lines[1:]]


@pytest.mark.parametrize(("stalled", "ready"), list(product(["True", "False", "Unknown"], repeat=2)))
@pytest.mark.parametrize(
    "own", [{}, {"reason": "PackageExists", "message": "It exists"}], ids=["", "package"]
)
def test_row_tells_the_package_s_reason_else_the_stall_s_else_the_readiness(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    stalled: str,
    ready: str,
    own: dict[str, str],
) -> None:
    code, (cells,) = show(monkeypatch, capsys, owner(stalled=stalled, ready=ready, **own))

    by_condition = ["WhyStalled", "It is stalled"] if stalled == "True" else ["WhyReady", "It is ready"]
    told = [own["reason"], own["message"]] if own else by_condition
    assert cells == ["PackageVariant", "default/web", "published", stalled, ready, *told]
    assert code == (Exit.INVALID_INPUT if stalled == "True" else Exit.DONE)


@pytest.mark.parametrize(
    ("pull", "cell"),
    [({"number": 7, "url": "https://forge.example/7"}, "https://forge.example/7"), ({"number": 7}, "edge#7")],
)
def test_row_has_date_and_pull_request(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], pull: dict[str, Any], cell: str
) -> None:
    _, (cells,) = show(
        monkeypatch, capsys, owner(phase="in review", since="2026-01-02T03:04:05Z", pullRequest=pull)
    )

    assert cells[2:5] == ["in review", "2026-01-02", cell]


@pytest.mark.parametrize("name", ["default/web", "edge/web"])
def test_chosen_owner_is_shown_alone_with_its_own_exit_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    owners = (owner(), owner("db", stalled="True"))
    exits = frozenset({Exit.INVALID_INPUT, Exit.UNAVAILABLE})

    code, rows = show(monkeypatch, capsys, *owners, names=(name,), exits=exits)

    assert (code, [cells[1] for cells in rows]) == (Exit.DONE, ["default/web"])


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
