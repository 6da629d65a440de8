"""Encode a resolution problem as clauses: one variable per version and per alternative."""

from collections.abc import Iterable, Iterator

from msgspec import Struct, field

from reconciler.dependencies.model.cluster import Instance
from reconciler.dependencies.model.packages import PackageNeed
from reconciler.dependencies.solve.problem import (
    CYCLE_CAUSE,
    Alternative,
    Cause,
    InstanceNode,
    InstanceRequirement,
    ResolutionProblem,
)

_PAIRWISE = 5

NEVER = 1
"""The variable of a formula that is false: every version that nothing leads to."""


class RequirementClauses(Struct, frozen=True):
    """A requirement of one instance, the versions that have it, and a literal for each alternative.

    A direct requirement has one alternative, and its literal implies the target; otherwise a literal
    implies the use of its alternative, and at most one is used.
    """

    demand: InstanceRequirement
    places: frozenset[int]
    literals: tuple[int, ...]
    is_direct: bool


class Formula(Struct):
    """Clauses and the meaning of their variables. In a guarded formula each cause can be disabled."""

    problem: ResolutionProblem
    guarded: bool = False
    clauses: list[list[int]] = field(default_factory=list)
    versions: dict[Instance, list[int]] = field(default_factory=dict)
    present: dict[Instance, int] = field(default_factory=dict)
    groups: dict[Cause, RequirementClauses] = field(default_factory=dict)
    guards: dict[Cause, int] = field(default_factory=dict)
    top: int = 1
    _some: dict[tuple[int, frozenset[int]], int] = field(default_factory=dict)
    _touch: dict[tuple[Instance, frozenset[int]], int] = field(default_factory=dict)

    def new(self) -> int:
        """Return a fresh variable."""
        self.top += 1
        return self.top

    def add(self, *literals: int, cause: Cause | None = None) -> None:
        """Add a clause; in a guarded formula it holds only while its fact does."""
        clause = list(literals)
        if self.guarded and cause is not None:
            clause.append(-self.guard(cause))
        self.clauses.append(clause)

    def guard(self, cause: Cause) -> int:
        """Return the variable that switches a fact on."""
        if cause not in self.guards:
            self.guards[cause] = self.new()
        return self.guards[cause]

    def some(self, instance: Instance, places: frozenset[int]) -> int:
        """Return a literal that implies that the instance is at one of these places."""
        versions, reached = self.versions[instance], self.problem.nodes[instance].reached
        if len(reached) < len(versions):
            places &= reached
        if len(places) == len(reached):
            return self.present[instance]
        if len(places) == 1:
            return versions[next(iter(places))]
        key = (self.present[instance], places)
        literal = self._some.get(key)
        if literal is None:
            literal = self._some[key] = self.new()
            self.clauses.append([-literal, *[versions[place] for place in sorted(places)]])
        return literal

    def range_literals(self) -> Iterable[int]:
        """Return the literals that `some` has returned for several versions, but not for all."""
        return self._some.values()

    def touch(self, instance: Instance, places: frozenset[int]) -> int:
        """Return a literal that follows if the instance is at any of these places."""
        versions, reached = self.versions[instance], self.problem.nodes[instance].reached
        if len(reached) < len(versions):
            places &= reached
        if len(places) == len(reached):
            return self.present[instance]
        key = (instance, places)
        if key not in self._touch:
            self._touch[key] = self.new()
            self.clauses.extend([-versions[p], self._touch[key]] for p in sorted(places))
        return self._touch[key]


def encode(problem: ResolutionProblem, *, guarded: bool = False) -> Formula:
    """Write a question as clauses.

    A guarded formula lets each fact be assumed or not, and meets demands by explicit choices only,
    so that without its fact a demand may be met but need not.
    """
    formula = Formula(problem, guarded, [[-NEVER]])
    for instance, node in problem.nodes.items():
        _one_version(formula, instance, node)
    for cause, demand, places in _grouped(problem):
        formula.groups[cause] = _demand(formula, demand, places)
    for instance, node in problem.nodes.items():
        for place, causes in node.banned.items():
            for cause in causes:
                formula.add(-formula.versions[instance][place], cause=cause)
    for exclusion in problem.incompatibilities:
        first = formula.touch(exclusion.first, exclusion.first_places)
        second = formula.touch(exclusion.second, exclusion.second_places)
        formula.add(-first, -second, cause=exclusion.cause)
    if guarded and problem.forbid_cycles:
        formula.guard(CYCLE_CAUSE)
    return formula


