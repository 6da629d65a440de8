"""Conditions of every owner: Porch's two, and the seed's five on each variant (D18)."""

from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Literal

from reconciler.api.meta import Condition
from reconciler.api.porch import GROUP
from reconciler.base.reasons import Reason
from reconciler.base.text import Text, join_texts
from reconciler.expand import DesiredVariant
from reconciler.names.ids import ObjectKey, ObjectName, Oid, PackageKey
from reconciler.plan.after import undone
from reconciler.plan.changes import Change, Op, Unfinished
from reconciler.plan.context import PlanContext
from reconciler.plan.deletion_evidence import claimed_packages
from reconciler.plan.texts import asked_text, missing_text
from reconciler.render.rendered import Package

POINT_EMPTY = "RequiredPointEmpty"
"""Reason of the condition `ConfigInjected` where a required injection point has no object."""
_VALID = "all validation checks passed"
_ENSURED = "successfully ensured downstream package variant"
_UNREAD = "its repository could not be read"


def plan_conditions(
    context: PlanContext, changes: Iterable[Change], unfinished: Mapping[PackageKey, Unfinished] | None = None
) -> dict[ObjectKey, tuple[Condition, ...]]:
    """Return the conditions of every set and variant as the effects leave them.

    Without times and sorted by type, so that they never flap: what a run leaves behind has the same
    conditions in the next run, which does nothing.

    Args:
        context: Input of planning.
        changes: Every change of the plan.
        unfinished: The packages of which some effect is missing, and why; none if all were done.
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
    """Return the variants of packages with a draft: the owner, and those with manifests that name it."""
    claims = claimed_packages(context.stalled, context.inventory)
    drafted: set[ObjectName | None] = set()
    for target in context.targets.values():
        if target.draft is not None:
            wanting = (variant.key for variant in context.downstreams.get(target.key, ()))
            drafted |= {target.owner, claims.get(target.key), *wanting}
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
    if change.reason is Reason.PAUSED:
        yield from _paused(change)
        return
    # Which required injection points are empty; None if the package has no points
    rendered = context.rendered.variants.get(variant.key)
    fresh = rendered.fresh if rendered else None
    injection = fresh.injection if isinstance(fresh, Package) else None
    unwritten = missing if missing and not missing.pushed and change.written else None
    error = _error(change) or (missing_text(change, unwritten) if unwritten else "")
    yield _ensured(change, error, injection, unwritten)
    yield _ready(change, error or injection or (missing_text(change, missing) if missing else ""))
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
    return Condition(type=type_, status="True" if holds else "False", reason=reason, message=str(message))
