"""Status of the fleet as a table, CSV or lines of JSON: a row for each package. Pure."""

import csv
import io
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

import orjson

from reconciler.base.reasons import Phase, Reason
from reconciler.base.text import age_text, json_text, plural, terminal
from reconciler.plan.changes import SubpackageNote
from reconciler.report.build import ANSWER, MENDING, MOST_ROWS
from reconciler.report.console import Color, Paint, indented, plain, table_rows

Owner = Mapping[str, Any]
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

    def select(self, owners: Iterable[Owner]) -> list[Owner]:
        """Return the owners that match, in their order."""
        return [owner for owner in owners if self._matches(owner)]

    def _matches(self, owner: Owner) -> bool:
        package = owner.get("package") or {}
        labels = owner.get("labels") or {}
        label_terms = {*labels, *(f"{key}={value}" for key, value in labels.items())}
        return (
            _any(self.names, owner_names(owner))
            and _any(self.sets, set_names(owner))
            and set(self.labels) <= label_terms
            and (not self.states or package.get("phase") in self.states)
            and _any(self.repositories, {package.get("repository", "")})
        )


def _any(patterns: Sequence[str], names: Iterable[str]) -> bool:
    return not patterns or any(fnmatchcase(name, pattern) for name in names if name for pattern in patterns)


def owner_names(owner: Owner) -> set[str]:
    """Return the names of an owner: its own, that of its package, and those of its set."""
    return {owner_name(owner), package_name(owner), *set_names(owner)}


def set_names(owner: Owner) -> set[str]:
    """Return the names of an owner's set, with and without its namespace; a set has its own."""
    is_set = owner.get("kind") == "PackageVariantSet"
    name = owner_name(owner) if is_set else (owner.get("summary") or {}).get("set", "")
    return {name, name.partition("/")[2]} - {""}


def owner_name(owner: Owner) -> str:
    """Return `NAMESPACE/NAME`; a package of a cluster has the cluster before it."""
    parts = (owner.get("cluster"), owner.get("namespace"), owner.get("name"))
    return "/".join(part for part in parts if part)


def package_name(owner: Owner) -> str:
    """Return `REPOSITORY/PACKAGE`, or the name of the owner where it has no package."""
    package = owner.get("package") or {}
    return f"{package['repository']}/{package['name']}" if package.get("repository") else owner_name(owner)


def sort_owners(owners: Iterable[Owner], key: str) -> list[Owner]:
    """Return the owners by a key of SORT_KEYS; those with equal keys by name, those without one last."""

    def order(owner: Owner) -> tuple[object, ...]:
        package, summary = owner.get("package") or {}, owner.get("summary") or {}
        urgency = URGENCY.index(Phase(package["phase"])) + 1 if package else ""
        values = {"since": package.get("since"), "state": urgency, "name": ""}
        value = values.get(key, summary.get(key)) or ""
        return value == "", value, package_name(owner), owner_name(owner)

    return sorted(owners, key=order)


def status_summary(owners: Iterable[Owner]) -> str:
    """Return how many packages are in each state, the most urgent first; "" without any."""
    phases = Counter(
        (owner.get("package") or {}).get("phase") or (Phase.STALLED if _stalls(owner) else "")
        for owner in owners
    )
    return ", ".join(f"{phases[phase]} {phase}" for phase in URGENCY if phases[phase])


