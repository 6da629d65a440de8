"""A bug of ours in the work on one unit is the fault of that unit, and changes nothing for all others."""

import json
import os
import pkgutil
import random
from functools import cache

import pytest

import reconciler
from tests.support.breaking.faults import ERRORS, broken, find_function, forget, recording
from tests.support.breaking.trial import NOT_CALLED, failures, undisturbed
from tests.support.breaking.world import PACKAGES, world

STAGES = sorted(each.name for each in pkgutil.iter_modules(reconciler.__path__) if each.ispkg)
"""The packages of ours, of each of which functions are drawn: more by `make slow`, most by `make laws`."""
FUZZ = int(os.environ.get("RECONCILER_FUZZ", "1"))

ASKED_EVERYWHERE = {
    ("reconciler.forge.local.pulls", "number_of"),
    ("reconciler.git.trees", "_check"),
    ("reconciler.git.repository", "_is_text"),
    ("reconciler.git.trees", "check_entry"),
    ("reconciler.inventory.inventory", "RepositoryView.full_path"),
    ("reconciler.inventory.inventory", "_full_path"),
    ("reconciler.names.refs", "parse_ref"),
}
"""What all stages ask of a name. Where it breaks, nothing names the unit, and what holds it is left alone."""

NOT_OF_ONE_UNIT = {
    ("reconciler.krm.yaml.compose", "_roots"): "a RecursionError is a document that is nested too deeply",
    (
        "reconciler.api.porch",
        "Upstream._read_named_revision",
    ): "pydantic takes a ValueError for a wrong field",
    ("reconciler.base.progress", "Task.advance"): "it counts units, and has none",
    ("reconciler.base.values", "read_record"): "a ValueError is a record that is refused",
    ("reconciler.base.redact", "outgoing_file"): "what may not be written is a failed write of the state",
    ("reconciler.base.redact", "refuse_credentials"): "the same",
    ("reconciler.base.redact", "mask_credentials"): "all that is printed passes it",
    ("reconciler.git.commits", "decode_text"): "a commit is read for all in whose history it is",
    (
        "reconciler.git.urls",
        "local_path",
    ): "whether the control repository is of this machine is asked with it",
    ("reconciler.records.state", "is_lines_file"): "it tells files of the state apart by their paths",
    ("reconciler.report.text", "effect_line"): "the log says that the lines about effects broke",
}
"""Functions whose failure is not told as one of the unit, with why; they are drawn like others."""


@cache
def called() -> dict[tuple[str, str], set[str]]:
    """Return the functions that an apply calls for one unit alone, with these units."""
    functions: dict[tuple[str, str], set[str]] = {}
    forget()  # else what an earlier test of this process left in a cache decides what is drawn
    with recording(functions):
        world().run("apply")
    return {
        key: units
        for key, units in functions.items()
        if key not in ASKED_EVERYWHERE and find_function(*key) is not None
    }


def found(stage: str, number: int, seed: int) -> list[str]:
    """Return what does not hold where drawn functions of a stage fail for a drawn unit."""
    draw = random.Random(f"{stage} {seed}")
    functions = sorted(key for key in called() if key[0].split(".")[1] == stage)
    tried, lines = 0, list[str]()
    for module, name in draw.sample(functions, min(3 * number, len(functions))):
        function, unit = find_function(module, name), draw.choice(sorted(called()[module, name]))
        assert function is not None
        _, faults = failures(function, unit, draw.choice(ERRORS), undisturbed())
        if faults == [NOT_CALLED]:
            continue  # this run has its result from another one, or calls it for several units
        if (module, name) not in NOT_OF_ONE_UNIT:
            lines += [f"{module}.{name} for {unit}: {fault}" for fault in faults]
        tried += 1
        if tried == number:
            break
    return lines


@pytest.mark.parametrize("stage", STAGES)
def test_what_breaks_in_one_unit_leaves_all_others_as_without_it(stage: str) -> None:
    assert found(stage, number=1, seed=1) == []


@pytest.mark.slow
@pytest.mark.parametrize("stage", STAGES)
def test_what_breaks_in_one_unit_leaves_all_others_as_without_it_in_many_functions(stage: str) -> None:
    assert found(stage, number=3 * FUZZ, seed=2) == []


@pytest.mark.parametrize(
    ("module", "name", "unit"),
    [
        ("reconciler.plan.compose", "is_uncertain", "cedar"),
        ("reconciler.plan.approvals", "_unwanted", "maple"),
        ("reconciler.plan.approvals", "_losing", "elm"),
    ],
)
def test_a_package_that_cannot_be_judged_is_not_approved_and_all_others_are(
    module: str, name: str, unit: str
) -> None:
    def approved() -> dict[str, str]:
        said = made.run("approve", "--all", "--output", "json")
        return {item["package"]: item["result"] for item in json.loads(said.out)["items"]}

    function = find_function(module, name)
    assert function is not None
    made = world()
    made.run("apply")
    expected = approved()
    made = world()
    made.run("apply")
    with broken(function, unit, ERRORS[0]) as failed:
        found = approved()
    package = f"{PACKAGES[unit]}/{unit}"
    assert failed
    assert found == expected | {package: "refused"} != expected
