"""What passes the static check has the same answer in both engines, which is why it may be strict."""

import os
import secrets
from collections import Counter
from collections.abc import Iterator

import pytest

from reconciler.expand.expressions import EngineName, Expressions, Failure, Program
from reconciler.expand.expressions.nodes import Call, Macro, Node, Select, children
from reconciler.expand.expressions.signatures import STANDARD, STRING_EXTENSION, STRINGS
from reconciler.expand.expressions.tree import parse
from reconciler.policy import Limits
from tests.support.cel_expressions import INPUTS, MACROS, Generator
from tests.support.conformance import cases_of
from tests.support.hostile import HOSTILE
from tests.support.notes import note

FUZZ = int(os.environ.get("RECONCILER_FUZZ", "1"))
SEED = int(os.environ.get("RECONCILER_SEED") or (secrets.randbits(32) if FUZZ > 1 else 20240229))
EXPRESSIONS = 7_000 * FUZZ
EACH = 100
FAILING_SHARE = 0.3
ACCEPTED_SHARE = 0.95


def names_in(node: Node) -> Iterator[str]:
    """Yield every operator, function and macro of an expression."""
    match node:
        case Call(function=function):
            yield function
        case Macro(macro=macro):
            yield macro
        case Select(test=True):
            yield "has"
    for child in children(node):
        yield from names_in(child)


def run_both(
    extensions: frozenset[str], count: int, seed: int
) -> tuple[Counter[str], Counter[str], list[str]]:
    """Generate until `count` expressions passed the check; return uses, outcomes and disagreements."""
    google = Expressions(Limits(), extensions, EngineName.GOOGLE)
    portable = Expressions(Limits(), extensions, EngineName.PORTABLE)
    if google.engine == portable.engine:
        pytest.skip("cel-expr-python has no wheel for this platform: there is only one engine to ask")
    generator = Generator(seed, extension=bool(extensions))
    roots = generator.roots()
    uses: Counter[str] = Counter()
    outcomes: Counter[str] = Counter()
    different = []
    bound = google.bind(INPUTS), portable.bind(INPUTS)
    while outcomes["value"] + outcomes["failure"] < count:
        text = generator.expression(roots[outcomes.total() % len(roots)])
        theirs, ours = google.compile(text), portable.compile(text)
        if isinstance(ours, Failure):
            outcomes["refused"] += 1
            continue
        if ours.is_sorted:
            outcomes["sorted"] += 1
            continue
        uses.update(names_in(parse(text, Limits())))
        if not isinstance(theirs, Program):
            different.append(f"{text}: refused only by cel-cpp: {theirs}")
            break
        one, other = google.evaluate(theirs, bound[0]), portable.evaluate(ours, bound[1])
        failed = isinstance(one, Failure)
        outcomes["failure" if failed else "value"] += 1
        if failed != isinstance(other, Failure) or (not failed and one != other):
            different.append(f"{text}: {one!r} and {other!r}")
    return uses, outcomes, different


@pytest.mark.slow
def test_both_engines_agree_on_value_or_failure() -> None:
    uses, outcomes, different = run_both(frozenset(), EXPRESSIONS, SEED)

    note(f"CEL in both engines, seed {SEED}: {dict(outcomes)}")
    ordered = sorted(uses, key=uses.__getitem__)
    note("CEL in both engines, uses: " + ", ".join(f"{name} {uses[name]}" for name in ordered))
    assert different == []
    assert {name: uses[name] for name in (*STANDARD, *MACROS, "has") if uses[name] < EACH} == {}
    assert outcomes["failure"] >= FAILING_SHARE * (outcomes["failure"] + outcomes["value"])


@pytest.mark.slow
def test_both_engines_agree_on_the_strings_extension() -> None:
    uses, _, different = run_both(frozenset({STRINGS}), 2_500, SEED + 1)

    assert different == []
    assert min(uses[name] for name in STRING_EXTENSION) >= EACH // 4


@pytest.mark.slow
def test_damaged_expressions_raise_nothing_and_mean_the_same_in_both_engines() -> None:
    extensions = frozenset({STRINGS})
    engines = [Expressions(Limits(), extensions, name) for name in (EngineName.GOOGLE, EngineName.PORTABLE)]
    if engines[0].engine == engines[1].engine:
        pytest.skip("cel-expr-python has no wheel for this platform: there is only one engine to ask")
    generator = Generator(SEED + 2, extension=True)
    roots = generator.roots()
    different = []

    for number in range(5_000 * FUZZ):
        text = generator.damaged(roots[number % len(roots)])
        one, other = (engine.run(text, INPUTS) for engine in engines)
        if one != other and not (isinstance(one, Failure) and isinstance(other, Failure)):
            different.append(f"{text!r}: {one!r} and {other!r}")

    assert different == []


def test_what_porch_accepts_passes_the_check() -> None:
    accepted = [c["expr"] for c in cases_of("porch", "CelExpression") if c["expectedError"] is None]
    if not accepted:
        pytest.skip("no vectors of kind CelExpression in the folder that RECONCILER_CONFORMANCE names")
    expressions = Expressions(Limits())

    refused = [text for text in accepted if isinstance(expressions.compile(text), Failure)]

    assert len(refused) <= (1 - ACCEPTED_SHARE) * len(accepted), refused


@pytest.mark.parametrize("engine", [EngineName.GOOGLE, EngineName.PORTABLE])
@pytest.mark.parametrize(("name", "text", "inputs"), HOSTILE, ids=[name for name, _, _ in HOSTILE])
def test_hostile_expressions_are_answered_in_words(
    engine: EngineName, name: str, text: str, inputs: dict[str, object]
) -> None:
    result = Expressions(Limits(), engine=engine).run(text, inputs)

    if isinstance(result, Failure):
        assert result.message
        assert "\n" not in result.message
    else:
        assert len(result) <= 1, name
