"""All that the core may know: one immutable value that `read` fills and nothing else changes."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import chain
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from reconciler.api.kptfile import KptfileHeader
from reconciler.api.porch import PackageVariant, PackageVariantSet, Repository, Upstream
from reconciler.errors import Location, Problem
from reconciler.ids import Lifecycle, ObjectKey, ObjectName, Oid
from reconciler.lock import UpstreamLock
from reconciler.objects import Files
from reconciler.policy import OnUnavailable, Policy
from reconciler.reasons import Reason
from reconciler.refs import is_group
from reconciler.snapshot import Snapshot
from reconciler.state import NOTHING_REFUSED, PackageVariantRecord, RefusedDeletionsRecord, SetRecord
from reconciler.trailers import NO_ANSWERS, Answers

M = TypeVar("M")
FieldPath = tuple[str | int, ...]


class FieldMarks(Protocol):
    """What a parsed document knows about places."""

    def mark(self, path: FieldPath) -> tuple[int, int]:
        """Return line and column, from 1, of the value at `path` or of its nearest existing ancestor."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where one manifest or object stands, and when it last changed.

    `time` is the committer time of the commit that last touched its file, in seconds.
    """

    location: Location
    time: int = 0
    marks: FieldMarks | None = field(default=None, compare=False, repr=False)

    def at(self, *path: str | int) -> Location:
        """Return the place of one field; without marks, the place of the manifest."""
        if self.marks is None:
            return self.location
        return Location(self.location.path, *self.marks.mark(path))

    def inside(self, offset: int, *path: str | int) -> Location:
        """Return the place of one character of a field's text, as near as the marks know it."""
        find = getattr(self.marks, "mark_inside", None)
        return Location(self.location.path, *find(path, offset)) if find else self.at(*path)


@dataclass(frozen=True, slots=True)
class Sourced(Generic[M]):
    """A manifest and where it came from. Its namespace is filled in, never empty."""

    key: ObjectName
    manifest: M
    source: Source


def declared_upstreams(
    *manifests: Iterable[Sourced[PackageVariant] | Sourced[PackageVariantSet]],
) -> Iterator[tuple[ObjectName, Upstream]]:
    """Yield the upstream of every PackageVariant and PackageVariantSet that has one, with its owner."""
    for declared in chain.from_iterable(manifests):
        if declared.manifest.spec.upstream is not None:
            yield declared.key, declared.manifest.spec.upstream


@dataclass(frozen=True, slots=True)
class SourcedDocument:
    """A document that a later stage understands, and where it stands; its kind says what it means."""

    value: Mapping[str, Any]
    source: Source


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit: its id and committer time in seconds."""

    oid: Oid
    time: int


@dataclass(frozen=True, slots=True)
class PackageRevision:
    """A published revision: a tag F/vN, or another tag of the package (revision -1)."""

    path: str
    workspace: str
    revision: int
    lifecycle: Lifecycle
    ref: str
    commit: Commit
    tree: Oid


@dataclass(frozen=True, slots=True)
class Draft:
    """A draft or proposal branch of one package.

    `written` is the package tree of our newest commit on the branch, None if none of its
    commits is ours; the draft is edited by a person iff `tree != written`. `foreign` tells
    whether commits of others stand on the branch above its base, `base_tree` is the package
    on main where the branch left it (None: the package was not there). `answers` are what its
    commits say about conflicts. `has_more` tells that the branch changes more than the package,
    `behind` that main changed at the package's path since, whether a package is there or plain files.
    """

    path: str
    workspace: str
    lifecycle: Lifecycle
    ref: str
    tip: Commit
    tree: Oid
    header: KptfileHeader
    base: Oid
    base_tree: Oid | None
    written: Oid | None = None
    has_foreign_commits: bool = False
    foreign_commit_time: int = 0
    answers: Answers = NO_ANSWERS
    has_more: bool = False
    behind: bool = False

    @property
    def is_edited(self) -> bool:
        """Whether a person changed the package since we last wrote it."""
        return self.tree != self.written

    @property
    def append_only(self) -> bool:
        """Whether the package on this branch is a person's too, so that we may only add to it.

        On a branch of its own that is any commit of others; in a group only one that changed this package.
        """
        return self.is_edited or (self.has_foreign_commits and not self.is_grouped)

    @property
    def is_grouped(self) -> bool:
        """Whether the branch holds drafts of other packages too."""
        return is_group(self.ref)


@dataclass(frozen=True, slots=True)
class GroupBranch:
    """A branch of ours that holds the drafts of several packages (D4).

    `paths` are the packages that our commits on it name, `dropped` those of them that a person took
    out of it. `foreign` tells whether commits of others stand on it, so that we may only append;
    the newest was made at `foreign_commit_time`, in seconds. `merged` tells that main has all of it.
    """

    ref: str
    tip: Commit
    paths: tuple[str, ...]
    dropped: frozenset[str] = frozenset()
    has_foreign_commits: bool = False
    foreign_commit_time: int = 0
    merged: bool = False


@dataclass(frozen=True, slots=True)
class UnpublishedRevision:
    """A state on main's first parents that no tag names; `workspaces` are as its commit says, by number."""

    commit: Commit
    tree: Oid
    header: KptfileHeader
    workspaces: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DeletionBranch:
    """Our branch that proposes to delete a package: its tip, and the package where it left main.

    `foreign` tells whether commits of others stand on it.
    """

    tip: Commit
    base_tree: Oid | None = None
    has_foreign_commits: bool = False


