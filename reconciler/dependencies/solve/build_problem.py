"""Build the resolution problem: the transitive closure over all candidate versions."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from reconciler.dependencies.model.cluster import ClusterInputs, Instance, install_slot
from reconciler.dependencies.model.installs import Install
from reconciler.dependencies.model.packages import (
    Candidate,
    Ecosystem,
    InstallationType,
    PackageId,
    Requirement,
    Share,
)
from reconciler.dependencies.solve.alternatives import alternatives_for, existing_alternatives
from reconciler.dependencies.solve.lookup import CandidateLookup
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
from reconciler.dependencies.solve.slots import RequirementContext, effective_requirement
from reconciler.dependencies.versions import VersionPolicy, precedence_with_build, rank
from reconciler.errors import Problem
from reconciler.reasons import Reason


@dataclass(frozen=True, slots=True)
class BuiltProblem:
    """A question, and what was wrong with some of the installs before anything was asked."""

    question: ResolutionProblem
    problems: tuple[Problem, ...] = ()


def build_problem(world: ClusterInputs) -> BuiltProblem:
    """Collect every instance that could come to be, and every way to meet what it could need.

    Order-free: the order of installs, candidates and pins does not matter.
    """
    installs, problems = _without_duplicates(world)
    shelf = CandidateLookup(replace(world, installs=installs))
    nodes: dict[Instance, InstanceNode] = {}
    roots = tuple(_root(shelf, install) for install in installs if not install.external)
    queue = [(way.instance, site) for demand, site in roots for way in demand.alternatives if way.instance]
    for instance, site in queue:
        if instance in nodes:
            continue
        nodes[instance] = node = _node(shelf, instance, site)
        for several in node.requirements:
            queue.extend(
                (w.instance, shelf.site_of(w.instance, site)) for w in _created(several) if w.instance
            )
    _add_passive(shelf, nodes)
    question = ResolutionProblem(
        nodes=nodes,
        roots=tuple(demand for demand, _ in roots),
        incompatibilities=(*_same_package(nodes), *_same_kind(nodes)),
        locked_alternatives={} if world.choices.reconsider else _sticky(world),
        forbid_cycles=frozenset(world.choices.forbid_cycles),
        budget=world.choices.budget,
    )
    return BuiltProblem(question, problems)


def _without_duplicates(world: ClusterInputs) -> tuple[tuple[Install, ...], tuple[Problem, ...]]:
    kept: dict[Instance, Install] = {}
    external, problems = [], []
    for install in sorted(world.installs, key=lambda i: (i.namespace, i.name, i.kind, i.location)):
        instance = Instance(world.catalogue.find(install.need.id), install_slot(install))
        first = kept.get(instance)
        if install.external:
            external.append(install)
        elif first is None:
            kept[instance] = install
        else:
            problems.append(_duplicate(first, install))
    return (*kept.values(), *external), tuple(problems)


def _duplicate(first: Install, second: Install) -> Problem:
    return Problem(
        second.location,
        Reason.DUPLICATE_PACKAGE,
        f"{second} and {first} ({first.location}) both install {first.need.id.name}, and only one may",
        hint="Remove one of the two manifests",
        subject=str(second),
    )


def _root(shelf: CandidateLookup, install: Install) -> tuple[InstanceRequirement, RequirementContext]:
    package = shelf.world.catalogue.find(install.need.id)
    instance = Instance(package, install_slot(install))
    site = RequirementContext(install.namespace, (install.name,), install)
    allowed = shelf.allowed(instance, install.need.range)
    fact = Cause(CauseKind.REQUESTED, str(install), str(install.need))
    requirement = Requirement((install.need,), alias=install.name, location=install.location)
    return InstanceRequirement(
        None, requirement, (Alternative(AlternativeSource.CANDIDATE, 0, instance, allowed),), fact
    ), site


def _created(demands: tuple[InstanceRequirement, ...]) -> Iterator[Alternative]:
    return (way for demand in demands for way in demand.alternatives if way.active)


def _node(shelf: CandidateLookup, instance: Instance, site: RequirementContext) -> InstanceNode:
    candidates = shelf.candidates(instance)
    locked = shelf.locked(instance)
    order = _preference(shelf.world, instance, site, candidates, locked)
    banned = _bans(shelf, instance, site, candidates, locked)
    for place in set(range(len(candidates))) - set(order):
        fact = Cause(CauseKind.POLICY, str(instance), _policy(shelf.world, instance, site))
        banned[place] = (*banned.get(place, ()), fact)
    demands = tuple(tuple(_demands(shelf, instance, site, candidate)) for candidate in candidates)
    return InstanceNode(instance, candidates, order, demands, banned, locked)


def _demands(
    shelf: CandidateLookup, instance: Instance, site: RequirementContext, candidate: Candidate
) -> Iterator[InstanceRequirement]:
    if site.install is not None and site.install.skip_dependencies:
        return
    for written in candidate.requires:
        requirement = effective_requirement(written, site.install)
        detail = _signature(requirement)
        yield InstanceRequirement(
            instance,
            requirement,
            alternatives_for(requirement, site, shelf),
            Cause(CauseKind.REQUIRES, str(instance), detail),
        )


def _signature(requirement: Requirement) -> str:
    parts = [str(requirement)]
    parts += [f"as {requirement.alias}"] if requirement.alias else []
    parts += ["(optional)"] if requirement.optional else []
    parts += [] if requirement.install else ["(not to be installed)"]
    parts += [f"by default {requirement.default}"] if requirement.default else []
    share = requirement.share
    if share != Share():
        shared = [share.group, *(f"{name}={value}" for name, value in (*share.labels, *share.inputs))]
        parts.append(f"({' '.join([share.scope, *filter(None, shared)])})")
    return " ".join(parts)


def _preference(
    world: ClusterInputs,
    instance: Instance,
    site: RequirementContext,
    candidates: tuple[Candidate, ...],
    locked: int | None,
) -> tuple[int, ...]:
    install = site.install if site.install and install_slot(site.install) == instance.slot else None
    policy = _policy(world, instance, site)
    origin = candidates[locked].version if locked is not None else (install.origin if install else None)
    places: dict[object, int] = {candidate.version: place for place, candidate in enumerate(candidates)}
    return tuple(places[version] for version in rank((c.version for c in candidates), policy, origin=origin))


def _policy(world: ClusterInputs, instance: Instance, site: RequirementContext) -> VersionPolicy:
    own = site.install if site.install and install_slot(site.install) == instance.slot else None
    if own is not None and own.policy is not VersionPolicy.HIGHEST:
        return own.policy
    return dict(world.choices.policies).get(instance.package.ecosystem, VersionPolicy.HIGHEST)


def _bans(
    shelf: CandidateLookup,
    instance: Instance,
    site: RequirementContext,
    candidates: tuple[Candidate, ...],
    locked: int | None,
) -> dict[int, tuple[Cause, ...]]:
    floor = None if locked is None else _floor(shelf.world, instance, site, candidates[locked])
    foreign = shelf.foreign(instance)
    found: dict[int, tuple[Cause, ...]] = {}
    for place, candidate in enumerate(candidates):
        facts = _platform_bans(shelf.world, instance, site, candidate)
        facts += _held(shelf, instance, site, candidate)
        if candidate.withdrawn and place != locked:
            facts.append(Cause(CauseKind.WITHDRAWN, str(instance.package), str(candidate.version)))
        if floor is not None and _height(candidate) < _height(floor):
            facts.append(Cause(CauseKind.DOWNGRADE, str(instance), str(floor.version)))
        if foreign is not None:
            facts.append(Cause(CauseKind.FOREIGN, str(instance), f"{foreign.namespace}/{foreign.name}"))
        if facts:
            found[place] = tuple(facts)
    return found


def _platform_bans(
    world: ClusterInputs, instance: Instance, site: RequirementContext, candidate: Candidate
) -> list[Cause]:
    platforms = dict(world.presence.platforms)
    ignored = site.install.ignore_platforms if site.install else frozenset()
    return [
        Cause(CauseKind.PLATFORM, str(instance.package), str(need))
        for need in candidate.platforms
        if need.platform in platforms
        and need.platform not in ignored
        and not need.range.allows(platforms[need.platform])
    ]


def _held(
    shelf: CandidateLookup, instance: Instance, site: RequirementContext, candidate: Candidate
) -> list[Cause]:
    """Return a fact for each thing of a candidate that another package has and does not hand over."""
    if not shelf.holders:
        return []
    own = site.install if site.install and install_slot(site.install) == instance.slot else None
    may_take = own.revisions.take_over if own is not None else ()
    found = ((name, shelf.holders.get(name, instance.package)) for name in _things(candidate))
    return [
        Cause(CauseKind.HELD, str(instance.package), f"{name} of {holder.name}")
        for name, holder in found
        if holder != instance.package and holder.name not in may_take
    ]


def _things(candidate: Candidate) -> list[str]:
    return sorted({*(str(gvk.group_kind) for gvk in candidate.provides), *candidate.compositions})


def _floor(
    world: ClusterInputs, instance: Instance, site: RequirementContext, held: Candidate
) -> Candidate | None:
    """Return the locked candidate below which this instance may not go; a user's exact wish may."""
    own = site.install if site.install and install_slot(site.install) == instance.slot else None
    if world.choices.allow_downgrade or (own is not None and own.allow_downgrade):
        return None
    return held if own is None or own.need.id.ecosystem is Ecosystem.CARVEL else None