def _one_version(formula: Formula, instance: Instance, node: InstanceNode) -> None:
    present = formula.present[instance] = formula.new()
    places = range(len(node.candidates))
    formula.versions[instance] = [formula.new() if p in node.reached else NEVER for p in places]
    versions = [formula.versions[instance][place] for place in sorted(node.reached)]
    formula.add(-present, *versions)
    for version in versions:
        formula.add(-version, present)
    if len(versions) <= _PAIRWISE:
        for number, left in enumerate(versions):
            for right in versions[:number]:
                formula.add(-left, -right)
        return
    seen = versions[0]
    for version in versions[1:]:
        formula.add(-version, -seen)
        following = formula.new()
        formula.add(-seen, following)
        formula.add(-version, following)
        seen = following


def _grouped(problem: ResolutionProblem) -> Iterator[tuple[Cause, InstanceRequirement, frozenset[int]]]:
    for demand in problem.roots:
        yield demand.cause, demand, frozenset()
    for node in problem.nodes.values():
        places: dict[Cause, set[int]] = {}
        demands: dict[Cause, InstanceRequirement] = {}
        for place, group in enumerate(node.requirements):
            for demand in group:
                demands.setdefault(demand.cause, demand)
                places.setdefault(demand.cause, set()).add(place)
        for cause, demand in demands.items():
            yield cause, demand, frozenset(places[cause])


def _demand(formula: Formula, demand: InstanceRequirement, places: frozenset[int]) -> RequirementClauses:
    if demand.is_plain and not formula.guarded and demand.alternatives[0].instance is not None:
        return _direct(formula, demand, places, demand.alternatives[0], demand.alternatives[0].instance)
    literals = tuple(_way(formula, demand, alternative, places) for alternative in demand.alternatives)
    for number, left in enumerate(literals):
        for right in literals[:number]:
            formula.add(-left, -right)
    if demand.optional:
        _optional(formula, demand, places)
    elif demand.required:
        for needed in _premises(formula, demand, places):
            formula.add(*needed, *literals, cause=demand.cause)
    return RequirementClauses(demand, places, literals, is_direct=False)


def _direct(
    formula: Formula,
    demand: InstanceRequirement,
    places: frozenset[int],
    alternative: Alternative,
    target: Instance,
) -> RequirementClauses:
    if alternative.allowed:
        literal = formula.some(target, alternative.allowed)
    else:
        literal = formula.new()
        formula.clauses.append([-literal])
    if demand.parent is None:
        formula.clauses.append([literal])
    else:
        formula.clauses.extend([*needed, literal] for needed in _premises(formula, demand, places))
    return RequirementClauses(demand, places, (literal,), is_direct=True)


def _premises(
    formula: Formula, demand: InstanceRequirement, places: frozenset[int]
) -> Iterable[tuple[int, ...]]:
    if demand.parent is None:
        return [()]
    versions = formula.versions[demand.parent]
    if len(places) == len(formula.problem.nodes[demand.parent].reached):
        return [(-formula.present[demand.parent],)]
    return [(-versions[place],) for place in sorted(places)]


def _way(
    formula: Formula, demand: InstanceRequirement, alternative: Alternative, places: frozenset[int]
) -> int:
    pick = formula.new()
    if alternative.instance is not None:
        formula.add(
            -pick, *([formula.some(alternative.instance, alternative.allowed)] if alternative.allowed else [])
        )
    if demand.parent is not None:
        versions = formula.versions[demand.parent]
        formula.add(-pick, *(versions[place] for place in sorted(places)))
    return pick


def _optional(formula: Formula, demand: InstanceRequirement, places: frozenset[int]) -> None:
    """Add clauses for an optional requirement: an installed package must still fit."""
    needs = demand.requirement.alternatives
    if not demand.required or len(needs) != 1 or not isinstance(needs[0], PackageNeed):
        return
    for alternative in demand.alternatives:
        if alternative.instance is None:
            continue
        fits = [formula.some(alternative.instance, alternative.allowed)] if alternative.allowed else []
        for needed in _premises(formula, demand, places):
            formula.add(*needed, -formula.present[alternative.instance], *fits, cause=demand.cause)
