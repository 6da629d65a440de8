"""Verify a solution independently of the solver: check every rule against the manifests."""

import graphlib
import itertools
from collections.abc import Iterable, Iterator, Mapping

from msgspec.structs import replace

from reconciler.dependencies.model.cluster import ClusterInputs
from reconciler.dependencies.model.instances import Instance
from reconciler.dependencies.model.packages import (
    ApiNeed,
    Candidate,
    Ecosystem,
    Gvk,
    Install,
    InstallationType,
    InterfaceNeed,
    Need,
    PackageId,
    PackageNeed,
    Requirement,
)
from reconciler.dependencies.solve.problem import (
    AlternativeSource,
    RequirementEdge,
    ResolvedInstance,
    Solution,
)

ByPackage = Mapping[PackageId, list[ResolvedInstance]]
"""The resolved instances of each package."""

Links = Mapping[Instance, list[tuple[Instance, bool]]]
"""The targets of each instance, each with whether data flows from it."""


def verify(inputs: ClusterInputs, solution: Solution) -> tuple[str, ...]:
    """Return the violated rules of a solution, in sentences; nothing if it is valid.

    Total and order-free. It shares only the model with the solver: what overrides and declined alternatives
    mean is defined here once more, so that a fault on either side shows.
    """
    return tuple(_violations(inputs, solution))


def _violations(inputs: ClusterInputs, solution: Solution) -> Iterator[str]:
    installs = {inputs.instance_of(i): i for i in inputs.installs if not i.external}
    locked = {pin.instance: pin.candidate for pin in inputs.pins}
    yield from _install_violations(solution, installs, locked)
    by_package: dict[PackageId, list[ResolvedInstance]] = {}
    for resolved in solution.resolved.values():
        by_package.setdefault(resolved.instance.package, []).append(resolved)
    for resolved in solution.resolved.values():
        install = installs.get(resolved.instance)
        yield from _candidate(inputs, resolved, install, locked.get(resolved.instance))
        if install is None or not install.skip_dependencies:
            yield from _requirement_violations(inputs, solution, resolved, install, by_package)
    yield from _exclusivity_violations(by_package)
    yield from _ownership_violations(solution)
    # Nothing is installed that no user's install leads to.
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
    yield from _cycle_violations(inputs, solution)


def _install_violations(
    solution: Solution, installs: dict[Instance, Install], locked: dict[Instance, Candidate]
) -> Iterator[str]:
    stalled = {problem.subject for problem in solution.problems}
    losers = {install for explanation in solution.explanations for install in explanation.stalled}
    for instance, install in installs.items():
        resolved = solution.resolved.get(instance)
        if str(install) in losers and instance not in solution.failed:
            held = locked.get(instance)
            if held is not None and (resolved is None or resolved.candidate.version != held.version):
                yield f"{install} gives way and does not keep {held.version}"
        elif resolved is None:
            if instance not in solution.failed and str(install) not in stalled:
                yield f"{install} is not there"
        elif install.requested:
            held = locked.get(instance)
            if held is not None and resolved.candidate.version != held.version:
                yield f"{install} has no solution and does not keep {held.version}"
        elif str(install) in stalled:
            continue
        elif not install.need.range.allows(resolved.candidate.version, resolved.candidate.digest):
            yield f"{install} asks for {install.need} and gets {resolved.candidate.version}"


