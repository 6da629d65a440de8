"""The values that reports are made of: what every form prints, computed once. Pure."""

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from functools import cached_property
from types import MappingProxyType
from typing import Literal, NamedTuple

from msgspec import Struct

from reconciler.admission.judgement import AdmissionVerdict
from reconciler.api.meta import Condition
from reconciler.base.errors import Exit
from reconciler.base.reasons import Phase, Reason
from reconciler.base.text import Text, iso_time, plural, some
from reconciler.dependencies.lock.changes import VersionChange
from reconciler.names.ids import ObjectName
from reconciler.names.problems import Problem
from reconciler.plan.changes import Change, LockProposal, Op, Outcome, Refusal
from reconciler.plan.compare import Comparison
from reconciler.plan.impact import Impact, Loss, Risk
from reconciler.plan.status import OwnerStatus, PackageStatus
from reconciler.resolve.rollout_model import Rollout


class Names(Struct, frozen=True):
    """Display names of packages: the directory of each Repository is left out of the path.

    `shared` are the names that Repositories of several namespaces have: their namespace is named, too.

    `instance` is the name of the instance, `report_url` the address where its HTML report is published,
    `shard` the part of the fleet as `--shard` takes it, empty for the whole.
    """

    instance: str = ""
    directories: Mapping[ObjectName, str] | None = None
    report_url: str = ""
    shard: str = ""
    shared: frozenset[str] = frozenset()

    def repository(self, change: Change) -> str:
        """Return the name of a package's Repository."""
        key = change.repository
        return str(key) if key.name in self.shared else key.name

    def of(self, change: Change) -> str:
        """Return `REPOSITORY/PACKAGE`, what `approve` and `explain` take."""
        path = change.package.path
        directory = (self.directories or {}).get(change.repository, "")
        if directory and path.startswith(f"{directory}/"):
            path = path[len(directory) + 1 :]
        return f"{self.repository(change)}/{path}"


_MOST_PLACES = 4
"""Places of one row that a text names; more of them are counted."""


class Action(StrEnum):
    """Acts of a person, the most urgent first."""

    DECIDE = "decide"
    ANSWER = "answer"
    RELEASE = "release"
    REPAIR = "repair"
    REVIEW = "review"


class NeedPlace(NamedTuple):
    """Where it is done: `REPOSITORY#NUMBER`, a package, a manifest or a set; `url` is "" for none.

    `package` is the package that it is about as `REPOSITORY/PACKAGE`, "" if it is about none or several.
    """

    name: str
    url: str = ""
    package: str = ""


class Need(NamedTuple):
    """Something that waits for people: what they have to do, why, and where.

    `holds` are the waves that move on when it is done.
    """

    action: Action
    text: str
    places: tuple[NeedPlace, ...]
    holds: tuple[str, ...] = ()

    @property
    def what(self) -> str:
        """The text, and the waves that wait for it."""
        return f"{self.text}; holds {', '.join(self.holds)}" if self.holds else self.text

    @property
    def first(self) -> tuple[NeedPlace, ...]:
        """The places that a text names."""
        return self.places[:_MOST_PLACES]

    @property
    def more(self) -> str:
        """How many more there are, "" for none."""
        more = len(self.places) - _MOST_PLACES
        return f" and {more} more" if more > 0 else ""

    @property
    def where(self) -> str:
        """The first places, and how many more there are."""
        return some([place.name for place in self.places], _MOST_PLACES)


class Diff(NamedTuple):
    """Packages with equal differences, changed for one cause; `names` are the first of them, as a text."""

    changes: tuple[Change, ...]
    impact: Impact | None
    names: str


class ChangeCause(Struct, frozen=True):
    """Changes of one cause with one `label`: what happens. The most frequent differences are first."""

    reason: Reason
    changes: tuple[Change, ...]
    detail: str
    diffs: tuple[Diff, ...]
    label: str
    names: str
    """The first packages, and how many more there are."""
    risks: tuple[Risk, ...]
    """Every risk of differences, the worst first."""
    is_dangerous: bool
    """Whether there is any risk, of losses, deletions and conflicts too."""
    phase: str = ""
    """The state of packages that a plan leaves as they are, "" of all others."""

    @property
    def name(self) -> str:
        """The package, or how many there are, as a row names it."""
        return plural(len(self.changes), "package") if self.is_folded else self.names

    @property
    def word(self) -> str:
        """The operation, or the state where people have something to do about a package that is kept."""
        is_told = self.phase == Phase.CONFLICT or self.reason is Reason.DELETION_PROPOSED
        return self.phase if self.phase and is_told else str(self.first.op)

    @property
    def first(self) -> Change:
        """The first change, an example of the others."""
        return self.changes[0]

    @property
    def is_folded(self) -> bool:
        """Whether there are several packages."""
        return len(self.changes) > 1

    @property
    def text(self) -> str:
        """The detail; of several packages also how many there are."""
        return "; ".join(part for part in (self.detail, self.extent if self.is_folded else "") if part)

    @property
    def extent(self) -> str:
        """The number of packages, repositories and differences: `40 repositories, 3 distinct diffs`."""
        where = plural(len({change.package.url for change in self.changes}), "repository")
        compared = sum(diff.impact is not None for diff in self.diffs)
        return f"{where}, {plural(compared, 'distinct diff')}" if compared else where


