"""Status of the fleet as a table, CSV or lines of JSON: a row for each package. Pure."""

import csv
import io
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

import orjson

from reconciler.base.reasons import Phase, Reason
from reconciler.base.text import date_text, json_text, plural, terminal
from reconciler.report.build import ANSWER, MENDING, MOST_ROWS
from reconciler.report.console import Color, Paint, indented, plain, table_rows
from reconciler.report.report import StatusRow

HEADS = ("PACKAGE", "CLUSTER", "MAIN", "REVIEW", "STATE", "SINCE", "PULL REQUEST", "WAITING FOR")
WIDE_HEADS = (*HEADS[:-1], "OWNER", "SET", "STALLED", "READY", "REASON", "WAITING FOR", "MESSAGE")
_SAID = frozenset({Reason.AWAITING_WAVE.facts.waits_for, ANSWER})
"""Waits that the message of a package names, too."""
SORT_KEYS = ("name", "cluster", "main", "review", "state", "since")
_COLORS = {
    Phase.PUBLISHED: Color.GREEN,
    Phase.IN_REVIEW: Color.YELLOW,
    Phase.NOT_READY: Color.YELLOW,
    Phase.CONFLICT: Color.RED,
    Phase.STALLED: Color.RED,
}
URGENCY = (
    *(Phase.STALLED, Phase.CONFLICT, Phase.REJECTED, Phase.NOT_READY, Phase.HELD_BACK),
    *(Phase.IN_REVIEW, Phase.PENDING, Phase.PAUSED, Phase.PUBLISHED),
)
"""States, those that call for a person first."""


class StatusFilter(NamedTuple):
    """Packages to show: those that match one value of each filter; a label is `KEY` or `KEY=VALUE`."""

    names: tuple[str, ...] = ()
    sets: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    states: tuple[str, ...] = ()
    repositories: tuple[str, ...] = ()

    @property
    def package(self) -> str:
        """The one package that is asked for, as REPO/PACKAGE; "" where others may be meant, too."""
        name = self.names[0] if len(self.names) == 1 and not any(self[1:]) else ""
        return name if "/" in name and not {*"*?["} & {*name} else ""

    def select(self, rows: Iterable[StatusRow]) -> list[StatusRow]:
        """Return the rows that match, in their order."""
        return [row for row in rows if self._matches(row)]

    def _matches(self, row: StatusRow) -> bool:
        return (
            _any(self.names, row.names)
            and _any(self.sets, row.set_names)
            and set(self.labels) <= label_terms(row)
            and (not self.states or (row.package is not None and row.package.phase in self.states))
            and _any(self.repositories, [row.repository])
        )


def _any(patterns: Sequence[str], names: Iterable[str]) -> bool:
    return not patterns or any(fnmatchcase(name, pattern) for name in names if name for pattern in patterns)


def label_terms(row: StatusRow) -> set[str]:
    """Return the labels of an owner as `KEY` and as `KEY=VALUE`."""
    labels = row.owner.labels or {}
    return {*labels, *(f"{key}={value}" for key, value in labels.items())}


def sort_rows(rows: Iterable[StatusRow], key: str) -> list[StatusRow]:
    """Return the rows by a key of SORT_KEYS; those with equal keys by name, those without one last."""

    def order(row: StatusRow) -> tuple[object, ...]:
        package = row.package
        values: dict[str, object] = {
            "since": package and package.since,
            "state": package and URGENCY.index(package.phase) + 1,
        }
        value = values.get(key, getattr(row.summary, key, "")) or ""
        return value == "", value, row.package_name, row.name

    return sorted(rows, key=order)


def status_summary(rows: Iterable[StatusRow]) -> str:
    """Return how many packages are in each state, the most urgent first; "" without any."""
    phases = Counter(row.phase for row in rows)
    return ", ".join(f"{phases[phase]} {phase}" for phase in URGENCY if phases[phase])


