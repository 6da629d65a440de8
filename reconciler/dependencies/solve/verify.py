"""Verify a solution independently of the solver: check every rule against the manifests."""

import graphlib
import itertools
from collections.abc import Iterable, Iterator, Mapping

from msgspec.structs import replace

from reconciler.base.values import grouped, reachable
from reconciler.dependencies.model.cluster import ClusterInputs
from reconciler.dependencies.model.instances import Instance, MetNeed
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
from reconciler.dependencies.solve.problem import AlternativeSource, Solution

ByPackage = Mapping[PackageId, list[Instance]]
"""The resolved instances of each package."""


def verify(inputs: ClusterInputs, solution: Solution) -> tuple[str, ...]:
    """Return the violated rules of a solution, in sentences; nothing if it is valid.

    Total and order-free. It shares only the model with the solver: what overrides and declined alternatives
    mean is defined here once more, so that a fault on either side shows.
    """
    return tuple(_violations(inputs, solution))


def _violations(inputs: ClusterInputs, solution: Solution) -> Iterator[str]:
    chosen = {instance: solution.candidates[instance] for instance in solution.resolved}
    solution = replace(solution, candidates=chosen)
    installs = {inputs.instance_of(i): i for i in inputs.installs if not i.external}
    locked = {pin.instance: pin.candidate for pin in inputs.pins}
    # What is to be upgraded and gives way is held at its lock by another resolution.
    upgrade = inputs.choices.upgrade
    fixed = {i: held for i, held in locked.items() if upgrade.isdisjoint({i.name, str(i)})}
    yield from _install_violations(solution, installs, fixed)
    by_package = grouped((instance.package, instance) for instance in solution.resolved)
    for instance, candidate in solution.candidates.items():
        install = installs.get(instance)
        yield from _candidate(inputs, instance, candidate, install, locked.get(instance))
        if install is None or not install.skip_dependencies:
            yield from _requirement_violations(inputs, solution, instance, install, by_package)
    yield from _exclusivity_violations(solution, by_package)
    yield from _ownership_violations(solution)
    # Nothing is installed that no user's install leads to.
    active = {
        instance: [need.resolved for need in package.dependencies if need.resolved and need.active]
        for instance, package in solution.resolved.items()
    }
    users = [instance for instance, package in solution.resolved.items() if package.by_user]
    for instance in active.keys() - reachable(users, lambda instance: active.get(instance, ())):
        yield f"nothing requires {instance}"
    yield from _cycle_violations(inputs, solution)


def _install_violations(
    solution: Solution, installs: dict[Instance, Install], locked: dict[Instance, Candidate]
) -> Iterator[str]:
    stalled = {problem.subject for problem in solution.problems}
    losers = {install for explanation in solution.explanations for install in explanation.stalled}
    for instance, install in installs.items():
        chosen = solution.candidates.get(instance)
        if str(install) in losers and instance not in solution.failed:
            held = locked.get(instance)
            if held is not None and (chosen is None or chosen.version != held.version):
                yield f"{install} gives way and does not keep {held.version}"
        elif chosen is None:
            if instance not in solution.failed and str(install) not in stalled:
                yield f"{install} is not there"
        elif install.requested:
            held = locked.get(instance)
            if held is not None and chosen.version != held.version:
                yield f"{install} has no solution and does not keep {held.version}"
        elif str(install) in stalled:
            continue
        elif not install.need.range.allows(chosen.version, chosen.digest):
            yield f"{install} asks for {install.need} and gets {chosen.version}"


def _candidate(
    inputs: ClusterInputs,
    instance: Instance,
    candidate: Candidate,
    install: Install | None,
    locked: Candidate | None,
) -> Iterator[str]:
    held = locked is not None and locked.version == candidate.version
    if candidate not in inputs.published(instance) and not (candidate.unavailable and held):
        yield f"{candidate} is no candidate of {instance.package}"
    if candidate.withdrawn and not held:
        yield f"{candidate} is withdrawn"
    platforms = {} if instance.slot.target else dict(inputs.presence.platforms)
    ignored = install.ignore_platforms if install else frozenset()
    for need in candidate.platforms:
        version = platforms.get(need.platform)
        if version is not None and need.platform not in ignored and not need.range.allows(version):
            yield f"{candidate} needs {need}, and the cluster has {version}"
    for stored in () if held or instance.slot.target else inputs.presence.stored:
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
    instance: Instance,
    install: Install | None,
    by_package: ByPackage,
) -> Iterator[str]:
    candidate = solution.candidates[instance]
    needs = {
        _requirement_key(solution.requirements[instance, need.signature]): need
        for need in solution.resolved[instance].dependencies
    }
    for written in candidate.requires:
        requirement = _overridden(written, install)
        need = needs.get(_requirement_key(requirement))
        if need is not None:
            elsewhere = need.resolved is not None and need.resolved.slot.target != instance.slot.target
            if elsewhere or not _meets(inputs, solution, requirement, need, install):
                yield f"{candidate} requires {requirement}, and {need.resolved or need.detail} is not that"
        elif not requirement.optional:
            yield f"{candidate} requires {requirement}, and nothing meets it"
        for other in _unfit(inputs, solution, instance, requirement, by_package):
            yield f"{candidate} would need {requirement}, and {other} is there"


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


