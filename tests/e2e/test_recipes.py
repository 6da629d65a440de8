"""Each recipe for contributors works as written: its test needs its changes, and no other test breaks."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.recipes import (
    PROJECT,
    StepKind,
    copy_project,
    do_step,
    environment_of,
    mirrored_tests,
    read_recipes,
)

RECIPES = read_recipes()
SUBJECTS = ("forge", "function", "dialect", "strategy", "setting", "reason", "command")
REFERENCE = (
    "tests/docs/test_reference.py",
    "tests/unit/cli/test_schema.py",
    "tests/unit/test_cli_reference.py",
    "tests/unit/test_configuration_docs.py",
)
"""Tests that compare all code with the pages, so that every change can touch them."""
RULES = (
    "tests/docs/test_prose.py",
    "tests/unit/test_documented_names.py",
    "tests/unit/test_wording.py",
    "tests/test_house_rules.py",
    "tests/test_vocabulary.py",
)
"""Tests that read all code, in which one recipe cannot mend what another one breaks."""
LINTERS = ("ruff format --check --no-cache", "ruff check --no-cache", "mypy", "lint-imports --no-cache")
"""The first two on the files of recipes, the others on the package."""


def test_every_subject_has_a_recipe() -> None:
    assert len(RECIPES) == len(SUBJECTS)
    assert all(any(subject in name for name in RECIPES) for subject in SUBJECTS)


followed = pytest.mark.skipif(
    os.environ.get("RECONCILER_RECIPES") != "1", reason="runs much of the suite again: `make recipes` does"
)


@followed
@pytest.mark.parametrize("name", RECIPES)
def test_recipe_works_as_written(tmp_path: Path, name: str) -> None:
    *steps, test = RECIPES[name]
    copy_project(tmp_path)
    for step in (*steps, test):
        if step.kind is StepKind.FILE:
            do_step(tmp_path, step)
    assert run_tests(tmp_path, test.path) != 0, "the test of the recipe does not notice missing changes"

    for step in steps:
        if step.kind is not StepKind.FILE:
            do_step(tmp_path, step)
    assert run_tests(tmp_path, test.path, *REFERENCE, *mirrored_tests(tmp_path, steps)) == 0


@followed
def test_all_recipes_together_pass_the_rules_of_the_house(tmp_path: Path) -> None:
    steps = [step for every in RECIPES.values() for step in every if step.kind is not StepKind.COMMAND]
    files = sorted({step.path for step in steps if step.path.endswith(".py")})
    copy_project(tmp_path)
    if (cache := PROJECT / ".mypy_cache").is_dir():
        shutil.copytree(cache, tmp_path / ".mypy_cache")
    for step in steps:
        do_step(tmp_path, step)

    for program, *arguments in map(str.split, LINTERS):
        command = [str(Path(sys.executable).with_name(program)), *arguments]
        command += files if program == "ruff" else []
        assert (
            subprocess.run(command, cwd=tmp_path, env=environment_of(tmp_path), check=False).returncode == 0
        )
    assert run_tests(tmp_path, *RULES) == 0


def run_tests(root: Path, *paths: str) -> int:
    """Run test files in the copy; return the exit code."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "0", *paths]
    return subprocess.run(command, cwd=root, env=environment_of(root), check=False).returncode
