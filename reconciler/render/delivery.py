"""Generate the manifests of packages that others need and no user declares, and bring them into a package."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import orjson
from msgspec import Struct, field
from msgspec.structs import replace

from reconciler.api.kptfile import KPTFILE
from reconciler.base.defects import DefectError, guard
from reconciler.base.errors import Location
from reconciler.base.lazy import regex
from reconciler.base.reasons import Reason
from reconciler.base.text import verb
from reconciler.base.values import Refused
from reconciler.dependencies.dialects.porter import BINDINGS
from reconciler.dependencies.dialects.reading import OWNER, annotation_or_custom, parse_source
from reconciler.dependencies.lock.format import (
    CARVEL_API_VERSION,
    CARVEL_KIND,
    PORTER_KIND,
    PORTER_SCHEMA,
    ClusterLock,
)
from reconciler.dependencies.model.cluster import (
    SHARING_GROUP,
    Catalogue,
    ClusterInputs,
    UnknownVariableError,
    bundle_name,
    carvel_name,
    dependency_parameters,
    render_parameter,
    rendered_labels,
    sharing_labels,
    template_variables,
)
from reconciler.dependencies.model.instances import Instance, LockedRevision, Resolved, SlotKind
from reconciler.dependencies.model.packages import Candidate, Ecosystem, InputKind, Install, Values, dns_label
from reconciler.dependencies.solve.build_problem import without_duplicates
from reconciler.dependencies.versions import parse_relaxed
from reconciler.expand.variants import variant_key
from reconciler.inventory.inventory import Inventory
from reconciler.krm.yaml import MANIFEST_LIMITS, YamlError, emit, load_documents
from reconciler.names.ids import ObjectKey, Oid
from reconciler.names.objects import File, Files, tree_id
from reconciler.names.problems import Problem, defect_problem
from reconciler.names.trailers import NO_ANSWERS
from reconciler.render.answers import DraftContext, classify_delivery
from reconciler.render.kptfile import stamp_kptfile
from reconciler.render.merging import Contents
from reconciler.render.package import input_time, recorded_package, unreadable_package
from reconciler.render.rendered import (
    Blocked,
    Package,
    RenderedDeliveries,
    RenderedDelivery,
    RenderedVariant,
    find_bad_names,
    find_excess,
)
from reconciler.render.update import Conflict
from reconciler.resolve.deliveries import Deliveries, Delivery, delivery_digest, delivery_trees, pin_delivery
from reconciler.resolve.ownership import location_text, owner_text
from reconciler.resolve.resolution import ResolvedVariant

INHERITED_SETTINGS = {
    "Configuration": ("packagePullSecrets", "packagePullPolicy", "serviceAccount"),
    "Provider": ("packagePullSecrets", "packagePullPolicy", "serviceAccount"),
    "Function": ("packagePullSecrets", "packagePullPolicy", "serviceAccount"),
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

    @property
    def path(self) -> str:
        """The file of its generated manifest, below the directory of its cluster."""
        return "/".join(filter(None, (f"{self.kind.lower()}s", self.namespace, f"{self.name}.yaml")))


class GeneratedPackage(Struct, frozen=True):
    """One package to be installed because others need it.

    `parents` are the objects that need it, lowest first; `owner` is the parent that it was created for,
    while that parent needs it. `settings` are inherited from the parents, `labels` are those by which the
    parent selects it, `values` are the Secrets that parents name for it. `location` is the manifest of the
    nearest user's install. It `is_complete` if every parent could be read, so that no setting is missing.
    """

    package: Resolved
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

    packages: Mapping[Instance, Resolved]
    installs: Mapping[Instance, Install]
    catalogue: Catalogue
    shared_namespace: str = "default"
    _sorted_parents: dict[Instance, list[Resolved]] = field(default_factory=dict)

    def generated(self) -> tuple[tuple[GeneratedPackage, ...], tuple[Problem, ...]]:
        """Return the packages to generate, sorted by object, and conflicts between parents. Order-free.

        Packages of package repositories are not among them: variants install these.
        """
        packages: list[GeneratedPackage] = []
        warnings: list[Problem] = []
        for package in self.packages.values():
            if package.by_user or package.instance.ecosystem == Ecosystem.KPT:
                continue
            settings, differing = self._settings(package)
            values, others = self._values(package)
            parameters, more, is_known = self._parameters(package)
            above = list(self._above(package))
            made_for = self.packages.get(package.owner) if package.owner else None
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
            packages.append(generated)
            warnings += [*differing, *others, *more]
        packages.sort(key=lambda package: (package.ref, str(package.package.instance)))
        return tuple(packages), tuple(warnings)

    def ref_of(self, package: Resolved) -> ObjectRef:
        """Return the object that a locked package has in the cluster, the user's own or a generated one."""
        instance = package.instance
        slot = instance.slot
        if package.by_user:
            return ObjectRef(package.kind, slot.namespace, package.name)
        match instance.ecosystem:
            case Ecosystem.XPKG:
                return ObjectRef(package.kind, "", package.name)
            case Ecosystem.CARVEL:
                name = carvel_name(instance.name, slot)
                return ObjectRef(CARVEL_KIND, slot.namespace or self.shared_namespace, name)
            case Ecosystem.BUNDLE:
                return ObjectRef(PORTER_KIND, slot.namespace, bundle_name(instance.name, slot))
            case _:
                return ObjectRef("PackageVariant", slot.namespace, instance.name.rpartition("/")[2])

    def _parents(self, package: Resolved) -> list[Resolved]:
        """Return the parents of a package, the lowest first; each way up to the installs asks again."""
        if package.instance not in self._sorted_parents:
            parents = [self.packages[who] for who in package.requested_by if who in self.packages]
            parents.sort(key=lambda parent: (self.ref_of(parent), str(parent.instance)))
            self._sorted_parents[package.instance] = parents
        return self._sorted_parents[package.instance]

    def _settings(self, package: Resolved) -> tuple[dict[str, Any], list[Problem]]:
        """Return the inherited settings of a package; if parents differ, the first counts, with a warning."""
        installs = [install for install in self._above(package) if install]
        chosen: dict[str, Any] = {}
        differing = []
        for name in INHERITED_SETTINGS.get(self.ref_of(package).kind, ()):
            values = [(text, install) for install in installs for key, text in install.inherit if key == name]
            if values:
                text, install = values[0]
                chosen[name] = orjson.loads(text)
                if {other for other, _ in values} != {text}:
                    differing.append(self._differs(package, name, install))
        return chosen, differing

    def _above(self, package: Resolved) -> Iterator[Install | None]:
        """Yield the users' installs that need a package: the nearest first, then the lowest.

        None marks an install that is in the lock and could not be read in this run.
        """
        level, seen = [package], {package.instance}
        while level:
            following = []
            for child in level:
                for parent in self._parents(child):
                    instance = parent.instance
                    if instance in seen:
                        continue
                    seen.add(instance)
                    if parent.by_user:
                        yield self.installs.get(instance)
                    else:
                        following.append(parent)
            level = following

    def _values(self, package: Resolved) -> tuple[tuple[Values, ...], list[Problem]]:
        """Return the values that a direct parent names for a package: by alias before by name."""
        candidates: list[tuple[Install, tuple[Values, ...]]] = []
        for parent in self._parents(package):
            install = self.installs.get(parent.instance)
            if install is None:
                continue
            aliases, names = self._names(parent, package.instance)
            addressed = tuple(v for v in install.values if v.name in aliases)
            addressed = addressed or tuple(v for v in install.values if v.name in names)
            candidates += [(install, addressed)] if addressed else []
        if not candidates:
            return (), []
        first, chosen = candidates[0]
        plain = [{(v.secret, v.key) for v in addressed} for _, addressed in candidates]
        differs = any(other != plain[0] for other in plain)
        return chosen, [self._differs(package, "values", first)] if differs else []

    def _parameters(self, package: Resolved) -> tuple[dict[str, Any], list[Problem], bool]:
        """Return the parameters that parents give a bundle, with warnings, and whether all of them are known.

        The author of a parent gives them, and a user as `alias#name`, which counts more. Of several parents
        the lowest counts. Without a required one the installation could not run: it stays as it is.
        """
        chosen: dict[str, tuple[Any, Install]] = {}
        warnings: list[Problem] = []
        is_complete = True
        for parent in self._parents(package) if package.instance.ecosystem == Ecosystem.BUNDLE else ():
            install = self.installs.get(parent.instance) or next(filter(None, self._above(parent)), None)
            bundle = self._candidate(parent)
            if install is None or bundle is None:
                is_complete = False
                continue
            aliases, _ = self._names(parent, package.instance)
            values, unknown = self._given(parent, bundle, aliases)
            warnings += self._wired_credentials(package, bundle, aliases, install)
            for alias in sorted(aliases):
                values |= dependency_parameters(install, alias)
            for name in sorted(unknown - values.keys()):
                lacks = f"{self.ref_of(package)} does not get the parameter {name}"
                hint = f"Give it as the parameter ALIAS#{name} of {install}, or leave it at its default."
                message = f"{lacks}: its value is known at run time only"
                where = install.location
                warnings.append(Problem(where, Reason.UNBOUND_INPUT, message, hint, str(install)))
            for name, value in values.items():
                held, first = chosen.setdefault(name, (value, install))
                warnings += [self._differs(package, f"parameter {name}", first)] if held != value else []
        candidate = self._candidate(package)
        needed = candidate.inputs if candidate is not None else ()
        is_complete &= all(item.name in chosen for item in needed if item.kind is InputKind.PARAMETER)
        return {name: value for name, (value, _) in sorted(chosen.items())}, warnings, is_complete

    def _wired_credentials(
        self, package: Resolved, bundle: Candidate, aliases: set[str], install: Install
    ) -> Iterator[Problem]:
        """Yield a note for each optional credential that a bundle's author gives: only sets bring any.

        One that is required and missing is a problem of the lock.
        """
        candidate = self._candidate(package)
        required = candidate.inputs if candidate is not None else ()
        requires = (need for need in bundle.requires if need.alias in aliases)
        for item in (item for need in requires for item in need.gives):
            if item not in required and not install.gives_credentials:
                message = (
                    f"{self.ref_of(package)} does not get the {item}: its value is known at run time only"
                )
                hint = f"Write `credentialSets: [NAME]` at {install} with the name of a set that has it."
                where = install.location
                yield Problem(where, Reason.UNBOUND_INPUT, message, hint, str(install))

    def _given(
        self, parent: Resolved, bundle: Candidate, aliases: set[str]
    ) -> tuple[dict[str, Any], set[str]]:
        """Return the parameters that a bundle's author gives a dependency, and those with unknown values."""
        ref = self.ref_of(parent)
        variables = template_variables(bundle, self.installs.get(parent.instance), ref.name, ref.namespace)
        values: dict[str, Any] = {}
        unknown: set[str] = set()
        for requirement in bundle.requires:
            for name, text in requirement.parameters if requirement.alias in aliases else ():
                try:
                    values[name] = render_parameter(text, variables)
                except UnknownVariableError:
                    unknown.add(name)
        return values, unknown

    def renamed(self) -> Iterator[Problem]:
        """Yield a note for each Crossplane package with another name than Crossplane would give it.

        Compositions know Functions by name: where one runs the expected name, it runs another Function. A
        user's own name without such a composition is as good as any.
        """
        for package in self.packages.values():
            name, ref = dns_label(package.instance.name), self.ref_of(package)
            if package.instance.ecosystem != Ecosystem.XPKG or ref.name == name:
                continue
            parents = [(parent, self._candidate(parent)) for parent in self._parents(package)]
            running = [
                f"Composition {composition} of {parent.instance.name}"
                for parent, candidate in parents
                for composition, function in (candidate.functions if candidate is not None else ())
                if function == name
            ]
            if package.by_user and not running:
                continue
            message = f"{package.instance.name} is {ref}, not {name}, by which Crossplane would call it"
            runs = f"; {', '.join(running)} {verb(len(running), 'runs', 'run')} {name}" if running else ""
            hint = f"Give the name {name} to one of both packages by a manifest, and need no other with it."
            installs = (self.installs.get(package.instance), *self._above(package))
            where = next((install.location for install in installs if install), Location(""))
            yield Problem(where, Reason.NAME_TAKEN, f"{message}{runs}", hint, str(ref))

    def _labels(self, package: Resolved) -> dict[str, str]:
        """Return the labels by which the parent of an exclusive bundle selects it."""
        labels: dict[str, str] = {}
        for parent in self._parents(package) if package.instance.slot.kind == SlotKind.FOR else ():
            aliases, _ = self._names(parent, package.instance)
            bundle, ref = self._candidate(parent), self.ref_of(parent)
            for requirement in bundle.requires if bundle is not None else ():
                if requirement.alias in aliases:
                    labels |= rendered_labels(requirement.share, ref.name, ref.namespace)
        return labels

    def _candidate(self, package: Resolved) -> Candidate | None:
        """Return the published version of a locked package; None if it is not published any more."""
        id_ = package.instance.package
        published = self.catalogue.candidates(id_)
        return next((c for c in published if c.version.text == package.version), None)

    @staticmethod
    def _names(parent: Resolved, instance: Instance) -> tuple[set[str], set[str]]:
        edges = [edge for edge in parent.dependencies if edge.resolved == instance]
        aliases = {edge.alias for edge in edges if edge.alias}
        return aliases, {instance.name, *(edge.name for edge in edges)}

    def _differs(self, package: Resolved, name: str, install: Install) -> Problem:
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
        instance = candidate.package.instance
        package = instance.package
        whose = f"would have to be {package.name}, but that name is {rival}'s"
        message, hint = f"{candidate.ref} {whose}", f"Write a manifest for {package.name} under another name"
        hint += "; it is used instead."
        if package.ecosystem == Ecosystem.BUNDLE and candidate.parents:
            # No bundle uses an installation of another name by itself.
            parent = candidate.parents[0]
            if install is not None and install.need.id == package:
                message = f"{candidate.ref} would have to be made for {parent}, which is not bound to yours"
            hint = (
                f"Bind an installation that is there: `{BINDINGS}: {{{instance.slot.alias}: NAMESPACE/NAME}}`"
            )
            hint += f" below `custom` of {parent}; or rename the manifest that has this name."
        yield candidate, Problem(where, Reason.NAME_TAKEN, message, hint, str(candidate.ref))