def _unfit(
    inputs: ClusterInputs,
    solution: Solution,
    instance: Instance,
    requirement: Requirement,
    by_package: ByPackage,
) -> Iterator[Candidate]:
    """Yield what does not fit an optional requirement; instances of Porter do not affect others."""
    needs = requirement.alternatives
    if not requirement.optional or len(needs) != 1 or not isinstance(needs[0], PackageNeed):
        return
    package = inputs.catalogue.find(needs[0].id)
    if package.ecosystem is Ecosystem.BUNDLE:
        return
    for other in by_package.get(package, ()):
        is_near = other.slot.namespace in ("", instance.slot.namespace)
        if is_near and not _matches(needs[0], solution.candidates[other], inputs):
            yield solution.candidates[other]


def _meets(
    inputs: ClusterInputs, solution: Solution, requirement: Requirement, met: MetNeed, by_user: Install | None
) -> bool:
    need = requirement.alternatives[met.alternative]
    if met.via == AlternativeSource.BINDING:
        return by_user is not None and requirement.alias in dict(by_user.bindings)
    if met.resolved is not None:
        other = solution.candidates.get(met.resolved)
        created = met.via in (AlternativeSource.CANDIDATE, AlternativeSource.DEFAULT)
        if other is None or (created and not requirement.may_install(met.alternative)):
            return False
        by_default = met.via == AlternativeSource.DEFAULT and requirement.default is not None
        return by_default or _matches(need, other, inputs)
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


def _exclusivity_violations(solution: Solution, by_package: ByPackage) -> Iterator[str]:
    for instances in by_package.values():
        types = {instance: solution.candidates[instance].installation for instance in instances}
        if set(types.values()) == {InstallationType.NO_RESTRICTIONS}:
            continue
        for first, second in itertools.combinations(instances, 2):
            once = {types[first], types[second]}
            is_near = first.slot.namespace == second.slot.namespace
            excludes = InstallationType.ONE_PER_CLUSTER in once
            excludes |= is_near and InstallationType.ONE_PER_NAMESPACE in once
            if excludes and first.slot.target == second.slot.target:
                yield f"{first} and {second} cannot both stand"


def _ownership_violations(solution: Solution) -> Iterator[str]:
    owners: dict[tuple[str, str], Candidate] = {}
    for instance, candidate in solution.candidates.items():
        for owned in sorted({*(str(gvk.group_kind) for gvk in candidate.provides), *candidate.compositions}):
            owner = owners.setdefault((instance.slot.target, owned), candidate)
            if owner.id != candidate.id:
                yield f"{owner} and {candidate} both own {owned}"


def _cycle_violations(inputs: ClusterInputs, solution: Solution) -> Iterator[str]:
    met = {
        instance: [
            (need.resolved, solution.requirements[instance, need.signature])
            for need in package.dependencies
            if need.resolved is not None
        ]
        for instance, package in solution.resolved.items()
    }
    links = {instance: [(target, edge.wired) for target, edge in needs] for instance, needs in met.items()}
    for needs in met.values():
        for getting, edge in needs:
            if getting in links:
                links[getting] += [(target, True) for target, other in needs if other.alias in edge.after]
    targets = {instance: [target for target, _ in links_of] for instance, links_of in links.items()}
    try:
        graphlib.TopologicalSorter(targets).prepare()
    except graphlib.CycleError:
        pass
    else:
        return
    for start, links_of in links.items():
        for first, wired in links_of:
            strict = wired or start.package.ecosystem in inputs.choices.forbid_cycles
            if strict and start in reachable([first], lambda instance: targets.get(instance, ())):
                yield f"{start} is needed by what it needs"
                break
