"""Schema of `snapshot.yaml`: cluster, time, and completeness of the lists of objects."""

from typing import Final, Literal

from pydantic import Field

from reconciler.api.meta import ApiModel, Manifest

API_VERSION: Final = "reconciler.dev/v1alpha1"
KIND: Final = "Snapshot"
FILE = "snapshot.yaml"


class ObjectList(ApiModel):
    """One list of objects; only in a `complete` one does a missing object mean that it does not exist.

    `namespace` is `*` for a list over all namespaces and empty for cluster-scoped kinds. `time` is
    set where it differs from that of the snapshot.
    """

    group: str = ""
    """API group of the objects; empty: the core group."""
    kind: str
    """Kind of the objects."""
    namespace: str = ""
    """Namespace of the list, `*` for all, empty for objects without one."""
    count: int
    """Number of objects in the list."""
    complete: bool = False
    """Whether the list has every object; only then does a missing object mean that it does not exist."""
    time: str | None = None
    """When the objects were listed, if not with the others."""


class SnapshotSpec(ApiModel):
    """Lists of objects and their time; `served` holds `apiVersion Kind`, absent if it was not recorded."""

    time: str | None = None
    """When the objects were listed."""
    versions: dict[str, str] | None = None
    """Versions of platforms by name, as packages demand them."""
    served: list[str] | None = None
    """Kinds that the cluster serves, as `apiVersion Kind`; absent: unknown."""
    resources: list[str] | None = None
    """Names of served kinds, as `Kind.group plural Namespaced` or `... Cluster`; absent: unknown."""
    lists: list[ObjectList] = Field(default_factory=list)
    """Lists of objects that the snapshot holds."""


class SnapshotHeader(Manifest):
    """The header of a snapshot; `metadata.name` is the cluster."""

    api_version: Literal["reconciler.dev/v1alpha1"]
    """API version of the snapshot."""
    kind: Literal["Snapshot"]
    """Kind of the file."""
    spec: SnapshotSpec = Field(default_factory=SnapshotSpec)
    """Time, versions and lists of objects."""
