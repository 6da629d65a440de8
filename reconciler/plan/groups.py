"""Groups: the drafts of several packages on one branch, in one pull request (D4)."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from reconciler.base.reasons import UNWANTED, Phase, Reason
from reconciler.base.values import grouped
from reconciler.inventory.inventory import GroupBranch, PullRequest, PullState, RepositoryView
from reconciler.names.ids import PackageKey
from reconciler.names.refs import HEADS, draft_ref, group_number, group_ref, is_group, short_branch
from reconciler.names.trailers import CONFLICT, conflict_lines
from reconciler.plan.changes import Change, ClosePull, GroupPart, MoveRef, Op, WriteDraft, WriteGroup
from reconciler.plan.compose import GroupPlace, Held, Veto
from reconciler.plan.context import PlanContext, PlanTarget, by_weight
from reconciler.plan.deletions import left_drafts
from reconciler.plan.drafts import draft_message, group_message, next_workspace, relabelled
from reconciler.policy import GroupBy
from reconciler.render.rendered import Package
from reconciler.resolve.rollout_model import RolloutPhase

Scope = tuple[str, ...]
"""The packages that a group may have, as its branch is named."""

TAKEN_OUT = "A person took it out of its group; it is proposed again once that is merged or closed"
DELETED = (
    "A person deleted it on {0}: merging that deletes the package, which a manifest wants. Put {1} back "
    "there with git, or merge it by name"
)
EMPTIED = "A person deleted it on {0}. Put it back there with git, or close the pull request to reject it"
HELD = "A person edited it and the same values changed upstream; it stays in its group as they left it"
OVER = "Its draft in a group that was closed has nothing to propose any more"
ENDED = (
    "Its draft stands in a group whose pull request was closed. Delete the group's branch, or declare its "
    "variant again"
)


class Member(Struct, frozen=True):
    """A change, and the `group` that it stays on or `leaves`, the one of `scope`, or a branch of its own.

    `written` is the new content of its draft, `pull` the pull request that it asks for, `held` the veto of
    its group. `ended` is the group that was closed or merged with its draft on it. `is_over` tells that
    the present draft has nothing to propose any more.
    """

    change: Change
    target: PlanTarget
    written: WriteDraft | None = None
    pull: PullRequest | None = None
    group: GroupBranch | None = None
    leaves: bool = False
    scope: Scope = ()
    held: Held | None = None
    ended: str = ""
    is_over: bool = False


class RepositoryGroups(Struct, frozen=True):
    """The group branches of one repository, with their newest pull requests."""

    groups: Mapping[str, GroupBranch]
    pulls: Mapping[str, PullRequest]

    def is_open(self, ref: str) -> bool:
        """Tell whether drafts may still be written to a group: it is neither merged nor closed."""
        group, pull = self.groups.get(ref), self.pulls.get(short_branch(ref))
        return group is not None and not group.merged and (pull is None or pull.state is PullState.OPEN)


def find_groups(url: str, context: PlanContext) -> RepositoryGroups:
    """Return the groups of a repository with the newest pull request of each."""
    groups = {g.ref: g for view in context.inventory.views_of(url) for g in view.groups}
    pulls: dict[str, PullRequest] = {}
    for pull in sorted(context.inventory.pulls.get(url, ()), key=by_weight):
        pulls[pull.head] = pull
    return RepositoryGroups(
        groups, {head: pull for head, pull in pulls.items() if f"{HEADS}{head}" in groups}
    )


def place_change(
    change: Change, target: PlanTarget, own_groups: RepositoryGroups, context: PlanContext
) -> Member:
    """Return the relation of a change to the groups. Total.

    A package that a person edited stays where they edited it. One that is not ready for review, or
    asks something, has a draft of its own, so that it holds back nothing but itself.
    """
    draft, written = target.draft, change.written
    written, pull, held, ended = written if isinstance(written, WriteDraft) else None, change.pull, None, ""
    scope, is_over = _scope(change, target, context), _is_over(change, target, context)
    if draft is not None and draft.is_grouped and own_groups.is_open(draft.ref):
        return _on_branch(change, target, own_groups.groups[draft.ref], context)
    if draft is not None and draft.is_grouped:
        # Its group was closed or merged: nothing is written there.
        if written is not None or (pull is not None and not is_over):
            written, pull = _own_draft(change, target, context)
        elif change.op is Op.CLOSE and not change.pending:
            is_telling = change.reason is not Reason.DRAFT_SUPERSEDED
            reason, why = (change.reason, change.message) if is_telling else (Reason.DRAFT_SUPERSEDED, OVER)
            held = Held(Veto.GROUP, reason, why)
        elif not is_over or (change.op is Op.DELETE and not change.pending):
            ended = short_branch(draft.ref)
    joins = scope and written is not None and _is_ready(change, target, context)
    if (draft is not None and not draft.is_grouped) or not joins:
        return Member(change, target, written, pull, held=held, ended=ended, is_over=is_over)
    return Member(change, target, written, pull, scope=scope)


def _on_branch(change: Change, target: PlanTarget, group: GroupBranch, context: PlanContext) -> Member:
    draft, written = target.draft, change.written
    own_draft = written if isinstance(written, WriteDraft) else None
    is_over = _is_over(change, target, context)
    if draft is not None and draft.append_only:
        if own_draft is None and is_over and group.has_foreign_commits:
            # Its part of the branch is left to the person; a pull request is that of its deletion.
            return Member(change, target, None, change.pull, is_over=True)
        if own_draft is not None and change.conflicts:
            held = Held(Veto.GROUP, Reason.HELD_BACK, HELD, waits=True)
            return Member(change, target, group=group, held=held)
        return Member(change, target, own_draft, change.pull, group)
    if own_draft is not None and (change.op is Op.ORPHAN or not _is_ready(change, target, context)):
        return Member(change, target, *_own_draft(change, target, context), group, leaves=True)
    # A variant that takes the package over writes its part of the branch anew.
    leaves = is_over and own_draft is None
    return Member(change, target, own_draft, change.pull, group, leaves)


def _own_draft(
    change: Change, target: PlanTarget, context: PlanContext
) -> tuple[WriteDraft | None, PullRequest | None]:
    """Return the commit of an own branch, of the new content or else of the draft's, and its pull request."""
    written = change.written if isinstance(change.written, WriteDraft) else None
    head, draft, pull = target.view.head, target.draft, change.pull
    resolved = context.resolved.get(change.variant) if change.variant else None
    path, workspace = target.package.path, next_workspace(target)
    ref = draft_ref(path, workspace)
    if head is None or draft is None:
        return written, pull
    if written is not None:
        message = relabelled(written.message, workspace)
        moved = replace(written, ref=ref, expect=None, onto=head.oid, message=message)
    elif resolved is None:
        return None, pull
    else:
        message = draft_message(target, resolved, workspace)
        time = context.rendered.variants[resolved.variant.key].time
        moved = WriteDraft(ref, None, head.oid, path, {}, draft.tree, message, time)
    return moved, replace(pull, head=short_branch(ref), number=0) if pull else None


