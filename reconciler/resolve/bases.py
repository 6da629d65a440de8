"""What a downstream was last made from: its upstreamLock, found again by commit."""

from collections.abc import Iterator
from dataclasses import replace

from reconciler.api.kptfile import GitUpstream, KptfileHeader
from reconciler.ids import Oid, normalise_url
from reconciler.inventory import Commit, Inventory, PackageState, RepositoryView, TreeAt
from reconciler.layout import short_branch, short_tag
from reconciler.resolve.resolution import Pin
from reconciler.resolve.upstreams import pin_at
from reconciler.state import PackageVariantRecord

_UNNUMBERED = -1
"""Of a base whose tag has moved on: it is called by the name that it was taken under, and its commit."""


def find_base(
    header: KptfileHeader | None, pin: Pin, inventory: Inventory, record: PackageVariantRecord | None
) -> tuple[Pin | None, str]:
    """Return the pin that a Kptfile's upstreamLock names, or None and why it cannot be found.

    Looked up by commit, never by number; a directory is also read below the one of its
    Repository, as Porch writes it. A package without a lock has no base and nothing is wrong.
    """
    lock = header.upstream_lock if header else None
    if lock is None or not lock.commit:
        return None, ""
    commit, directory = Oid(lock.commit), lock.directory.strip("/")
    url = normalise_url(lock.repo)
    if (commit, directory) == (pin.commit.oid, pin.package.path) and url in _identities(pin):
        return pin, ""
    for view in sorted(inventory.repositories.values(), key=lambda v: (-len(v.directory), v.key)):
        if view.is_available and url in _names(view):
            for path in dict.fromkeys((directory, view.full_path(directory))):
                if found := _find(view, path, commit, lock, inventory):
                    return found, ""
    if record is not None and record.upstream_commit == commit and record.upstream_tree:
        return _recorded(pin, lock, record), ""
    return None, f"The upstreamLock names commit {commit} of {lock.repo}, which could not be found"


def _names(view: RepositoryView) -> set[str]:
    git = view.manifest.spec.git
    return {view.url, normalise_url(view.remote), normalise_url(git.repo if git else "")}


def _identities(pin: Pin) -> set[str]:
    return {pin.package.url, normalise_url(pin.remote), normalise_url(pin.repo)}


def _find(
    view: RepositoryView, path: str, commit: Oid, lock: GitUpstream, inventory: Inventory
) -> Pin | None:
    package = view.packages.get(path, PackageState(path))
    states = sorted(_states(view, package), key=lambda s: s[0] != lock.ref)
    for ref, revision, at, tree in states:
        if at.oid == commit:
            number = revision if ref == lock.ref or not lock.ref else _UNNUMBERED
            return pin_at(view, path, at, tree, ref=lock.ref or ref, revision=number)
    kept = inventory.trees.get(TreeAt(view.url, commit, path))
    return pin_at(view, path, Commit(commit, 0), kept, ref=lock.ref) if kept else None


def _states(view: RepositoryView, package: PackageState) -> Iterator[tuple[str, int, Commit, Oid]]:
    for revision in package.published:
        yield short_tag(revision.ref), revision.revision, revision.commit, revision.tree
    for draft in package.drafts:
        yield short_branch(draft.ref), 0, draft.tip, draft.tree
    for state in package.untagged:
        yield view.branch, -1, state.commit, state.tree
    if view.head and package.main_tree:
        yield view.branch, -1, view.head, package.main_tree


def _recorded(pin: Pin, lock: GitUpstream, record: PackageVariantRecord) -> Pin:
    commit = Commit(Oid(record.upstream_commit), 0)
    return replace(pin, ref=lock.ref, revision=-1, commit=commit, tree=Oid(record.upstream_tree))
