"""Attacks by the workspace and the environment on whatever starts the interpreter: action, image, hook."""

import base64
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from tests.support.git import Repo
from tests.support.small_world import write_world
from tests.support.workflow import Job, installed_job, run_action, run_reusable
from tests.support.world import git

pytestmark = pytest.mark.slow

SHADOWED = (
    "venv",
    "site",
    "sitecustomize",
    "usercustomize",
    "ssl",
    "encodings",
    "os",
    "click",
    "pip",
    "reconciler",
)
POISON = {
    "PYTHONPATH": ".", "PYTHONHOME": "{w}", "PYTHONSTARTUP": "{w}/os.py", "PYTHONUSERBASE": "{w}",
    "PYTHONPLATLIBDIR": "{w}", "PYTHONSAFEPATH": "", "PYTHONINSPECT": "1",
    "PIP_CONFIG_FILE": "{w}/pip.conf", "PIP_INDEX_URL": "file://{w}/evil", "PIP_EXTRA_INDEX_URL": "file://{w}/evil",
    "PIP_FIND_LINKS": "{w}", "PIP_TARGET": "{w}/target", "PIP_PREFIX": "{w}/prefix", "PIP_USER": "1",
    "PIP_PYTHON": "{w}/python", "PIP_REQUIREMENT": "{w}/evil.txt", "PIP_CONSTRAINT": "{w}/evil.txt",
    "BASH_ENV": "{w}/profile.sh", "HOME": "{w}",
}  # fmt: skip


def plant(directory: Path, canary: Path) -> None:
    """Write what an interpreter, pip or a shell would take from a directory, each leaving a canary behind."""
    trap = f"open({str(canary)!r}, 'a').write(__name__ + chr(10))\n"
    for name in SHADOWED:
        (directory / f"{name}.py").write_text(trap)
        (directory / name).mkdir(exist_ok=True)
        (directory / name / "__init__.py").write_text(trap)
        (directory / name / "__main__.py").write_text(trap)
    (directory / "trap.pth").write_text(f"import os; {trap}")
    (directory / "setup.py").write_text(trap)
    (directory / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "pip"\nbackend-path = ["."]\n'
    )
    (directory / "setup.cfg").write_text(f"[install]\nprefix = {directory}\n")
    (directory / "evil.txt").write_text("evil @ file:.\n")
    (directory / "profile.sh").write_text(f"echo profile >> {canary}\n")
    config = f"[global]\nindex-url = file://{directory}/evil\nfind-links = {directory}\n"
    for path in ("pip.conf", ".config/pip/pip.conf", ".pip/pip.conf"):
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        (directory / path).write_text(config)
    python = directory / "python"
    python.write_text(f"#!/bin/sh\necho python >> {canary}\n")
    python.chmod(0o755)


