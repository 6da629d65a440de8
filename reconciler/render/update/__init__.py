"""Bring a new upstream into a package that people have edited: three-way, pure, whole or not at all."""

from reconciler.krm.yaml import YamlError
from reconciler.objects import Files
from reconciler.policy import MergeMode, OnConflict, Strategy
from reconciler.render.update.kptfile import set_upstream, update_strategy, upstream_of
from reconciler.render.update.ledger import Ledger
from reconciler.render.update.model import (
    Conflict,
    ConflictPolicy,
    Decision,
    Updated,
    UpdateRefused,
    UpstreamRef,
)
from reconciler.render.update.packages import KPTFILE, Sides
from reconciler.render.update.settings import Memory, Settings
from reconciler.render.update.strategies import STRATEGIES

__all__ = [
    "Conflict",
    "ConflictPolicy",
    "Decision",
    "Memory",
    "UpdateRefused",
    "Updated",
    "UpstreamRef",
    "update_package",
    "upstream_of",
]


_MEMORY = Memory()
"""What was merged before in this process: a fleet with few distinct edits pays for few merges."""


def update_package(
    original: Files,
    upstream: Files,
    local: Files,
    *,
    strategy: Strategy | None = None,
    mode: MergeMode = MergeMode.DEFAULT,
    on_conflict: OnConflict | ConflictPolicy = OnConflict.ASK,
    new_upstream: UpstreamRef | None = None,
    memory: Memory | None = None,
) -> Updated:
    """Return `local` with what changed from `original` to `upstream`.

    Pure and deterministic; `memory` only saves work, by default that of earlier calls. `strategy`
    None is the Kptfile's own, else `resource-merge`. With `new_upstream`, the root Kptfile says
    where the package now comes from.

    Laws, in the default mode: an upstream that did not change leaves local alone, a local that
    nobody edited becomes upstream, both byte for byte; what upstream did not touch stays as local has it.

    Raises:
        UpdateRefused: The package must not be updated; nothing of it was changed.
    """
    policy = on_conflict if isinstance(on_conflict, ConflictPolicy) else ConflictPolicy(on_conflict)
    settings = Settings(mode, policy, memory if memory is not None else _MEMORY)
    ledger = Ledger(policy)
    chosen = strategy or update_strategy(local.get(KPTFILE)) or Strategy.RESOURCE_MERGE
    try:
        files = STRATEGIES[chosen](Sides(original, upstream, local), settings, ledger)
        if new_upstream is not None and KPTFILE in files:
            files[KPTFILE], fallbacks = set_upstream(files[KPTFILE], new_upstream)
            ledger.fallbacks += fallbacks
    except YamlError as error:
        raise UpdateRefused("InvalidYAML", f"The package cannot be merged: {error}") from error
    if blocked := _nested_paths(files):
        message = f"Paths are files on one side and directories on the other: {', '.join(blocked)}"
        raise UpdateRefused("PathConflict", message, paths=blocked)
    if ledger.fatal:
        conflicts = tuple(ledger.fatal)
        message = f"{len(conflicts)} conflicts, and the policy is to fail"
        raise UpdateRefused("MergeConflict", message, conflicts=conflicts)
    return ledger.updated(files)


def _nested_paths(files: Files) -> tuple[str, ...]:
    """Return the paths that are a file and would have to be a directory too."""
    parents = {path[:place] for path in files for place, letter in enumerate(path) if letter == "/"}
    return tuple(sorted(parents & files.keys()))
