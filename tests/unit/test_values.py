"""Value types behave as the dataclasses that they are declared as."""

import copy
import pickle
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from typing import Any, Generic, TypeVar

import pytest
from pydantic import create_model

from reconciler.base import values
from tests.support.values import replace

T = TypeVar("T")
FUNCTIONS = (asdict, fields, is_dataclass, replace, copy.copy, copy.deepcopy)


def make_types(decorator: Any) -> tuple[type[Any], ...]:
    """Return the same types, as a decorator makes them."""

    @decorator(frozen=True, slots=True)
    class Point:
        x: int
        y: int = 0

    @decorator(frozen=True, slots=True)
    class Noted:
        key: str
        note: str = field(default="", compare=False)
        secret: str = field(default="", repr=False)

    @decorator(slots=True)
    class Bag(Generic[T]):
        items: list[T] = field(default_factory=list)

    @decorator(slots=True, eq=False)
    class Cell:
        value: int = 1

    @decorator(frozen=True, slots=True, order=True, kw_only=True)
    class Rank:
        first: int
        second: int = 2

    @decorator(slots=True)
    class Counted:
        total: int
        half: int = field(init=False)

        def __post_init__(self) -> None:
            self.half = self.total // 2

    return Point, Noted, Bag, Cell, Rank, Counted


EXPRESSIONS = (
    "[repr(v).split('.')[-1] for v in (Point(1), Noted('k', 'n', 's'), Bag(), Rank(first=1), Counted(4))]",
    "Point(1, 0) == Point(1), Point(1) == Point(2), Point(1) == (1, 0), Point(1) != Point(1)",
    "Noted('k', 'a') == Noted('k', 'b'), Noted('k', secret='a') == Noted('k', secret='b')",
    "hash(Noted('k', 'a')) == hash(Noted('k', 'b')), len({Point(1), Point(1, 0), Point(2)})",
    "Cell() == Cell(), len({Cell(), Cell()}), Bag() == Bag(), Bag() == Bag([1]), Noted('k') == 1",
    "Bag().items is Bag().items, Point.__match_args__",
    "Rank(first=1) < Rank(first=1, second=3), sorted([Rank(first=2), Rank(first=1)])[0].first",
    "replace(Point(1), y=3).y, replace(Noted('k', 'n'), key='l').note, asdict(Noted('k'))",
    "[(f.name, f.compare, f.repr) for f in fields(Noted)], is_dataclass(Point(1)), Counted(4).half",
    "copy(Point(1)) == Point(1), deepcopy(Bag([[1]])) == Bag([[1]])",
)


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_value_types_are_dataclasses_to_who_uses_them(expression: str) -> None:
    standard, ours = (
        eval(expression, {named.__name__: named for named in (*FUNCTIONS, *make_types(decorator))})
        for decorator in (dataclass, values.dataclass)
    )

    assert ours == standard


def make_settled(decorator: Any) -> tuple[type[Any], ...]:
    """Return the same types, as a decorator of frozen classes makes them."""

    @decorator(frozen=True, slots=True)
    class Point:
        x: int
        y: int = 0

    @decorator(frozen=True)
    class Noted:
        key: str
        notes: list[str] = field(default_factory=list, compare=False)
        secret: str = field(default="", repr=False)

    @decorator(frozen=True, slots=True, eq=False)
    class Cell:
        value: int = 1

    @decorator(frozen=True, slots=True)
    class Own:
        value: int = 1

        def __repr__(self) -> str:
            return "own"

        def __eq__(self, other: object) -> bool:
            return isinstance(other, int)

        def __hash__(self) -> int:
            return 7

    return Point, Noted, Cell, Own


