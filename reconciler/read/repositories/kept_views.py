"""Keep what main of a repository has, by the tree of each registered directory, for the next runs.

An entry is used only where computing it anew could not give anything else: the directory has the same tree
and the same directories of other views in it, its packages have the same tags, and main's first-parent line
since then left the directory alone. Refs, drafts and deletions are read anew each time. Whatever is damaged,
foreign or of another version is not used.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from itertools import islice, pairwise
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

import msgspec

from reconciler import __version__
from reconciler.api.kptfile import KptfileHeader
from reconciler.git.commits import CommitData
from reconciler.git.repository import Mirror
from reconciler.inventory.inventory import PackageState, UnpublishedRevision
from reconciler.names.ids import Oid
from reconciler.names.objects import Commit
from reconciler.read.kept_files import load_kept, save_kept
from reconciler.read.repositories.packed_headers import (
    PackedHeaders,
    Upstreams,
    pack_headers,
    unpack_headers,
)

VERSION = 3
"""Version of the files: increment it when repositories are read differently."""
_MOST_COMMITS = 100
"""Commits since a directory was kept; beyond, it is read anew."""
_SOURCES = (Path(__file__).parent, Path(__file__).parents[2] / "git")

Place = tuple[str, str]
"""The branch and directory of a view."""


class KeptTag(NamedTuple):
    """A tag of a package: its name, its commit and the package there."""

    ref: str
    commit: Oid
    tree: Oid


class ViewKey(NamedTuple):
    """Everything that decides what a view has on main, besides the history of main.

    `inside` are the directories of other views in its own, `tags` those of its packages.
    """

    tree: Oid
    inside: tuple[str, ...]
    tags: tuple[KeptTag, ...]


class MainContent(NamedTuple):
    """Main of one view: its packages without their refs, and the directories and files outside of them.

    `is_lasting` is False if it may be another one in the next run: a Kptfile could not be fetched.
    """

    packages: Mapping[str, PackageState]
    directories: Mapping[str, Oid]
    files: frozenset[str]
    is_lasting: bool = True


class _State(NamedTuple):
    """An unpublished revision, with the number of its header."""

    commit: Oid
    time: int
    tree: Oid
    header: int
    workspaces: dict[int, str]


class _Package(NamedTuple):
    path: str
    tree: Oid | None
    header: int
    unpublished: tuple[_State, ...]


class _Content(NamedTuple):
    headers: PackedHeaders
    packages: list[_Package]
    directories: dict[str, Oid]
    files: list[str]


class _Entry(NamedTuple):
    """A view; its content is read when it is used, and copied when it is written again."""

    branch: str
    directory: str
    key: ViewKey
    content: msgspec.Raw


class _File(NamedTuple):
    """The content of a file: the reader and repository that it is of, heads by branch, and entries.

    `ends` are the commits that were missing where history ended.
    """

    reader: str
    url: str
    heads: dict[str, Oid]
    ends: tuple[Oid, ...]
    entries: list[_Entry]


class ViewFiles(NamedTuple):
    """Where the views of repositories are kept; by default nowhere.

    `name` tells apart runs that read other views. Without `reads` what was kept is not used but removed.
    """

    cache_dir: Path | None = None
    reader: str = ""
    name: str = ""
    reads: bool = True

    def open(self, mirror: Mirror) -> "KeptViews":
        """Return the kept views of one repository."""
        if self.cache_dir is None:
            return KeptViews(None, mirror, self.reader)
        file = f"{sha256(mirror.url.encode()).hexdigest()[:32]}{self.name}"
        return KeptViews(self.cache_dir / "views" / file, mirror, self.reader, reads=self.reads)


class KeptViews:
    """The kept views of one repository; without a file, none.

    `reader` tells apart what reads a repository differently: the program and the instance.
    """

    def __init__(self, path: Path | None, mirror: Mirror, reader: str, *, reads: bool = True) -> None:
        self._path = path
        self._mirror = mirror
        self._reader = reader
        self._reads = reads
        file = _load(path, reader, mirror.url) if path and reads else None
        if file is not None and any(map(mirror.find_commit, file.ends)):
            file = None  # more of the history is there now
        self._ends = file.ends if file else ()
        self._heads = file.heads if file else {}
        self._entries = {(entry.branch, entry.directory): entry for entry in file.entries} if file else {}
        self._moved: dict[str, _Moved | None] = {}
        self._kept: dict[Place, _Entry] = {}
        self._upstreams: Upstreams = {}
        self._is_changed = False
        self.spared = 0
        """Number of packages that were not read."""

    def find(self, place: Place, head: CommitData, key: ViewKey) -> MainContent | None:
        """Return what a view has on main, None if it must be read."""
        entry = self._entries.get(place)
        if entry is None or entry.key != key:
            return None
        moved = self._moved_since(place[0], head)
        if moved is None or place[1] in moved.directories:
            return None
        if any(tag.commit in moved.commits for tag in key.tags):
            return None
        if (main := self._main(entry)) is not None:
            self.spared += len(main.packages)
            self._kept[place] = entry
        return main

    def add(self, place: Place, key: ViewKey, main: MainContent) -> None:
        """Keep what was read of a view."""
        if main.is_lasting and self._path is not None and self._reads:
            self._kept[place] = _Entry(*place, key, msgspec.Raw(msgspec.msgpack.encode(_content(main))))
            self._is_changed = True

    def save(self, heads: Mapping[str, CommitData], ends: Iterable[Oid]) -> None:
        """Write the views of this run, if there are others than before; a failure is ignored.

        Args:
            heads: Main of each branch that was read.
            ends: The commits that were missing where history ended, as far as it was walked.
        """
        now = {branch: commit.oid for branch, commit in heads.items()}
        is_same = not self._is_changed and self._kept.keys() == self._entries.keys() and now == self._heads
        if self._path is not None and not self._reads:
            with suppress(OSError):
                self._path.unlink(missing_ok=True)
        if self._path is None or not self._reads or is_same:
            return
        entries = [entry for _, entry in sorted(self._kept.items(), key=itemgetter(0))]
        missing = tuple(sorted({*self._ends, *ends}))
        data = _File(self._reader, self._mirror.url, now, missing, entries)
        save_kept(self._path, msgspec.msgpack.encode(data))

    def _moved_since(self, branch: str, head: CommitData) -> "_Moved | None":
        if branch not in self._moved:
            directories = [directory for name, directory in self._entries if name == branch]
            self._moved[branch] = _find_moved(self._mirror, self._heads.get(branch), head, directories)
        return self._moved[branch]

    def _main(self, entry: _Entry) -> MainContent | None:
        """Return what an entry has, None if it is damaged."""
        try:
            content = _CONTENT.decode(entry.content)
        except msgspec.DecodeError:
            return None
        if not _is_whole(content):
            return None
        headers = [*unpack_headers(content.headers, self._upstreams)]
        states = (state for package in content.packages for state in package.unpublished)
        commits = {state.commit: Commit(state.commit, state.time) for state in states}
        packages = {package.path: _package(package, headers, commits) for package in content.packages}
        return MainContent(packages, content.directories, frozenset(content.files))


class _Moved(NamedTuple):
    """The first-parent line since views were kept: its commits, and the directories that they changed."""

    commits: frozenset[Oid]
    directories: frozenset[str]


def _find_moved(
    mirror: Mirror, before: Oid | None, head: CommitData, directories: Sequence[str]
) -> _Moved | None:
    """Return what moved between two heads of main, None if the former is not near on the line."""
    line: list[CommitData] = []
    for commit in islice(mirror.first_parents(head.oid), _MOST_COMMITS):
        line.append(commit)
        if commit.oid == before:
            break
    else:
        return None
    changed: set[str] = set()
    below = [directory for directory in directories if directory]
    for commit, parent in pairwise(line):
        if commit.tree != parent.tree:
            changed |= {"", *mirror.changed_paths(parent.tree, commit.tree, below)}
    return _Moved(frozenset(commit.oid for commit in line[:-1]), frozenset(changed))


def reader_name(instance: str) -> str:
    """Return what tells apart runs that read repositories differently: the program and the instance."""
    sources = sorted(path for folder in _SOURCES for path in folder.glob("*.py"))
    states = [(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in sources]
    return sha256(repr((VERSION, __version__, instance, states)).encode()).hexdigest()


def _load(path: Path, reader: str, url: str) -> _File | None:
    data = load_kept(path)
    try:
        file = msgspec.msgpack.decode(data, type=_File) if data else None
    except (msgspec.DecodeError, RecursionError):
        return None
    return file if file and (file.reader, file.url) == (reader, url) else None


def _is_whole(content: _Content) -> bool:
    """Tell whether all numbers in an entry are those of what it has."""
    headers = range(len(content.headers.headers))
    return content.headers.is_whole and all(
        package.header in headers and all(state.header in headers for state in package.unpublished)
        for package in content.packages
    )


def _package(
    package: _Package, headers: Sequence[KptfileHeader], commits: Mapping[Oid, Commit]
) -> PackageState:
    path, tree, header, states = package
    return PackageState(
        path,
        main_tree=tree,
        main_header=headers[header],
        unpublished=tuple(
            UnpublishedRevision(commits[s.commit], s.tree, headers[s.header], s.workspaces) for s in states
        ),
    )


def _content(main: MainContent) -> _Content:
    """Return what is written of a view: each header and each upstream once."""
    states = [state for package in main.packages.values() for state in package.unpublished]
    headers = [*(package.main_header or _NO_HEADER for package in main.packages.values())]
    headers = [*{id(header): header for header in (*headers, *(state.header for state in states))}.values()]
    number = {id(header): index for index, header in enumerate(headers)}

    def unpublished(package: PackageState) -> Iterator[_State]:
        for s in package.unpublished:
            yield _State(s.commit.oid, s.commit.time, s.tree, number[id(s.header)], dict(s.workspaces))

    return _Content(
        pack_headers(headers),
        [
            _Package(p.path, p.main_tree, number[id(p.main_header or _NO_HEADER)], tuple(unpublished(p)))
            for p in main.packages.values()
        ],
        dict(main.directories),
        sorted(main.files),
    )


_NO_HEADER = KptfileHeader()
_CONTENT = msgspec.msgpack.Decoder(_Content)
