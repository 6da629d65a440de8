"""Conditions of every owner and the status of every package: the files of the status branch (D18, D23)."""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Literal

import orjson
from msgspec import Struct
from msgspec.structs import replace

from reconciler.api.meta import Condition
from reconciler.api.porch import GROUP
from reconciler.base.reasons import Phase, Reason, WaitsFor
from reconciler.base.text import Text, iso_time, join_texts
from reconciler.expand import DesiredVariant
from reconciler.inventory.inventory import PullRequest, RepositoryRole, RepositoryView
from reconciler.names.ids import ObjectKey, ObjectName, Oid, PackageKey
from reconciler.plan.changes import Change, Op, Outcome, Plan, Unfinished
from reconciler.plan.compose import asked_text, first_head, missing_text, undone
from reconciler.plan.context import PlanContext, PlanTarget, newest_pull
from reconciler.plan.impact import Loss, loss_value
from reconciler.plan.set_diff import claimed_packages
from reconciler.records.state import PackageVariantRecord
from reconciler.render.rendered import Package
from reconciler.resolve.ownership import find_view, package_name

POINT_EMPTY = "RequiredPointEmpty"
"""Reason of the condition `ConfigInjected` where a required injection point has no object."""
_VALID = "all validation checks passed"
_ENSURED = "successfully ensured downstream package variant"
_UNREAD = "its repository could not be read"
_FEW = 1 << 10


def plan_conditions(
    context: PlanContext, changes: Iterable[Change], unfinished: Mapping[PackageKey, Unfinished] | None = None
) -> dict[ObjectKey, tuple[Condition, ...]]:
    """Return the conditions of every set and variant as the effects leave them.

    Without times and sorted by type, so that they never flap: what a run leaves behind has the same
    conditions in the next run, which does nothing. `unfinished` are the packages of which some effect is
    missing, and why.
    """
    missing = unfinished or {}
    drafted = _drafted(context)
    conditions = {key: _complete(key, items, drafted) for key, items in context.desired.conditions.items()}
    downstreams = {(v.key, package) for package, variants in context.downstreams.items() for v in variants}
    changes = tuple(changes)
    by_package = {change.package: change for change in changes}
    # Variants that contest a package share its one change.
    by_variant = {key: by_package[package] for key, package in downstreams if package in by_package}
    problems = {problem.owner: problem for problem in reversed(context.resolution.problems)}
    for variant in context.desired.variants:
        key = ObjectKey(GROUP, "PackageVariant", *variant.key)
        problem = problems.get(key)
        change = by_variant.get(variant.key)
        if problem is not None or change is None:
            reason, message = (problem.reason, problem.message) if problem else ("Error", _UNREAD)
            items = _stalled(reason, message, has_draft=variant.key in drafted)
        else:
            items = _variant(variant, change, context, missing.get(change.package))
        conditions[key] = tuple(sorted(items, key=lambda c: c.type))
    return dict(sorted(conditions.items()))


def _drafted(context: PlanContext) -> set[ObjectName | None]:
    """Return the variants of packages with a draft: the owner, or who takes the package over from it."""
    claims = claimed_packages(context.stalled, context.inventory)
    drafted: set[ObjectName | None] = set()
    for target in context.targets.values():
        if target.draft is not None:
            wanting = {variant.key for variant in context.downstreams.get(target.key, ())}
            # The draft of an owner that goes on is not one of a newcomer, which stalls.
            others = () if target.owner in wanting else (claims.get(target.key), *wanting)
            drafted |= {target.owner, *others}
    return drafted


def _complete(
    owner: ObjectKey, conditions: tuple[Condition, ...], drafted: Container[ObjectName | None]
) -> tuple[Condition, ...]:
    """Add the seed's conditions to a variant with an invalid manifest."""
    stalled = next((c for c in conditions if c.type == "Stalled" and c.status == "True"), None)
    if owner.kind != "PackageVariant" or stalled is None:
        return conditions
    has_draft = ObjectName(owner.namespace, owner.name) in drafted
    every = _stalled(stalled.reason, stalled.message, has_draft=has_draft)
    return tuple(sorted(every, key=lambda c: c.type))


