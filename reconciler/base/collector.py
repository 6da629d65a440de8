"""The cycle collector of Python, which walks values that live to the end of a run again and again."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

COLLECT = (200_000, 20, 100)
"""When the process of a command looks for cycles: walking everything that a run is made of again and again
took a quarter of its time."""


@contextmanager
def no_collection() -> Iterator[None]:
    """Pause the collector: it takes up to half of the time for a hundred thousand values without a cycle.

    In the process of a command, what was made meanwhile lives to its end, and is never looked at.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            if gc.get_threshold() == COLLECT:
                gc.freeze()
            gc.enable()
