"""Nodes, their places, and which comment belongs to which field."""

import re

import pytest

from reconciler.krm.yaml import Alias, Comments, Entry, Item, Mapping, Path, Scalar, Sequence, Style, Tree
from reconciler.krm.yaml.tree import DOCUMENT, CommentPosition, fields_of

TEXT = """# of the document

# head of api
apiVersion: v1 # line
kind: X
# foot of kind

metadata: # kpt-merge: a/b
  name: "a # b" # n
  # end of metadata
labels:
  # head x
  x: |  # header
    # not a comment
    foo

  # head z

  # more of head z
  z: ["a # not", [b, # inside
    c]] # after
list:
# head of item
- a: 1 # one
  b: &anchor
    c: 1
# head of alias
- *anchor  # alias
- # head of first
  - p # p
  - q
  # end of list

# at the end
"""
OWNERS: list[tuple[Path, tuple[str, str, str]]] = [
    (("apiVersion",), ("# head of api", "# line", "")),
    (("kind",), ("", "", "# foot of kind")),
    (("metadata",), ("", "# kpt-merge: a/b", "")),
    (("metadata", "name"), ("", "# n", "")),
    (("labels", "x"), ("# head x", "# header", "")),
    (("labels", "z"), ("# head z\n\n# more of head z", "# after", "")),
    (("list",), ("", "", "")),
    (("list", 0), ("# head of item", "", "")),
    (("list", 0, "a"), ("", "# one", "")),
    (("list", 1), ("# head of alias", "# alias", "")),
    (("list", 2), ("", "", "")),
    (("list", 2, 0), ("# head of first", "# p", "")),
    (("list", 2, 1), ("", "", "")),
]


def _comments(tree: Tree, path: Path) -> Comments:
    slot = tree.slot(path)
    assert slot is not None
    return slot.comments


@pytest.mark.parametrize("newline", ["\n", "\r\n"], ids=["lf", "crlf"])
@pytest.mark.parametrize(("path", "want"), OWNERS, ids=[repr(path) for path, _ in OWNERS])
def test_comments_of_a_field(path: Path, want: tuple[str, str, str], newline: str) -> None:
    tree = Tree.parse(TEXT.replace("\n", newline))

    assert _comments(tree, path)[:3] == want


def _joined(tree: Tree, path: Path | None, position: CommentPosition) -> str:
    slot = tree.slot(path) if path is not None else None
    return tree.comments.joined((slot.start if slot is not None else DOCUMENT, position))[0]


@pytest.mark.parametrize("newline", ["\n", "\r\n"], ids=["lf", "crlf"])
@pytest.mark.parametrize(
    ("path", "position", "want"),
    [
        (None, CommentPosition.ABOVE, "# of the document"),
        (None, CommentPosition.TAIL, "# at the end"),
        (("metadata",), CommentPosition.TAIL, "# end of metadata"),
        (("list", 2), CommentPosition.TAIL, "# end of list"),
        (("list",), CommentPosition.TAIL, ""),
        (("labels", "z"), CommentPosition.INSIDE, "# inside"),
    ],
)
def test_comments_of_the_document_and_of_what_is_in_a_field(
    path: Path | None, position: CommentPosition, want: str, newline: str
) -> None:
    assert _joined(Tree.parse(TEXT.replace("\n", newline)), path, position) == want


@pytest.mark.parametrize(
    ("text", "owners"),
    [
        ("a:\n  b:\n    c: 1\n{}# x\n", {4: "b", 2: "a", 0: "", 3: "b", 1: "a", 6: "b"}),
        ("a:\n  b: 1\n{}# x\nd: 1\n", {2: "a", 1: "a", 4: "a"}),
        ("a:\n- b: 1\n{}# x\n", {2: "-", 1: "-", 0: ""}),
        ("a:\n  - b: 1\n{}# x\n", {4: "-", 3: "-", 2: "a", 1: "a", 0: ""}),
        ("a:\n- |\n  b\n{}# x\n", {1: "a", 0: ""}),
    ],
)
def test_comment_at_the_end_is_in_what_is_indented_less(text: str, owners: dict[int, str]) -> None:
    """A comment is one of the innermost collection with a key or dash that is indented less."""
    assert owners
    for column, owner in owners.items():
        written = text.format(" " * column)
        tree = Tree.parse(written)

        tails = [start for start, position in tree.comments.lines if position is CommentPosition.TAIL]

        starts = [written[start] if start >= 0 else "" for start in tails]
        assert starts == [owner], (text, column)


