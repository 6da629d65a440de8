"""Values as new text: style, quotes, indentation, and what cannot be written."""

from typing import Any

import pytest

from reconciler.krm.yaml import YamlError, load_documents
from reconciler.krm.yaml.emit import (
    Indentation,
    Style,
    emit,
    emit_entry,
    emit_item,
    is_collection,
    is_plain,
    write_scalar,
)

WIDE = Indentation(4, compact_lists=False)
WIDE_TEXT = """\
a:
    b:
        - 1
        - c: |
              x
              y
          d: []
e: {}
f:
    - - 2"""
VALUE = {"a": {"b": [1, {"c": "x\ny\n", "d": []}]}, "e": {}, "f": [[2]]}


@pytest.mark.parametrize(
    ("indentation", "text"),
    [
        (
            Indentation(),
            "a:\n  b:\n  - 1\n  - c: |\n      x\n      y\n    d: []\ne: {}\nf:\n- - 2",
        ),
        (
            WIDE,
            WIDE_TEXT,
        ),
    ],
)
def test_collections_are_written_in_the_indentation_of_the_file(indentation: Indentation, text: str) -> None:
    assert emit(VALUE, indentation) == text
    assert load_documents(text.encode())[0].value == VALUE


def test_collections_can_be_written_on_one_line() -> None:
    assert emit({"a": ["x, y", {"b": None}], "c": ()}, flow=True) == '{a: ["x, y", {b: null}], c: []}'


def test_entry_and_item_are_written_with_their_key_or_dash() -> None:
    assert emit_entry("a", 1) == "a: 1"
    assert emit_entry("a", [1]) == "a:\n- 1"
    assert emit_entry("a", [1], WIDE) == "a:\n    - 1"
    assert emit_entry("a", {"b": 1}, WIDE) == "a:\n    b: 1"
    assert emit_entry("a", {}) == "a: {}"
    assert emit_entry("a", "x\n") == "a: |\n  x"
    assert emit_item({"a": 1, "b": 2}) == "- a: 1\n  b: 2"
    assert emit_item("x") == "- x"
    assert [is_collection(value) for value in ({}, [], (), {"a": 1}, [1], "a")] == [False] * 3 + [
        True
    ] * 2 + [False]


LITERAL, FOLDED, SINGLE, DOUBLE = Style.LITERAL, Style.FOLDED, Style.SINGLE, Style.DOUBLE


@pytest.mark.parametrize(
    ("value", "like", "text"),
    [
        ("a", Style.PLAIN, "a"),
        ("a", SINGLE, "'a'"),
        ("it's", SINGLE, "'it''s'"),
        ("a\nb", SINGLE, '"a\\nb"'),
        ("\x07", SINGLE, '"\\u0007"'),
        ("a", DOUBLE, '"a"'),
        ("", Style.PLAIN, '""'),
        ("a", LITERAL, "|-\n  a"),
        ("a\n", LITERAL, "|\n  a"),
        ("a\n\n", LITERAL, "|+\n  a\n"),
        ("a\nb", Style.PLAIN, "|-\n  a\n  b"),
        ("a\n\nb\n", Style.PLAIN, "|\n  a\n\n  b"),
        (" a\n", LITERAL, "|2\n   a"),
        ("\na\n", LITERAL, "|2\n\n  a"),
        ("\ta\n", LITERAL, "|2\n  \ta"),
        ("a\nb\n", FOLDED, ">\n  a\n\n  b"),
        ("a\n\nb", FOLDED, ">-\n  a\n\n\n  b"),
        ("a\n b\n", FOLDED, "|\n  a\n   b"),
        ("a\n\tb\n", FOLDED, "|\n  a\n  \tb"),
        ("\n", LITERAL, '"\\n"'),
        ("a\r\nb", Style.PLAIN, '"a\\r\\nb"'),
        ("a\n\x07", LITERAL, '"a\\n\\u0007"'),
        ("\x85", Style.PLAIN, '"\\u0085"'),
        ("\ufeff", Style.PLAIN, '"\\uFEFF"'),
        ("😀", Style.PLAIN, "😀"),
        ("\U0001fffe", Style.PLAIN, "\U0001fffe"),
        (None, Style.PLAIN, "null"),
        (True, SINGLE, "true"),
        (False, Style.PLAIN, "false"),
        (1.5, Style.PLAIN, "1.5"),
        (-(2**63), Style.PLAIN, str(-(2**63))),
        (2**63 - 1, Style.PLAIN, str(2**63 - 1)),
    ],
)
def test_scalar_keeps_the_style_where_it_can(value: Any, like: Style, text: str) -> None:
    assert write_scalar(value, like=like) == text


