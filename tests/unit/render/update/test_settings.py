"""The cache of an update: by content and by every option, never larger than its bound."""

from typing import Any

import pytest

from reconciler.names.objects import File, Mode
from reconciler.policy import MergeMode, OnConflict
from reconciler.render.update import ConflictPolicy, sides
from reconciler.render.update.sides import MergeCache, MergeSettings, schemas_of
from tests.support.model import package
from tests.support.values import replace

LOCAL, UPSTREAM = OnConflict.LOCAL, OnConflict.UPSTREAM
PLAIN = MergeSettings(MergeMode.DEFAULT, ConflictPolicy(), MergeCache())


def test_result_is_made_once_even_if_it_is_none() -> None:
    cache, made = MergeCache(), []

    def make() -> None:
        made.append(1)

    assert cache.result("a", make) is None
    assert cache.result("a", make) is None
    assert cache.result("b", lambda: 2) == 2
    assert made == [1]


def test_file_is_split_once_by_its_bytes_and_mode() -> None:
    cache = MergeCache()

    first = cache.split(File.of(b"a: 1\n"))
    assert first
    assert cache.split(File.of(b"a: 1\n")) is first
    assert cache.split(File.of(b"a: 1\n", Mode.SYMLINK)) is None
    assert cache.split(File.of(b"a: 2\n")) is not first
    assert cache.split(None) is None


def test_cache_is_emptied_when_it_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sides, "_MAX_RESULTS", 2)
    monkeypatch.setattr(sides, "_MAX_DOCUMENTS", 2)
    cache = MergeCache()
    for number in range(3):
        cache.result(number, lambda: 1)
        cache.split(File.of(f"a: {number}\n".encode()))
        assert len(cache._results) == len(cache._files) == (number + 1 if number < 2 else 1)


OTHERS: dict[str, dict[str, Any]] = {
    "mode": {"mode": MergeMode.COMPATIBLE},
    "default policy": {"policy": ConflictPolicy(LOCAL)},
    "policy of fields": {"policy": ConflictPolicy(fields={"a": LOCAL, "b": UPSTREAM})},
    "their order": {"policy": ConflictPolicy(fields={"b": UPSTREAM, "a": LOCAL})},
    "policy of places": {"policy": ConflictPolicy(places={("a", "", ""): LOCAL})},
    "schemas": {"schemas_key": ("a",)},
}


def test_every_option_that_a_merge_reads_makes_a_key_of_its_own() -> None:
    keys = {PLAIN.key, *(replace(PLAIN, **fields).key for fields in OTHERS.values())}

    assert len(keys) == len(OTHERS) + 1
    origins = ConflictPolicy(origins={"": ("a", "b")})
    assert replace(PLAIN, policy=origins).key == PLAIN.key


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