def _is_ready(change: Change, target: PlanTarget, context: PlanContext) -> bool:
    """Whether a draft may share a pull request: nothing is asked, and where gates hold they are met."""
    rendered = context.rendered.variants.get(change.variant) if change.variant else None
    fresh = rendered.fresh if rendered else None
    waits = isinstance(fresh, Package) and fresh.injection
    return not change.conflicts and not (target.view.deployment and (change.unready or waits))


def _is_over(change: Change, target: PlanTarget, context: PlanContext) -> bool:
    """Tell whether a draft has nothing to propose any more: main has its content, or no variant wants it."""
    if target.key in context.downstreams:
        # What is cleared away beside a person's draft, as a deletion that is withdrawn, does not end it.
        is_closed = change.op is Op.CLOSE and change.reason is not Reason.DRAFT_EDITED
        is_on_main = is_closed and change.tree == target.package.main_tree
        return is_on_main or target.draft in left_drafts(target, context)
    return change.reason in {*UNWANTED, Reason.REJECTED}


def _scope(change: Change, target: PlanTarget, context: PlanContext) -> Scope:
    """Return what the package's group is a group of; empty where it has a draft of its own."""
    variant = context.variants.get(change.variant) if change.variant else None
    if variant is None or change.op is Op.ORPHAN:
        return ()
    rollout = context.rollouts.get(variant.key)
    match context.inventory.policy.pull_requests.group_by:
        case _ if rollout is not None and rollout.phase is RolloutPhase.ROLLED_BACK:
            scope: Scope = ("rollback", *rollout.key.words, rollout.waves_of[variant.key])
        case GroupBy.WAVE if rollout is not None:
            scope = ("wave", *rollout.key.words, rollout.waves_of[variant.key])
        case GroupBy.REPOSITORY:
            scope = ("repository", target.view.key.namespace)
        case GroupBy.SET if variant.set_key is not None:
            scope = ("set", *variant.set_key)
        case GroupBy.UPSTREAM if (upstream := variant.spec.upstream) and upstream.repo and upstream.package:
            scope = ("upstream", variant.key.namespace, upstream.repo, upstream.package)
        case _:
            return ()
    return (*scope, target.view.key.name)


