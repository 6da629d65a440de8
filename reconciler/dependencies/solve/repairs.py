"""List the changes of manifests, settings and packages that could remove a cause of a conflict."""

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from msgspec.structs import replace

from reconciler.base.errors import Location
from reconciler.dependencies.dialects import DOWNGRADABLE, IGNORED_PLATFORMS
from reconciler.dependencies.model.cluster import ClusterInputs, ClusterState, Instance
from reconciler.dependencies.model.packages import (
    ApiNeed,
    Candidate,
    Dialect,
    Ecosystem,
    Install,
    InterfaceNeed,
    Need,
    Override,
    PackageId,
    PackageNeed,
    Platform,
    Requirement,
    VersionRange,
)
from reconciler.dependencies.solve.edits import (
    Edit,
    exact_need,
    version_in,
    widened,
    with_adopted,
    with_all,
    with_candidate,
    with_choices,
    with_declared,
    with_default,
    with_install,
    without_install,
)
from reconciler.dependencies.solve.lookup import any_version
from reconciler.dependencies.solve.problem import (
    Cause,
    CauseKind,
    InstanceRequirement,
    ResolutionProblem,
)
from reconciler.dependencies.versions import VersionPolicy
from reconciler.dependencies.versions.lint import probe_versions

Versions = Mapping[Instance, Candidate]


class Fix(NamedTuple):
    """A change that a person can make, in words, and its effect on the inputs."""

    text: str
    edit: Edit


class Repair(NamedTuple):
    """A change to try. `settle` tells what to write once a solution with `loosen` shows the versions."""

    rank: int
    loosen: Edit
    settle: Callable[[Versions], Fix | None]


_NEAR_NAME, _MANIFEST, _SETTING, _COMMAND, _PACKAGE, _ELSEWHERE, _LAST = range(7)
"""Ranks of repairs: corrections of names first, then manifests, settings, other packages, what is risky."""


