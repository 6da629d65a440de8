"""List the manifests to generate: packages that others need and no user declares."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import orjson
from msgspec import Struct, field

from reconciler.base.errors import Location
from reconciler.base.reasons import Reason
from reconciler.dependencies.lock.convert import CARVEL_KIND, PORTER_KIND, USER
from reconciler.dependencies.lock.format import LockedInstance, LockedPackage
from reconciler.dependencies.model.cluster import (
    Catalogue,
    SlotKind,
    UnknownVariableError,
    bundle_name,
    dependency_parameters,
    render_parameter,
    rendered_labels,
    template_variables,
)
from reconciler.dependencies.model.packages import Candidate, Ecosystem, Install, PackageId, Values
from reconciler.names.problems import Problem

INHERITED_SETTINGS = {
    "Configuration": ("packagePullSecrets", "packagePullPolicy", "serviceAccount"),
    "Provider": ("packagePullSecrets", "packagePullPolicy", "serviceAccount", "runtimeConfigRef"),
    "Function": ("packagePullSecrets", "packagePullPolicy", "serviceAccount", "runtimeConfigRef"),
    CARVEL_KIND: ("cluster", "serviceAccountName"),
    PORTER_KIND: ("credentialSets",),
}
"""The settings of a parent that a dependency of each kind has a field for.

Source: crossplane, packages-v2 design, dependsOn. How a parent is activated is no such setting: like what
Crossplane installs itself, a dependency has no `revisionActivationPolicy`, and is asked for when it may run.
"""


class ObjectRef(NamedTuple):
    """An object of a cluster, as manifests name it."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind or 'package'} {f'{self.namespace}/{self.name}' if self.namespace else self.name}"


class GeneratedPackage(Struct, frozen=True):
    """One package to be installed because others need it.

    `parents` are the objects that need it, lowest first; `owner` is the parent that it was created for,
    while that parent needs it. `settings` are inherited from the parents, `labels` are those by which the
    parent selects it, `values` are the Secrets that parents name for it. `location` is the manifest of the
    nearest user's install. It `is_complete` if every parent could be read, so that no setting is missing.
    """

    package: LockedPackage
    ref: ObjectRef
    parents: tuple[ObjectRef, ...]
    owner: ObjectRef | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    values: tuple[Values, ...] = ()
    location: Location = Location("")
    is_complete: bool = True


