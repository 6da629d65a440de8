"""Snapshots of clusters: their objects, and the lists of objects that are complete."""

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cached_property
from typing import Any

from msgspec import Struct, field

from reconciler.base.errors import Location
from reconciler.base.text import plural
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


class StoredKind(Struct, frozen=True, order=True):
    """A kind, the versions in which a cluster may store objects of it, and these objects."""

    kind: GroupKind
    versions: tuple[str, ...]
    """`status.storedVersions` of its definition: the API server refuses a definition without one of them."""
    listed: int = 0
    """Number of objects that the snapshot has."""
    is_complete: bool = False
    """Whether there are no others; else the number is unknown."""

    def dropped_by(self, versions: Iterable[str]) -> tuple[str, ...]:
        """Return the versions that a definition with these versions does not have any more, sorted."""
        return tuple(sorted({*self.versions} - {*versions}))

    @property
    def objects(self) -> str:
        """The number of objects: `2 objects`, `at least 2 objects`, `an unknown number of objects`."""
        if self.is_complete:
            return plural(self.listed, "object")
        return f"at least {plural(self.listed, 'object')}" if self.listed else "an unknown number of objects"


def defined_kind(definition: Mapping[str, Any]) -> tuple[GroupKind, Mapping[str, Any]] | None:
    """Return the kind that a CustomResourceDefinition defines, with its spec; None where it names none."""
    spec = definition.get("spec")
    names = spec.get("names") if isinstance(spec, Mapping) else None
    if not isinstance(spec, Mapping) or not isinstance(names, Mapping):
        return None
    return GroupKind(str(spec.get("group")), str(names.get("kind"))), spec


