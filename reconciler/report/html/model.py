"""Values that the HTML report shows: the summary, causes of changes, packages with their details."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, NamedTuple

from msgspec import Struct, field

from reconciler.base.errors import Problem
from reconciler.plan.changes import Refusal
from reconciler.plan.provenance import Origin
from reconciler.report.rollouts import RolloutText
from reconciler.report.timings import Timings


class ReportKind(StrEnum):
    """The command that a report is of; its value is the title."""

    PLAN = "Plan"
    APPLY = "Apply"
    CHECK = "Check"
    STATUS = "Status"


PROBLEMS: Final = "Problems"
NEW: Final = "New problems"
ALARMING: Final = (PROBLEMS, NEW)
"""Lists of problems that call for a person; those of others are known already."""


class FileDiff(NamedTuple):
    """The difference of one file: the hunks of its patch, or a note where they are not shown."""

    path: str
    action: str
    added: int
    removed: int
    hunks: str = ""
    note: str = ""


class PackageDiff(NamedTuple):
    """One difference of several packages; the files are those of the first of them, `name`."""

    name: str
    packages: int
    files: tuple[FileDiff, ...]
    note: str = ""


class HistoryRow(NamedTuple):
    """A revision of a package in its history, or an open draft."""

    name: str
    date: str
    commit: str
    author: str
    subject: str


class ConditionRow(NamedTuple):
    """A condition of the owner of a package."""

    type: str
    status: str
    reason: str
    message: str


class PackageRow(Struct, frozen=True):
    """One package with everything that its page shows.

    `name` is that of the package in its repository; `diff` and `cause` are places in the lists of the report,
    -1 for none. `revisions` is the length of the history, of which `history` has the newest.
    """

    repository: str
    name: str
    cluster: str = ""
    set_name: str = ""
    variant: str = ""
    main: str = ""
    review: str = ""
    phase: str = ""
    since: str = ""
    op: str = ""
    reason: str = ""
    detail: str = ""
    waiting_for: str = ""
    manifest: str = ""
    pull: str = ""
    pull_url: str = ""
    risks: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()
    conditions: tuple[ConditionRow, ...] = ()
    origins: tuple[Origin, ...] = ()
    history: tuple[HistoryRow, ...] = ()
    revisions: int = 0
    diff: int = -1
    cause: int = -1

    @property
    def full_name(self) -> str:
        """`REPOSITORY/PACKAGE`, what commands take."""
        return f"{self.repository}/{self.name}" if self.repository else self.name


class DiffRow(NamedTuple):
    """One distinct difference of a cause: the packages that have it, its size and its risks."""

    text: str
    diff: int
    risks: tuple[str, ...]


class CauseRow(NamedTuple):
    """Changes of one cause; `is_dangerous` tells that there is a risk in them.

    `phase` is the state of packages that a plan leaves as they are, "" of all others.
    """

    op: str
    name: str
    reason: str
    detail: str
    packages: int
    is_dangerous: bool
    diffs: tuple[DiffRow, ...]
    phase: str = ""


class GraphPicture(NamedTuple):
    """A graph as SVG, or a note where it is too large to be drawn; both are empty where there is none."""

    svg: str = ""
    note: str = ""


class HtmlReport(Struct, frozen=True):
    """Everything that one page shows. `counts` are packages by operation, in the order of reports.

    `timings` are there only where they were asked for: equal inputs do not make them equal.
    """

    kind: ReportKind
    instance: str
    summary: str
    checksum: str = ""
    counts: Mapping[str, int] = field(default_factory=dict)
    risks: Mapping[str, int] = field(default_factory=dict)
    causes: tuple[CauseRow, ...] = ()
    packages: tuple[PackageRow, ...] = ()
    diffs: tuple[PackageDiff, ...] = ()
    problems: Mapping[str, tuple[Problem, ...]] = field(default_factory=dict)
    refusals: tuple[Refusal, ...] = ()
    rollouts: tuple[RolloutText, ...] = ()
    lock: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    failed: tuple[tuple[str, str], ...] = ()
    effects: tuple[str, ...] = ()
    graph: GraphPicture = GraphPicture()
    fleet: GraphPicture = GraphPicture()
    timings: Timings | None = None
