"""What stands while a change of a lock waits for a review: what was merged, and first pins (D3)."""

from dataclasses import replace

from reconciler.dependencies.decision import Decision, Locked, ScopeDecision
from reconciler.dependencies.lockfile import LockOp


def standing(decision: Decision, *, strict: bool) -> Decision:
    """Return the decision as far as it holds before anybody merges it. Pure.

    A cluster keeps the lock that it has as soon as one pin would move. Where pins only come and go,
    because manifests that somebody merged ask for more or less, it takes the new ones at once; with
    `strict` nothing new holds before it is merged.
    """
    scopes = (replace(scope, after=_stands(scope, strict=strict)) for scope in decision.scopes)
    return replace(decision, scopes=tuple(scopes))


def _stands(scope: ScopeDecision, *, strict: bool) -> Locked | None:
    moved = any(change.op is LockOp.CHANGE for change in scope.changes)
    return scope.before if strict or moved else scope.after
