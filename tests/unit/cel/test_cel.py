"""Compiling and evaluating CEL: refusals with their place, failures in the words of Porch, values."""

import sys
import time

import pytest
from msgspec.structs import replace

from reconciler.base.errors import Exit, MissingEngineError
from reconciler.cel import EXTENSIONS, Environment, Failure, Program
from reconciler.cel.check import MAP_ORDER
from reconciler.policy import Limits

TARGET = {"target": {"name": "t", "labels": {"Region": "EU", "n": "3"}}}


PLUS = "found no matching overload for '_+_' applied to '({}, string)'"
TURNS, GROWS = "Comprehensions may turn more than 5000 times", "A value may grow beyond 100000 characters"
LONG = "k + target.a + target.b + target.c + target.d + target.e + target.f + target.g"


def run(text: str, *extensions: str) -> str | Failure:
    return Environment(Limits(), frozenset(extensions)).run(text, TARGET)


@pytest.mark.parametrize(
    ("text", "offset", "message"),
    [
        ("'a' + cluster.name", 6, "undeclared reference to 'cluster'"),
        ("repoDefault + 1", 12, "found no matching overload for '_+_' applied to '(string, int)'"),
        ("['a', 1][0]", 6, "expected type 'string' but found 'int'"),
        ("[true, 'a'][0]", 7, "expected type 'bool' but found 'string'"),
        ("[['a'], [1]][0]", 8, "expected type 'list(string)' but found 'list(int)'"),
        ("{'a': 'b', 'c': 2}.a", 16, "expected type 'string' but found 'int'"),
        ("['a'].map(x, [1].map(y, [x, y]))[0][0][0]", 28, "expected type 'string' but found 'int'"),
        ("repoDefault.name", 11, "type 'string' does not support field selection"),
        ("target.name.lowerAscii()", 12, "undeclared reference to 'lowerAscii'"),
        ("cel.bind(x, 'a', x)", 0, "undeclared reference to 'cel'"),
        ("'é' +\n // it's\n cluster . name", 16, "undeclared reference to 'cluster'"),
        ("has(target)", 4, "has() argument must be a field selection"),
        ("[1].map(a.b, a)", 9, "map() variable name must be a simple identifier"),
        ("'a' == target.name ? 'x' :", 26, "Syntax error: unexpected end of the expression"),
        ("str ing(target)", 4, "Syntax error: mismatched input 'ing'"),
        ("package + 'a'", 0, "reserved identifier: package"),
        ("'\\q'", 0, "Syntax error: token recognition error at: ''\\q'"),
        ("'\ud800'", 1, "Syntax error: an unpaired surrogate is no character"),
        ("target.`b`", 7, "Syntax error: unexpected '`'"),
        ("1 == 1.0 ? 'a' : 'b'", 2, "found no matching overload for '_==_' applied to '(int, double)'"),
        ("string(type('a'))", 6, "found no matching overload for 'string' applied to '(type(string))'"),
        ("(((target.name))", 16, "Syntax error: missing ')' at '<EOF>'"),
        ("string(timestamp('2024-01-01T00:00:00Z') + 'a')", 41, PLUS.format("timestamp")),
        ("'a b' ==\n  ('b' + 1)", 16, PLUS.format("string").replace("string)", "int)")),
        ("[1].map(k, .k)[0]", 12, "undeclared reference to '.k'"),
        ("timestamp(1).getHours('UTC') == 1 ? 'a' : 'b'", 13, "getHours() takes no time zone"),
        ("duration('1s').getMilliseconds() == 1", 15, "A duration has no getMilliseconds()"),
        ("google.protobuf.Any{}", 0, "undeclared reference to 'google.protobuf.Any'"),
        ("(" * 400 + "'a'" + ")" * 400, 0, "More than 31 terms are nested or chained"),
        ("(repoDefault == 'a')", 0, "type conversion error from bool to 'string'"),
    ],
)
def test_refused_expression_has_an_offset(text: str, offset: int, message: str) -> None:
    found = Environment(Limits()).compile(text)

    assert isinstance(found, Failure)
    assert (found.message, found.offset) == (message, offset)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("target.labels.missing", "no such key: missing"),
        ("target.spec.x", "no such key: spec"),
        ("repository.name", "no such attribute(s): repository"),
        ("target.labels", "type conversion error from map to 'string'"),
        ("dyn(1.5)", "type conversion error from Double to 'string'"),
        ("dyn(b'x')", "type conversion error from Bytes to 'string'"),
        ("dyn(true)", "type conversion error from bool to 'string'"),
        ("dyn(1)", "unsupported type conversion from 'int' to string"),
        ("string(1/0)", "division by zero"),
        ("target.labels.n ? 'a' : 'b'", "no such overload"),
    ],
)
def test_failures_have_the_messages_of_porch(text: str, message: str) -> None:
    assert run(text) == Failure(message)


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
def test_strings_extension_is_optional(text: str, value: str) -> None:
    assert run(text, "strings") == value
    assert isinstance(run(text), Failure)


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
        ("string(google.protobuf.UInt32Value{value: 7u})", "7"),
        ("google.protobuf.Value{string_value: 'x'} + 'y'", "xy"),
        ("google.protobuf.Value{bool_value: true} ? 'a' : 'b'", "a"),
        ("['b', 'a'].map(k, k == 'a', k + '!')[0]", "a!"),
        ("['b'].filter(k, target.labels.n == dyn('3'))[0]", "b"),
        ("['b'].filter(k, dyn(true))[0]", "b"),
        ("string(true) + string(2.0) + string(1.5e10) + string(-0.0)", "true21.5e+10-0"),
        ("[type(1), type('a')].exists(t, t == int) ? 'a' : 'b'", "a"),
        ("[] == [] && {} == {} ? 'a' : 'b'", "a"),
        ("false && target.nope ? 'a' : 'b'", "b"),
        ("target.nope || true ? 'a' : 'b'", "a"),
        ("[2, 0].exists(n, 4 / n == 2) ? 'a' : 'b'", "a"),
    ],
)
def test_values(text: str, value: str) -> None:
    assert run(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "target.labels.map(k, k)[0]",
        "target.labels.filter(k, k == 'n')[0]",
        "[target.labels.map(k, k)][0][1]",
        "[target.labels.map(k, k)].exists(l, 'n' in l) ? 'a' : 'b'",
        "target.labels.map(k, k) == ['Region', 'n'] ? 'sorted' : 'not'",
        "dyn(target.labels.map(k, target.labels[k]))[1]",
        "{'b': 1, 'a': 2}.map(k, k + '!')[0]",
        "['a'].map(x, target.labels.map(k, k))[0][0]",
    ],
)
def test_value_that_depends_on_map_order_is_refused(text: str) -> None:
    refused = run(text)

    assert isinstance(refused, Failure)
    assert refused.message == MAP_ORDER
    assert refused.offset is not None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("string(size(target.labels.map(k, k)))", "2"),
        ("'n' in target.labels.map(k, k) ? 'a' : 'b'", "a"),
        ("target.labels.filter(k, k != '').exists(k, k == 'n') ? 'a' : 'b'", "a"),
        ("target.labels.all(k, k != '') ? 'a' : 'b'", "a"),
        ("['b', 'a'].map(k, k)[0]", "b"),
    ],
)
def test_test_of_all_keys_of_a_map_is_accepted(text: str, value: str) -> None:
    assert run(text) == value


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (f"target.labels.map(k, {LONG})[0]", GROWS),
        (f"target.labels.filter(k, {LONG} != '').exists(k, k == 'n') ? 'a' : 'b'", ""),
        (f"['a'].map(k, {LONG})[0]", ""),
        ("target.a.all(k, target.b.all(l, k == l)) ? 'a' : 'b'", ""),
        ("[1, 2].all(k, target.a.all(l, target.b.all(m, m == l))) ? 'a' : 'b'", TURNS),
        ("target.a.replace(target.b, target.c).replace(target.d, target.e)", GROWS),
        ("target.a.replace('b', 'c')", ""),
        ("'a'.replace('b', target.a + target.b)", GROWS),
    ],
)
def test_what_may_grow_beyond_all_bounds_is_refused_before_it_is_evaluated(text: str, problem: str) -> None:
    found = Environment(Limits(), EXTENSIONS).compile(text)

    assert (found.message if isinstance(found, Failure) else "") == problem


