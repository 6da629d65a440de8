"""Assign every manifest to its cluster and collect the inputs of each cluster."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from reconciler.base.errors import Location
from reconciler.base.lazy import regex
from reconciler.base.reasons import Reason
from reconciler.dependencies.catalog.index import IndexContents, collect_needs, served_apis
from reconciler.dependencies.dialects import read_manifest
from reconciler.dependencies.dialects.crossplane import PARENT, REVISIONS, read_lock
from reconciler.dependencies.dialects.reading import (
    annotations,
    is_generated_by,
    manifest_label,
    parse_source,
)
from reconciler.dependencies.model.cluster import (
    Catalogue,
    ClusterInputs,
    ClusterState,
    ObservedInstallation,
    RefusedVersion,
    ResolverSettings,
    build_catalogue,
)
from reconciler.dependencies.model.instances import (
    DesiredState,
    Instance,
    LockedRevision,
    Resolved,
    Slot,
    SlotKind,
    met_need,
)
from reconciler.dependencies.model.packages import (
    ActivationRequest,
    Candidate,
    Dialect,
    Ecosystem,
    Gvk,
    Install,
    PackageId,
    Platform,
)
from reconciler.dependencies.versions import Version, VersionError, VersionPolicy, parse_loose, parse_relaxed
from reconciler.inventory.inventory import Inventory, Source, SourcedDocument
from reconciler.inventory.snapshot import Snapshot, SnapshotObject, StoredKind
from reconciler.krm.values import mapping_at, mappings_at, value_at
from reconciler.names.ids import GroupKind, group_of
from reconciler.names.problems import Problem
from reconciler.policy import DependencyPolicy, Discovery, Policy, Selection

_CRD = ("apiextensions.k8s.io/v1", "CustomResourceDefinition")
_PACKAGE = ("data.packaging.carvel.dev/v1alpha1", "Package")
_LOCK = ("pkg.crossplane.io/v1beta1", "Lock")
EXCLUDES_GLOBAL = "kapp-controller.carvel.dev/exclude-global-packages"
CLUSTER = "reconciler.dev/cluster"
ENVIRONMENT = "reconciler.dev/environment"
_NAME = regex(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


def observe_cluster(snapshot: Snapshot, *, ours: Iterable[Install] = (), instance: str = "") -> ClusterState:
    """Return the state of a cluster: served APIs, CRD owners, platforms, installations. Order-free.

    An API counts if the snapshot lists it as served, has an object of it, or a CRD there serves it.
    Excludes installations that our manifests declare, or that this `instance` generated: desired, not
    observed, state.
    """
    served = {Gvk.of(version, kind) for version, kind in (*(snapshot.served or ()), *snapshot.objects)}
    crds = [crd.body for crd in snapshot.of_kind(*_CRD)]
    for crd in crds:
        served.update(served_apis(crd))
    installed = [
        (item, install)
        for objects in snapshot.objects.values()
        for item in objects
        if (reading := read_manifest(item.body, Source(item.location, observed=True)))
        for install in reading.installs
    ]
    packages = {(install.kind, install.name): install.need.id for _, install in installed}
    declared = {(i.kind, i.namespace, i.name) for i in ours}
    return ClusterState(
        apis=frozenset(served),
        owners=tuple(sorted(_crd_owners(crds, packages))),
        platforms=tuple(sorted(read_platforms(snapshot.versions).items())),
        closed=closed_namespaces(snapshot),
        installations=tuple(
            sorted(
                (
                    _observed(item, install)
                    for item, install in installed
                    if not (instance and is_generated_by(item.body, instance))
                    and (install.kind, install.namespace, install.name) not in declared
                ),
                key=lambda installation: (installation.id, installation.namespace, installation.name),
            )
        ),
    )


def read_platforms(versions: Mapping[str, str]) -> dict[Platform, Version]:
    """Parse the platform versions of a snapshot; unparsable versions are left out.

    Source: kapp-controller, pkg/packageinstall: its own version counts without pre-release and build.
    """
    platforms: dict[Platform, Version] = {}
    for platform in Platform:
        text = versions.get(platform, "")
        if platform is Platform.KAPP_CONTROLLER:
            text = text.partition("+")[0].partition("-")[0]
        with suppress(VersionError):
            platforms[platform] = parse_loose(text)
    return platforms


def offered_packages(snapshot: Snapshot, installs: Iterable[Install], shared: str) -> tuple[Candidate, ...]:
    """Return the Carvel packages that a cluster offers to its installs, sorted.

    These are the packages of the `shared` namespace, for all, and of those of the installs, for each its own.
    """
    seen = {shared, *(install.namespace for install in installs)}
    readings = (
        (package.namespace, read_manifest(package.body, Source(package.location, observed=True)))
        for package in snapshot.of_kind(*_PACKAGE)
        if package.namespace in seen
    )
    candidates = {
        in_namespace(candidate, namespace, shared)
        for namespace, reading in readings
        if reading
        for candidate in reading.candidates
    }
    return tuple(sorted(candidates, key=lambda c: (c.id, c.version.text, c.namespace)))


def in_namespace(candidate: Candidate, namespace: str, shared: str) -> Candidate:
    """Return a package as one of its namespace; what is in the `shared` one is for all of them."""
    return candidate if namespace in ("", shared) else replace(candidate, namespace=namespace)


def closed_namespaces(snapshot: Snapshot) -> tuple[str, ...]:
    """Return the namespaces of a cluster that do not see its global Carvel packages, sorted."""
    namespaces = snapshot.of_kind("v1", "Namespace")
    return tuple(sorted(item.name for item in namespaces if EXCLUDES_GLOBAL in item.annotations))


def _observed(there: SnapshotObject, install: Install) -> ObservedInstallation:
    """Return an installation; its status reports the version, else the manifest pins it."""
    text, reported = install.need.range.text, str(value_at(there.body, "status", "version") or "")
    version: Version | None = None
    for written, parse in ((text.lstrip("="), parse_loose), (reported, parse_relaxed)):
        with suppress(VersionError):
            version = parse(written)
    return ObservedInstallation(
        install.namespace,
        install.name,
        install.need.id,
        version,
        digest=text if text.startswith("sha256:") else "",
        labels=install.labels,
        interfaces=install.interfaces,
        target=install.target,
    )


def _with_interfaces(presence: ClusterState, catalogue: Catalogue) -> ClusterState:
    """Return the state of a cluster with the interfaces that the index knows of the installations there."""

    def described(there: ObservedInstallation) -> ObservedInstallation:
        for bundle in () if there.interfaces else catalogue.candidates(catalogue.find(there.id)):
            if bundle.version == there.version or (there.digest and bundle.digest == there.digest):
                return replace(there, interfaces=bundle.interfaces)
        return there

    return replace(presence, installations=tuple(map(described, presence.installations)))


def _crd_owners(
    crds: Iterable[Mapping[str, Any]], packages: Mapping[tuple[str, str], PackageId]
) -> Iterator[tuple[GroupKind, PackageId]]:
    """Yield which package brought a kind, where the CRD's owner references name an installed one."""
    for crd in crds:
        for reference in mappings_at(crd, "metadata", "ownerReferences"):
            owner = packages.get((str(reference.get("kind")), str(reference.get("name"))))
            if owner is not None:
                yield from ((gvk.group_kind, owner) for gvk in served_apis(crd))