@dataclass(frozen=True, slots=True)
class PackageState:
    """One package of one repository view: main, drafts, published revisions.

    It exists iff `main_tree` is set or `drafts` is not empty; tags alone are history.
    """

    path: str
    main_tree: Oid | None = None
    main_header: KptfileHeader | None = None
    drafts: tuple[Draft, ...] = ()
    published: tuple[PackageRevision, ...] = ()
    unpublished: tuple[UnpublishedRevision, ...] = ()
    deletion: DeletionBranch | None = None

    @property
    def exists(self) -> bool:
        """Whether the package exists: on main, as a draft or as a proposal."""
        return self.main_tree is not None or bool(self.drafts)

    @property
    def latest(self) -> PackageRevision | None:
        """The published revision with the greatest number, if any."""
        numbered = [r for r in self.published if r.revision > 0]
        return max(numbered, key=lambda r: r.revision, default=None)


@dataclass(frozen=True, slots=True)
class RepositoryView:
    """A registered Repository and what its Git repository held.

    `url` is normalised (the identity); `remote` is what git is called with. `packages` is keyed
    by the full path F and excludes directories of more specific views (D19). `directories` and
    `files` are what main has outside of packages, by full path. An unavailable repository has
    `problem` set and no content, and nothing about it may be concluded.
    """

    key: ObjectName
    url: str
    remote: str
    branch: str
    directory: str
    manifest: Repository
    source: Source
    cluster: str = ""
    unavailable: OnUnavailable = OnUnavailable.FAIL
    head: Commit | None = None
    packages: Mapping[str, PackageState] = field(default_factory=dict)
    directories: Mapping[str, Oid] = field(default_factory=dict, repr=False)
    files: frozenset[str] = field(default=frozenset(), repr=False)
    branches: Mapping[str, Commit] = field(default_factory=dict)
    tags: Mapping[str, Commit] = field(default_factory=dict)
    groups: tuple[GroupBranch, ...] = ()
    problem: Problem | None = None

    @property
    def deployment(self) -> bool:
        """Whether packages here are deployed: they get a package context and readiness gates publishing."""
        return self.manifest.spec.deployment

    @property
    def is_available(self) -> bool:
        """Whether the repository could be read."""
        return self.problem is None

    def full_path(self, package: str) -> str:
        """Return F for a package name of this view."""
        return "/".join(part for part in (self.directory, package.strip("/")) if part)


class PullState(StrEnum):
    """State of a pull request."""

    OPEN = "open"
    CLOSED = "closed"
    MERGED = "merged"


@dataclass(frozen=True, slots=True)
class PullRequest:
    """A pull request as every forge has it; `number` 0 means not opened yet.

    `digest` stands for everything that its title and text were made of; "" where that is unknown, or our
    part of the text is not as we wrote it. `redraft` asks to turn one that is ready back into a draft.
    `closed` is when it was closed, in seconds, 0 where the forge does not say. `unreadable` says why
    nothing but number and head could be read of it; the head is "" where even that is not legible.
    """

    head: str
    base: str
    title: str
    body: str
    draft: bool = True
    number: int = 0
    state: PullState = PullState.OPEN
    head_oid: str = ""
    labels: tuple[str, ...] = ()
    url: str = ""
    digest: str = ""
    redraft: bool = False
    closed: int = 0
    unreadable: str = ""


def unreadable_problem(where: Location, repository: str, pull: PullRequest, subject: str = "") -> Problem:
    """Return the problem of one pull request that cannot be read."""
    about = f"; the package of its branch {pull.head} is kept as it is" if pull.head else ""
    message = f"Pull request {pull.number} of {repository} cannot be read: {pull.unreadable}{about}"
    hint = (
        f"Use the version that wrote it. If nothing needs it, delete it: on the local forge it is the ref "
        f"refs/reconciler/pulls/{pull.number}."
    )
    return Problem(where, Reason.PULL_REQUEST_UNREADABLE, message, hint, subject)


