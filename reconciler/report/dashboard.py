"""The dashboard: states of packages, as `status` names them, in Markdown."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from reconciler.base.reasons import Phase, Reason
from reconciler.base.text import join_texts
from reconciler.names.ids import PackageKey, ask_key
from reconciler.plan.changes import Change, Plan
from reconciler.plan.rejection import ask_box, asked_keys, tick_boxes
from reconciler.plan.status import PackageStatus
from reconciler.report.causes import group_problems
from reconciler.report.markdown import LONGEST, fill
from reconciler.report.needs import find_needs
from reconciler.report.rollouts import rollout_texts
from reconciler.report.summary import Names, since_text

ROWS = 200
"""Packages of one section; more than these are counted."""
_SECTIONS = {
    Phase.REJECTED: "Rejected: tick a box to have it proposed again",
    Phase.CONFLICT: "Conflict: values changed on both sides, answer in the draft",
    Phase.NOT_READY: "Not ready: the draft may not be approved yet",
    Phase.HELD_BACK: "Held back: kept as it is, for the reason given",
    Phase.STALLED: "Stalled: its manifest, upstream or downstream is wrong or cannot be read",
    Phase.PENDING: "Pending: something is still to be written",
    Phase.PAUSED: "Paused: by annotation or configuration",
    Phase.IN_REVIEW: "In review: waits for a person to merge it",
}
_QUIET = frozenset({Phase.PUBLISHED, Phase.PAUSED, Phase.IN_REVIEW})
"""States that need no attention: they open no dashboard."""


class Dashboard(Struct, frozen=True):
    """The text, empty without packages and problems; `calls` is true if something needs attention."""

    text: str
    calls: bool


def make_dashboard(plan: Plan, statuses: Sequence[PackageStatus], names: Names, eta: str) -> Dashboard:
    """Return the dashboard of one instance. Deterministic; its only times are those of states.

    Args:
        plan: What the run was to do.
        statuses: State of every package after the run, as the status branch records it.
        names: How packages and the instance are called.
        eta: How long what a limit left takes, empty if nothing was left.
    """
    counts = Counter(status.phase for status in statuses)
    calls = bool(plan.problems or plan.refusals or counts.keys() - _QUIET)
    if not calls and not counts:
        return Dashboard("", calls=False)
    problems = group_problems(plan.problems)
    # A rejection is asked about once: the next run would write the text anew. Its section has a box instead.
    others = [status for status in statuses if status.phase is not Phase.REJECTED]
    text = fill(
        "dashboard.md",
        instance=names.instance,
        report_url=names.report_url,
        counts=", ".join(f"{counts[phase]} {phase}" for phase in Phase if counts[phase]),
        needs=find_needs(plan, others),
        rollouts=tuple(rollout_texts(plan.rollouts)),
        sections=tuple(_sections(plan, statuses)),
        eta=eta,
        problems=problems[:ROWS],
        more_problems=sum(len(group.problems) for group in problems[ROWS:]),
        refusals=plan.refusals,
    )
    return Dashboard(text, calls)


def _sections(plan: Plan, statuses: Sequence[PackageStatus]) -> Iterator[dict[str, Any]]:
    """Yield the packages in each state that is shown; those that a wave holds back are counted with it."""
    changes = {change.package: change for change in plan.changes}
    waves = {key for rollout in plan.rollouts for key in rollout.waves_of}
    selected = [s for s in statuses if s.reason != Reason.AWAITING_WAVE or s.variant not in waves or s.pull]
    for phase, title in _SECTIONS.items():
        listed = sorted(
            (s for s in selected if s.phase is phase), key=lambda s: (_name(s), *(s.variant or ()))
        )
        if listed:
            rows = [_row(status, changes) for status in listed[:ROWS]]
            yield {"title": title, "rows": rows, "more": max(0, len(listed) - ROWS)}


def _row(status: PackageStatus, changes: dict[PackageKey, Change]) -> dict[str, str]:
    """Return one package of a section; `box` asks for what was rejected, "" where nothing can be asked."""
    change = changes.get(status.package) if status.package else None
    can_ask = change is not None and change.reason is Reason.REJECTED and change.upstream_to
    box = ask_box(ask_key(change.package, change.tree)) if change is not None and can_ask else ""
    detail = join_texts(": ", (status.reason, status.message))[:LONGEST]
    return {"name": _name(status), "since": since_text(status), "detail": detail, "box": box}


def _name(status: PackageStatus) -> str:
    view = status.repository
    return f"{view.name}/{status.name}" if view is not None else f"PackageVariant {status.variant}"


_MARK = "<!-- reconciler:shard"
_PART = re.compile(rf"{_MARK} (\d{{1,4}})/(\d{{1,4}}) -->\n(.*?)\n{_MARK} end -->", re.DOTALL)


def merge_parts(body: str, texts: Mapping[int, str], shard: int, parts: int) -> str:
    """Return the dashboard of several shards. Pure.

    Boxes that people ticked in the parts of other shards stay ticked: those shards have yet to read them.

    Args:
        body: The dashboard as it is.
        texts: The text of each shard's part that is known; others stay as they are.
        shard: The shard that writes.
        parts: The number of shards; parts of another number go.
    """
    lines = body.replace("\r\n", "\n")
    merged = {int(m[1]): m[3] for m in _PART.finditer(lines) if int(m[2]) == parts and int(m[1]) < parts}
    merged |= {part: text.replace(_MARK, "<!--").strip("\n") for part, text in texts.items()}
    ticked = asked_keys(lines)
    merged = {part: text if part == shard else tick_boxes(text, ticked) for part, text in merged.items()}
    whole = ((index, merged[index]) for index in sorted(merged) if merged[index])
    return "\n\n".join(f"{_MARK} {i}/{parts} -->\n{text}\n{_MARK} end -->" for i, text in whole)
