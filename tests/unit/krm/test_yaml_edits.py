"""Edits: exactly the bytes that change, style by style."""

from typing import NamedTuple

import pytest

from reconciler.krm.yaml import (
    AddKey,
    DeleteItem,
    DeleteKey,
    Edit,
    InsertItem,
    Raw,
    SetHeadComment,
    SetLineComment,
    SetValue,
    Tree,
    YamlError,
    apply_edits,
    edit_tree,
)


class Case(NamedTuple):
    reason: str
    before: str
    edit: Edit
    after: str


A = ("a",)
SET = [
    Case("plain", "a: b # c\n", SetValue(A, "d"), "a: d # c\n"),
    Case("odd spacing stays", "a:   b\n", SetValue(A, "d"), "a:   d\n"),
    Case("no final newline", "a: b", SetValue(A, "d"), "a: d"),
    Case("comment above the value stays", "a: # c\n  b\n", SetValue(A, "d"), "a: # c\n  d\n"),
    Case("comment above and behind stay", "a: # c\n  b # e\n", SetValue(A, "d"), "a: # c\n  d # e\n"),
    Case("same value below its comment", "a: # c\n  b\n", SetValue(A, "b"), "a: # c\n  b\n"),
    Case("CRLF", "a: b\r\nc: d\r\n", SetValue(A, "x"), "a: x\r\nc: d\r\n"),
    Case("BOM", "\ufeffa: b\n", SetValue(A, "x"), "\ufeffa: x\n"),
    Case("single quotes stay", "a: 'b'\n", SetValue(A, "it's"), "a: 'it''s'\n"),
    Case("double quotes stay", 'a: "b"\n', SetValue(A, "c"), 'a: "c"\n'),
    Case("quotes go with the string", 'a: "b"\n', SetValue(A, 1), "a: 1\n"),
    Case("single quotes cannot hold it", "a: 'b'\n", SetValue(A, "\x07"), 'a: "\\u0007"\n'),
    Case("a word that is a bool", "a: b\n", SetValue(A, "on"), 'a: "on"\n'),
    Case("a date", "a: b\n", SetValue(A, "2001-01-01"), 'a: "2001-01-01"\n'),
    Case("a number as text", "a: b\n", SetValue(A, "0777"), 'a: "0777"\n'),
    Case("a bool", "a: b\n", SetValue(A, False), "a: false\n"),
    Case("null", "a: b\n", SetValue(A, None), "a: null\n"),
    Case("an empty value", "a: # c\nb: 1\n", SetValue(A, "x"), "a: x # c\nb: 1\n"),
    Case("an empty value at the end", "a:", SetValue(A, "x"), "a: x"),
    Case("an empty item", "-\n- b\n", SetValue((0,), "x"), "- x\n- b\n"),
    Case("anchor stays", "a: &x b\n", SetValue(A, "c"), "a: &x c\n"),
    Case("a tag that fits stays", "a: !!str 1\n", SetValue(A, "2"), 'a: !!str "2"\n'),
    Case("a tag that does not fit goes", "a: !!str 1\n", SetValue(A, 2), "a: 2\n"),
    Case("an alias is written out", "a: &x 1\nb: *x\n", SetValue(("b",), 2), "a: &x 1\nb: 2\n"),
    Case("inside an alias", "a: &x {c: 1, d: 2}\nb: *x\n", SetValue(("b", "c"), 3),
        "a: &x {c: 1, d: 2}\nb:\n  c: 3\n  d: 2\n"),
    Case("flow", "a: {b: c, d: e}\n", SetValue(("a", "b"), "x, y"), 'a: {b: "x, y", d: e}\n'),
    Case("flow without a value", "a: {b}\n", SetValue(("a", "b"), 1), "a: {b: 1}\n"),
    Case("collection in flow", "a: {b: c}\n", SetValue(("a", "b"), {"x": [1]}), "a: {b: {x: [1]}}\n"),
    Case("JSON", '{"a": {"b": "c"}}\n', SetValue(("a", "b"), "d"), '{"a": {"b": "d"}}\n'),
    Case("multi-line plain", "a: b\n  c\nd: e\n", SetValue(A, "x"), "a: x\nd: e\n"),
    Case("literal", "a: |\n    b\n    c\n\nd: e\n", SetValue(A, "x\ny\n"), "a: |\n    x\n    y\n\nd: e\n"),
    Case("literal, comment", "a: | # c\n  b\n", SetValue(A, "x\n"), "a: | # c\n  x\n"),
    Case("literal, other end", "a: |\n  b\nc: d\n", SetValue(A, "x"), "a: |-\n  x\nc: d\n"),
    Case("literal, kept ends", "a: |+\n  b\n\nc: d\n", SetValue(A, "x\n\n\n"), "a: |+\n  x\n\n\nc: d\n"),
    Case("folded", "a: >\n  b\n  c\nd: e\n", SetValue(A, "x\ny\n"), "a: >\n  x\n\n  y\nd: e\n"),
    Case("several lines", "a: b # c\nd: e\n", SetValue(A, "x\ny\n"), "a: | # c\n  x\n  y\nd: e\n"),
    Case("several lines at the end", "a: b", SetValue(A, "x\ny\n"), "a: |\n  x\n  y\n"),
    Case("scalar to collection", "a: b # c\nd: e\n", SetValue(A, {"x": [1]}), "a: # c\n  x:\n  - 1\nd: e\n"),
    Case("collection to scalar", "a: # c\n  # d\n  b: 1 # e\nf: g\n", SetValue(A, 1), "a: 1 # c\nf: g\n"),
    Case("item to collection", "- a\n- b\n", SetValue((0,), {"x": 1, "z": 2}), "- x: 1\n  z: 2\n- b\n"),
    Case("collection to item", "- x: 1\n  y: 2\n- b\n", SetValue((0,), "a"), "- a\n- b\n"),
    Case("wide lists stay wide", "a:\n  - b\n", SetValue(A, ["x", "z"]), "a:\n  - x\n  - z\n"),
    Case("compact lists stay compact", "a:\n- b\n", SetValue(A, ["x", "z"]), "a:\n- x\n- z\n"),
    Case("the file's own indentation", "a:\n    b:\n        c: 1\nd: 1\n", SetValue(("d",), {"x": {"z": 1}}),
        "a:\n    b:\n        c: 1\nd:\n    x:\n        z: 1\n"),
    Case("absent, with parents", "a: b\n", SetValue(("c", "d"), "x"), "a: b\nc:\n  d: x\n"),
    Case("the root", "a: b\n", SetValue((), {"c": 1}), "c: 1\n"),
    Case("nothing yet", "# c\n", SetValue((), {"a": 1}), "# c\na: 1\n"),
    Case("raw text", "a: b\n", SetValue(A, Raw("'x' # y")), "a: 'x' # y\n"),
    Case("raw block", "a: b\n", SetValue(A, Raw("x: 1 # y\nz:\n  - 1")), "a:\n  x: 1 # y\n  z:\n    - 1\n"),
]  # fmt: skip
ADD = [
    Case("last", "a: 1 # c\n\nb: 2\n", AddKey((), "c", 3), "a: 1 # c\n\nb: 2\nc: 3\n"),
    Case("no final newline", "a: 1", AddKey((), "c", 3), "a: 1\nc: 3"),
    Case("before", "a: 1\n# of b\nb: 2\n", AddKey((), "c", 3, before="b"), "a: 1\nc: 3\n# of b\nb: 2\n"),
    Case("after", "a: 1 # c\nb: 2\n", AddKey((), "c", 3, after="a"), "a: 1 # c\nc: 3\nb: 2\n"),
    Case("behind a dash, before", "- a: 1\n", AddKey((0,), "c", 3, before="a"), "- c: 3\n  a: 1\n"),
    Case("behind a dash, last", "- a: 1\n- b\n", AddKey((0,), "c", 3), "- a: 1\n  c: 3\n- b\n"),
    Case("last, before a comment of the next", "a:\n  b: 1\n# of c\nc: 2\n", AddKey(A, "d", 3),
        "a:\n  b: 1\n  d: 3\n# of c\nc: 2\n"),
    Case("after a literal", "a: |\n  x\n\nb: 1\n", AddKey((), "c", 1, after="a"),
        "a: |\n  x\nc: 1\n\nb: 1\n"),
    Case("to {}", "a: {}\nb: 1\n", AddKey(A, "c", 3), "a:\n  c: 3\nb: 1\n"),
    Case("to null", "a: # x\nb: 1\n", AddKey(A, "c", 3), "a: # x\n  c: 3\nb: 1\n"),
    Case("to what is absent", "b: 1\n", AddKey(A, "c", 3), "b: 1\na:\n  c: 3\n"),
    Case("to an empty document", "{}\n", AddKey((), "c", 3), "c: 3\n"),
    Case("flow", "a: {b: 1}\n", AddKey(A, "c", "d"), "a: {b: 1, c: d}\n"),
    Case("flow, before", "a: { b: 1 }\n", AddKey(A, "c", 3, before="b"), "a: { c: 3, b: 1 }\n"),
    Case("flow, comma at the end", "a: {b: 1,}\n", AddKey(A, "c", 3), "a: {b: 1, c: 3,}\n"),
    Case("a key that needs quotes", "a: 1\n", AddKey((), "on", 1), 'a: 1\n"on": 1\n'),
    Case("CRLF", "a: 1\r\n", AddKey((), "b", {"c": 1}), "a: 1\r\nb:\r\n  c: 1\r\n"),
    Case("raw entry, re-indented", "a:\n    b: 1\n", AddKey(A, "c", Raw("# head\nc: # line\n- 'x'\n# foot")),
        "a:\n    b: 1\n    # head\n    c: # line\n    - 'x'\n    # foot\n"),
    Case("last, above a comment at the end of the map", "a:\n  b: 1\n  # end of a\n# end\n",
        AddKey(A, "c", {"d": 1}), "a:\n  b: 1\n  c:\n    d: 1\n  # end of a\n# end\n"),
    Case("last, below a comment at the end of a map in it",
        "a:\n  b:\n    c: 1\n    # end of b\n  # end of a\n", AddKey(A, "d", 1),
        "a:\n  b:\n    c: 1\n    # end of b\n  d: 1\n  # end of a\n"),
    Case("kept line breaks above blank lines", "a: 1\n\n\nb: 1\n",
        AddKey((), "c", Raw("c: |+\n  x\n"), after="a"), "a: 1\nc: |+\n  x\n\nb: 1\n"),
    Case("raw entry with deeper indentation", "a:\n  b: 1\n",
        AddKey(A, "k", Raw("# head\nk: # line\n    z: 'on'\n# foot")),
        "a:\n  b: 1\n  # head\n  k: # line\n      z: 'on'\n  # foot\n"),
    Case("raw entry into null", "a:\n", AddKey(A, "c", Raw("c: 'x' # y")), "a:\n  c: 'x' # y\n"),
    Case("raw entry into flow", "a: {b: 1}\n", AddKey(A, "c", Raw("c: 'x' # y")), "a: {b: 1, c: x}\n"),
    Case("raw entry to what is absent", "b: 1\n", AddKey(A, "c", Raw("c: 'x'")), "b: 1\na:\n  c: 'x'\n"),
]  # fmt: skip
INSERT = [
    Case("first", "a:\n- b\n", InsertItem(A, 0, "x"), "a:\n- x\n- b\n"),
    Case("last", "a:\n- b # c\n# d\n", InsertItem(A, 1, "x"), "a:\n- b # c\n- x\n# d\n"),
    Case("last, wide", "a:\n  - b # c\n  # d\n", InsertItem(A, 1, "x"), "a:\n  - b # c\n  - x\n  # d\n"),
    Case("between", "- a\n# of b\n- b\n", InsertItem((), 1, "x"), "- a\n- x\n# of b\n- b\n"),
    Case("a mapping", "a:\n  - b: 1\n", InsertItem(A, 1, {"c": 1, "d": [2]}),
        "a:\n  - b: 1\n  - c: 1\n    d:\n      - 2\n"),
    Case("nested, first", "- - a\n", InsertItem((0,), 0, "x"), "- - x\n  - a\n"),
    Case("to []", "a: []\nb: 1\n", InsertItem(A, 0, "x"), "a:\n- x\nb: 1\n"),
    Case("to null", "a:\nb: 1\n", InsertItem(A, 0, "x"), "a:\n- x\nb: 1\n"),
    Case("flow", "a: [b]\n", InsertItem(A, 1, "x"), "a: [b, x]\n"),
    Case("flow, first", "a: [b]\n", InsertItem(A, 0, "x"), "a: [x, b]\n"),
    Case("raw item", "a:\n- b\n", InsertItem(A, 1, Raw("# h\n- c: 'x' # y\n  d: 1")),
        "a:\n- b\n# h\n- c: 'x' # y\n  d: 1\n"),
]  # fmt: skip
DELETE = [
    Case("first", "a: 1\nb: 2\n", DeleteKey(A), "b: 2\n"),
    Case("last", "b: 2\na: 1\n", DeleteKey(A), "b: 2\n"),
    Case("last, no final newline", "b: 2\na: 1", DeleteKey(A), "b: 2"),
    Case("with its comments", "# of a\na: 1 # x\n# of b\nb: 2\n", DeleteKey(A), "# of b\nb: 2\n"),
    Case("with its subtree", "a:\n  b:\n  - c # d\n  # e\nf: 1\n", DeleteKey(A), "f: 1\n"),
    Case("last, above a comment at the end", "b: 2\na: 1\n# end\n", DeleteKey(A), "b: 2\n# end\n"),
    Case("blank lines stay", "b: 1\n\na: 2\n\nc: 3\n", DeleteKey(A), "b: 1\n\n\nc: 3\n"),
    Case("a literal", "a: |\n  x\n\n  y\nb: 1\n", DeleteKey(A), "b: 1\n"),
    Case("the only key", "b:\n  a: 1\nc: 1\n", DeleteKey(("b", "a")), "b: {}\nc: 1\n"),
    Case("the only key of the document", "a: 1\n", DeleteKey(A), "{}\n"),
    Case("the only key behind a dash", "- a: 1\n", DeleteKey((0, "a")), "- {}\n"),
    Case("behind a dash", "- a: 1\n  b: 2\n", DeleteKey((0, "a")), "- b: 2\n"),
    Case("behind a dash, next has a head", "- a: 1\n  # c\n  b: 2\n", DeleteKey((0, "a")), "- # c\n  b: 2\n"),
    Case("flow, first", "x: {a: 1, b: 2}\n", DeleteKey(("x", "a")), "x: {b: 2}\n"),
    Case("flow, last", "x: {b: 2, a: 1}\n", DeleteKey(("x", "a")), "x: {b: 2}\n"),
    Case("flow, only", "x: {a: 1}\n", DeleteKey(("x", "a")), "x: {}\n"),
    Case("item", "a:\n- b # c\n- d\n", DeleteItem(("a", 0)), "a:\n- d\n"),
    Case("item with head", "a:\n# h\n- b\n- d\n", DeleteItem(("a", 0)), "a:\n- d\n"),
    Case("only item", "a:\n- b\nc: 1\n", DeleteItem(("a", 0)), "a: []\nc: 1\n"),
    Case("nested item", "- - a\n  - b\n", DeleteItem((0, 0)), "- - b\n"),
    Case("flow item", "a: [b, c]\n", DeleteItem(("a", 1)), "a: [b]\n"),
    Case("CRLF", "a: 1\r\nb: 2\r\n", DeleteKey(A), "b: 2\r\n"),
]
COMMENT = [
    Case("line", "a: b\n", SetLineComment(A, "x"), "a: b # x\n"),
    Case("line, replaced", "a: b   # c\n", SetLineComment(A, "# x"), "a: b   # x\n"),
    Case("line, removed", "a: b   # c\nd: 1\n", SetLineComment(A, None), "a: b\nd: 1\n"),
    Case("line of a collection", "a:\n  # h\n  b: 1\n", SetLineComment(A, "x"), "a: # x\n  # h\n  b: 1\n"),
    Case("line of a literal", "a: |\n  b\n", SetLineComment(A, "x"), "a: | # x\n  b\n"),
    Case("line of an empty value", "a:\nb: 1\n", SetLineComment(A, "x"), "a: # x\nb: 1\n"),
    Case("line of an item", "- a\n", SetLineComment((0,), "x"), "- a # x\n"),
    Case("head", "b: 1\na: 1\n", SetHeadComment(A, "x\ny"), "b: 1\n# x\n# y\na: 1\n"),
    Case("head with a blank line", "b: 1\na: 1\n", SetHeadComment(A, "x\n\n#y"), "b: 1\n# x\n\n#y\na: 1\n"),
    Case("head, replaced", "a:\n  # c\n  b: 1\n", SetHeadComment(("a", "b"), "x\ny"),
        "a:\n  # x\n  # y\n  b: 1\n"),
    Case("head, removed", "b: 1\n# c\na: 1\n", SetHeadComment(A, None), "b: 1\na: 1\n"),
    Case("head behind a dash", "- a: 1\n", SetHeadComment((0, "a"), "x"), "- # x\n  a: 1\n"),
    Case("nothing to remove", "a: 1\n", SetHeadComment(A, None), "a: 1\n"),
]  # fmt: skip


