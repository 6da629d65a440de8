"""Colors and tables of a terminal; columns that do not fit fold below each other, and nothing is cut."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum

from reconciler.base.lazy import regex
from reconciler.names.trailers import KEEP

_GAP = "  "
_INDENT = "    "
_LEAST = 24
"""Characters that the last column, which is free text and wraps, needs to share a line with others."""
_COLOR = regex(r"\x1b\[[0-9;]*m")
_WORD = regex(rf"(\s*)({KEEP}: .*|(?:`[^`]*`|\S)+)")
"""A word with the space before it. What people copy is one: a command in backticks, a line of a commit."""
_COLUMN = regex(r"\s*\S+ {2,}(?=\S)")
_BRANCHES = regex(r"[ │├└─]*")
_BELOW_BRANCH = str.maketrans("├└─", "│  ")


def table_rows(
    heads: Sequence[str], rows: Sequence[Sequence[str]], width: int | None = None
) -> Iterator[list[str]]:
    """Yield the lines of the heading, then those of each row.

    The last column is free text. Without a width every row is one line. With one, columns that do not
    fit go to indented lines below, and only the free text wraps: names stay whole however long they are.
    """
    table = [heads, *rows]
    widths = [max(len(row[i]) for row in table) for i in range(len(heads))]
    groups = _fold(widths, width) if width else [range(len(heads))]
    for row in table:
        yield [line for i, group in enumerate(groups) for line in _lines(row, widths, group, i, width)]


_TAG = regex(r"</?(?:details|summary)>")
_CODE = regex(r"(`+) ?(.+?) ?\1")


def markdown_lines(text: str, width: int | None, paint: "Paint") -> Iterator[str]:
    """Yield the text of a pull request, which is Markdown, as lines for a terminal, without its marks."""
    table: list[list[str]] = []
    fence = ""
    for line in [*text.splitlines(), ""]:
        if not fence and line.startswith("|"):
            cells = [_unmarked(cell.strip()) for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            table += [] if set("".join(cells)) <= {"-", " "} else [cells]
            continue
        if table:
            yield from table_lines(table[0], table[1:], width)
            table = []
        if line.startswith("```"):
            fence = "" if fence else line
        elif fence:
            color = {"+": Color.GREEN, "-": Color.RED}.get(line[:1]) if "diff" in fence else None
            yield paint(f"  {line}", color) if color else f"  {line}"
        elif line.startswith("#"):
            yield paint(line.lstrip("# "), Color.BOLD)
        elif "<details>" not in line and "</details>" not in line:
            yield from folded([_unmarked(_TAG.sub("", line).replace("**", ""))], width)


def _unmarked(text: str) -> str:
    return _CODE.sub(r"\2", text).replace("\\|", "|")


def table_lines(
    heads: Sequence[str], rows: Sequence[Sequence[str]], width: int | None = None
) -> Iterator[str]:
    """Yield the lines of a table, its heading first."""
    for lines in table_rows(heads, rows, width):
        yield from lines


def _fold(widths: Sequence[int], width: int) -> list[range]:
    """Return which columns share a line: as many as fit, in their order."""
    # Free text wraps, so that it needs only some of its width to share a line.
    needs = [*widths[:-1], min(widths[-1], max(_LEAST, width * 2 // 5))]
    groups, start, used = [], 0, 0
    for column, need in enumerate(needs):
        if column > start and used + need > width:
            groups.append(range(start, column))
            start, used = column, len(_INDENT)
        used += need + len(_GAP)
    return [*groups, range(start, len(widths))]


def _lines(
    row: Sequence[str], widths: Sequence[int], group: range, index: int, width: int | None
) -> Iterator[str]:
    """Yield a row's lines of one group of columns; none of a later group that is empty."""
    cells = [row[column].ljust(widths[column]) for column in group]
    text = ((_INDENT if index else "") + _GAP.join(cells)).rstrip()
    if index and not text:
        return
    last = len(widths) - 1
    if width is None or last not in group or len(text) <= width or not row[last].strip():
        yield text
        return
    indent = len(text) - len(row[last].rstrip())
    first, *others = _wrap(row[last].strip(), width - indent)
    yield text[:indent] + first
    yield from (" " * indent + line for line in others)


def _wrap(text: str, width: int, *, indent: str = "", following: str = "") -> Iterator[str]:
    """Yield lines of at most a width; a word that is longer, such as a name, stays whole: people copy it."""
    line = indent
    for gap, word in _WORD.findall(text):
        if line.strip() and _length(line) + _length(gap + word) > width:
            yield line
            line = following + word
        else:
            line += gap + word
    yield line


def _length(text: str) -> int:
    """Return how many characters of a terminal a text takes: colors take none."""
    return len(_COLOR.sub("", text)) if "\x1b" in text else len(text)


def indented(text: str, width: int | None) -> list[str]:
    """Return a text below a row, indented; it wraps at a width, and names stay whole."""
    indent = " " * len(_INDENT) * 2
    if width is None:
        return [indent + text]
    return list(_wrap(text, max(width, len(indent) + _LEAST), indent=indent, following=f"{indent}  "))


def folded(texts: Iterable[str], width: int | None) -> Iterator[str]:
    """Yield the lines of texts so that they fit a terminal; names and commands stay whole.

    A longer line goes on below its text, if a column comes before it, and else further indented.
    """
    for line in (line for text in texts for line in text.split("\n")):
        if width is None or _length(line) <= width:
            yield line
            continue
        following = _continuation(_COLOR.sub("", line), width)
        yield from _wrap(line, max(width, len(following) + _LEAST), following=following)


def _continuation(line: str, width: int) -> str:
    """Return what precedes the rest of a line that is too long."""
    column = _COLUMN.match(line)
    if column and column.end() <= width // 3:
        return " " * column.end()
    branches = _BRANCHES.match(line)
    return (branches[0] if branches else "").translate(_BELOW_BRANCH) + _INDENT


class Color(StrEnum):
    """A colour as its SGR parameter."""

    GREEN = "32"
    YELLOW = "33"
    RED = "31"
    CYAN = "36"
    MAGENTA = "35"
    BOLD = "1"
    DIM = "2"


Paint = Callable[[str, Color], str]


def plain(text: str, _: Color) -> str:
    """Return `text` as it is: the paint of files and pipes."""
    return text


def ansi(text: str, color: Color) -> str:
    """Return `text` in `colour` for a terminal that understands SGR."""
    return f"\x1b[{color}m{text}\x1b[0m"
