"""Merge a package with a new upstream: clone, update, or adoption of a package without upstreamLock."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Protocol, runtime_checkable

from msgspec import Struct
from msgspec.structs import replace

from reconciler.api.kptfile import KPTFILE
from reconciler.api.porch import PackageVariantSpec
from reconciler.api.validation import field_text
from reconciler.base.reasons import Reason
from reconciler.functions.secrets import hides_field
from reconciler.krm.documents import documents_of
from reconciler.krm.values import differences
from reconciler.krm.yaml import DeleteKey, SetValue
from reconciler.names.ids import Oid
from reconciler.names.objects import Files
from reconciler.policy import Policy, Strategy
from reconciler.render.answers import FoundConflict
from reconciler.render.kptfile import (
    FunctionOwners,
    add_functions,
    strip_ownership,
    upstream_functions,
)
from reconciler.render.merge_sides import RenderedSides, UpdateTrees, prepare_sides
from reconciler.render.rendered import Blocked
from reconciler.render.update import Conflict, ConflictPolicy, UpdateRefused, UpstreamRef, update_package
from reconciler.render.update.conflict_policy import describe_decision
from reconciler.render.update.identifiers import add_identifiers
from reconciler.render.update.three_way import Sides, is_equal
from reconciler.resolve.resolution import Pin, ResolvedVariant

Contents = Mapping[Oid, Files]
"""The fetched package trees by their ids."""


@runtime_checkable
class Refusals(Protocol):
    """Package trees with the reasons why some needed ones are missing, by the id of the tree."""

    refused: Mapping[Oid, str]


class VariantInputs(Struct, frozen=True):
    """The inputs of one variant's package; `policy` has the default conflict policy."""

    resolved: ResolvedVariant
    contents: Contents
    sides: RenderedSides
    policy: Policy


class PackageInProgress(Struct, frozen=True):
    """A package after the merge, with all conflicts of it, and notes and warnings for the reviewer."""

    files: Files
    conflicts: tuple[FoundConflict, ...] = ()
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def clone_upstream(resolved: ResolvedVariant, contents: Contents) -> PackageInProgress | Blocked:
    """Return the upstream package as the start of a new downstream package."""
    files = strip_ownership(contents[resolved.pin.tree])
    return files if isinstance(files, Blocked) else PackageInProgress(add_identifiers(files))


def update_local(
    inputs: VariantInputs, local: Files, tree: Oid | None, base: Pin | None, policy: ConflictPolicy
) -> PackageInProgress | Blocked:
    """Return `local` with upstream's changes since `base`; `tree` is the package that `local` is based on."""
    resolved, contents = inputs.resolved, inputs.contents
    pin = resolved.pin
    if base is None:
        lost = resolved.lost_base
        return base_not_found(lost) if lost else _adopt(inputs, local, policy)
    rendered = inputs.sides.get(UpdateTrees(base.tree, pin.tree, tree)) if tree is not None else None
    # Another commit with the same tree needs a new upstreamLock, and what functions made is made anew.
    if base.tree == pin.tree and rendered is None:
        return PackageInProgress(local)
    original, upstream = strip_ownership(contents[base.tree]), strip_ownership(contents[pin.tree])
    if isinstance(original, Blocked) or isinstance(upstream, Blocked):
        return original if isinstance(original, Blocked) else upstream  # type: ignore[return-value]
    # Where upstream brings a function of a name that one of the variant has, that one gets another name.
    of_base = upstream_functions([contents[base.tree]])
    if upstream_functions([contents[pin.tree]]) - of_base:
        without = add_functions(local, PackageVariantSpec(), FunctionOwners(resolved.variant.key, of_base))
        local = local if isinstance(without, Blocked) else without
    context = resolved.variant.spec.package_context
    keys = {*(context.data or {}), *(context.remove_keys or ())} if context else set()
    sides = prepare_sides(original, upstream, local, rendered, keys)
    if base.tree == pin.tree:
        old, new, _ = sides
        return PackageInProgress({**local, **{p: f for p, f in new.items() if old.get(p) == local.get(p)}})
    merged = merge_three_way(sides, policy, new_upstream=_upstream_ref(pin))
    if isinstance(merged, PackageInProgress) and rendered is not None and rendered.unsettled:
        warning = f"{rendered.unsettled}. Compare it: this package has local edits"
        return replace(merged, warnings=(warning,))
    return merged