SETTLED = (
    "[repr(v).split('.')[-1] for v in (Point(1), Noted('k', ['n'], 's'), Own())]",
    "Point(1, 0) == Point(1), Point(1) == Point(2), Point(1) == (1, 0), Point(y=2, x=1).y",
    "Noted('k', ['a']) == Noted('k', ['b']), Noted('k', secret='a') == Noted('k', secret='b')",
    "hash(Noted('k', [])) == hash(Noted('k', [1])), len({Point(1), Point(1, 0), Point(2)})",
    "Cell() == Cell(), len({Cell(), Cell()}), Own() == 3, hash(Own()), Point.__match_args__",
    "Noted('k').notes is Noted('k').notes, replace(Point(1), y=3).y, asdict(Noted('k'))",
    "[(f.name, f.compare, f.repr) for f in fields(Noted)], is_dataclass(Point(1)), fields(Own)[0].default",
    "copy(Point(1)) == Point(1), deepcopy(Noted('a', [['b']])).notes",
)


@pytest.mark.parametrize("expression", SETTLED)
def test_settled_values_are_dataclasses_to_who_uses_them(expression: str) -> None:
    standard, ours = (
        eval(expression, {named.__name__: named for named in (*FUNCTIONS, *make_settled(decorator))})
        for decorator in (dataclass, values.settled_dataclass)
    )

    assert ours == standard


@pytest.mark.parametrize("decorator", [dataclass, values.settled_dataclass])
@pytest.mark.parametrize("arguments", [(), (1, 2, 3), (1, {"x": 1}), (1, {"z": 1})], ids=str)
def test_wrong_arguments_are_refused(decorator: Any, arguments: tuple[Any, ...]) -> None:
    point = make_settled(decorator)[0]
    named = arguments[-1] if arguments and isinstance(arguments[-1], dict) else {}

    with pytest.raises(TypeError):
        point(*(a for a in arguments if a is not named), **named)


def test_a_model_holds_settled_values() -> None:
    model = create_model("Model", setting=(Setting, ...))

    made = model.model_validate({"setting": {"name": "a"}})

    assert made.setting == Setting("a")
    assert made.model_dump() == {"setting": {"name": "a", "parts": ()}}


@pytest.mark.parametrize(
    "point",
    [
        make_types(dataclass)[0](1),
        make_types(values.dataclass)[0](1),
        make_settled(values.settled_dataclass)[0](1),
    ],
    ids=["standard", "struct", "settled"],
)
def test_a_frozen_value_cannot_be_changed(point: Any) -> None:

    with pytest.raises(AttributeError):
        point.x = 2
    with pytest.raises(AttributeError):
        del point.x
    assert point.x == 1


@pytest.mark.parametrize("decorator", [dataclass, values.dataclass])
def test_a_value_that_can_change_has_no_hash(decorator: Any) -> None:
    with pytest.raises(TypeError):
        hash(make_types(decorator)[2]())


@values.dataclass(frozen=True, slots=True)
class Sent:
    """A value that another process gets."""

    name: str
    parts: tuple[int, ...] = ()


@values.settled_dataclass(frozen=True, slots=True)
class Setting:
    """A setting that a model holds, and another process gets."""

    name: str
    parts: tuple[int, ...] = ()


def test_a_value_can_be_sent_to_another_process() -> None:
    assert pickle.loads(pickle.dumps(Setting("a", (1, 2)))) == Setting("a", (1, 2))
    assert pickle.loads(pickle.dumps(Sent("a", (1, 2)))) == Sent("a", (1, 2))


def test_a_model_cannot_hold_a_value_that_pydantic_cannot_make() -> None:
    with pytest.raises(TypeError, match="standard dataclass"):
        create_model("Model", sent=(Sent, ...))


@pytest.mark.parametrize("decorator", [dataclass, values.dataclass])
def test_values_of_either_kind_are_copied_with_changes(decorator: Any) -> None:
    point, noted, *_ = make_types(decorator)
    one = point(1, 2)

    assert values.replace(one, y=3) == replace(one, y=3) == point(1, 3)
    assert one == point(1, 2)
    assert values.replace(noted("k", "n", "s"), key="l").secret == "s"
    with pytest.raises(TypeError):
        values.replace(one, z=3)
