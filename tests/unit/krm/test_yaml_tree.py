"""Nodes, their places, and which comment belongs to which field."""

import pytest

from reconciler.krm.yaml import (
    Alias,
    Comments,
    Entry,
    Item,
    Mapping,
    Path,
    Scalar,
    Sequence,
    Style,
    Tree,
)

TEXT = """# of the document

# head of api
apiVersion: v1 # line
kind: X
# foot of kind

metadata: # kpt-merge: a/b
  name: "a # b" # n
  # foot of name
labels:
  # head x
  x: |  # header
    # not a comment
    foo

  # head z

  # more of head z
  z: [a, # inside
    b] # after
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
  # foot of q

# at the end
"""
OWNERS: list[tuple[Path, tuple[str, str, str]]] = [
    (("apiVersion",), ("# head of api", "# line", "")),
    (("kind",), ("", "", "# foot of kind")),
    (("metadata",), ("", "# kpt-merge: a/b", "")),
    (("metadata", "name"), ("", "# n", "# foot of name")),
    (("labels", "x"), ("# head x", "# header", "")),
    (("labels", "z"), ("# head z\n\n# more of head z", "# after", "")),
    (("list",), ("", "", "")),
    (("list", 0), ("# head of item", "", "")),
    (("list", 0, "a"), ("", "# one", "")),
    (("list", 1), ("# head of alias", "# alias", "")),
    (("list", 2), ("", "", "")),
    (("list", 2, 0), ("# head of first", "# p", "")),
    (("list", 2, 1), ("", "", "# foot of q")),
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


def test_comments_without_a_field_belong_to_the_document() -> None:
    comments = Tree.parse(TEXT).comments

    assert (comments.head, comments.foot) == ("# of the document", "# at the end")


def test_spans_of_comments_cover_their_text() -> None:
    tree = Tree.parse(TEXT)

    assert tree.comments.by_start
    for comments in tree.comments.by_start.values():
        for text, span in zip(comments[:3], comments[3:], strict=True):
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


def test_empty_text_has_no_root() -> None:
    tree = Tree.parse("# only this\n")

    assert (tree.root, tree.value, tree.comments.foot) == (None, None, "# only this")