class Repairs:
    """Lists the changes that could remove a cause."""

    def __init__(
        self, inputs: ClusterInputs, problem: ResolutionProblem, kinds: frozenset[CauseKind]
    ) -> None:
        self.inputs = inputs
        self.problem = problem
        self.requirements = {demand.cause: demand for demand in problem.requirements()}
        self.installs = {str(install): install for install in inputs.installs}
        self.kinds = kinds

    def of(self, cause: Cause) -> Iterator[Repair]:
        """Yield the changes that could remove a cause."""
        demand = self.requirements.get(cause)
        if cause.kind is CauseKind.REQUESTED:
            yield from self._install(self.installs[cause.subject])
        elif demand is not None:
            yield from self._requirement(demand, demand.parent)
        else:
            yield from self._rule(cause)

    # A user's install

    def _install(self, install: Install) -> Iterator[Repair]:
        instance = self.inputs.instance_of(install)
        yield from self._other_name(install.need, lambda need: with_install(install, need=need))
        if self.inputs.catalogue.candidates(instance.package):
            yield from self._range_of_install(install, instance)
        else:
            yield from self._publish(install.need)
        if self.kinds & _CONTESTED:
            text = f"Remove {install} ({install.location})"
            yield _plain(_LAST, text, lambda inputs: without_install(inputs, install))

    def _range_of_install(self, install: Install, instance: Instance) -> Iterator[Repair]:
        if not install.need.range.text:
            return
        loose = replace(install.need, range=any_version(instance.package))

        def settle(versions: Versions) -> Fix | None:
            chosen = versions.get(instance)
            if chosen is None:
                return None
            new = exact_need(install, chosen)
            where = install.need.location if install.need.location.path else install.location
            text = f"{_write(install.need, new, chosen, where)}, so that {install} takes {chosen}"
            return Fix(text, with_install(install, need=new)) if new.range != install.need.range else None

        yield Repair(_MANIFEST, with_install(install, need=loose), settle)

    # A requirement of a package

    def _requirement(self, demand: InstanceRequirement, parent: Instance | None) -> Iterator[Repair]:
        if parent is None:
            return
        install = self.inputs.install_of(parent)
        bound = dict(install.bindings).get(demand.requirement.alias) if install else None
        if install is not None and bound is not None:
            yield from self._binding(install, demand.requirement, bound)
            return
        yield from self._installation(install, demand)
        for number, need in enumerate(demand.requirement.alternatives):
            match need:
                case PackageNeed():
                    yield from self._package_need(install, demand, parent, number, need)
                case ApiNeed():
                    yield from self._api(demand, parent, number, need)
                case InterfaceNeed():
                    yield from self._interface(need)
        if CauseKind.CYCLE in self.kinds:
            yield from self._removal(demand, parent)

    def _package_need(
        self,
        install: Install | None,
        demand: InstanceRequirement,
        parent: Instance,
        number: int,
        need: PackageNeed,
    ) -> Iterator[Repair]:
        change = _RequirementChange(self, demand.cause, parent, number)
        yield from self._other_name(need, change.edit)
        package = self.inputs.catalogue.find(need.id)
        if not self.inputs.catalogue.candidates(package):
            yield from self._publish(need)
            return
        if not need.range.text:
            return
        loose = replace(need, range=any_version(package))
        targets = {w.instance for w in demand.alternatives if w.alternative == number and w.instance}
        overrides = _overrides(install, demand.requirement, need)
        if install is not None and install.dialect is Dialect.CARVEL:
            yield _override_repair(install, need, targets, overrides)
        if overrides is None:
            yield Repair(
                _PACKAGE, change.edit(loose), lambda versions: change.settle(versions, need, targets)
            )

    def _other_name(self, need: PackageNeed, edit: Callable[[PackageNeed], Edit]) -> Iterator[Repair]:
        """Yield the use of another package of a similar name, where none has the name."""
        catalogue = self.inputs.catalogue
        if catalogue.candidates(catalogue.find(need.id)):
            return
        for id_ in catalogue.packages:
            if id_.ecosystem in _COMPATIBLE[need.id.ecosystem] and _is_near(id_.name, need.id.name):
                text = f"Write `{id_.name}` instead of `{need.id.name}`{_at(need.location)}"
                yield _plain(_NEAR_NAME, text, edit(replace(need, id=id_)))

    def _publish(self, need: PackageNeed) -> Iterator[Repair]:
        """Yield a new version in the index, or the correction of one that was refused."""
        refused = [each.problem for each in self.inputs.catalogue.refused.get(need.id.name, ())]
        if refused:
            hint = f": {refused[0].hint}" if refused[0].hint else ""
            text = f"Correct {refused[0].location} ({refused[0].message}){hint}"
        else:
            text = _publication(need)
        version = version_in(need.range)
        if version is not None:
            candidate = Candidate(need.id, version)
            yield _plain(_COMMAND if refused else _ELSEWHERE, text, with_candidate(candidate))

    def _installation(self, install: Install | None, demand: InstanceRequirement) -> Iterator[Repair]:
        """Yield permission to install a dependency that the user declined."""
        requirement = demand.requirement
        if requirement.install or install is None:
            return
        names = {
            requirement.alias,
            *(n.id.name for n in requirement.alternatives if isinstance(n, PackageNeed)),
        }
        if not install.install_dependencies:
            text = f"Write `install: true` below spec.dependencies of {install} ({install.location})"
            yield _plain(_MANIFEST, text, with_install(install, install_dependencies=True))
        for override in install.overrides:
            if override.install is False and override.name in names:
                text = f"Write `install: true` in the override of {override.name}{_at(override.location)}"
                others = tuple(replace(o, install=True) if o == override else o for o in install.overrides)
                yield _plain(_MANIFEST, text, with_install(install, overrides=others))

    def _binding(self, install: Install, requirement: Requirement, bound: str) -> Iterator[Repair]:
        names = {_qualified(i.namespace, i.name) for i in self.inputs.presence.installations}
        names |= {_qualified(i.namespace, i.name) for i in self.inputs.installs if i != install}
        for name in sorted(names - {bound}):
            bindings = tuple((a, name if a == requirement.alias else b) for a, b in install.bindings)
            text = (
                f"Write `{requirement.alias}: {name}` instead of `{requirement.alias}: {bound}` in {install}"
            )
            edit = with_install(install, bindings=bindings)
            rank = _NEAR_NAME if _similarity(name, bound) else _MANIFEST
            yield _plain(rank, f"{text} ({install.location})", edit)
        unbound = with_install(
            install, bindings=tuple(b for b in install.bindings if b != (requirement.alias, bound))
        )
        text = f"Remove the binding `{requirement.alias}: {bound}` from {install} ({install.location})"
        yield _plain(_LAST, text, unbound)

    def _api(
        self, demand: InstanceRequirement, parent: Instance, number: int, need: ApiNeed
    ) -> Iterator[Repair]:
        catalogue, presence = self.inputs.catalogue, self.inputs.presence
        candidates = [c for versions in catalogue.packages.values() for c in versions]
        apis = presence.apis | {gvk for c in candidates for gvk in c.provides}
        kin = (gvk for gvk in apis if gvk.group_kind == need.gvk.group_kind and gvk.version)
        for gvk in sorted(kin, reverse=True):
            if gvk != need.gvk:
                change = _RequirementChange(self, demand.cause, parent, number)
                old, new = (f"{g.group}/{g.version}" for g in (need.gvk, gvk))
                text = f"Write `{new}` instead of `{old}`{_at(need.location)}"
                yield _plain(_PACKAGE, text, change.edit(replace(need, gvk=gvk)))
        makers = [c for c in candidates if need.gvk in c.provides and not c.withdrawn]
        if makers and demand.requirement.install:
            text = "Write `discovery: index` below `dependencies` in reconciler.yaml"
            yield _plain(_SETTING, text, with_choices(discovery=True))
        for maker in {c.id: c for c in makers}.values():
            text = f"Install {maker.id.name} with a manifest of its own: it brings {need.gvk}"
            yield _plain(_MANIFEST, text, with_declared(maker, parent))
        if presence == ClusterState():
            served = replace(presence, apis=frozenset({need.gvk}))
            yield _plain(_COMMAND, NO_SNAPSHOT, lambda inputs: replace(inputs, presence=served))

    def _interface(self, need: InterfaceNeed) -> Iterator[Repair]:
        for id_, versions in self.inputs.catalogue.packages.items():
            if any(interface.id == need.id for c in versions for interface in c.interfaces):
                # A layer that is nearer than the fleet's has the default then, and would hide another one.
                layer = " --cluster CLUSTER" if need.id in dict(self.inputs.choices.defaults) else ""
                text = f"Run `reconciler index set-default {need.id} {id_}{layer}`"
                yield _plain(_COMMAND, text, with_default(need.id, id_))

    def _removal(self, demand: InstanceRequirement, parent: Instance) -> Iterator[Repair]:
        cause = demand.cause
        text = f"Publish a version of {parent.package.name} that does not require {demand.requirement}"
        change = _RequirementChange(self, cause, parent, 0)
        yield _plain(_PACKAGE, f"{text}{_at(demand.requirement.location)}", change.drop())

    # The other rules

    def _rule(self, cause: Cause) -> Iterator[Repair]:
        match cause.kind:
            case CauseKind.PLATFORM:
                yield from self._platform(cause)
            case CauseKind.WITHDRAWN:
                yield from self._withdrawn(cause)
            case CauseKind.DOWNGRADE:
                yield from self._downgrade(cause)
            case CauseKind.POLICY:
                yield from self._policy(cause)
            case CauseKind.FOREIGN:
                yield from self._foreign(cause)
            case CauseKind.HELD:
                yield from self._held(cause)
            case _:
                return

    def _concerned(self, cause: Cause) -> Iterator[tuple[Instance, Candidate]]:
        for instance, node in self.problem.nodes.items():
            for place, causes in node.banned.items():
                if cause in causes:
                    yield instance, node.candidates[place]

    def _platform(self, cause: Cause) -> Iterator[Repair]:
        instance, candidate = next(self._concerned(cause))
        need = next(need for need in candidate.platforms if str(need) == cause.detail)
        platform, current = need.platform, dict(self.inputs.presence.platforms)[need.platform]
        others = tuple(pair for pair in self.inputs.presence.platforms if pair[0] != platform)
        install = self.inputs.install_of(instance)
        where = "" if install is None else f" of {install} ({install.location})"
        if need.range.constraint is not None and any(
            need.range.allows(probe) and probe.core > current.core
            for probe in probe_versions(need.range.constraint)
        ):
            text = f"Upgrade {platform} of this cluster from {current} to {need.range}"
        else:
            text = f"Install {candidate.id.name} in a cluster with {platform} {need.range}, not {current}"
        yield _plain(_ELSEWHERE, text, lambda i: replace(i, presence=replace(i.presence, platforms=others)))
        annotation = IGNORED_PLATFORMS.get(platform)
        if install is not None:
            edit = with_install(install, ignore_platforms=install.ignore_platforms | {platform})
            if install.dialect is Dialect.CARVEL and annotation:
                text = f'Write `{annotation}: ""` into the annotations{where}'
                yield _plain(_LAST, f"{text}, if it works there all the same", edit)
            elif install.dialect is Dialect.CROSSPLANE and platform is Platform.CROSSPLANE:
                text = f"Write `ignoreCrossplaneConstraints: true` into the spec{where}"
                yield _plain(_LAST, f"{text}, if it works there all the same", edit)

    def _withdrawn(self, cause: Cause) -> Iterator[Repair]:
        _, candidate = next(self._concerned(cause))
        text = f"Take back the withdrawal of {candidate}{_at(candidate.location)}"
        yield _plain(_ELSEWHERE, text, with_candidate(replace(candidate, withdrawn="")))

    def _downgrade(self, cause: Cause) -> Iterator[Repair]:
        instance, _ = next(self._concerned(cause))
        install = self.inputs.install_of(instance)
        if install is not None and install.dialect is Dialect.CARVEL:
            text = f'Write `{DOWNGRADABLE}: ""` into the annotations of {install} ({install.location})'
            yield _plain(_MANIFEST, text, with_install(install, allow_downgrade=True))
        name = instance.package.name
        upgraded = self.inputs.choices.upgrade | {name}
        yield _plain(_COMMAND, f"Run `reconciler lock --upgrade {name}`", with_choices(upgrade=upgraded))
        text = "Write `allowDowngrade: true` below `dependencies` in reconciler.yaml"
        yield _plain(_SETTING, text, with_choices(allow_downgrade=True))

    def _policy(self, cause: Cause) -> Iterator[Repair]:
        instance, _ = next(self._concerned(cause))
        install = self.inputs.install_of(instance)
        if install is not None and install.policy is not VersionPolicy.HIGHEST:
            text = f"Name a version in {install} ({install.location}), or drop its version strategy"
            yield _plain(_MANIFEST, text, with_install(install, policy=VersionPolicy.HIGHEST))
            return
        ecosystem = instance.package.ecosystem
        field = _SELECT[ecosystem]
        text = f"Write `{field}: highest` below `dependencies.select` in reconciler.yaml"
        others = tuple(pair for pair in self.inputs.choices.policies if pair[0] != ecosystem)
        yield _plain(_SETTING, text, with_choices(policies=others))

    def _foreign(self, cause: Cause) -> Iterator[Repair]:
        instance, candidate = next(self._concerned(cause))
        there = [i for i in self.inputs.presence.installations if i.id == instance.package]
        text = (
            f"Declare {cause.detail.strip('/')} of {candidate.id.name} in a manifest, so that it is adopted"
        )
        rest = tuple(i for i in self.inputs.presence.installations if i not in there)
        yield _plain(_MANIFEST, text, with_adopted(there, rest))

    def _held(self, cause: Cause) -> Iterator[Repair]:
        instance, _ = next(self._concerned(cause))
        holder = cause.detail.rpartition(" of ")[2]
        taker = self.inputs.install_of(instance)
        holders = [i for i in self.inputs.installs if i.need.id.name == holder]
        if taker is None:
            return
        if not holders and self._owner(cause).ecosystem is not Ecosystem.XPKG:
            text = "Run `reconciler lock --prune`, which removes packages that nothing needs"
            yield _plain(_COMMAND, text, lambda inputs: replace(inputs, held=()))
            return
        policy = replace(taker.revisions, take_over=tuple(sorted({*taker.revisions.take_over, holder})))
        text = (
            f"Write `reconciler.dev/take-over: {holder}` into the annotations of {taker} ({taker.location})"
        )
        removals = "".join(f", and remove {install} ({install.location})" for install in holders)

        def edit(inputs: ClusterInputs) -> ClusterInputs:
            taken = with_install(taker, revisions=policy)(inputs)
            return replace(taken, installs=tuple(i for i in taken.installs if i not in holders))

        yield _plain(_MANIFEST, f"{text}{removals}", edit)

    def _owner(self, cause: Cause) -> PackageId:
        """Return the package that has what another one brings."""
        return dict(self.inputs.held)[cause.detail.rpartition(" of ")[0]]


