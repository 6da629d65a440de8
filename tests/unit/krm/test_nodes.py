"""Nodes of a merge: their text, comments and identity, and when two are the same."""

from typing import Any

import pytest

from reconciler.krm.merge import Node, root_of
from reconciler.krm.merge.nodes import may_have_schema, shape_in_comments
from reconciler.krm.yaml import Tree


def node(text: str, *path: str | int) -> Node:
    at = root_of(Tree.parse(text))
    assert at
    for step in path:
        at = at.children[step] if isinstance(step, str) else at.items[step]
    return at


ALIASED = "a: &x {b: 1}\nc: [*x, {d: 2}]\ne: {f: &y 1, g: *y}\nh: 3\n"


@pytest.mark.parametrize(
    ("path", "alone", "whole"),
    [
        ((), False, True), (("a",), True, True), (("a", "b"), True, True), (("c",), False, True),
        (("c", 0), True, True), (("c", 0, "b"), True, True), (("c", 1), False, False),
        (("c", 1, "d"), False, False), (("c", 2), False, False), (("e",), False, True),
        (("e", "f"), True, True), (("e", "g"), True, True), (("h",), False, False),
        (("gone", "x"), False, False),
    ],
)  # fmt: skip
def test_path_is_aliased_at_or_above_it_and_below_if_asked(
    path: tuple[Any, ...], *, alone: bool, whole: bool
) -> None:
    assert node(ALIASED).is_aliased(path, whole=False) is alone
    assert node(ALIASED).is_aliased(path, whole=True) is whole
    assert not node("a: 1\n").is_aliased(("a",), whole=True)


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


@pytest.mark.parametrize("above", ["", "k: 1\n"])
def test_source_of_a_block_begins_behind_the_line_of_its_key(above: str) -> None:
    text = f"{above}a: # of a\n  # of b\n  b: 1 # b\nc: 2\n"

    assert [node(text, name).source for name in "ac"] == ["  # of b\n  b: 1 # b", "2"]
