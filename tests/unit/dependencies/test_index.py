"""The index: filters, one default per interface and layer, and what a fan-out still lacks."""

from reconciler.dependencies.catalog.index import (
    IndexLayer,
    InterfaceDefaults,
    add_package,
    list_packages,
    remove_package,
)
from reconciler.dependencies.model.cluster import build_catalogue
from reconciler.dependencies.model.packages import Candidate, Ecosystem, Interface, PackageId
from reconciler.dependencies.versions import parse_loose
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


def test_a_new_default_replaces_the_previous_one() -> None:
    index = add_package(add_package(IndexLayer(), HELM, interface=MYSQL), AZURE, interface=MYSQL)

    assert index.packages == {HELM, AZURE}
    assert index.defaults == {MYSQL: AZURE}
    assert remove_package(index, AZURE) == IndexLayer(frozenset({HELM}), {})
    assert remove_package(remove_package(index, AZURE), AZURE) == IndexLayer(frozenset({HELM}), {})


def test_the_nearest_layer_has_the_last_word() -> None:
    other = "io.cnab.interface.redis"
    layers = InterfaceDefaults(fleet={MYSQL: HELM, other: HELM}, environment={MYSQL: AZURE}, cluster={})

    assert layers.effective() == ((MYSQL, AZURE), (other, HELM))
    assert dict(layers._replace(cluster={MYSQL: HELM}).effective())[MYSQL] == HELM
