"""The history of commits: ancestry, first parents, merge bases and the last change of paths.

Correct whatever the clocks of people: our own commits are as old as their inputs, so a parent may be
younger than its child, and nothing here orders commits by time alone. A parent that is missing (a shallow
clone) ends the history.
"""

import heapq
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Container, Iterable, Iterator, Mapping

from reconciler.git.commits import CommitData
from reconciler.names.ids import Oid


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
