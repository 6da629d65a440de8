"""The simulation of a forge's limits, and its table in the documentation."""

from pathlib import Path

import pytest

from reconciler.policy import WriteLimits
from tools.bench.bench_limits import hours, rows

SCALE = Path(__file__).resolve().parents[2] / "docs/scale.md"


@pytest.mark.parametrize(
    ("writes", "limits", "expected"),
    [
        (1, WriteLimits(), 0.0),
        (61, WriteLimits(60, 1000), 1 / 60),
        # Every write has its second of the minute; those of the second hour start when the first has left.
        (401, WriteLimits(60, 400), 1.0),
        (801, WriteLimits(60, 400), 2.0),
        (2000, WriteLimits(80, 500), 3.104),
    ],
)
def test_writes_take_as_long_as_the_limits_say(writes: int, limits: WriteLimits, expected: float) -> None:
    assert hours(writes, limits) == pytest.approx(expected, abs=0.002)


def test_the_documentation_has_the_simulated_hours() -> None:
    text = SCALE.read_text(encoding="utf-8")

    assert [row for row in rows() if row not in text] == []
