"""Find packages at commits without a package revision: of branches, upstreamLocks and pins."""

import re
from collections.abc import Container, Iterable, Iterator, Mapping
from typing import NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from reconciler.api.kptfile import KPTFILE, LOCATION, OWNER, GitUpstream, KptfileHeader
from reconciler.api.porch import PackageVariant, PackageVariantSet
from reconciler.base.errors import UnavailableError
from reconciler.git.repository import Mirror, Mirrors
from reconciler.git.trees import PackageRefusedError
from reconciler.inventory.inventory import Inventory, RepositoryView, Sourced, TreeAt, declared_upstreams
from reconciler.krm.values import value_at
from reconciler.krm.yaml import KPTFILE_LIMITS, Document, YamlError, load_documents
from reconciler.names.ids import ObjectName, Oid, PackageKey, normalise_url
from reconciler.read.repositories.discovery import find_package, find_subpackages
from reconciler.render.kptfile import unmet_gates_of
from reconciler.resolve.rollout_model import revisions_taken_back
from reconciler.resolve.upstreams import source_names
from reconciler.resolve.variants import SubpackageRevision, parse_entries

MAX_KPTFILE_BYTES = KPTFILE_LIMITS.max_bytes


def read_header(data: bytes) -> KptfileHeader:
    """Return the owner and upstream of a Kptfile. Total: an invalid one is a header with an `error`."""
    try:
        documents = load_documents(data, KPTFILE_LIMITS)
    except YamlError as error:
        return KptfileHeader(error=str(error))
    if not documents or not isinstance(documents[0].value, dict) or documents[0].value.get("kind") != KPTFILE:
        return KptfileHeader(error="its first document is not a Kptfile")
    text = _Texts(documents[0], data)
    return KptfileHeader(
        owner=text.at("metadata", "annotations", OWNER),
        location=text.at("metadata", "annotations", LOCATION),
        upstream=_upstream(text, "upstream"),
        upstream_lock=_upstream(text, "upstreamLock"),
        has_charts=b"render-helm-chart" in data,
        unmet=unmet_gates_of(documents[0].value),
    )


def with_commits(header: KptfileHeader, tags: Mapping[str, Oid]) -> KptfileHeader:
    """Return a header with a commit in its upstreamLock: kpt writes the object of an annotated tag there.

    `tags` are the commits of the tags of all repositories by the ids of their objects.
    """
    lock = header.upstream_lock
    if lock is None or lock.commit not in tags:
        return header
    return replace(header, upstream_lock=replace(lock, commit=tags[lock.commit]))


def tag_commits(views: Mapping[ObjectName, RepositoryView], mirrors: Mirrors) -> dict[str, Oid]:
    """Return the commits of the annotated tags of all repositories by the ids of their objects."""
    remotes = {view.remote for view in views.values() if view.is_available}
    return {tag: at for remote in sorted(remotes) for tag, at in mirrors.open(remote).tag_commits().items()}


class HeaderIndex:
    """Headers by blob id, for all repositories and revisions."""

    def __init__(self) -> None:
        self._headers: dict[Oid, KptfileHeader] = {}
        self._upstreams: dict[GitUpstream, GitUpstream] = {}

    def load(self, mirror: Mirror, oids: Iterable[Oid | None]) -> None:
        """Load the headers of these Kptfiles, fetching missing blobs in one batch.

        Raises:
            UnavailableError: They cannot be fetched.
        """
        new = {oid for oid in oids if oid is not None and oid not in self._headers}
        if not new:
            return
        missing = sorted(new)
        absent = _fetch(mirror, missing)
        for oid in missing:
            try:
                self._headers[oid] = absent[oid] if oid in absent else self._shared(_read(mirror, oid))
            except UnavailableError as error:
                self._headers[oid] = KptfileHeader(error=str(error))

    def header(self, oid: Oid | None) -> KptfileHeader:
        """Return a loaded header; None means a package with a malformed tree."""
        return self._headers[oid] if oid else KptfileHeader(error="its tree is malformed")

    def _shared(self, header: KptfileHeader) -> KptfileHeader:
        """Return a header that holds upstreams of other headers as one object: a fleet has few."""
        upstream, lock = (
            upstream and self._upstreams.setdefault(upstream, upstream)
            for upstream in (header.upstream, header.upstream_lock)
        )
        return replace(header, upstream=upstream, upstream_lock=lock)


