"""The objects of a repository: read in place, judged, remembered for the run."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pygit2

from reconciler.errors import UnavailableError
from reconciler.git import history
from reconciler.git.commits import CommitData, decode_text, parse_commit, valid_time
from reconciler.git.trees import (
    PackageRefusedError,
    RawEntry,
    Refusal,
    judge_entry,
    list_files,
    parse_tree,
    read_files,
)
from reconciler.ids import Oid
from reconciler.objects import Files, Mode, Signature, TreeEntry
from reconciler.policy import Limits

NO_OBJECT = (KeyError, ValueError, pygit2.GitError)
_Place = tuple[int, Oid]
_FEW = 8
_FILE_MODES = frozenset({0o100644, 0o100664, 0o100755})
_LARGEST_TREE = 64 << 20
_TREES = 64
"""How many trees are kept open: libgit2 parses one of more than 4 KiB again at every look-up."""


class Database(ABC):
    """Commits, trees and blobs by id. An object never changes, so what was read once is kept."""

    remote: str

    def __init__(self) -> None:
        self._commits: dict[Oid, CommitData] = {}
        self._judged: dict[Oid, tuple[TreeEntry | Refusal, ...]] = {}
        self._entries: dict[Oid, tuple[TreeEntry, ...]] = {}
        self._ancestry: dict[Oid, frozenset[Oid]] = {}
        self._trees: dict[Oid, pygit2.Tree] = {}

    @abstractmethod
    def open(self) -> pygit2.Repository:
        """Return the repository that holds the objects.

        Raises: UnavailableError if it cannot be opened.
        """

    @abstractmethod
    def ensure(self, oids: Iterable[Oid]) -> None:
        """Fetch the objects that are not here yet, all in one batch.

        Raises: UnavailableError if they cannot be fetched.
        """

    def has(self, oid: Oid) -> bool:
        """Tell whether an object is here.

        Raises: UnavailableError if the repository cannot be read any more.
        """
        try:
            return bool(self.open().odb.exists(pygit2.Oid(hex=oid)))
        except pygit2.GitError as error:
            raise UnavailableError(f"Cannot read {self.remote}: {error}") from error
        except ValueError:  # what a record or a Kptfile calls an object id need not be one
            return False

    def find_commit(self, oid: Oid) -> CommitData | None:
        """Return a commit, None if it is not here (beyond a shallow clone) or is not a commit."""
        if oid in self._commits:
            return self._commits[oid]
        found = self._object(oid)
        commit = _commit_data(found) if isinstance(found, pygit2.Commit) else None
        if found is None:
            commit = self._parse_commit(oid)
        if commit is not None:
            self._commits[oid] = commit
        return commit

    def find_parents(self, oid: Oid) -> tuple[Oid, ...] | None:
        """Return a commit's parents, None if it is not here or is not a commit."""
        if known := self._commits.get(oid):
            return known.parents
        found = self._object(oid)
        if isinstance(found, pygit2.Commit):
            return tuple(Oid(str(parent)) for parent in found.parent_ids)
        commit = self.find_commit(oid)
        return commit.parents if commit else None

    def commit(self, oid: Oid) -> CommitData:
        """Return a commit.

        Raises: UnavailableError if it is not in the repository.
        """
        if (commit := self.find_commit(oid)) is None:
            raise UnavailableError(f"Commit {oid} is not in {self.remote}", hint="Fetch its whole history.")
        return commit

    def judged(self, tree: Oid) -> tuple[TreeEntry | Refusal, ...]:
        """Return every entry of a tree in its order, unsafe ones as refusals.

        A malformed tree is a single refusal with an empty name: whatever reads it refuses the package
        that it belongs to, and nothing else.

        Raises: UnavailableError if the tree is not here.
        """
        if tree not in self._judged:
            try:
                judged = tuple(judge_entry(raw) for raw in self.raw_entries(tree))
            except PackageRefusedError as error:
                judged = (Refusal("", error.why),)
            self._judged[tree] = judged
        return self._judged[tree]

    def entries(self, tree: Oid) -> tuple[TreeEntry, ...]:
        """Return the entries of a tree whose names and modes are safe."""
        if tree not in self._entries:
            judged = self.judged(tree)
            self._entries[tree] = tuple(entry for entry in judged if isinstance(entry, TreeEntry))
        return self._entries[tree]

    def refusals(self, tree: Oid) -> tuple[Refusal, ...]:
        """Return the entries of a tree that are refused, with the reason."""
        return tuple(entry for entry in self.judged(tree) if isinstance(entry, Refusal))

    def raw_entries(self, tree: Oid) -> list[RawEntry]:
        """Return the entries of a tree as they are stored.

        Raises: UnavailableError if the tree is not here; PackageRefusedError if it is malformed.
        """
        try:
            return parse_tree(self._read(tree, _LARGEST_TREE))
        except ValueError as error:
            raise PackageRefusedError("", f"tree {tree} is malformed") from error

    def subtree(self, commit_or_tree: Oid, path: str) -> Oid | None:
        """Return the tree at `path` ("" is the root), None if there is no directory."""
        found = self._at(commit_or_tree, path)
        return Oid(str(found.id)) if isinstance(found, pygit2.Tree) else None

    def blob_at(self, commit_or_tree: Oid, path: str) -> Oid | None:
        """Return the id of the regular file at `path`, None if there is none; its content may not be here."""
        found = self._at(commit_or_tree, path)
        return Oid(str(found.id)) if found is not None and found.filemode in _FILE_MODES else None

    def blob(self, oid: Oid, max_bytes: int) -> bytes:
        """Return a blob's bytes; its size is looked at before anything is read.

        Raises: PackageRefusedError if it is larger than `max_bytes`; UnavailableError if it is missing.
        """
        return self._read(oid, max_bytes)

    def files(self, tree: Oid, limits: Limits) -> Files:
        """Return the files of a package.

        Raises: PackageRefusedError, see `git.files.read_files`.
        """
        return read_files(self, tree, limits)

    def list_blobs(self, tree: Oid, limits: Limits) -> frozenset[Oid]:
        """Return the blobs of a package without reading one.

        Raises: PackageRefusedError, see `git.files.list_files`.
        """
        return frozenset(entry.oid for _, entry in list_files(self, tree, limits))

    # History

    def merge_base(self, main: Oid, tip: Oid) -> Oid | None:
        """Return the best common commit; `main` is the long-lived side, whose ancestry is kept."""
        return history.merge_base(self, self.ancestry(main), tip)

    def ancestry(self, tip: Oid) -> frozenset[Oid]:
        """Return `tip` and all its ancestors; computed once per tip."""
        if tip not in self._ancestry:
            self._ancestry[tip] = history.ancestors(self, tip)
        return self._ancestry[tip]

    def first_parents(self, tip: Oid, until: Oid | None = None) -> Iterator[CommitData]:
        """Yield `tip` and its first parents, newest first, up to but without `until`."""
        return history.first_parents(self, tip, until)

    def walk(self, tip: Oid, hidden: Container[Oid] = frozenset()) -> Iterator[Oid]:
        """Yield what is reachable from `tip` without passing `hidden`, nearest first."""
        return history.walk(self, tip, hidden)

    def last_touched(self, commit: Oid, paths: Iterable[str]) -> Mapping[str, int]:
        """Return for each path the committer time of the commit that last touched it, in one walk."""
        return history.last_touched(self, self.changed_paths, commit, paths)

    def last_touching(self, commit: Oid, paths: Iterable[str]) -> Mapping[str, Oid]:
        """Return for each path the commit that last touched it, in one walk."""
        return history.last_touching(self, self.changed_paths, commit, paths)

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
            changed |= {head} if "" in rests else set()
            deeper = self.changed_paths(_tree_of(a), _tree_of(b), rests - {""})
            changed |= {f"{head}/{rest}" for rest in deeper}
        return changed

    # Inside

    def _object(self, oid: Oid) -> Any:
        try:
            return self.open().get(oid)
        except NO_OBJECT:
            return None

    def _parse_commit(self, oid: Oid) -> CommitData | None:
        """Return a commit that libgit2 refuses to parse, as git itself shows it; None if it is no commit."""
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
            found = self._object(oid)
            if isinstance(found, pygit2.Commit):
                found = found.tree
            elif found is None and (commit := self.find_commit(oid)) is not None:
                found = self._object(commit.tree)
            if not isinstance(found, pygit2.Tree):
                return None
            if len(self._trees) >= _TREES:
                self._trees.pop(next(iter(self._trees)))
            self._trees[oid] = found
        return self._trees[oid]

    def _at(self, commit_or_tree: Oid, path: str) -> Any:
        found: Any = None
        try:
            found = self._tree(commit_or_tree)
            for segment in path.split("/") if path else ():
                if not isinstance(found, pygit2.Tree) or segment not in found:
                    return None
                found = found[segment]
        except NO_OBJECT:
            return None
        return found

    def _by_name(self, tree: Oid | None, names: Collection[str]) -> Mapping[str, _Place]:
        """Return mode and id of the named entries; for few names without parsing the whole tree."""
        if tree is None:
            return {}
        if len(names) > _FEW:
            return {e.name: (e.mode, e.oid) for e in self.entries(tree) if e.name in names}
        found = self._tree(tree)
        if found is None:
            return {}
        below = ((name, found[name]) for name in names if name and name in found)
        return {name: (int(entry.filemode), Oid(str(entry.id))) for name, entry in below}

    def _read(self, oid: Oid, max_bytes: int) -> bytes:
        key = pygit2.Oid(hex=oid)
        try:
            _, size = self.open().odb.read_header(key)
            if size > max_bytes:
                raise PackageRefusedError("", f"it has {size} bytes, more than {max_bytes}")
            return bytes(self.open().odb.read(key)[1])
        except (KeyError, ValueError) as error:
            raise UnavailableError(f"Object {oid} is not in {self.remote}") from error
        except pygit2.GitError as error:
            message = f"Object {oid} of {self.remote} cannot be read in {self.open().path}: {error}"
            raise UnavailableError(
                message, hint="Run again: what is damaged in the cache is made anew."
            ) from error


