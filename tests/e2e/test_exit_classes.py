"""Every command says what is wrong, where, and what to do, for each exit class that it may end with."""

import contextlib
import io
from pathlib import Path

import pytest

from reconciler.cli.main import invoke
from reconciler.errors import Exit
from tests.support.exits import LINES, LOCAL, leaf_commands
from tests.support.git import make_repository
from tests.support.small_world import write_world
from tests.support.world import World

WRONG = """\
apiVersion: reconciler.dev/v1alpha1
kind: Reconciler
metadata:
  name: fleet
spec:
  manifest: [x]
"""
TOLD = "error: reconciler.yaml:6:3: Unknown field spec.manifest\nhint: Did you mean manifests?\n"


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
    make_repository(tmp_path / "control.git", {"reconciler.yaml": WRONG})

    said = World(tmp_path).run(*LINES[name])

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


def test_nothing_is_open_only_where_it_was_read(tmp_path: Path) -> None:
    write_world(tmp_path / "w", ("edge-1",))
    world = World(tmp_path / "w")
    world.run("apply")
    (world.root / "edge-1.git").rename(world.root / "away")

    listed, approved = world.run("pr", "list"), world.run("approve", "--all")

    assert listed.out == "There are no open pull requests in the repositories that were read.\n"
    assert approved.out == "Nothing is open in the repositories that were read.\n"
