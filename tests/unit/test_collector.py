"""Unit tests of the pauses of the cycle collector."""

import gc
from collections.abc import Iterator

import pytest

from reconciler.base.collector import COLLECT, no_collection


@pytest.fixture
def thresholds() -> Iterator[None]:
    """Restore how often this process looks for cycles."""
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)
    gc.unfreeze()


@pytest.mark.usefixtures("thresholds")
def test_collector_is_paused_and_goes_on_afterwards() -> None:
    with no_collection():
        assert not gc.isenabled()
        with no_collection():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()


@pytest.mark.usefixtures("thresholds")
@pytest.mark.parametrize(
    ("thresholds_of_process", "is_frozen"),
    [(COLLECT, True), ((700, 10, 10), False)],
    ids=["command", "other"],
)
def test_only_the_process_of_a_command_keeps_what_it_made(
    thresholds_of_process: tuple[int, int, int], is_frozen: bool
) -> None:
    gc.unfreeze()
    gc.set_threshold(*thresholds_of_process)
    with no_collection():
        made = [[] for _ in range(10)]
    assert (gc.get_freeze_count() > len(made)) is is_frozen
