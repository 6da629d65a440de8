"""The control repository: which one it is, at which commit it is read, and what is relative to it."""

import posixpath
import re
from pathlib import Path
from typing import NamedTuple

from reconciler.errors import ConfigurationError, UnavailableError, UsageError
from reconciler.git.cache import Place
from reconciler.git.history import merge_base
from reconciler.git.repository import Mirror, Mirrors
from reconciler.git.urls import local_path, parse_remote
from reconciler.git.working_copy import WorkingCopy, find_working_copy, is_repository
from reconciler.ids import Oid
from reconciler.inventory import Commit

HEADS = "refs/heads/"

_URL = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*://[^/]*)(/.*)?$")
_SCP = re.compile(r"^([^/]*:)(.*)$")


class OpenControl(NamedTuple):
    """The control repository, opened.

    `mirror` is the repository that everybody shares, where state is kept; `objects` is where the
    manifests are read, which differs for a working copy: its HEAD may not be pushed yet. `published`
    tells whether `commit` is on the shared repository's branch of that name, or on its default
    branch if the working copy is on none, as in many build jobs. `uncommitted` are paths of a working
    copy that differ from the commit.
    """

    mirror: Mirror
    objects: Mirror
    commit: Commit
    branch: str
    published: bool
    uncommitted: tuple[str, ...] = ()


def open_control(control: str, mirrors: Mirrors) -> OpenControl:
    """Open the control repository that the command line names: a working copy, a bare one, or a URL.

    Raises:
        ConfigurationError: There is no commit to read.
        UnavailableError: It cannot be reached.
        UsageError: It is a path at which there is no repository.
    """
    path = local_path(control)
    copy = find_working_copy(path) if path else None
    if copy is not None:
        return _open_copy(copy, mirrors)
    if path and not is_repository(path):
        message = f"{path} is no Git repository, nor in a working copy of one"
        hint = (
            "Run the command in a working copy of the control repository, or name it: --control PATH or URL."
        )
        raise UsageError(message, hint=hint)
    mirror = mirrors.open(control)
    mirror.fetch()
    branch = mirror.head_branch
    tip = mirror.refs().get(HEADS + branch)
    if tip is None:
        raise ConfigurationError(
            f"The control repository {control} has no commit on its default branch {branch or '(none)'}",
            hint="Push one; `reconciler init` writes the first files.",
        )
    return OpenControl(mirror, mirror, _commit(mirror, tip), branch, published=True)


def find_default_tip(mirror: Mirror) -> Oid | None:
    """Return what the default branch of a repository names, None if it has none yet.

    Raises:
        UnavailableError: It cannot be reached.
    """
    branch = mirror.head_branch
    return mirror.refs().get(HEADS + branch) if branch else None


def is_merged(mirror: Mirror, oid: Oid) -> bool:
    """Tell whether the default branch of a repository holds a commit, now or further back."""
    tip = find_default_tip(mirror)
    return tip is not None and (oid == tip or oid in mirror.ancestry(tip))


def open_commit(mirror: Mirror, oid: Oid) -> OpenControl:
    """Open a commit that is merged in the shared repository."""
    return OpenControl(mirror, mirror, _commit(mirror, oid), "", published=True)


def _open_copy(copy: WorkingCopy, mirrors: Mirrors) -> OpenControl:
    if copy.commit is None:
        hint = "Commit something first; `reconciler init` writes the first files."
        raise ConfigurationError(f"The control repository {copy.root} has no commit yet", hint=hint)
    own = Mirror(Place.of(mirrors.cache_dir, parse_remote(str(copy.root)), None))
    if not copy.origin:
        mirror = mirrors.open(str(copy.root))
        mirror.fetch()
        commit = _commit(mirror, copy.commit)
        return OpenControl(mirror, mirror, commit, copy.branch, True, copy.uncommitted())
    mirror = mirrors.open(copy.origin)
    mirror.fetch()
    tip = mirror.refs().get(HEADS + (copy.branch or mirror.head_branch))
    published = tip is not None and (tip == copy.commit or copy.commit in mirror.ancestry(tip))
    return OpenControl(mirror, own, _commit(own, copy.commit), copy.branch, published, copy.uncommitted())


def _commit(mirror: Mirror, oid: Oid) -> Commit:
    return Commit(oid, mirror.commit(oid).committer.time)


def absolute_remote(remote: str, base: str) -> str:
    """Return the address that a registration means; a relative path is taken from the control repository.

    `../clusters.git` is the neighbour of the control repository, wherever that is: a directory or
    a URL, as with Git's submodules. Addresses that are not relative are returned as they are.
    """
    text = remote.strip()
    if local_path(text) is None or text.startswith("/") or text.lower().startswith("file:"):
        return text
    here = local_path(base)
    if here is not None:
        return posixpath.normpath(f"{Path(here).as_posix()}/{text}")
    found = _URL.match(base) or _SCP.match(base)
    if found is None:
        raise UnavailableError(f"{remote} is relative, but {base} is no place to start from")
    head, path = found.group(1), found.group(2) or ""
    rooted = posixpath.normpath(f"/{path.strip('/')}/{text}")
    return head + (rooted if path.startswith("/") or not path else rooted.lstrip("/"))


_OID = re.compile(r"[0-9a-f]{40}")


class ProposedChange(NamedTuple):
    """The control repository opened twice; `branch` is where the change would be merged."""

    base: OpenControl
    head: OpenControl
    branch: str


def open_proposed_change(control: str, mirrors: Mirrors, *, base: str = "", head: str = "") -> ProposedChange:
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
    return ProposedChange(_at(opened, opened.mirror, start, into), after, into)


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
