"""Resolve the dependencies of one cluster, part by part, and arbitrate ownership conflicts."""

from collections.abc import Iterator
from dataclasses import field, replace
from typing import NamedTuple

from reconciler.dependencies.model.cluster import ClusterInputs, Instance
from reconciler.dependencies.model.packages import Candidate, Install, Interface, InterfaceNeed, PackageNeed
from reconciler.dependencies.solve.build_problem import build_problem
from reconciler.dependencies.solve.explain import SkipReasons, explain
from reconciler.dependencies.solve.problem import (
    AlternativeSource,
    Assignment,
    BudgetExceeded,
    CauseKind,
    InstanceRequirement,
    ResolutionProblem,
    Unsatisfiable,
    split_problem,
)
from reconciler.dependencies.solve.sat import solve
from reconciler.dependencies.solve.solution import (
    Explanation,
    ResolvedInstance,
    SkippedRequirement,
    Solution,
    decode,
    with_requesters,
)
from reconciler.dependencies.solve.verify import verify
from reconciler.errors import Exit, Problem, ReconcilerError
from reconciler.reasons import Reason
from reconciler.values import dataclass
from reconciler.wording import plural


class UnverifiedSolutionError(ReconcilerError):
    """The solution violates a rule. This is a defect of the reconciler: the solution is discarded."""

    exit_code = Exit.BUG
    hint = "Please report this with the manifests and the index."

    def __init__(self, cluster: str, violations: tuple[str, ...]) -> None:
        super().__init__(f"the resolution of {cluster or 'the cluster'} is wrong: {'; '.join(violations)}")
        self.violations = violations


def resolve_cluster(inputs: ClusterInputs) -> Solution:
    """Resolve the dependencies of one cluster, part by part; a conflict in one part affects no other.

    Deterministic and order-free; the result is the canonical solution that `solve` describes. If two
    packages need one CRD, the lower-ranked install is preempted and the rest of its part is resolved; an
    install that has no solution by itself is left out likewise.

    Raises:
        UnverifiedSolutionError: The solution does not pass the independent check.
    """
    built = build_problem(inputs)
    partial = _PartialSolution(inputs, problems=list(built.problems))
    for part in split_problem(built.problem):
        partial.add(part)
    solution = Solution(
        with_requesters(partial.resolved),
        tuple(partial.skipped),
        tuple(partial.explanations),
        frozenset(partial.failed),
        tuple(sorted(partial.problems)),
    )
    solution = replace(solution, warnings=warnings_of(inputs, solution))
    violations = verify(inputs, solution)
    if violations:
        raise UnverifiedSolutionError(inputs.cluster, violations)
    return solution


@dataclass(slots=True)
class _PartialSolution:
    """Solution of the parts of a cluster that are resolved so far."""

    inputs: ClusterInputs
    problems: list[Problem]
    resolved: list[ResolvedInstance] = field(default_factory=list)
    skipped: list[SkippedRequirement] = field(default_factory=list)
    explanations: list[Explanation] = field(default_factory=list)
    failed: set[Instance] = field(default_factory=set)

    def add(self, part: ResolutionProblem) -> None:
        """Solve one part; leave out what has no solution by itself, and who loses an ownership conflict."""
        outcome = solve(part)
        while (
            isinstance(outcome, Unsatisfiable)
            and (left := _without_one(self.inputs, part, outcome)) is not None
        ):
            explanation = explain(self.inputs, part, outcome)
            self.explanations.append(replace(explanation, preempted=str(left.install)))
            self.problems.append(_left_problem(left.install, explanation))
            part = left.problem
            outcome = solve(part)
        match outcome:
            case Assignment():
                why = SkipReasons(self.inputs, part)
                pins, skipped = decode(part, outcome, why.of)
                self.resolved += pins
                self.skipped += skipped
            case Unsatisfiable():
                explanation = explain(self.inputs, part, outcome)
                self.explanations.append(explanation)
                self.problems += _conflict_problems(self.inputs, part, explanation)
                self.failed.update(part.nodes)
            case BudgetExceeded():
                self.problems += _budget_problems(self.inputs, part, outcome)
                self.failed.update(part.nodes)


def warnings_of(inputs: ClusterInputs, solution: Solution) -> tuple[Problem, ...]:
    """Return the warnings about a solution, with the places of these inputs."""
    resolved = list(solution.resolved.values())
    return (*_unused_settings(inputs, resolved), *_binding_warnings(inputs, resolved))


