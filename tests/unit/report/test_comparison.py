"""The JSON of a comparison: when it is empty, when it is complete, and what it counts."""

import pytest

from reconciler.names.ids import ObjectName
from reconciler.plan.changes import PinChange
from reconciler.plan.compare import Comparison, Fate, VariantDifference
from reconciler.report.comparison import comparison_lines, comparison_report, rows, sentence
from reconciler.report.text import MOST_PINS, pin_line
from tests.unit.report.plans import NAMES

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
        (
            "change",
            "60 PackageVariants of PackageVariantSet default/web",
            "spec.upstream.revision: 1 -> 2",
        ),
        ("change", "PackageVariant default/db-1", "spec.packageContext.data.region"),
        ("create", "PackageVariant default/web", "why"),
    ]
