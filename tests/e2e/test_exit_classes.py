"""Every command says what is wrong, where, and what to do, for each exit class that it may end with."""

import json
from pathlib import Path
from typing import NamedTuple

import pytest

from reconciler.base import effects
from reconciler.base.errors import Exit
from reconciler.cli.main import invoke
from tests.e2e.test_hints import commit, configure, world_of
from tests.support.commands import LOCAL, READING, leaf_commands
from tests.support.git import make_repository
from tests.support.small_world import manifest
from tests.support.world import World

WRONG = """\
apiVersion: reconciler.dev/v1alpha1
kind: Reconciler
metadata:
  name: fleet
spec:
  manifest: [x]
"""


def test_every_command_is_in_the_tables() -> None:
    assert set(leaf_commands()) == READING.keys() | LOCAL


@pytest.mark.parametrize("name", sorted(leaf_commands()))
def test_wrong_option_is_named_with_the_way_to_help(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    code = invoke([*name.split(), "--no-such-option"])

    said = capfd.readouterr().err
    assert code == Exit.USAGE
    assert f"Try 'reconciler {name} --help' for help." in said
    assert "No such option" in said


@pytest.mark.parametrize("name", sorted(READING))
def test_invalid_configuration_is_told_at_its_line(name: str, tmp_path: Path) -> None:
    control = make_repository(tmp_path / "control.git", {"reconciler.yaml": WRONG})
    control.commit({"README.md": "a change\n"}, branch="change", start="main")
    proposed = ("--base", "main", "--head", "change") if name == "check" else ()

    said = World(tmp_path).run(*READING[name], *proposed)

    assert said.code == Exit.INVALID_INPUT, said.out + said.err
    assert (
        said.err == "error: reconciler.yaml:6:3: Unknown field spec.manifest\nhint: Did you mean manifests?\n"
    )


@pytest.mark.parametrize("name", sorted(READING))
def test_unreachable_control_repository_is_named(name: str, tmp_path: Path) -> None:
    said = World(tmp_path).run(*READING[name], control="http://127.0.0.1:9/control.git")

    assert said.code == Exit.UNAVAILABLE, said.err
    assert "127.0.0.1:9/control.git" in said.err
    assert "hint: " in said.err


@pytest.mark.parametrize("name", sorted(READING))
def test_bug_is_reported_with_what_to_do(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("an unforeseen fault")

    monkeypatch.setattr("reconciler.git.repository.Mirrors.open", fail)
    make_repository(tmp_path / "control.git", {"reconciler.yaml": "{}\n"})

    said = World(tmp_path).run(*READING[name])

    assert said.code == Exit.BUG
    assert "ZeroDivisionError: an unforeseen fault" in said.err
    assert "Please report it with everything above and these versions:" in said.err


class Row(NamedTuple):
    """One command that ends with a class of exit, and the line that explains it."""

    code: Exit
    situation: str
    line: str
    text: str
    hint: str = "hint: "


ROWS = [
    Row(Exit.REFUSED, "no consent", "apply", "refused: DeletionGuard: "),
    Row(Exit.REFUSED, "published", "apply --checksum 0123456", "not the one that was reviewed"),
    Row(Exit.PARTIAL, "moved tag", "apply", "error: The run was stopped by a signal"),
    Row(Exit.WAITING, "conflict", "apply", "conflict in app.yaml", "answer it in the pull request"),
    Row(Exit.PENDING, "proposed update", "check --head change --detailed-exitcode", "update", ""),
    Row(Exit.PENDING, "moved tag", "lock --check", "~ PackageVariant default/web-edge-1: ", ""),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.code.name.lower()}: {row.line}")
def test_exit_class_has_a_line_that_explains_it(
    row: Row, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(effects, "requested", effects.Flag())
    world = world_of(row.situation, tmp_path / "w")
    if row.code == Exit.PARTIAL:  # as SIGTERM does, before anything is written
        effects.request_shutdown()

    said = world.run(*row.line.split())

    assert said.code == row.code, said.out + said.err
    assert row.text in said.out + said.err
    assert row.hint in said.out + said.err


@pytest.mark.parametrize("line", ["plan", "apply"])
@pytest.mark.parametrize("where", ["configuration", "environment"])
def test_waiting_is_no_failure_where_asked(
    line: str, where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = world_of("conflict", tmp_path / "w")
    if where == "environment":
        monkeypatch.setenv("RECONCILER_EXIT_WAITING", "0")
    else:
        configure(world, "  exit:\n    waiting: 0\n")

    report = json.loads(world.run(line, "-o", "json").out)
    said = world.run(line)

    assert (said.code, report["exitCode"], report["exits"]) == (Exit.DONE, 0, ["waiting"])
    assert "conflict in app.yaml" in said.out


def test_waiting_hides_no_other_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECONCILER_EXIT_WAITING", "0")
    world = world_of("conflict", tmp_path / "w")
    commit(world, {manifest("edge-1", "new"): "kind: [\n"})

    assert world.run("plan").code == Exit.INVALID_INPUT
