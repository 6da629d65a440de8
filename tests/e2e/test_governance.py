"""Attacks by a commit that is not merged: nothing in it chooses credentials, hosts or what is executed."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.command_server import run_reconciler
from tests.support.commands import COMMANDS, commands_with
from tests.support.git import Repo
from tests.support.http_git import HttpGit, serve
from tests.support.small_world import manifest, repository, variant, write_world

TOKEN = "canary-9f8e7d6c5b4a"


class Attack(NamedTuple):
    """A working copy whose HEAD asks for the token and for a program, and what they would leave behind."""

    root: Path
    server: HttpGit
    canary: Path

    @property
    def sent(self) -> list[str]:
        return [authorization for _, _, authorization in self.server.requests if authorization]

    def run(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("GITHUB_", "CI", "RECONCILER_"))}
        path = f"{self.root / 'bin'}:{clean['PATH']}"
        own = {"PATH": path, "XDG_CACHE_HOME": str(self.root / "cache"), "ACME": TOKEN}
        return run_reconciler(arguments, cwd=self.root / "copy", env={**clean, **own, **environment})


@pytest.fixture
def attack(tmp_path: Path) -> Iterator[Attack]:
    root, canary = tmp_path / "w", tmp_path / "canary"
    write_world(root)
    for path in (root / "bin/docker", root / "bin/program"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\ntouch {canary}\ncat\n")
        path.chmod(0o755)
    with serve(root, password=TOKEN) as server:
        subprocess.run(["git", "clone", "-q", "control.git", "copy"], cwd=root, check=True)
        propose(root, server)
        yield Attack(root, server, canary)


def propose(root: Path, server: HttpGit) -> None:
    """Commit in the working copy, on a branch that is pushed too, what an attacker would like."""
    merged = Repo(root / "control.git").read("main", "reconciler.yaml").decode()
    wanted = f"""\
  credentials:
  - {{prefix: {server.address}, tokenEnv: ACME}}
  forges:
  - {{prefix: {server.address}, type: gitea, api: {server.address}/api/v1}}
  functions:
    runtime: docker
    exec: {{program: {root}/bin/program}}
