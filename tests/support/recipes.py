"""Recipes for contributors: their files, changes and commands, done in a copy of the project."""

import os
import re
import shutil
import subprocess
import sys
from enum import Enum
from pathlib import Path
from typing import NamedTuple

PROJECT = Path(__file__).resolve().parents[2]
LINKED = ("fixtures",)
"""Large, and changed by no recipe."""
LEFT_OUT = (
    "__pycache__",
    ".git",
    ".venv*",
    ".*_cache",
    ".hypothesis",
    ".mutation",
    ".fresh",
    "dist",
    "demo",
    "_build",
)
"""Made in the checkout, and no part of it."""
PAGES = (PROJECT / "CONTRIBUTING.md", PROJECT / "docs/contributing/recipes.md")
_HEADING = re.compile(r"^###? (.+)$", re.MULTILINE)
_FENCE = re.compile(
    r"^```(?P<kind>python|diff)\n# (?P<path>\S+)\n(?P<text>.*?)^```$|^```console\n\$ (?P<line>.*?)\n```$",
    re.MULTILINE | re.DOTALL,
)


class StepKind(Enum):
    """A whole file, a change of a file as a diff without line numbers, or a target of make."""

    FILE = "python"
    CHANGE = "diff"
    COMMAND = "console"


class Step(NamedTuple):
    """One fence of a recipe. A command has no path, and its line is the text."""

    path: str
    text: str
    kind: StepKind


def read_recipes() -> dict[str, list[Step]]:
    """Return the recipes of the pages by heading: the sections with fences that name a file."""
    _, *parts = _HEADING.split("".join(page.read_text(encoding="utf-8") for page in PAGES))
    sections = zip(parts[::2], parts[1::2], strict=True)
    recipes = {name: [_step(found) for found in _FENCE.finditer(section)] for name, section in sections}
    return {name: steps for name, steps in recipes.items() if any(step.path for step in steps)}


def _step(found: re.Match[str]) -> Step:
    if found["line"]:
        return Step("", found["line"], StepKind.COMMAND)
    return Step(found["path"], found["text"], StepKind(found["kind"]))


def copy_project(root: Path) -> None:
    """Copy the project without what was made in it, such as environments and compiled modules."""
    ignore = shutil.ignore_patterns(*LEFT_OUT, *LINKED)
    shutil.copytree(PROJECT, root, symlinks=True, ignore=ignore, dirs_exist_ok=True)
    for name in LINKED:
        (root / name).symlink_to(PROJECT / name)


def do_step(root: Path, step: Step) -> None:
    """Write the file of a step, change it, or run its command.

    Raises:
        ValueError: The context lines are not in the file, or more than once.
        CalledProcessError: The command failed.
    """
    path = root / step.path
    match step.kind:
        case StepKind.FILE:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(step.text, encoding="utf-8")
        case StepKind.CHANGE:
            path.write_text(_changed(path.read_text(encoding="utf-8"), step), encoding="utf-8")
        case StepKind.COMMAND:
            _run_make(root, step.text)


def context_of(step: Step) -> str:
    """Return the lines that a change expects in its file."""
    lines = [line or " " for line in step.text.splitlines()]
    return "".join(f"{line[1:]}\n" for line in lines if line[0] != "+")


def _changed(text: str, step: Step) -> str:
    lines = [line or " " for line in step.text.splitlines()]
    before = context_of(step)
    after = "".join(f"{line[1:]}\n" for line in lines if line[0] != "-")
    if text.count(before) != 1:
        raise ValueError(f"{step.path} has these lines {text.count(before)} times:\n{before}")
    return text.replace(before, after)


def _run_make(root: Path, line: str) -> None:
    """Run a target of make with the Python of the tests, which is installed already."""
    environment = root / ".venv"
    environment.mkdir(exist_ok=True)
    for mark in (".runs", ".installed"):
        (environment / mark).touch()
    command = [*line.split(), f"RUN={Path(sys.executable).parent}/"]
    subprocess.run(command, cwd=root, env=environment_of(root), capture_output=True, text=True, check=True)


def environment_of(root: Path) -> dict[str, str]:
    """Return the environment for commands in the copy: they import its modules and measure no coverage."""
    environment = {**os.environ, "PYTHONPATH": str(root)}
    environment.pop("COVERAGE_PROCESS_START", None)
    return environment


def mirrored_tests(root: Path, steps: list[Step]) -> list[str]:
    """Return the unit tests of the modules that a recipe changes: they have their names and folders."""
    paths = [Path("tests/unit", *Path(step.path).parts[1:]) for step in steps if step.kind is StepKind.CHANGE]
    tests = [path.with_name(f"test_{path.stem}.py") for path in paths]
    return [str(test) for test in dict.fromkeys(tests) if (root / test).exists()]