_CONTESTED = frozenset({CauseKind.OWNER, CauseKind.HELD, CauseKind.ONCE})

_COMPATIBLE = {
    Ecosystem.XPKG: frozenset({Ecosystem.XPKG}),
    Ecosystem.CARVEL: frozenset({Ecosystem.CARVEL, Ecosystem.KPT}),
    Ecosystem.BUNDLE: frozenset({Ecosystem.BUNDLE}),
    Ecosystem.KPT: frozenset({Ecosystem.KPT}),
}

_SELECT = {
    Ecosystem.XPKG: "crossplane",
    Ecosystem.CARVEL: "carvel",
    Ecosystem.BUNDLE: "porter",
    Ecosystem.KPT: "kpt",
}

NO_SNAPSHOT = (
    "Import the snapshot of cluster CLUSTER, if it serves this API: "
    "`reconciler snapshot import --cluster CLUSTER --api-resources FILE`"
)
"""Names no cluster, because a result can be shared between clusters; see `name_cluster`."""


def name_cluster(hint: str, cluster: str) -> str:
    """Return a hint with the name of the cluster that it is for."""
    text = hint.replace(NO_SNAPSHOT, NO_SNAPSHOT.replace("CLUSTER", cluster))
    return text.replace("--cluster CLUSTER`", f"--cluster {cluster}`")