EMPTY = "Nothing of this group is left to propose."


class PlannedGroup(Struct, frozen=True):
    """One group as planned: its branch, its present tip, and the packages on it."""

    ref: str
    view: RepositoryView
    branch: GroupBranch | None
    pull: PullRequest | None
    members: tuple[Member, ...]
    leaving: tuple[Member, ...]

    @property
    def written(self) -> tuple[Member, ...]:
        """The members that get other content."""
        return tuple(member for member in self.members if member.written is not None)

    @property
    def is_kept(self) -> bool:
        """Whether people committed to the branch, so that we may only append."""
        return self.branch is not None and self.branch.has_foreign_commits


def group_changes(
    context: PlanContext, changes: Mapping[PackageKey, Change]
) -> Mapping[PackageKey, GroupPlace]:
    """Put the drafts of packages that belong together on one branch with one pull request.

    Total and order-free: every package keeps its one change, and only the branch of its draft is
    another. Ungrouped drafts stay as they are; drafts in an open group stay there, also when the setting
    changes.
    """
    policy, views = context.inventory.policy, context.inventory.views.values()
    is_grouped = policy.pull_requests.group_by is not GroupBy.PACKAGE or any(
        rollout.phase is RolloutPhase.ROLLED_BACK for rollout in context.resolution.rollouts
    )
    if not is_grouped and not any(view.groups for view in views):
        return {}
    by_url: dict[str, list[Change]] = {}
    for change in changes.values():
        by_url.setdefault(change.package.url, []).append(change)
    places: dict[PackageKey, GroupPlace] = {}
    for url, some in by_url.items():
        own_groups = find_groups(url, context)
        members = [
            place_change(change, context.targets[change.package], own_groups, context) for change in some
        ]
        places |= _grouped(members, own_groups, context)
    return places


def _grouped(
    members: Sequence[Member], own_groups: RepositoryGroups, context: PlanContext
) -> Mapping[PackageKey, GroupPlace]:
    """Return the place of every package of one repository, with what its groups write."""
    by_branch: dict[str, list[Member]] = {}
    places = {member.change.package: _apart(member) for member in members}
    for member in members:
        if member.group is not None:
            by_branch.setdefault(member.group.ref, []).append(member)
        elif member.scope:
            ref = _seat(member.scope, member.target.view, own_groups, context)
            branch = own_groups.groups.get(ref)
            if branch is not None and member.target.package.path in branch.dropped:
                held = Held(Veto.GROUP, Reason.HELD_BACK, TAKEN_OUT, waits=True)
                places[member.change.package] = GroupPlace(short_branch(ref), held=held)
            else:
                by_branch.setdefault(ref, []).append(member)
    for ref, some in sorted(by_branch.items()):
        places |= _group(ref, some, own_groups, context)
    places |= dict(_deleted(members, own_groups, context))
    for key, removed in _cleared(places, members, by_branch, own_groups):
        places[key] = removed
    # An undesired package whose draft was rejected in a group stays.
    rejected = Held(Veto.GROUP, Reason.REJECTED, ENDED)
    for member in members:
        change, draft = member.change, member.target.draft
        does_nothing = change.op is Op.DELETE and not (change.writes or change.pull or change.close)
        if (
            does_nothing
            and draft is not None
            and draft.is_grouped
            and places[change.package] == GroupPlace(member.ended)
        ):
            places[change.package] = GroupPlace(member.ended, held=rejected)
    return places


