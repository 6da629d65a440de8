"""Packages out of refs and trees: where each one stands on main, in drafts and at tags."""

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from reconciler.api.kptfile import KPTFILE
from reconciler.git.commits import CommitData, parse_annotations
from reconciler.git.repository import Mirror
from reconciler.ids import Lifecycle, Oid
from reconciler.inventory import Commit, PackageRevision
from reconciler.objects import Mode
from reconciler.refs import RevisionRef, deletion_proposed_ref, parse_ref

DEEPEST = 50
"""Directories below the root that are searched for packages."""


class PackageDirectory(NamedTuple):
    """One package in one commit: its full path, its tree, the blob of its Kptfile.

    A directory whose tree is malformed has no Kptfile that could be read; whatever it holds stays.
    """

    path: str
    tree: Oid
    kptfile: Oid | None


class PackageAtRef(NamedTuple):
    """A branch or tag that holds the package its name says."""

    ref: str
    named: RevisionRef
    commit: CommitData
    package: PackageDirectory


class Survey(NamedTuple):
    """A branch below one directory: its packages, the directories outside of them, and what else has a path.

    `files` are all entries outside of packages that are no directories, or that are refused.
    """

    packages: tuple[PackageDirectory, ...] = ()
    directories: Mapping[str, Oid] = MappingProxyType({})
    files: frozenset[str] = frozenset()


def survey_packages(mirror: Mirror, tree: Oid, directory: str, is_excluded: Callable[[str], bool]) -> Survey:
    """Return the packages below a directory of a tree, and what stands beside them.

    A directory with a Kptfile is a package and is not descended. What `is_excluded` belongs to
    another view; refused names are passed over, since no package of anybody can be there.

    Source: porch pkg/externalrepo/git, package_tree.go, DiscoverPackagesInTree.
    """
    packages: list[PackageDirectory] = []
    directories: dict[str, Oid] = {}
    files: set[str] = {above} if (above := _find_file_above(mirror, tree, directory)) else set()
    start = mirror.subtree(tree, directory)
    pending = [(directory, start)] if start else []
    while pending:
        path, oid = pending.pop()
        entries = mirror.entries(oid)
        kptfile = next((e for e in entries if e.name == KPTFILE and e.mode != Mode.TREE), None)
        if kptfile and path:
            packages.append(PackageDirectory(path, oid, kptfile.oid))
            continue
        if path and any(not unsafe.name for unsafe in mirror.unsafe_entries(oid)):
            packages.append(PackageDirectory(path, oid, None))
            continue
        directories[path] = oid
        inside = f"{path}/" if path else ""
        files.update(f"{inside}{e.name}" for e in entries if e.mode != Mode.TREE)
        files.update(f"{inside}{unsafe.name}" for unsafe in mirror.unsafe_entries(oid))
        if path.count("/") >= DEEPEST:
            continue
        below = ((f"{inside}{e.name}", e.oid) for e in entries if e.mode == Mode.TREE)
        pending += [(inner, tree) for inner, tree in below if not is_excluded(inner)]
    return Survey(tuple(packages), directories, frozenset(files))


def _find_file_above(mirror: Mirror, tree: Oid, directory: str) -> str:
    """Return the file that stands where a directory or one of its parents should be, "" if none does."""
    parent = tree
    path = ""
    for name in directory.split("/") if directory else ():
        entry = next((e for e in mirror.checked_entries(parent) if e.name == name), None)
        path = f"{path}/{name}" if path else name
        if entry is None:
            return ""
        below = mirror.subtree(parent, name)
        if below is None:
            return path
        parent = below
    return ""


def find_refs(mirror: Mirror, wanted: Callable[[str], bool]) -> Iterator[PackageAtRef]:
    """Yield the branches and tags whose names say a package that `wanted` accepts and that they hold."""
    for ref, oid in mirror.refs().items():
        named = parse_ref(ref)
        if named is None or named.lifecycle is Lifecycle.DELETION_PROPOSED or not wanted(named.path):
            continue
        commit = mirror.find_commit(oid)
        found = find_package(mirror, commit.tree, named.path) if commit else None
        if commit and found:
            yield PackageAtRef(ref, named, commit, found)


def find_package(mirror: Mirror, tree: Oid, path: str) -> PackageDirectory | None:
    """Return the package at `path` of a commit's tree, None if no Kptfile is there."""
    package = mirror.subtree(tree, path)
    kptfile = mirror.blob_at(package, KPTFILE) if package else None
    return PackageDirectory(path, package, kptfile) if package and kptfile else None


def published_revision(mirror: Mirror, found: PackageAtRef) -> PackageRevision:
    """Return the published revision that a tag names.

    Its workspace is what the commit's annotation says, else the tag's last segment.

    Source: porch pkg/externalrepo/git, git.go, loadTaggedPackage.
    """
    ref, named, commit, package = found
    workspace = annotated_workspaces(commit, named.path).get(named.revision, named.workspace)
    marker = deletion_proposed_ref(named.path, named.revision, named.workspace)
    lifecycle = Lifecycle.DELETION_PROPOSED if marker in mirror.refs() else Lifecycle.PUBLISHED
    at = Commit(commit.oid, commit.committer.time)
    return PackageRevision(named.path, workspace, named.revision, lifecycle, ref, at, package.tree)


def annotated_workspaces(commit: CommitData, path: str) -> Mapping[int, str]:
    """Return the workspaces that a commit's annotations give to revisions of a package, by number."""
    found: dict[int, str] = {}
    for note in parse_annotations(commit.message):
        if note.package == path and note.workspace and note.revision.isdecimal():
            found.setdefault(int(note.revision), note.workspace)
    return found