def _stalled(reason: str, message: Text, *, has_draft: bool) -> Iterator[Condition]:
    """Yield the conditions of a variant of which nothing can be done."""
    yield _condition("Stalled", True, "ValidationError", message)
    yield _condition("Ready", False, "Error", "invalid packagevariant object")
    yield _condition("Valid", False, reason, message)
    yield _draft(has_draft)
    for type_ in ("DownstreamEnsured", "ContextInjected", "ConfigInjected"):
        yield _condition(type_, False, "Stalled", message)


def _variant(
    variant: DesiredVariant, change: Change, context: PlanContext, missing: Unfinished | None
) -> Iterator[Condition]:
    yield _condition("Stalled", False, "Valid", _VALID)
    yield _condition("Valid", True, "Valid", _VALID)
    if change.reason.facts.phase is Phase.PAUSED:
        yield from _paused(change)
        return
    # Which required injection points are empty; None if the package has no points
    rendered = context.rendered.variants.get(variant.key)
    fresh = rendered.fresh if rendered else None
    injection = fresh.injection if isinstance(fresh, Package) else None
    unwritten = missing if missing and not missing.pushed and change.written else None
    error = _error(change) or (missing_text(change, unwritten) if unwritten else "")
    yield _ensured(change, error, injection, unwritten)
    unfilled = injection if change.unready else ""  # a published blueprint may have empty points
    yield _ready(change, error or unfilled or (missing_text(change, missing) if missing else ""))
    after = undone(change, context.targets[change.package], missing) if missing else change.after
    yield _draft(after.has_draft)
    # What was rendered may be there all the same: in a draft that a person closed, say.
    absent = "" if isinstance(fresh, Package) and fresh.tree in _trees(variant, context) else error
    yield _context(variant, absent, context)
    yield _config(absent, injection)


def _trees(variant: DesiredVariant, context: PlanContext) -> Iterator[Oid | None]:
    """Yield the package as main and its draft have it, and as its draft was written last."""
    resolved = context.resolved.get(variant.key)
    if resolved is not None:
        yield resolved.local
        yield from (resolved.draft.tree, resolved.draft.written) if resolved.draft else ()


def _paused(change: Change) -> Iterator[Condition]:
    """Yield the conditions of a paused variant: nothing is compared with what it asks for."""
    status: Literal["Unknown", "False"] = "False" if change.before is None else "Unknown"
    message = str(change.message)
    for type_ in ("Ready", "DownstreamEnsured", "ContextInjected", "ConfigInjected"):
        yield Condition(type=type_, status=status, reason=str(change.reason), message=message)
    yield _draft(change.after.has_draft)


def _ensured(change: Change, error: Text, injection: str | None, unwritten: Unfinished | None) -> Condition:
    """Say whether main or a draft holds what the variant asks for."""
    if unwritten is not None:
        reason = "Pending" if unwritten.is_left else "Error"
        return _condition("DownstreamEnsured", False, reason, error)
    if error:
        return _condition("DownstreamEnsured", False, str(change.reason), error)
    if injection:
        return _condition("DownstreamEnsured", False, "ConfigNotInjected", injection)
    failed = change.unready[0] if change.failed else ""
    reason = Reason.PIPELINE_FAILED if failed else "NoErrors"
    return _condition("DownstreamEnsured", not failed, reason, failed or _ENSURED)


def _ready(change: Change, error: Text) -> Condition:
    """Say why the package may not be approved as it is, in words that stay while the draft does."""
    question = asked_text(change.conflicts) if change.conflicts else ""
    waiting = (change.message or str(change.reason)) if change.waits else ""
    message = error or join_texts("; ", change.unready) or question or waiting
    return _condition("Ready", not message, "Error" if message else "NoErrors", message or _ENSURED)


