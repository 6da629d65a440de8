"""What approving means in Git, as Porch does it: messages, annotations, tags. Pure."""

import re
from collections.abc import Iterable
from typing import NamedTuple

import orjson

_REVISION = re.compile(r"v?(\d+)")
_DELETE = re.compile(r"reconciler/[^/]+/delete/(?P<path>.+)")


class DraftHead(NamedTuple):
    """The head of a draft: package F, workspace W."""

    path: str
    workspace: str


class DeletionHead(NamedTuple):
    """The head of a proposal to delete package F."""

    path: str


def parse_head(head: str) -> DraftHead | DeletionHead | None:
    """Return which package a head is about, None if it is no head of a package."""
    if match := _DELETE.fullmatch(head):
        return DeletionHead(match["path"])
    for prefix in ("drafts/", "proposed/"):
        path, slash, workspace = head.removeprefix(prefix).rpartition("/")
        if head.startswith(prefix) and slash:
            return DraftHead(path, workspace)
    return None


def next_revision(path: str, tags: Iterable[str]) -> int:
    """Return the number that publishing F assigns: one more than the greatest of its tags `F/vN`.

    Differs: Porch reuses the number of a deleted revision; here tags are history and stay.
    """
    prefix = f"refs/tags/{path}/"
    suffixes = (tag.removeprefix(prefix) for tag in tags if tag.startswith(prefix))
    return 1 + max((int(m[1]) for s in suffixes if (m := _REVISION.fullmatch(s))), default=0)


def approval_message(path: str, workspace: str, revision: int) -> str:
    """Return the message of the commit that publishes F as vN.

    Source: porch, pkg/externalrepo/git, the commit of an approved package revision.
    """
    annotation = orjson.dumps(
        {"package": path, "workspaceName": workspace, "revision": str(revision)}
    ).decode()
    return f"Approving package revision {path}/{revision}\n\nkpt:{annotation}\n"


def removal_message(path: str) -> str:
    """Return the message of the commit that removes F from the main branch, as Porch words it."""
    return f"Delete {path}\n"
