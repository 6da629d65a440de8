"""What is shipped to be copied names only settings, inputs, secrets and variables that exist."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from reconciler.read.configuration import parse_configuration, variable_name, variable_paths

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = sorted((ROOT / ".github/examples").glob("*.yml"))
GITLAB = ROOT / "deploy/gitlab/gitlab-ci.yml"
CALLED = ROOT / ".github/workflows/reconcile.yml"
DOCS = [
    ROOT / "docs" / name
    for name in ("install.md", "check.md", "security.md", "configuration.md", "forges.md")
]
SHIPPED = [*WORKFLOWS, CALLED, GITLAB, *DOCS, *sorted((ROOT / "deploy").rglob("*.yaml")), ROOT / "README.md"]
ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
NAME = re.compile(r"\b[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+\b")
SNIPPET = re.compile(r"(?m)^#( {3,})(\w+:.*)$\n((?:^#\1.*$\n)*)")
_HEAD = "apiVersion: reconciler.dev/v1alpha1\nkind: Reconciler\nmetadata: {name: fleet}\nspec:\n"


def variables() -> set[str]:
    """Return every variable that the code reads or the action sets."""
    settings = {variable_name(path) for path in variable_paths()}
    sources = (path.read_text() for path in (ROOT / "reconciler").rglob("*.py"))
    literals = {name for text in sources for name in re.findall(r'"(RECONCILER_[A-Z_]+)"', text)}
    set_by_action = {name for step in ACTION["runs"]["steps"] for name in step.get("env", {})}
    return settings | literals | set_by_action


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: str(path.relative_to(ROOT)))
def test_variables_of_the_reconciler_exist(path: Path) -> None:
    named = set(re.findall(r"RECONCILER_[A-Z_]+[A-Z]", path.read_text()))

    assert named - variables() - {"RECONCILER_FAULTS_SEED"} == set()


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_every_name_in_the_head_of_a_workflow_is_used_and_every_secret_is_in_its_head(path: Path) -> None:
    text = path.read_text()
    head, _, body = text.partition("\nname:")
    used = set(re.findall(r"(?:secrets|vars)\.(\w+)", body))

    assert used - {"GITHUB_TOKEN"} == {n for n in NAME.findall(head) if not n.startswith("RECONCILER_")}


def settings_in_comments(path: Path) -> list[str]:
    """Return the fragments of `spec` in the comments of a workflow."""
    snippets = SNIPPET.findall(path.read_text())
    return [
        "".join(f"  {line}\n" for line in (first, *rest.replace(f"#{indent}", "").splitlines()))
        for indent, first, rest in snippets
        if not first.startswith("jobs:")
    ]


def test_settings_in_comments_are_settings() -> None:
    of_app, of_token = (text for path in (*WORKFLOWS, GITLAB) for text in settings_in_comments(path))

    assert parse_configuration(f"{_HEAD}{of_app}".encode(), "a", {}).credentials[0].app_id
    assert parse_configuration(f"{_HEAD}{of_token}".encode(), "a", {}).credentials[0].token_env


def steps(path: Path) -> list[dict[str, Any]]:
    jobs = yaml.safe_load(path.read_text())["jobs"].values()
    return [step for job in jobs for step in job["steps"] if "/reconciler@" in step.get("uses", "")]


def test_inputs_of_the_action_exist() -> None:
    given = {path.name: [name for step in steps(path) for name in step["with"]] for path in WORKFLOWS}

    assert sum(map(len, given.values())) >= 5
    assert {name for names in given.values() for name in names} <= ACTION["inputs"].keys()


def test_inputs_and_secrets_of_the_reusable_workflow_exist_in_its_own_example() -> None:
    text = CALLED.read_text()
    lines = re.findall(r"(?m)^# {3}(.*)$", text.partition("\nname:")[0])
    (job,) = yaml.safe_load("\n".join(lines))["jobs"].values()
    call = yaml.safe_load(text)[True]["workflow_call"]

    assert job["with"].keys() <= call["inputs"].keys()
    assert job["secrets"].keys() <= call["secrets"].keys()
    assert {name for name, known in call["inputs"].items() if known.get("required")} <= job["with"].keys()
    assert job["with"]["repository"] in job["uses"]
    assert job["uses"].endswith(f"@{job['with']['version']}")


def test_settings_in_the_guide_to_the_action_are_settings() -> None:
    text = (ROOT / "docs/guides/github-action.md").read_text()
    (block,) = re.findall(r"(?m)^```yaml\n(  credentials:\n.*?)^```", text, re.DOTALL)

    (rule,) = parse_configuration(f"{_HEAD}{block}".encode(), "a", {}).credentials
    assert (rule.app_key_env, rule.installation_id) == ("RECONCILER_APP_KEY", "2")
