"""The finite problem as clauses: its canonical answer step by step, or clauses that contradict each other."""

import graphlib
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from msgspec import Struct, field

from reconciler.base.text import plural, verb
from reconciler.base.values import grouped
from reconciler.dependencies.model.instances import Instance
from reconciler.dependencies.model.packages import Ecosystem, PackageNeed
from reconciler.dependencies.solve.problem import (
    CYCLE_CAUSE,
    PRESENT,
    Alternative,
    Assignment,
    BudgetExceeded,
    Cause,
    InstanceNode,
    InstanceRequirement,
    ResolutionProblem,
    SolverOutcome,
    Unsatisfiable,
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
    ranges: dict[tuple[Instance, frozenset[int]], int] = field(default_factory=dict)
    """The literals that `some` has returned for several versions, but not for all."""
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
        versions, places, is_all = self._within_reach(instance, places)
        if is_all or len(places) == 1:
            return self.present[instance] if is_all else versions[next(iter(places))]
        key = (instance, places)
        if key not in self.ranges:
            self.ranges[key] = self.new()
            self.clauses.append([-self.ranges[key], *[versions[place] for place in sorted(places)]])
        return self.ranges[key]

    def _within_reach(
        self, instance: Instance, places: frozenset[int]
    ) -> tuple[list[int], frozenset[int], bool]:
        """Return the versions of an instance, the places that a solution may have, and whether it is all."""
        versions, reached = self.versions[instance], self.problem.nodes[instance].reached
        places = places & reached if len(reached) < len(versions) else places
        return versions, places, len(places) == len(reached)

    def touch(self, instance: Instance, places: frozenset[int]) -> int:
        """Return a literal that follows if the instance is at any of these places."""
        versions, places, is_all = self._within_reach(instance, places)
        if is_all:
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
        allowed = alternative.allowed
        formula.add(-pick, *([formula.some(alternative.instance, allowed)] if allowed else []))
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
        self.passive = any(not way.active for group in groups for way in group.demand.alternatives)
        is_wired = any(group.demand.requirement.wired for group in groups)
        # Most packages cannot need one another in a circle, whatever their versions.
        self.circles = is_wired or (self.circles and self._may_have_circle())
        if not (self.passive or self.circles):
            return
        below = [(group.demand.parent, group) for group in groups if group.demand.parent is not None]
        self._at = grouped(((parent, place), group) for parent, group in below for place in group.places)

    def _may_have_circle(self) -> bool:
        links: dict[Instance, set[Instance]] = {}
        for demand in (group.demand for group in self.formula.groups.values()):
            targets = (way.instance for way in demand.alternatives if way.instance is not None)
            if demand.parent is not None:
                links.setdefault(demand.parent, set()).update(targets)
        try:
            graphlib.TopologicalSorter(links).prepare()
        except graphlib.CycleError:
            return True
        return False

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
        for way, literal in zip(group.demand.alternatives, group.literals, strict=True):
            fits = way.instance is None or chosen.get(way.instance, -1) in way.allowed
            if fits and (group.is_direct or model[literal - 1] > 0):
                yield way, literal

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


Places = Mapping[Instance, tuple[int, ...]]
"""The versions that each instance may have, as places in its candidates, the preferred one first."""


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
        self._preferred: list[int] = []

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

    def lean_towards_preferences(self, places: Places) -> None:
        """Let the first model have what the canonical assignment tries first, as far as that is known before.

        What a model has already need not be asked for, and each question costs a walk through all instances.
        No model is lost.
        """
        formula = self.formula
        literals = [*formula.ranges.values()]
        for instance, order in places.items():
            locked = formula.problem.nodes[instance].locked
            first = locked if locked in order else next(iter(order), None)
            if first is not None:
                literals.append(formula.versions[instance][first])
        literals += [group.literals[0] for group in formula.groups.values() if group.literals]
        self._preferred = literals

    def _solves(self, assumptions: tuple[int, ...]) -> bool:
        if self._left <= 0:
            raise BudgetError(self._budget)
        before = self._solver.accum_stats()["conflicts"]
        self._solver.conf_budget(self._left)
        self._solver.set_phases(self._preferred)  # a search leaves others behind
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


def minimize_changes(solver: SatSolver) -> None:
    """Fix the locked versions and choices that stay: the fewest changes, then the lowest names first.

    The pin of an instance that is not needed any more counts as kept. The solver has a model already.
    """
    changes = _changes(solver)
    if not changes:
        return
    unchanged = [-change for change in changes]
    if not solver.ask(*unchanged):
        unchanged = _fewest(solver, changes)
        solver.ask(*unchanged)
    for literal in unchanged:
        solver.add(literal)


def _changes(solver: SatSolver) -> list[int]:
    """Return a literal for each pin that is true if the pin changes, by name."""
    formula = solver.formula
    named: list[tuple[str, int]] = []
    for instance, node in formula.problem.nodes.items():
        if node.locked is not None:
            change = formula.new()
            solver.add(change, -formula.present[instance], formula.versions[instance][node.locked])
            named.append((str(instance), change))
    for cause, alternative in formula.problem.locked_alternatives.items():
        group = formula.groups.get(cause)
        if group is None or group.demand.parent is None:
            continue
        ways = zip(group.demand.alternatives, group.literals, strict=True)
        if picks := [literal for way, literal in ways if way.alternative == alternative]:
            change = formula.new()
            for place in sorted(group.places):
                solver.add(change, -formula.versions[group.demand.parent][place], *picks)
            named.append((f"{cause.subject} {cause.resource}", change))
    return [change for _, change in sorted(named)]


def _fewest(solver: SatSolver, changes: list[int]) -> list[int]:
    greedy = _greedy(solver, changes, [])
    most = len(changes) - len(greedy)
    # A lower bound: how many sets of pins, apart from one another, cannot stay whole.
    unmoved, least = [-change for change in changes], 0
    while not solver.ask(*unmoved) and (core := set(solver.core())):
        unmoved = [literal for literal in unmoved if literal not in core]
        least += 1
    if least == most:
        return greedy
    formula = solver.formula
    from pysat.card import ITotalizer  # noqa: PLC0415 - few runs have dependencies

    with ITotalizer(lits=changes, ubound=most, top_id=formula.top) as counter:
        formula.top = counter.top_id
        for clause in counter.cnf.clauses:
            solver.add(*clause)
        bounds = list(counter.rhs)
    while most > least and solver.ask(-bounds[most - 1]):
        most = sum(solver.holds(change) for change in changes)
    return _greedy(solver, changes, [-bounds[most]] if most < len(bounds) else [])


def _greedy(solver: SatSolver, changes: list[int], assumed: list[int]) -> list[int]:
    """Keep pins by name, each if it can be kept together with those before it."""
    assumptions = list(assumed)
    solver.ask(*assumptions)
    for change in changes:
        if solver.holds(-change) or solver.ask(*assumptions, -change):
            assumptions.append(-change)
    return assumptions


def lexicographic_assignment(problem: ResolutionProblem, solver: SatSolver, places: Places) -> Assignment:
    """Assign everything that is needed, in preference order, and nothing else.

    The solver has a model already, and the locked versions are fixed.
    """
    walker = _LexicographicSearch(problem, solver, places)
    for demand in problem.roots:
        walker.enqueue(solver.formula.groups[demand.cause])
    while (group := walker.next()) is not None:
        walker.meet(group)
    return Assignment(walker.chosen, walker.selected, tuple(walker.skipped))


class _LexicographicSearch(Struct):
    problem: ResolutionProblem
    solver: SatSolver
    places: Places
    chosen: dict[Instance, int] = field(default_factory=dict)
    selected: dict[Cause, Alternative] = field(default_factory=dict)
    skipped: list[Cause] = field(default_factory=list)
    _ranges: dict[Instance, frozenset[int]] = field(default_factory=dict)
    _queues: tuple[deque[RequirementClauses], ...] = field(
        default_factory=lambda: (deque(), deque(), deque())
    )

    def enqueue(self, group: RequirementClauses) -> None:
        if group.is_direct:
            self._narrow(group.demand.alternatives[0])
        # One alternative first, then several, then optional.
        has_choice = len(group.demand.alternatives) > 1
        self._queues[2 if group.demand.optional else has_choice].append(group)

    def next(self) -> RequirementClauses | None:
        return next((queue.popleft() for queue in self._queues if queue), None)

    def meet(self, group: RequirementClauses) -> None:
        """Select the first possible alternative of a requirement, or skip an optional one."""
        ways = zip(group.demand.alternatives, group.literals, strict=True)
        ranked = sorted(ways, key=lambda pair: self._rank(group, pair[0]))
        way = next((way for way, literal in ranked if self.solver.prefers(literal)), None)
        if way is None:
            self.skipped.append(group.demand.cause)
            return
        self.selected[group.demand.cause] = way
        if way.instance is not None and way.active and way.instance not in self.chosen:
            self._narrow(way)
            self._choose(way.instance)

    def _narrow(self, way: Alternative) -> None:
        """Note the range of a way that is taken: no question is needed for the versions outside."""
        if way.instance is not None:
            self._ranges[way.instance] = self._ranges.get(way.instance, way.allowed) & way.allowed

    def _rank(self, group: RequirementClauses, way: Alternative) -> tuple[bool, bool, int, bool]:
        sticky = self.problem.locked_alternatives.get(group.demand.cause)
        node = self.problem.nodes[way.instance] if way.instance is not None else None
        there = node is None or way.via in PRESENT or self.chosen.get(node.instance, -1) in way.allowed
        fresh = way.active and node is not None and node.locked is None
        return (way.alternative != sticky, not there, way.alternative, fresh)

    def _choose(self, instance: Instance) -> None:
        node = self.problem.nodes[instance]
        versions = self.solver.formula.versions[instance]
        places = (place for place in self.places[instance] if place in self._ranges[instance])
        place = next(place for place in places if self.solver.prefers(versions[place]))
        self.chosen[instance] = place
        for demand in node.requirements[place]:
            self.enqueue(self.solver.formula.groups[demand.cause])


class GreedyWalk(Struct):
    """Chooses versions as `lexicographic_assignment` does, but asks no solver.

    It passes over a version that contradicts what is decided. So where it `fits` to the end, no other valid
    assignment comes before this one; where not, only a solver knows, and most of this is right.
    """

    problem: ResolutionProblem
    chosen: dict[Instance, int] = field(default_factory=dict)
    selected: dict[Cause, Alternative] = field(default_factory=dict)
    left: dict[Instance, tuple[int, ...]] = field(default_factory=dict)
    """The versions that each instance may still have, the preferred one first."""
    fits: bool = True
    _owners: dict[str, Instance] = field(default_factory=dict)

    def __post_init__(self) -> None:
        try:
            self._walk()
        except (LookupError, graphlib.CycleError):
            self.fits = False

    def _walk(self) -> None:
        links: dict[Instance, list[Instance]] = {}
        queue = [self._require(demand) for demand in self.problem.roots]
        for instance in (instance for instance in queue if instance not in links):
            node, left = self.problem.nodes[instance], self.left[instance]
            place = next((place for place in left if self._is_open(instance, place)), None)
            self.fits &= place is not None
            place = left[0] if place is None else place
            self.chosen[instance], self.left[instance] = place, (place,)
            self._owners |= dict.fromkeys(node.candidates[place].owned_names, instance)
            links[instance] = [self._require(demand) for demand in node.requirements[place]]
            queue += links[instance]
        # Only a solver finds versions that need one another in no circle.
        graphlib.TopologicalSorter(links if self.problem.forbid_cycles else {}).prepare()

    def _is_open(self, instance: Instance, place: int) -> bool:
        node = self.problem.nodes[instance]
        owners = {self._owners.get(name, instance) for name in node.candidates[place].owned_names}
        ways = map(self._only_way, node.requirements[place])
        is_met = (not way.allowed.isdisjoint(self._versions(target)) for way, target in ways)
        return owners <= {instance} and all(is_met)

    def _require(self, demand: InstanceRequirement) -> Instance:
        way, target = self._only_way(demand)
        self.selected[demand.cause] = way
        fitting = tuple(place for place in self._versions(target) if place in way.allowed)
        self.fits &= bool(fitting)
        self.left[target] = fitting or self.left[target]
        return target

    def _versions(self, instance: Instance) -> tuple[int, ...]:
        if instance not in self.left:
            node = self.problem.nodes[instance]
            # As few locked versions as possible change: none.
            order = node.order if node.locked is None else (node.locked,)
            self.left[instance] = tuple(place for place in order if place not in node.banned)
        return self.left[instance]

    def _only_way(self, demand: InstanceRequirement) -> tuple[Alternative, Instance]:
        """Return the one way to meet a requirement, and its instance, where the version alone is open."""
        needs = demand.requirement.alternatives
        is_open = not demand.is_plain or not demand.requirement.may_install_all or len(needs) > 1
        way = demand.alternatives[0] if not is_open and isinstance(needs[0], PackageNeed) else None
        if way is None or way.instance is None or way.instance.ecosystem is not Ecosystem.XPKG:
            raise LookupError(demand)
        return way, way.instance


class Questions:
    """Questions about one problem in which any cause can be left out: it is encoded once for all of them."""

    def __init__(self, problem: ResolutionProblem) -> None:
        self.causes = problem.causes()
        self.solver = SatSolver(encode(problem, guarded=True), problem.budget)
        self._steps = problem.explain_steps

    def is_solvable(self, causes: Iterable[Cause]) -> bool:
        """Tell whether a solution obeys these causes.

        Raises:
            BudgetError: The budget of conflicts is used up.
        """
        guards = self.solver.formula.guards
        return self.solver.ask(*(guards[cause] for cause in causes if cause in guards))

    def conflict(self, causes: Iterable[Cause]) -> Unsatisfiable:
        """Return some of these contradictory causes that contradict one another, none of them superfluous.

        Of several such sets, causes that come late are avoided first. It is not minimal if more than the
        problem's `explain_steps` questions are needed.

        Source: deletion with clause-set refinement; A. Belov, J. Marques-Silva, MUSer2 (2012).
        """
        conflict, steps = list(causes), self._steps
        try:
            place = len(conflict)
            while place >= 0 and (steps := steps - 1) >= 0:
                fewer = [cause for number, cause in enumerate(conflict) if number != place]
                smaller = None if self.is_solvable(fewer) else self._core(fewer)
                is_first = place == len(conflict)
                if smaller is not None:
                    is_first &= len(smaller) < len(conflict)  # asked again, it may get smaller still
                    conflict = smaller
                place = len(conflict) if is_first else min(place, len(conflict)) - 1
        except BudgetError:
            return Unsatisfiable(tuple(conflict), minimal=False)
        return Unsatisfiable(tuple(conflict), minimal=steps >= 0)

    def _core(self, causes: Iterable[Cause]) -> list[Cause]:
        """Return those of the causes that contradict one another already, by the last question."""
        core, guards = set(self.solver.core()), self.solver.formula.guards
        return [cause for cause in causes if guards.get(cause) in core]


def attempt(problem: ResolutionProblem) -> tuple[SolverOutcome, Questions | None]:
    """Solve a problem canonically; where it contradicts itself, further questions about it can be asked.

    Equal problems have equal results, whatever the solver does inside. Among all valid assignments: as few
    locked versions change as possible, and of those sets of kept versions the one with the lowest names. Then
    requirements are decided one by one, the user's first, those with one alternative before those with
    several, optional ones last: each takes its first alternative, and each new instance its first version,
    that some valid assignment has. Alternatives are tried in the order: locked, existing, as written, and
    within one locked before new.

    Deterministic: bounded by the problem's budget of conflicts, never by time.
    """
    try:
        answer = assign(problem)
    except BudgetError as error:
        return BudgetExceeded(error.steps), None
    return (answer, None) if answer is not None else contradiction(problem)


def contradiction(problem: ResolutionProblem) -> tuple[Unsatisfiable, Questions]:
    """Return what contradicts itself in a problem without an answer, and more questions about it."""
    questions = Questions(problem)
    return questions.conflict(questions.causes), questions


def is_solvable(problem: ResolutionProblem) -> bool:
    """Tell whether a problem has a solution.

    Raises:
        BudgetError: The budget of conflicts ran out first.
    """
    return SatSolver(encode(problem), problem.budget).ask()


def assign(problem: ResolutionProblem) -> Assignment | None:
    """Return the canonical assignment of a problem; None if it has none.

    Raises:
        BudgetError: The budget of conflicts ran out first.
    """
    greedy = GreedyWalk(problem)
    if greedy.fits:
        return Assignment(greedy.chosen, greedy.selected)
    # What no rule excludes.
    places = {
        instance: tuple(place for place in node.order if place not in node.banned)
        for instance, node in problem.nodes.items()
    }
    solver = SatSolver(encode(problem), problem.budget)
    solver.lean_towards_preferences(places | greedy.left)
    if not solver.ask():
        return None
    minimize_changes(solver)
    return lexicographic_assignment(problem, solver, places)
