"""Laws of CEL evaluation: nothing raises, and an accepted expression has one answer in every process."""

import json
import os
import random
import secrets
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import pytest

from reconciler.cel import EXTENSIONS, STRING_FUNCTIONS, Environment, Failure
from reconciler.policy import Limits
from tests.support.conformance import absence, cases_of, skip_absent
from tests.support.hostile import HOSTILE
from tests.support.notes import note


class Type(NamedTuple):
    """A type; lists have one parameter, maps two, types of types one."""

    name: str
    parameters: tuple["Type", ...] = ()


class Overload(NamedTuple):
    """One signature; a method's target is its first argument."""

    arguments: tuple[Type, ...]
    result: Type
    method: bool = False


BOOL, INT, UINT, DOUBLE = map(Type, ("bool", "int", "uint", "double"))
STRING, BYTES, TIMESTAMP, DURATION = map(Type, ("string", "bytes", "timestamp", "duration"))
DYN, A, B = map(Type, ("dyn", "A", "B"))
UNORDERED = "unordered list"


def list_of(element: Type) -> Type:
    """Return the type of lists of `element`."""
    return Type("list", (element,))


def map_of(key: Type, value: Type) -> Type:
    """Return the type of maps."""
    return Type("map", (key, value))


def _each(result: Type | None, arity: int, *types: Type) -> tuple[Overload, ...]:
    return tuple(Overload((type_,) * arity, result or type_) for type_ in types)


def _to(result: Type, *types: Type) -> tuple[Overload, ...]:
    return tuple(Overload((type_,), result) for type_ in types)


def _method(result: Type, *arguments: Type) -> Overload:
    return Overload(arguments, result, method=True)


