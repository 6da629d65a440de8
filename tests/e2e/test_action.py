"""The action, step by step as a runner would run it, and the workflows around it."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.support.git import Repo
from tests.support.html_reports import read_data
from tests.support.small_world import manifest, variant, write_world
from tests.support.workflow import Job, installed_job, run_action

WORKFLOWS = (".github/workflows", ".github/examples")
WRITES = {
    "apply": {"contents"},
    "build": {"attestations", "id-token", "packages"},
    "pages": {"id-token", "pages"},
    "sharded": {"contents"},
    "release": {"attestations", "contents", "id-token", "packages"},
}
"""What jobs of a workflow may write; those of any other may write nothing."""


@pytest.fixture
def action(project_root: Path) -> Path:
    return project_root


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """A machine on which the action's second step finds its environment complete already."""
    write_world(tmp_path / "w")
    return installed_job(tmp_path, tmp_path / "w")


def checkout(job: Job) -> Path:
    subprocess.run(["git", "clone", "-q", "control.git", "checkout"], cwd=job.workspace, check=True)
    return job.workspace / "checkout"


def test_plan_tells_the_runner_everything(action: Path, job: Job) -> None:
    checkout(job)

    ran = run_action(action, {"mode": "plan", "control": "checkout"}, job)

    assert ran.code == 0, ran.log
    assert ran.outputs["changed"] == "true"
    assert json.loads(ran.outputs["counts"]) == {"create": 6}
    assert ran.outputs["summary"] == f"6 to create (checksum {ran.outputs['checksum'][:12]})"
    assert ran.outputs["exit-code"] == "0"
    assert json.loads(Path(ran.outputs["report-json"]).read_text())["kind"] == "Plan"
    assert json.loads(Path(ran.outputs["report-sarif"]).read_text())["version"] == "2.1.0"
    assert read_data(Path(ran.outputs["report-html"]).read_text())["packages"].keys() >= {
        "edge-1/web",
        "edge-3/db",
    }
    assert "| create |" in ran.summary


def test_apply_does_what_was_reviewed_and_then_nothing(action: Path, job: Job) -> None:
    checkout(job)
    reviewed = run_action(action, {"mode": "plan", "control": "checkout"}, job).outputs["checksum"]

    wrong = run_action(action, {"mode": "apply", "control": "checkout", "checksum": "f" * 64}, job)
    ran = run_action(action, {"mode": "apply", "control": "checkout", "checksum": reviewed}, job)
    again = run_action(action, {"mode": "apply", "control": "checkout"}, job)

    assert (wrong.code, wrong.outputs["exit-code"]) == (4, "4")
    assert (ran.code, ran.outputs["changed"]) == (0, "true"), ran.log
    assert "refs/heads/drafts/web/packagevariant-1" in Repo(job.workspace / "edge-1.git").refs()
    assert (again.code, again.outputs["changed"]) == (0, "false")


def test_check_is_what_a_reviewer_reads(action: Path, job: Job) -> None:
    control = Repo(job.workspace / "control.git")
    more = variant("edge-1", "web", revision=2)
    control.commit(
        {manifest("edge-1", "web"): more, "manifests/bad.yaml": "a: [\n"}, branch="feature", start="main"
    )
    copy = checkout(job)
    subprocess.run(["git", "checkout", "-q", "feature"], cwd=copy, check=True)
    job.event = "pull_request"

    ran = run_action(action, {"control": "checkout", "base": "main"}, job)

    assert ran.code == 3
    assert ran.outputs["summary"] == "Merging this alters 1 pending change"
    assert re.search(r"(?m)^::error .*file=manifests/bad\.yaml,line=2", ran.log)
    assert "### Problems of this change" in ran.summary


@pytest.mark.parametrize(
    ("mode", "given", "hint"),
    [
        ("check", {"strict": "ture"}, "Did you mean true?"),
        ("plan", {"comment": "1"}, "Write true or false."),
        ("index-sync", {"level": "manifest"}, "Did you mean manifests?"),
        ("check", {"mode": "aply"}, "Did you mean apply?"),
    ],
    ids=str,
)
def test_input_of_unknown_word_is_refused_in_every_mode(
    action: Path, job: Job, mode: str, given: dict[str, str], hint: str
) -> None:
    checkout(job)
    ((name, word),) = given.items()

    ran = run_action(action, {"mode": mode, "control": "checkout", **given}, job)

    assert (ran.code, ran.outputs["exit-code"]) == (2, "2")
    assert f"Input {name} is '{word}'" in ran.log
    assert hint in ran.log
    assert hint in ran.summary


@pytest.mark.parametrize(
    ("strict", "code"), [("true", 3), ("True", 3), ("TRUE", 3), ("false", 0), ("FALSE", 0), ("", 0)]
)
def test_booleans_are_those_of_github_and_nothing_is_the_default(
    action: Path, job: Job, strict: str, code: int
) -> None:
    control = Repo(job.workspace / "control.git")
    control.commit({"manifests/old.yaml": "a: [\n"})
    control.commit({"README.md": "words\n"}, branch="feature", start="main")
    subprocess.run(["git", "checkout", "-q", "feature"], cwd=checkout(job), check=True)
    inputs = {"control": "checkout", "base": "main", "level": "manifests", "strict": strict}

    assert run_action(action, inputs, job).code == code


HOSTILE = "$(touch pwned-1)`touch pwned-2`\"; touch pwned-3; \"'; touch pwned-4; '\ntouch pwned-5\n--help"
"""Every way for a text to become a command: substitution, the end of a quotation, a line of its own."""


def test_inputs_are_data(action: Path, job: Job) -> None:
    names = yaml.safe_load((action / "action.yml").read_text())["inputs"].keys()

    for name in names:
        run_action(action, {"mode": "check", "control": "control.git", name: HOSTILE}, job)

    assert not list(job.workspace.rglob("pwned*"))


