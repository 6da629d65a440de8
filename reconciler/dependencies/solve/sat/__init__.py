"""Solve a resolution problem with a SAT solver: the canonical assignment, or a minimal conflict."""

from collections.abc import Iterable

from reconciler.dependencies.solve.problem import (
    Assignment,
    BudgetExceeded,
    Cause,
    ResolutionProblem,
    SolverOutcome,
    Unsatisfiable,
)
from reconciler.dependencies.solve.sat.canonical import (
    lean_towards_preferences,
    lexicographic_assignment,
    minimize_changes,
    possible_places,
)
from reconciler.dependencies.solve.sat.formula import encode
from reconciler.dependencies.solve.sat.solver import BudgetError, SatSolver


class Questions:
    """Questions about one problem in which any cause can be left out: it is encoded once for all of them."""

    def __init__(self, problem: ResolutionProblem) -> None:
        self.causes = problem.causes()
        self.solver = SatSolver(encode(problem, guarded=True), problem.budget)
        self._steps = problem.explain_steps

    def is_solvable(self, causes: Iterable[Cause], *literals: int) -> bool:
        """Tell whether a solution obeys these causes, and has these literals.

        Raises:
            BudgetError: The budget of conflicts is used up.
        """
        guards = self.solver.formula.guards
        return self.solver.ask(*(guards[cause] for cause in causes if cause in guards), *literals)

    def conflict(self, causes: Iterable[Cause]) -> Unsatisfiable:
        """Return some of these contradictory causes that contradict one another, none of them superfluous.

        Of several such sets, causes that come late are avoided first. It is not minimal if more than the
        problem's `explain_steps` questions are needed.

        Source: deletion with clause-set refinement; A. Belov, J. Marques-Silva, MUSer2 (2012).
        """
        conflict, left = list(causes), self._steps
        try:
            place = len(conflict)
            while place >= 0 and (left := left - 1) >= 0:
                smaller = self._contradiction([c for n, c in enumerate(conflict) if n != place])
                is_first = place == len(conflict)
                if smaller is not None:
                    is_first &= len(smaller) < len(conflict)  # asked again, it may get smaller still
                    conflict = smaller
                place = len(conflict) if is_first else min(place, len(conflict)) - 1
        except BudgetError:
            return Unsatisfiable(tuple(conflict), minimal=False)
        return Unsatisfiable(tuple(conflict), minimal=left >= 0)

    def core(self) -> list[Cause]:
        """Return the causes of the last question without a solution that contradict one another already."""
        core = set(self.solver.core())
        return [cause for cause, guard in self.solver.formula.guards.items() if guard in core]

    def _contradiction(self, causes: list[Cause]) -> list[Cause] | None:
        """Return those of the causes that already contradict one another; None if they do not."""
        if self.is_solvable(causes):
            return None
        core = set(self.core())
        return [cause for cause in causes if cause in core]


def find_conflict(problem: ResolutionProblem) -> Unsatisfiable:
    """Return causes of an unsatisfiable problem that contradict one another."""
    return contradiction(problem)[0]


__all__ = ["Questions", "assign", "attempt", "contradiction", "find_conflict", "is_solvable", "solve"]


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
    return (answer, None) if answer is not None else contradiction(problem)


def contradiction(problem: ResolutionProblem) -> tuple[Unsatisfiable, Questions]:
    """Return what contradicts itself in a problem without an answer, and more questions about it."""
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