class PackageOverview(Struct, frozen=True):
    """A package in a row of `status`: each field is a column of its table, its JSON and the page."""

    set: str = ""
    """The PackageVariantSet that it is from, NAMESPACE/NAME."""
    cluster: str = ""
    main: str = ""
    """Upstream revision of the package on main."""
    review: str = ""
    """Upstream revision of its open draft."""
    waiting_for: str = ""
    """The next step; empty where nothing is to be done."""

    def review_after(self, change: Change) -> str:
        """Return the revision in review when a change is made, "" for none."""
        planned = change.upstream_to if change.written is not None and change.op is not Op.DELETE else ""
        return planned or self.review


class DraftOverview(PackageOverview, frozen=True):
    """The same with what the list of needs tells of a draft.

    It `replaces` what main has without an upstream revision: nothing, `ours`, or `others`.
    """

    reviewers: tuple[str, ...] = ()
    replaces: Literal["", "ours", "others"] = ""


class StatusRow(Struct, frozen=True):
    """A row of `status`: an owner with its package, or a package of a cluster."""

    owner: OwnerStatus
    package: PackageStatus | None = None
    """State of its package; of a package of a cluster mostly that of the package which delivers it."""
    summary: PackageOverview = PackageOverview()
    repository: str = ""
    """The Repository as people name it."""
    change: Change | None = None

    @property
    def name(self) -> str:
        """`NAMESPACE/NAME` of the owner; a package of a cluster has the cluster before it."""
        return "/".join(filter(None, (self.owner.cluster, *self.owner.key)))

    @property
    def package_name(self) -> str:
        """`REPOSITORY/PACKAGE`, or the name of the owner where it has no package."""
        return f"{self.repository}/{self.package.name}" if self.package and self.repository else self.name

    @property
    def is_set(self) -> bool:
        """Whether the owner is a PackageVariantSet."""
        return self.owner.kind == "PackageVariantSet"

    @property
    def is_variant(self) -> bool:
        """Whether the owner is a PackageVariant."""
        return self.owner.kind == "PackageVariant"

    @property
    def set_names(self) -> set[str]:
        """The names of its set, with and without the namespace; a set has its own."""
        name = self.name if self.is_set else self.summary.set
        return {name, name.partition("/")[2]} - {""}

    @property
    def names(self) -> set[str]:
        """The names of the owner, of its package, and of its set."""
        return {self.name, self.package_name, *self.set_names}

    @property
    def phase(self) -> Phase | None:
        """The state of its package; of an owner without one whether it is stalled."""
        return self.package.phase if self.package else Phase.STALLED if self.is_stalled else None

    @property
    def is_stalled(self) -> bool:
        """Whether the manifest of the owner is wrong."""
        return self.condition("Stalled").status == "True"

    def condition(self, kind: str) -> Condition:
        """Return the condition of a type, an empty one if there is none."""
        return next((c for c in self.owner.conditions if c.type == kind), _NO_CONDITION)

    @property
    def decisive(self) -> Condition:
        """The condition that tells most about the owner."""
        return self.condition("Stalled" if self.is_stalled else "Ready")

    @property
    def reason(self) -> str:
        """The reason of its package, else that of the owner."""
        return (self.package and self.package.reason) or self.decisive.reason

    @property
    def message(self) -> Text:
        """The message of its package, else that of the owner."""
        return (self.package and self.package.message) or self.decisive.message


_NO_CONDITION = Condition.model_construct(type="", status="Unknown")


class ProblemGroup(NamedTuple):
    """Problems of one cause, or a single problem, which alone has a location and a stalled owner.

    Of several, `message` is their number and their cause, and `places` have the place, the owner and the rest
    of the message of each; many are counted.
    """

    problems: tuple[Problem, ...]
    reason: str
    message: Text
    hint: Text
    location: str = ""
    subject: str = ""
    places: tuple[Text, ...] = ()


