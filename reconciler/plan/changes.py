"""A plan is a value: what every package will see, why, and the exact writes that do it."""

from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct, field

from reconciler.admission.judgement import AdmissionJudgement
from reconciler.api.meta import Condition
from reconciler.base.errors import Exit, Location, worst
from reconciler.base.reasons import Phase, Reason, WaitsFor
from reconciler.base.text import Text, join_texts
from reconciler.base.values import PartlyCompared
from reconciler.inventory.inventory import PullRequest
from reconciler.names.ids import ObjectKey, ObjectName, Oid, PackageKey
from reconciler.names.objects import Files
from reconciler.names.problems import Problem
from reconciler.names.refs import TAGS, short_branch
from reconciler.plan.impact import Impact, Loss
from reconciler.render.answers import Answer
from reconciler.render.rendered import FunctionFault
from reconciler.render.update import Conflict
from reconciler.resolve.dependency_roots import RequirementChange
from reconciler.resolve.rollout_model import Rollout

if TYPE_CHECKING:
    from reconciler.dependencies.lock.changes import VersionChange
    from reconciler.plan.context import PlanContext


class Op(StrEnum):
    """Operation on one package; every package has one, also if it is kept or blocked."""

    CREATE = "create"
    UPDATE = "update"
    EDIT = "edit"
    ADOPT = "adopt"
    TRANSFER = "transfer"
    PUBLISH = "publish"
    DELETE = "delete"
    ORPHAN = "orphan"
    CLOSE = "close"
    APPROVE = "approve"
    BLOCK = "block"
    KEEP = "keep"


class WriteDraft(Struct, frozen=True):
    """One commit on a draft branch: the tree of `onto` with `path` replaced by `files`.

    `expect` is the branch's oid that we saw (None: it must not exist). `onto` is the commit's
    first parent and gives the rest of the repository: main's head for a fresh single commit,
    the person's tip for one that is appended. `merges` is a second parent, main's head, which gives
    the rest then: an appended commit that takes main's change of the package into the branch.
    `time` is the newest input's (law 5), in seconds. `beside` are files elsewhere in the repository that the
    commit replaces.
    """

    ref: str
    expect: Oid | None
    onto: Oid
    path: str
    files: Files
    tree: Oid
    message: str
    time: int
    merges: Oid | None = None
    beside: Files = field(default_factory=dict)


class GroupPart(Struct, frozen=True):
    """One package in a group's commit; `tree` None removes it, `files` are empty where its tree is known."""

    path: str
    tree: Oid | None
    files: Files = field(default_factory=dict)


class WriteGroup(Struct, frozen=True):
    """One commit on a group's branch: the tree of `onto` with every part replaced (D4).

    The changes of all its packages hold the same value; it is written once.
    """

    ref: str
    expect: Oid | None
    onto: Oid
    parts: tuple[GroupPart, ...]
    message: str
    time: int


class WriteRemoval(Struct, frozen=True):
    """A branch with one commit on `onto` that removes `path`: a proposal of deletion."""

    ref: str
    expect: Oid | None
    onto: Oid
    path: str
    message: str
    time: int


class MoveRef(Struct, frozen=True):
    """Point a ref at a commit that exists (None deletes it), if it is still at `expect`."""

    ref: str
    expect: Oid | None
    to: Oid | None


class StartBranch(Struct, frozen=True):
    """The first commit of an empty repository, the parent of drafts in the same push.

    Every package of the repository that is new asks for the same one; it is made once. `oid` is
    its id, computed from the rest: `onto` of a draft on it.
    """

    ref: str
    files: Files
    oid: Oid
    message: str
    time: int
    expect: None = None


Write = WriteDraft | WriteGroup | WriteRemoval | MoveRef | StartBranch


class ClosePull(Struct, frozen=True):
    """Close a pull request that is obsolete and that no person touched.

    `duplicate_of` is the pull request of the same branch that stays, 0 where there is none.
    """

    number: int
    head: str
    comment: str
    duplicate_of: int = 0


class UpstreamCommits(NamedTuple):
    """Upstream commits of a pull request: main's, "" for none, and the one that it brings."""

    remote: str
    path: str
    before: str
    after: str


