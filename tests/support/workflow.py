"""Runs the literal steps of actions and workflows as a runner would: expressions, files, shells; no network.

Only what this project uses: `run` steps in bash, `env`, the contexts `inputs`, `secrets`, `steps` and
`github`, and actions in the workspace. A step that `uses` another action must be given by its name: what it
outputs, or a function that does its work on the inputs.
"""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.support.command_server import write_client

_EXPRESSION = re.compile(r"\$\{\{\s*(.*?)\s*\}\}")
_OUTPUT = re.compile(
    r"(?ms)^(?:(?P<name>[\w-]+)<<(?P<end>[^\n]+)\n(?P<block>.*?)\n?^(?P=end)$|(?P<key>[\w-]+)=(?P<value>[^\n]*)$)"
)
Use = Mapping[str, str] | Callable[[Mapping[str, str]], Mapping[str, str]]


@dataclass
class Job:
    """One job on a machine: its workspace, its temporary directory, the context of expressions."""

    workspace: Path
    temporary: Path
    event: str = "push"
    used: Mapping[str, Use] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    token: str = "the-token-of-this-job"


def installed_job(root: Path, workspace: Path) -> Job:
    """Return a job on a machine where the action is installed already, as a client of the helper process."""
    home = root / "temp/reconciler"
    program = write_client(home / "bin") / "reconciler"
    python = home / "bin/python"
    expected = '[ "$1 $2 $3" = "-I -m reconciler.cli.main" ]'
    python.write_text(f'#!/bin/sh\n{expected} && shift 3 && exec {program} "$@"\n')
    python.chmod(0o755)
    (home / "complete").touch()
    used = {"actions/setup-python": {"python-path": sys.executable}, "actions/upload-artifact": {}}
    return Job(workspace, root / "temp", used=used, environment={"XDG_CACHE_HOME": str(root / "cache")})


@dataclass
class Result:
    """What a run of an action gave: its outputs, its summary, its log, its exit code."""

    outputs: dict[str, str]
    summary: str
    log: str
    code: int


def run_action(action: Path, inputs: Mapping[str, str], job: Job) -> Result:
    """Run every step of a composite action in order; stop at the first that fails."""
    described = yaml.safe_load((action / "action.yml").read_text())
    assert described["runs"]["using"] == "composite"
    context = _context(described["inputs"], inputs, job, {"action_path": str(action)})
    result = Result({}, "", "", 0)
    _run_steps(described["runs"]["steps"], context, job, result)
    result.outputs = {name: _fill(o["value"], context) for name, o in described["outputs"].items()}
    return result


def run_reusable(
    workflow: Path, inputs: Mapping[str, str], job: Job, secrets: Mapping[str, str] | None = None
) -> Result:
    """Run the steps of the one job of a reusable workflow; its outputs are those of the workflow."""
    described = yaml.safe_load(workflow.read_text())
    call = described[True]["workflow_call"]  # YAML 1.1 reads `on` as true
    ((name, content),) = described["jobs"].items()
    assert not (secrets or {}).keys() - call["secrets"].keys()
    missing = {n for n, known in call["inputs"].items() if known.get("required")} - inputs.keys()
    assert not missing, f"a runner refuses to start without {missing}"
    context = _context(call["inputs"], inputs, job, {}) | {"secrets": secrets or {}}
    result = Result({}, "", "", 0)
    _run_steps(content["steps"], context, job, result)
    outputs = {key: _fill(value, context) for key, value in content["outputs"].items()}
    context = {"jobs": {name: {"outputs": outputs}}}
    result.outputs = {name: _fill(o["value"], context) for name, o in call["outputs"].items()}
    return result


def run_job(workflow: Path, name: str, job: Job, context: Mapping[str, Any]) -> Result:
    """Run the steps of one job of a workflow; its outputs are those of its steps, by their id."""
    described = yaml.safe_load(workflow.read_text())
    result = Result({}, "", "", 0)
    contexts = {**_context({}, {}, job, {}), **context}
    _run_steps(described["jobs"][name]["steps"], contexts, job, result)
    steps = contexts["steps"].values()
    result.outputs = {name: value for step in steps for name, value in step["outputs"].items()}
    return result


