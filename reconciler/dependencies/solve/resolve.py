"""Resolve the dependencies of one cluster, part by part, and arbitrate ownership conflicts."""

import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from reconciler.base.errors import Exit, ReconcilerError
from reconciler.base.reasons import Reason
from reconciler.base.suggestions import suggest
from reconciler.base.text import plural
from reconciler.base.values import grouped
from reconciler.dependencies.model.cluster import ClusterInputs, given_parameters
from reconciler.dependencies.model.instances import Instance, MetNeed, Resolved, SkippedNeed, met_need
from reconciler.dependencies.model.packages import (
    Candidate,
    Dialect,
    Install,
    InterfaceNeed,
    PackageId,
    PackageNeed,
    Requirement,
)
from reconciler.dependencies.solve.alternatives import qualified
from reconciler.dependencies.solve.build_problem import BuiltProblem, build_problem, reached_problem
from reconciler.dependencies.solve.explain import explain, explain_skipped
from reconciler.dependencies.solve.problem import (
    Alternative,
    AlternativeSource,
    Assignment,
    BudgetExceeded,
    Cause,
    CauseKind,
    ConflictCode,
    Explanation,
    InstanceNode,
    InstanceRequirement,
    ResolutionProblem,
    Solution,
    SolverOutcome,
    Unsatisfiable,
    split_problem,
)
from reconciler.dependencies.solve.sat import (
    BudgetError,
    GreedyWalk,
    Questions,
    assign,
    attempt,
    contradiction,
    is_solvable,
)
from reconciler.dependencies.solve.verify import verify
from reconciler.names.problems import Problem


class UnverifiedSolutionError(ReconcilerError):
    """The solution violates a rule. This is a defect of the reconciler: the solution is discarded."""

    exit_code = Exit.BUG
    hint = "Please report this with the manifests and the index."

    def __init__(self, cluster: str, violations: tuple[str, ...]) -> None:
        super().__init__(f"the resolution of {cluster or 'the cluster'} is wrong: {'; '.join(violations)}")
        self.violations = violations


_Attempt = tuple[ResolutionProblem, SolverOutcome, Questions | None]
"""A part of a problem, its outcome, and where it contradicts itself, questions about it."""


