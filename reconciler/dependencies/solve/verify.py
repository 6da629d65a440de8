"""Verify a solution independently of the solver: check every rule against the manifests."""

from collections.abc import Iterator

from reconciler.dependencies.model.cluster import ClusterInputs, Instance, install_slot
from reconciler.dependencies.model.installs import Install
from reconciler.dependencies.model.packages import (
    ApiNeed,
    Candidate,
    Ecosystem,
    InstallationType,
    InterfaceNeed,
    Need,
    PackageNeed,
    Requirement,
)
from reconciler.dependencies.solve.problem import AlternativeSource
from reconciler.dependencies.solve.slots import effective_requirement
from reconciler.dependencies.solve.solution import RequirementEdge, ResolvedInstance, Solution
from reconciler.dependencies.versions import precedence_with_build


def verify(world: ClusterInputs, solution: Solution) -> tuple[str, ...]:
    """Return what is wrong with a solution, in sentences; nothing if it is valid.

    Total and order-free. It shares no code with the solver and knows nothing of its encoding.
    """
    return tuple(_violations(world, solution))


def _violations(world: ClusterInputs, solution: Solution) -> Iterator[str]:
    installs = {
        Instance(world.catalogue.find(i.need.id), install_slot(i)): i
        for i in world.installs
        if not i.external
    }
    yield from _wishes(world, solution, installs)
    for one in solution.resolved.values():
        own = installs.get(one.instance)
        yield from _candidate(world, one, own)
        if own is None or not own.skip_dependencies:
            yield from _needs(world, solution, one, own)
    yield from _rules(solution)
    yield from _unneeded(solution)
    yield from _circles(world, solution)


def _wishes(world: ClusterInputs, solution: Solution, installs: dict[Instance, Install]) -> Iterator[str]:
    stalled = {problem.subject for problem in solution.problems}
    losers = {explanation.preempted for explanation in solution.explanations}
    locked = {pin.instance: pin.candidate.version for pin in world.pins}
    for instance, install in installs.items():
        one = solution.resolved.get(instance)
        if str(install) in losers and instance not in solution.failed:
            held = locked.get(instance)
            if held is not None and (one is None or one.candidate.version != held):
                yield f"{install} gives way and does not keep {held}"
        elif one is None:
            if instance not in solution.failed and str(install) not in stalled:
                yield f"{install} is not there"
        elif str(install) in stalled:
            continue
        elif not install.need.range.allows(one.candidate.version, one.candidate.digest):
            yield f"{install} asks for {install.need} and gets {one.candidate.version}"


def _candidate(world: ClusterInputs, one: ResolvedInstance, own: Install | None) -> Iterator[str]:
    candidate, package = one.candidate, one.instance.package
    locked = next((p.candidate for p in world.pins if p.instance == one.instance), None)
    held = locked is not None and locked.version == candidate.version
    if candidate not in world.catalogue.candidates(package) and not (candidate.unavailable and held):
        yield f"{candidate} is no candidate of {package}"
    if candidate.withdrawn and not held:
        yield f"{candidate} is withdrawn"
    platforms = dict(world.presence.platforms)
    ignored = own.ignore_platforms if own else frozenset()
    for need in candidate.platforms:
        known = platforms.get(need.platform)
        if known is not None and need.platform not in ignored and not need.range.allows(known):
            yield f"{candidate} needs {need}, and the cluster has {known}"
    free = world.choices.allow_downgrade or (own is not None and own.allow_downgrade)
    exact = own is not None and own.need.id.ecosystem is not Ecosystem.CARVEL
    lower = locked is not None and (
        precedence_with_build(candidate.version) < precedence_with_build(locked.version)
    )
    if lower and not free and not exact and one.instance.package.name not in world.choices.upgrade:
        yield f"{candidate} is below what is locked"


def _needs(
    world: ClusterInputs, solution: Solution, one: ResolvedInstance, own: Install | None
) -> Iterator[str]:
    edges = {_asked(edge.requirement): edge for edge in one.edges}
    for written in one.candidate.requires:
        requirement = effective_requirement(written, own)
        edge = edges.get(_asked(requirement))
        if edge is not None:
            if not _meets(world, solution, requirement, edge, own):
                yield f"{one.candidate} requires {requirement}, and {edge.target or edge.detail} is not that"
        elif not requirement.optional:
            yield f"{one.candidate} requires {requirement}, and nothing meets it"
        yield from _misfits(world, solution, one, requirement)


def _asked(requirement: Requirement) -> tuple[str, str, bool, bool]:
    return (str(requirement), requirement.alias, requirement.optional, requirement.install)


