"""The objects of a repository: read in place, checked, and cached for the run."""

from abc import abstractmethod
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pygit2

from reconciler.base.errors import UnavailableError
from reconciler.base.text import plural
from reconciler.git.commits import CommitData, History, decode_text, parse_commit, valid_time
from reconciler.git.trees import (
    FileCache,
    PackageRefusedError,
    RawEntry,
    UnsafeEntry,
    check_entry,
    list_files,
    parse_tree,
    read_files,
)
from reconciler.names.ids import Oid
from reconciler.names.objects import Files, Mode, Signature, TreeEntry

if TYPE_CHECKING:
    from reconciler.policy import Limits

NO_OBJECT = (KeyError, ValueError, pygit2.GitError)
"""Errors of pygit2 for a missing object, a malformed id and an unreadable repository."""
_ModeAndOid = tuple[int, Oid]
_FEW = 8
_SHORT = 64
"""Entries of a known tree that are looked through for less than one look-up by libgit2."""
_FILE_MODES = frozenset({0o100644, 0o100664, 0o100755})
LARGEST_TREE = 64 << 20
_OPEN_TREES = 64
"""Trees that are kept open: libgit2 parses a tree of more than 4 KiB again at every look-up."""


class Database(History):
    """Commits, trees and blobs by id. An object never changes, so it is read once."""

    remote: str

    def __init__(self) -> None:
        super().__init__()
        self._commits: dict[Oid, CommitData] = {}
        self._checked_entries: dict[Oid, tuple[TreeEntry | UnsafeEntry, ...]] = {}
        self._trees: dict[Oid, pygit2.Tree] = {}
        self._files = FileCache()

    @abstractmethod
    def open(self) -> pygit2.Repository:
        """Return the repository with the objects.

        Raises: UnavailableError if it cannot be opened.
        """

    @abstractmethod
    def ensure(self, oids: Iterable[Oid]) -> None:
        """Fetch the missing objects in one batch.

        Raises: UnavailableError if they cannot be fetched.
        """

    def has(self, oid: Oid) -> bool:
        """Tell whether an object exists locally.

        Raises: UnavailableError if the repository cannot be read any more.
        """
        return self._exists(self.open(), oid)

    def _exists(self, repository: pygit2.Repository, oid: Oid) -> bool:
        try:
            key = pygit2.Oid(hex=oid)
        except ValueError:  # ids in records and Kptfiles may be malformed
            return False
        try:
            return bool(repository.odb.exists(key))
        except pygit2.GitError as error:
            raise UnavailableError(f"Cannot read {self.remote}: {error}") from error

    def find_commit(self, oid: Oid) -> CommitData | None:
        """Return a commit, None if it is missing (beyond a shallow clone) or is not a commit."""
        if oid in self._commits:
            return self._commits[oid]
        stored = self._object(oid)
        commit = _commit_data(stored) if isinstance(stored, pygit2.Commit) else None
        if stored is None:  # libgit2 refuses malformed commits that git accepts
            commit = self._parse_commit(oid)
        if commit is not None:
            self._commits[oid] = commit
        return commit

    def find_parents(self, oid: Oid) -> tuple[Oid, ...] | None:
        """Return a commit's parents, None if it is missing or is not a commit."""
        if cached := self._commits.get(oid):
            return cached.parents
        stored = self._object(oid)
        if isinstance(stored, pygit2.Commit):
            return tuple(Oid(str(parent)) for parent in stored.parent_ids)
        commit = self.find_commit(oid)
        return commit.parents if commit else None

    def commit(self, oid: Oid) -> CommitData:
        """Return a commit.

        Raises: UnavailableError if it is missing.
        """
        if (commit := self.find_commit(oid)) is None:
            raise UnavailableError(f"Commit {oid} is not in {self.remote}", hint="Fetch its whole history.")
        return commit

    def checked_entries(self, tree: Oid) -> tuple[TreeEntry | UnsafeEntry, ...]:
        """Return the entries of a tree in its order, unsafe ones with their reason.

        A malformed tree is one unsafe entry with an empty name: the package that contains it is refused,
        and no other.

        Raises: UnavailableError if the tree is missing.
        """
        if tree not in self._checked_entries:
            try:
                entries = tuple(check_entry(raw) for raw in self.raw_entries(tree))
            except PackageRefusedError as error:
                entries = (UnsafeEntry("", error.reason),)
            self._checked_entries[tree] = entries
        return self._checked_entries[tree]

    def entries(self, tree: Oid) -> tuple[TreeEntry, ...]:
        """Return the entries of a tree that have safe names and modes."""
        return tuple(entry for entry in self.checked_entries(tree) if isinstance(entry, TreeEntry))

    def find_file(self, tree: Oid, name: str) -> TreeEntry | None:
        """Return the file or link with this name in a tree, None if there is no safe one.

        The entries of a tree with such a file are not kept: a fleet has many packages, each read once.

        Raises: UnavailableError if the tree is missing.
        """
        if tree not in self._checked_entries:
            with suppress(PackageRefusedError):  # it has no entries
                raw = self.raw_entries(tree)
                named = name.encode()
                if file := _find_file(check_entry(entry) for entry in raw if entry.name == named):
                    return file
                self._checked_entries[tree] = tuple(map(check_entry, raw))
        return _find_file(entry for entry in self.checked_entries(tree) if entry.name == name)

    def unsafe_entries(self, tree: Oid) -> tuple[UnsafeEntry, ...]:
        """Return the entries of a tree that have unsafe names or modes."""
        return tuple(entry for entry in self.checked_entries(tree) if isinstance(entry, UnsafeEntry))

    def raw_entries(self, tree: Oid) -> list[RawEntry]:
        """Return the entries of a tree as they are stored.

        Raises: UnavailableError if the tree is missing; PackageRefusedError if it is malformed.
        """
        try:
            return parse_tree(self.blob(tree, LARGEST_TREE))
        except ValueError as error:
            raise PackageRefusedError("", f"tree {tree} is malformed") from error

    def subtree(self, commit_or_tree: Oid, path: str) -> Oid | None:
        """Return the tree at `path` ("" is the root), None if it is not a directory."""
        entry = self._at(commit_or_tree, path)
        return Oid(str(entry.id)) if isinstance(entry, pygit2.Tree) else None

    def blob_at(self, commit_or_tree: Oid, path: str) -> Oid | None:
        """Return the id of the regular file at `path`, None if there is none; its content may be missing."""
        entry = self._at(commit_or_tree, path)
        return Oid(str(entry.id)) if entry is not None and entry.filemode in _FILE_MODES else None

    def blob(self, oid: Oid, max_bytes: int) -> bytes:
        """Return the bytes of a blob or another object; check its size before reading it.

        Raises: PackageRefusedError if it is larger than `max_bytes`; UnavailableError if it is missing.
        """
        key = pygit2.Oid(hex=oid)
        try:
            _, size = self.open().odb.read_header(key)
            if size > max_bytes:
                raise PackageRefusedError("", f"it has {plural(size, 'byte')}, more than {max_bytes}")
            return bytes(self.open().odb.read(key)[1])
        except (KeyError, ValueError) as error:
            raise UnavailableError(f"Object {oid} is not in {self.remote}") from error
        except pygit2.GitError as error:
            message = f"Object {oid} of {self.remote} cannot be read in {self.open().path}: {error}"
            raise UnavailableError(
                message, hint="Run again: damaged files in the cache are replaced."
            ) from error

    def files(self, tree: Oid, limits: "Limits", other: Files = MappingProxyType({})) -> Files:
        """Return the files of a package; those that are equal in `other` are not read again.

        Raises: PackageRefusedError, see `git.trees.read_files`.
        """
        return read_files(self, tree, limits, other, self._files)

    def list_blobs(self, tree: Oid, limits: "Limits") -> frozenset[Oid]:
        """Return the blobs of a package without reading them.

        Raises: PackageRefusedError, see `git.trees.list_files`.
        """
        return frozenset(entry.oid for _, entry in list_files(self, tree, limits))

    def changed_paths(self, old: Oid | None, new: Oid | None, paths: Iterable[str]) -> set[str]:
        """Return those of `paths` at which two trees differ; equal directories are not descended."""
        if old == new:
            return set()
        below: dict[str, set[str]] = {}
        for path in paths:
            head, _, rest = path.partition("/")
            below.setdefault(head, set()).add(rest)
        before, after = self._by_name(old, below), self._by_name(new, below)
        changed = set()
        for head, rests in below.items():
            a, b = before.get(head), after.get(head)
            if a == b:
                continue
            if "" in rests:
                changed.add(head)
                rests.remove("")
            if rests:
                deeper = self.changed_paths(_tree_of(a), _tree_of(b), rests)
                changed |= {f"{head}/{rest}" for rest in deeper}
        return changed

    def _object(self, oid: Oid) -> Any:
        try:
            return self.open().get(oid)
        except NO_OBJECT:
            return None

    def _parse_commit(self, oid: Oid) -> CommitData | None:
        """Parse a commit that libgit2 refuses as leniently as git does; None if it is no commit."""
        try:
            kind, data = self.open().odb.read(pygit2.Oid(hex=oid))
        except NO_OBJECT:
            return None
        return parse_commit(oid, data) if kind == pygit2.enums.ObjectType.COMMIT else None

    def _tree(self, commit_or_tree: Oid) -> pygit2.Tree | None:
        """Return a tree, or that of a commit, from the few that are kept open."""
        commit = self._commits.get(commit_or_tree)
        oid = commit.tree if commit else commit_or_tree
        if oid not in self._trees:
            tree = self._object(oid)
            if isinstance(tree, pygit2.Commit):
                tree = tree.tree
            elif tree is None and (commit := self.find_commit(oid)) is not None:
                tree = self._object(commit.tree)
            if not isinstance(tree, pygit2.Tree):
                return None
            if len(self._trees) >= _OPEN_TREES:  # dictionaries keep their order: the oldest tree goes
                self._trees.pop(next(iter(self._trees)))
            self._trees[oid] = tree
        return self._trees[oid]

    def _at(self, commit_or_tree: Oid, path: str) -> Any:
        try:
            root = self._tree(commit_or_tree)
            return root[path] if root is not None and path else root
        except NO_OBJECT:
            return None

    def _by_name(self, tree: Oid | None, names: Collection[str]) -> Mapping[str, _ModeAndOid]:
        """Return mode and id of the named entries; few names are looked up without parsing the tree."""
        if tree is None:
            return {}
        cached = self._checked_entries.get(tree)
        if len(names) > _FEW or (cached is not None and len(cached) <= _SHORT):
            return {e.name: (e.mode, e.oid) for e in self.entries(tree) if e.name in names}
        opened = self._tree(tree)
        if opened is None:
            return {}
        entries = ((name, opened[name]) for name in names if name and name in opened)
        return {name: (int(entry.filemode), Oid(str(entry.id))) for name, entry in entries}