def observed_revisions(snapshot: Snapshot) -> tuple[LockedRevision, ...]:
    """Return the package revisions among a snapshot's objects, lowest number first. Total; order-free.

    Names of both of Crossplane's naming schemes are kept. Where a snapshot shows two active revisions
    or one number twice, the revision with the greatest number and name counts.
    """
    objects = (snapshot_object for group in snapshot.objects.values() for snapshot_object in group)
    by_number: dict[tuple[str, int], LockedRevision] = {}
    for revision in sorted((r for r in map(_revision, objects) if r is not None), key=_order):
        by_number[revision.package, revision.revision] = revision
    last_active = {r.package: r.name for r in by_number.values() if r.is_active}
    inactive = DesiredState.INACTIVE
    return tuple(
        r if last_active.get(r.package) == r.name else replace(r, desired_state=inactive)
        for r in sorted(by_number.values(), key=_order)
    )


def _revision(snapshot_object: SnapshotObject) -> LockedRevision | None:
    spec, package = mapping_at(snapshot_object.body, "spec"), snapshot_object.labels.get(PARENT)
    number = spec.get("revision")
    if group_of(snapshot_object.api_version) != "pkg.crossplane.io" or snapshot_object.kind not in REVISIONS:
        return None
    if not package or not isinstance(number, int):
        return None
    name, tag, digest = parse_source(str(spec.get("image") or ""))
    is_active = spec.get("desiredState") == "Active"
    return LockedRevision(
        package=f"{snapshot_object.kind.removesuffix('Revision')}/{package}",
        name=snapshot_object.name,
        revision=number,
        desired_state=DesiredState.ACTIVE if is_active else DesiredState.INACTIVE,
        image=f"{name}:{tag}" if tag else name,
        digest=digest,
    )


