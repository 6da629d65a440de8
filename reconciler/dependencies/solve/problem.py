"""The finite resolution problem of one cluster, and the outcomes that a solver can return."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple

from reconciler.dependencies.model.cluster import Instance
from reconciler.dependencies.model.packages import Candidate, Requirement


class AlternativeSource(StrEnum):
    """How a demand is met, in the order in which ways are tried."""

    __hash__ = str.__hash__  # an enum hashes its name in Python, and identities hash often

    BINDING = "binding"
    INSTALLED = "installed"
    GLOBAL = "global"
    SNAPSHOT = "snapshot"
    PLANNED = "planned"
    DEFAULT = "default"
    CANDIDATE = "candidate"


PRESENT = frozenset(
    {
        AlternativeSource.BINDING,
        AlternativeSource.INSTALLED,
        AlternativeSource.GLOBAL,
        AlternativeSource.SNAPSHOT,
    }
)
"""What is there whatever this resolution decides."""


class CauseKind(StrEnum):
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


class Cause(NamedTuple):
    """One reason, identified by what it is about; places and versions are looked up when it is told."""

    kind: CauseKind
    subject: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Alternative:
    """One way to meet a demand: something that is there, or an instance in one of some versions.

    A way that is not `active` does not install anything: it holds only if the instance is
    needed for other reasons. `allowed` are places in the instance's list of candidates.
    """

    via: AlternativeSource
    alternative: int = 0
    instance: Instance | None = None
    allowed: frozenset[int] = frozenset()
    active: bool = True
    target: str = ""


@dataclass(frozen=True, slots=True)
class InstanceRequirement:
    """One requirement of one instance, or of the user (no parent), with every way to meet it.

    `fact` is its identity: equal requirements of several versions of an instance are one demand.
    """

    parent: Instance | None
    requirement: Requirement
    alternatives: tuple[Alternative, ...]
    cause: Cause
    required: bool = True

    @property
    def optional(self) -> bool:
        """Whether this may be left unmet."""
        return self.requirement.optional

    @property
    def is_plain(self) -> bool:
        """Whether there is nothing to choose: it must be met, and there is one way."""
        return self.required and not self.optional and len(self.alternatives) == 1


@dataclass(frozen=True, slots=True)
class InstanceNode:
    """An instance that may come to be: its candidates, which of them are out and why, what each needs."""

    instance: Instance
    candidates: tuple[Candidate, ...]
    order: tuple[int, ...]
    requirements: tuple[tuple[InstanceRequirement, ...], ...]
    banned: Mapping[int, tuple[Cause, ...]]
    locked: int | None = None


@dataclass(frozen=True, slots=True)
class Incompatibility:
    """If `first` is chosen in one of these versions, `second` cannot be, in one of those."""

    cause: Cause
    first: Instance
    first_places: frozenset[int]
    second: Instance
    second_places: frozenset[int]


@dataclass(frozen=True, slots=True)
class ResolutionProblem:
    """What must be decided together. Nodes are in the order in which they were discovered."""

    nodes: Mapping[Instance, InstanceNode]
    roots: tuple[InstanceRequirement, ...]
    incompatibilities: tuple[Incompatibility, ...] = ()
    locked_alternatives: Mapping[Cause, int] = field(default_factory=dict)
    forbid_cycles: frozenset[str] = frozenset()
    budget: int = 200_000

    def requirements(self) -> Iterator[InstanceRequirement]:
        """Yield every demand once, the user's first."""
        seen = set()
        for demand in self.roots:
            yield demand
        for node in self.nodes.values():
            for group in node.requirements:
                for demand in group:
                    if demand.cause not in seen:
                        seen.add(demand.cause)
                        yield demand

    def causes(self) -> tuple[Cause, ...]:
        """Return every fact once: the user's wishes first, then needs, then rules."""
        causes: dict[Cause, None] = dict.fromkeys(demand.cause for demand in self.requirements())
        for node in self.nodes.values():
            for group in node.banned.values():
                causes.update(dict.fromkeys(group))
        causes.update(dict.fromkeys(exclusion.cause for exclusion in self.incompatibilities))
        if self.forbid_cycles:
            causes[CYCLE_CAUSE] = None
        return tuple(causes)


