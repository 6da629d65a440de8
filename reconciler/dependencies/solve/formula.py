"""A resolution problem as clauses, and questions about it to the SAT solver within a budget of steps."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from msgspec import Struct, field

from reconciler.base.wording import plural, verb
from reconciler.dependencies.model.instances import Instance
from reconciler.dependencies.model.packages import PackageNeed
from reconciler.dependencies.solve.problem import (
    CYCLE_CAUSE,
    Alternative,
    Cause,
    InstanceNode,
    InstanceRequirement,
    ResolutionProblem,
    forbids_cycle,
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


class UsedLink(NamedTuple):
    """A used alternative between two instances, or an output of the target that the other one gets.

    It is there if all of its literals are true.
    """

    target: Instance
    literals: tuple[int, ...]
    active: bool
    wired: bool


Links = dict[Instance, list[UsedLink]]


class ModelConstraints(Struct):
    """Constraints on whole models that clauses cannot express beforehand."""

    formula: Formula
    passive: bool = False
    circles: bool = False
    _at: dict[tuple[Instance, int], list[RequirementClauses]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        problem = self.formula.problem
        members = {instance.package.ecosystem for instance in problem.nodes}
        self.circles = bool(members & problem.forbid_cycles)
        groups = self.formula.groups.values()
        self.passive = any(
            not alternative.active for group in groups for alternative in group.demand.alternatives
        )
        self.circles |= any(group.demand.requirement.wired for group in groups)
        if not (self.passive or self.circles):
            return
        for group in groups:
            for place in group.places:
                if group.demand.parent is not None:
                    self._at.setdefault((group.demand.parent, place), []).append(group)

    def broken(self, model: list[int]) -> list[list[int]]:
        """Return clauses that every valid model obeys and this one does not; none if it is valid."""
        if not (self.passive or self.circles):
            return []
        chosen = {
            instance: next(place for place, var in enumerate(versions) if model[var - 1] > 0)
            for instance, versions in self.formula.versions.items()
            if model[self.formula.present[instance] - 1] > 0
        }
        founded = self._founded(model, chosen)
        loose = self._loose(model, chosen, founded) if self.passive else set()
        return self._unfounded(loose) if loose else self._circle(model, founded)

    def _used(
        self, model: list[int], group: RequirementClauses, chosen: dict[Instance, int]
    ) -> Iterator[tuple[Alternative, int]]:
        plain = group.is_direct
        for alternative, literal in zip(group.demand.alternatives, group.literals, strict=True):
            if alternative.instance is None:
                if model[literal - 1] > 0:
                    yield alternative, literal
            elif chosen.get(alternative.instance, -1) in alternative.allowed and (
                plain or model[literal - 1] > 0
            ):
                yield alternative, literal

    def _founded(self, model: list[int], chosen: dict[Instance, int]) -> Links:
        """Return the instances reachable from the user's installs, with the links they use."""
        reached: Links = {}
        roots = (self.formula.groups[demand.cause] for demand in self.formula.problem.roots)
        queue = [
            alternative.instance
            for group in roots
            for alternative, _ in self._used(model, group, chosen)
            if alternative.instance
        ]
        while queue:
            instance = queue.pop()
            if instance in reached or instance not in chosen:
                continue
            links = reached[instance] = []
            for group in self._at.get((instance, chosen[instance]), ()):
                wired = group.demand.requirement.wired
                for alternative, literal in self._used(model, group, chosen):
                    if alternative.instance is not None:
                        var = self.formula.versions[instance][chosen[instance]]
                        edge = var if group.is_direct else literal
                        links.append(UsedLink(alternative.instance, (edge,), alternative.active, wired))
            queue.extend(link.target for link in links if link.active)
        for instance in list(reached):
            self._add_wires(model, chosen, reached, instance)
        return reached

    def _add_wires(
        self, model: list[int], chosen: dict[Instance, int], links: Links, instance: Instance
    ) -> None:
        """Add a link for each dependency of an instance that gets an output of another one of them."""
        groups = self._at.get((instance, chosen[instance]), ())
        var = self.formula.versions[instance][chosen[instance]]
        used = [
            (group, alternative.instance, var if group.is_direct else literal)
            for group in (groups if any(g.demand.requirement.after for g in groups) else ())
            for alternative, literal in self._used(model, group, chosen)
            if alternative.instance is not None
        ]
        for group, getting, literal in used:
            for other, giving, edge in used:
                if other.demand.requirement.alias in group.demand.requirement.after and getting in links:
                    links[getting].append(UsedLink(giving, (literal, edge), active=False, wired=True))

    def _loose(self, model: list[int], chosen: dict[Instance, int], founded: Links) -> set[Instance]:
        """Return unreachable instances, if a reachable one relies on them."""
        relies = any(
            any(alternative.instance is not None for alternative, _ in used)
            and not any(
                alternative.instance is None or alternative.instance in founded for alternative, _ in used
            )
            for instance in founded
            for group in self._at.get((instance, chosen[instance]), ())
            if (used := list(self._used(model, group, chosen)))
        )
        return {instance for instance in chosen if instance not in founded} if relies else set()

    def _unfounded(self, loose: set[Instance]) -> list[list[int]]:
        """Return clauses: if one of these is present, an outside requirement needs one of them."""
        support: dict[int, None] = {}
        for group in self.formula.groups.values():
            parent = group.demand.parent
            if parent in loose:
                continue
            for alternative, literal in zip(group.demand.alternatives, group.literals, strict=True):
                if alternative.active and alternative.instance in loose:
                    direct = group.is_direct and parent is not None
                    places = sorted(group.places) if direct else ()
                    versions = [self.formula.versions[parent][p] for p in places] if parent else []
                    support.update(dict.fromkeys(versions or [literal]))
        present = self.formula.present
        return [[-present[i], *support] for i in self.formula.problem.nodes if i in loose]

    def _circle(self, model: list[int], founded: Links) -> list[list[int]]:
        if not self.circles:
            return []
        for circle in find_cycles(founded):
            wired = any(link.wired for link in circle)
            if forbids_cycle(self.formula.problem, (link.target for link in circle), wired=wired):
                clause = [-literal for link in circle for literal in link.literals]
                if not self.formula.guarded or wired:
                    return [clause]
                guard = self.formula.guard(CYCLE_CAUSE)
                if guard <= len(model) and model[guard - 1] > 0:
                    return [[*clause, -guard]]
        return []