def _order(revision: LockedRevision) -> tuple[str, int, str]:
    return (revision.package, revision.revision, revision.name)


class FleetClusters(Struct, frozen=True):
    """The clusters with their environments, the snapshots, the resolver settings, and the instance."""

    environments: Mapping[str, str]
    snapshot: Snapshot
    choices: ResolverSettings = field(default_factory=ResolverSettings)
    instance: str = ""
    packaging_namespace: str = DependencyPolicy().packaging_namespace

    @property
    def only(self) -> str:
        """The cluster of a manifest that names none: the snapshot's, else the only one there is, else ""."""
        if len(self.snapshot.clusters) <= 1 and self.snapshot.cluster:
            return self.snapshot.cluster
        return next(iter(self.environments)) if len(self.environments) == 1 else ""

    def snapshot_of(self, cluster: str, clusters: Collection[str]) -> Snapshot:
        """Return the snapshot of a cluster; one without a name counts where no other cluster installs."""
        snapshot = self.snapshot.exactly(cluster)
        if snapshot.present and not snapshot.cluster and len(clusters) > 1:
            return Snapshot(cluster=cluster, path=f"{snapshot.path}/{cluster}")
        return snapshot


class VariantInstalls(Struct, frozen=True):
    """Packages that the PackageVariants of one cluster install, at their revisions.

    `pinned` are those revisions; requirements of other packages cannot choose them by name. It
    `is_incomplete` if some variants could not be read.
    """

    installs: tuple[Install, ...] = ()
    pinned: tuple[Candidate, ...] = ()
    is_incomplete: bool = False


class FleetInputs(Struct, frozen=True):
    """Inputs per cluster, sorted, and problems of single manifests.

    `incomplete` are clusters with an unreadable manifest: nothing is removed from their locks. An empty
    name among them means that the manifest may belong to any cluster. `unread` are places of the index
    that could not be read.
    """

    worlds: tuple[ClusterInputs, ...] = ()
    incomplete: frozenset[str] = frozenset()
    problems: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()
    unread: tuple[Location, ...] = ()

    def is_incomplete(self, cluster: str) -> bool:
        """Tell whether a manifest of a cluster may be unreadable."""
        return not self.incomplete.isdisjoint({"", cluster})


def fleet_clusters(inventory: Inventory) -> FleetClusters:
    """Return the clusters that Repositories belong to, each with the environment that one of them names."""
    environments: dict[str, str] = {}
    for _, view in sorted(inventory.repositories.items()):
        notes = view.manifest.metadata.annotations or {}
        environments[view.cluster] = environments.get(view.cluster) or notes.get(ENVIRONMENT, "")
    return FleetClusters(
        environments,
        inventory.snapshot,
        resolver_settings(inventory.policy),
        inventory.policy.instance,
        inventory.policy.dependencies.packaging_namespace,
    )


