"""What is misspelt or of another type in manifests of packages is refused by field, never taken as absent."""

from collections.abc import Mapping
from typing import Any

import pytest

from reconciler.base.errors import Location
from reconciler.base.reasons import Reason
from reconciler.dependencies.catalog.index import read_package_version
from reconciler.dependencies.dialects import read_manifest
from reconciler.dependencies.dialects.crossplane import read_meta
from reconciler.dependencies.dialects.porter import read_bundle
from reconciler.dependencies.dialects.reading import ParsedManifest
from reconciler.inventory.inventory import Source
from tests.unit.dependencies.test_dialect_fields import SOURCE, document

INSTALL = {"packageRef": {"refName": "db.io", "versionSelection": {"constraints": "1.0.0"}}}
REF = {"refName": "db.io"}


def install_with(**dependencies: Any) -> dict[str, Any]:
    return document(
        "packaging.carvel.dev/v1alpha1", "PackageInstall", {**INSTALL, "dependencies": dependencies}
    )


def carvel(**fields: Any) -> dict[str, Any]:
    return document("data.packaging.carvel.dev/v1alpha1", "Package", {**REF, "version": "1.0.0", **fields})


def provider(**fields: Any) -> dict[str, Any]:
    return document("pkg.crossplane.io/v1", "Provider", {"package": "x.io/aws:v1.0.0", **fields})


def installation(**fields: Any) -> dict[str, Any]:
    known = {"schemaType": "Installation", "schemaVersion": "1.0.2", "name": "shop"}
    return {**known, "bundle": {"repository": "r.io/shop", "version": "1.0.0"}, **fields}


def bundle(*requires: Mapping[str, Any], **fields: Any) -> dict[str, Any]:
    return {"name": "shop", "version": "1.0.0", "dependencies": {"requires": list(requires)}, **fields}


def meta(*depends_on: Mapping[str, Any], api_version: str = "meta.pkg.crossplane.io/v1", **spec: Any) -> Any:
    kind = "Project" if "dev" in api_version else "Configuration"
    return document(api_version, kind, {"dependsOn": list(depends_on), **spec})


def read(value: Mapping[str, Any]) -> ParsedManifest:
    if str(value.get("apiVersion", "")).startswith("meta."):
        return read_meta(value, SOURCE, image="x.io/platform", version="v1.0.0")
    return read_manifest(value, SOURCE) or read_bundle(value, SOURCE)


DB = {"name": "db", "reference": "r.io/db:v1.0.0"}


