"""List the alternatives that satisfy a requirement, existing installations first."""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from msgspec.structs import replace

from reconciler.dependencies.model.cluster import ObservedInstallation
from reconciler.dependencies.model.instances import Instance, SlotKind
from reconciler.dependencies.model.packages import (
    ApiNeed,
    Candidate,
    Ecosystem,
    Install,
    Interface,
    InterfaceNeed,
    Need,
    PackageId,
    PackageNeed,
    Requirement,
    VersionRange,
)
from reconciler.dependencies.solve.lookup import (
    CandidateLookup,
    InstanceIndex,
    RequirementContext,
    all_places,
    any_version,
    cluster_singletons,
    installation_matches,
    is_visible,
    new_slots,
    slot_places,
)
from reconciler.dependencies.solve.problem import Alternative, AlternativeSource, InstanceRequirement


class _NeedContext(NamedTuple):
    """One alternative of a requirement, read at one place."""

    requirement: Requirement
    number: int
    site: RequirementContext
    lookup: CandidateLookup

    @property
    def may_install(self) -> bool:
        """Whether something may be installed for this alternative."""
        return self.requirement.may_install(self.number)

    def accepted(self, packages: Iterable[PackageId]) -> Iterator[PackageId]:
        """Yield the packages that the user does not decline to have installed."""
        overrides = self.site.install.overrides if self.site.install else ()
        declined = {override.name for override in overrides if override.install is False}
        return (package for package in packages if package.name not in declined)


def alternatives_for(
    requirement: Requirement, scope: RequirementContext, lookup: CandidateLookup
) -> tuple[Alternative, ...]:
    """Return the alternatives that satisfy a requirement, nearest first within each need."""
    bound = dict(scope.install.bindings).get(requirement.alias) if scope.install else None
    if bound is not None:
        return tuple(_binding(_NeedContext(requirement, 0, scope, lookup), bound))
    alternatives: list[Alternative] = []
    for number, need in enumerate(requirement.alternatives):
        context = _NeedContext(requirement, number, scope, lookup)
        match need:
            case PackageNeed():
                alternatives.extend(_package(context, need))
            case ApiNeed():
                alternatives.extend(_api(context, need))
            case InterfaceNeed():
                alternatives.extend(_interface(context, need))
    return tuple(alternatives)


def _binding(context: _NeedContext, name: str) -> Iterator[Alternative]:
    """Yield the bound installation, if it has what its user works with; its version and labels are free.

    Source: Porter's dependency proposal: if the bundle has the necessary parameters and outputs, it is used.
    """
    namespace, slash, short = name.rpartition("/")
    interfaces = [need for need in context.requirement.alternatives if isinstance(need, InterfaceNeed)]
    inputs = context.lookup.inputs
    # Porter looks in the namespace of the parent, then among global installations.
    for space in [namespace] if slash else [context.site.namespace, ""]:
        target = f"binding:{qualified(space, short)}"
        for install in inputs.installs:
            if (install.namespace, install.name) != (space, short):
                continue
            if install.external:
                usable = not interfaces or _has_shape(install.interfaces, interfaces)
                yield from [Alternative(AlternativeSource.BINDING, target=target)] if usable else []
                return
            alternative = _to_install(context, install, None, AlternativeSource.BINDING)
            if interfaces:
                alternative = _narrow(context, alternative, lambda c: _has_shape(c.interfaces, interfaces))
            alternative = _narrow(context, alternative, lambda c: not lacks(c, context.requirement))
            yield from [alternative] if alternative.allowed else []
            return
        for installation in inputs.presence.installations:
            if (installation.namespace, installation.name) == (space, short):
                bundles = context.lookup.inputs.catalogue.candidates(context.lookup.find(installation.id))
                installed = [c for c in bundles if c.version == installation.version]
                fits = not interfaces or _has_shape(installation.interfaces, interfaces)
                if fits and not any(lacks(c, context.requirement) for c in installed):
                    yield Alternative(AlternativeSource.BINDING, target=target)
                return


def lacks(candidate: Candidate, requirement: Requirement) -> list[str]:
    """Return the outputs and parameters that a requirement works with and a package does not have."""
    return [] if candidate.has is None else [name for name in requirement.uses if name not in candidate.has]


def _to_install(
    context: _NeedContext, install: Install, range_: VersionRange | None, via: AlternativeSource
) -> Alternative:
    if install.external:
        return Alternative(
            via, context.number, target=f"installed:{qualified(install.namespace, install.name)}"
        )
    instance = context.lookup.instance_of(install)
    if range_ is None:
        return Alternative(via, context.number, instance, all_places(context.lookup.candidates(instance)))
    return Alternative(via, context.number, instance, context.lookup.allowed(instance, range_))


def _keep_implementations(
    context: _NeedContext, alternative: Alternative, interfaces: list[InterfaceNeed]
) -> Alternative:
    return _narrow(context, alternative, lambda c: any(_implements(c, need) for need in interfaces))


