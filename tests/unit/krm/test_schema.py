"""Merge keys of lists: of Kubernetes, of CRDs, and declared."""

from typing import Any

import pytest

from reconciler.krm.schema import (
    Schemas,
    Shape,
    crd_shapes,
    declared_shape,
    parse_merge_keys,
    with_merge_keys,
)
from tools.docs import kubernetes_schema

POD = ("spec", "template", "spec")


def at(shape: Shape | None, *path: str) -> Shape | None:
    for step in path:
        shape = shape.below(step) if shape is not None else None
        if shape is not None and shape.items is not None:
            shape = Shape(fields=shape.items.fields, keys=shape.keys, defaults=shape.defaults)
    return shape


def keys(shape: Shape | None, *path: str) -> tuple[str, ...] | None:
    found = at(shape, *path)
    return found.keys if found is not None else None


@pytest.mark.parametrize(
    ("reason", "version", "kind", "path", "want"),
    [
        ("containers by name", "apps/v1", "Deployment", (*POD, "containers"), ("name",)),
        ("ports of a container by two keys", "apps/v1", "Deployment", (*POD, "containers", "ports"),
            ("containerPort", "protocol")),
        ("arguments are one value", "apps/v1", "Deployment", (*POD, "containers", "args"), None),
        ("finalizers are a set", "v1", "ConfigMap", ("metadata", "finalizers"), ()),
        ("rules of a role are one value", "rbac.authorization.k8s.io/v1", "Role", ("rules",), None),
        ("a kind since 1.21", "autoscaling/v2", "HorizontalPodAutoscaler", ("status", "conditions"),
            ("type",)),
        ("any kind has metadata", "example.com/v1", "Shop", ("metadata", "ownerReferences"), ("uid",)),
    ],
)  # fmt: skip
def test_merge_keys_of_kubernetes_kinds(
    reason: str, version: str, kind: str, path: tuple[str, ...], want: tuple[str, ...] | None
) -> None:
    assert keys(Schemas().shape(version, kind), *path) == want, reason


def test_kubernetes_schema_is_generated() -> None:
    assert kubernetes_schema.NEW.read_bytes() == kubernetes_schema.generate(), "run `make docs`"


def crd(fruits: dict[str, Any]) -> dict[str, Any]:
    schema = {"openAPIV3Schema": {"properties": {"spec": {"properties": {"fruits": fruits}}}}}
    spec = {"group": "example.com", "names": {"kind": "Shop"}, "versions": [{"name": "v1", "schema": schema}]}
    return {"kind": "CustomResourceDefinition", "spec": spec}


@pytest.mark.parametrize(
    ("reason", "fruits", "want"),
    [
        ("list of maps", {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
            ("name",)),
        ("set", {"x-kubernetes-list-type": "set"}, ()),
        ("patch merge key", {"x-kubernetes-patch-strategy": "merge", "x-kubernetes-patch-merge-key": "id"},
            ("id",)),
        ("atomic", {"x-kubernetes-list-type": "atomic"}, None),
        ("nothing said", {"type": "array"}, None),
    ],
)  # fmt: skip
def test_merge_keys_of_crds_in_the_package(
    reason: str, fruits: dict[str, Any], want: tuple[str, ...] | None
) -> None:
    shape = Schemas(crd_shapes([crd(fruits)])).shape("example.com/v1", "Shop")

    assert keys(shape, "spec", "fruits") == want, reason
    assert keys(shape, "metadata", "finalizers") == ()


def test_key_of_an_element_may_have_a_default() -> None:
    names = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["port", "protocol"]}
    parts = {"protocol": {"default": "UDP"}, "port": {}, "other": {"default": "a"}}
    of_crd = Schemas(crd_shapes([crd({**names, "items": {"properties": parts}})]))
    shapes = (
        at(of_crd.shape("example.com/v1", "Shop"), "spec", "fruits"),
        at(Schemas().shape("v1", "Service"), "spec", "ports"),
    )

    assert [shape and shape.defaults for shape in shapes] == [{"protocol": "UDP"}, {"protocol": "TCP"}]


@pytest.mark.parametrize("broken", [None, 7, {"kind": "CustomResourceDefinition"}, crd({"properties": 3})])
def test_broken_crd_has_no_merge_keys(broken: Any) -> None:
    assert keys(Schemas(crd_shapes([broken])).shape("example.com/v1", "Shop"), "spec", "fruits") is None


def test_schema_in_a_comment_can_reference_a_kubernetes_type() -> None:
    shape = declared_shape({"$ref": "#/definitions/io.k8s.api.core.v1.PodSpec"})

    assert keys(shape, "containers") == ("name",)


def test_declared_merge_keys_extend_the_schema() -> None:
    clauses = list(parse_merge_keys("spec.fruits=name; spec.ports=port,protocol;nonsense"))
    shape: Shape | None = Schemas().shape("example.com/v1", "Shop")
    for path, names in clauses:
        shape = with_merge_keys(shape, path, names)

    assert clauses == [(("spec", "fruits"), ("name",)), (("spec", "ports"), ("port", "protocol"))]
    assert keys(shape, "spec", "ports") == ("port", "protocol")
    assert keys(shape, "metadata", "finalizers") == ()
