"""Schema of `snapshot.yaml`: cluster, time, and completeness of the lists of objects."""

from pydantic import Field

from reconciler.api.meta import ApiModel, Manifest

API_VERSION = "reconciler.dev/v1alpha1"
KIND = "Snapshot"
FILE = "snapshot.yaml"


class ObjectList(ApiModel):
    """One list of objects; only in a `complete` one does a missing object mean that it does not exist.

    `namespace` is `*` for a list over all namespaces and empty for cluster-scoped kinds. `time` is
    set where it differs from that of the snapshot.
    """

    group: str = ""
    kind: str
    namespace: str = ""
    count: int
    complete: bool = False
    time: str | None = None


class SnapshotSpec(ApiModel):
    """Lists of objects and their time; `served` holds `apiVersion Kind`, absent if it was not recorded."""

    time: str | None = None
    versions: dict[str, str] | None = None
    served: list[str] | None = None
    lists: list[ObjectList] = Field(default_factory=list)


class SnapshotHeader(Manifest):
    """The header of a snapshot; `metadata.name` is the cluster."""

    spec: SnapshotSpec = Field(default_factory=SnapshotSpec)
