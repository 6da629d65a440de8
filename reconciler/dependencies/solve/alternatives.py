"""The alternatives of a requirement, and look-ups in the inputs of one cluster."""

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from reconciler.base.values import grouped
from reconciler.dependencies.model.cluster import (
    SHARING_GROUP,
    ClusterInputs,
    ObservedInstallation,
    bundle_name,
    carvel_name,
    rendered_labels,
)
from reconciler.dependencies.model.instances import Instance, Slot, SlotKind, target_path
from reconciler.dependencies.model.packages import (
    ApiNeed,
    Candidate,
    Ecosystem,
    Gvk,
    Install,
    InstallationType,
    Interface,
    InterfaceNeed,
    Need,
    PackageId,
    PackageNeed,
    Requirement,
    Share,
    Sharing,
    VersionRange,
)
from reconciler.dependencies.solve.problem import Alternative, AlternativeSource, InstanceRequirement
from reconciler.names.ids import GroupKind


class RequirementContext(Struct, frozen=True, cache_hash=True):
    """Context of a requirement: namespace, path of aliases from the user's install, and that install.

    `install` is set only at the user's own install: overrides and bindings reach direct dependencies.
    `target` is another cluster than that of the lock, of which nothing is known.
    """

    namespace: str
    path: tuple[str, ...] = ()
    install: Install | None = None
    target: str = ""


def effective_requirement(requirement: Requirement, install: Install | None) -> Requirement:
    """Return a requirement as the user's install changes it: other ranges, or not to be installed.

    An override by package name concerns the alternatives of that package, one by alias all of them.
    """
    if install is None or (install.install_dependencies and not install.overrides):
        return requirement
    alternatives = list(requirement.alternatives)
    declined = set(() if install.install_dependencies else range(len(alternatives)))
    location = requirement.location
    for override in install.overrides:
        for place, need in enumerate(alternatives):
            package = need.id.name if isinstance(need, PackageNeed) else ""
            if override.name not in (requirement.alias, requirement.alias_of(place), package):
                continue
            if override.range is not None and isinstance(need, PackageNeed):
                alternatives[place] = override.applied_to(need)
                location = override.location
            if override.install is not None:
                (declined.discard if override.install else declined.add)(place)
    is_installed = requirement.install and len(declined) < len(alternatives)
    return replace(
        requirement,
        alternatives=tuple(alternatives),
        install=is_installed,
        declined=tuple(sorted(declined)) if is_installed else (),
        location=location,
    )


def with_rendered_labels(
    requirement: Requirement, parent: Instance, scope: RequirementContext
) -> Requirement:
    """Return a requirement with its labels as the installation of its parent has them."""
    if not requirement.share.labels:
        return requirement
    name = scope.install.name if scope.install else bundle_name(parent.package.name, parent.slot)
    labels = rendered_labels(requirement.share, name, scope.namespace)
    return replace(requirement, share=replace(requirement.share, labels=tuple(sorted(labels.items()))))


def is_visible(
    there: Install | ObservedInstallation, package: PackageId, share: Share, scope: RequirementContext
) -> bool:
    """Tell whether an installation can satisfy a requirement for its package, by namespace and labels.

    Porter looks in the current namespace and among what has none; the others in the current one.
    """
    if package.ecosystem is Ecosystem.XPKG:
        return True
    if package.ecosystem is not Ecosystem.BUNDLE:
        return there.namespace == scope.namespace and there.target == scope.target
    if share.scope is Sharing.EXCLUSIVE and not share.labels:
        return False
    labels, required = dict(there.labels), dict(share.labels)
    required |= {SHARING_GROUP: share.group} if share.group else {}
    return there.namespace in ("", scope.namespace) and all(labels.get(k) == v for k, v in required.items())


def new_slots(
    package: PackageId, candidates: tuple[Candidate, ...], requirement: Requirement, scope: RequirementContext
) -> Iterator[tuple[Slot, frozenset[int]]]:
    """Yield the slots of a possible new instance, with the candidates that fit there."""
    everything = all_places(candidates)
    match package.ecosystem:
        case Ecosystem.XPKG:
            yield Slot(SlotKind.CLUSTER), everything
        case Ecosystem.BUNDLE:
            share = requirement.share
            if share.scope is Sharing.EXCLUSIVE:
                slot = Slot(SlotKind.FOR, scope.namespace, (*scope.path, requirement.alias))
            else:
                words = [f"{name}={value}" for name, value in (*share.labels, *share.inputs)]
                namespace = "" if share.scope in (Sharing.GLOBAL, Sharing.DIALECT) else scope.namespace
                groups = [share.group] if share.group else []
                slot = Slot(SlotKind.SHARED, namespace, (*groups, *words))
            yield slot, everything
        case _:
            # A kubeconfig is known in its namespace alone.
            once = frozenset[int]() if scope.target else cluster_singletons(candidates)
            if once:
                yield Slot(SlotKind.CLUSTER), once
            if everything - once or not everything:
                slot = Slot(SlotKind.NAMESPACE, scope.namespace, target_path(scope.target))
                yield slot, everything - once