def _deleted(
    members: Iterable[Member], own_groups: RepositoryGroups, context: PlanContext
) -> Iterator[tuple[PackageKey, GroupPlace]]:
    """Yield the place of each wanted package that a person deleted on an open branch, where it stays so."""
    for ref, branch in sorted(own_groups.groups.items()):
        for member in members if own_groups.is_open(ref) else ():
            key, path, head = member.change.package, member.target.package.path, short_branch(ref)
            if key not in context.downstreams or member.change.op is Op.BLOCK:
                continue
            if member.target.package.main_tree is not None and path in branch.deleted:
                why = DELETED.format(head, path)
                yield key, GroupPlace(head, held=Held(Veto.GROUP, Reason.DELETED_BY_PERSON, why, waits=True))
            elif path in branch.dropped and not is_group(ref):
                held = Held(Veto.GROUP, Reason.HELD_BACK, EMPTIED.format(head), waits=True)
                yield key, GroupPlace(head, held=held)


def _apart(member: Member) -> GroupPlace:
    """Return the place of a package with a draft of its own, or none."""
    drafts = (member.written,) if member.written is not None else ()
    return GroupPlace(member.ended, drafts, member.pull, held=member.held)


def _seat(scope: Scope, view: RepositoryView, own_groups: RepositoryGroups, context: PlanContext) -> str:
    """Return the open group of a scope, else the name of the next one; no name ever comes back."""
    instance = context.inventory.policy.instance
    numbers = {ref: number for ref in own_groups.groups if (number := group_number(ref, instance, scope))}
    opened = [ref for ref in numbers if own_groups.is_open(ref)]
    if opened:
        return max(opened, key=lambda ref: numbers[ref])
    heads = (f"{HEADS}{pull.head}" for pull in context.inventory.pulls.get(view.url, ()))
    used = [*numbers.values(), *(group_number(ref, instance, scope) for ref in heads)]
    return group_ref(instance, scope, 1 + max(used, default=0))


def _group(
    ref: str, members: Sequence[Member], own_groups: RepositoryGroups, context: PlanContext
) -> Mapping[PackageKey, GroupPlace]:
    """Return the places of one group with its one commit and its one pull request."""
    group = PlannedGroup(
        ref=ref,
        view=members[0].target.view,
        branch=own_groups.groups.get(ref),
        pull=own_groups.pulls.get(short_branch(ref)),
        members=tuple(m for m in members if not m.leaves),
        leaving=tuple(m for m in members if m.leaves),
    )
    if not group.members and not group.is_kept:
        return {m.change.package: _with_removal(_apart(m), group.branch, group.pull) for m in group.leaving}
    write = _write(group, context)
    pull = _pull(group, is_written=write is not None)
    writing = [m for m in group.members if m.written is not None or m.pull is not None]
    writing = writing or list(group.members[:1])
    rest = (write,) if write is not None else ()
    places = {}
    for member in group.members:
        request = pull if member in writing else None
        drafts = rest if member.written is not None else ()
        places[member.change.package] = GroupPlace(short_branch(group.ref), drafts, request, held=member.held)
    for member in group.leaving:
        written = (member.written,) if member.written is not None else ()
        places[member.change.package] = GroupPlace("", (*written, *rest), member.pull)
    return places


def _write(group: PlannedGroup, context: PlanContext) -> WriteGroup | None:
    """Return the group's commit: all of it anew on main's head, or what changes on a person's tip."""
    if not group.written and not group.leaving:
        return None
    branch, head = group.branch, group.view.head
    present = group.written if group.is_kept else group.members
    parts = [_part(member) for member in present]
    if branch is not None and group.is_kept:
        # As it was where the branch left main: the branch proposes nothing for it any more.
        drafts = ((m.target.package.path, m.target.draft) for m in group.leaving)
        parts += [GroupPart(path, draft.base_tree if draft else None) for path, draft in drafts]
    named = (*present, *group.leaving) if group.is_kept else present
    first = next((member.written.onto for member in group.written if member.written is not None), None)
    onto = branch.tip.oid if branch is not None and group.is_kept else head.oid if head else first
    if onto is None or not parts:
        return None
    times = [_time(member, context) for member in (*named, *group.leaving)]
    labels = {
        m.target.package.path: context.resolved[m.change.variant].variant.spec.labels
        for m in named
        if m.change.variant is not None and m.change.variant in context.resolved
    }
    return WriteGroup(
        ref=group.ref,
        expect=branch.tip.oid if branch else None,
        onto=onto,
        parts=tuple(sorted(parts, key=lambda part: part.path)),
        message=group_message(
            {m.target.package.path: _workspace(m) for m in named}, [*_conflicts(present)], labels
        ),
        time=max([*times, branch.foreign_commit_time if branch is not None else 0]),
    )


