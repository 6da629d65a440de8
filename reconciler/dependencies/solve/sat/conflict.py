"""Find a minimal conflict of an unsatisfiable problem, and the facts that must change to solve it."""

from collections.abc import Callable, Iterable

from msgspec import Struct

from reconciler.dependencies.solve.problem import Cause, ResolutionProblem, Unsatisfiable
from reconciler.dependencies.solve.sat.formula import encode
from reconciler.dependencies.solve.sat.solver import BudgetError, SatSolver


def find_conflict(problem: ResolutionProblem) -> Unsatisfiable:
    """Return causes that contradict one another, none of them superfluous within `explain_steps` questions.

    Of several such sets, causes that come late in the problem's order are avoided first.

    Source: deletion with clause-set refinement; A. Belov, J. Marques-Silva, MUSer2 (2012).
    """
    causes = problem.causes()
    with SatSolver(encode(problem, guarded=True), problem.budget) as solver:
        questions = _Questions(solver, problem.explain_steps)
        conflict = list(causes)
        try:
            conflict = questions.refine(conflict)
            place = len(conflict) - 1
            while place >= 0:
                smaller = questions.contradiction(conflict[:place] + conflict[place + 1 :])
                if smaller is not None:
                    conflict = smaller
                    place = min(place, len(conflict))
                place -= 1
        except BudgetError:
            return Unsatisfiable(tuple(conflict), minimal=False)
        return Unsatisfiable(tuple(conflict))


def find_single_corrections(problem: ResolutionProblem, conflict: Iterable[Cause]) -> tuple[Cause, ...]:
    """Return the causes of a conflict of which the absence of any one solves the problem.

    None where another part of the problem is contradictory too, or the questions are used up.
    """
    causes = problem.causes()
    with SatSolver(encode(problem, guarded=True), problem.budget) as solver:
        questions = _Questions(solver, problem.explain_steps)
        try:
            return tuple(
                c for c in conflict if questions.contradiction([d for d in causes if d != c]) is None
            )
        except BudgetError:
            return ()


def find_correction(problem: ResolutionProblem, can_change: Callable[[Cause], bool]) -> tuple[Cause, ...]:
    """Return causes that can change, without which the problem has a solution; none if there are no such.

    None of them is superfluous. None if the questions are used up.
    """
    causes = problem.causes()
    with SatSolver(encode(problem, guarded=True), problem.budget) as solver:
        questions = _Questions(solver, problem.explain_steps)
        try:
            return questions.correction(causes, can_change)
        except BudgetError:
            return ()


class _Questions(Struct):
    """Asks a guarded formula which causes contradict one another, a limited number of times."""

    solver: SatSolver
    left: int

    def contradiction(self, causes: list[Cause]) -> list[Cause] | None:
        """Return those of the causes that already contradict one another; None if they do not.

        Raises:
            BudgetError: The questions or the budget of conflicts are used up.
        """
        self.left -= 1
        if self.left < 0:
            raise BudgetError(self.left)
        guards = self.solver.formula.guards
        if self.solver.ask(*(guards[cause] for cause in causes if cause in guards)):
            return None
        core = set(self.solver.core())
        return [cause for cause in causes if guards.get(cause) in core]

    def refine(self, causes: list[Cause]) -> list[Cause]:
        """Return a contradiction among contradictory causes that asking again makes no smaller."""
        while (smaller := self.contradiction(causes)) is not None and len(smaller) < len(causes):
            causes = smaller
        return causes

    def correction(self, causes: tuple[Cause, ...], can_change: Callable[[Cause], bool]) -> tuple[Cause, ...]:
        """Return causes to drop so that the problem is solved: the first changeable of each contradiction."""
        dropped: list[Cause] = []
        while (core := self.contradiction([c for c in causes if c not in dropped])) is not None:
            changeable = next(filter(can_change, core), None)
            if changeable is None:
                return ()
            dropped.append(changeable)
        for cause in list(dropped):
            others = [other for other in dropped if other != cause]
            if self.contradiction([c for c in causes if c not in others]) is None:
                dropped = others
        return tuple(dropped)