def slot_places(instance: Instance, candidates: tuple[Candidate, ...]) -> frozenset[int]:
    """Return the candidates that may be installed anew in the slot of an instance."""
    if instance.package.ecosystem in (Ecosystem.XPKG, Ecosystem.BUNDLE) or instance.slot.target:
        return all_places(candidates)
    once = cluster_singletons(candidates)
    return once if instance.slot.kind is SlotKind.CLUSTER else all_places(candidates) - once


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


class CandidateLookup(Struct):
    """Cached look-ups in the inputs of one cluster.

    `observed` are the installations of the snapshot that the lock did not generate, `generated_pins` the
    locked instances that no manifest of a user's installs, or installed.
    """

    inputs: ClusterInputs
    installs: dict[PackageId, list[Install]] = field(default_factory=dict)
    providers: dict[Gvk | str, list[PackageId]] = field(default_factory=dict)
    holders: dict[str, PackageId] = field(default_factory=dict)
    observed: tuple[ObservedInstallation, ...] = ()
    generated_pins: tuple[Instance, ...] = ()
    present: frozenset[PackageId] = frozenset()
    """The packages that the cluster, its lock or a manifest has already."""
    _generated: "InstanceIndex | None" = None
    _allowed: dict[tuple[Instance, VersionRange], frozenset[int]] = field(default_factory=dict)
    _by_slot: dict[Instance, Install] = field(default_factory=dict)
    _instances: dict[int, Instance] = field(default_factory=dict)
    _own_kinds: frozenset[GroupKind] | None = None
    _owners: dict[GroupKind, PackageId] = field(default_factory=dict)
    _pinned_packages: frozenset[PackageId] = frozenset()
    _served_kinds: frozenset[GroupKind] = frozenset()
    _pins: dict[Instance, Candidate] = field(default_factory=dict)

    def __post_init__(self) -> None:
        inputs = self.inputs
        self.holders = dict(inputs.held)
        self._pins = {pin.instance: pin.candidate for pin in inputs.pins}
        self._owners = dict(inputs.presence.owners)
        self._pinned_packages = frozenset(pin.instance.package for pin in inputs.pins)
        self._served_kinds = frozenset(gvk.group_kind for gvk in inputs.presence.apis)
        for install in inputs.installs:
            instance = inputs.instance_of(install)
            self._instances[id(install)] = instance
            self.installs.setdefault(instance.package, []).append(install)
            if not install.external:
                self._by_slot.setdefault(instance, install)
        if inputs.choices.discovery:
            for id_ in inputs.catalogue.packages:
                candidates = inputs.catalogue.everywhere(id_)
                for provided in {gvk for c in candidates for gvk in c.provides}:
                    self.providers.setdefault(provided, []).append(id_)
                for interface in {i.id for c in candidates for i in c.interfaces}:
                    self.providers.setdefault(interface, []).append(id_)
        self.generated_pins = tuple(
            pin.instance
            for pin in inputs.pins
            if pin.instance.slot.kind is not SlotKind.INSTALL and self.install_at(pin.instance) is None
        )
        observed = {self.find(item.id) for item in inputs.presence.installations}
        self.present = self._pinned_packages.union(self.installs, observed)
        generated = grouped((instance.package, instance) for instance in self.generated_pins)
        # By their packages' own names, not by those of mirrors.
        named = (replace(item, id=self.find(item.id)) for item in inputs.presence.installations)
        self.observed = tuple(
            item
            for item in named
            if not any(_is_object_of(item, instance) for instance in generated.get(item.id, ()))
        )

    def find(self, id_: PackageId) -> PackageId:
        """Return the package that a name means."""
        return self.inputs.catalogue.find(id_)

    def candidates(self, instance: Instance) -> tuple[Candidate, ...]:
        """Return the candidates of an instance; a locked one stays even if it is not published any more."""
        published = self.inputs.published(instance)
        pinned = self._pins.get(instance)
        if pinned is None or any(c.version.text == pinned.version.text for c in published):
            return published
        return (*published, replace(pinned, unavailable=True))

    def locked(self, instance: Instance) -> int | None:
        """Return the place of the locked candidate, if the instance is locked and stays where it is."""
        names = {instance.package.name, str(instance)}
        return self.pinned(instance) if names.isdisjoint(self.inputs.choices.upgrade) else None

    def pinned(self, instance: Instance) -> int | None:
        """Return the place of the locked candidate, also where the instance may move."""
        pinned = self._pins.get(instance)
        if pinned is None:
            return None
        texts = [candidate.version.text for candidate in self.candidates(instance)]
        return texts.index(pinned.version.text)

    def allowed(self, instance: Instance, range_: VersionRange) -> frozenset[int]:
        """Return the places of the candidates that a range admits."""
        if instance not in self._pins:
            namespace = self.inputs.namespace_of(instance)
            return self.inputs.catalogue.places(instance.package, range_, namespace)
        key = (instance, range_)
        if key not in self._allowed:
            self._allowed[key] = self.places(instance, lambda c: range_.allows(c.version, c.digest))
        return self._allowed[key]

    def places(self, instance: Instance, keep: Callable[[Candidate], bool]) -> frozenset[int]:
        """Return the places of the candidates that pass a test."""
        return frozenset(p for p, candidate in enumerate(self.candidates(instance)) if keep(candidate))

    def is_served(self, gvk: Gvk) -> bool:
        """Tell whether the cluster serves an API; without a version, in any version."""
        return gvk in self.inputs.presence.apis or (not gvk.version and gvk.group_kind in self._served_kinds)

    def generated(self) -> "InstanceIndex":
        """Return the generated pins by what they can satisfy."""
        if self._generated is None:
            self._generated = InstanceIndex(self.generated_pins, self)
        return self._generated

    def is_ours(self, gvk: Gvk) -> bool:
        """Tell whether the cluster serves an API because of a package of the lock or of a user's install.

        It goes with that package, so that the package is needed, and not only the API.
        """
        owner = self._owners.get(gvk.group_kind)
        if owner is not None:
            return owner in self.installs or owner in self._pinned_packages
        if self._own_kinds is None:
            self._own_kinds = frozenset(
                provided.group_kind
                for candidate in self._installed_candidates()
                for provided in candidate.provides
            )
        return gvk.group_kind in self._own_kinds

    def _installed_candidates(self) -> Iterator[Candidate]:
        """Yield the candidates that the lock and the users' installs may have put into the cluster."""
        for package, installs in self.installs.items():
            for candidate in self.inputs.catalogue.everywhere(package):
                if any(
                    not (i.external or i.target) and i.need.range.allows(candidate.version) for i in installs
                ):
                    yield candidate
        for pin in (pin for pin in self.inputs.pins if not pin.instance.slot.target):
            published = self.inputs.published(pin.instance)
            yield from (c for c in published if c.version.text == pin.version)

    def foreign(self, instance: Instance) -> ObservedInstallation | None:
        """Return an installation that is not ours in the slot of this instance."""
        if instance.slot.kind is not SlotKind.CLUSTER or self._pins.get(instance):
            return None
        if self.install_at(instance) is not None:
            return None
        return next((i for i in self.observed if i.id == instance.package and not i.target), None)

    def instance_of(self, install: Install) -> Instance:
        """Return the instance of one of the installs."""
        return self._instances[id(install)]

    def install_at(self, instance: Instance) -> Install | None:
        """Return the user's install in this slot."""
        return self._by_slot.get(instance)

    def site_of(self, instance: Instance, parent: RequirementContext) -> RequirementContext:
        """Return the context in which the requirements of an instance are read."""
        install = self.install_at(instance)
        if install is not None:
            return RequirementContext(install.namespace, (install.name,), install, install.target)
        match instance.slot.kind:
            case SlotKind.FOR:
                return RequirementContext(instance.slot.namespace, instance.slot.path)
            case SlotKind.CLUSTER:
                return RequirementContext(self.inputs.choices.shared_namespace, (instance.package.name,))
            case _:
                shared = (*instance.slot.path, instance.package.name)
                target = instance.slot.target
                return RequirementContext(instance.slot.namespace or parent.namespace, shared, target=target)


