"""A shorter trace with the same violation: steps are left out while it still fails."""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.faults.world import Runner
from tests.support.combination.ledger import ViolationError
from tests.support.combination.life import Trace, replay

Fails = Callable[[Trace], bool]


def shrink(trace: Trace, fails: Fails, *, seconds: float = 60) -> Trace:
    """Return the shortest failing trace that leaving out steps, then variants, leads to in this time."""
    end = time.monotonic() + seconds
    steps, size = list(trace["steps"]), max(1, len(trace["steps"]) // 2)
    while size and time.monotonic() < end:
        for start in range(len(steps) - size, -1, -size):
            shorter = steps[:start] + steps[start + size :]
            if time.monotonic() < end and fails({**trace, "steps": shorter}):
                steps = shorter
        size //= 2
    spec = trace["spec"]
    for field in ("variants", "neighbours", "corpus"):
        for item in list(spec.get(field, ())):
            fewer = {**spec, field: [other for other in spec[field] if other != item]}
            if time.monotonic() < end and fails({"spec": fewer, "steps": steps}):
                spec = fewer
    return {"spec": spec, "steps": steps}


def same_violation(first_line: str, runner: Runner | None) -> Fails:
    """Return a test of traces: whether replaying one violates the same rule."""

    def fails(trace: Trace) -> bool:
        with tempfile.TemporaryDirectory(prefix="machine-") as directory:
            try:
                replay(trace, Path(directory) / "w", runner)
            except ViolationError as violation:
                return rule_of(str(violation)) == rule_of(first_line)
            except (KeyError, IndexError):
                return False  # a step that its missing neighbours made impossible
            return False

    return fails


def rule_of(violation: str) -> str:
    """Return what a violation is about, without the names in it."""
    words = violation.split("\n", maxsplit=1)[0].split(" ")
    return " ".join(word for word in words if word.isalpha())
