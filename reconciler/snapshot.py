"""What a cluster held when somebody published it, as values that the core reads."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from reconciler.errors import Location, Problem
from reconciler.ids import GroupKind

ALL_NAMESPACES = "*"
"""In `Snapshot.complete`: the kind was listed whole in every namespace, those without objects too."""


@dataclass(frozen=True, slots=True)
class SnapshotObject:
    """One object of the cluster snapshot; Secret data never gets here.

    `content` is the body, or makes it: JSON is decoded only where somebody reads the body.
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
        """The whole object as plain dictionaries, lists and scalars, whatever form its file has."""
        return self.content() if callable(self.content) else self.content


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What the cluster held when somebody published it.

    `complete` names the (kind, namespace) pairs that were listed whole; only there does
    absence mean anything. `None` for `served` means that nobody recorded the served APIs; else it
    holds (apiVersion, kind). `taken` is when the oldest complete list was made, `time` when the
    snapshot last changed in Git, both in seconds. `versions` are those of what the cluster runs, by
    name. `problems` are its files that are not understood.

    The snapshot of a control repository also holds those of single clusters, in `clusters`: each is
    read from a directory of its own and says nothing about any other. `path` is its directory.
    """

    present: bool = False
    objects: Mapping[tuple[str, str], tuple[SnapshotObject, ...]] = field(default_factory=dict)
    complete: frozenset[tuple[GroupKind, str]] = frozenset()
    served: frozenset[tuple[str, str]] | None = None
    taken: int | None = None
    time: int = 0
    unreadable: bool = False
    cluster: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()
    clusters: Mapping[str, "Snapshot"] = field(default_factory=dict)
    path: str = ""

    def of(self, cluster: str) -> "Snapshot":
        """Return what is known of a cluster: its own snapshot, else the one that stands for all.

        That is the one at the root. Where every snapshot has a directory, a cluster without one is
        unknown: its snapshot is not `present`, and has its name.
        """
        own = self.clusters.get(cluster)
        if own is not None:
            return own
        if not self.clusters or (self.present and self.cluster not in self.clusters):
            return self
        return Snapshot(cluster=cluster, path=f"{self.path}/{cluster}")

    def exactly(self, cluster: str) -> "Snapshot":
        """Return the snapshot of this cluster and of no other; one that names no cluster is of each."""
        found = self.of(cluster)
        if found.present and found.cluster in ("", cluster):
            return found
        return Snapshot(cluster=cluster, path=f"{self.path}/{cluster}")

    def in_any_cluster(self, api_version: str, kind: str) -> tuple["SnapshotObject", ...]:
        """Return the objects of a kind of all clusters; of those with one name, the first cluster's."""
        several = (self, *(self.clusters[name] for name in sorted(self.clusters)))
        found: dict[tuple[str, str], SnapshotObject] = {}
        for snapshot in several:
            for one in snapshot.of_kind(api_version, kind):
                found.setdefault((one.namespace, one.name), one)
        return tuple(found[key] for key in sorted(found))

    def of_kind(self, api_version: str, kind: str) -> tuple[SnapshotObject, ...]:
        """Return the objects of exactly this apiVersion and kind, sorted by namespace and name."""
        return self.objects.get((api_version, kind), ())

    def is_complete(self, kind: GroupKind, namespace: str) -> bool:
        """Tell whether absence of an object of `kind` in `namespace` is evidence."""
        listed = (kind, namespace) in self.complete or (kind, ALL_NAMESPACES) in self.complete
        return self.present and not self.unreadable and listed