_NUMBERS = (INT, UINT, DOUBLE)
_ORDERED = (BOOL, INT, UINT, DOUBLE, STRING, BYTES, TIMESTAMP, DURATION)
_SIZED = (STRING, BYTES, list_of(A), map_of(A, B), Type(UNORDERED, (A,)))
_DATES = (
    "getFullYear",
    "getMonth",
    "getDate",
    "getDayOfMonth",
    "getDayOfWeek",
    "getDayOfYear",
    "getMilliseconds",
)
_CLOCK = ("getHours", "getMinutes", "getSeconds")
STANDARD: Mapping[str, tuple[Overload, ...]] = {
    "_+_": (
        *_each(None, 2, *_NUMBERS, STRING, BYTES, DURATION, list_of(A)),
        Overload((TIMESTAMP, DURATION), TIMESTAMP),
        Overload((DURATION, TIMESTAMP), TIMESTAMP),
    ),
    "_-_": (
        *_each(None, 2, *_NUMBERS, DURATION),
        Overload((TIMESTAMP, DURATION), TIMESTAMP),
        Overload((TIMESTAMP, TIMESTAMP), DURATION),
    ),
    "_*_": _each(None, 2, *_NUMBERS),
    "_/_": _each(None, 2, *_NUMBERS),
    "_%_": _each(None, 2, INT, UINT),
    "-_": _each(None, 1, INT, DOUBLE),
    "!_": (Overload((BOOL,), BOOL),),
    "_<_": _each(BOOL, 2, *_ORDERED),
    "_<=_": _each(BOOL, 2, *_ORDERED),
    "_>_": _each(BOOL, 2, *_ORDERED),
    "_>=_": _each(BOOL, 2, *_ORDERED),
    "_==_": (Overload((A, A), BOOL),),
    "_!=_": (Overload((A, A), BOOL),),
    "_&&_": (Overload((BOOL, BOOL), BOOL),),
    "_||_": (Overload((BOOL, BOOL), BOOL),),
    "_?_:_": (Overload((BOOL, A, A), A),),
    "_in_": (
        Overload((A, list_of(A)), BOOL),
        Overload((A, map_of(A, B)), BOOL),
        Overload((A, Type(UNORDERED, (A,))), BOOL),
    ),
    "_[_]": (Overload((list_of(A), INT), A), Overload((map_of(A, B), A), B)),
    "size": (
        *(Overload((type_,), INT) for type_ in _SIZED),
        *(_method(INT, type_) for type_ in _SIZED),
    ),
    "startsWith": (_method(BOOL, STRING, STRING),),
    "endsWith": (_method(BOOL, STRING, STRING),),
    "contains": (_method(BOOL, STRING, STRING),),
    "matches": (_method(BOOL, STRING, STRING), Overload((STRING, STRING), BOOL)),
    "dyn": (Overload((A,), DYN),),
    "type": (Overload((A,), Type("type", (A,))),),
    "int": _to(INT, INT, UINT, DOUBLE, STRING, TIMESTAMP),
    "uint": _to(UINT, UINT, INT, DOUBLE, STRING),
    "double": _to(DOUBLE, DOUBLE, INT, UINT, STRING),
    "string": _to(STRING, STRING, BOOL, INT, UINT, DOUBLE, BYTES, TIMESTAMP, DURATION),
    "bytes": _to(BYTES, BYTES, STRING),
    "bool": _to(BOOL, BOOL, STRING),
    "timestamp": _to(TIMESTAMP, TIMESTAMP, STRING, INT),
    "duration": _to(DURATION, DURATION, STRING),
    **{name: (_method(INT, TIMESTAMP),) for name in _DATES},
    **{name: (_method(INT, TIMESTAMP), _method(INT, DURATION)) for name in _CLOCK},
}
STRING_EXTENSION: Mapping[str, tuple[Overload, ...]] = {
    "charAt": (_method(STRING, STRING, INT),),
    "indexOf": (_method(INT, STRING, STRING), _method(INT, STRING, STRING, INT)),
    "lastIndexOf": (_method(INT, STRING, STRING),),
    "join": (_method(STRING, list_of(STRING)), _method(STRING, list_of(STRING), STRING)),
    "lowerAscii": (_method(STRING, STRING),),
    "upperAscii": (_method(STRING, STRING),),
    "replace": (_method(STRING, STRING, STRING, STRING), _method(STRING, STRING, STRING, STRING, INT)),
    "split": (_method(list_of(STRING), STRING, STRING), _method(list_of(STRING), STRING, STRING, INT)),
    "substring": (_method(STRING, STRING, INT), _method(STRING, STRING, INT, INT)),
    "trim": (_method(STRING, STRING),),
}
MACROS = ("all", "exists", "exists_one", "map", "filter")
INPUTS = {
    "repoDefault": "edge-1",
    "packageDefault": "app",
    "upstream": {
        "name": "blueprints.app.v1",
        "namespace": "default",
        "labels": {"version": "1.6.8"},
        "annotations": {},
    },
    "target": {
        "name": "site-7",
        "namespace": "default",
        "labels": {"region": "eu", "n": "3", "flag": "true", "empty": "", "x": "1.5"},
        "annotations": {"when": "2024-02-29T12:30:00.250Z", "long": "90m", "csv": "a,b,c"},
    },
}
_LABELS = ("region", "n", "flag", "empty", "x", "missing")
_ANNOTATIONS = ("when", "long", "csv", "missing")
_WORDS = (
    "",
    "a",
    "edge-1",
    "Zürich",
    "😀",
    "true",
    "12",
    "-7",
    "1.5",
    "1e3",
    "90m",
    "x y",
    "2024-01-01T00:00:00Z",
    "[",
    "^a+$",
)
_DAMAGE = "'\"\\()[]{}.,?:+-*/%<>=!&|abrRuU019 \n\t\x00é😀"
_ELEMENTS = (STRING, INT, BOOL, DOUBLE)
_BINARY = ("+", "-", "*", "/", "%", "<", "<=", ">", ">=", "==", "!=", "in", "&&", "||")
_SYMBOLS = {f"_{symbol}_": symbol for symbol in _BINARY}


