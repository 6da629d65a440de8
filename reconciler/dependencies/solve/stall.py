"""Choose the installs that stall where not all of a cluster can be solved, so that the others proceed."""

from dataclasses import replace
from typing import NamedTuple

from reconciler.dependencies.model.cluster import ClusterInputs, Instance
from reconciler.dependencies.model.packages import Install
from reconciler.dependencies.solve.problem import (
    Alternative,
    Cause,
    CauseKind,
    InstanceNode,
    InstanceRequirement,
    ResolutionProblem,
    SolverOutcome,
    Unsatisfiable,
)
from reconciler.dependencies.solve.sat import Questions, attempt, is_solvable
from reconciler.dependencies.solve.sat.solver import BudgetError

_OWNERSHIP = frozenset({CauseKind.OWNER, CauseKind.HELD})

_MOST_COMPARED = 16
"""Installs of one conflict that are left out in turn, to find those that contradict one another."""


class Stall(NamedTuple):
    """Installs that stall because of a conflict, the problem without what they ask for, and its outcome."""

    conflict: Unsatisfiable
    installs: tuple[Install, ...]
    problem: ResolutionProblem
    outcome: SolverOutcome
    questions: Questions | None


class StallSearch:
    """Finds the installs that stall, conflict by conflict. Deterministic and order-free.

    A conflict is of as few installs as possible, so that one without a solution by itself stalls alone. If
    packages contest a kind, the lowest-ranked install stalls, otherwise all installs of the conflict. A
    stalled install keeps its locked version; what has none is not installed, and nothing else may install
    its package outside of its range.
    """

    def __init__(self, inputs: ClusterInputs, problem: ResolutionProblem) -> None:
        self._installs = {str(install): install for install in inputs.installs}
        self._stalled: set[Cause] = set()
        self._count = len(problem.roots)

    def next(self, problem: ResolutionProblem, conflict: Unsatisfiable, questions: Questions) -> Stall | None:
        """Return the next stall; None if the whole problem keeps its lock."""
        conflict = self._smallest(problem, conflict, questions)
        # An assumed version is a question: an install that gave way to it would keep another version.
        if any(cause.kind is CauseKind.ASSUMED for cause in conflict.causes):
            return None
        asking = self._asking(problem, conflict)
        is_contest = any(cause.kind in _OWNERSHIP for cause in conflict.causes)
        if is_contest:
            asking = self._preempted(problem, conflict, asking)
        elif not conflict.minimal or len(asking) + len(self._stalled) == self._count:
            return None
        if not asking:
            return None
        left = problem
        for demand in asking:
            left = _without_root(left, demand)
        self._stalled.update(demand.cause for demand in asking)
        outcome, following = attempt(left)
        if not is_contest and isinstance(outcome, Unsatisfiable) and not self._asking(left, outcome):
            return None
        installs = tuple(self._installs[str(demand.cause.subject)] for demand in asking)
        return Stall(conflict, installs, left, outcome, following)

    def _smallest(
        self, problem: ResolutionProblem, conflict: Unsatisfiable, questions: Questions
    ) -> Unsatisfiable:
        """Return a conflict of installs of which any fewer have a solution; those that run are spared."""
        asking = self._asking(problem, conflict)
        if not 1 < len(asking) <= _MOST_COMPARED:
            return conflict
        roots = {demand.cause for demand in problem.roots} - self._stalled
        rules = [cause for cause in questions.causes if cause not in roots]
        left = asking
        try:
            for demand in sorted(asking, key=lambda demand: not _runs(problem, demand)):
                fewer = [other for other in left if other is not demand]
                if fewer and not questions.is_solvable([*(other.cause for other in fewer), *rules]):
                    left = fewer
        except BudgetError:
            return conflict
        return conflict if left == asking else questions.conflict([*(other.cause for other in left), *rules])

    def _asking(self, problem: ResolutionProblem, conflict: Unsatisfiable) -> list[InstanceRequirement]:
        """Return the installs of a conflict that do not stall yet."""
        causes = frozenset(conflict.causes) - self._stalled
        return [demand for demand in problem.roots if demand.cause in causes]

    def _preempted(
        self, problem: ResolutionProblem, conflict: Unsatisfiable, asking: list[InstanceRequirement]
    ) -> list[InstanceRequirement]:
        """Return the install that stalls in an ownership conflict: the lowest rank that unblocks the others.

        An install that owns a contested kind in the lock unblocks none. Of the others, installs that a user
        names rank highest, then the lowest kind and name.

        Source: crossplane, packages-v2 design, PackageLock: one of two packages wins, and always one.
        """
        contestants = _contestants(problem, conflict)

        def rank(demand: InstanceRequirement) -> tuple[bool, str, str]:
            install = self._installs[str(demand.cause.subject)]
            own = {node.instance for _, node in _targets(problem, demand)}
            return (own.isdisjoint(contestants), install.kind, install.name)

        ranked = sorted(asking, key=rank, reverse=True)
        free = [demand for demand in ranked if not _is_held(problem, demand)]
        contested = replace(problem, roots=(*self._held(problem), *asking))
        try:
            compared = free[:_MOST_COMPARED] if len(free) > 1 else []
            helpful = (demand for demand in compared if is_solvable(_without_root(contested, demand)))
            first = next(helpful, None)
        except BudgetError:
            first = None
        return [first] if first else free[:1]

    def _held(self, problem: ResolutionProblem) -> list[InstanceRequirement]:
        """Return the installs that stall and keep their locked versions."""
        return [demand for demand in problem.roots if demand.cause in self._stalled]


