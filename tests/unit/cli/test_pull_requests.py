"""Filters of pull requests on the command line."""

from typing import Any

import pytest

from reconciler.base.errors import UsageError
from reconciler.cli.pull_requests import ListedPull, PullFilter, find_pulls
from reconciler.inventory.inventory import Inventory
from reconciler.names.ids import ObjectKey
from reconciler.records.state import SetRecord
from tests.support.plan_values import a_pull
from tests.support.sets import repository, world

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


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("edge/web", [1]), ("edge/a/web", [1]), ("web", [2]), ("edge/*", [1]), ("edge#2", [2]), ("2", [2])],
)
def test_package_outside_of_every_repository_is_named_by_its_path_alone(
    text: str, numbers: list[int]
) -> None:
    nothing: Any = None
    listed = [
        ListedPull(view, a_pull(number=n, head=f"drafts/{path}/w"), nothing, nothing, is_registered=n == 1)
        for n, path, view in ((1, "a/web", repository("edge", directory="a")), (2, "web", repository("edge")))
    ]

    assert [named.pull.number for named in find_pulls(listed, text)] == numbers
