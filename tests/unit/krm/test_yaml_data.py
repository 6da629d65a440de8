"""Data of documents: what edits do to it, which fields it has, and what cannot be read."""

from typing import Any

import pytest

from reconciler.krm.merge import Winner, merge_document
from reconciler.krm.merge.fields import INFERRED_KEYS, infer_keys
from reconciler.krm.merge.nodes import Node, root_of
from reconciler.krm.yaml import (
    PACKAGE_LIMITS,
    AddKey,
    DeleteItem,
    DeleteKey,
    Edit,
    InsertItem,
    Path,
    Raw,
    SetHeadComment,
    SetLineComment,
    SetValue,
    Style,
    Tree,
    YamlError,
    apply_edits,
    edited,
    fields_of,
    load_documents,
    load_json,
)
from reconciler.krm.yaml.apply import canonical, plain_value
from reconciler.krm.yaml.emit import write_scalar
from tests.support.values import replace

# Values as they read back


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (1.0, 1),
        (-2.0, -2),
        (1.5, 1.5),
        (2.0**62, 2**62),
        (2.0**63, 2.0**63),
        (-(2.0**63), -(2.0**63)),
        (True, True),
        ("1.0", "1.0"),
        ((1.0, [2.0]), [1, [2]]),
        ({"a": (3.0,), "b": None}, {"a": [3], "b": None}),
        (Raw("x: 1 # c\nz: [1.0]"), {"x": 1, "z": [1]}),
        (Raw("# nothing"), None),
    ],
)
def test_value_reads_back_as_json(value: Any, plain: Any) -> None:
    found = plain_value(value)

    assert found == plain
    assert repr(found) == repr(plain)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({1: 2}, "A key must be a string, not int"),
        (Raw("a: 1\n---\nb: 1"), "A raw value has more than one document"),
    ],
)
def test_value_without_a_plain_form_is_refused(value: Any, message: str) -> None:
    with pytest.raises(YamlError) as caught:
        plain_value(value)

    assert caught.value.args[0].startswith(message)


def test_value_without_json_is_refused() -> None:
    with pytest.raises(YamlError, match=r"^The value has no exact form in YAML: "):
        canonical({"a": 2**64})


# What an edit does to the data

DATA = {"m": {"a": 1, "b": 2}, "l": [1, 2, 3], "n": None, "s": "text"}


@pytest.mark.parametrize(
    ("edit", "changed"),
    [
        (SetValue(("m", "a"), 9), {"m": {"a": 9, "b": 2}}),
        (SetValue(("m", "c", "d"), 9), {"m": {"a": 1, "b": 2, "c": {"d": 9}}}),
        (SetValue(("n", "d"), 9), {"n": {"d": 9}}),
        (SetValue(("l", 0), 9), {"l": [9, 2, 3]}),
        (SetValue(("l", 2), 9), {"l": [1, 2, 9]}),
        (AddKey(("m",), "c", 9), {"m": {"a": 1, "b": 2, "c": 9}}),
        (AddKey(("n",), "c", 9), {"n": {"c": 9}}),
        (AddKey(("new",), "c", 9), {"new": {"c": 9}}),
        (AddKey(("m",), "c", Raw("c: 9 # x")), {"m": {"a": 1, "b": 2, "c": 9}}),
        (InsertItem(("l",), 0, 9), {"l": [9, 1, 2, 3]}),
        (InsertItem(("l",), 3, 9), {"l": [1, 2, 3, 9]}),
        (InsertItem(("n",), 0, 9), {"n": [9]}),
        (InsertItem(("l",), 1, Raw("- 9 # x")), {"l": [1, 9, 2, 3]}),
        (DeleteKey(("m", "a")), {"m": {"b": 2}}),
        (DeleteItem(("l", 0)), {"l": [2, 3]}),
        (DeleteItem(("l", 2)), {"l": [1, 2]}),
        (SetLineComment(("m",), "x"), {}),
        (SetHeadComment(("m",), "x"), {}),
    ],
)
def test_edit_changes_its_part_of_the_data(edit: Edit, changed: dict[str, Any]) -> None:
    before = repr(DATA)

    assert edited(DATA, edit) == {**DATA, **changed}
    assert repr(DATA) == before


