"""What a run that was asked to end says of the repositories that it did not begin."""

from pathlib import Path

import pytest

from reconciler.apply.outcome import Result
from reconciler.apply.plan import _by_url, _not_started
from reconciler.ids import PackageKey
from reconciler.plan.changes import Effect, Unfinished
from tests.unit.apply.world import Edge

STOPPED = {PackageKey("file:///edge", "web"): Unfinished("stopped", left=True)}
PUSHED = (Effect("edge", "pushed"),)


@pytest.mark.parametrize(
    ("result", "left"),
    [
        (Result(), False),
        (Result(PUSHED), False),
        (Result(PUSHED, STOPPED), False),
        (Result((), STOPPED), True),
    ],
    ids=["nothing to do", "done", "ended between its effects", "not begun"],
)
def test_repository_that_was_not_begun_is_counted_with_its_changes(
    tmp_path: Path, result: Result, left: bool
) -> None:
    edge = Edge(tmp_path)
    pending = {"a": [edge.created("web"), edge.created("db"), edge.change("same")]}

    messages = [(effect.repository, effect.error) for effect in _not_started({"a": result}, pending)]

    rest = "2 changes left: The run was stopped by a signal"
    assert messages == ([("1 repository", rest)] if left else [])


def test_repositories_that_were_not_begun_are_one_effect(tmp_path: Path) -> None:
    edge = Edge(tmp_path)
    stopped = Result((), STOPPED)

    (effect,) = _not_started(
        {"a": stopped, "b": stopped}, {"a": [edge.created()], "b": [edge.change("same")]}
    )

    assert (effect.repository, effect.left) == ("2 repositories", True)
    assert effect.error.startswith("1 change left: ")


def test_only_repositories_with_something_to_write_are_written(tmp_path: Path) -> None:
    edge = Edge(tmp_path)
    new, same = edge.created("web"), edge.change("same")

    assert _by_url([same]) == {}
    assert _by_url([same, new]) == {"file:///edge": [same, new]}
