"""The inventory of a run: one immutable value that `read` fills and the pure stages compute from."""

import dataclasses
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict
from enum import StrEnum
from functools import cached_property
from itertools import chain
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from reconciler.api.kptfile import KptfileHeader
from reconciler.api.porch import (
    GROUP,
    PackageVariant,
    PackageVariantSet,
    PackageVariantSetSpec,
    PackageVariantSpec,
    Repository,
    Upstream,
)
from reconciler.base.defects import DefectError
from reconciler.base.errors import ConfigurationError, Location, UnavailableError
from reconciler.base.lazy import regex
from reconciler.base.reasons import Reason
from reconciler.base.text import Text
from reconciler.base.values import PartlyCompared
from reconciler.inventory.snapshot import Snapshot
from reconciler.inventory.standing import Removal, Standing
from reconciler.names.ids import Lifecycle, ObjectKey, ObjectName, Oid, PackageKey, RolloutKey
from reconciler.names.objects import Commit, Files
from reconciler.names.problems import Problem, defect_problem
from reconciler.names.refs import is_group, parent_directories
from reconciler.names.trailers import NO_ANSWERS, Answers, Ticks
from reconciler.policy import Author, CommitPolicy, FunctionPolicy, OnUnavailable, Policy
from reconciler.records.state import (
    NOTHING_REFUSED,
    PackageVariantRecord,
    PullHistory,
    RefusedDeletionsRecord,
    RolloutRecord,
    SetRecord,
    UpstreamLock,
)

M = TypeVar("M")
FieldPath = tuple[str | int, ...]


class FieldMarks(Protocol):
    """Positions of the fields of a parsed document."""

    def mark(self, path: FieldPath) -> tuple[int, int]:
        """Return line and column, from 1, of the value at `path` or of its nearest existing ancestor."""


class MovedMarks(NamedTuple):
    """Positions of a manifest's fields in which `field`, as the program reads it, is written as `place`."""

    marks: FieldMarks
    field: FieldPath
    place: FieldPath

    def written(self, path: FieldPath) -> FieldPath:
        """Return a field as the manifest has it."""
        count = len(self.field)
        return (*self.place, *path[count:]) if path[:count] == self.field else path

    def mark(self, path: FieldPath) -> tuple[int, int]:
        """Return the position of a field."""
        return self.marks.mark(self.written(path))

    def mark_inside(self, path: FieldPath, offset: int) -> tuple[int, int]:
        """Return the position of a character of a field's text, or of the field."""
        find, path = getattr(self.marks, "mark_inside", None), self.written(path)
        return find(path, offset) if find else self.marks.mark(path)


class Source(PartlyCompared, frozen=True):
    """Location of a manifest or object, and the committer time of its file's last change, in seconds.

    An `observed` object is of a snapshot. `fault` is why the file could not be read that an empty one is for.
    """

    UNCOMPARED = frozenset({"marks"})

    location: Location
    time: int = 0
    marks: FieldMarks | None = None
    observed: bool = False
    fault: Problem | None = None

    def at(self, *path: str | int) -> Location:
        """Return the location of one field; without marks, that of the manifest."""
        if self.marks is None:
            return self.location
        return Location(self.location.path, *self.marks.mark(path))

    def written(self, *path: str | int) -> FieldPath:
        """Return the path of a field as the manifest has it, which may use an alias."""
        return self.marks.written(path) if isinstance(self.marks, MovedMarks) else path

    def moved(self, field: FieldPath, place: FieldPath) -> "Source":
        """Return the source of a manifest that has a field in another place."""
        marks = MovedMarks(self.marks, field, place) if self.marks is not None else None
        return replace(self, marks=marks)

    def inside(self, offset: int, *path: str | int) -> Location:
        """Return the location of one character of a field's text, as near as the marks know it."""
        find = getattr(self.marks, "mark_inside", None)
        return Location(self.location.path, *find(path, offset)) if find else self.at(*path)


class Sourced(Struct, Generic[M], frozen=True):
    """A manifest and its source. Its namespace is never empty."""

    key: ObjectName
    manifest: M
    source: Source


