"""Solve a resolution problem with a SAT solver: the canonical assignment, or a minimal conflict."""

from dataclasses import dataclass

from reconciler.dependencies.solve.problem import (
    BudgetExceeded,
    Cause,
    ResolutionProblem,
    SolverOutcome,
    Unsatisfiable,
)
from reconciler.dependencies.solve.sat.canonical import lexicographic_assignment, minimize_changes
from reconciler.dependencies.solve.sat.formula import encode
from reconciler.dependencies.solve.sat.solver import BudgetError, SatSolver

__all__ = ["solve"]


def solve(question: ResolutionProblem) -> SolverOutcome:
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
        with SatSolver(encode(question), question.budget) as oracle:
            if oracle.ask():
                minimize_changes(oracle)
                return lexicographic_assignment(question, oracle)
    except BudgetError as error:
        return BudgetExceeded(error.steps)
    return _why(question)


def _why(question: ResolutionProblem) -> Unsatisfiable:
    facts, minimal = find_conflict(question)
    return Unsatisfiable(facts, minimal)


def find_conflict(question: ResolutionProblem) -> tuple[tuple[Cause, ...], bool]:
    """Return facts without any one of which the question had an answer, and whether that was proven.

    Of several such sets, facts that come late in the question's order are avoided first.

    Source: U. Junker, QuickXplain (2004).
    """
    facts = question.causes()
    with SatSolver(encode(question, guarded=True), question.budget) as oracle:
        search = _Search(oracle, facts)
        try:
            return tuple(search.explain([], False, list(facts))), True
        except BudgetError:
            return tuple(search.smallest), False


_TRIES = 300
"""A conflict of more facts than this can separate is not one that a person reads."""


@dataclass(slots=True)
class _Search:
    oracle: SatSolver
    smallest: tuple[Cause, ...]
    tries: int = 0

    def explain(self, background: list[Cause], changed: bool, facts: list[Cause]) -> list[Cause]:  # noqa: FBT001 - QuickXplain's own
        if changed and self._contradict(background):
            return []
        if len(facts) == 1:
            return facts
        half = len(facts) // 2
        first, second = facts[:half], facts[half:]
        late = self.explain([*background, *first], bool(first), second)
        early = self.explain([*background, *late], bool(late), first)
        return [*early, *late]

    def _contradict(self, facts: list[Cause]) -> bool:
        self.tries += 1
        if self.tries > _TRIES:
            raise BudgetError(_TRIES)
        guards = self.oracle.formula.guards
        contradiction = not self.oracle.ask(*(guards[fact] for fact in facts if fact in guards))
        if contradiction:
            core = set(self.oracle.core())
            named = tuple(fact for fact in self.smallest if guards.get(fact) in core)
            self.smallest = named if len(named) < len(self.smallest) else self.smallest
        return contradiction
