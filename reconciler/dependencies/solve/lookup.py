"""Cached look-ups in the inputs of one cluster: candidates, ranges, installs and providers."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from reconciler.dependencies.model.cluster import (
    ClusterInputs,
    Instance,
    ObservedInstallation,
    SlotKind,
    install_slot,
)
from reconciler.dependencies.model.installs import Install
from reconciler.dependencies.model.packages import Candidate, Dialect, Ecosystem, Gvk, PackageId, VersionRange
from reconciler.dependencies.solve.slots import RequirementContext

_DIALECTS = {
    Ecosystem.XPKG: Dialect.CROSSPLANE,
    Ecosystem.CARVEL: Dialect.CARVEL,
    Ecosystem.BUNDLE: Dialect.PORTER,
    Ecosystem.KPT: Dialect.KPT,
}


@dataclass(slots=True)
class CandidateLookup:
    """Cached look-ups in the inputs of one cluster."""

    inputs: ClusterInputs
    installs: dict[PackageId, list[Install]] = field(default_factory=dict)
    providers: dict[Gvk | str, list[PackageId]] = field(default_factory=dict)
    holders: dict[str, PackageId] = field(default_factory=dict)
    _allowed: dict[tuple[Instance | PackageId, VersionRange], frozenset[int]] = field(default_factory=dict)
    _pins: dict[Instance, Candidate] = field(default_factory=dict)

    def __post_init__(self) -> None:
        inputs = self.inputs
        upgraded = inputs.choices.upgrade
        self.holders = dict(inputs.held)
        self._pins = {p.instance: p.candidate for p in inputs.pins if p.instance.package.name not in upgraded}
        for install in inputs.installs:
            self.installs.setdefault(inputs.catalogue.find(install.need.id), []).append(install)
        if inputs.choices.discovery:
            for id_, candidates in inputs.catalogue.packages.items():
                for provided in {gvk for c in candidates for gvk in c.provides}:
                    self.providers.setdefault(provided, []).append(id_)
                for interface in {i.id for c in candidates for i in c.interfaces}:
                    self.providers.setdefault(interface, []).append(id_)

    def find(self, id_: PackageId) -> PackageId:
        """Return the package that a name means."""
        return self.inputs.catalogue.find(id_)

    def candidates(self, instance: Instance) -> tuple[Candidate, ...]:
        """Return the candidates of an instance; a locked one stays even if it is not published any more."""
        published = self.inputs.catalogue.candidates(instance.package)
        pinned = self._pins.get(instance)
        if pinned is None or any(c.version.text == pinned.version.text for c in published):
            return published
        return (*published, replace(pinned, unavailable=True))

    def locked(self, instance: Instance) -> int | None:
        """Return the place of the locked candidate, if the instance is locked."""
        pinned = self._pins.get(instance)
        if pinned is None:
            return None
        texts = [candidate.version.text for candidate in self.candidates(instance)]
        return texts.index(pinned.version.text)

    def allowed(self, instance: Instance, range_: VersionRange) -> frozenset[int]:
        """Return the places of the candidates that a range admits."""
        key = (instance if instance in self._pins else instance.package, range_)
        if key not in self._allowed:
            self._allowed[key] = self.places(
                instance, lambda candidate: range_.allows(candidate.version, candidate.digest)
            )
        return self._allowed[key]

    def places(self, instance: Instance, keep: Callable[[Candidate], bool]) -> frozenset[int]:
        """Return the places of the candidates that pass a test."""
        return frozenset(p for p, candidate in enumerate(self.candidates(instance)) if keep(candidate))

    def foreign(self, instance: Instance) -> ObservedInstallation | None:
        """Return an installation that is not ours in the slot of this instance."""
        if instance.slot.kind is not SlotKind.CLUSTER or self._pins.get(instance):
            return None
        if self.install_at(instance) is not None:
            return None
        return next((i for i in self.inputs.presence.installations if i.id == instance.package), None)

    def install_at(self, instance: Instance) -> Install | None:
        """Return the user's install in this slot."""
        own = (i for i in self.installs.get(instance.package, ()) if install_slot(i) == instance.slot)
        return next((i for i in own if not i.external), None)

    def site_of(self, instance: Instance, parent: RequirementContext) -> RequirementContext:
        """Return the context in which the requirements of an instance are read."""
        own = self.install_at(instance)
        if own is not None:
            return RequirementContext(own.namespace, (own.name,), own)
        match instance.slot.kind:
            case SlotKind.FOR:
                return RequirementContext(instance.slot.namespace, instance.slot.path)
            case SlotKind.CLUSTER:
                return RequirementContext(self.inputs.choices.shared_namespace, (instance.package.name,))
            case _:
                shared = (*instance.slot.path, instance.package.name)
                return RequirementContext(instance.slot.namespace or parent.namespace, shared)


def any_version(package: PackageId) -> VersionRange:
    """Return the range that admits every version of a package, pre-releases too."""
    return VersionRange(_DIALECTS[package.ecosystem], "", ())