def resolver_settings(policy: Policy) -> ResolverSettings:
    """Return the resolver settings of the configuration, the same for every cluster."""
    settings = policy.dependencies
    preferred = (
        (Ecosystem.XPKG, settings.select.crossplane),
        (Ecosystem.CARVEL, settings.select.carvel),
        (Ecosystem.BUNDLE, settings.select.porter),
        (Ecosystem.KPT, settings.select.kpt),
    )
    return ResolverSettings(
        allow_downgrade=settings.allow_downgrade,
        discovery=settings.discovery is Discovery.INDEX,
        reconsider=settings.reconsider,
        policies=tuple(
            (ecosystem, VersionPolicy(text)) for ecosystem, text in preferred if text is not Selection.HIGHEST
        ),
        shared_namespace=policy.dependencies.shared_namespace,
        budget=settings.steps,
        explain_steps=settings.explain_steps,
    )


class _ClusterManifests(Struct):
    installs: dict[tuple[str, str, str], list[Install]] = field(default_factory=dict)
    candidates: list[Candidate] = field(default_factory=list)
    activations: list[ActivationRequest] = field(default_factory=list)
    pinned: set[Candidate] = field(default_factory=set)
    rewrites: list[tuple[str, str]] = field(default_factory=list)


def collect_cluster_inputs(
    documents: Iterable[SourcedDocument],
    published: Iterable[Candidate],
    index: IndexContents,
    fleet: FleetClusters,
    variants: Mapping[str, VariantInstalls] = MappingProxyType({}),
) -> FleetInputs:
    """Collect the inputs of every cluster for which a manifest installs a package. Total; order-free.

    A manifest belongs to the cluster that its annotation names, else to the `clusters/NAME` in its path,
    else to the only cluster of the fleet. Packages without a cluster are candidates for all. The `variants`
    of a cluster count if one of them has requirements, or if other manifests install packages there.
    """
    scopes: dict[str, _ClusterManifests] = {}
    doubtful: set[str] = set()
    problems, warnings = list(index.problems), list(index.warnings)
    refused = dict(index.refused)
    for document in (manifest for manifest in documents if not is_in_index(manifest.source.location)):
        reading = read_manifest(document.value, document.source)
        if reading is None:
            continue
        cluster = _named_cluster(document)
        asks = bool(reading.installs or reading.activations)
        wrong = [*reading.problems, *_cluster_problems(document, cluster, fleet, asks=asks)]
        problems += wrong
        warnings += reading.warnings
        scope = cluster or (fleet.only if asks or wrong else "")
        if wrong:
            refused |= _refused(document, reading.problems, refused)
            doubtful.add(scope)
            continue
        mine = scopes.setdefault(scope, _ClusterManifests())
        space = str(value_at(document.value, "metadata", "namespace") or "")
        shared_space = fleet.packaging_namespace
        mine.candidates += [in_namespace(c, space, shared_space) for c in reading.candidates]
        mine.activations += reading.activations
        mine.rewrites += reading.rewrites
        for install in reading.installs:
            mine.installs.setdefault((install.kind, install.namespace, install.name), []).append(install)
    for cluster, mine in scopes.items():
        twice = list(_duplicates(mine))
        problems += twice
        doubtful |= {cluster} if twice else set()
    for cluster, variant_installs in sorted(variants.items()):
        doubtful |= {cluster} if variant_installs.is_incomplete else set()
        if cluster in scopes or any(candidate.requires for candidate in variant_installs.pinned):
            scope_of_variants = scopes.setdefault(cluster, _ClusterManifests())
            scope_of_variants.pinned |= set(variant_installs.pinned)
            for install in variant_installs.installs:
                scope_of_variants.installs[install.kind, install.namespace, install.name] = [install]
    warnings += _unnamed_snapshot(fleet, scopes)
    warnings += _hidden_packages(fleet, scopes)
    shared = [*published, *index.candidates, *(scopes[""].candidates if "" in scopes else ())]
    warnings += _taken_names(shared) if scopes else ()
    worlds = tuple(_cluster_inputs(scopes, shared, index, fleet, refused))
    warnings += (note for inputs in worlds for note in _other_tags(inputs))
    return FleetInputs(worlds, frozenset(doubtful), tuple(sorted(problems)), tuple(sorted(warnings)))


