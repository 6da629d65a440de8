"""Inputs of the resolution of one cluster, and the names, labels and parameters of bundles in it."""

import hashlib
import re
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import orjson
from msgspec import Struct
from msgspec.structs import replace

from reconciler.base.lazy import regex
from reconciler.base.values import PartlyCompared, grouped, reachable
from reconciler.dependencies.model.instances import (
    Instance,
    LockedRevision,
    Resolved,
    Slot,
    SlotKind,
    target_path,
)
from reconciler.dependencies.model.packages import (
    ActivationRequest,
    Candidate,
    Ecosystem,
    Gvk,
    Install,
    Interface,
    PackageId,
    PackageNeed,
    Pairs,
    Platform,
    Requirement,
    Share,
    VersionRange,
)
from reconciler.dependencies.versions import Version, VersionPolicy
from reconciler.inventory.snapshot import StoredKind
from reconciler.names.ids import GroupKind
from reconciler.names.problems import Problem


class ObservedInstallation(Struct, frozen=True):
    """An installation in the snapshot that no manifest of ours declares."""

    namespace: str
    name: str
    id: PackageId
    version: Version | None = None
    digest: str = ""
    labels: Pairs = ()
    interfaces: tuple[Interface, ...] = ()
    target: str = ""


class ClusterState(Struct, frozen=True):
    """Observed state of a cluster: contents that our manifests do not install.

    `owners` names the package that brought a CRD, if known. A platform that is missing from `platforms` is
    unknown, so its ranges are not checked. `closed` are the namespaces without the global Carvel packages.
    `stored` are the kinds that packages bring, with the versions in which objects are stored.
    """

    apis: frozenset[Gvk] = frozenset()
    owners: tuple[tuple[GroupKind, PackageId], ...] = ()
    platforms: tuple[tuple[Platform, Version], ...] = ()
    installations: tuple[ObservedInstallation, ...] = ()
    closed: tuple[str, ...] = ()
    stored: tuple[StoredKind, ...] = ()


class RefusedVersion(NamedTuple):
    """A version of a package that is no candidate because of a problem; empty if the version is unknown."""

    version: str
    problem: Problem


@dataclass(frozen=True, slots=True)
class Catalogue:
    """Every candidate of every package, lowest version first. Order-free: built from any order.

    `refused` are the versions that are no candidates because of a problem, by the package's name. `local`
    are the candidates of a package in a namespace that has other ones than the rest of the cluster.
    """

    packages: Mapping[PackageId, tuple[Candidate, ...]] = field(default_factory=dict)
    names: Mapping[PackageId, PackageId] = field(default_factory=dict)
    refused: Mapping[str, tuple[RefusedVersion, ...]] = field(default_factory=dict)
    local: Mapping[tuple[PackageId, str], tuple[Candidate, ...]] = field(default_factory=dict)
    signatures: dict[int, tuple[Requirement, str]] = field(
        init=False, default_factory=dict, compare=False, repr=False
    )
    """Requirements as texts, by `id`; each is held, so that no other one gets its `id`."""
    demands: dict[Hashable, tuple[Any, frozenset[PackageId]]] = field(
        init=False, default_factory=dict, compare=False, repr=False
    )
    """Demands of versions that no package of a cluster meets, as the solver has them, with their packages."""
    _makers: dict[GroupKind, list[Candidate]] = field(
        init=False, default_factory=dict, compare=False, repr=False
    )
    # Clusters share a catalogue, and ask for the same ranges of it.
    _places: dict[tuple[PackageId, str, VersionRange], frozenset[int]] = field(
        init=False, default_factory=dict, compare=False, repr=False
    )

    _sets: dict[frozenset[int], frozenset[int]] = field(
        init=False, default_factory=dict, compare=False, repr=False
    )

    def find(self, id_: PackageId) -> PackageId:
        """Return the package that a name means: itself, or the one that lists it among its names."""
        return id_ if id_ in self.packages else self.names.get(id_, id_)

    def reach(self, id_: PackageId) -> frozenset[PackageId]:
        """Return the packages that some version of a package may need by name, itself included."""

        def needed(package: PackageId) -> Iterator[PackageId]:
            requires = (need for item in self.everywhere(package) for need in item.requires)
            needs = (need for item in requires for need in (*item.alternatives, item.default))
            return (self.find(need.id) for need in needs if isinstance(need, PackageNeed))

        return frozenset(reachable([self.find(id_)], needed))

    def namesakes(self, id_: PackageId) -> tuple[PackageId, ...]:
        """Return the other packages with the short name of a package, sorted."""
        short = id_.name.rpartition("/")[2]
        return tuple(
            other
            for other, versions in self.packages.items()
            if other.ecosystem is id_.ecosystem and other != id_
            if other.name.rpartition("/")[2] == short or any(short in c.names for c in versions)
        )

    def refusal(self, id_: PackageId, version: str) -> Problem | None:
        """Return why a version is no candidate although it has a manifest; None if it has none."""
        refused = self.refused.get(id_.name, ())
        plain = version.removeprefix("v")
        exact = (item.problem for item in refused if item.version.removeprefix("v") == plain)
        unknown = (item.problem for item in refused if not item.version)
        return next(chain(exact, unknown), None)

    def makers(self, kind: GroupKind) -> Sequence[Candidate]:
        """Return the versions of packages that bring a kind."""
        if not self._makers:
            for candidate in (c for id_ in self.packages for c in self.everywhere(id_)):
                for made in {api.group_kind for api in candidate.provides if api.version}:
                    self._makers.setdefault(made, []).append(candidate)
        return self._makers.get(kind, ())

    def candidates(self, id_: PackageId, namespace: str = "") -> tuple[Candidate, ...]:
        """Return the candidates of a package in a namespace, lowest first; none for an unknown one."""
        common = self.packages.get(id_, ())
        return self.local.get((id_, namespace), common) if self.local else common

    def everywhere(self, id_: PackageId) -> tuple[Candidate, ...]:
        """Return the candidates of a package, and those of single namespaces behind them."""
        local = (versions for (package, _), versions in sorted(self.local.items()) if package == id_)
        return tuple(dict.fromkeys(chain(self.candidates(id_), *local)))

    def places(self, id_: PackageId, range_: VersionRange, namespace: str = "") -> frozenset[int]:
        """Return the places of the candidates that a range admits."""
        key = (id_, namespace if self.local else "", range_)
        if key not in self._places:
            places = frozenset(
                place
                for place, candidate in enumerate(self.candidates(id_, namespace))
                if range_.allows(candidate.version, candidate.digest)
            )
            # Ranges of many packages admit the same few sets of places.
            self._places[key] = self._sets.setdefault(places, places)
        return self._places[key]


