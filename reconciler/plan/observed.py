"""The files of the status branch, computed from what the effects of a run left behind (D23)."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import orjson

from reconciler.api.meta import Condition
from reconciler.api.porch import GROUP
from reconciler.ids import ObjectKey, ObjectName, PackageKey
from reconciler.plan.changes import Change, Plan, Unfinished
from reconciler.plan.conditions import plan_conditions
from reconciler.plan.context import PlanContext
from reconciler.plan.deletion_evidence import claimed_packages
from reconciler.plan.phases import Opened, PackageStatus, Phase, package_statuses

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
    conditions = plan_conditions(plan.context, plan.changes, unfinished)
    statuses = statuses_after(plan, unfinished, opened)
    return {**plan.status, **plan_status(plan.context, conditions, statuses)}


def statuses_after(
    plan: Plan, unfinished: Mapping[PackageKey, Unfinished], opened: Opened | None = None
) -> tuple[PackageStatus, ...]:
    """Return where every package of ours stands as a run leaves it, sorted. Pure."""
    if plan.context is None:
        return ()
    found = package_statuses(plan.context, plan.changes, unfinished, opened)
    return tuple(sorted(found, key=lambda s: (s.variant or ("", ""), s.package or ("", ""))))


def current_status(plan: Plan) -> dict[str, bytes]:
    """Return the files of the status branch as the world is now, before any effect of the plan.

    Of an effect that failed in the last run and is still to be done, its words are kept.
    """
    return status_after(plan, _nothing_done(plan))


def current_statuses(plan: Plan) -> tuple[PackageStatus, ...]:
    """Return where every package of ours stands now, before any effect of the plan; sorted."""
    return statuses_after(plan, _nothing_done(plan))


def _nothing_done(plan: Plan) -> dict[PackageKey, Unfinished]:
    recorded = plan.context.inventory.statuses if plan.context else {}
    found = {}
    for change in plan.changes:
        if change.pending:
            last = recorded.get(change.variant) if change.variant else None
            was_pending = last is not None and last.phase == Phase.PENDING
            found[change.package] = Unfinished(last.message if last and was_pending else "", left=True)
    return found


def plan_status(
    context: PlanContext,
    conditions: Mapping[ObjectKey, tuple[Condition, ...]],
    statuses: Iterable[PackageStatus] = (),
) -> dict[str, bytes]:
    """Return the files of the status branch: what became of each owner and its package.

    A variant that is gone is listed while anything of it is left.
    """
    variants = {v.key: v for v in context.desired.variants}
    # A variant that moved has a package where it leaves, too: that of its downstream comes last.
    ordered = sorted(statuses, key=lambda s: s.package in context.wanted)
    packages = {ObjectKey(GROUP, "PackageVariant", *s.variant): s for s in ordered if s.variant}
    files = {}
    for key in sorted({*conditions, *packages}):
        found = conditions.get(key, ())
        value: dict[str, Any] = {
            "kind": key.kind,
            "namespace": key.namespace,
            "name": key.name,
            "conditions": [c.model_dump(by_alias=True, exclude_none=True) for c in found],
        }
        variant = variants.get(ObjectName(key.namespace, key.name))
        if key.kind == "PackageVariant" and variant is not None:
            value["labels"] = variant.spec.labels or {}
            value["annotations"] = variant.spec.annotations or {}
        if key in packages:
            status = packages[key]
            value["package"] = status_value(status)
            value["downstreamTargets"] = [{"name": status.revision}] if status.revision else []
        files[_path(key)] = _json(value)
    return files


def status_value(status: PackageStatus) -> dict[str, Any]:
    """Return where a package stands as a JSON value."""
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
    }


def status_owners(context: PlanContext, changes: Iterable[Change]) -> dict[str, PackageKey]:
    """Return the package that each file about a variant tells of, or told of before the variant left."""
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
    for package, variants in context.wanted.items():
        yield from ((_path(ObjectKey(GROUP, "PackageVariant", *v.key)), package) for v in variants)


def _path(key: ObjectKey) -> str:
    return f"{DIRECTORY}/{key.kind.lower()}s/{key.namespace}/{key.name}.json"


def _json(value: Mapping[str, Any]) -> bytes:
    options = orjson.OPT_SORT_KEYS | orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE
    return orjson.dumps(value, option=options)
