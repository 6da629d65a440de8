"""Verify a solution independently of the solver: check every rule against the manifests."""

from collections.abc import Iterator

from reconciler.dependencies.model.cluster import ClusterInputs, Instance, install_slot
from reconciler.dependencies.model.packages import (
    ApiNeed,
    Candidate,
    Ecosystem,
    Install,
    InstallationType,
    InterfaceNeed,
    Need,
    PackageNeed,
    Requirement,
)
from reconciler.dependencies.solve.lookup import effective_requirement
from reconciler.dependencies.solve.problem import AlternativeSource
from reconciler.dependencies.solve.solution import RequirementEdge, ResolvedInstance, Solution
from reconciler.dependencies.versions import precedence_with_build


def verify(inputs: ClusterInputs, solution: Solution) -> tuple[str, ...]:
    """Return the violated rules of a solution, in sentences; nothing if it is valid.

    Total and order-free. It shares no code with the solver and is independent of its encoding.
    """
    return tuple(_violations(inputs, solution))


def _violations(inputs: ClusterInputs, solution: Solution) -> Iterator[str]:
    installs = {
        Instance(inputs.catalogue.find(i.need.id), install_slot(i)): i
        for i in inputs.installs
        if not i.external
    }
    yield from _install_violations(inputs, solution, installs)
    for resolved in solution.resolved.values():
        own = installs.get(resolved.instance)
        yield from _candidate(inputs, resolved, own)
        if own is None or not own.skip_dependencies:
            yield from _requirement_violations(inputs, solution, resolved, own)
    yield from _exclusivity_violations(solution)
    yield from _unreachable(solution)
    yield from _cycle_violations(inputs, solution)


def _install_violations(
    inputs: ClusterInputs, solution: Solution, installs: dict[Instance, Install]
) -> Iterator[str]:
    stalled = {problem.subject for problem in solution.problems}
    losers = {install for explanation in solution.explanations for install in explanation.stalled}
    locked = {pin.instance: pin.candidate.version for pin in inputs.pins}
    for instance, install in installs.items():
        resolved = solution.resolved.get(instance)
        if str(install) in losers and instance not in solution.failed:
            held = locked.get(instance)
            if held is not None and (resolved is None or resolved.candidate.version != held):
                yield f"{install} gives way and does not keep {held}"
        elif resolved is None:
            if instance not in solution.failed and str(install) not in stalled:
                yield f"{install} is not there"
        elif str(install) in stalled:
            continue
        elif not install.need.range.allows(resolved.candidate.version, resolved.candidate.digest):
            yield f"{install} asks for {install.need} and gets {resolved.candidate.version}"


def _candidate(inputs: ClusterInputs, resolved: ResolvedInstance, own: Install | None) -> Iterator[str]:
    candidate, package = resolved.candidate, resolved.instance.package
    locked = next((p.candidate for p in inputs.pins if p.instance == resolved.instance), None)
    held = locked is not None and locked.version == candidate.version
    if candidate not in inputs.catalogue.candidates(package) and not (candidate.unavailable and held):
        yield f"{candidate} is no candidate of {package}"
    if candidate.withdrawn and not held:
        yield f"{candidate} is withdrawn"
    platforms = dict(inputs.presence.platforms)
    ignored = own.ignore_platforms if own else frozenset()
    for need in candidate.platforms:
        version = platforms.get(need.platform)
        if version is not None and need.platform not in ignored and not need.range.allows(version):
            yield f"{candidate} needs {need}, and the cluster has {version}"
    free = inputs.choices.allow_downgrade or (own is not None and own.allow_downgrade)
    exact = own is not None and own.need.id.ecosystem is not Ecosystem.CARVEL
    lower = locked is not None and (
        precedence_with_build(candidate.version) < precedence_with_build(locked.version)
    )
    if lower and not free and not exact and resolved.instance.package.name not in inputs.choices.upgrade:
        yield f"{candidate} is below what is locked"


def _requirement_violations(
    inputs: ClusterInputs, solution: Solution, resolved: ResolvedInstance, own: Install | None
) -> Iterator[str]:
    edges = {_requirement_key(edge.requirement): edge for edge in resolved.edges}
    for written in resolved.candidate.requires:
        requirement = effective_requirement(written, own)
        edge = edges.get(_requirement_key(requirement))
        if edge is not None:
            if not _meets(inputs, solution, requirement, edge, own):
                provider = edge.target or edge.detail
                yield f"{resolved.candidate} requires {requirement}, and {provider} is not that"
        elif not requirement.optional:
            yield f"{resolved.candidate} requires {requirement}, and nothing meets it"
        yield from _optional_violations(inputs, solution, resolved, requirement)


def _requirement_key(requirement: Requirement) -> tuple[str, str, bool, bool]:
    return (str(requirement), requirement.alias, requirement.optional, requirement.install)


