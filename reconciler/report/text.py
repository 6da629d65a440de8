"""Plan, outcome, lock and history as lines for a terminal: needs, changes, waits, counts. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice

from reconciler.base.reasons import Phase, Reason
from reconciler.base.text import Text, join_texts, message_line, plural, some, terminal
from reconciler.names.problems import Problem
from reconciler.plan.changes import Change, Effect, LockProposal, Op, Outcome, PinChange, Refusal
from reconciler.plan.status import PackageStatus
from reconciler.report.build import (
    MOST_DIFFS,
    MOST_PLACES,
    MOST_SUBJECTS,
    arrow,
    group_by_cause,
    group_problems,
    impact_text,
    judgement_texts,
    loss_texts,
    move_text,
    moving_rollouts,
    published_text,
    risk_summary,
    risk_texts,
    row_reason,
    since_text,
    upstream_text,
)
from reconciler.report.conflicts import conflict_lines
from reconciler.report.console import Color, Paint, indented, plain, table_rows
from reconciler.report.report import Action, ChangeCause, HistoryEntry, Names, Need, Report
from reconciler.resolve.rollout_model import Rollout

MOST_WARNINGS = 20
"""Warnings of a plan's text; more than these are counted."""
_COLOURS = {
    **dict.fromkeys((Op.CREATE, Op.PUBLISH, Op.APPROVE), Color.GREEN),
    **dict.fromkeys((Op.UPDATE, Op.EDIT), Color.YELLOW),
    **dict.fromkeys((Op.ADOPT, Op.TRANSFER), Color.CYAN),
    **dict.fromkeys((Op.ORPHAN, Op.CLOSE), Color.MAGENTA),
    **dict.fromkeys((Op.DELETE, Op.BLOCK), Color.RED),
    Op.KEEP: Color.DIM,
}


def plan_lines(
    report: Report,
    *,
    paint: Paint = plain,
    quiet: bool = False,
    shows_needs: bool = True,
    width: int | None = None,
) -> Iterator[str]:
    """Return what people have to do, a table with a reason per package, what waits, problems and counts.

    Deterministic: the order is that of operation, repository and path. If `quiet`, there are no notes.
    `width` is that of a row of the table, None for no limit.
    """
    yield from (paint(f"loss: {terminal(text)}", Color.RED) for text in loss_texts(report.losses))
    yield from (paint(terminal(text), Color.RED) for text in judgement_texts(report.judgements))
    if risks := risk_summary(report.risks):
        yield paint(f"risks: {risks}", Color.RED)
    yield from (paint(terminal(move_text(move)), Color.RED) for move in report.dangers)
    yield from need_lines(report.needs if shows_needs else (), paint=paint, width=width)
    yield from _table(report.causes, paint, width)
    yield from map(terminal, rollout_lines(report.rollouts))
    changed = (row for row in report.packages if row.change.op is not Op.KEEP)
    yield from warning_lines(((row.name, row.change.warnings) for row in changed), paint)
    yield from (terminal(move_text(move)) for move in report.moves[len(report.dangers) :])
    yield from proposal_lines(report.lock)
    if not quiet:
        yield from (f"note: {terminal(note)}" for note in report.notes)
    yield from problem_lines(report.problems, paint=paint)
    yield from refusal_lines(report.refusals, paint=paint)
    # The checksum is on the last line, so that `tail -1` is enough for scripts.
    yield paint(report.summary, Color.BOLD)


def warning_lines(rows: Iterable[tuple[str, Iterable[Text]]], paint: Paint = plain) -> Iterator[str]:
    """Yield each warning of these packages, once, with their names."""
    names: dict[Text, list[str]] = {}
    for name, warnings in rows:
        for warning in warnings:
            names.setdefault(warning, []).append(name)
    for warning, about in islice(names.items(), MOST_WARNINGS):
        yield f"{paint('warning:', Color.RED)} {terminal(some(about, MOST_SUBJECTS))}: {terminal(warning)}"
    if (more := len(names) - MOST_WARNINGS) > 0:
        yield f"and {plural(more, 'more warning')}"