class InstanceIndex:
    """Instances by what they can satisfy, so that each need is compared with few of them."""

    def __init__(self, instances: Iterable[Instance], lookup: CandidateLookup) -> None:
        self._lookup = lookup
        self._instances: dict[PackageId | GroupKind | str, list[Instance]] = {}
        for instance in instances:
            candidates = lookup.candidates(instance)
            kinds = {provided.group_kind for candidate in candidates for provided in candidate.provides}
            interfaces = {interface.id for candidate in candidates for interface in candidate.interfaces}
            keys: set[PackageId | GroupKind | str] = {instance.package, *kinds, *interfaces}
            for key in keys:
                self._instances.setdefault(key, []).append(instance)

    def of(self, need: Need) -> Sequence[Instance]:
        """Return the instances that may satisfy a need in some version, in their order."""
        match need:
            case PackageNeed():
                return self._instances.get(self._lookup.find(need.id), ())
            case ApiNeed():
                return self._instances.get(need.gvk.group_kind, ())
            case InterfaceNeed():
                return self._instances.get(need.id, ())


def any_version(package: PackageId) -> VersionRange:
    """Return the range that admits every version of a package, pre-releases too."""
    return VersionRange(package.ecosystem.dialect, "", ())


def _is_object_of(installation: ObservedInstallation, instance: Instance) -> bool:
    """Tell whether an observed installation is the object that was generated for an instance."""
    package, slot = instance.package, instance.slot
    if installation.id != package or package.ecosystem is Ecosystem.XPKG:
        return installation.id == package
    if slot.kind is not SlotKind.CLUSTER and installation.namespace != slot.namespace:
        return False
    is_bundle = package.ecosystem is Ecosystem.BUNDLE
    return installation.name == (bundle_name if is_bundle else carvel_name)(package.name, slot)


