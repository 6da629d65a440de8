"""The JSON of a comparison: when it is empty, when it is complete, and what it counts."""

from collections.abc import Collection
from typing import Any

import pytest

from reconciler.names.ids import ObjectName, PackageKey
from reconciler.names.problems import Problem
from reconciler.plan.changes import PinChange, Plan
from reconciler.plan.compare import Comparison, Fate, PackageDifference, VariantDifference
from reconciler.report.build import tell, tell_comparison
from reconciler.report.comparison import comparison_lines, comparison_report, rows, sentence
from reconciler.report.text import MOST_PINS, pin_line
from tests.support.values import replace
from tests.unit.report.plans import CREATED, NAMES, PROBLEM

VARIANT = VariantDifference(ObjectName("default", "web"), Fate.CREATE, "why")


@pytest.mark.parametrize(
    ("fate", "end"),
    [(Fate.KEEP, ""), (Fate.CHANGE, ", but 1 PackageVariant"), (Fate.CREATE, ", but 1 PackageVariant")],
)
def test_variant_that_changes_without_its_package_is_counted(fate: Fate, end: str) -> None:
    variant = VariantDifference(ObjectName("default", "web"), fate, "why")

    assert sentence(Comparison((variant,), deep=True)) == f"Merging this changes no package{end}"


@pytest.mark.parametrize("surplus", [0, 1, 7])
def test_pins_beyond_the_limit_are_counted_and_dangers_are_not(surplus: int) -> None:
    pins = tuple(PinChange(f"p{n}", "v1", "v2", "why") for n in range(2 + MOST_PINS + surplus))

    lines = [*comparison_lines(comparison_report(Comparison(pins=pins, dangers=2), NAMES))]

    locks = [line for line in lines if line.startswith("lock ")]
    more = [f"lock      and {surplus} more"] if surplus else []
    assert locks == [f"lock      {pin_line(pin)}" for pin in pins[: 2 + MOST_PINS]] + more


def test_what_merging_does_alike_to_many_variants_of_a_set_is_one_row() -> None:
    def changed(name: str, message: str = "spec.upstream.revision: 1 -> 2") -> VariantDifference:
        return VariantDifference(
            ObjectName("default", name), Fate.CHANGE, message, ObjectName("default", "web")
        )

    many = tuple(changed(f"web-{number}") for number in range(60))
    few = (changed("db-1", "spec.packageContext.data.region"), VARIANT)

    found = rows(comparison_report(Comparison((*many, *few)), NAMES))

    assert [tuple(row.values()) for row in found] == [
        ("change", "60 PackageVariants of PackageVariantSet default/web", "spec.upstream.revision: 1 -> 2"),
        ("change", "PackageVariant default/db-1", "spec.packageContext.data.region"),
        ("create", "PackageVariant default/web", "why"),
    ]


OTHER, FIXED, UNREAD = (replace(PROBLEM, message=message) for message in ("Another one", "Gone", "Unread"))


@pytest.mark.parametrize(
    ("broken", "subject"),
    [
        (CREATED.package, "package clusters/east/nginx"),
        (VARIANT.key, "PackageVariant default/web"),
        *((problem, str(problem)) for problem in (PROBLEM, OTHER, FIXED, UNREAD)),
    ],
    ids=["package", "variant", "new", "old", "fixed", "unread"],
)
def test_row_that_breaks_its_report_is_a_problem_and_the_others_are_shown(broken, subject) -> None:
    comparison = Comparison(
        (VARIANT, replace(VARIANT, key=ObjectName("default", "db"))),
        packages=(PackageDifference("create", None, CREATED),),
        new=(PROBLEM,),
        old=(OTHER,),
        fixed=(FIXED,),
        unread=(UNREAD,),
    )

    def rows_of(part: Comparison) -> list[Any]:
        packages = (difference.change.package for difference in part.packages)
        listed = [*packages, *(v.key for v in part.variants), *part.fixed, *part.unread, *part.old, *part.new]
        if broken in listed:
            raise KeyError("odd")
        return listed

    every = [CREATED.package, VARIANT.key, ObjectName("default", "db"), FIXED, UNREAD, OTHER, PROBLEM]
    *listed, defect = tell_comparison(comparison, rows_of)
    assert listed == [row for row in every if row != broken]
    assert defect.subject == subject


def test_package_that_breaks_the_report_of_a_plan_is_a_problem() -> None:
    def show(part: Plan) -> tuple[Problem, ...]:
        if part.changes:
            raise KeyError("odd")
        return part.problems

    def without(keys: Collection[PackageKey]) -> Plan:
        return Plan(() if keys else (CREATED,), problems=(OTHER,), without=without)

    other, defect = tell(without(()), show)

    assert (other, defect.subject) == (OTHER, "package clusters/east/nginx")
