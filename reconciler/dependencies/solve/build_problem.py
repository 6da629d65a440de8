"""Build the resolution problem: the transitive closure over all candidate versions."""

import functools
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from reconciler.base.errors import Location
from reconciler.base.reasons import Reason
from reconciler.base.values import LazyItems, grouped
from reconciler.dependencies.model.cluster import ClusterInputs
from reconciler.dependencies.model.instances import Instance
from reconciler.dependencies.model.packages import (
    Candidate,
    Dialect,
    Ecosystem,
    Install,
    InstallationType,
    PackageNeed,
    Requirement,
    Share,
)
from reconciler.dependencies.solve.alternatives import (
    CandidateLookup,
    InstanceIndex,
    RequirementContext,
    all_places,
    alternatives_for,
    effective_requirement,
    existing_alternatives,
    locked_alternatives,
    qualified,
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
from reconciler.dependencies.versions import VersionPolicy, rank
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


class _ReachedNodes(dict[Instance, InstanceNode]):
    """The instances of a cluster, each read when it is looked up first, and its versions likewise."""

    def __init__(self, lookup: CandidateLookup) -> None:
        self._lookup = lookup

    def __missing__(self, instance: Instance) -> InstanceNode:
        lookup, candidates = self._lookup, self._lookup.candidates(instance)
        # A package that a cluster has once is in one context, whatever needs it.
        scope = lookup.site_of(instance, RequirementContext(""))
        node = _node(lookup, instance, _Reached(scope, candidates, dict.fromkeys(range(len(candidates)), ())))
        read = functools.cache(lambda place: _shared_demands(lookup, instance, scope, candidates[place]))
        node = self[instance] = replace(node, requirements=LazyItems(read, len(candidates)))
        return node


def reached_problem(inputs: ClusterInputs) -> BuiltProblem:
    """Return the problem of a cluster of which only what is looked up is read."""
    inputs, problems = without_duplicates(inputs)
    lookup = CandidateLookup(inputs)
    roots = tuple(_root(lookup, install)[0] for install in inputs.installs if not install.external)
    problem = ResolutionProblem(
        nodes=_ReachedNodes(lookup),
        roots=roots,
        forbid_cycles=frozenset(inputs.choices.forbid_cycles),
        budget=inputs.choices.budget,
    )
    return BuiltProblem(problem, problems, lookup, {})


def build_problem(
    inputs: ClusterInputs, *, free: bool = True, narrower: BuiltProblem | None = None
) -> BuiltProblem:
    """Build the resolution problem: the transitive closure of the candidate versions that may be needed.

    Order-free: the order of installs, candidates and pins does not matter. Versions to which no chain of
    ranges leads from the installs are in no solution. Where they are `free`, the ranges of locked installs
    count as none, so that what an install keeps that gives way is read, too; the solutions are the same.
    What a `narrower` problem of the same inputs has read is not read again.
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
    queue = list[tuple[Alternative, RequirementContext, bool]]()
    for demand, scope in roots:
        (way,) = demand.alternatives
        is_locked = way.instance is not None and lookup.locked(way.instance) is not None
        queue.append((way, scope, free and is_locked))
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
            present = read.get(place)
            demands[place] = (
                _shared_demands(lookup, way.instance, scope, candidates[place])
                if present is None
                else present
            )
            ways = (other for demand in demands[place] for other in demand.alternatives if other.active)
            queue += [(other, scope, overrides) for other in ways]
    nodes = {instance: _node(lookup, instance, reached) for instance, reached in instances.items()}
    _add_existing(lookup, nodes)
    problem = ResolutionProblem(
        nodes=nodes,
        roots=tuple(demand for demand, _ in roots),
        incompatibilities=(*_same_package(nodes), *_same_kind(nodes)),
        locked_alternatives={
            Cause(CauseKind.REQUIRES, str(package.instance), met.signature): met.alternative
            for package in (() if inputs.choices.reconsider else inputs.locked)
            for met in package.dependencies
            if met.alternatives > 1
        },
        forbid_cycles=frozenset(inputs.choices.forbid_cycles),
        budget=inputs.choices.budget,
        explain_steps=inputs.choices.explain_steps,
    )
    return BuiltProblem(problem, problems, lookup, instances)


def _root(lookup: CandidateLookup, install: Install) -> tuple[InstanceRequirement, RequirementContext]:
    instance = lookup.instance_of(install)
    scope = RequirementContext(install.namespace, (install.name,), install, install.target)
    locked = lookup.locked(instance) if install.requested else None
    # What is held at its lock may have the locked version alone.
    allowed = lookup.allowed(instance, install.need.range) if locked is None else frozenset({locked})
    cause = Cause(CauseKind.REQUESTED, str(install), str(install.need))
    requirement = Requirement((install.need,), alias=install.name, location=install.location)
    way = Alternative(AlternativeSource.CANDIDATE, 0, instance, allowed)
    return InstanceRequirement(None, requirement, (way,), cause, held=locked is not None), scope


def _node(lookup: CandidateLookup, instance: Instance, reached: _Reached) -> InstanceNode:
    scope, candidates, demands = reached
    install, locked = scope.install, lookup.locked(instance)
    policy = dict(lookup.inputs.choices.policies).get(instance.package.ecosystem, VersionPolicy.HIGHEST)
    if install is not None and install.policy is not VersionPolicy.HIGHEST:
        policy = install.policy
    origin = candidates[locked].version if locked is not None else (install.origin if install else None)
    places = {candidates[place].version: place for place in demands}
    order = tuple(places[version] for version in rank(places, policy, origin=origin))
    banned = _excluded_versions(lookup, instance, reached, lookup.pinned(instance))
    for place in demands.keys() - set(order):
        banned[place] = (*banned.get(place, ()), Cause(CauseKind.POLICY, instance, policy))
    requirements = tuple(demands.get(place, ()) for place in range(len(candidates)))
    return InstanceNode(instance, candidates, order, requirements, banned, frozenset(demands), locked)


def _shared_demands(
    lookup: CandidateLookup, instance: Instance, scope: RequirementContext, candidate: Candidate
) -> tuple[InstanceRequirement, ...]:
    """Return what a version demands; where nothing there matters to that, once for all clusters."""
    if scope.install is not None or candidate.unavailable:
        return tuple(_demands(lookup, instance, scope, candidate))
    choices, catalogue = lookup.inputs.choices, lookup.inputs.catalogue
    # The catalogue holds the version, so no other one gets its id.
    key = (id(candidate), instance, scope, choices.shared_namespace, choices.depth)
    demands, packages = catalogue.demands.get(key, ((), None))
    if packages is not None and packages.isdisjoint(lookup.present):
        return demands
    demands = tuple(_demands(lookup, instance, scope, candidate))
    needs = [need for requirement in candidate.requires for need in requirement.alternatives]
    packages = frozenset(lookup.find(need.id) for need in needs if isinstance(need, PackageNeed))
    if packages.isdisjoint(lookup.present) and all(isinstance(need, PackageNeed) for need in needs):
        catalogue.demands[key] = demands, packages
    return demands


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
            # The requirement is held with it, or another one could get its id.
            signatures[id(written)] = (written, signature)
        cause = Cause(CauseKind.REQUIRES, subject, signature)
        alternatives = alternatives_for(requirement, scope, lookup)
        demand = InstanceRequirement(instance, requirement, alternatives, cause)
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


def _excluded_versions(
    lookup: CandidateLookup, instance: Instance, reached: _Reached, pinned: int | None
) -> dict[int, tuple[Cause, ...]]:
    inputs, (scope, candidates, demands) = lookup.inputs, reached
    by_user, package = scope.install, instance.package
    # A user's exact version may be below the locked one.
    is_exact = by_user is not None and by_user.need.id.ecosystem is not Ecosystem.CARVEL
    may_sink = is_exact or (by_user is not None and by_user.allow_downgrade)
    sinks = pinned is None or may_sink or inputs.choices.allow_downgrade
    floor = None if sinks or pinned is None else candidates[pinned].version
    platforms = dict(inputs.presence.platforms) if not instance.slot.target else {}
    ignored = by_user.ignore_platforms if by_user else frozenset()
    may_take = inputs.may_take_over(package, by_user) if lookup.holders else ()
    asking = [(i, i.requested) for i in inputs.installs if i.requested]
    asking = [(install, need) for install, need in asking if package == lookup.find(need.id)]
    foreign = lookup.foreign(instance)
    ruled = (platforms, lookup.holders, inputs.presence.stored, asking, floor, by_user, foreign)
    is_free = not any(ruled)
    bans: dict[int, tuple[Cause, ...]] = {}
    for place in sorted(demands):
        candidate = candidates[place]
        if is_free and not candidate.withdrawn:
            continue
        causes = [
            Cause(CauseKind.PLATFORM, package, str(need))
            for need in candidate.platforms
            if need.platform in platforms
            and need.platform not in ignored
            and not need.range.allows(platforms[need.platform])
        ]
        # Things that another package has and does not hand over.
        owned = candidate.owned_names if lookup.holders and not instance.slot.target else []
        holders = ((name, lookup.holders.get(name, package)) for name in owned)
        causes += [
            Cause(CauseKind.HELD, package, name, holder)
            for name, holder in holders
            if holder != package and holder.name not in may_take
        ]
        if candidate.withdrawn and place != pinned:
            causes.append(Cause(CauseKind.WITHDRAWN, package, str(candidate.version)))
        if place != pinned and not instance.slot.target:
            drops = ((kind, candidate.drops(kind)) for kind in inputs.presence.stored)
            causes += [
                Cause(CauseKind.STORED, package, f"{version} of {kind.kind}")
                for kind, versions in drops
                for version in versions
            ]
        if floor is not None and candidate.version.height < floor.height:
            causes.append(Cause(CauseKind.DOWNGRADE, instance, str(floor)))
        causes += [Cause(CauseKind.ALIAS, instance, alias) for alias in unknown_aliases(by_user, candidate)]
        # A manifest in the cluster names it, although it has no solution: nothing brings another version.
        causes += [
            Cause(CauseKind.REQUESTED, str(install), str(need))
            for install, need in asking
            if package.ecosystem is Ecosystem.XPKG
            and not need.range.allows(candidate.version, candidate.digest)
        ]
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


def _add_existing(lookup: CandidateLookup, nodes: dict[Instance, InstanceNode]) -> None:
    """Add the passive alternatives of each requirement: before the locked ones, which need the instance."""
    present = InstanceIndex(nodes, lookup)

    def extended(demand: InstanceRequirement) -> InstanceRequirement:
        passive = tuple(existing_alternatives(demand, present, lookup))
        if not passive:
            return demand
        locked = [way for way in demand.alternatives if way.via is AlternativeSource.PLANNED]
        others = [way for way in demand.alternatives if way.via is not AlternativeSource.PLANNED]
        return replace(demand, alternatives=(*others, *passive, *locked))

    for instance, node in list(nodes.items()):
        requirements = tuple(tuple(map(extended, group)) for group in node.requirements)
        if requirements != node.requirements:
            nodes[instance] = replace(node, requirements=requirements)


def _same_package(nodes: dict[Instance, InstanceNode]) -> Iterator[Incompatibility]:
    for package, group in grouped((node.instance.package, node) for node in nodes.values()).items():
        for first in group:
            for second in group:
                is_beside = first is not second and first.instance.slot.target == second.instance.slot.target
                strict = {InstallationType.ONE_PER_CLUSTER}
                if first.instance.slot.namespace == second.instance.slot.namespace:
                    strict.add(InstallationType.ONE_PER_NAMESPACE)
                singletons = frozenset(p for p, c in enumerate(first.candidates) if c.installation in strict)
                if is_beside and singletons:
                    everywhere = frozenset(range(len(second.candidates)))
                    once = {first.candidates[place].installation for place in singletons}
                    scope = "cluster" if InstallationType.ONE_PER_CLUSTER in once else "namespace"
                    cause = Cause(CauseKind.ONCE, package, scope)
                    yield Incompatibility(cause, first.instance, singletons, second.instance, everywhere)


def _same_kind(nodes: dict[Instance, InstanceNode]) -> Iterator[Incompatibility]:
    owners: dict[str, dict[Instance, set[int]]] = {}
    for instance, node in nodes.items():
        for place, candidate in enumerate(node.candidates):
            for owned in candidate.owned_names:
                owners.setdefault(owned, {}).setdefault(instance, set()).add(place)
    for owned, by_instance in owners.items():
        instances = list(by_instance.items())
        for number, (first, first_places) in enumerate(instances):
            for second, second_places in instances[number + 1 :]:
                if first.package != second.package and first.slot.target == second.slot.target:
                    cause = Cause(CauseKind.OWNER, owned)
                    places = frozenset(second_places)
                    yield Incompatibility(cause, first, frozenset(first_places), second, places)


def without_duplicates(
    inputs: ClusterInputs, running: Mapping[str, str] = MappingProxyType({})
) -> tuple[ClusterInputs, tuple[Problem, ...]]:
    """Return the inputs with one install of each instance, and a problem for each other one. Order-free.

    The install that runs already stays, else the one with the lowest namespace and name.

    `running` are the objects in the cluster, `Provider/aws`, each with its package if it is known.
    """

    def runs(install: Install) -> bool:
        package = inputs.catalogue.find(install.need.id).name
        return running.get(f"{install.kind}/{install.name}") in ("", package)

    def rank_of(install: Install) -> tuple[bool, str, str, str, Location]:
        return (not runs(install), install.namespace, install.name, install.kind, install.location)

    chosen: dict[Instance, Install] = {}
    problems: list[Problem] = []
    installs = sorted(inputs.installs, key=rank_of)
    for install in (install for install in installs if not install.external):
        instance = inputs.instance_of(install)
        first = chosen.setdefault(instance, install)
        if first is not install:
            name = instance.package.name
            why = f"only one may; {first.name} runs already" if runs(first) else "only one may"
            message = f"{install} and {first} ({first.location}) both install {name}, and {why}"
            hint = "Remove one of the two manifests"
            reason = Reason.DUPLICATE_PACKAGE
            problems.append(Problem(install.location, reason, message, hint, subject=str(install)))
    external = (install for install in installs if install.external)
    ours = sorted(chosen.values(), key=lambda install: rank_of(install)[1:])
    return replace(inputs, installs=(*ours, *external)), tuple(problems)
