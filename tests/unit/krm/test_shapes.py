"""Shapes of fields, types of tagged scalars, and blank lines of emitted blocks."""

from typing import Any

import pytest

from reconciler.krm.merge.compatible import _equal
from reconciler.krm.merge.nodes import Node, root_of
from reconciler.krm.schema import Shape
from reconciler.krm.yaml import Indentation, Tree, emit, load_documents

KEYED = Shape(keys=("name",))


@pytest.mark.parametrize(
    ("shape", "name", "below"),
    [
        (Shape(fields={"a": KEYED}), "a", KEYED),
        (Shape(fields={"a": KEYED}), "b", None),
        (Shape(fields={"a": KEYED}, values=Shape()), "b", Shape()),
        (Shape(fields={"a": KEYED}, values=Shape()), "a", KEYED),
    ],
)
def test_shape_of_a_field_is_its_own_else_that_of_all_values(
    shape: Shape, name: str, below: Shape | None
) -> None:
    assert shape.below(name) == below


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


def test_absent_values_are_equal_to_absent_ones_only() -> None:
    one, same, other = field("a: 1"), field("a: 1 "), field("a: 2")

    assert _equal(None, None)
    assert not _equal(one, None)
    assert not _equal(None, one)
    assert _equal(one, same)
    assert not _equal(one, other)


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
