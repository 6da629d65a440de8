"""Files of a working copy of a control repository: manifests and the index."""

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from reconciler.api.kptfile import KPTFILE
from reconciler.base.errors import RefusedError, UsageError
from reconciler.dependencies.catalog.index import INDEX_API_VERSION, INDEX_KIND, LayerDefaults
from reconciler.krm.merge import TextFormat
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
    for display, path in paths.items():
        if not path.exists():
            raise UsageError(f"{display} does not exist", hint="Name files or directories with manifests.")
        try:
            for file in _below(path, skipped) if path.is_dir() else (path,):
                name = str(Path(display) / file.relative_to(path)) if file != path else display
                files[name] = file.read_bytes()
        except OSError as error:
            raise UsageError(
                f"{error.filename} cannot be read: {error.strerror}", hint="Name a file that exists."
            ) from error
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
    form, before = TextFormat.split(path.read_bytes().decode() if path.exists() else "")
    if before and not before.endswith("\n"):
        before += "\n"
    separator = "---\n" if before.strip() and not before.rstrip().endswith("---") else ""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(form.joined(f"{before}{separator}{emit(document)}\n").encode())


# The index


def add_version(root: Path, folder: str, files: Mapping[str, bytes]) -> None:
    """Write the folder of a version.

    Raises:
        RefusedError: It is there already: what was published is not changed.
    """
    target = root / folder
    if target.exists():
        is_same = {p.name: p.read_bytes() for p in target.iterdir() if p.is_file()} == files
        message = f"{folder} exists already{'' if is_same else ', with other content'}"
        raise RefusedError(message, hint="Remove that version first, or add another one.")
    target.mkdir(parents=True)
    for name, data in files.items():
        (target / name).write_bytes(data)


def remove_folders(root: Path, folders: Iterable[str]) -> None:
    """Remove folders of versions, and the directories of the index that are empty then."""
    for folder in sorted(folders):
        shutil.rmtree(root / folder)
        above = (root / folder).parent
        while above != root and not any(above.iterdir()):
            above.rmdir()
            above = above.parent


def write_layer(root: Path, path: str, layer: LayerDefaults) -> None:
    """Write the defaults of one layer, sorted by interface; an empty layer has no file."""
    file = root / path
    if not layer.defaults and not layer.environment:
        file.unlink(missing_ok=True)
        return
    value: dict[str, Any] = {"apiVersion": INDEX_API_VERSION, "kind": INDEX_KIND}
    if layer.environment:
        value["environment"] = layer.environment
    value["defaults"] = {interface: str(id_) for interface, id_ in sorted(layer.defaults.items())}
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"{emit(value)}\n", encoding="utf-8")
