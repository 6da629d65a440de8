"""A proposed change of the control repository: the commit that is proposed, and the one it starts from."""

import re
from typing import NamedTuple

from reconciler.errors import ConfigurationError
from reconciler.git.history import merge_base
from reconciler.git.repository import Mirror, Mirrors
from reconciler.ids import Oid
from reconciler.inventory import Commit
from reconciler.read.control import HEADS, OpenControl, open_control

_OID = re.compile(r"[0-9a-f]{40}")


class Proposal(NamedTuple):
    """The control repository opened twice; `branch` is where the change would be merged."""

    base: OpenControl
    head: OpenControl
    branch: str


def open_proposal(control: str, mirrors: Mirrors, *, base: str = "", head: str = "") -> Proposal:
    """Open both sides of a change, whatever a checkout left out.

    The base is where the change left its branch, so that what was merged meanwhile is not taken
    for a part of it; of a merge commit that a forge makes to test a pull request that is its first
    parent. History and branches that a shallow checkout lacks are fetched.

    Args:
        control: A working copy, whose HEAD is proposed, a bare repository or a URL.
        mirrors: Where repositories are opened.
        base: The branch it would be merged into; empty for the default branch. A commit is taken as it is.
        head: A branch or commit that is proposed, where that is not HEAD.

    Raises:
        ConfigurationError: There is no such branch or commit, or both sides have no common history.
        UnavailableError: The repository cannot be reached.
    """
    opened = open_control(control, mirrors)
    into = base or opened.mirror.head_branch
    tip = _resolve(opened, into)
    proposed = opened.commit.oid if not head else _resolve(opened, head)
    objects = opened.mirror if opened.mirror.bring(proposed) else opened.objects
    if not objects.has(proposed):
        raise _unknown(head or proposed, opened)
    start = tip if _OID.fullmatch(base) else merge_base(objects, opened.mirror.ancestry(tip), proposed)
    if start is None or opened.mirror.find_commit(start) is None:
        hint = "In a shallow clone of commits that are not pushed: `git fetch --unshallow`."
        raise ConfigurationError(f"{proposed} has no history in common with {into}", hint=hint)
    after = _at(opened, objects, proposed, into)
    if not head:
        after = after._replace(published=opened.published, uncommitted=opened.uncommitted)
    return Proposal(_at(opened, opened.mirror, start, into), after, into)


def _resolve(opened: OpenControl, name: str) -> Oid:
    if _OID.fullmatch(name):
        if not opened.mirror.bring(Oid(name)):
            raise _unknown(name, opened)
        return Oid(name)
    found = opened.mirror.refs().get(name if name.startswith("refs/") else HEADS + name)
    if found is None:
        raise _unknown(name or "(no default branch)", opened)
    return found


def _unknown(name: str, opened: OpenControl) -> ConfigurationError:
    hint = "Name a branch that is pushed, or a commit in full."
    return ConfigurationError(f"{opened.mirror.remote} has no branch or commit {name}", hint=hint)


def _at(opened: OpenControl, objects: Mirror, oid: Oid, branch: str) -> OpenControl:
    commit = Commit(oid, objects.commit(oid).committer.time)
    return OpenControl(opened.mirror, objects, commit, branch, published=True)
