"""Values as new text: style, quotes, indentation, and what cannot be written."""

from typing import Any

import pytest

from reconciler.krm.yaml import YamlError
from reconciler.krm.yaml.emit import Style, emit, write_scalar

LITERAL, FOLDED, SINGLE, DOUBLE = Style.LITERAL, Style.FOLDED, Style.SINGLE, Style.DOUBLE


@pytest.mark.parametrize(
    ("value", "like", "text"),
    [
        ("a", Style.PLAIN, "a"), ("a", SINGLE, "'a'"), ("it's", SINGLE, "'it''s'"),
        ("a\nb", SINGLE, '"a\\nb"'), ("\x07", SINGLE, '"\\u0007"'), ("a", DOUBLE, '"a"'),
        ("", Style.PLAIN, '""'), ("a", LITERAL, "|-\n  a"), ("a\n", LITERAL, "|\n  a"),
        ("a\n\n", LITERAL, "|+\n  a\n"),
        ("a\nb", Style.PLAIN, "|-\n  a\n  b"),
        ("a\n\nb\n", Style.PLAIN, "|\n  a\n\n  b"),
        (" a\n", LITERAL, "|2\n   a"), ("\na\n", LITERAL, "|2\n\n  a"), ("\ta\n", LITERAL, "|2\n  \ta"),
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
        (None, Style.PLAIN, "null"), (True, SINGLE, "true"), (False, Style.PLAIN, "false"),
        (1.5, Style.PLAIN, "1.5"),
        (-(2**63), Style.PLAIN, str(-(2**63))),
        (2**63 - 1, Style.PLAIN, str(2**63 - 1)),
    ],
)  # fmt: skip
def test_scalar_keeps_the_style_where_it_can(value: Any, like: Style, text: str) -> None:
    assert write_scalar(value, like=like) == text


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