class PullRequestContent(Struct, frozen=True):
    """Content of the pull request of one package: the difference between main and the draft.

    `kind` is the operation as a whole, whatever the last run did. `edited` tells that a person committed to
    the draft, `is_back` that the upstream revision is an older one, `requested_by` the dependents of
    a package that no manifest declares. `is_moved` tells that its manifest asks for it at another
    place. `rollout` names the rollout and the wave, and why it is stopped.
    """

    kind: Op
    upstream_from: str = ""
    upstream_to: str = ""
    before: Oid | None = None
    after: Oid | None = None
    requested_by: tuple[str, ...] = ()
    edited: bool = False
    is_back: bool = False
    is_moved: bool = False
    upstream: UpstreamCommits | None = None
    rollout: str = ""


class Approval(NamedTuple):
    """The merge of a pull request by policy, only while its head is still `expect` (D14).

    With `by_forge` the forge merges by itself, once its rules and checks are met.
    """

    number: int
    head: str
    expect: str
    by_forge: bool = False


class ApprovalState(Struct, frozen=True):
    """The merge of a pull request by policy, or `why` it waits instead: for checks, or else for a person."""

    approve: Approval | None = None
    why: str = ""
    reason: Reason = Reason.AWAITING_CHECKS


class SubpackageNote(NamedTuple):
    """A sub-package with an upstream of its own: its directory, where it is from, and its revision there.

    `before` is the revision that main has, if the change brings another one, `newer` the latest one if that
    is newer.
    """

    path: str
    repository: str
    package: str
    before: str
    revision: str
    newer: str = ""

    @property
    def move(self) -> str:
        """The revision, or both where it changes."""
        return f"{self.before} -> {self.revision}" if self.before else self.revision

    @property
    def text(self) -> str:
        """The sub-package as a line: `sub-package infra/db: db/v1 of catalog; db/v3 is newer`."""
        newer = f"; {self.newer} is newer" if self.newer else ""
        return f"sub-package {self.path}: {self.move} of {self.repository}{newer}"


class Postponed(NamedTuple):
    """Why a pull request is not opened yet, in words that stay while it waits, and when that ends."""

    reason: Reason
    message: Text
    opens: str = ""

    @property
    def when(self) -> Text:
        """The message, with the time at which the schedule opens."""
        return f"{self.message}; it opens at {self.opens}" if self.opens else self.message


class DraftFacts(Struct, frozen=True, kw_only=True):
    """Facts about the content that a package should have.

    `conflicts` wait for a person, `answers` do not any more. `unready` is what keeps the draft from being
    approved where gates hold: unmet readiness gates, and first a pipeline that has `failed`. `warnings` are
    those of the functions that made it in this run, `faults` its functions that failed or cannot run,
    `subpackages` those with an upstream of their own.
    """

    upstream_from: str = ""
    upstream_to: str = ""
    ready: bool = False
    conflicts: tuple[Conflict, ...] = ()
    answers: tuple[Answer, ...] = ()
    unready: tuple[Text, ...] = ()
    failed: bool = False
    faults: tuple[FunctionFault, ...] = ()
    warnings: tuple[Text, ...] = ()
    overwritten: tuple[Text, ...] = ()
    """Of the warnings those about edits of people that a function writes over."""
    subpackages: tuple[SubpackageNote, ...] = ()
    judgements: tuple[AdmissionJudgement, ...] = ()
    """Answers of its cluster; a refusal is among `unready`, too."""

    @property
    def refusals(self) -> tuple[Text, ...]:
        """The objects that its cluster would refuse, each with the reason."""
        return tuple(judgement.text for judgement in self.judgements if judgement.is_refusal)


class After(Struct, frozen=True):
    """State of a package once the effects of its change are done."""

    phase: Phase | None = None
    """None where nothing of ours is left."""
    reason: str = ""
    why: Text = ""
    waits_for: WaitsFor = WaitsFor.NOBODY
    head: str = ""
    """The branch that waits for people, short: its draft, the group's, or what proposes its deletion."""
    has_draft: bool = False
    revision: str = ""
    """The PackageRevision that the variant is about, as Porch calls it; "" for none."""
    since: int = 0
    """Time of what brought it there: the forge's, else what was recorded for this phase and head."""


