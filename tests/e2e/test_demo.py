"""What a newcomer does: the demo's printed commands, verbatim, in a real shell."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from reconciler.workdir.starter import SEPARATE, walkthrough
from tests.support.command_server import write_client
from tests.support.world import EPOCH, refs

CLUSTERS = 3
LAYOUTS = ("separate", "monorepo")


def shell(script: str, directory: Path, cache: Path) -> str:
    """Run a script as a user would, with a fixed time for the user's own commits."""
    environment = {
        **os.environ,
        "PATH": f"{write_client(cache.parent / 'bin')}:{os.environ['PATH']}",
        "XDG_CACHE_HOME": str(cache),
        "GIT_AUTHOR_DATE": f"{EPOCH + 90_000} +0000",
        "GIT_COMMITTER_DATE": f"{EPOCH + 90_000} +0000",
    }
    ran = subprocess.run(
        ["sh", "-e"],
        input=script,
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def printed_commands(output: str) -> str:
    """Return the commands that the demo prints: its indented lines."""
    return "\n".join(re.findall(r"^  (.*)$", output, flags=re.MULTILINE))


def every_ref(root: Path) -> dict[str, dict[str, str]]:
    return {repository.name: refs(repository) for repository in sorted(root.glob("*.git"))}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_printed_commands_do_what_the_walkthrough_does(layout: str, tmp_path: Path) -> None:
    create = f"reconciler demo fleet --clusters {CLUSTERS} --layout {layout}"
    cache = tmp_path / "cache"
    commands = printed_commands(shell(create, tmp_path, cache))

    said = shell(commands, tmp_path, cache)
    by_hand = every_ref(tmp_path / "fleet")
    shutil.rmtree(tmp_path / "fleet")
    shutil.rmtree(cache)
    shell(f"{create}\nsh fleet/walkthrough.sh", tmp_path, cache)

    assert every_ref(tmp_path / "fleet") == by_hand
    assert len(by_hand) == (1 if layout == "monorepo" else CLUSTERS + 2)
    assert "Nothing to do" in said.splitlines()[-2]
    assert said.splitlines()[-1] == "Nothing was written."


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_fresh_clone_without_caches_writes_nothing(layout: str, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    shell(f"reconciler demo fleet --layout {layout}", tmp_path, cache)
    control = "platform" if layout == "monorepo" else "control"
    at = tmp_path / "fleet"
    shell("reconciler plan", at / control, cache)
    assert code("reconciler plan --detailed-exitcode", at / control, cache) == 10
    shell("reconciler apply", at / control, cache)
    before = every_ref(at)
    shutil.rmtree(cache)

    shell(f"git clone -q {control}.git again", at, cache)
    shell("reconciler apply", at / "again", cache)

    assert every_ref(at) == before
    assert code("reconciler plan --detailed-exitcode", at / "again", cache) == 0


def code(command: str, directory: Path, cache: Path) -> int:
    """Return a command's exit code."""
    return int(shell(f"{command} >/dev/null && echo 0 || echo $?", directory, cache).split()[-1])


@pytest.mark.parametrize(("platform", "command"), [("darwin", "sed -i '' "), ("linux", "sed -i '")])
def test_files_are_edited_by_the_sed_of_the_platform(
    platform: str, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.platform", platform)

    commands = [line for _, lines in walkthrough(SEPARATE, 6) for line in lines if line.startswith("sed")]

    assert len(commands) == 3
    assert all(line.startswith(command) for line in commands)


@pytest.mark.parametrize(
    ("layout", "commits"),
    [
        ("separate",
            {"control.git": "cc07792e2189b73fb9a80987e302104905382f5f",
            "blueprints.git": "4b46778b47f89f80d26d4e81edcb03e6e70ce6e8",
            "cluster-europe-01.git": "5d7223cec4471eeb7f491e829036704151246645"}),
        ("monorepo", {"platform.git": "1463e1aaf8afe16942b83e45c5e4898992373daa"}),
        ("tutorial", {"blueprints": "34223be14b9bc893a6f312e2abc57052482a62f2"}),
    ],
)  # fmt: skip
def test_each_demo_has_the_same_commits(layout: str, commits: dict[str, str], tmp_path: Path) -> None:
    shell(f"reconciler demo world --layout {layout}", tmp_path, tmp_path / "cache")

    tips = {name: refs(tmp_path / "world" / name)["refs/heads/main"] for name in commits}

    assert tips == commits