def test_a_program_is_compiled_once() -> None:
    expressions = Environment(Limits())

    assert expressions.compile("target.name") is expressions.compile("target.name")


def test_literal_is_a_constant_program() -> None:
    program = Environment(Limits()).compile("'edge'")

    assert isinstance(program, Program)
    assert program.constant == "edge"


@pytest.mark.parametrize("terms", [31, 32])
def test_more_than_31_chained_terms_are_refused(terms: int) -> None:
    found = Environment(Limits()).compile("+".join(["'a'"] * (terms + 1)))

    assert isinstance(found, Failure) == (terms > 31)


@pytest.mark.parametrize(
    "level",
    [
        *("!{}", "-{}", "({})", "[{}]", "{{'k': {}}}", "string({})", "target[{}]", "{}.x"),
        *("target ? target : {}", "{} + target", "{}.map(k, target)", "target.map(k, {})"),
    ],
)
def test_levels_of_nesting_are_limited(level: str) -> None:
    text = "target"
    for _ in range(8):
        text = level.format(text)
    refused = [Environment(Limits(expression_depth=depth)).compile(text) for depth in (7, 8)]

    assert ["nested or chained" in str(failure) for failure in refused] == [True, False]


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (Limits(expression_depth=1), "More than 1 terms are nested or chained"),
        (Limits(expression_cost=2), "The expression may cost more than 2 steps"),
        (Limits(expression_cost=13), "The expression may cost more than 13 steps"),
        (Limits(expression_cost=14), ""),
    ],
)
def test_names_and_texts_have_the_limits_of_all_expressions(limits: Limits, reason: str) -> None:
    found = Environment(limits).compile("'a' + target.name + 'b'")

    assert (found.message if isinstance(found, Failure) else "") == reason