class Snapshot(Struct, frozen=True, dict=True):  # it keeps three indexes
    """The objects of one cluster at the time of its snapshot.

    An object is there in every version that the cluster serves; the snapshot has it in those that kubectl
    printed, often only in the preferred one.
    """

    present: bool = False
    objects: Mapping[tuple[str, str], tuple[SnapshotObject, ...]] = field(default_factory=dict)
    complete: frozenset[tuple[GroupKind, str]] = frozenset()
    """Kinds and namespaces with complete lists: only there a missing object does not exist."""
    served: frozenset[tuple[str, str]] | None = None
    """Served APIs as (apiVersion, kind); None if they were not recorded."""
    resources: Mapping[GroupKind, tuple[str, bool]] = field(default_factory=dict)
    """The plural of served kinds, and whether their objects are in namespaces, as far as it was recorded."""
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

    def lists_any(self, kinds: Collection[GroupKind]) -> bool:
        """Tell whether the snapshot of any cluster has a complete list of one of these kinds."""
        every = (self, *self.clusters.values())
        return any(kind in kinds for snapshot in every for kind, _ in snapshot.complete)

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
        """Return the objects of a kind, in whatever version, sorted by namespace and name.

        Each object is there once: in `api_version` if the snapshot has it so. Whether the cluster serves that
        version is what `serves` tells.
        """
        versions = self._versions.get(GroupKind(group_of(api_version), kind), ())
        if not versions or versions == (api_version,):
            return self.objects.get((api_version, kind), ())
        # The greatest version by name comes last, but for the one that is asked for.
        order = sorted(versions, key=lambda version: (version == api_version, version))
        objects = {(o.namespace, o.name): o for version in order for o in self.objects[version, kind]}
        return tuple(objects[name] for name in sorted(objects))

    def serves(self, api_version: str, kind: str, namespace: str) -> bool:
        """Tell whether the cluster serves a kind in a version, by any evidence.

        Evidence is the recorded list of served APIs, an object of the kind, a complete listing of it, or a
        CustomResourceDefinition with that version. The list may be older than what was imported since.
        """
        if not self.present:
            return False
        group_kind = GroupKind(group_of(api_version), kind)
        versions = self.versions_of(group_kind)
        # A list names no version: where only another one is served, the kind has no list of its own.
        if versions is not None and versions:
            return api_version in versions
        return versions is None or any(self.is_complete(group_kind, where) for where in (namespace, ""))

    def versions_of(self, kind: GroupKind) -> frozenset[str] | None:
        """Return the apiVersions in which the cluster is known to serve a kind, None for any.

        Empty where nothing is known of the kind; `kubectl api-resources` names the preferred version only.
        """
        definition = self.definitions.get(kind)
        if definition is not None and not isinstance(definition.get("versions"), list):
            return None
        return self._served_versions.get(kind, frozenset())

    def converts(self, kind: GroupKind) -> bool:
        """Tell whether versions of a kind differ in nothing but their apiVersion, by its definition.

        Source: Kubernetes, CustomResourceConversion: the strategy None, the default, changes only apiVersion.
        """
        definition = self.definitions.get(kind)
        conversion = definition.get("conversion") if definition is not None else None
        strategy = conversion.get("strategy") if isinstance(conversion, Mapping) else None
        return definition is not None and strategy in (None, "None")

    @cached_property
    def apis(self) -> tuple[tuple[str, str], ...]:
        """All APIs that are known to be served, as (apiVersion, kind): listed, defined, or of an object."""
        served = self._served_versions.items()
        return tuple(sorted((version, kind.kind) for kind, versions in served for version in versions))

    @cached_property
    def _served_versions(self) -> Mapping[GroupKind, frozenset[str]]:
        versions = {kind: set(listed) for kind, listed in self._versions.items()}
        for api_version, kind in self.served or ():
            versions.setdefault(GroupKind(group_of(api_version), kind), set()).add(api_version)
        for group_kind, spec in self.definitions.items():
            listed = spec.get("versions")
            versions.setdefault(group_kind, set()).update(
                f"{group_kind.group}/{version.get('name')}"
                for version in (listed if isinstance(listed, list) else ())
                if isinstance(version, Mapping) and version.get("served") is not False
            )
        return {group_kind: frozenset(names) for group_kind, names in versions.items()}

    @cached_property
    def _versions(self) -> Mapping[GroupKind, tuple[str, ...]]:
        """The apiVersions in which the snapshot has objects of a kind."""
        versions: dict[GroupKind, tuple[str, ...]] = {}
        for (api_version, kind), objects in self.objects.items():
            key = GroupKind(group_of(api_version), kind)
            versions[key] = (*versions.get(key, ()), *((api_version,) if objects else ()))
        return versions

    @cached_property
    def definitions(self) -> Mapping[GroupKind, Mapping[str, Any]]:
        """The specs of CustomResourceDefinitions by what they define."""
        definitions: dict[GroupKind, Mapping[str, Any]] = {}
        for definition in self.of_kind(*_CRD):
            if (defined := defined_kind(definition.body)) is not None:
                definitions[defined[0]] = defined[1]
        return definitions

    @cached_property
    def stored(self) -> Mapping[GroupKind, StoredKind]:
        """The kinds with a definition that lists its stored versions."""
        stored: dict[GroupKind, StoredKind] = {}
        for definition in self.of_kind(*_CRD):
            status, defined = definition.body.get("status"), defined_kind(definition.body)
            versions = status.get("storedVersions") if isinstance(status, Mapping) else None
            if defined is not None and isinstance(versions, list):
                kind = defined[0]
                there = {
                    (item.namespace, item.name)
                    for version in self._versions.get(kind, ())
                    for item in self.objects[version, kind.kind]
                }
                is_complete = self.is_complete(kind, ALL_NAMESPACES)
                stored[kind] = StoredKind(kind, tuple(map(str, versions)), len(there), is_complete)
        return stored

    def is_complete(self, kind: GroupKind, namespace: str) -> bool:
        """Tell whether a missing object of `kind` in `namespace` is known not to exist."""
        listed = (kind, namespace) in self.complete or (kind, ALL_NAMESPACES) in self.complete
        return self.present and not self.unreadable and listed
