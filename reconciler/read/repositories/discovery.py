"""Discover packages in trees and refs: on main, in drafts and at tags, each repository at one address."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import groupby
from types import MappingProxyType
from typing import Any, NamedTuple

from msgspec.structs import replace

from reconciler.api.kptfile import KPTFILE
from reconciler.base.reasons import Reason
from reconciler.base.values import whole_number
from reconciler.git.commits import CommitData, parse_annotations
from reconciler.git.repository import Mirror
from reconciler.git.urls import reading_of
from reconciler.inventory.inventory import PackageRevision, RepositoryView
from reconciler.names.ids import Lifecycle, Oid, is_prefix
from reconciler.names.objects import Commit, Mode, TreeEntry
from reconciler.names.refs import TAGS, RevisionRef, deletion_proposed_ref, parse_ref, parse_revision
from reconciler.policy import Policy
from reconciler.read.files import is_below

_HINT = "Write one address in both, or delete one of the two; spec.addresses may list the one that is meant."


def is_of_cluster(view: RepositoryView, policy: Policy) -> bool:
    """Tell whether a snapshot names a repository, and no manifest of that name."""
    return is_below(view.source.location.path, policy.snapshot.path)


def settle_addresses(views: Iterable[RepositoryView], policy: Policy, home: str) -> Iterator[RepositoryView]:
    """Yield every view; those of a repository with its first one first, and a problem at other addresses.

    Two addresses differ if the repository would be read in two ways: by another scheme or user. The first
    one is that of a manifest before a snapshot's; then one that a rule of `verify`, `credentials` or `forges`
    names with its scheme; then one that is encrypted; then the first by file and line. No name counts, and
    nothing that is refused. The control repository, at `home`, is read at the address of the run.
    """
    prefixes = [rule.prefix for rules in (policy.verify, policy.credentials, policy.forges) for rule in rules]

    def order(view: RepositoryView) -> tuple[Any, ...]:
        is_named = any(is_prefix(prefix, view.remote) for prefix in prefixes)
        is_clear = view.remote.lower().startswith("http:")
        return is_of_cluster(view, policy), not is_named, is_clear, view.source.location, view.key

    usable = []
    for view in views:
        if view.problem is None:
            usable.append(view)
        else:
            yield view
    usable.sort(key=lambda view: (view.url, *order(view)))
    for url, group in groupby(usable, lambda view: view.url):
        first, *others = group
        yield first
        for view in others:
            yield view if url == home or _way(view) == _way(first) else _refused(view, first)


def _way(view: RepositoryView) -> object:
    git = view.manifest.spec.git
    return reading_of(git.repo if git else view.remote)


def _refused(view: RepositoryView, first: RepositoryView) -> RepositoryView:
    message = (
        f"{view.remote} is the repository that {first.source.at('spec', 'git', 'repo')} registers as "
        f"{first.remote}, and would be read in another way; that one counts"
    )
    return replace(view, problem=view.problem_at(Reason.REPOSITORY_REFUSED, message, _HINT))


MAX_DEPTH = 50
"""Depth of directories that are searched for packages."""


class PackageDirectory(NamedTuple):
    """One package in one commit: full path, tree and the blob of its Kptfile, None in a malformed tree.

    `is_link` is True if its Kptfile is a symbolic link, which is no package at any other commit. A plain one
    has no Kptfile, and is a package by the annotation of its Repository.
    """

    path: str
    tree: Oid
    kptfile: Oid | None
    is_link: bool = False
    is_plain: bool = False


class PackageAtRef(NamedTuple):
    """A branch or tag named after a package, and the package there."""

    ref: str
    named: RevisionRef
    commit: CommitData
    package: PackageDirectory


class Survey(NamedTuple):
    """The content of a directory: packages, the directories outside of them, and all other entries.

    A package at the `root` of the repository hides none of the others.
    """

    packages: tuple[PackageDirectory, ...] = ()
    directories: Mapping[str, Oid] = MappingProxyType({})
    files: frozenset[str] = frozenset()
    root: PackageDirectory | None = None


def survey_packages(
    mirror: Mirror, tree: Oid, directory: str, is_excluded: Callable[[str], bool], *, plain: bool = False
) -> Survey:
    """Return the content of a directory of a tree.

    A directory with a Kptfile is a package and is not descended; with `plain`, one with manifests is, too.
    Paths that `is_excluded` accepts belong to another view. Refused names are files, because no package can
    be there.

    Source: porch pkg/externalrepo/git, package_tree.go, DiscoverPackagesInTree.
    """
    packages: list[PackageDirectory] = []
    root: PackageDirectory | None = None
    directories: dict[str, Oid] = {}
    files: set[str] = {above} if (above := _find_file_above(mirror, tree, directory)) else set()
    start = mirror.subtree(tree, directory)
    pending = [(directory, start)] if start else []
    while pending:
        path, oid = pending.pop()
        kptfile = mirror.find_file(oid, KPTFILE)
        if kptfile:
            package = PackageDirectory(path, oid, kptfile.oid, kptfile.mode == Mode.SYMLINK)
            if path:
                packages.append(package)
                continue
            root = package
        # An unsafe entry without a name is about the tree itself: keep the directory whole.
        if path and any(not unsafe.name for unsafe in mirror.unsafe_entries(oid)):
            packages.append(PackageDirectory(path, oid, None))
            continue
        entries = mirror.entries(oid)
        if plain and not path.rpartition("/")[2].startswith(".") and _has_manifests(entries):
            if path:
                packages.append(PackageDirectory(path, oid, None, is_plain=True))
                continue
            root = root or PackageDirectory(path, oid, None, is_plain=True)
        directories[path] = oid
        inside = f"{path}/" if path else ""
        files.update(f"{inside}{e.name}" for e in entries if e.mode != Mode.TREE)
        files.update(f"{inside}{unsafe.name}" for unsafe in mirror.unsafe_entries(oid))
        if path.count("/") >= MAX_DEPTH:
            continue
        below = ((f"{inside}{e.name}", e.oid) for e in entries if e.mode == Mode.TREE)
        pending += [(inner, tree) for inner, tree in below if not is_excluded(inner)]
    return Survey(tuple(packages), directories, frozenset(files), root)


def _has_manifests(entries: Iterable[TreeEntry]) -> bool:
    return any(e.mode != Mode.TREE and e.name.endswith((".yaml", ".yml", ".json")) for e in entries)


def _find_file_above(mirror: Mirror, tree: Oid, directory: str) -> str:
    """Return the file in place of a directory or one of its parents, "" if there is none."""
    parent, path = tree, ""
    for name in directory.split("/") if directory else ():
        path = f"{path}/{name}" if path else name
        below = mirror.subtree(parent, name)
        if below is None:
            return path if any(entry.name == name for entry in mirror.checked_entries(parent)) else ""
        parent = below
    return ""


def find_refs(mirror: Mirror, includes: Callable[[str], bool]) -> Iterator[PackageAtRef]:
    """Yield the branches and tags that contain the package they are named after, if `includes` accepts it."""
    for ref, oid in mirror.refs().items():
        named = parse_ref(ref)
        if named is None or named.lifecycle is Lifecycle.DELETION_PROPOSED or not includes(named.path):
            continue
        commit = mirror.find_commit(oid)
        package = find_package(mirror, commit.tree, named.path) if commit else None
        if commit and package:
            yield PackageAtRef(ref, named, commit, package)


def find_root_tags(mirror: Mirror) -> Iterator[PackageAtRef]:
    """Yield the tags without a path at which the whole repository is a package."""
    for ref, oid in mirror.refs().items():
        name = ref.removeprefix(TAGS)
        if name == ref or "/" in name:
            continue
        commit = mirror.find_commit(oid)
        package = find_package(mirror, commit.tree, "") if commit else None
        if commit and package:
            named = RevisionRef("", name, parse_revision(name), Lifecycle.PUBLISHED)
            yield PackageAtRef(ref, named, commit, package)


def find_package(mirror: Mirror, tree: Oid, path: str) -> PackageDirectory | None:
    """Return the package at `path` of a commit's tree, None without a Kptfile there."""
    package = mirror.subtree(tree, path)
    kptfile = mirror.blob_at(package, KPTFILE) if package else None
    return PackageDirectory(path, package, kptfile) if package and kptfile else None