def build_catalogue(
    candidates: Iterable[Candidate],
    refused: Mapping[str, tuple[RefusedVersion, ...]] = MappingProxyType({}),
    excluded: Mapping[str, frozenset[Candidate]] = MappingProxyType({}),
) -> Catalogue:
    """Sort candidates into a catalogue; of two with one version the greater (source, digest) is dropped.

    A further name that several packages have means none of them. `excluded` are the candidates that a
    namespace does not have; of its own version and a common one it has its own.

    Source: kapp-controller, pkg/apiserver/registry/datapackaging: a namespace's own package comes first.
    """
    listed = list(candidates)
    catalogue = _sorted_catalogue([c for c in listed if not c.namespace], refused)
    spaces = {c.namespace for c in listed if c.namespace} | excluded.keys()
    local: dict[tuple[PackageId, str], tuple[Candidate, ...]] = {}
    for space in spaces:
        here = [c for c in listed if c.namespace == space]
        lost = excluded.get(space, frozenset())
        concerned = {c.id for c in (*here, *lost)}
        taken = {(c.id, c.version.text) for c in here}
        common = [c for c in listed if not c.namespace and c.id in concerned and c not in lost]
        rest = [c for c in common if (c.id, c.version.text) not in taken]
        view = _sorted_catalogue([*here, *rest], {}).packages
        local |= {(id_, space): view.get(id_, ()) for id_ in concerned}
    packages = {id_: () for id_, _ in local} | dict(catalogue.packages)
    return Catalogue(dict(sorted(packages.items())), catalogue.names, refused, local) if local else catalogue


def _sorted_catalogue(
    candidates: Iterable[Candidate], refused: Mapping[str, tuple[RefusedVersion, ...]]
) -> Catalogue:
    chosen: dict[tuple[PackageId, str], Candidate] = {}
    for candidate in candidates:
        key = (candidate.id, candidate.version.text)
        held = chosen.get(key)
        if held is None or (candidate.source, candidate.digest) < (held.source, held.digest):
            chosen[key] = candidate
    by_package = grouped((candidate.id, candidate) for candidate in chosen.values())
    ordered = {
        id_: tuple(sorted(versions, key=lambda c: (c.version.height, c.version.text)))
        for id_, versions in sorted(by_package.items())
    }
    claimed: dict[PackageId, set[PackageId]] = {}
    for id_, versions in ordered.items():
        for name in {name for candidate in versions for name in candidate.names}:
            claimed.setdefault(PackageId(id_.ecosystem, name), set()).add(id_)
            if id_.ecosystem is Ecosystem.KPT:
                claimed.setdefault(PackageId(Ecosystem.CARVEL, name), set()).add(id_)
    names = {name: next(iter(owners)) for name, owners in claimed.items() if len(owners) == 1}
    for id_, kind in _needed_kinds(ordered, names):
        ordered[id_] = tuple(c if c.kind else replace(c, kind=kind) for c in ordered[id_])
    return Catalogue(ordered, names, refused)