def _narrow(
    context: _NeedContext, alternative: Alternative, keep: Callable[[Candidate], bool]
) -> Alternative:
    if alternative.instance is None:
        return alternative
    return replace(
        alternative, allowed=alternative.allowed & context.lookup.places(alternative.instance, keep)
    )


def _package(context: _NeedContext, need: PackageNeed) -> Iterator[Alternative]:
    package, scope, share = context.lookup.find(need.id), context.site, context.requirement.share
    installs = context.lookup.installs.get(package, ())
    visible = [install for install in installs if is_visible(install, package, share, scope)]
    for install in sorted(visible, key=lambda i: (i.namespace != scope.namespace, i.namespace, i.name)):
        via = (
            AlternativeSource.INSTALLED if install.namespace == scope.namespace else AlternativeSource.GLOBAL
        )
        yield _to_install(context, install, need.range, via)
    if visible:
        return
    yield from _other_namespaces(context, need, package)
    for installation in _nearest_first(context):
        if installation_matches(installation, need, package, share, scope):
            yield _installed(installation, context.number, scope)
    if context.may_install:
        yield from _create(context, package, need.range, AlternativeSource.CANDIDATE)


def _other_namespaces(context: _NeedContext, need: PackageNeed, package: PackageId) -> Iterator[Alternative]:
    """Yield installs of other namespaces if their package is limited to one per cluster."""
    if package.ecosystem in (Ecosystem.XPKG, Ecosystem.BUNDLE):
        return
    for install in context.lookup.installs.get(package, ()):
        if not install.external and install.namespace != context.site.namespace:
            instance = context.lookup.instance_of(install)
            once = cluster_singletons(context.lookup.candidates(instance))
            if once:
                yield Alternative(
                    AlternativeSource.GLOBAL,
                    context.number,
                    instance,
                    once & context.lookup.allowed(instance, need.range),
                )


def _create(
    context: _NeedContext, package: PackageId, range_: VersionRange, via: AlternativeSource
) -> Iterator[Alternative]:
    """Yield the slots that a new instance may take, the one with the highest version first."""
    lookup, scope = context.lookup, context.site
    if len(scope.path) > lookup.inputs.choices.depth:
        return
    published = lookup.inputs.catalogue.candidates(package)
    alternatives = []
    for slot, places in new_slots(package, published, context.requirement, scope):
        instance = Instance(*package, slot)
        locked = lookup.candidates(instance)
        fitting = (
            places | all_places(locked) - all_places(published) if len(locked) > len(published) else places
        )
        alternatives.append(
            Alternative(via, context.number, instance, fitting & lookup.allowed(instance, range_))
        )
    yield from sorted(alternatives, key=lambda alternative: -max(alternative.allowed, default=-1))


def _api(context: _NeedContext, need: ApiNeed) -> Iterator[Alternative]:
    lookup = context.lookup
    if lookup.is_served(need.gvk) and not lookup.is_ours(need.gvk) and _provider_is_observed(need, lookup):
        yield Alternative(AlternativeSource.SNAPSHOT, context.number, target="api:cluster")
    if not context.may_install:
        return
    for package in context.accepted(lookup.providers.get(need.gvk, ())):
        for alternative in _create(context, package, any_version(package), AlternativeSource.CANDIDATE):
            yield _narrow(context, alternative, lambda c: _provides(need, c, lookup))


def _interface(context: _NeedContext, need: InterfaceNeed) -> Iterator[Alternative]:
    lookup, scope = context.lookup, context.site
    here = (scope.namespace, "")
    ordered = sorted(lookup.inputs.installs, key=lambda i: (i.namespace != scope.namespace, i.name))
    for install in ordered:
        if install.namespace not in here:
            continue
        if install.external and not _offers(install.interfaces, [need]):
            continue
        via = (
            AlternativeSource.INSTALLED if install.namespace == scope.namespace else AlternativeSource.GLOBAL
        )
        alternative = _to_install(context, install, None, via)
        narrowed = alternative if install.external else _keep_implementations(context, alternative, [need])
        if narrowed.instance is None or narrowed.allowed:
            yield narrowed
    for installation in _nearest_first(context):
        if installation.namespace in here and _offers(installation.interfaces, [need]):
            yield _installed(installation, context.number, scope)
    if context.may_install:
        yield from _implementations(context, need)


def _nearest_first(context: _NeedContext) -> list[ObservedInstallation]:
    """Return the installations of the snapshot, those in the namespace of the requirement first."""
    return sorted(context.lookup.observed, key=lambda there: there.namespace != context.site.namespace)


def _implementations(context: _NeedContext, need: InterfaceNeed) -> Iterator[Alternative]:
    """Yield packages to create: the author's default, else the cluster's, else those of the index."""
    default = context.requirement.default
    if default is not None:
        yield from _create(context, context.lookup.find(default.id), default.range, AlternativeSource.DEFAULT)
        return
    named = [id_ for interface, id_ in context.lookup.inputs.choices.defaults if interface == need.id]
    others = [id_ for id_ in context.lookup.providers.get(need.id, ()) if id_ not in named]
    for package in context.accepted((*named, *others)):
        via = AlternativeSource.DEFAULT if package in named else AlternativeSource.CANDIDATE
        for alternative in _create(context, package, any_version(package), via):
            yield _keep_implementations(context, alternative, [need])