class _RequirementChange(NamedTuple):
    """A change of one need of a requirement, in every version of the package that has it."""

    repairs: Repairs
    cause: Cause
    parent: Instance
    number: int

    def candidates(self) -> Iterator[tuple[Candidate, Requirement]]:
        """Yield the published versions with the requirement, highest first."""
        node = self.repairs.problem.nodes[self.parent]
        for candidate, group in reversed(list(zip(node.candidates, node.requirements, strict=True))):
            for written, demand in zip(candidate.requires, group, strict=False):
                if demand.cause == self.cause:
                    yield candidate, written

    def edit(self, need: Need) -> Edit:
        """Return the edit that changes the need in every version."""
        changed = [self._changed(candidate, written, need) for candidate, written in self.candidates()]
        return with_all(map(with_candidate, changed))

    def drop(self) -> Edit:
        """Return the edit that drops the requirement from every version."""
        return with_all(
            with_candidate(replace(c, requires=tuple(r for r in c.requires if r != written)))
            for c, written in self.candidates()
        )

    def _changed(self, candidate: Candidate, written: Requirement, need: Need) -> Candidate:
        needs = list(written.alternatives)
        needs[self.number] = need
        changed = replace(written, alternatives=tuple(needs))
        requires = tuple(changed if r == written else r for r in candidate.requires)
        return replace(candidate, requires=requires)

    def settle(self, versions: Versions, need: PackageNeed, targets: set[Instance]) -> Fix | None:
        """Return the range to write in the version of the parent that the solution has."""
        parent, chosen = versions.get(self.parent), _chosen(versions, targets)
        if parent is None or chosen is None:
            return None
        for candidate, written in self.candidates():
            own = written.alternatives[self.number]
            wider = widened(need, chosen) if isinstance(own, PackageNeed) else None
            if candidate.version != parent.version or wider is None or not isinstance(own, PackageNeed):
                continue
            edit = with_candidate(self._changed(candidate, written, wider))
            where = own.location if own.location.path else written.location
            text = f"{_write(own, wider, chosen, where)}, so that {candidate} accepts {chosen}"
            if candidate.id.ecosystem is Ecosystem.KPT:
                text = f"Publish a revision of {candidate.id.name} that requires {wider}{_at(where)}"
            return Fix(text, edit)
        return None


