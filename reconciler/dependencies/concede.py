"""Of several packages that want one kind one gets it: which of them gives way, and what is left to ask."""

from dataclasses import replace
from typing import NamedTuple

from reconciler.dependencies.answer import Unsatisfiable
from reconciler.dependencies.model import Install
from reconciler.dependencies.question import Demand, FactKind, Question
from reconciler.dependencies.world import Instance, World

_OWNERSHIP = frozenset({FactKind.OWNER, FactKind.HELD})


class Concession(NamedTuple):
    """What is asked when one install gives way: it stays at what is locked, or is not asked for."""

    question: Question
    install: Install


def concede(world: World, question: Question, found: Unsatisfiable) -> Concession | None:
    """Return the question without the wish that loses what is contested; None if that is not the matter.

    Deterministic and order-free. Who has the thing keeps it; else what a user asks for by name comes
    before what is only needed; else the lowest kind and name wins. The loser keeps what is locked
    for it; where that itself is contested, nothing can be conceded.

    Source: crossplane, packages-v2 design, PackageLock: one of two packages wins, and always one.
    """
    if not any(fact.kind in _OWNERSHIP for fact in found.facts):
        return None
    asking = [demand for demand in question.roots if demand.fact in found.facts]
    installs = {str(install): install for install in world.installs}
    contest = _Contest(world, question, found)
    for demand in sorted(
        asking, key=lambda demand: contest.rank(demand, installs[demand.fact.subject]), reverse=True
    ):
        left = _without(question, demand)
        if left is not None:
            return Concession(left, installs[demand.fact.subject])
    return None


def _without(question: Question, demand: Demand) -> Question | None:
    """Return the question with one wish held to what is locked, or dropped where nothing is."""
    (way,) = demand.ways
    (instance,) = _instances(demand)
    node = question.nodes[instance]
    others = tuple(other for other in question.roots if other is not demand)
    if node.locked is None:
        return replace(question, roots=others)
    held = frozenset({node.locked})
    if way.allowed == held:
        return None
    kept = replace(demand, ways=(replace(way, allowed=held),))
    return replace(question, roots=tuple(kept if other is demand else other for other in question.roots))


def _instances(demand: Demand) -> set[Instance]:
    return {way.instance for way in demand.ways if way.instance is not None}


class _Contest:
    """Who is after the contested things, and who has them."""

    def __init__(self, world: World, question: Question, found: Unsatisfiable) -> None:
        self.question = question
        holders = dict(world.held)
        facts = frozenset(found.facts)
        exclusions = [one for one in question.exclusions if one.fact in facts]
        self.contestants = {instance for one in exclusions for instance in (one.first, one.second)}
        packages = {fact.subject for fact in facts if fact.kind is FactKind.HELD}
        self.contestants |= {one for one in question.nodes if str(one.package) in packages}
        self.holders = {holders[one.fact.subject] for one in exclusions if one.fact.subject in holders}

    def rank(self, demand: Demand, install: Install) -> tuple[bool, bool, str, str]:
        """Return where a wish stands: the greatest gives way."""
        own = _instances(demand)
        has = any(one.package in self.holders for one in self.contestants & self._reached(own))
        return (not has, not own & self.contestants, install.kind, install.name)

    def _reached(self, start: set[Instance]) -> set[Instance]:
        queue, seen = sorted(start), set(start)
        for instance in queue:
            for several in self.question.nodes[instance].demands:
                for way in (way for demand in several for way in demand.ways if way.active):
                    if way.instance is not None and way.instance not in seen:
                        seen.add(way.instance)
                        queue.append(way.instance)
        return seen
