"""Overview of every package: cluster, set, versions on main and in review, and the next step. Pure."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from reconciler.api.kptfile import KptfileHeader
from reconciler.base.reasons import Reason
from reconciler.names.ids import ObjectName
from reconciler.plan.changes import Change, Plan
from reconciler.plan.context import PlanContext, PlanTarget
from reconciler.plan.reviewers import find_people
from reconciler.plan.status import PackageStatus, Phase, current_statuses

_WAITING = {
    Phase.PUBLISHED: "",
    Phase.NOT_READY: "its functions and readiness gates",
    Phase.CONFLICT: "an answer to its conflicts, in the draft",
    Phase.REJECTED: "another change, or reconciler.dev/retry",
    Phase.PAUSED: "the end of the pause",
    Phase.PENDING: "the next apply",
    Phase.STALLED: "a fix of its manifest or repository",
}
_HELD = {
    Reason.AWAITING_WAVE: "its rollout",
    Reason.DELETION_GUARD: "consent to its deletion",
    Reason.REMOVAL_UNPROVEN: "proof of its removal",
    Reason.UPSTREAM_TAG_MOVED: "consent to the moved tag",
    Reason.SNAPSHOT_INCOMPLETE: "a complete snapshot",
    Reason.SNAPSHOT_STALE: "a newer snapshot",
    Reason.STILL_NEEDED: "the packages that need it",
}
_REVISION_DIGITS = 8


class PackageOverview(NamedTuple):
    """A package in a row of `status`: upstream revisions on main and in review, and what it waits for."""

    set_name: str = ""
    cluster: str = ""
    main: str = ""
    review: str = ""
    waiting_for: str = ""


def package_overviews(
    plan: Plan, statuses: Iterable[PackageStatus] | None = None
) -> dict[ObjectName, PackageOverview]:
    """Return the overview of the package of each variant.

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
            overviews[status.variant] = _overview(status, target, change, plan.context)
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
        return PackageOverview(set_name, waiting_for=_waiting(status, ()))
    people = find_people([change], context).reviewers if status.phase is Phase.IN_REVIEW else ()
    draft = target.draft.header if target.draft else None
    return PackageOverview(
        set_name,
        target.view.cluster,
        version_label(target.package.main_header) if target.package.main_tree else "",
        version_label(draft),
        _waiting(status, people),
    )


def _waiting(status: PackageStatus, people: Iterable[str]) -> str:
    if status.phase is Phase.IN_REVIEW:
        if status.reason == Reason.AWAITING_CHECKS:
            return "its checks"
        what = "review of its deletion" if status.reason == Reason.DELETION_PROPOSED else "review"
        names = ", ".join(people)
        return f"{what} by {names}" if names else what
    if status.phase is Phase.HELD_BACK:
        return _HELD.get(Reason(status.reason), "a person") if status.reason in _REASONS else "a person"
    return _WAITING[status.phase]


_REASONS: Mapping[str, Reason] = {str(reason): reason for reason in Reason}
