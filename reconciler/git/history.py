"""History: ancestry, first parents and who last touched a path, right whatever the clocks of people say.

Our own commits are as old as their inputs, so a parent may be younger than its child; nothing here
takes a commit's time for its place. A parent that is not here (a shallow clone) ends the history.
"""

import heapq
from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator
from typing import Protocol

from reconciler.git.commits import CommitData
from reconciler.ids import Oid


class Log(Protocol):
    """Commits by id."""

    def find_commit(self, oid: Oid) -> CommitData | None:
        """Return a commit, None if it is not here."""
        ...

    def find_parents(self, oid: Oid) -> tuple[Oid, ...] | None:
        """Return a commit's parents, None if it is not here; much cheaper than the whole commit."""
        ...


def ancestors(log: Log, tip: Oid) -> frozenset[Oid]:
    """Return `tip` and everything reachable from it."""
    return frozenset(walk(log, tip, frozenset()))


def walk(log: Log, tip: Oid, hidden: Container[Oid]) -> Iterator[Oid]:
    """Yield what is reachable from `tip` without passing `hidden`, nearest first."""
    seen = {tip}
    queue = deque([tip])
    while queue:
        oid = queue.popleft()
        if oid in hidden or (parents := log.find_parents(oid)) is None:
            continue
        yield oid
        for parent in parents:
            if parent not in seen:
                seen.add(parent)
                queue.append(parent)


def first_parents(log: Log, tip: Oid, until: Oid | None = None) -> Iterator[CommitData]:
    """Yield `tip`, its first parent and so on, newest first; `until` itself is not yielded."""
    oid: Oid | None = tip
    while oid is not None and oid != until and (commit := log.find_commit(oid)) is not None:
        yield commit
        oid = commit.parents[0] if commit.parents else None


def merge_base(log: Log, main: Container[Oid], tip: Oid) -> Oid | None:
    """Return the best commit that `tip` shares with the ancestry `main`, None if it shares none.

    Of several (criss-cross merges) the youngest; deterministic.
    """
    found: set[Oid] = set()
    seen = {tip}
    queue = deque([tip])
    while queue:
        oid = queue.popleft()
        if oid in main:
            found.add(oid)
        else:
            fresh = [parent for parent in log.find_parents(oid) or () if parent not in seen]
            seen.update(fresh)
            queue.extend(fresh)
    if len(found) > 1:
        found -= {older for one in found for older in ancestors(log, one) & found if older != one}
    return max(found, key=lambda oid: (_time(log, oid), oid), default=None)


def last_touched(
    log: Log, changed: Callable[[Oid, Oid, Iterable[str]], set[str]], tip: Oid, paths: Iterable[str]
) -> dict[str, int]:
    """Return the committer time of the commit that last touched each path."""
    return {path: _time(log, oid) for path, oid in last_touching(log, changed, tip, paths).items()}


def last_touching(
    log: Log, changed: Callable[[Oid, Oid, Iterable[str]], set[str]], tip: Oid, paths: Iterable[str]
) -> dict[str, Oid]:
    """Return the commit that last touched each path, in one walk.

    A merge touched a path only if its content there equals none of its parents'. Where history
    ends (its root, or a shallow clone) the last commit there is, counts.
    """
    commits: dict[str, Oid] = {}
    pending: dict[Oid, set[str]] = {tip: set(paths)}
    heap = [(-_time(log, tip), tip)]
    while heap:
        _, oid = heapq.heappop(heap)
        here = pending.pop(oid, set())
        commit = log.find_commit(oid)
        if commit is None:
            continue
        parents = [parent for oid in commit.parents if (parent := log.find_commit(oid)) is not None]
        for parent in parents:
            if not here:
                break
            same = here - changed(parent.tree, commit.tree, here)
            here -= same
            if same:
                pending.setdefault(parent.oid, set()).update(same)
                heapq.heappush(heap, (-parent.committer.time, parent.oid))
        commits.update(dict.fromkeys(here, commit.oid))
    return commits


def _time(log: Log, oid: Oid) -> int:
    commit = log.find_commit(oid)
    return commit.committer.time if commit else 0