def _misfits(
    world: ClusterInputs, solution: Solution, one: ResolvedInstance, requirement: Requirement
) -> Iterator[str]:
    """What is optional must fit if it is there; Porter's instances are each other's strangers."""
    needs = requirement.alternatives
    if not requirement.optional or len(needs) != 1 or not isinstance(needs[0], PackageNeed):
        return
    package = world.catalogue.find(needs[0].id)
    if package.ecosystem is Ecosystem.BUNDLE:
        return
    for other in solution.resolved.values():
        near = other.instance.slot.namespace in ("", one.instance.slot.namespace)
        if other.instance.package == package and near and not _is(needs[0], other.candidate, world):
            yield f"{one.candidate} would need {requirement}, and {other.candidate} is there"


def _meets(
    world: ClusterInputs,
    solution: Solution,
    requirement: Requirement,
    edge: RequirementEdge,
    own: Install | None,
) -> bool:
    need = requirement.alternatives[edge.alternative]
    if edge.via is AlternativeSource.BINDING:
        return own is not None and requirement.alias in dict(own.bindings)
    if edge.target is not None:
        other = solution.resolved.get(edge.target)
        created = edge.via in (AlternativeSource.CANDIDATE, AlternativeSource.DEFAULT)
        if other is None or (created and not requirement.install):
            return False
        return (edge.via is AlternativeSource.DEFAULT and requirement.default is not None) or _is(
            need, other.candidate, world
        )
    return _is_there(world, need)


def _is(need: Need, candidate: Candidate, world: ClusterInputs) -> bool:
    match need:
        case PackageNeed():
            same = world.catalogue.find(need.id) == candidate.id
            return same and need.range.allows(candidate.version, candidate.digest)
        case ApiNeed():
            wanted = need.gvk
            served = any(
                g == wanted or (not wanted.version and g.group_kind == wanted.group_kind)
                for g in candidate.provides
            )
            return served and (need.provider is None or _is(need.provider, candidate, world))
        case InterfaceNeed():
            return any(interface.meets(need) for interface in candidate.interfaces)


def _is_there(world: ClusterInputs, need: Need) -> bool:
    presence = world.presence
    external = [install for install in world.installs if install.external]
    match need:
        case ApiNeed():
            wanted = need.gvk
            return any(
                g == wanted or (not wanted.version and g.group_kind == wanted.group_kind)
                for g in presence.apis
            )
        case InterfaceNeed():
            offered = [i for found in presence.installations for i in found.interfaces]
            offered += [i for install in external for i in install.interfaces]
            return any(interface.meets(need) for interface in offered)
        case PackageNeed():
            package = world.catalogue.find(need.id)
            named = any(world.catalogue.find(install.need.id) == package for install in external)
            return named or any(
                found.id == package and found.version and need.range.allows(found.version, found.digest)
                for found in presence.installations
            )


def _rules(solution: Solution) -> Iterator[str]:
    several = list(solution.resolved.values())
    for number, one in enumerate(several):
        for other in several[number + 1 :]:
            if one.instance.package == other.instance.package:
                if _strict(one, other) or _strict(other, one):
                    yield f"{one.instance} and {other.instance} cannot both stand"
            elif common := _owned(one.candidate) & _owned(other.candidate):
                yield f"{one.candidate} and {other.candidate} both own {min(common)}"


def _strict(one: ResolvedInstance, other: ResolvedInstance) -> bool:
    if one.candidate.installation is InstallationType.ONE_PER_CLUSTER:
        return True
    same = one.instance.slot.namespace == other.instance.slot.namespace
    return same and one.candidate.installation is InstallationType.ONE_PER_NAMESPACE


def _owned(candidate: Candidate) -> set[str]:
    if not (candidate.provides or candidate.compositions):
        return set()
    return {str(gvk.group_kind) for gvk in candidate.provides} | set(candidate.compositions)


def _unneeded(solution: Solution) -> Iterator[str]:
    reached: set[Instance] = set()
    queue = [instance for instance, one in solution.resolved.items() if one.user]
    while queue:
        instance = queue.pop()
        if instance not in reached and instance in solution.resolved:
            reached.add(instance)
            edges = solution.resolved[instance].edges
            queue += [edge.target for edge in edges if edge.target is not None and edge.active]
    for instance in solution.resolved.keys() - reached:
        yield f"nobody needs {instance}"


def _circles(world: ClusterInputs, solution: Solution) -> Iterator[str]:
    links = {
        instance: [(e.target, e.requirement.wired) for e in one.edges if e.target is not None]
        for instance, one in solution.resolved.items()
    }
    for start, own in links.items():
        for first, wired in own:
            strict = wired or start.package.ecosystem in world.choices.forbid_cycles
            if strict and _reaches(links, first, start):
                yield f"{start} is needed by what it needs"
                break


def _reaches(links: dict[Instance, list[tuple[Instance, bool]]], start: Instance, goal: Instance) -> bool:
    seen: set[Instance] = set()
    queue = [start]
    while queue:
        instance = queue.pop()
        if instance == goal:
            return True
        if instance not in seen:
            seen.add(instance)
            queue += [target for target, _ in links.get(instance, ())]
    return False
