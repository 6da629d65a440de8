"""Candidate PackageVariants of one run, before collisions are detected."""

from dataclasses import dataclass

from reconciler.api.porch import GROUP
from reconciler.expand.findings import Finding
from reconciler.expand.targets import Selected
from reconciler.expand.variants import DesiredVariant
from reconciler.ids import ObjectKey, ObjectName, PackageKey
from reconciler.inventory import FieldPath, Source

PAUSED = "reconciler.dev/paused"
EXTENSIONS = "reconciler.dev/cel-extensions"
ALLOW_DELETES = "reconciler.dev/allow-deletes"


def variant_key(name: ObjectName) -> ObjectKey:
    """Return the identity of a PackageVariant."""
    return ObjectKey(GROUP, "PackageVariant", *name)


def set_key(name: ObjectName) -> ObjectKey:
    """Return the identity of a PackageVariantSet."""
    return ObjectKey(GROUP, "PackageVariantSet", *name)


def describe(owner: ObjectKey) -> str:
    """Return an owner as problems name it."""
    return f"{owner.kind} {owner.namespace}/{owner.name}"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A variant that its owner asks for, where it goes, the field and the object to blame."""

    variant: DesiredVariant
    owner: ObjectKey
    source: Source
    path: FieldPath
    package: PackageKey
    selected: Selected | None = None

    @property
    def downstream(self) -> tuple[str, str]:
        """The repository and package by name."""
        downstream = self.variant.spec.downstream
        return (downstream.repo or "", downstream.package or "") if downstream else ("", "")


@dataclass(frozen=True, slots=True)
class Asked:
    """What one owner asks for, or why it stalls. `valid` is False where its own manifest is wrong."""

    owner: ObjectKey
    source: Source
    candidates: tuple[Candidate, ...] = ()
    findings: tuple[Finding, ...] = ()
    valid: bool = True
