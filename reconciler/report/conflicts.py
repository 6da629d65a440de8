"""Conflicts as people read them: both sides of each, on one line or as a block below the table. Pure."""

import difflib
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from reconciler.base.text import cell, code, plural, terminal
from reconciler.names.trailers import BOX, KEEP, KEEPS, TAKES, box_line, has_mark, without_mark
from reconciler.plan.changes import Change
from reconciler.render.answers import Answer
from reconciler.render.update import Conflict
from reconciler.render.update.resources import OF_LOCAL, OF_UPSTREAM
from reconciler.report.diff import LONGEST_LINE, MOST_LINES, cut

LONGEST_VALUE = 80
"""Characters of a value that fit a table; a longer one, like one of several lines, is shown below it."""

MOST_OPEN_LINES = 12
"""Lines of a difference in a pull request's text; a longer one is folded."""

MOST_CONFLICTS = 50
"""Conflicts of a pull request's text; more than these are counted."""


class ConflictBlock(NamedTuple):
    """One open conflict of a pull request as Markdown: its place, and the name and the text of each value.

    `boxes` answer it, `block` is the difference of two long values, which is folded where it `is_long`.
    """

    heading: str
    values: tuple[tuple[str, str], ...]
    boxes: tuple[str, ...] = ()
    block: str = ""

    @property
    def is_long(self) -> bool:
        """Whether the difference would push the next conflict off the screen."""
        return self.block.count("\n") > MOST_OPEN_LINES


class ConflictRow(NamedTuple):
    """One answered conflict of a pull request, as Markdown cells of a table.

    `boxes` answer it anew, `block` is the difference of two long values.
    """

    cells: tuple[str, ...]
    boxes: tuple[str, ...] = ()
    heading: str = ""
    block: str = ""


def conflict_value(conflict: Conflict) -> dict[str, str | None]:
    """Return a conflict as a JSON value; `keep` is the line that keeps the local value.

    `template` is that of the chart which rendered the file.
    """
    sides = ("path", "field", "upstream", "local", "resource", "base")
    value = {name: getattr(conflict, name) for name in sides}
    value["keep"] = keep_line(conflict.name) if conflict.name else None
    return value | ({"template": conflict.template} if conflict.template else {})


def keep_line(name: str) -> str:
    """Return the line of a commit message that keeps the local value of a conflict."""
    return f"{KEEP}: {name}"


def answer_command(package: str, note: Conflict) -> str:
    """Return the command that answers a conflict of a package by its local value."""
    return " ".join(filter(None, ("reconciler answer", package, without_mark(note.name), "--keep")))


def conflict_blocks(
    change: Change, origins: Mapping[str, str], *, boxes: bool = False
) -> list[ConflictBlock]:
    """Return the conflicts of a change as blocks, those that fit a pull request.

    `origins` tell, by the names of conflicts, what set the local value. With `boxes` those that a choice of
    one side answers have boxes, unless people committed to the draft.
    """
    boxes = boxes and not (change.request is not None and change.request.edited)
    blocks = []
    for note in change.conflicts[:MOST_CONFLICTS]:
        compared = _compared(note)
        sides = {
            "before": ""
            if note.base is None
            else _cell(note.base, note, is_below=compared[0][1] == "before"),
            "upstream": _cell(note.upstream, note),
            "local": _cell(note.local, note),
            "local since": origins.get(note.name, ""),
            "template": cell(note.template[:LONGEST_LINE]) if note.template else "",
        }
        values = tuple((name, value) for name, value in sides.items() if value)
        heading = ", ".join(text for text in reversed([*_place_cells(note, note.path)]) if text)
        blocks.append(
            ConflictBlock(heading, values, _boxes(note) if boxes else (), _block(note, *compared)[1])
        )
    return blocks


def conflict_lines(change: Change, package: str) -> Iterator[str]:
    """Yield the conflicts of a change for a terminal; every line of a value is a line.

    `package` is its name in reports, by which a command answers them.
    """
    for note in change.conflicts:
        yield f"  conflict: {terminal(place_text(note))}"
        if note.template:
            yield f"    template: {terminal(note.template)}"
        if note.base is not None:
            yield from _value_lines("before", note.base, note)
        yield from _value_lines("upstream", note.upstream, note)
        yield from _value_lines("local", note.local, note)
        if note.name:
            yield f"    next: {terminal(answer_command(package, note))}, --take or --value VALUE"
            yield f"    or a commit on the draft with: {terminal(keep_line(note.name))}"
    for answer in change.answers:
        yield f"  answered by {terminal(answered_text(answer))}: {terminal(place_text(answer.conflict))}"
        yield from _value_lines("chosen", answer.chosen, answer.conflict)
        yield from _value_lines("dropped", answer.dropped, answer.conflict)


def conflict_texts(change: Change, origins: Mapping[str, str]) -> Iterator[tuple[str, ...]]:
    """Yield the conflicts of a change for a page, those that are answered too.

    Each is its place, the value before, those of upstream and here, and what set this one, or answered it.
    """
    for note in change.conflicts:
        before = "" if note.base is None else _side(note.base, note)
        sides = (_side(note.upstream, note), _side(note.local, note))
        yield _place_lines(note), before, *sides, origins.get(note.name, "")
    for answer in change.answers:
        note = answer.conflict
        chosen = f"answered by {answered_text(answer)}: {_side(answer.chosen, note)}"
        yield _place_lines(note), "", _side(note.upstream, note), _side(note.local, note), chosen


def answer_commands(change: Change, package: str) -> str:
    """Return the commands that answer a change's conflicts."""
    commands = (answer_command(package, note) for note in change.conflicts[:MOST_CONFLICTS])
    return "\n".join(dict.fromkeys(commands))


