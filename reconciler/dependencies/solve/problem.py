"""The finite resolution problem of one cluster, what a solver answers, and the solution of the whole."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from reconciler.base.errors import Location
from reconciler.base.values import grouped, reachable
from reconciler.dependencies.model.instances import Instance, Resolved, SkippedNeed
from reconciler.dependencies.model.packages import Candidate, PackageId, Requirement
from reconciler.names.problems import Problem


class AlternativeSource(StrEnum):
    """How a requirement is satisfied, in the order in which alternatives are tried."""

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
"""Sources that exist independently of this resolution."""


class CauseKind(StrEnum):
    """Kinds of causes of a conflict. Each can be explained to a user, and changed."""

    REQUESTED = "requested"
    REQUIRES = "requires"
    PLATFORM = "platform"
    WITHDRAWN = "withdrawn"
    STORED = "stored"
    DOWNGRADE = "downgrade"
    POLICY = "policy"
    FOREIGN = "foreign"
    OWNER = "owner"
    HELD = "held"
    ONCE = "once"
    CYCLE = "cycle"
    ALIAS = "alias"


class Cause(NamedTuple):
    """One cause of a conflict, identified by what it is about; places and versions are looked up later.

    The `subject` is an install, a requirement's package, a kind, or the package or instance that a rule
    forbids. `resource` is what is asked for, required or forbidden, and `owner` the package that has it.
    """

    kind: CauseKind
    subject: str | PackageId | Instance
    resource: str = ""
    owner: PackageId | None = None

    @property
    def package(self) -> str:
        """The name of the package that this is about; else the subject."""
        match self.subject:
            case Instance():
                return self.subject.package.name
            case PackageId():
                return self.subject.name
            case _:
                return self.subject


class Alternative(Struct, frozen=True):
    """One alternative of a requirement: an existing installation, or an instance in some of its versions.

    An alternative that is not `active` installs nothing: it holds only if the instance is needed for other
    reasons. `allowed` are indexes into the candidates of the instance.
    """

    via: AlternativeSource
    alternative: int = 0
    instance: Instance | None = None
    allowed: frozenset[int] = frozenset()
    active: bool = True
    target: str = ""


class InstanceRequirement(Struct, frozen=True):
    """One requirement of one instance, or of the user (no parent), with all alternatives.

    `cause` is its identity: equal requirements of several versions of an instance are one. That of an
    install that gave way is `held`: it keeps its locked version.
    """

    parent: Instance | None
    requirement: Requirement
    alternatives: tuple[Alternative, ...]
    cause: Cause
    required: bool = True
    held: bool = False

    @property
    def optional(self) -> bool:
        """Whether this may be left unmet."""
        return self.requirement.optional

    @property
    def is_plain(self) -> bool:
        """Whether there is nothing to choose: it must be met, and there is one way."""
        return self.required and not self.optional and len(self.alternatives) == 1


class InstanceNode(Struct, frozen=True):
    """An instance that can be installed: its candidates, excluded versions with causes, requirements.

    `reached` are the places of the candidates that a solution may have; the others have no requirements.
    """

    instance: Instance
    candidates: tuple[Candidate, ...]
    order: tuple[int, ...]
    requirements: Sequence[tuple[InstanceRequirement, ...]]
    banned: Mapping[int, tuple[Cause, ...]]
    reached: frozenset[int]
    locked: int | None = None


class Incompatibility(Struct, frozen=True):
    """If `first` is at one of its places, `second` cannot be at one of its own."""

    cause: Cause
    first: Instance
    first_places: frozenset[int]
    second: Instance
    second_places: frozenset[int]


class ResolutionProblem(Struct, frozen=True):
    """Everything that is decided together. Nodes are in the order of discovery."""

    nodes: Mapping[Instance, InstanceNode]
    roots: tuple[InstanceRequirement, ...]
    incompatibilities: tuple[Incompatibility, ...] = ()
    locked_alternatives: Mapping[Cause, int] = field(default_factory=dict)
    forbid_cycles: frozenset[str] = frozenset()
    budget: int = 200_000
    explain_steps: int = 2000

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
        """Return every cause once: the user's installs first, then requirements, then rules."""
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


def split_problem(problem: ResolutionProblem) -> tuple[ResolutionProblem, ...]:
    """Split a problem into independent parts, so that a conflict in one does not affect another."""
    part_of = _parts(problem)
    nodes: dict[Instance, dict[Instance, InstanceNode]] = {}
    for instance, node in problem.nodes.items():
        nodes.setdefault(part_of[instance], {})[instance] = node
    roots: dict[Instance, list[InstanceRequirement]] = {part: [] for part in nodes}
    for demand in problem.roots:
        for part in dict.fromkeys(part_of[way.instance] for way in demand.alternatives if way.instance):
            roots[part].append(demand)
    excluded: dict[Instance, list[Incompatibility]] = {part: [] for part in nodes}
    for exclusion in problem.incompatibilities:
        excluded[part_of[exclusion.first]].append(exclusion)
    return tuple(
        replace(problem, nodes=members, roots=tuple(roots[part]), incompatibilities=tuple(excluded[part]))
        for part, members in nodes.items()
    )


