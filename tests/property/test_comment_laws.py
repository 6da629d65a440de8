"""Laws of comments across an update, on random documents with comments at every place."""

import re
from copy import deepcopy
from random import Random

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.names.objects import File, Files
from reconciler.render.update import MergeCache, Updated, update_package
from tests.support.commented import PLACES, PLAIN, Author, Layout, Part, written

RANDOM = st.integers(0, 2**32).map(Random)
LAYOUTS = st.sampled_from((Layout(list_width=0), Layout(list_width=2)))


def files(text: str) -> Files:
    return {"r.yaml": File.of(text.encode())}


def merge(base: str, upstream: str, local: str) -> Updated:
    return update_package(files(base), files(upstream), files(local), cache=MergeCache())


def text_of(updated: Updated) -> str:
    return updated.files["r.yaml"].data.decode()


def notes_of(root: Part) -> dict[str, tuple[str, str]]:
    """Return the part and the place of each comment."""
    return {
        note: (part.name, place)
        for part in root.walk()
        for place in PLACES
        for note in getattr(part, place)
        if note
    }


def listed(updated: Updated) -> str:
    conflicts = [*updated.conflicts, *(each.conflict for each in updated.decided)]
    return "\n".join(text or "" for each in conflicts for text in (each.upstream, each.local))


def draw(random: Random, layout: Layout = PLAIN) -> tuple[Part, Part, Part]:
    """Return a document, and what two authors made of it."""
    base = Author(random, "b", layout).document()
    sides = []
    for name in ("u", "l"):
        side, author = deepcopy(base), Author(random, name, layout)
        for edit in (author.edit_values, author.edit_parts, author.edit_comments):
            if random.randrange(3):
                edit(side)
        sides.append(side)
    return base, *sides


@given(RANDOM, LAYOUTS)
@settings(max_examples=60, deadline=None)
def test_values_are_merged_as_if_there_were_no_comments(random: Random, layout: Layout) -> None:
    sides = draw(random, layout)
    bare = layout._replace(comments=False)

    with_comments = merge(*(written(side, layout) for side in sides))
    without = merge(*(written(side, bare) for side in sides))

    assert yaml.safe_load(text_of(with_comments)) == yaml.safe_load(text_of(without))
    assert [str(each) for each in with_comments.conflicts] == [str(each) for each in without.conflicts]
    assert with_comments.fallbacks == 0


@given(RANDOM, LAYOUTS)
@settings(max_examples=60, deadline=None)
def test_every_comment_of_both_sides_comes_once_or_is_listed(random: Random, layout: Layout) -> None:
    base, upstream, local = draw(random, layout)
    old, theirs, ours = (notes_of(side) for side in (base, upstream, local))
    names = [{part.name for part in side.walk()} for side in (upstream, local)]

    updated = merge(*(written(side, layout) for side in (base, upstream, local)))

    text, dropped = text_of(updated), listed(updated)
    for note in {**old, **theirs, **ours}:
        assert text.count(note) <= 1, note
    for note in (theirs.keys() | ours.keys()) - old.keys():
        assert note in text + dropped, note
    if not updated.conflicts:
        for note in old.keys() - (theirs.keys() & ours.keys()):
            is_removed = all(old[note][0] in each for each in names)  # and not with its value
            assert not is_removed or note not in text, f"{note} was removed"
        for note in old.keys() & theirs.keys() & ours.keys():
            assert note in text + dropped, f"{note} was left alone"


@given(RANDOM, LAYOUTS)
@settings(max_examples=60, deadline=None)
def test_every_comment_is_at_the_place_that_its_side_has(random: Random, layout: Layout) -> None:
    base, upstream, local = draw(random, layout)
    old, theirs, ours = (notes_of(side) for side in (base, upstream, local))

    lines = text_of(merge(*(written(side, layout) for side in (base, upstream, local)))).splitlines()

    for note in theirs.keys() | ours.keys():
        # Local's place, unless only upstream moved the comment.
        place = theirs.get(note) if ours.get(note) in (None, old.get(note)) else ours.get(note)
        at = next((number for number, line in enumerate(lines) if line.strip().endswith(note)), None)
        if at is not None:
            assert is_at(lines, at, *(place or ours[note])), (note, place, "\n".join(lines))


