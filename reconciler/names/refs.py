"""Refs and paths of package revisions in Porch's layout: names, parsing, validity and collisions."""

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple, Self

from reconciler.base.lazy import regex
from reconciler.base.values import whole_number
from reconciler.names.ids import Lifecycle

HEADS, TAGS = "refs/heads/", "refs/tags/"
DRAFTS, PROPOSED, DELETION_PROPOSED = "drafts/", "proposed/", "deletionProposed/"
PLACEHOLDER = -1
"""Revision number of a package on a branch, and of a tag without a number."""
WORKSPACE_PREFIX = "packagevariant-"
BRANCH_DIRECTORIES = ("drafts", "proposed", "deletionProposed", "reconciler")
"""First segments of all branches that we create: a branch with such a name blocks them."""
_LONGEST_SEGMENT = 60
_DELETION = regex(rf"{HEADS}reconciler/[^/]+/delete/")
_GROUP = regex(rf"{HEADS}reconciler/[^/]+/group/")
_BRANCHES = (
    (HEADS + DRAFTS, Lifecycle.DRAFT),
    (HEADS + PROPOSED, Lifecycle.PROPOSED),
    (HEADS + DELETION_PROPOSED, Lifecycle.DELETION_PROPOSED),
)
_SEGMENT = regex(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,126}")
_PLAIN_PATH = regex(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,62}(/[A-Za-z0-9_][A-Za-z0-9_-]{0,62})*")
_LABEL = regex(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_LONGEST_LABEL, _LONGEST_NAME, _LONGEST_REF = 63, 253, 240
_LABEL_RULE = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', "
    "and must start and end with an alphanumeric character"
)
_WINDOWS = regex(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?", re.IGNORECASE)
_LARGE_NUMBER = 99_999
"""Largest supported revision or workspace number: a path must be short enough for its refs."""


class RevisionRef(NamedTuple):
    """A ref of a package revision: full path F, workspace W (or tag suffix), revision number, lifecycle."""

    path: str
    workspace: str
    revision: int
    lifecycle: Lifecycle


def parse_ref(ref: str) -> RevisionRef | None:
    """Return the package revision of a full ref name, None if it names none. Total.

    Source: porch pkg/externalrepo/git, ref.go and git.go: branches under drafts/ and proposed/,
    tags with a slash.
    """
    if ref.startswith(TAGS):
        path, slash, suffix = ref.removeprefix(TAGS).rpartition("/")
        named = RevisionRef(path, suffix, parse_revision(suffix), Lifecycle.PUBLISHED)
        return named if slash and path and suffix else None
    for prefix, lifecycle in _BRANCHES:
        if ref.startswith(prefix):
            path, slash, workspace = ref.removeprefix(prefix).rpartition("/")
            revision = parse_revision(workspace) if lifecycle is Lifecycle.DELETION_PROPOSED else 0
            return RevisionRef(path, workspace, revision, lifecycle) if slash and path else None
    return None


def parse_revision(text: str) -> int:
    """Return the number of `v3` or `3`, -1 for anything else. Total.

    Source: porch pkg/repository, Revision2Int (Go's Atoi, so a sign is read too).
    """
    match = re.fullmatch(r"v?([+-]?[0-9]{1,18})", text, re.ASCII)
    return int(match.group(1)) if match else PLACEHOLDER


def draft_ref(path: str, workspace: str) -> str:
    """Return the branch of a draft."""
    return f"{HEADS}{DRAFTS}{path}/{workspace}"


def tag_ref(path: str, revision: int) -> str:
    """Return the tag of a published revision."""
    return f"{TAGS}{path}/v{revision}"


def deletion_proposed_ref(path: str, revision: int, workspace: str = "") -> str:
    """Return the branch that proposes to delete a published revision, for Porch."""
    last = f"v{revision}" if revision > 0 else workspace
    return f"{HEADS}{DELETION_PROPOSED}{path}/{last}"


def short_branch(ref: str) -> str:
    """Return a branch's short name."""
    return ref.removeprefix(HEADS)


def short_tag(ref: str) -> str:
    """Return a tag's short name."""
    return ref.removeprefix(TAGS)


def is_deletion(ref: str) -> bool:
    """Tell whether a branch proposes the deletion of a package, of any instance."""
    return _DELETION.match(ref) is not None


def deletion_ref(instance: str, path: str) -> str:
    """Return the head of our pull request that deletes a package (D4)."""
    return f"{HEADS}reconciler/{instance}/delete/{path}"


def lock_ref(instance: str) -> str:
    """Return the branch on which an instance proposes another lock (D3)."""
    return f"{HEADS}reconciler/{instance}/lock"


def index_refs(instance: str) -> str:
    """Return the prefix of all branches on which an instance proposes versions for the index."""
    return f"{HEADS}reconciler/{instance}/index/"


def index_ref(instance: str, source: str) -> str:
    """Return the branch on which an instance proposes versions of one source for the index (D29)."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", source.rpartition("://")[2]).strip("-.") or "source"
    return f"{index_refs(instance)}{_segment(name)}"


def chart_ref(instance: str, package: str) -> str:
    """Return the branch on which an instance proposes another version of the chart of a package (D30)."""
    return f"{HEADS}reconciler/{instance}/chart/{package}/next"


def revision_refs(instance: str) -> str:
    """Return the prefix of all branches on which an instance proposes that manifests name other revisions."""
    return f"{HEADS}reconciler/{instance}/revision/"


def revision_ref(instance: str, package: str, directory: str) -> str:
    """Return the branch on which manifests of a directory would name the next revision of a package."""
    return f"{revision_refs(instance)}{package}/in{'/' if directory else ''}{directory}"


def group_refs(instance: str) -> str:
    """Return the prefix of all branches of groups, which hold the drafts of several packages (D4)."""
    return f"{HEADS}reconciler/{instance}/group/"


def group_ref(instance: str, scope: Iterable[str], number: int) -> str:
    """Return the branch of the group with a scope and number; distinct for distinct scopes."""
    return f"{group_refs(instance)}{'/'.join(map(_segment, scope))}/{number}"


def group_number(ref: str, instance: str, scope: Iterable[str]) -> int:
    """Return the number of the group of a branch, 0 if it is no group of this scope."""
    return whole_number(ref.removeprefix(group_ref(instance, scope, 0).removesuffix("0"))) or 0


def is_group_in(ref: str, namespace: str, repository: str) -> bool:
    """Tell whether a branch belongs to a group of packages of this Repository.

    Every scope is a kind, a namespace, which is that of the Repository, and maybe more before its name.
    """
    scope = _GROUP.sub("", ref).split("/") if is_group(ref) else []
    return (scope[1:2], scope[-2:-1]) == ([_segment(namespace)], [_segment(repository)])


def is_group(ref: str) -> bool:
    """Tell whether a branch belongs to a group, of any instance."""
    return _GROUP.match(ref) is not None


def workspace_number(workspace: str) -> int:
    """Return N of `packagevariant-N`; 0 for any other workspace.

    Source: porch packagevariant_controller.go, newWorkspaceName.
    """
    suffix = workspace.removeprefix(WORKSPACE_PREFIX)
    return (whole_number(suffix) or 0) if suffix != workspace else 0


def next_revision(revisions: Iterable[int]) -> int:
    """Return the number of the next published revision: one above the greatest."""
    return max([0, *revisions]) + 1


def is_within(path: str, directory: str) -> bool:
    """Tell whether a path is a directory or lies in it, by whole segments ("" is the root)."""
    inside = directory.strip("/")
    return not inside or path == inside or path.startswith(inside + "/")


def relative_package(path: str, directory: str) -> str:
    """Return the name of a package in a repository registered at `directory`: its path below it."""
    inside = directory.strip("/")
    return path.removeprefix(inside).strip("/") if inside and is_within(path, inside) else path


def ref_error(ref: str) -> str:
    """Return the error of a ref to create, "" if it is valid.

    The grammar is stricter than Git's: letters, digits, `.`, `_` and `-`, never a leading `-` or
    dot, no `..`, no `.lock`, and short enough for a file name on every system.
    """
    if not ref.startswith("refs/"):
        return "it is not a full ref name"
    for segment in ref.split("/"):
        if not _is_segment(segment):
            return f"{segment!r} may not be part of a Git ref"
    return f"it is longer than {_LONGEST_REF} characters" if len(ref) > _LONGEST_REF else ""


@lru_cache(maxsize=1 << 14)
def _is_segment(segment: str) -> bool:
    """Tell whether a part of a ref is valid. The refs of a fleet are made of the same few."""
    is_name = _SEGMENT.fullmatch(segment) is not None and ".." not in segment
    return is_name and not segment.endswith((".", ".lock"))


def package_path_error(path: str, instance: str) -> str:
    """Return the error of a package's full path that cannot have drafts and tags, "" if it is valid."""
    # Nearly every path is plain: then only its length can be wrong, and four refs need not be made.
    if _PLAIN_PATH.fullmatch(path) and len(path) <= _longest_plain_path(instance):
        return ""
    return _refs_error(path, instance) if path else "it is empty"


@lru_cache
def _longest_plain_path(instance: str) -> int:
    """Return the length that a path without dots and leading dashes may have in any ref of an instance."""
    if _refs_error("a", instance):
        return 0
    return _LONGEST_REF - max(map(len, _refs_of("a", instance))) + 1


def _refs_of(path: str, instance: str) -> tuple[str, ...]:
    workspace = f"{WORKSPACE_PREFIX}{_LARGE_NUMBER}"
    return (
        draft_ref(path, workspace),
        tag_ref(path, _LARGE_NUMBER),
        deletion_proposed_ref(path, _LARGE_NUMBER),
        deletion_ref(instance, path),
    )


def _refs_error(path: str, instance: str) -> str:
    for ref in _refs_of(path, instance):
        if error := ref_error(ref):
            return error if "part of" in error else f"the branches of its drafts would be too long: {ref}"
    return ""


def package_name_error(repository: str, package: str) -> str:
    """Return the error of a new package name that Porch cannot show, "" if it is valid.

    Existing packages keep their names. Device names of Windows are invalid too: a repository with such a
    directory cannot be checked out there. The package is below the directory of the Repository.
    """
    path, _, name = package.rpartition("/")
    errors = object_name_errors(repository, path, name, f"{WORKSPACE_PREFIX}{_LARGE_NUMBER}")
    error = next((errors[part] for part in ("package", "path", "name") if part in errors), "")
    reserved = next(filter(_WINDOWS.fullmatch, package.split("/")), "")
    return error or (f"{reserved!r} is the name of a device on Windows" if reserved else "")


def nested_message(path: str, other: str) -> str:
    """Return Porch's message for a package path nested in another.

    Source: porch pkg/engine, validatePackagePathOverlap.
    """
    return f'package path "{path}" conflicts with existing package "{other}": packages cannot be nested'


def object_name(repository: str, path: str, package: str, workspace: str | None = None) -> str:
    """Return the name of a package (revision) object: its parts joined by dots, the path's slashes too.

    Source: porch pkg/util, ComposePkgObjName and ComposePkgRevObjName.
    """
    parts = (repository, path.strip("/").replace("/", "."), package, workspace)
    return ".".join(part for part in parts if part)


def object_name_errors(
    repository: str, path: str, package: str, workspace: str | None = None
) -> dict[str, str]:
    """Return the error of each invalid part of an object name, by part.

    Source: porch pkg/util, ValidPkgObjName and ValidPkgRevObjName: DNS labels, and 253 in all.
    """
    parts = {"repository": repository, "package": package}
    if workspace is not None:
        parts["workspace"] = workspace
    errors = {part: error for part, value in parts.items() if (error := _label_error(value))}
    if "//" in path:
        errors["path"] = "consecutive '/' characters are not allowed"
    elif path and (error := _label_error(path.strip("/").replace("/", ""))):
        errors["path"] = error
    name = object_name(repository, path, package, workspace)
    if not errors and len(name) > _LONGEST_NAME:
        errors["name"] = f"must be no more than {_LONGEST_NAME} characters"
    return errors


class PathIndex:
    """Package paths of one repository, indexed to find nested paths and clashes of case."""

    def __init__(self, paths: Iterable[str]) -> None:
        self._paths = frozenset(paths)
        self._inside: dict[str, str] = {}
        self._folded: dict[str, str] = {}
        for path in sorted(self._paths, reverse=True):
            self._inside.update(dict.fromkeys(parent_directories(path), path))
            for part in (*parent_directories(path), path):
                self._folded[part.casefold()] = part

    def __contains__(self, path: str) -> bool:
        return path in self._paths

    def find_nested(self, path: str) -> str | None:
        """Return a package that contains `path` or lies inside it; None if there is none.

        Source: porch pkg/engine, validatePackagePathOverlap.
        """
        for parent in parent_directories(path):
            if parent in self._paths:
                return parent
        return self._inside.get(path)

    def find_case_clash(self, path: str) -> str | None:
        """Return a path that differs only in case from `path` or one of its parents."""
        for part in (*parent_directories(path), path):
            other = self._folded.get(part.casefold(), part)
            if other != part:
                return other
        return None


class RefIndex:
    """Existing refs of one repository, indexed to find the one that blocks a new ref."""

    def __init__(self, refs: Iterable[str]) -> None:
        self._refs = frozenset(refs)
        self._below: dict[str, str] = {}
        self._folded: dict[str, list[str]] = defaultdict(list)
        for ref in sorted(self._refs, reverse=True):
            self._below.update(dict.fromkeys(parent_directories(ref), ref))
            self._folded[ref.casefold()].append(ref)

    @classmethod
    def of_branches_and_tags(cls, branches: Iterable[str], tags: Iterable[str]) -> Self:
        """Return the index of branches and tags with these short names."""
        return cls((*(f"{HEADS}{name}" for name in branches), *(f"refs/tags/{name}" for name in tags)))

    def find_blocker(self, ref: str) -> str:
        """Return the existing ref that blocks `ref`, "" if there is none."""
        # Git stores refs as files: `drafts` blocks `drafts/x` and vice versa, and two names that differ
        # in case are one file on some file systems.
        for parent in parent_directories(ref):
            if parent in self._refs:
                return parent
        same = [other for other in self._folded.get(ref.casefold(), ()) if other != ref]
        return min((*same, *([self._below[ref]] if ref in self._below else ())), default="")


def _segment(name: str) -> str:
    """Return a name as a part of a ref; a long name, or one that Git refuses, ends with its digest."""
    if len(name) <= _LONGEST_SEGMENT and not name.endswith((".lock", ".")):
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{name[: _LONGEST_SEGMENT - 9].rstrip('.')}-{digest}"


def parent_directories(path: str) -> list[str]:
    """Return the directories above a path, the outermost first."""
    above, end = [], path.find("/")
    while end >= 0:
        above.append(path[:end])
        end = path.find("/", end + 1)
    return above


def _label_error(label: str) -> str:
    errors = []
    if len(label) > _LONGEST_LABEL:
        errors.append(f"must be no more than {_LONGEST_LABEL} characters")
    if not _LABEL.fullmatch(label):
        errors.append(_LABEL_RULE)
    return "; ".join(errors)
