"""Files of the control repository at a commit: which there are below a path, never what is in them."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from reconciler.api.kptfile import KPTFILE
from reconciler.git.trees import Refusal
from reconciler.ids import Oid
from reconciler.objects import Entry, Mode

REGULAR = frozenset({Mode.REGULAR, Mode.EXECUTABLE})


class Objects(Protocol):
    """What reading a control repository needs of it; `git.repository.Mirror` is one."""

    def subtree(self, commit_or_tree: Oid, path: str) -> Oid | None:
        """Return the tree at `path`, None if there is no directory."""
        ...

    def blob_at(self, commit_or_tree: Oid, path: str) -> Oid | None:
        """Return the blob at `path`, None if there is no regular file."""
        ...

    def judged(self, tree: Oid) -> tuple[Entry | Refusal, ...]:
        """Return every entry of a tree, those that nobody should touch as refusals."""
        ...

    def ensure(self, oids: Iterable[Oid]) -> None:
        """Fetch the objects that are not here yet, in one batch."""
        ...

    def blob(self, oid: Oid, max_bytes: int) -> bytes:
        """Return a blob's bytes, looking at its size first."""
        ...

    def last_touching(self, commit: Oid, paths: Iterable[str]) -> Mapping[str, Oid]:
        """Return for each path the commit that last touched it."""
        ...

    def last_touched(self, commit: Oid, paths: Iterable[str]) -> Mapping[str, int]:
        """Return for each path the committer time of the commit that last touched it."""
        ...


class FoundFile(NamedTuple):
    """A file: its path from the repository's root, its blob, and the package directory around it, if any."""

    path: str
    oid: Oid
    package: str | None = None


class Unread(NamedTuple):
    """A path that was not looked into, and why: what is behind it is unknown, not absent."""

    path: str
    why: str


@dataclass(frozen=True, slots=True)
class Walk:
    """Which files a walk is interested in: names that end so, outside hidden and skipped directories."""

    suffixes: tuple[str, ...]
    skipped: frozenset[str] = frozenset()
    depth: int = 50

    def below(self, objects: Objects, tree: Oid, path: str) -> Iterator[FoundFile | Unread]:
        """Yield the files below the directory `path`, whose tree is `tree`. Links are never followed."""
        yield from self._below(objects, tree, path, None)

    def _below(
        self, objects: Objects, tree: Oid, path: str, package: str | None
    ) -> Iterator[FoundFile | Unread]:
        entries = [e for e in objects.judged(tree) if not e.name.startswith(".")]
        if package is None and any(isinstance(e, Entry) and _is_kptfile(e) for e in entries):
            package = path
        for entry in entries:
            full = f"{path}/{entry.name}" if path else entry.name
            if isinstance(entry, Refusal):
                yield Unread(full, entry.why)
            elif entry.mode == Mode.SYMLINK:
                yield Unread(full, "it is a symbolic link")
            elif entry.mode in REGULAR and entry.name.endswith(self.suffixes):
                yield FoundFile(full, entry.oid, package)
            elif entry.mode == Mode.TREE and full not in self.skipped:
                if full.count("/") >= self.depth:
                    yield Unread(full, f"it is deeper than {self.depth} directories")
                else:
                    yield from self._below(objects, entry.oid, full, package)


def _is_kptfile(entry: Entry) -> bool:
    return entry.name == KPTFILE and entry.mode in REGULAR


def is_below(path: str, directory: str) -> bool:
    """Tell whether `path` is `directory` or inside it; "" is the root."""
    return not directory or path == directory or path.startswith(f"{directory}/")