CARVEL_OWNER = "kapp-controller.carvel.dev/owner"


def emit_carvel(generated: GeneratedPackage, annotations: dict[str, str]) -> dict[str, Any] | Refused:
    """Return a PackageInstall, refused where kapp-controller could never reconcile it.

    Source: the proposal of package dependencies, automatically created PackageInstalls.
    Differs: the name has no version, which would recreate the workload with every upgrade.
    """
    settings = generated.settings
    if not ("serviceAccountName" in settings or "cluster" in settings):
        return Refused("No package that requires it names a service account that could install it")
    owner = owner_of(generated, CARVEL_KIND)
    owned = {CARVEL_OWNER: f"{CARVEL_KIND}/{owner.name}"} if owner else {}
    version = generated.package.version
    selection: dict[str, Any] = {"constraints": version}
    if parse_relaxed(version).prerelease:
        selection["prereleases"] = {}
    spec: dict[str, Any] = dict(sorted(settings.items(), reverse=True))
    spec["packageRef"] = {"refName": generated.package.instance.name, "versionSelection": selection}
    if generated.values:
        spec["values"] = [
            {"secretRef": {"name": value.secret, **({"key": value.key} if value.key else {})}}
            for value in generated.values
        ]
    metadata = {
        "name": generated.ref.name,
        "namespace": generated.ref.namespace,
        "annotations": owned | annotations,
    }
    return {"apiVersion": CARVEL_API_VERSION, "kind": CARVEL_KIND, "metadata": metadata, "spec": spec}


