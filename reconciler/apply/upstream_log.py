"""Commits that the text of a pull request tells: those of upstream, and those that set local values."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import islice

from reconciler.base.errors import ReconcilerError
from reconciler.git.repository import Mirror, Mirrors
from reconciler.names.ids import Oid
from reconciler.names.objects import File
from reconciler.names.refs import HEADS
from reconciler.plan.changes import Change, ConflictNote, UpstreamCommits
from reconciler.policy import Limits
from reconciler.render.answers import current_value
from reconciler.render.update import Conflict
from reconciler.report.markdown import UpstreamChange

_MOST_COMPARED = 20
"""Commits of a file whose values are compared."""
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


def local_origins(mirror: Mirror, base: str, change: Change) -> Mapping[str, UpstreamChange]:
    """Return the commit on main that set the local value of each conflict, by the conflict's name."""
    head = mirror.refs().get(f"{HEADS}{base}")
    found: dict[str, UpstreamChange] = {}
    if head is None:
        return found
    for note in change.conflicts:
        path = f"{change.package.path}/{note.path}".lstrip("/")
        with suppress(ReconcilerError):  # the text does without
            found.update((note.name, each) for each in _origins(mirror, head, path, note))
    return found


def _origins(mirror: Mirror, head: Oid, path: str, note: ConflictNote) -> Iterator[UpstreamChange]:
    """Yield the newest commit that changed the value of a conflict, else the newest one of its file."""
    place = Conflict(note.path, note.resource, note.field, None, note.upstream, note.local, "BothChanged")
    changed = (
        (oid, blob, parents)
        for oid in islice(mirror.walk(head), _MOST_WALKED)
        for blob, parents in [(mirror.blob_at(oid, path), mirror.find_parents(oid) or ())]
        if blob and all(mirror.blob_at(parent, path) != blob for parent in parents)
    )
    first = None
    for oid, blob, parents in islice(changed, _MOST_COMPARED):
        commit = mirror.commit(oid)
        told = UpstreamChange(oid, commit.message.strip().partition("\n")[0], commit.author.name)
        first = first or told
        before = mirror.blob_at(parents[0], path) if parents else None
        try:
            was, now = (_value(mirror, each, place) for each in (before, blob))
        except ReconcilerError:  # an old version that was not fetched
            break
        if was != now:
            yield told
            return
    if first is not None:
        yield first


def _value(mirror: Mirror, blob: Oid | None, place: Conflict) -> str | None:
    most = Limits().package_file_bytes
    return current_value({place.path: File.of(mirror.blob(blob, most))}, place) if blob else None


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
