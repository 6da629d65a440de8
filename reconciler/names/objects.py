"""Git objects without a repository: bytes and ids of blobs, trees and commits, and names in trees."""

import hashlib
import unicodedata
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from enum import IntEnum
from functools import lru_cache
from itertools import chain, count
from posixpath import splitext
from typing import NamedTuple, Self

from msgspec import Struct

from reconciler.base.errors import RefusedError
from reconciler.base.lazy import regex
from reconciler.base.text import plural, visible
from reconciler.names.ids import Oid

_LONGEST_NAME = 255
_PLAIN_NAME = regex(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*")
_CACHED = range(2, 500)
"""Numbers of paths for which the answer is kept: one path is cheap, and many take memory."""
_REORDERS = regex("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""The controls of bidirectional text: with them a name reads as another one."""
_NUMBER = regex(r"-[0-9]+(?=/|(?:\.[^./]*)?\Z)")
_GIT = regex(
    r"\.git|\.gitmodules|git~[0-9]+|gitmod~[0-9]|(?=.{8}\Z)(?:g(?:i(?:7(?:e(?:ba?)?)?)?)?)?~[1-9][0-9]*"
)
_GIT_FILE = regex(r"\.gitattributes|gitatt~[0-9]|(?=.{8}\Z)g(?:i(?:7(?:d(?:29?)?)?)?)?~[1-9][0-9]*")
"""Git's own names, with the short ones that NTFS may give them; those of the second may be of a file.

Source: git path.c, is_ntfs_dotgit and is_ntfs_dot_generic, and fsck.c, which asks them.
"""


class NamesError(RefusedError):
    """A name that no tree may hold."""


@lru_cache(maxsize=1 << 16)
def file_name_error(name: str, *, is_directory: bool = False) -> str:
    """Return the error of the name of a file or directory, "" if it is valid.

    Names that any file system takes for `.git` or for another directory are invalid on all of them.
    """
    if _PLAIN_NAME.fullmatch(name) and "git" not in name.lower() and len(name) <= _LONGEST_NAME:
        return ""
    if why := _git_error(name, is_directory=is_directory):
        return why
    if any(unicodedata.category(c) in {"Cc", "Cs"} for c in name):
        return "its name contains a control character"
    is_long = len(name.encode()) > _LONGEST_NAME
    return f"its name is longer than {_LONGEST_NAME} bytes" if is_long else ""


def _git_error(name: str, *, is_directory: bool = False) -> str:
    if name in {"", ".", ".."}:
        return "its name is empty or stands for another directory"
    if "/" in name or "\\" in name:
        return "its name contains a slash"
    # NTFS ignores trailing dots and spaces, and reads `:` as a stream.
    plain = unicodedata.normalize("NFKC", _drawn(name)).casefold().partition(":")[0].rstrip(". ")
    is_git = _GIT.fullmatch(plain) or (is_directory and _GIT_FILE.fullmatch(plain))
    return "some file systems take its name for Git's own" if is_git else ""


def _drawn(text: str) -> str:
    """Return text without its invisible characters, which HFS+ ignores in names."""
    return "".join(c for c in text if unicodedata.category(c) != "Cf")


def file_path_error(path: str, *, depth: int = 50) -> str:
    """Return the error of a path in a repository, "" if it is valid; `depth` bounds its segments."""
    if path.count("/") >= depth:
        return f"it is deeper than {plural(depth, 'directory')}"
    return _path_error(path, file_name_error)


def _path_error(path: str, error_of: Callable[..., str]) -> str:
    *above, name = path.split("/")
    for folder in above:
        if error := error_of(folder, is_directory=True):
            return error
    return error_of(name)


def case_fold_key(path: str) -> str:
    """Return a key that is equal for paths that some file system takes for the same file."""
    if path.isascii():
        return path.lower()
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", _drawn(path)).casefold())


def check_names(paths: Iterable[str], before: Iterable[str] = (), *, maker: str = "", hint: str = "") -> None:
    """Check the paths of the files of one tree: the grammar of each, and that no two of them clash.

    Files clash if one is in the place of a directory of another, which no tree can hold, or if some file
    system takes their names for the same: case, normal form. In paths of `before`, which are no news, as main
    or a draft has them, only what Git itself refuses is looked for. `maker` is what gives the files, for the
    message.

    Raises:
        NamesError: The first that is invalid, in the order of their names.
    """
    paths = tuple(paths)
    if (_is_sound if len(paths) in _CACHED else _is_sound.__wrapped__)(paths):
        return
    paths = tuple(sorted(paths))
    accepted = {*before}
    accepted.update(_directories(accepted))
    for path, why in chain(_invalid(paths, accepted), _clashing(paths, accepted)):
        gives = f"{maker} gives a file that no package may have: " if maker else ""
        raise NamesError(f"{gives}{visible(path)}: {why}", hint=hint)


def _invalid(paths: Iterable[str], accepted: Container[str]) -> Iterator[tuple[str, str]]:
    for path in paths:
        is_new = path not in accepted
        why = file_path_error(path) if is_new else _path_error(path, _git_error)
        if is_new and not why and _REORDERS.search(path):
            why = "its name contains a character that reorders text"
        if why:
            yield path, why


def _clashing(paths: Iterable[str], accepted: Container[str]) -> Iterator[tuple[str, str]]:
    for path, other in _clashes(paths):
        if path == other:
            yield path, "it would be both a file and a directory"
        elif path not in accepted or other not in accepted:
            yield path, f"on some file systems it is the same as {visible(other)}"


@lru_cache(maxsize=256)
def _is_sound(paths: tuple[str, ...]) -> bool:
    """Tell whether nothing is wrong. Cached: most packages of a fleet have the files of another one."""
    return not any(_invalid(paths, ())) and not any(_clashes(paths))


def _directories(paths: Iterable[str]) -> dict[str, None]:
    directories: dict[str, None] = {}
    for path in paths:
        end = path.rfind("/")
        while end > 0 and (directory := path[:end]) not in directories:
            directories[directory] = None
            end = directory.rfind("/")
    return directories


def _clashes(paths: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield each file or directory that has the place of another one, and that one."""
    places: dict[str, tuple[str, bool]] = {}
    named = chain(((path, True) for path in paths), ((path, False) for path in _directories(paths)))
    for file in named:
        other = places.setdefault(case_fold_key(file[0]), file)
        if other != file:
            yield file[0], other[0]


class TakenNames:
    """The files and directories of a package, to give new files names that clash with none."""

    def __init__(self, paths: Iterable[str]) -> None:
        self._files: dict[str, str] = {}
        self._directories: dict[str, str] = {}
        for path in paths:
            self.add(path)

    def add(self, path: str) -> None:
        """Count a file."""
        self._files[case_fold_key(path)] = path
        for directory in _directories((path,)):
            self._directories[case_fold_key(directory)] = directory

    def choose(self, path: str, *, joins: bool = False) -> str:
        """Return a path for a new file: this one, or with the first number that clashes with nothing.

        `a/X.yaml` becomes `a/x-2.yaml` beside `a/x.yaml`, and `a-2/X.yaml` beside the directory `A`. With
        `joins` the file may be there already, spelled alike.
        """
        inside, _, name = path.rpartition("/")
        directory = ""
        for segment in filter(None, inside.split("/")):
            directory += segment
            directory = next(filter(self._is_directory, _numbered(directory, ""))) + "/"
        stem, suffix = splitext(directory + name)
        return next(name for name in _numbered(stem, suffix) if self._is_free(name, joins=joins))

    def _is_directory(self, path: str) -> bool:
        key = case_fold_key(path)
        return key not in self._files and self._directories.get(key, path) == path

    def _is_free(self, path: str, *, joins: bool) -> bool:
        key = case_fold_key(path)
        other = self._files.get(key)
        return key not in self._directories and (other is None or (joins and other == path))


def _numbered(stem: str, suffix: str) -> Iterator[str]:
    yield stem + suffix
    directory, slash, name = stem.rpartition("/")
    yield from (f"{directory}{slash}{name.lower()}-{number}{suffix}" for number in count(2))


def without_numbers(path: str) -> str:
    """Return a key that is equal for a path and those that `TakenNames.choose` may return for it."""
    return _NUMBER.sub("", case_fold_key(path))


class Mode(IntEnum):
    """Modes of tree entries; a gitlink (0o160000) is refused on reading."""

    TREE = 0o040000
    REGULAR = 0o100644
    EXECUTABLE = 0o100755
    SYMLINK = 0o120000


class File(Struct, frozen=True):
    """One file of a package: bytes, mode and the id of its blob."""

    data: bytes
    mode: Mode
    oid: Oid

    @classmethod
    def of(cls, data: bytes, mode: Mode = Mode.REGULAR) -> Self:
        """Return the file with these bytes, and compute its id."""
        return cls(data, mode, object_id("blob", data))


Files = Mapping[str, File]
"""A package's content: paths relative to the package, `/`-separated, in any order."""


class TreeEntry(NamedTuple):
    """One entry of a Git tree."""

    name: str
    mode: int
    oid: Oid


class Commit(Struct, frozen=True):
    """A commit: its id and committer time in seconds."""

    oid: Oid
    time: int


class Signature(NamedTuple):
    """Author or committer of a commit with its time, in seconds since the epoch, written as UTC."""

    name: str
    email: str
    time: int

    def __str__(self) -> str:
        return f"{self.name} <{self.email}> {self.time} +0000"


def object_id(kind: str, data: bytes) -> Oid:
    """Return the Git id of `data` as an object of `kind`."""
    return Oid(sha1(b"%s %d\0" % (kind.encode(), len(data)) + data).hexdigest())


def sha1(data: bytes = b"") -> "hashlib._Hash":
    """Return the digest by which Git names objects and checks files; FIPS forbids it for secrets only."""
    return hashlib.sha1(data, usedforsecurity=False)


def tree_bytes(entries: Iterable[TreeEntry]) -> bytes:
    """Return the bytes of a tree object."""
    # Git sorts directories as if their names ended with a slash.
    ordered = sorted(entries, key=lambda e: e.name.encode() + (b"/" if e.mode == Mode.TREE else b""))
    return b"".join(b"%o %s\0" % (e.mode, e.name.encode()) + bytes.fromhex(e.oid) for e in ordered)


def directory_objects(files: Files, before: Iterable[str] = ()) -> tuple[Oid, dict[Oid, bytes]]:
    """Return the root tree's id and every tree object that holds `files`.

    Deterministic: the order of `files` does not matter. No other function makes trees of files.

    Raises:
        NamesError: No tree may hold them, see `check_names`.
    """
    check_names(files, before)
    return _objects(files)


def tree_id(files: Files) -> Oid:
    """Return the id of the tree that would hold `files`, whatever their names are."""
    return _objects(files)[0]


def _objects(files: Files) -> tuple[Oid, dict[Oid, bytes]]:
    trees: dict[Oid, bytes] = {}
    children: dict[str, dict[str, File]] = {}
    entries: list[TreeEntry] = []
    for path, file in files.items():
        head, slash, rest = path.partition("/")
        if slash:
            children.setdefault(head, {})[rest] = file
        else:
            entries.append(TreeEntry(head, file.mode, file.oid))
    for name, below in children.items():
        oid, objects = _objects(below)
        trees.update(objects)
        entries.append(TreeEntry(name, Mode.TREE, oid))
    data = tree_bytes(entries)
    root = object_id("tree", data)
    trees[root] = data
    return root, trees


def commit_bytes(
    tree: Oid, parents: Iterable[Oid], author: Signature, committer: Signature, message: str
) -> bytes:
    """Return a commit object's bytes."""
    lines = [f"tree {tree}", *(f"parent {p}" for p in parents), f"author {author}", f"committer {committer}"]
    return ("\n".join(lines) + "\n\n" + message).encode()
