import unicodedata

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from reconciler.base.text import block, cell, code, inert, json_text, message_line, terminal

IGNORABLE = [
    *((0x34F, 0x350), (0x61C, 0x61D), (0x115F, 0x1161), (0x17B4, 0x17B6), (0x180B, 0x1810), (0xAD, 0xAE)),
    *((0x200B, 0x2010), (0x202A, 0x202F), (0x2060, 0x2070), (0x3164, 0x3165), (0xFE00, 0xFE10)),
    *((0xFEFF, 0xFF00), (0xFFA0, 0xFFA1), (0xFFF0, 0xFFF9), (0x1BCA0, 0x1BCA4), (0x1D173, 0x1D17B)),
    (0xE0000, 0xE1000),
]
"""Default_Ignorable_Code_Point of Unicode 16, from DerivedCoreProperties.txt."""
OBEYED = {"Cc", "Cf", "Cs", "Zl", "Zp"}

hostile = st.text(
    alphabet=st.one_of(
        st.sampled_from("`|@#<>!-[]()*_~\\\n\r\t\x1b\x00\u202e\u2066\u200b\ufeff\x9b"), st.characters()
    ),
    max_size=40,
)


@given(hostile)
def test_nothing_reaches_the_terminal_that_it_would_obey(text: str) -> None:
    shown = terminal(text)

    assert not any(ord(c) < 0x20 or 0x7F <= ord(c) < 0xA0 for c in shown)
    assert not set(shown) & set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\u061c")
    assert terminal(shown) == shown


@given(hostile)
def test_a_code_span_holds_whatever_it_is_given(text: str) -> None:
    tokens = MarkdownIt("commonmark").parse(f"x {code(text)} y")

    assert [t.type for t in tokens] == ["paragraph_open", "inline", "paragraph_close"]
    kinds = [child.type for child in tokens[1].children or []]
    assert kinds == (["text", "code_inline", "text"] if text else ["text"])
    spans = [child.content.strip() for child in tokens[1].children or [] if child.type == "code_inline"]
    assert spans == ([terminal(text).strip()] if text else [])


@given(hostile)
def test_a_cell_stays_one_cell(text: str) -> None:
    table = f"| a | b |\n| --- | --- |\n| {cell(text)} | end |\n"

    tokens = MarkdownIt("commonmark").enable("table").parse(table)

    cells = [tokens[i + 1].content for i, t in enumerate(tokens) if t.type == "td_open"]
    assert len(cells) == 2
    assert cells[1] == "end"


@pytest.mark.parametrize("line", ["::set-output name=x::y", "  ::stop-commands::t", "\t##[group]x"])
def test_no_line_is_a_workflow_command(line: str) -> None:
    shown = inert(f"a\n{line}\nb :: c")

    assert not any(part.lstrip().startswith(("::", "##[")) for part in shown.splitlines())
    assert inert(shown) == shown
    assert shown.endswith("\nb :: c")


def test_block_keeps_its_lines_and_no_line_of_it_ends_it() -> None:
    assert block("a\u202e\n\n```\n", "diff") == "````diff\na\\u202e\n\n```\n\n````"


def test_no_code_point_gets_out_that_is_obeyed_or_not_seen() -> None:
    ignorable = {chr(code) for start, end in IGNORABLE for code in range(start, end)}
    every = [chr(code) for code in range(0x110000)]
    hostile = [c for c in every if c in ignorable or unicodedata.category(c) in OBEYED]
    assert len(hostile) > 6_000

    for show in (terminal, code, cell, message_line, block):
        shown = "".join(map(show, hostile)).replace("\n", "")
        assert shown.isascii()
        assert shown.isprintable()


def test_every_other_code_point_is_left_alone() -> None:
    ignorable = {chr(code) for start, end in IGNORABLE for code in range(start, end)}
    plain = [
        c for c in map(chr, range(0x110000)) if c not in ignorable and unicodedata.category(c) not in OBEYED
    ]
    plain.remove("\u2800")  # the blank of Braille, which is drawn as nothing

    assert terminal("".join(plain)) == "".join(plain)


encodable = hostile.map(lambda text: text.encode(errors="ignore").decode())


@given(st.dictionaries(encodable, encodable, max_size=3))
@example({"\U000e0041": "\u2028\x7f"})
def test_json_shows_nothing_invisible_and_keeps_its_value(value: dict[str, str]) -> None:
    shown = json_text(orjson.dumps(value, option=orjson.OPT_INDENT_2).decode())

    assert orjson.loads(shown) == value
    assert terminal(shown.replace("\n", "")) == shown.replace("\n", "")
