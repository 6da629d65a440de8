"""snapshot.yaml as it is on disk: which cluster, when, and which lists of objects are whole."""

from pydantic import Field

from reconciler.api.meta import ApiModel, Manifest

API_VERSION = "reconciler.dev/v1alpha1"
KIND = "Snapshot"
FILE = "snapshot.yaml"


class ObjectList(ApiModel):
    """One list of objects; without `complete` nothing is known about what is not in it.

    `namespace` is `*` for a list over all namespaces and empty for cluster-scoped kinds. `time` is
    when it was made, where that is not the snapshot's own time.
    """

    group: str = ""
    kind: str
    namespace: str = ""
    count: int
    complete: bool = False
    time: str | None = None


class SnapshotSpec(ApiModel):
    """What is known about the lists; `served` holds `apiVersion Kind`, absent if nobody recorded it."""

    time: str | None = None
    versions: dict[str, str] | None = None
    served: list[str] | None = None
    lists: list[ObjectList] = Field(default_factory=list)


class SnapshotHeader(Manifest):
    """The header of a snapshot; `metadata.name` is the cluster."""

    spec: SnapshotSpec = Field(default_factory=SnapshotSpec)