class Generator:
    """Makes expressions of a wanted type; `root` is used at least once in each of `expression(root)`."""

    def __init__(self, seed: int, *, extension: bool = False) -> None:
        self.random = random.Random(seed)
        self.functions: Mapping[str, Sequence[Overload]] = {
            **STANDARD,
            **(STRING_EXTENSION if extension else {}),
        }
        self.scope: list[tuple[str, Type]] = []
        self.written: Counter[str] = Counter()

    def roots(self) -> list[str]:
        """Return every operator, function and macro there is."""
        return [*self.functions, *MACROS, "has", "select", "literal list", "literal map"]

    def expression(self, root: str) -> str:
        """Return an expression that ought to give a string and applies `root`."""
        return self.to_string(*self.apply(root))

    def apply(self, root: str) -> tuple[str, Type]:
        if root in MACROS:
            return self.macro(root, 1)
        match root:
            case "has":
                self.written["has"] += 1
                return f"has({self.labels()}.{self.random.choice(_LABELS)})", BOOL
            case "select":
                return f"{self.labels()}.{self.random.choice(_LABELS)}", DYN
            case "literal list":
                element = self.random.choice(_ELEMENTS)
                return self.of(list_of(element), 1), list_of(element)
            case "literal map":
                return self.of(map_of(STRING, INT), 1), map_of(STRING, INT)
        return self.call(root, self.random.choice(self.functions[root]), 2)

    def call(self, name: str, overload: Overload, depth: int) -> tuple[str, Type]:
        bound = {A: self.random.choice(_ELEMENTS), B: self.random.choice(_ELEMENTS)}
        if any(argument == map_of(A, B) for argument in overload.arguments):
            bound[A] = STRING
        wanted = [fill(argument, bound) for argument in overload.arguments]
        arguments = [self.maybe_dyn(argument, depth) for argument in wanted]
        return self.write(name, arguments, method=overload.method), fill(overload.result, bound)

    def write(self, name: str, arguments: list[str], *, method: bool) -> str:
        self.written[name] += 1
        if name in _SYMBOLS:
            return f"({arguments[0]} {_SYMBOLS[name]} {arguments[1]})"
        if name in {"!_", "-_"}:
            return f"{name[0]}({arguments[0]})"
        if name == "_?_:_":
            return f"({arguments[0]} ? {arguments[1]} : {arguments[2]})"
        if name == "_[_]":
            return f"{arguments[0]}[{arguments[1]}]"
        if method:
            return f"{arguments[0]}.{name}({', '.join(arguments[1:])})"
        return f"{name}({', '.join(arguments)})"

    def maybe_dyn(self, wanted: Type, depth: int) -> str:
        """Return an argument; now and then one of another type that only run time can tell."""
        if self.random.random() < 0.14 and wanted.name != UNORDERED:
            other = self.random.choice((STRING, INT, BOOL, UINT, DOUBLE))
            return f"dyn({self.of(other, 0)})"
        return self.of(wanted, depth)

    def of(self, wanted: Type, depth: int) -> str:
        """Return an expression of a type."""
        named = [name for name, type_ in self.scope if type_ == wanted]
        if named and self.random.random() < 0.5:
            return self.random.choice(named)
        if depth > 0 and self.random.random() < 0.55:
            fitting = [
                (name, overload)
                for name, overloads in self.functions.items()
                for overload in overloads
                if overload.result == wanted
            ]
            if fitting:
                return self.call(*self.random.choice(fitting), depth - 1)[0]
        return self.leaf(wanted, depth)

    def leaf(self, wanted: Type, depth: int) -> str:
        if wanted.name == "list":
            return f"[{self.several(wanted.parameters[0], depth)}]"
        if wanted.name == "map":
            keys = self.random.sample(("a", "b", "n", "region"), self.random.randint(0, 3))
            return "{" + ", ".join(f"'{key}': {self.of(wanted.parameters[1], 0)}" for key in keys) + "}"
        if wanted.name == UNORDERED:
            return self.random.choice(
                (
                    "target.labels.map(k, k)",
                    "target.labels.filter(k, k != 'n')",
                    "upstream.labels.map(k, k + k)",
                )
            )
        return _LEAVES.get(wanted, _dyn)(self)

    def several(self, element: Type, depth: int) -> str:
        return ", ".join(self.of(element, min(depth, 1) - 1) for _ in range(self.random.randint(0, 3)))

    def damaged(self, root: str) -> str:
        """Return an expression with up to four characters or pieces put in, left out or repeated."""
        text = self.expression(root)
        for _ in range(self.random.randint(0, 4)):
            place, other = sorted((self.random.randint(0, len(text)), self.random.randint(0, len(text))))
            piece = self.random.choice((self.random.choice(_DAMAGE), text[place:other]))
            skip = self.random.choice((place, place, place + 1))
            text = text[:place] + piece + text[skip:]
        return text

    def labels(self) -> str:
        return self.random.choice(("target.labels", "target.labels", "upstream.labels", "target['labels']"))

    def macro(self, name: str, depth: int) -> tuple[str, Type]:
        self.written[name] += 1
        element = self.random.choice(_ELEMENTS)
        over, variable = self.of(list_of(element), 1), f"v{len(self.scope)}"
        if self.random.random() < 0.25:
            over, element = "target.labels", STRING
        self.scope.append((variable, element))
        result = self.random.choice(_ELEMENTS)
        body = self.maybe_dyn(result if name == "map" else BOOL, depth)
        first = f"{self.of(BOOL, 1)}, " if name == "map" and self.random.random() < 0.3 else ""
        self.scope.pop()
        wrap = list_of if over != "target.labels" else (lambda one: Type(UNORDERED, (one,)))
        type_ = {"map": wrap(result), "filter": wrap(element)}.get(name, BOOL)
        return f"{over}.{name}({variable}, {first}{body})", type_

    def to_string(self, text: str, type_: Type) -> str:
        """Return an expression that gives a string made of a value."""
        if type_ in {STRING, DYN}:
            return text
        if type_ == BOOL:
            return f"{text} ? 'yes' : 'no'"
        if type_.name == "list" and self.random.random() < 0.5:
            return self.to_string(f"{text}[{self.random.randint(-1, 2)}]", type_.parameters[0])
        if type_.name in {"list", "map", UNORDERED}:
            return f"string(size({text}))"
        if type_.name == "type":
            return f"{text} == {self.random.choice(('string', 'int', 'bool', 'list'))} ? 'yes' : 'no'"
        return f"string({text})"


