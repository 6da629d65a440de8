"""Read the state of a cluster from its snapshot: served APIs, platforms, installations, revisions."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress

from msgspec.structs import replace

from reconciler.dependencies.catalog.published import served_apis
from reconciler.dependencies.dialects import read_lock, read_manifest
from reconciler.dependencies.dialects.crossplane import PARENT, REVISIONS
from reconciler.dependencies.dialects.reading import is_generated_by
from reconciler.dependencies.dialects.references import parse_source
from reconciler.dependencies.model.cluster import ClusterState, ObservedInstallation, ObservedRevision
from reconciler.dependencies.model.packages import Candidate, Gvk, Install, PackageId, Platform
from reconciler.dependencies.versions import Version, VersionError, parse_loose, parse_relaxed
from reconciler.inventory.inventory import Source
from reconciler.inventory.snapshot import Snapshot, SnapshotObject
from reconciler.names.ids import GroupKind, group_of

_CRD = ("apiextensions.k8s.io/v1", "CustomResourceDefinition")


_PACKAGE = ("data.packaging.carvel.dev/v1alpha1", "Package")


_LOCK = ("pkg.crossplane.io/v1beta1", "Lock")


_GLOBAL = "kapp-controller-packaging-global"
"""The namespace with the packages that are visible in every namespace, a convention of kapp-controller."""


def observe_cluster(snapshot: Snapshot, *, ours: Iterable[Install] = (), instance: str = "") -> ClusterState:
    """Return the state of a cluster: served APIs, CRD owners, platforms, installations. Order-free.

    An API counts if the snapshot lists it as served or a CRD there serves it. Excludes installations
    that our manifests declare, or that this `instance` generated: desired, not observed, state.
    """
    served = {_gvk(api_version, kind) for api_version, kind in snapshot.served or ()}
    crds = snapshot.of_kind(*_CRD)
    for crd in crds:
        served.update(served_apis(crd.body))
    declared = {(i.kind, i.namespace, i.name) for i in ours}
    return ClusterState(
        apis=frozenset(served),
        owners=tuple(sorted(_crd_owners(snapshot, crds))),
        platforms=tuple(sorted(read_platforms(snapshot.versions).items())),
        installations=tuple(
            sorted(
                _observed_installations(snapshot, declared, instance),
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


def offered_packages(snapshot: Snapshot, installs: Iterable[Install]) -> tuple[Candidate, ...]:
    """Return the Carvel packages that a cluster offers to its installs, sorted.

    These are the global packages and those in the namespaces of the installs.

    Differs: kapp-controller shows a namespace its own and the global packages only; here the namespaces
    of one cluster share their packages.
    """
    seen = {_GLOBAL, *(install.namespace for install in installs)}
    readings = (
        read_manifest(package.body, Source(package.location))
        for package in snapshot.of_kind(*_PACKAGE)
        if package.namespace in seen
    )
    candidates = {candidate for reading in readings if reading for candidate in reading.candidates}
    return tuple(sorted(candidates, key=lambda candidate: (candidate.id, candidate.version.text)))


def crossplane_lock_candidates(snapshot: Snapshot) -> tuple[Candidate, ...]:
    """Return the versions that Crossplane's own Lock has chosen in a cluster; empty without a Lock."""
    manifests = (read_lock(lock.body, Source(lock.location)) for lock in snapshot.of_kind(*_LOCK))
    return tuple(candidate for candidates, _ in manifests for candidate in candidates)


def _gvk(api_version: str, kind: str) -> Gvk:
    group, _, version = api_version.rpartition("/")
    return Gvk(group, version, kind)


