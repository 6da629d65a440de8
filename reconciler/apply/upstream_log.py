"""Commits of an upstream package between two revisions, for the text of a pull request."""

from collections.abc import Iterator
from itertools import islice

from reconciler.base.errors import ReconcilerError
from reconciler.git.repository import Mirror, Mirrors
from reconciler.names.ids import Oid
from reconciler.plan.changes import UpstreamCommits
from reconciler.report.markdown import UpstreamChange

_MOST_WALKED = 2000
"""Commits between two revisions that are looked at; what is older is not listed."""


class UpstreamLog:
    """Reads the commits that changed a package between two revisions; the targets of one run share it."""

    def __init__(self, mirrors: Mirrors) -> None:
        self._mirrors = mirrors
        self._read: dict[UpstreamCommits, tuple[UpstreamChange, ...]] = {}

    def changes(self, upstream: UpstreamCommits | None) -> tuple[UpstreamChange, ...]:
        """Return them, the newest first; none for a new package, or where they cannot be read."""
        if upstream is None or not upstream.before:
            return ()
        if upstream not in self._read:
            try:
                mirror = self._mirrors.open(upstream.remote)
                self._read[upstream] = tuple(_changes(mirror, upstream))
            except ReconcilerError:  # the text does without
                self._read[upstream] = ()
        return self._read[upstream]


def _changes(mirror: Mirror, upstream: UpstreamCommits) -> Iterator[UpstreamChange]:
    """Yield the commits of one side that change the directory; of a rollback those that are taken back."""
    before, after = Oid(upstream.before), Oid(upstream.after)
    older, newer = (after, before) if mirror.contains(before, after) else (before, after)
    for oid in islice(mirror.walk(newer, mirror.ancestry(older)), _MOST_WALKED):
        own = mirror.subtree(oid, upstream.path)
        parents = mirror.find_parents(oid) or ()
        if own is not None and all(mirror.subtree(parent, upstream.path) != own for parent in parents):
            commit = mirror.find_commit(oid)
            if commit is not None:
                subject = commit.message.strip().partition("\n")[0]
                yield UpstreamChange(oid, subject, commit.author.name)