class JudgementRow(NamedTuple):
    """One answer of clusters to objects of one kind.

    `names` are the packages, or where nothing is known about whole clusters those.
    """

    verdict: AdmissionVerdict
    rule: str
    message: Text
    names: tuple[str, ...] = ()
    is_old: bool = False
    noun: str = "package"

    @property
    def label(self) -> str:
        """The verdict in words."""
        return "refused already" if self.is_old else _LABELS[self.verdict]

    @property
    def text(self) -> Text:
        """The row in a line: `would be refused: Deployment spec.selector: immutable (2 packages: a, b)`."""
        where = (
            f" ({plural(len(self.names), self.noun)}: {some(self.names, _MOST_PLACES)})" if self.names else ""
        )
        return f"{self.label}: {self.message}{where}"


_LABELS = {
    AdmissionVerdict.REFUSED: "would be refused",
    AdmissionVerdict.DESTROYS: "would be destroyed",
    AdmissionVerdict.RECREATED: "would be recreated",
    AdmissionVerdict.WARNED: "would be warned about",
    AdmissionVerdict.NOT_JUDGED: "not judged",
}


class HistoryEntry(NamedTuple):
    """A revision or an open draft; `author` made its commit on main, which is the merge that approved it.

    `labels` are those of the variant when the draft was written. `time` is that of the commit in seconds,
    0 if unknown. `impact` is the difference from the revision before it; that of a draft is from main.
    """

    revision: str
    commit: str
    upstream: str = ""
    time: int = 0
    author: str = ""
    subject: str = ""
    impact: Impact | None = None
    labels: Mapping[str, str] = MappingProxyType({})

    @property
    def date(self) -> str | None:
        """The time as ISO 8601, None if unknown."""
        return iso_time(self.time)

    @property
    def risks(self) -> tuple[Risk, ...]:
        """The risks of its difference."""
        return self.impact.risks if self.impact else ()


class UpstreamChange(NamedTuple):
    """A commit of an upstream package: its id, subject and author; `replaced` is a value that it changed."""

    commit: str
    subject: str
    author: str
    replaced: str | None = None


class PackageRow(Struct, frozen=True):
    """One package of a report: its change, and what only the whole plan tells of it."""

    name: str
    change: Change
    reason: Reason
    status: PackageStatus | None
    risks: tuple[Risk, ...]


class ApprovableRow(Struct, frozen=True):
    """An open pull request, and what keeps it from being approved, or from being without its name.

    `lenient` are unmet gates where nothing is deployed.
    """

    url: str
    number: int
    head: str
    conflicts: tuple[str, ...]
    unmet: tuple[str, ...]
    lenient: tuple[str, ...]
    objection: str


class Report(Struct, frozen=True, dict=True, kw_only=True):
    """A plan, or with its outcome what became of it, as every form prints it (D39).

    What a form does not print is not made: `fold` makes the causes.
    """

    names: Names = Names()
    checksum: str = ""
    empty: bool = False
    """Whether applying writes nothing but what it observed."""
    sentence: str
    """The counts in one line, without the checksum."""
    ops: Mapping[str, int] = {}
    """How many packages see each operation."""
    losses: tuple[Loss, ...] = ()
    judgements: tuple[JudgementRow, ...] = ()
    """Answers of clusters to proposals, the worst first."""
    risks: Mapping[str, int] = {}
    """How many packages each class of risk is about, the worst class first."""
    needs: tuple[Need, ...] = ()
    fold: Callable[[], Sequence[ChangeCause]] = tuple
    packages: tuple[PackageRow, ...] = ()
    """Every package, by worst risk and operation."""
    approvable: tuple[ApprovableRow, ...] = ()
    problems: tuple[Problem, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    notes: tuple[Text, ...] = ()
    lock: LockProposal | None = None
    rollouts: tuple[Rollout, ...] = ()
    moves: "tuple[VersionChange, ...]" = ()
    """New decisions of locks, dangerous ones first."""
    outcome: Outcome | None = None
    exits: frozenset[Exit] = frozenset()
    exit_code: Exit = Exit.DONE

    @property
    def shards(self) -> tuple[str, ...]:
        """The parts of the fleet that it is about; none if that is the whole."""
        return (self.names.shard,) if self.names.shard else ()

    @cached_property
    def causes(self) -> tuple[ChangeCause, ...]:
        """The changes that are listed, folded."""
        return tuple(self.fold())

    @property
    def summary(self) -> str:
        """The sentence, with the start of the checksum."""
        return f"{self.sentence} (checksum {self.checksum[:12]})" if self.checksum else self.sentence

    @property
    def dangers(self) -> tuple[VersionChange, ...]:
        """Changes of locks that take something from clusters."""
        return tuple(move for move in self.moves if move.op.is_dangerous)


class CheckReport(Report, frozen=True, dict=True, kw_only=True):
    """Effect of merging a change; the problems are those that it brings.

    Where no package was compared, `ops` are what happens to how many variants.
    """

    comparison: Comparison