def declared_upstreams(
    *manifests: Iterable[Sourced[PackageVariant] | Sourced[PackageVariantSet]],
) -> Iterator[tuple[ObjectName, Upstream]]:
    """Yield the upstreams of every PackageVariant and PackageVariantSet, each with its owner."""
    for declared in chain.from_iterable(manifests):
        spec = declared.manifest.spec
        upstreams = spec.sources if isinstance(spec, PackageVariantSetSpec) else (spec.upstream,)
        yield from ((declared.key, upstream) for upstream in upstreams if upstream is not None)


class SourcedDocument(Struct, frozen=True):
    """An unparsed document of the dependency dialects or the package index, and its source."""

    value: Mapping[str, Any]
    source: Source


class PackageRevision(Struct, frozen=True):
    """A published revision: a tag F/vN, or another tag of the package (revision -1)."""

    path: str
    workspace: str
    revision: int
    lifecycle: Lifecycle
    ref: str
    commit: Commit
    tree: Oid


class Draft(Struct, frozen=True):
    """A draft or proposal branch of one package."""

    path: str
    workspace: str
    lifecycle: Lifecycle
    ref: str
    tip: Commit
    tree: Oid
    header: KptfileHeader
    base: Oid
    """Commit where the branch left main."""
    base_tree: Oid | None
    """The package there."""
    written: Oid | None = None
    """Package tree of our newest commit on the branch; None if none is ours."""
    has_foreign_commits: bool = False
    foreign_commit_time: int = 0
    is_touched: bool = False
    """Whether a foreign commit changed the package."""
    answers: Answers = NO_ANSWERS
    """Answers to conflicts in the messages of its commits."""
    outside: str = ""
    """Why the local forge does not merge it: people changed files beside packages; "" if it may."""
    behind: bool = False
    """Whether main changed at its path since."""

    @property
    def is_edited(self) -> bool:
        """Whether people changed the package since our last commit."""
        return self.tree != self.written

    @property
    def append_only(self) -> bool:
        """Whether people committed to this branch, if it is a group's to this package: we only add then."""
        return self.is_edited or (self.is_touched if self.is_grouped else self.has_foreign_commits)

    @property
    def is_grouped(self) -> bool:
        """Whether the branch is a group branch, with drafts of other packages."""
        return is_group(self.ref)


class GroupBranch(Struct, frozen=True):
    """A branch that holds the drafts of several packages (D4)."""

    ref: str
    tip: Commit
    paths: tuple[str, ...]
    """Packages that our commits name."""
    dropped: frozenset[str] = frozenset()
    """Packages that people removed."""
    deleted: frozenset[str] = frozenset()
    """Packages that a merge deletes."""
    has_foreign_commits: bool = False
    foreign_commit_time: int = 0
    """In seconds."""
    merged: bool = False
    """Whether main contains the branch."""


class UnpublishedRevision(Struct, frozen=True):
    """A merged state without a tag, on main's first-parent history; `workspaces` by revision number."""

    commit: Commit
    tree: Oid
    header: KptfileHeader
    workspaces: Mapping[int, str] = field(default_factory=dict)


class DeletionBranch(Struct, frozen=True):
    """The branch that proposes to delete a package; `base_tree` is the package where it left main."""

    base_tree: Oid | None = None
    has_foreign_commits: bool = False


class PackageState(Struct, frozen=True):
    """One package of a repository view: main, drafts, published and unpublished revisions."""

    path: str
    main_tree: Oid | None = None
    main_header: KptfileHeader | None = None
    drafts: tuple[Draft, ...] = ()
    published: tuple[PackageRevision, ...] = ()
    unpublished: tuple[UnpublishedRevision, ...] = ()
    deletion: DeletionBranch | None = None

    @property
    def exists(self) -> bool:
        """Whether the package exists on main, as a draft or as a proposal; tags alone are history."""
        return self.main_tree is not None or bool(self.drafts)

    @property
    def latest(self) -> PackageRevision | None:
        """The published revision with the greatest number, if any."""
        return max([r for r in self.published if r.revision > 0], key=lambda r: r.revision, default=None)


class RepositoryRole(StrEnum):
    """The role of a repository in a run. Without shards every repository is planned."""

    PLANNED = "planned"
    """Its packages are planned."""
    READ = "read"
    """It is read as an upstream; another shard plans its packages."""
    SKIPPED = "skipped"
    """It is not read: another shard plans its packages, and nothing here depends on it."""