def test_edit_of_the_root_replaces_it() -> None:
    assert edited(DATA, SetValue((), [1])) == [1]
    assert edited(None, AddKey((), "a", 1)) == {"a": 1}
    assert edited(None, InsertItem((), 0, 1)) == [1]


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (SetValue(("s", "a"), 1), "There is no field s.a"),
        (SetValue(("m", 0), 1), "There is no field m.0"),
        (SetValue(("l", "a"), 1), "There is no field l.a"),
        (SetValue(("l", 3), 1), "There is no field l.3"),
        (SetValue(("l", -1), 1), "There is no field l.-1"),
        (AddKey(("l",), "c", 1), "There is no field l.c"),
        (AddKey(("s",), "c", 1), "There is no field s.c"),
        (AddKey(("m",), "a", 1), "Key 'a' is already set"),
        (AddKey(("m",), "c", Raw("d: 1")), "The raw entry does not set exactly the key 'c'"),
        (AddKey(("m",), "c", Raw("c: 1\nd: 1")), "The raw entry does not set exactly the key 'c'"),
        (AddKey(("m",), "c", Raw("- 1")), "The raw entry does not set exactly the key 'c'"),
        (InsertItem(("l",), 4, 1), "There is no field l.4"),
        (InsertItem(("l",), -1, 1), "There is no field l.-1"),
        (InsertItem(("m",), 0, 1), "There is no field m.0"),
        (InsertItem(("l",), 0, Raw("- 1\n- 2")), "The raw item is not exactly one item"),
        (InsertItem(("l",), 0, Raw("a: 1")), "The raw item is not exactly one item"),
        (DeleteKey(("m", "c")), "There is no field m.c"),
        (DeleteKey(("l", 0)), "There is no field l.0"),
        (DeleteKey(()), "There is no field at the root"),
        (DeleteItem(("l", 3)), "There is no field l.3"),
        (DeleteItem(("l", -1)), "There is no field l.-1"),
        (DeleteItem(("m", "a")), "There is no field m.a"),
    ],
)
def test_edit_of_what_is_not_there_is_refused(edit: Edit, message: str) -> None:
    with pytest.raises(YamlError) as caught:
        edited(DATA, edit)

    assert caught.value.args[0] == message


# Texts of edits at their edges


@pytest.mark.parametrize(
    ("before", "edit", "after"),
    [
        ("a: [1] # c\nb: 1\n", DeleteItem(("a", 0)), "a: [] # c\nb: 1\n"),
        ("a: {x: 1} # c\nb: 1\n", DeleteKey(("a", "x")), "a: {} # c\nb: 1\n"),
        ("a: # c\n- 1\nb: 1\n", DeleteItem(("a", 0)), "a: [] # c\nb: 1\n"),
        ("a: # c\n  x: 1\nb: 1\n", DeleteKey(("a", "x")), "a: {} # c\nb: 1\n"),
        ("- 1\n", DeleteItem((0,)), "[]\n"),
        ("x: 1\n", DeleteKey(("x",)), "{}\n"),
        ("a: b   \nc: d\n", SetValue(("a",), "x\ny\n"), "a: |\n  x\n  y\nc: d\n"),
        ("a: b   \nc: d\n", SetValue(("a",), "x"), "a: x   \nc: d\n"),
        ("a:\n  b: 1\n", SetHeadComment(("a", "b"), "x\ny"), "a:\n  # x\n  # y\n  b: 1\n"),
        ("a:\n  # x\n  # y\n  b: 1\n", SetHeadComment(("a", "b"), None), "a:\n  b: 1\n"),
        ("a: 1\n", SetHeadComment(("a",), None), "a: 1\n"),
        ("a: 1 # x\n", SetLineComment(("a",), None), "a: 1\n"),
        ("a: 1\n", SetLineComment(("a",), None), "a: 1\n"),
        ("a: 1\n", SetLineComment(("a",), "# x"), "a: 1 # x\n"),
    ],
)
def test_text_of_an_edit(before: str, edit: Edit, after: str) -> None:
    result = apply_edits(before, [edit])

    assert (result.text, result.fallbacks) == (after, 0)


