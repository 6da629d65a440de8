"""What a run that was asked to end says of the repositories that it did not begin."""

import threading
from pathlib import Path

import pytest

from reconciler.apply.outcome import EffectKind, Result, failed_result
from reconciler.apply.plan import _apply_or_leave, _by_url, _not_started
from reconciler.errors import Exit, RefusedError
from reconciler.git import effects
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


def test_run_that_was_asked_to_end_leaves_the_changes_of_a_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    edge = Edge(tmp_path)
    monkeypatch.setattr(effects, "_requested", threading.Event())
    effects.request_shutdown()

    result = _apply_or_leave(edge.target(), [edge.created("web"), edge.change("same")])

    (unfinished,) = result.unfinished.values()
    assert {package.path for package in result.failed} == {"web"}
    assert (unfinished.left, unfinished.hint) == (True, effects.StoppedError.hint)
    assert (result.effects, result.exits) == ((), {Exit.PARTIAL})
    assert list(edge.repo.refs()) == ["refs/heads/main"]


def test_failed_effect_and_each_of_its_packages_have_error_and_hint() -> None:
    error = RefusedError("no", hint="Ask.")
    web, db = PackageKey("u", "web"), PackageKey("u", "db")

    result = failed_result("edge", error, [web, db], "drafts/web", pushed=True)

    assert [(e.repository, e.what, e.ref, e.error, e.hint) for e in result.effects] == [
        ("edge", EffectKind.PUSHED, "drafts/web", "no", "Ask.")
    ]
    assert result.unfinished == dict.fromkeys([web, db], Unfinished("no", "Ask.", pushed=True))
    assert result.exits == {Exit.REFUSED}


def test_only_repositories_with_something_to_write_are_written(tmp_path: Path) -> None:
    edge = Edge(tmp_path)
    new, same = edge.created("web"), edge.change("same")

    assert _by_url([same]) == {}
    assert _by_url([same, new]) == {"file:///edge": [same, new]}