"""
    moved = repository("edge-1").replace("../edge-1.git", server.url("edge-1.git"))
    piped = (
        variant("edge-1", "web", revision=2) + "  pipeline:\n    mutators:\n    - {exec: program, name: p}\n"
    )
    files = {
        "reconciler.yaml": merged + wanted,
        "manifests/repositories/edge-1.yaml": moved,
        manifest("edge-1", "web"): piped,
        manifest("edge-2", "web"): piped.replace("edge-1", "edge-2"),
    }
    for path, text in files.items():
        (root / "copy" / path).write_text(text)
    for command in (
        ("checkout", "-q", "-b", "feature"),
        ("-c", "user.name=Eve", "-c", "user.email=eve@example.com", "commit", "-q", "-a", "-m", "Change"),
        ("push", "-q", "origin", "feature"),
    ):
        subprocess.run(["git", *command], cwd=root / "copy", check=True)


@pytest.mark.parametrize("name", sorted(commands_with("control")))
def test_unmerged_configuration_sends_no_token_and_runs_no_program(attack: Attack, name: str) -> None:
    ran = attack.run(*name.split(), "--control", ".", *COMMANDS[name])

    assert "Traceback" not in ran.stderr, ran.stderr
    assert (attack.sent, attack.canary.exists()) == ([], False), (name, ran.stdout, ran.stderr)


def test_merged_configuration_sends_its_token_and_runs_its_programs(attack: Attack) -> None:
    """The attack is real: once merged, the same configuration does what it asks for."""
    Repo(attack.root / "control.git").merge("feature")
    subprocess.run(["git", "checkout", "-q", "main"], cwd=attack.root / "copy", check=True)
    subprocess.run(["git", "pull", "-q"], cwd=attack.root / "copy", check=True)

    ran = attack.run("plan")

    assert attack.sent, ran.stdout + ran.stderr
    assert attack.canary.exists(), ran.stdout + ran.stderr


def test_plan_of_unmerged_commit_shows_its_effect_and_says_what_governs(attack: Attack) -> None:
    ran = attack.run("plan")

    assert "is not merged: credentials, hosts, functions and limits are those of main" in ran.stdout
    assert "on a host that the merged configuration does not name" in ran.stdout
    assert "edge-3" in ran.stdout


@pytest.mark.parametrize("where", ["branch", "detached", "unpushed"])
def test_apply_of_unmerged_commit_is_refused_before_anything_is_read(attack: Attack, where: str) -> None:
    copy = attack.root / "copy"
    if where == "detached":
        subprocess.run(["git", "checkout", "-q", "--detach"], cwd=copy, check=True)
    if where == "unpushed":
        subprocess.run(["git", "checkout", "-q", "-B", "main"], cwd=copy, check=True)

    ran = attack.run("apply")

    assert (ran.returncode, ran.stdout) == (4, "")
    assert "merge it first" in ran.stderr.lower()
    assert attack.server.requests == []


def test_check_against_another_branch_is_governed_by_the_default_branch(attack: Attack) -> None:
    """Whoever may push a branch may name it as the base of a pull request."""
    control = Repo(attack.root / "control.git")
    control.commit({"README.md": "more\n"}, branch="more", start="feature")

    ran = attack.run("check", "--control", "../control.git", "--base", "feature", "--head", "more")

    assert (attack.sent, attack.canary.exists()) == ([], False), ran.stdout + ran.stderr


def test_check_is_governed_by_the_tip_not_by_the_commit_it_starts_from(attack: Attack) -> None:
    """Whoever proposes chooses the starting point: what was taken back since does not govern."""
    control = Repo(attack.root / "control.git")
    before = {
        path: control.read("main", path).decode()
        for path in ("reconciler.yaml", "manifests/repositories/edge-1.yaml")
    }
    control.merge("feature")
    old = control.oid("main")
    control.commit(before)
    control.commit({"README.md": "more\n"}, branch="more", start=old)

    ran = attack.run("check", "--control", "../control.git", "--head", "more")

    assert (attack.sent, attack.canary.exists()) == ([], False), ran.stdout + ran.stderr


def test_repository_planted_in_the_tree_is_not_opened(attack: Attack) -> None:
    """Files called HEAD, config, objects and refs make a directory look like a repository of its own."""
    copy = attack.root / "copy"
    planted = attack.root / "planted.git"
    subprocess.run(["git", "clone", "-q", "--bare", copy, planted], check=True)
    for path in planted.iterdir():
        path.rename(copy / path.name)

    ran = attack.run("plan")

    assert "is not merged" in ran.stdout, ran.stdout + ran.stderr
    assert (attack.sent, attack.canary.exists()) == ([], False)


def test_plan_of_unmerged_commit_reads_what_the_default_branch_registers(attack: Attack) -> None:
    control = Repo(attack.root / "control.git")
    with serve(attack.root) as public:
        moved = repository("edge-2").replace("../edge-2.git", public.url("edge-2.git"))
        control.commit({"manifests/repositories/edge-2.yaml": moved})
        copy = attack.root / "copy"
        (copy / "manifests/repositories/edge-2.yaml").write_text(moved)

        unmerged = ("-c", "user.name=Kim", "-c", "user.email=kim@example.com", "commit", "-qam", "More")
        subprocess.run(["git", *unmerged], cwd=copy, check=True)
        ran = attack.run("plan")

        assert public.requests, ran.stdout + ran.stderr
    assert attack.sent == []


def test_first_configuration_is_planned_with_nothing_trusted(attack: Attack) -> None:
    control = Repo(attack.root / "control.git")
    control.commit({"reconciler.yaml": None})

    ran = attack.run("plan")

    assert "the defaults, as main has no readable configuration" in ran.stdout
    assert "edge-3" in ran.stdout
    assert (attack.sent, attack.canary.exists()) == ([], False)