def within_reach(problem: ResolutionProblem) -> ResolutionProblem:
    """Return a problem without what nothing leads to from the roots."""
    reachable: dict[Instance, dict[int, tuple[InstanceRequirement, ...]]] = {i: {} for i in problem.nodes}
    queue = list(problem.roots)
    for demand in queue:
        for way in demand.alternatives:
            if way.instance is not None and way.active:
                groups, reached = problem.nodes[way.instance].requirements, reachable[way.instance]
                for place in sorted(way.allowed - reached.keys()):
                    reached[place] = groups[place]
                    queue += reached[place]
    nodes = {
        instance: replace(
            node,
            requirements=tuple(reachable[instance].get(place, ()) for place in range(len(node.candidates))),
            order=tuple(place for place in node.order if place in reachable[instance]),
            reached=frozenset(reachable[instance]),
        )
        for instance, node in problem.nodes.items()
    }
    return replace(problem, nodes=nodes)


def _parts(problem: ResolutionProblem) -> dict[Instance, Instance]:
    """Return the first instance of the part that each instance belongs to."""
    linked = [(exclusion.first, exclusion.second) for exclusion in problem.incompatibilities]
    for demand in problem.requirements():
        targets = [way.instance for way in demand.alternatives if way.instance is not None]
        members = targets if demand.parent is None else [demand.parent, *targets]
        linked += ((members[0], other) for other in members[1:])
    neighbours = grouped([*linked, *((second, first) for first, second in linked)])
    part_of: dict[Instance, Instance] = {}
    for instance in problem.nodes:
        if instance not in part_of:
            part_of |= dict.fromkeys(reachable([instance], lambda at: neighbours.get(at, ())), instance)
    return part_of


class Assignment(Struct, frozen=True):
    """A version for every needed instance, and the selected alternative of each requirement.

    No unneeded instance is chosen. `skipped` are optional requirements without an alternative.
    """

    chosen: Mapping[Instance, int] = field(default_factory=dict)
    selected: Mapping[Cause, Alternative] = field(default_factory=dict)
    skipped: tuple[Cause, ...] = ()


class Unsatisfiable(Struct, frozen=True):
    """Causes that contradict one another; without any one of them they would not, if `minimal`."""

    causes: tuple[Cause, ...]
    minimal: bool = True


class BudgetExceeded(Struct, frozen=True):
    """The budget of `steps` conflicts was used up without a result."""

    steps: int


SolverOutcome = Assignment | Unsatisfiable | BudgetExceeded


class Rejection(Struct, frozen=True):
    """Reasons against one version."""

    version: str
    reasons: tuple[str, ...]


class ConflictCode(StrEnum):
    """Kinds of conflicts of a cluster. Closed: `NEXT_STEPS` has a sentence for each."""

    CYCLE = "E-CYCLE"
    OWN_CRD = "E-OWN-CRD"
    OWN_COMPOSITION = "E-OWN-COMPOSITION"
    CARD_CLUSTER = "E-CARD-CLUSTER"
    CARD_NAMESPACE = "E-CARD-NS"
    FOREIGN = "E-FOREIGN"
    PLATFORM = "E-PLATFORM"
    CROSSPLANE = "E-CROSSPLANE"
    BIND = "E-BIND"
    DECLINED = "E-DECLINED"
    INTERFACE = "E-INTERFACE"
    API = "E-API"
    INVALID = "E-INVALID"
    UNPUBLISHED = "E-UNPUBLISHED"
    NO_CANDIDATE = "E-NOCANDIDATE"
    NO_VERSION = "E-NOVERSION"
    DIGEST = "E-DIGEST"
    PRERELEASE = "E-PRERELEASE"
    DOWNGRADE = "E-DOWNGRADE"
    SELECTION = "E-SELECTION"
    WITHDRAWN = "E-WITHDRAWN"
    STORED = "E-STORED"
    VERSION = "E-VERSION"

    @property
    def is_ownership(self) -> bool:
        """Whether packages contest a kind or a composition."""
        return self in {ConflictCode.OWN_CRD, ConflictCode.OWN_COMPOSITION}


class Explanation(Struct, frozen=True):
    """Explanation of an unsatisfiable part of a cluster, for the user.

    `sentences` are the causes, each with its place; they contradict one another, and if `minimal` all of
    them are needed. `rejected` lists, per package, versions and the reasons against each. `stalled` are
    the installs that keep their locked versions, so that the others have a solution; `about` are those that
    have no solution because of it, whether the others have one or not. `hint` is the next step.
    """

    code: ConflictCode
    sentences: tuple[str, ...]
    places: tuple[Location, ...] = ()
    rejected: tuple[tuple[str, tuple[Rejection, ...]], ...] = ()
    hint: str = ""
    minimal: bool = True
    stalled: tuple[str, ...] = ()
    about: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = [f"{number}. {sentence}" for number, sentence in enumerate(self.sentences, 1)]
        for package, rejections in self.rejected:
            lines.append(f"Versions of {package}:")
            lines += [f"  {rejection.version}: {'; '.join(rejection.reasons)}" for rejection in rejections]
        return "\n".join([*lines, f"Hint: {self.hint}"] if self.hint else lines)


class Solution(Struct, frozen=True):
    """The resolved dependencies of one cluster.

    `resolved` are as a lock has them, but without objects and owners; `candidates` has their versions, and
    `requirements` what these ask for, by signature. `failed` are the instances of parts without a solution:
    they stay as locked before.
    """

    resolved: Mapping[Instance, Resolved] = field(default_factory=dict)
    candidates: Mapping[Instance, Candidate] = field(default_factory=dict)
    requirements: Mapping[tuple[Instance, str], Requirement] = field(default_factory=dict)
    skipped: tuple[SkippedNeed, ...] = ()
    explanations: tuple[Explanation, ...] = ()
    failed: frozenset[Instance] = frozenset()
    problems: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()
