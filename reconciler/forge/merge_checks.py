"""Checks before a merge in the local forge: nothing leaves the base that the pull request does not list."""

from collections.abc import Iterator

from reconciler.api.kptfile import KPTFILE
from reconciler.errors import RefusedError
from reconciler.git.repository import Mirror
from reconciler.git.trees import RawEntry
from reconciler.ids import Oid
from reconciler.package_paths import nested_message

_PLAN = "Run `reconciler plan`: it tells what is in the way of the package."


class OutdatedError(RefusedError):
    """The package changed on the base since the proposal left it: merging would undo that change."""

    def __init__(self, message: str, path: str, *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.path = path


def check_inside(mirror: Mirror, base: Oid, head: Oid, path: str, branch: str) -> None:
    """Refuse a branch that changes anything beside one package: merging takes over the package alone.

    Args:
        mirror: The repository.
        base: The commit where the branch left the base.
        head: The branch's tip.
        path: The package that the branch is for.
        branch: The short name of the branch.

    Raises:
        RefusedError: Something else differs; merging here would drop it.
    """
    outside = find_outside(mirror, base, head, path)
    if outside is not None:
        message = f"{branch} also changes {outside}, outside of package {path}"
        raise RefusedError(message, hint="Take that out of the branch, or merge it with git.")


def find_outside(mirror: Mirror, base: Oid, head: Oid, path: str) -> str | None:
    """Return the first file or directory beside a package that differs between two commits."""
    before, after = _entries(mirror, mirror.commit(base).tree), _entries(mirror, mirror.commit(head).tree)
    inside = ""
    for segment in path.split("/"):
        for name in sorted({*before, *after}):
            if name != segment and before.get(name) != after.get(name):
                return f"{inside}{name}"
        inside += f"{segment}/"
        before, after = (_entries(mirror, _tree(side.get(segment))) for side in (before, after))
    return None


def check_new_package(mirror: Mirror, base: Oid, package: Oid, path: str) -> None:
    """Refuse a new package that would be nested, or whose place on the base holds files that it lacks.

    Args:
        mirror: The repository.
        base: The head of the base branch.
        package: The tree of the package as it would be merged.
        path: Where it would be.

    Raises:
        RefusedError: Merging would remove files, or nest packages.
    """
    if mirror.blob_at(base, f"{path}/{KPTFILE}"):
        return
    parents = path.split("/")[:-1]
    for count in range(1, len(parents) + 1):
        outer = "/".join(parents[:count])
        if mirror.blob_at(base, f"{outer}/{KPTFILE}"):
            raise RefusedError(nested_message(path, outer), hint=_PLAN)
    for inner, has_kptfile in _missing(mirror, mirror.subtree(base, path), package, ""):
        if has_kptfile:
            raise RefusedError(nested_message(path, f"{path}/{inner}"), hint=_PLAN)
        raise RefusedError(f"Merging package {path} would remove {path}/{inner}", hint=_PLAN)


def _missing(
    mirror: Mirror, before: Oid | None, after: Oid | None, inside: str
) -> Iterator[tuple[str, bool]]:
    """Yield the files that a new package lacks, and the packages inside it, with whether it is a package."""
    old, new = _entries(mirror, before), _entries(mirror, after)
    for name in sorted(old):
        path = f"{inside}{name}"
        if old[name].is_tree:
            below = _tree(old[name])
            if KPTFILE in _entries(mirror, below):
                yield path, True
            else:
                yield from _missing(mirror, below, _tree(new.get(name)), f"{path}/")
        elif name not in new:
            yield path, False


def _entries(mirror: Mirror, tree: Oid | None) -> dict[str, RawEntry]:
    entries = mirror.raw_entries(tree) if tree else []
    return {entry.name.decode("utf-8", "surrogateescape"): entry for entry in entries}


def _tree(entry: RawEntry | None) -> Oid | None:
    return Oid(entry.oid.hex()) if entry is not None and entry.is_tree else None
