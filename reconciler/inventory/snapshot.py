"""Snapshots of clusters: their objects, and the lists of objects that are complete."""

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct, field

from reconciler.base.errors import Location
from reconciler.names.ids import GroupKind, group_of
from reconciler.names.problems import Problem

_CRD = ("apiextensions.k8s.io/v1", "CustomResourceDefinition")

ALL_NAMESPACES = "*"
"""In `Snapshot.complete`: the list of a kind is complete in all namespaces, also those without objects."""


class SnapshotObject(Struct, frozen=True):
    """One object of a cluster snapshot; data of Secrets was dropped on reading.

    `content` is the body, or a function that decodes it: most bodies are never read.
    """

    api_version: str
    kind: str
    namespace: str
    name: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    content: Mapping[str, Any] | Callable[[], Mapping[str, Any]]
    location: Location

    @property
    def body(self) -> Mapping[str, Any]:
        """The whole object as plain dictionaries, lists and scalars."""
        return self.content() if callable(self.content) else self.content


class Snapshot(Struct, frozen=True):
    """The objects of one cluster at the time of its snapshot."""

    present: bool = False
    objects: Mapping[tuple[str, str], tuple[SnapshotObject, ...]] = field(default_factory=dict)
    complete: frozenset[tuple[GroupKind, str]] = frozenset()
    """Kinds and namespaces with complete lists: only there a missing object does not exist."""
    served: frozenset[tuple[str, str]] | None = None
    """Served APIs as (apiVersion, kind); None if they were not recorded."""
    taken: int | None = None
    """Time of the oldest complete list, in seconds."""
    time: int = 0
    """Time of the last change of the snapshot in Git, in seconds."""
    unreadable: bool = False
    cluster: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Versions of software in the cluster, by name."""
    problems: tuple[Problem, ...] = ()
    """Files that could not be parsed."""
    clusters: Mapping[str, "Snapshot"] = field(default_factory=dict)
    """Snapshots of single clusters, each from its own directory."""
    path: str = ""
    """Directory of the snapshot."""

    def of(self, cluster: str) -> "Snapshot":
        """Return the snapshot of a cluster: its own, else the one at the root, else an absent one."""
        cluster_snapshot = self.clusters.get(cluster)
        if cluster_snapshot is not None:
            return cluster_snapshot
        if not self.clusters or (self.present and self.cluster not in self.clusters):
            return self
        return self._absent(cluster)

    def exactly(self, cluster: str) -> "Snapshot":
        """Return the snapshot with this cluster name or without any name, else an absent one."""
        snapshot = self.of(cluster)
        return snapshot if snapshot.present and snapshot.cluster in ("", cluster) else self._absent(cluster)

    def _absent(self, cluster: str) -> "Snapshot":
        return Snapshot(cluster=cluster, path=f"{self.path}/{cluster}")

    def in_any_cluster(self, api_version: str, kind: str) -> tuple["SnapshotObject", ...]:
        """Return the objects of a kind in all clusters; for equal names, that of the first cluster."""
        objects: dict[tuple[str, str], SnapshotObject] = {}
        for snapshot in (self, *(self.clusters[name] for name in sorted(self.clusters))):
            for item in snapshot.of_kind(api_version, kind):
                objects.setdefault((item.namespace, item.name), item)
        return tuple(objects[key] for key in sorted(objects))

    def of_kind(self, api_version: str, kind: str) -> tuple[SnapshotObject, ...]:
        """Return the objects of exactly this apiVersion and kind, sorted by namespace and name."""
        return self.objects.get((api_version, kind), ())

    def serves(self, api_version: str, kind: str, namespace: str) -> bool:
        """Tell whether the cluster serves a kind, by any evidence.

        Evidence is the recorded list of served APIs, an object of the kind, a complete listing of it, or a
        CustomResourceDefinition with that version. The list may be older than what was imported since.
        """
        if not self.present:
            return False
        if (api_version, kind) in (self.served or ()) or self.of_kind(api_version, kind):
            return True
        group, version = group_of(api_version), api_version.rpartition("/")[2]
        # A list names no version: where only another one is served, the kind has no list of its own.
        others = any(group_of(api) == group and name == kind for api, name in self.served or ())
        if not others and any(self.is_complete(GroupKind(group, kind), where) for where in (namespace, "")):
            return True
        definitions = (item.body.get("spec") for item in self.of_kind(*_CRD))
        return any(_defines(spec, group, version, kind) for spec in definitions if isinstance(spec, Mapping))

    def is_complete(self, kind: GroupKind, namespace: str) -> bool:
        """Tell whether a missing object of `kind` in `namespace` is known not to exist."""
        listed = (kind, namespace) in self.complete or (kind, ALL_NAMESPACES) in self.complete
        return self.present and not self.unreadable and listed


def _defines(spec: Mapping[str, Any], group: str, version: str, kind: str) -> bool:
    """Tell whether a CRD defines a kind, and serves a version of it; one without versions serves any."""
    names, versions = spec.get("names"), spec.get("versions")
    if spec.get("group") != group or not isinstance(names, Mapping) or names.get("kind") != kind:
        return False
    listed = [v for v in versions if isinstance(v, Mapping)] if isinstance(versions, list) else []
    return not listed or any(v.get("name") == version and v.get("served") is not False for v in listed)