class _NeedContext(NamedTuple):
    """One alternative of a requirement, read at one place."""

    requirement: Requirement
    number: int
    site: RequirementContext
    lookup: CandidateLookup

    @property
    def may_install(self) -> bool:
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
            alternative = _to_install(context, install, None, via=AlternativeSource.BINDING)
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
    context: _NeedContext,
    install: Install,
    range_: VersionRange | None,
    *,
    via: AlternativeSource | None = None,
) -> Alternative:
    there = _installed(install, context)
    if install.external:
        return there
    instance, lookup = context.lookup.instance_of(install), context.lookup
    places = lookup.allowed(instance, range_) if range_ else all_places(lookup.candidates(instance))
    return Alternative(via or there.via, context.number, instance, places)


def _narrow(
    context: _NeedContext, alternative: Alternative, keep: Callable[[Candidate], bool]
) -> Alternative:
    if alternative.instance is None:
        return alternative
    places = context.lookup.places(alternative.instance, keep)
    return replace(alternative, allowed=alternative.allowed & places)


def _package(context: _NeedContext, need: PackageNeed) -> Iterator[Alternative]:
    package, scope, share = context.lookup.find(need.id), context.site, context.requirement.share
    installs = context.lookup.installs.get(package, ())
    visible = [install for install in installs if is_visible(install, package, share, scope)]
    for install in sorted(visible, key=lambda i: (i.namespace != scope.namespace, i.namespace, i.name)):
        yield _to_install(context, install, need.range)
    if visible:
        return
    yield from _other_namespaces(context, need, package)
    for installation in _nearest_first(context):
        version, is_same = installation.version, installation.id == package
        fits = version is not None and is_same and need.range.allows(version, installation.digest)
        if fits and is_visible(installation, package, share, scope):
            yield _installed(installation, context)
    if context.may_install:
        yield from _create(context, package, need.range, AlternativeSource.CANDIDATE)


def _other_namespaces(context: _NeedContext, need: PackageNeed, package: PackageId) -> Iterator[Alternative]:
    """Yield installs of other namespaces if their package is limited to one per cluster."""
    if package.ecosystem in (Ecosystem.XPKG, Ecosystem.BUNDLE):
        return
    for install in context.lookup.installs.get(package, ()):
        is_elsewhere = install.namespace != context.site.namespace and install.target == context.site.target
        if is_elsewhere and not install.external:
            instance = context.lookup.instance_of(install)
            if once := cluster_singletons(context.lookup.candidates(instance)):
                places = once & context.lookup.allowed(instance, need.range)
                yield Alternative(AlternativeSource.GLOBAL, context.number, instance, places)


