"""From a cluster snapshot to what resolution may rely on: served APIs, platforms, what stands there."""

from collections.abc import Iterable, Iterator, Mapping

from reconciler.dependencies.contents import crd_apis
from reconciler.dependencies.dialects import read_manifest
from reconciler.dependencies.model import Gvk, Install, PackageId, Platform
from reconciler.dependencies.versions import Version, VersionError, parse_loose, parse_relaxed
from reconciler.dependencies.world import Installed, Presence
from reconciler.ids import GroupKind
from reconciler.inventory import Snapshot, SnapshotObject, Source

_CRD = ("apiextensions.k8s.io/v1", "CustomResourceDefinition")


def presence_of(
    snapshot: Snapshot, *, platforms: Mapping[Platform, Version] | None = None, ours: Iterable[Install] = ()
) -> Presence:
    """Return what resolution may rely on in a cluster. Order-free.

    An API counts if the snapshot lists it as served or a CRD there serves it. Installations
    count unless a manifest of ours declares them: those are wishes, not circumstances.
    """
    served = {_gvk(api_version, kind) for api_version, kind in snapshot.served or ()}
    crds = snapshot.of_kind(*_CRD)
    for crd in crds:
        served.update(crd_apis(crd.body))
    declared = {(i.kind, i.namespace, i.name) for i in ours}
    return Presence(
        apis=frozenset(served),
        owners=tuple(sorted(_owners(snapshot, crds))),
        platforms=tuple(sorted((platforms or {}).items())),
        installations=tuple(
            sorted(_installed(snapshot, declared), key=lambda one: (one.id, one.namespace, one.name))
        ),
    )


def _gvk(api_version: str, kind: str) -> Gvk:
    group, _, version = api_version.rpartition("/")
    return Gvk(group, version, kind)


def _installed(snapshot: Snapshot, declared: set[tuple[str, str, str]]) -> Iterator[Installed]:
    for objects in snapshot.objects.values():
        for found in objects:
            reading = read_manifest(found.body, Source(found.location))
            for install in reading.installs if reading else ():
                if (install.kind, install.namespace, install.name) not in declared:
                    yield Installed(
                        install.namespace,
                        install.name,
                        install.need.id,
                        _version(found, install),
                        digest=install.need.range.text
                        if install.need.range.text.startswith("sha256:")
                        else "",
                        labels=install.labels,
                        interfaces=install.interfaces,
                    )


def _version(found: SnapshotObject, install: Install) -> Version | None:
    """Return the version that stands there: what the status reports, else what the manifest pins."""
    status = found.body.get("status")
    reported = str(status.get("version") or "") if isinstance(status, Mapping) else ""
    for text, parse in ((reported, parse_relaxed), (install.need.range.text.lstrip("="), parse_loose)):
        try:
            return parse(text)
        except VersionError:
            continue
    return None


def _owners(snapshot: Snapshot, crds: Iterable[SnapshotObject]) -> Iterator[tuple[GroupKind, PackageId]]:
    """Yield which package brought a kind, where the CRD's owner references name an installed one."""
    packages = {
        (install.kind, install.name): install.need.id
        for objects in snapshot.objects.values()
        for found in objects
        for reading in [read_manifest(found.body, Source(found.location))]
        for install in (reading.installs if reading else ())
    }
    for crd in crds:
        metadata = crd.body.get("metadata")
        references = metadata.get("ownerReferences") if isinstance(metadata, Mapping) else None
        for reference in references if isinstance(references, list) else ():
            owner = packages.get((str(reference.get("kind")), str(reference.get("name"))))
            if owner is not None:
                yield from ((gvk.group_kind, owner) for gvk in crd_apis(crd.body))
