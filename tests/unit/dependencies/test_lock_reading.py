"""What a lock says, read back: pins with their requirements, choices, owners, and who takes over."""

from typing import Any

import pytest

from reconciler.dependencies.lock.format import transferred_pins
from reconciler.dependencies.model.cluster import ClusterInputs, build_catalogue
from reconciler.dependencies.model.instances import Instance, MetNeed, Resolved, Slot, SlotKind
from reconciler.dependencies.model.packages import (
    ApiNeed,
    Candidate,
    Dialect,
    Ecosystem,
    Gvk,
    Install,
    InterfaceNeed,
    PackageId,
    PackageNeed,
    version_range,
)
from reconciler.dependencies.solve.alternatives import any_version
from reconciler.dependencies.versions.version import VersionError, parse_strict
from tests.support.dependency_worlds import pin as locked_as

DB = PackageId(Ecosystem.CARVEL, "db.io")
CLUSTER = Slot(SlotKind.CLUSTER)
SHARED = Slot(SlotKind.NAMESPACE, "shop")


def own(name: str, namespace: str = "shop") -> Slot:
    return Slot(SlotKind.INSTALL, namespace, (name,))


def locked(*dependencies: MetNeed, ecosystem: str = "carvel", **fields: Any) -> Resolved:
    instance = Instance(ecosystem=ecosystem, name="x.io", slot=Slot(SlotKind.NAMESPACE, namespace="n"))
    return Resolved(
        instance=instance, dialect="d", dependencies=dependencies, **{"version": "v1.0.0", **fields}
    )


def dependency(**fields: Any) -> MetNeed:
    every = {
        "signature": "s",
        "need": "package",
        "id": "carvel:db.io",
        "dialect": "carvel",
        "via": "candidate",
    }
    return MetNeed(**{**every, **fields})


def test_pin_has_version_digest_source_and_the_requirements_that_were_recorded() -> None:
    package = locked(
        dependency(constraints=">=1.0.0", prereleases=("rc",), alias="a", optional=True),
        dependency(need="api", id="g.io/v1/Thing"),
        dependency(need="interface", id="io.x", dialect="porter", constraints="1.x"),
        digest="sha256:1",
        source="x.io/mirror",
        kind="Provider",
    )

    candidate = package.candidate
    assert (candidate.id, candidate.version.text) == (PackageId(Ecosystem.CARVEL, "x.io"), "v1.0.0")
    assert (candidate.digest, candidate.source, candidate.kind) == ("sha256:1", "x.io/mirror", "")
    first, second, third = candidate.requires
    assert (first.alias, first.optional, second.alias, second.optional) == ("a", True, "", False)
    assert first.alternatives == (
        PackageNeed(DB, version_range(Dialect.CARVEL, ">=1.0.0", prereleases=("rc",))),
    )
    assert second.alternatives == (ApiNeed(Gvk("g.io", "v1", "Thing")),)
    assert third.alternatives == (InterfaceNeed("io.x", version_range(Dialect.PORTER, "1.x")),)


def test_pin_of_crossplane_has_its_kind() -> None:
    assert locked(ecosystem=Ecosystem.XPKG, kind="Provider").candidate.kind == "Provider"


@pytest.mark.parametrize("package", [locked(version="none"), locked(dependency(constraints="a b"))])
def test_version_or_range_that_somebody_broke_is_an_error(package: Resolved) -> None:
    with pytest.raises(VersionError):
        _ = package.candidate


# Who takes over


def install(name: str, namespace: str = "shop", *, external: bool = False) -> Install:
    return Install(namespace, name, Dialect.CARVEL, PackageNeed(DB, any_version(DB)), external=external)


def pin(slot: Slot, version: str = "1.0.0", package: PackageId = DB) -> Resolved:
    return locked_as(Instance(*package, slot), Candidate(package, parse_strict(version)))


def transferred(pins: list[Resolved], *installs: Install) -> list[Resolved]:
    """Return the pins that others take over."""
    every = transferred_pins(tuple(pins), ClusterInputs(installs, build_catalogue([])))
    assert every[: len(pins)] == tuple(pins)
    return list(every[len(pins) :])


@pytest.mark.parametrize(
    ("there", "installs", "slots"),
    [
        (own("gone"), [], [SHARED]),
        (own("mine"), [install("mine")], []),
        (own("mine"), [install("mine", external=True)], [SHARED]),
        (SHARED, [], []),
        (SHARED, [install("mine")], [own("mine")]),
        (SHARED, [install("b"), install("a")], [own("a"), own("b")]),
        (SHARED, [install("mine", "other")], []),
        (SHARED, [install("mine", external=True)], []),
        (CLUSTER, [install("mine", "other")], [own("mine", "other")]),
        (CLUSTER, [], []),
        (Slot(SlotKind.FOR, "shop", ("a", "b")), [install("mine")], []),
    ],
)
def test_version_goes_from_a_generated_package_to_a_users_manifest_and_back(
    there: Slot, installs: list[Install], slots: list[Slot]
) -> None:
    assert transferred([pin(there)], *installs) == [pin(slot) for slot in slots]


def test_package_that_is_locked_itself_takes_nothing_over() -> None:
    assert transferred([pin(SHARED), pin(own("mine"), "2.0.0")], install("mine")) == []
    assert transferred([pin(own("gone")), pin(SHARED, "2.0.0")]) == []
    other = PackageId(Ecosystem.CARVEL, "web.io")
    assert transferred([pin(SHARED, package=other)], install("mine")) == []


def test_first_of_several_pins_is_taken_over() -> None:
    pins = [pin(own("a"), "1.0.0"), pin(own("b"), "2.0.0")]

    assert transferred(pins) == [pin(SHARED, "1.0.0")]
