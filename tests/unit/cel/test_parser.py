"""Parsing of CEL: how operators bind, where a node starts, and what is refused where."""

import json
import random

import pytest

from reconciler.cel import Environment, Failure
from reconciler.cel.parser import parse
from reconciler.cel.syntax import Call, CelError, ListOf, Literal, MapOf, Name, Node, Select
from reconciler.policy import Limits


def in_parentheses(node: Node) -> str:
    """Return an expression of operators with parentheses around each of them."""
    match node:
        case Literal(value=value):
            return json.dumps(value)
        case Name(name=name):
            return name
        case Select(operand=operand, field=field, test=False):
            return f"({in_parentheses(operand)}.{field})"
        case ListOf(items=items):
            return f"[{', '.join(map(in_parentheses, items))}]"
        case MapOf(entries=entries):
            pairs = (f"{in_parentheses(key)}: {in_parentheses(value)}" for key, value in entries)
            return f"{{{', '.join(pairs)}}}"
        case Call(function=function, arguments=arguments) if "_" in function:
            operator = "{}[{}]" if function == "_[_]" else function.replace("_", "{}").replace("}{", "} {")
            return f"({operator.format(*map(in_parentheses, arguments))})"
    raise AssertionError(node)


@pytest.mark.parametrize(
    ("text", "binding"),
    [
        ("a + b * c - d", "((a+(b*c))-d)"),
        ("a || b && c || d", "((a||(b&&c))||d)"),
        ("a < b == c in d", "(((a<b)==c)ind)"),
        ("a ? b : c ? d : e", "(a?b:(c?d:e))"),
        ("!!a && -b.c[d] < e", "((!(!a))&&((-((b.c)[d]))<e))"),
        ("(a ? b : c) ? d : e", "((a?b:c)?d:e)"),
        ("a -1 - -1", "((a-1)--1)"),
        ("-1.5e3 + - 2 + 0x1F", "((-1500.0+(-2))+31)"),
        ("[1, [], {'k': a,},].b", '([1, [], {"k": a}].b)'),
        (".a.true_ // is a name", "(.a.true_)"),
    ],
)
def test_operators_bind_as_the_grammar_says(text: str, binding: str) -> None:
    shown = in_parentheses(parse(text, Limits()))

    assert shown.replace("?", " ? ").replace(" ? ", "?") == binding


def test_parentheses_that_show_how_operators_bind_change_no_value() -> None:
    random_ = random.Random(5)
    expressions = Environment(Limits())

    def numbers() -> str:
        terms = [f"{random_.choice(('', '-', '- '))}{random_.randint(1, 9)}" for _ in range(3)]
        return "{} {} {} {} {}".format(*_joined(terms, "+-*/%", random_))

    for _ in range(200):
        tests = [f"{numbers()} {random_.choice(('<', '>=', '==', '!='))} {numbers()}" for _ in range(3)]
        tests[1] = f"!({tests[1]})"
        condition = "{} {} {} {} {}".format(*_joined(tests, ("&&", "||"), random_))
        text = f"{condition} ? 'a' : {tests[0]} ? 'b' : 'c'"
        value = expressions.run(text, {})

        assert not isinstance(value, Failure), text
        assert expressions.run(in_parentheses(parse(text, Limits())), {}) == value, text


def _joined(terms: list[str], operators: str | tuple[str, ...], random_: random.Random) -> list[str]:
    joined = [terms[0]]
    for term in terms[1:]:
        joined += [random_.choice(operators), term]
    return joined


@pytest.mark.parametrize(
    ("text", "offset"),
    [(" (a) + b", 1), (" -a", 1), (" a.b", 3), (" a [0]", 1), (" a.f()", 3), (" .f()", 2), (" has(a.b)", 1)],
)
def test_a_node_starts_where_its_text_does(text: str, offset: int) -> None:
    assert parse(text, Limits()).offset == offset


@pytest.mark.parametrize(
    ("text", "offset", "unexpected"),
    [
        ("a b", 2, "b"),
        ("str ing(x)", 4, "ing"),
        ("a.in", 2, "in"),
        ("a[1,]", 3, ","),
        ("f(a,)", 4, ")"),
        ("[,]", 1, ","),
        ("{,}", 1, ","),
        ("{1 2}", 3, "2"),
        ("a ? b ? c : d : e", 6, "?"),
        ("a.5", 1, ".5"),
        ("1.", 2, "end of the expression"),
        ("", 0, "end of the expression"),
        ("x{1: 2}", 2, "1"),
    ],
)
def test_first_token_that_does_not_fit_is_named(text: str, offset: int, unexpected: str) -> None:
    with pytest.raises(CelError) as raised:
        parse(text, Limits())

    assert raised.value.failure == Failure(f"Syntax error: unexpected {unexpected}", offset)


@pytest.mark.parametrize(
    "level",
    [
        "!{}",
        "-{}",
        "({})",
        "[{}]",
        "{{'k': {}}}",
        "f({})",
        "a[{}]",
        "a ? b : {}",
        "{} + a",
        "{}.f()",
        "x{{y: {}}}",
    ],
)
def test_levels_of_nesting_are_limited(level: str) -> None:
    text = "a"
    for _ in range(8):
        text = level.format(text)

    parse(text, Limits(expression_depth=8))
    with pytest.raises(CelError, match="nested or chained"):
        parse(text, Limits(expression_depth=7))