def _error(change: Change) -> Text:
    if change.op is Op.BLOCK or not change.reason.facts.ensured or change.reason is Reason.OWNER_STALLED:
        return change.message or str(change.reason)
    return ""


def _draft(exists: object) -> Condition:
    return _condition("DraftExists", exists, "DraftExists" if exists else "NoDraft", "")


def _context(variant: DesiredVariant, error: Text, context: PlanContext) -> Condition:
    """Say whether what the variant asks of the package context is there."""
    requested = variant.spec.package_context
    if requested is None or not (requested.data or requested.remove_keys):
        return _condition("ContextInjected", False, "NotRequested", "spec.packageContext is empty")
    rendered = context.rendered.variants.get(variant.key)
    done = rendered is not None and isinstance(rendered.fresh, Package) and not error
    reason = "ContextInjected" if done else "ContextNotInjected"
    return _condition("ContextInjected", done, reason, "" if done else error)


def _config(error: Text, injection: str | None) -> Condition:
    """Say whether every required injection point is filled; a package without points lacks nothing."""
    if error:
        return _condition("ConfigInjected", False, "Error", error)
    if injection is None:
        return _condition("ConfigInjected", True, "NoInjectionPoints", "")
    reason = POINT_EMPTY if injection else "ConfigInjected"
    return _condition("ConfigInjected", not injection, reason, injection)


def _condition(type_: str, holds: object, reason: str, message: Text) -> Condition:
    return _made(type_, "True" if holds else "False", reason, str(message))


@lru_cache(maxsize=_FEW)
def _made(type_: str, status: Literal["True", "False"], reason: str, message: str) -> Condition:
    """Return a condition. Cached: a fleet has few, and validating one costs as much as finding it out."""
    return Condition(type=type_, status=status, reason=reason, message=message)


@lru_cache(maxsize=_FEW)
def _plain(condition: Condition) -> dict[str, object]:
    return dict(sorted(condition.model_dump(exclude_none=True).items()))


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
    waits_for: WaitsFor = WaitsFor.NOBODY


class OwnerStatus(Struct, frozen=True):
    """Status of an owner as its file on the status branch has it, or of a package of a cluster."""

    kind: str
    namespace: str
    name: str
    conditions: tuple[Condition, ...] = ()
    labels: Mapping[str, str] | None = None
    """Labels of a variant that is there, None of any other."""
    annotations: Mapping[str, str] | None = None
    package: PackageStatus | None = None
    cluster: str = ""
    """The cluster of a package that is none of a variant."""
    details: Mapping[str, object] = {}
    """The status of such a package as its API has it."""

    @property
    def key(self) -> ObjectName:
        """The name with its namespace."""
        return ObjectName(self.namespace, self.name)