def _fetch(mirror: Mirror, oids: list[Oid]) -> dict[Oid, KptfileHeader]:
    """Fetch Kptfiles in one batch; return headers with an error for those that the repository lacks.

    Raises:
        UnavailableError: Nothing can be fetched: the repository is unreachable.
    """
    try:
        mirror.ensure(oids)
    except UnavailableError:
        # A server refuses the whole batch for one missing object: fetch the others one by one.
        absent: dict[Oid, KptfileHeader] = {}
        for oid in oids:
            try:
                mirror.ensure([oid])
            except UnavailableError as error:
                absent[oid] = KptfileHeader(error=str(error))
        if len(absent) == len(oids):
            raise
        return absent
    return {}


def _read(mirror: Mirror, oid: Oid) -> KptfileHeader:
    try:
        return read_header(mirror.blob(oid, MAX_KPTFILE_BYTES))
    except PackageRefusedError as error:
        return KptfileHeader(error=error.reason)


def _upstream(text: "_Texts", field: str) -> GitUpstream | None:
    git = value_at(text.document.value, field, "git")
    if not isinstance(git, dict):
        return None
    texts = ((name, git.get(name)) for name in ("repo", "directory", "ref", "commit"))
    return GitUpstream(*(t if isinstance(t, str) else text.at(field, "git", name) for name, t in texts))


class _Texts(Struct, frozen=True):
    """Fields of a document as they are written: a name or commit of digits is text, not a number."""

    document: Document
    data: bytes

    def at(self, *path: str) -> str:
        value = value_at(self.document.value, *path)
        if isinstance(value, str):
            return value
        if not isinstance(value, int | float):
            return ""
        line, column = self.document.mark(path)
        written = self.data.decode(errors="replace").splitlines()[line - 1][column - 1 :]
        return re.split(r"[\s,}]", written, maxsplit=1)[0]


class PackageTrees(Struct, frozen=True):
    """Package trees by commit and path, and the committer times of locked commits, in seconds.

    `earlier` is what main had before a revision that is ordered back, `subpackages` are Kptfiles inside
    packages: see `Inventory`.
    """

    trees: Mapping[TreeAt, Oid] = field(default_factory=dict)
    times: Mapping[Oid, int] = field(default_factory=dict)
    earlier: Mapping[PackageKey, KptfileHeader | None] = field(default_factory=dict)
    subpackages: Mapping[Oid, Mapping[str, KptfileHeader]] = field(default_factory=dict)


class _Place(NamedTuple):
    view: RepositoryView
    commit: Oid
    path: str


def read_trees(inventory: Inventory, mirrors: Mirrors) -> PackageTrees:
    """Return the package trees of upstreams, Kptfiles and locks, as far as they exist."""
    views = inventory.views
    pinned = list(_pinned(inventory))
    times: dict[Oid, int] = {}
    for place in pinned:
        mirror = mirrors.open(place.view.remote)
        # Fetch by id: no branch may lead to a locked commit any more.
        if place.commit not in times and mirror.bring(place.commit):
            times[place.commit] = mirror.commit(place.commit).committer.time
    earlier = dict(_earlier(inventory, mirrors))
    trees: dict[TreeAt, Oid | None] = {}

    def look_up(places: Iterable[_Place]) -> None:
        for view, commit, path in places:
            at = TreeAt(view.url, commit, path)
            if at not in trees:
                mirror = mirrors.open(view.remote)
                trees[at] = mirror.subtree(commit, path) if mirror.find_commit(commit) else None

    look_up((*_followed(inventory), *_locked(views, earlier.values()), *pinned))
    subpackages = _read_subpackages(inventory, mirrors, trees)
    if subpackages:
        headers = [header for headers_by_path in subpackages.values() for header in headers_by_path.values()]
        look_up((*_locked(views, headers), *_tagged(inventory, headers)))
    return PackageTrees({at: tree for at, tree in trees.items() if tree}, times, earlier, subpackages)


