"""Suggest changes that solve an unsatisfiable problem: each is tried with the solver before it is printed."""

from collections.abc import Iterable
from itertools import chain, islice, product
from typing import NamedTuple

from reconciler.dependencies.model.cluster import ClusterInputs
from reconciler.dependencies.solve.build_problem import build_problem
from reconciler.dependencies.solve.edits import (
    Edit,
)
from reconciler.dependencies.solve.problem import (
    Cause,
    ResolutionProblem,
    Unsatisfiable,
    split_problem,
)
from reconciler.dependencies.solve.repairs import Repair, Repairs, Versions
from reconciler.dependencies.solve.sat import assign, find_correction, find_single_corrections
from reconciler.dependencies.solve.sat.solver import BudgetError

_MOST_HINTS = 3

_MOST_TRIALS = 16
"""Changes that are tried for one explanation; each is solved once or twice."""


def suggest_fixes(
    inputs: ClusterInputs, problem: ResolutionProblem, conflict: Unsatisfiable
) -> tuple[str, ...]:
    """Return changes after each of which the problem has a solution, the easiest first; a few of them.

    Deterministic. A change of several places is suggested where no single one is enough.
    """
    repairs = Repairs(inputs, problem, frozenset(cause.kind for cause in conflict.causes))
    trial = _Trial(inputs, frozenset(demand.cause.subject for demand in problem.roots))
    single = find_single_corrections(problem, conflict.causes)
    choices = [(repair,) for repair in sorted(chain.from_iterable(map(repairs.of, single)), key=_rank)]
    hints = trial.fixes(choices)
    if hints:
        return hints
    return _combined_fixes(problem, repairs, trial, frozenset(single))


def _combined_fixes(
    problem: ResolutionProblem, repairs: Repairs, trial: "_Trial", useless: frozenset[Cause]
) -> tuple[str, ...]:
    """Return changes of several places; where those of one correction do not help, other causes are tried."""

    def correct(*excluded: Cause) -> tuple[Cause, ...]:
        left = useless.union(excluded)
        return find_correction(problem, lambda cause: cause not in left and any(repairs.of(cause)))

    first = correct()
    for correction in (first, *(correct(cause) for cause in first)):
        options = (sorted(repairs.of(cause), key=_rank) for cause in correction)
        hints = trial.fixes(product(*options)) if correction else ()
        if hints:
            return hints
    return ()


def _rank(repair: Repair) -> int:
    return repair.rank


class _Trial(NamedTuple):
    """Tries changes on the parts of a cluster that the conflict is about."""

    inputs: ClusterInputs
    subjects: frozenset[str]

    def fixes(self, choices: Iterable[tuple[Repair, ...]]) -> tuple[str, ...]:
        """Return the texts of the first changes that solve the problem."""
        hints: dict[str, None] = {}
        for choice in islice(choices, _MOST_TRIALS):
            if len(hints) < _MOST_HINTS and (text := self.fix(choice)):
                hints[text] = None
        return tuple(hints)

    def fix(self, repairs: tuple[Repair, ...]) -> str:
        """Return the text of a change that solves the problem, "" if it does not."""
        versions = self.solve([repair.loosen for repair in repairs])
        fixes = [repair.settle(versions) for repair in repairs] if versions is not None else []
        settled = [fix for fix in fixes if fix is not None]
        if not settled or len(settled) < len(fixes) or self.solve([fix.edit for fix in settled]) is None:
            return ""
        first, *others = (fix.text for fix in settled)
        return "; and ".join([first, *(text[0].lower() + text[1:] for text in others)])

    def solve(self, edits: Iterable[Edit]) -> Versions | None:
        """Return the versions of a solution with the edits; None if there is none."""
        inputs = self.inputs
        for edit in edits:
            inputs = edit(inputs)
        versions: Versions = {}
        try:
            for part in split_problem(build_problem(inputs).problem):
                if any(demand.cause.subject in self.subjects for demand in part.roots):
                    assignment = assign(part)
                    if assignment is None:
                        return None
                    own = {i: part.nodes[i].candidates[n] for i, n in assignment.chosen.items()}
                    versions = {**versions, **own}
        except BudgetError:
            return None
        return versions or None
