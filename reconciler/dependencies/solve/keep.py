"""Change as few locked pins as possible."""

from pysat.card import ITotalizer

from reconciler.dependencies.question import Fact
from reconciler.dependencies.solve.encode import Formula
from reconciler.dependencies.solve.oracle import Oracle


def keep_locked(oracle: Oracle) -> None:
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


def _changes(oracle: Oracle) -> list[int]:
    """Return a literal for each pin that is true if the pin changes, by name."""
    formula = oracle.formula
    named: list[tuple[str, int]] = []
    for instance, node in formula.question.nodes.items():
        if node.locked is not None:
            change = formula.new()
            oracle.add(change, -formula.present[instance], formula.versions[instance][node.locked])
            named.append((str(instance), change))
    for fact, alternative in formula.question.sticky.items():
        found = _sticky(formula, oracle, fact, alternative)
        if found:
            named.append((f"{fact.subject} {fact.detail}", found))
    return [change for _, change in sorted(named)]


def _sticky(formula: Formula, oracle: Oracle, fact: Fact, alternative: int) -> int:
    group = formula.groups.get(fact)
    if group is None or group.demand.parent is None:
        return 0
    ways = list(zip(group.demand.ways, group.literals, strict=True))
    picks = [literal for way, literal in ways if way.alternative == alternative]
    if not picks:
        return 0
    change = formula.new()
    for place in sorted(group.places):
        oracle.add(change, -formula.versions[group.demand.parent][place], *picks)
    return change


def _fewest(oracle: Oracle, changes: list[int]) -> list[int]:
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


def _greedy(oracle: Oracle, changes: list[int], given: list[int]) -> list[int]:
    """Keep pins by name, each if it can be kept together with those before it."""
    kept = list(given)
    oracle.ask(*kept)
    for change in changes:
        if oracle.holds(-change) or oracle.ask(*kept, -change):
            kept.append(-change)
    return kept


def _least(oracle: Oracle, changes: list[int]) -> int:
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