def test_every_line_between_fields_has_one_owner() -> None:
    tree = Tree.parse(TEXT)

    texts = [*tree.comments.texts()]

    # The dash and the header are no lines of their own, and text in quotes or a block is no comment.
    assert sorted(texts) == sorted(re.findall(r"(?<!a )# (?!not)[^\n]*", TEXT))


def test_spans_of_comments_cover_their_text() -> None:
    tree = Tree.parse(TEXT)

    for owner in tree.comments.lines:
        text, span = tree.comments.joined(owner)
        lines = tree.text[slice(*span)].split("\n") if span else []
        assert "\n".join(line.strip() for line in lines) == text


NODES = """a: plain text
b: 'it''s'
c: "x\\ty"
d: |
  one

e: >-
  two

f: !!str &x 1
g: {h: [1, 2]}
i:
"""


def test_node_has_text_style_tag_and_value() -> None:
    tree = Tree.parse(NODES)
    root = tree.root
    assert isinstance(root, Mapping)

    got = {
        entry.name: (entry.value.text, entry.value.style, entry.value.value, entry.value.properties)
        for entry in root.entries
        if not isinstance(entry.value, Alias)
    }

    assert got == {
        "a": ("plain text", Style.PLAIN, "plain text", ""),
        "b": ("'it''s'", Style.SINGLE, "it's", ""),
        "c": ('"x\\ty"', Style.DOUBLE, "x\ty", ""),
        "d": ("|\n  one", Style.LITERAL, "one\n", ""),
        "e": (">-\n  two", Style.FOLDED, "two", ""),
        "f": ("!!str &x 1", Style.PLAIN, "1", "!!str &x"),
        "g": ("{h: [1, 2]}", Style.FLOW, {"h": [1, 2]}, ""),
        "i": ("", Style.PLAIN, None, ""),
    }


def test_alias_is_a_separate_node() -> None:
    tree = Tree.parse(TEXT)
    node = tree.find(("list", 1))

    assert isinstance(node, Alias)
    assert (node.anchor, node.text, node.value) == ("anchor", "*anchor", {"c": 1})
    assert tree.mark(("list", 1)) == (28, 3)


def test_slots_by_typed_keys_and_indexes() -> None:
    tree = Tree.parse("on: 1\n1: [x, {z: 2}]\n'1.0': 3\n")

    assert isinstance(tree.slot(("true",)), Entry)
    assert isinstance(tree.slot(("1", 0)), Item)
    assert isinstance(tree.find(("1", 1, "z")), Scalar)
    assert isinstance(tree.find(("1",)), Sequence)
    assert tree.slot(("1.0",)) is not None
    for absent in [("on",), ("1", 2), ("1", -1), ("1", "0"), ("true", "x"), ()]:
        assert tree.slot(absent) is None


def test_fields_are_visited_where_their_extent_has_a_text() -> None:
    tree = Tree.parse("a: 1 # x\nb: 2\nc: {d: [3]}\ne:\n- 4 # x\n- 5\n- f: 6 # x\n  g: 7\n")

    every, marked = ([(field.name, field.comment) for field in fields_of(tree, m)] for m in ("", "# x"))

    assert every == [
        *(("a", "# x"), ("b", ""), ("c.d", ""), ("c.d[0]", ""), ("e", "")),
        *(("e[0]", "# x"), ("e[1]", ""), ("e[2].f", "# x"), ("e[2].g", "")),
    ]
    assert marked == [(name, comment) for name, comment in every if comment or name == "e"]


def test_empty_text_has_no_root() -> None:
    tree = Tree.parse("# only this\n")

    assert (tree.root, tree.value) == (None, None)
    assert _joined(tree, None, CommentPosition.TAIL) == "# only this"
