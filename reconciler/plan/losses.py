"""Losses: objects of clusters that go with what a proposal removes, counted from the snapshots. Pure.

A CustomResourceDefinition takes all objects of its kind with it, a CompositeResourceDefinition those of its
composites and claims, a Namespace everything in it, a PersistentVolumeClaim its data. What installs a package
(a Provider, a Configuration, a PackageInstall) takes the kinds of that package.

Source: Kubernetes, garbage collection by owner references; crossplane, Establisher: every object of a package
has its Provider or Configuration as an owner.
"""

from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from reconciler.base.text import plural
from reconciler.names.ids import NamedObject, PackageKey
from reconciler.plan.set_diff import deletion_consent

CLAIM, NAMESPACE = "PersistentVolumeClaim", "Namespace"
_MOST_NAMES = 3


class Loss(Struct, frozen=True, order=True):
    """Objects of one kind that a cluster loses with `cause`, the object that is removed."""

    cluster: str
    cause: NamedObject
    """The removed object; of kind `package` where its content cannot be read."""
    kind: str
    """Kind of the objects as `Bucket.s3.io`; "" for kinds that are not known."""
    listed: int = 0
    """Number of objects that the snapshot has."""
    is_complete: bool = False
    """Whether there are no others; else the number is unknown."""
    names: tuple[str, ...] = ()
    """The first names, with the namespaces."""
    heir: str = ""
    """Another object that installs the package of the removed one."""

    @property
    def count(self) -> int | None:
        """The number of objects, None where it is unknown."""
        return self.listed if self.is_complete else None

    @property
    def needs_consent(self) -> bool:
        """Whether objects go, or may go."""
        return self.count != 0

    @property
    def objects(self) -> str:
        """The objects with their number: `Bucket.s3.io and its 2 objects`."""
        if self.kind == CLAIM and self.cause.kind == CLAIM:
            return "its data"
        if not self.kind:
            what = "everything else in it" if self.cause.kind == NAMESPACE else "what it brought"
            return f"{what} (an unknown number of objects)"
        if self.is_complete:
            itself = f"and its {plural(self.listed, 'object')}"
            return f"{self.kind} {itself if self.listed else 'without any object'}"
        number = f"at least {self.listed}" if self.listed else "an unknown number"
        return f"{self.kind} and its objects ({number})"

    @property
    def text(self) -> str:
        """The loss as a sentence: `dev: Provider aws takes Bucket.s3.io and its 2 objects with it: a, b`."""
        if not self.names:
            return f"{self.cluster}: {self.cause} takes {self.objects} with it"
        more = self.listed - len(self.names[:_MOST_NAMES])
        named = ", ".join(self.names[:_MOST_NAMES]) + (f" and {more} more" if more else "")
        return f"{self.cluster}: {self.cause} takes {self.objects} with it: {named}"

    @property
    def replacement(self) -> str:
        """A sentence about the replacement where another object installs the same package, "" else."""
        if not self.heir:
            return ""
        kind, namespace, short = self.cause
        name = f"{namespace}/{short}" if namespace else short
        stops = ", and Crossplane stops at two packages of one source" if kind != "PackageInstall" else ""
        return (
            f"{self.heir} replaces {self.cause} in {self.cluster} and does not take over its objects. "
            f"Both run until the removal of {name} is merged{stops}. "
            f"Give the {kind} of your manifest the metadata.name {short} to keep the object"
        )


def loss_consent(package: PackageKey, losses: Iterable[Loss]) -> str:
    """Return the checksum that allows policy to remove these objects of a package, however many others go."""
    return deletion_consent({(*package, loss.cluster, str(loss.cause)) for loss in losses})


def all_losses(losses: Iterable[Loss]) -> tuple[Loss, ...]:
    """Return each loss once, those of objects first: two things may tell of the same one."""
    every = {replace(loss, heir=""): loss for loss in sorted(losses)}
    return tuple(sorted(every.values(), key=lambda loss: (not loss.needs_consent, loss)))


def loss_value(loss: Loss) -> dict[str, object]:
    """Return a loss as a JSON value; `count` is null where the number is unknown."""
    return {
        "cluster": loss.cluster,
        "cause": str(loss.cause),
        "kind": loss.kind,
        "listed": loss.listed,
        "count": loss.count,
        "heir": loss.heir,
        "text": loss.text,
        "names": list(loss.names),
    }