@pytest.mark.parametrize(
    ("before", "edit", "message"),
    [
        (
            "a: {b: 1}\n",
            SetLineComment(("a", "b"), "x"),
            "The field a.b is in flow style, where comments have no owner",
        ),
        ("a: 1\n", SetLineComment(("b",), "x"), "There is no field b"),
        ("a: 1\n", SetHeadComment(("b",), "x"), "There is no field b"),
    ],
)
def test_comment_that_has_no_place_is_refused(before: str, edit: Edit, message: str) -> None:
    with pytest.raises(YamlError) as caught:
        apply_edits(before, [edit])

    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "edit", "after"),
    [
        ("a: 1 # c\nb: 'x'\n", SetValue(("a",), 2), "a: 2 # c\nb: 'x'\n"),
        ("m:\n  a: 1\n", AddKey(("m",), "b", 2), "m:\n  a: 1\n  b: 2\n"),
        ("m:\n  a: 1\n", AddKey(("m",), "b", Raw("b: {c: 1}")), "m:\n  a: 1\n  b:\n    c: 1\n"),
        ("m:\n  a: 1\n", AddKey(("m",), "b", [1]), "m:\n  a: 1\n  b:\n  - 1\n"),
        ("l:\n- 1\n", InsertItem(("l",), 0, 9), "l:\n- 9\n- 1\n"),
        ("l:\n  - 1\n", InsertItem(("l",), 1, 9), "l:\n  - 1\n  - 9\n"),
        ("a: 1\nb: 2\n", DeleteKey(("a",)), "b: 2\n"),
        ("l:\n- 1\n- 2\n", DeleteItem(("l", 0)), "l:\n- 2\n"),
        ("---\nm:\n    a: 1\n", SetValue(("m", "a"), 2), "---\nm:\n    a: 2\n"),
    ],
)
def test_edit_beside_one_that_falls_back_writes_the_same_data(text: str, edit: Edit, after: str) -> None:
    # A value that an alias repeats cannot be spliced.
    result = apply_edits(f"{text}x: &x 1\ny: *x\n", [edit, SetValue(("x",), 2)])

    assert (result.text.partition("x: ")[0], result.fallbacks) == (after, 1)


# Fields of a document

TEXT = """\
a: 1 # one
m:
  x: two # kept
  l: # three
  - p # four
  - q: r
f: {z: [s, t]} # five
e: &n 6
h: *n
"""


def test_fields_are_scalars_and_sequences_in_the_order_of_the_text() -> None:
    found = [(field.name, field.path, field.comment) for field in fields_of(Tree.parse(TEXT))]

    assert found == [
        ("a", ("a",), "# one"),
        ("m.x", ("m", "x"), "# kept"),
        ("m.l", ("m", "l"), "# three"),
        ("m.l[0]", ("m", "l", 0), "# four"),
        ("m.l[1].q", ("m", "l", 1, "q"), ""),
        ("f.z", ("f", "z"), ""),
        ("f.z[0]", ("f", "z", 0), ""),
        ("f.z[1]", ("f", "z", 1), ""),
        ("e", ("e",), ""),
    ]


@pytest.mark.parametrize(
    ("mark", "names"),
    [
        ("kept", ["m.x"]),
        ("two", ["m.x"]),
        ("four", ["m.l", "m.l[0]"]),
        ("q: r", ["m.l", "m.l[1].q"]),
        ("t]", ["f.z", "f.z[1]"]),
        ("one", ["a"]),
        ("&n", ["e"]),
        ("absent", []),
    ],
)
def test_fields_with_a_mark_are_those_that_hold_it(mark: str, names: list[str]) -> None:
    assert [field.name for field in fields_of(Tree.parse(TEXT), mark)] == names


def test_root_that_is_no_mapping_has_fields_too() -> None:
    assert [(field.path, field.slot) for field in fields_of(Tree.parse("x\n"))] == [((), None)]
    (root, item) = fields_of(Tree.parse("- x # c\n"))
    assert (root.path, root.comment, item.path, item.comment) == ((), "", (0,), "# c")


@pytest.mark.parametrize(
    ("text", "path", "mark"),
    [
        ("a:\n  b: 1\n", ("a", "b"), (2, 6)),
        ("a:\n  b: 1\n", ("a", "c"), (2, 3)),
        ("a:\n  b: 1\n", ("x", "y"), (1, 1)),
        ("# nothing\n", ("a",), (1, 1)),
    ],
)
def test_mark_of_a_field_or_its_nearest_ancestor(text: str, path: Path, mark: tuple[int, int]) -> None:
    assert Tree.parse(text).mark(path) == mark


# Texts that cannot be read


@pytest.mark.parametrize(
    ("data", "message", "place"),
    [
        (b'{"a": 1', "line 1, column 8: Not JSON: ", (1, 8)),
        (b'{\n"a" 1}', "line 2, column 5: Not JSON: ", (2, 5)),
        (b'{"a": 1, "b": {"c": 1, "c": 2}}', "line 1, column 1: Key 'c' is set twice in one object", (1, 1)),
        (b'{"a": [[[1]]]}', "line 1, column 1: Collections are nested more than 3 levels deep", (1, 1)),
        (b'{"a":' + b" " * 100 + b"1}", "The file has 107 bytes; the limit is 100", (0, 0)),
    ],
)
def test_json_that_cannot_be_read(data: bytes, message: str, place: tuple[int, int]) -> None:
    with pytest.raises(YamlError) as caught:
        load_json(data, replace(PACKAGE_LIMITS, max_bytes=100, max_depth=3))

    assert caught.value.args[0].startswith(message)
    assert (caught.value.line, caught.value.column) == place


