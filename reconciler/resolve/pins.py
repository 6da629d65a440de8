"""Pin upstreams: what a floating upstream is locked at, held at by a person, or moved to (D3, D9)."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from reconciler.api.kptfile import KptfileHeader
from reconciler.api.porch import Upstream
from reconciler.base.errors import Location, UsageError
from reconciler.base.reasons import Reason
from reconciler.base.values import whole_number
from reconciler.expand.variants import DesiredVariant
from reconciler.inventory.inventory import Inventory, PackageState, RepositoryView
from reconciler.names.ids import ObjectName, Oid, normalise_url
from reconciler.names.problems import Problem
from reconciler.names.refs import short_tag
from reconciler.records.state import UpstreamLock, is_floating, lock_path, lock_upstream
from reconciler.resolve.resolution import Pin
from reconciler.resolve.upstreams import check_forward, check_pin, find_commit, find_repository, find_upstream


class PinChoice(Struct, frozen=True):
    """The pin of a variant, and the revision that its floating upstream `offers` (None if it is exact).

    Without a `pin` the variant waits for its lock, for the reason in `waits`.
    """

    pin: Pin | None
    offers: Pin | None = None
    waits: str = ""


def choose_pin(variant: DesiredVariant, inventory: Inventory) -> PinChoice | Problem:
    """Return the pin of a variant's upstream in this run, or its problem.

    An exact upstream means what it names. A floating one follows its selector, unless a person holds
    it. Where pins are reviewed it stays at main's lock; without an answer there it stays at
    what was applied last, and a new one, or one that asks for something else, takes what its selector
    finds, or waits where even the first pin is reviewed.
    """
    selected = find_upstream(variant, inventory)
    if isinstance(selected, Problem):
        return selected
    upstream = upstream_data(variant)
    if not is_floating(upstream):
        return PinChoice(selected)
    lock = inventory.reviewed.pins.get(variant.key) if inventory.reviewed else None
    lock = lock if lock and lock.answers(upstream) else None
    if lock is None and (why := _waits(variant.key, inventory)):
        return PinChoice(None, selected, why)
    lock = lock or _applied(variant.key, upstream, inventory)
    if lock is None:
        pin = check_forward(selected, variant, inventory)
        return pin if isinstance(pin, Problem) else PinChoice(pin, pin)
    pin = _locked(lock, variant, selected, inventory)
    pin = pin if isinstance(pin, Problem) else check_pin(pin, variant, inventory)
    return pin if isinstance(pin, Problem) else PinChoice(pin, steady(selected, variant, pin))


def upstream_data(variant: DesiredVariant) -> dict[str, Any]:
    """Return a variant's `spec.upstream` as it is on disk."""
    upstream = variant.spec.upstream or Upstream()
    return upstream.model_dump(exclude_none=True)


def may_float(variant: DesiredVariant) -> bool:
    """Tell whether a variant's upstream may have a lock: it names no revision and no workspace."""
    upstream = variant.spec.upstream
    return upstream is not None and upstream.revision is None and upstream.workspace_name is None


def lock_pin(
    variant: ObjectName, upstream: Mapping[str, Any], pin: Pin, *, held: bool = False
) -> UpstreamLock | None:
    """Return the lock of a `spec.upstream`; None if that is exact."""
    return lock_upstream(variant, upstream, commit=pin.commit.oid, tree=pin.tree, ref=pin.ref, held=held)


def _waits(key: ObjectName, inventory: Inventory) -> str:
    """Return why nothing is taken that main does not name, empty if it may be."""
    if inventory.reviewed is None:
        return ""
    if key in inventory.reviewed.broken:
        return "Its pin cannot be read; nothing moves until it is corrected"
    return "Its pin is not merged yet" if inventory.policy.lock.reviewed.strict else ""


def _applied(key: ObjectName, upstream: Mapping[str, Any], inventory: Inventory) -> UpstreamLock | None:
    """Return what was applied last, where that decides: it is held, or another would have to be reviewed."""
    lock = inventory.locks.get(key)
    decides = lock is not None and (lock.held or inventory.reviewed is not None)
    return lock if lock and decides and lock.answers(upstream) else None


def _locked(
    lock: UpstreamLock, variant: DesiredVariant, selected: Pin, inventory: Inventory
) -> Pin | Problem:
    """Return the pin of a lock's commit, with the tree that its repository has there."""
    if lock.commit == selected.commit.oid:
        return selected
    view = find_repository(variant, lock.repository, inventory, field="upstream")
    if isinstance(view, Problem):
        return view
    commit = Oid(lock.commit)
    path = selected.package.path
    pin = find_commit(view, path, commit, _taken_under(lock, view, path), inventory)
    if pin is not None:
        return pin
    record, applied = inventory.records.get(variant.key), inventory.locks.get(variant.key)
    # After a force push nothing may lead to the commit any more: its tree was recorded.
    if record is not None and applied is not None and record.upstream_commit == applied.commit == commit:
        recorded, tree = replace(selected.commit, oid=commit, time=0), Oid(record.upstream_tree)
        return replace(selected, ref=applied.ref, revision=-1, commit=recorded, tree=tree)
    message = f"The lock names commit {commit} of {lock.package}, which repository {view.key.name} has not"
    hint = f"Take another with `reconciler lock --upgrade {variant.key}`, or correct the file."
    problem = Problem(Location(lock_path(lock)), Reason.UPSTREAM_NOT_FOUND, message, hint)
    return problem.owned_by(variant.owner)


