"""From the lock on disk back to pins, so that what was decided stays decided."""

from collections.abc import Iterable
from dataclasses import replace

from reconciler.dependencies.lifecycle import carried_over
from reconciler.dependencies.lockfile import LockedDependency, LockedInstance, LockedPackage, Resolution
from reconciler.dependencies.model import (
    ApiNeed,
    Candidate,
    Dialect,
    Ecosystem,
    Gvk,
    InterfaceNeed,
    Need,
    PackageId,
    PackageNeed,
    Requirement,
    VersionRange,
    version_range,
)
from reconciler.dependencies.ownership import entries_of, holder_of, is_guarded, name_of
from reconciler.dependencies.versions import Version, VersionError, parse_loose, parse_relaxed
from reconciler.dependencies.world import Catalogue, Instance, LockedChoice, Pin, Slot, SlotKind, World


def with_lock(world: World, resolution: Resolution) -> World:
    """Return a world with all that was decided for it: pins, choices, and whose everything is.

    Raises:
        VersionError: The lock was edited into something that is no version or range.
    """
    pins = carried_over(pins_of(resolution), world)
    return replace(world, pins=pins, chosen=choices_of(resolution), held=held_by(resolution))


def held_by(resolution: Resolution) -> tuple[tuple[str, PackageId], ...]:
    """Return which package each kind and composition belongs to, where it does not change hands freely."""
    found = ((name, holder_of(entry)) for name, entry in entries_of(resolution))
    return tuple(
        (name, PackageId(Ecosystem.XPKG, name_of(holder))) for name, holder in found if is_guarded(holder)
    )


def pins_of(resolution: Resolution) -> tuple[Pin, ...]:
    """Return the locked pins, each with what the lock remembers of its needs.

    What the lock remembers counts only where nobody publishes that version any more.

    Raises:
        VersionError: The lock was edited into something that is no version or range.
    """
    return tuple(Pin(_instance(one.instance), _candidate(one)) for one in resolution.packages)


def choices_of(resolution: Resolution) -> tuple[LockedChoice, ...]:
    """Return which alternative each or-group had."""
    return tuple(
        LockedChoice(_instance(one.instance), dependency.signature, dependency.alternative)
        for one in resolution.packages
        for dependency in one.dependencies
        if dependency.alternatives > 1
    )


def imported_pins(chosen: Iterable[Candidate], catalogue: Catalogue) -> tuple[Pin, ...]:
    """Return what Crossplane's own Lock had chosen, as pins; a bare digest is looked up in the catalogue.

    What has only a digest that nobody publishes cannot be compared with anything and is left out.
    """
    found = []
    for one in chosen:
        known = catalogue.candidates(one.id)
        same = [c for c in known if c.digest == one.digest] if one.digest else []
        if same or not one.digest:
            found.append(Pin(Instance(one.id, Slot(SlotKind.CLUSTER)), same[0] if same else one))
    return tuple(sorted(found, key=lambda pin: str(pin.instance)))


def _instance(locked: LockedInstance) -> Instance:
    slot = Slot(SlotKind(locked.slot.kind), locked.slot.namespace, locked.slot.path)
    return Instance(PackageId(Ecosystem(locked.ecosystem), locked.name), slot)


def _candidate(one: LockedPackage) -> Candidate:
    return Candidate(
        PackageId(Ecosystem(one.instance.ecosystem), one.instance.name),
        _version(one.version),
        digest=one.digest,
        requires=tuple(_requirement(dependency) for dependency in one.dependencies),
        source=one.source,
        kind=one.kind if one.instance.ecosystem == Ecosystem.XPKG else "",
    )


def _version(text: str) -> Version:
    try:
        return parse_relaxed(text)
    except VersionError:
        return parse_loose(text)


def _requirement(locked: LockedDependency) -> Requirement:
    return Requirement((_need(locked),), alias=locked.alias, optional=locked.optional)


def _need(locked: LockedDependency) -> Need:
    if locked.need == "api":
        api, _, kind = locked.id.rpartition("/")
        group, _, version = api.rpartition("/")
        return ApiNeed(Gvk(group, version, kind))
    range_ = _range(locked)
    if locked.need == "interface":
        return InterfaceNeed(locked.id, range_)
    ecosystem, _, name = locked.id.partition(":")
    return PackageNeed(PackageId(Ecosystem(ecosystem), name), range_)


def _range(locked: LockedDependency) -> VersionRange:
    return version_range(Dialect(locked.dialect), locked.constraints, prereleases=locked.prereleases)