CROSSPLANE_API_VERSION = "pkg.crossplane.io/v1"

_IMAGE = regex(r"[^/\s][^/\s.]*\.[^/\s]+/[^\s:@]+(:[\w][\w.-]*)?(@sha256:[0-9a-f]{64})?")
"""Image references that the API server accepts: a registry with a dot, a path, and a tag or a digest."""


def emit_crossplane(generated: GeneratedPackage, annotations: dict[str, str]) -> dict[str, Any] | Refused:
    """Return a Provider, Configuration or Function, refused where the API server would refuse it.

    `skipDependencyResolution` stays off: a package that skips it is not in Crossplane's own lock,
    and its parents would install it a second time.
    """
    if generated.ref.kind not in INHERITED_SETTINGS:
        name = generated.package.instance.name
        return Refused(f"It is not known whether {name} is a Provider, Configuration or Function")
    package = generated.package
    image = image_of(package.source or package.instance.name, package.version, package.digest)
    if not _IMAGE.fullmatch(image):
        return Refused(f"{image} names no registry with a domain, which Crossplane asks for")
    head = {"apiVersion": CROSSPLANE_API_VERSION, "kind": generated.ref.kind}
    metadata = {"name": generated.ref.name, "annotations": annotations}
    return {**head, "metadata": metadata, "spec": {"package": image, **generated.settings}}


