"""Guards: a plan that deletes too much of what we own waits for consent in Git (D17)."""

from collections import Counter
from collections.abc import Iterable, Iterator

from reconciler.ids import ObjectName
from reconciler.plan.changes import Change, Op, Refusal
from reconciler.plan.world import World
from reconciler.reasons import Reason

ALLOW_DELETES = "reconciler.dev/allow-deletes"


def check_deletions(world: World, changes: Iterable[Change]) -> Iterator[Refusal]:
    """Yield a refusal if the new deletions are too many for what is owned, and nobody consented.

    Counted are deletions that this plan begins; what a set consents to in its annotation is not.

    Source: octodns provider/plan.py, Plan.raise_if_unsafe.
    """
    guard = world.inventory.policy.deletions
    changes = tuple(changes)
    begun = [change for change in changes if change.op is Op.DELETE and change.writes]
    owned = sum(1 for target in world.targets if target.owner is not None)
    count = max(0, len(begun) - _allowed_by_sets(world, begun) - guard.allowed)
    share = count / owned if owned else 0.0
    hint = (
        f'Consent with {ALLOW_DELETES}: "{len(begun)}" on the set, '
        "or with deletions.allowed in the configuration."
    )
    wish = f"{count} of {owned} owned packages would be deleted"
    if count > guard.count:
        message = (
            f"{count} of {owned} owned packages would be deleted; at most {guard.count} may be in one plan"
        )
        yield Refusal(Reason.DELETION_GUARD, message, hint)
    elif owned >= guard.minimum and share > guard.share:
        message = f"{wish}; {share:.0%} is over the limit of {guard.share:.0%}"
        yield Refusal(Reason.DELETION_GUARD, message, hint)


def _allowed_by_sets(world: World, begun: list[Change]) -> int:
    """Return how many of the deletions the annotations of their own sets consent to."""
    sets = {pvs.key: pvs.manifest.metadata.annotations or {} for pvs in world.inventory.sets}
    per_set = Counter(_set_of(world, change.variant) for change in begun if change.variant)
    allowed = 0
    for key, deletions in per_set.items():
        text = sets.get(key, {}).get(ALLOW_DELETES, "") if key else ""
        if text.isascii() and text.isdigit():
            allowed += min(deletions, int(text))
    return allowed


def _set_of(world: World, owner: ObjectName) -> ObjectName | None:
    record = world.inventory.records.get(owner)
    return ObjectName(record.namespace, record.set_name) if record and record.set_name else None
