"""Select the canonical solution: fewest changes of locked versions, then lexicographic preference."""

from collections import deque
from dataclasses import dataclass, field

from pysat.card import ITotalizer

from reconciler.dependencies.model.cluster import Instance
from reconciler.dependencies.solve.problem import PRESENT, Alternative, Assignment, Cause, ResolutionProblem
from reconciler.dependencies.solve.sat.formula import Formula, RequirementClauses
from reconciler.dependencies.solve.sat.solver import SatSolver


def minimize_changes(oracle: SatSolver) -> None:
    """Decide which locked versions and choices stay: the fewest changes, then the least names first.

    A pin whose instance is not needed any more counts as kept. The oracle has been asked before.
    """
    changes = _changes(oracle)
    if not changes:
        return
    kept = [-change for change in changes]
    if not oracle.ask(*kept):
        kept = _fewest(oracle, changes)
        oracle.ask(*kept)
    for literal in kept:
        oracle.add(literal)


def _changes(oracle: SatSolver) -> list[int]:
    """Return a literal for each pin that is true if the pin changes, by name."""
    formula = oracle.formula
    named: list[tuple[str, int]] = []
    for instance, node in formula.question.nodes.items():
        if node.locked is not None:
            change = formula.new()
            oracle.add(change, -formula.present[instance], formula.versions[instance][node.locked])
            named.append((str(instance), change))
    for fact, alternative in formula.question.locked_alternatives.items():
        found = _sticky(formula, oracle, fact, alternative)
        if found:
            named.append((f"{fact.subject} {fact.detail}", found))
    return [change for _, change in sorted(named)]


def _sticky(formula: Formula, oracle: SatSolver, fact: Cause, alternative: int) -> int:
    group = formula.groups.get(fact)
    if group is None or group.demand.parent is None:
        return 0
    ways = list(zip(group.demand.alternatives, group.literals, strict=True))
    picks = [literal for way, literal in ways if way.alternative == alternative]
    if not picks:
        return 0
    change = formula.new()
    for place in sorted(group.places):
        oracle.add(change, -formula.versions[group.demand.parent][place], *picks)
    return change


def _fewest(oracle: SatSolver, changes: list[int]) -> list[int]:
    greedy = _greedy(oracle, changes, [])
    most = len(changes) - len(greedy)
    least = _least(oracle, changes)
    if least == most:
        return greedy
    formula = oracle.formula
    with ITotalizer(lits=changes, ubound=most, top_id=formula.top) as counter:
        formula.top = counter.top_id
        for clause in counter.cnf.clauses:
            oracle.add(*clause)
        bounds = list(counter.rhs)
    while most > least and oracle.ask(-bounds[most - 1]):
        most = sum(oracle.holds(change) for change in changes)
    return _greedy(oracle, changes, [-bounds[most]] if most < len(bounds) else [])


def _greedy(oracle: SatSolver, changes: list[int], given: list[int]) -> list[int]:
    """Keep pins by name, each if it can be kept together with those before it."""
    kept = list(given)
    oracle.ask(*kept)
    for change in changes:
        if oracle.holds(-change) or oracle.ask(*kept, -change):
            kept.append(-change)
    return kept


def _least(oracle: SatSolver, changes: list[int]) -> int:
    """Return a lower bound: how many sets of pins, apart from one another, cannot stay whole."""
    left = [-change for change in changes]
    count = 0
    while not oracle.ask(*left):
        core = set(oracle.core())
        if not core:
            break
        left = [literal for literal in left if literal not in core]
        count += 1
    return count


def lexicographic_assignment(question: ResolutionProblem, oracle: SatSolver) -> Assignment:
    """Decide everything that is needed, in the stated order, and nothing else.

    The oracle has been asked before and knows what is locked.
    """
    walker = _LexicographicSearch(question, oracle)
    for demand in question.roots:
        walker.enqueue(oracle.formula.groups[demand.cause])
    while (group := walker.next()) is not None:
        walker.meet(group)
    return Assignment(walker.chosen, walker.selected, tuple(walker.skipped))


@dataclass(slots=True)
class _LexicographicSearch:
    question: ResolutionProblem
    oracle: SatSolver
    chosen: dict[Instance, int] = field(default_factory=dict)
    selected: dict[Cause, Alternative] = field(default_factory=dict)
    skipped: list[Cause] = field(default_factory=list)
    _plain: deque[RequirementClauses] = field(default_factory=deque)
    _choosy: deque[RequirementClauses] = field(default_factory=deque)
    _optional: deque[RequirementClauses] = field(default_factory=deque)

    def enqueue(self, group: RequirementClauses) -> None:
        """Put a demand where its turn comes: one way, several ways, optional."""
        if group.demand.optional:
            self._optional.append(group)
        elif len(group.demand.alternatives) > 1:
            self._choosy.append(group)
        else:
            self._plain.append(group)

    def next(self) -> RequirementClauses | None:
        """Return the demand whose turn it is."""
        for queue in (self._plain, self._choosy, self._optional):
            if queue:
                return queue.popleft()
        return None

    def meet(self, group: RequirementClauses) -> None:
        """Meet a demand in the first way that works, or skip an optional one."""
        ways = sorted(
            zip(group.demand.alternatives, group.literals, strict=True), key=lambda w: self._rank(group, w[0])
        )
        way = next((way for way, literal in ways if self.oracle.prefers(literal)), None)
        if way is None:
            self.skipped.append(group.demand.cause)
            return
        self.selected[group.demand.cause] = way
        if way.instance is not None and way.active and way.instance not in self.chosen:
            self._choose(way.instance)

    def _rank(self, group: RequirementClauses, way: Alternative) -> tuple[bool, bool, int, bool]:
        sticky = self.question.locked_alternatives.get(group.demand.cause)
        there = (
            way.via in PRESENT or self.chosen.get(way.instance, -1) in way.allowed if way.instance else True
        )
        fresh = way.active and way.instance is not None and self.question.nodes[way.instance].locked is None
        return (way.alternative != sticky, not there, way.alternative, fresh)

    def _choose(self, instance: Instance) -> None:
        node = self.question.nodes[instance]
        versions = self.oracle.formula.versions[instance]
        place = next(p for p in node.order if p not in node.banned and self.oracle.prefers(versions[p]))
        self.chosen[instance] = place
        for demand in node.requirements[place]:
            self.enqueue(self.oracle.formula.groups[demand.cause])
