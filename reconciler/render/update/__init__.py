"""Update a package with local edits to a new upstream: a pure three-way merge, all or nothing."""

from reconciler.api.kptfile import KPTFILE
from reconciler.base.errors import Exit
from reconciler.base.text import plural
from reconciler.krm.yaml import YamlError
from reconciler.names.objects import Files
from reconciler.policy import MergeMode, OnConflict, Strategy
from reconciler.render.update.conflicts import (
    Conflict,
    ConflictDecision,
    ConflictPolicy,
    MergeReport,
    Updated,
    UpdateRefused,
)
from reconciler.render.update.kptfile_merge import UpstreamRef, set_upstream, update_strategy, upstream_of
from reconciler.render.update.sides import MergeCache, MergeSettings, Sides
from reconciler.render.update.strategies import STRATEGIES

__all__ = [
    "Conflict",
    "ConflictDecision",
    "ConflictPolicy",
    "MergeCache",
    "UpdateRefused",
    "Updated",
    "UpstreamRef",
    "update_package",
    "upstream_of",
]


_CACHE = MergeCache()
"""Shared by all updates of the process: many packages of a fleet have the same edits."""


def update_package(
    original: Files,
    upstream: Files,
    local: Files,
    *,
    strategy: Strategy | None = None,
    mode: MergeMode = MergeMode.DEFAULT,
    on_conflict: OnConflict | ConflictPolicy = OnConflict.ASK,
    new_upstream: UpstreamRef | None = None,
    cache: MergeCache | None = None,
) -> Updated:
    """Return `local` with the changes from `original` to `upstream`.

    Pure and deterministic; `cache` only saves time, by default with the results of earlier calls. Without
    `strategy` the Kptfile's own is used, else `resource-merge`. `new_upstream` is written to the Kptfile.

    Laws, in the default mode: with an unchanged upstream the result is local, with a local without edits it
    is upstream, both byte for byte; values that upstream did not change are local's.

    Raises:
        UpdateRefused: The package cannot be updated; nothing of it was changed.
    """
    policy = on_conflict if isinstance(on_conflict, ConflictPolicy) else ConflictPolicy(on_conflict)
    settings = MergeSettings(mode, policy, cache if cache is not None else _CACHE)
    report = MergeReport(policy)
    # kpt does not look at the strategy of the Kptfile, and overwrites it with resource-merge.
    chosen = strategy or update_strategy(local.get(KPTFILE)) or Strategy.RESOURCE_MERGE
    try:
        files = STRATEGIES[chosen](Sides(original, upstream, local), settings, report)
        # kpt writes the new ref before it fetches anything, so a failed update leaves it there.
        if new_upstream is not None and KPTFILE in files:
            files[KPTFILE], fallbacks = set_upstream(files[KPTFILE], new_upstream)
            report.fallbacks += fallbacks
    except YamlError as error:
        message = f"The package cannot be merged: {error}"
        raise UpdateRefused("InvalidYAML", message, exit_code=Exit.INVALID_INPUT) from error
    if blocked := _nested_paths(files):
        message = f"Paths are files on one side and directories on the other: {', '.join(blocked)}"
        raise UpdateRefused("PathConflict", message, paths=blocked)
    if report.fatal:
        conflicts = tuple(report.fatal)
        message = f"{plural(len(conflicts), 'conflict')}, and the policy is to fail"
        raise UpdateRefused("MergeConflict", message, conflicts=conflicts, exit_code=Exit.WAITING)
    return report.updated(files)


def _nested_paths(files: Files) -> tuple[str, ...]:
    """Return the paths that are both a file and a directory of another file."""
    # Git has no tree in which a name is both.
    parents = {path[:index] for path in files for index, letter in enumerate(path) if letter == "/"}
    return tuple(sorted(parents & files.keys()))
