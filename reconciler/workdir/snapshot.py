"""Read and write snapshot directories: files first, then the header that counts them."""

from pathlib import Path

from reconciler.api.snapshot import FILE
from reconciler.base.errors import ConfigurationError, UsageError
from reconciler.read.snapshot import parse_header
from reconciler.read.snapshot.importing import SnapshotFiles
from reconciler.read.snapshot.objects import SUFFIXES


def read_directory(directory: Path) -> dict[str, bytes]:
    """Return the snapshot files of a directory by path from it; none if it does not exist.

    Links are not followed, and the snapshots of single clusters below are not a part of it.
    """
    others = [header.parent for header in directory.glob(f"*/{FILE}")]
    paths = (
        path
        for path in directory.rglob("*")
        if path.suffix in SUFFIXES and path.is_file() and not path.is_symlink()
        if not any(path.is_relative_to(other) for other in others)
    )
    return {p.relative_to(directory).as_posix(): p.read_bytes() for p in sorted(paths)}


def find_directory(root: Path, cluster: str) -> Path:
    """Return where the snapshot of a cluster is kept below a snapshot directory.

    That is the directory itself if it has the snapshot of this cluster already, else the cluster's own
    below it. Without a name it is the only one that there is.

    Raises:
        UsageError: The cluster must be named.
    """
    headers = (root / FILE, *sorted(root.glob(f"*/{FILE}")))
    named = ((path.parent, _cluster_name(path)) for path in headers)
    clusters = {directory: name for directory, name in named if name is not None}
    if not cluster and len(clusters) == 1:
        return next(iter(clusters))
    if not cluster:
        names = ", ".join(sorted(filter(None, clusters.values())))
        hint = f"Name it: --cluster NAME{f', one of {names}' if clusters else ''}."
        raise UsageError("The cluster of this snapshot is unknown", hint=hint)
    return root if clusters.get(root) == cluster else root / cluster


def _cluster_name(header: Path) -> str | None:
    """Return the cluster of a snapshot's header, None if there is none; "" if it is not understood."""
    try:
        return parse_header(FILE, header.read_bytes()).cluster
    except OSError:
        return None


def write_directory(directory: Path, files: SnapshotFiles) -> None:
    """Write what an import changes.

    A run that is killed on the way leaves objects that the old header does not count, which no
    reader takes for complete; the next import puts it right.

    Raises:
        ConfigurationError: The directory cannot be written.
    """
    try:
        for path in sorted(files.remove):
            (directory / path).unlink(missing_ok=True)
        for path, data in sorted(files.write.items(), key=lambda item: (item[0] == FILE, item[0])):
            target = directory / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
    except OSError as error:
        message = f"{error.filename or directory} cannot be written: {error.strerror}"
        raise ConfigurationError(
            message, hint="Check the directory, or name another with --out-dir."
        ) from error
