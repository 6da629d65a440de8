"""Manifests of a working copy: list and read the files, register a repository in one of them."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from reconciler.api.kptfile import KPTFILE
from reconciler.base.errors import UsageError
from reconciler.krm.yaml import emit
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
    for shown, path in paths.items():
        if not path.exists():
            raise UsageError(f"{shown} does not exist", hint="Name files or directories with manifests.")
        try:
            for file in _below(path, skipped) if path.is_dir() else (path,):
                name = str(Path(shown) / file.relative_to(path)) if file != path else shown
                files[name] = file.read_bytes()
        except OSError as error:
            raise UsageError(f"{error.filename} cannot be read: {error.strerror}") from error
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


def append_document(path: Path, document: Mapping[str, Any]) -> None:
    """Write a document at the end of a file, which is made if it is not there; nothing else changes."""
    before = path.read_text(encoding="utf-8") if path.exists() else ""
    if before and not before.endswith("\n"):
        before += "\n"
    separator = "---\n" if before.strip() and not before.rstrip().endswith("---") else ""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{before}{separator}{emit(document)}\n", encoding="utf-8")