def _needed_kinds(
    packages: Mapping[PackageId, tuple[Candidate, ...]], names: Mapping[PackageId, PackageId]
) -> list[tuple[PackageId, str]]:
    """Return the kinds of packages without a manifest of their own, as the needs of others have them.

    Source: Crossplane takes the kind of what it creates from the dependency, `provider:` or apiVersion, kind.
    """
    requirements = (r for versions in packages.values() for candidate in versions for r in candidate.requires)
    needs = (need for r in requirements for need in r.alternatives if isinstance(need, PackageNeed))
    kinds = {(names.get(need.id, need.id), need.kind) for need in needs if need.kind}
    return sorted((id_, kind) for id_, kind in kinds if id_ in packages)


class ResolverSettings(PartlyCompared, frozen=True):
    """Settings of the resolution of one cluster.

    `defaults` maps an interface to the packages that implement it here, best first.
    `reconsider` lifts the lock of or-choices, `upgrade` that of the named packages. `explain_steps` bounds
    the explanation of a conflict and changes no solution, so it is no part of the input digest.
    """

    UNCOMPARED = frozenset({"explain_steps"})

    allow_downgrade: bool = False
    discovery: bool = False
    reconsider: bool = False
    upgrade: frozenset[str] = frozenset()
    forbid_cycles: frozenset[Ecosystem] = frozenset({Ecosystem.XPKG, Ecosystem.BUNDLE})
    policies: tuple[tuple[Ecosystem, VersionPolicy], ...] = ()
    defaults: tuple[tuple[str, PackageId], ...] = ()
    shared_namespace: str = ""
    depth: int = 10
    budget: int = 200_000
    explain_steps: int = 2000


class ClusterInputs(Struct, frozen=True):
    """All inputs of the resolution of one cluster.

    `pins` are the packages that keep their versions, `locked` those that keep their alternatives.
    `held` names the package that owns a CRD or composition in the lock; it keeps it until its owner
    consents. `activations` are requested activations of revisions. `observed` are the revisions in the
    snapshot: they matter only to the first lock, so the input digest leaves them out.
    """

    installs: tuple[Install, ...]
    catalogue: Catalogue
    presence: ClusterState = ClusterState()
    pins: tuple[Resolved, ...] = ()
    locked: tuple[Resolved, ...] = ()
    held: tuple[tuple[str, PackageId], ...] = ()
    activations: tuple[ActivationRequest, ...] = ()
    observed: tuple[LockedRevision, ...] = ()
    choices: ResolverSettings = ResolverSettings()
    cluster: str = ""

    def install_of(self, instance: Instance) -> Install | None:
        """Return the user's install in this slot, if there is one."""
        return self.installs_by_instance().get(instance)

    def installs_by_instance(self) -> dict[Instance, Install]:
        """Return the users' installs by their slots; of several in one slot the first."""
        by_instance: dict[Instance, Install] = {}
        for install in self.installs:
            if not install.external:
                by_instance.setdefault(self.instance_of(install), install)
        return by_instance

    def may_take_over(self, package: PackageId, install: Install | None) -> frozenset[str]:
        """Return the packages from which a package takes over what they own.

        Where a manifest installs it, those that this names, else those that manifests name which may need
        it: so one manifest consents for everything that its package needs, and for nothing else.
        """
        if install is not None:
            return frozenset(install.revisions.take_over)
        consenting = (install for install in self.installs if install.revisions.take_over)
        leading = (install for install in consenting if package in self.catalogue.reach(install.need.id))
        return frozenset(name for install in leading for name in install.revisions.take_over)

    def published(self, instance: Instance) -> tuple[Candidate, ...]:
        """Return the candidates that the namespace of an instance has."""
        return self.catalogue.candidates(instance.package, self.namespace_of(instance))

    def namespace_of(self, instance: Instance) -> str:
        """Return the namespace of an instance; what a cluster has once is in the shared one."""
        return instance.slot.namespace or self.choices.shared_namespace

    def instance_of(self, install: Install) -> Instance:
        """Return the instance of a user's install; what is locked for it has its name in the lock."""
        id_ = install.need.id
        package = id_ if install.requested else self.catalogue.find(id_)
        return Instance(*package, install_slot(install))


def install_slot(install: Install) -> Slot:
    """Return the slot of a user's install: the cluster for Crossplane, its own name for the others."""
    if install.need.id.ecosystem is Ecosystem.XPKG:
        return Slot(SlotKind.CLUSTER)
    return Slot(SlotKind.INSTALL, install.namespace, (install.name, *target_path(install.target)))


_TEMPLATE = regex(r"\$\{\s*([^{}]*?)\s*\}|\{\{\s*([^{}]*?)\s*\}\}")