def fill(type_: Type, bound: Mapping[Type, Type]) -> Type:
    """Replace type variables."""
    if type_ in bound:
        return bound[type_]
    return Type(type_.name, tuple(fill(parameter, bound) for parameter in type_.parameters))


def _string(g: Generator) -> str:
    return g.random.choice(
        (
            lambda: f"'{g.random.choice(_WORDS)}'",
            lambda: g.random.choice(("repoDefault", "packageDefault")),
            lambda: f'"{g.random.choice(_WORDS)}"',
        )
    )()


def _dyn(g: Generator) -> str:
    return g.random.choice(
        (
            lambda: f"target.labels.{g.random.choice(_LABELS)}",
            lambda: f"target.annotations['{g.random.choice(_ANNOTATIONS)}']",
            lambda: "target.name",
            lambda: "repository.name",
            lambda: "upstream.labels.version",
        )
    )()


def _timestamp(g: Generator) -> str:
    text = g.random.choice(
        (
            "'2024-02-29T12:30:00.250Z'",
            "'1969-12-31T23:59:59.999Z'",
            "'0001-01-01T00:00:00Z'",
            "'9999-12-31T23:59:59Z'",
            "'2024-01-01T00:00:00+05:30'",
            "'2023-02-29T00:00:00Z'",
            "'soon'",
            "1700000000",
        )
    )
    return f"timestamp({text})"


def _duration(g: Generator) -> str:
    return f"duration('{g.random.choice(('1h', '-90s', '1.5s', '1h30m', '0s', '250ms', '1d', '9999999h'))}')"


_LEAVES: Mapping[Type, Callable[[Generator], str]] = {
    STRING: _string,
    INT: lambda g: str(g.random.choice((0, 1, 2, -3, 7, 100, 9223372036854775807))),
    UINT: lambda g: f"{g.random.choice((0, 1, 2, 7, 18446744073709551615))}u",
    DOUBLE: lambda g: g.random.choice(("0.0", "1.0", "-2.5", "1e21", "0.1", "123456789.0", "1e-7")),
    BOOL: lambda g: g.random.choice(("true", "false")),
    BYTES: lambda g: g.random.choice(("b'a'", "b''", "b'\\xff'", "b'é'", "b'abc'")),
    TIMESTAMP: _timestamp,
    DURATION: _duration,
}


def draw_map_expression(random_: random.Random) -> str:
    """Return an expression that makes a list of a map's keys and uses it; some uses show the order."""
    source = random_.choice(
        ("target.labels", "target.annotations", "{'b': '1', 'a': '2', 'c': '3', 'd': '4'}")
    )
    keys = random_.choice(
        (f"{source}.map(k, k)", f"{source}.map(k, k + '!')", f"{source}.filter(k, k != '')")
    )
    for _ in range(random_.randrange(3)):
        keys = random_.choice(
            (
                f"{keys}.map(x, x + '.')",
                f"{keys}.filter(x, size(x) > 0)",
                f"({keys} + {keys})",
                f"(target.name == 'site-7' ? {keys} : {keys})",
                f"dyn({keys})",
                f"[{keys}][0]",
                f"{{'x': {keys}}}.x",
            )
        )
    use = random_.choice(
        (
            "{}[1]",
            "{}.join(',')",
            "string({} == ['region', 'n'])",
            "{}.map(x, [x])[1][0]",
            "string(size({}))",
            "'n' in {} ? 'yes' : 'no'",
            "{}.exists(x, x == 'n') ? 'yes' : 'no'",
            "{}.all(x, x != 'q') ? 'yes' : 'no'",
            "{}.exists_one(x, x == 'n') ? 'yes' : 'no'",
        )
    )
    return use.format(keys)


pytestmark = pytest.mark.slow

