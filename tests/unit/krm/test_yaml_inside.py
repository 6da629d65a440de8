"""The place of one character of a scalar, in every style of YAML."""

from typing import NamedTuple

import pytest

from reconciler.krm.yaml import load_documents


class Case(NamedTuple):
    reason: str
    text: str
    find: str
    line: int
    column: int


CASES = [
    Case("a plain scalar starts at its mark", "e: target.nope\n", "nope", 1, 11),
    Case("a plain scalar over two lines is folded", "e: target.name +\n  nope\n", "nope", 2, 3),
    Case("a single-quoted one starts behind its quote", "e: 'target.nope'\n", "nope", 1, 12),
    Case("a doubled quote is one character", "e: '''a'' + nope'\n", "nope", 1, 13),
    Case("an escape is one character", 'e: "\\"a\\" + nope"\n', "nope", 1, 13),
    Case("a literal block starts on the next line", "e: |\n  'a' +\n  nope\n", "nope", 3, 3),
    Case("a literal block keeps deeper indentation", "e: |-\n  'a' +\n    nope\n", "nope", 3, 5),
    Case("a folded block joins lines", "e: >-\n  'a' +\n  nope\n", "nope", 3, 3),
    Case("a block inside a list", "l:\n- e: |\n    true ?\n    nope : 'b'\n", "nope", 4, 5),
]


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.reason)
def test_mark_inside(case: Case) -> None:
    document = load_documents(case.text.encode())[0]
    path = ("e",) if "e" in document.value else ("l", 0, "e")
    value = document.value["e"] if len(path) == 1 else document.value["l"][0]["e"]

    assert document.mark_inside(path, value.index(case.find)) == (case.line, case.column)


def test_beyond_the_end_is_the_last_character() -> None:
    document = load_documents(b"e: abc\n")[0]

    assert document.mark_inside(("e",), 99) == (1, 6)


def test_what_is_no_text_is_marked_as_a_whole() -> None:
    document = load_documents(b"e:\n  f: 1\n")[0]

    assert document.mark_inside(("e",), 3) == document.mark(("e",))