def change_keeps(change: Change) -> str:
    """Return the lines of a commit message that keep the local values of a change's conflicts."""
    return "\n".join(keep_line(note.name) for note in change.conflicts[:MOST_CONFLICTS] if note.name)


def answer_rows(change: Change) -> list[ConflictRow]:
    """Return the answered conflicts of a change as rows of a table."""
    return list(map(_answer_row, change.answers))


def _answer_row(answer: Answer) -> ConflictRow:
    note, by = answer.conflict, answered_text(answer)
    by = cell(by[:LONGEST_LINE]) if answer.policy not in ("", BOX) else by
    boxes = _boxes(note, KEEPS if answer.chosen == note.local else TAKES) if answer.policy == BOX else ()
    chosen, dropped = _cell(answer.chosen, note), _cell(answer.dropped, note)
    cells = (*_place_cells(note, note.path), chosen, dropped, by)
    heading, block = _block(note, (answer.dropped, "dropped"), (answer.chosen, "chosen"))
    return ConflictRow(cells, boxes, heading, block)


def _place_cells(note: Conflict, path: str) -> Iterator[str]:
    return (cell(text[:LONGEST_LINE]) for text in (path, note.resource, note.field))


def _compared(note: Conflict) -> tuple[tuple[str | None, str], tuple[str | None, str]]:
    """Return the two named values that tell most: where one side deleted it, the change of the other."""
    local, upstream = (note.local, "local"), (note.upstream, "upstream")
    deleted = [_is_deleted(value, note) for value, _ in (local, upstream)]
    if note.base is None or not any(deleted):
        return local, upstream
    return (note.base, "before"), upstream if deleted[0] else local


def _block(note: Conflict, before: tuple[str | None, str], after: tuple[str | None, str]) -> tuple[str, str]:
    """Return the heading and the difference of two named values, nothing if the table shows both."""
    if not (_is_long(before[0]) or _is_long(after[0])):
        return "", ""
    return code(place_text(note)[:LONGEST_LINE]), _difference(before, after)


def answered_text(note: Answer) -> str:
    """Return what answered a conflict; a policy as it is written, and where."""
    if not note.policy:
        return _BY[note.by]
    return f"{note.policy} in {note.source}" if note.source else note.policy


_BY = {"edit": "an edit", "policy": "a policy", "keep": "Keep"}


def place_text(note: Conflict) -> str:
    """Return where a conflict is: file, resource, field, as far as it has them."""
    return " ".join(_place_lines(note).split("\n"))


def _place_lines(note: Conflict) -> str:
    return "\n".join(filter(None, (note.path, note.resource, note.field)))


def _value_lines(side: str, value: str | None, note: Conflict) -> Iterator[str]:
    first, *others = map(terminal, _side(value, note).split("\n"))
    yield f"    {side}:" if others else f"    {side}: {first}"
    yield from (f"      {line}".rstrip() for line in ((first, *others) if others else ()))


def _side(value: str | None, note: Conflict) -> str:
    """Return a value, or that there is none; of a long one the first lines."""
    return "\n".join(cut_lines((value or "").rstrip("\n").split("\n"))) or _absent(value, note)


def _boxes(note: Conflict, ticked: str = "") -> tuple[str, ...]:
    """Return the boxes of a conflict of two values, none of any other: one side cannot answer that."""
    if not note.field or None in (note.upstream, note.local) or not has_mark(note.name):
        return ()
    sides = ((KEEPS, "the local value", note.local), (TAKES, "upstream's value", note.upstream))
    return tuple(
        box_line(
            choice,
            what if _is_long(value) or not value else f"{code(value)}, {what}",
            note.name,
            ticked=choice == ticked,
        )
        for choice, what, value in sides
    )


def _cell(value: str | None, note: Conflict, *, is_below: bool = True) -> str:
    if _is_long(value):
        count = len((value or "").rstrip("\n").split("\n"))
        if not is_below:
            return "longer than a row" if count == 1 else plural(count, "line")
        return "see below" if count == 1 else f"{plural(count, 'line')}, see below"
    return cell((value or "").rstrip("\n")) or _absent(value, note)


def _absent(value: str | None, note: Conflict) -> str:
    """Return how to show that a side has no value: in a text file an empty side lacks the lines."""
    if note.field in (OF_UPSTREAM, OF_LOCAL):
        return "(left out)"  # a comment that the package does not have
    return "(deleted)" if _is_deleted(value, note) else "(empty)"


def _is_deleted(value: str | None, note: Conflict) -> bool:
    return value is None or not (value or note.resource)


def _is_long(value: str | None) -> bool:
    text = (value or "").rstrip("\n")
    return "\n" in text or len(text) > LONGEST_VALUE


def _difference(before: tuple[str | None, str], after: tuple[str | None, str]) -> str:
    """Return what leads from one named value to the other, as lines of a diff."""
    old, new = ([] if not text else text.rstrip("\n").split("\n") for text, _ in (before, after))
    body = difflib.unified_diff(old, new, before[1], after[1], n=MOST_LINES, lineterm="")
    return "\n".join(cut_lines(line for line in body if not line.startswith("@@ ")))


def cut_lines(lines: Iterable[str]) -> list[str]:
    """Return the first lines of a value, of long ones their beginning, and how many more there are."""
    shortened = list(map(cut, lines))
    more = len(shortened) - MOST_LINES
    return [*shortened[:MOST_LINES], *([f"(and {plural(more, 'line')} more)"] if more > 0 else [])]
