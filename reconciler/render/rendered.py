"""What rendering yields: packages as they should be, or why one cannot be made."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from reconciler.dependencies.lock.format import LockedPackage, Resolution
from reconciler.errors import Problem
from reconciler.ids import ObjectKey, ObjectName, Oid, PackageKey
from reconciler.objects import Files
from reconciler.reasons import Reason
from reconciler.render.answers import Answer
from reconciler.render.update import Conflict
from reconciler.resolve.resolution import ResolvedVariant
from reconciler.state import functions_failed


@dataclass(frozen=True, slots=True)
class Package:
    """A rendered package: what its tree should hold.

    `files` is empty where `tree` was already known and nothing had to be read (`is_known`).
    `conflicts` wait for a person, `answers` are those that do not any more, `notes` are for the
    reviewer, `context` tells whether the package context was injected (None: nothing was asked for),
    `injection` which required points are empty (None: it has no points). `unready` are the unmet
    readiness gates and whatever else keeps the package from being approved, in sentences; `warnings`
    what its functions warned of.
    """

    tree: Oid
    files: Files = field(default_factory=dict)
    is_known: bool = False
    conflicts: tuple[Conflict, ...] = ()
    answers: tuple[Answer, ...] = ()
    notes: tuple[str, ...] = ()
    context: bool | None = None
    injection: str | None = None
    unready: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def is_rendered(self) -> bool:
        """Whether its functions ran, if it has any; otherwise it is as it was made before them."""
        return not functions_failed(self.unready)

    @property
    def ready(self) -> bool:
        """Whether a person may approve it as it is."""
        return not (self.conflicts or self.unready or self.injection)


@dataclass(frozen=True, slots=True)
class Blocked:
    """A package that could not be rendered; no other package is touched by that."""

    reason: Reason
    message: str
    hint: str = ""
    conflicts: tuple[Conflict, ...] = ()


@dataclass(frozen=True, slots=True)
class RenderedVariant:
    """What one variant's package should be.

    `fresh` is made from upstream and main alone. `merged` is the same brought into a draft that
    others committed to, None where there is no such draft. `time` is the newest committer time
    of the inputs of `fresh`, in seconds (law 5).
    """

    variant: ObjectName
    fresh: Package | Blocked
    merged: Package | Blocked | None = None
    time: int = 0


@dataclass(frozen=True, slots=True)
class RenderedDelivery:
    """The generated package of one cluster.

    `resolved` is pinned to the generated tree. `packages` are the locked packages by the path of their
    manifest, `lock` the resolution they are from, `local` the files of the package on main; all three
    explain which versions change.
    """

    cluster: str
    resolved: ResolvedVariant
    rendered: RenderedVariant
    lock: Resolution = field(repr=False)
    packages: Mapping[str, LockedPackage] = field(default_factory=dict, repr=False)
    local: Files = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class RenderedDeliveries:
    """The generated packages by owner; packages of the `stalled` owners stay as they are."""

    items: Mapping[ObjectName, RenderedDelivery] = field(default_factory=dict)
    stalled: frozenset[ObjectKey] = frozenset()
    problems: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Rendered:
    """The package of every resolved variant, delivery and release."""

    variants: Mapping[ObjectName, RenderedVariant] = field(default_factory=dict)
    releases: Mapping[PackageKey, Package | Blocked] = field(default_factory=dict)
    deliveries: RenderedDeliveries = RenderedDeliveries()
