"""What moves, told twice: once for the fleet, and at the package of every cluster where it does."""

from dataclasses import replace

from reconciler.dependencies.moves import PinMove
from reconciler.plan.changes import Change, Plan
from reconciler.resolve.deliveries import cluster_of


def with_moves(plan: Plan, moves: tuple[PinMove, ...]) -> Plan:
    """Return the plan with the pins that it moves, also at the packages that hold what comes of them."""
    if not moves:
        return plan
    return replace(plan, moves=moves, changes=tuple(_told(change, moves) for change in plan.changes))


def _told(change: Change, moves: tuple[PinMove, ...]) -> Change:
    cluster = cluster_of(change.variant) if change.variant else ""
    mine = tuple(move for move in moves if cluster in move.clusters)
    return replace(change, pins=mine) if mine else change
