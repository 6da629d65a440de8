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
    """Solve a problem canonically: equal problems have equal results, whatever the solver does inside.

    Among all valid assignments: as few locked versions change as possible, and of those sets of kept
    versions the one with the lowest names. Then requirements are decided one by one, the user's first,
    those with one alternative before those with several, optional ones last: each takes its first
    alternative, and each new instance its first version, that some valid assignment has. Alternatives are
    tried in the order: locked, existing, as written, and within one locked before new.

    Deterministic: bounded by the problem's budget of conflicts, never by time.
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
"""Limit of solver calls to minimize one conflict; a larger conflict is reported without minimizing it."""


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
