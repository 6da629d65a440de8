"""Commits: lenient parsing, annotations in messages, and history: ancestry, merge bases, last changes."""

import codecs
import heapq
import json
import re
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from msgspec import Struct, field

from reconciler.base.lazy import regex
from reconciler.names.ids import Oid
from reconciler.names.objects import Signature

_OID = regex(rb"[0-9a-f]{40}")
_PERSON = regex(rb"(?P<name>[^<]*?) *<(?P<email>[^>]*)>(?: +(?P<time>-?[0-9]{1,18}))?.*", re.DOTALL)
_LATEST = 253_402_300_799
"""The last second of the year 9999: no library that formats dates fails for it."""


class CommitData(Struct, frozen=True):
    """A commit as it is stored; times in seconds, undecodable text replaced."""

    oid: Oid
    tree: Oid
    parents: tuple[Oid, ...]
    author: Signature
    committer: Signature
    message: str


def parse_commit(oid: Oid, data: bytes) -> CommitData | None:
    """Parse a commit object; return None if it has no tree. Total.

    A missing author or committer has no name and time 0, as git shows it.
    """
    header, _, message = data.partition(b"\n\n")
    fields: dict[bytes, list[bytes]] = {}
    # A folded header, as that of a signature, goes on in lines that begin with a blank: their name is empty.
    for line in header.split(b"\n"):
        name, _, value = line.partition(b" ")
        fields.setdefault(name, []).append(value)
    tree = fields.get(b"tree", [b""])[0]
    if not _OID.fullmatch(tree):
        return None
    parents = (parent for parent in fields.get(b"parent", ()) if _OID.fullmatch(parent))
    return CommitData(
        oid=oid,
        tree=Oid(tree.decode()),
        parents=tuple(Oid(parent.decode()) for parent in parents),
        author=_parse_person(fields.get(b"author", [b""])[0]),
        committer=_parse_person(fields.get(b"committer", [b""])[0]),
        message=decode_text(message, fields.get(b"encoding", [b""])[0]),
    )


def decode_text(text: bytes, encoding: bytes = b"") -> str:
    """Decode text in the encoding of a commit, or as UTF-8 if Python cannot use that encoding.

    A codec may be unknown, may be no text encoding, or may refuse to replace what it cannot decode:
    LookupError and UnicodeError, a ValueError, cover them. From Python 3.14 on `punycode` drops such text.
    """
    if not encoding:
        return text.decode(errors="replace")
    with suppress(LookupError, ValueError):
        codec = codecs.lookup(encoding.decode("ascii")).name
        if codec != "punycode":
            return text.decode(codec, "replace")
    return text.decode(errors="replace")


def _parse_person(value: bytes) -> Signature:
    match = _PERSON.fullmatch(value)
    if match is None:
        return Signature("", "", 0)
    time = valid_time(int(match["time"] or 0))
    return Signature(decode_text(match["name"]), decode_text(match["email"]), time)


def valid_time(seconds: int) -> int:
    """Return the nearest valid time of a commit: from 1970 to the year 9999."""
    return min(max(seconds, 0), _LATEST)


class PackageAnnotation(Struct, frozen=True):
    """The `kpt:` line of a commit message: advisory, never evidence of ownership."""

    package: str
    workspace: str = ""
    revision: str = ""
    task: Mapping[str, Any] | None = None
    labels: Mapping[str, str] = field(default_factory=dict)


def parse_annotations(message: str) -> tuple[PackageAnnotation, ...]:
    """Return the annotations of a commit message in their order, without malformed ones. Total."""
    annotations = []
    for line in message.splitlines():
        if line.startswith("kpt:"):
            try:
                fields = json.loads(line.removeprefix("kpt:"))
            except (ValueError, RecursionError):
                continue
            if isinstance(fields, dict):
                annotations.append(_annotation(fields))
    return tuple(annotations)


def _annotation(fields: Mapping[str, Any]) -> PackageAnnotation:
    package, workspace, revision = (
        str(fields.get(k) or "") for k in ("package", "workspaceName", "revision")
    )
    task, labels = fields.get("task"), fields.get("labels")
    named = labels.items() if isinstance(labels, dict) else ()
    return PackageAnnotation(
        package,
        workspace,
        revision,
        task if isinstance(task, dict) else None,
        {key: value for key, value in named if isinstance(value, str)},
    )


