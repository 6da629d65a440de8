"""Laws of CEL evaluation: nothing raises, and an accepted expression has one answer in every process."""

import json
import os
import random
import re
import secrets
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import chain, cycle, islice

import pytest

from reconciler.cel import EXTENSIONS, STRING_FUNCTIONS, Environment, Failure
from reconciler.policy import Limits
from tests.support.conformance import absence, cases_of, skip_absent
from tests.support.hostile import HOSTILE
from tests.support.notes import note

INPUTS = {
    "repoDefault": "edge-1",
    "packageDefault": "app",
    "upstream": {"name": "blueprints.app.v1", "namespace": "default", "labels": {"version": "1.6.8"},
        "annotations": {}},
    "target": {"name": "site-7", "namespace": "default",
        "labels": {"region": "eu", "n": "3", "flag": "true", "empty": "", "x": "1.5"},
        "annotations": {"when": "2024-02-29T12:30:00.250Z", "long": "90m", "csv": "a,b,c"}},
}  # fmt: skip
WORDS = (
    "", "a", "edge-1", "Zürich", "😀", "true", "12", "-7", "1.5", "1e3", "90m", "x y",
    "2024-01-01T00:00:00Z", "[", "^a+$",
)  # fmt: skip
TIMES = (
    "2024-02-29T12:30:00.250Z", "1969-12-31T23:59:59.999Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z",
    "2024-01-01T00:00:00+05:30", "2023-02-29T00:00:00Z", "soon",
)  # fmt: skip
SPANS = ("1h", "-90s", "1.5s", "1h30m", "0s", "250ms", "1d", "9999999h")
LABELS = ("region", "n", "flag", "empty", "x", "missing")
DATES = ("FullYear", "Month", "Date", "DayOfMonth", "DayOfWeek", "DayOfYear", "Milliseconds")
CLOCK = ("Hours", "Minutes", "Seconds", "Milliseconds")
NUMBERS = ("int", "uint", "double")
ORDERED = ("bool", *NUMBERS, "string", "bytes", "time", "span")
TESTS = ("all", "exists", "exists_one")
SIZED = ("string", "bytes", "strings", "ints", "map", "keys")
DAMAGE = "'\"\\()[]{}.,?:+-*/%<>=!&|abrRuU019 \n\t\x00é😀"


def each(template: str, types: Iterable[str]) -> tuple[str, ...]:
    """Return a template for each of these types, which stand for `@`."""
    return tuple(template.replace("@", name) for name in types)


def lists(own: str) -> tuple[str, ...]:
    """Return what gives a list of `own`."""
    more = (f"<{own}s>.map(v, <bool>, <{own}>)", f"<{own}s>.map(v, <{own}>)", f"<strings>.map(v, <{own}>)")
    some = (f"<{own}s>.filter(v, <bool>)", f"<{own}s>.filter(v, v != <{own}>)", f"(<{own}s> + <{own}s>)")
    return "[]", f"[<{own}>]", f"[<{own}>, <{own}>, <{own}>]", *more, *some


