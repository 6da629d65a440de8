"""Each recipe of CONTRIBUTING.md works as written: its own test passes, and fails without its changes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.recipes import PROJECT, Step, apply_step, copy_project, read_recipes

RECIPES = read_recipes((PROJECT / "CONTRIBUTING.md").read_text(encoding="utf-8"))
SUBJECTS = ("forge", "function", "dialect", "strategy", "setting", "reason", "command")


def test_every_subject_has_a_recipe() -> None:
    assert len(RECIPES) == len(SUBJECTS)
    assert all(any(subject in name for name in RECIPES) for subject in SUBJECTS)


@pytest.mark.parametrize("name", RECIPES)
def test_recipe_works_as_written(tmp_path: Path, name: str) -> None:
    *steps, test = RECIPES[name]
    changes = [step for step in steps if step.is_change]
    copy_project(tmp_path)
    for step in steps:
        if not step.is_change:
            apply_step(tmp_path, step)
    apply_step(tmp_path, test)
    assert changes
    assert run_test(tmp_path, test) != 0, "the test of the recipe does not notice missing changes"

    for step in changes:
        apply_step(tmp_path, step)
    assert run_test(tmp_path, test) == 0


def run_test(root: Path, test: Step) -> int:
    """Run the test of a recipe in the copy; return the exit code."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "0", test.path]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    environment.pop("COVERAGE_PROCESS_START", None)
    return subprocess.run(command, cwd=root, env=environment, check=False).returncode
