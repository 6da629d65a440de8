"""Open the control repository at a commit, or both sides of a change that is proposed to it."""

import os
import posixpath
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from reconciler.base.errors import ConfigurationError, UnavailableError, UsageError
from reconciler.base.lazy import regex
from reconciler.base.suggestions import suggest
from reconciler.base.text import plural, verb
from reconciler.git.cache import MirrorLocation
from reconciler.git.commits import CommitData, History
from reconciler.git.repository import Mirror, Mirrors
from reconciler.git.urls import local_path, parse_remote
from reconciler.git.working_copy import WorkingCopy, find_working_copy, is_repository
from reconciler.inventory.standing import Standing, decide_standing
from reconciler.names.ids import Oid
from reconciler.names.objects import Commit, Mode
from reconciler.names.refs import BRANCH_DIRECTORIES, HEADS
from reconciler.read.configuration import FILE

# scheme://host/path, and user@host:path as in scp.
_URL = regex(r"^([A-Za-z][A-Za-z0-9+.-]*://[^/]*)(/.*)?$")
_SCP = regex(r"^([^/]*:)(.*)$")

BUILT_COMMITS = ("GITHUB_SHA", "CI_COMMIT_SHA", "BITBUCKET_COMMIT", "BUILD_SOURCEVERSION")
"""Variables with the commit that a pipeline of a forge runs for: the forge has it. Gitea sets GitHub's."""


class OpenControl(NamedTuple):
    """The control repository, opened at a commit.

    `mirror` is the shared repository, with the state. `objects` has the manifests: the working copy if there
    is one, because its HEAD may not be pushed yet. `published` is True if `commit` is on the shared branch of
    the same name, or on the default branch for a detached HEAD, as in many build jobs; `pushed` if the shared
    repository has it at all. `uncommitted` are paths of the working copy that differ from the commit.
    """

    mirror: Mirror
    objects: Mirror
    commit: Commit
    branch: str
    published: bool
    uncommitted: tuple[str, ...] = ()
    pushed: bool = True

    @property
    def default_branch(self) -> str:
        """The default branch, "" where there is none.

        HEAD of a working copy without a remote names what is checked out, and no default branch.
        """
        is_shared = self.mirror is not self.objects or not self.mirror.is_local or self.mirror.open().is_bare
        branch = self.mirror.head_branch if is_shared else ""
        return branch if f"{HEADS}{branch}" in self.mirror.refs() else ""


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
        below = _control_below(path)
        where, named = below or "a working copy of the control repository", below or "PATH or URL"
        hint = f"Run the command in {where}, or pass --control {named}."
        raise UsageError(f"{path} is not a Git repository or working copy", hint=hint)
    mirror = mirrors.open(control)
    mirror.fetch()
    branch, tip = mirror.head_branch, find_default_tip(mirror)
    if tip is None:
        message = f"The control repository {control} has no commit on its default branch {branch or '(none)'}"
        hint = "Push one; `reconciler init` writes the first files."
        if others := _others(mirror, ""):
            hint = f"Make {' or '.join(others[:_NAMED])} its default branch: `git symbolic-ref HEAD` there."
        raise ConfigurationError(message, hint=hint)
    return OpenControl(mirror, mirror, _commit(mirror, tip), branch, published=True)


def _control_below(path: Path) -> Path | None:
    """Return the nearest working copy with a configuration below a directory, None for none or several."""
    for pattern in (f"*/{FILE}", f"*/*/{FILE}"):
        if copies := [file.parent for file in path.glob(pattern) if (file.parent / ".git").exists()]:
            return copies[0] if len(copies) == 1 else None
    return None


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
    """Compare the opened commit with the default branch and with what was applied last."""
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
    # The merge commit with which a forge tests a pull request is on no branch: it has a ref of its own.
    pushed = published or copy.commit in map(os.environ.get, BUILT_COMMITS) or mirror.bring(copy.commit)
    commit = _commit(local, copy.commit)
    return OpenControl(mirror, local, commit, copy.branch, published, copy.uncommitted(), pushed)


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


_OID = regex(r"[0-9a-f]{40}")
_SHORT = 12
"""Digits of a commit in a sentence."""
_USUAL = ("main", "master")
_NAMED = 3
"""Branches that a hint names."""


class ProposedChange(NamedTuple):
    """Both sides of a change: the branch that it would be merged into, and what is proposed."""

    base: OpenControl
    head: OpenControl