@dataclass(frozen=True, slots=True)
class Control:
    """The control repository: where manifests, snapshot and state come from.

    `readable` is False if any manifest path could not be read at all; `broken` are the files
    that did not parse, or are not read any more: what their manifests owned is kept. `removed` are
    files that declared a recorded variant and are gone, with the commit that removed each. `published`
    tells whether `commit` is on the branch as everybody else has it.
    """

    url: str
    remote: str
    commit: Commit
    branch: str = ""
    state: Oid | None = None
    status: Oid | None = None
    readable: bool = True
    broken: frozenset[str] = frozenset()
    removed: Mapping[str, Oid] = field(default_factory=dict)
    published: bool = True


@dataclass(frozen=True, slots=True)
class LockBranch:
    """The branch on which another lock is proposed, and the lock there.

    `edited` are the files that people changed on it, `foreign` tells whether commits of others stand
    on it, so that we may only append; the newest of them was made at `foreign_commit_time`, in seconds.
    """

    tip: Commit
    files: Files
    edited_files: frozenset[str] = frozenset()
    has_foreign_commits: bool = False
    foreign_commit_time: int = 0


@dataclass(frozen=True, slots=True)
class ReviewedLock:
    """The lock on main of the control repository, where it changes by pull request (`lock.mode: reviewed`).

    `base` is that branch, `computed_tree` the tree of the lock that the last run computed. `files` are all of
    the lock, by path below its directory; `pins` are those of upstreams in it. Nothing may move for a
    variant in `broken`: its file cannot be read. Where its pull requests are unknown it is not
    `is_open` to proposals.
    """

    base: str = ""
    computed_tree: Oid | None = None
    files: Files = field(default_factory=dict)
    pins: Mapping[ObjectName, UpstreamLock] = field(default_factory=dict)
    broken: frozenset[ObjectName] = frozenset()
    branch: LockBranch | None = None
    is_open: bool = True
    problems: tuple[Problem, ...] = ()


class RecordedStatus(NamedTuple):
    """Where the last run saw a package: phase, since when in seconds, on which branch, and why."""

    phase: str
    since: int = 0
    head: str = ""
    message: str = ""
    repository: str = ""


class TreeAt(NamedTuple):
    """A package path at one commit of a repository."""

    url: str
    commit: Oid
    path: str


@dataclass(frozen=True, slots=True)
class Inventory:
    """The world as one run sees it.

    Order-free: mappings may be in any order, tuples are sorted by identity. `pulls` is keyed by URL.
    `trees` are packages at commits that no package revision names: the upstreamLocks of downstream
    packages, tags of whole repositories, branches that variants follow, locked commits; `times` are
    committer times of the latter, in seconds. `locks` are the pins that were applied last, `reviewed` the
    lock on main, None where pins are not reviewed. `documents` are manifests of the dependency dialects,
    `index` those of the package index. `images` are the digests of function images in the lock.
    `refused` are the deletions that wait for consent, None where their record cannot be read: then every
    deletion needs consent. `statuses` are those that the last run recorded of the packages of variants.
    `claims` are the downstream repository and package that PackageVariants name which are not understood.
    """

    policy: Policy
    control: Control
    variants: tuple[Sourced[PackageVariant], ...] = ()
    sets: tuple[Sourced[PackageVariantSet], ...] = ()
    stalled: frozenset[ObjectKey] = frozenset()
    claims: Mapping[ObjectName, tuple[str, str]] = field(default_factory=dict)
    repositories: Mapping[ObjectName, RepositoryView] = field(default_factory=dict)
    snapshot: Snapshot = field(default_factory=Snapshot)
    records: Mapping[ObjectName, PackageVariantRecord] = field(default_factory=dict)
    set_records: Mapping[ObjectName, SetRecord] = field(default_factory=dict)
    refused: RefusedDeletionsRecord | None = NOTHING_REFUSED
    statuses: Mapping[ObjectName, RecordedStatus] = field(default_factory=dict)
    pulls: Mapping[str, tuple[PullRequest, ...]] = field(default_factory=dict)
    unreadable_pulls: Mapping[str, tuple[PullRequest, ...]] = field(default_factory=dict)
    trees: Mapping[TreeAt, Oid] = field(default_factory=dict)
    times: Mapping[Oid, int] = field(default_factory=dict)
    locks: Mapping[ObjectName, UpstreamLock] = field(default_factory=dict)
    reviewed: ReviewedLock | None = None
    retry_requests: frozenset[str] = frozenset()
    passed_checks: Mapping[tuple[str, str], frozenset[str]] = field(default_factory=dict)
    documents: tuple[SourcedDocument, ...] = ()
    index: tuple[SourcedDocument, ...] = ()
    images: Mapping[str, str] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()

    def views_of(self, url: str) -> Iterable[RepositoryView]:
        """Return the views of one Git repository, most specific directory first."""
        views = [v for v in self.repositories.values() if v.url == url]
        return sorted(views, key=lambda v: (-len(v.directory), v.key))