def _binding_warnings(inputs: ClusterInputs, resolved: list[ResolvedInstance]) -> Iterator[Problem]:
    """Yield a warning for each binding to an installation of a version that was not asked for.

    Whoever binds decides: only the shape of an interface must fit.
    """
    chosen = {pinned.instance: pinned for pinned in resolved}
    for install in inputs.installs:
        is_bound = bool(install.bindings) and not install.external
        pinned = chosen.get(inputs.instance_of(install)) if is_bound else None
        for edge in pinned.edges if pinned is not None else ():
            need = edge.requirement.alternatives[edge.alternative]
            if edge.via is not AlternativeSource.BINDING or not isinstance(need, InterfaceNeed):
                continue
            bound = dict(install.bindings)[edge.requirement.alias]
            offered = (
                chosen[edge.target].candidate.interfaces
                if edge.target
                else _bound_interfaces(inputs, edge.detail)
            )
            if not any(interface.meets(need) for interface in offered):
                message = f"{edge.requirement.alias} is bound to {bound}, which is not {need}"
                yield Problem(install.location, Reason.INVALID_VERSION, message, subject=str(install))


def _bound_interfaces(inputs: ClusterInputs, target: str) -> tuple[Interface, ...]:
    """Return the interfaces of a bound installation."""
    interfaces_by_name = {
        _name(installation.namespace, installation.name): installation.interfaces
        for installation in inputs.presence.installations
    }
    interfaces_by_name |= {
        _name(installation.namespace, installation.name): installation.interfaces
        for installation in inputs.installs
    }
    return interfaces_by_name.get(target.removeprefix("binding:"), ())


def _name(namespace: str, name: str) -> str:
    return f"{namespace}/{name}" if namespace else name


def _left_problem(install: Install, explanation: Explanation) -> Problem:
    if not explanation.code.startswith("E-OWN"):
        return _conflict_problem(install, explanation)
    return _preemption_problem(install, explanation)


def _preemption_problem(install: Install, explanation: Explanation) -> Problem:
    message = f"{install} gives way and stays as it was: {'; '.join(explanation.sentences)}"
    return Problem(install.location, Reason.OWNERSHIP_CONFLICT, message, explanation.hint, str(install))


def _unused_settings(inputs: ClusterInputs, resolved: list[ResolvedInstance]) -> Iterator[Problem]:
    """Yield a warning for each override or value that has no effect on a dependency of its install."""
    chosen = {item.instance: item.candidate for item in resolved}
    for install in sorted(inputs.installs, key=str):
        candidate = chosen.get(inputs.instance_of(install))
        if candidate is None or not (install.overrides or install.values):
            continue
        aliases = _aliases(candidate)
        names = {*aliases, *(alias for own in aliases.values() for alias in own)}
        names |= {requirement.alias for requirement in candidate.requires}
        given = [(item.name, item.location) for item in install.overrides]
        given += [(item.name, install.location) for item in install.values]
        for name, location in given:
            if name not in names:
                message = f"{candidate} has no dependency {name}, so what is said about it has no effect"
                yield Problem(location, Reason.NOT_FOUND, message, subject=str(install))
        by_alias = {value.name for value in install.values}
        for value in install.values:
            own = aliases.get(value.name, set())
            if own and own <= by_alias:
                message = f"The values for {value.name} are not used: those for its alias {min(own)} are"
                yield Problem(install.location, Reason.NOT_FOUND, message, subject=str(install))


def _aliases(candidate: Candidate) -> dict[str, set[str]]:
    """Return the packages that a package may depend on, each with the aliases of it, empty for none."""
    aliases: dict[str, set[str]] = {}
    for requirement in candidate.requires:
        for place, need in enumerate(requirement.alternatives):
            if isinstance(need, PackageNeed):
                aliases.setdefault(need.id.name, set()).add(requirement.alias_of(place))
    return aliases


def _conflict_problems(
    inputs: ClusterInputs, part: ResolutionProblem, explanation: Explanation
) -> list[Problem]:
    return [_conflict_problem(install, explanation) for install in _stalled(inputs, part)]


def _conflict_problem(install: Install, explanation: Explanation) -> Problem:
    message = "Dependencies cannot be met: " + "; ".join(explanation.sentences)
    reason = Reason.DEPENDENCY_CYCLE if explanation.code == "E-CYCLE" else Reason.DEPENDENCY_CONFLICT
    return Problem(install.location, reason, message, explanation.hint, str(install), message)


def _budget_problems(
    inputs: ClusterInputs, part: ResolutionProblem, outcome: BudgetExceeded
) -> list[Problem]:
    message = f"Dependencies could not be decided in {plural(outcome.steps, 'step')}"
    hint = "Narrow the ranges, or raise `dependencies.steps` in reconciler.yaml"
    return [
        Problem(install.location, Reason.STEP_BUDGET_EXCEEDED, message, hint, str(install), message)
        for install in _stalled(inputs, part)
    ]


def _stalled(inputs: ClusterInputs, part: ResolutionProblem) -> Iterator[Install]:
    requested = {demand.cause.subject for demand in part.roots}
    return (install for install in inputs.installs if str(install) in requested)