def image_of(source: str, version: str, digest: str) -> str:
    """Return an image reference with tag and, where it is known, digest."""
    if digest and not digest.startswith("sha256:"):
        digest = ""
    return f"{source}:{version}{f'@{digest}' if digest else ''}"


def active_version(
    generated: GeneratedPackage, revisions: Sequence[LockedRevision]
) -> GeneratedPackage | None:
    """Return the package in the version that may run now, None if none may.

    A revision that waits, for a person to activate its parent or for another package to release a CRD, is
    not installed: the active revision stays.
    """
    current = next((r for r in revisions if r.current), None)
    if current is None or current.is_active:
        return generated
    active = next((r for r in revisions if r.is_active), None)
    if active is None:
        return None
    _, tag, digest = parse_source(active.image)
    held = {"version": tag or generated.package.version, "digest": digest or active.digest}
    return replace(generated, package=replace(generated.package, **held))


PORTER_PARENT = "sh.porter.parentInstallation"


def emit_porter(generated: GeneratedPackage, annotations: dict[str, str]) -> dict[str, Any]:
    """Return an Installation with the labels by which later requirements select it.

    Its schema has no annotations: ours are below `custom`, which is free for any use. It has exactly one
    of version and digest, so the version of a digest is there, too; and the values of parameters as text.

    Source: Porter, pkg/schema/installation.schema.json of v1.
    """
    package = generated.package
    group, labels = sharing_labels(package.instance.slot)
    labels |= {**generated.labels, **({SHARING_GROUP: group} if group else {})}
    if parent := owner_of(generated, PORTER_KIND):
        labels[PORTER_PARENT] = "/".join(part for part in (parent.namespace, parent.name) if part)
    version = package.version.removeprefix("v")
    by_digest = package.digest.startswith("sha256:")
    pin = {"digest": package.digest} if by_digest else {"version": version}
    parameters = {
        name: value if isinstance(value, str) else orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()
        for name, value in generated.settings.get("parameters", {}).items()
    }
    settings = {**generated.settings, **({"parameters": parameters} if parameters else {})}
    return {
        "schemaType": PORTER_KIND,
        "schemaVersion": PORTER_SCHEMA,
        "name": generated.ref.name,
        **({"namespace": generated.ref.namespace} if generated.ref.namespace else {}),
        **({"labels": dict(sorted(labels.items()))} if labels else {}),
        "bundle": {"repository": package.source or package.instance.name, **pin},
        **dict(sorted(settings.items())),
        "custom": {**annotations, **({VERSION: version} if by_digest else {})},
    }


