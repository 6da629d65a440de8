"""One function that fails for one unit, in one run: what must hold of all other units, and afterwards."""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from types import FunctionType
from typing import Any

from tests.support.breaking.faults import Reader, broken, narrowest
from tests.support.breaking.state import State, state_of
from tests.support.breaking.world import CONTAINERS, GENERATED, world

FAILED = "The reconciler failed here"
NOT_CALLED = "it was not called"


@dataclass(frozen=True)
class Undisturbed:
    """What the repositories hold before and after runs without any fault, and the rows of the report."""

    before: State
    code: int
    rows: dict[str, Any]
    after: State
    settled: State


@cache
def undisturbed() -> Undisturbed:
    """Return what is there where nothing fails."""
    made = world()
    before, said = state_of(made), made.run("apply", "--output", "json")
    after = state_of(made)
    made.run("apply")
    return Undisturbed(before, said.code, _rows(json.loads(said.out)), after, state_of(made))


def others_differ(
    report: dict[str, Any], state: State, mine: frozenset[str], wanted: Undisturbed
) -> list[str]:
    """Return what of the packages that are not `mine` is not as without the fault, refs and rows."""
    rows = _rows(report)
    return _differences(state, wanted.after, mine, "is not as without the fault") + [
        f"the row of {key} differs"
        for key, row in wanted.rows.items()
        if not _packages(key) & mine and rows.get(key) != row
    ]


def failures(
    function: FunctionType, unit: str, make: Callable[[], Exception], undisturbed: Undisturbed
) -> tuple[str, list[str]]:
    """Return the unit that the fault was laid at, and what does not hold."""
    made = world()
    with broken(function, unit, make) as failed:
        said = made.run("apply", "--output", "json")
    if not failed:
        return "", [NOT_CALLED]
    state, found = state_of(made), []
    if said.code == undisturbed.code and state == undisturbed.after:
        return "", []  # who calls it expects this kind of error
    try:
        report = json.loads(said.out)
    except json.JSONDecodeError:
        return "", [f"there is no report: {said.err[-300:]}"]
    texts = [*_blamed(report)]
    blamed = {_packages(text) for text in texts}
    # A branch of the control repository is a unit: the next run writes what is missing.
    unwritten = tuple(f"{each} " for each in ("state", "status") if f"reconciler/fleet/{each}" in texts)
    state = _without(state, unwritten)
    wanted = replace(undisturbed, after=_without(undisturbed.after, unwritten))
    mine = frozenset().union(*blamed)
    if said.code != 1:
        found.append(f"exit code {said.code}")
    if "Traceback" not in said.err:
        found.append("there is no traceback")
    # Of a blueprint's packages one stands for all that are rendered alike.
    if not blamed and not any(name in said.err for name in (unit, *_packages(unit))):
        found.append("nothing names the unit")
    most = next((names for names in sorted(_around(unit), key=len) if mine <= names), None)
    if most is None:
        found.append(f"the fault of {unit} is laid at {sorted(mine)}")
    mine |= GENERATED if mine & GENERATED else frozenset()
    found += others_differ(report, state, mine, wanted)
    for name in sorted(mine & {unit}):
        before, after = undisturbed.before[name], undisturbed.after[name]
        for key in sorted({*state[name], *before}):
            if not key.startswith("status ") and state[name].get(key) not in (
                before.get(key),
                after.get(key),
            ):
                found.append(f"{key} is neither as before nor as without the fault")
    again = made.run("apply")
    settled, due = (_without(each, unwritten) for each in (state_of(made), undisturbed.settled))
    found += _differences(settled, due, mine, "differs after the next run")
    numbered, due = _unnumbered(settled, mine), _unnumbered(due, mine)
    found += _differences(numbered, due, frozenset(), "differs but for its number after the next run")
    if again.code != undisturbed.code:
        found.append(f"exit code {again.code} of the next run")
    return "+".join(sorted(mine)), found


def _blamed(report: dict[str, Any]) -> Iterator[str]:
    """Yield what has a defect: the subjects of problems, and what failed effects are about."""
    yield from (
        each["subject"] or each["location"]["path"]
        for each in report["problems"]
        if each["reason"] == "Defect"
    )
    effects = (each for each in report.get("effects", ()) if FAILED in each["error"])
    yield from (f"{each['ref']}" or each["repository"] for each in effects)


def _packages(text: str) -> frozenset[str]:
    """Return the packages that a text is about: one, or all of a repository or set."""
    units = narrowest(Reader().units(text, 1))
    return frozenset(name for unit in units for name in CONTAINERS.get(unit, {unit}))


def _around(unit: str) -> list[frozenset[str]]:
    """Return the packages of a unit, and of what it is in."""
    own = _packages(unit)
    around = [own, *(frozenset(names) for names in CONTAINERS.values() if own <= names)]
    # A set is all or nothing: what stalls one of its packages stalls the others.
    return [names | GENERATED if names & GENERATED else names for names in around]


def _without(state: State, prefixes: tuple[str, ...]) -> State:
    return {
        name: {k: v for k, v in own.items() if not k.startswith(prefixes or ("-",))}
        for name, own in state.items()
    }


def _unnumbered(state: State, names: frozenset[str]) -> State:
    """Return what is there of some packages, without the numbers of drafts and what has them in it.

    Where a package was published by one run and updated by the next, the numbers of its drafts are others.
    """
    return {
        name: {re.sub(r"packagevariant-\d+", "packagevariant", key): "" for key in state[name]}
        for name in names
    }


def _rows(report: dict[str, Any]) -> dict[str, Any]:
    """Return the rows of packages."""
    rows = {}
    for change in report["changes"]:
        key = f"{change['repository']['name']}/{change['package']['path']}"
        rows[key] = {name: value for name, value in change.items() if name != "state"}
    return rows


def _differences(state: State, wanted: State, left_out: frozenset[str], what: str) -> list[str]:
    return [
        f"{key} {what}"
        for name in sorted(wanted.keys() - left_out)
        for key in sorted({*state[name], *wanted[name]})
        if state[name].get(key) != wanted[name].get(key)
    ]
