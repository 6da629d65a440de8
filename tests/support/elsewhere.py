"""What readers of a guide do or see outside of a shell: a workflow, a pipeline, a button of a forge.

elsewhere workflow FILE JOB [EVENT [HEAD]]     run a job of a GitHub workflow; print its summary
elsewhere pipeline FILE JOB [NAME=VALUE...]    run a job of GitLab CI; print its log
elsewhere open REPOSITORY HEAD TITLE           open a pull request into main
elsewhere merge REPOSITORY PACKAGE...          merge the drafts of packages, as the button does
elsewhere cronjob FILE                         run the container of a CronJob; print its log
elsewhere publish NAME                         push the images of tests/docs/given/NAME.yaml
"""

import json
import os
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.support.registry import Registry, publish
from tests.support.workflow import Result, installed_job, run_action, run_job

PROJECT = Path(__file__).resolve().parents[2]
ACTIONS, CHECKOUT = ("YOUR-ORG/reconciler", "acme/reconciler"), "actions/checkout"
CONTROL = "acme/fleet"


def run_workflow(file: str, name: str, event: str = "push", head: str = "") -> int:
    """Run a job of a workflow in the control repository as GitHub does, and print its summary."""
    address = os.environ["FORGE_ADDRESS"]
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "workspace").mkdir()
        job = installed_job(root, root / "workspace")
        job.event, job.token = event, os.environ["FLEET_TOKEN"]
        job.environment = {
            **job.environment,
            "GITHUB_SERVER_URL": address,
            "GITHUB_API_URL": os.environ["FORGE_API"],
            "GITHUB_REPOSITORY": CONTROL,
            **_of_head(head, event),
        }
        results: list[Result] = []

        def act(inputs: Mapping[str, str]) -> Mapping[str, str]:
            results.append(run_action(PROJECT, inputs, job))
            return results[-1].outputs

        def check_out(inputs: Mapping[str, str]) -> Mapping[str, str]:
            url = f"{address}/{CONTROL}.git"
            _git("clone", "-q", "--depth", "1", "--no-single-branch", url, str(job.workspace))
            _git("-C", str(job.workspace), "checkout", "-q", inputs.get("ref") or head or "main")
            return {}

        job.used = {**job.used, **dict.fromkeys(ACTIONS, act), CHECKOUT: check_out}
        key = Path.home() / "fleet-app.pem"
        secrets = {"FLEET_APP_KEY": key.read_text(encoding="utf-8")} if key.exists() else {}
        run_job(Path(file), name, job, {"secrets": secrets, "github": {"token": job.token}})
        (result,) = results
        print(result.summary or result.log)
        return result.code


def _of_head(head: str, event: str) -> dict[str, str]:
    if not head:
        return {}
    oid = _git("rev-parse", head).strip()
    if event == "merge_group":
        return {"GITHUB_SHA": oid, "GITHUB_REF": f"refs/heads/gh-readonly-queue/main/pr-1-{oid}"}
    return {"GITHUB_SHA": oid, "GITHUB_REF": "refs/pull/1/merge", "GITHUB_BASE_REF": "main"}


def run_pipeline(file: str, name: str, *given: str) -> int:
    """Run a job of a pipeline in the control repository as GitLab does, and print its log."""
    content = yaml.safe_load(Path(file).read_text(encoding="utf-8"))
    job = content[name]
    predefined = {
        "CI_PROJECT_URL": f"{os.environ['FORGE_ADDRESS']}/{CONTROL}",
        "CI_DEFAULT_BRANCH": "main",
        "GITLAB_CI": "true",
        **dict(value.split("=", 1) for value in given),
    }
    declared = {key: _expanded(value) for key, value in job.get("variables", {}).items()}
    return _run_script("\n".join(job["script"]), predefined | declared)


def open_pull(repository: str, head: str, title: str) -> int:
    """Open a pull request of a branch into main."""
    api, token = os.environ["FORGE_API"], os.environ["FLEET_TOKEN"]
    if api.endswith("/v4"):
        url = f"{api}/projects/{repository.replace('/', '%2F')}/merge_requests"
        body = {"source_branch": head, "target_branch": "main", "title": title}
    else:
        url = f"{api}/repos/{repository}/pulls"
        body = {"head": head, "base": "main", "title": title, "body": ""}
    request = urllib.request.Request(
        url,
        json.dumps(body).encode(),
        {"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request):
        return 0


def merge(repository: str, *packages: str) -> int:
    """Merge the pull requests of packages into main."""
    with tempfile.TemporaryDirectory() as folder:
        _git("clone", "-q", f"{os.environ['FORGE_ADDRESS']}/{repository}.git", folder)
        for package in packages:
            names = _git(
                "-C", folder, "for-each-ref", "--format=%(refname)", f"refs/remotes/origin/drafts/{package}"
            )
            (head,) = names.split()
            _git("-C", folder, "merge", "-q", "--no-ff", "-m", f"Merge {package}", head)
        _git("-C", folder, "push", "-q", "origin", "HEAD:main")
    return 0


def run_cronjob(file: str) -> int:
    """Run the container of a CronJob with the variables of its ConfigMap, and print its log."""
    objects = [value for value in yaml.safe_load_all(Path(file).read_text(encoding="utf-8")) if value]
    by_kind = {value["kind"]: value for value in objects}
    pod = by_kind["CronJob"]["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    return _run_script(f"reconciler {' '.join(container['args'])}", by_kind["ConfigMap"]["data"])


def publish_images(name: str) -> int:
    """Push images into the registry of a guide."""
    registry = Registry(os.environ["REGISTRY_ADDRESS"])
    with registry.client:
        publish(registry, name)
    return 0


def _expanded(value: str) -> str:
    return os.environ.get(value.removeprefix("$"), "") if value.startswith("$") else value


def _run_script(script: str, variables: Mapping[str, str]) -> int:
    with tempfile.TemporaryDirectory() as folder:
        ran = subprocess.run(
            ["bash", "-eo", "pipefail", "-c", script],
            cwd=folder,
            env={**os.environ, "XDG_CACHE_HOME": f"{folder}/cache", "CI": "true", **variables},
            check=False,
        )
    return ran.returncode


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], check=True, capture_output=True, text=True).stdout


TOOLS: Mapping[str, Callable[..., int]] = {
    "workflow": run_workflow,
    "pipeline": run_pipeline,
    "open": open_pull,
    "merge": merge,
    "cronjob": run_cronjob,
    "publish": publish_images,
}


def main(arguments: Sequence[str]) -> Any:
    """Run one tool."""
    tool, *rest = arguments
    return TOOLS[tool](*rest)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