def _create(
    context: _NeedContext, package: PackageId, range_: VersionRange, via: AlternativeSource
) -> Iterator[Alternative]:
    """Yield the slots that a new instance may take, the one with the highest version first."""
    lookup, scope = context.lookup, context.site
    if len(scope.path) > lookup.inputs.choices.depth:
        return
    nearest = lookup.inputs.catalogue.candidates(package, scope.namespace)
    alternatives = []
    for slot, places in new_slots(package, nearest, context.requirement, scope):
        instance = Instance(*package, slot)
        published = lookup.inputs.published(instance)
        if published is not nearest:
            places = slot_places(instance, published)  # noqa: PLW2901 - the shared namespace has others
        # A locked version that is not published any more comes behind those that are.
        fitting = places | all_places(lookup.candidates(instance)) - all_places(published)
        allowed = fitting & lookup.allowed(instance, range_)
        alternatives.append(Alternative(via, context.number, instance, allowed))
    yield from sorted(alternatives, key=lambda alternative: -max(alternative.allowed, default=-1))


def _api(context: _NeedContext, need: ApiNeed) -> Iterator[Alternative]:
    lookup = context.lookup
    is_there = not context.site.target and lookup.is_served(need.gvk) and not lookup.is_ours(need.gvk)
    if is_there and _provider_is_observed(need, lookup):
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
        alternative = _to_install(context, install, None)
        narrowed = _narrow(context, alternative, lambda c: _offers(c.interfaces, need))
        if narrowed.allowed or (narrowed.instance is None and _offers(install.interfaces, need)):
            yield narrowed
    for installation in _nearest_first(context):
        if installation.namespace in here and _offers(installation.interfaces, need):
            yield _installed(installation, context)
    if context.may_install:
        yield from _implementations(context, need)


def _nearest_first(context: _NeedContext) -> list[ObservedInstallation]:
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
            yield _narrow(context, alternative, lambda c: _offers(c.interfaces, need))


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
    is_plain = all(isinstance(need, PackageNeed) for need in requirement.alternatives)
    if requirement.may_install_all and is_plain:
        return
    install = lookup.install_at(demand.parent) if demand.parent else None
    if install is not None and requirement.alias in dict(install.bindings):
        return
    for number, need in enumerate(requirement.alternatives):
        if not isinstance(need, PackageNeed) or not requirement.may_install(number):
            yield number, need


def _creating(demand: InstanceRequirement, number: int) -> Iterator[Alternative]:
    return (
        way
        for way in demand.alternatives
        if way.alternative == number and way.instance is not None and way.via is not AlternativeSource.PLANNED
    )


def _matching_places(
    need: Need, demand: InstanceRequirement, instance: Instance, lookup: CandidateLookup
) -> frozenset[int] | None:
    """Return the candidates of an instance that satisfy a need, or None if it does not apply."""
    if demand.parent is not None and demand.parent.slot.target != instance.slot.target:
        return None
    match need:
        case PackageNeed():
            spaces = (demand.parent.slot.namespace, "") if demand.parent is not None else ()
            is_match = instance.slot.namespace in spaces and lookup.find(need.id) == instance.package
            return lookup.allowed(instance, need.range) if is_match else None
        case ApiNeed():
            return lookup.places(instance, lambda c: _provides(need, c, lookup)) or None
        case InterfaceNeed():
            if instance.slot.kind is SlotKind.FOR:
                return None
            return lookup.places(instance, lambda c: _offers(c.interfaces, need)) or None


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


def _offers(interfaces: tuple[Interface, ...], need: InterfaceNeed) -> bool:
    return any(interface.meets(need) for interface in interfaces)


def _has_shape(interfaces: tuple[Interface, ...], needs: list[InterfaceNeed]) -> bool:
    """Tell whether a bound installation has the required shape; its version is the user's choice."""
    return any(interface.has_shape(need) for interface in interfaces for need in needs)


def _installed(there: Install | ObservedInstallation, context: _NeedContext) -> Alternative:
    """Return the alternative that an installation is, near if it shares the namespace."""
    is_near = there.namespace == context.site.namespace
    source = AlternativeSource.INSTALLED if is_near else AlternativeSource.GLOBAL
    return Alternative(source, context.number, target=f"installed:{qualified(there.namespace, there.name)}")


def qualified(namespace: str, name: str) -> str:
    """Return the name of an installation with its namespace, if it has one."""
    return f"{namespace}/{name}" if namespace else name
