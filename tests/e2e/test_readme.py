"""The commands of README.md as a newcomer types them: in a clean clone, with an empty home."""

import os
import re
import resource
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support.ci import need
from tests.support.notes import note

WANTED = os.environ.get("RECONCILER_README") == "1"
DOWNLOADS = "downloads every dependency twice: `make readme` does, in CI too"
SAMPLE = "tests/unit/test_values.py"
"""What `make test` runs here: .ci/run runs the same command with all tests."""


def commands(root: Path) -> list[str]:
    """Return the commands of the first block of the README, without their remarks."""
    block = re.search(r"^```sh\n(.*?)^```$", (root / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    assert block
    return [line.partition("#")[0].strip() for line in block[1].splitlines()]


def test_two_commands_come_first(project_root: Path) -> None:
    text = (project_root / "README.md").read_text()

    assert commands(project_root) == ["make demo", "make test"]
    assert text.index("make demo") < text.index("\n## ")


@pytest.fixture(scope="module")
def newcomer(project_root: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Mapping[str, str]]:
    """A clean clone of the commit, and an environment of Git, make, Python and what pip needs."""
    if not WANTED:
        pytest.skip(DOWNLOADS)
    need("git", "make", "pipx")
    clone, home = tmp_path_factory.mktemp("clone") / "reconciler", tmp_path_factory.mktemp("home")
    subprocess.run(["git", "clone", "--quiet", project_root, clone], check=True)
    path = [home / ".local/bin", Path(sys.base_prefix) / "bin", "/usr/local/bin", "/usr/bin", "/bin"]
    network = {k: v for k, v in os.environ.items() if k.startswith("PIP_") or k.lower().endswith("_proxy")}
    return clone, {**network, "HOME": str(home), "PATH": os.pathsep.join(map(str, path)), "LANG": "C.UTF-8"}


def run(command: str, place: Path, environment: Mapping[str, str]) -> str:
    """Run a command, note its CPU seconds, and return what it printed."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    ran = subprocess.run(
        command,
        shell=True,
        cwd=place,
        env=dict(environment),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=1800,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    if not command.startswith("git "):
        note(f"README, clean clone, empty home: `{command}` took {seconds:.0f} CPU seconds.")
    assert ran.returncode == 0, ran.stdout
    return ran.stdout


@pytest.mark.slow
def test_the_first_command_does_the_main_job(newcomer: tuple[Path, Mapping[str, str]]) -> None:
    clone, environment = newcomer

    first = run("make demo", clone, environment)
    second = run("make demo", clone, environment)

    assert first.splitlines()[-1] == "Nothing was written."
    assert second.splitlines()[-1] == "Nothing was written."
    assert run("git status --short", clone, environment) == ""


@pytest.mark.slow
def test_the_second_command_runs_the_tests(newcomer: tuple[Path, Mapping[str, str]]) -> None:
    clone, environment = newcomer

    printed = run("make test", clone, {**environment, "PYTEST_ADDOPTS": SAMPLE})

    assert re.search(r"^=+ \d+ passed in ", printed, re.MULTILINE), printed
    assert run("git status --short", clone, environment) == ""


@pytest.mark.slow
def test_the_installed_command_does_what_the_page_says(newcomer: tuple[Path, Mapping[str, str]]) -> None:
    clone, environment = newcomer

    run("pipx install .", clone, environment)
    printed = run("python3 -I tests/support/pages.py README.md", clone, environment)

    assert re.fullmatch(r"README\.md: \d+ s, 0 wrong\n", printed)