def package_statuses(
    context: PlanContext,
    changes: Iterable[Change],
    unfinished: Mapping[PackageKey, Unfinished],
    opened: Opened | None = None,
) -> Iterator[PackageStatus]:
    """Yield the status of every owned package after the effects, and of every variant without a package.

    Pure and order-free. A package that is gone, or that this instance does not own, has no status.
    `unfinished` are the packages of which some effect is missing, `opened` the pull requests that the run
    opened.
    """
    listed: set[ObjectName] = set()
    with_change: set[PackageKey] = set()
    for change in changes:
        with_change.add(change.package)
        target, missing = context.targets.get(change.package), unfinished.get(change.package)
        # What no stage may look at has a change, and no target.
        status = _status(change, target, missing, opened or {}) if target is not None else None
        if status is not None:
            # Where a variant leaves, its package says nothing about the one that it wants.
            listed |= {v.key for v in context.downstreams.get(change.package, ()) if v.key == status.variant}
            yield status
    placed = {v.key: package for package, variants in context.downstreams.items() for v in variants}
    for variant in context.desired.variants:
        view = find_view(variant, context.inventory)
        # Another shard tells of its packages, and of repositories that this one skipped. What is in a
        # repository that could not be read has no change, either.
        is_elsewhere = variant.key in placed and placed[variant.key] not in with_change
        if variant.key in listed or (is_elsewhere and view is not None and view.is_available):
            continue
        if view is None or view.role is not RepositoryRole.SKIPPED:
            yield _unplaced(variant, context, placed=variant.key in placed)
    # What a stalled set wanted in a repository that was not read is as unknown, and not gone.
    for key in sorted(context.inventory.records.keys() - listed - {v.key for v in context.desired.variants}):
        record = context.inventory.records[key]
        view = context.inventory.repositories.get(ObjectName(key.namespace, record.repository))
        if view is not None and view.role is not RepositoryRole.SKIPPED and not view.is_available:
            yield _unread(key, record, view, context)


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
    waits_for = WaitsFor.DECISION if phase is Phase.HELD_BACK else WaitsFor.MANIFEST
    status = PackageStatus(
        phase, variant.key, since=since, reason=reason, message=message, waits_for=waits_for
    )
    downstream = variant.spec.downstream
    if phase is Phase.HELD_BACK or downstream is None or not downstream.repo or not downstream.package:
        return status
    # Of a repository that was not read only the names are known.
    return replace(
        status, repository=ObjectName(variant.key.namespace, downstream.repo), name=downstream.package
    )


def _unread(
    key: ObjectName, record: PackageVariantRecord, view: RepositoryView, context: PlanContext
) -> PackageStatus:
    last = context.inventory.statuses.get(key)
    is_same = last is not None and (last.phase, last.head) == (Phase.STALLED, "")
    return PackageStatus(
        Phase.STALLED,
        key,
        repository=view.key,
        name=package_name(view, record.path),
        since=last.since
        if last and is_same
        else context.inventory.now or context.inventory.control.commit.time,
        reason=view.problem.reason if view.problem else "",
        message=view.unread_message,
        waits_for=WaitsFor.MANIFEST,
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
        waits_for=after.waits_for,
    )


DIRECTORY = "conditions"


def status_after(
    plan: Plan, statuses: Sequence[PackageStatus], unfinished: Mapping[PackageKey, Unfinished]
) -> dict[str, bytes]:
    """Return the files of the status branch as a run leaves them, with the `statuses_after`. Pure.

    `unfinished` are the packages of which some effect is missing, and why.
    """
    if plan.context is None:
        return dict(plan.status)
    conditions = _conditions(plan, plan.context, unfinished)
    others = plan.status if plan.other_status is None else plan.other_status
    return {**others, **plan_status(plan.context, conditions, statuses)}


def _conditions(
    plan: Plan, context: PlanContext, unfinished: Mapping[PackageKey, Unfinished]
) -> Mapping[ObjectKey, tuple[Condition, ...]]:
    # Where every effect was done, the conditions are those that the plan expects.
    expected = plan.conditions if not unfinished else {}
    return expected or plan_conditions(context, plan.changes, unfinished)


def statuses_after(
    plan: Plan, unfinished: Mapping[PackageKey, Unfinished], opened: Opened | None = None
) -> tuple[PackageStatus, ...]:
    """Return the status of every owned package after a run, sorted. Pure."""
    if plan.context is None:
        return ()
    statuses = package_statuses(plan.context, plan.changes, unfinished, opened)
    return tuple(sorted(statuses, key=lambda s: (s.variant or ("", ""), s.package or ("", ""))))


def current_owners(
    plan: Plan, statuses: Sequence[PackageStatus], outcome: Outcome | None = None
) -> tuple[OwnerStatus, ...]:
    """Return the status of every owner where packages have these `current_statuses`, sorted."""
    if plan.context is None:
        return ()
    unfinished = _nothing_done(plan) if outcome is None else outcome.unfinished
    return tuple(owner_statuses(plan.context, _conditions(plan, plan.context, unfinished), statuses))


