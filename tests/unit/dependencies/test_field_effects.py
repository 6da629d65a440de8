"""What becomes of each field of the kinds that install packages: the table is whole, and each row is so."""

from collections.abc import Iterator
from enum import Enum
from typing import Any, NamedTuple, get_args

import pytest
from pydantic import BaseModel

from reconciler.api.carvel import CarvelPackageSpec, PackageInstallSpec
from reconciler.api.crossplane import CrossplanePackageSpec, ImageConfigSpec
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
    "PackageInstall": (PackageInstallSpec, CARVEL,
        {"packageRef": {"refName": "a.io", "versionSelection": {"constraints": "1.0.0"}}}),
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
}  # fmt: skip

CHOICE = {"versionSelection": {"constraints": "1.0.0"}}
REF = {"refName": "a.io", **CHOICE}
SHOP = {"packageRef": REF}
EDGE = {"kubeconfigSecretRef": {"name": "edge"}}
MIRROR = {"matchImages": [{"prefix": "x.io/"}], "rewriteImage": {"prefix": "m.io/"}}
DATA = {"refName": "a.io", "version": "1.0.0"}


class Nested(NamedTuple):
    """A field below those of `KINDS`, or of a kind that installs nothing: two specs that differ in it."""

    kind: str
    path: str
    effect: Effect
    before: dict[str, Any]
    after: dict[str, Any]


def below(kind: str, path: str, effect: Effect, before: Any, after: Any, **others: Any) -> Nested:
    """Return a row of two values of the field of a spec with which `path` begins."""
    name = path.partition(".")[0]
    return Nested(kind, path, effect, {**others, name: before}, {**others, name: after})


def override(path: str, effect: Effect, before: dict[str, Any], after: dict[str, Any]) -> Nested:
    values = ({"override": [{"refName": "b.io", **value}]} for value in (before, after))
    return below("PackageInstall", f"dependencies.override.{path}", effect, *values, packageRef=REF)


def secret_of(path: str, effect: Effect, before: dict[str, Any], after: dict[str, Any]) -> Nested:
    values = ({"values": [{"secretRef": {"name": "v"}, **value}]} for value in (before, after))
    return below("PackageInstall", f"dependencies.values.{path}", effect, *values, packageRef=REF)


def offered(path: str, effect: Effect, before: Any, after: Any) -> Nested:
    return below("Package", path, effect, before, after, **DATA)


def in_need(path: str, effect: Effect, before: dict[str, Any], after: dict[str, Any]) -> Nested:
    values = ([value] for value in (before, after))
    return below("Package", f"dependencies.{path}", effect, *values, **DATA)


