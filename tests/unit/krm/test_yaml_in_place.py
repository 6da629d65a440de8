"""Edits within lines: which ones need no second parse, and that they give what the checked way gives."""

from typing import NamedTuple

import pytest

from reconciler.krm.yaml import (
    AddKey,
    DeleteKey,
    Edit,
    InsertItem,
    Raw,
    SetHeadComment,
    SetLineComment,
    SetValue,
    Tree,
    YamlError,
    apply,
    apply_edits,
)
from reconciler.krm.yaml.in_place import edit_in_place
from reconciler.krm.yaml.limits import PACKAGE_LIMITS


class Case(NamedTuple):
    reason: str
    before: str
    edits: list[Edit]
    after: str | None
    """None where the lines alone do not tell what the edit does."""


CASES = [
    Case("a scalar", "a: b # c\n", [SetValue(("a",), "d")], "a: d # c\n"),
    Case("an item", "- a\n- b\n", [SetValue((1,), "x")], "- a\n- x\n"),
    Case(
        "a scalar in an item",
        "a:\n  b:\n  - c: 1\n",
        [SetValue(("a", "b", 0, "c"), 2)],
        "a:\n  b:\n  - c: 2\n",
    ),
    Case("a scalar twice", "a: 1\n", [SetValue(("a",), 2), SetValue(("a",), 3)], None),
    Case("a text of several lines", "a: b\n", [SetValue(("a",), "x\ny")], None),
    Case("a collection", "a: b\n", [SetValue(("a",), {"x": 1})], None),
    Case("raw text", "a: b\n", [SetValue(("a",), Raw("x"))], None),
    Case("instead of a collection", "a:\n  b: 1\n", [SetValue(("a",), 1)], None),
    Case("instead of an empty value", "a:\nb: 1\n", [SetValue(("a",), 1)], None),
    Case("instead of a block scalar", "a: |\n  b\n", [SetValue(("a",), "x\n")], None),
    Case("behind an anchor", "a: &x b\n", [SetValue(("a",), "c")], None),
    Case("behind a tag", "a: !!str b\n", [SetValue(("a",), "c")], None),
    Case("instead of two lines", "a: b\n  c\n", [SetValue(("a",), "x")], None),
    Case("below its key", "a:\n  b\n", [SetValue(("a",), "x")], None),
    Case("in flow style", "a: {b: c}\n", [SetValue(("a", "b"), "x")], None),
    Case("the root", "a\n", [SetValue((), "x")], None),
    Case("new key by set", "a: 1\n", [SetValue(("b",), 2)], "a: 1\nb: 2\n"),
    Case("new item by set", "- a\n", [SetValue((1,), 2)], None),
    Case("new key with parents", "a: 1\n", [SetValue(("b", "c"), 2)], None),
    Case("add", "a: 1\nb: 2\n", [AddKey((), "c", 3)], "a: 1\nb: 2\nc: 3\n"),
    Case("add after", "a: 1\nb: 2\n", [AddKey((), "c", 3, after="a")], "a: 1\nc: 3\nb: 2\n"),
    Case("add after what is absent", "a: 1\nb: 2\n", [AddKey((), "c", 3, after="z")], "a: 1\nb: 2\nc: 3\n"),
    Case("add before", "a: 1\n", [AddKey((), "c", 3, before="a")], None),
    Case("add that is there", "a: 1\n", [AddKey((), "a", 3)], None),
    Case("add twice", "a: 1\n", [AddKey((), "b", 3), AddKey((), "b", 4)], None),
    Case("add two", "a: 1\n", [AddKey((), "b", 2), AddKey((), "c", 3)], "a: 1\nb: 2\nc: 3\n"),
    Case(
        "add two after",
        "a: 1\nz: 2\n",
        [AddKey((), "b", 2, after="a"), AddKey((), "c", 3, after="b")],
        "a: 1\nb: 2\nc: 3\nz: 2\n",
    ),
    Case(
        "add two after the same",
        "a: 1\nz: 2\n",
        [AddKey((), "b", 2, after="a"), AddKey((), "c", 3, after="a")],
        None,
    ),
    Case(
        "add, then add after the first of two",
        "a: 1\n",
        [AddKey((), "b", 2), AddKey((), "c", 3), AddKey((), "d", 4, after="b")],
        None,
    ),
    Case(
        "add to child, then parent",
        "a:\n  b: 1\n",
        [AddKey(("a",), "c", 2), AddKey((), "d", 3)],
        "a:\n  b: 1\n  c: 2\nd: 3\n",
    ),
    Case("add to parent, then child", "a:\n  b: 1\n", [AddKey((), "d", 3), AddKey(("a",), "c", 2)], None),
    Case("add mapping", "a: 1\n", [AddKey((), "b", {"c": 1, "d": "e"})], "a: 1\nb:\n  c: 1\n  d: e\n"),
    Case("add nested mapping", "a: 1\n", [AddKey((), "b", {"c": {"d": 1}})], None),
    Case("add list", "a: 1\n", [AddKey((), "b", [1])], None),
    Case("add list in mapping", "a: 1\n", [AddKey((), "b", {"c": [1]})], None),
    Case("add text of lines", "a: 1\n", [AddKey((), "b", "x\ny")], None),
    Case("add text of lines in mapping", "a: 1\n", [AddKey((), "b", {"c": "x\ny"})], None),
    Case("add empty mapping", "a: 1\n", [AddKey((), "b", {})], "a: 1\nb: {}\n"),
    Case("add raw", "a: 1\n", [AddKey((), "b", Raw("b: 1"))], None),
    Case("add to flow", "a: {b: 1}\n", [AddKey(("a",), "c", 1)], None),
    Case("add to {}", "a: {}\n", [AddKey(("a",), "c", 1)], None),
    Case("add to item", "- a: 1\n- b: 1\n", [AddKey((0,), "c", 1)], "- a: 1\n  c: 1\n- b: 1\n"),
    Case("add to item of item", "- - a: 1\n", [AddKey((0, 0), "c", 1)], "- - a: 1\n    c: 1\n"),
    Case("add to scalar", "a: 1\n", [AddKey(("a",), "c", 1)], None),
    Case("add below comment", "a: 1 # c\nb: 1\n", [AddKey((), "c", 1, after="a")], "a: 1 # c\nc: 1\nb: 1\n"),
    Case("add above a comment", "a: 1\n# of b\nb: 1\n", [AddKey((), "c", 1, after="a")], None),
    Case("add above a comment after blank", "a: 1\n\n  # x\nb: 1\n", [AddKey((), "c", 1, after="a")], None),
    Case("add after block scalar", "a: |\n  x\nb: 1\n", [AddKey((), "c", 1, after="a")], None),
    Case("add after empty value", "a:\nb: 1\n", [AddKey((), "c", 1, after="a")], None),
    Case(
        "add after list",
        "a:\n- 1\n- 2\nb: 1\n",
        [AddKey((), "c", 1, after="a")],
        "a:\n- 1\n- 2\nc: 1\nb: 1\n",
    ),
    Case(
        "add after flow of lines",
        "a: [1,\n  2]\nb: 1\n",
        [AddKey((), "c", 1, after="a")],
        "a: [1,\n  2]\nc: 1\nb: 1\n",
    ),
    Case(
        "add after multi-line plain",
        "a: x\n  y\nb: 1\n",
        [AddKey((), "c", 1, after="a")],
        "a: x\n  y\nc: 1\nb: 1\n",
    ),
    Case("anchor anywhere", "a: &x 1\nb: 2\n", [AddKey((), "c", 1)], None),
    Case("odd break", "a: 1 # \x85\nb: 2\n", [AddKey((), "c", 1)], None),
    Case("complex key", "? a\n: 1\n", [AddKey((), "c", 1)], None),
    Case("CRLF", "a: 1\r\nb: 2\r\n", [AddKey((), "c", 1, after="a")], "a: 1\r\nc: 1\r\nb: 2\r\n"),
    Case("no newline", "a: 1", [AddKey((), "c", 1)], "a: 1\nc: 1"),
    Case(
        "deep indentation",
        "a:\n    b: 1\n",
        [AddKey(("a",), "c", {"d": 1})],
        "a:\n    b: 1\n    c:\n        d: 1\n",
    ),
    Case("comment", "a: 1\n", [SetLineComment(("a",), "x")], "a: 1 # x\n"),
    Case("comment replaced", "a: 1   # old\n", [SetLineComment(("a",), "# x")], "a: 1   # x\n"),
    Case("comment with blank end", "a: 1 # old  \n", [SetLineComment(("a",), "  x ")], "a: 1 # x  \n"),
    Case("comment twice", "a: 1\n", [SetLineComment(("a",), "x"), SetLineComment(("a",), "y")], None),
    Case("comment removed", "a: 1 # x\n", [SetLineComment(("a",), None)], None),
    Case("comment empty", "a: 1\n", [SetLineComment(("a",), " ")], None),
    Case("comment of lines", "a: 1\n", [SetLineComment(("a",), "x\ny")], None),
    Case("comment tab", "a: 1\n", [SetLineComment(("a",), "x\ty")], None),
    Case("comment of a collection", "a:\n  b: 1\n", [SetLineComment(("a",), "x")], None),
    Case("comment of absent", "a: 1\n", [SetLineComment(("b",), "x")], None),
    Case("comment of item", "- a\n", [SetLineComment((0,), "x")], "- a # x\n"),
    Case("comment on odd break", "a: 1 # o\x85b: 2\n", [SetLineComment(("a",), "x")], None),
    Case("comment in flow", "a: {b: 1}\n", [SetLineComment(("a", "b"), "x")], None),
    Case("comment and key", "a: 1\n", [SetLineComment(("a",), "x"), AddKey((), "b", 2)], "a: 1 # x\nb: 2\n"),
    Case(
        "comment replaced and key",
        "a: 1 # o\n",
        [SetLineComment(("a",), "x"), AddKey((), "b", 2)],
        "a: 1 # x\nb: 2\n",
    ),
    Case(
        "key and comment and value",
        "a: 1\nz: 1\n",
        [AddKey((), "b", 2, after="a"), SetLineComment(("a",), "x"), SetValue(("a",), 5)],
        "a: 5 # x\nb: 2\nz: 1\n",
    ),
    Case("nothing", "a: 1\n", [], "a: 1\n"),
    Case("delete", "a: 1\nb: 1\n", [DeleteKey(("a",))], None),
    Case("head comment", "a: 1\n", [SetHeadComment(("a",), "x")], None),
    Case("insert", "- a\n", [InsertItem((), 0, 1)], None),
    Case("value and delete", "a: 1\nb: 1\n", [SetValue(("a",), 2), DeleteKey(("b",))], None),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.reason)
