"""Runs a composite action's steps as a workflow runner would: expressions, files, shells; no network.

Only what composite actions of this project use: `run` steps in bash, `env`, `inputs`, `steps` and
`github` contexts. A step that `uses` another action must be given, by its name, as what it outputs.
"""

import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

_EXPRESSION = re.compile(r"\$\{\{\s*(.*?)\s*\}\}")
_OUTPUT = re.compile(r"(?ms)^(?P<name>[\w-]+)<<(?P<end>[^\n]+)\n(?P<value>.*?)\n?^(?P=end)$")
_PLAIN = re.compile(r"^([\w-]+)=(.*)$", re.MULTILINE)


@dataclass
class Job:
    """One job on a machine: its workspace, its temporary directory, the context of expressions."""

    workspace: Path
    temporary: Path
    event: str = "push"
    used: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)


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
    unknown = inputs.keys() - described["inputs"].keys()
    assert not unknown, f"a runner warns of unexpected inputs: {unknown}"
    given = {
        name: inputs.get(name, str(known.get("default", ""))) for name, known in described["inputs"].items()
    }
    context: dict[str, Any] = {
        "github": {"action_path": str(action), "token": "the-token-of-this-job"},
        "inputs": {},
        "steps": {},
    }
    context["inputs"] = {name: _fill(value, context) for name, value in given.items()}
    result = Result({}, "", "", 0)
    for number, step in enumerate(described["runs"]["steps"]):
        context["steps"][step.get("id", str(number))] = {"outputs": _run(step, number, context, job, result)}
        if result.code:
            break
    result.outputs = {name: _fill(o["value"], context) for name, o in described["outputs"].items()}
    return result


def _run(
    step: Mapping[str, Any], number: int, context: dict[str, Any], job: Job, result: Result
) -> dict[str, str]:
    if "uses" in step:
        name = str(step["uses"]).partition("@")[0]
        for value in step.get("with", {}).values():
            _fill(str(value), context)
        return dict(job.used[name])
    assert step["shell"] == "bash"
    assert "${{" not in step["run"], "no expression may be expanded into a script"
    script, out, summary = (job.temporary / f"{number}.{kind}" for kind in ("sh", "out", "md"))
    script.write_text(step["run"])
    out.touch()
    summary.touch()
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
    result.code = ran.returncode
    return parse_outputs(out.read_text())


def parse_outputs(text: str) -> dict[str, str]:
    """Read an output file as a runner does: `name<<end` blocks and `name=value` lines; the last counts."""
    found = {match["name"]: match["value"] for match in _OUTPUT.finditer(text)}
    return dict(_PLAIN.findall(_OUTPUT.sub("", text))) | found


def _fill(text: str, context: Mapping[str, Any]) -> str:
    return _EXPRESSION.sub(lambda match: _value(match[1], context), text)


def _value(expression: str, context: Mapping[str, Any]) -> str:
    value: Any = context
    for part in expression.split("."):
        value = value.get(part, "")  # as a runner: what is not there is empty
        if value == "":
            break
    return str(value)
