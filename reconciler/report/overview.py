"""Overview of every package: cluster, set, versions on main and in review, and the next step. Pure."""

from collections.abc import Iterable
from typing import Literal, NamedTuple

from reconciler.api.kptfile import KptfileHeader
from reconciler.base.reasons import Phase, Reason, find_facts
from reconciler.names.ids import ObjectName, PackageKey
from reconciler.plan.adoption import find_obstacle
from reconciler.plan.changes import Change, Op, Plan
from reconciler.plan.context import PlanContext, PlanTarget
from reconciler.plan.reviewers import find_people
from reconciler.plan.status import PackageStatus, current_statuses
from reconciler.resolve.ownership import find_view

ANSWER, MENDING = "an answer to its conflicts", "a fix of its manifest or repository"
_WAITING = {
    Phase.PUBLISHED: "",
    Phase.NOT_READY: "its functions and readiness gates",
    Phase.CONFLICT: ANSWER,
    Phase.REJECTED: "another change, or reconciler.dev/retry",
    Phase.HELD_BACK: "a person",
    Phase.PAUSED: "the end of the pause",
    Phase.PENDING: "the next apply",
    Phase.STALLED: MENDING,
}
_REVISION_DIGITS = 8


class PackageOverview(NamedTuple):
    """A package in a row of `status`: upstream revisions on main and in review, and what it waits for.

    `stopped` is True while its rollout stops the pull request from being merged.
    A draft `replaces` what main has without an upstream revision: nothing, `ours`, or `others`.
    """

    set_name: str = ""
    cluster: str = ""
    main: str = ""
    review: str = ""
    waiting_for: str = ""
    reviewers: tuple[str, ...] = ()
    stopped: bool = False
    replaces: Literal["", "ours", "others"] = ""

    def review_after(self, change: Change) -> str:
        """Return the revision in review when a change is made, "" for none."""
        planned = change.upstream_to if change.written is not None and change.op is not Op.DELETE else ""
        return planned if planned not in ("", self.main) else self.review


def package_overviews(
    plan: Plan, statuses: Iterable[PackageStatus] | None = None
) -> dict[tuple[ObjectName, PackageKey | None], PackageOverview]:
    """Return the overview of each package of each variant; one that moved has a package where it leaves too.

    Args:
        plan: The plan of the fleet.
        statuses: The states to show; by default those before any effect of the plan.
    """
    if plan.context is None:
        return {}
    changes = {change.package: change for change in plan.changes}
    overviews = {}
    for status in current_statuses(plan) if statuses is None else statuses:
        target = plan.context.targets.get(status.package) if status.package else None
        change = changes.get(status.package) if status.package else None
        if status.variant is not None:
            overviews[status.variant, status.package] = _overview(status, target, change, plan.context)
    return overviews


def variant_set(variant: ObjectName, context: PlanContext) -> str:
    """Return the PackageVariantSet of a variant as `NAMESPACE/NAME`, "" for none."""
    desired = context.variants.get(variant)
    if desired is not None:
        return str(desired.set_key or "")
    record = context.inventory.records.get(variant)
    return f"{record.namespace}/{record.set_name}" if record is not None and record.set_name else ""


def version_label(header: KptfileHeader | None) -> str:
    """Return the upstream revision of a package as people call it: `web/v2`, or a ref at a short commit."""
    lock = header.upstream_lock if header else None
    if lock is None or not lock.ref:
        return ""
    number = lock.ref.rpartition("/")[2]
    is_revision = number[:1] == "v" and number[1:].isdecimal()
    return lock.ref if is_revision or not lock.commit else f"{lock.ref}@{lock.commit[:_REVISION_DIGITS]}"


def _overview(
    status: PackageStatus, target: PlanTarget | None, change: Change | None, context: PlanContext
) -> PackageOverview:
    set_name = variant_set(status.variant, context) if status.variant else ""
    if target is None or change is None:
        cluster, main = _recorded_place(status.variant, context) if status.variant else ("", "")
        return PackageOverview(set_name, cluster, main, waiting_for=_waiting(status, (), is_wanted=True))
    people = find_people([change], context).reviewers if status.phase is Phase.IN_REVIEW else ()
    waiting = _waiting(status, people, is_wanted=target.key in context.downstreams)
    stopped = status.phase is Phase.IN_REVIEW and status.variant in context.stopped
    waiting = Reason.AWAITING_WAVE.facts.waits_for if stopped else waiting
    if status.variant is not None and status.reason == Reason.PACKAGE_EXISTS:
        waiting = find_obstacle(target, status.variant, context).waits_for
    draft = target.draft.header if target.draft else None
    return PackageOverview(
        set_name,
        target.view.cluster,
        version_label(target.package.main_header) if target.package.main_tree else "",
        version_label(draft),
        waiting,
        people,
        stopped,
        replaces=_replaced(target),
    )


def _replaced(target: PlanTarget) -> Literal["", "ours", "others"]:
    header = target.package.main_header
    if target.package.main_tree is None or version_label(header):
        return ""
    return "ours" if header is not None and header.owner else "others"


def _recorded_place(variant: ObjectName, context: PlanContext) -> tuple[str, str]:
    """Return the cluster of a package that was not read, and its recorded revision on main.

    A mark follows the revision of an unreachable repository, or is alone: unreachable is not absent.
    """
    desired, inventory = context.variants.get(variant), context.inventory
    view = find_view(desired, inventory) if desired is not None else None
    cluster = view.cluster if view is not None else ""
    record = inventory.records.get(variant)
    if view is None or view.is_available:
        return cluster, ""
    upstream = (record.spec.get("upstream") or {}) if record is not None else {}
    is_known = record is not None and record.local_tree != "" and record.local_tree == record.output_tree
    if record is None or not is_known or not upstream.get("package"):
        return cluster, _UNKNOWN
    revision = upstream.get("revision")
    is_numbered = isinstance(revision, int) and revision > 0
    name = f"v{revision}" if is_numbered else record.upstream_commit[:_REVISION_DIGITS]
    return cluster, f"{upstream['package']}{'/' if is_numbered else '@'}{name}{_UNKNOWN}"


_UNKNOWN = "?"
"""The mark of a revision that may have changed since it was read."""


def _waiting(status: PackageStatus, people: Iterable[str], *, is_wanted: bool) -> str:
    if status.phase is Phase.IN_REVIEW:
        if status.reason == Reason.AWAITING_CHECKS:
            return "its checks"
        if status.reason == Reason.AWAITING_WAVE:
            return find_facts(status.reason).waits_for
        what = "review of its deletion" if status.reason == Reason.DELETION_PROPOSED else "review"
        names = ", ".join(people)
        return f"{what} by {names}" if names else what
    if status.phase is Phase.REJECTED and not is_wanted:
        return "nothing"
    return find_facts(status.reason).waits_for or _WAITING[status.phase]
