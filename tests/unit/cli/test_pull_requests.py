"""Filters of pull requests on the command line."""

import pytest

from reconciler.base.errors import UsageError
from reconciler.cli.pull_requests import PullFilter
from reconciler.inventory.inventory import Inventory
from reconciler.names.ids import ObjectKey
from reconciler.records.state import SetRecord
from tests.support.sets import world

INVALID = ObjectKey("config.porch.kpt.dev", "PackageVariantSet", "team", "metrics")
RECORD = SetRecord(namespace="team", name="logs", uid="u", manifest="m/logs.yaml", targets=1)
INVENTORY = world(stalled=frozenset({INVALID}), set_records={RECORD.key: RECORD})


@pytest.mark.parametrize(
    ("inventory", "name", "refusal"),
    [
        (INVENTORY, "metrics", ""),
        (INVENTORY, "team/metrics", ""),
        (INVENTORY, "logs", ""),
        (INVENTORY, "metrisc", "metrisc: Did you mean metrics or team/metrics?"),
        (INVENTORY, "a", "a: PackageVariantSets of this fleet: team/logs, team/metrics."),
        (world(), "web", "web: No PackageVariantSet is declared."),
    ],
)
def test_a_name_that_no_set_has_is_refused_with_the_names_there_are(
    inventory: Inventory, name: str, refusal: str
) -> None:
    printed = ""
    try:
        PullFilter((name,)).check_sets(inventory)
    except UsageError as error:
        printed = f"{error}: {error.hint}"

    assert printed == (f"There is no PackageVariantSet {refusal}" if refusal else "")
