"""Writing a snapshot to a directory: files first, the header that vouches for them last."""

from pathlib import Path

from reconciler.api.snapshot import FILE
from reconciler.errors import ConfigurationError
from reconciler.read.snapshot_import import SnapshotFiles
from reconciler.read.snapshot_objects import SUFFIXES


def read_directory(directory: Path) -> dict[str, bytes]:
    """Return the snapshot files of a directory by path from it; none if it does not exist.

    Links are not followed.
    """
    paths = (p for p in directory.rglob("*") if p.suffix in SUFFIXES and p.is_file() and not p.is_symlink())
    return {p.relative_to(directory).as_posix(): p.read_bytes() for p in sorted(paths)}


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
        raise ConfigurationError(message, hint="Check --output.") from error