def status_lines(
    owners: Sequence[Owner],
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
    listed = [owner for owner in owners if wide or owner.get("kind") != "PackageVariantSet" or _stalls(owner)]
    if not listed:
        yield "No package is there." if not owners else "No set is stalled, and no package is there."
        return
    rows = [row(owner, wide=wide, now=now, problems=problems) for owner in listed]
    if folds and not wide:
        rows, listed = _folded(rows, listed)
    heads = WIDE_HEADS if wide else HEADS
    table = [tuple("AGE" if now and head == "SINCE" else head for head in heads), *rows]
    has_names = all(cells[1] in ("", cells[0].partition("/")[0]) for cells in rows)  # of its repositories
    if width and not wide and _is_too_wide(table, width) and has_names:
        table = [(*cells[:1], *cells[2:]) for cells in table]
    if width and not wide and _is_too_wide(table, width):
        columns = zip(*table, strict=True)  # the last one is free text
        filled = [column for column in columns if any(column[1:]) or column[0] == HEADS[-1]]
        table = list(zip(*filled, strict=True))
    head, *lines = table_rows(table[0], table[1:], width)
    yield from (paint(line, Color.BOLD) for line in head)
    for owner, row_lines in zip(listed, lines, strict=True):
        phase = (owner.get("package") or {}).get("phase", "")
        color = _COLORS.get(phase)
        for line in row_lines:
            yield line.replace(f"  {phase} ", f"  {paint(phase, color)} ", 1) if color else line
        for note in owner.get("subpackages", ()):
            yield from indented(terminal(SubpackageNote(**note).text), width)


def _folded(
    rows: Sequence[tuple[str, ...]], owners: Sequence[Owner]
) -> tuple[list[tuple[str, ...]], list[Owner]]:
    """Return the rows with those that are alike in one, at the place of the first, and their first owners."""
    groups: dict[tuple[str, ...], list[int]] = {}
    for place, cells in enumerate(rows):
        name = cells[0].rpartition("/")[2]
        key = (cells[0],) if owners[place].get("subpackages") else (name, *cells[2:6], cells[7])
        groups.setdefault(key, []).append(place)
    folded: dict[int, tuple[str, ...]] = {}
    for places in groups.values():
        most = 1 if rows[places[0]][4] == Phase.HELD_BACK else MOST_ROWS
        if len(places) <= most:
            folded |= {place: rows[place] for place in places}
            continue
        cells, numbers = rows[places[0]], {rows[place][6] for place in places} - {""}
        pulls = plural(len(numbers), "pull request") if numbers else ""
        name = f"{cells[0]} and {len(places) - 1} more"
        folded[places[0]] = (name, *cells[1:6], pulls, cells[7])
    return [folded[place] for place in sorted(folded)], [owners[place] for place in sorted(folded)]


def _is_too_wide(table: Sequence[Sequence[str]], width: int) -> bool:
    return sum(max(map(len, column)) + 2 for column in zip(*table, strict=True)) > width


def row(owner: Owner, *, wide: bool = False, now: float = 0, problems: str = "") -> tuple[str, ...]:
    """Return the cells of an owner, with a date, or with a clock an age."""
    package, summary = owner.get("package") or {}, owner.get("summary") or {}
    stalled, ready = condition(owner, "Stalled"), condition(owner, "Ready")
    decisive = stalled if stalled.get("status") == "True" else ready
    reason = package.get("reason") or decisive.get("reason", "")
    message = package.get("message") or decisive.get("message", "")
    pull = package.get("pullRequest") or {}
    first = (
        package_name(owner),
        summary.get("cluster") or owner.get("cluster") or "",
        summary.get("main", ""),
        summary.get("review", ""),
        package.get("phase", "") or ("stalled" if _stalls(owner) else ""),
        since_cell(package.get("since"), now),
        pull.get("url") or (f"{package.get('repository')}#{pull['number']}" if pull else ""),
    )
    waiting = summary.get("waitingFor", "")
    more: tuple[str, ...]
    if wide:
        name, states = f"{owner.get('kind') or 'package'} {owner_name(owner)}", (stalled, ready)
        more = (name, summary.get("set", ""), *(state.get("status", "") for state in states), reason, waiting)
        more = (*more, message)
    else:
        is_unready = not package and ready.get("status") == "False"
        needs_message = _stalls(owner) or is_unready or (waiting and package.get("message"))
        if needs_message and message and message in problems:
            message, waiting = "", waiting or MENDING
        waiting = "" if message and waiting in _SAID else waiting
        more = (": ".join(part for part in (waiting, message if needs_message else "") if part),)
    return tuple(terminal(str(cell)) for cell in (*first, *more))


def since_cell(since: str | None, now: float) -> str:
    """Return the date of a time, or with a clock its age; "" without one."""
    return (
        age_text(int(datetime.fromisoformat(since).timestamp()), now) if since and now else (since or "")[:10]
    )


def _stalls(owner: Owner) -> bool:
    return condition(owner, "Stalled").get("status") == "True"


def condition(owner: Owner, kind: str) -> Mapping[str, Any]:
    """Return the condition of a type, empty if there is none."""
    return next((c for c in owner.get("conditions", ()) if c.get("type") == kind), {})


def status_csv(owners: Iterable[Owner]) -> str:
    """Return the wide table as CSV with a heading, for spreadsheets.

    A cell that a spreadsheet would compute starts with an apostrophe.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([head.lower() for head in WIDE_HEADS])
    for owner in owners:
        writer.writerow(
            f"'{cell}" if cell[:1] in ("=", "+", "-", "@") else cell for cell in row(owner, wide=True)
        )
    return text.getvalue()


def status_json_lines(owners: Iterable[Any]) -> str:
    """Return each owner as one line of JSON."""
    lines = (orjson.dumps(owner, option=orjson.OPT_SORT_KEYS).decode() for owner in owners)
    return "".join(f"{json_text(line)}\n" for line in lines)
