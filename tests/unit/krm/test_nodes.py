"""Nodes of a merge: their text, comments and identity, and when two are the same."""

from typing import Any

import pytest

from reconciler.krm.merge import Node, is_same, root_of
from reconciler.krm.merge.nodes import child, is_rendered_same, may_have_schema, shape_in_comments
from reconciler.krm.yaml import Tree, YamlError


def node(text: str, *path: str | int) -> Node:
    at = root_of(Tree.parse(text))
    assert at
    for step in path:
        at = at.children[step] if isinstance(step, str) else at.items[step]
    return at


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [
        ("a: 1\nb: 2\n", "b: 2\na: 1\n", True),
        ("a: 1\n", "a: 1 # c\n", True),
        ("a: x\n", "a: 'x'\n", True),
        ("a: 1\n", "a: '1'\n", False),
        ("a: 1\n", "a: 2\n", False),
        ("a: 1\n", "b: 1\n", False),
        ("a: 1\nb: 1\n", "a: 1\n", False),
        ("a: 1\nb: 1\n", "a: 1\nb: 2\n", False),
        ("[1, 2]", "- 1\n- 2\n", True),
        ("[1, 2]", "[2, 1]", False),
        ("[1, 2]", "[1]", False),
        ("[1, 2]", "[1, 3]", False),
        ("[]", "{}", False),
        ("a: &x 1\nb: *x\n", "a: 1\nb: 1\n", False),
    ],
)
def test_values_are_the_same_by_data_and_type(left: str, right: str, *, same: bool) -> None:
    assert is_same(node(left), node(right)) is same
    assert is_same(node(right), node(left)) is same


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [
        ("a: 1\n", "a: 1\n", True),
        ("a: 1\n", "a: 2\n", False),
        ("a: 1 # c\n", "a: 1 # c\n", True),
        ("a: 1 # c\n", "a: 1\n", False),
        ("a: 1 # c\n", "a: 1 # d\n", False),
        ("a:\n  b: 1 # c\n", "a:\n  b: 1 # d\n", False),
        ("a:\n- 1 # c\n- 2\n", "a:\n- 1\n- 2 # c\n", False),
        ("a: '#'\n", "a: '#'\n", True),
        ("# head\na: 1\n", "a: 1\n", True),
    ],
)
def test_values_render_the_same_with_the_same_line_comments(left: str, right: str, *, same: bool) -> None:
    assert is_rendered_same(node(left), node(right)) is same
    assert is_rendered_same(node(right), node(left)) is same


@pytest.mark.parametrize(
    ("text", "path", "has_alias"),
    [
        ("a: &x 1\nb: *x\n", (), True),
        ("a: &x 1\nb: *x\n", ("a",), True),
        ("a: &x 1\nb: *x\n", ("b",), True),
        ("a: &x 1\nb: {c: [*x]}\nd: '&*'\n", ("b",), True),
        ("a: &x 1\nb: {c: [*x]}\nd: '&*'\n", ("d",), False),
        ("a: '*'\nb: 1\n", (), False),
    ],
)
def test_anchor_or_alias_is_found_at_any_depth(text: str, path: tuple[str, ...], *, has_alias: bool) -> None:
    assert node(text, *path).has_alias() is has_alias


ALIASED = "a: &x {b: 1}\nc: [*x, {d: 2}]\ne: {f: &y 1, g: *y}\nh: 3\n"


@pytest.mark.parametrize(
    ("path", "alone", "whole"),
    [
        ((), False, True),
        (("a",), True, True),
        (("a", "b"), True, True),
        (("c",), False, True),
        (("c", 0), True, True),
        (("c", 0, "b"), True, True),
        (("c", 1), False, False),
        (("c", 1, "d"), False, False),
        (("c", 2), False, False),
        (("e",), False, True),
        (("e", "f"), True, True),
        (("e", "g"), True, True),
        (("h",), False, False),
        (("gone", "x"), False, False),
    ],
)
def test_path_is_aliased_at_or_above_it_and_below_if_asked(
    path: tuple[Any, ...], *, alone: bool, whole: bool
) -> None:
    assert node(ALIASED).is_aliased(path, whole=False) is alone
    assert node(ALIASED).is_aliased(path, whole=True) is whole
    assert not node("a: 1\n").is_aliased(("a",), whole=True)


