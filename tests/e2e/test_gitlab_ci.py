"""The pipeline for GitLab, job by job as a runner would run it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.support.git import Repo
from tests.support.small_world import manifest, write_world

KEYWORDS = {"rules", "variables", "script", "artifacts", "resource_group"}


@pytest.fixture
def pipeline(project_root: Path) -> dict[str, dict[str, object]]:
    content: dict[str, dict[str, object]] = yaml.safe_load(
        (project_root / "deploy/gitlab/gitlab-ci.yml").read_text()
    )
    return content


def run_job(job: dict[str, object], tmp_path: Path, **predefined: str) -> subprocess.CompletedProcess[str]:
    """Run the script of a job with GitLab's predefined variables, in a directory with nothing in it."""
    (tmp_path / "build").mkdir(exist_ok=True)
    environment = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(tmp_path / "home"),
        "CI": "true",
        "GITLAB_CI": "true",
        "CI_PROJECT_URL": str(tmp_path / "w/control"),
        "CI_DEFAULT_BRANCH": "main",
        **predefined,
    }
    variables = job["variables"]
    assert isinstance(variables, dict)
    for name, value in variables.items():
        environment[name] = environment.get(value.removeprefix("$"), "")
    script = job["script"]
    assert isinstance(script, list)
    return subprocess.run(
        ["bash", "-eo", "pipefail", "-c", "\n".join(script)],
        cwd=tmp_path / "build",
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_merge_request_is_checked_without_a_checkout(
    pipeline: dict[str, dict[str, object]], tmp_path: Path
) -> None:
    write_world(tmp_path / "w")
    control = Repo(tmp_path / "w/control.git")
    head = control.commit({manifest("edge-1", "web"): None}, branch="feature", start="main")

    ran = run_job(
        pipeline["check"],
        tmp_path,
        CI_PIPELINE_SOURCE="merge_request_event",
        CI_COMMIT_SHA=str(head),
        CI_MERGE_REQUEST_IID="7",
        CI_MERGE_REQUEST_TARGET_BRANCH_NAME="main",
    )

    assert ran.returncode == 0, ran.stderr
    assert "Merging this" in ran.stdout
    assert "no comment on pull request 7" in ran.stderr
    assert (tmp_path / "build/check.json").is_file()
    assert (tmp_path / "build/check.sarif").is_file()


def test_default_branch_is_applied(pipeline: dict[str, dict[str, object]], tmp_path: Path) -> None:
    write_world(tmp_path / "w")

    ran = run_job(pipeline["apply"], tmp_path, CI_PIPELINE_SOURCE="push", CI_COMMIT_BRANCH="main")

    assert ran.returncode == 0, ran.stderr
    assert "refs/heads/drafts/web/packagevariant-1" in Repo(tmp_path / "w/edge-1.git").refs()


def test_jobs_use_keywords_of_gitlab(pipeline: dict[str, dict[str, object]]) -> None:
    jobs = {name: job for name, job in pipeline.items() if name not in {"default", "variables"}}

    assert jobs.keys() == {"check", "apply"}
    assert {keyword for job in jobs.values() for keyword in job} <= KEYWORDS