def existing_alternatives(
    demand: InstanceRequirement, present: InstanceIndex, lookup: CandidateLookup
) -> Iterator[Alternative]:
    """Yield alternatives that create nothing: instances that are present for other reasons."""
    for number, need in _needs_of_existing(demand, lookup):
        held = {way.instance for way in _creating(demand, number)}
        for instance in present.of(need):
            if instance not in held:
                places = _matching_places(need, demand, instance, lookup)
                if places is not None:
                    yield Alternative(AlternativeSource.PLANNED, number, instance, places, active=False)


def locked_alternatives(demand: InstanceRequirement, lookup: CandidateLookup) -> Iterator[Alternative]:
    """Yield the generated instances of the lock that satisfy a need for which nothing can be installed.

    They are in the cluster, and stay with whom they satisfy when those go that had them installed.
    """
    for number, need in _needs_of_existing(demand, lookup):
        is_declined = isinstance(need, PackageNeed) and demand.requirement.install
        if is_declined or any(way.allowed for way in _creating(demand, number)):
            continue
        for instance in lookup.generated().of(need):
            places = _matching_places(need, demand, instance, lookup) or frozenset()
            places &= slot_places(instance, lookup.candidates(instance))
            if places and instance != demand.parent:
                yield Alternative(AlternativeSource.PLANNED, number, instance, places)


def _needs_of_existing(demand: InstanceRequirement, lookup: CandidateLookup) -> Iterator[tuple[int, Need]]:
    """Yield the numbered needs that an instance can satisfy that is present for other reasons."""
    requirement = demand.requirement
    if requirement.may_install_all and all(
        isinstance(need, PackageNeed) for need in requirement.alternatives
    ):
        return
    install = lookup.install_at(demand.parent) if demand.parent else None
    if install is not None and requirement.alias in dict(install.bindings):
        return
    for number, need in enumerate(requirement.alternatives):
        if not isinstance(need, PackageNeed) or not requirement.may_install(number):
            yield number, need


def _creating(demand: InstanceRequirement, number: int) -> Iterator[Alternative]:
    """Yield the alternatives of one need that can install an instance."""
    return (
        way
        for way in demand.alternatives
        if way.alternative == number and way.instance is not None and way.via is not AlternativeSource.PLANNED
    )


def _matching_places(
    need: Need, demand: InstanceRequirement, instance: Instance, lookup: CandidateLookup
) -> frozenset[int] | None:
    """Return the candidates of an instance that satisfy a need, or None if it does not apply."""
    match need:
        case PackageNeed():
            is_near = demand.parent is not None and instance.slot.namespace in (
                demand.parent.slot.namespace,
                "",
            )
            is_match = is_near and lookup.find(need.id) == instance.package
            return lookup.allowed(instance, need.range) if is_match else None
        case ApiNeed():
            return lookup.places(instance, lambda c: _provides(need, c, lookup)) or None
        case InterfaceNeed():
            exclusive = instance.slot.kind is SlotKind.FOR
            return None if exclusive else lookup.places(instance, lambda c: _implements(c, need)) or None


def _provides(need: ApiNeed, candidate: Candidate, lookup: CandidateLookup) -> bool:
    provider = need.provider
    if provider is not None:
        fits = provider.range.allows(candidate.version, candidate.digest)
        if not fits or lookup.find(provider.id) != candidate.id:
            return False
    api = need.gvk
    return any(
        api == served or (not api.version and api.group_kind == served.group_kind)
        for served in candidate.provides
    )


def _provider_is_observed(need: ApiNeed, lookup: CandidateLookup) -> bool:
    """Tell whether the installed provider of an API is an allowed version of the named package."""
    provider = need.provider
    return provider is None or any(
        installation.id == lookup.find(provider.id)
        and installation.version
        and provider.range.allows(installation.version, installation.digest)
        for installation in lookup.observed
    )


def _implements(candidate: Candidate, need: InterfaceNeed) -> bool:
    return any(interface.meets(need) for interface in candidate.interfaces)


def _offers(interfaces: tuple[Interface, ...], needs: list[InterfaceNeed]) -> bool:
    return any(interface.meets(need) for interface in interfaces for need in needs)


def _has_shape(interfaces: tuple[Interface, ...], needs: list[InterfaceNeed]) -> bool:
    """Tell whether a bound installation has the required shape; its version is the user's choice."""
    return any(interface.has_shape(need) for interface in interfaces for need in needs)


def _installed(installation: ObservedInstallation, number: int, scope: RequirementContext) -> Alternative:
    """Return the alternative that an observed installation is, near if it shares the namespace."""
    is_near = installation.namespace == scope.namespace
    source = AlternativeSource.INSTALLED if is_near else AlternativeSource.GLOBAL
    name = qualified(installation.namespace, installation.name)
    return Alternative(source, number, target=f"installed:{name}")


def qualified(namespace: str, name: str) -> str:
    """Return the name of an installation with its namespace, if it has one."""
    return f"{namespace}/{name}" if namespace else name
