"""What is in a package, as a tree of lines."""

from collections.abc import Iterator

from reconciler.objects import Files
from reconciler.render.update.chunks import split_documents
from reconciler.render.update.packages import KPTFILE


def list_package(name: str, files: Files) -> list[str]:
    """Return one line per file, sub-package and resource, indented by depth.

    Total: a file that is no YAML is listed by its name alone.
    """
    return [f"Package {name}", *_directory(files, "")]


def _directory(files: Files, prefix: str) -> Iterator[str]:
    names = sorted({path.removeprefix(prefix).partition("/")[0] for path in files if path.startswith(prefix)})
    for place, name in enumerate(names):
        last = place == len(names) - 1
        branch, stem = ("└── ", "    ") if last else ("├── ", "│   ")
        path = prefix + name
        below = list(_resources(files, path) if path in files else _directory(files, f"{path}/"))
        kind = "Package " if f"{path}/{KPTFILE}" in files else ""
        yield f"{branch}{kind}{name}"
        yield from (stem + line for line in below)


def _resources(files: Files, path: str) -> Iterator[str]:
    if not path.endswith((".yaml", ".yml")):
        return
    chunked = split_documents(files[path])
    for document in chunked.documents if chunked is not None else ():
        yield f"[{document.identity}]"