@pytest.mark.parametrize(
    "case",
    [*SET, *ADD, *INSERT, *DELETE, *COMMENT],
    ids=lambda case: f"{type(case.edit).__name__}-{case.reason}",
)
def test_edit_changes_only_its_bytes(case: Case) -> None:
    result = apply_edits(case.before, [case.edit])

    assert (result.text, result.fallbacks) == (case.after, 0)


def test_edits_apply_in_order() -> None:
    edits = [
        AddKey((), "c", []),
        InsertItem(("c",), 0, "x"),
        InsertItem(("c",), 0, "w"),
        DeleteItem(("c", 1)),
        SetValue(("a",), 2),
        SetLineComment(("a",), "z"),
        DeleteKey(("b",)),
    ]

    assert apply_edits("a: 1\nb: 2\n", edits).text == "a: 2 # z\nc:\n- w\n"


def test_items_are_inserted_below_an_absent_mapping() -> None:
    edits = [InsertItem(("p", "b"), 0, 1), InsertItem(("p", "a"), 0, 2), AddKey(("p", "c"), "d", 3)]

    result = apply_edits("k: v\n", edits)

    assert (result.text, result.fallbacks) == ("k: v\np:\n  b:\n  - 1\n  a:\n  - 2\n  c:\n    d: 3\n", 0)