def _publication(need: PackageNeed) -> str:
    """Return how a package gets a version in a range: with its manifest where nothing else tells its kind."""
    name, which = need.id.name, f", in a version that is {need.range}" if need.range.text else ""
    match need.id.ecosystem:
        case Ecosystem.KPT:
            return f"Publish {name} as a package with a package.yaml{which}"
        case Ecosystem.XPKG:
            command = f"{name} VERSION --manifest crossplane.yaml"
        case _:
            command = f"{need.id} VERSION"
    return f"Add {name} to the index: `reconciler index add {command}`{which}"


def _overrides(install: Install | None, requirement: Requirement, need: PackageNeed) -> Override | None:
    """Return the user's override of the range of a dependency, if there is one."""
    names = (requirement.alias, need.id.name)
    own = install.overrides if install is not None else ()
    return next((o for o in own if o.name in names and o.range is not None), None)


def _override_repair(
    install: Install, need: PackageNeed, targets: set[Instance], override: Override | None
) -> Repair:
    """Return the change of the user's override of a dependency's range, or a new one."""

    def overridden(range_: VersionRange) -> Edit:
        if override is None:
            return with_install(install, overrides=(*install.overrides, Override(need.id.name, range_)))
        changed = tuple(replace(o, range=range_) if o == override else o for o in install.overrides)
        return with_install(install, overrides=changed)

    def settle(versions: Versions) -> Fix | None:
        chosen = _chosen(versions, targets)
        wider = widened(need, chosen) if chosen is not None else None
        if chosen is None or wider is None:
            return None
        if override is not None:
            text = f"Write `{wider.range}` instead of `{need.range}` in the override{_at(override.location)}"
        else:
            item = f'{{refName: {need.id.name}, versionSelection: {{constraints: "{wider.range}"}}}}'
            text = f"Write `override: [{item}]` below spec.dependencies of {install} ({install.location})"
        return Fix(f"{text}, so that it accepts {chosen}", overridden(wider.range))

    return Repair(_SETTING if override is None else _MANIFEST, overridden(any_version(need.id)), settle)