def _conflicts(members: Iterable[Member]) -> Iterator[str]:
    """Yield the lines that name conflicts: of new content, and of drafts that stay as we wrote them."""
    for member in members:
        written, draft = member.written, member.target.draft
        if written is not None:
            yield from conflict_lines(written.message)
        elif draft is not None:
            conflicts = draft.answers.named.items()
            yield from (f"{CONFLICT}: {name} {choice}".rstrip() for name, choice in conflicts)


def _part(member: Member) -> GroupPart:
    """Return the part of a member: its new content, else that of its draft."""
    path, written, draft = member.target.package.path, member.written, member.target.draft
    if written is not None:
        return GroupPart(path, written.tree, written.files)
    return GroupPart(path, draft.tree if draft else None)


def _workspace(member: Member) -> str:
    if member.group is None and member.written is not None:
        return member.written.ref.rpartition("/")[2]
    return member.target.draft.workspace if member.target.draft else ""


def _time(member: Member, context: PlanContext) -> int:
    """Return the newest input's time of a package, in seconds (law 5)."""
    if member.written is not None:
        return member.written.time
    rendered = context.rendered.variants.get(member.change.variant) if member.change.variant else None
    if rendered is not None:
        return rendered.time
    return context.inventory.control.commit.time if member.leaves else 0


def _pull(group: PlannedGroup, *, is_written: bool) -> PullRequest | None:
    """Return the group's one pull request, None where it needs none now."""
    open_pull = group.pull if group.pull is not None and group.pull.state is PullState.OPEN else None
    is_requested = any(member.pull is not None for member in group.members)
    if not group.members or not (is_requested or (is_written and open_pull)):
        return None
    return PullRequest(
        head=short_branch(group.ref),
        base=group.view.branch,
        title="",
        body="",
        draft=open_pull.draft if open_pull else True,
        number=open_pull.number if open_pull else 0,
    )


def _cleared(
    places: Mapping[PackageKey, GroupPlace],
    members: Sequence[Member],
    branches: Mapping[str, object],
    own_groups: RepositoryGroups,
) -> Iterator[tuple[PackageKey, GroupPlace]]:
    """Yield a place that removes each branch on which nothing of ours is left to propose.

    What people committed stays, unless their work is in main. Which pull request a person closed is
    remembered by its branch while something that was rejected with it is still wanted.
    """
    removing = {key for key, place in places.items() if place.removals}
    by_draft = grouped((m.target.draft.ref if m.target.draft else "", m) for m in members)
    by_path = grouped((m.target.package.path, m) for m in members)
    for ref, branch in sorted(own_groups.groups.items()):
        if ref in branches or any(_is_held(m, places[m.change.package], ref) for m in by_draft.get(ref, ())):
            continue
        pull = own_groups.pulls.get(short_branch(ref))
        is_merged = pull is not None and pull.state is PullState.MERGED and pull.head_oid == branch.tip.oid
        # A package that was on the branch removes it, rather one that writes anyway, but none that is held.
        acting = [
            (not (m.change.pending or m.change.package in removing), m.change.package)
            for path in branch.paths
            for m in by_path.get(path, ())
            if m.change.op is not Op.BLOCK and m.change.reason.facts.phase is not Phase.PAUSED
        ]
        if acting and (branch.merged or is_merged or not branch.has_foreign_commits):
            _, key = min(acting)
            removing.add(key)
            yield key, _with_removal(places[key], branch, pull)


def _is_held(member: Member, place: GroupPlace, ref: str) -> bool:
    """Tell whether a draft stays on a group's branch: it is wanted, and has no other branch."""
    return not place.drafts and place.group in ("", short_branch(ref)) and not member.is_over


def _with_removal(place: GroupPlace, branch: GroupBranch | None, pull: PullRequest | None) -> GroupPlace:
    if branch is None:
        return place
    is_open = pull is not None and pull.state is PullState.OPEN
    closing = (ClosePull(pull.number, pull.head, EMPTY),) if pull is not None and is_open else ()
    removals = (*place.removals, MoveRef(branch.ref, branch.tip.oid, None))
    group = "" if place.group == short_branch(branch.ref) else place.group
    return replace(place, group=group, removals=removals, close=(*place.close, *closing))
