"""What a command prints, and where: colours, notes, masks, files; and which part of a fleet it is about."""

import io
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest

from reconciler.base.errors import ConfigurationError, Exit, Location, UnavailableError, UsageError
from reconciler.base.reasons import Reason
from reconciler.base.redact import Redactor
from reconciler.cli.differences import select_changes
from reconciler.cli.main import invoke
from reconciler.cli.output import (
    Output,
    Printer,
    RedactedStream,
    add_common_options,
    make_printer,
    require_readable,
    show_standing,
    with_shard,
)
from reconciler.inventory.shard import Shard
from reconciler.inventory.standing import Position, Standing
from reconciler.names.ids import ObjectName, PackageKey
from reconciler.names.problems import Problem
from reconciler.plan.changes import Plan
from reconciler.report.console import plain
from reconciler.report.report import Names
from reconciler.run.options import RunOptions
from tests.support.plan_values import EDGE, URL, WEB, a_change, a_desired, web_context
from tests.support.sets import repository, world
from tests.support.values import replace

PROBLEM = Problem(Location("a.yaml", 3), "RepositoryUnavailable", "No host", "Wait.")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def on_terminal(monkeypatch: pytest.MonkeyPatch, **environment: str) -> Terminal:
    """Let a person look at standard output."""
    shown = Terminal()
    monkeypatch.setattr(sys, "stdout", shown)
    monkeypatch.delenv("NO_COLOR", raising=False)
    for name, value in {"COLUMNS": "40", "TERM": "xterm", **environment}.items():
        monkeypatch.setenv(name, value)
    return shown


def test_file_of_a_command_gets_all_of_it_without_colours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = on_terminal(monkeypatch, FLEET_TOKEN="hunter2hunter2")
    with (tmp_path / "out").open("w", encoding="utf-8") as file:
        printer = make_printer(file=file)
        printer.lines(["é hunter2hunter2 " + "x " * 40])
        assert (printer.paint, printer.width, printer.quiet) == (plain, None, False)
    make_printer().lines(["shown"])

    assert (tmp_path / "out").read_bytes() == "é *** ".encode() + b"x " * 40 + b"\n"
    assert terminal.getvalue() == "shown\n"


def test_stream_masks_whole_lines_and_keeps_back_the_last() -> None:
    inner = io.StringIO()
    stream = RedactedStream(inner, Redactor(["hunter2hunter2"]))

    assert stream.write("a hunter2") == 9
    stream.flush()
    assert inner.getvalue() == "a hunter2"
    stream.writelines(["hunter2\nb hunter2", "hunter2\nc"])
    assert inner.getvalue() == "a hunter2hunter2\nb ***\n"
    stream.flush()
    stream.flush()
    assert (inner.getvalue(), stream.closed) == ("a hunter2hunter2\nb ***\nc", False)


@pytest.mark.parametrize("name", ["edge/web", "edge#3", "edge"])
def test_name_in_a_repository_that_was_not_read_is_no_misspelling(name: str) -> None:
    inventory = world(views=(replace(EDGE, problem=PROBLEM),))

    require_readable(inventory, ["other/edge", "edge-2#1"])
    require_readable(world(views=(EDGE,)), [name])
    with pytest.raises(
        UnavailableError, match=r"^a\.yaml:3: Repository default/edge could not be read: No host$"
    ) as raised:
        require_readable(inventory, ["x", name])
    assert raised.value.hint == "Wait."


@pytest.mark.parametrize(
    ("text", "ways"),
    [
        ("edge/web", "default/edge/web, team/edge/web"),
        ("edge#3", "default/edge#3, team/edge#3"),
        ("edge", "default/edge, team/edge"),
        *((text, "") for text in ("team/edge/web", "edge/*", "edge/w?b", "edge/w[e]b", "edge-2/web")),
    ],
)
def test_name_needs_its_namespace_where_repositories_of_several_have_that_name(text: str, ways: str) -> None:
    inventory = world(views=(EDGE, repository("edge", namespace="team", url="host/x"), repository("other")))
    told = ""
    try:
        require_readable(inventory, ["other/web", text])
    except UsageError as error:
        told = f"{error}. {error.hint}"

    message = f"{text} is ambiguous: Repositories of several namespaces are called edge."
    assert told == (f"{message} Name the namespace, too: {ways}." if ways else "")


def test_name_in_a_repository_with_a_wrong_manifest_is_no_reason_to_try_again() -> None:
    wrong = replace(PROBLEM, reason=Reason.INVALID_MANIFEST)

    with pytest.raises(
        ConfigurationError, match=rf"^{wrong.location}: Repository default/edge could not be read"
    ):
        require_readable(world(views=(replace(EDGE, problem=wrong),)), ["edge/web"])