def _height(candidate: Candidate) -> tuple[object, ...]:
    return precedence_with_build(candidate.version)


def _add_passive(shelf: CandidateLookup, nodes: dict[Instance, InstanceNode]) -> None:
    for instance, node in list(nodes.items()):
        extended = tuple(
            tuple(_with_passive(shelf, demand, nodes) for demand in several) for several in node.requirements
        )
        if extended != node.requirements:
            nodes[instance] = replace(node, requirements=extended)


def _with_passive(
    shelf: CandidateLookup, demand: InstanceRequirement, nodes: dict[Instance, InstanceNode]
) -> InstanceRequirement:
    passive = tuple(existing_alternatives(demand, nodes, shelf))
    return replace(demand, alternatives=(*demand.alternatives, *passive)) if passive else demand


def _same_package(nodes: dict[Instance, InstanceNode]) -> Iterator[Incompatibility]:
    by_package: dict[PackageId, list[InstanceNode]] = {}
    for node in nodes.values():
        by_package.setdefault(node.instance.package, []).append(node)
    for package, several in by_package.items():
        for one in several:
            for other in several:
                if one is not other and (these := _alone(one, other)):
                    everywhere = frozenset(range(len(other.candidates)))
                    fact = Cause(CauseKind.ONCE, str(package), _scope(one, these))
                    yield Incompatibility(fact, one.instance, these, other.instance, everywhere)


