"""The dashboard: what waits for whom, as Markdown that stays the same while nothing changes."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from reconciler.ids import PackageKey
from reconciler.plan.asking import ask_box, ask_key
from reconciler.plan.changes import Change, Op, Plan
from reconciler.reasons import Reason
from reconciler.report.markdown import LONGEST, fill
from reconciler.report.summary import Names, detail, sorted_changes

ROWS = 200
"""Packages of one section; more than these are counted."""


@dataclass(frozen=True, slots=True)
class Left:
    """What a run did not do: pull requests that a limit left, what failed, and how long the rest takes."""

    limited: frozenset[PackageKey] = frozenset()
    failed: frozenset[PackageKey] = frozenset()
    eta: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """One package of a section; `box` asks for what was rejected, empty where nothing can be asked."""

    name: str
    reason: str
    detail: str
    box: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    """Packages that wait for the same thing."""

    title: str
    rows: tuple[Row, ...]
    more: int


def dashboard_markdown(plan: Plan, names: Names, left: Left) -> str:
    """Return the dashboard of one instance. Deterministic, without times; empty if nothing is to be told."""
    sections = tuple(_sections(sorted_changes(plan), names, left))
    if not sections and not plan.problems and not plan.refusals:
        return ""
    return fill(
        "dashboard.md",
        instance=names.instance,
        sections=sections,
        eta=left.eta,
        problems=plan.problems[:ROWS],
        more_problems=max(0, len(plan.problems) - ROWS),
        refusals=plan.refusals,
    )


def _sections(changes: Collection[Change], names: Names, left: Left) -> Iterator[Section]:
    rejected = [c for c in changes if c.reason is Reason.REJECTED]
    blocked = [c for c in changes if c.op is Op.BLOCK]
    waiting = [c for c in changes if c.waits and c not in rejected and c not in blocked]
    pending = [c for c in changes if c.package in left.failed - left.limited]
    limited = [c for c in changes if c.package in left.limited]
    for title, found in (
        ("Rejected: tick a box to have it proposed again", rejected),
        ("Waiting for people", waiting),
        ("Blocked", blocked),
        ("Pending: the last run could not write it", pending),
        ("Limited: pull requests that later runs open", limited),
    ):
        if found:
            rows = tuple(_row(change, names) for change in found[:ROWS])
            yield Section(title, rows, max(0, len(found) - ROWS))


def _row(change: Change, names: Names) -> Row:
    can_ask = change.reason is Reason.REJECTED and change.upstream_to
    box = ask_box(ask_key(change.package, change.after)) if can_ask else ""
    return Row(names.of(change), str(change.reason), detail(change)[:LONGEST], box)
