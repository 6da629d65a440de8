"""What validation finds: a message about one field of one manifest."""

from collections.abc import Iterable
from dataclasses import dataclass

from reconciler.errors import Location, Problem
from reconciler.inventory import FieldPath, Source
from reconciler.reasons import Reason


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing wrong with one field.

    `path` is the field on disk, from the manifest's root; `offset` counts characters from the
    start of its text where the fault is known that exactly.
    """

    path: FieldPath
    message: str
    reason: Reason = Reason.VALIDATION_ERROR
    hint: str = ""
    offset: int | None = None


def joined(findings: Iterable[Finding]) -> str:
    """Return all messages as one, as Porch puts them into a condition."""
    return "; ".join(finding.message for finding in findings)


def problems_of(findings: Iterable[Finding], source: Source, subject: str) -> tuple[Problem, ...]:
    """Turn findings into problems that name file, line and column."""
    return tuple(
        Problem(locate(finding, source), finding.reason, finding.message, hint_of(finding), subject)
        for finding in findings
    )


def hint_of(finding: Finding) -> str:
    """Return what to do about a finding: its own hint, else where what is right is written down."""
    if finding.hint:
        return finding.hint
    if finding.reason is Reason.INVALID_EXPRESSION:
        return "Correct it here; docs/manifests.md lists what an expression may use."
    return f"Set {field_name(finding.path)} as docs/manifests.md describes it."


def locate(finding: Finding, source: Source) -> Location:
    """Return where a finding's fault stands."""
    if finding.offset is None:
        return source.at(*finding.path)
    return source.inside(finding.offset, *finding.path)


def field_name(path: FieldPath) -> str:
    """Return a path as Porch writes it, as in `spec.targets[0].template`."""
    name = ""
    for step in path:
        name += f"[{step}]" if isinstance(step, int) else f".{step}" if name else step
    return name