def _refused(
    document: SourcedDocument,
    problems: tuple[Problem, ...],
    refused: Mapping[str, tuple[RefusedVersion, ...]],
) -> dict[str, tuple[RefusedVersion, ...]]:
    """Return the problems of a Carvel Package that is no candidate, by its name."""
    spec = mapping_at(document.value, "spec")
    if document.value.get("kind") not in ("Package", "InternalPackage"):
        return {}
    name, version = (str(spec.get(key) or "") for key in ("refName", "version"))
    versions = tuple(RefusedVersion(version, problem) for problem in problems)
    return {name: (*refused.get(name, ()), *versions)} if name and versions else {}


def _taken_names(candidates: Iterable[Candidate]) -> Iterator[Problem]:
    """Yield a warning for each further name of packages that means another one, or none of several.

    That of a kpt package is the `refName` by which others need it, as they need Carvel packages.
    """
    packages, named = set[PackageId](), dict[PackageId, dict[PackageId, Candidate]]()
    for candidate in candidates:
        ecosystem = candidate.id.ecosystem
        packages.add(candidate.id)
        # Bundles are called by their short names beside their references: no name of one's own.
        for name in candidate.names if ecosystem is not Ecosystem.BUNDLE else ():
            id_ = PackageId(Ecosystem.CARVEL if ecosystem is Ecosystem.KPT else ecosystem, name)
            named.setdefault(id_, {})[candidate.id] = candidate
    for id_, owners in sorted(named.items()):
        is_taken = id_ in packages
        is_refused = is_taken and id_.ecosystem is not Ecosystem.CARVEL  # an alias, where the index is read
        if is_refused or not (is_taken or len(owners) > 1):
            continue
        means = f"the package {id_}" if is_taken else "none of them"
        listed = " and ".join(sorted(owner.name for owner in owners))
        message = f"{id_.name} is a further name of {listed}, and means {means}"
        hint = "Give each a name of its own, a kpt package by `spec.refName` of its next revision."
        last = max(owners.values(), key=lambda candidate: candidate.location)
        yield Problem(last.location, Reason.DUPLICATE_OBJECT, message, hint, listed)


def _unnamed_snapshot(fleet: FleetClusters, scopes: Mapping[str, _ClusterManifests]) -> Iterator[Problem]:
    """Yield a warning if a snapshot without the name of its cluster counts for none of several."""
    asking = sorted(cluster for cluster, scope in scopes.items() if cluster and scope.installs)
    snapshot = fleet.snapshot
    if len(asking) > 1 and snapshot.present and not snapshot.cluster:
        message = f"The snapshot names no cluster, so it counts for none of {', '.join(asking)}"
        hint = "Import it with `reconciler snapshot import --cluster NAME`, one for each cluster."
        yield Problem(Location(snapshot.path), Reason.MISSING_FIELD, message, hint, "Snapshot")


def _hidden_packages(fleet: FleetClusters, scopes: Mapping[str, _ClusterManifests]) -> Iterator[Problem]:
    """Yield a warning for each snapshot with all of its Carvel packages where no install sees them."""
    asking = [cluster for cluster, scope in scopes.items() if cluster and scope.installs]
    for cluster in asking:
        installs = [declared[0] for declared in scopes[cluster].installs.values()]
        snapshot = fleet.snapshot_of(cluster, asking)
        there = {package.namespace for package in snapshot.of_kind(*_PACKAGE)}
        is_seen = there & {fleet.packaging_namespace, *(install.namespace for install in installs)}
        if there and not is_seen and any(i.need.id.ecosystem is Ecosystem.CARVEL for i in installs):
            places, setting = ", ".join(sorted(there)), f"packagingNamespace: {min(there)}"
            message = f"All packages of cluster {cluster} are in {places}, where no install sees them"
            hint = f"Write `{setting}` below `dependencies` in reconciler.yaml, if that is the global one."
            yield Problem(Location(snapshot.path), Reason.NOT_FOUND, message, hint, "Snapshot")


