"""Verified upstreams: which revisions are taken, and what a variant is told about others."""

import pytest

from reconciler.base.errors import Location
from reconciler.base.reasons import Reason
from reconciler.inventory.inventory import Source, Trust
from reconciler.names.ids import Oid
from reconciler.names.problems import Problem
from reconciler.resolve.upstreams import NOT_VERIFIED_HINT, check_pin, find_fault
from tests.support.plan_values import a_desired_variant, a_pin, oid
from tests.support.sets import world
from tests.support.values import replace

PIN = a_pin()
URL, COMMIT = PIN.package.url, PIN.commit.oid
UNSIGNED = f"web/v1 is no signed tag of commit {COMMIT[:12]}"


@pytest.mark.parametrize(
    ("trust", "fault"),
    [
        (None, ""),
        (Trust(tags=frozenset({("web/v1", COMMIT)})), ""),
        (Trust(tags=frozenset({("web/v2", COMMIT)})), UNSIGNED),
        (Trust(tags=frozenset({("web/v1", oid("a9"))})), UNSIGNED),
        (Trust(), UNSIGNED),
        (Trust(faults={("web/v1", COMMIT): "its key has expired"}), "its key has expired"),
        (Trust(faults={("web/v2", COMMIT): "its key has expired"}), UNSIGNED),
    ],
)
def test_revision_is_verified_by_its_signed_name_if_a_rule_is_about_its_repository(trust, fault) -> None:
    class Marks:
        def mark(self, path: tuple[str | int, ...]) -> tuple[int, int]:
            return 9 if path == ("spec", "upstream") else 1, 1

    inventory = replace(world(), trust={} if trust is None else {URL: trust})
    variant = a_desired_variant(source=Source(Location("web.yaml"), 0, Marks()))

    assert find_fault(URL, "web/v1", Oid(COMMIT), inventory) == fault
    assert find_fault("host/other", "web/v1", Oid(COMMIT), inventory) == ""
    problem = Problem(
        Location("web.yaml", 9, 1),
        Reason.UPSTREAM_NOT_VERIFIED,
        f"Upstream web/v1 of repository blueprints is not verified: {fault}",
        NOT_VERIFIED_HINT,
        "PackageVariant default/web",
    )
    assert check_pin(PIN, variant, inventory) == (problem if fault else PIN)