def problem_lines(
    problems: Iterable[Problem], *, paint: Paint = plain, head: str = "", brief: bool = False
) -> Iterator[str]:
    """Yield each problem with its place, its owner and its hint; those of one cause share these lines.

    `head` is the first word of each instead of `problem:`. If `brief`, there are neither owners nor hints.
    """
    head = head or paint("problem:", Color.RED)
    for group in group_problems(problems):
        where = f"{group.location}: " if group.location else ""
        yield f"{head} {terminal(where)}{group.reason}: {message_line(group.message)}"
        if group.subject and not brief:
            yield f"  stalls: {terminal(group.subject)}"
        yield from (f"  {message_line(place)}" for place in group.places)
        yield from () if brief else _hint_lines(group.hint)


def refusal_lines(refusals: Iterable[Refusal], *, paint: Paint = plain) -> Iterator[str]:
    """Yield refusals with their hints."""
    for refusal in refusals:
        yield f"{paint('refused:', Color.RED)} {refusal.reason}: {terminal(refusal.message)}"
        yield from _hint_lines(refusal.hint)


def _hint_lines(hint: Text) -> Iterator[str]:
    """Yield a hint; line breaks, as in a manifest, are kept."""
    first, *rest = hint.splitlines() or [""]
    if first:
        yield f"  hint: {terminal(first)}"
    yield from (f"    {terminal(line)}" for line in rest)


def change_lines(
    change: Change,
    names: Names,
    *,
    address: str = "",
    status: PackageStatus | None = None,
    paint: Paint = plain,
) -> Iterator[str]:
    """Return all that is known of one package's change: why, from where, and what would be written.

    `address` is that of its repository, as git is called with it, `status` its state before the change.
    """
    head = paint(change.op, _COLOURS[change.op])
    yield f"{terminal(names.of(change))}: {head} ({row_reason(change, status)})"
    facts = {
        "why": join_texts("; ", (published_text(change), change.detail)),
        "repository": address or change.package.url,
        "path": change.package.path,
        "variant": f"PackageVariant {change.variant}" if change.variant else "",
        "manifest": str(change.location) if change.location else "",
        "upstream": upstream_text(change),
        "state": f"{status.phase} {since_text(status)}".strip() if status else "",
        "address": status.url if status else "",
        "tree": arrow(change.before or "", change.tree or ""),
        "pull request": change.pull.title if change.pull else "",
        "waits": "for a person" if change.waits else "",
        "not ready": join_texts("; ", change.unready),
    }
    yield from (f"  {name}: {terminal(value)}" for name, value in facts.items() if value)
    yield from (paint(f"  loss: {terminal(text)}", Color.RED) for text in loss_texts(change.losses))
    yield from (paint(f"  {terminal(j.text)}", Color.RED) for j in change.judgements)
    yield from (f"  warning: {terminal(warning)}" for warning in change.warnings)
    yield from (f"  {terminal(note.text)}" for note in change.subpackages)
    yield from (f"  {terminal(move_text(move))}" for move in change.pins)
    yield from (f"  writes: {terminal(write.ref)}" for write in change.writes)
    yield from conflict_lines(change, names.of(change))


def outcome_lines(outcome: Outcome, *, paint: Paint = plain, quiet: bool = False) -> Iterator[str]:
    """Return what was done, what failed, what is left for the next run, and the sum."""
    done = [effect for effect in outcome.effects if not effect.error]
    unstarted = [effect for effect in outcome.effects if effect.is_left]
    failed = _failed(outcome)
    if not quiet:
        yield from (effect_line(effect, paint=paint) for effect in done)
    for group in failed:
        yield from _failed_lines(group, paint)
        yield from _hint_lines(group[0].hint)
    for effect in unstarted:
        yield effect_line(effect, paint=paint)
        yield from _hint_lines(effect.hint)
    if not outcome.effects:
        yield "Nothing was written."
    elif not failed and not unstarted and all(effect.what == RECORDED for effect in done):
        what = "the lock and what this run observed were" if outcome.locked else "what this run observed was"
        yield f"No package changed; {what} recorded."
    else:
        rest = ", the rest is left for the next run" if unstarted else ""
        yield f"{plural(len(done), 'effect')} done, {sum(map(len, failed))} failed{rest}."