def _cluster_inputs(
    scopes: Mapping[str, _ClusterManifests],
    shared: list[Candidate],
    index: IndexContents,
    fleet: FleetClusters,
    refused: Mapping[str, tuple[RefusedVersion, ...]],
) -> Iterator[ClusterInputs]:
    public = frozenset(shared)
    asking = [cluster for cluster, scope in scopes.items() if cluster and scope.installs]
    catalogues: dict[tuple[frozenset[Candidate], tuple[str, ...]], Catalogue] = {}
    for cluster, scope in sorted(scopes.items()):
        installs = tuple(declared[0] for _, declared in sorted(scope.installs.items()) if len(declared) == 1)
        if cluster and installs:
            snapshot = fleet.snapshot_of(cluster, asking)
            offered = offered_packages(snapshot, installs, fleet.packaging_namespace)
            offered_here = frozenset({*scope.candidates, *scope.pinned, *offered} - public)
            closed = closed_namespaces(snapshot)
            key = (offered_here, closed)
            if key not in catalogues:
                common = frozenset(candidate for candidate in offered if not candidate.namespace) - public
                excluded = dict.fromkeys(closed, common)
                all_here = [*sorted(offered_here, key=str), *shared]
                catalogues[key] = build_catalogue(all_here, refused, excluded)
            rewrites = (*(scopes[""].rewrites if "" in scopes else ()), *scope.rewrites)
            environment = index.environment_of(cluster) or fleet.environments.get(cluster, "")
            inputs = ClusterInputs(
                installs,
                with_rewrites(catalogues[key], rewrites, installs) if rewrites else catalogues[key],
                choices=replace(fleet.choices, defaults=index.defaults_of(cluster, environment)),
                activations=tuple(sorted(scope.activations, key=str)),
                cluster=cluster,
            )
            yield _with_snapshot(inputs, snapshot, fleet.instance) if snapshot.present else inputs


def with_rewrites(
    catalogue: Catalogue, rewrites: Iterable[tuple[str, str]], installs: Iterable[Install]
) -> Catalogue:
    """Return a catalogue in which a package that is in no index is the one that a cluster pulls instead.

    Source: Crossplane, ImageConfig: of several prefixes the longest counts.
    """
    longest_first = sorted(set(rewrites), key=lambda rewrite: (-len(rewrite[0]), rewrite))
    needs = collect_needs(installs, catalogue)
    names = dict(catalogue.names)
    for id_ in needs:
        fitting = ((old, new) for old, new in longest_first if id_.name.startswith(old))
        new_names = (f"{new}{id_.name.removeprefix(old)}" for old, new in fitting)
        pulled = catalogue.find(PackageId(Ecosystem.XPKG, next(new_names, "")))
        if id_.ecosystem is Ecosystem.XPKG and catalogue.find(id_) not in catalogue.packages:
            names |= {id_: pulled} if pulled in catalogue.packages else {}
    return Catalogue(catalogue.packages, names, catalogue.refused, catalogue.local)


def _other_tags(inputs: ClusterInputs) -> Iterator[Problem]:
    """Yield a note for each install with a tag that is not published, or not that of its digest."""
    for install in inputs.installs:
        versions = inputs.catalogue.candidates(inputs.catalogue.find(install.need.id))
        if not install.tag and install.dialect is Dialect.CROSSPLANE:
            named = install.need.range.text.removeprefix("=")
            alike = {c.version.text for c in versions} & {f"v{named}", named.removeprefix("v")}
            if named not in {c.version.text for c in versions} and alike:
                message = f"The tag is {named}, and the index has {min(alike)} alone"
                hint = "Write that: a registry tells the two tags apart."
                yield Problem(install.need.location, Reason.READ_DIFFERENTLY, message, hint, str(install))
        if not install.tag:
            continue
        tag, digest = install.tag.removeprefix("v"), install.need.range.text
        pinned = [c.version.text for c in versions if c.digest == digest]
        is_other = any(c.digest and c.version.text.removeprefix("v") == tag for c in versions)
        if tag not in [text.removeprefix("v") for text in pinned] and (pinned or is_other):
            of = f"that of {pinned[0]}" if pinned else "not the one that the index has of it"
            message = f"The tag is {install.tag}, but the digest is {of}: the digest counts"
            where, hint = install.need.location, "Correct one of the two."
            yield Problem(where, Reason.READ_DIFFERENTLY, message, hint, str(install))


