"""Build the resolution problem: the transitive closure over all candidate versions."""

from collections.abc import Container, Iterator, Mapping
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from reconciler.base.reasons import Reason
from reconciler.dependencies.model.cluster import ClusterInputs, Instance, install_slot
from reconciler.dependencies.model.packages import (
    Candidate,
    Dialect,
    Ecosystem,
    Install,
    InstallationType,
    PackageId,
    Requirement,
    Share,
)
from reconciler.dependencies.solve.alternatives import (
    alternatives_for,
    existing_alternatives,
    locked_alternatives,
    qualified,
)
from reconciler.dependencies.solve.lookup import (
    CandidateLookup,
    InstanceIndex,
    RequirementContext,
    all_places,
    effective_requirement,
    with_rendered_labels,
)
from reconciler.dependencies.solve.problem import (
    Alternative,
    AlternativeSource,
    Cause,
    CauseKind,
    Incompatibility,
    InstanceNode,
    InstanceRequirement,
    ResolutionProblem,
)
from reconciler.dependencies.versions.version import VersionPolicy, rank
from reconciler.names.problems import Problem


class _Reached(NamedTuple):
    """An instance in its context: its candidates, and the requirements of those that are reached."""

    scope: RequirementContext
    candidates: tuple[Candidate, ...]
    demands: dict[int, tuple[InstanceRequirement, ...]]


class BuiltProblem(Struct, frozen=True):
    """A resolution problem, problems of single installs, and what was read for them."""

    problem: ResolutionProblem
    problems: tuple[Problem, ...]
    lookup: CandidateLookup
    instances: Mapping[Instance, _Reached]


def build_problem(
    inputs: ClusterInputs, *, free: bool = True, narrower: BuiltProblem | None = None
) -> BuiltProblem:
    """Build the resolution problem: the transitive closure of the candidate versions that may be needed.

    Order-free: the order of installs, candidates and pins does not matter. Versions to which no chain of
    ranges leads from the installs are in no solution. Where they are `free`, the ranges of users count as
    none, so that other ones that would solve a conflict can be found; the solutions are the same. What a
    `narrower` problem of the same inputs has read is not read again.
    """
    earlier: Mapping[Instance, _Reached] = {}
    if narrower is None:
        inputs, problems = without_duplicates(inputs)
        lookup = CandidateLookup(inputs)
    else:
        lookup, problems, earlier = narrower.lookup, narrower.problems, narrower.instances
        inputs = lookup.inputs
    roots = tuple(_root(lookup, install) for install in inputs.installs if not install.external)
    instances: dict[Instance, _Reached] = {}
    queue = [(way, scope, free) for demand, scope in roots for way in demand.alternatives]
    seen = set[tuple[Instance, frozenset[int], bool]]()
    for way, parent, is_free in queue:
        if way.instance is None or (way.instance, way.allowed, is_free) in seen:
            continue
        seen.add((way.instance, way.allowed, is_free))
        if way.instance not in instances:
            scope = lookup.site_of(way.instance, parent)
            instances[way.instance] = _Reached(scope, lookup.candidates(way.instance), {})
        scope, candidates, demands = instances[way.instance]
        before = earlier.get(way.instance)
        read = before.demands if before is not None and before.scope == scope else {}
        overrides = free and scope.install is not None and scope.install.dialect is Dialect.CARVEL
        for place in sorted((all_places(candidates) if is_free else way.allowed) - demands.keys()):
            own = read.get(place)
            demands[place] = (
                tuple(_demands(lookup, way.instance, scope, candidates[place])) if own is None else own
            )
            queue += [(other, scope, overrides) for other in _active_alternatives(demands[place])]
    nodes = {instance: _node(lookup, instance, reached) for instance, reached in instances.items()}
    _add_existing(lookup, nodes)
    problem = ResolutionProblem(
        nodes=nodes,
        roots=tuple(demand for demand, _ in roots),
        incompatibilities=(*_same_package(nodes), *_same_kind(nodes)),
        locked_alternatives={} if inputs.choices.reconsider else _locked_alternatives(inputs),
        forbid_cycles=frozenset(inputs.choices.forbid_cycles),
        budget=inputs.choices.budget,
        explain_steps=inputs.choices.explain_steps,
    )
    return BuiltProblem(problem, problems, lookup, instances)


