"""A locked version that is withdrawn: it stays, that is told with what would replace it, and none below."""

import pytest

from reconciler.dependencies.catalog.cluster_inputs import FleetInputs
from reconciler.dependencies.lock.format import DEFAULT_OPTIONS, LockUpdate, ResolveOptions, read_locks
from reconciler.dependencies.lock.update import update_locks
from reconciler.report.locks import lock_lines
from tests.support.dependency_manifests import install, needs, package, world_of
from tests.support.values import replace

SHOP = install("shop", "shop.io", "") + package("shop.io", "1.0.0", needs("db.io", ">=1.0.0"))
LOCKED = SHOP + package("db.io", "1.0.0") + package("db.io", "1.1.0")
WITHDRAWN = (
    SHOP
    + package("db.io", "1.0.0")
    + package("db.io", "1.1.0").replace(
        "metadata: {", "metadata: {annotations: {reconciler.dev/withdrawn: CVE}, "
    )
)


def decided(text: str, before: LockUpdate | None = None, *upgrade: str) -> LockUpdate:
    worlds = tuple(replace(world_of(text), cluster=name) for name in ("dev", "prod"))
    options = ResolveOptions(upgrade=frozenset(upgrade)) if upgrade else DEFAULT_OPTIONS
    return update_locks(FleetInputs(worlds), read_locks(before.files if before else {}), options=options)


def versions(update: LockUpdate) -> set[str]:
    packages = (p for scope in update.scopes if scope.after for p in scope.after.resolution.packages)
    return {package.version for package in packages if package.instance.name == "db.io"}


@pytest.mark.parametrize(
    ("more", "step", "upgraded"),
    [
        ("", "no other version of db.io that is not below it fits", "1.1.0"),
        (package("db.io", "1.2.0"), "`reconciler lock --upgrade db.io` takes 1.2.0", "1.2.0"),
    ],
)
def test_a_withdrawn_version_stays_and_is_told_with_what_replaces_it(more, step, upgraded) -> None:
    """Source: kapp-controller#201."""
    first = decided(LOCKED)

    after = decided(WITHDRAWN + more, first)
    again = decided(WITHDRAWN + more, after)
    freed = decided(WITHDRAWN + more, after, "db.io")

    told = f"db.io 1.1.0 is withdrawn: CVE; it stays locked in dev and 1 more cluster; {step}"
    for update in (after, again):
        assert [warning.message for warning in update.warnings] == [told]
        assert any(told in line for line in lock_lines(update))
        assert (versions(update), update.problems) == ({"1.1.0"}, ())
    assert (versions(freed), freed.problems) == ({upgraded}, ())
