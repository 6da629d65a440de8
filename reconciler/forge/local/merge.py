"""Merge rules of the local forge: the package that a head proposes, and the changes that may be merged."""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import orjson

from reconciler.api.kptfile import KPTFILE
from reconciler.base.errors import RefusedError
from reconciler.base.lazy import regex
from reconciler.dependencies.catalog.index import INDEX_DIRECTORY
from reconciler.git.repository import Mirror
from reconciler.git.trees import RawEntry
from reconciler.names import refs as package_refs
from reconciler.names.ids import Lifecycle, Oid
from reconciler.names.objects import File, file_name_error
from reconciler.names.refs import nested_message
from reconciler.records.state import LOCKS_DIRECTORY

_DELETE = regex(r"reconciler/[^/]+/delete/(?P<path>.+)")
_WHOLE = regex(
    r"reconciler/[^/]+/(?:lock|(?P<index>index)/[^/]+|chart/(?P<chart>.+)/next|revision/.+/in/(?P<manifests>.+))"
)
_MOST_BYTES = 1 << 20
_BESIDE = "Remove that change from the branch, or merge the branch with git."
_PLAN = "Run `reconciler plan`: it shows what blocks the package."


class OutdatedError(RefusedError):
    """The package changed on the base since the pull request left it: merging would undo that change."""

    def __init__(self, message: str, path: str, *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.path = path


class DraftHead(NamedTuple):
    """The head branch of a draft of the package at `path`."""

    path: str
    workspace: str


class DeletionHead(NamedTuple):
    """The head branch of a proposal to delete the package at `path`."""

    path: str


class LockHead(NamedTuple):
    """The head branch of a proposal to change the lock, the index, a chart or manifests, in a directory.

    With a chart come the manifests of its branch that name its revision.
    """

    path: str = LOCKS_DIRECTORY
    is_chart: bool = False


class ProposedPackage(NamedTuple):
    """A package's tree before and after a change; None where it does not exist."""

    before: Oid | None
    after: Oid | None


def parse_head(head: str) -> DraftHead | DeletionHead | LockHead | None:
    """Return the package, lock or index that a head branch proposes, None for any other branch. Total."""
    if match := _WHOLE.fullmatch(head):
        if match["chart"]:
            return LockHead(match["chart"], is_chart=True)
        return LockHead(match["manifests"] or (INDEX_DIRECTORY if match["index"] else LOCKS_DIRECTORY))
    if match := _DELETE.fullmatch(head):
        return DeletionHead(match["path"])
    named = package_refs.parse_ref(f"{package_refs.HEADS}{head}")
    if named and named.lifecycle in {Lifecycle.DRAFT, Lifecycle.PROPOSED}:
        return DraftHead(named.path, named.workspace)
    return None


def next_revision(path: str, refs: Iterable[str]) -> int:
    """Return the number that publishing a package assigns: one more than the greatest of its tags `F/vN`.

    Differs: Porch reuses the number of a deleted revision; here tags are history and stay.
    """
    prefix = f"{package_refs.TAGS}{path}/"
    tags = (named for ref in refs if ref.startswith(prefix) and (named := package_refs.parse_ref(ref)))
    return package_refs.next_revision(named.revision for named in tags if named.path == path)


def approval_message(path: str, workspace: str, revision: int) -> str:
    """Return the message of the commit that publishes a revision.

    Source: porch pkg/externalrepo/git, ApprovePackageRevision.
    """
    annotation = {"package": path, "workspaceName": workspace, "revision": str(revision)}
    return f"Approving package revision {path}/{revision}\n\nkpt:{orjson.dumps(annotation).decode()}\n"


def check_inside(mirror: Mirror, base: Oid, head: Oid, path: str, branch: str) -> None:
    """Refuse a branch that changes anything beside one package: a merge takes over the package alone.

    Args:
        mirror: The repository.
        base: The commit where the branch left the base.
        head: The branch's tip.
        path: The package that the branch proposes.
        branch: The short name of the branch.

    Raises:
        RefusedError: Another path differs; merging would drop that change.
    """
    outside = find_outside(mirror, base, head, path)
    if outside is not None:
        message = f"{branch} also changes {outside}, outside of package {path}"
        raise RefusedError(message, hint=_BESIDE)


def find_outside(mirror: Mirror, base: Oid, head: Oid, path: str) -> str | None:
    """Return the first file or directory beside a package that differs between two commits."""
    before: Oid | None = mirror.commit(base).tree
    after: Oid | None = mirror.commit(head).tree
    inside = ""
    for segment in path.split("/"):
        old, new = _entries(mirror, before), _entries(mirror, after)
        for name in sorted({*old, *new}):
            if name != segment and old.get(name) != new.get(name):
                return f"{inside}{name}"
        before, after = _subtree(old.get(segment)), _subtree(new.get(segment))
        inside += f"{segment}/"
    return None


class ChangedFile(NamedTuple):
    """A file before and after a change."""

    before: Oid
    after: File


def files_beside(mirror: Mirror, base: Oid, head: Oid, path: str) -> dict[str, ChangedFile]:
    """Return the files beside a package that two commits have, and that differ.

    Raises:
        RefusedError: Another path is new or gone.
    """
    trees = (mirror.commit(base).tree, mirror.commit(head).tree)
    return dict(_changed_files(mirror, *trees, "", path))


def _changed_files(
    mirror: Mirror, before: Oid | None, after: Oid | None, inside: str, left_out: str
) -> Iterator[tuple[str, ChangedFile]]:
    old, new = _entries(mirror, before), _entries(mirror, after)
    for name in sorted({*old, *new}):
        path, sides = f"{inside}{name}", (old.get(name), new.get(name))
        if sides[0] == sides[1] or path == left_out:
            continue
        trees = (_subtree(sides[0]), _subtree(sides[1]))
        if f"{left_out}/".startswith(f"{path}/") or all(trees):
            yield from _changed_files(mirror, *trees, f"{path}/", left_out)
        elif sides[0] is None or sides[1] is None or sides[0].mode != sides[1].mode or any(trees):
            raise RefusedError(f"{path} does not belong to package {left_out}; merge the branch with git")
        else:
            oids = [Oid(side.oid.hex()) for side in sides if side is not None]
            yield path, ChangedFile(oids[0], File.of(mirror.blob(oids[1], _MOST_BYTES)))


def check_new_package(mirror: Mirror, base: Oid, package: Oid, path: str) -> None:
    """Refuse a new package that would be nested, or would remove files from its directory on the base.

    Args:
        mirror: The repository.
        base: The head of the base branch.
        package: The tree of the package as it would be merged.
        path: The directory of the package.

    Raises:
        RefusedError: Merging would remove files, or nest packages.
    """
    if mirror.blob_at(base, f"{path}/{KPTFILE}"):
        return
    parents = path.split("/")[:-1]
    for count in range(1, len(parents) + 1):
        outer = "/".join(parents[:count])
        # A package inside of a package is a sub-package of it, and has no revisions.
        if mirror.blob_at(base, f"{outer}/{KPTFILE}"):
            raise RefusedError(nested_message(path, outer), hint=_PLAN)
    for inner, is_package in _lost_paths(mirror, mirror.subtree(base, path), package, ""):
        if is_package:
            raise RefusedError(nested_message(path, f"{path}/{inner}"), hint=_PLAN)
        raise RefusedError(f"Merging package {path} would remove {path}/{inner}", hint=_PLAN)


def proposed_packages(mirror: Mirror, base: Oid, head: Oid) -> Mapping[str, ProposedPackage]:
    """Return the packages that differ between two commits, by full path.

    Raises:
        RefusedError: A file outside of packages differs; only git can merge that.
    """
    trees = (mirror.commit(base).tree, mirror.commit(head).tree)
    return dict(sorted(_differing_packages(mirror, *trees, "")))


def _lost_paths(
    mirror: Mirror, before: Oid | None, after: Oid | None, inside: str
) -> Iterator[tuple[str, bool]]:
    """Yield files that `after` lacks and packages inside `before`, each with whether it is a package."""
    old, new = _entries(mirror, before), _entries(mirror, after)
    for name in sorted(old):
        path = f"{inside}{name}"
        if old[name].is_tree:
            below = _subtree(old[name])
            if KPTFILE in _entries(mirror, below):
                yield path, True
            else:
                yield from _lost_paths(mirror, below, _subtree(new.get(name)), f"{path}/")
        elif name not in new:
            yield path, False


def _differing_packages(
    mirror: Mirror, before: Oid | None, after: Oid | None, path: str
) -> Iterator[tuple[str, ProposedPackage]]:
    if before == after:
        return
    old, new = _entries(mirror, before), _entries(mirror, after)
    if path and (KPTFILE in old or KPTFILE in new):
        yield path, ProposedPackage(before, after)
        return
    for name in sorted({*old, *new}):
        sides = (old.get(name), new.get(name))
        if sides[0] == sides[1]:
            continue
        inner = f"{path}/{name}" if path else name
        if file_name_error(name) or any(entry is not None and not entry.is_tree for entry in sides):
            raise RefusedError(f"{inner} does not belong to a package", hint=_BESIDE)
        yield from _differing_packages(mirror, _subtree(sides[0]), _subtree(sides[1]), inner)


def _entries(mirror: Mirror, tree: Oid | None) -> dict[str, RawEntry]:
    # Names that are not UTF-8 are compared like others.
    entries = mirror.raw_entries(tree) if tree else []
    return {entry.name.decode("utf-8", "surrogateescape"): entry for entry in entries}


def _subtree(entry: RawEntry | None) -> Oid | None:
    return Oid(entry.oid.hex()) if entry is not None and entry.is_tree else None