def _root(lookup: CandidateLookup, install: Install) -> tuple[InstanceRequirement, RequirementContext]:
    package = lookup.inputs.catalogue.find(install.need.id)
    instance = Instance(package, install_slot(install))
    scope = RequirementContext(install.namespace, (install.name,), install)
    allowed = lookup.allowed(instance, install.need.range)
    cause = Cause(CauseKind.REQUESTED, str(install), str(install.need))
    requirement = Requirement((install.need,), alias=install.name, location=install.location)
    return InstanceRequirement(
        None, requirement, (Alternative(AlternativeSource.CANDIDATE, 0, instance, allowed),), cause
    ), scope


def _active_alternatives(demands: tuple[InstanceRequirement, ...]) -> Iterator[Alternative]:
    return (alternative for demand in demands for alternative in demand.alternatives if alternative.active)


def _node(lookup: CandidateLookup, instance: Instance, reached: _Reached) -> InstanceNode:
    scope, candidates, demands = reached
    locked = lookup.locked(instance)
    order = _preference(lookup.inputs, instance, reached, locked)
    banned = _excluded_versions(lookup, instance, reached, locked)
    for place in demands.keys() - set(order):
        cause = Cause(CauseKind.POLICY, instance, _policy(lookup.inputs, instance, scope))
        banned[place] = (*banned.get(place, ()), cause)
    requirements = tuple(demands.get(place, ()) for place in range(len(candidates)))
    return InstanceNode(instance, candidates, order, requirements, banned, frozenset(demands), locked)


def _demands(
    lookup: CandidateLookup, instance: Instance, scope: RequirementContext, candidate: Candidate
) -> Iterator[InstanceRequirement]:
    if scope.install is not None and scope.install.skip_dependencies:
        return
    subject, signatures = str(instance), lookup.inputs.catalogue.signatures
    for written in candidate.requires:
        requirement = with_rendered_labels(effective_requirement(written, scope.install), instance, scope)
        if requirement is not written:
            signature = _signature(requirement)
        elif (cached := signatures.get(id(written))) is not None:
            signature = cached[1]
        else:
            signature = _signature(written)
            signatures[id(written)] = (written, signature)
        cause = Cause(CauseKind.REQUIRES, subject, signature)
        demand = InstanceRequirement(
            instance, requirement, alternatives_for(requirement, scope, lookup), cause
        )
        locked = tuple(locked_alternatives(demand, lookup)) if lookup.generated_pins else ()
        yield replace(demand, alternatives=(*demand.alternatives, *locked)) if locked else demand


_NO_SHARE = Share()


def _signature(requirement: Requirement) -> str:
    parts = [str(requirement)]
    parts += [f"as {requirement.alias}"] if requirement.alias else []
    parts += ["(optional)"] if requirement.optional else []
    parts += [] if requirement.install else ["(not to be installed)"]
    declined = (str(requirement.alternatives[number]) for number in requirement.declined)
    parts += [f"(not to be installed: {need})" for need in declined]
    parts += [f"by default {requirement.default}"] if requirement.default else []
    parts += [f"after {', '.join(requirement.after)}"] if requirement.after else []
    share = requirement.share
    if share != _NO_SHARE:
        shared = [share.group, *(f"{name}={value}" for name, value in (*share.labels, *share.inputs))]
        parts.append(f"({' '.join([share.scope, *filter(None, shared)])})")
    return " ".join(parts)


def _preference(
    inputs: ClusterInputs,
    instance: Instance,
    reached: _Reached,
    locked: int | None,
) -> tuple[int, ...]:
    scope, candidates, demands = reached
    install = scope.install if scope.install and install_slot(scope.install) == instance.slot else None
    policy = _policy(inputs, instance, scope)
    origin = candidates[locked].version if locked is not None else (install.origin if install else None)
    places = {candidates[place].version: place for place in demands}
    return tuple(places[version] for version in rank(places, policy, origin=origin))


def _policy(inputs: ClusterInputs, instance: Instance, scope: RequirementContext) -> VersionPolicy:
    own = scope.install if scope.install and install_slot(scope.install) == instance.slot else None
    if own is not None and own.policy is not VersionPolicy.HIGHEST:
        return own.policy
    return dict(inputs.choices.policies).get(instance.package.ecosystem, VersionPolicy.HIGHEST)


