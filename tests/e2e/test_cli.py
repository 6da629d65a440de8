"""The command line as its users meet it: exit codes, forms of output, refusals, what is never printed."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import click
import pytest

from reconciler.cli.main import COMMANDS, main
from tests.support.command_server import run_reconciler
from tests.support.small_world import write_world
from tests.support.world import World

PROJECT = Path(__file__).resolve().parents[2]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return write_world(tmp_path / "w")


def process(*line: str, cwd: Path = PROJECT, **environment: str) -> subprocess.CompletedProcess[str]:
    return run_reconciler(line, cwd=cwd, env={**os.environ, "PYTHONPATH": str(PROJECT), **environment})


# Help


def test_help_lists_every_command_and_nothing_else() -> None:
    said = process("--help")

    groups = said.stdout.partition("  -h, --help  ")[2].partition("  Exit codes ")[0]
    lines = re.findall(r"^  .*$", groups, flags=re.MULTILINE)
    assert said.returncode == 0
    assert [line.split()[0] for line in lines] == main.list_commands(click.Context(main)) == list(COMMANDS)
    assert max(map(len, lines)) < 80


@pytest.mark.parametrize("name", ["plan", "apply", "approve", "pr", "status", "explain"])
def test_help_of_a_command_teaches_by_example(name: str) -> None:
    command = main.get_command(click.Context(main), name)

    assert command is not None
    assert f"  reconciler {name}" in command.get_help(click.Context(command))


def test_help_imports_no_stage() -> None:
    code = "import sys; from reconciler.cli.main import invoke; invoke(['--help']);"
    code += "print([m for m in ('pygit2', 'celpy', 'pydantic', 'yaml') if m in sys.modules])"

    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=PROJECT
    )

    assert ran.stdout.splitlines()[-1] == "[]"


# Exit codes


class Wrong(NamedTuple):
    reason: str
    line: tuple[str, ...]
    code: int
    hint: str


@pytest.mark.parametrize(
    "case",
    [
        Wrong("no such command", ("plant",), 2, "Did you mean 'plan'?"),
        Wrong("no such option", ("plan", "--nope"), 2, ""),
        Wrong("nothing to approve is named", ("approve",), 2, "hint: "),
        Wrong("a package that has no pull request", ("approve", "edge-1/wep"), 2, "Did you mean edge-1/web"),
        Wrong("a package that is not in the plan", ("explain", "edge-1/wep"), 2, "Did you mean edge-1/web"),
        Wrong("a pull request that is ambiguous", ("pr", "show", "1"), 2, "hint: "),
    ],
    ids=lambda c: c.reason,
)
def test_a_wrong_call_says_so(case: Wrong, world: World) -> None:
    world.run("apply")

    said = world.run(*case.line)

    assert said.code == case.code
    assert case.hint in said.err
    assert "Traceback" not in said.err


def test_an_unforeseen_error_is_a_bug_with_versions(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    from reconciler.run import plan

    monkeypatch.setenv("FORGE_TOKEN", "s3cr3t-in-a-frame")
    monkeypatch.setattr(plan, "expand", lambda *_, **__: (_ for _ in ()).throw(KeyError("s3cr3t-in-a-frame")))

    said = world.run("plan")

    assert said.code == 1
    assert "Traceback" in said.err
    assert "pygit2 " in said.err
    assert "s3cr3t-in-a-frame" not in said.err


@pytest.mark.parametrize("arguments", [["plan"], ["apply", "-o", "json"], ["--help"]], ids=" ".join)
def test_a_reader_that_leaves_is_no_error(world: World, arguments: list[str]) -> None:
    ran = run_unread(world, *arguments)

    assert (ran.returncode, ran.stderr) == (141, "")


def test_apply_does_its_work_when_its_reader_left(world: World) -> None:
    unread = run_unread(world, "apply")

    said = world.run("apply")

    assert (unread.returncode, unread.stderr) == (141, "")
    assert said.code == 0
    assert "Nothing to do" in said.out


def run_unread(world: World, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a process of its own, with a pipe for its output that nobody reads."""
    reading, writing = os.pipe()
    os.close(reading)
    options = [] if "--help" in arguments else ["--control", world.control, "--cache-dir", world.root / "c"]
    try:
        return subprocess.run(
            [sys.executable, "-m", "reconciler.cli.main", *arguments, *options],
            cwd=PROJECT,
            stdout=writing,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    finally:
        os.close(writing)


# Forms of output


@pytest.mark.parametrize(
    ("environment", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)]
)
def test_colours_are_for_terminals(world: World, environment: dict[str, str], coloured: bool) -> None:
    import pty

    leader, follower = pty.openpty()
    line = ["plan", "--control", str(world.control), "--cache-dir", str(world.root / "c")]
    ran = subprocess.run(
        [sys.executable, "-m", "reconciler.cli.main", *line],
        cwd=PROJECT,
        env={**{k: v for k, v in os.environ.items() if k != "NO_COLOR"}, "TERM": "xterm", **environment},
        stdout=follower,
        check=False,
    )
    os.close(follower)
    shown = os.read(leader, 1 << 16)
    os.close(leader)

    assert ran.returncode == 0
    assert (b"\x1b[" in shown) is coloured


# What is never printed


def test_a_token_in_an_address_is_never_printed(tmp_path: Path) -> None:
    said = process("plan", "--control", "https://bob:t0pSecretValue@127.0.0.1:9/x.git", cwd=tmp_path)

    assert said.returncode == 5
    assert "t0pSecretValue" not in said.stdout + said.stderr