def open_repository(path: Path) -> pygit2.Repository:
    """Open a repository exactly where git would: at `path`, its `.git`, or `path` with `.git` added.

    Raises: pygit2.GitError if there is none.
    """
    for candidate in (path, path.with_name(path.name + ".git")):
        if candidate.is_dir():
            return pygit2.Repository(str(candidate))
    raise pygit2.GitError(f"{path} does not exist")


def objects_directory(repository: pygit2.Repository) -> Path:
    """Return where a repository keeps its objects; a linked working tree has them elsewhere."""
    directory = Path(repository.path)
    shared = directory / "commondir"
    if shared.is_file():
        directory /= shared.read_text().strip()
    return directory.resolve() / "objects"


def _isolate() -> None:
    """Keep a person's configuration away from libgit2, as `git.command` does from git."""
    pygit2.settings.owner_validation = False
    for level in ("SYSTEM", "XDG", "GLOBAL", "PROGRAMDATA"):
        pygit2.settings.search_path[getattr(pygit2.enums.ConfigLevel, level)] = ""


_isolate()


def _tree_of(place: _Place | None) -> Oid | None:
    return place[1] if place and place[0] == Mode.TREE else None


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


def _signature(found: pygit2.Signature) -> Signature:
    return Signature(decode_text(found.raw_name), decode_text(found.raw_email), valid_time(found.time))
