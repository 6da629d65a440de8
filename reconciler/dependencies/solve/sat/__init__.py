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


def solve(problem: ResolutionProblem) -> SolverOutcome:
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
        with SatSolver(encode(problem), problem.budget) as solver:
            if solver.ask():
                minimize_changes(solver)
                return lexicographic_assignment(problem, solver)
    except BudgetError as error:
        return BudgetExceeded(error.steps)
    return _why(problem)


def _why(problem: ResolutionProblem) -> Unsatisfiable:
    facts, minimal = find_conflict(problem)
    return Unsatisfiable(facts, minimal)


def find_conflict(problem: ResolutionProblem) -> tuple[tuple[Cause, ...], bool]:
    """Return facts without any one of which the question had an answer, and whether that was proven.

    Of several such sets, facts that come late in the question's order are avoided first.

    Source: U. Junker, QuickXplain (2004).
    """
    causes = problem.causes()
    with SatSolver(encode(problem, guarded=True), problem.budget) as solver:
        search = _Search(solver, causes)
        try:
            return tuple(search.explain([], False, list(causes))), True
        except BudgetError:
            return tuple(search.smallest), False


_TRIES = 300
"""A conflict of more facts than this can separate is not one that a person reads."""


@dataclass(slots=True)
class _Search:
    solver: SatSolver
    smallest: tuple[Cause, ...]
    tries: int = 0

    def explain(self, background: list[Cause], changed: bool, causes: list[Cause]) -> list[Cause]:  # noqa: FBT001 - QuickXplain's own
        if changed and self._contradict(background):
            return []
        if len(causes) == 1:
            return causes
        half = len(causes) // 2
        first, second = causes[:half], causes[half:]
        late = self.explain([*background, *first], bool(first), second)
        early = self.explain([*background, *late], bool(late), first)
        return [*early, *late]

    def _contradict(self, causes: list[Cause]) -> bool:
        self.tries += 1
        if self.tries > _TRIES:
            raise BudgetError(_TRIES)
        guards = self.solver.formula.guards
        contradiction = not self.solver.ask(*(guards[cause] for cause in causes if cause in guards))
        if contradiction:
            core = set(self.solver.core())
            named = tuple(cause for cause in self.smallest if guards.get(cause) in core)
            self.smallest = named if len(named) < len(self.smallest) else self.smallest
        return contradiction