def _excluded_versions(
    lookup: CandidateLookup,
    instance: Instance,
    reached: _Reached,
    locked: int | None,
) -> dict[int, tuple[Cause, ...]]:
    scope, candidates, demands = reached
    floor = None if locked is None else _floor(lookup.inputs, instance, scope, candidates[locked])
    foreign = lookup.foreign(instance)
    assumed = dict(lookup.inputs.assumed).get(instance.package, "")
    bound = lookup.install_at(instance)
    bans: dict[int, tuple[Cause, ...]] = {}
    for place, candidate in ((place, candidates[place]) for place in sorted(demands)):
        causes = _platform_bans(lookup.inputs, instance, scope, candidate)
        causes += _ownership_bans(lookup, instance, scope, candidate)
        if candidate.withdrawn and place != locked:
            causes.append(Cause(CauseKind.WITHDRAWN, instance.package, str(candidate.version)))
        if floor is not None and candidate.version.height < floor.version.height:
            causes.append(Cause(CauseKind.DOWNGRADE, instance, str(floor.version)))
        causes += [Cause(CauseKind.ALIAS, instance, alias) for alias in unknown_aliases(bound, candidate)]
        if assumed not in ("", candidate.version.text):
            causes.append(Cause(CauseKind.ASSUMED, instance.package, assumed))
        if foreign is not None:
            causes.append(Cause(CauseKind.FOREIGN, instance, qualified(foreign.namespace, foreign.name)))
        if causes:
            bans[place] = tuple(causes)
    return bans


def unknown_aliases(install: Install | None, candidate: Candidate) -> list[str]:
    """Return the aliases that an installation binds and its bundle does not have.

    Source: Porter refuses an unknown alias. A bundle without known dependencies installs nothing that could
    be meant, so for it a warning is enough.
    """
    if install is None or not candidate.requires:
        return []
    return sorted({alias for alias, _ in install.bindings} - {r.alias for r in candidate.requires})


def _platform_bans(
    inputs: ClusterInputs, instance: Instance, scope: RequirementContext, candidate: Candidate
) -> list[Cause]:
    platforms = dict(inputs.presence.platforms)
    ignored = scope.install.ignore_platforms if scope.install else frozenset()
    return [
        Cause(CauseKind.PLATFORM, instance.package, str(need))
        for need in candidate.platforms
        if need.platform in platforms
        and need.platform not in ignored
        and not need.range.allows(platforms[need.platform])
    ]


def _ownership_bans(
    lookup: CandidateLookup, instance: Instance, scope: RequirementContext, candidate: Candidate
) -> list[Cause]:
    """Return a fact for each thing of a candidate that another package has and does not hand over."""
    if not lookup.holders:
        return []
    own = scope.install if scope.install and install_slot(scope.install) == instance.slot else None
    may_take = own.revisions.take_over if own is not None else ()
    holders = ((name, lookup.holders.get(name, instance.package)) for name in _owned_names(candidate))
    return [
        Cause(CauseKind.HELD, instance.package, name, holder)
        for name, holder in holders
        if holder != instance.package and holder.name not in may_take
    ]


def _owned_names(candidate: Candidate) -> list[str]:
    return sorted({*(str(gvk.group_kind) for gvk in candidate.provides), *candidate.compositions})


def _floor(
    inputs: ClusterInputs, instance: Instance, scope: RequirementContext, held: Candidate
) -> Candidate | None:
    """Return the locked candidate below which this instance may not go; a user's exact version may."""
    own = scope.install if scope.install and install_slot(scope.install) == instance.slot else None
    if inputs.choices.allow_downgrade or (own is not None and own.allow_downgrade):
        return None
    return held if own is None or own.need.id.ecosystem is Ecosystem.CARVEL else None


def _add_existing(lookup: CandidateLookup, nodes: dict[Instance, InstanceNode]) -> None:
    present = InstanceIndex(nodes, lookup)
    for instance, node in list(nodes.items()):
        extended = tuple(
            tuple(_with_existing(lookup, demand, present) for demand in group) for group in node.requirements
        )
        if extended != node.requirements:
            nodes[instance] = replace(node, requirements=extended)