class Refused(NamedTuple):
    reason: str
    before: str
    edit: Edit


REFUSED = [
    Refused("an absent key", "a: 1\n", DeleteKey(("b",))),
    Refused("an absent item", "a: [1]\n", DeleteItem(("a", 1))),
    Refused("a key of a scalar", "a: 1\n", SetValue(("a", "b"), 1)),
    Refused("a key that is there", "a: 1\n", AddKey((), "a", 1)),
    Refused("an item too far", "a: [1]\n", InsertItem(("a",), 3, 1)),
    Refused("an infinite number", "a: 1\n", SetValue(A, float("inf"))),
    Refused("a number too large for 64 bits", "a: 1\n", SetValue(A, 2**64)),
    Refused("a key that is no string", "a: 1\n", SetValue(A, {1: 2})),
    Refused("a value that is no JSON", "a: 1\n", SetValue(A, object())),
    Refused("a lone surrogate", "a: 1\n", SetValue(A, "\ud800")),
    Refused("a text that is no YAML", "a: [", SetValue(A, 1)),
    Refused("a text with a duplicate key", "a: 1\na: 2\nb: 1\n", SetValue(("b",), 2)),
    Refused("a duplicate key elsewhere", "a:\n  x: 1\nb: 1\nb: 2\n", SetValue(("a", "x"), "y")),
    Refused("two documents", "a: 1\n---\na: 2\n", SetValue(A, 1)),
    Refused("raw text that is no YAML", "a: 1\n", SetValue(A, Raw("["))),
    Refused("raw entry of another key", "a: 1\n", AddKey((), "b", Raw("c: 1"))),
    Refused("a comment in flow style", "a: {b: 1}\n", SetLineComment(("a", "b"), "x")),
    Refused("a line comment of two lines", "a: 1\n", SetLineComment(A, "x\ny")),
    Refused("the root deleted", "a: 1\n", DeleteKey(())),
]


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.reason)
def test_impossible_edit_is_a_yaml_error(case: Refused) -> None:
    with pytest.raises(YamlError):
        apply_edits(case.before, [case.edit])