def find_subpackages(mirror: Mirror, tree: Oid) -> Iterator[PackageDirectory]:
    """Yield the packages inside a package, at any depth; paths are relative to it."""
    pending = [("", tree)]
    while pending:
        path, oid = pending.pop()
        if path and (kptfile := mirror.blob_at(oid, KPTFILE)):
            yield PackageDirectory(path, oid, kptfile)
        if path.count("/") < MAX_DEPTH:
            inside = f"{path}/" if path else ""
            pending += [(f"{inside}{e.name}", e.oid) for e in mirror.entries(oid) if e.mode == Mode.TREE]


def published_revision(mirror: Mirror, tag: PackageAtRef) -> PackageRevision:
    """Return the published revision of a tag.

    Its workspace is the one in the commit's annotation, else the tag's last segment.

    Source: porch pkg/externalrepo/git, git.go, loadTaggedPackage.
    """
    ref, named, commit, package = tag
    workspace = annotated_workspaces(commit, named.path).get(named.revision, named.workspace)
    marker = deletion_proposed_ref(named.path, named.revision, named.workspace)
    lifecycle = Lifecycle.DELETION_PROPOSED if marker in mirror.refs() else Lifecycle.PUBLISHED
    at = Commit(commit.oid, commit.committer.time)
    return PackageRevision(named.path, workspace, named.revision, lifecycle, ref, at, package.tree)


def annotated_workspaces(commit: CommitData, path: str) -> Mapping[int, str]:
    """Return the workspaces of a package's revisions in a commit's annotations, by revision number."""
    return _workspaces(commit.message).get(path, _NO_WORKSPACES)


_NO_WORKSPACES: Mapping[int, str] = MappingProxyType({})


@lru_cache(maxsize=256)
def _workspaces(message: str) -> Mapping[str, Mapping[int, str]]:
    """Return the workspaces by package.

    Kept, because one commit may publish thousands of packages, and tags and packages on main ask in turn.
    """
    workspaces: dict[str, dict[int, str]] = {}
    for note in parse_annotations(message):
        if note.workspace and (number := whole_number(note.revision)) is not None:
            workspaces.setdefault(note.package, {}).setdefault(number, note.workspace)
    return workspaces
