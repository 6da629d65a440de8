"""Names that we create: refs by a strict grammar, and object names as Porch checks and composes them."""

import re
from collections.abc import Collection

from reconciler.layout import HEADS, is_within, paths_overlap

_SEGMENT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,126}")
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_LONGEST_LABEL, _LONGEST_NAME, _LONGEST_REF = 63, 253, 240
OURS = ("drafts", "proposed", "deletionProposed", "reconciler")
"""The directories of branches that we write under: a branch with such a name blocks all of it."""


def refuse_ref(ref: str) -> str:
    """Return why we would not create `ref`, "" if we would.

    The grammar is stricter than Git's: letters, digits, `.`, `_` and `-`, never a leading `-` or
    dot, no `..`, no `.lock`, and short enough for a file name on every system.
    """
    if not ref.startswith("refs/"):
        return "it is not a full ref name"
    for segment in ref.split("/"):
        if not _SEGMENT.fullmatch(segment) or ".." in segment or segment.endswith((".", ".lock")):
            return f"{segment!r} may not be part of a ref"
    return f"it is longer than {_LONGEST_REF} characters" if len(ref) > _LONGEST_REF else ""


def find_blocker(ref: str, existing: Collection[str]) -> str:
    """Return the existing ref that makes `ref` impossible, "" if none does.

    Git keeps refs as files: `drafts` blocks everything under `drafts/`, and the other way round;
    two names that differ in case are one file on some systems.
    """
    parents = {"/".join(ref.split("/")[:count]) for count in range(3, ref.count("/") + 1)}
    blocking = sorted(parents.intersection(existing))
    if blocking:
        return blocking[0]
    folded = ref.casefold()
    clashes = (e for e in existing if e.startswith(ref + "/") or (e != ref and e.casefold() == folded))
    return min(clashes, default="")


def namespace_blockers(existing: Collection[str]) -> tuple[str, ...]:
    """Return the branches that stand where our directories of branches should be, sorted."""
    return tuple(sorted(HEADS + name for name in OURS if HEADS + name in existing))


def object_name(repository: str, path: str, package: str, workspace: str | None = None) -> str:
    """Return the name of a package (revision) object: its parts joined by dots, the path's slashes too.

    Source: porch pkg/util, ComposePkgObjName and ComposePkgRevObjName.
    """
    parts = (repository, path.strip("/").replace("/", "."), package, workspace)
    return ".".join(part for part in parts if part)


def workspace_of(name: str) -> str:
    """Return the workspace in a package revision object's name, versions with dots included.

    Source: porch pkg/repository, the text after the last `.v` if a version ends the name.
    """
    if re.search(r"\.v[0-9.]*[0-9]$", name, re.ASCII):
        return "v" + name.rpartition(".v")[2]
    return name.rpartition(".")[2] if "." in name else ""


def check_object_name(
    repository: str, path: str, package: str, workspace: str | None = None
) -> dict[str, str]:
    """Return what is wrong with each part of an object's name, by part; empty if nothing is.

    Source: porch pkg/util, ValidPkgObjName and ValidPkgRevObjName: DNS labels, and 253 in all.
    """
    parts = {"repository": repository, "package": package}
    if workspace is not None:
        parts["workspace"] = workspace
    wrong = {part: why for part, value in parts.items() if (why := _refuse_label(value))}
    if path and (why := _refuse_object_path(path)):
        wrong["path"] = why
    name = object_name(repository, path, package, workspace)
    if not wrong and len(name) > _LONGEST_NAME:
        wrong["name"] = f"must be no more than {_LONGEST_NAME} characters"
    return wrong


def refuse_package(url: str, path: str, existing: Collection[tuple[str, str]]) -> str:
    """Return why a new package cannot be at `path` of a repository, "" if it can.

    Source: porch pkg/engine, validatePackagePathOverlap: packages cannot be nested.
    """
    others = sorted(other for where, other in existing if where == url)
    if path in others:
        return f'package "{path}" already exists'
    clash = next((other for other in others if paths_overlap(path, other)), None)
    if clash is None:
        return ""
    return f'package path "{path}" conflicts with existing package "{clash}": packages cannot be nested'


def relative_package(path: str, directory: str) -> str:
    """Return a package's name in a repository registered at `directory`: its path below it."""
    inside = directory.strip("/")
    return path.removeprefix(inside).strip("/") if inside and is_within(path, inside) else path


def _refuse_label(label: str) -> str:
    wrong = []
    if len(label) > _LONGEST_LABEL:
        wrong.append(f"must be no more than {_LONGEST_LABEL} characters")
    if not _LABEL.fullmatch(label):
        wrong.append(
            "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', "
            "and must start and end with an alphanumeric character"
        )
    return "; ".join(wrong)


def _refuse_object_path(path: str) -> str:
    if "//" in path:
        return "consecutive '/' characters are not allowed"
    return _refuse_label(path.strip("/").replace("/", ""))
