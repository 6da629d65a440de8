"""The fault matrix: which faults are tried, what is promised after each, by which test, at how many points.

`ROWS` is the registry, `docs/contributing/faults.md` its table. A sweep tries a seeded sample of its points.
With `RECONCILER_FAULTS=all` (`make faults`) it tries every point, with a number at most so many, and records
in `points.json` how many it tried, if they are more than before.
"""

import fcntl
import json
import math
import os
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from tests.faults.rows import ROWS
from tests.support.notes import note

WANTED = os.environ.get("RECONCILER_FAULTS", "")
SEED = int(os.environ.get("RECONCILER_FAULTS_SEED", "1"))
HERE = Path(__file__).resolve().parent
RECORD = HERE / "points.json"
DOCUMENT = HERE.parents[1] / "docs/contributing/faults.md"
BEGIN, END = "<!-- faults: begin -->", "<!-- faults: end -->"


class Point(NamedTuple):
    """One place of a run where a fault begins: its number from 1, and what the run does there."""

    number: int
    name: str


def draw(*names: str) -> int:
    """Return a number that the seed and some names decide."""
    return zlib.crc32(" ".join((str(SEED), *names)).encode())


class Tried(NamedTuple):
    """At how many points of a sweep a fault was tried at once, and how many there are."""

    tried: int
    points: int


@contextmanager
def sweep(row: str, part: str, points: Sequence[str], most: int) -> Iterator[list[Point]]:
    """Yield the points to try in one part of a row: a seeded sample of `most`, or what the environment wants.

    Fails if there are more or fewer points than were recorded, also where none is tried.
    """
    assert row in ROWS, f"{row} is in no row of tests/faults/rows.py"
    every = [Point(number, name) for number, name in enumerate(points, start=1)]
    most = len(every) if WANTED == "all" else int(WANTED or most)
    stride = max(1, math.ceil(len(every) / max(1, most)))
    tried = every[draw(row, part) % stride :: stride] if most else []
    yield tried
    note(f"{row} ({part}): {len(tried)} of {len(every)} points")
    if WANTED:
        _record(row, part, Tried(len(tried), len(every)))
    recorded = read_record().get(row, {}).get(part, Tried(0, 0)).points
    assert recorded == len(every), f"{row} ({part}): {recorded} points are recorded: run `make faults`"


def read_record() -> dict[str, dict[str, Tried]]:
    """Return what was tried, by row and part."""
    record = json.loads(RECORD.read_text())
    return {row: {part: Tried(*counts) for part, counts in parts.items()} for row, parts in record.items()}


def _record(row: str, part: str, now: Tried) -> None:
    with (HERE / "rows.py").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        record = read_record()
        before = record.setdefault(row, {}).get(part)
        if before is None or before.points != now.points or before.tried < now.tried:
            record[row][part] = now
        RECORD.write_text(format_record(record))


def format_record(record: Mapping[str, Mapping[str, Tried]]) -> str:
    """Return the record as it is kept: one line per part, in the order of the rows."""
    ordered = {row: dict(sorted(record[row].items())) for row in ROWS if row in record}
    return re.sub(r"\[\s*(\d+),\s*(\d+)\s*\]", r"[\1, \2]", json.dumps(ordered, indent=2)) + "\n"


def count_points(row: str) -> Tried:
    """Return at how many points a row is tried: as recorded, else as often as its test is parametrised."""
    recorded = read_record().get(row)
    if recorded is None:
        cases = count_cases(ROWS[row].test)
        return Tried(cases, cases)
    return Tried(sum(t.tried for t in recorded.values()), sum(t.points for t in recorded.values()))


def count_cases(test: str) -> int:
    """Return how many cases a test has. Raises: AttributeError if there is no such test."""
    path, _, name = test.partition("::")
    function = getattr(import_module(path.removesuffix(".py").replace("/", ".")), name)
    marks = [mark for mark in getattr(function, "pytestmark", ()) if mark.name == "parametrize"]
    return math.prod(len(mark.args[1]) for mark in marks)


def table() -> str:
    """Return the table of all rows, as Markdown."""
    lines = ["| fault | promise | test | points tried |", "| --- | --- | --- | --- |"]
    counts = {key: count_points(key) for key in ROWS}
    numbers: dict[tuple[str, str, str], list[str]] = {}
    for key, row in ROWS.items():
        tried, points = counts[key]
        number = str(tried) if tried == points else f"{tried} of {points}"
        where = f" ({row.where})" if row.where else ""
        numbers.setdefault((row.fault, row.promise, row.test), []).append(f"{number}{where}")
    for (fault, promise, test), own in numbers.items():
        lines.append(f"| {fault} | {promise} | `{test}` | {', '.join(own)} |")
    total = Tried(*map(sum, zip(*counts.values(), strict=True)))
    return "\n".join([*lines, "", f"{len(ROWS)} sweeps, {total.tried} of {total.points} points tried.", ""])


def document(text: str) -> str:
    """Return the page with the table brought up to date."""
    head, _, rest = text.partition(BEGIN)
    return f"{head}{BEGIN}\n\n{table()}\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    DOCUMENT.write_text(document(DOCUMENT.read_text()))
    print(f"{DOCUMENT.name} is up to date")