class History(ABC):
    """Commits by id, and the walks over them. The ancestry of a commit is computed once."""

    def __init__(self) -> None:
        self._ancestry: dict[Oid, frozenset[Oid]] = {}

    @abstractmethod
    def find_commit(self, oid: Oid) -> CommitData | None:
        """Return a commit, None if it is missing or is not a commit."""

    @abstractmethod
    def find_parents(self, oid: Oid) -> tuple[Oid, ...] | None:
        """Return a commit's parents, None if it is missing; much cheaper than the whole commit."""

    @abstractmethod
    def changed_paths(self, old: Oid, new: Oid, paths: Iterable[str]) -> set[str]:
        """Return those of `paths` at which two trees differ."""

    def ancestry(self, tip: Oid) -> frozenset[Oid]:
        """Return `tip` and all its ancestors."""
        if tip not in self._ancestry:
            self._ancestry[tip] = frozenset(self.walk(tip))
        return self._ancestry[tip]

    def contains(self, tip: Oid, commit: Oid) -> bool:
        """Tell whether a commit is `tip` or one of its ancestors; the nearest are looked at first."""
        return commit == tip or commit in self._ancestry.get(tip, ()) or commit in self.walk(tip)

    def count_since(self, tip: Oid, commit: Oid) -> int:
        """Return the number of commits that `tip` contains and `commit` does not."""
        return sum(1 for _ in self.walk(tip, self.ancestry(commit)))

    def walk(self, tip: Oid, hidden: Container[Oid] = frozenset()) -> Iterator[Oid]:
        """Yield the commits reachable from `tip` without passing `hidden`, nearest first."""
        seen = {tip}
        queue = deque([tip])
        while queue:
            oid = queue.popleft()
            if oid in hidden or (parents := self.find_parents(oid)) is None:
                continue
            yield oid
            for parent in parents:
                if parent not in seen:
                    seen.add(parent)
                    queue.append(parent)

    def first_parents(self, tip: Oid, until: Oid | None = None) -> Iterator[CommitData]:
        """Yield `tip`, its first parent and so on, newest first; `until` itself is left out."""
        oid: Oid | None = tip
        while oid is not None and oid != until and (commit := self.find_commit(oid)) is not None:
            yield commit
            # The first parent of a merge is the branch that it was made on.
            oid = commit.parents[0] if commit.parents else None

    def merge_base(self, main: Oid, tip: Oid) -> Oid | None:
        """Return the best common ancestor; `main` is the long-lived side, its ancestry is cached."""
        return self.merge_base_with(self.ancestry(main), tip)

    def merge_base_with(self, ancestry: Container[Oid], tip: Oid) -> Oid | None:
        """Return the best commit that `tip` shares with an ancestry, None if it shares none.

        Deterministic: one of several best ones, which criss-cross merges have, and not by their dates.
        """
        shared: set[Oid] = set()
        seen = {tip}
        queue = deque([tip])
        while queue:
            oid = queue.popleft()
            if oid in ancestry:
                shared.add(oid)
            else:
                fresh = [parent for parent in self.find_parents(oid) or () if parent not in seen]
                seen.update(fresh)
                queue.extend(fresh)
        if len(shared) > 1:
            shared -= {older for oid in shared for older in self.ancestry(oid) & shared if older != oid}
        return max(shared, default=None)

    def last_touched(self, tip: Oid, paths: Iterable[str]) -> Mapping[str, int]:
        """Return for each path the committer time of the commit that last changed it, in one walk."""
        return {path: self._time(oid) for path, oid in self.last_touching(tip, paths).items()}

    def last_touching(self, tip: Oid, paths: Iterable[str]) -> Mapping[str, Oid]:
        """Return for each path the commit that last changed it, in one walk.

        A merge changed a path only if its content differs from that of every parent. Where history ends,
        the last commit counts.
        """
        commits: dict[str, Oid] = {}
        pending: dict[Oid, set[str]] = {tip: set(paths)}
        # By time for speed only: a parent that is popped too early is pushed again by its other children.
        heap = [(-self._time(tip), tip)]
        while heap:
            _, oid = heapq.heappop(heap)
            here = pending.pop(oid, set())
            commit = self.find_commit(oid)
            if commit is None:
                continue
            parents = [parent for oid in commit.parents if (parent := self.find_commit(oid)) is not None]
            for parent in parents:
                if not here:
                    break
                same = here - self.changed_paths(parent.tree, commit.tree, here)
                here -= same
                if same:
                    pending.setdefault(parent.oid, set()).update(same)
                    heapq.heappush(heap, (-parent.committer.time, parent.oid))
            commits.update(dict.fromkeys(here, commit.oid))
        return commits

    def _time(self, oid: Oid) -> int:
        commit = self.find_commit(oid)
        return commit.committer.time if commit else 0
