"""Values that are compared by some of their fields."""

from reconciler.base.values import PartlyCompared


class Point(PartlyCompared, frozen=True):
    UNCOMPARED = frozenset({"note"})

    x: int
    note: str = ""


class Place(PartlyCompared, frozen=True):
    x: int
    note: str = ""


def test_fields_that_a_class_names_count_for_nothing() -> None:
    assert Point(1, "a") == Point(1, "b")
    assert hash(Point(1, "a")) == hash(Point(1, "b"))
    assert Point(1) != Point(2)
    assert not Point(1, "a") != Point(1, "b")  # noqa: SIM202 # both operators are asked
    assert Point(1) < Point(2)
    assert not Point(1, "a") < Point(1, "b")
    assert Place(1, "a") != Place(1, "b")
    assert Place(1, "a") < Place(1, "b")


def test_values_of_another_class_are_others() -> None:
    assert Point(1, "a") != Place(1, "a")
    assert Point(1) != 1
