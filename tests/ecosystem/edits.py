"""Edits that people make to packages, drawn by a seed."""

import random
import re
from collections.abc import Callable, Mapping

Package = dict[str, bytes]
NEW = b"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: drawn-by-a-person\ndata:\n  mine: kept\n"


def draw_edits(package: Mapping[str, bytes], seed: str, number: int = 3) -> tuple[Package, list[str]]:
    """Return a package after some drawn edits, and the names of the edits."""
    draw = random.Random(seed)
    edited, made = dict(package), []
    for edit in draw.sample(EDITS, len(EDITS)):
        before = dict(edited)
        edit(edited, draw)
        if edited != before:
            made.append(edit.__name__)
        if len(made) == number:
            break
    return edited, made


def _manifests(package: Package) -> list[str]:
    own = ("Kptfile", "package-context.yaml", "kustomization.yaml")
    return [p for p in sorted(package) if p.endswith(".yaml") and not p.endswith(own)]


def _replace(pattern: str, replacement: str) -> Callable[[Package, random.Random], None]:
    """Return an edit of one drawn match in the files of resources."""
    compiled = re.compile(pattern.encode(), re.MULTILINE)

    def edit(package: Package, draw: random.Random) -> None:
        places = [(path, m) for path in _manifests(package) for m in compiled.finditer(package[path])]
        if places:
            path, match = draw.choice(places)
            data = package[path]
            package[path] = data[: match.start()] + match.expand(replacement.encode()) + data[match.end() :]

    return edit


replicas = _replace(r"^(  replicas: )\d+$", r"\g<1>7")
image = _replace(r"^( *(?:- )?image: )[\w./:@-]+$", r"\1registry.example.com/mine:7")
label = _replace(
    r"^metadata:\n(?!  labels:\n)(?=(?:  .*\n)*?  name:)", "metadata:\n  labels:\n    mine: kept\n"
)
comment = _replace(r"^(?=(?:spec|data|rules):$)", "# A person's word.\n")
list_item = _replace(r"^( *- )(?!name:)([a-z][\w/.=-]*)\n", r"\1\2\n\1mine-\2\n")


def new_file(package: Package, draw: random.Random) -> None:
    package[draw.choice(("mine.yaml", "people/mine.yaml"))] = NEW


def deleted_file(package: Package, draw: random.Random) -> None:
    if len(paths := _manifests(package)) > 1:
        del package[draw.choice(paths)]


def moved_file(package: Package, draw: random.Random) -> None:
    if paths := [path for path in _manifests(package) if path != "mine.yaml" and "/" not in path]:
        path = draw.choice(paths)
        package[f"moved/{path}"] = package.pop(path)


EDITS: list[Callable[[Package, random.Random], None]] = []
for _name, _edit in {
    "replicas": replicas,
    "image": image,
    "label": label,
    "comment": comment,
    "list item": list_item,
    "new file": new_file,
    "deleted file": deleted_file,
    "moved file": moved_file,
}.items():
    _edit.__name__ = _name
    EDITS.append(_edit)
