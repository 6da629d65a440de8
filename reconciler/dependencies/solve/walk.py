"""The canonical answer: meet one demand after the other, each in the first way that can still work."""

from collections import deque
from dataclasses import dataclass, field

from reconciler.dependencies.answer import Answer
from reconciler.dependencies.question import PRESENT, Fact, Question, Way
from reconciler.dependencies.solve.encode import Group
from reconciler.dependencies.solve.oracle import Oracle
from reconciler.dependencies.world import Instance


def walk(question: Question, oracle: Oracle) -> Answer:
    """Decide everything that is needed, in the stated order, and nothing else.

    The oracle has been asked before and knows what is locked.
    """
    walker = _Walk(question, oracle)
    for demand in question.roots:
        walker.enqueue(oracle.formula.groups[demand.fact])
    while (group := walker.next()) is not None:
        walker.meet(group)
    return Answer(walker.chosen, walker.met, tuple(walker.skipped))


@dataclass(slots=True)
class _Walk:
    question: Question
    oracle: Oracle
    chosen: dict[Instance, int] = field(default_factory=dict)
    met: dict[Fact, Way] = field(default_factory=dict)
    skipped: list[Fact] = field(default_factory=list)
    _plain: deque[Group] = field(default_factory=deque)
    _choosy: deque[Group] = field(default_factory=deque)
    _optional: deque[Group] = field(default_factory=deque)

    def enqueue(self, group: Group) -> None:
        """Put a demand where its turn comes: one way, several ways, optional."""
        if group.demand.optional:
            self._optional.append(group)
        elif len(group.demand.ways) > 1:
            self._choosy.append(group)
        else:
            self._plain.append(group)

    def next(self) -> Group | None:
        """Return the demand whose turn it is."""
        for queue in (self._plain, self._choosy, self._optional):
            if queue:
                return queue.popleft()
        return None

    def meet(self, group: Group) -> None:
        """Meet a demand in the first way that works, or skip an optional one."""
        ways = sorted(
            zip(group.demand.ways, group.literals, strict=True), key=lambda w: self._rank(group, w[0])
        )
        way = next((way for way, literal in ways if self.oracle.prefers(literal)), None)
        if way is None:
            self.skipped.append(group.demand.fact)
            return
        self.met[group.demand.fact] = way
        if way.instance is not None and way.active and way.instance not in self.chosen:
            self._choose(way.instance)

    def _rank(self, group: Group, way: Way) -> tuple[bool, bool, int, bool]:
        sticky = self.question.sticky.get(group.demand.fact)
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
        for demand in node.demands[place]:
            self.enqueue(self.oracle.formula.groups[demand.fact])