def _read_subpackages(
    inventory: Inventory, mirrors: Mirrors, trees: Mapping[TreeAt, Oid | None]
) -> Mapping[Oid, Mapping[str, KptfileHeader]]:
    """Return the Kptfiles inside packages by tree: of our packages, and of upstreams of variants.

    Only variants that set the revision of a sub-package need them, so no other run looks for them.
    """
    ordered = [declared for declared in _declared(inventory) if _entries(declared)]
    views, upstreams = inventory.views, set[PackageKey]()
    for declared in ordered:
        for owner, upstream in declared_upstreams([declared]):
            view = views.get(ObjectName(owner.namespace, upstream.repo or ""))
            if view is not None:
                upstreams.add(PackageKey(view.url, view.full_path(upstream.package or "")))
    by_remote: dict[str, set[Oid]] = {}
    for view in views.values() if ordered else ():
        wanted_trees = by_remote.setdefault(view.remote, set())
        wanted_trees |= {tree for at, tree in trees.items() if tree and (at.url, at.path) in upstreams}
        for path, package in view.packages.items():
            is_upstream = PackageKey(view.url, path) in upstreams
            headers = [package.main_header, *(draft.header for draft in package.drafts)]
            if is_upstream or any(header and header.owner for header in headers):
                wanted_trees |= {state.tree for state in package.drafts}
                wanted_trees |= {package.main_tree} if package.main_tree else set()
            if is_upstream:
                wanted_trees |= {nested.tree for nested in package.published}
                wanted_trees |= {state.tree for state in package.unpublished}
    index, headers_by_tree = HeaderIndex(), {}
    tags = tag_commits(views, mirrors) if by_remote else {}
    for remote, wanted_trees in by_remote.items():
        mirror = mirrors.open(remote)
        inside = {tree: list(find_subpackages(mirror, tree)) for tree in wanted_trees if mirror.has(tree)}
        index.load(mirror, (nested.kptfile for packages in inside.values() for nested in packages))
        for tree, packages in inside.items():
            headers_by_tree[tree] = {
                state.path: with_commits(index.header(state.kptfile), tags) for state in packages
            }
    return headers_by_tree


def _declared(inventory: Inventory) -> Iterator[Sourced[PackageVariant] | Sourced[PackageVariantSet]]:
    yield from inventory.variants
    yield from inventory.sets


def _entries(
    declared: Sourced[PackageVariant] | Sourced[PackageVariantSet],
) -> tuple[SubpackageRevision, ...]:
    return parse_entries(declared.manifest.metadata.annotations or {})


def _tagged(inventory: Inventory, headers: Iterable[KptfileHeader]) -> Iterator[_Place]:
    """Yield the upstreams of sub-packages at tags of whole repositories that variants name."""
    names = {entry.revision for declared in _declared(inventory) for entry in _entries(declared)}
    places = {
        (normalise_url(h.upstream.repo), h.upstream.directory.strip("/")) for h in headers if h.upstream
    }
    for view in inventory.views.values():
        for url, directory in sorted(places) if view.is_available else ():
            for name in sorted(names & view.tags.keys()) if url in source_names(view) else ():
                yield _Place(view, view.tags[name].oid, directory)
                yield _Place(view, view.tags[name].oid, view.full_path(directory))