def test_scalar_in_flow_is_never_a_block() -> None:
    assert write_scalar("a\nb", flow=True) == '"a\\nb"'
    assert write_scalar("a\n", like=LITERAL, flow=True) == '"a\\n"'
    assert write_scalar("a, b", flow=True) == '"a, b"'
    assert write_scalar("a\nb", indent=4) == "|-\n    a\n    b"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (2**63, f"{2**63} has no exact form in JSON"),
        (-(2**63) - 1, f"{-(2**63) - 1} has no exact form in JSON"),
        (float("nan"), "nan has no exact form in JSON"),
        ("\ud800", "A string has a lone surrogate, which is no text"),
        ({1: 2}, "A key must be a string, not int"),
        ({"k" * 1001: 2}, "A key of 1001 characters is too long"),
    ],
)
@pytest.mark.parametrize("flow", [True, False])
def test_value_without_an_exact_form_is_refused(value: Any, message: str, *, flow: bool) -> None:
    with pytest.raises(YamlError) as caught:
        emit(value, flow=flow)

    assert caught.value.message == message
    if "JSON" in message:
        assert caught.value.hint == "Write it as a string."


@pytest.mark.parametrize("flow", [True, False])
def test_value_that_is_nested_too_deeply_is_refused(*, flow: bool) -> None:
    def nested(levels: int) -> Any:
        value: Any = 1
        for _ in range(levels):
            value = [value]
        return value

    assert emit(nested(199), flow=flow)
    with pytest.raises(YamlError, match="The value is nested too deeply to be written"):
        emit(nested(200), flow=flow)
    with pytest.raises(YamlError, match="The value is nested too deeply to be written"):
        emit({"a": nested(200)}, flow=flow)


QUOTED = [
    *("", "|", "a\tb", " a", "a "),
    *[
        "a: b",
        "a:",
        "a #b",
        "- a",
        "-",
        "---",
        "... ",
        "#a",
        "&a",
        "*a",
        "!a",
        ">",
        "'a",
        '"a',
        "%a",
        "@a",
        "`a",
        ",a",
        "[a",
        "]a",
        "{a",
        "}a",
        "?a",
        ":a",
        "true",
        "No",
        "~",
        "null",
    ],
    *[
        "=",
        "<<",
        "1",
        "1_0",
        "0x1F",
        "0b1",
        "0o7",
        "1:30",
        "1:30.5",
        "2001-01-01",
        "2001-1-1T00:00",
        "1e3",
        "+1.5",
        ".5",
        "5.",
        ".inf",
        "-.INF",
    ],
    *[".nan", "NaN", "inf"],
]
PLAIN = [
    *[
        "a",
        "a b",
        "a:b",
        "a#b",
        "-a",
        "--",
        "a-",
        "a,b",
        "a]",
        "a?",
        "1a",
        "0x",
        "1:99",
        "2001-01-01a",
        "v1",
        "1.2.3",
        "é",
        "a'b",
        'a"b',
        "yess",
        "x=y",
        "<<a",
        "1:60",
    ],
]


def test_text_that_any_reader_would_take_for_something_else_is_quoted() -> None:
    assert [text for text in QUOTED if is_plain(text)] == []
    assert [text for text in PLAIN if not is_plain(text)] == []
    assert [text for text in PLAIN if not is_plain(text, flow=True)] == ["a,b", "a]", "a?"]
    assert not is_plain("a:", flow=True)
