"""Read the manifests of a working copy."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from reconciler.api.kptfile import KPTFILE
from reconciler.base.errors import UsageError
from reconciler.read.manifests import SUFFIXES


def read_manifest_files(
    paths: Mapping[str, Path], skipped: frozenset[Path] = frozenset()
) -> dict[str, bytes]:
    """Return the contents of files, and of the YAML and JSON files below directories, by the path to show.

    Hidden files, symbolic links, packages (directories with a Kptfile) and `skipped` directories are left
    out, unless one is named itself.

    Raises:
        UsageError: A path does not exist, or cannot be read.
    """
    files: dict[str, bytes] = {}
    for display, path in paths.items():
        if not path.exists():
            raise UsageError(f"{display} does not exist", hint="Name files or directories with manifests.")
        try:
            for file in _below(path, skipped) if path.is_dir() else (path,):
                name = str(Path(display) / file.relative_to(path)) if file != path else display
                files[name] = file.read_bytes()
        except OSError as error:
            message = f"{error.filename} cannot be read: {error.strerror}"
            raise UsageError(message, hint="Name a file that exists.") from error
    return files


def _below(directory: Path, skipped: frozenset[Path]) -> Iterator[Path]:
    for root, directories, names in os.walk(directory):
        here = Path(root)
        if here != directory and KPTFILE in names:
            directories.clear()
            continue
        directories[:] = sorted(
            name
            for name in directories
            if not name.startswith(".") and (here / name).resolve() not in skipped
        )
        for name in sorted(names):
            path = here / name
            is_listed = name.endswith(SUFFIXES) and not name.startswith(".")
            if is_listed and path.is_file() and not path.is_symlink():  # Git tracks no pipes and devices
                yield path