CYCLE_CAUSE = Cause(CauseKind.CYCLE, "cycles")


def forbids_cycle(problem: ResolutionProblem, members: Iterable[Instance], *, wired: bool) -> bool:
    """Whether a circle of these instances has no order of installation."""
    return wired or any(member.package.ecosystem in problem.forbid_cycles for member in members)


def restrict(problem: ResolutionProblem, causes: frozenset[Cause]) -> ResolutionProblem:
    """Return the question in which only these facts hold; the others lose their force, not their place."""
    nodes = {
        instance: replace(
            node,
            requirements=tuple(tuple(_weigh(d, causes) for d in group) for group in node.requirements),
            banned={
                index: kept
                for index, group in node.banned.items()
                if (kept := tuple(fact for fact in group if fact in causes))
            },
        )
        for instance, node in problem.nodes.items()
    }
    return replace(
        problem,
        nodes=nodes,
        roots=tuple(_weigh(demand, causes) for demand in problem.roots),
        incompatibilities=tuple(e for e in problem.incompatibilities if e.cause in causes),
        forbid_cycles=problem.forbid_cycles if CYCLE_CAUSE in causes else frozenset(),
    )


def _weigh(demand: InstanceRequirement, causes: frozenset[Cause]) -> InstanceRequirement:
    return demand if demand.cause in causes else replace(demand, required=False)


def split_problem(problem: ResolutionProblem) -> tuple[ResolutionProblem, ...]:
    """Split into parts that share nothing, so that one part's failure does not touch another's."""
    leader: dict[Instance, Instance] = {instance: instance for instance in problem.nodes}

    def find(instance: Instance) -> Instance:
        while leader[instance] != instance:
            leader[instance] = leader[leader[instance]]
            instance = leader[instance]
        return instance

    def join(first: Instance, second: Instance) -> None:
        leader[find(second)] = find(first)

    for demand in problem.requirements():
        targets = [way.instance for way in demand.alternatives if way.instance is not None]
        members = targets if demand.parent is None else [demand.parent, *targets]
        for second in members[1:]:
            join(members[0], second)
    for exclusion in problem.incompatibilities:
        join(exclusion.first, exclusion.second)
    groups: dict[Instance, dict[Instance, InstanceNode]] = {}
    for instance, node in problem.nodes.items():
        groups.setdefault(find(instance), {})[instance] = node
    return tuple(_part(problem, nodes) for nodes in groups.values())


def _part(problem: ResolutionProblem, nodes: dict[Instance, InstanceNode]) -> ResolutionProblem:
    return replace(
        problem,
        nodes=nodes,
        roots=tuple(d for d in problem.roots if any(way.instance in nodes for way in d.alternatives)),
        incompatibilities=tuple(e for e in problem.incompatibilities if e.first in nodes),
    )


@dataclass(frozen=True, slots=True)
class Assignment:
    """Every instance that is needed, at one place of its candidates, and how each demand is met.

    Nothing is chosen that nobody needs. `skipped` are optional demands that could not be met.
    """

    chosen: Mapping[Instance, int] = field(default_factory=dict)
    selected: Mapping[Cause, Alternative] = field(default_factory=dict)
    skipped: tuple[Cause, ...] = ()


@dataclass(frozen=True, slots=True)
class Unsatisfiable:
    """Facts that cannot hold together; without any one of them they could, if `minimal`."""

    causes: tuple[Cause, ...]
    minimal: bool = True


@dataclass(frozen=True, slots=True)
class BudgetExceeded:
    """Nothing is known: the budget of `steps` conflicts was used up."""

    steps: int


SolverOutcome = Assignment | Unsatisfiable | BudgetExceeded
