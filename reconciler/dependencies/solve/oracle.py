"""Questions of yes and no to the SAT solver, which counts its steps."""

from types import TracebackType
from typing import Self

from pysat.solvers import Solver

from reconciler.dependencies.solve.encode import Formula
from reconciler.dependencies.solve.rules import Rules

_SOLVER = "g4"


class BudgetError(Exception):
    """The steps that a question may take are used up."""

    def __init__(self, steps: int) -> None:
        super().__init__(f"{steps} steps were not enough")
        self.steps = steps


class Oracle:
    """A solver that holds one formula and remembers the last model it found.

    A model counts only if it also obeys the rules that clauses cannot say beforehand; otherwise
    the reason becomes a clause and the search goes on.
    """

    def __init__(self, formula: Formula, budget: int) -> None:
        self.formula = formula
        self._rules = Rules(formula)
        self._budget = budget
        self._left = budget
        self._solver = Solver(name=_SOLVER, bootstrap_with=formula.clauses)
        self._model: list[int] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._solver.delete()

    def ask(self, *assumptions: int) -> bool:
        """Whether the formula has a valid model under these assumptions; `holds` tells about that model.

        Raises:
            BudgetError: The budget of conflicts ran out first.
        """
        while self._solves(assumptions):
            model = self._solver.get_model() or []
            broken = self._rules.broken(model)
            if not broken:
                self._model = model
                return True
            for clause in broken:
                self._solver.add_clause(clause)
        return False

    def _solves(self, assumptions: tuple[int, ...]) -> bool:
        if self._left <= 0:
            raise BudgetError(self._budget)
        before = self._solver.accum_stats()["conflicts"]
        self._solver.conf_budget(self._left)
        result = self._solver.solve_limited(assumptions=assumptions)
        self._left -= 1 + self._solver.accum_stats()["conflicts"] - before
        if result is None:
            raise BudgetError(self._budget)
        return bool(result)

    def core(self) -> list[int]:
        """Return the assumptions of the last failed question that already contradict the formula."""
        return list(self._solver.get_core() or [])

    def holds(self, literal: int) -> bool:
        """Whether a literal is true in the last model."""
        place = abs(literal) - 1
        return place < len(self._model) and self._model[place] == literal

    def add(self, *literals: int) -> None:
        """Add a clause; one literal decides it for good."""
        self._solver.add_clause(list(literals))

    def prefers(self, literal: int) -> bool:
        """Decide a literal for good: true if a valid model is left in which it is true, else false."""
        if self.holds(literal) or self.ask(literal):
            self.add(literal)
            return True
        self.add(-literal)
        return False
