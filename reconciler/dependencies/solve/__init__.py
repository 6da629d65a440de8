"""The solver behind our encoding: from a question to its one canonical answer, or to why there is none."""

from reconciler.dependencies.answer import Outcome, OutOfSteps, Unsatisfiable
from reconciler.dependencies.question import Question
from reconciler.dependencies.solve.conflict import find_conflict
from reconciler.dependencies.solve.encode import encode
from reconciler.dependencies.solve.keep import keep_locked
from reconciler.dependencies.solve.oracle import BudgetError, Oracle
from reconciler.dependencies.solve.walk import walk

__all__ = ["solve"]


def solve(question: Question) -> Outcome:
    """Answer a question canonically: the same question has the same answer, whatever the solver does inside.

    Among all valid answers: as few locked pins change as possible, and of those sets of kept
    pins the one that keeps the pins with the least names. Then demands are met one by one, the
    user's first, what has one way before what has several, optional ones last: each takes the
    first of its ways, and each new instance the first of its versions, that some valid answer has.
    Ways are tried in the order: the locked alternative, what is there already, the alternatives
    as written, and within one what is locked before what is new.

    Deterministic: bounded by the question's budget of conflicts, never by time.
    """
    try:
        with Oracle(encode(question), question.budget) as oracle:
            if oracle.ask():
                keep_locked(oracle)
                return walk(question, oracle)
    except BudgetError as error:
        return OutOfSteps(error.steps)
    return _why(question)


def _why(question: Question) -> Unsatisfiable:
    facts, minimal = find_conflict(question)
    return Unsatisfiable(facts, minimal)
