"""Findings of validation, as problems with hints and as the conditions Stalled and Ready."""

from collections.abc import Iterable

from msgspec import Struct

from reconciler.api.meta import Condition
from reconciler.base.errors import Location
from reconciler.base.reasons import Reason
from reconciler.base.text import Text, join_texts
from reconciler.inventory.inventory import FieldPath, Source
from reconciler.krm.yaml import path_text
from reconciler.names.ids import ObjectKey, ObjectName
from reconciler.names.problems import Problem

EXPRESSIONS = "docs/package-variant-sets.md"
"""The page that describes expressions."""
ONE_OF_SEVERAL = "Keep one of them, and remove the others."
ONE_OF_TWO = "Give one of the two."
NO_DOTS = "Write the name without dots."
NO_RESERVED_KEY = (
    "Remove it: name and package-path are those of the package, or of its upstream where nothing is deployed."
    " Write the value that you need under another key."
)


class Finding(Struct, frozen=True):
    """One error in one field."""

    path: FieldPath
    """The field on disk, from the root of the manifest."""
    message: Text
    reason: Reason = Reason.VALIDATION_ERROR
    hint: Text = ""
    offset: int | None = None
    """Characters from the start of the field's text, if the error is known that exactly."""
    repository: ObjectName | None = None
    """The repository that could not be read."""


class ExpansionError(Exception):
    """A target or variant of a set has an error, so that the whole set stalls."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.message)
        self.finding = finding


def joined(findings: Iterable[Finding]) -> str:
    """Return all messages as one, as Porch puts them into a condition."""
    return join_texts("; ", (finding.message for finding in findings))


def problems_of(findings: Iterable[Finding], source: Source, owner: ObjectKey) -> tuple[Problem, ...]:
    """Turn findings into problems that name file, line and column."""
    return tuple(
        Problem(
            locate(finding, source),
            finding.reason,
            finding.message,
            hint_of(finding, owner),
            repository=finding.repository,
        ).owned_by(owner)
        for finding in findings
    )


def hint_of(finding: Finding, owner: ObjectKey) -> Text:
    """Return the hint of a finding: its own, else one for its field."""
    if finding.hint:
        return finding.hint
    if finding.reason is Reason.INVALID_EXPRESSION:
        return f"Correct the expression; {EXPRESSIONS} lists what it may use."
    page = "package-variant-sets.md" if owner.kind == "PackageVariantSet" else "manifests.md"
    return f"Correct {path_text(finding.path)}; docs/{page} describes it."


def locate(finding: Finding, source: Source) -> Location:
    """Return the location of a finding."""
    if finding.offset is None:
        return source.at(*finding.path)
    return source.inside(finding.offset, *finding.path)


def _reconciled(warning: str = "") -> tuple[Condition, ...]:
    valid = Condition(type="Stalled", status="False", reason="Valid", message="all validation checks passed")
    message = f"package variants successfully reconciled{warning}"
    return valid, Condition(type="Ready", status="True", reason="Reconciled", message=message)


SET_READY = _reconciled()
SET_EMPTY = _reconciled("; warning: no target is selected")

_SET_REASONS = {
    Reason.UPSTREAM_NOT_FOUND: "UpstreamNotFound",
    Reason.NO_MATCHING_TARGETS: "NoMatchingTargets",
    Reason.VALIDATION_ERROR: "ValidationError",
    Reason.INVALID_NAME: "ValidationError",
}


def stalled_set(findings: Iterable[Finding], *, valid: bool) -> tuple[Condition, ...]:
    """Return the conditions of a stalled set: Ready has the reason and message of Stalled.

    With `valid` the manifest itself passed its checks and something failed later. As in Porch, a failing
    expression is a validation error before that and an unexpected error after it.

    Source: porch packagevariantset_controller.go, setStalledConditionsToTrue.
    """
    findings = tuple(findings)
    reason = "UnexpectedError" if valid else "ValidationError"
    if valid:
        reason = _SET_REASONS.get(findings[0].reason, reason)
    message = joined(findings)
    return (
        Condition(type="Stalled", status="True", reason=reason, message=message),
        Condition(type="Ready", status="False", reason=reason, message=message),
    )


def stalled_variant(findings: Iterable[Finding]) -> tuple[Condition, ...]:
    """Return the conditions of a stalled PackageVariant.

    Source: porch packagevariant_controller.go, Reconcile.
    """
    return (
        Condition(type="Stalled", status="True", reason="ValidationError", message=joined(findings)),
        Condition(type="Ready", status="False", reason="Error", message="invalid packagevariant object"),
    )