def status_lines(
    rows: Sequence[StatusRow],
    *,
    wide: bool = False,
    folds: bool = False,
    width: int | None = None,
    paint: Paint = plain,
    now: float = 0,
    problems: str = "",
) -> Iterator[str]:
    """Yield the table of packages; of PackageVariantSets only those that are stalled, unless it is wide.

    Where it folds, more than a few packages that differ in their names only share a row. With a clock
    (`now`) it has ages instead of dates. A message that the text of `problems` has is left out.
    """
    listed = [row for row in rows if wide or not row.is_set or row.is_stalled]
    if not listed:
        yield "No package is there." if not rows else "No set is stalled, and no package is there."
        return
    cells = [row_cells(row, wide=wide, now=now, problems=problems) for row in listed]
    if folds and not wide:
        cells, listed = _folded(cells, listed)
    heads = WIDE_HEADS if wide else HEADS
    table = [tuple("AGE" if now and head == "SINCE" else head for head in heads), *cells]
    has_names = all(line[1] in ("", line[0].partition("/")[0]) for line in cells)  # of its repositories
    if width and not wide and _is_too_wide(table, width) and has_names:
        table = [(*line[:1], *line[2:]) for line in table]
    if width and not wide and _is_too_wide(table, width):
        columns = zip(*table, strict=True)  # the last one is free text
        filled = [column for column in columns if any(column[1:]) or column[0] == HEADS[-1]]
        table = list(zip(*filled, strict=True))
    head, *lines = table_rows(table[0], table[1:], width)
    yield from (paint(line, Color.BOLD) for line in head)
    for row, row_lines in zip(listed, lines, strict=True):
        phase = row.package.phase if row.package else None
        color = _COLORS.get(phase) if phase else None
        for line in row_lines:
            yield line.replace(f"  {phase} ", f"  {paint(phase, color)} ", 1) if phase and color else line
        for note in row.change.subpackages if row.change else ():
            yield from indented(terminal(note.text), width)


def _folded(
    cells: Sequence[tuple[str, ...]], rows: Sequence[StatusRow]
) -> tuple[list[tuple[str, ...]], list[StatusRow]]:
    """Return the lines with those that are alike in one, at the place of the first, and their first rows."""
    groups: dict[tuple[str, ...], list[int]] = {}
    for place, line in enumerate(cells):
        name = line[0].rpartition("/")[2]
        change = rows[place].change
        key = (line[0],) if change and change.subpackages else (name, *line[2:6], line[7])
        groups.setdefault(key, []).append(place)
    folded: dict[int, tuple[str, ...]] = {}
    for places in groups.values():
        most = 1 if cells[places[0]][4] == Phase.HELD_BACK else MOST_ROWS
        if len(places) <= most:
            folded |= {place: cells[place] for place in places}
            continue
        line, numbers = cells[places[0]], {cells[place][6] for place in places} - {""}
        pulls = plural(len(numbers), "pull request") if numbers else ""
        name = f"{line[0]} and {len(places) - 1} more"
        folded[places[0]] = (name, *line[1:6], pulls, line[7])
    return [folded[place] for place in sorted(folded)], [rows[place] for place in sorted(folded)]


def _is_too_wide(table: Sequence[Sequence[str]], width: int) -> bool:
    return sum(max(map(len, column)) + 2 for column in zip(*table, strict=True)) > width


def row_cells(row: StatusRow, *, wide: bool = False, now: float = 0, problems: str = "") -> tuple[str, ...]:
    """Return the cells of a row, with a date, or with a clock an age."""
    package, summary = row.package, row.summary
    since, number, url = (package.since, package.pull, package.url) if package else (0, 0, "")
    first = (
        row.package_name,
        summary.cluster or row.owner.cluster,
        summary.main,
        summary.review,
        row.phase or "",
        date_text(since, now),
        url or (f"{row.repository}#{number}" if number else ""),
    )
    message, waiting = str(row.message), summary.waiting_for
    if wide:
        name, states = f"{row.owner.kind} {row.name}", map(row.condition, ("Stalled", "Ready"))
        more = (
            name,
            summary.set,
            *(c.status if c.type else "" for c in states),
            row.reason,
            waiting,
            message,
        )
    else:
        is_unready = package is None and row.condition("Ready").status == "False"
        needs_message = row.is_stalled or is_unready or (waiting and package and package.message)
        if needs_message and message and message in problems:
            message, waiting = "", waiting or MENDING
        waiting = "" if message and waiting in _SAID else waiting
        more = (": ".join(part for part in (waiting, message if needs_message else "") if part),)
    return tuple(terminal(cell) for cell in (*first, *more))


def status_csv(rows: Iterable[StatusRow]) -> str:
    """Return the wide table as CSV with a heading, for spreadsheets.

    A cell that a spreadsheet would compute starts with an apostrophe.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([head.lower() for head in WIDE_HEADS])
    for row in rows:
        cells = row_cells(row, wide=True)
        writer.writerow(f"'{cell}" if cell[:1] in ("=", "+", "-", "@") else cell for cell in cells)
    return text.getvalue()


def status_json_lines(values: Iterable[Any]) -> str:
    """Return each value as one line of JSON."""
    lines = (orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode() for value in values)
    return "".join(f"{json_text(line)}\n" for line in lines)
