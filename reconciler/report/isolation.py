"""Reports in which a row that a bug of ours keeps from being shown is a problem instead."""

from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from contextlib import suppress
from itertools import chain
from typing import TypeVar

from msgspec.structs import replace

from reconciler.base.defects import DefectError, guard, isolate
from reconciler.base.errors import Location
from reconciler.names.ids import ObjectName, PackageKey
from reconciler.names.problems import Problem, defect_problem
from reconciler.plan.changes import Outcome, Plan
from reconciler.plan.compare import Comparison

T = TypeVar("T")
Row = TypeVar("Row", bound=Hashable)


def tell_rows(
    rows: Iterable[Row],
    show: Callable[[Collection[Row], Sequence[Problem]], T],
    subject: Callable[[Row], str] = str,
) -> T:
    """Return what `show` makes of rows without those that it breaks with, and with a problem of each.

    Args:
        rows: What is shown.
        show: Returns a report without some rows, and with further problems.
        subject: Names a row.
    """
    result, broken = isolate(
        lambda: rows, lambda left_out: show(left_out, ()), lambda row: f"row of {subject(row)}"
    )
    if broken:
        named = [(subject(row), error) for row, error in broken.items()]
        problems = [defect_problem(error, Location(name), subject=name) for name, error in named]
        with suppress(DefectError), guard("problems of what cannot be shown"):
            result = show(broken, problems)
    return result


def tell(plan: Plan, show: Callable[[Plan], T]) -> T:
    """Return what `show` makes of a plan, where packages and problems that it breaks with are problems."""

    def show_without(left_out: Collection[Hashable], more: Sequence[Problem]) -> T:
        if not left_out:
            return show(plan)
        part = plan.without([row for row in left_out if isinstance(row, PackageKey)])
        return show(replace(part, problems=(*_rest(part.problems, left_out), *more)))

    return tell_rows((*(change.package for change in plan.changes), *plan.problems), show_without, _subject)


def tell_comparison(comparison: Comparison, show: Callable[[Comparison], T]) -> T:
    """Return what `show` makes of a comparison, where the rows that it breaks with are new problems."""
    kinds = (comparison.new, comparison.old, comparison.fixed, comparison.unread)

    def show_without(left_out: Collection[Hashable], more: Sequence[Problem]) -> T:
        if not left_out:
            return show(comparison)
        new, old, fixed, unread = (_rest(problems, left_out) for problems in kinds)
        return show(
            replace(
                comparison,
                packages=tuple(p for p in comparison.packages if p.change.package not in left_out),
                variants=tuple(variant for variant in comparison.variants if variant.key not in left_out),
                new=(*new, *more),
                old=old,
                fixed=fixed,
                unread=unread,
            )
        )

    packages = (difference.change.package for difference in comparison.packages)
    variants = (variant.key for variant in comparison.variants)
    return tell_rows((*packages, *variants, *chain.from_iterable(kinds)), show_without, _subject)


def _rest(problems: Iterable[Problem], left_out: Collection[Hashable]) -> tuple[Problem, ...]:
    return tuple(problem for problem in problems if problem not in left_out)


def _subject(row: Hashable) -> str:
    match row:
        case PackageKey():
            return f"package {row.path}"
        case ObjectName():
            return f"PackageVariant {row}"
    return str(row)


def tell_outcome(outcome: Outcome, show: Callable[[Outcome], T]) -> T:
    """Return what `show` makes of an outcome, without the effects that it breaks with."""
    return tell_rows(
        outcome.effects,
        lambda left_out, _: show(
            replace(outcome, effects=tuple(effect for effect in outcome.effects if effect not in left_out))
        ),
        lambda effect: f"effect on {effect.repository}",
    )