class PackageGraph(Struct, frozen=True):
    """Every locked package of a cluster and every install of a user's, by instance."""

    packages: Mapping[str, LockedPackage]
    installs: Mapping[str, Install]
    catalogue: Catalogue
    shared_namespace: str = "default"

    def generated(self) -> tuple[tuple[GeneratedPackage, ...], tuple[Problem, ...]]:
        """Return the packages to generate, sorted by object, and conflicts between parents. Order-free.

        Packages of package repositories are not among them: variants install these.
        """
        packages: list[GeneratedPackage] = []
        warnings: list[Problem] = []
        for package in self.packages.values():
            if package.owner != USER and package.instance.ecosystem != Ecosystem.KPT:
                generated, differing = self._generated(package)
                packages.append(generated)
                warnings += differing
        return tuple(
            sorted(packages, key=lambda package: (package.ref, str(package.package.instance)))
        ), tuple(warnings)

    def _generated(self, package: LockedPackage) -> tuple[GeneratedPackage, list[Problem]]:
        settings, differing = self._settings(package)
        values, others = self._values(package)
        parameters, more, is_known = self._parameters(package)
        above = list(self._above(package))
        made_for = self.packages.get(package.owner)
        generated = GeneratedPackage(
            package=package,
            ref=self.ref_of(package),
            parents=tuple(sorted(self.ref_of(parent) for parent in self._parents(package))),
            owner=self.ref_of(made_for) if made_for else None,
            settings=settings | ({"parameters": parameters} if parameters else {}),
            labels=self._labels(package),
            values=values,
            location=next((install.location for install in above if install), Location("")),
            is_complete=None not in above and is_known,
        )
        return generated, [*differing, *others, *more]

    def ref_of(self, package: LockedPackage) -> ObjectRef:
        """Return the object that a locked package has in the cluster, the user's own or a generated one."""
        instance = package.instance
        slot = instance.slot
        if package.owner == USER:
            return ObjectRef(package.kind, slot.namespace, package.name)
        match instance.ecosystem:
            case Ecosystem.XPKG:
                return ObjectRef(package.kind, "", package.name)
            case Ecosystem.CARVEL:
                return ObjectRef(CARVEL_KIND, slot.namespace or self.shared_namespace, instance.name)
            case Ecosystem.BUNDLE:
                return ObjectRef(PORTER_KIND, slot.namespace, bundle_name(instance.name, slot))
            case _:
                return ObjectRef("PackageVariant", slot.namespace, instance.name.rpartition("/")[2])

    def _parents(self, package: LockedPackage) -> list[LockedPackage]:
        parents = [self.packages[who] for who in package.requested_by if who in self.packages]
        return sorted(parents, key=lambda parent: (self.ref_of(parent), str(parent.instance)))

    def _settings(self, package: LockedPackage) -> tuple[dict[str, Any], list[Problem]]:
        """Return the inherited settings of a package; if parents differ, the first counts, with a warning."""
        installs = [install for install in self._above(package) if install]
        chosen: dict[str, Any] = {}
        differing = []
        for name in INHERITED_SETTINGS.get(self.ref_of(package).kind, ()):
            values = [(text, install) for install in installs for key, text in install.inherit if key == name]
            if values:
                text, install = values[0]
                chosen[name] = orjson.loads(text)
                differing += (
                    [self._differs(package, name, install)]
                    if {other for other, _ in values} != {text}
                    else []
                )
        return chosen, differing

    def _above(self, package: LockedPackage) -> Iterator[Install | None]:
        """Yield the users' installs that need a package: the nearest first, then the lowest.

        None marks an install that is in the lock and could not be read in this run.
        """
        level, seen = [package], {str(package.instance)}
        while level:
            following = []
            for child in level:
                for parent in self._parents(child):
                    instance = str(parent.instance)
                    if instance in seen:
                        continue
                    seen.add(instance)
                    if parent.owner == USER:
                        yield self.installs.get(instance)
                    else:
                        following.append(parent)
            level = following

    def _values(self, package: LockedPackage) -> tuple[tuple[Values, ...], list[Problem]]:
        """Return the values that a direct parent names for a package: by alias before by name."""
        candidates: list[tuple[Install, tuple[Values, ...]]] = []
        for parent in self._parents(package):
            install = self.installs.get(str(parent.instance))
            if install is None:
                continue
            aliases, names = self._names(parent, package.instance)
            own = tuple(v for v in install.values if v.name in aliases)
            own = own or tuple(v for v in install.values if v.name in names)
            candidates += [(install, own)] if own else []
        if not candidates:
            return (), []
        first, chosen = candidates[0]
        plain = [{(v.secret, v.key) for v in own} for _, own in candidates]
        differs = any(other != plain[0] for other in plain)
        return chosen, [self._differs(package, "values", first)] if differs else []

    def _parameters(self, package: LockedPackage) -> tuple[dict[str, Any], list[Problem], bool]:
        """Return the parameters that parents give a bundle, with warnings, and whether all of them are known.

        The author of a parent gives them, and a user as `alias#name`, which counts more. Of several parents
        the lowest counts. Without a required one the installation could not run: it stays as it is.
        """
        chosen: dict[str, tuple[Any, Install]] = {}
        warnings: list[Problem] = []
        is_complete = True
        for parent in self._parents(package) if package.instance.ecosystem == Ecosystem.BUNDLE else ():
            install = self.installs.get(str(parent.instance)) or next(filter(None, self._above(parent)), None)
            bundle = self._candidate(parent)
            if install is None or bundle is None:
                is_complete = False
                continue
            aliases, _ = self._names(parent, package.instance)
            values, unknown = self._given(parent, bundle, aliases)
            for alias in sorted(aliases):
                values |= dependency_parameters(install, alias)
            warnings += [self._unwritten(package, name, install) for name in sorted(unknown - values.keys())]
            for name, value in values.items():
                held, first = chosen.setdefault(name, (value, install))
                warnings += [self._differs(package, f"parameter {name}", first)] if held != value else []
        own = self._candidate(package)
        needed = {name for name in own.inputs if name.startswith("parameter ")} if own is not None else set()
        is_complete &= needed <= {f"parameter {name}" for name in chosen}
        return {name: value for name, (value, _) in sorted(chosen.items())}, warnings, is_complete

    def _given(
        self, parent: LockedPackage, bundle: Candidate, aliases: set[str]
    ) -> tuple[dict[str, Any], set[str]]:
        """Return the parameters that a bundle's author gives a dependency, and those with unknown values."""
        ref = self.ref_of(parent)
        variables = template_variables(
            bundle, self.installs.get(str(parent.instance)), ref.name, ref.namespace
        )
        values: dict[str, Any] = {}
        unknown: set[str] = set()
        for requirement in bundle.requires:
            for name, text in requirement.parameters if requirement.alias in aliases else ():
                try:
                    values[name] = render_parameter(text, variables)
                except UnknownVariableError:
                    unknown.add(name)
        return values, unknown

    def _labels(self, package: LockedPackage) -> dict[str, str]:
        """Return the labels by which the parent of an exclusive bundle selects it."""
        labels: dict[str, str] = {}
        for parent in self._parents(package) if package.instance.slot.kind == SlotKind.FOR else ():
            aliases, _ = self._names(parent, package.instance)
            bundle, ref = self._candidate(parent), self.ref_of(parent)
            for requirement in bundle.requires if bundle is not None else ():
                if requirement.alias in aliases:
                    labels |= rendered_labels(requirement.share, ref.name, ref.namespace)
        return labels

    def _candidate(self, package: LockedPackage) -> Candidate | None:
        """Return the published version of a locked package; None if it is not published any more."""
        id_ = PackageId(Ecosystem(package.instance.ecosystem), package.instance.name)
        published = self.catalogue.candidates(id_)
        return next((c for c in published if c.version.text == package.version), None)

    def _unwritten(self, package: LockedPackage, name: str, install: Install) -> Problem:
        message = (
            f"{self.ref_of(package)} does not get the parameter {name}: its value is known at run time only"
        )
        hint = f"Give it as the parameter ALIAS#{name} of {install}, or leave it at its default."
        return Problem(install.location, Reason.UNBOUND_INPUT, message, hint, str(install))

    @staticmethod
    def _names(parent: LockedPackage, instance: LockedInstance) -> tuple[set[str], set[str]]:
        edges = [edge for edge in parent.dependencies if edge.resolved == instance]
        aliases = {edge.alias for edge in edges if edge.alias}
        return aliases, {instance.name, *(edge.id.partition(":")[2] for edge in edges)}

    def _differs(self, package: LockedPackage, name: str, install: Install) -> Problem:
        message = f"{self.ref_of(package)} gets a different {name} from each parent: that of {install} counts"
        hint = "Write a manifest for the package yourself to decide."
        return Problem(install.location, Reason.INHERITED_DIFFERENTLY, message, hint, str(install))


def owner_of(generated: GeneratedPackage, kind: str) -> ObjectRef | None:
    """Return the owner of a generated object among objects of one kind: its owner, else its lowest parent."""
    candidates = (
        ref for ref in (generated.owner, *generated.parents) if ref is not None and ref.kind == kind
    )
    return next(candidates, None)


def name_collisions(
    generated: tuple[GeneratedPackage, ...], taken: Mapping[ObjectRef, Install]
) -> Iterator[tuple[GeneratedPackage, Problem]]:
    """Yield the packages that cannot be generated because another package has the name. Never renamed."""
    first: dict[ObjectRef, GeneratedPackage] = {}
    for candidate in generated:
        install, other = taken.get(candidate.ref), first.setdefault(candidate.ref, candidate)
        rival = str(install.need.id) if install else f"{other.package.instance}"
        if install is None and other is candidate:
            continue
        where = install.location if install else candidate.location
        message = (
            f"{candidate.ref} would have to be {candidate.package.instance.name}, but that name is {rival}'s"
        )
        hint = (
            f"Write a manifest for {candidate.package.instance.name} under another name; it is used instead."
        )
        yield candidate, Problem(where, Reason.NAME_TAKEN, message, hint, str(candidate.ref))
