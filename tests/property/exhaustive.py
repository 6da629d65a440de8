"""Every answer of a small question, by trying everything; it knows nothing of the solver."""

from collections.abc import Iterator
from dataclasses import dataclass

from reconciler.dependencies.model.instances import Instance
from reconciler.dependencies.model.packages import PackageNeed
from reconciler.dependencies.solve.problem import (
    CYCLE_CAUSE,
    PRESENT,
    Alternative,
    Assignment,
    Cause,
    InstanceRequirement,
    ResolutionProblem,
)
from tests.support.values import replace


@dataclass(frozen=True)
class Whole:
    """One valid answer."""

    chosen: dict[Instance, int]
    selected: dict[Cause, Alternative]


def answers(question: ResolutionProblem) -> list[Whole]:
    """Return every valid answer in which nothing is chosen that nobody needs."""
    return list(_extend(question, {}, {}, list(question.roots)))


def _extend(
    question: ResolutionProblem,
    chosen: dict[Instance, int],
    met: dict[Cause, Alternative],
    todo: list[InstanceRequirement],
) -> Iterator[Whole]:
    if _clashes(question, chosen):
        return
    if not todo:
        whole = Whole(chosen, met)
        if _is_valid(question, whole):
            yield whole
        return
    demand, rest = todo[0], todo[1:]
    if demand.optional or not demand.required:
        yield from _extend(question, chosen, met, rest)
    for way in demand.alternatives:
        now = {**met, demand.cause: way}
        if way.instance is None or not way.active:
            yield from _extend(question, chosen, now, rest)
        elif way.instance in chosen:
            if chosen[way.instance] in way.allowed:
                yield from _extend(question, chosen, now, rest)
        else:
            node = question.nodes[way.instance]
            for place in sorted(way.allowed - set(node.banned)):
                more = {**chosen, way.instance: place}
                yield from _extend(question, more, now, [*rest, *node.requirements[place]])


def _clashes(question: ResolutionProblem, chosen: dict[Instance, int]) -> bool:
    return any(
        chosen.get(e.first, -1) in e.first_places and chosen.get(e.second, -1) in e.second_places
        for e in question.incompatibilities
    )


def _is_valid(question: ResolutionProblem, whole: Whole) -> bool:
    held = all(
        whole.chosen.get(way.instance, -1) in way.allowed
        for way in whole.selected.values()
        if way.instance is not None
    )
    return (
        held and all(_fits(whole, d) for d in _demands(question, whole)) and not _bad_circle(question, whole)
    )


def _demands(question: ResolutionProblem, whole: Whole) -> list[InstanceRequirement]:
    found = list(question.roots)
    for instance, place in whole.chosen.items():
        found += question.nodes[instance].requirements[place]
    return found


def _fits(whole: Whole, demand: InstanceRequirement) -> bool:
    needs = demand.requirement.alternatives
    if not demand.optional or not demand.required or len(needs) != 1 or not isinstance(needs[0], PackageNeed):
        return True
    return all(
        w.instance is None or whole.chosen.get(w.instance, None) in (None, *w.allowed)
        for w in demand.alternatives
    )


def _bad_circle(question: ResolutionProblem, whole: Whole) -> bool:
    edges: dict[Instance, list[tuple[Instance, bool]]] = {}
    for instance, place in whole.chosen.items():
        for demand in question.nodes[instance].requirements[place]:
            way = whole.selected.get(demand.cause)
            if way is not None and way.instance is not None:
                edges.setdefault(instance, []).append((way.instance, demand.requirement.wired))

    def forbidden(path: list[Instance], wired: bool) -> bool:
        for target, is_wired in edges.get(path[-1], []):
            if target == path[0]:
                members = any(i.package.ecosystem in question.forbid_cycles for i in path)
                if members or wired or is_wired:
                    return True
            elif target not in path and forbidden([*path, target], wired or is_wired):
                return True
        return False

    return any(forbidden([start], False) for start in whole.chosen)


