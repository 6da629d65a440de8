"""Status of every package: its phase, age and pull request, and the files of the status branch (D23)."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime

import orjson
from msgspec import Struct
from msgspec.structs import replace

from reconciler.api.meta import Condition
from reconciler.api.porch import GROUP
from reconciler.base.reasons import Phase, Reason
from reconciler.base.text import Text, join_texts
from reconciler.expand import DesiredVariant
from reconciler.inventory.inventory import PullRequest, RepositoryRole
from reconciler.names.ids import ObjectKey, ObjectName, PackageKey
from reconciler.plan.after import first_head, undone
from reconciler.plan.changes import (
    Change,
    Outcome,
    Plan,
    Unfinished,
)
from reconciler.plan.conditions import plan_conditions
from reconciler.plan.context import PlanContext, PlanTarget, newest_pull
from reconciler.plan.deletion_evidence import claimed_packages
from reconciler.plan.losses import Loss, loss_value
from reconciler.resolve.ownership import find_view, package_name

Opened = Mapping[tuple[str, str], PullRequest]
"""The pull requests that a run opened or updated, by URL and head."""


class PackageStatus(Struct, frozen=True):
    """Status of one package.

    `since` is a committer time in seconds, never the clock: that of the commit that brought the
    package there, or what the last run recorded for the same phase and branch; 0 is unknown. `head`
    is the branch that waits, `revision` the PackageRevision as Porch calls it, "" for none. `losses` are the
    objects that go when its proposal is merged.
    """

    phase: Phase
    variant: ObjectName | None = None
    package: PackageKey | None = None
    repository: ObjectName | None = None
    name: str = ""
    since: int = 0
    head: str = ""
    pull: int = 0
    url: str = ""
    reason: str = ""
    message: Text = ""
    revision: str = ""
    losses: tuple[Loss, ...] = ()


def package_statuses(
    context: PlanContext,
    changes: Iterable[Change],
    unfinished: Mapping[PackageKey, Unfinished],
    opened: Opened | None = None,
) -> Iterator[PackageStatus]:
    """Yield the status of every owned package after the effects, and of every variant without a package.

    Pure and order-free. A package that is gone, or that this instance does not own, has no status.

    Args:
        context: Input of planning.
        changes: The changes of the plan.
        unfinished: The packages of which some effect is missing; all others have all of theirs.
        opened: The pull requests that the run opened.
    """
    listed: set[ObjectName] = set()
    for change in changes:
        target, missing = context.targets.get(change.package), unfinished.get(change.package)
        # What no stage may look at has a change, and no target.
        status = _status(change, target, missing, opened or {}) if target is not None else None
        if status is not None:
            # Where a variant leaves, its package says nothing about the one that it wants.
            listed |= {v.key for v in context.downstreams.get(change.package, ()) if v.key == status.variant}
            yield status
    placed = {v.key for variants in context.downstreams.values() for v in variants}
    for variant in context.desired.variants:
        if variant.key in listed:
            continue
        view = find_view(variant, context.inventory)
        # Of a skipped repository another shard tells.
        if view is None or view.role is not RepositoryRole.SKIPPED:
            yield _unplaced(variant, context, placed=variant.key in placed)


def _unplaced(variant: DesiredVariant, context: PlanContext, *, placed: bool) -> PackageStatus:
    """Return the status of a variant without a change of its own: contested, or of an unread repository."""
    problem = next((p for p in context.resolution.problems if p.owner == variant.owner), None)
    reason = str(problem.reason) if problem else str(Reason.DUPLICATE_DOWNSTREAM if placed else "Error")
    message = problem.message if problem else ""
    phase = Phase.HELD_BACK if placed and not problem else Phase.STALLED
    since, view = variant.source.time, find_view(variant, context.inventory)
    if view is not None and not view.is_available:
        # Its manifest is as old as it is: it stalls since a run first saw that it cannot be reached.
        since = context.inventory.now or context.inventory.control.commit.time
    recorded = context.inventory.statuses.get(variant.key)
    if recorded is not None and (recorded.phase, recorded.head) == (phase, ""):
        since = recorded.since or since
    status = PackageStatus(phase, variant.key, since=since, reason=reason, message=message)
    downstream = variant.spec.downstream
    if phase is Phase.HELD_BACK or downstream is None or not downstream.repo or not downstream.package:
        return status
    # Of a repository that was not read only the names are known.
    return replace(
        status, repository=ObjectName(variant.key.namespace, downstream.repo), name=downstream.package
    )


def _status(
    change: Change, target: PlanTarget, missing: Unfinished | None, opened: Opened
) -> PackageStatus | None:
    after = change.after if missing is None else undone(change, target, missing)
    if after.phase is None:
        return None
    head = after.head
    pull = opened.get((target.key.url, head)) or newest_pull(target.pulls, head) if head else None
    return PackageStatus(
        phase=after.phase,
        variant=change.variant,
        package=change.package,
        repository=change.repository,
        name=package_name(target.view, change.package.path),
        since=after.since,
        head=first_head(head),
        pull=pull.number if pull else 0,
        url=pull.url if pull else "",
        reason=after.reason,
        message=join_texts("; ", (after.why, *(f"loss: {loss.text}" for loss in change.losses))),
        losses=change.losses,
        revision=after.revision,
    )


DIRECTORY = "conditions"


def status_after(
    plan: Plan, unfinished: Mapping[PackageKey, Unfinished], opened: Opened | None = None
) -> dict[str, bytes]:
    """Return the files of the status branch as a run leaves them. Pure.

    Args:
        plan: What the run was to do.
        unfinished: The packages of which some effect is missing, and why.
        opened: The pull requests that the run opened or updated.
    """
    if plan.context is None:
        return dict(plan.status)
    # Where every effect was done, the conditions are those that the plan expects.
    expected = plan.conditions if not unfinished else {}
    conditions = expected or plan_conditions(plan.context, plan.changes, unfinished)
    statuses = statuses_after(plan, unfinished, opened)
    others = plan.status if plan.other_status is None else plan.other_status
    return {**others, **plan_status(plan.context, conditions, statuses)}


def statuses_after(
    plan: Plan, unfinished: Mapping[PackageKey, Unfinished], opened: Opened | None = None
) -> tuple[PackageStatus, ...]:
    """Return the status of every owned package after a run, sorted. Pure."""
    if plan.context is None:
        return ()
    statuses = package_statuses(plan.context, plan.changes, unfinished, opened)
    return tuple(sorted(statuses, key=lambda s: (s.variant or ("", ""), s.package or ("", ""))))


def current_status(plan: Plan) -> dict[str, bytes]:
    """Return the files of the status branch as the world is now, before any effect of the plan.

    Of an effect that failed in the last run and is still to be done, its words are kept.
    """
    return status_after(plan, _nothing_done(plan))


def current_states(plan: Plan) -> dict[PackageKey, PackageStatus]:
    """Return the status of every owned package before any effect of the plan, by package."""
    if plan.context is None:
        return {}
    statuses = package_statuses(plan.context, plan.changes, _nothing_done(plan))
    return {status.package: status for status in statuses if status.package}


def current_statuses(plan: Plan, outcome: Outcome | None = None) -> tuple[PackageStatus, ...]:
    """Return the status of every owned package before any effect of the plan or after its outcome, sorted."""
    if outcome is None:
        return statuses_after(plan, _nothing_done(plan))
    return statuses_after(plan, outcome.unfinished, outcome.opened)


def _nothing_done(plan: Plan) -> dict[PackageKey, Unfinished]:
    recorded = plan.context.inventory.statuses if plan.context else {}
    unfinished = {}
    for change in plan.changes:
        if change.pending:
            last = recorded.get(change.variant) if change.variant else None
            # What was postponed then is told by its reason, and may be due now.
            was_pending = last is not None and last.phase == Phase.PENDING and not last.reason
            unfinished[change.package] = Unfinished(
                last.message if last and was_pending else "", is_left=True
            )
    return unfinished


def plan_status(
    context: PlanContext,
    conditions: Mapping[ObjectKey, tuple[Condition, ...]],
    statuses: Iterable[PackageStatus] = (),
) -> dict[str, bytes]:
    """Return the files of the status branch: what became of each owner and its package.

    A variant that is gone is listed while anything of it is left.
    """
    variants = {v.key: v for v in context.desired.variants}
    # A variant that moved has a package where it leaves, too: what is known of its downstream comes last.
    ordered = sorted(statuses, key=lambda s: s.package is None or s.package in context.downstreams)
    packages = {ObjectKey(GROUP, "PackageVariant", *s.variant): s for s in ordered if s.variant}
    files = {}
    for key in sorted({*conditions, *packages}):
        own_conditions = conditions.get(key, ())
        value: dict[str, object] = {
            "kind": key.kind,
            "namespace": key.namespace,
            "name": key.name,
            "conditions": [condition.model_dump(exclude_none=True) for condition in own_conditions],
        }
        variant = variants.get(ObjectName(key.namespace, key.name))
        if key.kind == "PackageVariant" and variant is not None:
            value["labels"] = variant.spec.labels or {}
            value["annotations"] = variant.spec.annotations or {}
        if key in packages:
            status = packages[key]
            # Checks and other packages go on without us: recorded, they would make every run write.
            is_lasting = status.reason != Reason.AWAITING_CHECKS
            value["package"] = status_value(status if is_lasting else replace(status, reason="", message=""))
            value["downstreamTargets"] = [{"name": status.revision}] if status.revision else []
        options = orjson.OPT_SORT_KEYS | orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE
        files[_path(key)] = orjson.dumps(value, option=options)
    return files


def status_value(status: PackageStatus) -> dict[str, object]:
    """Return the status of a package as a JSON value."""
    since = datetime.fromtimestamp(status.since, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if status.since else None
    return {
        "phase": str(status.phase),
        "since": since,
        "repository": status.repository.name if status.repository else "",
        "name": status.name,
        "head": status.head,
        "pullRequest": {"number": status.pull, "url": status.url} if status.pull else None,
        "reason": status.reason,
        "message": status.message,
        **({"losses": [loss_value(loss) for loss in status.losses]} if status.losses else {}),
    }


def status_owners(context: PlanContext, changes: Iterable[Change]) -> dict[str, PackageKey]:
    """Return the package that each file about a variant is about, also after the variant left."""
    return dict(_owners(context, changes))


def _owners(context: PlanContext, changes: Iterable[Change]) -> Iterator[tuple[str, PackageKey]]:
    inventory = context.inventory
    for key, status in inventory.statuses.items():
        if view := inventory.repositories.get(ObjectName(key.namespace, status.repository)):
            yield _path(ObjectKey(GROUP, "PackageVariant", *key)), PackageKey(view.url, "")
    for package, key in claimed_packages(context.stalled, inventory).items():
        yield _path(ObjectKey(GROUP, "PackageVariant", *key)), package
    for record in inventory.records.values():
        yield _path(ObjectKey(GROUP, "PackageVariant", *record.key)), PackageKey(record.url, record.path)
    for change in changes:
        if change.variant is not None:
            yield _path(ObjectKey(GROUP, "PackageVariant", *change.variant)), change.package
    # Last: a variant that moved is told of where it goes, not where it leaves.
    for package, variants in context.downstreams.items():
        yield from ((_path(ObjectKey(GROUP, "PackageVariant", *v.key)), package) for v in variants)


def _path(key: ObjectKey) -> str:
    return f"{DIRECTORY}/{key.kind.lower()}s/{key.namespace}/{key.name}.json"
