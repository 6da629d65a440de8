"""One change of one decision, vetoes and joins, with the state after it and its sentences (D33, D37)."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum, IntEnum, StrEnum
from typing import NamedTuple, Self, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from reconciler.base.errors import Location
from reconciler.base.reasons import Phase, Reason, WaitsFor, find_facts
from reconciler.base.text import Text, join_texts, plural, verb
from reconciler.inventory.inventory import Draft, PullRequest, PullRequests, PullState
from reconciler.names.ids import ObjectName, Oid, PackageKey
from reconciler.names.problems import Problem
from reconciler.names.refs import DRAFTS, PROPOSED, short_branch
from reconciler.plan.changes import (
    After,
    ApprovalState,
    Change,
    ClosePull,
    DraftFacts,
    MoveRef,
    Op,
    Postponed,
    PullRequestContent,
    Unfinished,
    Write,
    WriteDraft,
    WriteGroup,
    WriteRemoval,
)
from reconciler.plan.context import PlanContext, PlanTarget, by_weight
from reconciler.plan.impact import Loss
from reconciler.render.update import Conflict
from reconciler.resolve.deliveries import TARGET_ANNOTATION, cluster_of
from reconciler.resolve.ownership import may_stand_behind, package_name

_MAX_FILES = 3


def asked_text(conflicts: Sequence[Conflict]) -> str:
    """Return what open conflicts ask of a person, "" for none."""
    if not conflicts:
        return ""
    files = sorted({note.path for note in conflicts})
    listed = ", ".join(files[:_MAX_FILES]) + (
        f" and {plural(len(files) - _MAX_FILES, 'more file')}" if len(files) > _MAX_FILES else ""
    )
    number = len(conflicts)
    if not any(note.name for note in conflicts):  # on main, where nothing can be kept
        stays = f"{verb(number, 'stays', 'stay')} as people set {verb(number, 'it', 'them')}"
        ways = "Restore the file on main, remove its first line to make it yours, or declare the package"
        return f"{plural(number, 'generated value')} in {listed} {stays}. {ways}"
    them = verb(number, "it", "them")
    ways = f"answer {them} in the pull request, or with reconciler answer"
    return f"{plural(number, 'conflict')} in {listed}: {ways}"


def missing_text(change: Change, missing: Unfinished) -> Text:
    """Return what an effect that was not done means for the package."""
    return missing.message or f"Not applied yet: {change.op} ({change.reason})"


_WAITING: Mapping[Phase | None, WaitsFor] = {
    Phase.CONFLICT: WaitsFor.ANSWER,
    Phase.NOT_READY: WaitsFor.CORRECTION,
    Phase.PAUSED: WaitsFor.UNPAUSE,
    Phase.STALLED: WaitsFor.MANIFEST,
}


def with_after(change: Change, target: PlanTarget) -> Change:
    """Return the change with the state that all its effects leave."""
    return replace(change, after=undone(change, target, None))


def undone(change: Change, target: PlanTarget, missing: Unfinished | None) -> After:
    """Return the state that a change leaves of which some effect was not done, None for every one."""
    draft = _open_draft(change, target)
    head, has_draft = _head(change, target, draft, missing)
    word = _pending(change, missing) or _obstructed(change, target) or _settled(change, target, head)
    state = replace(word, head=head, has_draft=has_draft)
    if state.phase is None or change.variant is None:
        return replace(state, phase=None)
    pulls, waits_for = PullRequests.of(target.pulls), _waits_for(state, change, target)
    if state.phase is Phase.REJECTED:
        # A draft that is gone is remembered by its pull request.
        is_deletion = target.main_owner is not None and not target.before.is_wanted
        path = f"{DRAFTS}{target.package.path}/"
        refused = pulls.at(target.before.deletion) if is_deletion else pulls.below(path)
        there = pulls.at(head) if head else ()
        pull = max(there or refused, key=by_weight, default=None)
        if pull is not None and (there or pull.state is PullState.CLOSED):
            state = replace(state, head=pull.head, since=pull.closed)
    since = state.since or _recorded_time(state, target) or _time(state.phase, change, target, head)
    revision = _revision(change, target, draft, head, missing)
    return replace(state, waits_for=waits_for, since=since, revision=revision)


def first_head(head: str) -> str:
    """Return a head as it was first called: proposing it for review moves the branch, not the request."""
    proposed = head.startswith(PROPOSED)
    return f"{DRAFTS}{head.removeprefix(PROPOSED)}" if proposed else head


def _open_draft(change: Change, target: PlanTarget) -> Draft | None:
    """Return the draft of the package; one that lets it go is ours without naming us any more.

    A draft that has nothing to propose may be left on the branch of a closed group, which others need.
    """
    if change.op is Op.KEEP and change.reason is Reason.DRAFT_SUPERSEDED:
        return None
    if target.draft is not None or change.reason is not Reason.ORPHANED:
        return target.draft
    return next(iter(target.package.drafts), None)


def _head(
    change: Change, target: PlanTarget, draft: Draft | None, missing: Unfinished | None
) -> tuple[str, bool]:
    """Return the branch that waits for people, "" for none, and whether there is a draft."""
    branch = short_branch(draft.ref) if draft else ""
    standing = "" if target.before.is_wanted else target.standing_deletion
    if missing is not None and not missing.pushed:
        return standing or branch, draft is not None
    if change.is_merged and missing is None:
        return "", False
    made = (w for w in change.writes if isinstance(w, WriteDraft | WriteRemoval))
    groups = {write.ref for write in change.writes if isinstance(write, WriteGroup)}
    gone = {short_branch(ref) for ref in groups | change.removed}
    there = [name for name in (standing, branch) if name and name not in gone]
    head = change.group or next((short_branch(write.ref) for write in made), "") or next(iter(there), "")
    return head, change.written is not None or branch in there


def _pending(change: Change, missing: Unfinished | None) -> After | None:
    if missing is not None:
        return After(Phase.PENDING, why=missing_text(change, missing))
    if change.postponed is not None:
        return After(Phase.PENDING, str(change.postponed.reason), change.postponed.message)
    return None


def _obstructed(change: Change, target: PlanTarget) -> After | None:
    """Return the phase of a package that cannot proceed, with the reason; None if nothing holds it."""
    reason, phase = str(change.reason), change.reason.facts.phase
    if any(isinstance(write, WriteRemoval) for write in change.writes):
        reason = str(Reason.DELETION_PROPOSED)  # as the next run finds it
    if change.op is Op.BLOCK:
        phase = phase or Phase.STALLED
    if phase is Phase.STALLED and not target.before.is_stalled:
        # Obstacles of a valid variant, such as a package that is not ours, are no fault of its manifest.
        phase = Phase.HELD_BACK
    is_kept = change.written is None and phase is not Phase.CONFLICT
    if phase is not None and (is_kept or change.op is Op.BLOCK):
        return After(phase, reason, change.message)
    if change.conflicts:
        return After(Phase.CONFLICT, str(Reason.MERGE_CONFLICT), asked_text(change.conflicts))
    if change.unready:
        is_refused = change.unready[0] in change.refusals
        cause = Reason.WOULD_BE_REFUSED if is_refused else Reason.NOT_READY
        cause = Reason.PIPELINE_FAILED if change.failed else cause
        return After(Phase.NOT_READY, str(cause), join_texts("; ", change.unready))
    return After(Phase.HELD_BACK, reason, change.message) if change.waits else None


def _settled(change: Change, target: PlanTarget, head: str) -> After:
    """Return what is in review, a deletion for example, or what holds its merge; else what is published."""
    before = target.before
    if not head:
        is_published = target.package.main_tree is not None or change.is_merged
        return After(Phase.PUBLISHED) if is_published else After()
    if change.variant is not None and before.stopped:
        return After(Phase.IN_REVIEW, str(Reason.AWAITING_WAVE), before.stopped)
    if change.reason is Reason.AWAITING_CHECKS:
        return After(Phase.IN_REVIEW, str(change.reason), change.message)
    if before.is_wanted:
        return After(Phase.IN_REVIEW)
    reason = Reason.ORPHANED if change.reason is Reason.ORPHANED else Reason.DELETION_PROPOSED
    return After(Phase.IN_REVIEW, str(reason), change.message)


def _waits_for(state: After, change: Change, target: PlanTarget) -> WaitsFor:
    """Return what the next step comes from; a change that `waits` never goes without a decision."""
    if state.phase is Phase.IN_REVIEW:
        if target.before.stopped or state.reason == Reason.AWAITING_WAVE:
            return WaitsFor.WAVE
        return WaitsFor.CHECKS if state.reason == Reason.AWAITING_CHECKS else WaitsFor.REVIEW
    if state.phase is Phase.PENDING:
        is_scheduled = find_facts(state.reason).step_of is WaitsFor.SCHEDULE
        return WaitsFor.SCHEDULE if is_scheduled else WaitsFor.NEXT_RUN
    if state.phase is Phase.HELD_BACK:
        return find_facts(state.reason).step_of or WaitsFor.DECISION
    if change.waits and state.phase not in {Phase.CONFLICT, Phase.NOT_READY}:
        return WaitsFor.DECISION
    return _WAITING.get(state.phase, WaitsFor.NOBODY)


def _recorded_time(state: After, target: PlanTarget) -> int:
    """Return the recorded time if the phase and the branch are the same, else 0."""
    # Most packages are published: their statuses are not read.
    recorded = None if state.phase is Phase.PUBLISHED else target.before.recorded
    if recorded is None:
        return 0
    return recorded.since if (recorded.phase, recorded.head) == (state.phase, first_head(state.head)) else 0


def _time(phase: Phase | None, change: Change, target: PlanTarget, head: str) -> int:
    """Return the time of the newest input that brought the package there, in seconds."""
    if phase is Phase.PUBLISHED:
        return _published_time(change, target)
    has_obstacle = change.op is Op.BLOCK or change.reason.facts.phase is Phase.STALLED
    if phase in {Phase.STALLED, Phase.PAUSED} or (phase is Phase.HELD_BACK and has_obstacle):
        return target.before.manifest
    written = [w.time for w in change.writes if isinstance(w, WriteDraft | WriteGroup | WriteRemoval)]
    if written:
        return max(written)
    if target.draft is not None:
        return target.draft.tip.time
    standing = target.view.branches.get(head)
    return standing.time if standing else target.before.control


def _published_time(change: Change, target: PlanTarget) -> int:
    package, head = target.package, target.view.head
    newest = head.time if head else 0
    if change.is_merged and target.draft is not None:
        return max(newest, target.draft.tip.time)
    times = [state.commit.time for state in package.published if state.tree == package.main_tree]
    times += [state.commit.time for state in package.unpublished if state.tree == package.main_tree]
    return max(times, default=newest)


def _revision(
    change: Change, target: PlanTarget, draft: Draft | None, head: str, missing: Unfinished | None
) -> str:
    """Return the name of the PackageRevision as Porch composes it; the branch of a group is none to Porch."""
    pushed = missing is None or missing.pushed
    written = next((w for w in change.writes if isinstance(w, WriteDraft)), None) if pushed else None
    revisions = (*target.package.published, *(target.before.publications if pushed else ()))
    latest = max((r for r in revisions if r.revision > 0), key=lambda r: r.revision, default=None)
    workspace = latest.workspace if latest else ""
    if written is not None:
        workspace = written.ref.rpartition("/")[2]
    elif draft is not None and not draft.is_grouped:
        workspace = draft.workspace if change.is_merged or head == short_branch(draft.ref) else workspace
    name = package_name(target.view, change.package.path).replace("/", ".")
    return f"{target.view.key.name}.{name}.{workspace}" if workspace else ""


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
    FUNCTIONS = "a limit of the run left it to the next one", Kept.BRANCHES
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
    DUPLICATE = ("a second pull request of its branch", Op.UPDATE, Reason.PULL_REQUEST_DUPLICATE, Over.QUIET)


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
        overwritten=facts.overwritten,
        subpackages=facts.subpackages,
        judgements=facts.judgements,
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
