"""Files that are no resources: three-way, by lines where both sides changed them."""

from reconciler.krm.merge import MergedText, merge_text
from reconciler.objects import File, Mode
from reconciler.render.update.ledger import Ledger
from reconciler.render.update.sides import FileSides, is_equal, is_open, merged_mode, settled

_BINARY_PROBE = 8000


def merge_plain(path: str, sides: FileSides, ledger: Ledger) -> File | None:
    """Return what becomes of a file; bytes and mode are merged apart from each other."""
    if not is_open(sides):
        return settled(sides)
    base, upstream, local = sides
    if local is None or upstream is None or base is None:
        reason = "DeletedLocally" if local is None else "DeletedUpstream" if upstream is None else "BothAdded"
        return _whole(path, sides, ledger, reason)
    merged = _merge_bytes(path, sides, ledger)
    if merged is None or Mode.SYMLINK in (merged.mode, base.mode, upstream.mode, local.mode):
        return merged
    return File(merged.data, merged_mode(sides), merged.oid)


def keep_plain(sides: FileSides) -> File | None:
    """Return what kpt makes of a file: an unmodified one follows upstream, a deleted one comes back.

    Source: kpt internal/util/update/resource-merge.go, ReplaceNonKRMFiles.
    """
    base, upstream, local = sides
    return upstream if local is None or (base is not None and local.oid == base.oid) else local


def _merge_bytes(path: str, sides: FileSides, ledger: Ledger) -> File | None:
    base, upstream, local = sides
    if base is None or upstream is None or local is None or upstream.oid in (base.oid, local.oid):
        return local
    if local.oid == base.oid:
        return upstream
    merged = _merge_lines(base, upstream, local, prefer_upstream=False)
    if merged is None:
        return _whole(path, sides, ledger, "BothChanged")
    wins = [
        ledger.settle(path, "", (hunk.base, hunk.upstream, hunk.local), "BothChanged")
        for hunk in merged.hunks
    ]
    if any(wins):
        merged = _merge_lines(base, upstream, local, prefer_upstream=True) or merged
    data = File.of(merged.text.encode("utf-8", "surrogateescape"), local.mode)
    return local if is_equal(data, local) else data


def _merge_lines(base: File, upstream: File, local: File, *, prefer_upstream: bool) -> MergedText | None:
    sides = (base, upstream, local)
    if any(side.mode == Mode.SYMLINK or b"\0" in side.data[:_BINARY_PROBE] for side in sides):
        return None
    old, theirs, ours = (side.data.decode("utf-8", "surrogateescape") for side in sides)
    return merge_text(old, theirs, ours, prefer_upstream=prefer_upstream)


def _whole(path: str, sides: FileSides, ledger: Ledger, reason: str) -> File | None:
    base, upstream, local = (file_text(side) for side in sides)
    return sides.upstream if ledger.settle(path, "", (base, upstream, local), reason) else sides.local


def file_text(file: File | None) -> str | None:
    """Return the text of a file, None where there is none."""
    return None if file is None else file.data.decode(errors="replace")
