"""Sub-packages with an upstream of their own, as the row of their package tells of them."""

import pytest

from reconciler.inventory.inventory import Commit, PackageRevision
from reconciler.names.ids import Lifecycle
from reconciler.plan.changes import SubpackageNote
from reconciler.plan.decide import subpackage_notes
from reconciler.records.state import SubpackageRecord
from reconciler.render.rendered import Package
from tests.support.plan_values import oid, web_context
from tests.support.sets import a_package, registered
from tests.support.values import replace

REPO = "https://host/catalog"
REVISIONS = tuple(
    PackageRevision(
        "db", f"v{n}", n, Lifecycle.PUBLISHED, f"refs/tags/db/v{n}", Commit(oid(f"a{n}"), n), oid(f"c{n}")
    )
    for n in (2, 1)
)
CATALOG = registered("catalog", git=REPO, packages={"db": a_package("db", published=REVISIONS)})


@pytest.mark.parametrize(
    ("given", "is_on_main", "repository", "before", "newer"),
    [
        ({}, False, "catalog", "", "db/v2"),
        ({"commit": oid("a2")}, False, "catalog", "", ""),
        ({"commit": oid("a9")}, False, "catalog", "", ""),
        ({"package": "web"}, False, "host/catalog", "", ""),
        ({"repo": "https://host/gone.git"}, False, "host/gone", "", ""),
        ({"before": "db/v0"}, False, "catalog", "db/v0", "db/v2"),
        ({"before": "db/v1"}, False, "catalog", "", "db/v2"),
        ({"before": "db/v0"}, True, "catalog", "", "db/v2"),
    ],
)
def test_subpackage_is_told_with_what_moves_and_what_is_newer(
    given: dict[str, str], *, is_on_main: bool, repository: str, before: str, newer: str
) -> None:
    record = replace(SubpackageRecord("sub", REPO, "db", "db/v1", oid("a1")), **given)
    context = web_context(sources={"host/catalog": (CATALOG,)})
    package, main = Package(oid("e1"), subpackages=(record,)), oid("e1") if is_on_main else oid("b1")

    notes = list(subpackage_notes(package, main, context))

    assert notes == [SubpackageNote("sub", repository, record.package, before, "db/v1", newer)]
