"""Summary, outputs and annotations of a step in a GitHub workflow; nothing elsewhere."""

import re
import secrets
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import click
import orjson

from reconciler.base.errors import Exit, Location, RefusedError
from reconciler.base.lazy import regex
from reconciler.base.redact import Redactor
from reconciler.base.text import Text, terminal
from reconciler.names.problems import Problem
from reconciler.report.json import report_sarif, report_value
from reconciler.report.machine import dump
from reconciler.report.report import CheckReport, Report
from reconciler.report.text import failures

_PULL_REQUEST = "pull_request"


_PULL_REF = regex(r"refs/pull/([0-9]+)/(?:merge|head)")


MOST_LINES = 10
"""A runner shows ten annotations of each level per step and drops the rest."""


SUMMARY_BYTES = 900 * 1024
"""A runner drops a whole summary that is larger than a mebibyte."""


_CUT = "\n\nThe rest did not fit.\n"


class Annotation(NamedTuple):
    """One remark at a file and line; `level` is error, warning or notice."""

    level: str
    title: str
    message: Text
    location: Location | None = None


class Runner:
    """Where one step of a workflow may write. Every text is redacted; without a runner nothing happens."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._redactor = Redactor.of_environment(environment)
        self._annotates = environment.get("GITHUB_ACTIONS") == "true"
        self._summary = environment.get("GITHUB_STEP_SUMMARY", "")
        self._outputs = environment.get("GITHUB_OUTPUT", "")
        self._pages = environment.get("ACTION_PAGES", "")

    @property
    def has_summary(self) -> bool:
        """Whether people see a job summary."""
        return bool(self._summary)

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
                file.write(fit_summary(self._redactor.text(self.linked(text)), taken))

    def linked(self, markdown: str) -> str:
        """Return Markdown in which a page of the documentation is a link to the action's own repository.

        Code blocks stay as they are: packages have files of such names.
        """
        return link_pages(markdown, self._pages) if self._pages else markdown

    def tell(self, outputs: Mapping[str, str]) -> None:
        """Append outputs, each between random delimiters that no value can contain."""
        if self._outputs:
            blocks = (
                output_block(name, self._redactor.text(value), f"end-{secrets.token_hex(16)}")
                for name, value in outputs.items()
            )
            with Path(self._outputs).open("a", encoding="utf-8") as file:
                file.writelines(blocks)

    def publish(self, made: "Publication", json_file: Path | None, sarif_file: Path | None) -> None:
        """Show all of a report, and write the files that were asked for."""
        self.save(json_file, made.value)
        self.save(sarif_file, made.sarif)
        self.annotate(made.annotations)
        self.summarise(made.markdown)
        self.tell(made.outputs)

    def save(self, path: Path | None, value: Any) -> None:
        """Write a JSON value to a file that was asked for."""
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(dump(value, self._redactor), encoding="utf-8")


class Publication(NamedTuple):
    """All that a workflow shows of a report."""

    value: Any
    sarif: Any
    markdown: str
    annotations: list[Annotation]
    outputs: dict[str, str]


def publication(report: Report, code: Exit, changed: str, markdown: str) -> Publication:
    """Return a report as a workflow shows it, with the answer to whether anything changes."""
    annotations = [
        *map(annotate_problem, report.problems),
        *(annotate_error(r.reason, r.message, r.hint) for r in report.refusals),
    ]
    outputs = {
        "changed": changed,
        "summary": report.summary,
        "counts": orjson.dumps({str(op): count for op, count in report.ops.items()}).decode(),
        **({} if isinstance(report, CheckReport) else {"checksum": report.checksum}),
        "exit-code": str(int(code)),
    }
    if isinstance(report, CheckReport):
        others = (*report.comparison.unread, *report.comparison.old)
        annotations += (annotate_problem(problem, "warning") for problem in others)
    if report.outcome is not None:
        annotations += (annotate_error("Failed", *failure) for failure in failures(report.outcome))
    return Publication(report_value(report), report_sarif(report), markdown, annotations, outputs)


_PAGE = regex(r"(`?)(?<![\w/.-])(docs/[a-z0-9/-]+\.md)\b\1")


def link_pages(markdown: str, base: str) -> str:
    """Return Markdown with links to the pages that its sentences name, below an address."""
    lines, fence = [], ""
    for line in markdown.splitlines(keepends=True):
        opened = re.match(r"`{3,}", line)
        if opened and not fence:
            fence = opened[0]
        elif fence:
            fence = "" if line.rstrip() == fence else fence
        else:
            line = _PAGE.sub(rf"[\2]({base}/\2)", line)  # noqa: PLW2901 - the line as it is shown
        lines.append(line)
    return "".join(lines)


def pull_number(environment: Mapping[str, str]) -> int | None:
    """Return the number of the pull or merge request that this run is for, None if it is for none."""
    match = _PULL_REF.fullmatch(environment.get("GITHUB_REF", ""))
    text = match[1] if match else environment.get("CI_MERGE_REQUEST_IID", "")
    return int(text) if re.fullmatch(r"[1-9][0-9]{0,9}", text) else None


def check_event(environment: Mapping[str, str]) -> None:
    """Refuse to apply what is only proposed: the workflow of a pull request runs the author's words.

    Raises:
        RefusedError: The process runs for a pull request, a merge request, or a merge group of a queue.
    """
    event = environment.get("GITHUB_EVENT_NAME", "") or environment.get("CI_PIPELINE_SOURCE", "")
    if event.startswith((_PULL_REQUEST, "merge_group", "merge_request", "external_pull_request")):
        raise RefusedError(
            f"Nothing is applied in a run for a pull request (event {terminal(event)})",
            hint="Use `reconciler check` there, and apply on pushes to the default branch.",
        )


def annotate_problem(problem: Problem, level: str = "error") -> Annotation:
    """Return the annotation of a problem."""
    return annotate_error(problem.reason, problem.message, problem.hint, problem.location, level)


def annotate_error(
    title: str, message: Text, hint: Text, location: Location | None = None, level: str = "error"
) -> Annotation:
    """Return the annotation of what is wrong, with the next step; a refusal and a failure have no place."""
    return Annotation(level, title, f"{message}. {hint}" if hint else message, location)


def annotation_lines(annotations: Iterable[Annotation]) -> Iterator[str]:
    """Yield the commands that annotate: at most ten of each level; the last one counts the rest."""
    by_level: dict[str, list[Annotation]] = {}
    for annotation in annotations:
        by_level.setdefault(annotation.level, []).append(annotation)
    for level, group in by_level.items():
        lines = group if len(group) <= MOST_LINES else group[: MOST_LINES - 1]
        yield from map(_line, lines)
        if more := len(group) - len(lines):
            yield _line(Annotation(level, "More", f"{more} more in the job summary"))


def output_block(name: str, value: str, delimiter: str) -> str:
    """Return one output as a runner reads it; `delimiter` is random, so that no value can end it.

    Raises:
        ValueError: The value holds the delimiter.
    """
    if delimiter in value:
        raise ValueError(f"the value of {name} holds its own delimiter")
    return f"{name}<<{delimiter}\n{value}\n{delimiter}\n"


def fit_summary(text: str, taken: int = 0) -> str:
    """Return as much of a summary as a runner takes, cut at a line; `taken` bytes are used already."""
    room = SUMMARY_BYTES - taken
    data = text.encode("utf-8", "replace")
    if len(data) <= room:
        return text
    if room <= len(_CUT):
        return ""
    head = data[: room - len(_CUT)]
    return head[: head.rfind(b"\n") + 1].decode("utf-8", "ignore").rstrip("\n") + _CUT


def _line(annotation: Annotation) -> str:
    where = annotation.location
    properties = {"title": annotation.title}
    if where and where.path:
        properties["file"] = where.path
        if where.line:
            properties["line"] = str(where.line)
            if where.column:
                properties["col"] = str(where.column)
    listed = ",".join(f"{name}={_property(value)}" for name, value in sorted(properties.items()))
    return f"::{annotation.level} {listed}::{_data(terminal(annotation.message))}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(terminal(text)).replace(":", "%3A").replace(",", "%2C")
