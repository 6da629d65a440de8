"""Effect of merging a change: its report, one sentence, and lines of text."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

from reconciler.base.text import Text, plural, terminal, verb
from reconciler.names.ids import PackageKey
from reconciler.plan.changes import Op
from reconciler.plan.compare import ALTER, WITHDRAW, Comparison, Fate, PackageDifference
from reconciler.report.build import (
    MOST_ROWS,
    cause_name,
    change_order,
    fold_changes,
    judgement_rows,
    judgement_texts,
    loss_texts,
    risk_counts,
    risk_texts,
)
from reconciler.report.console import Color, Paint, plain
from reconciler.report.report import ChangeCause, CheckReport, Names
from reconciler.report.text import MOST_PINS, cause_lines, pin_detail, pin_line, problem_lines, refusal_lines

_PACKAGES = {
    Op.UPDATE: "updates",
    Op.ADOPT: "adopts",
    Op.TRANSFER: "hands over",
    Op.PUBLISH: "publishes",
    Op.DELETE: "proposes",
    Op.ORPHAN: "lets go of",
    Op.CLOSE: "closes",
    Op.APPROVE: "approves",
    Op.BLOCK: "blocks",
    ALTER: "alters",
    WITHDRAW: "ends",
}
_NOUNS: Mapping[str, str] = {
    Op.DELETE: "deletion",
    Op.CLOSE: "draft",
    ALTER: "pending change",
    WITHDRAW: "pending change",
}
"""Things that are counted instead of packages."""

_VARIANTS = {
    Fate.CREATE: "creates",
    Fate.CHANGE: "changes",
    Fate.DELETE: "deletes",
    Fate.TRANSFER: "hands over",
    Fate.KEEP: "keeps",
    Fate.DROP: "drops",
}
_ENDS: Mapping[Fate, str] = {Fate.KEEP: " unchanged", Fate.DROP: " not applied"}


class Clause(NamedTuple):
    """A part of the sentence: a verb, the number of things and their noun, and what follows."""

    verb: str
    number: int
    noun: str = ""
    end: str = ""


def sentence(comparison: Comparison) -> str:
    """Return what merging does, e.g. `Merging this creates 12 drafts in 4 repositories, updates 3`."""
    noun = "package" if comparison.deep else "PackageVariant"
    fates = Counter(variant.fate for variant in comparison.variants)
    variants = (
        Clause(text, fates[fate], "", _ENDS.get(fate, "")) for fate, text in _VARIANTS.items() if fates[fate]
    )
    parts: list[str] = []
    for text, number, things, end in _packages(comparison) if comparison.deep else variants:
        named = things or ("" if parts else noun)  # the first clause names the things that it counts
        parts.append(f"{text} {plural(number, named) if named else number}{end}")
    unready = sum(bool(package.after and package.after.unready) for package in comparison.packages)
    parts += [f"{unready} not ready"] if unready else []
    locks = f"{plural(len(comparison.pins), 'entry')} of the lock" if comparison.pins else ""
    changed = fates.total() - fates[Fate.KEEP]
    others = locks or (plural(changed, "PackageVariant") if comparison.deep and changed else "")
    if parts or not others:
        parts += [f"changes {locks}"] if locks else []
        done = f"Merging this {', '.join(parts) or f'changes no {noun}'}"
    else:
        done = f"Merging this changes no {noun}, but {others}"
    if not comparison.has_manifests:
        done = f"{done}: neither side has a manifest"
    missing = {
        "repository": (len(comparison.unread), "read"),
        "package": (comparison.postponed, "made in this run"),
    }
    gaps = [
        f"{plural(n, what)} {verb(n, 'was', 'were')} not {how}" for what, (n, how) in missing.items() if n
    ]
    unread = f": {', '.join(gaps)}" if gaps else ""
    if not comparison.deep:
        return f"{done}, and packages were not compared{unread}"
    return f"{done}, as far as can be seen{unread}" if gaps else done


def comparison_report(comparison: Comparison, names: Names, notes: tuple[Text, ...] = ()) -> CheckReport:
    """Return the report of what merging a change would do."""
    return CheckReport(
        names=names,
        empty=comparison.is_empty,
        sentence=sentence(comparison),
        ops=counts(comparison),
        losses=comparison.losses,
        judgements=judgement_rows(comparison.judged, names, comparison.unjudged),
        risks=risk_counts(difference.change for difference in comparison.packages),
        fold=partial(_fold, comparison, names),
        problems=comparison.new,
        refusals=comparison.refusals,
        notes=notes,
        comparison=comparison,
    )


def problem_sentence(comparison: Comparison) -> str:
    """Return how many problems the change brings and ends; empty if there are none at all."""
    counts = {"new": comparison.new, "fixed": comparison.fixed, "there before": comparison.old}
    parts = [f"{len(problems)} {name}" for name, problems in counts.items() if problems]
    return f"Problems: {', '.join(parts)}" if parts else ""


def compared_text(comparison: Comparison) -> str:
    """Return the two commits that were compared, e.g. `main@73dc772f0a1b -> more@cc128e1fa57c`."""
    return f"{comparison.base} -> {comparison.head}"


def compared_summary(report: CheckReport) -> str:
    """Return the sentence, the problems and both sides in one line."""
    comparison = report.comparison
    compared = f"Compared: {compared_text(comparison)}"
    return ". ".join(filter(None, (report.sentence, problem_sentence(comparison), compared)))


def comparison_lines(report: CheckReport, *, paint: Paint = plain) -> Iterator[str]:
    """Return the difference as lines: both sides, what was not read, variants, packages, problems.

    The sentence is last.
    """
    comparison = report.comparison
    yield f"compared  {terminal(compared_text(comparison))}"
    yield from (paint(f"loss      {terminal(text)}", Color.RED) for text in loss_texts(report.losses))
    yield from (paint(terminal(text), Color.RED) for text in judgement_texts(report.judgements))
    yield from problem_lines(comparison.unread, head=paint("not read:", Color.YELLOW))
    dangers, pins = comparison.pins[: comparison.dangers], comparison.pins[comparison.dangers :]
    yield from (paint(f"lock      {pin_line(pin)}", Color.RED) for pin in dangers)
    for fate, name, why in _variant_rows(comparison):
        yield f"{fate:9} {terminal(name)}  {terminal(why)}".rstrip()
    for targets in comparison.targets:
        before, after = ("none" if n is None else n for n in (targets.before, targets.after))
        yield f"targets   {terminal(str(targets.key))}: {before} -> {after}"
    for cause in report.causes:
        head = f"{cause.label:9} {terminal(cause.name)}  ({cause.reason})"
        yield f"{head}  {terminal(cause.text)}".rstrip()
        yield from (f"          {terminal(text)}" for text, _ in cause_lines(cause))
    yield from (f"lock      {pin_line(pin)}" for pin in pins[:MOST_PINS])
    if (more := len(pins) - MOST_PINS) > 0:
        yield f"lock      and {more} more"
    yield from problem_lines(comparison.new, paint=paint)
    yield from problem_lines(comparison.fixed, head=paint("fixed:", Color.GREEN), brief=True)
    yield from problem_lines(comparison.old, head=paint("was there before:", Color.YELLOW), brief=True)
    yield from refusal_lines(comparison.refusals, paint=paint)
    yield report.sentence
    if text := problem_sentence(comparison):
        yield text


def rows(report: CheckReport) -> list[dict[str, str]]:
    """Return every difference as a row of a table: what happens, to what, and why."""
    comparison = report.comparison
    locks = [{"what": "lock", "name": pin.what, "detail": pin_detail(pin)} for pin in comparison.pins]
    table = locks[: comparison.dangers]
    table += [{"what": fate, "name": name, "detail": why} for fate, name, why in _variant_rows(comparison)]
    for cause in report.causes:
        detail = "; ".join(filter(None, (str(cause.reason), cause.text, *risk_texts(cause.risks))))
        table.append({"what": cause.label, "name": cause_name(cause), "detail": detail})
    return table + locks[comparison.dangers :]


def counts(comparison: Comparison) -> dict[str, int]:
    """Return how many packages, or variants if no package was compared, see what; none with zero."""
    things: Iterable[Any] = comparison.packages if comparison.deep else comparison.variants
    counted = Counter(str(getattr(thing, "what", "") or thing.fate) for thing in things)
    return dict(sorted(counted.items()))


def _packages(comparison: Comparison) -> Iterator[Clause]:
    by_what: dict[str, list[PackageDifference]] = {}
    for difference in comparison.packages:
        what = Op.UPDATE if difference.what is Op.EDIT else difference.what
        by_what.setdefault(what, []).append(difference)
    if created := by_what.pop(Op.CREATE, None):
        homes = len({difference.change.package.url for difference in created})
        yield Clause("creates", len(created), "draft", f" in {plural(homes, 'repository')}")
    for what, text in _PACKAGES.items():
        if what in by_what:
            yield Clause(text, len(by_what[what]), _NOUNS.get(what, ""))


def comparison_labels(comparison: Comparison) -> dict[PackageKey, str]:
    """Return what merging does to each package that it affects."""
    return {difference.change.package: str(difference.what) for difference in comparison.packages}


def _variant_rows(comparison: Comparison) -> Iterator[tuple[str, str, str]]:
    """Yield what happens to PackageVariants, their names, and why; many alike of one set are one row."""
    alike: dict[tuple[object, ...], list[str]] = {}
    for variant in comparison.variants:
        key = (variant.fate, variant.message, variant.set_key or variant.key)
        alike.setdefault(key, []).append(str(variant.key))
    for (fate, message, owner), named in alike.items():
        if len(named) > MOST_ROWS:
            yield (
                str(fate),
                f"{plural(len(named), 'PackageVariant')} of PackageVariantSet {owner}",
                str(message),
            )
            continue
        for name in named:
            yield str(fate), f"PackageVariant {name}", str(message)


def ordered_differences(comparison: Comparison) -> list[PackageDifference]:
    """Return the differences as a plan orders its changes; those that merging ends are no danger."""
    return sorted(comparison.packages, key=lambda d: (d.what == WITHDRAW, change_order(d.change)))


def _fold(comparison: Comparison, names: Names) -> list[ChangeCause]:
    """Return the causes of what merging does, as a plan lists them."""
    changes = [difference.change for difference in ordered_differences(comparison)]
    return fold_changes(changes, names, {}, labels=comparison_labels(comparison))
