"""Places of the locks of dependencies on the state and status branches."""

from reconciler.records.upstream_lock import LOCKS_DIRECTORY

RESOLUTIONS_DIRECTORY = f"{LOCKS_DIRECTORY}/resolutions"


def is_lock_file(path: str) -> bool:
    """Tell whether a path of the state branch is a lock or a resolution."""
    directory = path.rpartition("/")[0]
    return path.endswith(".json") and directory in (LOCKS_DIRECTORY, RESOLUTIONS_DIRECTORY)