def test_every_input_and_output_is_described_and_reaches_the_command(action: Path) -> None:
    described = yaml.safe_load((action / "action.yml").read_text())
    run = described["runs"]["steps"][-1]

    assert all(one["description"] for one in (*described["inputs"].values(), *described["outputs"].values()))
    handed = "".join(
        f"{value}"
        for step in described["runs"]["steps"]
        for value in (*step.get("env", {}).values(), *step.get("with", {}).values())
    )
    assert all(f"inputs.{name} " in handed for name in described["inputs"])
    assert {"RECONCILER_APP_KEY", "INPUT_MODE"} <= run["env"].keys()


def test_reusable_workflow_offers_what_the_action_does(action: Path) -> None:
    """All but what it decides itself: where things are checked out."""
    described = yaml.safe_load((action / "action.yml").read_text())
    workflow = yaml.safe_load((action / ".github/workflows/reconcile.yml").read_text())
    call, (job,) = workflow[True]["workflow_call"], workflow["jobs"].values()
    (step,) = (step for step in job["steps"] if step.get("uses") == "./reconciler")

    assert step["with"].keys() == described["inputs"].keys() - {"report-directory"}
    assert {name for name in call["inputs"] if f"inputs.{name} " in str(step["with"])} == (
        step["with"].keys() - {"control", "token", "app-key"}
    )
    assert {name for name in call["secrets"] if f"secrets.{name} " in str(step["with"])} == {
        "token",
        "app_key",
    }
    assert call["outputs"].keys() == job["outputs"].keys()
    assert call["outputs"].keys() == described["outputs"].keys() - {
        "report-json",
        "report-sarif",
        "report-html",
    }
    assert "permissions" not in str(workflow), "those of the calling job hold"


def test_what_runs_in_production_is_what_is_tested(project_root: Path) -> None:
    tested = locked(project_root / "requirements.lock")
    run, build = (
        locked(project_root / "requirements-run.lock"),
        locked(project_root / "requirements-build.lock"),
    )

    assert run.items() <= tested.items(), "run `make lock`"
    assert build.items() <= tested.items(), "run `make lock`"
    assert "pytest" not in run


def locked(path: Path) -> dict[str, str]:
    """Return the pinned requirements of a lock file, each with its hashes and its marker, without extras."""
    merged = re.sub(r"(?m)^([\w.-]+)\[[\w,-]+\]", r"\1", path.read_text().replace("\\\n", " "))
    pins = [re.sub(r"\s+#.*", "", line) for line in merged.splitlines() if re.match(r"[A-Za-z0-9]", line)]
    return {pin.partition("==")[0]: " ".join(pin.split()) for pin in pins}


def test_zizmor_finds_nothing(project_root: Path) -> None:
    files = [str(path) for folder in WORKFLOWS for path in sorted((project_root / folder).glob("*.yml"))]
    zizmor = Path(sys.executable).with_name("zizmor")

    ran = subprocess.run(
        [zizmor, "--offline", "--no-progress", "--config", ".github/zizmor.yml", "action.yml", *files],
        cwd=project_root,
        capture_output=True,
        text=True,
        check=False,
    )

    assert len(files) >= 6
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_every_lock_is_audited_on_every_pull_request_and_every_week(project_root: Path) -> None:
    script = (project_root / ".ci/audit").read_text()
    target = (project_root / "Makefile").read_text().partition("\naudit:")[2].partition("\n\n")[0]
    ci = yaml.safe_load((project_root / ".github/workflows/ci.yml").read_text())
    locks = sorted(path.name for path in project_root.glob("requirements*.lock"))

    assert locks == sorted(set(re.findall(r"requirements[\w-]*\.lock", script)))
    assert all(tool in target for tool in ("zizmor --offline", "actionlint", ".ci/audit"))
    assert any(step.get("run") == "make audit" for step in ci["jobs"]["audit"]["steps"])
    assert {"pull_request", "schedule"} <= set(ci[True])  # YAML takes the key `on` for a truth


def test_actionlint_finds_nothing(project_root: Path, tmp_path: Path) -> None:
    files = [str(path) for folder in WORKFLOWS for path in sorted((project_root / folder).glob("*.yml"))]
    wrong = tmp_path / "wrong.yml"
    wrong.write_text(Path(files[0]).read_text().replace("timeout-minutes:", "timeout:"))

    ran, told = (actionlint(project_root, *asked) for asked in (files, [str(wrong)]))

    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert 'unexpected key "timeout"' in told.stdout


def actionlint(root: Path, *files: str) -> subprocess.CompletedProcess[str]:
    """Run the linter that is installed beside the tests, with no tools of the machine."""
    command = [Path(sys.executable).with_name("actionlint"), "-shellcheck=", "-pyflakes=", *files]
    return subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("folder", WORKFLOWS)
def test_workflows_have_the_least_permissions(project_root: Path, folder: str) -> None:
    paths = sorted((project_root / folder).glob("*.yml"))
    assert paths
    for path in paths:
        workflow = yaml.safe_load(path.read_text())
        triggers = workflow[True]  # YAML 1.1 reads `on` as true
        if path.stem == "reconcile":  # the caller's permissions hold where none are set
            assert "permissions" not in str(workflow)
            continue
        assert workflow["permissions"] == {}, path.name
        assert "pull_request_target" not in str(triggers), path.name
        for name, found in workflow["jobs"].items():
            assert "timeout-minutes" in found or "uses" in found, (
                path.name,
                name,
            )  # a called one has its own
            writes = {scope for scope, level in found["permissions"].items() if level == "write"}
            assert writes <= WRITES.get(path.stem, set()), (path.name, name)
