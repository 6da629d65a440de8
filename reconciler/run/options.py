"""Options of a run; cheap to import, for the command line."""

from pathlib import Path

from reconciler.dependencies.update.options import DEFAULT_OPTIONS, ResolveOptions
from reconciler.plan.shard import WHOLE, Shard
from reconciler.values import dataclass


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Options of a run that the command line gives; all others are in the control repository.

    `control` is a working copy, a bare repository or a URL; `shard` the part of the fleet that this run is
    responsible for; `resolving` how dependencies are resolved.
    """

    control: str = "."
    cache_dir: Path | None = None
    shard: Shard = WHOLE
    resolving: ResolveOptions = DEFAULT_OPTIONS
