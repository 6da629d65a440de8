"""List the alternatives that satisfy a requirement, existing installations first."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from reconciler.dependencies.model.cluster import Instance, SlotKind, install_slot
from reconciler.dependencies.model.installs import Install
from reconciler.dependencies.model.packages import (
    ApiNeed,
    Candidate,
    Ecosystem,
    Gvk,
    Interface,
    InterfaceNeed,
    Need,
    PackageId,
    PackageNeed,
    Requirement,
    VersionRange,
)
from reconciler.dependencies.solve.lookup import CandidateLookup, any_version
from reconciler.dependencies.solve.problem import (
    Alternative,
    AlternativeSource,
    InstanceNode,
    InstanceRequirement,
)
from reconciler.dependencies.solve.slots import (
    RequirementContext,
    all_places,
    cluster_singletons,
    install_is_visible,
    installation_matches,
    new_slots,
)


@dataclass(frozen=True, slots=True)
class _NeedContext:
    """One alternative of a requirement, read at one place."""

    requirement: Requirement
    number: int
    site: RequirementContext
    shelf: CandidateLookup


def alternatives_for(
    requirement: Requirement, site: RequirementContext, shelf: CandidateLookup
) -> tuple[Alternative, ...]:
    """Return the ways to meet a requirement, nearest first within each alternative."""
    bound = dict(site.install.bindings).get(requirement.alias) if site.install else None
    if bound is not None:
        return tuple(_binding(_NeedContext(requirement, 0, site, shelf), bound))
    found: list[Alternative] = []
    for number, need in enumerate(requirement.alternatives):
        asked = _NeedContext(requirement, number, site, shelf)
        match need:
            case PackageNeed():
                found.extend(_package(asked, need))
            case ApiNeed():
                found.extend(_api(asked, need))
            case InterfaceNeed():
                found.extend(_interface(asked, need))
    return tuple(found)


def _binding(asked: _NeedContext, name: str) -> Iterator[Alternative]:
    """Find the installation that the user named; only what an interface demands is checked."""
    namespace, slash, short = name.rpartition("/")
    wanted = [need for need in asked.requirement.alternatives if isinstance(need, InterfaceNeed)]
    world = asked.shelf.world
    for space in [namespace] if slash else [asked.site.namespace, ""]:
        target = f"binding:{_named(space, short)}"
        for install in world.installs:
            if (install.namespace, install.name) != (space, short):
                continue
            if install.external:
                usable = not wanted or _has_shape(install.interfaces, wanted)
                yield from [Alternative(AlternativeSource.BINDING, target=target)] if usable else []
            else:
                way = _to_install(asked, install, None, AlternativeSource.BINDING)
                yield _narrow(asked, way, lambda c: _has_shape(c.interfaces, wanted)) if wanted else way
            return
        for found in world.presence.installations:
            if (found.namespace, found.name) == (space, short):
                if not wanted or _has_shape(found.interfaces, wanted):
                    yield Alternative(AlternativeSource.BINDING, target=target)
                return


def _to_install(
    asked: _NeedContext, install: Install, range_: VersionRange | None, via: AlternativeSource
) -> Alternative:
    if install.external:
        return Alternative(via, asked.number, target=f"installed:{_named(install.namespace, install.name)}")
    instance = Instance(asked.shelf.find(install.need.id), install_slot(install))
    if range_ is None:
        return Alternative(via, asked.number, instance, all_places(asked.shelf.candidates(instance)))
    return Alternative(via, asked.number, instance, asked.shelf.allowed(instance, range_))


def _keep(asked: _NeedContext, way: Alternative, wanted: list[InterfaceNeed]) -> Alternative:
    return _narrow(asked, way, lambda c: any(_implements(c, need) for need in wanted))


def _narrow(asked: _NeedContext, way: Alternative, keep: Callable[[Candidate], bool]) -> Alternative:
    if way.instance is None:
        return way
    return replace(way, allowed=way.allowed & asked.shelf.places(way.instance, keep))


def _package(asked: _NeedContext, need: PackageNeed) -> Iterator[Alternative]:
    package, site, share = asked.shelf.find(need.id), asked.site, asked.requirement.share
    near = [i for i in asked.shelf.installs.get(package, ()) if install_is_visible(i, package, share, site)]
    for install in sorted(near, key=lambda i: (i.namespace != site.namespace, i.namespace, i.name)):
        via = AlternativeSource.INSTALLED if install.namespace == site.namespace else AlternativeSource.GLOBAL
        yield _to_install(asked, install, need.range, via)
    if near:
        return
    yield from _elsewhere(asked, need, package)
    for found in asked.shelf.world.presence.installations:
        if installation_matches(found, need, package, share, site):
            via = (
                AlternativeSource.INSTALLED if found.namespace == site.namespace else AlternativeSource.GLOBAL
            )
            yield Alternative(via, asked.number, target=f"installed:{_named(found.namespace, found.name)}")
    if asked.requirement.install:
        yield from _create(asked, package, need.range, AlternativeSource.CANDIDATE)


def _elsewhere(asked: _NeedContext, need: PackageNeed, package: PackageId) -> Iterator[Alternative]:
    """Find installs of another namespace that count because their package may stand once per cluster."""
    if package.ecosystem in (Ecosystem.XPKG, Ecosystem.BUNDLE):
        return
    for install in asked.shelf.installs.get(package, ()):
        if not install.external and install.namespace != asked.site.namespace:
            instance = Instance(package, install_slot(install))
            once = cluster_singletons(asked.shelf.candidates(instance))
            if once:
                yield Alternative(
                    AlternativeSource.GLOBAL,
                    asked.number,
                    instance,
                    once & asked.shelf.allowed(instance, need.range),
                )


def _create(
    asked: _NeedContext, package: PackageId, range_: VersionRange, via: AlternativeSource
) -> Iterator[Alternative]:
    """Yield the slots that a new instance may take, the one with the highest version first."""
    shelf, site = asked.shelf, asked.site
    if len(site.path) > shelf.world.choices.depth:
        return
    known = shelf.world.catalogue.candidates(package)
    found = []
    for slot, places in new_slots(package, known, asked.requirement, site):
        instance = Instance(package, slot)
        locked = shelf.candidates(instance)
        fitting = places | all_places(locked) - all_places(known) if len(locked) > len(known) else places
        found.append(Alternative(via, asked.number, instance, fitting & shelf.allowed(instance, range_)))
    yield from sorted(found, key=lambda way: -max(way.allowed, default=-1))


def _api(asked: _NeedContext, need: ApiNeed) -> Iterator[Alternative]:
    shelf = asked.shelf
    presence, pins = shelf.world.presence, shelf.world.pins
    owner = dict(presence.owners).get(need.gvk.group_kind)
    ours = owner is not None and owner in {pin.instance.package for pin in pins}
    if not ours and any(_same_api(need.gvk, api) for api in presence.apis) and _is_provided(need, shelf):
        yield Alternative(AlternativeSource.SNAPSHOT, asked.number, target="api:cluster")
    if not asked.requirement.install:
        return
    for package in shelf.providers.get(need.gvk, ()):
        for way in _create(asked, package, any_version(package), AlternativeSource.CANDIDATE):
            yield _narrow(asked, way, lambda c: _provides(need, c, shelf))


def _interface(asked: _NeedContext, need: InterfaceNeed) -> Iterator[Alternative]:
    shelf, site = asked.shelf, asked.site
    here = (site.namespace, "")
    ordered = sorted(shelf.world.installs, key=lambda i: (i.namespace != site.namespace, i.name))
    for install in ordered:
        if install.namespace not in here:
            continue
        if install.external and not _offers(install.interfaces, [need]):
            continue
        via = AlternativeSource.INSTALLED if install.namespace == site.namespace else AlternativeSource.GLOBAL
        way = _to_install(asked, install, None, via)
        kept = way if install.external else _keep(asked, way, [need])
        if kept.instance is None or kept.allowed:
            yield kept
    for found in shelf.world.presence.installations:
        if found.namespace in here and _offers(found.interfaces, [need]):
            via = (
                AlternativeSource.INSTALLED if found.namespace == site.namespace else AlternativeSource.GLOBAL
            )
            yield Alternative(via, asked.number, target=f"installed:{_named(found.namespace, found.name)}")
    if asked.requirement.install:
        yield from _implementations(asked, need)


def _implementations(asked: _NeedContext, need: InterfaceNeed) -> Iterator[Alternative]:
    """Find what to create: the author's default, else this scope's, else what the index offers."""
    default = asked.requirement.default
    if default is not None:
        yield from _create(asked, asked.shelf.find(default.id), default.range, AlternativeSource.DEFAULT)
        return
    named = [id_ for interface, id_ in asked.shelf.world.choices.defaults if interface == need.id]
    others = [id_ for id_ in asked.shelf.providers.get(need.id, ()) if id_ not in named]
    for package in (*named, *others):
        via = AlternativeSource.DEFAULT if package in named else AlternativeSource.CANDIDATE
        for way in _create(asked, package, any_version(package), via):
            yield _keep(asked, way, [need])


def existing_alternatives(
    demand: InstanceRequirement, nodes: Mapping[Instance, InstanceNode], shelf: CandidateLookup
) -> Iterator[Alternative]:
    """Yield the ways that create nothing: what stands there for other reasons."""
    needs = demand.requirement.alternatives
    if demand.requirement.install and all(isinstance(need, PackageNeed) for need in needs):
        return
    bound = any(way.via is AlternativeSource.BINDING for way in demand.alternatives)
    for number, need in enumerate(() if bound else needs):
        held = {way.instance for way in demand.alternatives if way.alternative == number}
        for instance, node in nodes.items():
            if instance not in held:
                places = _standing(need, demand, node, shelf)
                if places is not None:
                    yield Alternative(AlternativeSource.PLANNED, number, instance, places, active=False)


def _standing(
    need: Need, demand: InstanceRequirement, node: InstanceNode, shelf: CandidateLookup
) -> frozenset[int] | None:
    """Return the candidates of a node that would meet a need, or None if the node is none of its business."""
    instance = node.instance
    match need:
        case PackageNeed():
            near = demand.parent is not None and instance.slot.namespace in (demand.parent.slot.namespace, "")
            wanted = near and not demand.requirement.install and shelf.find(need.id) == instance.package
            return shelf.allowed(instance, need.range) if wanted else None
        case ApiNeed():
            return shelf.places(instance, lambda c: _provides(need, c, shelf)) or None
        case InterfaceNeed():
            exclusive = instance.slot.kind is SlotKind.FOR
            return None if exclusive else shelf.places(instance, lambda c: _implements(c, need)) or None


def _provides(need: ApiNeed, candidate: Candidate, shelf: CandidateLookup) -> bool:
    wanted = need.provider
    if wanted is not None:
        fits = wanted.range.allows(candidate.version, candidate.digest)
        if not fits or shelf.find(wanted.id) != candidate.id:
            return False
    return any(_same_api(need.gvk, api) for api in candidate.provides)


def _is_provided(need: ApiNeed, shelf: CandidateLookup) -> bool:
    """Whether what serves an API in the cluster is a version of the package that is asked for."""
    wanted = need.provider
    return wanted is None or any(
        found.id == shelf.find(wanted.id)
        and found.version
        and wanted.range.allows(found.version, found.digest)
        for found in shelf.world.presence.installations
    )


def _same_api(needed: Gvk, served: Gvk) -> bool:
    return needed == served or (not needed.version and needed.group_kind == served.group_kind)


def _implements(candidate: Candidate, need: InterfaceNeed) -> bool:
    return any(interface.meets(need) for interface in candidate.interfaces)


def _offers(interfaces: tuple[Interface, ...], wanted: list[InterfaceNeed]) -> bool:
    return any(interface.meets(need) for interface in interfaces for need in wanted)


def _has_shape(interfaces: tuple[Interface, ...], wanted: list[InterfaceNeed]) -> bool:
    """Whether what a person chose can do what is asked for; which version it is, is theirs to know."""
    return any(interface.has_shape(need) for interface in interfaces for need in wanted)


def _named(namespace: str, name: str) -> str:
    return f"{namespace}/{name}" if namespace else name
