"""The door to CEL: what it refuses and where, what it says of failures, that it never raises."""

import sys

import pytest

from reconciler.expand.expressions import EngineName, Expressions, Failure, Program
from reconciler.expand.expressions.signatures import STRINGS
from reconciler.expand.expressions.values import format_double
from reconciler.policy import Limits

BOTH = pytest.mark.parametrize("engine", [EngineName.GOOGLE, EngineName.PORTABLE])
TARGET = {"target": {"name": "t", "labels": {"Region": "EU", "n": "3"}}}


def run(text: str, engine: EngineName = EngineName.PORTABLE, *extensions: str) -> str | Failure:
    return Expressions(Limits(), frozenset(extensions), engine).run(text, TARGET)


@pytest.mark.parametrize(
    ("text", "offset", "message"),
    [
        ("'a' + cluster.name", 6, "undeclared reference to 'cluster'"),
        ("repoDefault + 1", 0, "found no matching overload for '_+_' applied to '(string, int)'"),
        ("['a', 1][0]", 6, "expected type 'string' but found 'int'"),
        ("{'a': 'b', 'c': 2}.a", 16, "expected type 'string' but found 'int'"),
        ("repoDefault.name", 12, "type 'string' does not support field selection"),
        ("target.name.lowerAscii()", 12, "undeclared reference to 'lowerAscii'"),
        ("has(target)", 0, "The argument of has() must be a field, as in has(target.labels.x)"),
        ("[1].map(a.b, a)", 10, "The first argument of map() must be a simple name"),
        ("'a' == target.name ? 'x' :", 26, "Syntax error: unexpected end of the expression"),
        ("package + 'a'", 0, "Syntax error: reserved identifier 'package'"),
        ("'\\q'", 1, "Syntax error: unknown escape '\\q'"),
        ("1 == 1.0 ? 'a' : 'b'", 0, "found no matching overload for '_==_' applied to '(int, double)'"),
        ("(((target.name))", 0, "Syntax error: '(' is never closed"),
        ("[1].map(k, .k)[0]", 12, "undeclared reference to '.k'"),
        ("target.name)", 11, "Syntax error: ')' closes nothing"),
    ],
)
def test_what_is_refused_is_refused_at_its_place(text: str, offset: int, message: str) -> None:
    found = Expressions(Limits()).compile(text)

    assert isinstance(found, Failure)
    assert (found.message, found.offset) == (message, offset)


@BOTH
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("target.labels.missing", "no such key: missing"),
        ("target.spec.x", "no such key: spec"),
        ("repository.name", "no such attribute(s): repository"),
        ("target.labels", "type conversion error from map to 'string'"),
        ("dyn(1)", "unsupported type conversion from 'int' to string"),
        ("string(1/0)", "division by zero"),
        ("target.labels.n ? 'a' : 'b'", "no such overload"),
    ],
)
def test_failures_are_told_in_the_words_of_porch(engine: EngineName, text: str, message: str) -> None:
    assert run(text, engine) == Failure(message)


@BOTH
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("target.labels.Region.lowerAscii()", "eu"),
        ("target.labels.Region.replace('E', 'A')", "AU"),
        ("'a,b'.split(',')[1]", "b"),
        ("['a', 'b'].join('-')", "a-b"),
        ("'abc'.substring(1)", "bc"),
        ("' a '.trim()", "a"),
    ],
)
def test_the_strings_extension_is_there_for_those_who_ask(engine: EngineName, text: str, value: str) -> None:
    assert run(text, engine, STRINGS) == value
    assert isinstance(run(text, engine), Failure)


@BOTH
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("'''a\nb'''", "a\nb"),
        ("r'\\n'", "\\n"),
        ('"\\x41\\u00e9\\U0001F600\\101"', "Aé😀A"),
        ("['a', 'b',][1]", "b"),
        ("{'a': 'b',}.a", "b"),
        (".target.name", "t"),
        ("['x'].map(target, .target.name + target)[0]", "tx"),
        ("'a' // why", "a"),
        ("google.protobuf.StringValue{value: 'x'}", "x"),
        ("string(true) + string(2.0) + string(1.5e10) + string(-0.0)", "true21.5e+10-0"),
        ("false && target.nope ? 'a' : 'b'", "b"),
        ("target.nope || true ? 'a' : 'b'", "a"),
        ("[2, 0].exists(n, 4 / n == 2) ? 'a' : 'b'", "a"),
    ],
)
def test_values(engine: EngineName, text: str, value: str) -> None:
    assert run(text, engine) == value


@BOTH
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("target.labels.map(k, k)[0]", "Region"),
        ("target.labels.filter(k, k == 'n')[0]", "n"),
        ("[target.labels.map(k, k)][0][1]", "n"),
        ("target.labels.map(k, k) == ['Region', 'n'] ? 'sorted' : 'not'", "sorted"),
        ("dyn(target.labels.map(k, target.labels[k]))[1]", "3"),
        ("{'b': 1, 'a': 2}.map(k, k + '!')[0]", "a!"),
    ],
)
def test_where_the_order_of_keys_shows_they_are_sorted(engine: EngineName, text: str, value: str) -> None:
    """Evaluated once in cel-cpp, these give another answer in every process."""
    assert run(text, engine) == value


@pytest.mark.parametrize(
    ("text", "is_sorted"),
    [
        ("target.labels.map(k, k)[0]", True),
        ("[target.labels.map(k, k)].exists(l, 'n' in l) ? 'a' : 'b'", True),
        ("string(size(target.labels.map(k, k)))", False),
        ("'n' in target.labels.map(k, k) ? 'a' : 'b'", False),
        ("target.labels.filter(k, k != '').exists(k, k == 'n') ? 'a' : 'b'", False),
        ("['b', 'a'].map(k, k)[0]", False),
    ],
)
def test_only_what_shows_the_order_is_sorted(text: str, is_sorted: bool) -> None:
    program = Expressions(Limits()).compile(text)

    assert isinstance(program, Program)
    assert program.is_sorted is is_sorted


def test_a_program_is_compiled_once() -> None:
    expressions = Expressions(Limits())

    assert expressions.compile("target.name") is expressions.compile("target.name")


def test_a_literal_is_known_without_evaluating() -> None:
    program = Expressions(Limits()).compile("'edge'")

    assert isinstance(program, Program)
    assert program.constant == "edge"


@pytest.mark.parametrize("terms", [31, 32])
def test_more_than_31_chained_terms_are_refused(terms: int) -> None:
    found = Expressions(Limits()).compile("+".join(["'a'"] * (terms + 1)))

    assert isinstance(found, Failure) == (terms > 31)


@pytest.mark.parametrize(
    ("value", "text"),
    [(1.0, "1"), (0.1, "0.1"), (1e6, "1e+06"), (123456.0, "123456"), (1e-5, "1e-05"), (0.0001, "0.0001")],
)
def test_doubles_are_written_as_c_writes_them(value: float, text: str) -> None:
    assert format_double(value) == text


def test_without_its_wheel_the_portable_engine_takes_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "reconciler.expand.expressions.google", None)

    expressions = Expressions(Limits())

    assert expressions.engine == "portable"
    assert expressions.run("target.name", TARGET) == "t"