@pytest.mark.parametrize(
    "path",
    [
        *("repository.name", "repoDefault", "target", "target.labels", "target.labels.a", "upstream.a.b"),
        *("nobody", "nobody.name", "package", "target.in", "target.true", "repoDefault.name", "true", "null"),
        *("in", "int", "google.protobuf.Value", "a1._x", "target.labels.x1.Y2"),
        *("'a-' + target.name", "'a'+target.name+\"-\"+ repoDefault", "target + target.name", "'a' + 'b'"),
        *(
            "true + 'a'",
            "'a' + nobody.name",
            "repoDefault + null",
            "b'a' + repoDefault",
            "r'a' + repoDefault",
        ),
    ],
)
def test_names_and_texts_are_judged_as_between_parentheses(path: str) -> None:
    """They alone are not parsed for the checks."""
    alone, checked = (Environment(Limits()).compile(text) for text in (path, f"({path})"))

    assert type(alone) is type(checked)
    if isinstance(alone, Failure) and isinstance(checked, Failure):
        moved = checked.is_no_string or checked.offset is None
        assert alone == replace(checked, offset=checked.offset if moved else checked.offset - 1)


@pytest.mark.parametrize(
    "text", ["'" + "\\101" * 900 + "'", "r'" + "\\d" * 900 + "' + 'x'", "'" + "\\101" * 900]
)
def test_strings_of_backslashes_are_checked_soon(text: str) -> None:
    start = time.process_time()
    Environment(Limits()).compile(text.format("\\101" * 900))

    assert time.process_time() - start < 2


@pytest.mark.parametrize("call", ["format([target.labels])", "quote([])", "reverse()"])
def test_strings_extension_has_no_more_than_is_documented(call: str) -> None:
    found = Environment(Limits(), EXTENSIONS).compile(f"'%s'.{call}")

    assert found == Failure(f"undeclared reference to '{call.partition('(')[0]}'", 5)


def test_missing_evaluator_is_an_error_with_a_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "reconciler.cel.engine", None)

    with pytest.raises(MissingEngineError) as caught:
        Environment(Limits())

    assert caught.value.exit_code is Exit.USAGE
    assert str(caught.value) == "CEL expressions cannot be evaluated: cel-expr-python is not installed"
    assert "wheels" in caught.value.hint
