"""What approving a head means: which package, which revision number. Pure."""

import re
from collections.abc import Iterable
from typing import NamedTuple

import orjson

from reconciler import layout
from reconciler.ids import Lifecycle
from reconciler.lock import LOCKS_DIRECTORY

_DELETE = re.compile(r"reconciler/[^/]+/delete/(?P<path>.+)")
_LOCK = re.compile(r"reconciler/[^/]+/lock")


class DraftHead(NamedTuple):
    """The head of a draft: package F, workspace W."""

    path: str
    workspace: str


class DeletionHead(NamedTuple):
    """The head of a proposal to delete package F."""

    path: str


class LockHead(NamedTuple):
    """The head of a proposal to change the lock, which stands in a directory of its own."""

    path: str = LOCKS_DIRECTORY


def parse_head(head: str) -> DraftHead | DeletionHead | LockHead | None:
    """Return which package or lock a head is about, None if it is no head of one. Total."""
    if _LOCK.fullmatch(head):
        return LockHead()
    if match := _DELETE.fullmatch(head):
        return DeletionHead(match["path"])
    named = layout.parse_ref(f"{layout.HEADS}{head}")
    if named and named.lifecycle in {Lifecycle.DRAFT, Lifecycle.PROPOSED}:
        return DraftHead(named.path, named.workspace)
    return None


def next_revision(path: str, refs: Iterable[str]) -> int:
    """Return the number that publishing F assigns: one more than the greatest of its tags `F/vN`.

    Differs: Porch reuses the number of a deleted revision; here tags are history and stay.
    """
    prefix = f"{layout.TAGS}{path}/"
    tags = (named for ref in refs if ref.startswith(prefix) and (named := layout.parse_ref(ref)))
    return layout.next_revision(named.revision for named in tags if named.path == path)


def approval_message(path: str, workspace: str, revision: int) -> str:
    """Return the message of the commit that publishes a revision.

    Source: porch pkg/externalrepo/git, ApprovePackageRevision.
    """
    annotation = {"package": path, "workspaceName": workspace, "revision": str(revision)}
    return f"Approving package revision {path}/{revision}\n\nkpt:{orjson.dumps(annotation).decode()}\n"
