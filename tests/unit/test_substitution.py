"""Own values: masked where they are words of their own, and filled again."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.krm.yaml import emit, is_plain, load_documents
from reconciler.names.substitution import OwnValues

PIECES = st.sampled_from(
    ["a", "ab", "b", ".", "-", "/", "_", " ", "a.b", "a/b", "\u00e9", "\n", '"', "e5", "0", "\\", "!"]
)
TEXTS = st.lists(PIECES, max_size=8).map("".join)
VALUES = st.lists(TEXTS, max_size=3).map(OwnValues.of)


@given(TEXTS, VALUES)
def test_values_are_masked_as_a_pattern_of_whole_words_would(text: str, own: OwnValues) -> None:
    numbers = {value: b"\0%d\0" % number for number, value in enumerate(own.values)}
    ordered = sorted(numbers, key=lambda value: -len(value))
    pattern = re.compile(rb"(?<![\w\\!%-])(?:" + b"|".join(map(re.escape, ordered)) + rb")(?![\w-])")
    data = text.encode()

    assert own.mask(data) == (pattern.sub(lambda match: numbers[match[0]], data) if ordered else data)


@given(TEXTS, VALUES)
def test_value_with_a_text_to_mask_is_told(text: str, own: OwnValues) -> None:
    for each in map(bytes.decode, own.values):
        assert own.may_be_in({each: 1})
        for before in ("", "\n", "\x1f", " ", text):
            if own.mask_text(f"{before}{each}") != f"{before}{each}":
                assert own.may_be_in([f"{before}{each}"])


@pytest.mark.parametrize("value", [{"web": ["a web", 1]}, {"a": {"b": {"c": {"d": {"e": "web"}}}}}, 2**70])
def test_masked_value_has_no_text_of_its_own_and_is_filled_again(value: object) -> None:
    own = OwnValues.of(["web"])
    masked = own.mask_value({"n": 2**70, "v": value})

    assert "web" not in str(masked)
    assert own.fill_value(masked) == {"n": 2**70, "v": value}


def test_value_with_no_text_to_mask_is_told() -> None:
    assert not OwnValues.of(["web"]).may_be_in({"xweb": ["web2", 1, None, "an escape\nis far from bweb"]})


@given(TEXTS, VALUES)
def test_masked_text_is_filled_with_its_values(text: str, own: OwnValues) -> None:
    for each in (text, f"\ud800{text}"):
        assert own.fill_text(own.mask_text(each)) == each


@pytest.mark.parametrize(
    "value",
    [
        "", "on", "Null", "e5", "inf", "1", "1e3", "0x1f", "2026-01-01t1", "a b", "a:b", "\u00e9", "-a", "a-",
        "a_b", "kind", "a.Secret",
    ],
)  # fmt: skip
def test_value_that_yaml_may_read_otherwise_is_none(value: str) -> None:
    assert OwnValues.of([value]) == OwnValues(())


@given(
    st.text("abefgt019.-/", min_size=1, max_size=6), st.sampled_from(["", "1.", ".", "0:", "+", "a/", "1-"])
)
def test_any_value_keeps_type_and_quotes_of_a_text(value: str, before: str) -> None:
    own, text = OwnValues.of([value]), before + value
    if own.values and own.mask_text(text) != text:
        assert is_plain(text) == is_plain(f"{before}web")
        assert load_documents(f"a: {text}\n".encode())[0].value == {"a": text}
        assert emit(text) in (text, f'"{text}"')


@pytest.mark.parametrize("data", [b"a\0b", b"a\0b\0c", b"a\0009\0c"])
def test_what_has_zero_bytes_of_its_own_stays(data: bytes) -> None:
    values = OwnValues.of(["a", "web"])

    assert values.mask(data) is data
    assert values.fill(data) == data
