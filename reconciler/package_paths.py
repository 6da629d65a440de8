"""Rules for package paths and package revision names: legal in Git refs, legal by Porch, never nested.

Every stage that chooses a downstream path asks these functions, and the conformance vectors run
against them. Pure.
"""

import re
from collections import defaultdict
from collections.abc import Iterable
from typing import Self

from reconciler.layout import (
    HEADS,
    WORKSPACE_PREFIX,
    deletion_proposed_ref,
    deletion_ref,
    draft_ref,
    is_within,
    tag_ref,
)

BRANCH_DIRECTORIES = ("drafts", "proposed", "deletionProposed", "reconciler")
"""First segments of every branch that we create: a branch with such a name makes all of them impossible."""

_SEGMENT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,126}")
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_LONGEST_LABEL, _LONGEST_NAME, _LONGEST_REF = 63, 253, 240
_LABEL_RULE = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', "
    "and must start and end with an alphanumeric character"
)
_WINDOWS = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?", re.IGNORECASE)
_LARGE_NUMBER = 99_999
"""Stands for any revision or workspace number: a path must leave room for the refs of later revisions."""


def refuse_ref(ref: str) -> str:
    """Return why `ref` must not be created, "" if it may be.

    The grammar is stricter than Git's: letters, digits, `.`, `_` and `-`, never a leading `-` or
    dot, no `..`, no `.lock`, and short enough for a file name on every system.
    """
    if not ref.startswith("refs/"):
        return "it is not a full ref name"
    for segment in ref.split("/"):
        if not _SEGMENT.fullmatch(segment) or ".." in segment or segment.endswith((".", ".lock")):
            return f"{segment!r} may not be part of a Git ref"
    return f"it is longer than {_LONGEST_REF} characters" if len(ref) > _LONGEST_REF else ""


def refuse_path(path: str, instance: str) -> str:
    """Return why a package at the full path `path` cannot have drafts and tags, "" if it can.

    Args:
        path: The full path in the repository.
        instance: The name of this instance, which is part of the branch of a deletion.
    """
    if not path:
        return "it is empty"
    workspace = f"{WORKSPACE_PREFIX}{_LARGE_NUMBER}"
    for ref in (
        draft_ref(path, workspace),
        tag_ref(path, _LARGE_NUMBER),
        deletion_proposed_ref(path, _LARGE_NUMBER),
        deletion_ref(instance, path),
    ):
        if why := refuse_ref(ref):
            return why if "part of" in why else f"the branches of its drafts would be too long: {ref}"
    return ""


def refuse_new_name(repository: str, package: str) -> str:
    """Return why Porch could not show a new package of this name, "" if it could.

    Existing packages keep the name that they have. Device names of Windows are refused too: a
    repository with such a directory cannot be checked out there.

    Args:
        repository: The name of the Repository object.
        package: The package's path below the Repository's directory.
    """
    path, _, name = package.rpartition("/")
    wrong = check_object_name(repository, path, name, f"{WORKSPACE_PREFIX}{_LARGE_NUMBER}")
    told = next((wrong[part] for part in ("package", "path", "name") if part in wrong), "")
    reserved = next((s for s in package.split("/") if _WINDOWS.fullmatch(s)), "")
    return told or (f"{reserved!r} is the name of a device on Windows" if reserved else "")


def nested_message(path: str, other: str) -> str:
    """Return Porch's message for two package paths of which one lies inside the other.

    Source: porch pkg/engine, validatePackagePathOverlap.
    """
    return f'package path "{path}" conflicts with existing package "{other}": packages cannot be nested'


class PathIndex:
    """Paths of the packages of one repository, for questions about their neighbours."""

    def __init__(self, paths: Iterable[str]) -> None:
        self._paths = frozenset(paths)
        self._inside: dict[str, str] = {}
        self._folded: dict[str, str] = {}
        for path in sorted(self._paths, reverse=True):
            self._inside.update(dict.fromkeys(_parents(path), path))
            for part in (*_parents(path), path):
                self._folded[part.casefold()] = part

    def __contains__(self, path: str) -> bool:
        return path in self._paths

    def find_nested(self, path: str) -> str | None:
        """Return a package that `path` lies in, or that lies in `path`; None if there is none.

        Source: porch pkg/engine, validatePackagePathOverlap.
        """
        outer = next((parent for parent in _parents(path) if parent in self._paths), None)
        return outer or self._inside.get(path)

    def find_case_clash(self, path: str) -> str | None:
        """Return a path that file systems without case take for `path` or one of its parents."""
        for part in (*_parents(path), path):
            other = self._folded.get(part.casefold(), part)
            if other != part:
                return other
        return None


class RefIndex:
    """Existing refs of one repository, for the question which of them makes a new ref impossible."""

    def __init__(self, refs: Iterable[str]) -> None:
        self._refs = frozenset(refs)
        self._below: dict[str, str] = {}
        self._folded: dict[str, list[str]] = defaultdict(list)
        for ref in sorted(self._refs, reverse=True):
            self._below.update(dict.fromkeys(_parents(ref), ref))
            self._folded[ref.casefold()].append(ref)

    @classmethod
    def of_branches_and_tags(cls, branches: Iterable[str], tags: Iterable[str]) -> Self:
        """Return the index of branches and tags that are given by their short names."""
        return cls((*(f"{HEADS}{name}" for name in branches), *(f"refs/tags/{name}" for name in tags)))

    def find_blocker(self, ref: str) -> str:
        """Return the existing ref that makes `ref` impossible, "" if none does.

        Git keeps refs as files: `drafts` blocks everything under `drafts/`, and the other way round;
        two names that differ in case are one file on some systems.
        """
        above = min((parent for parent in _parents(ref) if parent in self._refs), default="")
        if above:
            return above
        same = (other for other in self._folded.get(ref.casefold(), ()) if other != ref)
        return min((*same, *([self._below[ref]] if ref in self._below else ())), default="")

    def find_blocked_directories(self) -> tuple[str, ...]:
        """Return the branches that stand where directories of our branches should be, sorted."""
        return tuple(sorted(HEADS + name for name in BRANCH_DIRECTORIES if HEADS + name in self._refs))


def object_name(repository: str, path: str, package: str, workspace: str | None = None) -> str:
    """Return the name of a package (revision) object: its parts joined by dots, the path's slashes too.

    Source: porch pkg/util, ComposePkgObjName and ComposePkgRevObjName.
    """
    parts = (repository, path.strip("/").replace("/", "."), package, workspace)
    return ".".join(part for part in parts if part)


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


def relative_package(path: str, directory: str) -> str:
    """Return a package's name in a repository registered at `directory`: its path below it."""
    inside = directory.strip("/")
    return path.removeprefix(inside).strip("/") if inside and is_within(path, inside) else path


def _parents(path: str) -> list[str]:
    """Return the directories above a path, the outermost first."""
    segments = path.split("/")
    return ["/".join(segments[:count]) for count in range(1, len(segments))]


def _refuse_label(label: str) -> str:
    wrong = []
    if len(label) > _LONGEST_LABEL:
        wrong.append(f"must be no more than {_LONGEST_LABEL} characters")
    if not _LABEL.fullmatch(label):
        wrong.append(_LABEL_RULE)
    return "; ".join(wrong)


def _refuse_object_path(path: str) -> str:
    if "//" in path:
        return "consecutive '/' characters are not allowed"
    return _refuse_label(path.strip("/").replace("/", ""))
