"""Resolve the dependencies of one cluster, part by part, and arbitrate ownership conflicts."""

from collections.abc import Iterator
from dataclasses import field, replace

from reconciler.dependencies.model.cluster import ClusterInputs, Instance
from reconciler.dependencies.model.packages import Candidate, Install, Interface, InterfaceNeed, PackageNeed
from reconciler.dependencies.solve.alternatives import qualified
from reconciler.dependencies.solve.build_problem import build_problem
from reconciler.dependencies.solve.explain import SkipReasons, explain
from reconciler.dependencies.solve.problem import (
    AlternativeSource,
    Assignment,
    BudgetExceeded,
    ResolutionProblem,
    Unsatisfiable,
    split_problem,
)
from reconciler.dependencies.solve.sat import Questions, attempt
from reconciler.dependencies.solve.solution import (
    Explanation,
    ResolvedInstance,
    SkippedRequirement,
    Solution,
    decode,
    with_requesters,
)
from reconciler.dependencies.solve.stall import StallSearch
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

    Deterministic and order-free; the result is the canonical solution that `solve` describes. Installs that
    stall, as `StallSearch` chooses them, keep what is locked for them, and the rest of the part is resolved.

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
        """Solve one part; leave out the installs that stall, as `StallSearch` chooses them."""
        search, left, (outcome, questions) = StallSearch(self.inputs, part), part, attempt(part)
        stalls: list[tuple[Explanation, tuple[Install, ...]]] = []
        while isinstance(outcome, Unsatisfiable) and questions is not None:
            stall = search.next(left, outcome, questions)
            if stall is None:
                break
            stalls.append((explain(self.inputs, left, stall.conflict, questions), stall.installs))
            left, outcome, questions = stall.problem, stall.outcome, stall.questions
        is_solved = isinstance(outcome, Assignment)
        for explanation, own in stalls:
            names = tuple(map(str, own)) if is_solved else ()
            self.explanations.append(replace(explanation, stalled=names))
            self.problems += [_stall_problem(install, explanation) for install in own]
        if isinstance(outcome, Assignment):
            why = SkipReasons(self.inputs, left)
            pins, skipped = decode(replace(left, roots=part.roots), outcome, why.of)
            self.resolved += pins
            self.skipped += skipped
        else:
            stalled = {install for _, own in stalls for install in own}
            self._fail(
                part, left, outcome, questions, [i for i in _installs(self.inputs, part) if i not in stalled]
            )

    def _fail(
        self,
        part: ResolutionProblem,
        left: ResolutionProblem,
        outcome: Unsatisfiable | BudgetExceeded,
        questions: Questions | None,
        installs: list[Install],
    ) -> None:
        """Keep the lock of a whole part, with a problem for each of these installs."""
        self.failed.update(part.nodes)
        if isinstance(outcome, BudgetExceeded):
            self.problems += [_budget_problem(install, outcome) for install in installs]
            return
        explanation = explain(self.inputs, left, outcome, questions or Questions(left))
        self.explanations.append(explanation)
        self.problems += [_conflict_problem(install, explanation) for install in installs]


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
        qualified(installation.namespace, installation.name): installation.interfaces
        for installation in inputs.presence.installations
    }
    interfaces_by_name |= {
        qualified(installation.namespace, installation.name): installation.interfaces
        for installation in inputs.installs
    }
    return interfaces_by_name.get(target.removeprefix("binding:"), ())


def _stall_problem(install: Install, explanation: Explanation) -> Problem:
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


def _conflict_problem(install: Install, explanation: Explanation) -> Problem:
    message = "Dependencies cannot be met: " + "; ".join(explanation.sentences)
    reason = Reason.DEPENDENCY_CYCLE if explanation.code == "E-CYCLE" else Reason.DEPENDENCY_CONFLICT
    return Problem(install.location, reason, message, explanation.hint, str(install), message)


def _budget_problem(install: Install, outcome: BudgetExceeded) -> Problem:
    message = f"Dependencies could not be decided in {plural(outcome.steps, 'step')}"
    hint = "Narrow the ranges, or raise `dependencies.steps` in reconciler.yaml"
    return Problem(install.location, Reason.STEP_BUDGET_EXCEEDED, message, hint, str(install), message)


def _installs(inputs: ClusterInputs, part: ResolutionProblem) -> Iterator[Install]:
    requested = {demand.cause.subject for demand in part.roots}
    return (install for install in inputs.installs if str(install) in requested)
