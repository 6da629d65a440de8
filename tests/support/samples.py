"""Samples of what takes minutes: the suite tries a share of the cases, `make samples` all of them."""

import os
import zlib
from collections.abc import Sequence
from typing import TypeVar

SAMPLE = os.environ.get("RECONCILER_SAMPLE", "0")
"""`all`, or a number that another one tries others by."""
ALL = SAMPLE == "all"
Case = TypeVar("Case")


def sample(cases: Sequence[Case], share: int) -> Sequence[Case]:
    """Return one in `share` cases, spread evenly."""
    return cases if ALL else cases[int(SAMPLE) % share :: share]


def pick(cases: Sequence[Case], name: str) -> Sequence[Case]:
    """Return one of the cases, which a name decides."""
    return cases if ALL else [cases[(zlib.crc32(name.encode()) + int(SAMPLE)) % len(cases)]]