def canonical(question: ResolutionProblem) -> Assignment | None:
    """Return the answer that the stated order singles out, or None if there is none."""
    left = answers(question)
    if not left:
        return None
    left = _fewest_changes(question, left)
    chosen: dict[Instance, int] = {}
    met: dict[Cause, Alternative] = {}
    skipped: list[Cause] = []
    queues: tuple[list[InstanceRequirement], list[InstanceRequirement], list[InstanceRequirement]] = (
        [],
        [],
        [],
    )

    def enqueue(demand: InstanceRequirement) -> None:
        queues[2 if demand.optional else int(len(demand.alternatives) > 1)].append(demand)

    for demand in question.roots:
        enqueue(demand)
    while any(queues):
        demand = next(queue for queue in queues if queue).pop(0)
        for way in sorted(demand.alternatives, key=lambda w: _rank(question, chosen, demand, w)):
            fitting = [whole for whole in left if whole.selected.get(demand.cause) == way]
            if fitting:
                break
        else:
            left = [whole for whole in left if demand.cause not in whole.selected]
            skipped.append(demand.cause)
            continue
        left, met[demand.cause] = fitting, way
        if way.instance is not None and way.active and way.instance not in chosen:
            node = question.nodes[way.instance]
            place = next(p for p in node.order if any(w.chosen[way.instance] == p for w in left))
            chosen[way.instance] = place
            left = [whole for whole in left if whole.chosen[way.instance] == place]
            for further in node.requirements[place]:
                enqueue(further)
    return Assignment(chosen, met, tuple(skipped))


def _rank(
    question: ResolutionProblem, chosen: dict[Instance, int], demand: InstanceRequirement, way: Alternative
) -> tuple[bool, bool, int, bool]:
    sticky = question.locked_alternatives.get(demand.cause) == way.alternative
    there = way.instance is None or way.via in PRESENT or chosen.get(way.instance, -1) in way.allowed
    fresh = way.active and way.instance is not None and question.nodes[way.instance].locked is None
    return (not sticky, not there, way.alternative, fresh)


def changes(
    question: ResolutionProblem, chosen: dict[Instance, int], met: dict[Cause, Alternative]
) -> list[bool]:
    """Return for each locked pin, by name, whether it changes."""
    named = [
        (str(i), i in chosen and chosen[i] != node.locked)
        for i, node in question.nodes.items()
        if node.locked is not None
    ]
    for fact, alternative in question.locked_alternatives.items():
        known = [d for d in question.requirements() if d.cause == fact and d.parent is not None]
        if known and any(way.alternative == alternative for way in known[0].alternatives):
            parent = known[0].parent
            asked = parent in chosen and any(
                d.cause == fact for d in question.nodes[parent].requirements[chosen[parent]]
            )
            differs = fact not in met or met[fact].alternative != alternative
            named.append((f"{fact.subject} {fact.resource}", asked and differs))
    return [changed for _, changed in sorted(named)]


def _fewest_changes(question: ResolutionProblem, left: list[Whole]) -> list[Whole]:
    scored = [(changes(question, whole.chosen, whole.selected), whole) for whole in left]
    best = min((sum(score), score) for score, _ in scored)
    return [whole for score, whole in scored if (sum(score), score) == best]


def restrict(problem: ResolutionProblem, causes: frozenset[Cause]) -> ResolutionProblem:
    """Return the problem in which only these causes hold; requirements of the others need not be met."""
    nodes = {
        instance: replace(
            node,
            requirements=tuple(tuple(_relax(d, causes) for d in group) for group in node.requirements),
            banned={
                index: kept
                for index, group in node.banned.items()
                if (kept := tuple(cause for cause in group if cause in causes))
            },
        )
        for instance, node in problem.nodes.items()
    }
    return replace(
        problem,
        nodes=nodes,
        roots=tuple(_relax(demand, causes) for demand in problem.roots),
        incompatibilities=tuple(e for e in problem.incompatibilities if e.cause in causes),
        forbid_cycles=problem.forbid_cycles if CYCLE_CAUSE in causes else frozenset(),
    )


def _relax(demand: InstanceRequirement, causes: frozenset[Cause]) -> InstanceRequirement:
    return demand if demand.cause in causes else replace(demand, required=False)
