"""The merge base of an adopted package without upstreamLock: the published revision nearest to it."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from reconciler.ids import Oid
from reconciler.objects import Files
from reconciler.resolve.resolution import Pin


class NearestBase(NamedTuple):
    """The revision that an adopted package was most likely made from, and its files that local has too."""

    pin: Pin
    files: Files


def find_nearest_base(
    candidates: Iterable[Pin], contents: Mapping[Oid, Files], local: Files
) -> NearestBase | None:
    """Return the candidate whose files differ least from `local`, None if none shares a file with it.

    Files that local does not have are left out of the base: nobody knows whether they were
    removed, so the merge brings them. Of equal candidates the newest wins. Deterministic.
    """
    best: tuple[tuple[int, int, str], NearestBase] | None = None
    for pin in candidates:
        files = {path: file for path, file in contents[pin.tree].items() if path in local}
        if not files:
            continue
        distance = sum(_distance(file.data, local[path].data) for path, file in files.items())
        missing = sum(file.data.count(b"\n") for path, file in local.items() if path not in files)
        rank = (distance + missing, -pin.revision, pin.ref)
        if best is None or rank < best[0]:
            best = rank, NearestBase(pin, files)
    return best[1] if best else None


def _distance(before: bytes, after: bytes) -> int:
    """Return how many lines only one of two files has."""
    if before == after:
        return 0
    one, other = Counter(before.splitlines()), Counter(after.splitlines())
    return (one - other).total() + (other - one).total()
