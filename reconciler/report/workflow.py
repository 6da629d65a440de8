"""What a workflow runner reads: annotations, outputs and summaries that no name can break out of."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from reconciler.errors import Location, Problem
from reconciler.plan.changes import Refusal
from reconciler.report.escape import terminal

SHOWN = 10
"""A runner shows ten annotations of each level per step and drops the rest."""

SUMMARY_BYTES = 900 * 1024
"""A runner drops a whole summary that is larger than a mebibyte."""

_CUT = "\n\nThe rest did not fit.\n"


class Annotation(NamedTuple):
    """One remark at a file and line; `level` is error, warning or notice."""

    level: str
    title: str
    message: str
    location: Location | None = None


def annotate_problem(problem: Problem, level: str = "error") -> Annotation:
    """Return the annotation of a problem."""
    message = f"{problem.message}. {problem.hint}" if problem.hint else problem.message
    return Annotation(level, problem.reason, message, problem.location)


def annotate_refusal(refusal: Refusal) -> Annotation:
    """Return the annotation of a refusal, which has no place."""
    message = f"{refusal.message}. {refusal.hint}" if refusal.hint else refusal.message
    return Annotation("error", refusal.reason, message)


def annotation_lines(annotations: Iterable[Annotation]) -> Iterator[str]:
    """Return the commands that annotate: at most ten of each level, the last of them says how many more."""
    by_level: dict[str, list[Annotation]] = {}
    for annotation in annotations:
        by_level.setdefault(annotation.level, []).append(annotation)
    for level, found in by_level.items():
        shown = found if len(found) <= SHOWN else found[: SHOWN - 1]
        yield from map(_line, shown)
        if more := len(found) - len(shown):
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
