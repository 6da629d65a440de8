import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from reconciler.report.escape import cell, code, inert, terminal

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


def test_printable_text_is_left_alone() -> None:
    assert terminal("clusters/edge-01 é 名") == "clusters/edge-01 é 名"