VERSION = "reconciler.dev/version"
"""Annotation of a generated installation: the version that its digest has."""

NEEDED_BY = "reconciler.dev/needed-by"

_DIGITS = 16

_HEADER = regex(rb"# Generated for [^\n]*\(([0-9a-f]{16})\)\n")

_ADVICE = "Edits stay and are asked about; remove this line to make it yours"


def add_checksum_header(document: Mapping[str, Any], *, reason: str) -> bytes:
    """Return a document as a file with a header: its reason and the checksum of the rest. Deterministic.

    `reason` is one line. The checksum guards against accidents, not against forgery.
    """
    body = f"{emit(document)}\n".encode()
    return f"# Generated for {reason}. {_ADVICE} ({_digest(body)})\n".encode() + body


def is_unmodified(data: bytes) -> bool:
    """Tell whether a file is as it was generated."""
    header = _HEADER.match(data)
    return header is not None and header[1].decode() == _digest(data[header.end() :])


def has_header(data: bytes) -> bool:
    """Tell whether a file still has the header of generated files."""
    return _HEADER.match(data) is not None


def needed_by(document: Mapping[str, Any]) -> frozenset[str]:
    """Return the packages that need a generated manifest, as its annotation lists them."""
    return frozenset(name for name in annotation_or_custom(document, NEEDED_BY).split(", ") if name)


def _digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()[:_DIGITS]


_MAX_PARENTS = 3
_DIALECTS = {Ecosystem.XPKG: emit_crossplane, Ecosystem.CARVEL: emit_carvel, Ecosystem.BUNDLE: emit_porter}


class GeneratedManifests(Struct, frozen=True):
    """Generated manifests of one cluster by path, and the package that each file installs.

    Files in `retained` stay as they are: packages that stay although nothing needs them, packages with
    a parent that could not be read, and packages with a problem.
    """

    files: Mapping[str, bytes] = field(default_factory=dict)
    packages: Mapping[str, Resolved] = field(default_factory=dict)
    retained: frozenset[str] = frozenset()
    problems: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()


