"""Resolve the dependencies of one cluster, part by part, and arbitrate ownership conflicts."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from reconciler.dependencies.model.cluster import ClusterInputs, Instance
from reconciler.dependencies.model.installs import Install
from reconciler.dependencies.model.packages import Interface, InterfaceNeed, PackageNeed
from reconciler.dependencies.solve.build_problem import build_problem
from reconciler.dependencies.solve.explain import explain
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


class UnverifiedSolutionError(ReconcilerError):
    """The solver's answer broke a rule: a defect of ours, so nothing of it is used."""

    exit_code = Exit.BUG
    hint = "Please report this with the manifests and the index."

    def __init__(self, cluster: str, violations: tuple[str, ...]) -> None:
        super().__init__(f"the resolution of {cluster or 'the cluster'} is wrong: {'; '.join(violations)}")
        self.violations = violations


def resolve_cluster(world: ClusterInputs) -> Solution:
    """Resolve the dependencies of one cluster, part by part; one part's failure leaves the others alone.

    Deterministic and order-free; the answer is the canonical one that `solve` describes. Where
    two packages want one kind, one of them gives way and the rest of its part is resolved.

    Raises:
        UnverifiedSolutionError: An answer does not survive the independent check.
    """
    posed = build_problem(world)
    found = _PartialSolution(world, problems=list(posed.problems))
    for part in split_problem(posed.question):
        found.add(part)
    solution = Solution(
        with_requesters(found.resolved),
        tuple(found.skipped),
        tuple(found.explanations),
        frozenset(found.failed),
        tuple(sorted(found.problems)),
        (*_idle_words(world, found.resolved), *_odd_bindings(world, found.resolved)),
    )
    violations = verify(world, solution)
    if violations:
        raise UnverifiedSolutionError(world.cluster, violations)
    return solution


@dataclass(slots=True)
class _PartialSolution:
    """What is known of a cluster so far, part by part."""

    world: ClusterInputs
    problems: list[Problem]
    resolved: list[ResolvedInstance] = field(default_factory=list)
    skipped: list[SkippedRequirement] = field(default_factory=list)
    explanations: list[Explanation] = field(default_factory=list)
    failed: set[Instance] = field(default_factory=set)

    def add(self, part: ResolutionProblem) -> None:
        """Solve one part; while two packages want one kind, let one of them give way."""
        outcome = solve(part)
        while (
            isinstance(outcome, Unsatisfiable)
            and (left := arbitrate_ownership(self.world, part, outcome)) is not None
        ):
            explanation = explain(self.world, part, outcome)
            self.explanations.append(replace(explanation, preempted=str(left.install)))
            self.problems.append(_gives_way(left.install, explanation))
            part = left.question
            outcome = solve(part)
        match outcome:
            case Assignment():
                pins, skipped = decode(part, outcome)
                self.resolved += pins
                self.skipped += skipped
            case Unsatisfiable():
                explanation = explain(self.world, part, outcome)
                self.explanations.append(explanation)
                self.problems += _stalled(self.world, part, explanation)
                self.failed.update(part.nodes)
            case BudgetExceeded():
                self.problems += _exhausted(self.world, part, outcome)
                self.failed.update(part.nodes)


def _odd_bindings(world: ClusterInputs, resolved: list[ResolvedInstance]) -> Iterator[Problem]:
    """Yield a warning for each binding to an installation of a version that was not asked for.

    Whoever binds decides: only the shape of an interface must fit.
    """
    chosen = {one.instance: one.candidate for one in resolved}
    for one in resolved:
        install = world.install_of(one.instance)
        for edge in one.edges if install is not None else ():
            need = edge.requirement.alternatives[edge.alternative]
            if (
                install is None
                or edge.via is not AlternativeSource.BINDING
                or not isinstance(need, InterfaceNeed)
            ):
                continue
            bound = dict(install.bindings)[edge.requirement.alias]
            offered = chosen[edge.target].interfaces if edge.target else _offered(world, edge.detail)
            if not any(interface.meets(need) for interface in offered):
                message = f"{edge.requirement.alias} is bound to {bound}, which is not {need}"
                yield Problem(install.location, Reason.INVALID_VERSION, message, subject=str(install))


def _offered(world: ClusterInputs, target: str) -> tuple[Interface, ...]:
    """Return the interfaces of what stands there under the name of a binding."""
    there = {_name(one.namespace, one.name): one.interfaces for one in world.presence.installations}
    there |= {_name(one.namespace, one.name): one.interfaces for one in world.installs}
    return there.get(target.removeprefix("binding:"), ())


def _name(namespace: str, name: str) -> str:
    return f"{namespace}/{name}" if namespace else name


def _gives_way(install: Install, explanation: Explanation) -> Problem:
    message = f"{install} gives way and stays as it was: {'; '.join(explanation.sentences)}"
    hint = "; ".join(explanation.hints)
    return Problem(install.location, Reason.OWNERSHIP_CONFLICT, message, hint, str(install))