def open_repository(path: Path) -> pygit2.Repository:
    """Open a repository as git does: at `path`, its `.git`, or `path` with `.git` added.

    Raises: pygit2.GitError if there is none.
    """
    for candidate in (path, path.with_name(path.name + ".git")):
        if candidate.is_dir():
            return pygit2.Repository(str(candidate))
    raise pygit2.GitError(f"{path} does not exist")


def objects_directory(repository: pygit2.Repository) -> Path:
    """Return the directory of a repository's objects; a linked working tree shares that of another."""
    directory = Path(repository.path)
    shared = directory / "commondir"
    if shared.is_file():
        directory /= shared.read_text().strip()
    return directory.resolve() / "objects"


_MAPPED_BYTES = 1 << 20
"""How much of a pack is mapped at once."""


def _isolate() -> None:
    """Hide the user's Git configuration from libgit2, as `git.command` hides it from git."""
    # libgit2 refuses directories of another user, as a mount in a container is. What is read here runs
    # nothing.
    pygit2.settings.owner_validation = False
    # What is read is kept as values, read once: a second copy of it and mapped packs would only take memory.
    pygit2.settings.enable_caching(False)
    pygit2.settings.mwindow_size = _MAPPED_BYTES
    pygit2.settings.mwindow_mapped_limit = 16 * _MAPPED_BYTES
    for level in ("SYSTEM", "XDG", "GLOBAL", "PROGRAMDATA"):
        pygit2.settings.search_path[getattr(pygit2.enums.ConfigLevel, level)] = ""


_isolate()


def _find_file(entries: Iterable[TreeEntry | UnsafeEntry]) -> TreeEntry | None:
    return next((e for e in entries if isinstance(e, TreeEntry) and e.mode != Mode.TREE), None)


def _tree_of(entry: _ModeAndOid | None) -> Oid | None:
    return entry[1] if entry and entry[0] == Mode.TREE else None


def _commit_data(commit: pygit2.Commit) -> CommitData:
    try:
        encoding = commit.message_encoding or ""
    except ValueError:  # the header is not UTF-8
        encoding = ""
    return CommitData(
        Oid(str(commit.id)),
        Oid(str(commit.tree_id)),
        tuple(Oid(str(parent)) for parent in commit.parent_ids),
        _signature(commit.author),
        _signature(commit.committer),
        decode_text(commit.raw_message, encoding.encode()),
    )


def _signature(person: pygit2.Signature) -> Signature:
    return Signature(decode_text(person.raw_name), decode_text(person.raw_email), valid_time(person.time))