def open_proposed_change(control: str, mirrors: Mirrors, *, base: str = "", head: str = "") -> ProposedChange:
    """Open both sides of a change; fetch what a shallow checkout lacks.

    The base is the merge base, so that commits merged meanwhile are not part of the change. For the merge
    commit with which a forge tests a pull request it is the first parent.

    `control` is a working copy (its HEAD is proposed), a bare repository or a URL. `base` is the branch to
    merge into, by default the default branch; a commit is the base itself.

    Raises:
        ConfigurationError: Both sides have no common history.
        UnavailableError: The repository cannot be reached.
        UsageError: There is no such branch or commit, or nothing to compare.
    """
    opened = open_control(control, mirrors)
    into = base or opened.default_branch
    if not into:
        why = "" if opened.mirror is not opened.objects else " (it has no remote `origin`)"
        message = f"{opened.mirror.remote} has no default branch that the change would be merged into{why}"
        raise UsageError(message, hint=_base_hint(opened, _branch(head) if head else opened.branch))
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
    if proposed in (start, tip) or proposed in mirror.ancestry(tip):
        raise _nothing_to_compare(opened, into, tip, head, proposed)
    before = OpenControl(mirror, mirror, _commit(mirror, start), _branch(into), published=True)
    if not head:
        return ProposedChange(before, opened._replace(objects=objects))
    after = OpenControl(mirror, objects, _commit(objects, proposed), _branch(head), published=True)
    return ProposedChange(before, after)


def _branch(name: str) -> str:
    return "" if _OID.fullmatch(name) else name.removeprefix(HEADS)


def _resolve(opened: OpenControl, name: str) -> Oid:
    if _OID.fullmatch(name):
        if not opened.mirror.bring(Oid(name)):
            raise _unknown(name, opened)
        return Oid(name)
    tip = opened.mirror.refs().get(name if name.startswith("refs/") else HEADS + name)
    if tip is None:
        raise _unknown(name, opened)
    return tip


def _unknown(name: str, opened: OpenControl) -> UsageError:
    there, branch = _others(opened.mirror, ""), name.removeprefix("origin/")
    if branch in there:
        hint = f"Write {branch}: branches are named as that repository names them."
    else:
        hint = suggest(branch, there, otherwise="Name a branch that is pushed, or a commit in full.")
    return UsageError(f"{opened.mirror.remote} has no branch or commit {name}", hint=hint)


def _others(mirror: Mirror, branch: str) -> list[str]:
    names = (ref.removeprefix(HEADS) for ref in mirror.refs() if ref.startswith(HEADS))
    branches = {name for name in names if name.partition("/")[0] not in BRANCH_DIRECTORIES}
    return sorted(branches - {branch}, key=lambda name: (name not in _USUAL, name))


def _base_hint(opened: OpenControl, proposed: str) -> str:
    """Return how to name the branch that another one would be merged into, or how to make that one."""
    others = _others(opened.mirror, proposed)
    if not others:
        begin = "Commit the change on a branch of its own: `git switch -c change`"
        return f"{begin}. Then run `reconciler check --base {proposed or 'BRANCH'}`."
    if proposed in _USUAL:
        return f"Name what is proposed, too: --base {proposed} --head {' or '.join(others[:_NAMED])}"
    named = others[:1] if others[0] in _USUAL else others[:_NAMED]
    return f"Name the branch that it would be merged into: --base {' or '.join(named)}"


def _nothing_to_compare(opened: OpenControl, into: str, tip: Oid, head: str, proposed: Oid) -> UsageError:
    """Return why a change has no other side to be compared with, and how to name one."""
    name, commit = _branch(head) if head else opened.branch, proposed[:_SHORT]
    into = _branch(into) or into[:_SHORT]
    is_behind = name == into and proposed != tip
    if is_behind:
        commits = plural(ControlHistory(opened).count_since(tip, proposed), "commit")
        message = f"This checkout of {into} is {commits} behind it, at {commit}, and has no change of its own"
    elif name == into:
        message = f"{into} would be compared with itself, at commit {commit}"
    elif proposed == tip:
        message = f"{name or 'HEAD'} and {into} are one commit, {commit}: there is nothing to compare"
    else:
        message = f"{name or 'HEAD'} is in {into} already, at commit {commit}: nothing is left to merge"
    if opened.uncommitted and not head:
        files = plural(len(opened.uncommitted), "file")
        are = verb(len(opened.uncommitted), "is", "are")
        hint = f"Commit the change first, on a branch of its own: {files} {are} not committed."
    elif is_behind:
        hint = "Run `git pull`, and commit the change on a branch of its own (`git switch -c change`)."
    elif name == into and not opened.default_branch:
        hint = _base_hint(opened, name)
    elif name in _USUAL and proposed != tip:
        hint = f"Did you mean --base {name} --head {into}?"
    elif name not in ("", into):
        hint = f"Commit the change on {name} first."
    else:
        others = " or ".join(_others(opened.mirror, into)[:_NAMED]) or "BRANCH"
        hint = f"Commit the change on a branch of its own, or name what is proposed: --head {others}"
    return UsageError(message, hint=hint)
