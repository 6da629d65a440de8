"""The packages in a tree of files: their sides in an update, and a listing of their resources."""

from collections.abc import Iterator
from typing import NamedTuple

from reconciler.api.kptfile import KPTFILE
from reconciler.functions.package_files import package_directories, package_of
from reconciler.objects import File, Files
from reconciler.render.update.documents import documents_of


class Sides(NamedTuple):
    """One package, or a part of it, on the three sides of an update."""

    original: Files
    upstream: Files
    local: Files


def split_packages(sides: Sides) -> dict[str, Sides]:
    """Return each package's own files, without those of its sub-packages; paths stay relative to the root.

    A directory that is a package on one side is a package on all of them. The root `""` is first, parents
    are before their sub-packages.
    """
    directories = set[str]().union(*(package_directories(files) for files in sides))
    if len(directories) == 1:
        return {"": sides}
    paths = sorted(directories, key=lambda path: (path.count("/") + 1 if path else 0, path))
    parts: dict[str, tuple[dict[str, File], dict[str, File], dict[str, File]]] = {
        path: ({}, {}, {}) for path in paths
    }
    for index, files in enumerate(sides):
        for path, file in files.items():
            parts[package_of(path, parts)][index][path] = file
    return {path: Sides(*files) for path, files in parts.items()}


def has_directory(files: Files, directory: str) -> bool:
    """Tell whether any file is below `directory`."""
    prefix = directory + "/"
    return any(path.startswith(prefix) for path in files)


def list_package(name: str, files: Files) -> list[str]:
    """Return one line per file, sub-package and resource, indented by depth.

    Total: a file that is no YAML is listed by its name alone.
    """
    return [f"Package {name}", *_list_directory(files, "")]


def _list_directory(files: Files, prefix: str) -> Iterator[str]:
    names = sorted({path.removeprefix(prefix).partition("/")[0] for path in files if path.startswith(prefix)})
    for place, name in enumerate(names):
        last = place == len(names) - 1
        branch, stem = ("└── ", "    ") if last else ("├── ", "│   ")
        path = prefix + name
        children = list(_list_resources(files, path) if path in files else _list_directory(files, f"{path}/"))
        kind = "Package " if f"{path}/{KPTFILE}" in files else ""
        yield f"{branch}{kind}{name}"
        yield from (stem + line for line in children)


def _list_resources(files: Files, path: str) -> Iterator[str]:
    if path.endswith((".yaml", ".yml")):
        for document in documents_of(files[path]):
            yield f"[{document.identity}]"