def current_states(plan: Plan) -> dict[PackageKey, PackageStatus]:
    """Return the status of every owned package before any effect of the plan, by package."""
    return {status.package: status for status in current_statuses(plan) if status.package}


def current_statuses(plan: Plan, outcome: Outcome | None = None) -> tuple[PackageStatus, ...]:
    """Return the status of every owned package before any effect of the plan or after its outcome, sorted."""
    if outcome is None:
        return statuses_after(plan, _nothing_done(plan))
    return statuses_after(plan, outcome.unfinished, outcome.opened)


def _nothing_done(plan: Plan) -> dict[PackageKey, Unfinished]:
    recorded = plan.context.inventory.statuses if plan.context else {}
    unfinished = {}
    for change in plan.changes:
        if not change.pending:
            continue  # else the record of every package would be decoded
        last = recorded.get(change.variant) if change.variant else None
        # Of two questions one was answered: the other one can be answered now, too.
        still_asks = bool(change.conflicts) and last is not None and last.phase == Phase.CONFLICT
        if not still_asks:
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
    """Return the files of the status branch: what became of each owner and its package."""
    options = orjson.OPT_SORT_KEYS | orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE
    return {
        _path(ObjectKey(GROUP, owner.kind, owner.namespace, owner.name)): orjson.dumps(
            _file_value(owner), option=options
        )
        for owner in owner_statuses(context, conditions, statuses)
    }


def owner_statuses(
    context: PlanContext,
    conditions: Mapping[ObjectKey, tuple[Condition, ...]],
    statuses: Iterable[PackageStatus],
) -> Iterator[OwnerStatus]:
    """Yield the status of each owner, sorted; a variant that is gone has one while anything of it is left."""
    variants = {v.key: v for v in context.desired.variants}
    # A variant that moved has a package where it leaves, too: what is known of its downstream comes last.
    ordered = sorted(statuses, key=lambda s: s.package is None or s.package in context.downstreams)
    packages = {ObjectKey(GROUP, "PackageVariant", *s.variant): s for s in ordered if s.variant}
    for key in sorted({*conditions, *packages}, key=_path):
        variant = variants.get(ObjectName(key.namespace, key.name)) if key.kind == "PackageVariant" else None
        yield OwnerStatus(
            key.kind,
            key.namespace,
            key.name,
            conditions.get(key, ()),
            (variant.spec.labels or {}) if variant else None,
            (variant.spec.annotations or {}) if variant else None,
            packages.get(key),
        )


def _file_value(owner: OwnerStatus) -> dict[str, object]:
    value = owner_value(owner)
    if status := owner.package:
        # Checks and other packages go on without us: recorded, they would make every run write.
        is_lasting = status.reason != Reason.AWAITING_CHECKS
        value["package"] = status_value(status if is_lasting else replace(status, reason="", message=""))
        value["downstreamTargets"] = downstream_targets(status)
    return value


def owner_value(owner: OwnerStatus) -> dict[str, object]:
    """Return what the manifest and the conditions of an owner tell as a JSON value."""
    labels = {"annotations": owner.annotations, "labels": owner.labels} if owner.labels is not None else {}
    names = {"kind": owner.kind, "name": owner.name, "namespace": owner.namespace}
    return {**labels, "conditions": list(map(_plain, owner.conditions)), **names}


def status_value(status: PackageStatus) -> dict[str, object]:
    """Return the status of a package as a JSON value."""
    return {
        "phase": str(status.phase),
        "since": iso_time(status.since),
        "repository": status.repository.name if status.repository else "",
        "name": status.name,
        "head": status.head,
        "pullRequest": {"number": status.pull, "url": status.url} if status.pull else None,
        "reason": status.reason,
        "message": status.message,
        **({"losses": [loss_value(loss) for loss in status.losses]} if status.losses else {}),
    }


def downstream_targets(status: PackageStatus) -> list[dict[str, str]]:
    """Return the PackageRevision of a package as a list, as Porch has it."""
    return [{"name": status.revision}] if status.revision else []


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
