"""Options of a run; cheap to import, for the command line."""

import os
import re
from pathlib import Path

from msgspec import Struct

from reconciler.dependencies.lock.format import DEFAULT_OPTIONS, ResolveOptions
from reconciler.git.cache import default_cache, open_cache
from reconciler.git.repository import Mirrors
from reconciler.inventory.shard import WHOLE, Shard
from reconciler.read.forges import control_credential

READ_SECONDS = "RECONCILER_LIMITS_READ_SECONDS"
"""The variable of `limits.readSeconds`."""


class RunOptions(Struct, frozen=True):
    """Options of a run that the command line gives; all others are in the control repository.

    `control` is a working copy, a bare repository or a URL; `shard` the part of the fleet that this run is
    responsible for; `resolving` how dependencies are resolved.
    """

    control: str = "."
    cache_dir: Path | None = None
    shard: Shard = WHOLE
    resolving: ResolveOptions = DEFAULT_OPTIONS


def open_mirrors(options: RunOptions) -> Mirrors:
    """Return the cache of mirrors.

    The control repository is read before its configuration is known: its token and its time limit come
    from the environment.

    Raises:
        RefusedError: Others may write the cache.
        UnavailableError: This user may not.
    """
    mirrors = Mirrors(open_cache(options.cache_dir or default_cache()), control_credential(os.environ))
    seconds = os.environ.get(READ_SECONDS, "")
    if re.fullmatch(r"[1-9][0-9]{0,5}", seconds):
        mirrors.limit_reads(float(seconds))
    return mirrors
