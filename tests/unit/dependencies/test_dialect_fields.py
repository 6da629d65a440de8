"""Where a manifest of a dialect is wrong: each fault and each warning at its own field."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

import pytest

from reconciler.api.validation import field_text
from reconciler.base.errors import Location
from reconciler.dependencies.dialects import read_manifest
from reconciler.dependencies.dialects.crossplane import read_lock, read_meta
from reconciler.dependencies.dialects.porter import read_bundle
from reconciler.dependencies.dialects.reading import ParsedManifest
from reconciler.dependencies.model.packages import PackageNeed
from reconciler.inventory.inventory import Source
from reconciler.names.problems import Problem


class Fields:
    """Marks that return the field itself as its position."""

    def mark(self, path: Sequence[str | int]) -> tuple[Any, int]:
        return field_text(path), 0


SOURCE = Source(Location("f.yaml", 1), 0, cast("Any", Fields()))


def faults(problems: Sequence[Problem]) -> list[tuple[str, str]]:
    """Return field and message of each problem."""
    return [(str(problem.location.line), problem.message) for problem in problems]


def told(read: ParsedManifest) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Return the faults and the warnings of a manifest."""
    if read.problems:
        assert (read.candidates, read.installs, read.activations) == ((), (), ())
    return faults(read.problems), faults(read.warnings)


class Case(NamedTuple):
    fields: Mapping[str, Any]
    problems: Sequence[tuple[str, str]] = ()
    warnings: Sequence[tuple[str, str]] = ()


