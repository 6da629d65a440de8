"""Guards: deletions that are too many wait for consent in Git; everything else proceeds (D17)."""

from collections.abc import Sequence
from dataclasses import replace

from reconciler.expand.guard import deletion_consent
from reconciler.plan.changes import Change, Op, Refusal
from reconciler.plan.world import World
from reconciler.reasons import Reason


def guard_changes(world: World, changes: Sequence[Change]) -> tuple[tuple[Change, ...], tuple[Refusal, ...]]:
    """Return the changes with every deletion that nobody consented to kept, and why each was refused.

    The set diff counts the variants that are gone, and their packages are kept already. Here the
    packages are counted that variants left behind by moving elsewhere, and only those whose
    deletion this plan begins. A refusal refuses itself alone: the other changes are as they were.

    Source: octodns provider/plan.py, Plan.raise_if_unsafe.
    Differs: octodns refuses the whole plan.
    """
    refusals = [Refusal(r.reason, r.message, _hint(r.hint, r.consent), r.consent) for r in world.diff.refused]
    moved = [c for c in changes if c.op is Op.DELETE and c.writes and _is_moved(c, world)]
    message = _excess(world, len(moved))
    consent = deletion_consent(change.package for change in moved)
    if not message or consent in world.inventory.policy.consents:
        return tuple(changes), tuple(refusals)
    hint = _hint("Review the plan, or allow the deletions with --allow-deletes.", consent)
    refusals.append(Refusal(Reason.DELETION_GUARD, message, hint, consent))
    guarded = {change.package for change in moved}
    return tuple(_kept(c, message) if c.package in guarded else c for c in changes), tuple(refusals)


def _excess(world: World, count: int) -> str:
    """Return why so many deletions are too many, empty if they are not."""
    guard = world.inventory.policy.deletions
    if count <= guard.allowed:
        return ""
    owned = sum(1 for target in world.targets if target.owner is not None)
    wish = f"{count} of {owned} owned packages would be deleted because their variants moved"
    if count > guard.count:
        return f"{wish}, more than {guard.count}"
    if owned >= guard.minimum and count > guard.share * owned:
        return f"{wish}, {count / owned:.0%} is over {guard.share:.0%}"
    return ""


def _kept(change: Change, message: str) -> Change:
    return replace(
        change,
        op=Op.KEEP,
        reason=Reason.DELETION_GUARD,
        message=message,
        after=change.before,
        writes=(),
        pull=None,
        close=(),
        waits=False,
    )


def _hint(hint: str, consent: str) -> str:
    return f"{hint} Or consent to exactly these in the configuration: spec.consents: {{{consent}: why}}."


def _is_moved(change: Change, world: World) -> bool:
    return change.variant in world.variants
