"""The files that a workflow runner gives a step: summary, outputs, annotations; nothing without a runner."""

import os
import re
import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import click

from reconciler.errors import RefusedError
from reconciler.report.escape import terminal
from reconciler.report.redact import Redactor
from reconciler.report.workflow import Annotation, annotation_lines, fit_summary, output_block

_PULL_REQUEST = "pull_request"
_PULL_REF = re.compile(r"refs/pull/([0-9]+)/(?:merge|head)")


class Runner:
    """Where one step of a workflow may write. Every text is redacted; without a runner nothing happens."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._redactor = Redactor.of_environment(environment)
        self._annotates = environment.get("GITHUB_ACTIONS") == "true"
        self._summary = environment.get("GITHUB_STEP_SUMMARY", "")
        self._outputs = environment.get("GITHUB_OUTPUT", "")

    def annotate(self, annotations: Iterable[Annotation]) -> None:
        """Print the commands that annotate files; a name in them is no command of its own."""
        if self._annotates:
            for line in annotation_lines(annotations):
                click.echo(self._redactor.text(line))

    def summarise(self, text: str) -> None:
        """Append to the job summary as much as it holds."""
        if self._summary:
            path = Path(self._summary)
            taken = path.stat().st_size if path.exists() else 0
            with path.open("a", encoding="utf-8") as file:
                file.write(fit_summary(self._redactor.text(text), taken))

    def tell(self, outputs: Mapping[str, str]) -> None:
        """Append outputs, each behind a delimiter that nobody can guess."""
        if self._outputs:
            blocks = (
                output_block(name, self._redactor.text(value), f"end-{secrets.token_hex(16)}")
                for name, value in outputs.items()
            )
            with Path(self._outputs).open("a", encoding="utf-8") as file:
                file.writelines(blocks)

    def save(self, path: Path | None, value: Any) -> None:
        """Write a JSON value to a file that was asked for."""
        if path is not None:
            from reconciler.report.json import dump

            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(dump(value, self._redactor), encoding="utf-8")


def current_runner() -> Runner:
    """Return the runner that this process runs under, as its environment says."""
    return Runner(os.environ)


def pull_number(environment: Mapping[str, str]) -> int | None:
    """Return the number of the pull or merge request that this run is for, None if it is for none."""
    found = _PULL_REF.fullmatch(environment.get("GITHUB_REF", ""))
    text = found[1] if found else environment.get("CI_MERGE_REQUEST_IID", "")
    return int(text) if re.fullmatch(r"[1-9][0-9]{0,9}", text) else None


def check_event(environment: Mapping[str, str]) -> None:
    """Refuse to apply what is only proposed: the workflow of a pull request runs the author's words.

    Raises:
        RefusedError: The process runs for a pull or merge request.
    """
    event = environment.get("GITHUB_EVENT_NAME", "") or environment.get("CI_PIPELINE_SOURCE", "")
    if event.startswith((_PULL_REQUEST, "merge_request", "external_pull_request")):
        raise RefusedError(
            f"Nothing is applied in a run for a pull request (event {terminal(event)})",
            hint="Use `reconciler check` there, and apply on pushes to the default branch.",
        )
