"""Plan and outcome as lines for a terminal: what happens first, then what is wrong, then the sum."""

from collections.abc import Iterable, Iterator

from reconciler.errors import Exit, Problem
from reconciler.plan.changes import Change, Effect, Op, Outcome, Plan
from reconciler.reasons import Reason
from reconciler.report.conflicts import conflict_lines
from reconciler.report.escape import terminal
from reconciler.report.paint import Colour, Paint, plain
from reconciler.report.proposal import proposal_lines
from reconciler.report.summary import (
    Names,
    arrow,
    detail,
    move_text,
    sorted_changes,
    summary_line,
    upstream_text,
)

_COLOURS = {
    Op.CREATE: Colour.GREEN,
    Op.UPDATE: Colour.YELLOW,
    Op.EDIT: Colour.YELLOW,
    Op.ADOPT: Colour.CYAN,
    Op.TRANSFER: Colour.CYAN,
    Op.PUBLISH: Colour.GREEN,
    Op.DELETE: Colour.RED,
    Op.ORPHAN: Colour.MAGENTA,
    Op.CLOSE: Colour.MAGENTA,
    Op.APPROVE: Colour.GREEN,
    Op.BLOCK: Colour.RED,
    Op.KEEP: Colour.DIM,
}


def plan_lines(plan: Plan, names: Names, *, paint: Paint = plain, quiet: bool = False) -> Iterator[str]:
    """Return the plan as a table with a reason per package, then problems and refusals, then the sum.

    Deterministic: the order is that of operation, repository and path. `quiet` leaves the table out.
    """
    if not quiet:
        yield from _table(sorted_changes(plan), names, paint)
        yield from (f"pin: {terminal(move_text(move))}" for move in plan.moves)
        yield from proposal_lines(plan.lock)
        yield from (f"note: {terminal(note)}" for note in plan.notes)
    yield from problem_lines(plan.problems, paint=paint)
    yield from refusal_lines(plan, paint=paint)
    yield summary_line(plan)


def problem_lines(problems: Iterable[Problem], *, paint: Paint = plain) -> Iterator[str]:
    """Return what is wrong, each with its place, its owner and a way out."""
    for problem in problems:
        head = paint("problem:", Colour.RED)
        yield f"{head} {terminal(str(problem.location))}: {problem.reason}: {terminal(problem.message)}"
        if problem.subject:
            yield f"  stalls: {terminal(problem.subject)}"
        yield from _hint_lines(problem.hint)


def refusal_lines(plan: Plan, *, paint: Paint = plain) -> Iterator[str]:
    """Return why the plan may not be applied as it is."""
    for refusal in plan.refusals:
        yield f"{paint('refused:', Colour.RED)} {refusal.reason}: {terminal(refusal.message)}"
        yield from _hint_lines(refusal.hint)


def _hint_lines(hint: str) -> Iterator[str]:
    """Yield a hint; one of several lines, a manifest to write say, keeps them."""
    first, *rest = hint.splitlines() or [""]
    if first:
        yield f"  hint: {terminal(first)}"
    yield from (f"    {terminal(line)}" for line in rest)


def change_lines(change: Change, names: Names, *, paint: Paint = plain) -> Iterator[str]:
    """Return all that is known of one package's change: why, from where, and what would be written."""
    head = paint(change.op, _COLOURS[change.op])
    yield f"{terminal(names.of(change))}: {head} ({change.reason})"
    facts = {
        "why": change.message,
        "repository": change.package.url,
        "path": change.package.path,
        "variant": f"PackageVariant {change.variant}" if change.variant else "",
        "manifest": str(change.location) if change.location else "",
        "upstream": upstream_text(change),
        "tree": arrow(change.before or "", change.after or ""),
        "pull request": change.pull.title if change.pull else "",
        "waits": "for a person" if change.waits else "",
        "not ready": "; ".join(change.unready),
    }
    yield from (f"  {name}: {terminal(value)}" for name, value in facts.items() if value)
    yield from (f"  warning: {terminal(warning)}" for warning in change.warnings)
    yield from (f"  pin: {terminal(move_text(move))}" for move in change.pins)
    yield from (f"  writes: {terminal(write.ref)}" for write in change.writes)
    yield from conflict_lines(change)


def outcome_lines(outcome: Outcome, *, paint: Paint = plain, quiet: bool = False) -> Iterator[str]:
    """Return what was done, what failed, and the sum."""
    failed = [effect for effect in outcome.effects if effect.error]
    if not quiet:
        yield from (effect_line(e, paint=paint) for e in outcome.effects if not e.error)
    yield from (effect_line(e, paint=paint) for e in failed)
    done = len(outcome.effects) - len(failed)
    if not outcome.effects:
        yield "Nothing was written."
    else:
        yield f"{done} effect{'' if done == 1 else 's'} done, {len(failed)} failed."


def effect_line(effect: Effect, *, paint: Paint = plain) -> str:
    """Return one effect in a line."""
    ref = f" {terminal(effect.ref)}" if effect.ref else ""
    line = f"{effect.what:<8} {terminal(effect.repository)}{ref}"
    if effect.error:
        return f"{paint('failed:', Colour.RED)} {line}: {terminal(effect.error)}"
    return line


def _table(changes: list[Change], names: Names, paint: Paint) -> Iterator[str]:
    if not changes:
        return
    rows = [(c.op, terminal(names.of(c)), c.reason, terminal(detail(c))) for c in changes]
    heads = ("CHANGE", "PACKAGE", "REASON", "DETAIL")
    widths = [max(len(head), *(len(row[i]) for row in rows)) for i, head in enumerate(heads[:3])]

    def line(cells: tuple[str, str, str, str]) -> str:
        padded = [cell.ljust(width) for cell, width in zip(cells[:3], widths, strict=True)]
        return "  ".join([*padded, cells[3]]).rstrip()

    yield paint(line(heads), Colour.BOLD)
    for change, row in zip(changes, rows, strict=True):
        text = line(row)
        colour = _COLOURS[change.op]
        if change.op is Op.KEEP and change.reason is not Reason.UP_TO_DATE:
            yield text
        else:
            yield paint(text[: widths[0]], colour) + text[widths[0] :]


def exit_line(code: Exit) -> str:
    """Return what an exit code means, in a few words."""
    return _MEANINGS[code]


_MEANINGS = {
    Exit.DONE: "done, or nothing to do",
    Exit.BUG: "unforeseen: a bug",
    Exit.USAGE: "the command was called wrongly",
    Exit.INVALID_INPUT: "something is stalled by invalid input; the rest was handled",
    Exit.REFUSED: "refused: unsafe, or not what was reviewed",
    Exit.UNAVAILABLE: "something was unavailable; run again",
    Exit.PARTIAL: "partly done; the next run goes on",
    Exit.WAITING: "waiting for people",
    Exit.PENDING: "changes are pending",
}