def _taken_under(lock: UpstreamLock, view: RepositoryView, path: str) -> str:
    """Return the name that a locked commit goes by: the lock's, unless that is a release of something else.

    A person may write another commit into a lock and leave the release that was named there. A tag
    that the manifest follows is expected to move, and stays the name.
    """
    published = view.packages.get(path, PackageState(path)).published
    moved = any(short_tag(r.ref) == lock.ref and r.commit.oid != lock.commit for r in published)
    named = [revision for revision in published if revision.commit.oid == lock.commit]
    if "tag" in lock.selector or not moved or not named:
        return lock.ref
    return short_tag(max(named, key=lambda r: (r.revision, r.ref)).ref)


def steady(pin: Pin, variant: DesiredVariant, base: Pin | None) -> Pin:
    """Return the pin of a followed branch, at the old commit while its package did not change.

    A branch moves with every commit to its repository; that alone is no reason for a draft.
    """
    upstream = variant.spec.upstream
    if upstream is None or upstream.branch is None or base is None:
        return pin
    same = (base.package, base.tree, base.ref) == (pin.package, pin.tree, pin.ref)
    return replace(pin, commit=base.commit) if same else pin


FOLLOW = "reconciler.dev/follow-moved-tag"
"""On a variant or its set: the commit to which a numbered upstream tag may move, or seven digits of it.

The object of the tag, which `git rev-parse` prints of an annotated one, names its commit.
"""

_SHORTEST = 7


def find_moved_tag(
    headers: Iterable[KptfileHeader | None],
    pin: Pin,
    variant: DesiredVariant,
    tags: Mapping[str, Oid] = MappingProxyType({}),
) -> str:
    """Return the message about a pinned tag that moved since the package was made from it, "" if it did not.

    A published number promises one content for good; a floating tag promises nothing. The first of
    `headers` (the draft's, then main's) with the ref of the pin in its upstreamLock decides: the tag moved if
    that lock has another commit, unless the variant names the new one. `tags` are commits by tag objects.
    """
    if pin.revision <= 0:
        return ""
    for header in headers:
        lock = header.upstream_lock if header else None
        if lock is None or lock.ref != pin.ref or normalise_url(lock.repo) not in pin.urls:
            continue
        if not lock.commit or lock.commit == pin.commit.oid or _follows(variant, pin, tags):
            return ""
        moved = f"Tag {pin.ref} of {pin.repository} moved from commit {lock.commit} to {pin.commit.oid}"
        owner = f"PackageVariantSet {variant.set_key}" if variant.set_key else "the variant"
        return f"{moved}; to follow it, annotate {owner} with {FOLLOW}: {pin.commit.oid}"
    return ""


def _follows(variant: DesiredVariant, pin: Pin, tags: Mapping[str, Oid]) -> bool:
    ids = (pin.commit.oid, *(tag for tag, commit in tags.items() if commit == pin.commit.oid))
    consent = variant.annotations.get(FOLLOW, "").strip()
    # Git abbreviates to seven digits: fewer may name another commit.
    return len(consent) >= _SHORTEST and any(named.startswith(consent) for named in ids)


def find_floating(variants: Iterable[DesiredVariant], name: str) -> DesiredVariant | None:
    """Return the variant with a floating upstream that `NAMESPACE/NAME`, or NAME alone, means.

    Raises:
        UsageError: Several have that name.
    """
    named = [v for v in variants if name in (str(v.key), v.key.name) and is_floating(upstream_data(v))]
    if len(named) > 1:
        names = ", ".join(sorted(str(variant.key) for variant in named))
        raise UsageError(f"{name} is ambiguous: {names}", hint="Name the namespace too.")
    return named[0] if named else None


def hold(variant: DesiredVariant, what: str, lock: UpstreamLock | None, inventory: Inventory) -> UpstreamLock:
    """Return the lock that keeps a variant at `what`: a revision, tag or branch; empty for where it is now.

    Raises:
        UsageError: Its package has nothing of that name.
    """
    if not what and lock is not None and lock.answers(upstream_data(variant)):
        return msgspec.structs.replace(lock, held=True)
    pin = find_upstream(variant, inventory) if not what else _find(variant, what, inventory)
    return _lock_at(variant, pin, held=True)


def follow(variant: DesiredVariant, inventory: Inventory) -> UpstreamLock:
    """Return the lock of a variant that follows its selector: at what that finds now.

    Raises:
        UsageError: It finds nothing.
    """
    return _lock_at(variant, find_upstream(variant, inventory), held=False)


def _lock_at(variant: DesiredVariant, pin: Pin | Problem, *, held: bool) -> UpstreamLock:
    if isinstance(pin, Problem):
        raise UsageError(pin.message, hint=pin.hint)
    lock = lock_pin(variant.key, upstream_data(variant), pin, held=held)
    assert lock is not None  # noqa: S101 - a floating upstream has a lock
    return lock


def _find(variant: DesiredVariant, what: str, inventory: Inventory) -> Pin | Problem:
    # Tags come first: v3 may be one, and Porch would take it for a number.
    selectors: list[dict[str, Any]] = [{"tag": what}, {"workspace_name": what}, {"branch": what}]
    if (number := whole_number(what.removeprefix("v"))) is not None:
        selectors.insert(1, {"revision": number})
    spec = variant.spec.upstream or Upstream()
    upstreams = (Upstream(repo=spec.repo, package=spec.package, **selector) for selector in selectors)
    pins = [find_upstream(with_upstream(variant, upstream), inventory) for upstream in upstreams]
    return next((pin for pin in pins if isinstance(pin, Pin)), pins[0])


def with_upstream(variant: DesiredVariant, upstream: Upstream) -> DesiredVariant:
    """Return a variant with another upstream."""
    return replace(variant, spec=variant.spec.model_copy(update={"upstream": upstream}))
