"""`prose`: a sentence in Markdown reads as it is, and is neither markup nor a link nor a mention."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from reconciler.base.text import prose, terminal

MARKDOWN = MarkdownIt("commonmark", {"linkify": False}).enable("table")
INERT = {"inline", "text", "code_inline", "paragraph_open", "paragraph_close", "softbreak", "text_special"}


def tokens(markdown: str) -> list[tuple[str, str]]:
    return [
        (child.type, child.content)
        for token in MARKDOWN.parse(f"- {markdown}")
        for child in (token.children or ())
    ]


@given(st.text("a`|\\<>&*_[](){}#~!-=+.:/@wW1 ", min_size=1, max_size=24))
def test_whatever_a_sentence_holds_is_text_or_code(text: str) -> None:
    if text.strip():
        assert {kind for kind, _ in tokens(prose(text))} <= INERT


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("9 to create (checksum 5afb5c7a1be9)", {"text"}),
        ("Run `reconciler plan`, then go on.", {"text", "code_inline"}),
        ("https://git.example.com refuses @ada", {"text", "code_inline"}),
        ("Undeclared `nam", {"text"}),
    ],
)
def test_a_sentence_reads_as_it_is(text: str, kinds: set[str]) -> None:
    found = tokens(prose(text))

    assert {kind for kind, _ in found} - {"text_special"} == kinds
    assert "".join(content for _, content in found).replace("`", "") == terminal(text).replace("`", "")


@given(st.text("a @:/.w", max_size=16))
def test_no_word_becomes_a_link_or_a_mention(text: str) -> None:
    outside = [content for kind, content in tokens(prose(text)) if kind == "text"]

    assert not any(re.search(r"@|\w://\w", content) for content in outside)
