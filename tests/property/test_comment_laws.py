"""Laws of comments across an update, on random documents with comments at every place."""

import re
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.names.objects import File, Files
from reconciler.render.update import MergeCache, Updated, update_package

HEAD = """\
apiVersion: example.com/v1
kind: Thing
metadata:
  name: thing
  annotations:
    reconciler.dev/merge-keys: spec.named=name
"""
PLACES = ("above", "behind", "below", "tail")


@dataclass
class Part:
    """A key or an item with its value, a text or the parts of a map or list, and its comments.

    `name` is unique; `key` is what the text has. `tail` are comments at the end of the map or list.
    """

    name: str
    key: str
    value: str = ""
    parts: "list[Part] | None" = None
    is_list: bool = False
    above: list[str] = field(default_factory=list)
    behind: list[str] = field(default_factory=list)
    below: list[str] = field(default_factory=list)
    tail: list[str] = field(default_factory=list)

    @property
    def is_mapping_item(self) -> bool:
        return self.parts is not None and not self.key

    def walk(self) -> "Iterator[Part]":
        yield self
        for part in self.parts or ():
            yield from part.walk()


class Layout(NamedTuple):
    """How a side writes its documents."""

    list_width: int = 0
    line_break: str = "\n"
    mark: str = ""
    comments: bool = True


PLAIN = Layout()


def written(root: Part, layout: Layout = PLAIN) -> str:
    """Return the document of a root part."""
    lines = [*HEAD.splitlines(), *_lines(root.parts or [], 0, layout)]
    lines += root.tail if layout.comments else []
    text = "".join(f"{line}\n" for line in lines)
    # More blank lines behind `|+` would be another value.
    text = re.sub(r"(\|\+.*\n *v\w+\n\n)\n+", r"\1", text)
    return layout.mark + text.replace("\n", layout.line_break)


def _lines(parts: list[Part], column: int, layout: Layout, *, in_list: bool = False) -> Iterator[str]:
    pad = " " * column
    for number, part in enumerate(parts):
        if layout.comments:
            yield from (pad + note if note else "" for note in part.above)
        behind = "".join(f" {note}" for note in part.behind) if layout.comments else ""
        start = f"{pad}-" if in_list else f"{pad}{part.key}:"
        inner = column + 2 if in_list or not part.is_list else column + layout.list_width
        if part.parts is None:
            first, *rest = part.value.split("\n")
            yield f"{start} {first}{behind}"
            yield from (f"{pad}    {line}" if line else "" for line in rest)
        elif part.is_mapping_item:
            first, *rest = _lines(part.parts, inner, layout)
            yield f"{start} {first.lstrip()}"
            yield from rest
        else:
            yield f"{start}{behind}"
            yield from _lines(part.parts, inner, layout, in_list=part.is_list)
        if layout.comments:
            yield from (" " * inner + note for note in part.tail)
            yield from (pad + note for note in part.below)
            yield from ("" for _ in part.below[:1] if number < len(parts) - 1)


