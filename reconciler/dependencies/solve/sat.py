"""Solve a resolution problem with a SAT solver: the canonical assignment, or a minimal conflict."""

from collections import deque
from collections.abc import Iterable, Mapping

from msgspec import Struct, field

from reconciler.dependencies.model.instances import Instance
from reconciler.dependencies.solve.formula import BudgetError, Formula, RequirementClauses, SatSolver, encode
from reconciler.dependencies.solve.problem import (
    PRESENT,
    Alternative,
    Assignment,
    BudgetExceeded,
    Cause,
    ResolutionProblem,
    SolverOutcome,
    Unsatisfiable,
)

Places = Mapping[Instance, tuple[int, ...]]
"""The versions that each instance may have, as places in its candidates, the preferred one first."""


def lean_towards_preferences(solver: SatSolver, places: Places) -> None:
    """Let the first model have what the canonical assignment tries first, as far as that is known before.

    What a model has already need not be asked for, and each question costs a walk through all instances.
    """
    formula = solver.formula
    literals = [*formula.range_literals()]
    for instance, order in places.items():
        locked = formula.problem.nodes[instance].locked
        first = locked if locked in order else next(iter(order), None)
        if first is not None:
            literals.append(formula.versions[instance][first])
    literals += [group.literals[0] for group in formula.groups.values() if group.literals]
    solver.lean_towards(literals)


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
        literal = _sticky(formula, solver, cause, alternative)
        if literal:
            named.append((f"{cause.subject} {cause.resource}", literal))
    return [change for _, change in sorted(named)]


def _sticky(formula: Formula, solver: SatSolver, cause: Cause, alternative: int) -> int:
    group = formula.groups.get(cause)
    if group is None or group.demand.parent is None:
        return 0
    alternatives = list(zip(group.demand.alternatives, group.literals, strict=True))
    picks = [literal for choice, literal in alternatives if choice.alternative == alternative]
    if not picks:
        return 0
    change = formula.new()
    for place in sorted(group.places):
        solver.add(change, -formula.versions[group.demand.parent][place], *picks)
    return change


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
    _plain: deque[RequirementClauses] = field(default_factory=deque)
    _choosy: deque[RequirementClauses] = field(default_factory=deque)
    _optional: deque[RequirementClauses] = field(default_factory=deque)

    def enqueue(self, group: RequirementClauses) -> None:
        """Queue a requirement: one alternative first, then several, then optional."""
        if group.demand.optional:
            self._optional.append(group)
        elif len(group.demand.alternatives) > 1:
            self._choosy.append(group)
        else:
            self._plain.append(group)

    def next(self) -> RequirementClauses | None:
        """Return the next requirement to decide."""
        for queue in (self._plain, self._choosy, self._optional):
            if queue:
                return queue.popleft()
        return None

    def meet(self, group: RequirementClauses) -> None:
        """Select the first possible alternative of a requirement, or skip an optional one."""
        alternatives = sorted(
            zip(group.demand.alternatives, group.literals, strict=True), key=lambda w: self._rank(group, w[0])
        )
        alternative = next(
            (alternative for alternative, literal in alternatives if self.solver.prefers(literal)), None
        )
        if alternative is None:
            self.skipped.append(group.demand.cause)
            return
        self.selected[group.demand.cause] = alternative
        if (
            alternative.instance is not None
            and alternative.active
            and alternative.instance not in self.chosen
        ):
            self._choose(alternative.instance)

    def _rank(self, group: RequirementClauses, alternative: Alternative) -> tuple[bool, bool, int, bool]:
        sticky = self.problem.locked_alternatives.get(group.demand.cause)
        there = (
            alternative.via in PRESENT or self.chosen.get(alternative.instance, -1) in alternative.allowed
            if alternative.instance
            else True
        )
        fresh = (
            alternative.active
            and alternative.instance is not None
            and self.problem.nodes[alternative.instance].locked is None
        )
        return (alternative.alternative != sticky, not there, alternative.alternative, fresh)

    def _choose(self, instance: Instance) -> None:
        node = self.problem.nodes[instance]
        versions = self.solver.formula.versions[instance]
        place = next(place for place in self.places[instance] if self.solver.prefers(versions[place]))
        self.chosen[instance] = place
        for demand in node.requirements[place]:
            self.enqueue(self.solver.formula.groups[demand.cause])


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
                core = None if self.is_solvable(fewer) else set(self.core())
                smaller = None if core is None else [cause for cause in fewer if cause in core]
                is_first = place == len(conflict)
                if smaller is not None:
                    is_first &= len(smaller) < len(conflict)  # asked again, it may get smaller still
                    conflict = smaller
                place = len(conflict) if is_first else min(place, len(conflict)) - 1
        except BudgetError:
            return Unsatisfiable(tuple(conflict), minimal=False)
        return Unsatisfiable(tuple(conflict), minimal=steps >= 0)

    def core(self) -> list[Cause]:
        """Return the causes of the last question without a solution that contradict one another already."""
        core = set(self.solver.core())
        return [cause for cause, guard in self.solver.formula.guards.items() if guard in core]


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
    ranges: dict[Instance, frozenset[int]] = {}
    for demand in problem.roots:
        alternative = demand.alternatives[0] if demand.is_plain else None
        if alternative is not None and alternative.instance is not None:
            instance = alternative.instance
            ranges[instance] = ranges.get(instance, alternative.allowed) & alternative.allowed
    # What no rule and no range of a user's install excludes.
    places = {
        instance: tuple(
            place
            for place in node.order
            if place not in node.banned and (instance not in ranges or place in ranges[instance])
        )
        for instance, node in problem.nodes.items()
    }
    solver = SatSolver(encode(problem), problem.budget)
    lean_towards_preferences(solver, places)
    if not solver.ask():
        return None
    minimize_changes(solver)
    return lexicographic_assignment(problem, solver, places)
