"""Results of rendering: packages, or the reason why one cannot be rendered."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct, field

from reconciler.admission.judgement import AdmissionJudgement
from reconciler.base.reasons import Reason
from reconciler.base.text import Text
from reconciler.names.ids import ObjectKey, ObjectName, Oid, PackageKey
from reconciler.names.objects import Files, NamesError, check_names
from reconciler.names.problems import Problem
from reconciler.policy import Limits
from reconciler.records.state import SubpackageRecord
from reconciler.render.answers import Answer
from reconciler.render.update import Conflict
from reconciler.resolve.resolution import ResolvedVariant

if TYPE_CHECKING:
    from reconciler.dependencies.model.instances import Resolution, Resolved


class FunctionFault(NamedTuple):
    """A function that failed or cannot run, in a sentence, with the one that was probably meant as a hint.

    `step_index` is its index in the list of the Kptfile, -1 where it is in several or in a sub-package.
    """

    function: str
    message: str
    hint: str = ""
    step_index: int = -1


class Package(Struct, frozen=True):
    """A rendered package."""

    tree: Oid
    files: Files = field(default_factory=dict)
    """Empty if `tree` is from a record."""
    is_recorded: bool = False
    """Whether nothing was rendered: `tree` is from a record."""
    conflicts: tuple[Conflict, ...] = ()
    """Open conflicts."""
    answers: tuple[Answer, ...] = ()
    """Answered conflicts."""
    notes: tuple[Text, ...] = ()
    """Notes for the reviewer."""
    context: bool | None = None
    """Whether the variant changed the package context; None if it sets no keys."""
    injection: str | None = None
    """Required injection points without an object; None if there are no points."""
    unready: tuple[Text, ...] = ()
    """Reasons not to approve it: first how its functions failed, then unmet readiness gates."""
    failed: bool = False
    """Whether its functions failed."""
    faults: tuple[FunctionFault, ...] = ()
    """Functions that failed or cannot run."""
    warnings: tuple[str, ...] = ()
    """Warnings of its functions."""
    overwritten: tuple[str, ...] = ()
    """Those about edits of people that a function writes over."""
    subpackages: tuple[SubpackageRecord, ...] = ()
    """Sub-packages with an upstream."""

    @property
    def ready(self) -> bool:
        """Whether a person may approve it."""
        return not (self.conflicts or self.unready or self.injection)


class Blocked(Struct, frozen=True):
    """A package that cannot be rendered; no other package is affected."""

    reason: Reason
    message: str
    hint: str = ""
    conflicts: tuple[Conflict, ...] = ()


def invalid_package(message: str, step: str) -> Blocked:
    """Return the problem of a package that people must correct; its message has their next step, if any."""
    return Blocked(Reason.INVALID_PACKAGE, f"{message}. {step}" if step else message)


def find_bad_names(files: Iterable[str], before: Iterable[str], maker: str, hint: str) -> Blocked | None:
    """Return the problem of files that no package may have, None if all are good.

    Args:
        files: The paths of the package.
        before: The paths that main or the draft has: two of them that clash stay.
        maker: What gave the package these files.
        hint: The next step of a person.
    """
    try:
        check_names(files, before, maker=maker)
    except NamesError as error:
        return invalid_package(str(error), hint)
    return None


def find_excess(files: Files, limits: Limits) -> Blocked | None:
    """Return the problem of a package that no later run would read, None if it is within the limits."""
    sizes = [len(file.data) for file in files.values()]
    excess = {
        "packageFiles": len(sizes) - limits.package_files,
        "packageBytes": sum(sizes) - limits.package_bytes,
        "packageFileBytes": max(sizes, default=0) - limits.package_file_bytes,
        "pathDepth": max((path.count("/") + 1 for path in files), default=0) - limits.path_depth,
    }
    for name, count in excess.items():
        if count > 0:
            message = f"The package would be {count} above limits.{name}, and no later run would read it"
            return invalid_package(message, f"Raise limits.{name} in reconciler.yaml, or make less")
    return None


class RenderedVariant(Struct, frozen=True):
    """The rendered package of one variant."""

    variant: ObjectName
    fresh: Package | Blocked
    """Rendered from upstream and main alone."""
    merged: Package | Blocked | None = None
    """A draft with commits of people and the same changes; None if there is no such draft."""
    time: int = 0
    """Newest committer time of the inputs of `fresh`, in seconds (law 5)."""
    defect: Problem | None = None
    """The bug of ours that broke the rendering."""
    judgements: tuple[AdmissionJudgement, ...] = ()
    """Answers of its cluster to the proposal."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """The warnings of both packages, each once."""
        return tuple(dict.fromkeys(warning for p in self._packages for warning in p.warnings))

    @property
    def overwritten(self) -> tuple[str, ...]:
        """The warnings of both packages about edits of people that a function writes over, each once."""
        return tuple(dict.fromkeys(warning for p in self._packages for warning in p.overwritten))

    @property
    def _packages(self) -> list[Package]:
        return [p for p in (self.fresh, self.merged) if isinstance(p, Package)]


class RenderedDelivery(Struct, frozen=True):
    """The generated package of one cluster.

    `resolved` is pinned to the generated tree. `packages` are the locked packages by the path of their
    manifest, `lock` the resolution they are from, `local` the files of the package on main; all three
    explain which versions change.
    """

    cluster: str
    resolved: ResolvedVariant
    rendered: RenderedVariant
    lock: "Resolution"
    packages: "Mapping[str, Resolved]" = field(default_factory=dict)
    local: Files = field(default_factory=dict)


class RenderedDeliveries(Struct, frozen=True):
    """The generated packages by owner; packages of the `stalled` owners stay as they are.

    `undelivered` are the clusters without a place for them, and why, which is among the notes, too.
    """

    items: Mapping[ObjectName, RenderedDelivery] = field(default_factory=dict)
    stalled: frozenset[ObjectKey] = frozenset()
    problems: tuple[Problem, ...] = ()
    notes: tuple[Text, ...] = ()
    undelivered: Mapping[str, Text] = field(default_factory=dict)


class Rendered(Struct, frozen=True):
    """The package of every resolved variant, delivery and release."""

    variants: Mapping[ObjectName, RenderedVariant] = field(default_factory=dict)
    releases: Mapping[PackageKey, Package | Blocked] = field(default_factory=dict)
    deliveries: RenderedDeliveries = RenderedDeliveries()
    unjudged: tuple[AdmissionJudgement, ...] = ()
    """Clusters with a proposal of which too little is known to judge it."""
