"""Add and remove versions of the index in a working copy, and choose defaults; nothing is committed."""

import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from reconciler.base.errors import RefusedError, UsageError
from reconciler.dependencies.catalog.index import INDEX_API_VERSION, INDEX_KIND, LayerDefaults
from reconciler.dependencies.dialects.reading import parse_source
from reconciler.krm.yaml import emit

HEADER = "version.yaml"


def version_folder(source: str, version: str) -> str:
    """Return the folder of a version, relative to the working copy; that of a Git source has no scheme.

    Raises:
        UsageError: The name or version would lead out of the index.
    """
    _, is_git, address = parse_source(source)[0].partition("://")
    path = PurePosixPath("index", address if is_git else source, version)
    if not source or not version or ".." in path.parts or path.parts[0] != "index":
        raise UsageError(f"{source} {version} cannot be a folder of the index")
    return str(path)


def add_version(root: Path, folder: str, files: Mapping[str, bytes]) -> None:
    """Write the folder of a version.

    Raises:
        RefusedError: It is there already: what was published is not changed.
    """
    target = root / folder
    if target.exists():
        raise RefusedError(f"{folder} exists already", hint="Remove that version first, or add another one.")
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
