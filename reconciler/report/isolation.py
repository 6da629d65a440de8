"""Reports in which a package that a bug of ours keeps from being shown is a problem instead of a row."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TypeVar

from msgspec.structs import replace

from reconciler.base.defects import DefectError, guard, isolate
from reconciler.base.errors import Location
from reconciler.names.ids import PackageKey
from reconciler.names.problems import defect_problem
from reconciler.plan.changes import Effect, Outcome, Plan

T = TypeVar("T")


def tell(plan: Plan, show: Callable[[Plan], T]) -> T:
    """Return what `show` makes of a plan, where the packages that it breaks with are problems."""

    def show_without(left_out: Mapping[PackageKey, DefectError]) -> T:
        return show(plan.without(left_out) if left_out else plan)

    shown, broken = isolate(
        lambda: [change.package for change in plan.changes], show_without, lambda key: f"row of package {key}"
    )
    if broken:
        rows = [
            defect_problem(error, Location(key.path), subject=f"package {key.path}")
            for key, error in broken.items()
        ]
        part = plan.without(broken)
        with suppress(DefectError), guard("rows about packages that cannot be shown"):
            shown = show(replace(part, problems=(*part.problems, *rows)))
    return shown


def tell_outcome(outcome: Outcome, show: Callable[[Outcome], T]) -> T:
    """Return what `show` makes of an outcome, without the effects that it breaks with."""

    def show_without(left_out: Mapping[Effect, DefectError]) -> T:
        return show(replace(outcome, effects=tuple(each for each in outcome.effects if each not in left_out)))

    return isolate(
        lambda: outcome.effects, show_without, lambda effect: f"line about an effect on {effect.repository}"
    )[0]