class Author:
    """Draws documents and edits; the names and comments of each author are their own."""

    def __init__(self, random: Random, name: str, layout: Layout) -> None:
        self._random = random
        self._name = name
        self._layout = layout
        self._count = 0

    def document(self) -> Part:
        """Return a document with a keyed list `spec.named`."""
        spec = self._map("spec", 3)
        named = Part("named", "named", parts=[self._item() for _ in range(self._below(3) + 1)], is_list=True)
        assert spec.parts is not None
        spec.parts.insert(self._below(len(spec.parts) + 1), named)
        root = Part("", "", parts=[spec, *(self._part(2) for _ in range(self._below(3)))])
        self._decorate(root)
        return root

    def edit_values(self, root: Part) -> list[str]:
        """Change some values; return the names of the changed parts."""
        changed = [
            p for p in root.walk() if p.parts is None and p.key not in ("", "name") and self._one_in(4)
        ]
        for part in changed:
            part.value = self._value()
        return [part.name for part in changed]

    def edit_parts(self, root: Part) -> None:
        """Add and remove keys and items."""
        for part in [*root.walk()]:
            if part.parts is None or part.is_mapping_item:
                continue
            removable = [each for each in part.parts if each.name not in ("named", "spec")]
            if len(part.parts) > 1 and len(removable) > 1 and self._one_in(4):
                part.parts.remove(self._random.choice(removable))
            if self._one_in(3):
                new = [self._new(part) for _ in range(self._below(3) + 1)]
                place = self._below(len(part.parts) + 1)
                part.parts[place:place] = new
        self._drop_impossible(root)

    def edit_comments(self, root: Part, *, only_add: bool = False) -> None:
        """Add, change and remove comments."""
        for part in root.walk():
            for place in PLACES:
                notes = getattr(part, place)
                old = [number for number, note in enumerate(notes) if note]
                if old and not only_add and self._one_in(4):
                    number = self._random.choice(old)
                    notes[number : number + 1] = [self._note()] if self._one_in(2) else []
                if self._one_in(4):
                    notes.insert(self._below(len(old) + 1) + (notes[:1] == [""]), self._note())
        self._drop_impossible(root)

    def _decorate(self, root: Part) -> None:
        for part in root.walk():
            for place in PLACES:
                if self._one_in(3):
                    getattr(part, place).extend(self._note() for _ in range(self._below(2) + 1))
            if self._one_in(4):
                part.above.insert(0, "")
        self._drop_impossible(root)

    def _new(self, parent: Part) -> Part:
        part = self._item() if parent.name == "named" else self._plain() if parent.is_list else self._part(1)
        self._decorate(part)
        return part

    def _part(self, depth: int) -> Part:
        kind = self._below(4 if depth else 2)
        name = self._text("k")
        if kind < 2:
            return Part(name, name, self._value())
        if kind == 2:
            return self._map(name, depth)
        return Part(name, name, parts=[self._plain() for _ in range(self._below(3) + 1)], is_list=True)

    def _map(self, name: str, depth: int) -> Part:
        return Part(name, name, parts=[self._part(depth - 1) for _ in range(self._below(3) + 1)])

    def _plain(self) -> Part:
        word = self._text("i")
        return Part(word, "", word)

    def _item(self) -> Part:
        name = self._text("n")
        fields = [self._part(0) for _ in range(self._below(2) + 1)]
        return Part(f"item {name}", "", parts=[Part(name, "name", name), *fields])

    def _value(self) -> str:
        word = self._text("v")
        blocks = (f"|\n{word}\n# no", f"|-\n{word}", f"|+\n{word}\n", f">\n{word}\n\nmore")
        return self._random.choice(
            (word, f"'{word}'", f'"{word} # no"', f"[{word}, '# no']", f"{{a: {word}}}", *blocks)
        )

    def _note(self) -> str:
        return f"# {self._text('c')} {self._random.choice(('said', 'so: yes', 'x # y', '---'))}"

    def _text(self, kind: str) -> str:
        self._count += 1
        return f"{kind}{self._name}{self._count}e"

    def _below(self, number: int) -> int:
        return self._random.randrange(number)

    def _one_in(self, number: int) -> bool:
        return self._random.randrange(number) == number - 1

    def _drop_impossible(self, root: Part) -> None:
        """Leave out the comments for which there is no place."""
        for part in root.walk():
            # In the column of a key and of its list stands a comment of the map that has both.
            if part.parts is None or (part.is_list and not self._layout.list_width):
                part.tail.clear()
            if part.is_mapping_item or not part.name:
                part.behind.clear()
            if part.is_mapping_item and part.parts:
                part.parts[0].above.clear()
            if part.parts:
                part.parts[-1].below.clear()
            del part.behind[1:]
        root.above.clear()
        root.below.clear()


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
    random: Random, layout: Layout, notes: bool
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
