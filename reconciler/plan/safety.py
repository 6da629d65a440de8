"""Guards: a plan that deletes too much of what we own waits for consent in Git (D17)."""

from collections.abc import Iterable, Iterator

from reconciler.plan.changes import Change, Op, Refusal
from reconciler.plan.world import World
from reconciler.reasons import Reason


def check_deletions(world: World, changes: Iterable[Change]) -> Iterator[Refusal]:
    """Yield why the plan must not be applied: too many deletions that nobody consented to.

    The set diff counts the variants that are gone. Here the packages are counted that variants
    left behind by moving elsewhere, and only those whose deletion this plan begins.

    Source: octodns provider/plan.py, Plan.raise_if_unsafe.
    """
    yield from (Refusal(r.reason, r.message, r.hint) for r in world.diff.refused)
    guard = world.inventory.policy.deletions
    moved = [c for c in changes if c.op is Op.DELETE and c.writes and _is_moved(c, world)]
    owned = sum(1 for target in world.targets if target.owner is not None)
    count = len(moved)
    if count <= guard.allowed:
        return
    wish = f"{count} of {owned} owned packages would be deleted because their variants moved"
    hint = "Review the plan, then allow the deletions in the configuration."
    if count > guard.count:
        yield Refusal(Reason.DELETION_GUARD, f"{wish}, more than {guard.count}", hint)
    elif owned >= guard.minimum and count > guard.share * owned:
        message = f"{wish}, {count / owned:.0%} is over {guard.share:.0%}"
        yield Refusal(Reason.DELETION_GUARD, message, hint)


def _is_moved(change: Change, world: World) -> bool:
    return change.variant is not None and world.find_desired(change.variant) is not None
