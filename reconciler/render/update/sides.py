"""One file as the three sides have it, and what can be said without looking into it."""

from typing import NamedTuple

from reconciler.objects import File, Mode


class FileSides(NamedTuple):
    """One file; None where a side has it not."""

    base: File | None
    upstream: File | None
    local: File | None


def is_equal(one: File | None, other: File | None) -> bool:
    """Tell whether two files have the same bytes and mode."""
    if one is None or other is None:
        return one is other
    return one is other or (one.oid == other.oid and one.mode == other.mode)


def is_open(sides: FileSides) -> bool:
    """Tell whether both sides changed the file, differently."""
    base, upstream, local = sides
    return not (is_equal(base, upstream) or is_equal(upstream, local) or is_equal(base, local))


def settled(sides: FileSides) -> File | None:
    """Return the file of the side that changed it, where not both did."""
    base, upstream, local = sides
    return upstream if is_equal(base, local) else local


def merged_mode(sides: FileSides) -> Mode:
    """Return the mode of a regular file after a merge: local's, unless only upstream changed it."""
    base, upstream, local = (side.mode if side is not None else None for side in sides)
    chosen = upstream if local in (None, base) else local
    return chosen or local or Mode.REGULAR
