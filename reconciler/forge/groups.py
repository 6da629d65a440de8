"""What a group's branch proposes: which packages differ from where it left the base."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from reconciler.errors import RefusedError
from reconciler.git.repository import Mirror
from reconciler.git.trees import RawEntry
from reconciler.ids import Oid

_KPTFILE = b"Kptfile"


class Proposed(NamedTuple):
    """A package's tree before and after; None where it is not there."""

    before: Oid | None
    after: Oid | None


def proposed_packages(mirror: Mirror, base: Oid, head: Oid) -> Mapping[str, Proposed]:
    """Return the packages that differ between two commits, by full path.

    Raises:
        RefusedError: Something differs that is no package; only git can merge that.
    """
    found = _differences(mirror, mirror.commit(base).tree, mirror.commit(head).tree, "")
    return dict(sorted(found))


def _differences(
    mirror: Mirror, before: Oid | None, after: Oid | None, path: str
) -> Iterator[tuple[str, Proposed]]:
    if before == after:
        return
    old, new = _entries(mirror, before), _entries(mirror, after)
    if path and (_KPTFILE in old or _KPTFILE in new):
        yield path, Proposed(before, after)
        return
    for name in sorted({*old, *new}):
        one, other = old.get(name), new.get(name)
        if one == other:
            continue
        if any(entry is not None and not entry.is_tree for entry in (one, other)):
            place = "/".join(filter(None, (path, name.decode("utf-8", "replace"))))
            raise RefusedError(f"{place} is part of no package; merge it with git")
        inside = f"{path}/{name.decode()}" if path else name.decode()
        yield from _differences(mirror, _tree(one), _tree(other), inside)


def _entries(mirror: Mirror, tree: Oid | None) -> dict[bytes, RawEntry]:
    return {entry.name: entry for entry in mirror.raw_entries(tree)} if tree else {}


def _tree(entry: RawEntry | None) -> Oid | None:
    return Oid(entry.oid.hex()) if entry else None