def _idle_words(world: ClusterInputs, resolved: list[ResolvedInstance]) -> Iterator[Problem]:
    """Yield a warning for each override or value that names no dependency of its install."""
    chosen = {one.instance: one.candidate for one in resolved}
    for install in sorted(world.installs, key=str):
        candidate = chosen.get(world.instance_of(install))
        if candidate is None or not (install.overrides or install.values):
            continue
        known = {requirement.alias for requirement in candidate.requires}
        for requirement in candidate.requires:
            known |= {need.id.name for need in requirement.alternatives if isinstance(need, PackageNeed)}
        given = [(one.name, one.location) for one in install.overrides]
        given += [(one.name, install.location) for one in install.values]
        for name, location in given:
            if name not in known:
                message = f"{candidate} has no dependency {name}, so what is said about it has no effect"
                yield Problem(location, Reason.NOT_FOUND, message, subject=str(install))


def _stalled(world: ClusterInputs, part: ResolutionProblem, explanation: Explanation) -> list[Problem]:
    message = "Dependencies cannot be met: " + "; ".join(explanation.sentences)
    reason = Reason.DEPENDENCY_CYCLE if explanation.code == "E-CYCLE" else Reason.DEPENDENCY_CONFLICT
    return _problems(world, part, reason, message, "; ".join(explanation.hints))


def _exhausted(world: ClusterInputs, part: ResolutionProblem, outcome: BudgetExceeded) -> list[Problem]:
    message = f"Dependencies could not be decided in {outcome.steps} steps"
    return _problems(
        world, part, Reason.STEP_BUDGET_EXCEEDED, message, "Narrow the ranges, or raise the limit"
    )


def _problems(
    world: ClusterInputs, part: ResolutionProblem, reason: Reason, message: str, hint: str
) -> list[Problem]:
    wishes = {demand.cause.subject for demand in part.roots}
    return [
        Problem(install.location, reason, message, hint=hint, subject=str(install))
        for install in world.installs
        if str(install) in wishes
    ]


_OWNERSHIP = frozenset({CauseKind.OWNER, CauseKind.HELD})


class Arbitration(NamedTuple):
    """What is asked when one install gives way: it stays at what is locked, or is not asked for."""

    question: ResolutionProblem
    install: Install


def arbitrate_ownership(
    world: ClusterInputs, question: ResolutionProblem, found: Unsatisfiable
) -> Arbitration | None:
    """Return the question without the wish that loses what is contested; None if that is not the matter.

    Deterministic and order-free. Who has the thing keeps it; else what a user asks for by name comes
    before what is only needed; else the lowest kind and name wins. The loser keeps what is locked
    for it; where that itself is contested, nothing can be conceded.

    Source: crossplane, packages-v2 design, PackageLock: one of two packages wins, and always one.
    """
    if not any(fact.kind in _OWNERSHIP for fact in found.causes):
        return None
    asking = [demand for demand in question.roots if demand.cause in found.causes]
    installs = {str(install): install for install in world.installs}
    contest = _OwnershipConflict(world, question, found)
    for demand in sorted(
        asking, key=lambda demand: contest.rank(demand, installs[demand.cause.subject]), reverse=True
    ):
        left = _without(question, demand)
        if left is not None:
            return Arbitration(left, installs[demand.cause.subject])
    return None


def _without(question: ResolutionProblem, demand: InstanceRequirement) -> ResolutionProblem | None:
    """Return the question with one wish held to what is locked, or dropped where nothing is."""
    (way,) = demand.alternatives
    (instance,) = _instances(demand)
    node = question.nodes[instance]
    others = tuple(other for other in question.roots if other is not demand)
    if node.locked is None:
        return replace(question, roots=others)
    held = frozenset({node.locked})
    if way.allowed == held:
        return None
    kept = replace(demand, alternatives=(replace(way, allowed=held),))
    return replace(question, roots=tuple(kept if other is demand else other for other in question.roots))


def _instances(demand: InstanceRequirement) -> set[Instance]:
    return {way.instance for way in demand.alternatives if way.instance is not None}


class _OwnershipConflict:
    """Who is after the contested things, and who has them."""

    def __init__(self, world: ClusterInputs, question: ResolutionProblem, found: Unsatisfiable) -> None:
        self.question = question
        holders = dict(world.held)
        facts = frozenset(found.causes)
        exclusions = [one for one in question.incompatibilities if one.cause in facts]
        self.contestants = {instance for one in exclusions for instance in (one.first, one.second)}
        packages = {fact.subject for fact in facts if fact.kind is CauseKind.HELD}
        self.contestants |= {one for one in question.nodes if str(one.package) in packages}
        self.holders = {holders[one.cause.subject] for one in exclusions if one.cause.subject in holders}

    def rank(self, demand: InstanceRequirement, install: Install) -> tuple[bool, bool, str, str]:
        """Return where a wish stands: the greatest gives way."""
        own = _instances(demand)
        has = any(one.package in self.holders for one in self.contestants & self._reached(own))
        return (not has, not own & self.contestants, install.kind, install.name)

    def _reached(self, start: set[Instance]) -> set[Instance]:
        queue, seen = sorted(start), set(start)
        for instance in queue:
            for several in self.question.nodes[instance].requirements:
                for way in (way for demand in several for way in demand.alternatives if way.active):
                    if way.instance is not None and way.instance not in seen:
                        seen.add(way.instance)
                        queue.append(way.instance)
        return seen
