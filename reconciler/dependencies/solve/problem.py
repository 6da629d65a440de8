"""The finite resolution problem of one cluster, and the outcomes that a solver can return."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple

from reconciler.dependencies.model.cluster import Instance
from reconciler.dependencies.model.packages import Candidate, Requirement


class Via(StrEnum):
    """How a demand is met, in the order in which ways are tried."""

    __hash__ = str.__hash__  # an enum hashes its name in Python, and identities hash often

    BINDING = "binding"
    INSTALLED = "installed"
    GLOBAL = "global"
    SNAPSHOT = "snapshot"
    PLANNED = "planned"
    DEFAULT = "default"
    CANDIDATE = "candidate"


PRESENT = frozenset({Via.BINDING, Via.INSTALLED, Via.GLOBAL, Via.SNAPSHOT})
"""What is there whatever this resolution decides."""


class FactKind(StrEnum):
    """Why something is not possible: each fact can be named to a person, and could be otherwise."""

    __hash__ = str.__hash__  # an enum hashes its name in Python, and identities hash often

    REQUESTED = "requested"
    REQUIRES = "requires"
    PLATFORM = "platform"
    WITHDRAWN = "withdrawn"
    DOWNGRADE = "downgrade"
    POLICY = "policy"
    FOREIGN = "foreign"
    OWNER = "owner"
    HELD = "held"
    ONCE = "once"
    CYCLE = "cycle"


class Fact(NamedTuple):
    """One reason, identified by what it is about; places and versions are looked up when it is told."""

    kind: FactKind
    subject: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Way:
    """One way to meet a demand: something that is there, or an instance in one of some versions.

    A way that is not `active` does not install anything: it holds only if the instance is
    needed for other reasons. `allowed` are places in the instance's list of candidates.
    """

    via: Via
    alternative: int = 0
    instance: Instance | None = None
    allowed: frozenset[int] = frozenset()
    active: bool = True
    target: str = ""


@dataclass(frozen=True, slots=True)
class Demand:
    """One requirement of one instance, or of the user (no parent), with every way to meet it.

    `fact` is its identity: equal requirements of several versions of an instance are one demand.
    """

    parent: Instance | None
    requirement: Requirement
    ways: tuple[Way, ...]
    fact: Fact
    required: bool = True

    @property
    def optional(self) -> bool:
        """Whether this may be left unmet."""
        return self.requirement.optional

    @property
    def is_plain(self) -> bool:
        """Whether there is nothing to choose: it must be met, and there is one way."""
        return self.required and not self.optional and len(self.ways) == 1


@dataclass(frozen=True, slots=True)
class Node:
    """An instance that may come to be: its candidates, which of them are out and why, what each needs."""

    instance: Instance
    candidates: tuple[Candidate, ...]
    order: tuple[int, ...]
    demands: tuple[tuple[Demand, ...], ...]
    banned: Mapping[int, tuple[Fact, ...]]
    locked: int | None = None


@dataclass(frozen=True, slots=True)
class Exclusion:
    """If `first` is chosen in one of these versions, `second` cannot be, in one of those."""

    fact: Fact
    first: Instance
    these: frozenset[int]
    second: Instance
    those: frozenset[int]


@dataclass(frozen=True, slots=True)
class Question:
    """What must be decided together. Nodes are in the order in which they were discovered."""

    nodes: Mapping[Instance, Node]
    roots: tuple[Demand, ...]
    exclusions: tuple[Exclusion, ...] = ()
    sticky: Mapping[Fact, int] = field(default_factory=dict)
    forbid_cycles: frozenset[str] = frozenset()
    budget: int = 200_000

    def demands(self) -> Iterator[Demand]:
        """Yield every demand once, the user's first."""
        seen = set()
        for demand in self.roots:
            yield demand
        for node in self.nodes.values():
            for several in node.demands:
                for demand in several:
                    if demand.fact not in seen:
                        seen.add(demand.fact)
                        yield demand

    def facts(self) -> tuple[Fact, ...]:
        """Return every fact once: the user's wishes first, then needs, then rules."""
        found: dict[Fact, None] = dict.fromkeys(demand.fact for demand in self.demands())
        for node in self.nodes.values():
            for several in node.banned.values():
                found.update(dict.fromkeys(several))
        found.update(dict.fromkeys(exclusion.fact for exclusion in self.exclusions))
        if self.forbid_cycles:
            found[CYCLES] = None
        return tuple(found)