def _observed_installations(
    snapshot: Snapshot, declared: set[tuple[str, str, str]], instance: str
) -> Iterator[ObservedInstallation]:
    for objects in snapshot.objects.values():
        for snapshot_object in objects:
            if instance and is_generated_by(snapshot_object.body, instance):
                continue
            reading = read_manifest(snapshot_object.body, Source(snapshot_object.location))
            for install in reading.installs if reading else ():
                if (install.kind, install.namespace, install.name) not in declared:
                    yield ObservedInstallation(
                        install.namespace,
                        install.name,
                        install.need.id,
                        _version(snapshot_object, install),
                        digest=install.need.range.text
                        if install.need.range.text.startswith("sha256:")
                        else "",
                        labels=install.labels,
                        interfaces=install.interfaces,
                    )


def _version(snapshot_object: SnapshotObject, install: Install) -> Version | None:
    """Return the version of an installation: the status reports it, else the manifest pins it."""
    status = snapshot_object.body.get("status")
    reported = str(status.get("version") or "") if isinstance(status, Mapping) else ""
    for text, parse in ((reported, parse_relaxed), (install.need.range.text.lstrip("="), parse_loose)):
        try:
            return parse(text)
        except VersionError:
            continue
    return None


def _crd_owners(snapshot: Snapshot, crds: Iterable[SnapshotObject]) -> Iterator[tuple[GroupKind, PackageId]]:
    """Yield which package brought a kind, where the CRD's owner references name an installed one."""
    packages = {
        (install.kind, install.name): install.need.id
        for objects in snapshot.objects.values()
        for snapshot_object in objects
        for reading in [read_manifest(snapshot_object.body, Source(snapshot_object.location))]
        for install in (reading.installs if reading else ())
    }
    for crd in crds:
        metadata = crd.body.get("metadata")
        references = metadata.get("ownerReferences") if isinstance(metadata, Mapping) else None
        for reference in references if isinstance(references, list) else ():
            owner = packages.get((str(reference.get("kind")), str(reference.get("name"))))
            if owner is not None:
                yield from ((gvk.group_kind, owner) for gvk in served_apis(crd.body))


_GROUP = "pkg.crossplane.io"


def observed_revisions(snapshot: Snapshot) -> tuple[ObservedRevision, ...]:
    """Return the package revisions among a snapshot's objects, lowest number first. Total; order-free.

    Names of both of Crossplane's naming schemes are kept. Where a snapshot shows two active revisions
    or one number twice, the revision with the greatest number and name counts.
    """
    objects = (snapshot_object for group in snapshot.objects.values() for snapshot_object in group)
    by_number: dict[tuple[str, int], ObservedRevision] = {}
    for revision in sorted((r for r in map(_revision, objects) if r is not None), key=_order):
        by_number[revision.package, revision.number] = revision
    return tuple(sorted(_with_one_active(by_number.values()), key=_order))


def _revision(snapshot_object: SnapshotObject) -> ObservedRevision | None:
    spec, package = snapshot_object.body.get("spec"), snapshot_object.labels.get(PARENT)
    number = spec.get("revision") if isinstance(spec, dict) else None
    if group_of(snapshot_object.api_version) != _GROUP or snapshot_object.kind not in REVISIONS:
        return None
    if not package or not isinstance(number, int) or not isinstance(spec, dict):
        return None
    name, tag, digest = parse_source(str(spec.get("image") or ""))
    return ObservedRevision(
        package=f"{snapshot_object.kind.removesuffix('Revision')}/{package}",
        name=snapshot_object.name,
        number=number,
        is_active=spec.get("desiredState") == "Active",
        image=f"{name}:{tag}" if tag else name,
        digest=digest,
    )


def _with_one_active(revisions: Iterable[ObservedRevision]) -> Iterator[ObservedRevision]:
    """Yield the revisions with only the last active one of each package active."""
    ordered = list(revisions)
    last_active = {revision.package: revision.name for revision in ordered if revision.is_active}
    for revision in ordered:
        is_active = revision.is_active and last_active[revision.package] == revision.name
        yield replace(revision, is_active=is_active)


def _order(revision: ObservedRevision) -> tuple[str, int, str]:
    return (revision.package, revision.number, revision.name)
