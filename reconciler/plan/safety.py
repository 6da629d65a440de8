"""Guards: deletions that are too many wait for consent in Git; everything else proceeds (D17)."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from reconciler.expand.guard import deletion_consent, waiting_text, why_too_many
from reconciler.ids import PackageKey
from reconciler.plan.changes import Change, Op, Refusal
from reconciler.plan.world import World
from reconciler.reasons import Reason


class GuardedChanges(NamedTuple):
    """Changes without refused deletions, why each was refused, and the packages that wait for consent.

    `waiting` says how many owned packages there were when each was first refused.
    """

    changes: tuple[Change, ...]
    refusals: tuple[Refusal, ...]
    waiting: Mapping[PackageKey, int]


def guard_changes(world: World, changes: Sequence[Change]) -> GuardedChanges:
    """Return the changes with every deletion that nobody consented to kept, and why each was refused.

    The set diff counts the variants that are gone, and their packages are kept already. Here the
    packages are counted that variants left behind by moving elsewhere, and only those whose
    deletion this plan begins. A refusal refuses itself alone: the other changes are as they were. It
    stays until somebody consents: what else came or left meanwhile does not make it smaller.

    Source: octodns provider/plan.py, Plan.raise_if_unsafe.
    Differs: octodns refuses the whole plan.
    """
    refusals = [Refusal(r.reason, r.message, _hint(r.hint, r.consent), r.consent) for r in world.diff.refused]
    moved = [c for c in changes if c.op is Op.DELETE and c.writes and _is_moved(c, world)]
    before = _refused_before(world)
    refused, owned, message = _refused(moved, before, world)
    consent = deletion_consent(change.package for change in refused)
    if not refused or consent in world.inventory.policy.consents:
        refused = ()
    guarded = {change.package for change in refused}
    waiting = {change.package: before.get(change.package, owned) for change in refused}
    begun = {change.package for change in moved if change.package not in guarded}
    waiting |= {key: of for key, of in before.items() if key not in begun and _still_waits(key, world)}
    if not refused:
        return GuardedChanges(tuple(changes), tuple(refusals), waiting)
    hint = _hint("Review the plan, or allow the deletions with --allow-deletes.", consent)
    refusals.append(Refusal(Reason.DELETION_GUARD, message, hint, consent))
    kept = tuple(_kept(change, message) if change.package in guarded else change for change in changes)
    return GuardedChanges(kept, tuple(refusals), waiting)


def _refused(
    moved: Sequence[Change], before: Mapping[PackageKey, int], world: World
) -> tuple[Sequence[Change], int, str]:
    """Return the deletions that need consent, how many packages they are measured against, and why."""
    guard = world.inventory.policy.deletions
    again = [change for change in moved if change.package in before]
    now = sum(1 for target in world.targets if target.owner is not None)
    # The new places of moved variants count as owned as soon as they have drafts: that must not make
    # the share of what was refused smaller, nor must packages that left make the minimum larger.
    owned = max((before[change.package] for change in again), default=now)
    if len(moved) <= guard.allowed:
        return (), owned, ""
    why = why_too_many(len(moved), owned, guard)
    refused = moved if why else again
    wish = f"{len(refused)} of {owned} owned packages would be deleted because their variants moved"
    return refused, owned, f"{wish}, {why or waiting_text(world.inventory)}"


def _refused_before(world: World) -> Mapping[PackageKey, int]:
    """Return the packages whose deletion was refused before; all of ours where the record is unreadable."""
    refused = world.inventory.refused
    if refused is not None:
        return {PackageKey(one.url, one.path): one.of for one in refused.packages}
    owned = [target.key for target in world.targets if target.owner is not None]
    return dict.fromkeys(owned, len(owned))


def _still_waits(package: PackageKey, world: World) -> bool:
    """Whether a refused package still stands where it was, unwanted, or cannot be looked at."""
    target = next((target for target in world.targets if target.key == package), None)
    if target is None:
        views = world.inventory.views_of(package.url)
        return any(not view.is_available for view in views)
    return target.owner is not None and package not in world.wanted


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