def _chosen(versions: Versions, targets: set[Instance]) -> Candidate | None:
    return next((versions[target] for target in sorted(targets) if target in versions), None)


def _plain(rank: int, text: str, edit: Edit) -> Repair:
    """Return a change that depends on no version."""
    return Repair(rank, edit, lambda _: Fix(text, edit))


def _write(old: PackageNeed, new: PackageNeed, chosen: Candidate, where: Location) -> str:
    """Return what to write instead of a range, and where."""
    before, after = (need.range.text.removeprefix("=") for need in (old, new))
    if old.range.dialect is Dialect.KPT and chosen.id.ecosystem is Ecosystem.KPT and chosen.source:
        return f"Name revision {chosen.source} of {chosen.id.name}{_at(where)}"
    return f"Write `{after}` instead of `{before}`{_at(where)}"


def _at(location: Location) -> str:
    return f" at {location}" if location.path else ""


def _is_near(name: str, other: str) -> bool:
    tails = name.rpartition("/")[2], other.rpartition("/")[2]
    return tails[0] == tails[1] or name.partition(".")[0] == other.partition(".")[0]


def _similarity(name: str, other: str) -> bool:
    """Tell whether two names of installations differ in few letters."""
    first, second = name.rpartition("/")[2], other.rpartition("/")[2]
    return first[:2] == second[:2] or first[-2:] == second[-2:]


def _qualified(namespace: str, name: str) -> str:
    return f"{namespace}/{name}" if namespace else name