@pytest.mark.parametrize(
    ("manifest", "field", "hint"),
    [
        (install_with(instal=False), "spec.dependencies.instal", "install"),
        (install_with(install="false"), "spec.dependencies.install", ""),
        (install_with(override=[{**REF, "versionSelection": {"constrains": "1.0.0"}}]),
            "spec.dependencies.override[0].versionSelection.constrains", "constraints"),
        (carvel(dependency=[]), "spec.dependency", "dependencies"),
        (carvel(dependencies=[{"or": []}]), "spec.dependencies[0].or", "Name a package"),
        (carvel(dependencies=[{"package": {**REF, "versoin": "1"}}]), "spec.dependencies[0].package.versoin",
            "version"),
        (carvel(dependencies=[{"gvk": {"apiVersion": "a/v1", "kind": "A", "by": {}}}]),
            "spec.dependencies[0].gvk.by", ""),
        (provider(activationPolicy="Manual"), "spec.activationPolicy", "revisionActivationPolicy"),
        (provider(revisionActivationPolicy="Later"), "spec.revisionActivationPolicy", ""),
        (provider(revisionHistoryLimt=0), "spec.revisionHistoryLimt", "revisionHistoryLimit"),
        (provider(revisionHistoryLimit="0"), "spec.revisionHistoryLimit", ""),
        (provider(packagePullPolicy="Allways"), "spec.packagePullPolicy", "Always"),
        (installation(parameterSet=["a"]), "parameterSet", "parameterSets"),
        (installation(labels={"a": 1}), "labels.a", ""),
        (installation(custom={"reconciler.dev/dependencies": "false"}),
            'custom["reconciler.dev/dependencies"]', "without quotes"),
        (installation(custom={"reconciler.dev/version-strategy": "newest"}),
            'custom["reconciler.dev/version-strategy"]', ""),
        (bundle({**DB, "lifecycle": {"managd": True}}), "dependencies.requires[0].lifecycle.managd",
            "managed"),
        (bundle({**DB, "label": {"app": "a"}}), "dependencies.requires[0].label", "labels"),
        (bundle({"name": "db", "referense": "r.io/db"}), "dependencies.requires[0].referense", "reference"),
        (bundle({**DB, "version": {"range": ["1"]}}), "dependencies.requires[0].version.range", "ranges"),
        ({**bundle(), "dependencies": {"require": [DB]}}, "dependencies.require", "requires"),
        ({**bundle(), "dependencies": {"requires": [], "provide": {}}}, "dependencies.provide", "provides"),
        ({**bundle(), "dependancies": {"requires": [DB]}}, "dependancies", "dependencies"),
        (bundle(parameters="size"), "parameters", ""),
        (bundle(custom={"io.cnab.dependencies": {"require": {}}}), 'custom["io.cnab.dependencies"].require',
            "requires"),
        (meta(dependson=[]), "spec.dependson", "dependsOn"),
        (meta({"provider": "x.io/aws", "versions": "v1"}), "spec.dependsOn[0].versions", "version"),
        (meta({"package": "x.io/a", "kind": "Functoin", "apiVersion": "pkg.crossplane.io/v1"}),
            "spec.dependsOn[0].kind", "Function"),
        (meta(api_version="meta.dev.upbound.io/v2alpha1", dependOn=[]), "spec.dependOn", "dependsOn"),
        (meta({"crd": "v1/Vpc"}), "spec.dependsOn[0].crd", "GROUP/VERSION/KIND"),
        (meta({"crd": {"group": "net.io", "kind": "Vpc"}}), "spec.dependsOn[0].crd", "GROUP/VERSION/KIND"),
    ],
)  # fmt: skip
def test_it_is_refused_where_it_stands(manifest: dict[str, Any], field: str, hint: str) -> None:
    reading = read(manifest)

    assert (reading.candidates, reading.installs) == ((), ())
    assert [str(problem.location.line) for problem in reading.problems] == [field]
    assert hint in reading.problems[0].hint


@pytest.mark.parametrize(
    ("where", "value", "message"),
    [
        ("parameters", "${bundle.dependencies.gone.outputs.ip}",
            "An output of gone, which is no dependency,"),
        ("credentials", "x ${ bundle.dependencies.gone.outputs.ip } y",
            "An output of gone, which is no dependency,"),
        ("outputs", "${bundle.dependencies.gone.outputs.ip}", "An output of gone, which is no dependency,"),
        ("parameters", "${bundle.dependencies.app.outputs.ip}", "An output of the dependency itself "),
        ("parameters", "${bundle.outputs.ip}", "An output of the bundle itself "),
    ],
)  # fmt: skip
def test_wiring_to_what_is_not_there_is_refused_as_porter_does(where: str, value: str, message: str) -> None:
    """Source: Porter, pkg/porter/dependency_graph_test.go, TestGraphBuilder_DanglingWiringReference."""
    reading = read(bundle({**DB, "name": "app", where: {"connstr": value}}))

    assert [(str(p.location.line), p.reason) for p in reading.problems] == [
        (f"dependencies.requires[0].{where}.connstr", Reason.NOT_FOUND)
    ]
    assert reading.problems[0].message.startswith(message)


HEADER = {
    "apiVersion": "reconciler.dev/v1alpha1",
    "kind": "PackageVersion",
    "source": "db.io",
    "version": "1.0.0",
}
METADATA = document("data.packaging.carvel.dev/v1alpha1", "PackageMetadata", {"displayName": "DB"})


