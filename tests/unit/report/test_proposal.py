"""Pins of a proposed lock in a plan: a mark for each direction, and a count of those left out."""

import pytest

from reconciler.plan.changes import LockProposal, Op, PinChange
from reconciler.report.text import MOST_PINS, pin_line, proposal_lines
from tests.unit.report.plans import change


@pytest.mark.parametrize(
    ("before", "after", "line"),
    [
        ("", "v2", "+ web: v2 (why)"),
        ("v1", "", "- web: v1 (why)"),
        ("v1", "v2", "~ web: v1 -> v2 (why)"),
        ("", "", "~ web: why"),
    ],
)
def test_mark_of_a_pin_tells_its_direction(before: str, after: str, line: str) -> None:
    assert pin_line(PinChange("web", before, after, "why")) == line


@pytest.mark.parametrize("surplus", [0, 1, 2])
def test_pins_beyond_the_limit_are_counted(surplus: int) -> None:
    pins = tuple(PinChange(f"p{n}", "v1", "v2", "why") for n in range(MOST_PINS + surplus))

    lines = list(proposal_lines(LockProposal(change(Op.UPDATE), pins, edited=("web.json",))))

    assert len(lines) == 1 + MOST_PINS + bool(surplus) + 1
    assert (f"  and {surplus} more" in lines) is bool(surplus)
    assert lines[-1] == "  left as edited: web.json"


def test_nothing_is_told_without_a_proposal() -> None:
    assert list(proposal_lines(None)) == []
