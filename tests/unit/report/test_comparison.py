"""The JSON of a comparison: when it is empty, when it is complete, and what it counts."""

from itertools import product

import pytest

from reconciler.base.errors import Location
from reconciler.base.reasons import Reason
from reconciler.names.ids import ObjectName
from reconciler.names.problems import Problem
from reconciler.plan.changes import Op, PinChange
from reconciler.plan.compare import Comparison, Fate, PackageDifference, VariantDifference
from reconciler.report.comparison import comparison_value, rows, sentence
from tests.unit.report.plans import NAMES, change

VARIANT = VariantDifference(ObjectName("default", "web"), Fate.CREATE, "why")
PACKAGE = PackageDifference(str(Op.UPDATE), None, change(Op.UPDATE, reason=Reason.NEW))
PIN = PinChange("web", "v1", "v2", "another version is decided")
PROBLEM = Problem(Location("a.yaml", 1), "RepositoryUnavailable", "Cannot read it")


@pytest.mark.parametrize(
    ("variants", "packages", "pins"), list(product([(), (VARIANT,)], [(), (PACKAGE,)], [(), (PIN,)]))
)
def test_comparison_is_empty_without_variant_package_and_pin(
    variants: tuple[VariantDifference, ...],
    packages: tuple[PackageDifference, ...],
    pins: tuple[PinChange, ...],
) -> None:
    value = comparison_value(Comparison(variants, packages, pins=pins, new=(PROBLEM,), deep=True), NAMES)

    assert (value["apiVersion"], value["kind"]) == ("reconciler.dev/v1alpha1", "Comparison")
    assert value["empty"] is not bool(variants or packages or pins)
    assert len(value["variants"]) + len(value["packages"]) + len(value["pins"]) == len(
        variants + packages + pins
    )


@pytest.mark.parametrize(("deep", "unread"), list(product([True, False], [(), (PROBLEM,)])))
def test_only_a_fleet_that_was_read_whole_is_complete(deep: bool, unread: tuple[Problem, ...]) -> None:
    comparison = Comparison((VARIANT,), (PACKAGE,) if deep else (), deep=deep, unread=unread)

    value = comparison_value(comparison, NAMES)

    assert (value["level"], value["complete"]) == ("fleet" if deep else "manifests", deep and not unread)
    assert value["counts"] == ({"update": 1} if deep else {"create": 1})
    assert value["sentence"] == sentence(comparison)
    assert ("not read" in value["sentence"]) is bool(unread)


def test_deletions_come_first_and_what_merging_ends_last() -> None:
    """A deletion that merging withdraws is no danger any more."""
    deleted = change(Op.DELETE, "a", Reason.DELETION_PROPOSED)
    differences = (
        PackageDifference("withdraw", deleted, None),
        PackageDifference("update", None, change(Op.UPDATE, "b", Reason.UPSTREAM_CHANGED)),
        PackageDifference("delete", None, change(Op.DELETE, "c", Reason.DELETION_PROPOSED)),
    )

    found = rows(Comparison(packages=differences, deep=True), NAMES)

    assert [(row["what"], row["name"]) for row in found] == [
        ("delete", "edge-west/c"),
        ("update", "edge-west/b"),
        ("withdraw", "edge-west/a"),
    ]


@pytest.mark.parametrize(
    ("fate", "end"),
    [(Fate.KEEP, ""), (Fate.CHANGE, ", but 1 PackageVariant"), (Fate.CREATE, ", but 1 PackageVariant")],
)
def test_variant_that_changes_without_its_package_is_counted(fate: Fate, end: str) -> None:
    variant = VariantDifference(ObjectName("default", "web"), fate, "why")

    assert sentence(Comparison((variant,), deep=True)) == f"Merging this changes no package{end}"


def test_what_merging_does_alike_to_many_variants_of_a_set_is_one_row() -> None:
    def changed(name: str, message: str = "spec.upstream.revision: 1 -> 2") -> VariantDifference:
        return VariantDifference(
            ObjectName("default", name), Fate.CHANGE, message, ObjectName("default", "web")
        )

    many = tuple(changed(f"web-{number}") for number in range(60))
    few = (changed("db-1", "spec.packageContext.data.region"), VARIANT)

    found = rows(Comparison((*many, *few)), NAMES)

    assert [tuple(row.values()) for row in found] == [
        (
            "change",
            "60 PackageVariants of PackageVariantSet default/web",
            "spec.upstream.revision: 1 -> 2",
        ),
        ("change", "PackageVariant default/db-1", "spec.packageContext.data.region"),
        ("create", "PackageVariant default/web", "why"),
    ]
