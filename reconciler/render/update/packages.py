"""Where packages end: a tree of files as a package and its sub-packages."""

from collections.abc import Iterable
from typing import NamedTuple

from reconciler.objects import File, Files

KPTFILE = "Kptfile"


class Sides(NamedTuple):
    """One package, or one part of it, as the three sides have it."""

    original: Files
    upstream: Files
    local: Files


def package_paths(trees: Iterable[Files]) -> list[str]:
    """Return the directories that are a package in any tree: the root `""` first, parents before children."""
    found = {path.rpartition("/")[0] for files in trees for path in files if path.endswith("/" + KPTFILE)}
    return ["", *sorted(found, key=lambda path: (path.count("/"), path))]


def split_packages(sides: Sides) -> dict[str, Sides]:
    """Return each package's own files, without those of its sub-packages; paths stay relative to the root.

    A directory that is a package on one side is a package on all of them.
    """
    paths = package_paths(sides)
    if len(paths) == 1:
        return {"": sides}
    known = frozenset(paths)
    parts: dict[str, tuple[dict[str, File], dict[str, File], dict[str, File]]] = {
        p: ({}, {}, {}) for p in paths
    }
    for index, files in enumerate(sides):
        for path, file in files.items():
            parts[_package_of(path, known)][index][path] = file
    return {path: Sides(*files) for path, files in parts.items()}


def below(files: Files, directory: str) -> bool:
    """Tell whether any file stands in `directory`."""
    prefix = directory + "/"
    return any(path.startswith(prefix) for path in files)


def _package_of(path: str, known: frozenset[str]) -> str:
    directory = path.rpartition("/")[0]
    while directory and directory not in known:
        directory = directory.rpartition("/")[0]
    return directory