FALLBACKS = [
    Case("a complex key that is not the first", "a: 1\n? c\n: d\n", DeleteKey(("c",)), "a: 1\n"),
    Case("line breaks of old", "a: 1\rb: 2\r", DeleteKey(("b",)), "a: 1\n"),
    Case("a value that an alias repeats", "a: &x 1\nb: *x\n", SetValue(A, 2), "a: 2\nb: 1\n"),
    Case("a complex key", "? a\n: b\nc: d\n", DeleteKey(("a",)), "c: d\n"),
    Case("a comment in flow", "a: [b, # c\n  d]\n", DeleteItem(("a", 1)), "a: [b]\n"),
]


@pytest.mark.parametrize("case", FALLBACKS, ids=lambda case: case.reason)
def test_edit_beyond_splicing_falls_back_and_is_counted(case: Case) -> None:
    result = apply_edits(case.before, [case.edit])

    assert result.fallbacks == 1
    assert Tree.parse(result.text).value == Tree.parse(case.after).value


@pytest.mark.parametrize("odd", ["\x85", "\u2028"])
def test_comment_with_unusual_line_break_is_replaced_alone(odd: str) -> None:
    text = f"a: 1 # old{odd}b: 2\n"

    assert Tree.parse(text).value == {"a": 1, "b": 2}
    with pytest.raises(YamlError, match="cannot be made"):
        apply_edits(text, [SetLineComment(("a",), "new")])


