"""The solution of one cluster: versions, how each requirement is met, what was skipped or failed."""

from collections.abc import Callable, Iterable, Mapping

from msgspec import Struct, field

from reconciler.base.errors import Location
from reconciler.dependencies.model.cluster import Instance, Pin
from reconciler.dependencies.model.packages import Candidate, Requirement
from reconciler.dependencies.solve.problem import (
    AlternativeSource,
    Assignment,
    InstanceRequirement,
    ResolutionProblem,
)
from reconciler.names.problems import Problem


class RequirementEdge(Struct, frozen=True):
    """How one requirement of a pinned package is met.

    `target` is the instance that satisfies it; without one `detail` names the existing installation.
    `signature` identifies the requirement among those of its package.
    """

    requirement: Requirement
    signature: str
    via: AlternativeSource
    alternative: int = 0
    target: Instance | None = None
    active: bool = True
    detail: str = ""


class ResolvedInstance(Struct, frozen=True):
    """One instance and its version. `user` is set if a user's manifest installs it."""

    instance: Instance
    candidate: Candidate
    edges: tuple[RequirementEdge, ...] = ()
    user: bool = False
    requested_by: tuple[Instance, ...] = ()


class SkippedRequirement(Struct, frozen=True):
    """An optional requirement that was skipped, and why."""

    parent: Instance
    requirement: Requirement
    reason: str = ""


class Rejection(Struct, frozen=True):
    """Reasons against one version."""

    version: str
    reasons: tuple[str, ...]


class Explanation(Struct, frozen=True):
    """Explanation of an unsatisfiable part of a cluster, for the user.

    `sentences` are the causes, each with its place; they contradict one another, and if `minimal` all of
    them are needed. `rejected` lists, per package, versions and the reasons against each. `stalled` are
    the installs that keep their locked versions, so that the others have a solution. The last hint is to
    add the packages of `adds` to the index, if there are any.
    """

    code: str
    sentences: tuple[str, ...]
    places: tuple[Location, ...] = ()
    paths: tuple[str, ...] = ()
    rejected: tuple[tuple[str, tuple[Rejection, ...]], ...] = ()
    hints: tuple[str, ...] = ()
    minimal: bool = True
    stalled: tuple[str, ...] = ()
    adds: tuple[str, ...] = ()

    @property
    def hint(self) -> str:
        """The hints as one sentence, a line for each, for a problem; "" without any."""
        first, *others = self.hints or ("",)
        return ",\nor ".join([first, *(text[0].lower() + text[1:] for text in others)])

    def __str__(self) -> str:
        lines = [f"{number}. {sentence}" for number, sentence in enumerate(self.sentences, 1)]
        for package, rejections in self.rejected:
            lines.append(f"Versions of {package}:")
            lines += [f"  {rejection.version}: {'; '.join(rejection.reasons)}" for rejection in rejections]
        return "\n".join((*lines, *(f"Hint: {hint}" for hint in self.hints)))


class Solution(Struct, frozen=True):
    """The resolved dependencies of one cluster.

    `failed` are the instances of parts without a solution: they stay as locked before.
    """

    resolved: Mapping[Instance, ResolvedInstance] = field(default_factory=dict)
    skipped: tuple[SkippedRequirement, ...] = ()
    explanations: tuple[Explanation, ...] = ()
    failed: frozenset[Instance] = frozenset()
    problems: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()

    def pins(self) -> tuple[Pin, ...]:
        """Return the versions to lock."""
        return tuple(
            Pin(instance, resolved_instance.candidate)
            for instance, resolved_instance in self.resolved.items()
        )


def decode(
    problem: ResolutionProblem,
    answer: Assignment,
    explain_skipped: Callable[[InstanceRequirement], str] = lambda _: "",
) -> tuple[list[ResolvedInstance], list[SkippedRequirement]]:
    """Convert an assignment to pins with their edges, and skipped requirements with their reasons."""
    resolved, skipped = [], []
    users = {alternative.instance for demand in problem.roots for alternative in demand.alternatives}
    for instance, place in answer.chosen.items():
        node = problem.nodes[instance]
        demands = _unique(node.requirements[place])
        edges = tuple(_edge(demand, answer) for demand in demands if demand.cause in answer.selected)
        resolved.append(ResolvedInstance(instance, node.candidates[place], edges, instance in users))
        skipped += [
            SkippedRequirement(instance, d.requirement, explain_skipped(d))
            for d in demands
            if d.cause not in answer.selected
        ]
    return resolved, skipped


def _unique(demands: Iterable[InstanceRequirement]) -> list[InstanceRequirement]:
    return list({demand.cause: demand for demand in demands}.values())


def _edge(demand: InstanceRequirement, answer: Assignment) -> RequirementEdge:
    alternative = answer.selected[demand.cause]
    signature = demand.cause.resource
    return RequirementEdge(
        demand.requirement,
        signature,
        alternative.via,
        alternative.alternative,
        alternative.instance,
        alternative.active,
        alternative.target,
    )


def with_requesters(resolved: Iterable[ResolvedInstance]) -> dict[Instance, ResolvedInstance]:
    """Sort pins by instance and add the parents of each."""
    ordered = sorted(resolved, key=lambda item: str(item.instance))
    parents: dict[Instance, list[Instance]] = {}
    for item in ordered:
        for edge in item.edges:
            if edge.target is not None and edge.active:
                parents.setdefault(edge.target, []).append(item.instance)
    return {
        item.instance: ResolvedInstance(
            item.instance,
            item.candidate,
            item.edges,
            item.user,
            tuple(dict.fromkeys(parents.get(item.instance, ()))),
        )
        for item in ordered
    }