class Change(DraftFacts, frozen=True):
    """Change of one package, with the reason and the exact writes.

    `repository` is the view it is shown under. `tree` is that of the package that the change
    results in. `writes` go in one atomic push per repository, `pull` and `close` follow. `waits` tells that a
    person must act (exit 7). `group` is the head, short, of the group that its draft is in after the change,
    "" for a draft of its own; `pull` is the group's then. `approve` merges its pull request by policy.
    `request` is what its pull request proposes as a whole, None where it has none or its content is
    unknown. `repair` describes a correction of the pull request alone; it is gone with the run, so
    conditions and statuses do not repeat it. `pins` are those that move in this run for the cluster of
    its generated manifests, `requirements` what its new upstream revision requires differently. `postponed`
    tells that a limit or the schedule keeps its pull request from being opened. `after` is the state that
    the change leaves. `impact` is the difference
    of its draft from main if this run writes it, None where that is not known. `losses` are the objects of
    its cluster that go when its proposal is merged.
    """

    package: PackageKey
    repository: ObjectName
    op: Op
    reason: Reason
    message: Text = ""
    variant: ObjectName | None = None
    location: Location | None = None
    before: Oid | None = None
    tree: Oid | None = None
    writes: tuple[Write, ...] = ()
    pull: PullRequest | None = None
    close: tuple[ClosePull, ...] = ()
    waits: bool = False
    group: str = ""
    approve: Approval | None = None
    pins: "tuple[VersionChange, ...]" = ()
    requirements: tuple[RequirementChange, ...] = ()
    impact: Impact | None = None
    losses: tuple[Loss, ...] = ()
    request: PullRequestContent | None = None
    repair: Text = ""
    postponed: Postponed | None = None
    after: After = After()

    @property
    def verdicts(self) -> tuple[AdmissionJudgement, ...]:
        """The judgements, with what merging the proposal destroys."""
        return (*self.judgements, *(loss.judgement for loss in self.losses if loss.needs_consent))

    @property
    def detail(self) -> str:
        """The message, and the correction of the pull request."""
        return join_texts("; ", (self.message, self.repair))

    @property
    def own_names(self) -> tuple[str, ...]:
        """Names of the package, its repository and its owner, by which equal differences may differ."""
        path = self.package.path
        names = (path, path.rpartition("/")[2], self.repository.name)
        return (*names, self.variant.name) if self.variant else names

    @property
    def written(self) -> WriteDraft | GroupPart | None:
        """The package as its draft has it after the change; None if its draft stays as it is."""
        for write in reversed(self.writes):
            if isinstance(write, WriteDraft):
                return write
            if isinstance(write, WriteGroup) and short_branch(write.ref) == self.group:
                return next((part for part in write.parts if part.path == self.package.path), None)
        return None

    @property
    def removed(self) -> frozenset[str]:
        """The refs that applying this change deletes."""
        return frozenset(write.ref for write in self.writes if getattr(write, "to", "") is None)

    @property
    def is_merged(self) -> bool:
        """Whether applying this change merges the pull request of the package."""
        return self.approve is not None and not self.approve.by_forge

    @property
    def pending(self) -> bool:
        """Whether applying this change writes anything."""
        return bool(self.writes or self.close or self.pull or self.approve)


class PinChange(NamedTuple):
    """One pin that a lock changes: of what, from where and to where ("" for nowhere), and why."""

    what: str
    before: str
    after: str
    why: str


class UpstreamPinChange(PinChange):
    """The pin of the upstream of a PackageVariant that a lock changes."""

    __slots__ = ()


class LockProposal(Struct, frozen=True):
    """Another lock for main of the control repository, as a pull request (`lock.mode: reviewed`).

    `change` is that of its branch and pull request, `pins` are the pins that merging it changes. `edited`
    are the files that people wrote on the branch; they stay as they are. `losses` go with what it drops.
    """

    change: Change
    pins: tuple[PinChange, ...] = ()
    edited: tuple[str, ...] = ()
    losses: tuple[Loss, ...] = ()


class Refusal(Struct, frozen=True):
    """Effects that need consent; the rest proceeds (D17).

    `consent` is what a person writes into the configuration to allow exactly these, `packages` those that it
    is about where they are few.
    """

    reason: Reason
    message: str
    hint: str
    consent: str = ""
    packages: frozenset[PackageKey] = frozenset()