def _with_existing(
    lookup: CandidateLookup, demand: InstanceRequirement, present: InstanceIndex
) -> InstanceRequirement:
    """Return a requirement with its passive alternatives: before the locked ones, which need the instance."""
    passive = tuple(existing_alternatives(demand, present, lookup))
    if not passive:
        return demand
    locked = [way for way in demand.alternatives if way.via is AlternativeSource.PLANNED]
    others = [way for way in demand.alternatives if way.via is not AlternativeSource.PLANNED]
    return replace(demand, alternatives=(*others, *passive, *locked))


def _same_package(nodes: dict[Instance, InstanceNode]) -> Iterator[Incompatibility]:
    by_package: dict[PackageId, list[InstanceNode]] = {}
    for node in nodes.values():
        by_package.setdefault(node.instance.package, []).append(node)
    for package, group in by_package.items():
        for first in group:
            for second in group:
                if first is not second and (singletons := _singleton_places(first, second)):
                    everywhere = frozenset(range(len(second.candidates)))
                    cause = Cause(CauseKind.ONCE, package, _scope(first, singletons))
                    yield Incompatibility(cause, first.instance, singletons, second.instance, everywhere)


def _scope(node: InstanceNode, places: frozenset[int]) -> str:
    once = InstallationType.ONE_PER_CLUSTER
    return "cluster" if any(node.candidates[p].installation is once for p in places) else "namespace"


def _singleton_places(node: InstanceNode, other: InstanceNode) -> frozenset[int]:
    strict = {InstallationType.ONE_PER_CLUSTER}
    if node.instance.slot.namespace == other.instance.slot.namespace:
        strict.add(InstallationType.ONE_PER_NAMESPACE)
    return frozenset(p for p, c in enumerate(node.candidates) if c.installation in strict)


def _same_kind(nodes: dict[Instance, InstanceNode]) -> Iterator[Incompatibility]:
    owners: dict[str, dict[Instance, set[int]]] = {}
    for instance, node in nodes.items():
        for place, candidate in enumerate(node.candidates):
            for owned in _owned_names(candidate):
                owners.setdefault(owned, {}).setdefault(instance, set()).add(place)
    for owned, by_instance in owners.items():
        instances = list(by_instance.items())
        for number, (first, first_places) in enumerate(instances):
            for second, second_places in instances[number + 1 :]:
                if first.package != second.package:
                    cause = Cause(CauseKind.OWNER, owned)
                    yield Incompatibility(
                        cause, first, frozenset(first_places), second, frozenset(second_places)
                    )


def _locked_alternatives(inputs: ClusterInputs) -> dict[Cause, int]:
    return {
        Cause(CauseKind.REQUIRES, str(choice.parent), choice.requirement): choice.alternative
        for choice in inputs.chosen
    }


def without_duplicates(
    inputs: ClusterInputs, running: Container[str] = ()
) -> tuple[ClusterInputs, tuple[Problem, ...]]:
    """Return the inputs with one install of each instance, and a problem for each other one. Order-free.

    The install that runs already stays, else the one with the lowest namespace and name.

    Args:
        inputs: The inputs of the cluster.
        running: The objects that are in the cluster: `Provider/aws`.
    """
    kept: dict[Instance, Install] = {}
    external: list[Install] = []
    problems: list[Problem] = []
    for install in sorted(
        inputs.installs, key=lambda i: (not _runs(i, running), i.namespace, i.name, i.kind, i.location)
    ):
        instance = inputs.instance_of(install)
        if install.external:
            external.append(install)
        elif kept.setdefault(instance, install) is not install:
            problems.append(_duplicate(instance, kept[instance], install, running))
    installs = (*sorted(kept.values(), key=lambda i: (i.namespace, i.name, i.kind, i.location)), *external)
    return replace(inputs, installs=installs), tuple(problems)


def _runs(install: Install, running: Container[str]) -> bool:
    return f"{install.kind}/{install.name}" in running


def _duplicate(instance: Instance, first: Install, second: Install, running: Container[str]) -> Problem:
    name = instance.package.name
    why = f"only one may; {first.name} runs already" if _runs(first, running) else "only one may"
    return Problem(
        second.location,
        Reason.DUPLICATE_PACKAGE,
        f"{second} and {first} ({first.location}) both install {name}, and {why}",
        hint="Remove one of the two manifests",
        subject=str(second),
    )
