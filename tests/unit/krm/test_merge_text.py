"""Three-way merge of lines."""

import pytest

from reconciler.krm.merge import Hunk, merge_text

BASE = "1\n2\n3\n4\n5\n6\n"


@pytest.mark.parametrize(
    ("reason", "upstream", "local", "want"),
    [
        (
            "changes apart from each other",
            BASE.replace("2", "two"),
            BASE.replace("5", "five"),
            "1\ntwo\n3\n4\nfive\n6\n",
        ),
        ("additions at both ends", "0\n" + BASE, BASE + "7\n", "0\n" + BASE + "7\n"),
        ("a deletion", BASE.replace("3\n", ""), BASE.replace("6", "six"), "1\n2\n4\n5\nsix\n"),
        ("the same change", BASE.replace("3", "x"), BASE.replace("3", "x"), BASE.replace("3", "x")),
        ("no line break at the end", BASE + "7", BASE.replace("1", "one"), "one\n2\n3\n4\n5\n6\n7"),
    ],
)
def test_lines_of_both_sides_are_kept(reason: str, upstream: str, local: str, want: str) -> None:
    merged = merge_text(BASE, upstream, local)

    assert merged is not None
    assert (merged.text, merged.hunks) == (want, ()), reason


@pytest.mark.parametrize(("prefer_upstream", "winner"), [(False, "zwei"), (True, "two")])
def test_one_line_changed_twice_is_a_hunk(winner: str, *, prefer_upstream: bool) -> None:
    merged = merge_text(
        BASE, BASE.replace("2", "two"), BASE.replace("2", "zwei"), prefer_upstream=prefer_upstream
    )

    assert merged is not None
    assert merged.text == BASE.replace("2", winner)
    assert merged.hunks == (Hunk("2\n", "two\n", "zwei\n"),)


def test_a_text_that_is_too_long_is_not_compared() -> None:
    assert merge_text("x\n", "x\n" * 30_000, "y\n") is None
    assert merge_text("x\n" * 3000, "x\n" * 2999, "x\n" * 3001) is None
