"""Merge bases: the upstream revisions that downstreams were made from, by the commit of upstreamLock."""

from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from reconciler.api.kptfile import KptfileHeader
from reconciler.inventory.inventory import Inventory, PackageState, RepositoryView, TreeAt
from reconciler.names.ids import ObjectName, Oid, normalise_url
from reconciler.names.objects import Commit
from reconciler.names.refs import is_within, short_branch, short_tag
from reconciler.records.state import PackageVariantRecord
from reconciler.resolve.resolution import Pin
from reconciler.resolve.upstreams import find_fault, pin_at

_UNNUMBERED = -1
"""Revision of a base after its tag moved: it keeps its former name, and its commit."""

Sources = Mapping[str, tuple[RepositoryView, ...]]
"""Readable views by every URL that an upstreamLock may know them under, the most specific directory first."""


def index_sources(inventory: Inventory) -> Sources:
    """Return where to look for an upstreamLock's repository: made once, asked for every package."""
    sources: dict[str, list[RepositoryView]] = {}
    for view in sorted(inventory.repositories.values(), key=lambda v: (-len(v.directory), v.key)):
        for name in source_names(view) if view.is_available else ():
            sources.setdefault(name, []).append(view)
    return {name: tuple(views) for name, views in sources.items()}


def find_base(
    header: KptfileHeader | None,
    pin: Pin,
    record: PackageVariantRecord | None,
    inventory: Inventory,
    sources: Sources,
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
    if (commit, directory) == (pin.commit.oid, pin.package.path) and url in pin.urls:
        return pin, ""
    views = sources.get(url, ())
    places = [(view, path) for view in views for path in (directory, view.full_path(directory))]
    # kpt writes a directory from the root of the repository, Porch one below spec.git.directory.
    # A view of another directory has the tree too, but not the package: its revisions, and its name.
    for view, path in sorted(places, key=lambda place: not is_within(place[1], place[0].directory)):
        if base := find_commit(view, path, commit, lock.ref, inventory):
            return base, ""
    if record is not None and record.upstream_commit == commit and record.upstream_tree:
        recorded = replace(pin, ref=lock.ref, revision=-1, commit=Commit(commit, 0))
        return replace(recorded, tree=Oid(record.upstream_tree)), ""
    return None, f"commit {commit} of {lock.repo}, which upstreamLock names, cannot be found"


def find_equal(
    header: KptfileHeader | None, pin: Pin, record: PackageVariantRecord | None, inventory: Inventory
) -> Pin | None:
    """Return the revision of the resources on main, None if its Kptfile names that one.

    A rollout proposes nothing where a revision changes nothing, so the Kptfile may name an earlier one (D42).
    """
    lock = header.upstream_lock if header else None
    if record is None or lock is None or not record.equal_commit:
        return None
    if lock.commit != record.equal_commit or lock.commit == pin.commit.oid:
        return None
    commit, upstream = Oid(record.upstream_commit), record.spec.get("upstream") or {}
    if (commit, record.upstream_tree) == (pin.commit.oid, pin.tree):
        return pin
    view = inventory.repositories.get(ObjectName(record.namespace, str(upstream.get("repo"))))
    if view is None or not view.is_available:
        return None
    return find_commit(view, view.full_path(str(upstream.get("package"))), commit, "", inventory)


def source_names(view: RepositoryView) -> set[str]:
    """Return the normalised URLs under which an upstreamLock may know a repository."""
    git = view.manifest.spec.git
    return {view.url, normalise_url(view.remote), normalise_url(git.repo if git else "")}


def find_commit(view: RepositoryView, path: str, commit: Oid, name: str, inventory: Inventory) -> Pin | None:
    """Return the pin of a package at a commit that was taken under `name`, None if it cannot be found."""
    package = view.upstream_at(path) or PackageState(path)
    # Several refs may name the commit: the one in upstreamLock comes first.
    for ref, revision, at, tree in sorted(_states(view, package), key=lambda s: s[0] != name):
        if at.oid == commit:
            # kpt writes the ref that was asked for: the same commit may have a number under another tag.
            number = revision if ref == name or not name else _UNNUMBERED
            return pin_at(view, path, at, tree, ref=name or ref, revision=number)
    tree_there = inventory.trees.get(TreeAt(view.url, commit, path))
    at = Commit(commit, inventory.times.get(commit, 0))
    return pin_at(view, path, at, tree_there, ref=name) if tree_there else None


def _states(view: RepositoryView, package: PackageState) -> Iterator[tuple[str, int, Commit, Oid]]:
    for revision in package.published:
        yield short_tag(revision.ref), revision.revision, revision.commit, revision.tree
    for draft in package.drafts:
        yield short_branch(draft.ref), 0, draft.tip, draft.tree
    for state in package.unpublished:
        yield view.branch, -1, state.commit, state.tree
    if view.head and package.main_tree:
        yield view.branch, -1, view.head, package.main_tree


def find_candidates(pin: Pin, inventory: Inventory) -> tuple[Pin, ...]:
    """Return the revisions that a package without upstreamLock may have been made from, the newest first.

    Those are the newest published revisions of the pinned package, as many as `limits.baseCandidates`, and
    the pin.
    """
    path = pin.package.path
    views = inventory.views_of(pin.package.url)
    view, package = next(((view, there) for view in views if (there := view.upstream_at(path))), (None, None))
    if view is None or package is None:
        return (pin,)
    published = (
        revision
        for revision in package.published
        if not find_fault(view.url, short_tag(revision.ref), revision.commit.oid, inventory)
    )
    newest = sorted(published, key=lambda r: (-r.revision, r.ref))
    newest = newest[: inventory.policy.limits.base_candidates]
    pins = [pin_at(view, path, r.commit, r.tree, ref=short_tag(r.ref), revision=r.revision) for r in newest]
    contents = {pin.tree: pin} if all(pin.tree != candidate.tree for candidate in pins) else {}
    for candidate in pins:
        contents.setdefault(candidate.tree, pin if candidate.tree == pin.tree else candidate)
    return tuple(contents.values())
