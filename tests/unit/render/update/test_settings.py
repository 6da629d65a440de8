"""The cache of an update: by content and by every option, never larger than its bound."""

from typing import Any

import pytest

from reconciler.names.objects import File
from reconciler.policy import OnConflict
from reconciler.render.update import sides
from reconciler.render.update.sides import MergeCache, schemas_of
from tests.support.model import package

UPSTREAM = OnConflict.UPSTREAM


def test_cache_is_emptied_when_it_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sides, "_MAX_RESULTS", 2)
    monkeypatch.setattr(sides, "_MAX_DOCUMENTS", 2)
    cache = MergeCache()
    for number in range(3):
        cache.result(number, lambda: 1)
        cache.split(File.of(f"a: {number}\n".encode()))
        assert len(cache._results) == len(cache._files) == (number + 1 if number < 2 else 1)


def crd(key: str) -> str:
    return (
        "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata:\n  name: foos.x.io\n"
        "spec:\n  group: x.io\n  names: {kind: Foo, plural: foos}\n  versions:\n  - name: v1\n    schema:\n"
        "      openAPIV3Schema:\n        type: object\n        properties:\n          items:\n"
        f"            type: array\n            x-kubernetes-list-type: map\n"
        f"            x-kubernetes-list-map-keys: [{key}]\n            items: {{type: object}}\n"
    )


def test_schemas_of_a_package_are_those_of_its_crds_and_later_trees_win() -> None:
    first, second = package({"a.yaml": crd("id"), "b.yaml": "a: 1\n"}), package({"c.yaml": crd("name")})
    broken = package({"d.yaml": "CustomResourceDefinition: ["})
    cache = MergeCache()

    def shape(*trees: Any) -> Any:
        schemas, _ = schemas_of(trees, cache)
        return schemas.shape("x.io/v1", "Foo")

    assert shape(first) == shape(first, broken)
    assert shape(first, second) == shape(second)
    assert shape(first) != shape(second)
    assert shape(broken) == shape(package({}))
    _, key = schemas_of((first, second), cache)
    assert key == (first["a.yaml"].oid, second["c.yaml"].oid)
    assert schemas_of((package({"b.yaml": "a: 1\n"}),), cache)[1] == ()
