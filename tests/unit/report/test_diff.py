"""Differences of files in a pull request: what is shown, what is only counted, and nothing of a Secret."""

from difflib import unified_diff

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.base.text import plural
from reconciler.names.objects import File, Mode
from reconciler.report.diff import MOST_LINES, MOST_TEXT, DifferenceReader, FileChange

PLAIN, OTHER = File.of(b"a: 1\n"), File.of(b"a: 2\n")


def lines(number: int, text: str = "x") -> File:
    return File.of("\n".join(f"{text}{n}" for n in range(number)).encode())


@pytest.mark.parametrize("surplus", [0, 1, 7])
def test_lines_beyond_the_limit_are_counted(surplus: int) -> None:
    """The first line is the place, the second the removed line."""
    (change,) = DifferenceReader().changes({"f": File.of(b"old")}, {"f": lines(MOST_LINES - 2 + surplus)})

    shown = change.text.split("\n")
    assert len(shown) == MOST_LINES + bool(surplus)
    assert (shown[-1] == f"@@ and {plural(surplus, 'line')} more @@") is bool(surplus)
    assert (change.added, change.removed) == (MOST_LINES - 2 + surplus, 1)


def test_lines_are_counted_as_git_counts_them() -> None:
    (new,) = DifferenceReader().changes({}, {"f": File.of(b"a\nb\n")})
    (unfinished,) = DifferenceReader().changes({"f": File.of(b"a\nb\n")}, {"f": File.of(b"a\nb")})

    assert (new.added, new.removed) == (2, 0)
    assert unfinished.text == "@@ -1,2 +1,2 @@\n a\n-b\n+b \\ No newline at end of file"


def test_differences_beyond_the_room_of_a_text_are_left_out() -> None:
    before = {f"{n:02}": PLAIN for n in range(30)}
    after = {path: lines(20, "y" * 150) for path in before}

    changes = DifferenceReader().changes(before, after)

    size = len(changes[0].text)
    shown = [change for change in changes if change.text]
    assert len(shown) == MOST_TEXT // size
    assert {change.note for change in changes if not change.text} == {"does not fit here"}
    assert all(isinstance(change, FileChange) and change.added == 20 for change in changes)


def test_reader_of_many_packages_tells_of_each_what_a_new_one_tells() -> None:
    sides = [
        ({"Kptfile": File.of(b"a"), "f": PLAIN}, {"Kptfile": File.of(b"b"), "f": lines(3)}),
        ({"Kptfile": File.of(b"c"), "f": PLAIN}, {"Kptfile": File.of(b"d"), "f": lines(3)}),
        ({"f": PLAIN}, {"f": File.of(PLAIN.data, Mode.EXECUTABLE)}),
        ({"g": PLAIN}, {"g": lines(3)}),
        ({"f": PLAIN}, {}),
        ({}, {"f": PLAIN}),
    ]
    reader = DifferenceReader()

    assert [reader.changes(*each) for each in sides] == [DifferenceReader().changes(*each) for each in sides]


some_lines = st.lists(st.sampled_from("abcde"), max_size=30)


@given(some_lines, some_lines, st.permutations("abcde"))
def test_difference_is_that_of_difflib_for_whatever_the_lines_say(
    old: list[str], new: list[str], other_names: list[str]
) -> None:
    renamed = dict(zip("abcde", other_names, strict=True))
    for before, after in ((old, new), [[renamed[line] for line in side] for side in (old, new)]):
        sides = [{"f": File.of("".join(f"{line}\n" for line in side).encode())} for side in (before, after)]

        changes = DifferenceReader().changes(*sides)

        expected = [line.rstrip("\n") for line in unified_diff(before, after, lineterm="")][2:]
        assert [change.text for change in changes] == (["\n".join(expected)] if before != after else [])


@pytest.mark.parametrize("sides", [("a web", "a\0b"), ("a\0b", "a web"), ("a\0web", "web\0b")])
def test_text_with_a_zero_byte_where_git_does_not_look_is_shown_as_it_is(sides: tuple[str, str]) -> None:
    far = "x\n" * 4000
    before, after = ({"f": File.of(f"{far}{text}\n".encode())} for text in sides)

    (change,) = DifferenceReader().changes(before, after, ("web",))

    assert change.text == f"@@ -3998,4 +3998,4 @@\n x\n x\n x\n-{sides[0]}\n+{sides[1]}"
