"""Open the control repository at a commit, or both sides of a change that is proposed to it."""

import posixpath
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from reconciler.base.errors import ConfigurationError, UnavailableError, UsageError
from reconciler.git.cache import MirrorLocation
from reconciler.git.commits import CommitData
from reconciler.git.history import History
from reconciler.git.repository import Mirror, Mirrors
from reconciler.git.urls import local_path, parse_remote
from reconciler.git.working_copy import WorkingCopy, find_working_copy, is_repository
from reconciler.inventory.standing import Standing, decide_standing
from reconciler.names.ids import Oid
from reconciler.names.objects import Commit, Mode
from reconciler.names.refs import HEADS

# scheme://host/path, and user@host:path as in scp.
_URL = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*://[^/]*)(/.*)?$")
_SCP = re.compile(r"^([^/]*:)(.*)$")


class OpenControl(NamedTuple):
    """The control repository, opened at a commit.

    `mirror` is the shared repository, with the state. `objects` has the manifests: the working copy if there
    is one, because its HEAD may not be pushed yet. `published` is True if `commit` is on the shared branch of
    the same name, or on the default branch for a detached HEAD, as in many build jobs. `uncommitted` are
    paths of the working copy that differ from the commit.
    """

    mirror: Mirror
    objects: Mirror
    commit: Commit
    branch: str
    published: bool
    uncommitted: tuple[str, ...] = ()


def open_control(control: str, mirrors: Mirrors) -> OpenControl:
    """Open the control repository: a working copy, a bare repository, or a URL.

    Raises:
        ConfigurationError: It has no commit.
        UnavailableError: It cannot be reached.
        UsageError: It is a path without a repository.
    """
    path = local_path(control)
    copy = find_working_copy(path, mirrors.read_s) if path else None
    if copy is not None:
        return _open_copy(copy, mirrors)
    if path and not is_repository(path, mirrors.read_s):
        hint = "Run the command in a working copy of the control repository, or pass --control PATH or URL."
        raise UsageError(f"{path} is not a Git repository or working copy", hint=hint)
    mirror = mirrors.open(control)
    mirror.fetch()
    branch, tip = mirror.head_branch, find_default_tip(mirror)
    if tip is None:
        message = f"The control repository {control} has no commit on its default branch {branch or '(none)'}"
        raise ConfigurationError(message, hint="Push one; `reconciler init` writes the first files.")
    return OpenControl(mirror, mirror, _commit(mirror, tip), branch, published=True)


class ControlHistory(History):
    """The history of the control repository: that of the shared one, then that of the working copy.

    A working copy may be shallow, and has commits that are not pushed.
    """

    def __init__(self, opened: OpenControl) -> None:
        super().__init__()
        self._mirror, self._objects = opened.mirror, opened.objects

    @property
    def is_shallow(self) -> bool:
        """Whether the history ends before its first commit."""
        return bool(self._mirror.open().is_shallow)

    @property
    def is_local(self) -> bool:
        """Whether no object has to be fetched."""
        return self._mirror.is_local

    def find_commit(self, oid: Oid) -> CommitData | None:
        """Return a commit, None if it is missing or is not a commit."""
        return self._mirror.find_commit(oid) or self._objects.find_commit(oid)

    def find_parents(self, oid: Oid) -> tuple[Oid, ...] | None:
        """Return a commit's parents, None if it is missing."""
        parents = self._mirror.find_parents(oid)
        return self._objects.find_parents(oid) if parents is None else parents

    def commit(self, oid: Oid) -> CommitData:
        """Return a commit that is known to exist."""
        return self._of(oid).commit(oid)

    def blob_at(self, commit: Oid, path: str) -> Oid | None:
        """Return the id of the regular file at a path of a commit, None if there is none."""
        return self._of(commit).blob_at(commit, path)

    def ensure(self, oids: Iterable[Oid]) -> None:
        """Fetch the missing objects in one batch, but for those of commits that are not pushed."""
        if not self._mirror.is_local:
            self._mirror.ensure(oid for oid in oids if not self._objects.has(oid))

    def blob(self, oid: Oid, max_bytes: int) -> bytes:
        """Return the bytes of a blob.

        Raises: PackageRefusedError if it is larger than `max_bytes`; UnavailableError if it is missing.
        """
        return self._of(oid).blob(oid, max_bytes)

    def changed_paths(self, old: Oid, new: Oid, paths: Iterable[str]) -> set[str]:
        """Return those of `paths` at which two trees differ."""
        holder = self._of(old)
        if holder is self._of(new):
            return holder.changed_paths(old, new, paths)
        return {path for path in paths if self.blob_at(old, path) != self.blob_at(new, path)}

    def changed_files(self, old: Oid | None, new: Oid, directory: str = "") -> Iterator[str]:
        """Yield the paths of new files in a tree, and of those with another content than in an older one."""
        before = {entry.name: entry for entry in self._of(old).entries(old)} if old else {}
        for entry in self._of(new).entries(new):
            was, path = before.get(entry.name), f"{directory}{entry.name}"
            if was is not None and was.oid == entry.oid:
                continue
            if entry.mode == Mode.TREE:
                tree = was.oid if was is not None and was.mode == Mode.TREE else None
                yield from self.changed_files(tree, entry.oid, f"{path}/")
            else:
                yield path

    def _of(self, oid: Oid) -> Mirror:
        return self._mirror if self._objects is self._mirror or self._mirror.has(oid) else self._objects