def _scope(node: InstanceNode, places: frozenset[int]) -> str:
    once = InstallationType.ONE_PER_CLUSTER
    return "cluster" if any(node.candidates[p].installation is once for p in places) else "namespace"


def _alone(one: InstanceNode, other: InstanceNode) -> frozenset[int]:
    strict = {InstallationType.ONE_PER_CLUSTER}
    if one.instance.slot.namespace == other.instance.slot.namespace:
        strict.add(InstallationType.ONE_PER_NAMESPACE)
    return frozenset(p for p, c in enumerate(one.candidates) if c.installation in strict)


def _same_kind(nodes: dict[Instance, InstanceNode]) -> Iterator[Incompatibility]:
    owners: dict[str, dict[Instance, set[int]]] = {}
    for instance, node in nodes.items():
        for place, candidate in enumerate(node.candidates):
            for owned in _things(candidate):
                owners.setdefault(owned, {}).setdefault(instance, set()).add(place)
    for owned, by_instance in owners.items():
        several = list(by_instance.items())
        for number, (one, these) in enumerate(several):
            for other, those in several[number + 1 :]:
                if one.package != other.package:
                    fact = Cause(CauseKind.OWNER, owned)
                    yield Incompatibility(fact, one, frozenset(these), other, frozenset(those))


def _sticky(world: ClusterInputs) -> dict[Cause, int]:
    return {
        Cause(CauseKind.REQUIRES, str(choice.parent), choice.requirement): choice.alternative
        for choice in world.chosen
    }
