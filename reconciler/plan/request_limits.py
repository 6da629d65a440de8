"""Limits and schedule of new pull requests: which are opened by this run, and which wait, oldest first.

Only opening is limited: drafts are written, and open pull requests are kept up to date and closed.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from msgspec import Struct, field

from reconciler.base.reasons import Reason
from reconciler.inventory.inventory import PullState
from reconciler.names.ids import PackageKey
from reconciler.names.refs import short_branch
from reconciler.plan.changes import Change, Postponed, WriteDraft, WriteGroup, WriteRemoval
from reconciler.plan.context import PlanContext
from reconciler.policy import PullRequestPolicy
from reconciler.resolve.rollout_model import RolloutPhase

Head = tuple[str, str]
"""A repository's URL and the branch of a pull request."""


class _Counts(Struct):
    """Pull requests that are open or to be opened, and those that this run opens."""

    opened: Counter[str]
    new: Counter[str] = field(default_factory=Counter)

    def exceeded(self, url: str, policy: PullRequestPolicy) -> str:
        """Return the setting that one more pull request of a repository would exceed, "" for none."""
        limits = {
            "maxOpen": (policy.max_open, self.opened.total()),
            "maxOpenPerRepository": (policy.max_open_per_repository, self.opened[url]),
            "maxNew": (policy.max_new, self.new.total()),
            "maxNewPerRepository": (policy.max_new_per_repository, self.new[url]),
        }
        return next((f"{name} is {most}" for name, (most, count) in limits.items() if 0 < most <= count), "")


def postpone_requests(
    context: PlanContext, changes: Mapping[PackageKey, Change]
) -> Mapping[PackageKey, Postponed]:
    """Return the packages with a pull request that limits or the schedule forbid to open now, and why.

    What waits is pending: the next plan has it again, before anything newer. Order-free. A rollback waits for
    no limit. What a paused or failed rollout keeps from being merged is not opened either.
    """
    policy = context.inventory.policy.pull_requests
    limits = (policy.max_open, policy.max_open_per_repository, policy.max_new, policy.max_new_per_repository)
    stopped = _stopped(context, tuple(changes.values())) if context.stopped else {}
    if context.inventory.opening.is_open and not any(limits) and not stopped:
        return {}
    limited = [change for change in changes.values() if not _goes_back(change, context)]
    postponed = {**_postponed(context, limited), **stopped}
    heads = {key: head for key, change in changes.items() if (head := _new_head(change)) is not None}
    return {key: postponed[head] for key, head in heads.items() if head in postponed}


def _goes_back(change: Change, context: PlanContext) -> bool:
    rollout = context.rollouts.get(change.variant) if change.variant else None
    return rollout is not None and rollout.phase is RolloutPhase.ROLLED_BACK


def _stopped(context: PlanContext, changes: Sequence[Change]) -> Mapping[Head, Postponed]:
    """Return the pull requests of which no package may be merged now."""
    by_head: dict[Head, list[Change]] = {}
    for change in changes:
        if head := _new_head(change):
            by_head.setdefault(head, []).append(change)
    return {
        head: Postponed(Reason.AWAITING_WAVE, context.stopped[changes_at[0].variant])
        for head, changes_at in by_head.items()
        if changes_at[0].variant and all(change.variant in context.stopped for change in changes_at)
    }


def _new_head(change: Change) -> Head | None:
    """Return the branch of the pull request that a change opens, None if it opens none."""
    is_new = change.pull is not None and not change.pull.number
    return (change.package.url, change.pull.head) if change.pull is not None and is_new else None


def _postponed(context: PlanContext, changes: Sequence[Change]) -> Mapping[Head, Postponed]:
    policy, opening = context.inventory.policy.pull_requests, context.inventory.opening
    ages = _ages(context, changes)
    if not opening.is_open:
        message = "Its pull request waits for pullRequests.schedule"
        when = Postponed(Reason.AWAITING_SCHEDULE, message, opening.opens)
        return dict.fromkeys(ages, when)
    counts = _Counts(_count_open(context, changes))
    postponed: dict[Head, Postponed] = {}
    for head in sorted(ages, key=lambda head: (ages[head], head)):
        url, _ = head
        limit = counts.exceeded(url, policy)
        if limit:
            message = f"Its pull request waits: pullRequests.{limit}"
            postponed[head] = Postponed(Reason.RATE_LIMITED, message, opening.opens)
        else:
            counts.opened[url] += 1
            counts.new[url] += 1
    return postponed


def _ages(context: PlanContext, changes: Sequence[Change]) -> Mapping[Head, tuple[bool, int]]:
    """Return each pull request that would be opened with its age: branches that are there, then by time."""
    ages: dict[Head, tuple[bool, int]] = {}
    for change in changes:
        if head := _new_head(change):
            age = _age(change, head, context)
            ages[head] = max(ages.get(head, age), age)
    return ages


def _age(change: Change, head: Head, context: PlanContext) -> tuple[bool, int]:
    """Return whether the branch is still to be made, and the time of its newest input, in seconds."""
    target = context.targets[change.package]
    _, branch = head
    draft = target.draft if target.draft is not None and short_branch(target.draft.ref) == branch else None
    standing = draft.tip if draft is not None else target.view.branches.get(branch)
    if standing is not None:
        return False, standing.time
    written = (w for w in change.writes if isinstance(w, WriteDraft | WriteGroup | WriteRemoval))
    return True, max((write.time for write in written if short_branch(write.ref) == branch), default=0)


def _count_open(context: PlanContext, changes: Sequence[Change]) -> Counter[str]:
    """Count the open pull requests of this instance by repository, without those that close now."""
    ours = {(key.url, short_branch(d.ref)) for key, target in context.targets.items() for d in target.drafts}
    prefix = f"reconciler/{context.inventory.policy.instance}/"
    closing = {(change.package.url, close.number) for change in changes for close in change.close}
    return Counter(
        url
        for url, pulls in context.inventory.pulls.items()
        for pull in pulls
        if pull.state is PullState.OPEN
        and ((url, pull.head) in ours or pull.head.startswith(prefix))
        and (url, pull.number) not in closing
    )
