"""Porch's layout: which ref is which package revision, and what our commits say. Pure."""

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


def paths_overlap(one: str, other: str) -> bool:
    """Tell whether one path lies strictly inside the other: packages cannot be nested."""
    return one != other and (is_within(one, other) or is_within(other, one))


def workspace_number(workspace: str) -> int:
    """Return N of `packagevariant-N`; 0 for any other workspace.

    Source: porch packagevariant_controller.go, newWorkspaceName.
    """
    suffix = workspace.removeprefix(WORKSPACE_PREFIX)
    return int(suffix) if suffix != workspace and suffix.isascii() and suffix.isdigit() else 0


def next_revision(revisions: Iterable[int]) -> int:
    """Return the number of the next published revision: one above the greatest."""
    return max([0, *revisions]) + 1
