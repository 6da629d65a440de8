"""Provenance: where the fields of a package come from."""

from dataclasses import replace

import pytest

from reconciler.api.porch import InjectionSelector, PackageVariantSpec, Upstream
from reconciler.errors import Location
from reconciler.expand import DesiredVariant
from reconciler.ids import ObjectName
from reconciler.inventory import Source
from reconciler.plan.provenance import Origin, find_origins
from reconciler.resolve.resolution import ResolvedVariant
from reconciler.snapshot import SnapshotObject
from tests.support.model import blueprint
from tests.support.plan_values import PACKAGE, WEB, a_pin
from tests.support.points import team_point
from tests.support.sets import repository, snapshot, world

EDGE = repository("edge")
BLUE = SnapshotObject(
    "hr.example.com/v1", "Team", "default", "blue", {}, {}, {"spec": {}}, Location("snapshot/teams.yaml", 3)
)


def origins(key: ObjectName, *injectors: str) -> list[Origin]:
    spec = PackageVariantSpec(
        upstream=Upstream(repo="blueprints", package="web", revision=1),
        injectors=[InjectionSelector(name=name) for name in injectors],
    )
    variant = DesiredVariant(key, "", spec, Source(Location("web.yaml", 1)))
    resolved = ResolvedVariant(variant, EDGE.key, PACKAGE, a_pin(1))
    inventory = replace(world(views=(EDGE,)), snapshot=snapshot(BLUE))
    return list(find_origins(resolved, blueprint("web", team_yaml=team_point("required")), inventory, {}))


@pytest.mark.parametrize(
    ("injector", "value", "source", "at"),
    [
        ("blue", "blue", "object Team default/blue of the snapshot", BLUE.location),
        ("red", "(not injected)", "", None),
    ],
)
def test_injected_field_comes_from_an_object_or_says_why_not(
    injector: str, value: str, source: str, at: Location | None
) -> None:
    (origin,) = (origin for origin in origins(WEB, injector) if origin.file == "team.yaml")

    assert origin.field.startswith("Team/team")
    assert (origin.value, origin.location) == (value, at)
    assert source in origin.source


def test_package_comes_from_its_upstream_and_its_owner_from_the_variant() -> None:
    found = {(origin.file, origin.field): origin for origin in origins(WEB)}

    assert found["Kptfile", "upstreamLock"].value == a_pin(1).commit.oid
    assert found["Kptfile", "metadata.annotations.reconciler.dev/owner"].value == "default/default/web"
    assert found["*", ""].source.startswith(f"upstream web/v1 at commit {a_pin(1).commit.oid}")


def test_generated_manifests_come_from_the_lock_of_their_cluster() -> None:
    first, *others = origins(ObjectName("default", "dependencies@prod"))

    assert first == Origin("*", "", "", "the lock of cluster prod, where no person says otherwise")
    assert {origin.file for origin in others} == {"Kptfile"}
