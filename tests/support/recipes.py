"""Recipes of CONTRIBUTING.md: their files and changes, applied to a copy of the project."""

import re
import shutil
from pathlib import Path
from typing import NamedTuple

PROJECT = Path(__file__).resolve().parents[2]
COPIED = ("reconciler", "tests", "templates", "docs", "fixtures/worlds/56-kpt-packages", "pyproject.toml")
_HEADING = re.compile(r"^### (.+)$", re.MULTILINE)
_FENCE = re.compile(r"^```(python|diff)\n# (\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Step(NamedTuple):
    """One fence of a recipe: a whole file, or a change of a file as a diff without line numbers."""

    path: str
    text: str
    is_change: bool


def read_recipes(text: str) -> dict[str, list[Step]]:
    """Return the recipes of a text by heading: the sections with fences that name a file."""
    _, *parts = _HEADING.split(text)
    sections = zip(parts[::2], parts[1::2], strict=True)
    recipes = {
        name: [Step(path, body, kind == "diff") for kind, path, body in _FENCE.findall(section)]
        for name, section in sections
    }
    return {name: steps for name, steps in recipes.items() if steps}


def copy_project(root: Path) -> None:
    """Copy what a recipe may change or run; compiled modules are left out."""
    for name in COPIED:
        source, target = PROJECT / name, root / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, target)


def apply_step(root: Path, step: Step) -> None:
    """Write the file of a step, or change it.

    Raises:
        ValueError: The context lines are not in the file, or more than once.
    """
    path = root / step.path
    if not step.is_change:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(step.text, encoding="utf-8")
        return
    lines = [line or " " for line in step.text.splitlines()]
    before = "".join(f"{line[1:]}\n" for line in lines if line[0] != "+")
    after = "".join(f"{line[1:]}\n" for line in lines if line[0] != "-")
    text = path.read_text(encoding="utf-8")
    if text.count(before) != 1:
        raise ValueError(f"{step.path} has these lines {text.count(before)} times:\n{before}")
    path.write_text(text.replace(before, after), encoding="utf-8")