@pytest.mark.parametrize(
    "metadata",
    [
        "metadata:\n  name: a\n",
        "metadata:\n    name: a\n",
        "metadata:\n  name: a\n  annotations:\n    b: c\n",
        "metadata:\n  name: a\n  annotations: {b: c}\n",
        "metadata: {name: a}\n",
        "metadata:\n  name: a # of b\n\n# below\n",
        "metadata:\n  annotations:\n    b: |\n      c\n\n\n",
        "metadata: &m\n  name: a\n",
        "metadata:\r\n  name: a\r\n",
        "metadata:\n  name: a\n  list:\n  - b\n",
        "metadata:\n",
    ],
)
@pytest.mark.parametrize("above", ["", "data:\n    deep:\n    - b\n", "# top\n---\n"])
def test_edits_of_one_key_are_those_of_the_whole_document(metadata: str, above: str) -> None:
    """Edits of the metadata alone are made in its lines; one more key makes them edits of the document."""
    tree = Tree.parse(f"{above}{metadata}kind: A\nspec:\n  items:\n  - b\n")
    edits = (
        SetLineComment(("metadata",), "# kpt-merge: /a"),
        SetValue(("metadata", "annotations", "x/y"), Raw("'a|b'")),
        SetValue(("metadata", "name"), "c"),
    )
    for few in (edits, edits[1:], edits[2:]):
        results = [_result(tree, tried) for tried in (few, (*few, SetValue(("kind",), tree.value["kind"])))]
        assert results[0] == results[1]


def _result(tree: Tree, edits: tuple[Edit, ...]) -> str:
    try:
        return edit_tree(tree, edits).text
    except YamlError as error:
        return error.message
