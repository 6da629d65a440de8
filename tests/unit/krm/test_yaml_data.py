"""Data of documents: what edits do to it, which fields it has, and what cannot be read."""

from typing import Any

import pytest

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
    load_json,
)
from reconciler.krm.yaml.apply import canonical, plain_value
from reconciler.krm.yaml.emit import write_scalar
from tests.support.values import replace

# Values as they read back


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (1.0, 1), (-2.0, -2), (1.5, 1.5), (2.0**62, 2**62), (2.0**63, 2.0**63), (-(2.0**63), -(2.0**63)),
        (True, True), ("1.0", "1.0"), ((1.0, [2.0]), [1, [2]]),
        ({"a": (3.0,), "b": None}, {"a": [3], "b": None}),
        (Raw("x: 1 # c\nz: [1.0]"), {"x": 1, "z": [1]}),
        (Raw("# nothing"), None),
    ],
)  # fmt: skip
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
    ("before", "edit", "message"),
    [
        ("a: {b: 1}\n", SetLineComment(("a", "b"), "x"),
            "The field a.b is in flow style, where comments have no owner"),
        ("a: 1\n", SetLineComment(("b",), "x"), "There is no field b"),
        ("a: 1\n", SetHeadComment(("b",), "x"), "There is no field b"),
    ],
)  # fmt: skip
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


# Places in the text


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