class Former(Struct, frozen=True):
    """Why a place of recorded packages is no place of the Repository that it was recorded for (D36).

    `reason` is `Moved`, `PlaceGone`, or why nothing is concluded: the Repository is not understood.
    `packages` are the owners of the packages there, by path. Of those that are `aside` only the branch is
    another one: path and drafts are those of the package that is wanted now.
    """

    reason: Reason
    message: str
    packages: Mapping[str, ObjectName]
    aside: frozenset[str] = frozenset()

    @property
    def is_understood(self) -> bool:
        """Whether the Repository is known to be elsewhere or gone; else nothing is changed."""
        return self.reason in {Reason.MOVED, Reason.PLACE_GONE}


class RepositoryView(Struct, frozen=True):
    """A registered Repository and the content of its Git repository, or the rest of one that was registered.

    A skipped one has neither content nor problem.
    """

    key: ObjectName
    url: str
    """The normalized URL: its identity."""
    remote: str
    """Its address for Git."""
    branch: str
    directory: str
    manifest: Repository
    source: Source
    cluster: str = ""
    unavailable: OnUnavailable = OnUnavailable.FAIL
    head: Commit | None = None
    packages: Mapping[str, PackageState] = field(default_factory=dict)
    """By full path, without directories of more specific views (D19)."""
    root: PackageState | None = None
    """The package that the whole repository is. Variants may be made from it; it is no place for any."""
    directories: Mapping[str, Oid] = field(default_factory=dict)
    """Trees on main outside of packages."""
    files: frozenset[str] = frozenset()
    """Files on main outside of packages."""
    branches: Mapping[str, Commit] = field(default_factory=dict)
    tags: Mapping[str, Commit] = field(default_factory=dict)
    tag_objects: Mapping[Oid, Oid] = field(default_factory=dict)
    """The commits of annotated tags by the ids of their objects."""
    groups: tuple[GroupBranch, ...] = ()
    code_owners: str = ""
    """Text of CODEOWNERS on main, if it is used."""
    problem: Problem | None = None
    """Why it is unavailable: it has no content then, and nothing may be concluded from that."""
    broken: Mapping[str, Problem] = field(default_factory=dict)
    """Packages of which a bug of ours broke the reading: nothing may be concluded about them."""
    role: RepositoryRole = RepositoryRole.PLANNED
    former: Former | None = None
    """Set for one that is known from records alone: only their packages, a name that no other has."""

    @property
    def deployment(self) -> bool:
        """Whether packages are deployed: they get a package context, and readiness gates publishing."""
        return self.manifest.spec.deployment

    @property
    def is_available(self) -> bool:
        """Whether the repository was read."""
        return self.problem is None and self.role is not RepositoryRole.SKIPPED

    @property
    def is_planned(self) -> bool:
        """Whether the repository was read, and this run plans its packages."""
        return self.problem is None and self.role is RepositoryRole.PLANNED

    def problem_at(
        self, reason: Reason, message: Text, hint: Text = "", *path: str | int, cause: Text = ""
    ) -> Problem:
        """Return a problem of this repository, at a field of its manifest; by default at its URL."""
        where = self.source.at(*(path or ("spec", "git", "repo")))
        return Problem(where, reason, message, hint, cause=cause).owned_by(self.owner)

    @property
    def owner(self) -> ObjectKey:
        """The Repository object, as the owner of problems."""
        return _owner(self.key)

    @property
    def unread_message(self) -> str:
        """Why the repository could not be read; empty if it could."""
        return f"Repository {self.key} could not be read: {self.problem.message}" if self.problem else ""

    @property
    def is_unreachable(self) -> bool:
        """Whether it cannot be read now; any other problem is one of its manifest, or a bug of ours."""
        return self.problem is not None and self.problem.reason == Reason.REPOSITORY_UNAVAILABLE

    def require_read(self) -> None:
        """Raise why the repository was not read.

        Raises:
            ConfigurationError: Its manifest is wrong or refused: trying again does not help.
            UnavailableError: It cannot be reached.
        """
        if self.problem is None:
            return
        where, hint = self.problem.location, self.problem.hint
        if self.is_unreachable:
            raise UnavailableError(f"{where}: {self.unread_message}", hint=hint)
        raise ConfigurationError(self.unread_message, location=where, hint=hint)

    def full_path(self, package: str) -> str:
        """Return the path from the repository's root of a package of this view."""
        return _full_path(self.directory, package)

    def upstream_at(self, path: str) -> PackageState | None:
        """Return the package at a full path that variants may be made from: of "" the whole repository."""
        return self.packages.get(path) if path else self.root


