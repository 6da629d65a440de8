"""Every command says what is wrong, where, and what to do, for each exit class that it may end with."""

import contextlib
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from reconciler.base import effects
from reconciler.base.errors import Exit
from reconciler.cli.main import invoke
from tests.support.exits import LINES, LOCAL, leaf_commands
from tests.support.git import Repo, make_repository
from tests.support.small_world import app, manifest, variant, write_world
from tests.support.world import World

WEB = manifest("edge-1", "web")
WRONG = """\
apiVersion: reconciler.dev/v1alpha1
kind: Reconciler
metadata:
  name: fleet
spec:
  manifest: [x]
"""


def test_every_command_is_in_the_tables() -> None:
    assert set(leaf_commands()) == LINES.keys() | LOCAL


@pytest.mark.parametrize("name", sorted(leaf_commands()))
def test_wrong_option_is_named_with_the_way_to_help(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    code = invoke([*name.split(), "--no-such-option"])

    said = capfd.readouterr().err
    assert code == Exit.USAGE
    assert f"Try 'reconciler {name} --help' for help." in said
    assert "No such option" in said


@pytest.mark.parametrize("name", sorted(LINES))
def test_invalid_configuration_is_told_at_its_line(name: str, tmp_path: Path) -> None:
    control = make_repository(tmp_path / "control.git", {"reconciler.yaml": WRONG})
    control.commit({"README.md": "a change\n"}, branch="change", start="main")
    proposed = ("--base", "main", "--head", "change") if name == "check" else ()

    said = World(tmp_path).run(*LINES[name], *proposed)

    assert said.code == Exit.INVALID_INPUT, said.out + said.err
    assert (
        said.err == "error: reconciler.yaml:6:3: Unknown field spec.manifest\nhint: Did you mean manifests?\n"
    )


@pytest.mark.parametrize("name", sorted(LINES))
def test_unreachable_control_repository_is_named(name: str, tmp_path: Path) -> None:
    line = [*LINES[name], "--control", "http://127.0.0.1:9/control.git", "--cache-dir", str(tmp_path)]
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = invoke(line)

    assert code == Exit.UNAVAILABLE, err.getvalue()
    assert "127.0.0.1:9/control.git" in err.getvalue()
    assert "hint: " in err.getvalue()


@pytest.mark.parametrize("name", sorted(LINES))
def test_bug_is_reported_with_what_to_do(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("an unforeseen fault")

    monkeypatch.setattr("reconciler.git.repository.Mirrors.open", fail)
    make_repository(tmp_path / "control.git", {"reconciler.yaml": "{}\n"})

    said = World(tmp_path).run(*LINES[name])

    assert said.code == Exit.BUG
    assert "ZeroDivisionError: an unforeseen fault" in said.err
    assert "Please report it with everything above and these versions:" in said.err


def commit(world: World, files: dict[str, str | None], *, branch: str = "main") -> None:
    world.clock += 60
    Repo(world.control, time=world.clock).commit(files, branch=branch, start="main")


def published(world: World) -> None:
    world.run("apply")
    assert world.run("approve", "--all").code == Exit.DONE
    world.run("apply")


def guarded_deletion(world: World) -> None:
    """Remove a manifest where no deletion is allowed without consent."""
    published(world)
    text = Repo(world.control).read("main", "reconciler.yaml").decode()
    commit(world, {"reconciler.yaml": f"{text}  deletions:\n    count: 0\n", WEB: None})


def proposed_guarded_deletion(world: World) -> None:
    """Propose the same on a branch."""
    published(world)
    text = Repo(world.control).read("main", "reconciler.yaml").decode()
    commit(world, {"reconciler.yaml": f"{text}  deletions:\n    count: 0\n"})
    world.run("apply")
    commit(world, {WEB: None}, branch="change")


def proposed_update(world: World) -> None:
    published(world)
    commit(world, {WEB: variant("edge-1", "web", revision=2)}, branch="change")


def closed(world: World) -> None:
    world.run("apply")
    world.run("pr", "close", "edge-1/web")


def conflict(world: World) -> None:
    published(world)
    with world.edit("edge-1", "Own image") as copy:
        (copy / "web/app.yaml").write_text(app("web", 7))
    commit(world, {WEB: variant("edge-1", "web", revision=2)})
    world.run("apply")


def floating(world: World) -> None:
    """Let a variant follow a tag that moves after it was published."""
    text = variant("edge-1", "web").replace("    revision: 1\n", "    tag: stable\n", 1)
    world.tag("blueprints", "web/stable", "web/v1")
    commit(world, {WEB: text})
    published(world)
    world.tag("blueprints", "web/stable", "web/v2")


def stopped(world: World) -> None:
    """Ask the process to stop, as SIGTERM does, before anything is written."""
    floating(world)
    effects.request_shutdown()


class Row(NamedTuple):
    """One command that ends with a class of exit, and the line that explains it."""

    code: Exit
    situation: Callable[[World], None]
    line: str
    text: str
    hint: str = "hint: "


ROWS = [
    Row(Exit.REFUSED, guarded_deletion, "plan", "refused: DeletionGuard: "),
    Row(Exit.REFUSED, guarded_deletion, "apply", "refused: DeletionGuard: "),
    Row(Exit.REFUSED, published, "apply --checksum 0123456", "not the one that was reviewed"),
    Row(Exit.REFUSED, proposed_guarded_deletion, "check --head change", "refused: DeletionGuard: "),
    Row(Exit.REFUSED, closed, "approve edge-1/web", "refused: edge-1/web: Pull request edge-1#2 was closed"),
    Row(Exit.REFUSED, closed, "pr merge edge-1/web", "Pull request edge-1#2 was closed"),
    Row(Exit.REFUSED, published, "pr close edge-1/web", "was merged and cannot be closed"),
    Row(Exit.REFUSED, floating, "lock --frozen", "PackageVariant default/web-edge-1 would have to change"),
    Row(Exit.PARTIAL, stopped, "apply", "error: The run was stopped by a signal"),
    Row(Exit.WAITING, conflict, "plan", "conflict in app.yaml", "answer it in the pull request"),
    Row(Exit.WAITING, conflict, "apply", "conflict in app.yaml", "answer it in the pull request"),
    Row(Exit.WAITING, closed, "plan", "Its pull request #2 was closed", "reconciler.dev/retry"),
    Row(Exit.PENDING, proposed_update, "check --head change --detailed-exitcode", "update", ""),
    Row(Exit.PENDING, floating, "plan --detailed-exitcode", "update  edge-1/web", ""),
    Row(Exit.PENDING, floating, "lock --check", "~ PackageVariant default/web-edge-1: ", ""),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.code.name.lower()}: {row.line}")
def test_exit_class_has_a_line_that_explains_it(
    row: Row, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(effects, "requested", effects.Flag())
    write_world(tmp_path / "w", ("edge-1",))
    world = World(tmp_path / "w")
    row.situation(world)

    said = world.run(*row.line.split())

    assert said.code == row.code, said.out + said.err
    assert row.text in said.out + said.err
    assert row.hint in said.out + said.err


@pytest.mark.parametrize("line", ["plan", "apply"])
@pytest.mark.parametrize("where", ["configuration", "environment"])
def test_waiting_is_no_failure_where_asked(
    line: str, where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_world(tmp_path / "w", ("edge-1",))
    world = World(tmp_path / "w")
    conflict(world)
    if where == "environment":
        monkeypatch.setenv("RECONCILER_EXIT_WAITING", "0")
    else:
        text = Repo(world.control).read("main", "reconciler.yaml").decode()
        commit(world, {"reconciler.yaml": f"{text}  exit:\n    waiting: 0\n"})

    report = json.loads(world.run(line, "-o", "json").out)
    said = world.run(line)

    assert (said.code, report["exitCode"], report["exits"]) == (Exit.DONE, 0, ["waiting"])
    assert "conflict in app.yaml" in said.out


def test_waiting_hides_no_other_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECONCILER_EXIT_WAITING", "0")
    write_world(tmp_path / "w", ("edge-1",))
    world = World(tmp_path / "w")
    conflict(world)
    commit(world, {manifest("edge-1", "new"): "kind: [\n"})

    assert world.run("plan").code == Exit.INVALID_INPUT


@pytest.mark.parametrize("value", ["1", "7x", "3"])
def test_no_other_code_can_be_given_to_waiting(
    value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECONCILER_EXIT_WAITING", value)
    write_world(tmp_path / "w", ("edge-1",))

    said = World(tmp_path / "w").run("plan")

    assert said.code == Exit.INVALID_INPUT
    assert "exit.waiting" in said.err


@pytest.mark.parametrize("name", sorted(LINES))
def test_every_command_outside_a_repository_is_a_wrong_call(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)

    code = invoke([*LINES[name], "--cache-dir", str(tmp_path / "c")])

    said = capfd.readouterr().err
    assert code == Exit.USAGE
    assert said.startswith(f"error: {tmp_path} is not a Git repository or working copy\nhint: ")


def test_nothing_is_open_only_where_it_was_read(tmp_path: Path) -> None:
    write_world(tmp_path / "w", ("edge-1",))
    world = World(tmp_path / "w")
    world.run("apply")
    (world.root / "edge-1.git").rename(world.root / "away")

    listed, approved = world.run("pr", "list"), world.run("approve", "--all")

    assert listed.out == "There are no open pull requests in the repositories that were read.\n"
    assert approved.out == "Nothing is open in the repositories that were read.\n"