def _not_divided(_: Collection[PackageKey]) -> "Plan":
    raise NotImplementedError("this plan was not built from a context")


class Approvable(NamedTuple):
    """Readiness of a branch: `conflicts` and `unmet` gates forbid approval, `lenient` gates do not.

    `failures` are the gates that are about functions. `unfinished` are the drafts that a run must make anew
    from the answers of people, `edited` the branch, for each draft with failures that people committed to.
    """

    conflicts: tuple[str, ...] = ()
    unmet: tuple[str, ...] = ()
    lenient: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()
    unfinished: tuple[str, ...] = ()
    edited: tuple[str, ...] = ()

    @property
    def against(self) -> tuple[str, ...]:
        """Everything that forbids approval."""
        return self.conflicts + self.unmet + self.unfinished

    @property
    def strict(self) -> "Approvable":
        """The same where gates hold."""
        return self._replace(unmet=self.unmet + self.lenient, lenient=())

    @property
    def hint(self) -> str:
        """The next steps of a person that make approval possible."""
        steps = (
            ["Answer the conflicts with reconciler answer, or in the pull request."] if self.conflicts else []
        )
        if not frozenset(self.failures).isdisjoint(self.unmet):
            committed = f"what people committed to {self.edited[0]}, or " if self.edited else ""
            steps.append(f"Correct {committed}the pipeline or its inputs, and run `reconciler apply`.")
        elif self.unmet:
            steps.append("Meet each condition: it is read from status.conditions of the draft's Kptfile.")
        if self.unfinished:
            steps.append("Run `reconciler apply`, and then approve.")
        return " ".join(steps)


APPLY_ENDS_IT = "Run `reconciler apply`: it brings the pull request up to date or closes it."


class Objection(NamedTuple):
    """An objection to a pull request that only its name approves: `who` left it, and the other `way`.

    Without `who`, `step` comes next. Of several the first in `order` counts.
    """

    order: tuple[int, int]
    what: str
    who: str = ""
    way: str = ""
    step: str = APPLY_ENDS_IT