def _context(
    declared: Mapping[str, Any], inputs: Mapping[str, str], job: Job, github: Mapping[str, str]
) -> dict[str, Any]:
    unknown = inputs.keys() - declared.keys()
    assert not unknown, f"a runner warns of unexpected inputs: {unknown}"
    context: dict[str, Any] = {"github": {"token": job.token, **github}, "inputs": {}, "steps": {}}
    given = {name: inputs.get(name, _text(known.get("default", ""))) for name, known in declared.items()}
    context["inputs"] = {name: _fill(value, context) for name, value in given.items()}
    return context


def _run_steps(steps: list[dict[str, Any]], context: dict[str, Any], job: Job, result: Result) -> None:
    for number, step in enumerate(steps):
        if result.code and "cancelled()" not in step.get("if", ""):
            continue
        context["steps"][step.get("id", str(number))] = {"outputs": _run(step, number, context, job, result)}


def _run(
    step: Mapping[str, Any], number: int, context: dict[str, Any], job: Job, result: Result
) -> dict[str, str]:
    if "uses" in step:
        return _use(step, context, job, result)
    assert step["shell"] == "bash"
    assert "${{" not in step["run"], "no expression may be expanded into a script"
    script, out, summary = (job.temporary / f"{number}.{kind}" for kind in ("sh", "out", "md"))
    job.temporary.mkdir(exist_ok=True)
    script.write_text(step["run"])
    out.write_text("")
    summary.write_text("")
    ran = subprocess.run(
        ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", str(script)],
        cwd=job.workspace,
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(job.temporary / "home"),
            "CI": "true",
            "GITHUB_ACTIONS": "true",
            "GITHUB_EVENT_NAME": job.event,
            "GITHUB_OUTPUT": str(out),
            "GITHUB_STEP_SUMMARY": str(summary),
            "RUNNER_TEMP": str(job.temporary),
            "GITHUB_WORKSPACE": str(job.workspace),
            **job.environment,
            **{name: _fill(str(value), context) for name, value in step.get("env", {}).items()},
        },
        capture_output=True,
        text=True,
        check=False,
    )
    result.log += ran.stdout + ran.stderr
    result.summary += summary.read_text()
    result.code = result.code or ran.returncode
    return parse_outputs(out.read_text())


def _use(step: Mapping[str, Any], context: dict[str, Any], job: Job, result: Result) -> dict[str, str]:
    inputs = {name: _fill(_text(value), context) for name, value in step.get("with", {}).items()}
    name = str(step["uses"]).partition("@")[0]
    if name.startswith("./"):
        ran = run_action(job.workspace / name, inputs, job)
        result.log += ran.log
        result.summary += ran.summary
        result.code = result.code or ran.code
        return ran.outputs
    use = job.used[name]
    return dict(use(inputs) if callable(use) else use)


def parse_outputs(text: str) -> dict[str, str]:
    """Read an output file as a runner does: `name<<end` blocks and `name=value` lines; the last counts."""
    return {
        match["name"] or match["key"]: match["block"] if match["name"] else match["value"]
        for match in _OUTPUT.finditer(text)
    }


def _fill(text: str, context: Mapping[str, Any]) -> str:
    return _EXPRESSION.sub(lambda match: _value(match[1], context), text)


def _value(expression: str, context: Mapping[str, Any]) -> str:
    """Return the value of a path of properties, or the first of alternatives that is not empty."""
    return next(filter(None, (_property(name.strip(), context) for name in expression.split("||"))), "")


def _property(expression: str, context: Mapping[str, Any]) -> str:
    value: Any = context
    for part in expression.split("."):
        value = value.get(part, "")  # as a runner: what is not there is empty
        if value == "":
            break
    return _text(value)


def _text(value: Any) -> str:
    """Return a value of YAML as an expression makes it a string."""
    return str(value).lower() if isinstance(value, bool) else str(value)
