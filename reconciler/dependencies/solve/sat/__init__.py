"""Solve a resolution problem with a SAT solver: the canonical assignment, or a minimal conflict."""

from reconciler.dependencies.solve.problem import (
    Assignment,
    BudgetExceeded,
    ResolutionProblem,
    SolverOutcome,
)
from reconciler.dependencies.solve.sat.canonical import (
    lean_towards_preferences,
    lexicographic_assignment,
    minimize_changes,
    possible_places,
)
from reconciler.dependencies.solve.sat.conflict import Questions, find_conflict
from reconciler.dependencies.solve.sat.formula import encode
from reconciler.dependencies.solve.sat.solver import BudgetError, SatSolver

__all__ = ["Questions", "assign", "attempt", "find_conflict", "is_solvable", "solve"]


def solve(problem: ResolutionProblem) -> SolverOutcome:
    """Solve a problem canonically: equal problems have equal results, whatever the solver does inside.

    Among all valid assignments: as few locked versions change as possible, and of those sets of kept
    versions the one with the lowest names. Then requirements are decided one by one, the user's first,
    those with one alternative before those with several, optional ones last: each takes its first
    alternative, and each new instance its first version, that some valid assignment has. Alternatives are
    tried in the order: locked, existing, as written, and within one locked before new.

    Deterministic: bounded by the problem's budget of conflicts, never by time.
    """
    return attempt(problem)[0]


def attempt(problem: ResolutionProblem) -> tuple[SolverOutcome, Questions | None]:
    """Solve a problem; where that contradicts itself, further questions about it can be asked."""
    try:
        answer = assign(problem)
    except BudgetError as error:
        return BudgetExceeded(error.steps), None
    if answer is not None:
        return answer, None
    questions = Questions(problem)
    return questions.conflict(questions.causes), questions


def is_solvable(problem: ResolutionProblem) -> bool:
    """Tell whether a problem has a solution.

    Raises:
        BudgetError: The budget of conflicts ran out first.
    """
    return SatSolver(encode(problem), problem.budget).ask()


def assign(problem: ResolutionProblem) -> Assignment | None:
    """Return the canonical assignment of a problem; None if it has none.

    Raises:
        BudgetError: The budget of conflicts ran out first.
    """
    solver, places = SatSolver(encode(problem), problem.budget), possible_places(problem)
    lean_towards_preferences(solver, places)
    if not solver.ask():
        return None
    minimize_changes(solver)
    return lexicographic_assignment(problem, solver, places)
