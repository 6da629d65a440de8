"""Shapes of fields, types of tagged scalars, and blank lines of emitted blocks."""

from contextlib import nullcontext
from typing import Any

import pytest

from reconciler.krm.merge.nodes import Node, root_of
from reconciler.krm.schema import crd_shapes
from reconciler.krm.yaml import PACKAGE_LIMITS, Indentation, Tree, YamlError, emit, load_documents, load_json
from tests.support.values import replace


def field(text: str) -> Node:
    root = root_of(Tree.parse(text))
    assert root is not None
    return root.children["a"]


@pytest.mark.parametrize(
    ("text", "typed"),
    [
        ("a: 1", 1),
        ("a: '1'", "1"),
        ("a: !!str 1", "1"),
        ("a: !!int '7'", 7),
        ("a: !!float '1.5'", 1.5),
        ("a: ! 1", "1"),
        ("a: ! true", "true"),
        ("a: true", True),
        ("a: !!int x", "x"),
    ],
)
def test_scalar_has_the_type_of_its_tag(text: str, typed: Any) -> None:
    found = field(text).typed

    assert (type(found), found) == (type(typed), typed)


@pytest.mark.parametrize("text", ["a: ! 1\n", "a: ! true\nb: 1\n", "a: [! 1]\n"])
def test_mark_without_a_tag_makes_a_text(text: str) -> None:
    (document,) = load_documents(text.encode())

    assert document.value["a"] in ("1", "true", ["1"])


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"a": {"b": "x\n\ny\n"}}, "a:\n  b: |\n    x\n\n    y\n"),
        ({"a": ["x\n\ny\n"]}, "a:\n- |\n  x\n\n  y\n"),
        ({"a": [{"b": "x\n\ny\n"}]}, "a:\n- b: |\n    x\n\n    y\n"),
    ],
)
def test_blank_lines_of_a_block_have_no_spaces(value: Any, text: str) -> None:
    written = emit(value, indentation=Indentation(2, compact_lists=True))

    assert f"{written.rstrip()}\n" == text


# Limits, and texts that cannot be read


@pytest.mark.parametrize(
    ("data", "depth", "is_read"),
    [
        (b'{"a": [1]}', 2, True),
        (b'{"a": [1]}', 1, False),
        (b'{"a": 1, "b": [[1]]}', 3, True),
        (b'{"a": 1, "b": [[1]]}', 2, False),
        (b"[[], [[]]]", 2, False),
        (b"[[], []]", 2, True),
    ],
)
def test_depth_is_that_of_the_deepest_part(data: bytes, depth: int, is_read: bool) -> None:
    limits = replace(PACKAGE_LIMITS, max_depth=depth)

    with nullcontext() if is_read else pytest.raises(YamlError, match="nested more than"):
        load_json(data, limits)


def test_long_text_is_shown_in_part() -> None:
    with pytest.raises(YamlError) as caught:
        load_documents(b"a: !!int " + b"x" * 60)

    assert str(caught.value).endswith("This value is no !!int")


@pytest.mark.parametrize(
    ("properties", "defaults"),
    [
        ({"protocol": {"default": "TCP"}}, {"protocol": "TCP"}),
        ({"port": {"default": 80}, "protocol": {"default": None}}, {"port": "80"}),
        ({"protocol": {"default": ["TCP"]}, "port": {}}, {}),
        ({"protocol": "no schema"}, {}),
        ({}, {}),
    ],
)
def test_default_of_a_merge_key_is_that_of_its_schema(
    properties: dict[str, Any], defaults: dict[str, str]
) -> None:
    keyed = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["port", "protocol"]}
    schemas = {"a": {**keyed, "items": {"properties": properties}}, "bare": keyed}
    version = {"name": "v1", "schema": {"openAPIV3Schema": {"properties": schemas}}}
    spec = {"group": "example.com", "names": {"kind": "Shop"}, "versions": [version]}

    (shape,) = crd_shapes([{"kind": "CustomResourceDefinition", "spec": spec}]).values()

    assert (shape.fields["a"].defaults, shape.fields["bare"].defaults) == (defaults, {})
