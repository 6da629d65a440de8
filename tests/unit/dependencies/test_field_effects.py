"""What becomes of each field of the kinds that install packages: the table is whole, and each row is so."""

from enum import Enum
from typing import Any

import pytest
from pydantic import BaseModel

from reconciler.api.carvel import PackageInstallSpec
from reconciler.api.crossplane import CrossplanePackageSpec
from reconciler.api.porter import Installation
from reconciler.base.errors import Location
from reconciler.dependencies.dialects import read_manifest
from reconciler.dependencies.dialects.reading import ParsedManifest
from reconciler.inventory.inventory import Source
from tests.support.values import replace


class Effect(Enum):
    USED = "it decides what is locked or generated"
    HANDED_DOWN = "generated dependencies get it"
    CONTROLLER = "it is for the controller in the cluster: without effect here"
    REFUSED = "it is refused"


USED, HANDED_DOWN, CONTROLLER, REFUSED = Effect

Rows = dict[str, tuple[Effect, Any]]

CROSSPLANE: Rows = {
    "package": (USED, "x.io/b:v1.0.0"),
    "revisionActivationPolicy": (USED, "Manual"),
    "revisionHistoryLimit": (USED, 5),
    "ignoreCrossplaneConstraints": (USED, True),
    "skipDependencyResolution": (USED, True),
    "packagePullSecrets": (HANDED_DOWN, [{"name": "pull"}]),
    "packagePullPolicy": (HANDED_DOWN, "Always"),
    "serviceAccount": (HANDED_DOWN, {"annotations": {"a": "b"}}),
    "runtimeConfigRef": (CONTROLLER, {"name": "slim"}),
    "controllerConfigRef": (CONTROLLER, {"name": "slim"}),
    "commonLabels": (CONTROLLER, {"a": "b"}),
    "commonAnnotations": (CONTROLLER, {"a": "b"}),
    "skipDependencies": (REFUSED, True),
}
CARVEL: Rows = {
    "packageRef": (USED, {"refName": "b.io", "versionSelection": {"constraints": "1.0.0"}}),
    "dependencies": (USED, {"install": False}),
    "cluster": (USED, {"kubeconfigSecretRef": {"name": "edge"}}),
    "serviceAccountName": (HANDED_DOWN, "installer"),
    "defaultNamespace": (CONTROLLER, "apps"),
    "values": (CONTROLLER, [{"secretRef": {"name": "v"}}]),
    "paused": (CONTROLLER, True),
    "canceled": (CONTROLLER, True),
    "syncPeriod": (CONTROLLER, "10m"),
    "noopDelete": (CONTROLLER, True),
    "noDelete": (REFUSED, True),
}
PORTER: Rows = {
    "name": (USED, "other"),
    "namespace": (USED, "other"),
    "schemaVersion": (USED, "1.0.1"),
    "uninstalled": (USED, True),
    "labels": (USED, {"a": "b"}),
    "bundle": (USED, {"repository": "r.io/b", "version": "1.0.0"}),
    "custom": (USED, {"reconciler.dev/dependencies": {"db": "ns/mine"}}),
    "credentialSets": (USED, ["cloud"]),
    "parameters": (HANDED_DOWN, {"size": 3}),
    "parameterSets": (CONTROLLER, ["sizes"]),
    "created": (CONTROLLER, "2024-01-01"),
    "modified": (CONTROLLER, "2024-01-01"),
    "parameter": (REFUSED, {"size": 3}),
}
KINDS: dict[str, tuple[type[BaseModel], Rows, dict[str, Any]]] = {
    **dict.fromkeys(
        ("Provider", "Configuration", "Function"),
        (CrossplanePackageSpec, CROSSPLANE, {"package": "x.io/a:v1.0.0"}),
    ),
    "PackageInstall": (
        PackageInstallSpec,
        CARVEL,
        {"packageRef": {"refName": "a.io", "versionSelection": {"constraints": "1.0.0"}}},
    ),
    "Installation": (
        Installation,
        PORTER,
        {
            "name": "x",
            "namespace": "ns",
            "schemaVersion": "1.0.2",
            "bundle": {"repository": "r.io/a", "version": "1.0.0"},
        },
    ),
}


def read(kind: str, spec: dict[str, Any]) -> ParsedManifest:
    api = "packaging.carvel.dev/v1alpha1" if kind == "PackageInstall" else "pkg.crossplane.io/v1"
    head = {"apiVersion": api, "kind": kind, "metadata": {"name": "x", "namespace": "ns"}}
    document = {"schemaType": kind, **spec} if kind == "Installation" else {**head, "spec": spec}
    reading = read_manifest(document, Source(Location("x.yaml")))
    assert reading is not None
    return reading


@pytest.mark.parametrize("kind", KINDS)
def test_each_field_of_a_kind_has_a_row(kind: str) -> None:
    model, rows, _ = KINDS[kind]

    fields = {field.alias or name for name, field in model.model_fields.items()} - {"schemaType"}

    assert fields == {name for name, (effect, _) in rows.items() if effect is not REFUSED}


@pytest.mark.parametrize(
    ("kind", "field"), [(kind, field) for kind, (_, rows, _) in KINDS.items() for field in rows]
)
def test_field_has_the_effect_of_its_row(kind: str, field: str) -> None:
    _, rows, plain = KINDS[kind]
    (before,) = read(kind, plain).installs
    found = read(kind, {**plain, field: rows[field][1]})

    if found.problems:
        effect = REFUSED
    elif found.installs == (before,):
        effect = CONTROLLER
    elif found.installs and replace(found.installs[0], inherit=before.inherit) == before:
        effect = HANDED_DOWN
    else:
        effect = USED

    assert effect is rows[field][0]