class Plan(PartlyCompared, frozen=True):
    """The plan of the whole fleet; nothing changes it after it was built.

    Total: every package of every repository that a variant targets, or that carries our annotation, has
    exactly one change. Sorted by identity. `records` and `status` are the files of the state and status
    branches after the plan is applied; `record_owners` are the packages that the former are about, `locks`
    are those of them with pins. A record stays as it was if writing its package fails. `other_files` are
    the files of both branches that other shards write, None without shards. `lock` proposes other pins for
    a reviewed lock, `version_changes` is what locks decide anew, `rollouts` are the new revisions on their
    way. `conditions` and `status` expect every effect to be done; `context` is what they are computed from
    again after the effects. `other_status`
    are the files of `status` that are about no owner, None if they are not known apart. Without `has_pins`
    no upstream pin is among them. `applied` is the control commit that counts as applied after it.
    `without` returns the plan as it is reported and recorded without some packages. `losses` are those of its
    changes, and of what leaves the locks. `unjudged` is what nothing is known about, once for each cluster.
    `approvable` is by URL and branch; `objections` are by number, too,
    where only the pull request is known.
    """

    UNCOMPARED = frozenset({"context", "without"})

    changes: tuple[Change, ...] = ()
    problems: tuple[Problem, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    conditions: Mapping[ObjectKey, tuple[Condition, ...]] = field(default_factory=dict)
    records: Mapping[str, bytes] = field(default_factory=dict)
    locks: Mapping[str, bytes] = field(default_factory=dict)
    record_owners: Mapping[str, PackageKey] = field(default_factory=dict)
    status: Mapping[str, bytes] = field(default_factory=dict)
    other_status: Mapping[str, bytes] | None = None
    exits: frozenset[Exit] = frozenset()
    checksum: str = ""
    notes: tuple[Text, ...] = ()
    lock: LockProposal | None = None
    version_changes: "tuple[VersionChange, ...]" = ()
    rollouts: tuple[Rollout, ...] = ()
    losses: tuple[Loss, ...] = ()
    unjudged: tuple[AdmissionJudgement, ...] = ()
    approvable: Mapping[tuple[str, str | int], Approvable] = field(default_factory=dict)
    objections: Mapping[tuple[str, str | int], Objection] = field(default_factory=dict)
    other_files: Container[str] | None = None
    has_pins: bool = True
    applied: Oid | None = None
    context: "PlanContext | None" = None
    without: "Callable[[Collection[PackageKey]], Plan]" = _not_divided

    @property
    def all_changes(self) -> tuple[Change, ...]:
        """Every change that applying makes: of packages, and of the lock that is proposed."""
        return (*self.changes, self.lock.change) if self.lock else self.changes

    @property
    def is_empty(self) -> bool:
        """Whether applying writes nothing but what it observed: no package, no lock, no proposal of one."""
        return not self.version_changes and not any(change.pending for change in self.all_changes)


class Unfinished(NamedTuple):
    """Why the effects of one package were not all done.

    `pushed` tells that its refs moved as planned and only calls of its forge are missing; `is_left` that
    nothing failed and the next run goes on: a budget was spent, or the run was asked to end. `refused` is
    when the forge refused a merge by policy, 0 if it did not, `changed` when its pull request last changed.
    """

    message: Text = ""
    hint: Text = ""
    pushed: bool = False
    is_left: bool = False
    refused: int = 0
    changed: int = 0


class Effect(Struct, frozen=True):
    """One thing that apply did or could not do, in order.

    `error` is the reason why it was not done and `hint` the next step; `is_left` tells that nothing failed: a
    budget was spent or the run was asked to end, and the next run goes on. `cause` is the part of the error
    that other effects of the same cause share.
    """

    repository: str
    what: str
    ref: str = ""
    oid: str = ""
    error: Text = ""
    hint: Text = ""
    is_left: bool = field(default=False, name="left")
    cause: Text = ""

    @property
    def place(self) -> str:
        """The repository and what was written there, a tag as `tag web/v1`."""
        return f"{self.repository} {self.ref.replace(TAGS, 'tag ')}".strip()


class Outcome(Struct, frozen=True):
    """Result of applying a plan: the effects in order, and further classes of exit.

    `unfinished` are the packages of which some effect is missing, `opened` the pull requests that were opened
    or updated, by URL and head: the states of packages after the run are computed from both. `locked` tells
    that the lock was written as the plan decides it.
    """

    effects: tuple[Effect, ...] = ()
    exits: frozenset[Exit] = frozenset()
    unfinished: Mapping[PackageKey, Unfinished] = field(default_factory=dict)
    opened: Mapping[tuple[str, str], PullRequest] = field(default_factory=dict)
    locked: bool = False


def exit_of(plan: Plan, *, outcome: Outcome | None = None, detailed: bool = False) -> Exit:
    """Return the exit code of a command that showed `plan`, or did it when `outcome` is given (D1).

    Waiting for people is no failure with `exit.waiting: 0`.
    """
    exits = exits_of(plan, outcome=outcome, detailed=detailed)
    policy = plan.context.inventory.policy if plan.context else None
    is_tolerated = policy is not None and not policy.exit.waiting
    return worst(exits - {Exit.WAITING} if is_tolerated else exits)


def problem_exits(problems: Iterable[Problem]) -> Iterator[Exit]:
    """Yield the classes of exit of problems."""
    reasons = {problem.reason for problem in problems}
    if Reason.DEFECT in reasons:
        yield Exit.BUG
    # An unreachable repository is no one's invalid input; whether it counts is its own policy.
    if reasons - {Reason.DEFECT, Reason.REPOSITORY_UNAVAILABLE}:
        yield Exit.INVALID_INPUT


def exits_of(plan: Plan, *, outcome: Outcome | None = None, detailed: bool = False) -> frozenset[Exit]:
    """Return every class of exit that applies; the process can show only the worst."""
    exits = {*plan.exits, *problem_exits(plan.problems)} - {Exit.PENDING}
    if plan.refusals:
        exits.add(Exit.REFUSED)
    if outcome:
        exits |= outcome.exits
    if detailed and outcome is None and not plan.is_empty:
        exits.add(Exit.PENDING)
    return frozenset(exits - {Exit.DONE})
