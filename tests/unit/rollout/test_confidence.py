"""Confidence in an upstream revision: when it is enough, and its words."""

import pytest

from reconciler.confidence import UNTRIED, Confidence
from reconciler.policy.confidence import RequiredConfidence
from reconciler.rollout.confidence import confidence_text, judge_confidence
from reconciler.rollout.model import GateResult, Verdict

DAY_S = 86_400
NOON = 1_767_355_200
"""2026-01-02 12:00 UTC."""
PASSED = GateResult(Verdict.PASSED)


def waiting(message: str) -> GateResult:
    return GateResult(Verdict.WAITING, message)


def failed(message: str) -> GateResult:
    return GateResult(Verdict.FAILED, message)


@pytest.mark.parametrize(
    ("confidence", "required", "result"),
    [
        (UNTRIED, RequiredConfidence(), waiting("0 packages run it, and 1 must")),
        (Confidence((NOON,), total=1), RequiredConfidence(), PASSED),
        (Confidence((NOON,), total=1), RequiredConfidence(2), waiting("1 package runs it, and 2 must")),
        (
            Confidence((NOON - 2 * DAY_S, NOON - DAY_S), total=2),
            RequiredConfidence(2, age=2 * DAY_S),
            waiting("2 packages will have run it for long enough on 2026-01-03 12:00 UTC"),
        ),
        (Confidence((NOON - 2 * DAY_S, NOON - DAY_S), total=2), RequiredConfidence(1, age=2 * DAY_S), PASSED),
        (
            Confidence((NOON - 2 * DAY_S + 1,), total=1),
            RequiredConfidence(1, age=2 * DAY_S),
            waiting("1 package will have run it for long enough on 2026-01-02 12:00 UTC"),
        ),
        (
            Confidence((NOON, NOON), reverted=1, total=3),
            RequiredConfidence(),
            failed("1 of 3 packages went back from it, and at most 0 may"),
        ),
        (Confidence((NOON, NOON), reverted=1, total=3), RequiredConfidence(max_reverted="34%"), PASSED),
        (
            Confidence((NOON, NOON), reverted=1, total=3),
            RequiredConfidence(max_reverted="33%"),
            failed("1 of 3 packages went back from it, and at most 0 may"),
        ),
        (Confidence((NOON,), conflicts=1, total=1), RequiredConfidence(), PASSED),
        (
            Confidence((NOON, NOON), conflicts=2, total=2),
            RequiredConfidence(max_conflicts="1"),
            failed("2 of 2 packages met a conflict with it, and at most 1 may"),
        ),
        # What failed is told before what is short: waiting alone would not help.
        (
            Confidence(reverted=1, total=1),
            RequiredConfidence(),
            failed("1 of 1 package went back from it, and at most 0 may"),
        ),
    ],
)
def test_confidence_is_judged(
    confidence: Confidence, required: RequiredConfidence, result: GateResult
) -> None:
    assert judge_confidence(confidence, required, NOON) == result


@pytest.mark.parametrize(
    ("confidence", "text"),
    [
        (UNTRIED, "new to this fleet"),
        (
            Confidence((NOON,), total=1),
            "runs in 1 package since 2026-01-02; none went back, none met a conflict",
        ),
        (
            Confidence((NOON, NOON + DAY_S), reverted=2, conflicts=3, total=4),
            "runs in 2 packages, the first since 2026-01-02; 4 had it, 2 went back, 3 met a conflict",
        ),
        (
            Confidence(reverted=1, total=1),
            "runs in 0 packages; 1 had it, 1 went back, none met a conflict",
        ),
    ],
)
def test_confidence_has_words_that_need_no_clock(confidence: Confidence, text: str) -> None:
    assert confidence_text(confidence) == text
