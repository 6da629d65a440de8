"""The command line as its users meet it: exit codes, forms of output, refusals, what is never printed."""

import json
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
from tests.support.git import Repo
from tests.support.schema import violations
from tests.support.small_world import manifest, repository, write_world
from tests.support.world import World

PROJECT = Path(__file__).resolve().parents[2]
DRAFT = "refs/heads/drafts/web/packagevariant-1"


@pytest.fixture
def world(tmp_path: Path) -> World:
    write_world(tmp_path / "w")
    return World(tmp_path / "w")


def control(world: World) -> Repo:
    return Repo(world.control, time=1_767_300_000)


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


def test_a_second_apply_from_nothing_writes_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    from reconciler.git import push

    world.run("apply")
    before = world.all_refs()
    pushes = []
    original = push.run_git
    monkeypatch.setattr(push, "run_git", lambda *a, **k: pushes.append(a) or original(*a, **k))

    said = world.run("apply", cache="another-cache")

    assert (said.code, pushes) == (0, [])
    assert world.all_refs() == before
    assert "Nothing was written." in said.out


def test_a_dead_repository_is_unavailable_and_the_others_proceed(world: World) -> None:
    (world.root / "edge-2.git").rename(world.root / "gone")

    said = world.run("apply")

    assert said.code == 5
    assert "RepositoryUnavailable" in said.out
    assert DRAFT in world.all_refs()["edge-1.git"]
    assert [
        world.run("status", *names).code for names in ([], ["default/web-edge-2"], ["default/web-edge-1"])
    ] == [5, 5, 0]


def test_a_repository_that_only_warns_is_no_failure(world: World) -> None:
    note = "  annotations:\n    reconciler.dev/unavailable: warn\n"
    text = repository("edge-2").replace("  namespace: default\n", f"  namespace: default\n{note}")
    control(world).commit({"manifests/repositories/edge-2.yaml": text})
    (world.root / "edge-2.git").rename(world.root / "gone")

    assert [
        world.run(*command).code for command in (["apply"], ["status"], ["status", "default/web-edge-2"])
    ] == [
        0,
        0,
        0,
    ]


def test_an_unforeseen_error_is_a_bug_with_versions(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    from reconciler.run import plan

    monkeypatch.setenv("FORGE_TOKEN", "s3cr3t-in-a-frame")
    monkeypatch.setattr(plan, "expand", lambda *_, **__: (_ for _ in ()).throw(KeyError("s3cr3t-in-a-frame")))

    said = world.run("plan")

    assert said.code == 1
    assert "Traceback" in said.err
    assert "pygit2 " in said.err
    assert "s3cr3t-in-a-frame" not in said.err


@pytest.mark.parametrize(
    "arguments", [["plan"], ["apply"], ["apply", "-o", "json"], ["--help"]], ids=" ".join
)
def test_a_reader_that_leaves_is_no_error(world: World, arguments: list[str]) -> None:
    ran = run_unread(world, *arguments)

    assert (ran.returncode, ran.stderr) == (141, "")


def test_apply_does_its_work_when_its_reader_left(world: World) -> None:
    run_unread(world, "apply")

    said = world.run("apply")

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


# Refusals


def test_only_the_reviewed_plan_is_applied(world: World) -> None:
    before = world.all_refs()
    reviewed = json.loads(world.run("plan", "-o", "json").out)["checksum"]

    said = world.run("apply", "--checksum", "0" * 64)

    assert said.code == 4
    assert "create  edge-1/web" in said.out
    assert world.all_refs() == before
    assert world.run("apply", "--checksum", reviewed).code == 0


# Forms of output


def test_the_json_of_a_plan_is_as_its_schema_says(world: World) -> None:
    control(world).commit({manifest("edge-2", "web"): "kind: [\n"})
    schema = json.loads((PROJECT / "docs/schemas/plan.schema.json").read_text())

    for line in (("plan",), ("apply",), ("plan", "--detailed-exitcode")):
        value = json.loads(world.run(*line, "-o", "json").out)
        assert violations(schema, value) == []
        assert value["exitCode"] == 3
        assert value["exits"][0] == "invalid_input"


def test_quiet_hides_progress_and_keeps_changes_and_what_waits_for_people(world: World) -> None:
    planned, applied = world.run("plan", "-q").out, world.run("apply", "-q").out

    assert "create  edge-1/web  New" in planned
    assert applied.startswith(planned)
    head, *needs, done = applied.splitlines()[len(planned.splitlines()) :]
    assert (head[:9], done) == ("NEEDS YOU", "14 effects done, 0 failed.")
    assert "\n".join([head, *needs]) in world.run("plan", "-q").out


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


# Pull requests


def test_a_pull_request_is_listed_shown_and_closed_for_good(world: World) -> None:
    world.run("apply")
    assert re.search(r"edge-1#2 +draft +edge-1/web +Create web from web/v1", world.run("pr", "list").out)
    shown = world.run("pr", "show", "edge-1/web").out
    assert "head: drafts/web/packagevariant-1" in shown
    assert world.run("pr", "show", "edge-1#2").out == shown

    assert world.run("pr", "close", "edge-1/web", "--comment", "Not now").code == 0
    again = world.run("apply")

    assert again.code == 7
    assert re.search(r"keep +edge-1/web +Rejected", again.out)
    assert "edge-1#2" not in world.run("pr", "list").out
    assert re.search(r"edge-1#2 +closed", world.run("pr", "list", "--all").out)

    assert world.run("pr", "reopen", "edge-1/web").out.startswith("reopened edge-1#2 ")
    assert re.search(r"edge-1#2 +draft", world.run("pr", "list").out)
    assert "No package changed" in world.run("apply").out
    assert "Nothing was written.\n" in world.run("apply").out
    assert world.run("approve", "edge-1/web").code == 0


def test_proposing_and_merging_are_two_steps(world: World) -> None:
    world.run("apply")
    assert world.run("pr", "merge", "edge-1/web").code == 4

    assert world.run("approve", "--propose-only", "edge-1/web").out == "proposed edge-1/web\n"
    assert "refs/heads/proposed/web/packagevariant-1" in world.all_refs()["edge-1.git"]
    assert "Nothing was written.\n" in world.run("apply").out
    assert world.run("pr", "merge", "edge-1/web").code == 0

    assert "refs/tags/web/v1" in world.all_refs()["edge-1.git"]
    assert world.run("apply").code == 0


def test_a_draft_without_a_pull_request_is_proposed_by_approving_it(world: World) -> None:
    configuration = control(world).read("main", "reconciler.yaml").decode()
    control(world).commit({"reconciler.yaml": configuration + "  pullRequests:\n    openOn: propose\n"})
    world.run("apply")
    assert "no open pull requests" in world.run("pr", "list").out

    assert world.run("approve", "--propose-only", "edge-1/web").out == "proposed edge-1/web\n"
    assert world.run("approve", "edge-2/web").out == "approved edge-2/web: web/v1\n"

    assert re.search(r"edge-1#1 +open +edge-1/web", world.run("pr", "list").out)
    assert world.run("apply").code == 0
    assert "Nothing was written.\n" in world.run("apply").out


def test_a_refused_approval_does_not_stop_the_others(world: World) -> None:
    world.run("apply")
    Repo(world.root / "edge-1.git").commit({"web/hotfix.yaml": "a: 1\n"}, time=1_767_300_000)

    said = world.run("approve", "--all")

    assert said.code == 4
    assert "refused: edge-1/web: " in said.out
    assert "approved edge-3/web: web/v1" in said.out


# Status and explanation


# Two at once
