"""Bugs of ours in the work on one repository or one row: everything else is done and shown."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from reconciler.inventory.inventory import RepositoryView
from reconciler.render.update import resources
from reconciler.report.report import Names
from tests.support.breaking.faults import Reader, forget
from tests.support.breaking.state import state_of
from tests.support.breaking.trial import others_differ, undisturbed
from tests.support.breaking.world import GENERATED, PACKAGES, world
from tests.support.git import Repo
from tests.support.world import git

NORTH = frozenset(name for name, repository in PACKAGES.items() if repository == "north")


def break_for(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, hits: Callable[..., bool]) -> None:
    """Let a function, method or property fail where `hits` says so of its arguments."""
    original = vars(owner)[name]
    call: Callable[..., Any] = original.fget if isinstance(original, property) else original

    def fails(*args: Any, **keywords: Any) -> Any:
        if hits(*args, **keywords):
            raise IndexError("odd")
        return call(*args, **keywords)

    forget()
    monkeypatch.setattr(owner, name, property(fails) if isinstance(original, property) else fails)


def of(unit: str) -> Callable[..., bool]:
    """Return what tells whether arguments are about one unit alone."""
    return lambda *args, **keywords: Reader().unit([*args, *keywords.values()]) == unit


def named(text: str) -> set[str]:
    return {name for name in PACKAGES if name in text}


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


@pytest.mark.parametrize("form", ["text", "json", "markdown"])
def test_a_row_of_a_check_that_breaks_is_a_problem_and_all_others_are_shown(
    monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    made = world()
    gone = {"manifests/birch.yaml": None, "manifests/hazel.yaml": None, "manifests/alder.yaml": None}
    git(made.control, "branch", "less", "main")
    Repo(made.control).commit(gone, branch="less")
    line = ("check", "--head", "less", "--output", form)
    break_for(monkeypatch, Names, "of", lambda _, change: change.package.path == "birch")

    said = made.run(*line)

    monkeypatch.undo()
    whole = made.run(*line)
    assert (said.code, said.err.count("Traceback")) == (1, 1)
    assert "IndexError" in said.out
    assert "package birch" in said.out
    if form == "json":
        rows = [each for each in json.loads(whole.out)["packages"] if each["name"] != "north/birch"]
        assert len(rows) > 1
        assert json.loads(said.out)["packages"] == rows
    assert named(whole.out) - {"birch"} <= named(said.out)


def test_a_merge_that_breaks_is_the_fault_of_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    before, made = undisturbed(), world()
    break_for(monkeypatch, resources, "merge_document", of("hazel"))

    said = made.run("apply", "--output", "json")

    report, state = json.loads(said.out), state_of(made)
    assert said.code == 1
    assert [each["subject"] for each in report["problems"] if each["reason"] == "Defect"] == [
        "PackageVariant default/hazel"
    ]
    assert others_differ(report, state, frozenset({"hazel"}), before) == []
    bug, _, rest = said.err.partition("\nTraceback ")
    assert "hazel" in bug.splitlines()[-1]
    assert "IndexError: odd" in rest
