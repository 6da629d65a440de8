"""Laws of CEL evaluation: nothing raises, and an accepted expression has one answer in every process."""

import json
import os
import random
import secrets
import subprocess
import sys
from collections import Counter

import pytest

from reconciler.cel import EXTENSIONS, STRING_FUNCTIONS, Environment, Failure
from reconciler.policy import Limits
from tests.support.cel_expressions import INPUTS, MACROS, STANDARD, Generator, draw_map_expression
from tests.support.conformance import absence, cases_of, skip_absent
from tests.support.hostile import HOSTILE
from tests.support.notes import note

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