def resolve_cluster(inputs: ClusterInputs) -> Solution:
    """Resolve the dependencies of one cluster, part by part; a conflict in one part affects no other.

    Deterministic and order-free; the result is the canonical solution that `solve` describes. Installs that
    stall, as `StallSearch` chooses them, keep what is locked for them, and the rest of the part is resolved.

    Raises:
        UnverifiedSolutionError: The solution does not pass the independent check.
    """
    built, outcomes = _attempts(inputs)
    partial = _PartialSolution(inputs, inputs.installs_by_instance(), list(built.problems))
    for part, outcome, questions in outcomes:
        partial.add(part, outcome, questions)
    resolved = sorted(partial.resolved, key=lambda package: str(package.instance))
    needs = ((package.instance, need) for package in resolved for need in package.dependencies)
    parents = grouped((need.resolved, parent) for parent, need in needs if need.active)
    requesters = {p.instance: tuple(dict.fromkeys(parents.get(p.instance, ()))) for p in resolved}
    solution = Solution(
        {p.instance: replace(p, requested_by=requesters[p.instance]) for p in resolved},
        partial.candidates,
        partial.requirements,
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


def _attempts(inputs: ClusterInputs) -> tuple[BuiltProblem, list[_Attempt]]:
    """Attempt the whole with what it reaches, else each part with what ranges admit.

    Where a part has no answer, all versions that could be part of one are read.
    """
    built = reached_problem(inputs)
    greedy = GreedyWalk(built.problem)
    if greedy.fits:
        return built, [(built.problem, Assignment(greedy.chosen, greedy.selected), None)]
    built = build_problem(inputs, free=False, narrower=built)
    parts = list(split_problem(built.problem))
    unsolved = set[Cause]()
    with suppress(BudgetError):
        answers = [(part, assign(part)) for part in parts]
        unsolved = {demand.cause for part, answer in answers if answer is None for demand in part.roots}
        if not unsolved:
            return built, [(part, answer, None) for part, answer in answers if answer is not None]
    if inputs.pins or any(install.dialect is Dialect.CARVEL for install in inputs.installs):
        built = build_problem(inputs, narrower=built)
        parts = list(split_problem(built.problem))
    outcomes = []
    for part in parts:
        is_known = unsolved.isdisjoint(demand.cause for demand in part.roots)
        outcomes.append((part, *(attempt(part) if is_known else contradiction(part))))
    return built, outcomes


class _PartialSolution(Struct):
    """Solution of the parts of a cluster that are resolved so far."""

    inputs: ClusterInputs
    installs: dict[Instance, Install]
    problems: list[Problem]
    resolved: list[Resolved] = field(default_factory=list)
    candidates: dict[Instance, Candidate] = field(default_factory=dict)
    requirements: dict[tuple[Instance, str], Requirement] = field(default_factory=dict)
    skipped: list[SkippedNeed] = field(default_factory=list)
    explanations: list[Explanation] = field(default_factory=list)
    failed: set[Instance] = field(default_factory=set)

    def add(self, part: ResolutionProblem, outcome: SolverOutcome, questions: Questions | None) -> None:
        """Add one part with its outcome; leave out the installs that stall, as `StallSearch` chooses them.

        If the rest has no solution either, the whole part keeps its lock.
        """
        search, remaining = StallSearch(self.inputs, part), part
        stalls: list[tuple[Explanation, tuple[Install, ...]]] = []
        whole: Explanation | None = None
        while isinstance(outcome, Unsatisfiable) and questions is not None:
            stall = search.next(remaining, outcome, questions)
            conflict = stall.conflict if stall is not None else outcome
            explanation = explain(self.inputs, remaining, conflict)
            if stalls and any(demand.held for demand in remaining.roots if demand.cause in conflict.causes):
                # What solves the conflict to which that install gave way, solves this one, too.
                explanation = replace(explanation, hint=stalls[0][0].hint)
            if stall is None:
                whole = explanation
                break
            stalls.append((explanation, stall.installs))
            remaining, outcome, questions = stall.problem, stall.outcome, stall.questions
        is_solved = isinstance(outcome, Assignment)
        for explanation, asking in stalls:
            names = tuple(map(str, asking)) if is_solved else ()
            self.explanations.append(replace(explanation, stalled=names, about=tuple(map(str, asking))))
            self.problems += [_problem(install, explanation, stalls=True) for install in asking]
        if isinstance(outcome, Assignment):
            why = functools.partial(explain_skipped, self.inputs, remaining)
            self._choose(replace(remaining, roots=part.roots), outcome, why)
            return
        self.failed.update(part.nodes)
        stalled = {install for _, asking in stalls for install in asking}
        requested = {demand.cause.subject for demand in part.roots}
        installs = [i for i in self.inputs.installs if str(i) in requested and i not in stalled]
        if whole is not None:
            self.explanations.append(replace(whole, about=tuple(map(str, installs))))
            self.problems += [_problem(install, whole) for install in installs]
        elif isinstance(outcome, BudgetExceeded):
            message = f"Dependencies could not be decided in {plural(outcome.steps, 'step')}"
            hint = "Narrow the ranges, or raise `dependencies.steps` in reconciler.yaml"
            reason = Reason.STEP_BUDGET_EXCEEDED
            self.problems += [Problem(i.location, reason, message, hint, str(i), message) for i in installs]

    def _choose(
        self, problem: ResolutionProblem, answer: Assignment, why: Callable[[InstanceRequirement], str]
    ) -> None:
        """Add the chosen versions, each with how its needs are met, and the skipped ones with reasons."""
        users = {way.instance for demand in problem.roots for way in demand.alternatives}
        for instance, place in answer.chosen.items():
            node, install = problem.nodes[instance], self.installs.get(instance)
            candidate = self.candidates[instance] = node.candidates[place]
            needs: list[MetNeed] = []
            for cause, demand in {demand.cause: demand for demand in node.requirements[place]}.items():
                way = answer.selected.get(cause)
                self.requirements[instance, cause.resource] = demand.requirement
                if way is not None:
                    needs.append(_met_need(cause.resource, demand.requirement, way, install))
                else:
                    text, reason = str(demand.requirement), why(demand)
                    self.skipped.append(SkippedNeed(parent=instance, requirement=text, reason=reason))
            self.resolved.append(
                Resolved(
                    instance=instance,
                    dialect=install.dialect if install else instance.ecosystem.dialect,
                    source=candidate.source,
                    version=candidate.version.text,
                    digest=candidate.digest,
                    by_user=instance in users,
                    unavailable=candidate.unavailable,
                    retain=candidate.retain,
                    prune_kinds=install is not None and install.revisions.prune_kinds,
                    dependencies=tuple(needs),
                )
            )


def _met_need(signature: str, requirement: Requirement, way: Alternative, install: Install | None) -> MetNeed:
    return met_need(
        requirement.alternatives[way.alternative],
        signature=signature,
        alias=requirement.alias_of(way.alternative),
        resolved=way.instance,
        detail=way.target,
        via=way.via,
        active=way.active,
        alternative=way.alternative,
        alternatives=len(requirement.alternatives),
        optional=requirement.optional,
        upgrade=requirement.actions.upgrade,
        uninstall=requirement.actions.uninstall and (install is None or install.prune_dependencies),
    )


def warnings_of(inputs: ClusterInputs, solution: Solution) -> tuple[Problem, ...]:
    """Return the warnings about a solution, with the places of these inputs."""
    return (*_unused_settings(inputs, solution.candidates), *_binding_warnings(inputs, solution))


def _binding_warnings(inputs: ClusterInputs, solution: Solution) -> Iterator[Problem]:
    """Yield a warning for each binding to an installation of a version that was not asked for.

    Whoever binds decides: only the shape of an interface must fit.
    """
    there = {f"binding:{qualified(i.namespace, i.name)}": i.interfaces for i in inputs.presence.installations}
    there |= {f"binding:{qualified(i.namespace, i.name)}": i.interfaces for i in inputs.installs}
    for install in inputs.installs:
        is_bound = bool(install.bindings) and not install.external
        instance = inputs.instance_of(install)
        package = solution.resolved.get(instance) if is_bound else None
        for met in package.dependencies if package is not None else ():
            requirement = solution.requirements[instance, met.signature]
            need = requirement.alternatives[met.alternative]
            if met.via != AlternativeSource.BINDING or not isinstance(need, InterfaceNeed):
                continue
            bound = dict(install.bindings)[requirement.alias]
            target = met.resolved
            offered = solution.candidates[target].interfaces if target else there.get(met.detail, ())
            if not any(interface.meets(need) for interface in offered):
                message = f"{requirement.alias} is bound to {bound}, which is not {need}"
                yield Problem(install.location, Reason.INVALID_VERSION, message, subject=str(install))


def _unknown_parameters(
    inputs: ClusterInputs, chosen: Mapping[Instance, Candidate], named: Mapping[str, set[PackageId]]
) -> Iterator[Problem]:
    """Yield a warning for each parameter that a bundle does not have: its own, or one of those below it."""
    for install in inputs.installs:
        for word in given_parameters(install):
            alias, mark, name = word.partition("#")
            ids = named.get(alias, set()) if mark else {inputs.catalogue.find(install.need.id)}
            bundles = [bundle for bundle in chosen.values() if bundle.id in ids]
            parts = [what.partition(" ") for bundle in bundles for what in bundle.has or ()]
            names, meant = {part[2] for part in parts if part[0] == "parameter"}, name or alias
            if names and meant not in names and not meant.startswith("porter-"):
                message = f"{bundles[0]} has no parameter {meant}, so what is said about it has no effect"
                hint = suggest(meant, sorted(names))
                yield Problem(install.location, Reason.NOT_FOUND, message, hint, str(install))


def _unused_settings(inputs: ClusterInputs, chosen: Mapping[Instance, Candidate]) -> Iterator[Problem]:
    """Yield a warning for each override, value or parameter that has no effect on what it is for."""
    aliased = grouped((r.alias, r.alternatives) for item in chosen.values() for r in item.requires)
    named = {
        alias: {inputs.catalogue.find(n.id) for needs in every for n in needs if isinstance(n, PackageNeed)}
        for alias, every in aliased.items()
    }
    yield from _unknown_parameters(inputs, chosen, named)
    for install in sorted(inputs.installs, key=str):
        candidate = chosen.get(inputs.instance_of(install))
        if candidate is None:
            continue
        # The packages that it may depend on, each with the aliases of it, empty for none
        aliases: dict[str, set[str]] = {}
        for requirement in candidate.requires:
            for place, need in enumerate(requirement.alternatives):
                if isinstance(need, PackageNeed):
                    aliases.setdefault(need.id.name, set()).add(requirement.alias_of(place))
        names = {*aliases, *(alias for matching in aliases.values() for alias in matching)}
        names |= {requirement.alias for requirement in candidate.requires}
        settings = [(item.name, item.location) for item in install.overrides]
        settings += [(item.name, install.location) for item in install.values]
        # Parameters reach dependencies of dependencies, too.
        reached = {name.partition("#")[0] for name in install.gives} - named.keys()
        bound = reached | {alias for alias, _ in install.bindings}
        settings += [(alias, install.location) for alias in sorted(bound)]
        for name, location in settings:
            if name not in names:
                message = f"{candidate} has no dependency {name}, so what is said about it has no effect"
                hint = suggest(name, sorted(names - {""}))
                yield Problem(location, Reason.NOT_FOUND, message, hint, str(install))
        by_alias = {value.name for value in install.values}
        for value in install.values:
            matching = aliases.get(value.name, set())
            if matching and matching <= by_alias:
                message = f"The values for {value.name} are not used: those for its alias {min(matching)} are"
                yield Problem(install.location, Reason.NOT_FOUND, message, subject=str(install))


def _problem(install: Install, explanation: Explanation, *, stalls: bool = False) -> Problem:
    sentences = "; ".join(explanation.sentences)
    if stalls and explanation.code.is_ownership:
        message = f"{install} gives way and stays as it was: {sentences}"
        return Problem(install.location, Reason.OWNERSHIP_CONFLICT, message, explanation.hint, str(install))
    message = f"Dependencies cannot be met: {sentences}"
    reason = Reason.DEPENDENCY_CYCLE if explanation.code is ConflictCode.CYCLE else Reason.DEPENDENCY_CONFLICT
    return Problem(install.location, reason, message, explanation.hint, str(install), message)


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
    packages contest a kind, the lowest-ranked install stalls; of installs of one package that may be there
    once all but one; otherwise all installs of the conflict. A
    stalled install keeps its locked version; what has none is not installed, and nothing else may install
    its package outside of its range.
    """

    def __init__(self, inputs: ClusterInputs, problem: ResolutionProblem) -> None:
        self._installs = {str(install): install for install in inputs.installs}
        self._stalled = {demand.cause for demand in problem.roots if demand.held}
        self._count = len(problem.roots)

    def next(self, problem: ResolutionProblem, conflict: Unsatisfiable, questions: Questions) -> Stall | None:
        """Return the next stall; None if the whole problem keeps its lock."""
        conflict = self._smallest(problem, conflict, questions)
        asking = self._asking(problem, conflict)
        rivals = self._rivals(problem, conflict, asking)
        is_contest = bool(rivals) or any(cause.kind in _OWNERSHIP for cause in conflict.causes)
        if rivals:
            asking = rivals[1:]
        elif is_contest:
            asking = self._preempted(problem, conflict, asking)
        elif not conflict.minimal or len(asking) + len(self._stalled) == self._count:
            return None
        if not asking:
            return None
        remaining = problem
        for demand in asking:
            remaining = _without_root(remaining, demand)
        self._stalled.update(demand.cause for demand in asking)
        outcome, following = attempt(remaining)
        if not is_contest and isinstance(outcome, Unsatisfiable) and not self._asking(remaining, outcome):
            return None
        installs = tuple(self._installs[str(demand.cause.subject)] for demand in asking)
        return Stall(conflict, installs, remaining, outcome, following)

    def _smallest(
        self, problem: ResolutionProblem, conflict: Unsatisfiable, questions: Questions
    ) -> Unsatisfiable:
        """Return a conflict of installs of which any fewer have a solution; those that run are spared."""
        asking = self._asking(problem, conflict)
        if not 1 < len(asking) <= _MOST_COMPARED:
            return conflict
        roots = {demand.cause for demand in problem.roots} - self._stalled
        rules = [cause for cause in questions.causes if cause not in roots]
        smallest = asking
        try:
            for demand in sorted(asking, key=lambda demand: not _runs(problem, demand)):
                fewer = [other for other in smallest if other is not demand]
                if fewer and not questions.is_solvable([*(other.cause for other in fewer), *rules]):
                    smallest = fewer
        except BudgetError:
            return conflict
        if smallest == asking:
            return conflict
        return questions.conflict([*(other.cause for other in smallest), *rules])

    def _asking(self, problem: ResolutionProblem, conflict: Unsatisfiable) -> list[InstanceRequirement]:
        """Return the installs of a conflict that do not stall yet."""
        causes = frozenset(conflict.causes) - self._stalled
        return [demand for demand in problem.roots if demand.cause in causes]

    def _rivals(
        self, problem: ResolutionProblem, conflict: Unsatisfiable, asking: list[InstanceRequirement]
    ) -> list[InstanceRequirement]:
        """Return the installs of one package that may be there once: the one that counts, then the others.

        It is the one that runs, else the lowest, as with Crossplane's packages.
        """
        once = {cause.subject for cause in conflict.causes if cause.kind is CauseKind.ONCE}

        def rank(demand: InstanceRequirement) -> tuple[bool, str, str]:
            install = self._installs[str(demand.cause.subject)]
            return (not _runs(problem, demand), install.namespace, install.name)

        rivals = [d for d in asking if _target(problem, d)[1].instance.package in once]
        return sorted(rivals, key=rank) if len(rivals) > 1 else []

    def _preempted(
        self, problem: ResolutionProblem, conflict: Unsatisfiable, asking: list[InstanceRequirement]
    ) -> list[InstanceRequirement]:
        """Return the install that stalls in an ownership conflict: the lowest rank that unblocks the others.

        An install that owns a contested kind in the lock unblocks none. Of the others, installs that a user
        names rank highest, then the lowest kind and name.

        Source: crossplane, packages-v2 design, PackageLock: one of two packages wins, and always one.
        """
        # The instances that bring a contested kind or composition
        causes = frozenset(conflict.causes)
        packages = {cause.subject for cause in causes if cause.kind is CauseKind.HELD}
        contestants = {instance for instance in problem.nodes if instance.package in packages}
        exclusions = (item for item in problem.incompatibilities if item.cause in causes)
        contestants |= {instance for item in exclusions for instance in (item.first, item.second)}

        def rank(demand: InstanceRequirement) -> tuple[bool, str, str]:
            install = self._installs[str(demand.cause.subject)]
            is_aside = _target(problem, demand)[1].instance not in contestants
            return (is_aside, install.kind, install.name)

        ranked = sorted(asking, key=rank, reverse=True)
        # One that asks for its locked version only cannot give way.
        targets = ((demand, *_target(problem, demand)) for demand in ranked)
        free = [d for d, way, node in targets if node.locked is None or way.allowed != {node.locked}]
        held = (demand for demand in problem.roots if demand.cause in self._stalled)
        contested = replace(problem, roots=(*held, *asking))
        try:
            compared = free[:_MOST_COMPARED] if len(free) > 1 else []
            helpful = (demand for demand in compared if is_solvable(_without_root(contested, demand)))
            first = next(helpful, None)
        except BudgetError:
            first = None
        return [first] if first else free[:1]


def _runs(problem: ResolutionProblem, demand: InstanceRequirement) -> bool:
    """Tell whether the locked version of an install is still what it asks for."""
    alternative, node = _target(problem, demand)
    return node.locked in alternative.allowed


def _without_root(problem: ResolutionProblem, demand: InstanceRequirement) -> ResolutionProblem:
    """Return the problem with one install held at its locked version, or not installed if it has none.

    The versions that the install does not allow are excluded: nothing else brings them in its place.
    """
    alternative, node = _target(problem, demand)
    if node.locked is not None:
        held = replace(alternative, allowed=frozenset({node.locked}))
        fixed = replace(demand, alternatives=(held,), held=True)
        return replace(problem, roots=tuple(fixed if other is demand else other for other in problem.roots))
    excluded = set(range(len(node.candidates))) - alternative.allowed
    banned = {**node.banned, **{place: (*node.banned.get(place, ()), demand.cause) for place in excluded}}
    nodes = {**problem.nodes, node.instance: replace(node, banned=banned)}
    return replace(problem, nodes=nodes, roots=tuple(other for other in problem.roots if other is not demand))


def _target(problem: ResolutionProblem, demand: InstanceRequirement) -> tuple[Alternative, InstanceNode]:
    ((alternative, instance),) = ((way, way.instance) for way in demand.alternatives if way.instance)
    return alternative, problem.nodes[instance]