def failures(outcome: Outcome) -> Iterator[tuple[str, Text]]:
    """Yield what failed and the next step, once for each cause."""
    for group in _failed(outcome):
        yield _failure(group), group[0].hint


def _failed(outcome: Outcome) -> list[list[Effect]]:
    """Return the effects that failed, grouped by cause."""
    failed = [effect for effect in outcome.effects if effect.error and not effect.is_left]
    return group_by_cause(failed, lambda effect: (effect.what, effect.cause, effect.hint))


def _failed_lines(group: Sequence[Effect], paint: Paint) -> Iterator[str]:
    """Yield one failed effect in a line, or effects that failed for one cause below a line about it."""
    yield f"{paint('failed:', Color.RED)} {_failure(group)}"
    for effect in group[:MOST_PLACES] if len(group) > 1 else ():
        yield f"  {message_line(effect.place)}"
    if len(group) > MOST_PLACES:
        yield f"  and {len(group) - MOST_PLACES} more"


def _failure(group: Sequence[Effect]) -> str:
    effect, tried = group[0], _VERBS.get(group[0].what, group[0].what)
    if len(group) > 1:
        return f"{tried} {len(group)}, all for one cause: {message_line(effect.cause)}"
    return f"{tried} {terminal(effect.place)}: {message_line(effect.error)}"


RECORDED = "recorded"
"""The effect that writes the state or status branch: bookkeeping, no change of a package."""
_VERBS = {
    "pushed": "push",
    "deleted": "delete",
    "opened": "open",
    "updated": "update",
    "closed": "close",
    "merged": "merge",
    RECORDED: "record",
}


def effect_line(effect: Effect, *, paint: Paint = plain) -> str:
    """Return one effect in a line; one that was not done names what was tried and why it did not happen."""
    place = terminal(effect.place)
    if not effect.error:
        return f"{effect.what:<8} {place}"
    if effect.is_left:
        return f"{paint('left for the next run:', Color.YELLOW)} {place}: {message_line(effect.error)}"
    tried = _VERBS.get(effect.what, effect.what)
    return f"{paint('failed:', Color.RED)} {tried} {place}: {message_line(effect.error)}"


def _table(causes: Sequence[ChangeCause], paint: Paint, width: int | None) -> Iterator[str]:
    """Yield a row for each cause with its risks; equal changes of many packages are one cause."""
    if not causes:
        return
    cells = [(c.word, terminal(c.name), c.reason, terminal(c.text)) for c in causes]
    alike: dict[str, list[ChangeCause]] = {}
    for cause in causes:
        impact = None if cause.is_folded else cause.first.impact
        for text in risk_texts(impact.risks) if impact else []:
            alike.setdefault(text, []).append(cause)
    heads, *rows = table_rows(("CHANGE", "PACKAGE", "REASON", "DETAIL"), cells, width)
    yield from (paint(line, Color.BOLD) for line in heads)
    for cause, (first, *others) in zip(causes, rows, strict=True):
        word, op = cause.word, cause.first.op
        color = None if op is Op.KEEP and cause.reason is not Reason.UP_TO_DATE else _COLOURS[op]
        color = Color.RED if word == Phase.CONFLICT else color
        yield paint(word, color) + first[len(word) :] if color else first
        yield from others
        for text, color in _lines_below(cause, alike):
            for line in indented(terminal(text), width):
                yield paint(line, color) if color else line


def _lines_below(
    cause: ChangeCause, alike: Mapping[str, Sequence[ChangeCause]]
) -> Iterator[tuple[str, Color | None]]:
    """Yield the lines below a row; a risk of several rows is below the first, which names the others."""
    for text, color in cause_lines(cause):
        rows = alike.get(text, ()) if color and not cause.is_folded else ()
        if len(rows) < 2:  # noqa: PLR2004 - shared by none
            yield text, color
        elif rows[0] is cause:
            yield f"{text}; also {some([cause.names for cause in rows[1:]], MOST_SUBJECTS)}", color


