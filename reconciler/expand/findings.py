"""What validation finds: a message about one field of one manifest."""

from collections.abc import Iterable
from dataclasses import dataclass

from reconciler.errors import Location, Problem
from reconciler.inventory import FieldPath, Source
from reconciler.reasons import Reason

EXPRESSIONS = "docs/package-variant-sets.md"
"""The page that describes expressions."""


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
        Problem(locate(finding, source), finding.reason, finding.message, hint_of(finding, subject), subject)
        for finding in findings
    )


_HINTS = (
    (
        "must not contain the key",
        "Remove it: name and package-path are always those of the package.",
    ),
    ("must not contain '.'", "Write the name without dots."),
    ("only one of", "Keep one of them, and remove the others."),
    ("must specify one of", "Give exactly one of them."),
    ("must specify either", "Give one of the two."),
    ("either ", "Give one of them."),
    ("must specify at least one", "Add a target."),
    ("only be ", "Write one of the two, or remove the field."),
    ("required field", "Add the field."),
    ("must specify ", "Add one of the two."),
    ("empty", "Give it a value."),
)
"""What to do about a message of Porch: the first of which it has the words."""


def hint_of(finding: Finding, subject: str = "") -> str:
    """Return what to do about a finding: its own hint, else what its message asks for."""
    if finding.hint:
        return finding.hint
    if finding.reason is Reason.INVALID_EXPRESSION:
        return f"Correct the expression; {EXPRESSIONS} lists what it may use."
    found = next((hint for words, hint in _HINTS if words in finding.message), "")
    page = "package-variant-sets.md" if subject.startswith("PackageVariantSet ") else "manifests.md"
    return found or f"Correct {field_name(finding.path)}; docs/{page} describes it."


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
