"""Resolving a cluster of twice as many packages takes about twice as many steps.

Calls of functions are counted, not time: the same on each machine, however busy it is.
"""

import sys
from collections.abc import Callable
from types import FrameType

import pytest

from reconciler.dependencies.model.cluster import ClusterInputs, build_catalogue
from reconciler.dependencies.model.packages import (
    ApiNeed,
    Candidate,
    Dialect,
    Ecosystem,
    Gvk,
    Install,
    PackageId,
    PackageNeed,
    Requirement,
    version_range,
)
from reconciler.dependencies.solve.resolve import resolve_cluster
from reconciler.dependencies.versions import parse_strict

MOST_GROWTH = 2.2
"""Twice as many packages, and a little for sorting them."""
VERSIONS = 3


def cluster(packages: int, ecosystem: Ecosystem, dialect: Dialect, *, by_api: bool = False) -> ClusterInputs:
    """Return a cluster whose user installs every package, and each needs the next one."""

    def need(number: int, text: str) -> PackageNeed:
        return PackageNeed(PackageId(ecosystem, f"x.example.com/p{number}"), version_range(dialect, text))

    def requires(number: int, version: int) -> tuple[Requirement, ...]:
        if number + 1 == packages:
            return ()
        lower = max(1, version - 1)
        wanted = (
            ApiNeed(Gvk("e.io", "v1", f"K{number + 1}")) if by_api else need(number + 1, f">={lower}.0.0")
        )
        return (Requirement((wanted,)),)

    candidates = (
        Candidate(
            need(number, "").id,
            parse_strict(f"{version}.0.0"),
            requires=requires(number, version),
            provides=(Gvk("e.io", "v1", f"K{number}"),),
        )
        for number in range(packages)
        for version in range(1, VERSIONS + 1)
    )
    installs = tuple(Install("", f"i{number}", dialect, need(number, "")) for number in range(packages))
    return ClusterInputs(installs, build_catalogue(candidates))


CLUSTERS: dict[str, Callable[[int], ClusterInputs]] = {
    "Crossplane packages, which may not need one another in a circle": lambda count: cluster(
        count, Ecosystem.XPKG, Dialect.CROSSPLANE
    ),
    "Carvel packages": lambda count: cluster(count, Ecosystem.CARVEL, Dialect.CARVEL),
    "packages that need APIs": lambda count: cluster(count, Ecosystem.CARVEL, Dialect.CARVEL, by_api=True),
}


def calls(work: Callable[[], object]) -> int:
    """Return how many functions are called."""
    count = 0

    def watch(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(watch)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


@pytest.mark.parametrize("kind", CLUSTERS)
def test_steps_grow_as_the_packages_of_a_cluster(kind: str) -> None:
    resolve_cluster(CLUSTERS[kind](5))  # what is loaded once is no growth
    small, large = CLUSTERS[kind](60), CLUSTERS[kind](120)

    few, many = calls(lambda: resolve_cluster(small)), calls(lambda: resolve_cluster(large))

    assert many <= MOST_GROWTH * few