def cause_lines(cause: ChangeCause) -> Iterator[tuple[str, Color | None]]:
    """Yield below a row the packages of each difference, and the risks in it."""
    for diff in cause.diffs[:MOST_DIFFS]:
        if cause.is_folded:
            size = f": {impact_text(diff.impact)}" if diff.impact else ""
            count = f"{len(diff.changes)} x " if len(cause.diffs) > 1 else ""
            yield f"{count}{diff.names}{size}", None
        yield from ((text, Color.RED) for text in risk_texts(diff.impact.risks if diff.impact else ()))
    texts = dict.fromkeys(note.text for change in cause.changes for note in change.subpackages)
    yield from ((text, None) for text in list(texts)[:MOST_DIFFS])
    rest = cause.diffs[MOST_DIFFS:]
    if rest:
        packages = plural(sum(len(diff.changes) for diff in rest), "package")
        yield f"and {plural(len(rest), 'distinct diff')} more in {packages}", None


def need_lines(needs: Sequence[Need], *, paint: Paint = plain, width: int | None = None) -> Iterator[str]:
    """Yield the needs as a table; nothing without any."""
    rows = [(need.action, terminal(need.what), terminal(need.where)) for need in needs]
    if not rows:
        return
    table: list[tuple[str, ...]] = [("NEEDS YOU", "WHAT", "WHERE"), *rows]
    if width and sum(max(map(len, column)) + 2 for column in zip(*table, strict=True)) > width:
        table = [(first, ": ".join(filter(None, others))) for first, *others in table]
    heads, *lines = table_rows(table[0], table[1:], width)
    yield from (paint(line, Color.BOLD) for line in heads)
    for need, (first, *others) in zip(needs, lines, strict=True):
        color = Color.YELLOW if need.action is Action.REVIEW else Color.RED
        yield paint(need.action, color) + first[len(need.action) :]
        yield from others


def rollout_lines(rollouts: Iterable[Rollout]) -> Iterator[str]:
    """Yield the rollouts that are on their way as lines; those with equal waves have one list of them."""
    titles: dict[tuple[str, ...], list[str]] = {}
    for row in moving_rollouts(rollouts):
        titles.setdefault(tuple(line for wave in row.waves for line in wave.lines), []).append(row.title)
    for lines, alike in titles.items():
        yield from (f"rollout {title}" for title in alike)
        yield from (f"  {line}" for line in lines)


MOST_PINS = 50
"""Pins of a plan's text; more than these are counted."""


def proposal_lines(proposal: LockProposal | None) -> Iterator[str]:
    """Yield what happens to the proposal of another lock, then the pins it changes; nothing without one."""
    if proposal is None:
        return
    change = proposal.change
    head = f"lock: {change.op} ({change.reason})"
    yield terminal(f"{head}: {change.detail}" if change.detail else head)
    yield from (f"  {pin_line(pin)}" for pin in proposal.pins[:MOST_PINS])
    more = len(proposal.pins) - MOST_PINS
    if more > 0:
        yield f"  and {more} more"
    yield from (f"  left as edited: {terminal(path)}" for path in proposal.edited)


def pin_line(pin: PinChange) -> str:
    """Return one change of a pin in a line."""
    if not pin.before and not pin.after:
        return terminal(f"~ {pin.what}: {pin.why}")
    mark = "+" if not pin.before else "-" if not pin.after else "~"
    return terminal(f"{mark} {pin.what}: {pin_detail(pin)}")


def pin_detail(pin: PinChange) -> str:
    """Return from where to where a pin moves, and why; as it is, not for a terminal yet."""
    return f"{arrow(pin.before, pin.after)} ({pin.why})"


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
            *(terminal(entry.revision), (entry.date or "")[:10], terminal(entry.upstream), entry.commit[:8]),
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
        for text in risk_texts(entry.risks):
            yield from (paint(line, Color.RED) for line in indented(terminal(text), width))