def folder(*documents: Mapping[str, Any]) -> ParsedManifest:
    pairs = [(d, Source(Location(f"index/db.io/1.0.0/{n}.yaml"))) for n, d in enumerate(documents)]
    return read_package_version(pairs)


@pytest.mark.parametrize(
    ("documents", "message"),
    [
        ((HEADER, {**carvel(), "spec": {**REF, "version": "9.9.9"}}), "The manifest is of 9.9.9,"),
        ((HEADER, carvel(refName="velero.io")), "The manifest is of velero.io,"),
        ((HEADER, carvel(), carvel(version="1.1.0")), "A version has one manifest,"),
        ((HEADER, {}), "The file says nothing,"),
        ((HEADER, {"apiVersion": "v1", "kind": "ConfigMap"}), "ConfigMap of v1 is nothing that says"),
        ((HEADER, {"a": 5}), "no kind of no apiVersion is nothing that says"),
        (
            (HEADER, meta(api_version="meta.dev.example.io/v1")),
            "Project of meta.dev.example.io/v1 is nothing",
        ),
        ((HEADER, {**METADATA, "spec": {"displayNam": "DB"}}), "Unknown field spec.displayNam"),
        ((HEADER, {"name": "db", "version": "1.0.1"}), "The manifest is of 1.0.1,"),
    ],
)
def test_a_manifest_beside_a_header_is_understood_and_agrees_or_is_refused(documents, message) -> None:
    reading = folder(*documents)

    assert reading.candidates == ()
    assert reading.problems[0].message.startswith(message)
    assert reading.problems[0].location.path == f"index/db.io/1.0.0/{len(documents) - 1}.yaml"
    assert reading.problems[0].hint


def test_carvel_packages_name_themselves_and_need_no_header() -> None:
    reading = folder(carvel(), carvel(version="1.1.0"), METADATA)

    assert [(str(c.id), c.version.text) for c in reading.candidates] == [
        ("carvel:db.io", "1.0.0"),
        ("carvel:db.io", "1.1.0"),
    ]
    assert folder(HEADER, carvel(), METADATA).candidates


RUNTIME = document("pkg.crossplane.io/v1beta1", "DeploymentRuntimeConfig", {"serviceTemplate": {}})


@pytest.mark.parametrize(
    ("manifest", "field", "newer", "meant"),
    [
        (provider(), "apiVersion", "pkg.crossplane.io/v9", "pkg.crossplane.io/v1"),
        (RUNTIME, "apiVersion", "pkg.crossplane.io/v2", "pkg.crossplane.io/v1"),
        (meta(), "apiVersion", "meta.pkg.crossplane.io/v3", "meta.pkg.crossplane.io/v1"),
        (carvel(), "apiVersion", "data.packaging.carvel.dev/v7", "data.packaging.carvel.dev/v1alpha1"),
        (METADATA, "apiVersion", "data.packaging.carvel.dev/v1", "data.packaging.carvel.dev/v1alpha1"),
        (install_with(), "apiVersion", "packaging.carvel.dev/v1", "packaging.carvel.dev/v1alpha1"),
        (installation(), "schemaVersion", "9.0.0", "1.0.2"),
        (bundle(schemaVersion="v1.2.0"), "schemaVersion", "9.0.0", "1.0.0, 1.1.0, 1.2.0"),
        (bundle(schemaVersion="1.0.0-alpha.1"), "schemaVersion", "1.0.x", "1.0.0"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_manifest_of_an_unknown_version_is_refused_and_the_known_ones_are_named(
    manifest: Mapping[str, Any], field: str, newer: str, meant: str
) -> None:
    (problem,) = read({**manifest, field: newer}).problems

    assert not read(manifest).problems
    assert problem.message.endswith(f"but is the text {newer!r}")
    assert str(problem.message).startswith(f"{field} must be ")
    assert str(problem.hint) in {f"Did you mean {meant}?", f"Known here: {meant}."}