def _earlier(inventory: Inventory, mirrors: Mirrors) -> Iterator[tuple[PackageKey, KptfileHeader | None]]:
    """Yield the Kptfile from before a revision that a set orders to be rolled back, newest states first.

    Only an order needs it, so no other run walks back. A package that was not there before has none.
    """
    notes = (declared.manifest.metadata.annotations or {} for declared in inventory.sets)
    ordered = {revision for note in notes for revision in revisions_taken_back(note)}
    index, tags = HeaderIndex(), tag_commits(inventory.views, mirrors) if ordered else {}
    for view in inventory.views.values() if ordered else ():
        for path, package in view.packages.items() if view.is_available and view.head else ():
            lock = package.main_header.upstream_lock if package.main_header else None
            if lock is None or not _names(lock, ordered):
                continue
            mirror, before, tree = mirrors.open(view.remote), None, package.main_tree
            for commit in mirror.first_parents(view.head.oid) if view.head else ():
                state = find_package(mirror, commit.tree, path)
                if state is None:
                    break
                if state.tree == tree:
                    continue
                tree = state.tree
                index.load(mirror, [state.kptfile])
                header = with_commits(index.header(state.kptfile), tags)
                if header.upstream_lock and header.upstream_lock.commit != lock.commit:
                    before = header
                    break
            yield PackageKey(view.url, path), before


def _names(lock: GitUpstream, ordered: Container[str]) -> bool:
    """Tell whether one of these revisions, as plans name them, is that of an upstreamLock."""
    return lock.ref in ordered or f"{lock.ref}@{lock.commit[:8]}" in ordered


def _pinned(inventory: Inventory) -> Iterator[_Place]:
    """Yield the packages of locks that may decide, held ones or all if pins are reviewed, and of rollouts."""
    views, reviewed = inventory.repositories, inventory.reviewed
    for rollout in inventory.rollouts.values():
        for pin in {member.before for member in rollout.members if member.before is not None}:
            view = views.get(ObjectName(rollout.namespace, pin.repository))
            if view is not None and view.is_available:
                yield _Place(view, Oid(pin.commit), view.full_path(pin.package))
    applied = (lock for lock in inventory.locks.values() if lock.held or reviewed is not None)
    for lock in (*applied, *(reviewed.pins.values() if reviewed else ())):
        view = views.get(ObjectName(lock.namespace, lock.repository))
        if view is not None and view.is_available:
            yield _Place(view, Oid(lock.commit), view.full_path(lock.package))


def _followed(inventory: Inventory) -> Iterator[_Place]:
    """Yield the packages of upstreams by branch, or by a tag of the whole repository."""
    for owner, upstream in declared_upstreams(inventory.variants, inventory.sets):
        view = inventory.repositories.get(ObjectName(owner.namespace, upstream.repo or ""))
        if view is None or not view.is_available or not upstream.package:
            continue
        path = view.full_path(upstream.package)
        if upstream.branch and (tip := view.branches.get(upstream.branch)):
            yield _Place(view, tip.oid, path)
        if upstream.tag or upstream.version:
            for tag, commit in view.tags.items():
                if tag == upstream.tag or (upstream.version and "/" not in tag):
                    yield _Place(view, commit.oid, path)


def _locked(
    views: Mapping[ObjectName, RepositoryView], earlier: Iterable[KptfileHeader | None]
) -> Iterator[_Place]:
    """Yield the packages of upstreamLocks in every view of their repository."""
    by_name: dict[str, list[RepositoryView]] = {}
    available = [view for view in views.values() if view.is_available]
    for view in available:
        git = view.manifest.spec.git
        # A relative address in the manifest is another name of the repository, as Kptfiles may write it.
        for name in {view.url, normalise_url(git.repo) if git else view.url}:
            by_name.setdefault(name, []).append(view)
    packages = (package for view in available for package in view.packages.values())
    headers = (h for p in packages for h in (p.main_header, *(draft.header for draft in p.drafts)))
    locks = {
        (h.upstream_lock.repo, h.upstream_lock.commit, h.upstream_lock.directory)
        for h in (*headers, *earlier)
        if h and h.upstream_lock
    }
    for repo, commit, written in sorted(locks):
        directory = written.strip("/")
        for view in by_name.get(normalise_url(repo), ()) if commit else ():
            # The directory is relative to the repository's root or to the registered directory: try both.
            yield _Place(view, Oid(commit), directory)
            yield _Place(view, Oid(commit), view.full_path(directory))