class UnknownVariableError(Exception):
    """A value is known only when the bundle runs: an output of a dependency, for example."""


def written_values(values: Mapping[str, Any]) -> Pairs:
    """Return parameter values as a sorted tuple of names and canonical JSON."""
    written = {
        name: orjson.dumps(value, option=orjson.OPT_SORT_KEYS, default=str).decode()
        for name, value in values.items()
    }
    return tuple(sorted(written.items()))


def template_variables(
    candidate: Candidate | None, install: Install | None, name: str = "", namespace: str = ""
) -> dict[str, Any]:
    """Return the variables of templates in what a bundle gives its dependencies, with their values.

    The parameters are those of a user's installation; without a value, they have their default.
    """
    variables: dict[str, Any] = {"installation.name": name, "installation.namespace": namespace}
    if install is not None and candidate is not None:
        defaults = {parameter: orjson.loads(text) for parameter, text in candidate.defaults}
        own_values = (item for item in given_parameters(install).items() if "#" not in item[0])
        values = defaults | dict(own_values)
        variables |= {f"bundle.parameters.{parameter}": value for parameter, value in values.items()}
    return variables


def dependency_parameters(install: Install, alias: str) -> dict[str, Any]:
    """Return the parameters that an installation gives one of its dependencies, as `alias#name`."""
    split = ((word.partition("#"), value) for word, value in given_parameters(install).items())
    return {name: value for (owner, mark, name), value in split if mark and owner == alias}


def render_parameter(text: str, variables: Mapping[str, Any]) -> Any:
    """Return the value of a parameter with its templates replaced.

    Raises:
        UnknownVariableError: A template has another variable.
    """
    return _rendered(orjson.loads(text), variables)


def render_text(text: str, variables: Mapping[str, Any]) -> Any:
    """Return a text with its templates replaced; a template alone has any value.

    Raises:
        UnknownVariableError: A template has another variable.
    """
    whole = _TEMPLATE.fullmatch(text)
    if whole:
        return _variable(whole, variables)
    return _TEMPLATE.sub(lambda template: str(_variable(template, variables)), text)


def given_parameters(install: Install) -> dict[str, Any]:
    """Return the parameters of an installation: its own, and those of its dependencies as `alias#name`."""
    return dict(orjson.loads(dict(install.inherit).get("parameters", "{}")))


def _rendered(value: Any, variables: Mapping[str, Any]) -> Any:
    if isinstance(value, dict):
        return {name: _rendered(item, variables) for name, item in value.items()}
    if isinstance(value, list):
        return [_rendered(item, variables) for item in value]
    return render_text(value, variables) if isinstance(value, str) else value


def _variable(template: re.Match[str], variables: Mapping[str, Any]) -> Any:
    name = template[1] if template[1] is not None else template[2]
    if name not in variables:
        raise UnknownVariableError(name)
    return variables[name]


SHARING_GROUP: Final = "sh.porter.SharingGroup"
"""The label with the group that shares an installation."""

_SUFFIX = 6
_INPUTS = "inputs="


def bundle_name(package: str, slot: Slot) -> str:
    """Return the name of a bundle's installation: `<parent>-<alias>` for one parent's own.

    A shared installation is named after its group and its bundle, so that the name does not depend on the
    parents; a short digest distinguishes labels and inputs.
    """
    if slot.kind is SlotKind.FOR:
        return "-".join(slot.path)
    group, words = sharing_labels(slot)
    inputs = slot.path[-1:] if slot.path and slot.path[-1].startswith(_INPUTS) else ()
    parts = [group, package.rpartition("/")[2]]
    if words or inputs:
        text = orjson.dumps([sorted(words.items()), *inputs])
        parts.append(hashlib.sha256(text).hexdigest()[:_SUFFIX])
    return "-".join(part for part in parts if part)


def carvel_name(package: str, slot: Slot) -> str:
    """Return the name of a generated PackageInstall: its package, and the kubeconfig of another cluster."""
    return "-".join([package, *slot.target.split("/")[1:]])


def sharing_labels(slot: Slot) -> tuple[str, dict[str, str]]:
    """Return the sharing group and the labels that a shared instance is found by."""
    if slot.kind is not SlotKind.SHARED:
        return "", {}
    path = slot.path
    group = path[0] if path and "=" not in path[0] else ""
    words = [word.partition("=") for word in path[bool(group) :] if not word.startswith(_INPUTS)]
    return group, {name: value for name, _, value in sorted(words)}


def rendered_labels(share: Share, name: str, namespace: str) -> dict[str, str]:
    """Return the labels of a sharing rule for the installation of the bundle that has it."""
    variables = {"installation.name": name, "installation.namespace": namespace}
    labels = dict(share.labels)
    for label, text in share.labels:
        with suppress(UnknownVariableError):
            labels[label] = str(render_text(text, variables))
    return labels
