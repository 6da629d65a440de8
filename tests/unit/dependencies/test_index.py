"""The index: filters, one default per interface and layer, and what a fan-out still lacks."""

import pytest

from reconciler.dependencies.catalog.index import (
    IndexContents,
    LayerDefaults,
    layer_path,
    list_packages,
    read_index,
)
from reconciler.dependencies.model.cluster import build_catalogue
from reconciler.dependencies.model.packages import Candidate, Ecosystem, Interface, PackageId
from reconciler.dependencies.versions import parse_loose
from reconciler.policy import Limits
from reconciler.read.dependencies import parse_index
from tests.support.values import replace

HELM = PackageId(Ecosystem.BUNDLE, "r.io/helm-mysql")
AZURE = PackageId(Ecosystem.BUNDLE, "r.io/azure-mysql")
MYSQL = "io.cnab.interface.mysql"


def candidate(id_: PackageId, version: str, **fields: object) -> Candidate:
    return replace(Candidate(id_, parse_loose(version)), **fields)


KNOWN = build_catalogue(
    [
        candidate(HELM, "v1.0.0", interfaces=(Interface(MYSQL),), labels=(("app", "mysql"),)),
        candidate(HELM, "v1.1.0", keywords=("database",)),
        candidate(AZURE, "v2.0.0", interfaces=(Interface(MYSQL),)),
        candidate(PackageId(Ecosystem.BUNDLE, "r.io/redis"), "v6.0.0", keywords=("cache",)),
    ]
)


def names(**filters: object) -> list[str]:
    return [one.package.name for one in list_packages(KNOWN, **filters)]


def test_the_list_is_filtered_by_each_word() -> None:
    assert names() == ["r.io/azure-mysql", "r.io/helm-mysql", "r.io/redis"]
    assert names(name="MySQL") == ["r.io/azure-mysql", "r.io/helm-mysql"]
    assert names(labels=[("app", "mysql")]) == ["r.io/helm-mysql"]
    assert names(interface=MYSQL) == ["r.io/azure-mysql", "r.io/helm-mysql"]
    assert names(keywords=["cache"]) == ["r.io/redis"]
    assert names(name="mysql", keywords=["cache"]) == []


def test_versions_are_listed_highest_first_and_the_default_is_marked() -> None:
    listed = list_packages(KNOWN, [(MYSQL, HELM)], interface=MYSQL)

    assert [(one.versions, one.is_default) for one in listed] == [
        (("v2.0.0",), False),
        (("v1.1.0", "v1.0.0"), True),
    ]


def test_the_nearest_layer_has_the_last_word() -> None:
    other = "io.cnab.interface.redis"
    fleet, production = LayerDefaults("", {MYSQL: HELM, other: HELM}), LayerDefaults("", {MYSQL: AZURE})
    layers = {layer_path(): fleet, layer_path(environment="production"): production}
    nearest = {**layers, layer_path(cluster="east"): LayerDefaults("", {MYSQL: HELM})}

    assert IndexContents(layers=layers).defaults_of("east", "production") == ((MYSQL, AZURE), (other, HELM))
    assert dict(IndexContents(layers=nearest).defaults_of("east", "production"))[MYSQL] == HELM
    assert dict(IndexContents(layers=nearest).defaults_of("", ""))[MYSQL] == HELM


PACKAGE = """apiVersion: data.packaging.carvel.dev/v1alpha1
kind: Package
metadata: {name: db.io.1.0.0}
spec: {refName: db.io, version: 1.0.0, templte: {}}
"""


@pytest.mark.parametrize("text", [PACKAGE, "a: ["], ids=["misspelt", "broken"])
def test_refused_version_without_header_is_called_as_its_folder_is(text: str) -> None:
    contents = read_index(parse_index({"index/db.io/1.0.0/package.yaml": text.encode()}, Limits()).documents)

    assert {name: {each.version for each in own} for name, own in contents.refused.items()} == {
        "db.io": {"1.0.0"}
    }


def version_file(source: str, *lines: str) -> tuple[str, bytes]:
    head = [f"source: {source}", "version: v1.0.0", "ecosystem: xpkg", *lines]
    text = "\n".join(["apiVersion: reconciler.dev/v1alpha1", "kind: PackageVersion", *head, ""])
    return f"index/{source}/v1.0.0/version.yaml", text.encode()


@pytest.mark.parametrize(
    ("aliases", "places"),
    [
        ("aliases: [mirror.io/p]", []),
        ("aliases: [new.io/p]", []),
        ("aliases: [mirror.io/p, old.io/p]", ["index/new.io/p/v1.0.0/version.yaml:6:24"]),
        ("aliases:\n- old.io/p\n- old.io/q", [f"index/new.io/p/v1.0.0/version.yaml:{n}:3" for n in (7, 8)]),
    ],
)
def test_an_alias_that_is_a_package_of_the_index_is_refused_at_its_place(aliases, places) -> None:
    files = dict([version_file("new.io/p", aliases), version_file("old.io/p"), version_file("old.io/q")])

    index = read_index(parse_index(files, Limits()).documents)

    assert [str(problem.location) for problem in index.problems] == places
    assert all("no alias of new.io/p" in problem.message for problem in index.problems)
    assert all("`reconciler.dev/take-over: old.io/" in problem.hint for problem in index.problems)
    assert {candidate.id.name for candidate in index.candidates} == {"new.io/p", "old.io/p", "old.io/q"}