def _adopt(inputs: VariantInputs, local: Files, policy: ConflictPolicy) -> PackageInProgress | Blocked:
    """Merge upstream into a package without upstreamLock: local's content stays, new files are added.

    The lock that is written next declares that the package is based on the pinned revision, so everything
    that this revision adds must be in it.
    """
    resolved, contents = inputs.resolved, inputs.contents
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
    merged = merge_three_way(
        prepare_sides(original, upstream, local, None),
        policy,
        new_upstream=_upstream_ref(resolved.pin),
        strategy=Strategy.RESOURCE_MERGE,
    )
    if isinstance(merged, Blocked):
        return merged
    compared = (
        f"compared with {nearest.pin.ref}, the nearest published revision"
        if nearest
        else "nothing to compare"
    )
    return replace(merged, notes=(f"There was no upstreamLock: {compared}", *merged.notes))


def replaced_values(local: Files, result: Files) -> list[str]:
    """Return the values of an adopted package that are others in the result, by field and file.

    What is only added is none of them, nor is a resource that a function renamed; Kptfiles are left out.
    """
    names: list[str] = []
    for path in sorted(local.keys() & result.keys()):
        if path.rpartition("/")[2] == KPTFILE or is_equal(local[path], result[path]):
            continue
        after = {document.identity: document.data for document in documents_of(result[path])}
        for document in documents_of(local[path]):
            edits = differences(document.data, after.get(document.identity, document.data))
            replaced = (
                e for e in edits if isinstance(e, SetValue | DeleteKey) and _has(document.data, e.path)
            )
            names += [f"{field_text(edit.path)} in {path}" for edit in replaced]
    return names


def _has(value: Any, path: Iterable[str | int]) -> bool:
    """Return whether a value has a part at a path."""
    try:
        for step in path:
            value = value[step]
    except (KeyError, IndexError, TypeError):
        return False
    return True


def _upstream_ref(pin: Pin) -> UpstreamRef:
    return UpstreamRef(pin.address, pin.package.path, pin.ref, pin.commit.oid)


def base_not_found(why: str) -> Blocked:
    """Return the problem of a package without its merge base, with the next step."""
    hint = (
        "Register the repository that has the commit again, or push the commit to it. If it is gone for good,"
        " write the commit of the upstream that the content comes from into upstreamLock of the Kptfile."
    )
    return Blocked(Reason.BASE_NOT_FOUND, f"There is no base to merge from: {why}", hint)


def merge_three_way(
    sides: Sides,
    policy: ConflictPolicy,
    *,
    new_upstream: UpstreamRef | None = None,
    strategy: Strategy | None = None,
) -> PackageInProgress | Blocked:
    """Return the local side with the changes from the original to upstream."""
    try:
        updated = update_package(*sides, strategy=strategy, on_conflict=policy, new_upstream=new_upstream)
    except UpdateRefused as refused:
        hidden = tuple(_hide_secret(conflict, sides) for conflict in refused.conflicts)
        return Blocked(Reason.MERGE_CONFLICT, refused.message, conflicts=hidden)
    conflicts: list[FoundConflict] = [(_hide_secret(conflict, sides), None) for conflict in updated.conflicts]
    for conflict, winner, rule in updated.decided:
        decision = describe_decision(policy, winner, rule, conflict.path)
        conflicts.append((_hide_secret(conflict, sides), decision))
    return PackageInProgress(updated.files, tuple(conflicts))


def _hide_secret(conflict: Conflict, sides: Sides) -> Conflict:
    """Return a conflict, hidden if it is about a Secret, or a value of one, on any side."""
    values = (conflict.base, conflict.upstream, conflict.local)
    return replace(conflict, hidden=hides_field(sides, conflict.path, conflict.field, *values))


class NearestBase(NamedTuple):
    """The revision that an adopted package was most likely made from, and its files that local has too."""

    pin: Pin
    files: Files


def find_nearest_base(
    candidates: Iterable[Pin], contents: Mapping[Oid, Files], local: Files
) -> NearestBase | None:
    """Return the candidate that differs least from `local`, None if none shares a file with it.

    Files that local does not have are left out of the base: they may not have been deleted on purpose, so the
    merge adds them. Of equal candidates the newest wins. Deterministic.
    """
    best: tuple[tuple[int, int, str], NearestBase] | None = None
    for pin in candidates:
        files = {path: file for path, file in contents[pin.tree].items() if path in local}
        if not files:
            continue
        distance = sum(_distance(file.data, local[path].data) for path, file in files.items())
        # Lines of files that the candidate does not have count as added.
        missing = sum(file.data.count(b"\n") for path, file in local.items() if path not in files)
        rank = (distance + missing, -pin.revision, pin.ref)
        if best is None or rank < best[0]:
            best = rank, NearestBase(pin, files)
    return best[1] if best else None


def _distance(before: bytes, after: bytes) -> int:
    """Return the number of lines that only one of two files has."""
    if before == after:
        return 0
    old, new = Counter(before.splitlines()), Counter(after.splitlines())
    return (old - new).total() + (new - old).total()