def generate_manifests(
    inputs: ClusterInputs, locked: ClusterLock, *, owner: str, shared_namespace: str = "default"
) -> GeneratedManifests:
    """Return the manifests of every package that is needed and that no user declares. Pure, order-free.

    A user's own manifests are never among them: where one declares the package, nothing is generated.

    Only the installs of users are looked at in `inputs`; `owner` is the value of our owner annotation.
    """
    graph = package_graph(inputs, locked, shared_namespace)
    generated, differing = graph.generated()
    warnings = (*differing, *graph.renamed())
    taken = {ObjectRef(i.kind, i.namespace, i.name): i for i in inputs.installs}
    clashes = {item.package.instance: problem for item, problem in name_collisions(generated, taken)}
    files: dict[str, bytes] = {}
    packages: dict[str, Resolved] = {}
    retained: set[str] = set()
    problems = list(clashes.values())
    for item in generated:
        instance, path = item.package.instance, item.ref.path
        running = active_version(item, locked.revisions_of(item.package))
        if instance in clashes or running is None:
            continue
        if instance in locked.resolution.unused or not item.is_complete:
            retained.add(path)
            continue
        manifest = _manifest(running, owner)
        if isinstance(manifest, Problem):
            retained.add(path)
            problems.append(manifest)
        else:
            files[path], packages[path] = manifest, running.package
    return GeneratedManifests(
        dict(sorted(files.items())),
        packages,
        frozenset(retained),
        tuple(sorted(problems)),
        tuple(sorted(set(warnings))),
    )


def package_graph(
    inputs: ClusterInputs, locked: ClusterLock, shared_namespace: str = "default"
) -> PackageGraph:
    """Return the locked packages of a cluster with their parents, and the users' installs by instance."""
    packages = {package.instance: package for package in locked.resolution.packages}
    running = {package.object: package.instance.name for package in packages.values()}
    own_installs = (i for i in without_duplicates(inputs, running)[0].installs if not i.external)
    installs = {inputs.instance_of(install): install for install in own_installs}
    return PackageGraph(packages, installs, inputs.catalogue, shared_namespace)


_FIRST = {
    "": "Add its crossplane.yaml to the folder of its version in the index, or w",
    CARVEL_KIND: "Write `serviceAccountName` into the manifest that needs it: it is handed down; or w",
}


def _manifest(package: GeneratedPackage, owner: str) -> bytes | Problem:
    needed = [str(parent) for parent in package.parents]
    more = f" and {len(needed) - _MAX_PARENTS} more" if len(needed) > _MAX_PARENTS else ""
    annotations = {NEEDED_BY: ", ".join(needed), OWNER: owner}
    document = _DIALECTS[package.package.instance.ecosystem](package, annotations)
    if isinstance(document, Refused):
        hint = f"{_FIRST.get(package.ref.kind, 'W')}rite a manifest for it yourself; it is used instead."
        return Problem(package.location, Reason.INVALID_MANIFEST, document.why, hint, str(package.ref))
    return add_checksum_header(document, reason=f"{', '.join(needed[:_MAX_PARENTS])}{more}")


def generated_versions(files: Files) -> Iterator[tuple[ObjectRef, str]]:
    """Yield the objects of a generated package that install something, and in which version. Total."""
    for file in files.values():
        for document in _values(file.data) or ():
            if isinstance(document, Mapping) and (version := installed_version(document)):
                named = document.get("metadata", document)  # an Installation has its name at the top
                kind = document.get("kind") or document.get("schemaType")
                if isinstance(named, Mapping):
                    ref = ObjectRef(str(kind), str(named.get("namespace") or ""), str(named.get("name")))
                    yield ref, version


def installed_version(document: Mapping[str, Any]) -> str:
    """Return the version that a generated manifest installs, or an empty text."""
    spec, bundle = document.get("spec"), document.get("bundle")
    if isinstance(bundle, Mapping):
        custom = document.get("custom")
        noted = custom.get(VERSION) if isinstance(custom, Mapping) else None
        return str(bundle.get("version") or noted or "")
    if not isinstance(spec, Mapping):
        return ""
    if isinstance(spec.get("package"), str):
        return parse_source(spec["package"])[1]
    reference = spec.get("packageRef")
    selection = reference.get("versionSelection") if isinstance(reference, Mapping) else None
    return str(selection.get("constraints") or "") if isinstance(selection, Mapping) else ""


_ABSENT = object()


