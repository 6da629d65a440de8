"""Porch's layout: which ref is which package revision, and what our commits say. Pure."""

import hashlib
import re
from collections.abc import Iterable
from typing import NamedTuple

from reconciler.ids import Lifecycle

HEADS, TAGS = "refs/heads/", "refs/tags/"
DRAFTS, PROPOSED, DELETION_PROPOSED = "drafts/", "proposed/", "deletionProposed/"
PLACEHOLDER = -1
"""The revision of a package as it stands on a branch, and of a tag without a number."""
WORKSPACE_PREFIX = "packagevariant-"


class RevisionRef(NamedTuple):
    """A ref that names a revision of a package: its full path F, workspace W (or tag suffix), number."""

    path: str
    workspace: str
    revision: int
    lifecycle: Lifecycle


def draft_ref(path: str, workspace: str) -> str:
    """Return the branch of a draft."""
    return f"{HEADS}{DRAFTS}{path}/{workspace}"


def proposed_ref(path: str, workspace: str) -> str:
    """Return the branch of a proposal."""
    return f"{HEADS}{PROPOSED}{path}/{workspace}"


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


def deletion_ref(instance: str, path: str) -> str:
    """Return the head of our pull request that deletes a package (D4)."""
    return f"{HEADS}reconciler/{instance}/delete/{path}"


def lock_ref(instance: str) -> str:
    """Return the branch on which an instance proposes another lock (D3)."""
    return f"{HEADS}reconciler/{instance}/lock"


def group_refs(instance: str) -> str:
    """Return what the name of every branch that holds the drafts of several packages begins with (D4)."""
    return f"{HEADS}reconciler/{instance}/group/"


def group_ref(instance: str, scope: Iterable[str], number: int) -> str:
    """Return the branch of a group: what it is a group of, and which one. Injective as far as names are."""
    return f"{group_refs(instance)}{'/'.join(map(_segment, scope))}/{number}"


def group_number(ref: str, instance: str, scope: Iterable[str]) -> int:
    """Return the number of a group's branch, 0 if it is no group of this scope."""
    last = ref.removeprefix(group_ref(instance, scope, 0).removesuffix("0"))
    return int(last) if last.isascii() and last.isdecimal() else 0


def is_group(ref: str) -> bool:
    """Tell whether a branch is one of a group, whichever instance it belongs to."""
    return _GROUP.match(ref) is not None


def _segment(name: str) -> str:
    """Return a name as a part of a ref: one that is long, or that Git would refuse, is told by its digest."""
    if len(name) <= _LONGEST_SEGMENT and not name.endswith((".lock", ".")):
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{name[: _LONGEST_SEGMENT - 9].rstrip('.')}-{digest}"


_LONGEST_SEGMENT = 60
_GROUP = re.compile(rf"{HEADS}reconciler/[^/]+/group/")


def parse_ref(ref: str) -> RevisionRef | None:
    """Return what a full ref name says about a package, None if it says nothing. Total.

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


_BRANCHES = (
    (HEADS + DRAFTS, Lifecycle.DRAFT),
    (HEADS + PROPOSED, Lifecycle.PROPOSED),
    (HEADS + DELETION_PROPOSED, Lifecycle.DELETION_PROPOSED),
)


def parse_revision(text: str) -> int:
    """Return the number of `v3` or `3`, -1 for anything else. Total.

    Source: porch pkg/repository, Revision2Int (Go's Atoi, so a sign is read too).
    """
    match = re.fullmatch(r"v?([+-]?[0-9]{1,18})", text, re.ASCII)
    return int(match.group(1)) if match else PLACEHOLDER


def is_within(path: str, directory: str) -> bool:
    """Tell whether a package's full path lies in a directory, on whole segments ("" is the root)."""
    inside = directory.strip("/")
    return not inside or path == inside or path.startswith(inside + "/")


def workspace_number(workspace: str) -> int:
    """Return N of `packagevariant-N`; 0 for any other workspace.

    Source: porch packagevariant_controller.go, newWorkspaceName.
    """
    suffix = workspace.removeprefix(WORKSPACE_PREFIX)
    return int(suffix) if suffix != workspace and suffix.isascii() and suffix.isdigit() else 0


def next_revision(revisions: Iterable[int]) -> int:
    """Return the number of the next published revision: one above the greatest."""
    return max([0, *revisions]) + 1
