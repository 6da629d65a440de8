"""Commits that the text of a pull request tells: those of upstream, and those that set local values."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import islice

from msgspec.structs import replace

from reconciler.base.errors import ReconcilerError
from reconciler.functions.secrets import MASK
from reconciler.git.repository import Mirror, Mirrors
from reconciler.names.ids import Oid
from reconciler.names.objects import File
from reconciler.names.refs import HEADS
from reconciler.plan.changes import Change, UpstreamCommits
from reconciler.policy import Limits
from reconciler.render.answers import current_value
from reconciler.render.update import Conflict
from reconciler.report.markdown import UpstreamChange

_MOST_COMPARED = 20
"""Commits of a file that are searched for the value of a conflict."""
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
    origins: dict[str, UpstreamChange] = {}
    for note in change.conflicts if head is not None else ():
        with suppress(ReconcilerError):  # the text does without, as where an old version was not fetched
            path = f"{change.package.path}/{note.path}".lstrip("/")
            origins.update((note.name, origin) for origin in _origins(mirror, Oid(str(head)), path, note))
    return origins


def _origins(mirror: Mirror, head: Oid, path: str, conflict: Conflict) -> Iterator[UpstreamChange]:
    """Yield the newest commit that changed the value of a conflict, or deleted it."""
    place = replace(conflict, reason="BothChanged")
    changed = (
        (oid, blob, parents)
        for oid in islice(mirror.walk(head), _MOST_WALKED)
        for blob, parents in [(mirror.blob_at(oid, path), mirror.find_parents(oid) or ())]
        if (blob or parents) and all(mirror.blob_at(parent, path) != blob for parent in parents)
    )
    for oid, blob, parents in islice(changed, _MOST_COMPARED):
        before = _value(mirror, mirror.blob_at(parents[0], path) if parents else None, place)
        if before != _value(mirror, blob, place):
            yield _described(mirror, oid)._replace(replaced=before)
            return


def known_bases(change: Change, origins: Mapping[str, UpstreamChange]) -> Change:
    """Return a change in which conflicts without a known base have what the local value replaced.

    A conflict that waits has none: its record has the two sides, masked where a Secret is near.
    """
    notes = [
        replace(note, base=origins[note.name].replaced)
        if note.base is None and note.name in origins and MASK not in (note.upstream, note.local)
        else note
        for note in change.conflicts
    ]
    return replace(change, conflicts=tuple(notes))


def _described(mirror: Mirror, oid: Oid) -> UpstreamChange:
    commit = mirror.commit(oid)
    return UpstreamChange(oid, commit.message.strip().partition("\n")[0], commit.author.name)


def _value(mirror: Mirror, blob: Oid | None, place: Conflict) -> str | None:
    most = Limits().package_file_bytes
    return current_value({place.path: File.of(mirror.blob(blob, most))}, place) if blob else None


def _changes(mirror: Mirror, upstream: UpstreamCommits) -> Iterator[UpstreamChange]:
    """Yield the commits of one side that change the directory; of a rollback those that are taken back."""
    before, after = Oid(upstream.before), Oid(upstream.after)
    older, newer = (after, before) if mirror.contains(before, after) else (before, after)
    for oid in islice(mirror.walk(newer, mirror.ancestry(older)), _MOST_WALKED):
        tree = mirror.subtree(oid, upstream.path)
        parents = mirror.find_parents(oid) or ()
        if tree is not None and all(mirror.subtree(parent, upstream.path) != tree for parent in parents):
            yield _described(mirror, oid)
