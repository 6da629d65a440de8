"""The change of a reviewed lock as text and JSON: its branch, its pull request, every pin."""

from collections.abc import Iterator
from typing import Any

from reconciler.base.escape import terminal
from reconciler.plan.changes import LockProposal, PinChange
from reconciler.report.summary import arrow

MOST_PINS = 50
"""Pins of a plan's text; more than these are counted."""


def proposal_lines(proposal: LockProposal | None) -> Iterator[str]:
    """Yield what happens to the proposal of another lock, then the pins it changes; nothing without one."""
    if proposal is None:
        return
    change = proposal.change
    head = f"lock: {change.op} ({change.reason})"
    yield terminal(f"{head}: {change.detail}" if change.detail else head)
    yield from (f"  {pin_line(pin)}" for pin in proposal.pins[:MOST_PINS])
    more = len(proposal.pins) - MOST_PINS
    if more > 0:
        yield f"  and {more} more"
    yield from (f"  left as edited: {terminal(path)}" for path in proposal.edited)


def pin_line(pin: PinChange) -> str:
    """Return one change of a pin in a line."""
    if not pin.before and not pin.after:
        return terminal(f"~ {pin.what}: {pin.why}")
    mark = "+" if not pin.before else "-" if not pin.after else "~"
    return terminal(f"{mark} {pin.what}: {pin_detail(pin)}")


def pin_detail(pin: PinChange) -> str:
    """Return from where to where a pin moves, and why; as it is, not for a terminal yet."""
    return f"{arrow(pin.before, pin.after)} ({pin.why})"


def proposal_value(proposal: LockProposal) -> dict[str, Any]:
    """Return the proposal as a JSON value."""
    change = proposal.change
    return {
        **{name: getattr(change, name) for name in ("pending", "waits", "before", "after")},
        "op": str(change.op),
        "reason": str(change.reason),
        "message": change.detail,
        "pins": [pin._asdict() for pin in proposal.pins],
        "edited": list(proposal.edited),
    }
