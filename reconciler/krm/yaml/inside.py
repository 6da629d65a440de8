"""Position in the text of one character of a scalar, for every scalar style."""

from typing import Final

_ESCAPES: Final = {"x": 4, "u": 6, "U": 10}


def find_inside(written: str, style: str | None, value: str, offset: int) -> int:
    """Return the place in `written` of the character `value[offset]`.

    Total: beyond the end, and where folding leaves nothing to point at, it is the nearest place
    before. `written` is the scalar as it stands, quotes or block header included.
    """
    place = _content_start(written, style)
    margin = _margin(written[place:]) if style in {"|", ">"} else 0
    if margin:
        place = _skip_margin(written, place, margin)
    for index in range(min(offset, len(value))):
        place = _after(written, place, value[index], style, margin)
    return min(place, max(len(written) - 1, 0))


def _content_start(written: str, style: str | None) -> int:
    if style in {"|", ">"}:
        return written.find("\n") + 1
    return 1 if style in {"'", '"'} else 0


def _margin(block: str) -> int:
    lines = [line for line in block.split("\n") if line.strip(" ")]
    return len(lines[0]) - len(lines[0].lstrip(" ")) if lines else 0


def _skip_margin(written: str, place: int, margin: int) -> int:
    end = place
    while end < len(written) and end - place < margin and written[end] == " ":
        end += 1
    return end


def _after(written: str, place: int, character: str, style: str | None, margin: int) -> int:
    """Return the place behind the text of one character of the value."""
    if place >= len(written):
        return place
    found = written[place]
    if style == '"' and found == "\\":
        return place + _ESCAPES.get(written[place + 1 : place + 2], 2)
    if style == "'" and found == "'":
        return place + 2
    if margin:
        return _skip_margin(written, place + 1, margin) if found == "\n" else place + 1
    if character in " \n" and found in " \t\n":
        return _after_fold(written, place)
    return place + 1


def _after_fold(written: str, place: int) -> int:
    """Skip a folded line break with the blanks around it; within a line, one blank only."""
    end = place
    while end < len(written) and written[end] in " \t\r\n":
        end += 1
    return end if "\n" in written[place:end] else place + 1