BUNDLE = {"repository": "r.io/a", "version": "1.0.0"}
NEED = {"package": {"refName": "b.io"}}
API = {"gvk": {"apiVersion": "g.io/v1", "kind": "K"}}
X = {"package": "x.io/a:v1.0.0"}
ROWS = [
    below("Provider", "packagePullSecrets.name", HANDED_DOWN, [{"name": "a"}], [{"name": "b"}], **X),
    below("Provider", "packagePullSecrets.key", REFUSED, [{"name": "a"}], [{"name": "a", "key": "b"}], **X),
    below("Provider", "serviceAccount.annotations", HANDED_DOWN, {}, {"annotations": {"a": "b"}}, **X),
    below("Provider", "runtimeConfigRef.name", CONTROLLER, {"name": "a"}, {"name": "b"}, **X),
    below("Provider", "runtimeConfigRef.kind", CONTROLLER, {"name": "a"}, {"name": "a", "kind": "K"}, **X),
    below("Provider", "runtimeConfigRef.apiVersion", CONTROLLER, {"name": "a"},
        {"name": "a", "apiVersion": "g/v1"}, **X),
    below("Provider", "controllerConfigRef.name", CONTROLLER, {"name": "a"}, {"name": "b"}, **X),
    below("PackageInstall", "packageRef.refName", USED, REF, {**REF, "refName": "b.io"}),
    below("PackageInstall", "packageRef.versionSelection.constraints", USED, REF,
        {**REF, "versionSelection": {"constraints": "2.0.0"}}),
    below("PackageInstall", "packageRef.versionSelection.prereleases.identifiers", USED,
        {**REF, "versionSelection": {"constraints": ">1.0.0", "prereleases": {}}},
        {**REF, "versionSelection": {"constraints": ">1.0.0", "prereleases": {"identifiers": ["rc"]}}}),
    below("PackageInstall", "packageRef.version", REFUSED, REF, {**REF, "version": "1.0.0"}),
    below("PackageInstall", "cluster.namespace", HANDED_DOWN, EDGE, {**EDGE, "namespace": "n"}, **SHOP),
    below("PackageInstall", "cluster.kubeconfigSecretRef.name", USED, EDGE,
        {"kubeconfigSecretRef": {"name": "b"}}, **SHOP),
    below("PackageInstall", "cluster.kubeconfigSecretRef.key", USED, EDGE,
        {"kubeconfigSecretRef": {"name": "edge", "key": "b"}}, **SHOP),
    below("PackageInstall", "values.secretRef.name", CONTROLLER, [{"secretRef": {"name": "a"}}],
        [{"secretRef": {"name": "b"}}], **SHOP),
    below("PackageInstall", "values.secretRef.key", CONTROLLER, [{"secretRef": {"name": "a"}}],
        [{"secretRef": {"name": "a", "key": "b"}}], **SHOP),
    below("PackageInstall", "dependencies.install", USED, {}, {"install": False}, **SHOP),
    below("PackageInstall", "dependencies.deletePolicy", USED, {}, {"deletePolicy": "orphan"}, **SHOP),
    override("refName", USED, {"install": True}, {"install": True, "refName": "c.io"}),
    override("install", USED, {"install": True}, {"install": False}),
    override("versionSelection.constraints", USED, CHOICE, {"versionSelection": {"constraints": "2.0.0"}}),
    override("versionSelection.prereleases.identifiers", USED,
        {"versionSelection": {"constraints": ">1.0.0", "prereleases": {}}},
        {"versionSelection": {"constraints": ">1.0.0", "prereleases": {"identifiers": ["rc"]}}}),
    secret_of("alias", USED, {"alias": "a"}, {"alias": "b"}),
    secret_of("refName", USED, {"refName": "a"}, {"refName": "b"}),
    secret_of("secretRef.name", USED, {"alias": "a"}, {"alias": "a", "secretRef": {"name": "w"}}),
    secret_of("secretRef.key", USED, {"alias": "a"}, {"alias": "a", "secretRef": {"name": "v", "key": "k"}}),
    Nested("Installation", "bundle.repository", USED, {"bundle": BUNDLE},
        {"bundle": {**BUNDLE, "repository": "r.io/b"}}),
    Nested("Installation", "bundle.version", USED, {"bundle": BUNDLE},
        {"bundle": {**BUNDLE, "version": "2.0.0"}}),
    Nested("Installation", "bundle.digest", USED, {"bundle": {"repository": "r.io/a"}},
        {"bundle": {"repository": "r.io/a", "digest": f"sha256:{'1' * 64}"}}),
    Nested("Installation", "bundle.tag", USED, {"bundle": {"repository": "r.io/a"}},
        {"bundle": {"repository": "r.io/a", "tag": "v1.0.0"}}),
    offered("refName", USED, "a.io", "b.io"),
    offered("version", USED, "1.0.0", "2.0.0"),
    offered("installationType", USED, "noRestrictions", "onePerCluster"),
    offered("licenses", CONTROLLER, [], ["MIT"]),
    offered("releasedAt", CONTROLLER, None, "2024-01-01T00:00:00Z"),
    offered("releaseNotes", CONTROLLER, "", "new"),
    offered("capacityRequirementsDescription", CONTROLLER, "", "1 GB"),
    offered("includedSoftware", CONTROLLER, [], [{"displayName": "a"}]),
    offered("template", CONTROLLER, None, {"spec": {}}),
    offered("valuesSchema", CONTROLLER, None, {"openAPIv3": {}}),
    offered("kubernetesVersionSelection.constraints", USED, {}, {"constraints": ">=1.28.0"}),
    offered("kappControllerVersionSelection.constraints", USED, {}, {"constraints": ">=0.50.0"}),
    offered("provides.apiVersion", USED, [API["gvk"]], [{**API["gvk"], "apiVersion": "g.io/v2"}]),
    offered("provides.kind", USED, [API["gvk"]], [{**API["gvk"], "kind": "L"}]),
    offered("provides.providedBy.refName", REFUSED, [API["gvk"]],
        [{**API["gvk"], "providedBy": {"refName": "b.io"}}]),
    Nested("Package", "capacity", REFUSED, DATA, {**DATA, "capacity": "1 GB"}),
    in_need("package.refName", USED, NEED, {"package": {"refName": "c.io"}}),
    in_need("package.version", USED, NEED, {"package": {"refName": "b.io", "version": "1.0.0"}}),
    in_need("gvk.apiVersion", USED, API, {"gvk": {**API["gvk"], "apiVersion": "g.io/v2"}}),
    in_need("gvk.kind", USED, API, {"gvk": {**API["gvk"], "kind": "L"}}),
    in_need("gvk.providedBy.refName", USED, {"gvk": {**API["gvk"], "providedBy": {"refName": "b.io"}}},
        {"gvk": {**API["gvk"], "providedBy": {"refName": "c.io"}}}),
    in_need("gvk.providedBy.version", USED, {"gvk": {**API["gvk"], "providedBy": {"refName": "b.io"}}},
        {"gvk": {**API["gvk"], "providedBy": {"refName": "b.io", "version": "1.0.0"}}}),
    in_need("or", USED, {"or": [NEED]}, {"or": [NEED, {"package": {"refName": "c.io"}}]}),
    in_need("optional", USED, NEED, {**NEED, "optional": True}),
    in_need("alias", USED, NEED, {**NEED, "alias": "db"}),
    in_need("install", USED, NEED, {**NEED, "install": False}),
    below("ImageConfig", "matchImages.type", REFUSED, [{"prefix": "x.io/"}],
        [{"prefix": "x.io/", "type": "Regex"}]),
    below("ImageConfig", "matchImages.prefix", USED, [{"prefix": "x.io/"}], [{"prefix": "y.io/"}],
        rewriteImage={"prefix": "m.io/"}),
    below("ImageConfig", "rewriteImage.prefix", USED, {"prefix": "m.io/"}, {"prefix": "n.io/"},
        matchImages=[{"prefix": "x.io/"}]),
    below("ImageConfig", "registry", CONTROLLER, None, {"authentication": {}}, **MIRROR),
    below("ImageConfig", "verification", CONTROLLER, None, {"provider": "Cosign"}, **MIRROR),
    below("ImageConfig", "runtime", CONTROLLER, None, {"configRef": {"name": "a"}}, **MIRROR),
    Nested("ImageConfig", "mirror", REFUSED, MIRROR, {**MIRROR, "mirror": "a"}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("fetch", "problem", "warning"),
    [
        ({"imgpkgBundle": {"image": "r.io/p", "tagSelection": {"semver": {"constraints": "1.x"}}}}, "", ""),
        ({"image": {"url": "r.io/p", "secretRef": {"name": "s"}}}, "", ""),
        ({"git": {"url": "g.io/p", "refSelection": {"semver": {}}, "subPath": "a", "lfsSkipSmudge": True}},
            "", ""),
        ({"inline": {"paths": {"packages/a.yml": ""}}}, "", ""),
        ({"http": {"url": "h.io/p"}}, "", ""),
        ({"inline": {"pathsFrom": [{"configMapRef": {"name": "a"}}]}}, "", "The packages of these objects"),
        ({"image": {"url": "r.io/p", "subPath": "a"}}, "", "Packages are read below packages/ alone"),
        ({"imgpkgBundle": {"imag": "r.io/p"}}, "spec.fetch.imgpkgBundle.imag", ""),
        ({"git": {"ref": "main"}}, "spec.fetch.git.url", ""),
    ],
)  # fmt: skip
def test_package_repository_is_understood_or_told(fetch: dict[str, Any], problem: str, warning: str) -> None:
    reading = read("PackageRepository", {"fetch": fetch, "syncPeriod": "10m", "paused": False})

    assert [p.message for p in reading.problems if problem not in p.message] == []
    assert bool(reading.problems) is bool(problem)
    assert [w.message[: len(warning)] for w in reading.warnings] == ([warning] if warning else [])


NESTED: dict[str, type[BaseModel]] = {
    "Provider": CrossplanePackageSpec,
    "PackageInstall": PackageInstallSpec,
    "Installation": Installation,
    "Package": CarvelPackageSpec,
    "ImageConfig": ImageConfigSpec,
}


def fields_of(model: type[BaseModel], above: str = "") -> Iterator[str]:
    """Yield the paths of the fields of a model that have no fields themselves."""
    model.model_rebuild()
    for name, field in model.model_fields.items():
        path = f"{above}{field.alias or name}"
        parts = [field.annotation]
        for part in parts:
            parts += [a for a in get_args(part) if isinstance(a, type) or get_args(a)]
        models = [p for p in parts if isinstance(p, type) and issubclass(p, BaseModel) and p is not model]
        yield from [path] if not models else fields_of(models[0], f"{path}.")


@pytest.mark.parametrize("kind", NESTED)
def test_each_nested_field_has_a_row(kind: str) -> None:
    fields = {path for path in fields_of(NESTED[kind]) if "." in path or kind not in KINDS}

    rows = {row.path for row in ROWS if row.kind == kind and row.effect is not REFUSED}
    rows |= {"matchImages.type"} if kind == "ImageConfig" else set()
    assert fields == rows


@pytest.mark.parametrize("row", ROWS, ids=[f"{row.kind} {row.path}" for row in ROWS])
def test_nested_field_has_the_effect_of_its_row(row: Nested) -> None:
    plain = KINDS["Installation"][2] if row.kind == "Installation" else {}
    before, after = (read(row.kind, {**plain, **spec}) for spec in (row.before, row.after))

    assert before.problems == ()
    if after.problems:
        effect = REFUSED
    elif (before.installs, before.candidates, before.rewrites) == (
        after.installs,
        after.candidates,
        after.rewrites,
    ):
        effect = CONTROLLER
    elif (
        after.installs
        and replace(after.installs[0], inherit=before.installs[0].inherit) == before.installs[0]
    ):
        effect = HANDED_DOWN
    else:
        effect = USED

    assert effect is row.effect


APIS = {
    "PackageInstall": "packaging.carvel.dev/v1alpha1",
    "PackageRepository": "packaging.carvel.dev/v1alpha1",
    "Package": "data.packaging.carvel.dev/v1alpha1",
    "ImageConfig": "pkg.crossplane.io/v1beta1",
}


def read(kind: str, spec: dict[str, Any]) -> ParsedManifest:
    api = APIS.get(kind, "pkg.crossplane.io/v1")
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
