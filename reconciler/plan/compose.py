"""Compose the change of one package: what was decided about it, and what vetoes and joins make of that.

Deciding looks at one package alone. What packages share (groups, limits, consent, the refs of a repository)
gives results of its own: a veto holds a package back, a join adds something to it. No result changes another
one, and only `compose` knows which of them counts (D33).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum, IntEnum, StrEnum
from typing import NamedTuple, Self, TypeVar

from msgspec import Struct

from reconciler.base.errors import Location
from reconciler.base.reasons import Reason
from reconciler.base.text import Text
from reconciler.inventory.inventory import PullRequest
from reconciler.names.ids import ObjectName, Oid, PackageKey
from reconciler.names.problems import Problem
from reconciler.plan.after import with_after
from reconciler.plan.changes import (
    ApprovalState,
    Change,
    ClosePull,
    DraftFacts,
    MoveRef,
    Op,
    Postponed,
    PullRequestContent,
    Write,
    WriteDraft,
    WriteGroup,
)
from reconciler.plan.context import PlanContext, PlanTarget
from reconciler.plan.losses import Loss
from reconciler.resolve.deliveries import TARGET_ANNOTATION, cluster_of
from reconciler.resolve.ownership import may_stand_behind

R = TypeVar("R")


class Kept(IntEnum):
    """Amount that is written in spite of a veto; of several vetoes the least counts."""

    NOTHING = 0
    TAGS = 1
    BRANCHES = 2
    ALL = 3


class Veto(StrEnum):
    """Why a package is held back, the strongest first: docs/architecture.md has the table.

    `effects` is what is written all the same: nothing, the tags of what main has, or also what is due beside
    the draft, for example the removal of branches that are obsolete.
    """

    effects: Kept

    def __new__(cls, text: str, effects: Kept) -> Self:
        """Make a veto, which is its description, with what it leaves."""
        veto = str.__new__(cls, text)
        veto._value_, veto.effects = text, effects
        return veto

    @property
    def rank(self) -> int:
        """The place of the veto among all, the strongest first."""
        return _RANKS[self]

    @property
    def stays(self) -> bool:
        """Whether the package stays as it is, whatever was decided about its content."""
        return self.rank <= Veto.GROUP.rank

    DEFECT = "a bug broke the work on it", Kept.NOTHING
    REF = "Git cannot create a ref that it needs", Kept.NOTHING
    PULL_REQUEST = "its pull request cannot be read", Kept.TAGS
    GUARD = "its deletion needs consent", Kept.NOTHING
    GROUP = "people edited its group, took it out or closed it", Kept.BRANCHES
    RIVALS = "several variants want it", Kept.BRANCHES
    PAUSE = "a person paused it", Kept.NOTHING
    UPSTREAM = "its upstream revision is not known, or waits for a wave or a lock", Kept.BRANCHES
    PATH = "something is in the way at its path", Kept.BRANCHES
    OWNER = "nothing proves that its owner may have it, or let it go", Kept.BRANCHES
    MOVED_TAG = "the tag of its revision moved", Kept.BRANCHES
    CONTENT = "its content cannot be made", Kept.TAGS
    FUNCTIONS = "its functions did not run in this run", Kept.BRANCHES
    REJECTION = "people rejected its content", Kept.BRANCHES
    WAVE = "its rollout has not come to it", Kept.BRANCHES


_RANKS = {veto: rank for rank, veto in enumerate(Veto)}


class Held(Struct, frozen=True):
    """A veto: why less is done about a package than was decided, and what is left of it.

    `waits` tells that a person must act, `problem` is there if a manifest is to blame.
    """

    by: Veto
    reason: Reason
    why: Text = ""
    op: Op = Op.KEEP
    waits: bool = False
    problem: Problem | None = None


def deny(
    by: Veto,
    reason: Reason,
    message: str,
    target: PlanTarget,
    problem: Problem | None = None,
    *,
    waits: bool = False,
) -> Held:
    """Return the veto of a variant over a package that it must leave alone."""
    return Held(by, reason, message, Op.KEEP if target.package.exists else Op.BLOCK, waits, problem)


def is_uncertain(owner: ObjectName, context: PlanContext) -> bool:
    """Tell whether the owner may still want its package although no manifest declares it now (law 4)."""
    return may_stand_behind(owner, context.variants, context.stalled, context.inventory)


def place_hint(variant: ObjectName) -> str:
    """Return how to move what is generated for a cluster to another path, "" for any other package."""
    cluster = cluster_of(variant)
    return (
        f"Annotate the Repository of cluster {cluster} with another path: {TARGET_ANNOTATION}."
        if cluster
        else ""
    )


class Over(Enum):
    """Reasons of a kept package that the reason of a join takes the place of."""

    UP_TO_DATE = "UpToDate"
    QUIET = "quiet reasons"
    EVERY = "every reason"


class Join(StrEnum):
    """Effect on a package that is otherwise kept; the first that applies names the change.

    `op` and `reason` are those of the change. A reason that tells more stays: `over` tells which give way.
    """

    op: Op
    reason: Reason
    over: Over

    def __new__(cls, text: str, op: Op, reason: Reason, over: Over = Over.UP_TO_DATE) -> Self:
        """Make a join, which is its description, with the operation and the reason that it gives."""
        join = str.__new__(cls, text)
        join._value_, join.op, join.reason, join.over = text, op, reason, over
        return join

    def reason_of(self, reason: Reason, obsolete: Reason | None) -> Reason:
        """Return the reason of a change that was kept for `reason`; `own` is a more exact one of the join."""
        is_quiet = self.over is Over.QUIET and reason.facts.quiet
        gives_way = self.over is Over.EVERY or is_quiet
        if self.over is Over.UP_TO_DATE:
            gives_way = reason is Reason.UP_TO_DATE
        return (obsolete or self.reason) if gives_way else reason

    TAGS = "tags of what main has", Op.PUBLISH, Reason.PUBLISHED_BY_MERGE
    OBSOLETE = "branches and pull requests that are obsolete", Op.CLOSE, Reason.DRAFT_SUPERSEDED
    GROUP = "the pull request of its group", Op.UPDATE, Reason.PULL_REQUEST_OUTDATED
    GROUP_REMOVAL = "a group in which nothing is left", Op.CLOSE, Reason.DRAFT_SUPERSEDED
    APPROVAL = "approval by policy", Op.APPROVE, Reason.APPROVED_BY_POLICY, Over.EVERY
    REPAIR = (
        "the text, base or status of its pull request",
        Op.UPDATE,
        Reason.PULL_REQUEST_OUTDATED,
        Over.QUIET,
    )
    DUPLICATE = (
        "a second pull request of its branch",
        Op.UPDATE,
        Reason.PULL_REQUEST_DUPLICATE,
        Over.QUIET,
    )


class Decision(Struct, frozen=True):
    """Needs of one package, without regard to other packages, limits and forges.

    `draft` is the commit of its draft, `branches` what is written beside it, `tags` name what main has.
    `obsolete` is why branches go, where that is more than that they are superseded. `repair` is what this run
    corrects, and no later one repeats. `held` is the veto of the package itself. `problems` are those that
    its manifests have with it.
    """

    target: PlanTarget
    op: Op
    reason: Reason
    message: Text = ""
    variant: ObjectName | None = None
    location: Location | None = None
    before: Oid | None = None
    tree: Oid | None = None
    draft: WriteDraft | None = None
    branches: tuple[Write, ...] = ()
    tags: tuple[MoveRef, ...] = ()
    pull: PullRequest | None = None
    close: tuple[ClosePull, ...] = ()
    facts: DraftFacts = DraftFacts()
    obsolete: Reason | None = None
    repair: str = ""
    waits: bool = False
    held: Held | None = None
    problems: tuple[Problem, ...] = ()


class GroupPlace(Struct, frozen=True):
    """Place of a package in the groups of its repository: the branch of its draft, and what they write.

    `drafts` and `pull` take the place of what was decided, `removals` are written beside them.
    """

    group: str = ""
    drafts: tuple[WriteDraft | WriteGroup, ...] = ()
    pull: PullRequest | None = None
    removals: tuple[MoveRef, ...] = ()
    close: tuple[ClosePull, ...] = ()
    held: Held | None = None


class RequestState(Struct, frozen=True):
    """The pull request of a package as it should be; `pull` is what is written of it, `repair` why."""

    content: PullRequestContent | None = None
    pull: PullRequest | None = None
    repair: str = ""
    doubles: tuple[ClosePull, ...] = ()


class Parts(NamedTuple):
    """Everything that a change is composed of; the part of a stage that did not run yet is None."""

    # A tuple: mypy checks what `_replace` is given, and not what `msgspec.structs.replace` is.

    decision: Decision
    guard: Held | None = None
    group: GroupPlace | None = None
    losses: tuple[Loss, ...] = ()
    approval: ApprovalState | None = None
    request: RequestState | None = None
    unreadable: Held | None = None
    blocked: Held | None = None
    postponed: Postponed | None = None

    @property
    def vetoes(self) -> Sequence[Held]:
        """The vetoes of all stages, the strongest first."""
        group = self.group.held if self.group is not None else None
        every = (self.blocked, self.unreadable, self.guard, group, self.decision.held)
        return sorted((held for held in every if held is not None), key=lambda held: held.by.rank)


def compose(parts: Parts) -> Change:
    """Return the change of one package. Total: the one place where vetoes and joins meet.

    The strongest veto gives operation and reason, and together they leave what each of them leaves. Of a
    package that is kept, the first join that does something gives both. Last of all a pull request is not
    opened that limits or the schedule keep back.
    """
    decided, vetoes, postponed = parts.decision, parts.vetoes, parts.postponed
    held = vetoes[0] if vetoes else None
    effects = min((veto.by.effects for veto in vetoes), default=Kept.ALL)
    tags = decided.tags if effects >= Kept.TAGS else ()
    branches, close = (decided.branches, decided.close) if effects >= Kept.BRANCHES else ((), ())
    drafts: tuple[Write, ...] = (decided.draft,) if decided.draft is not None and effects is Kept.ALL else ()
    pull = decided.pull if effects is Kept.ALL else None
    # What stops a package at its own pull request or refs stops what it shares with others, too.
    is_stopped = parts.blocked is not None or parts.unreadable is not None
    group, approval, request = parts.group, parts.approval or ApprovalState(), parts.request or RequestState()
    obsolete, approve = branches or close, None
    removals: tuple[Write, ...] = ()
    if not is_stopped:
        if group is not None:
            drafts, pull, removals = group.drafts, group.pull, group.removals
        pull, approve = request.pull or pull, approval.approve
        close = (*close, *(group.close if group is not None else ()), *request.doubles)
    op, reason, message, waits = decided.op, decided.reason, decided.message, decided.waits
    if held is not None:
        op, reason, message, waits = held.op, held.reason, held.why, held.waits
    elif approval.why:
        reason, message = approval.reason, approval.why
        waits = reason is not Reason.AWAITING_CHECKS
    joins = {
        Join.TAGS: tags,
        Join.OBSOLETE: obsolete,
        Join.GROUP: group is not None and group.pull and pull,
        Join.GROUP_REMOVAL: removals,
        Join.APPROVAL: approve,
        Join.REPAIR: request.pull and pull,
        Join.DUPLICATE: request.doubles and close,
    }
    join = next((join for join in Join if joins[join]), None) if op is Op.KEEP else None
    if join is not None:
        replaced = decided.obsolete if join is Join.OBSOLETE else None
        op, reason = join.op, join.reason_of(reason, replaced)
    writes, stays = (*branches, *tags, *drafts, *removals), held is not None and held.by.stays
    facts = decided.facts
    if postponed is not None:
        pull = None
        if not (writes or close or approve):
            op, reason, message = Op.KEEP, postponed.reason, ""
    change = Change(
        package=decided.target.key,
        repository=decided.target.view.key,
        op=op,
        reason=reason,
        message=message,
        variant=decided.variant,
        location=decided.location,
        before=decided.before,
        tree=decided.before if stays else decided.tree,
        writes=writes,
        pull=pull,
        close=close,
        waits=waits,
        group=group.group if group is not None else "",
        approve=approve,
        losses=parts.losses,
        request=request.content,
        repair=postponed.when if postponed is not None else decided.repair or request.repair,
        postponed=postponed,
        upstream_from=facts.upstream_from,
        upstream_to=facts.upstream_to,
        ready=facts.ready and not stays,
        conflicts=facts.conflicts,
        answers=facts.answers,
        unready=facts.unready,
        failed=facts.failed,
        faults=facts.faults,
        warnings=facts.warnings,
        subpackages=facts.subpackages,
    )
    return with_after(change, decided.target)


class Changes:
    """Changes of all packages during the stages of planning: every result is composed at once."""

    def __init__(self, decisions: Iterable[Decision]) -> None:
        """Start with what was decided about each package."""
        self._parts = {decision.target.key: Parts(decision) for decision in decisions}
        self.composed = {key: compose(parts) for key, parts in self._parts.items()}

    def add(self, results: Mapping[PackageKey, R], evolve: Callable[[Parts, R], Parts]) -> None:
        """Add the results of one stage; `evolve` puts one of them among the parts of its package."""
        for key, result in results.items():
            self._parts[key] = evolve(self._parts[key], result)
            self.composed[key] = compose(self._parts[key])
