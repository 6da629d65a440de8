"""Bugs of ours in the work on one repository or one row: everything else is done and shown."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from reconciler.inventory.inventory import RepositoryView
from tests.support.breaking.state import state_of
from tests.support.breaking.trial import others_differ, undisturbed
from tests.support.breaking.world import GENERATED, PACKAGES, world

NORTH = frozenset(name for name, repository in PACKAGES.items() if repository == "north")


def break_for(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, hits: Callable[..., bool]) -> None:
    """Let a function, method or property fail where `hits` says so of its arguments."""
    original = vars(owner)[name]
    call: Callable[..., Any] = original.fget if isinstance(original, property) else original

    def fails(*args: Any, **keywords: Any) -> Any:
        if hits(*args, **keywords):
            raise IndexError("odd")
        return call(*args, **keywords)

    monkeypatch.setattr(owner, name, property(fails) if isinstance(original, property) else fails)


@pytest.mark.parametrize("fact", ["is_planned", "full_path", "is_available"])
def test_a_repository_whose_facts_break_is_unavailable_and_no_other_is(
    monkeypatch: pytest.MonkeyPatch, fact: str
) -> None:
    before, made = undisturbed(), world()
    break_for(monkeypatch, RepositoryView, fact, lambda view, *_: view.key.name == "north")

    said = made.run("apply", "--output", "json")

    report, state = json.loads(said.out), state_of(made)
    assert said.code == 1
    defects = [each["subject"] for each in report["problems"] if each["reason"] == "Defect"]
    assert defects == ["Repository default/north"]
    # A set is all or nothing, and one of its packages is there.
    assert others_differ(report, state, NORTH | GENERATED, before) == []
    for name in NORTH:
        kept = {key: value for key, value in state[name].items() if not key.startswith("status ")}
        assert kept == {key: value for key, value in before.before[name].items() if key in kept}