def find_cycles(links: Links) -> Iterator[list[UsedLink]]:
    """Yield a cycle for each link that closes one, in a depth-first walk in the order of the links."""
    done: set[Instance] = set()
    for start in links:
        if start in done:
            continue
        path, taken = {start: 0}, list[UsedLink]()
        stack = [iter(links.get(start, ()))]
        while stack:
            link = next(stack[-1], None)
            if link is None:
                done.add(path.popitem()[0])
                stack.pop()
                del taken[-1:]
            elif link.target in path:
                yield [*taken[path[link.target] :], link]
            elif link.target not in done:
                path[link.target] = len(path)
                taken.append(link)
                stack.append(iter(links.get(link.target, ())))


_NAME = "g4"


class BudgetError(Exception):
    """The steps that a question may take are used up."""

    def __init__(self, steps: int) -> None:
        super().__init__(f"{plural(steps, 'step')} {verb(steps, 'was', 'were')} not enough")
        self.steps = steps


class SatSolver:
    """A solver with one formula, a step budget and the last model.

    A model counts only if it satisfies the model constraints; otherwise the reason becomes a clause and the
    search continues.
    """

    def __init__(self, formula: Formula, budget: int) -> None:
        self.formula = formula
        self._rules = ModelConstraints(formula)
        self._budget = budget
        self._left = budget
        from pysat.solvers import Solver  # noqa: PLC0415 - few runs have dependencies

        self._solver = Solver(name=_NAME, bootstrap_with=formula.clauses)
        self._model: list[int] = []

    def __del__(self) -> None:
        self._solver.delete()

    def ask(self, *assumptions: int) -> bool:
        """Tell whether the formula has a valid model under these assumptions; `holds` reads that model.

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

    def lean_towards(self, literals: list[int]) -> None:
        """Let the search try these literals first: models that have them are found sooner, none is lost."""
        self._solver.set_phases(literals)

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