def render_deliveries(deliveries: Deliveries, contents: Contents, inventory: Inventory) -> RenderedDeliveries:
    """Generate and render the packages of all clusters; a blocked one blocks no other.

    A cluster without generated manifests has no delivery: its package is proposed for deletion as any that
    no variant wants. Where a part of the cluster is not understood, the package stays.
    """
    items: list[RenderedDelivery] = []
    stalled: set[ObjectKey] = set(deliveries.stalled)
    problems, notes = [*deliveries.problems], [*deliveries.undelivered.values()]

    def render(delivery: Delivery) -> None:
        if delivery.resolved.settled is not None:
            items.append(_up_to_date(delivery, inventory))
            return
        generated = _generate(delivery, inventory)
        problems.extend(generated.manifests.problems)
        notes.extend(str(warning) for warning in generated.manifests.warnings)
        stays = generated.manifests.retained and delivery.is_complete and generated.resolved.local
        if generated.manifests.files or stays:
            items.append(_render(delivery, generated, contents, inventory))
        elif generated.manifests.retained or not delivery.is_complete:
            stalled.add(variant_key(delivery.owner))

    for waiting in deliveries.items:
        owner = variant_key(waiting.resolved.variant.key)
        try:
            with guard(f"manifests for cluster {waiting.cluster}"):
                render(waiting)
        except DefectError as error:
            problems.append(defect_problem(error, waiting.resolved.variant.source.location, owner))
            stalled.add(owner)
    return RenderedDeliveries(
        {item.resolved.variant.key: item for item in items},
        frozenset(stalled),
        tuple(sorted(problems)),
        tuple(notes),
        deliveries.undelivered,
    )


class _Generated(Struct, frozen=True):
    """The generated files of a delivery with its Kptfile, and its variant pinned to their tree."""

    manifests: GeneratedManifests
    files: Files
    resolved: ResolvedVariant


def _generate(delivery: Delivery, inventory: Inventory) -> _Generated:
    policy = inventory.policy
    owner = owner_text(policy.instance, delivery.owner)
    namespace = policy.dependencies.shared_namespace
    manifests = generate_manifests(delivery.inputs, delivery.lock, owner=owner, shared_namespace=namespace)
    files: Files = {KPTFILE: _kptfile(delivery)}
    files = {**files, **{name: File.of(data) for name, data in manifests.files.items()}}
    tree = tree_id(files)
    digest = delivery.digest
    if manifests.problems or manifests.warnings or manifests.retained or not digest:
        # Problems and notes are reported by every run, so the record of this digest must not spare the
        # generation of the manifests: a digest of the content is recorded instead.
        digest = delivery_digest(tree, owner, *sorted(manifests.retained), delivery.is_complete)
    return _Generated(manifests, files, pin_delivery(delivery, tree, inventory, digest))


def _up_to_date(delivery: Delivery, inventory: Inventory) -> RenderedDelivery:
    return RenderedDelivery(
        delivery.cluster, delivery.resolved, _recorded(delivery.resolved, inventory), delivery.lock.resolution
    )


def _recorded(resolved: ResolvedVariant, inventory: Inventory) -> RenderedVariant:
    key, time = resolved.variant.key, input_time(resolved, inventory)
    settled = resolved.settled or Oid("")
    return RenderedVariant(key, recorded_package(settled, inventory.records[key]), time=time)


def _render(
    delivery: Delivery, generated: _Generated, contents: Contents, inventory: Inventory
) -> RenderedDelivery:
    resolved = generated.resolved
    return RenderedDelivery(
        delivery.cluster,
        resolved,
        _render_package(delivery, generated, contents, inventory),
        delivery.lock.resolution,
        generated.manifests.packages,
        contents.get(resolved.local, {}) if resolved.local else {},
    )


def _render_package(
    delivery: Delivery, generated: _Generated, contents: Contents, inventory: Inventory
) -> RenderedVariant:
    """Return the package of one cluster: the generated files, and the changes of people.

    A person's change stays. Every value that would be generated differently is a conflict until a person
    restores it, removes the header of the generated file, or declares the package in an own manifest.
    """
    resolved = generated.resolved
    key, time = resolved.variant.key, input_time(resolved, inventory)
    if resolved.settled is not None:
        return _recorded(resolved, inventory)
    missing = [tree for tree in delivery_trees(resolved) if tree not in contents]
    if missing:
        return RenderedVariant(key, unreadable_package(missing[0], contents), time=time)
    main = contents[resolved.local] if resolved.local is not None else {}
    fresh = _package(delivery, generated, main, inventory)
    draft = resolved.draft
    if draft is None or not draft.append_only:
        return RenderedVariant(key, fresh, time=time)
    return RenderedVariant(key, fresh, _package(delivery, generated, contents[draft.tree], inventory), time)