def test_edit_within_lines_gives_the_text_of_a_checked_edit(case: Case) -> None:
    assert edit_in_place(Tree.parse(case.before), tuple(case.edits)) == case.after
    if case.after is not None:
        checked = apply._edit_checked(Tree.parse(case.before), tuple(case.edits), PACKAGE_LIMITS)
        assert (checked.text, checked.fallbacks) == (case.after, 0)


def test_edit_within_lines_is_not_parsed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise YamlError("It was parsed again")

    monkeypatch.setattr(apply, "_edit_checked", refuse)

    assert apply_edits("a: 1\n", [SetValue(("a",), 2)]).text == "a: 2\n"
    with pytest.raises(YamlError, match="parsed again"):
        apply_edits("a: 1\n", [DeleteKey(("a",))])


def test_text_near_a_limit_is_checked_as_a_whole() -> None:
    for size, in_place in ((1 << 20, True), ((1 << 20) + 1, False)):
        text = "a: ".ljust(size - 1, "x") + "\n"
        assert len(text) == size
        assert (edit_in_place(Tree.parse(text), (AddKey((), "b", 2),)) is not None) is in_place
    for depth, in_place in ((50, True), (51, False)):
        text = "".join(f"{' ' * level}k:\n" for level in range(depth)) + f"{' ' * depth}k: 1\n"
        edit = AddKey(("k",) * depth, "z", 2)
        assert (edit_in_place(Tree.parse(text), (edit,)) is not None) is in_place