class UnusableView(RepositoryView, frozen=True):
    """A view without content: a bug of ours broke the work on its repository, so no fact of it is asked."""

    @property
    def is_available(self) -> bool:
        """Never: nothing may be concluded about its packages."""
        return False

    is_planned = is_available

    def full_path(self, package: str) -> str:
        """Return the path from the repository's root of a package of this view."""
        return _full_path(self.directory, package)


def _full_path(directory: str, package: str) -> str:
    # kpt writes the package at the root as the directory /.
    path = "" if (path := package.strip("/")) == "." else path
    return f"{directory}/{path}" if directory and path else directory or path


def unusable(view: RepositoryView, error: DefectError) -> UnusableView:
    """Return the view of a repository that a bug of ours broke the work on."""
    identity = view.key, view.url, view.remote, view.branch, view.directory, view.manifest, view.source
    problem = defect_problem(error, view.source.location, _owner(view.key))
    return UnusableView(*identity, view.cluster, view.unavailable, problem=problem, role=view.role)


def _owner(key: ObjectName) -> ObjectKey:
    return ObjectKey(GROUP, "Repository", *key)


def available_by_url(views: Iterable[RepositoryView]) -> dict[str, list[RepositoryView]]:
    """Return the available views of each Git repository by its URL, in the order given."""
    by_url: dict[str, list[RepositoryView]] = {}
    for view in views:
        if view.is_available:
            by_url.setdefault(view.url, []).append(view)
    return by_url


def counted_views(views: Collection[RepositoryView]) -> list[RepositoryView]:
    """Return the views without refused ones of repositories that another view is of."""
    refused = {v.key: v.url for v in views if v.problem and v.problem.reason is Reason.REPOSITORY_REFUSED}
    used = {view.url for view in views if view.key not in refused}
    return [view for view in views if refused.get(view.key) not in used]


Unit = ObjectKey | ObjectName | PackageKey
"""A manifest, a record, a repository or a package: what a bug of ours may break the work on."""


def views_without(
    views: Mapping[ObjectName, RepositoryView], units: Mapping[Unit, DefectError]
) -> Mapping[ObjectName, RepositoryView]:
    """Return views without repositories and packages that a bug of ours breaks the work on."""
    some: dict[ObjectName, RepositoryView] = {}
    for name, view in views.items():
        if error := units.get(_owner(name)):
            some[name] = unusable(view, error)
            continue
        keys = {path: PackageKey(view.url, path) for path in view.packages}
        faults = {
            path: defect_problem(units[key], view.source.location, subject=f"package {path}")
            for path, key in keys.items()
            if key in units
        }
        packages = {path: package for path, package in view.packages.items() if path not in faults}
        some[name] = replace(view, packages=packages, broken={**view.broken, **faults}) if faults else view
    return some


class PullState(StrEnum):
    """State of a pull request."""

    OPEN = "open"
    CLOSED = "closed"
    MERGED = "merged"


class HeadStatus(NamedTuple):
    """Commit status of the head of a pull request: its name, whether it passed, and why."""

    name: str
    passed: bool
    text: str


class CheckState(StrEnum):
    """State of a check of a commit: a commit status, a check run or a job of a pipeline."""

    PASSED = "passed"
    SKIPPED = "skipped"
    PENDING = "pending"
    FAILED = "failed"


class PullRequest(PartlyCompared, frozen=True):
    """A pull request of any forge."""

    UNCOMPARED = frozenset({"changed"})

    head: str
    base: str
    title: str
    body: str
    draft: bool = True
    number: int = 0
    """0 before it is opened."""
    state: PullState = PullState.OPEN
    head_oid: str = ""
    labels: tuple[str, ...] = ()
    url: str = ""
    digest: str = ""
    """Checksum of all that our title and text were made of; empty if unknown or edited."""
    redraft: bool = False
    """Makes an open one a draft again."""
    closed: int = 0
    """When it was closed, in seconds; 0 if unknown."""
    unreadable: str = ""
    """Why only number and head (or an empty head) are known."""
    reviewers: tuple[str, ...] = ()
    """Asked once each, and never read; teams as `owner/team`."""
    assignees: tuple[str, ...] = ()
    """Asked once each, and never read."""
    auto_merge: str = ""
    """The head that the forge merges by itself."""
    is_dropped: bool = False
    """Whether the forge gave that up."""
    changed: int = 0
    """In seconds; not compared."""
    difference: str = ""
    """Address of its changes."""
    status: HeadStatus | None = None
    """Status of its head."""
    proposes: str = ""
    """Package tree of its text."""
    ticks: Ticks | None = None
    """Boxes ticked by people with write access; None if unknown."""