def _optional_violations(
    inputs: ClusterInputs, solution: Solution, resolved: ResolvedInstance, requirement: Requirement
) -> Iterator[str]:
    """Yield optional requirements with an unfitting package; instances of Porter do not affect others."""
    needs = requirement.alternatives
    if not requirement.optional or len(needs) != 1 or not isinstance(needs[0], PackageNeed):
        return
    package = inputs.catalogue.find(needs[0].id)
    if package.ecosystem is Ecosystem.BUNDLE:
        return
    for other in solution.resolved.values():
        near = other.instance.slot.namespace in ("", resolved.instance.slot.namespace)
        if other.instance.package == package and near and not _matches(needs[0], other.candidate, inputs):
            yield f"{resolved.candidate} would need {requirement}, and {other.candidate} is there"


def _meets(
    inputs: ClusterInputs,
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
        if other is None or (created and not requirement.may_install(edge.alternative)):
            return False
        return (edge.via is AlternativeSource.DEFAULT and requirement.default is not None) or _matches(
            need, other.candidate, inputs
        )
    return _is_observed(inputs, need)


def _matches(need: Need, candidate: Candidate, inputs: ClusterInputs) -> bool:
    match need:
        case PackageNeed():
            same = inputs.catalogue.find(need.id) == candidate.id
            return same and need.range.allows(candidate.version, candidate.digest)
        case ApiNeed():
            gvk = need.gvk
            served = any(
                g == gvk or (not gvk.version and g.group_kind == gvk.group_kind) for g in candidate.provides
            )
            return served and (need.provider is None or _matches(need.provider, candidate, inputs))
        case InterfaceNeed():
            return any(interface.meets(need) for interface in candidate.interfaces)


def _is_observed(inputs: ClusterInputs, need: Need) -> bool:
    presence = inputs.presence
    external = [install for install in inputs.installs if install.external]
    match need:
        case ApiNeed():
            gvk = need.gvk
            return any(
                g == gvk or (not gvk.version and g.group_kind == gvk.group_kind) for g in presence.apis
            )
        case InterfaceNeed():
            offered = [i for installation in presence.installations for i in installation.interfaces]
            offered += [i for install in external for i in install.interfaces]
            return any(interface.meets(need) for interface in offered)
        case PackageNeed():
            package = inputs.catalogue.find(need.id)
            named = any(inputs.catalogue.find(install.need.id) == package for install in external)
            return named or any(
                inputs.catalogue.find(installation.id) == package
                and installation.version
                and need.range.allows(installation.version, installation.digest)
                for installation in presence.installations
            )


def _exclusivity_violations(solution: Solution) -> Iterator[str]:
    pinned = list(solution.resolved.values())
    for number, first in enumerate(pinned):
        for second in pinned[number + 1 :]:
            if first.instance.package == second.instance.package:
                if _excludes(first, second) or _excludes(second, first):
                    yield f"{first.instance} and {second.instance} cannot both stand"
            elif common := _owned(first.candidate) & _owned(second.candidate):
                yield f"{first.candidate} and {second.candidate} both own {min(common)}"


def _excludes(first: ResolvedInstance, second: ResolvedInstance) -> bool:
    if first.candidate.installation is InstallationType.ONE_PER_CLUSTER:
        return True
    same = first.instance.slot.namespace == second.instance.slot.namespace
    return same and first.candidate.installation is InstallationType.ONE_PER_NAMESPACE


def _owned(candidate: Candidate) -> set[str]:
    if not (candidate.provides or candidate.compositions):
        return set()
    return {str(gvk.group_kind) for gvk in candidate.provides} | set(candidate.compositions)


def _unreachable(solution: Solution) -> Iterator[str]:
    reached: set[Instance] = set()
    queue = [instance for instance, resolved in solution.resolved.items() if resolved.user]
    while queue:
        instance = queue.pop()
        if instance not in reached and instance in solution.resolved:
            reached.add(instance)
            edges = solution.resolved[instance].edges
            queue += [edge.target for edge in edges if edge.target is not None and edge.active]
    for instance in solution.resolved.keys() - reached:
        yield f"nothing requires {instance}"


def _cycle_violations(inputs: ClusterInputs, solution: Solution) -> Iterator[str]:
    links = {
        instance: [(e.target, e.requirement.wired) for e in resolved.edges if e.target is not None]
        for instance, resolved in solution.resolved.items()
    }
    for start, own in links.items():
        for first, wired in own:
            strict = wired or start.package.ecosystem in inputs.choices.forbid_cycles
            if strict and _is_reachable(links, first, start):
                yield f"{start} is needed by what it needs"
                break


def _is_reachable(
    links: dict[Instance, list[tuple[Instance, bool]]], start: Instance, goal: Instance
) -> bool:
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
