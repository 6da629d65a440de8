"""Who belongs to which group: what stays on a group's branch, what leaves it, what joins one (D4)."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum

from reconciler.inventory import GroupBranch, PullRequest, PullState
from reconciler.plan.changes import Change, Op, Write, WriteDraft
from reconciler.plan.context import PlanContext, PlanTarget, by_weight
from reconciler.plan.drafts import draft_message, next_workspace
from reconciler.plan.messages import relabelled
from reconciler.policy import GroupBy
from reconciler.reasons import Reason
from reconciler.refs import HEADS, draft_ref, short_branch
from reconciler.render.rendered import Package

Scope = tuple[str, ...]
"""What a group is a group of, as its branch is named."""

TAKEN_OUT = "A person took it out of its group; it is proposed again in the next one"
HELD = "A person edited it and the same values changed upstream; it stays in its group as they left it"
ENDED = (
    "Its draft stands in a group whose pull request was closed. Delete the group's branch, or declare its "
    "variant again"
)


class Place(Enum):
    """Where a change stands towards groups."""

    APART = "apart"
    STAYS = "stays"
    LEAVES = "leaves"
    JOINS = "joins"


@dataclass(frozen=True, slots=True)
class Member:
    """A change and its place; `group` is the standing branch that it stays on or leaves."""

    change: Change
    target: PlanTarget
    place: Place
    group: GroupBranch | None = None
    scope: Scope = ()


@dataclass(frozen=True, slots=True)
class Standing:
    """The groups of one repository as they stand: which are open, and their newest pull requests."""

    groups: Mapping[str, GroupBranch]
    pulls: Mapping[str, PullRequest]

    def is_open(self, ref: str) -> bool:
        """Whether drafts may still be written to a group: it is not merged, and nobody closed it."""
        group, pull = self.groups.get(ref), self.pulls.get(short_branch(ref))
        return group is not None and not group.merged and (pull is None or pull.state is PullState.OPEN)


def find_standing(url: str, context: PlanContext) -> Standing:
    """Return the groups of a repository with the newest pull request of each."""
    groups = {g.ref: g for view in context.inventory.views_of(url) for g in view.groups}
    pulls: dict[str, PullRequest] = {}
    for pull in sorted(context.inventory.pulls.get(url, ()), key=by_weight):
        pulls[pull.head] = pull
    return Standing(groups, {head: pull for head, pull in pulls.items() if f"{HEADS}{head}" in groups})


def place_change(change: Change, target: PlanTarget, standing: Standing, context: PlanContext) -> Member:
    """Return where a change stands towards groups. Total.

    A package that a person edited stays where they edited it. One that is not ready for review, or
    asks something, has a draft of its own, so that it holds back nothing but itself.
    """
    draft = target.draft
    scope = _scope(change, target, context)
    if draft is not None and draft.is_grouped and standing.is_open(draft.ref):
        return _on_branch(change, target, standing.groups[draft.ref], context)
    if draft is not None and not draft.is_grouped:
        return Member(change, target, Place.APART)
    if draft is not None:
        change = _from_ended(change, target, context)
    if not scope or not isinstance(change.written, WriteDraft) or not _is_ready(change, target, context):
        return Member(change, target, Place.APART)
    return Member(change, target, Place.JOINS, scope=scope)


def taken_out(member: Member) -> Change:
    """Return the change of a package that a person removed from the open group it would join."""
    return replace(
        member.change,
        op=Op.KEEP,
        reason=Reason.HELD_BACK,
        message=TAKEN_OUT,
        after=member.change.before,
        writes=other_writes(member.change),
        pull=None,
        waits=True,
    )


def _on_branch(change: Change, target: PlanTarget, group: GroupBranch, context: PlanContext) -> Member:
    draft, written = target.draft, change.written
    if draft is not None and draft.append_only:
        if written is not None and change.conflicts:
            change = replace(
                change,
                op=Op.KEEP,
                reason=Reason.HELD_BACK,
                message=HELD,
                after=draft.tree,
                writes=other_writes(change),
                pull=None,
                waits=True,
            )
        return Member(change, target, Place.STAYS, group)
    if written is not None and (change.op is Op.ORPHAN or not _is_ready(change, target, context)):
        return Member(_own_draft(change, target, context), target, Place.LEAVES, group)
    obsolete = change.op is Op.CLOSE and change.after == target.package.main_tree
    if obsolete or _is_unwanted(change, target, context):
        return Member(change, target, Place.LEAVES, group)
    return Member(change, target, Place.STAYS, group)


def _from_ended(change: Change, target: PlanTarget, context: PlanContext) -> Change:
    """Return the change of a package whose draft stands in a group that ended: nothing is written there."""
    if change.written is not None or change.pull is not None:
        return _own_draft(change, target, context)
    if change.op is Op.CLOSE and not change.pending:
        return replace(change, op=Op.KEEP, reason=Reason.UP_TO_DATE, message="")
    return replace(change, group=short_branch(target.draft.ref) if target.draft else "")


def left_behind(change: Change) -> Change:
    """Return the change of a package that nobody wants and whose draft is rejected with others: it stays."""
    if change.op is not Op.DELETE or change.pending:
        return change
    return replace(change, op=Op.KEEP, reason=Reason.REJECTED, message=ENDED)


def _own_draft(change: Change, target: PlanTarget, context: PlanContext) -> Change:
    """Return the change with a new branch of its own for what it writes, else for what stands."""
    written, head, draft = change.written, target.view.head, target.draft
    resolved = context.resolved.get(change.variant) if change.variant else None
    if head is None or draft is None:
        return change
    path, workspace = target.package.path, next_workspace(target)
    if isinstance(written, WriteDraft):
        message = relabelled(written.message, workspace)
        moved = replace(written, expect=None, onto=head.oid, message=message)
    elif resolved is not None:
        moved = WriteDraft(
            ref="",
            expect=None,
            onto=head.oid,
            path=path,
            files={},
            tree=draft.tree,
            message=draft_message(target, resolved, workspace),
            time=context.rendered.variants[resolved.variant.key].time,
        )
    else:
        return change
    ref = draft_ref(path, workspace)
    pull = replace(change.pull, head=short_branch(ref), number=0) if change.pull else None
    return replace(change, writes=(*other_writes(change), replace(moved, ref=ref)), pull=pull)


def other_writes(change: Change) -> tuple[Write, ...]:
    """Return what a change writes beside its draft."""
    return tuple(write for write in change.writes if not isinstance(write, WriteDraft))


def _is_ready(change: Change, target: PlanTarget, context: PlanContext) -> bool:
    """Whether a draft may share a pull request: nothing is asked, and where gates hold they are met."""
    rendered = context.rendered.variants.get(change.variant) if change.variant else None
    fresh = rendered.fresh if rendered else None
    waits = isinstance(fresh, Package) and fresh.injection
    return not change.conflicts and not (target.view.deployment and (change.unready or waits))


def _is_unwanted(change: Change, target: PlanTarget, context: PlanContext) -> bool:
    """Whether nobody wants the package, for certain: its draft has nothing to propose any more."""
    proposed = {Reason.NOT_DESIRED, Reason.DELETION_PROPOSED, Reason.REJECTED}
    return target.key not in context.wanted and change.reason in proposed


def _scope(change: Change, target: PlanTarget, context: PlanContext) -> Scope:
    """Return what the package's group is a group of; empty where it has a draft of its own."""
    variant = context.variants.get(change.variant) if change.variant else None
    if variant is None or change.op is Op.ORPHAN:
        return ()
    match context.inventory.policy.group_by:
        case GroupBy.REPOSITORY:
            return ("repository", *target.view.key)
        case GroupBy.SET if variant.set_key is not None:
            return ("set", *variant.set_key, target.view.key.name)
        case _:
            return ()
