"""How packages fared with the upstream revisions that a plan brings: read when there is one to tell about."""

from collections.abc import Iterator

from reconciler.confidence import UNTRIED, RevisionConfidence
from reconciler.plan.changes import Plan
from reconciler.read.confidence import read_confidences
from reconciler.resolve.resolution import Pin
from reconciler.run.inputs import RunInputs
from reconciler.values import replace


def with_confidences(plan: Plan, inputs: RunInputs) -> Plan:
    """Return the plan with the confidence in every revision that it brings to a package that has another one.

    Nothing of what the plan does depends on it; where a repository could not be read, there is none.
    """
    pins = {pin.upstream_revision: pin for pin in _brought(plan)}
    if not pins:
        return plan
    inventory = inputs.inventory
    counted = inventory.confidences or read_confidences(
        inventory.repositories.values(), inputs.mirrors, {revision.path for revision in pins}
    )
    if counted is None:
        return plan
    items = (
        RevisionConfidence(pin.label, revision, counted.get(revision, UNTRIED))
        for revision, pin in pins.items()
    )
    return replace(plan, confidences=tuple(sorted(items)))


def _brought(plan: Plan) -> Iterator[Pin]:
    """Yield the upstreams of packages that are to get another revision than main has."""
    resolved = plan.context.resolved if plan.context else {}
    for change in plan.changes:
        variant = resolved.get(change.variant) if change.variant and change.written is not None else None
        if variant is not None and variant.base is not None and variant.base.tree != variant.pin.tree:
            yield variant.pin
