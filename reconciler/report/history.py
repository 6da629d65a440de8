"""History of a package: its revisions with time, upstream, author and difference. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, NamedTuple

from reconciler.base.escape import terminal
from reconciler.plan.impact import Impact
from reconciler.report.console import Color, Paint, indented, plain, table_rows
from reconciler.report.folding import impact_text, risk_texts
from reconciler.report.json import impact_value, risk_value


class HistoryEntry(NamedTuple):
    """A revision or an open draft; `author` made its commit on main, which is the merge that approved it.

    `labels` are those of the variant when the draft was written. `time` is that of the commit in seconds,
    0 if unknown. `impact` is the difference from the revision before it; that of a draft is from main.
    """

    revision: str
    commit: str
    upstream: str = ""
    time: int = 0
    author: str = ""
    subject: str = ""
    impact: Impact | None = None
    labels: Mapping[str, str] = MappingProxyType({})

    @property
    def date(self) -> str:
        """The time as ISO 8601, "" if unknown."""
        return datetime.fromtimestamp(self.time, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if self.time else ""


def history_lines(
    entries: Sequence[HistoryEntry], *, width: int | None = None, paint: Paint = plain
) -> Iterator[str]:
    """Yield a row for each revision, the newest first, with the risks of its difference below it."""
    if not entries:
        yield "It has no revision: nothing of it was published."
        return
    heads = ("REVISION", "DATE", "UPSTREAM", "COMMIT", "CHANGE", "BY", "SUBJECT")
    rows = [
        (
            *(terminal(entry.revision), entry.date[:10], terminal(entry.upstream), entry.commit[:8]),
            impact_text(entry.impact) if entry.impact else "",
            *(terminal(entry.author), terminal(entry.subject)),
        )
        for entry in entries
    ]
    first, *lines = table_rows(heads, rows, width)
    yield from (paint(line, Color.BOLD) for line in first)
    for entry, entry_lines in zip(entries, lines, strict=True):
        yield from entry_lines
        if entry.labels:
            named = (f"{key}={value}" if value else key for key, value in sorted(entry.labels.items()))
            yield from indented(terminal(f"drafted with labels {', '.join(named)}"), width)
        for text in risk_texts(entry.impact.risks if entry.impact else ()):
            yield from (paint(line, Color.RED) for line in indented(terminal(text), width))


def history_items(entries: Sequence[HistoryEntry]) -> list[dict[str, Any]]:
    """Return the revisions of a package as JSON values."""
    names = ("revision", "commit", "upstream", "author", "subject")
    return [
        {
            **{name: getattr(entry, name) for name in names},
            "date": entry.date or None,
            "labels": dict(entry.labels),
            "diff": impact_value(entry.impact) if entry.impact else None,
            "risks": [risk_value(risk) for risk in entry.impact.risks] if entry.impact else [],
        }
        for entry in entries
    ]
