"""Instances of packages in a cluster: what is resolved, and what a lock names."""

from enum import StrEnum

from reconciler.base.wire import Record
from reconciler.dependencies.model.packages import Ecosystem, PackageId


class SlotKind(StrEnum):
    """Kinds of slots: what must be unique within a cluster, and is therefore shared or not."""

    CLUSTER = "cluster"
    NAMESPACE = "namespace"
    INSTALL = "install"
    SHARED = "shared"
    FOR = "for"


class Slot(Record, frozen=True, order=True, cache_hash=True):
    """A place for one instance of a package: the unit in which versions are unified.

    `path` is the user's name of an install, the group and labels of a shared instance, or the
    way of aliases from the install that an exclusive instance belongs to.
    """

    kind: SlotKind
    namespace: str = ""
    path: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "/".join(part for part in (self.kind, self.namespace, *self.path) if part)


class Instance(Record, frozen=True, order=True, cache_hash=True):
    """One package in one slot of a cluster. Its text is for people: nothing reads it."""

    ecosystem: Ecosystem
    name: str
    slot: Slot

    @property
    def package(self) -> PackageId:
        """The package, whatever its slot."""
        return PackageId(self.ecosystem, self.name)

    def __str__(self) -> str:
        return f"{self.ecosystem}:{self.name}@{self.slot}"
