"""Slots: where an instance is installed, which requirements see it, and which share it."""

import functools
from collections.abc import Iterator
from dataclasses import dataclass, replace

from reconciler.dependencies.model.cluster import InstallSlot, ObservedInstallation, SlotKind
from reconciler.dependencies.model.installs import Install
from reconciler.dependencies.model.packages import (
    Candidate,
    Ecosystem,
    InstallationType,
    PackageId,
    PackageNeed,
    Requirement,
    Share,
    Sharing,
)

SHARING_GROUP = "sh.porter.SharingGroup"


@dataclass(frozen=True, slots=True)
class RequirementContext:
    """Context of a requirement: namespace, path of aliases from the user's install, and that install.

    `install` is set only at the user's own install: overrides and bindings reach direct dependencies.
    """

    namespace: str
    path: tuple[str, ...] = ()
    install: Install | None = None


def effective_requirement(requirement: Requirement, install: Install | None) -> Requirement:
    """Return a requirement as the user's install changes it: another range, or not to be installed."""
    if install is None:
        return requirement
    is_installed = install.install_dependencies
    alternatives = list(requirement.alternatives)
    location = requirement.location
    for override in install.overrides:
        for place, need in enumerate(alternatives):
            if not isinstance(need, PackageNeed) or override.name not in (requirement.alias, need.id.name):
                continue
            if override.range is not None:
                alternatives[place] = replace(need, range=override.range)
                location = override.location
            is_installed = is_installed if override.install is None else override.install
    install_it = requirement.install and is_installed
    return replace(requirement, alternatives=tuple(alternatives), install=install_it, location=location)


def install_is_visible(install: Install, package: PackageId, share: Share, scope: RequirementContext) -> bool:
    """Tell whether a user's install can satisfy a requirement for its package, by namespace and labels.

    Porter looks in the current namespace and among what has none; the others in the current one.
    """
    if package.ecosystem is Ecosystem.XPKG:
        return True
    if package.ecosystem is not Ecosystem.BUNDLE:
        return install.namespace == scope.namespace
    return _porter_matches(install.namespace, dict(install.labels), share, scope)


def installation_matches(
    installation: ObservedInstallation,
    need: PackageNeed,
    package: PackageId,
    share: Share,
    scope: RequirementContext,
) -> bool:
    """Tell whether an installation of the snapshot satisfies a requirement for a package."""
    if (
        installation.id != package
        or installation.version is None
        or not need.range.allows(installation.version, installation.digest)
    ):
        return False
    if package.ecosystem is Ecosystem.XPKG:
        return True
    if package.ecosystem is not Ecosystem.BUNDLE:
        return installation.namespace == scope.namespace
    return _porter_matches(installation.namespace, dict(installation.labels), share, scope)


def _porter_matches(namespace: str, labels: dict[str, str], share: Share, scope: RequirementContext) -> bool:
    if share.scope is Sharing.EXCLUSIVE and not share.labels:
        return False
    near = {Sharing.GLOBAL: ("", scope.namespace)}.get(share.scope, (scope.namespace, ""))
    required = dict(share.labels) | ({SHARING_GROUP: share.group} if share.group else {})
    return namespace in near and all(labels.get(name) == value for name, value in required.items())


def new_slots(
    package: PackageId, candidates: tuple[Candidate, ...], requirement: Requirement, scope: RequirementContext
) -> Iterator[tuple[InstallSlot, frozenset[int]]]:
    """Yield the slots of a possible new instance, with the candidates that fit there."""
    everything = all_places(candidates)
    match package.ecosystem:
        case Ecosystem.XPKG:
            yield InstallSlot(SlotKind.CLUSTER), everything
        case Ecosystem.BUNDLE:
            yield _porter_slot(requirement, scope), everything
        case _:
            once = cluster_singletons(candidates)
            if once:
                yield InstallSlot(SlotKind.CLUSTER), once
            if everything - once or not everything:
                yield InstallSlot(SlotKind.NAMESPACE, scope.namespace), everything - once


def _porter_slot(requirement: Requirement, scope: RequirementContext) -> InstallSlot:
    share = requirement.share
    if share.scope is Sharing.EXCLUSIVE:
        return InstallSlot(SlotKind.FOR, scope.namespace, (*scope.path, requirement.alias))
    words = [f"{name}={value}" for name, value in (*share.labels, *share.inputs)]
    namespace = "" if share.scope in (Sharing.GLOBAL, Sharing.DIALECT) else scope.namespace
    return InstallSlot(SlotKind.SHARED, namespace, (*([share.group] if share.group else []), *words))


@functools.lru_cache(maxsize=1024)
def _first(count: int) -> frozenset[int]:
    return frozenset(range(count))


def all_places(candidates: tuple[Candidate, ...]) -> frozenset[int]:
    """Return every place of a list of candidates."""
    return _first(len(candidates))


@functools.lru_cache(maxsize=4096)
def cluster_singletons(candidates: tuple[Candidate, ...]) -> frozenset[int]:
    """Return the places of the candidates of which a cluster may hold one."""
    once = InstallationType.ONE_PER_CLUSTER
    return frozenset(place for place, c in enumerate(candidates) if c.installation is once)