@pytest.mark.parametrize("position", [Position.CURRENT, Position.BEHIND])
def test_commit_that_is_not_the_newest_is_noted(
    position: Position, capsys: pytest.CaptureFixture[str]
) -> None:
    standing = Standing(position, 3, branch="main")

    show_standing(make_printer(), standing)

    noted = capsys.readouterr().err
    assert standing.sentence in noted
    assert bool(noted) is (position is Position.BEHIND)


def test_part_of_a_fleet_is_named_or_that_of_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    options = RunOptions("fleet")

    assert with_shard(options, "") == RunOptions("fleet")
    assert with_shard(options, "1/3") == RunOptions("fleet", shard=Shard(1, 3))
    monkeypatch.setenv("JOB_COMPLETION_INDEX", "2")
    assert with_shard(options, "auto/3") == RunOptions("fleet", shard=Shard(2, 3))
    monkeypatch.delenv("JOB_COMPLETION_INDEX")
    with pytest.raises(UsageError, match="needs JOB_COMPLETION_INDEX"):
        with_shard(options, "auto/3")


def test_files_are_lines_or_a_value(capsys: pytest.CaptureFixture[str]) -> None:
    files: dict[str, Any] = {"written": [Path("a/b")], "removed": ["c"]}
    make_printer().files(["wrote a/b"], **files)
    make_printer(Output.JSON).files(["wrote a/b"], **files)

    line, _, value = capsys.readouterr().out.partition("\n")
    assert line == "wrote a/b"
    assert json.loads(value) == {
        "apiVersion": "reconciler.dev/v1alpha1", "kind": "Files", "written": ["a/b"], "removed": ["c"],
    }  # fmt: skip


def test_quiet_holds_for_the_call_it_is_given_to(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Printer] = []
    monkeypatch.setattr(Printer, "text", lambda printer, _: made.append(printer))

    for line in (["schema", "Plan", "-q"], ["schema", "Plan"]):
        assert invoke(line) == 0

    assert [printer.quiet for printer in made] == [True, False]


def test_options_that_every_command_gets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[bool] = []
    command = click.Command("x", callback=lambda **_: ran.append(make_printer().quiet))
    reader = click.Command("y", params=[click.Option(["--cache-dir"])])
    for each in (command, command, reader):
        add_common_options(each)
    monkeypatch.chdir(tmp_path)

    for line in (["-q"], ["--quiet"], []):
        command.main(line, standalone_mode=False)

    assert ran == [True, True, False]
    assert [option.opts for option in command.params] == [["--quiet", "-q"]]
    assert [option.opts for option in reader.params[1:]] == [["--quiet", "-q"], ["--verbose", "-v"]]
    tmp_path.rmdir()
    with pytest.raises(UsageError, match=r"^The current directory was deleted$") as raised:
        command.main([], standalone_mode=False)
    assert raised.value.hint == "Go to a directory that exists, then run again."


PLAN = '{"kind": "Plan", "checksum": "a"}'


@pytest.mark.parametrize(
    "text", ["[]", "7", "{}", PLAN.replace(', "checksum": "a"', ""), PLAN.replace('"a"', '""'),
             PLAN.replace('"a"', "7"), PLAN.replace("Plan", "Status")]
)  # fmt: skip
def test_file_that_is_no_plan_is_not_applied(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], text: str
) -> None:
    (tmp_path / "plan.json").write_text(text)

    assert invoke(["apply", str(tmp_path / "plan.json"), "--control", str(tmp_path)]) == Exit.USAGE
    assert capfd.readouterr().err.startswith(f"error: {tmp_path}/plan.json is no plan\n")


@pytest.mark.parametrize(
    ("texts", "paths"),
    [
        (["edge/web"], ["web"]),
        (["edge/db"], ["a/db"]),
        (["edge/a/db"], ["a/db"]),
        (["fleet"], ["web"]),
        (["default/fl*"], ["web"]),
        (["edge/*"], ["a/db", "web"]),
        (["fleet", "edge/db"], ["a/db", "web"]),
    ],
)
def test_differences_are_of_packages_that_have_one_of_the_names(texts: list[str], paths: list[str]) -> None:
    desired = replace(a_desired(), set_key=ObjectName("default", "fleet"))
    changes = (a_change(variant=WEB), a_change(package=PackageKey(URL, "a/db")))
    plan = Plan(changes, context=web_context(variants={WEB: desired}))
    planned: Any = SimpleNamespace(plan=plan, names=Names("", {EDGE.key: "a"}), inputs=None)

    assert [change.package.path for change in select_changes(planned, texts)] == paths