def _with_snapshot(inputs: ClusterInputs, snapshot: Snapshot, instance: str) -> ClusterInputs:
    presence = observe_cluster(snapshot, ours=inputs.installs, instance=instance)
    presence = _with_interfaces(presence, inputs.catalogue)
    presence = replace(presence, stored=tuple(_stored_kinds(snapshot, inputs.catalogue)))
    standing = {installation.id for installation in presence.installations}
    # The versions that Crossplane's own Lock has chosen
    locks = ((lock.body, Source(lock.location, observed=True)) for lock in snapshot.of_kind(*_LOCK))
    chosen = (candidate for lock in locks for candidate in read_lock(*lock)[0])
    pins = imported_pins((c for c in chosen if c.id not in standing), inputs.catalogue)
    return replace(inputs, presence=presence, pins=pins, observed=observed_revisions(snapshot))


def _stored_kinds(snapshot: Snapshot, catalogue: Catalogue) -> Iterator[StoredKind]:
    """Yield the stored kinds that packages bring, those with counted objects that one would drop.

    A count that matters to no version is left out: with each new object the lock would be resolved again.
    """
    for kind, stored in sorted(snapshot.stored.items()):
        makers = catalogue.makers(kind)
        if any(candidate.drops(stored) for candidate in makers):
            yield stored
        elif makers:
            yield replace(stored, listed=0, is_complete=False)


def _named_cluster(document: SourcedDocument) -> str:
    """Return the cluster that a manifest names itself: by annotation, `custom` data, or its place."""
    if annotated := annotations(document.value).get(CLUSTER) or value_at(document.value, "custom", CLUSTER):
        return str(annotated)
    parts = document.source.location.path.split("/")
    if "clusters" not in parts[:-1]:
        return ""
    after = parts[parts.index("clusters") + 1]
    return after if after != parts[-1] else after.rpartition(".")[0]


def is_in_index(location: Location) -> bool:
    """Tell whether a file of the control repository belongs to the package index."""
    return location.path.startswith("index/")


def _cluster_problems(
    document: SourcedDocument, cluster: str, fleet: FleetClusters, *, asks: bool
) -> Iterator[Problem]:
    where, subject = document.source.location, manifest_label(document.value)
    if cluster and not _NAME.fullmatch(cluster):
        message = f"{cluster[:80]!r} cannot name a cluster"
        hint = "Use lower-case letters, digits and dashes."
        yield Problem(where, Reason.INVALID_NAME, message, hint, subject)
    elif asks and not cluster and not fleet.only:
        message = "No cluster is named, and there is not just one"
        hint = f"Annotate it with {CLUSTER}, or move it to a directory clusters/NAME."
        yield Problem(where, Reason.MISSING_FIELD, message, hint, subject)


def _duplicates(scope: _ClusterManifests) -> Iterator[Problem]:
    for declared in scope.installs.values():
        places = sorted(install.location for install in declared)
        for here in places if len(places) > 1 else ():
            others = ", ".join(str(there) for there in places if there != here)
            subject = str(declared[0])
            message = f"{subject} is also declared at {others}"
            yield Problem(here, Reason.DUPLICATE_OBJECT, message, "Keep one of them.", subject)


def imported_pins(chosen: Iterable[Candidate], catalogue: Catalogue) -> tuple[Resolved, ...]:
    """Convert the packages of Crossplane's own Lock to pins; bare digests are looked up in the catalogue.

    A package with only a digest that is not published cannot be compared with versions and is left out.
    """
    pins = []
    for candidate in chosen:
        candidates = catalogue.candidates(candidate.id)
        same = [c for c in candidates if c.digest == candidate.digest] if candidate.digest else []
        if same or not candidate.digest:
            pins.append(_pin(same[0] if same else candidate))
    return tuple(sorted(pins, key=lambda pin: str(pin.instance)))


def _pin(candidate: Candidate) -> Resolved:
    return Resolved(
        instance=Instance(*candidate.id, Slot(SlotKind.CLUSTER)),
        dialect=Dialect.CROSSPLANE,
        kind=candidate.kind,
        version=candidate.version.text,
        digest=candidate.digest,
        source=candidate.source,
        dependencies=tuple(
            met_need(r.alternatives[0], signature=str(r), alias=r.alias, via="candidate")
            for r in candidate.requires
        ),
    )