FUZZ = int(os.environ.get("RECONCILER_FUZZ", "1"))
SEED = int(os.environ.get("RECONCILER_SEED") or (secrets.randbits(32) if FUZZ > 1 else 20240229))
EXPRESSIONS = 1_000 * FUZZ
EACH = 13
FAILING_SHARE = 0.3
ACCEPTED_SHARE = 0.95
EVALUATE = """
import json, sys
from reconciler.cel import Environment, Failure
from reconciler.policy import Limits
texts, extensions, variables = json.load(sys.stdin)
environment = Environment(Limits(), frozenset(extensions))
results = [environment.run(text, variables) for text in texts]
json.dump([["failure", r.message] if isinstance(r, Failure) else ["value", r] for r in results], sys.stdout)
"""


def accepted_expressions(extensions: frozenset[str], count: int, seed: int) -> tuple[list[str], Counter[str]]:
    """Generate until `count` expressions compiled; count the operators, functions and macros in them."""
    environment = Environment(Limits(), extensions)
    generator = Generator(seed, extension=bool(extensions))
    roots = generator.roots()
    accepted: list[str] = []
    uses: Counter[str] = Counter()
    number = 0
    while len(accepted) < count:
        text = generator.expression(roots[number % len(roots)])
        number += 1
        if not isinstance(environment.compile(text), Failure):
            accepted.append(text)
            uses += generator.written
        generator.written.clear()
    return accepted, uses


def evaluate_in_new_process(texts: list[str], extensions: frozenset[str]) -> list[list[str]]:
    """Evaluate in another process, whose maps have another order."""
    ran = subprocess.run(
        [sys.executable, "-c", EVALUATE],
        input=json.dumps([texts, sorted(extensions), INPUTS]),
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(ran.stdout)


@pytest.mark.parametrize("extensions", [frozenset[str](), EXTENSIONS], ids=["standard", "strings"])
def test_accepted_expression_has_the_same_value_in_every_process(extensions: frozenset[str]) -> None:
    count = EXPRESSIONS if not extensions else EXPRESSIONS // 3
    texts, uses = accepted_expressions(extensions, count, SEED + len(extensions))

    first, second = (evaluate_in_new_process(texts, extensions) for _ in range(2))

    outcomes = Counter(kind for kind, _ in first)
    note(f"CEL, seed {SEED}: {dict(outcomes)}, least used {min(uses.values())}")
    answers = zip(texts, first, second, strict=True)
    assert [text for text, result, repeated in answers if result != repeated] == []
    drawn = {*STANDARD, *MACROS, "has"} if not extensions else set(STRING_FUNCTIONS)
    least = EACH if not extensions else EACH // 3
    assert {name: uses[name] for name in drawn if uses[name] < least} == {}
    assert outcomes["failure"] >= FAILING_SHARE * len(texts)


def test_order_of_map_keys_never_affects_a_value() -> None:
    random_ = random.Random(SEED)
    extensions = EXTENSIONS
    environment = Environment(Limits(), extensions)
    texts = sorted({draw_map_expression(random_) for _ in range(600 * FUZZ)})
    accepted = [text for text in texts if not isinstance(environment.compile(text), Failure)]

    first, second, third = (evaluate_in_new_process(accepted, extensions) for _ in range(3))

    answers = zip(accepted, first, second, third, strict=True)
    assert [text for text, *results in answers if len({tuple(result) for result in results}) > 1] == []
    assert len(accepted) >= len(texts) // 8
    assert len(texts) - len(accepted) >= len(texts) // 8


def test_damaged_expression_never_raises() -> None:
    environment = Environment(Limits(), EXTENSIONS)
    generator = Generator(SEED + 2, extension=True)
    roots = generator.roots()

    for number in range(2_000 * FUZZ):
        result = environment.run(generator.damaged(roots[number % len(roots)]), INPUTS)

        assert isinstance(result, str | Failure)


def test_what_porch_accepts_passes_the_check() -> None:
    accepted = [c["expr"] for c in cases_of("porch", "CelExpression") if c["expectedError"] is None]
    if not accepted:
        skip_absent(absence("of kind CelExpression in porch/"))
    environment = Environment(Limits())

    refused = [text for text in accepted if isinstance(environment.compile(text), Failure)]

    assert len(refused) <= (1 - ACCEPTED_SHARE) * len(accepted), refused


@pytest.mark.parametrize(("name", "text", "inputs"), HOSTILE, ids=[name for name, _, _ in HOSTILE])
def test_hostile_inputs_give_failures(name: str, text: str, inputs: dict[str, object]) -> None:
    result = Environment(Limits()).run(text, inputs)

    if isinstance(result, Failure):
        assert result.message
        assert "\n" not in result.message
    else:
        assert len(result) <= 1, name