TEXT = """\
# head
a: 1 # of a
b: # of b
  # below
  c: x  # of c
  d:
  - 1
  # of two
  - 2 # two
  # foot
e: {f: 1, g: [2, 3]} # of e
h: |
  text

i: last"""


@pytest.mark.parametrize(
    ("path", "source", "value"),
    [
        (("a",), "1 # of a", "1"),
        (("b",), "  # below\n  c: x  # of c\n  d:\n  - 1\n  # of two\n  - 2 # two\n  # foot", None),
        (("b", "c"), "x  # of c", "x"),
        (("b", "d"), "  - 1\n  # of two\n  - 2 # two", "- 1\n# of two\n- 2 # two"),
        (("b", "d", 1), "2 # two", "2"),
        (("e",), "{f: 1, g: [2, 3]} # of e", "{f: 1, g: [2, 3]}"),
        (("e", "g", 0), "2, 3]} # of e", "2"),
        (("h",), "|\n  text", "|\n  text"),
        (("i",), "last", "last"),
    ],
)
def test_node_has_the_text_of_its_lines_and_of_its_value(
    path: tuple[Any, ...], source: str, value: str | None
) -> None:
    at = node(TEXT, *path)

    assert at.source == source
    if value is not None:
        assert at.as_value().text == value


@pytest.mark.parametrize(
    ("path", "slot"),
    [
        (("a",), "# head\na: 1 # of a"),
        (("b", "c"), "# below\nc: x  # of c"),
        (("b", "d", 1), "# of two\n- 2 # two"),
        (("i",), "i: last"),
    ],
)
def test_slot_is_the_entry_or_item_with_all_its_comments(path: tuple[Any, ...], slot: str) -> None:
    assert node(TEXT, *path).as_slot().text == slot


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (("a",), "# of a"),
        (("b",), "# of b"),
        (("b", "c"), "# of c"),
        (("b", "d", 0), ""),
        (("b", "d", 1), "# two"),
        (("e",), "# of e"),
        (("e", "f"), ""),
        (("i",), ""),
        ((), ""),
    ],
)
def test_line_comment_is_that_behind_the_node(path: tuple[Any, ...], line: str) -> None:
    assert node(TEXT, *path).comments.line == line


def test_key_that_is_set_twice_is_refused() -> None:
    with pytest.raises(YamlError, match="A key is set twice in one mapping"):
        _ = node("a: 1\n'a': 2\n").children


KINDS = "a: x\nb: [1]\nc: {d: 1}\ne:\n- 1\nf: &x 'q'\ng: *x\n"


def test_kinds_and_styles_of_nodes() -> None:
    def those(name: str) -> str:
        return "".join(key for key, value in node(KINDS).children.items() if getattr(value, name))

    assert [
        those(name) for name in ("is_scalar", "is_sequence", "is_mapping", "is_flow", "is_block", "is_plain")
    ] == [
        "afg",
        "be",
        "c",
        "bc",
        "e",
        "a",
    ]
    assert (node(KINDS, "a").text, node(KINDS, "g").text) == ("x", "*x")
    assert those("has_anchor") == "f"
    assert child(node(KINDS, "c"), "d")
    assert child(node(KINDS, "c"), "x") is None
    assert child(None, "x") is None


def test_schema_in_a_comment_is_that_of_the_first_side_that_has_one() -> None:
    pod, none = '# {"$ref": "#/definitions/io.k8s.api.core.v1.PodSpec"}', "# {not JSON"
    with_pod, without = node(f"a: {pod}\n  b: 1\n", "a"), node(f"a: {none}\n  b: 1\n", "a")
    above = node(f"{pod}\na: 1\n", "a")

    assert shape_in_comments(None, without, with_pod)
    assert shape_in_comments(above)
    assert shape_in_comments(without, None) is None
    assert shape_in_comments(node("a: # [1]\n  b: 1\n", "a")) is None
    assert may_have_schema(Tree.parse(f"a: 1 {pod}\n"))
    assert not may_have_schema(Tree.parse("a: 1 # b\n"))
    assert not may_have_schema(None)
