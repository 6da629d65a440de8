"""A package on its way to a new upstream: cloned, or what is there merged with what upstream changed."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

from reconciler.api.kptfile import KPTFILE
from reconciler.functions.secrets import holds_secret
from reconciler.ids import Oid
from reconciler.objects import Files
from reconciler.policy import Policy, Strategy
from reconciler.reasons import Reason
from reconciler.render.adoption import find_nearest_base
from reconciler.render.baseline import RenderedSides, Update, merge_sides
from reconciler.render.kptfile import strip_ownership
from reconciler.render.rendered import Blocked
from reconciler.render.update import (
    Conflict,
    ConflictPolicy,
    Decision,
    UpdateRefused,
    UpstreamRef,
    update_package,
)
from reconciler.render.update.identifiers import add_identifiers
from reconciler.render.update.packages import Sides
from reconciler.render.update.settle import describe_decision
from reconciler.resolve.resolution import Pin, ResolvedVariant

Contents = Mapping[Oid, Files]
"""The package trees that were fetched, by the id of the tree."""


@runtime_checkable
class Refusals(Protocol):
    """Package trees that also tell, by the id of the tree, why a needed one is not among them."""

    refused: Mapping[Oid, str]


@dataclass(frozen=True, slots=True)
class Making:
    """What one variant's package is made from; `policy` decides conflicts where nothing else does."""

    resolved: ResolvedVariant
    contents: Contents
    sides: RenderedSides
    policy: Policy


@dataclass(frozen=True, slots=True)
class Merging:
    """A package on its way: its files, what both sides changed, and what a reviewer must hear.

    `found` are all conflicts, with what a policy decided, None where a person is asked.
    """

    files: Files
    found: tuple[tuple[Conflict, Decision | None], ...] = ()
    notes: tuple[str, ...] = ()


def clone_upstream(resolved: ResolvedVariant, contents: Contents) -> Merging | Blocked:
    """Return the upstream package as the start of a new downstream one."""
    files = strip_ownership(contents[resolved.pin.tree])
    return files if isinstance(files, Blocked) else Merging(add_identifiers(files))


def update_local(
    making: Making, local: Files, tree: Oid | None, base: Pin | None, policy: ConflictPolicy
) -> Merging | Blocked:
    """Return `local`, which is made from the package at `tree`, with what upstream changed since `base`."""
    resolved, contents = making.resolved, making.contents
    pin = resolved.pin
    if base is None and resolved.lost_base:
        return base_not_found(resolved.lost_base)
    if base is None:
        return _adopt(making, local, policy)
    if base.tree == pin.tree:
        return Merging(local)
    original, upstream = strip_ownership(contents[base.tree]), strip_ownership(contents[pin.tree])
    if isinstance(original, Blocked):
        return original
    if isinstance(upstream, Blocked):
        return upstream
    rendered = making.sides.get(Update(base.tree, pin.tree, tree)) if tree is not None else None
    context = resolved.variant.spec.package_context
    keys = {*(context.data or {}), *(context.remove_keys or ())} if context else set()
    sides = merge_sides(original, upstream, local, rendered, keys)
    return three_way(*sides, policy, new_upstream=_reference(pin))


def _adopt(making: Making, local: Files, policy: ConflictPolicy) -> Merging | Blocked:
    """Merge upstream into a package without upstreamLock: nothing of it is lost, new files arrive.

    The lock that is written next says that the package holds the pinned revision, so all that
    this revision adds must be there.
    """
    resolved, contents = making.resolved, making.contents
    nearest = find_nearest_base(resolved.candidates, contents, local)
    upstream = strip_ownership(contents[resolved.pin.tree])
    original = nearest.files if nearest else {}
    if KPTFILE in original:
        stripped = strip_ownership(original)
        if isinstance(stripped, Blocked):
            return stripped
        original = stripped
    if isinstance(upstream, Blocked):
        return upstream
    merged = three_way(
        *merge_sides(original, upstream, local, None),
        policy,
        new_upstream=_reference(resolved.pin),
        strategy=Strategy.RESOURCE_MERGE,
    )
    if isinstance(merged, Blocked):
        return merged
    told = (
        f"compared with {nearest.pin.ref}, the nearest published revision"
        if nearest
        else "nothing to compare"
    )
    return replace(merged, notes=(f"There was no upstreamLock: {told}", *merged.notes))


def _reference(pin: Pin) -> UpstreamRef:
    return UpstreamRef(pin.address, pin.package.path, pin.ref, pin.commit.oid)


def base_not_found(why: str) -> Blocked:
    """Return why a package without its merge base cannot be updated, and what to do about it."""
    hint = (
        "Register the repository that has the commit again, or push the commit to it. If it is gone for good,"
        " write the commit of the upstream that the content comes from into upstreamLock of the Kptfile."
    )
    return Blocked(Reason.BASE_NOT_FOUND, f"There is no base to merge from: {why}", hint)


def three_way(
    original: Files,
    upstream: Files,
    local: Files,
    policy: ConflictPolicy,
    *,
    new_upstream: UpstreamRef | None = None,
    strategy: Strategy | None = None,
) -> Merging | Blocked:
    """Return `local` with what changed from `original` to `upstream`."""
    sides = Sides(original, upstream, local)
    try:
        updated = update_package(*sides, strategy=strategy, on_conflict=policy, new_upstream=new_upstream)
    except UpdateRefused as refused:
        return Blocked(Reason.MERGE_CONFLICT, refused.message, conflicts=refused.conflicts)
    asked: list[tuple[Conflict, Decision | None]] = [(conflict, None) for conflict in updated.conflicts]
    decided = [
        (each.conflict, describe_decision(policy, each.winner, each.rule, each.conflict.path))
        for each in updated.settled
    ]
    return Merging(
        updated.files,
        tuple((_hidden(conflict, sides), decision) for conflict, decision in (*asked, *decided)),
    )


def _hidden(conflict: Conflict, sides: Sides) -> Conflict:
    """Return a conflict, hidden if a side of its file holds a Secret."""
    hidden = any(holds_secret(side.get(conflict.path)) for side in sides)
    return replace(conflict, hidden=hidden)