def is_at(lines: list[str], at: int, name: str, place: str) -> bool:
    """Return whether the comment in a line has this place beside or in a part, by the lines around it."""
    word = name.removeprefix("item ")
    here = next(
        (number for number, line in enumerate(lines) if re.match(rf" *(?:- )?(?:name: )?{word}\b", line)),
        None,
    )
    after = next((number for number in range(at + 1, len(lines)) if is_content(lines[number])), None)
    if not name:
        return after is None
    if here is None or place == "behind":
        return here == at
    if place == "above":
        return after == here
    own = column(lines[here])
    inside = [line for line in lines[here + 1 : at] if is_content(line)]
    is_inside = all(column(line) > own or re.match(rf" {{{own}}}- ", line) for line in inside)
    return here < at and is_inside and (after is None or column(lines[after]) <= column(lines[at]))


def is_content(line: str) -> bool:
    return bool(line.strip()) and not line.strip().startswith("# c")


def column(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


@given(RANDOM, LAYOUTS, st.booleans())
@settings(max_examples=60, deadline=None)
def test_update_of_an_edited_package_is_the_edited_update(
    random: Random,
    layout: Layout,
    notes: bool,
) -> None:
    """Values and comments that people changed where upstream left them are all that differs from upstream."""
    base = Author(random, "b", layout).document()
    upstream, local = deepcopy(base), deepcopy(base)
    author = Author(random, "u", layout)
    author.edit_parts(upstream)
    author.edit_comments(upstream)
    author.edit_values(upstream)
    mine = Author(random, "l", layout)
    mine.edit_values(local)
    if notes:
        mine.edit_comments(local, only_add=True)
    want = deepcopy(upstream)
    old, theirs = ({part.name: part for part in side.walk()} for side in (base, want))
    for part in local.walk():  # what both changed is taken back, all else comes
        was, other = old[part.name], theirs.get(part.name)
        for name in ("value", *PLACES):
            if other is None or getattr(was, name) != getattr(other, name):
                setattr(part, name, deepcopy(getattr(was, name)))
            else:
                setattr(other, name, deepcopy(getattr(part, name)))

    sides = [written(side, layout) for side in (base, upstream, local)]

    updated = merge(*sides)

    # Blank lines that end a comment, or the text of `|+`, are another matter where one of those changes.
    is_dense = notes or any("|+" in side for side in sides)
    texts = text_of(updated), written(want, layout)
    got, expected = (re.sub("\n\n+", "\n", text) if is_dense else text for text in texts)
    assert got == expected
    assert (updated.conflicts, updated.decided) == ((), ())


@given(RANDOM, LAYOUTS)
@settings(max_examples=40, deadline=None)
def test_merging_again_changes_nothing(random: Random, layout: Layout) -> None:
    base, upstream, local = (written(side, layout) for side in draw(random, layout))

    once = text_of(merge(base, upstream, local))

    assert text_of(merge(upstream, upstream, once)) == once
    assert text_of(merge(base, base, local)) == local
    assert text_of(merge(base, upstream, base)) == upstream
    assert text_of(merge(base, upstream, upstream)) == upstream


FORMATS = st.sampled_from(
    [Layout(line_break=end, mark=mark) for end in ("\n", "\r\n") for mark in ("", "\ufeff")]
)


@given(RANDOM, st.tuples(FORMATS, FORMATS, FORMATS))
@settings(max_examples=60, deadline=None)
def test_line_ends_and_byte_order_mark_are_merged_apart(random: Random, layouts: tuple[Layout, ...]) -> None:
    sides = draw(random)
    old, theirs, ours = layouts
    want = theirs if ours == old else ours

    formatted = text_of(merge(*(written(side, each) for side, each in zip(sides, layouts, strict=True))))
    plain = text_of(merge(*(written(side) for side in sides)))

    assert formatted == want.mark + plain.replace("\n", want.line_break)