class PullRequests(tuple[PullRequest, ...]):  # noqa: SLOT001 - the index is kept in its dictionary
    """The pull requests of one repository, which may be thousands, found by their heads."""

    @classmethod
    def of(cls, pulls: Iterable[PullRequest]) -> "PullRequests":
        """Return the pull requests with their index; what has one already is returned as it is."""
        return pulls if isinstance(pulls, cls) else cls(pulls)

    def at(self, head: str) -> tuple[PullRequest, ...]:
        """Return those of one branch, in the order of all."""
        return self._by_head.get(head, ())

    def below(self, prefix: str) -> Iterator[PullRequest]:
        """Yield those of all branches that start with a prefix, sorted by branch."""
        heads = self._heads
        for index in range(bisect_left(heads, prefix), len(heads)):
            if not heads[index].startswith(prefix):
                return
            yield from self._by_head[heads[index]]

    @cached_property
    def _by_head(self) -> dict[str, tuple[PullRequest, ...]]:
        by_head: dict[str, list[PullRequest]] = {}
        for pull in self:
            by_head.setdefault(pull.head, []).append(pull)
        return {head: tuple(pulls) for head, pulls in by_head.items()}

    @cached_property
    def _heads(self) -> list[str]:
        return sorted(self._by_head)


def unreadable_problem(where: Location, repository: str, pull: PullRequest) -> Problem:
    """Return the problem of one pull request that cannot be read."""
    about = f"; the package of its branch {pull.head} is kept as it is" if pull.head else ""
    message = f"Pull request {pull.number} of {repository} cannot be read: {pull.unreadable}{about}"
    ref = f"refs/reconciler/pulls/{pull.number}"
    hint = f"Use the version that wrote it. If nothing needs it, delete it: locally it is ref {ref}."
    return Problem(where, Reason.PULL_REQUEST_UNREADABLE, message, hint)


class Control(Struct, frozen=True):
    """The control repository at the commit that is read."""

    url: str
    remote: str
    commit: Commit
    branch: str = ""
    state: Oid | None = None
    status: Oid | None = None
    readable: bool = True
    """Whether every manifest path could be read."""
    broken: frozenset[str] = frozenset()
    """Files with errors, or no manifests any more: their variants are kept."""
    removed: Mapping[ObjectKey, Removal] = field(default_factory=dict)
    """Commits that removed the manifests of recorded variants."""
    unproven: Mapping[ObjectKey, str] = field(default_factory=dict)
    """Why no such commit is known of others."""
    before: Mapping[tuple[ObjectName, PackageKey], PackageVariantSpec] | None = None
    """Specs of variants where this commit left the applied one, by package; None if it has that."""
    standing: Standing = Standing()
    published: bool = True
    """Whether everybody's branch has `commit`."""


class LockBranch(Struct, frozen=True):
    """The branch that proposes another lock."""

    tip: Commit
    files: Files
    """The lock there."""
    edited_files: frozenset[str] = frozenset()
    """Files that people changed."""
    has_foreign_commits: bool = False
    foreign_commit_time: int = 0
    """Time of the newest foreign commit, in seconds."""
    behind: frozenset[str] = frozenset()
    """Files that main changed since the branch was left."""
    only_locks: bool = True
    """Whether people changed no other files there."""

    @property
    def renews(self) -> bool:
        """Whether it should start from main as it is now, and can without undoing what people did on it."""
        return bool(self.behind) and self.only_locks and not self.behind & self.edited_files