def document(api_version: str, kind: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": "x"}, "spec": dict(spec)}


NO_RANGE = "'a b c' is not a version constraint"
NO_CARVEL_RANGE = "'a b' has no version, or nothing after '||'"

INSTALLS = [
    Case({"package": "x.io/a"}, [("spec.package", "spec.package has neither a tag nor a digest")]),
    Case({"package": "x.io/a:main"},
        [("spec.package", "The tag main is no version, so nothing can be compared with it")]),
    Case({"package": "localhost:5000/a"}, [("spec.package", "spec.package has neither a tag nor a digest")]),
    Case({"package": "x.io/a:v1"}, (), [("spec.package", "v1 is a moving tag: it is read as a range")]),
    Case({"package": "x.io/a:v1.0.0", "revisionHistoryLimit": -1},
        [("spec.revisionHistoryLimit", "revisionHistoryLimit is -1, below 0")]),
    Case({"package": "x.io/a:v1.0.0", "revisionHistoryLimit": 0}),
    Case({"package": f"x.io/a@sha256:{'0' * 64}"}),
]  # fmt: skip


@pytest.mark.parametrize("case", INSTALLS)
def test_field_of_a_crossplane_package(case: Case) -> None:
    read = read_manifest(document("pkg.crossplane.io/v1", "Provider", case.fields), SOURCE)

    assert read is not None
    assert told(read) == (list(case.problems), list(case.warnings))
    assert [str(install.need.location.line) for install in read.installs] == (
        [] if case.problems else ["spec.package"]
    )


@pytest.mark.parametrize(
    ("api_version", "kind", "problems", "warnings"),
    [
        ("pkg.crossplane.io/v1", "Thing", [("kind", "Thing is no kind of Crossplane's package API")], []),
        ("meta.pkg.crossplane.io/v1", "Provider", [],
            [("kind", "What a package needs is read from the index, not from manifests")]),
        ("packaging.carvel.dev/v1alpha1", "Thing", [("kind", "Thing is no kind of Carvel's packaging API")],
            []),
        ("packaging.carvel.dev/v1alpha1", "PackageRepository",
            [("spec.fetch", "Missing required field spec.fetch")], []),
        ("pkg.crossplane.io/v1beta1", "DeploymentRuntimeConfig", [], []),
    ],
)  # fmt: skip
def test_kind_that_is_not_read(api_version, kind, problems, warnings) -> None:
    read = read_manifest(document(api_version, kind, {}), SOURCE)

    assert read is not None
    assert told(read) == (problems, warnings)


ONE_OF = "A dependency names exactly one of package, crd and crossplane; this one names"
META = [
    Case({"crossplane": {"version": "a b c"}}, [("spec.crossplane.version", NO_RANGE)]),
    Case({"dependsOn": [{"provider": "x.io/a"}, {"provider": "x.io/a", "crd": "a.b"}]},
        [("spec.dependsOn[1]", f"{ONE_OF} provider and crd")]),
    Case({"dependsOn": [{"provider": "x.io/a", "version": "a b c"}]},
        [("spec.dependsOn[0].version", NO_RANGE)]),
    Case({"dependsOn": [{"crossplane": "a b c"}]}, [("spec.dependsOn[0].crossplane", NO_RANGE)]),
    Case({"dependsOn": [{"provider": "x.io/a:v1.0.0"}]}, (),
        [("spec.dependsOn[0]", "The version of x.io/a:v1.0.0 belongs into the field version")]),
]  # fmt: skip


@pytest.mark.parametrize("case", META)
def test_field_of_a_crossplane_yaml(case: Case) -> None:
    meta = document("meta.pkg.crossplane.io/v1", "Provider", case.fields)

    read = read_meta(meta, SOURCE, image="x.io/b", version="v1.0.0")

    assert told(read) == (list(case.problems), list(case.warnings))


def test_requirement_of_a_crossplane_yaml_is_at_its_item_and_its_version() -> None:
    depends = [{"provider": "x.io/a", "version": ">=v1"}, {"crd": "a.b"}, {"crossplane": ">=v1"}]
    meta = document("meta.pkg.crossplane.io/v1", "Provider", {"dependsOn": depends})

    (candidate,) = read_meta(meta, SOURCE, image="x.io/b", version="v1.0.0").candidates

    first, second = candidate.requires
    assert [r.location.line for r in (first, second)] == ["spec.dependsOn[0]", "spec.dependsOn[1]"]
    assert isinstance(first.alternatives[0], PackageNeed)
    assert str(first.alternatives[0].location.line) == "spec.dependsOn[0].version"
    assert [str(need.location.line) for need in candidate.platforms] == ["spec.dependsOn[2].crossplane"]


@pytest.mark.parametrize(
    ("version", "problems", "warnings"),
    [
        ("main", [("", "'main' is not a version")], []),
        ("v1", [], [("", "v1 is a moving tag and no candidate")]),
    ],
)
def test_version_of_a_crossplane_yaml_comes_from_its_tag(version, problems, warnings) -> None:
    meta = document("meta.pkg.crossplane.io/v1", "Provider", {})

    read = read_meta(meta, SOURCE, image="x.io/b", version=version)

    assert told(read) == (problems, warnings)
    assert read.candidates == ()


def test_package_of_a_lock_without_a_version_is_left_out() -> None:
    packages = [{"name": "x.io/a", "version": "main"}, {"name": "x.io/b", "version": "v1.0.0"}]
    lock = {"apiVersion": "pkg.crossplane.io/v1beta1", "kind": "Lock", "packages": packages}

    candidates, read = read_lock(lock, SOURCE)

    assert [candidate.id.name for candidate in candidates] == ["x.io/b"]
    assert told(read) == ([], [("packages[0].version", "'main' is not a version")])


# Carvel

KINDS = "A dependency names exactly one of package, gvk and or; this one names"
NAMED = {"refName": "a.io", "version": ">=1.0.0"}
CARVEL = [
    Case({"version": "x"}, [("spec.version", "'x' is not a semantic version")]),
    Case(
        {"installationType": "odd"},
        [
            (
                "spec.installationType",
                "installationType 'odd' is none of onePerCluster, onePerNamespace, noRestrictions",
            )
        ],
    ),
    Case({"kubernetesVersionSelection": {"constraints": "a b"}},
        [("spec.kubernetesVersionSelection.constraints", NO_CARVEL_RANGE)]),
    Case({"kappControllerVersionSelection": {"constraints": "a b"}},
        [("spec.kappControllerVersionSelection.constraints", NO_CARVEL_RANGE)]),
    Case({"dependencies": {"packages": [{"package": NAMED}]}}, (),
        [("spec.dependencies.packages", "dependencies.packages is read as the list dependencies")]),
    Case({"dependencies": [{}]}, [("spec.dependencies[0]", f"{KINDS} nothing")]),
    Case({"dependencies": [{"package": NAMED, "alias": "db"}, {"package": NAMED, "alias": "db"}]}, (),
        [("spec.dependencies[1].alias", "What installs give db is for each dependency of this alias")]),
    Case(
        {
            "dependencies": [
                {"or": [{"package": NAMED}, {"package": NAMED, "gvk": {"apiVersion": "g/v1", "kind": "K"}}]}
            ]
        },
        [("spec.dependencies[0].or[1]", f"{KINDS} package and gvk")],
    ),
    Case({"dependencies": [{"package": {"refName": "a.io", "version": "a b"}}]},
        [("spec.dependencies[0].package.version", NO_CARVEL_RANGE)]),
    Case({"dependencies": [{"gvk": {"group": "g", "version": "v1", "kind": "K"}}]}, (),
        [("spec.dependencies[0].gvk", "group, kind and version are read as apiVersion and kind")]),
    Case(
        {
            "dependencies": [
                {"gvk": {"apiVersion": "g/v1", "kind": "K", "providedBy": {**NAMED, "version": "a b"}}}
            ]
        },
        [("spec.dependencies[0].gvk.providedBy.version", NO_CARVEL_RANGE)],
    ),
    Case({"provides": [{"apiVersion": "g/v1", "kind": "K"}, {"group": "g", "version": "v1", "kind": "K"}]},
        (), [("spec.provides[1]", "group, kind and version are read as apiVersion and kind")]),
]  # fmt: skip


@pytest.mark.parametrize("case", CARVEL)
def test_field_of_a_carvel_package(case: Case) -> None:
    spec = {"refName": "p.io", "version": "1.0.0", "template": {"spec": {}}, **case.fields}
    package = document("data.packaging.carvel.dev/v1alpha1", "Package", spec)

    read = read_manifest({**package, "metadata": {"name": "p.io.1.0.0"}}, SOURCE)

    assert read is not None
    assert told(read) == (list(case.problems), list(case.warnings))


REFERENCE = {"refName": "a.io", "versionSelection": {"constraints": ">=1.0.0"}}
SELECTION = "versionSelection.constraints"
CARVEL_INSTALLS = [
    Case({"packageRef": {"refName": "a.io"}},
        [("spec.packageRef", "packageRef.versionSelection is missing")]),
    Case({"packageRef": {"refName": "a.io", "versionSelection": {"constraints": "a b"}}},
        [(f"spec.packageRef.{SELECTION}", NO_CARVEL_RANGE)]),
    Case({"values": {"secretRef": {"name": "s"}}}, (), [("spec.values", "values is read as a list of one")]),
    Case({"dependencies": {"override": [{"refName": "b.io", "versionSelection": {"constraints": "a b"}}]}},
        [(f"spec.dependencies.override[0].{SELECTION}", NO_CARVEL_RANGE)]),
    Case({"dependencies": {"override": [{"refName": "b.io", "versionSelection": {"contraints": "1.0.0"}}]}},
        (), [("spec.dependencies.override[0].versionSelection", "contraints is read as constraints")]),
]  # fmt: skip


@pytest.mark.parametrize("case", CARVEL_INSTALLS)
def test_field_of_a_carvel_install(case: Case) -> None:
    spec = {"packageRef": REFERENCE, **case.fields}

    read = read_manifest(document("packaging.carvel.dev/v1alpha1", "PackageInstall", spec), SOURCE)

    assert read is not None
    assert told(read) == (list(case.problems), list(case.warnings))
    for install in read.installs:
        assert str(install.need.location.line) == f"spec.packageRef.{SELECTION}"
        assert [str(override.location.line) for override in install.overrides] == [
            f"spec.dependencies.override[{number}]" for number in range(len(install.overrides))
        ]


# Porter

IN_LIST = "dependencies.requires[0]"
PORTER = [
    Case({"bundle": {"reference": "r.io/a", "version": "a b c"}}, [(f"{IN_LIST}.bundle.version", NO_RANGE)]),
    Case({"reference": "r.io/a", "version": "a b c"}, [(f"{IN_LIST}.version", NO_RANGE)]),
    Case({"reference": "r.io/a:main"}, [(IN_LIST, "main is no version, so nothing can be compared with it")]),
    Case({"interface": {"id": "io.x", "version": "a b c"}}, [(f"{IN_LIST}.interface.version", NO_RANGE)]),
    Case({"interface": {"name": "mysql"}}, (),
        [(IN_LIST, "The interface mysql is read as io.cnab.interface.mysql")]),
    Case({"reference": "r.io/a", "scope": "planet"},
        [(f"{IN_LIST}.scope", "scope 'planet' is neither namespace nor global")]),
    Case({"bundle": {"reference": "r.io/a:v1.0.0"}, "sharing": {"mode": True}},
        [(f"{IN_LIST}.sharing", "sharing needs group.name")]),
    Case({"bundle": {"reference": "r.io/a:v1.0.0"}, "sharing": {"group": {"name": "g"}}},
        [(f"{IN_LIST}.sharing", "group g is named, but sharing.mode is off")]),
    Case(
        {"reference": "r.io/a", "namespace": "prod"},
        [
            (
                f"{IN_LIST}.namespace",
                "The namespace 'prod' is fixed; a dependency stands in its parent's or in none",
            )
        ],
    ),
    Case({"reference": "r.io/a", "labels": {"team": "{{ installation.owner }}"}},
        [(f"{IN_LIST}.labels.team", "installation.owner is not defined here")]),
    Case({"reference": "r.io/a", "lifecycle": {"managed": True, "upgrade": False}}, (),
        [(f"{IN_LIST}.lifecycle", "Actions that are named win over managed")]),
]  # fmt: skip


def porter(requires: Any, **more: Any) -> ParsedManifest:
    return read_bundle({"name": "shop", "version": "1.0.0", "dependencies": requires, **more}, SOURCE)


@pytest.mark.parametrize("case", PORTER)
def test_field_of_a_requirement_of_a_bundle(case: Case) -> None:
    read = porter({"requires": [{"name": "db", **case.fields}]})

    assert told(read) == (list(case.problems), list(case.warnings))


BAD = {"name": "db", "reference": "r.io/a:main"}
AS_REQUIRES = "dependencies is read as dependencies.requires"


@pytest.mark.parametrize(
    ("document", "path", "warnings"),
    [
        ({"dependencies": {"requires": {"db": BAD}}}, "dependencies.requires.db", []),
        ({"dependencies": [BAD]}, "dependencies[0]", [("dependencies", f"The list {AS_REQUIRES}")]),
        ({"dependencies": {"db": BAD}}, "dependencies.db", [("dependencies", f"The map {AS_REQUIRES}")]),
        *(
            ({"custom": {key: {"requires": [BAD]}}}, f'custom["{key}"].requires[0]', [])
            for key in ("io.cnab.dependencies", "org.getporter.dependencies@v2", "org.getporter.dependencies")
        ),
    ],
)
def test_requirements_are_found_in_every_generation(document, path, warnings) -> None:
    read = read_bundle({"name": "shop", "version": "1.0.0", **document}, SOURCE)

    assert told(read) == ([(path, "main is no version, so nothing can be compared with it")], warnings)


@pytest.mark.parametrize("second", ["r.io/a", "r.io/b"])
@pytest.mark.parametrize(
    "place", ["dependencies", 'custom["io.cnab.dependencies"]', 'custom["org.getporter.dependencies@v2"]']
)
def test_two_dependencies_of_a_bundle_with_one_name_are_refused(second: str, place: str) -> None:
    wanted = {
        "requires": [{"name": "db", "bundle": {"reference": f"{name}:v1.0.0"}} for name in ("r.io/a", second)]
    }
    key = place.removeprefix('custom["').removesuffix('"]')
    document = {"dependencies": wanted} if place == key else {"custom": {key: wanted}}

    read = read_bundle({"name": "shop", "version": "1.0.0", **document}, SOURCE)

    assert told(read) == ([(f"{place}.requires[1].name", "Two dependencies are called db")], [])


def test_version_of_a_bundle_is_one() -> None:
    assert told(read_bundle({"name": "shop", "version": "main"}, SOURCE)) == (
        [("version", "'main' is not a version")],
        [],
    )


@pytest.mark.parametrize(
    ("bundle", "problems", "warnings"),
    [
        ({"version": "1.0.0"}, [], []),
        ({"tag": "v1.0.0"}, [], []),
        ({"tag": "main"}, [("bundle", "main is no version, so nothing can be compared with it")], []),
        ({}, [], [("bundle", "No version is named: the highest one is taken")]),
    ],
)
def test_version_of_an_installation(bundle, problems, warnings) -> None:
    installation = {
        "schemaType": "Installation",
        "schemaVersion": "1.0.2",
        "name": "shop",
        "bundle": {"repository": "r.io/a", **bundle},
    }

    read = read_manifest(installation, SOURCE)

    assert read is not None
    assert told(read) == (problems, warnings)
    assert [str(install.need.location.line) for install in read.installs] == (
        [] if problems else ["bundle.version"]
    )