def _candidate(
    inputs: ClusterInputs, resolved: ResolvedInstance, install: Install | None, locked: Candidate | None
) -> Iterator[str]:
    candidate, package = resolved.candidate, resolved.instance.package
    held = locked is not None and locked.version == candidate.version
    if candidate not in inputs.published(resolved.instance) and not (candidate.unavailable and held):
        yield f"{candidate} is no candidate of {package}"
    if candidate.withdrawn and not held:
        yield f"{candidate} is withdrawn"
    platforms = {} if resolved.instance.slot.target else dict(inputs.presence.platforms)
    ignored = install.ignore_platforms if install else frozenset()
    for need in candidate.platforms:
        version = platforms.get(need.platform)
        if version is not None and need.platform not in ignored and not need.range.allows(version):
            yield f"{candidate} needs {need}, and the cluster has {version}"
    for stored in () if held or resolved.instance.slot.target else inputs.presence.stored:
        versions = {api.version for api in candidate.defined if api.group_kind == stored.kind}
        if versions and not versions.issuperset(stored.versions):
            yield f"{candidate} drops a stored version of {stored.kind}"
    free = inputs.choices.allow_downgrade or (install is not None and install.allow_downgrade)
    exact = install is not None and install.need.id.ecosystem is not Ecosystem.CARVEL
    lower = locked is not None and candidate.version.height < locked.version.height
    if lower and not free and not exact:
        yield f"{candidate} is below what is locked"


def _requirement_violations(
    inputs: ClusterInputs,
    solution: Solution,
    resolved: ResolvedInstance,
    install: Install | None,
    by_package: ByPackage,
) -> Iterator[str]:
    edges = {_requirement_key(edge.requirement): edge for edge in resolved.edges}
    for written in resolved.candidate.requires:
        requirement = _overridden(written, install)
        edge = edges.get(_requirement_key(requirement))
        if edge is not None:
            elsewhere = edge.target is not None and edge.target.slot.target != resolved.instance.slot.target
            if elsewhere or not _meets(inputs, solution, requirement, edge, install):
                provider = edge.target or edge.detail
                yield f"{resolved.candidate} requires {requirement}, and {provider} is not that"
        elif not requirement.optional:
            yield f"{resolved.candidate} requires {requirement}, and nothing meets it"
        yield from _optional_violations(inputs, resolved, requirement, by_package)


def _overridden(written: Requirement, by_user: Install | None) -> Requirement:
    """Return a requirement as the user's install overrides it; of several overrides the last one counts."""
    if by_user is None:
        return written
    needs: list[Need] = []
    installable = set[int]()
    for number, need in enumerate(written.alternatives):
        names = {written.alias, written.alias_of(number)}
        names |= {need.id.name} if isinstance(need, PackageNeed) else set()
        overrides = [override for override in by_user.overrides if override.name in names]
        consents = [override.install for override in overrides if override.install is not None]
        changed = need
        for override in overrides:
            changed = override.applied_to(changed) if isinstance(changed, PackageNeed) else changed
        needs.append(changed)
        if [by_user.install_dependencies, *consents][-1]:
            installable.add(number)
    declined = tuple(number for number in range(len(needs)) if number not in installable)
    install = written.install and bool(installable)
    return replace(written, alternatives=tuple(needs), install=install, declined=declined if install else ())


def _requirement_key(requirement: Requirement) -> tuple[str, str, bool, bool]:
    return (str(requirement), requirement.alias, requirement.optional, requirement.install)


def _optional_violations(
    inputs: ClusterInputs, resolved: ResolvedInstance, requirement: Requirement, by_package: ByPackage
) -> Iterator[str]:
    """Yield optional requirements with an unfitting package; instances of Porter do not affect others."""
    needs = requirement.alternatives
    if not requirement.optional or len(needs) != 1 or not isinstance(needs[0], PackageNeed):
        return
    package = inputs.catalogue.find(needs[0].id)
    if package.ecosystem is Ecosystem.BUNDLE:
        return
    for other in by_package.get(package, ()):
        is_near = other.instance.slot.namespace in ("", resolved.instance.slot.namespace)
        if is_near and not _matches(needs[0], other.candidate, inputs):
            yield f"{resolved.candidate} would need {requirement}, and {other.candidate} is there"