class ReviewedLock(Struct, frozen=True):
    """The lock on main of the control repository (`lock.mode: reviewed`)."""

    base: str = ""
    """The branch that it changes on."""
    computed_tree: Oid | None = None
    """Tree of the lock that the last run computed."""
    files: Files = field(default_factory=dict)
    """All files of the lock by path below its directory."""
    pins: Mapping[ObjectName, UpstreamLock] = field(default_factory=dict)
    """Pins of upstreams."""
    broken: frozenset[ObjectName] = frozenset()
    """Variants with unreadable files, which must not move."""
    branch: LockBranch | None = None
    is_open: bool = True
    """Whether a pull request may be proposed: those of the control repository are known."""
    problems: tuple[Problem, ...] = ()


class RecordedStatus(NamedTuple):
    """The status of a package that the last run recorded; `since` in seconds, `head` is its branch."""

    phase: str
    since: int = 0
    head: str = ""
    message: str = ""
    repository: str = ""
    reason: str = ""


class TreeAt(NamedTuple):
    """A package path at one commit of a repository."""

    url: str
    commit: Oid
    path: str


class Trust(Struct, frozen=True):
    """Verified revisions of one repository: those signed with the keys of its rule in `spec.verify`.

    `tags` are the verified ones by short name and commit; `faults` tell why others are not. `older` are the
    tagged commits that each locked commit contains.
    """

    tags: frozenset[tuple[str, Oid]] = frozenset()
    faults: Mapping[tuple[str, Oid], str] = field(default_factory=dict)
    older: Mapping[Oid, frozenset[Oid]] = field(default_factory=dict)

    def has(self, commit: Oid) -> bool:
        """Tell whether a commit is verified, under any name."""
        return any(oid == commit for _, oid in self.tags)


class Opening(NamedTuple):
    """State of the schedule of pull requests: whether it is open, and the local time of its next start."""

    is_open: bool = True
    opens: str = ""


ALWAYS_OPEN = Opening()
_NO_PULLS = PullRequests()