def read_standing(opened: OpenControl, applied: Oid | None = None) -> Standing:
    """Compare the opened commit with the default branch and with what was applied last.

    Args:
        opened: The control repository.
        applied: The control commit that was applied last, None if it is not known.
    """
    mirror, commit = opened.mirror, opened.commit.oid
    history = ControlHistory(opened)
    if applied is not None and not history.contains(commit, applied):
        mirror.bring(applied)  # no branch reaches it if somebody moved the default branch back
    return decide_standing(commit, find_default_tip(mirror), applied, history, mirror.head_branch)


def find_default_tip(mirror: Mirror) -> Oid | None:
    """Return the tip of the default branch, None if it has no commit.

    Raises:
        UnavailableError: It cannot be reached.
    """
    branch = mirror.head_branch
    return mirror.refs().get(HEADS + branch) if branch else None


def is_merged(mirror: Mirror, oid: Oid) -> bool:
    """Tell whether the default branch contains a commit."""
    tip = find_default_tip(mirror)
    return tip is not None and (oid == tip or oid in mirror.ancestry(tip))


def open_commit(mirror: Mirror, oid: Oid) -> OpenControl:
    """Open a merged commit of the shared repository."""
    return OpenControl(mirror, mirror, _commit(mirror, oid), "", published=True)


def _open_copy(copy: WorkingCopy, mirrors: Mirrors) -> OpenControl:
    if copy.commit is None:
        hint = "Commit something first; `reconciler init` writes the first files."
        raise ConfigurationError(f"The control repository {copy.root} has no commit yet", hint=hint)
    local = Mirror(MirrorLocation.of(mirrors.cache_dir, parse_remote(str(copy.root)), None))
    local.read_s = mirrors.read_s
    if not copy.origin:
        mirror = mirrors.open(str(copy.root))
        mirror.fetch()
        commit = _commit(mirror, copy.commit)
        return OpenControl(mirror, mirror, commit, copy.branch, True, copy.uncommitted())
    mirror = mirrors.open(copy.origin)
    mirror.fetch()
    tip = mirror.refs().get(HEADS + (copy.branch or mirror.head_branch))
    published = tip is not None and (tip == copy.commit or copy.commit in mirror.ancestry(tip))
    return OpenControl(mirror, local, _commit(local, copy.commit), copy.branch, published, copy.uncommitted())


def _commit(mirror: Mirror, oid: Oid) -> Commit:
    return Commit(oid, mirror.commit(oid).committer.time)


def absolute_remote(remote: str, base: str) -> str:
    """Return the address of a registration; a relative path is resolved against the control repository.

    As with Git's submodules, `../clusters.git` is the neighbour of the control repository, on disk or by
    URL. Other addresses are returned unchanged.
    """
    text = remote.strip()
    if local_path(text) is None or text.startswith("/") or text.lower().startswith("file:"):
        return text
    here = local_path(base)
    if here is not None:
        return posixpath.normpath(f"{Path(here).as_posix()}/{text}")
    match = _URL.match(base) or _SCP.match(base)
    if match is None:
        raise UnavailableError(f"{remote} is relative, and {base} is no base for a relative address")
    head, path = match.group(1), match.group(2) or ""
    rooted = posixpath.normpath(f"/{path.strip('/')}/{text}")
    return head + (rooted if path.startswith("/") or not path else rooted.lstrip("/"))


_OID = re.compile(r"[0-9a-f]{40}")


class ProposedChange(NamedTuple):
    """Both sides of a change; `branch` is the one it would be merged into."""

    base: OpenControl
    head: OpenControl
    branch: str


def open_proposed_change(control: str, mirrors: Mirrors, *, base: str = "", head: str = "") -> ProposedChange:
    """Open both sides of a change; fetch what a shallow checkout lacks.

    The base is the merge base, so that commits merged meanwhile are not part of the change. For the merge
    commit with which a forge tests a pull request it is the first parent.

    Args:
        control: A working copy (its HEAD is proposed), a bare repository or a URL.
        mirrors: The local mirrors of repositories.
        base: The branch to merge into, by default the default branch; a commit is the base itself.
        head: The proposed branch or commit, by default HEAD.

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
    start = tip if _OID.fullmatch(base) else objects.merge_base_with(opened.mirror.ancestry(tip), proposed)
    if start is None or opened.mirror.find_commit(start) is None:
        hint = "In a shallow clone of commits that are not pushed: `git fetch --unshallow`."
        raise ConfigurationError(f"{proposed} has no history in common with {into}", hint=hint)
    mirror = opened.mirror
    before = OpenControl(mirror, mirror, _commit(mirror, start), into, published=True)
    after = OpenControl(mirror, objects, _commit(objects, proposed), into, published=True)
    if not head:
        after = after._replace(published=opened.published, uncommitted=opened.uncommitted)
    return ProposedChange(before, after, into)


def _resolve(opened: OpenControl, name: str) -> Oid:
    if _OID.fullmatch(name):
        if not opened.mirror.bring(Oid(name)):
            raise _unknown(name, opened)
        return Oid(name)
    tip = opened.mirror.refs().get(name if name.startswith("refs/") else HEADS + name)
    if tip is None:
        raise _unknown(name or "(no default branch)", opened)
    return tip


def _unknown(name: str, opened: OpenControl) -> ConfigurationError:
    hint = "Name a branch that is pushed, or a commit in full."
    return ConfigurationError(f"{opened.mirror.remote} has no branch or commit {name}", hint=hint)