def test_json_at_its_limits_is_read() -> None:
    data = b'{"a": [[1]], "b": {}, "c": []}'

    assert load_json(data, replace(PACKAGE_LIMITS, max_bytes=len(data), max_depth=3)).value == {
        "a": [[1]],
        "b": {},
        "c": [],
    }


def test_key_that_is_an_alias_has_the_value_of_its_anchor() -> None:
    (document,) = load_documents(b"a: &k name\n*k : 1\n", PACKAGE_LIMITS)

    assert document.value == {"a": "name", "name": 1}
    assert document.mark(("name",)) == (2, 6)


# Merge keys and merges by lines


def node(text: str) -> Node | None:
    return root_of(Tree.parse(text))


@pytest.mark.parametrize(
    ("sides", "keys"),
    [
        ([], None),
        (["[]"], None),
        (["- 1"], None),
        (["- name: a\n- b"], None),
        (["- name: a"], ("name",)),
        (["- name: a\n  ip: b"], ("ip",)),
        (["- name: a\n  ip: b\n- name: c"], ("name",)),
        (["- name: a\n  ip: b", None, "- name: c"], ("name",)),
        (["- name: a", "- ip: c"], None),
        (["- containerPort: 1\n  name: a"], ("name",)),
        (["- other: 1"], None),
    ],
)
def test_merge_key_of_an_unknown_list_is_what_all_elements_have(
    sides: list[str | None], keys: tuple[str, ...] | None
) -> None:
    assert infer_keys([node(side) if side else None for side in sides]) == keys


@pytest.mark.parametrize("key", INFERRED_KEYS)
def test_every_candidate_key_is_found(key: str) -> None:
    assert infer_keys([node(f"- {key}: a")]) == (key,)


ALIASED = "a: &x\n  k: 1\nb: *x\nc: 1\n"
CHANGED, OTHER = (ALIASED.replace("k: 1", f"k: {value}") for value in (2, 3))


@pytest.mark.parametrize(
    ("sides", "winner", "want"),
    [
        pytest.param((ALIASED, ALIASED, OTHER), Winner.OPEN, (OTHER, 0), id="local alone"),
        pytest.param((ALIASED, CHANGED, ALIASED), Winner.OPEN, (CHANGED, 0), id="upstream alone"),
        pytest.param(
            (ALIASED, CHANGED, ALIASED + "d: 1\n"), Winner.OPEN, (CHANGED + "d: 1\n", 0), id="different lines"
        ),
        pytest.param((ALIASED, CHANGED, OTHER), Winner.OPEN, (OTHER, 1), id="the same line"),
        pytest.param((ALIASED, CHANGED, OTHER), Winner.UPSTREAM, (CHANGED, 1), id="upstream wins"),
        pytest.param((None, CHANGED, OTHER), Winner.UPSTREAM, (CHANGED, 1), id="no base"),
    ],
)
def test_documents_with_aliased_edits_merge_by_lines(
    sides: tuple[str | None, str, str], winner: Winner, want: tuple[str, int]
) -> None:
    old, theirs, ours = (Tree.parse(side) if side else None for side in sides)
    assert theirs is not None
    assert ours is not None

    merged = merge_document(old, theirs, ours, shape=None, resolver=lambda _: winner)

    assert (merged.text, len(merged.conflicts), merged.fallbacks) == (*want, 0)


# Places in the text


@pytest.mark.parametrize(
    ("text", "offset", "mark"),
    [
        ("a: |\n   xy\n   z\n", 0, (2, 4)),
        ("a: |\n   xy\n   z\n", 1, (2, 5)),
        ("a: |\n   xy\n   z\n", 3, (3, 4)),
        ("a: |\n x\n\n z\n", 3, (4, 2)),
        ("a: 'x''y'\n", 2, (1, 8)),
        ('a: "x\\u0041y"\n', 2, (1, 12)),
        ("a: xy\n  z\n", 3, (2, 3)),
    ],
)
def test_position_of_a_character_of_a_text(text: str, offset: int, mark: tuple[int, int]) -> None:
    (document,) = load_documents(text.encode())

    assert document.mark_inside(("a",), offset) == mark


@pytest.mark.parametrize(
    ("value", "like", "text"),
    [
        ("X\n", Style.LITERAL, "|\n  X\n"),
        ("X", Style.LITERAL, "|-\n  X"),
        ("\n", Style.LITERAL, '"\\n"'),
        ("\n\n", Style.PLAIN, '"\\n\\n"'),
        ("X\nX", Style.PLAIN, "|-\n  X\n  X"),
        ("X\r\n", Style.LITERAL, '"X\\r\\n"'),
    ],
)
def test_text_is_a_block_if_it_has_a_line(value: str, like: Style, text: str) -> None:
    assert write_scalar(value, like=like).rstrip("\n") == text.rstrip("\n")