class Inventory(Struct, frozen=True, dict=True):  # not a struct: it keeps an index
    """Everything that one run read. Mappings may be in any order, tuples are sorted by identity."""

    policy: Policy
    control: Control
    variants: tuple[Sourced[PackageVariant], ...] = ()
    sets: tuple[Sourced[PackageVariantSet], ...] = ()
    stalled: frozenset[ObjectKey] = frozenset()
    """Owners with invalid manifests."""
    claims: Mapping[ObjectName, tuple[str, str]] = field(default_factory=dict)
    """The downstreams, as repository and package, that stalled owners name."""
    repositories: Mapping[ObjectName, RepositoryView] = field(default_factory=dict)
    former: Mapping[ObjectName, RepositoryView] = field(default_factory=dict)
    """Places of records without a registered Repository: nothing is made there any more (D36)."""
    snapshot: Snapshot = field(default_factory=Snapshot)
    records: Mapping[ObjectName, PackageVariantRecord] = field(default_factory=dict)
    """Packages that the last run recorded."""
    set_records: Mapping[ObjectName, SetRecord] = field(default_factory=dict)
    """Sets that the last run recorded."""
    rollouts: Mapping[RolloutKey, RolloutRecord] = field(default_factory=dict)
    """Rollouts that the last run recorded."""
    unchanged: Mapping[ObjectName, str] = field(default_factory=dict)
    """Upstream revisions at which rendering found that main has all that a variant asks for."""
    broken_records: Mapping[ObjectName, Problem] = field(default_factory=dict)
    """Records that a bug of ours cannot read: they stay, and so does all that they are about."""
    refused: RefusedDeletionsRecord | None = NOTHING_REFUSED
    """Deletions that wait for consent; None if unreadable: then every deletion needs consent."""
    statuses: Mapping[ObjectName, RecordedStatus] = field(default_factory=dict)
    """Statuses that the last run recorded."""
    pulls: Mapping[str, tuple[PullRequest, ...]] = field(default_factory=dict)
    """Answers of forges, by URL."""
    histories: Mapping[str, PullHistory] = field(default_factory=dict)
    """Ended pull requests to record, by URL."""
    is_history_due: bool = False
    """Whether histories are to be recorded at once."""
    unreadable_pulls: Mapping[str, tuple[PullRequest, ...]] = field(default_factory=dict)
    trees: Mapping[TreeAt, Oid] = field(default_factory=dict)
    """Packages at commits without a revision."""
    times: Mapping[Oid, int] = field(default_factory=dict)
    """Times of locked commits."""
    earlier: Mapping[PackageKey, KptfileHeader | None] = field(default_factory=dict)
    """Kptfile of main before the revision that is rolled back; None if it came with that."""
    subpackages: Mapping[Oid, Mapping[str, KptfileHeader]] = field(default_factory=dict)
    """Sub-packages of trees."""
    locks: Mapping[ObjectName, UpstreamLock] = field(default_factory=dict)
    """The pins applied last."""
    reviewed: ReviewedLock | None = None
    """The lock on main; None if pins are not reviewed."""
    retry_requests: frozenset[str] = frozenset()
    """Keys of boxes ticked on the dashboard."""
    passed_checks: Mapping[tuple[str, str], frozenset[str]] = field(default_factory=dict)
    """By URL and commit."""
    other_checks: Mapping[tuple[str, str], Mapping[str, CheckState]] = field(default_factory=dict)
    """The state of each other check, by URL and commit."""
    documents: tuple[SourcedDocument, ...] = ()
    """Manifests of dependency dialects."""
    index: tuple[SourcedDocument, ...] = ()
    """Documents of the package index."""
    images: Mapping[str, str] = field(default_factory=dict)
    """Locked digests of function images."""
    opening: Opening = ALWAYS_OPEN
    """State of the schedule of pull requests."""
    now: int = 0
    """The time of the run; 0 if unused."""
    trust: Mapping[str, Trust] = field(default_factory=dict)
    """Verified revisions of each repository that a rule of `verify` names, by URL."""
    problems: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def is_partial(self) -> bool:
        """Whether this is the inventory of a shard that read a part of the fleet."""
        return any(view.role is RepositoryRole.SKIPPED for view in self.repositories.values())

    @cached_property
    def function_facts(self) -> Mapping[str, Any]:
        """How functions run as plain data, for the digests of packages; empty for the defaults."""
        functions = self.policy.functions
        return {} if functions == FunctionPolicy() else asdict(functions)

    @cached_property
    def tag_objects(self) -> Mapping[str, Oid]:
        """The commits of annotated tags of all repositories by the ids of their objects, which kpt writes."""
        return {tag: at for view in self.repositories.values() for tag, at in view.tag_objects.items()}

    @cached_property
    def hidden(self) -> Mapping[PackageKey, Problem]:
        """Packages that no stage may look at: broken ones, and those that share a group's branch."""
        hidden: dict[PackageKey, Problem] = {}
        for view in self.views.values():
            hidden |= {PackageKey(view.url, path): problem for path, problem in view.broken.items()}
            for group in view.groups:
                problems = [view.broken[path] for path in group.paths if path in view.broken]
                if problems:
                    hidden |= {PackageKey(view.url, path): problems[0] for path in group.paths}
        return hidden

    @property
    def declared(self) -> dict[ObjectKey, Sourced[Any]]:
        """The valid manifests of variants and sets."""
        every: tuple[Sourced[Any], ...] = (*self.variants, *self.sets)
        return {ObjectKey(GROUP, declared.manifest.kind, *declared.key): declared for declared in every}

    def units(self) -> Iterator[Unit]:
        """Yield what plans are made from; of units that break only together, the last is left out."""
        yield from self.declared
        yield from self.records
        yield from map(_owner, self.views)
        for view in self.views.values():
            yield from (PackageKey(view.url, path) for path in view.packages)

    def without(self, units: Mapping[Unit, DefectError]) -> "Inventory":
        """Return the inventory without units that a bug of ours breaks the work on: what is theirs stays."""
        if not units:
            return self
        broken = {key: declared for key, declared in self.declared.items() if key in units}
        gone = {id(declared) for declared in broken.values()}
        claims = {
            key.object_name: (downstream.repo or "", downstream.package or "")
            for key, declared in broken.items()
            if (downstream := getattr(declared.manifest.spec, "downstream", None)) is not None
        }
        problems = [defect_problem(units[key], unit.source.location, key) for key, unit in broken.items()]
        records = {
            name: defect_problem(
                units[name], Location(record.manifest), ObjectKey(GROUP, "PackageVariant", *name)
            )
            for name, record in self.records.items()
            if name in units
        }
        return replace(
            self,
            variants=tuple(variant for variant in self.variants if id(variant) not in gone),
            sets=tuple(variant_set for variant_set in self.sets if id(variant_set) not in gone),
            stalled=self.stalled | broken.keys(),
            claims={**self.claims, **claims},
            records={key: record for key, record in self.records.items() if key not in records},
            broken_records={**self.broken_records, **records},
            repositories=views_without(self.repositories, units),
            former=views_without(self.former, units),
            problems=tuple(sorted((*self.problems, *problems, *records.values()))),
        )

    @cached_property
    def views(self) -> Mapping[ObjectName, RepositoryView]:
        """The registered and the former views, each under a name of its own."""
        return {**self.repositories, **self.former}

    def label(self, repository: ObjectName) -> str:
        """Return how people name a Repository: with its namespace where another place has its name, too."""
        return str(repository) if repository.name in self.shared_names else repository.name

    @cached_property
    def shared_names(self) -> frozenset[str]:
        """Names that Repositories of several namespaces have, for several places."""
        places: dict[str, set[tuple[str, str]]] = {}
        for view in self.views.values():
            places.setdefault(view.key.name, set()).add((view.url, view.directory))
        return frozenset(name for name, of_name in places.items() if len(of_name) > 1)

    def views_of(self, url: str) -> tuple[RepositoryView, ...]:
        """Return the views of one Git repository, former ones too, most specific directory first."""
        return self._views_by_url.get(url, ())

    def unregistered_hint(self, key: ObjectName, register: str) -> str:
        """Return the next step for a Repository that is not there, as one with an invalid manifest."""
        return f"Correct the manifest of Repository {key}." if _owner(key) in self.stalled else register

    def view_of(self, package: PackageKey) -> RepositoryView | None:
        """Return the one view that a package is named and judged by, None if no Repository has its place.

        A Repository that is not understood keeps its packages, also from one that is registered around it.
        """
        former = self._former_by_package.get(package)
        if former is not None and former.former is not None and not former.former.is_understood:
            return former
        above = (package.path, *reversed(parent_directories(package.path)), "")
        nearest = (view for d in above if (view := self._registered_by_directory.get((package.url, d))))
        return next(nearest, former)

    @cached_property
    def _former_by_package(self) -> Mapping[PackageKey, RepositoryView]:
        former = [(view, view.former) for view in self.former.values() if view.former is not None]
        return {
            PackageKey(view.url, path): view
            for view, why in sorted(former, key=lambda row: not row[1].is_understood)
            for path in why.packages.keys() - why.aside
        }

    @cached_property
    def _registered_by_directory(self) -> Mapping[tuple[str, str], RepositoryView]:
        views = sorted(counted_views(self.repositories.values()), key=lambda v: v.key, reverse=True)
        return {(view.url, view.directory): view for view in views}

    def pulls_of(self, url: str) -> PullRequests:
        """Return the pull requests of one Git repository."""
        return self._pulls_by_url.get(url, _NO_PULLS)

    @cached_property
    def _pulls_by_url(self) -> Mapping[str, PullRequests]:
        return {url: PullRequests.of(pulls) for url, pulls in self.pulls.items()}

    @cached_property
    def _views_by_url(self) -> Mapping[str, tuple[RepositoryView, ...]]:
        by_url: dict[str, list[RepositoryView]] = {}
        views = counted_views(self.views.values())
        for view in sorted(views, key=lambda v: (-len(v.directory), v.key)):
            by_url.setdefault(view.url, []).append(view)
        return {url: tuple(views) for url, views in by_url.items()}


_UNSAFE = regex(r"[<>\x00-\x1f\x7f]")
"""Characters that end the name or email in a commit object."""


def repository_commits(views: Iterable[RepositoryView], commits: CommitPolicy) -> CommitPolicy:
    """Return how commits are made to the one repository that the views are of. Order-free.

    An email alone is the name too; where a Repository names neither, the author is the committer.

    Source: porch pkg/externalrepo/git, git.go, commit authors.
    """
    ordered = sorted(views, key=lambda view: (-len(view.directory), view.key))
    return dataclasses.replace(commits, authors=tuple(_authors(ordered)))


def _authors(views: Iterable[RepositoryView]) -> Iterator[Author]:
    for view in views:
        git = view.manifest.spec.git
        name = _UNSAFE.sub("", git.author).strip() if git else ""
        email = _UNSAFE.sub("", git.email).strip() if git else ""
        if name or email:
            yield Author(view.directory, name or email, email)