_OWNERSHIP = frozenset({CauseKind.OWNER, CauseKind.HELD})


class Arbitration(NamedTuple):
    """A problem without its preempted install, or with that install held at its locked version."""

    problem: ResolutionProblem
    install: Install


def _without_one(
    inputs: ClusterInputs, problem: ResolutionProblem, conflict: Unsatisfiable
) -> Arbitration | None:
    # An assumed version is a question: an install that gave way to it would keep another version.
    if any(cause.kind is CauseKind.ASSUMED for cause in conflict.causes):
        return None
    return isolate_install(inputs, problem, conflict) or arbitrate_ownership(inputs, problem, conflict)


def isolate_install(
    inputs: ClusterInputs, problem: ResolutionProblem, conflict: Unsatisfiable
) -> Arbitration | None:
    """Separate the one install that has no solution by itself from the others that share packages with it.

    It keeps its locked version. The result is None if that has no solution either, or there are no others.
    """
    asking = [demand for demand in problem.roots if demand.cause in conflict.causes]
    if not conflict.minimal or len(asking) != 1 or len(problem.roots) == 1:
        return None
    left = _without_root(problem, asking[0])
    outcome = solve(left) if left else conflict
    if left is None or (isinstance(outcome, Unsatisfiable) and asking[0].cause in outcome.causes):
        return None
    installs = {str(install): install for install in inputs.installs}
    return Arbitration(left, installs[asking[0].cause.subject])


def arbitrate_ownership(
    inputs: ClusterInputs, problem: ResolutionProblem, conflict: Unsatisfiable
) -> Arbitration | None:
    """Resolve a CRD ownership conflict by dropping the lowest-ranked install from the problem.

    Deterministic and order-free. The current owner ranks highest, then installs that a user names, then
    the lowest kind and name. The preempted install keeps its locked version; if that is contested as well,
    or the conflict is about something else, the result is None.

    Source: crossplane, packages-v2 design, PackageLock: one of two packages wins, and always one.
    """
    if not any(cause.kind in _OWNERSHIP for cause in conflict.causes):
        return None
    asking = [demand for demand in problem.roots if demand.cause in conflict.causes]
    installs = {str(install): install for install in inputs.installs}
    contest = _OwnershipConflict(inputs, problem, conflict)
    for demand in sorted(
        asking, key=lambda demand: contest.rank(demand, installs[demand.cause.subject]), reverse=True
    ):
        left = _without_root(problem, demand)
        if left is not None:
            return Arbitration(left, installs[demand.cause.subject])
    return None


def _without_root(problem: ResolutionProblem, demand: InstanceRequirement) -> ResolutionProblem | None:
    """Return the problem with one install held at its locked version, or dropped if it has none."""
    (alternative,) = demand.alternatives
    (instance,) = _instances(demand)
    node = problem.nodes[instance]
    others = tuple(other for other in problem.roots if other is not demand)
    if node.locked is None:
        return replace(problem, roots=others)
    held = frozenset({node.locked})
    if alternative.allowed == held:
        return None
    kept = replace(demand, alternatives=(replace(alternative, allowed=held),))
    return replace(problem, roots=tuple(kept if other is demand else other for other in problem.roots))


def _instances(demand: InstanceRequirement) -> set[Instance]:
    return {alternative.instance for alternative in demand.alternatives if alternative.instance is not None}


class _OwnershipConflict:
    """The instances that claim contested resources, and the packages that own them."""

    def __init__(self, inputs: ClusterInputs, problem: ResolutionProblem, conflict: Unsatisfiable) -> None:
        self.problem = problem
        holders = dict(inputs.held)
        causes = frozenset(conflict.causes)
        exclusions = [item for item in problem.incompatibilities if item.cause in causes]
        self.contestants = {instance for item in exclusions for instance in (item.first, item.second)}
        packages = {cause.subject for cause in causes if cause.kind is CauseKind.HELD}
        self.contestants |= {item for item in problem.nodes if str(item.package) in packages}
        self.holders = {holders[item.cause.subject] for item in exclusions if item.cause.subject in holders}

    def rank(self, demand: InstanceRequirement, install: Install) -> tuple[bool, bool, str, str]:
        """Return the rank of an install: the greatest is preempted."""
        own = _instances(demand)
        has = any(contestant.package in self.holders for contestant in self.contestants & self._reached(own))
        return (not has, not own & self.contestants, install.kind, install.name)

    def _reached(self, start: set[Instance]) -> set[Instance]:
        queue, seen = sorted(start), set(start)
        for instance in queue:
            for group in self.problem.nodes[instance].requirements:
                for alternative in (
                    alternative
                    for demand in group
                    for alternative in demand.alternatives
                    if alternative.active
                ):
                    if alternative.instance is not None and alternative.instance not in seen:
                        seen.add(alternative.instance)
                        queue.append(alternative.instance)
        return seen