def _runs(problem: ResolutionProblem, demand: InstanceRequirement) -> bool:
    """Tell whether the locked version of an install is still what it asks for."""
    ((alternative, node),) = _targets(problem, demand)
    return node.locked in alternative.allowed


def _is_held(problem: ResolutionProblem, demand: InstanceRequirement) -> bool:
    """Tell whether an install asks for its locked version only, so that it cannot give way."""
    ((alternative, node),) = _targets(problem, demand)
    return node.locked is not None and alternative.allowed == {node.locked}


def _without_root(problem: ResolutionProblem, demand: InstanceRequirement) -> ResolutionProblem:
    """Return the problem with one install held at its locked version, or not installed if it has none.

    The versions that the install does not allow are excluded: nothing else brings them in its place.
    """
    ((alternative, node),) = _targets(problem, demand)
    if node.locked is not None:
        held = replace(alternative, allowed=frozenset({node.locked}))
        kept = replace(demand, alternatives=(held,))
        return replace(problem, roots=tuple(kept if other is demand else other for other in problem.roots))
    excluded = set(range(len(node.candidates))) - alternative.allowed
    banned = {**node.banned, **{place: (*node.banned.get(place, ()), demand.cause) for place in excluded}}
    nodes = {**problem.nodes, node.instance: replace(node, banned=banned)}
    return replace(problem, nodes=nodes, roots=tuple(other for other in problem.roots if other is not demand))


def _targets(
    problem: ResolutionProblem, demand: InstanceRequirement
) -> list[tuple[Alternative, InstanceNode]]:
    """Return the only alternative of an install, with its node."""
    return [
        (alternative, problem.nodes[alternative.instance])
        for alternative in demand.alternatives
        if alternative.instance is not None
    ]


def _contestants(problem: ResolutionProblem, conflict: Unsatisfiable) -> set[Instance]:
    """Return the instances that bring a contested kind or composition."""
    causes = frozenset(conflict.causes)
    packages = {cause.subject for cause in causes if cause.kind is CauseKind.HELD}
    held = {instance for instance in problem.nodes if instance.package in packages}
    exclusions = (item for item in problem.incompatibilities if item.cause in causes)
    return held.union(*((item.first, item.second) for item in exclusions))
