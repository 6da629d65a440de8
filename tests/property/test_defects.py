"""A bug of ours in the work on one unit is the fault of that unit, and changes nothing for all others."""

import random
from functools import cache

import pytest

from tests.support.breaking.faults import ERRORS, find_function, recording
from tests.support.breaking.trial import failures, undisturbed
from tests.support.breaking.world import world

STAGES = ("expand", "functions", "krm", "plan", "render", "resolve")
"""The stages of which every function is drawn; `make slow` draws more of each."""


@cache
def called() -> dict[tuple[str, str], set[str]]:
    """Return the functions that an apply calls for one unit alone, with these units."""
    functions: dict[tuple[str, str], set[str]] = {}
    with recording(functions):
        world().run("apply")
    return {key: units for key, units in functions.items() if find_function(*key) is not None}


def found(stage: str, number: int, seed: int) -> list[str]:
    """Return what does not hold where drawn functions of a stage fail for a drawn unit."""
    draw = random.Random(f"{stage} {seed}")
    functions = sorted(key for key in called() if key[0].split(".")[1] == stage)
    assert len(functions) >= number, functions
    lines = []
    for module, name in draw.sample(functions, number):
        function, unit = find_function(module, name), draw.choice(sorted(called()[module, name]))
        assert function is not None
        _, faults = failures(function, unit, draw.choice(ERRORS), undisturbed())
        lines += [f"{module}.{name} for {unit}: {fault}" for fault in faults if fault != "it was not called"]
    return lines


@pytest.mark.parametrize("stage", STAGES)
def test_what_breaks_in_one_unit_leaves_all_others_as_without_it(stage: str) -> None:
    assert found(stage, number=2, seed=1) == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2, 3])
@pytest.mark.parametrize("stage", STAGES)
def test_what_breaks_in_one_unit_leaves_all_others_as_without_it_in_many_functions(
    stage: str, seed: int
) -> None:
    assert found(stage, number=8, seed=seed) == []
