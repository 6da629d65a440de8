"""The conditions Stalled and Ready of PackageVariants and PackageVariantSets, in Porch's words."""

from collections.abc import Iterable

from reconciler.api.meta import Condition
from reconciler.expand.findings import Finding, joined
from reconciler.reasons import Reason

VALID = Condition(type="Stalled", status="False", reason="Valid", message="all validation checks passed")
RECONCILED = Condition(
    type="Ready", status="True", reason="Reconciled", message="package variants successfully reconciled"
)
RECONCILED_EMPTY = Condition(
    type="Ready",
    status="True",
    reason="Reconciled",
    message="package variants successfully reconciled; warning: no target is selected",
)

SET_READY = (VALID, RECONCILED)
SET_EMPTY = (VALID, RECONCILED_EMPTY)

_SET_REASONS = {
    Reason.UPSTREAM_NOT_FOUND: "UpstreamNotFound",
    Reason.NO_MATCHING_TARGETS: "NoMatchingTargets",
    Reason.VALIDATION_ERROR: "ValidationError",
    Reason.INVALID_NAME: "ValidationError",
}


def stalled_set(findings: Iterable[Finding], *, valid: bool) -> tuple[Condition, ...]:
    """Return the conditions of a set that stalls: Ready gets the same reason and message as Stalled.

    `valid` tells that the manifest itself passed its checks and something failed later; an
    expression is a validation error before that and an unexpected error after it, as Porch has it.

    Source: porch packagevariantset_controller.go, setStalledConditionsToTrue.
    """
    found = tuple(findings)
    reason = "UnexpectedError" if valid else "ValidationError"
    if valid and found:
        reason = _SET_REASONS.get(found[0].reason, reason)
    message = joined(found)
    return (
        Condition(type="Stalled", status="True", reason=reason, message=message),
        Condition(type="Ready", status="False", reason=reason, message=message),
    )


def stalled_variant(findings: Iterable[Finding]) -> tuple[Condition, ...]:
    """Return the conditions of a PackageVariant that stalls.

    Source: porch packagevariant_controller.go, Reconcile.
    """
    return (
        Condition(type="Stalled", status="True", reason="ValidationError", message=joined(findings)),
        Condition(type="Ready", status="False", reason="Error", message="invalid packagevariant object"),
    )