CYCLES = Fact(FactKind.CYCLE, "cycles")


def forbids_cycle(question: Question, members: Iterable[Instance], *, wired: bool) -> bool:
    """Whether a circle of these instances has no order of installation."""
    return wired or any(member.package.ecosystem in question.forbid_cycles for member in members)


def restrict(question: Question, facts: frozenset[Fact]) -> Question:
    """Return the question in which only these facts hold; the others lose their force, not their place."""
    nodes = {
        instance: replace(
            node,
            demands=tuple(tuple(_weigh(d, facts) for d in several) for several in node.demands),
            banned={
                index: kept
                for index, several in node.banned.items()
                if (kept := tuple(fact for fact in several if fact in facts))
            },
        )
        for instance, node in question.nodes.items()
    }
    return replace(
        question,
        nodes=nodes,
        roots=tuple(_weigh(demand, facts) for demand in question.roots),
        exclusions=tuple(e for e in question.exclusions if e.fact in facts),
        forbid_cycles=question.forbid_cycles if CYCLES in facts else frozenset(),
    )


def _weigh(demand: Demand, facts: frozenset[Fact]) -> Demand:
    return demand if demand.fact in facts else replace(demand, required=False)


def split(question: Question) -> tuple[Question, ...]:
    """Split into parts that share nothing, so that one part's failure does not touch another's."""
    leader: dict[Instance, Instance] = {instance: instance for instance in question.nodes}

    def find(instance: Instance) -> Instance:
        while leader[instance] != instance:
            leader[instance] = leader[leader[instance]]
            instance = leader[instance]
        return instance

    def join(one: Instance, other: Instance) -> None:
        leader[find(other)] = find(one)

    for demand in question.demands():
        targets = [way.instance for way in demand.ways if way.instance is not None]
        members = targets if demand.parent is None else [demand.parent, *targets]
        for other in members[1:]:
            join(members[0], other)
    for exclusion in question.exclusions:
        join(exclusion.first, exclusion.second)
    groups: dict[Instance, dict[Instance, Node]] = {}
    for instance, node in question.nodes.items():
        groups.setdefault(find(instance), {})[instance] = node
    return tuple(_part(question, nodes) for nodes in groups.values())


def _part(question: Question, nodes: dict[Instance, Node]) -> Question:
    return replace(
        question,
        nodes=nodes,
        roots=tuple(d for d in question.roots if any(way.instance in nodes for way in d.ways)),
        exclusions=tuple(e for e in question.exclusions if e.first in nodes),
    )


@dataclass(frozen=True, slots=True)
class Answer:
    """Every instance that is needed, at one place of its candidates, and how each demand is met.

    Nothing is chosen that nobody needs. `skipped` are optional demands that could not be met.
    """

    chosen: Mapping[Instance, int] = field(default_factory=dict)
    met: Mapping[Fact, Way] = field(default_factory=dict)
    skipped: tuple[Fact, ...] = ()


@dataclass(frozen=True, slots=True)
class Unsatisfiable:
    """Facts that cannot hold together; without any one of them they could, if `minimal`."""

    facts: tuple[Fact, ...]
    minimal: bool = True


@dataclass(frozen=True, slots=True)
class OutOfSteps:
    """Nothing is known: the budget of `steps` conflicts was used up."""

    steps: int


Outcome = Answer | Unsatisfiable | OutOfSteps