GRAMMAR: Mapping[str, tuple[str, ...]] = {
    "string": (*each("'@'", WORDS), *each("target.labels.@", LABELS), "target.annotations['when']", '"a"',
        *("repoDefault", "packageDefault", "target.name", "repository.name", "target['labels'].n"),
        *("(<string> + <string>)", "(<bool> ? <string> : <string>)", "<strings>[<int>]", "<map>.a"),
        *each("string(<@>)", ("string", "bytes", "time", "span", *NUMBERS)), "string(<bool>)"),
    "bool": (
        "true", "false", "!(<bool>)", "(<bool> && <bool>)", "(<bool> || <bool>)",
        "(<bool> ? <bool> : <bool>)",
        *(f"(<{name}> {op} <{name}>)" for op in ("<", "<=", ">", ">=", "==", "!=") for name in ORDERED),
        "(<string> in <strings>)", "(<int> in <ints>)", "(<string> in <map>)", "(<string> in <keys>)",
        *each("<string>.@(<string>)", ("startsWith", "endsWith", "contains", "matches")),
        "matches(<string>, <string>)", *each("bool(<@>)", ("bool", "string")), "has(target.labels.n)",
        "has(target.labels.missing)", *(f"<{name}>.{macro}" for name in ("strings", "ints", "keys")
        for macro in each("@(v, <bool>)", TESTS) + each("@(v, v == v)", TESTS)),
        "(type(<int>) == type(<double>))", "(type(<string>) == string)", "(dyn(<int>) == <int>)",
    ),
    "int": ("0", "1", "2", "-3", "7", "100", "9223372036854775807", "-(<int>)",
        *each("(<int> @ <int>)", "+-*/%"), *each("size(<@>)", SIZED), *each("<@>.size()", SIZED),
        *each("int(<@>)", (*NUMBERS, "string")), "int(<time>)", *each("<time>.get@()", (*DATES, *CLOCK)),
        *each("<span>.get@()", CLOCK), "<ints>[<int>]"),
    "uint": ("0u", "1u", "7u", "18446744073709551615u", *each("(<uint> @ <uint>)", "+-*/%"),
        *each("uint(<@>)", (*NUMBERS, "string"))),
    "double": ("0.0", "1.0", "-2.5", "1e21", "0.1", "123456789.0", "1e-7",
        *each("(<double> @ <double>)", "+-*/"), "-(<double>)", *each("double(<@>)", (*NUMBERS, "string"))),
    "bytes": ("b'a'", "b''", "b'\\xff'", "b'é'", "(<bytes> + <bytes>)", "bytes(<string>)", "bytes(<bytes>)"),
    "time": (*each("timestamp('@')", TIMES), "timestamp(1700000000)", "timestamp(<time>)",
        "timestamp(<string>)", "(<time> + <span>)", "(<span> + <time>)", "(<time> - <span>)"),
    "span": (*each("duration('@')", SPANS), "duration(<span>)", "duration(<string>)",
        *("(<span> + <span>)", "(<span> - <span>)", "(<time> - <time>)")),
    "strings": lists("string"),
    "ints": lists("int"),
    "map": ("{}", "{'a': <string>, 'n': <string>}", "{'b': <string>}", "target.labels"),
    "keys": ("target.labels.map(k, k)", "target.labels.filter(k, k != 'n')", "upstream.labels.map(k, k + k)"),
}  # fmt: skip
"""What gives a value of each type; of a list of keys the order is not known."""
STRINGS: Mapping[str, tuple[str, ...]] = {
    "string": (
        "<string>.charAt(<int>)", "<strings>.join()", "<strings>.join(<string>)", "<string>.lowerAscii()",
        *("<string>.upperAscii()", "<string>.replace(<string>, <string>)", "<string>.trim()"),
        "<string>.replace(<string>, <string>, <int>)", "<string>.substring(<int>)",
        "<string>.substring(<int>, <int>)",
    ),
    "strings": ("<string>.split(<string>)", "<string>.split(<string>, <int>)"),
    "int": (
        "<string>.indexOf(<string>)", "<string>.indexOf(<string>, <int>)", "<string>.lastIndexOf(<string>)",
    ),
}  # fmt: skip
"""What the extension for strings adds."""
SHOWN = {"bool": "{} ? 'yes' : 'no'", **dict.fromkeys(("strings", "ints", "map", "keys"), "string(size({}))")}
HOLE = re.compile(r"<(\w+)>")
APPLIED = re.compile(r"(\w+)\(| ([^\w\s]+) ")


class Generator:
    """Makes expressions that ought to give a string; each template is the outermost one in its turn."""

    def __init__(self, seed: int, *, extension: bool = False) -> None:
        self.random = random.Random(seed)
        self.grammar = {k: v + STRINGS.get(k, ()) * extension for k, v in GRAMMAR.items()}
        turns = STRINGS if extension else GRAMMAR
        self.turns = cycle([(k, text) for k, texts in turns.items() for text in texts if "(" in text])

    def expression(self) -> str:
        name, template = next(self.turns)
        return SHOWN.get(name, "{}" if name == "string" else "string({})").replace(
            "{}", self.fill(template, 2)
        )

    def fill(self, template: str, depth: int) -> str:
        return HOLE.sub(lambda hole: self.of(hole[1], depth), template)

    def of(self, name: str, depth: int) -> str:
        """Return an expression of a type; now and then one of another type that only run time can tell."""
        if self.random.random() < 0.14 and name != "keys":
            return f"dyn({self.of(self.random.choice(ORDERED[:5]), 0)})"
        texts = self.grammar[name] if depth else [t for t in self.grammar[name] if "<" not in t]
        return self.fill(self.random.choice(texts or ["[]"]), depth - 1)

    def damaged(self) -> str:
        """Return an expression with up to four characters or pieces put in, left out or repeated."""
        text = self.expression()
        for _ in range(self.random.randint(0, 4)):
            place, other = sorted((self.random.randint(0, len(text)), self.random.randint(0, len(text))))
            piece = self.random.choice((self.random.choice(DAMAGE), text[place:other]))
            skip = self.random.choice((place, place, place + 1))
            text = text[:place] + piece + text[skip:]
        return text


def applied(text: str) -> set[str]:
    """Return the functions, macros and operators of an expression."""
    return {a or b for a, b in APPLIED.findall(text)}


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
EACH = 3
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
    drawn = iter(generator.expression, None)
    accepted = list(islice((t for t in drawn if not isinstance(environment.compile(t), Failure)), count))
    return accepted, Counter(chain.from_iterable(map(applied, accepted)))


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
    templates = chain.from_iterable(GRAMMAR.values())
    drawn = set(STRING_FUNCTIONS) if extensions else {*chain.from_iterable(map(applied, templates))}
    least = 1 if extensions else EACH
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

    for _ in range(2_000 * FUZZ):
        result = environment.run(generator.damaged(), INPUTS)

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
