"""A run writes to several repositories side by side, to no more than the settings say, in a fixed order."""

import threading
import time
from collections.abc import Sequence

import pytest

from reconciler.apply import plan
from reconciler.apply.outcome import Result
from reconciler.plan.changes import Change, Effect


@pytest.mark.parametrize(("limit", "most"), [(1, 1), (3, 3), (100, 8)])
def test_repositories_are_written_side_by_side(
    monkeypatch: pytest.MonkeyPatch, limit: int, most: int
) -> None:
    lock, busy, seen = threading.Lock(), 0, []

    def write(target: str, _: Sequence[Change]) -> Result:
        nonlocal busy
        with lock:
            busy += 1
            seen.append(busy)
        time.sleep(0.05)
        with lock:
            busy -= 1
        return Result((Effect(target, "pushed"),))

    monkeypatch.setattr(plan, "_apply_or_leave", write)
    urls = [f"r{number}" for number in range(8)]

    results = plan._repositories({url: [] for url in urls}, dict(zip(urls, urls, strict=True)), limit)

    assert [result.effects[0].repository for result in results] == urls
    assert max(seen) == most
