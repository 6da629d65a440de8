"""What a contributor meets first: targets of make, forms for issues, the container of editors."""

import json
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.support.recipes import StepKind, context_of, read_recipes

ROOT = Path(__file__).resolve().parents[2]
FORMS = sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("[!c]*.yml"))


def test_make_lists_every_target_with_what_it_does() -> None:
    phony = re.search(r"^\.PHONY: (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert phony

    # Below `make check` a make tells that it is called by another one.
    command = ["make", "--no-print-directory", "help"]
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout

    lines = [line.split(maxsplit=1) for line in shown.splitlines()]
    assert {name for name, _ in lines} == set(phony[1].split())


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_a_form_for_issues_is_one_that_the_forge_accepts(path: Path) -> None:
    form = yaml.safe_load(path.read_text(encoding="utf-8"))
    fields = [field for field in form["body"] if field["type"] != "markdown"]

    assert {"name", "description", "body"} <= form.keys()
    assert len({field["id"] for field in fields}) == len(fields)
    assert all(field["attributes"]["label"] for field in fields)
    assert any(field.get("validations", {}).get("required") for field in fields)


def test_the_container_of_editors_has_the_oldest_python_and_is_set_up_by_make() -> None:
    container = json.loads((ROOT / ".devcontainer/devcontainer.json").read_text(encoding="utf-8"))
    oldest = re.search(r'requires-python = ">=([\d.]+)"', (ROOT / "pyproject.toml").read_text())

    assert oldest
    assert f":{oldest[1]}-" in container["image"]
    assert container["postCreateCommand"] == "make .venv/.installed"


@pytest.mark.parametrize(
    "page", ["CONTRIBUTING.md", "GOVERNANCE.md", "CODE_OF_CONDUCT.md", "SECURITY.md", "README.md"]
)
def test_links_of_a_page_of_the_project_lead_somewhere(page: str) -> None:
    text = re.sub(
        r"^```.*?^```$", "", (ROOT / page).read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL
    )
    targets = re.findall(r"(?:\]\(|src(?:set)?=\")(?!https?:)([^)#\"]+)", text)

    assert targets
    assert [target for target in targets if not (ROOT / target).exists()] == []


def test_a_recipe_changes_lines_that_are_there() -> None:
    """The recipes run only where they change, and what they change goes on without them."""
    changes = [step for steps in read_recipes().values() for step in steps if step.kind is StepKind.CHANGE]
    texts = {step: (ROOT / step.path).read_text(encoding="utf-8") for step in changes}

    assert len(changes) > len(read_recipes())
    assert [context_of(step) for step, text in texts.items() if text.count(context_of(step)) != 1] == []