def local_index(root: Path) -> str:
    """Make a package index of one wheel, whose installation leads to the dependencies of these tests.

    Returns: the requirement, with its hash.
    """
    folder = root / "dependencies"
    folder.mkdir(parents=True)
    wheel = folder / "dependencies-1-py3-none-any.whl"
    info = "dependencies-1.dist-info"
    files = {
        "dependencies.pth": sysconfig.get_path("purelib") + "\n",
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: dependencies\nVersion: 1\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{name},sha256={_digest(text)},{len(text)}\n" for name, text in files.items())
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in {**files, f"{info}/RECORD": f"{record}{info}/RECORD,,\n"}.items():
            archive.writestr(name, text)
    (folder / "index.html").write_text(f'<a href="{wheel.name}">{wheel.name}</a>\n')
    return f"dependencies==1 --hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}\n"


def _digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")


@pytest.fixture
def canary(tmp_path: Path) -> Path:
    return tmp_path / "canary"


@pytest.fixture
def job(tmp_path: Path, canary: Path) -> Job:
    """A runner with a poisoned environment, in whose workspace a hostile pull request is checked out."""
    write_world(tmp_path / "w")
    (tmp_path / "temp").mkdir()
    subprocess.run(["git", "clone", "-q", "control.git", "checkout"], cwd=tmp_path / "w", check=True)
    plant(tmp_path / "w", canary)
    plant(tmp_path / "w/checkout", canary)
    environment = {name: value.format(w=tmp_path / "w") for name, value in POISON.items()}
    environment["XDG_CACHE_HOME"] = str(tmp_path / "cache")
    used = {"actions/setup-python": {"python-path": sys.executable}, "actions/checkout": {}}
    return Job(tmp_path / "w", tmp_path / "temp", "pull_request", used, environment)


@pytest.fixture
def action(tmp_path: Path, project_root: Path) -> Path:
    """The action as it is; only its lock names what a test can install without a network."""
    copy = tmp_path / "action"
    copy.mkdir()
    for name in ("reconciler", "templates"):
        shutil.copytree(project_root / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy2(project_root / "action.yml", copy)
    (copy / "requirements-run.lock").write_text(local_index(tmp_path / "index"))
    return copy


def test_action_imports_and_installs_nothing_from_the_workspace(action: Path, job: Job, canary: Path) -> None:
    inputs = {"mode": "plan", "control": "checkout", "index-url": f"file://{job.workspace.parent}/index"}

    ran = run_action(action, inputs, job)

    assert (ran.code, ran.outputs["changed"]) == (0, "true"), ran.log
    assert not canary.exists(), canary.read_text()
    assert json.loads(Path(ran.outputs["report-json"]).read_text())["kind"] == "Plan"


def test_reusable_workflow_imports_and_installs_nothing_from_the_workspace(
    action: Path, job: Job, canary: Path, project_root: Path
) -> None:
    """The pull request and the action are checked out side by side."""
    origin = {"": job.workspace / "checkout", "acme/reconciler": action}
    given = {"repository": "acme/reconciler", "version": "0" * 40, "mode": "plan", "shard": "0/1"}
    given["index-url"] = f"file://{job.workspace.parent}/index"
    uploads: list[Mapping[str, str]] = []

    def check_out(inputs: Mapping[str, str]) -> dict[str, str]:
        place = job.workspace / inputs["path"]
        shutil.rmtree(place, ignore_errors=True)  # the action too replaces what is there
        shutil.copytree(origin[inputs.get("repository", "")], place, symlinks=True)
        return {}

    def upload(inputs: Mapping[str, str]) -> dict[str, str]:
        uploads.append(inputs)
        return {"artifact-url": "https://forge.example/artifacts/1"}

    job.used = {**job.used, "actions/checkout": check_out, "actions/upload-artifact": upload}

    ran = run_reusable(project_root / ".github/workflows/reconcile.yml", given, job)

    assert (ran.code, ran.outputs["changed"], ran.outputs["exit-code"]) == (0, "true", "0"), ran.log
    assert json.loads(ran.outputs["counts"]) == {"create": 6}
    assert not canary.exists(), canary.read_text()
    assert [upload["name"] for upload in uploads] == ["reconciler-plan-0-of-1"], (
        "no `/` in an artifact's name"
    )
    assert all(Path(path).is_file() for path in uploads[0]["path"].split())
    assert "[reconciler.html, JSON and SARIF](https://forge.example/artifacts/1)" in ran.summary


def test_traps_catch_an_interpreter_that_is_not_isolated(job: Job, canary: Path) -> None:
    """The attack is real: the same command without -I runs what lies in the workspace."""
    command = [sys.executable, "-m", "venv", str(job.temporary / "other")]
    subprocess.run(command, cwd=job.workspace, capture_output=True, check=False)

    assert canary.read_text()


@pytest.mark.parametrize("hook_id", ["reconciler-check", "reconciler-validate"])
def test_hook_imports_nothing_from_the_checkout(
    project_root: Path, job: Job, canary: Path, hook_id: str
) -> None:
    hooks = yaml.safe_load((project_root / ".pre-commit-hooks.yaml").read_text())
    hook = next(each for each in hooks if each["id"] == hook_id)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    poison = {k: v for k, v in job.environment.items() if k.startswith("PYTHON")}
    git(job.workspace / "checkout", "commit", "-q", "--allow-empty", "-m", "What is pushed")

    ran = subprocess.run(
        hook["entry"].split(),
        cwd=job.workspace / "checkout",
        env={"PATH": path, "XDG_CACHE_HOME": str(job.temporary / "cache"), **poison},
        capture_output=True,
        text=True,
        check=False,
    )

    assert ran.returncode == 0, ran.stderr
    assert not canary.exists(), canary.read_text()


def test_every_interpreter_that_is_started_is_isolated(project_root: Path) -> None:
    """Of the action, the image, the hook and the package: no `python` without -I but pip's own build."""
    image = (project_root / "Dockerfile").read_text()
    texts = [(project_root / "action.yml").read_text(), (project_root / ".pre-commit-hooks.yaml").read_text()]
    entry = next(line for line in image.splitlines() if line.startswith("ENTRYPOINT"))

    starts = [
        m[0] for text in texts for m in re.finditer(r"(?:\"\$PYTHON\"|bin/python\"|\bpython) -\S+", text)
    ]

    assert len(starts) == 6
    assert all(start.endswith(" -I") for start in starts), starts
    assert json.loads(entry.removeprefix("ENTRYPOINT "))[1] == "-I"
    for path in (project_root / "deploy").rglob("*.yaml"):
        assert "command:" not in path.read_text(), "pods use the image's entry point"


def test_workflows_and_actions_are_pinned_by_commit(project_root: Path) -> None:
    files = [project_root / "action.yml", *sorted((project_root / ".github").glob("*/*.yml"))]

    used = [(p.name, m[1]) for p in files for m in re.finditer(r"(?m)^ *-? *uses: (\S+)", p.read_text())]

    outside = [(name, what) for name, what in used if not what.startswith("./")]
    assert len(outside) >= 12
    assert [(n, w) for n, w in outside if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", w)] == []


def test_pull_request_cannot_redirect_the_control_input(project_root: Path, tmp_path: Path) -> None:
    """A path is taken from the workspace, whatever directory the process runs in."""
    write_world(tmp_path / "w")
    job = installed_job(tmp_path, tmp_path / "w")

    ran = run_action(project_root, {"mode": "plan", "control": "control.git"}, job)

    assert ran.code == 0, ran.log
    assert Repo(job.workspace / "edge-1.git").refs().keys() == {"refs/heads/main"}