def _meets(
    inputs: ClusterInputs,
    solution: Solution,
    requirement: Requirement,
    edge: RequirementEdge,
    by_user: Install | None,
) -> bool:
    need = requirement.alternatives[edge.alternative]
    if edge.via is AlternativeSource.BINDING:
        return by_user is not None and requirement.alias in dict(by_user.bindings)
    if edge.target is not None:
        other = solution.resolved.get(edge.target)
        created = edge.via in (AlternativeSource.CANDIDATE, AlternativeSource.DEFAULT)
        if other is None or (created and not requirement.may_install(edge.alternative)):
            return False
        return (edge.via is AlternativeSource.DEFAULT and requirement.default is not None) or _matches(
            need, other.candidate, inputs
        )
    presence = inputs.presence
    external = [install for install in inputs.installs if install.external]
    match need:
        case ApiNeed():
            return _serves(presence.apis, need.gvk)
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


def _matches(need: Need, candidate: Candidate, inputs: ClusterInputs) -> bool:
    match need:
        case PackageNeed():
            same = inputs.catalogue.find(need.id) == candidate.id
            return same and need.range.allows(candidate.version, candidate.digest)
        case ApiNeed():
            is_provider = need.provider is None or _matches(need.provider, candidate, inputs)
            return is_provider and _serves(candidate.provides, need.gvk)
        case InterfaceNeed():
            return any(interface.meets(need) for interface in candidate.interfaces)


def _serves(served: Iterable[Gvk], api: Gvk) -> bool:
    return any(g == api or (not api.version and g.group_kind == api.group_kind) for g in served)


def _exclusivity_violations(by_package: ByPackage) -> Iterator[str]:
    anywhere = InstallationType.NO_RESTRICTIONS
    for resolved in by_package.values():
        if all(item.candidate.installation is anywhere for item in resolved):
            continue
        for first, second in itertools.combinations(resolved, 2):
            same = first.instance.slot.target == second.instance.slot.target
            if same and (_excludes(first, second) or _excludes(second, first)):
                yield f"{first.instance} and {second.instance} cannot both stand"


def _excludes(first: ResolvedInstance, second: ResolvedInstance) -> bool:
    if first.candidate.installation is InstallationType.ONE_PER_CLUSTER:
        return True
    same = first.instance.slot.namespace == second.instance.slot.namespace
    return same and first.candidate.installation is InstallationType.ONE_PER_NAMESPACE


def _ownership_violations(solution: Solution) -> Iterator[str]:
    owners: dict[tuple[str, str], ResolvedInstance] = {}
    for resolved in solution.resolved.values():
        candidate = resolved.candidate
        for owned in sorted({*(str(gvk.group_kind) for gvk in candidate.provides), *candidate.compositions}):
            owner = owners.setdefault((resolved.instance.slot.target, owned), resolved)
            if owner.instance.package != resolved.instance.package:
                yield f"{owner.candidate} and {resolved.candidate} both own {owned}"


def _cycle_violations(inputs: ClusterInputs, solution: Solution) -> Iterator[str]:
    links = {
        instance: [(e.target, e.requirement.wired) for e in resolved.edges if e.target is not None]
        for instance, resolved in solution.resolved.items()
    }
    for resolved in solution.resolved.values():
        for edge in resolved.edges:
            giving = [e for e in resolved.edges if e.requirement.alias in edge.requirement.after]
            if edge.target in links:
                links[edge.target] += [(e.target, True) for e in giving if e.target is not None]
    try:
        graphlib.TopologicalSorter(
            {i: [target for target, _ in links_of] for i, links_of in links.items()}
        ).prepare()
    except graphlib.CycleError:
        pass
    else:
        return
    for start, links_of in links.items():
        for first, wired in links_of:
            strict = wired or start.package.ecosystem in inputs.choices.forbid_cycles
            if strict and _is_reachable(links, first, start):
                yield f"{start} is needed by what it needs"
                break


def _is_reachable(links: Links, start: Instance, goal: Instance) -> bool:
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
