"""Generated variants that no lock needs: released, held for packages on main, or kept (law 4)."""

from dataclasses import replace
from functools import cache

import pytest

from reconciler.dependencies.catalog.published import PublishedPackages
from reconciler.dependencies.update.fleet import ClusterUpdate, LockUpdate
from reconciler.ids import ObjectName
from reconciler.inventory import Inventory
from reconciler.resolve.garbage_collect import find_leaving
from reconciler.resolve.resolution import Resolution
from tests.support.decision_table import Case, DecisionTable, Row
from tests.support.plan_values import a_record
from tests.support.sets import repository, world

BASE = ObjectName("default", "base")
TABLE: DecisionTable[bool] = DecisionTable(
    {
        "made by": ("dependents", "a manifest"),
        "needed": ("no", "yes"),
        "repository": ("of the cluster", "of no cluster", "not registered"),
        "lock of its cluster": ("resolved", "not finished", "none"),
        "lock of another cluster": ("resolved", "not finished"),
        "incomplete": ("nothing", "its cluster", "another cluster", "any cluster"),
    },
    [
        ({"made by": "a manifest"}, False, "it was not generated"),
        ({"needed": "yes"}, False, "a lock needs it"),
        ({"repository": ("of no cluster", "not registered")}, False, "its cluster is not known"),
        ({"lock of its cluster": "not finished"}, False, "its cluster was not resolved completely"),
        ({"incomplete": "its cluster"}, False, "a manifest of its cluster is not understood"),
        ({"incomplete": "any cluster"}, False, "a manifest that may be of any cluster is not understood"),
        ({}, True, "nothing needs it, and everything was understood"),
    ],
)


@cache
def inventory_of(cluster: str, *, registered: bool) -> Inventory:
    return world(views=(repository("edge", cluster=cluster),) if registered else ())


def is_released(case: Case) -> bool:
    record = a_record(
        name=BASE.name, requested_by=("default/web",) if case["made by"] == "dependents" else ()
    )
    where = case["repository"]
    inventory = inventory_of("prod" if where == "of the cluster" else "", registered="not" not in where)
    incomplete = {"its cluster": {"prod"}, "another cluster": {"dev"}, "any cluster": {""}}
    scopes = [ClusterUpdate("dev", None, None, finished=case["lock of another cluster"] == "resolved")]
    if case["lock of its cluster"] != "none":
        scopes.append(ClusterUpdate("prod", None, None, finished=case["lock of its cluster"] == "resolved"))
    leaving = find_leaving(
        replace(inventory, records={BASE: record}),
        PublishedPackages(),
        Resolution(),
        LockUpdate(tuple(scopes)),
        needed=frozenset({BASE} if case["needed"] == "yes" else ()),
        incomplete=frozenset(incomplete.get(case["incomplete"], ())),
    )
    assert not leaving.held
    return BASE in leaving.released


def test_table_of_released_variants_is_complete() -> None:
    TABLE.check_complete()


@pytest.mark.parametrize("row", TABLE.rows, ids=str)
def test_generated_variant_is_released_only_if_everything_was_understood(row: Row[bool]) -> None:
    assert TABLE.mistakes(row, is_released) == []
