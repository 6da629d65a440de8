"""Samples of what takes minutes: the suite tries a share of the cases, `make samples` all of them."""

import os
from collections.abc import Sequence
from typing import TypeVar

SAMPLE = os.environ.get("RECONCILER_SAMPLE", "0")
"""`all`, or a number that another one tries others by."""
ALL = SAMPLE == "all"
Case = TypeVar("Case")


def sample(cases: Sequence[Case], share: int) -> Sequence[Case]:
    """Return one in `share` cases, spread evenly."""
    return cases if ALL else cases[int(SAMPLE) % share :: share]