def merge_generated(
    generated: Files, existing: Files, *, keep: frozenset[str] = frozenset(), complete: bool = True
) -> tuple[Files, tuple[Conflict, ...]]:
    """Return a package with its generated files replaced, and the conflicts. Pure, idempotent.

    Files that a person wrote or changed stay, byte for byte, and those in `keep`. A generated file is
    deleted if no package needs it any more, and changed if fewer need it, but only if `generated` is
    complete: otherwise the packages that need it may be among those that could not be read.
    """
    files: dict[str, File] = {}
    conflicts: list[Conflict] = []
    for path in sorted({*generated, *existing}):
        new, old = generated.get(path), existing.get(path)
        if new is not None and (old is None or is_unmodified(old.data)):
            files[path] = old if old and not complete and _drops_dependents(new, old) else new
        elif old is not None and (new or path in keep or not complete or not is_unmodified(old.data)):
            files[path] = old
            if path != KPTFILE and path not in keep and (new or complete):
                conflicts += _conflicts(path, new, old)
    return files, tuple(conflicts)


def _drops_dependents(new: File, old: File) -> bool:
    before, after = (
        needed_by(values[0]) if (values := _values(file.data)) else frozenset() for file in (old, new)
    )
    return not before <= after


def _conflicts(path: str, new: File | None, old: File) -> Iterator[Conflict]:
    """Yield the differences between an edited file and its generated content; none without our header."""
    if not has_header(old.data):
        return
    if new is not None:
        yield from _differences(path, new.data, old.data)
    else:
        generated = "no package needs it any more"
        yield Conflict(path, "", "", None, generated, "a person changed it", "BothChanged")


def _package(
    delivery: Delivery, generated: _Generated, existing: Files, inventory: Inventory
) -> Package | Blocked:
    resolved, draft = generated.resolved, generated.resolved.draft
    view, manifests = inventory.repositories[resolved.view], generated.manifests
    files, conflicts = merge_generated(
        generated.files, existing, keep=manifests.retained, complete=delivery.is_complete
    )
    owner = owner_text(inventory.policy.instance, resolved.variant.key)
    location = location_text(view, resolved.downstream.path)
    stamped = stamp_kptfile(files, name=None, pin=None, owner=owner, location=location)
    if isinstance(stamped, Blocked):
        return stamped
    hint = "Rename the package in its index, or the file that people added"
    if bad := find_bad_names(stamped, existing, f"What cluster {delivery.cluster} needs", hint):
        return bad
    if excess := find_excess(stamped, inventory.policy.limits):
        return excess
    context = DraftContext(
        package=resolved.downstream.path,
        commit=resolved.pin.commit.oid,
        answers=draft.answers if draft is not None else NO_ANSWERS,
        files=stamped,
        upstream=generated.files,
        choose=lambda _: None,
    )
    waiting, answers = classify_delivery(conflicts, context)
    return Package(tree_id(stamped), stamped, conflicts=waiting, answers=answers)


def _kptfile(delivery: Delivery) -> File:
    cluster = delivery.cluster
    description = f"What packages of cluster {cluster} need and nobody wrote a manifest for."
    value = {
        "apiVersion": "kpt.dev/v1",
        "kind": "Kptfile",
        "metadata": {
            "name": delivery.target.path.rpartition("/")[2],
            "annotations": {"config.kubernetes.io/local-config": "true"},
        },
        "info": {"description": description},
    }
    return File.of(f"{emit(value)}\n".encode())


def _differences(path: str, generated: bytes, edited: bytes) -> Iterator[Conflict]:
    """Yield every value of an edited file that differs from the generated one; comments do not count."""
    new, old = _values(generated), _values(edited)
    if old is None or len(old) != 1:
        yield Conflict(path, "", "", None, "generated", "a person rewrote it", "BothChanged")
        return
    for where, upstream, local in _changed_leaves((), new[0] if new else None, old[0]):
        yield Conflict(path, "", ".".join(where), None, _text(upstream), _text(local), "BothChanged")


def _changed_leaves(path: tuple[str, ...], new: Any, old: Any) -> Iterator[tuple[tuple[str, ...], Any, Any]]:
    if isinstance(new, Mapping) and isinstance(old, Mapping):
        for name in dict.fromkeys((*new, *old)):
            yield from _changed_leaves((*path, str(name)), new.get(name, _ABSENT), old.get(name, _ABSENT))
    elif new != old:
        yield path, new, old


def _text(value: Any) -> str:
    return "(none)" if value is _ABSENT else emit(value, flow=True)


def _values(data: bytes) -> list[Any] | None:
    try:
        return [document.value for document in load_documents(data, MANIFEST_LIMITS)]
    except YamlError:
        return None
