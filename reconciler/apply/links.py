"""Links and commits in the text of pull requests: only those that are sure to be there."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from typing import NamedTuple
from urllib.parse import quote

from msgspec import Struct
from msgspec.structs import replace

from reconciler.base.errors import ReconcilerError
from reconciler.base.lazy import regex
from reconciler.functions.secrets import MASK
from reconciler.git.repository import Mirror, Mirrors
from reconciler.git.trees import PackageRefusedError
from reconciler.names.ids import Oid
from reconciler.names.objects import File, Files
from reconciler.names.refs import HEADS
from reconciler.plan.changes import Change, UpstreamCommits
from reconciler.policy import ForgeKind, ForgeRule, Limits, find_rule
from reconciler.render.answers import current_value
from reconciler.render.update import Conflict
from reconciler.report.report import UpstreamChange

_HOSTS = {
    "github.com": ForgeKind.GITHUB,
    "gitlab.com": ForgeKind.GITLAB,
    "codeberg.org": ForgeKind.GITEA,
    "dev.azure.com": ForgeKind.AZURE,
    "bitbucket.org": ForgeKind.BITBUCKET,
}
"""Public hosts with their product; their pages have the host of their SSH addresses."""
_WEB = regex(r"(https?)://(?:[^@/]*@)?([A-Za-z0-9.-]+(?::\d+)?)/([A-Za-z0-9._/~-]+?)(?:\.git)?/?")
_SSH = regex(r"(?:ssh://)?git@([A-Za-z0-9.-]+)[:/]([A-Za-z0-9._/~-]+?)(?:\.git)?/?")


class _Pages(NamedTuple):
    """The pages of a forge, below the address of a repository."""

    compare: str
    directory: str
    file: str
    line: str = "#L{line}"


_PAGES = {
    ForgeKind.GITHUB: _Pages("/compare/{before}...{after}", "/tree/{commit}/{path}", "/blob/{commit}/{path}"),
    ForgeKind.GITLAB: _Pages(
        "/-/compare/{before}...{after}", "/-/tree/{commit}/{path}", "/-/blob/{commit}/{path}"
    ),
    ForgeKind.GITEA: _Pages(
        "/compare/{before}...{after}", "/src/commit/{commit}/{path}", "/src/commit/{commit}/{path}"
    ),
    ForgeKind.AZURE: _Pages(
        "/branchCompare?baseVersion=GC{before}&targetVersion=GC{after}",
        "?version=GC{commit}&path=/{path}",
        "?version=GC{commit}&path=/{path}",
        "&line={line}&lineEnd={line}&lineStartColumn=1&lineEndColumn=999",
    ),
    ForgeKind.BITBUCKET: _Pages(
        "/branches/compare/{after}%0D{before}",
        "/src/{commit}/{path}",
        "/src/{commit}/{path}",
        "#lines-{line}",
    ),
}


class Web(Struct, frozen=True):
    """The pages of one repository on its forge."""

    kind: ForgeKind
    address: str

    def compare(self, before: str, after: str) -> str:
        """Return the address of the difference between two commits."""
        return self.address + _PAGES[self.kind].compare.format(before=before, after=after)

    def directory(self, commit: str, path: str) -> str:
        """Return the address of a directory at a commit."""
        return self.address + _PAGES[self.kind].directory.format(commit=commit, path=quote(path, safe="/"))

    def line(self, commit: str, path: str, line: int) -> str:
        """Return the address of a line of a file at a commit."""
        pages = _PAGES[self.kind]
        where = self.address + pages.file.format(commit=commit, path=quote(path, safe="/"))
        return where + (pages.line.format(line=line) if line > 0 else "")


def find_web(remote: str, rules: Iterable[ForgeRule]) -> Web | None:
    """Return the pages of a repository, None where its forge or their address is not known."""
    rule = find_rule(rules, remote)
    if rule is not None and rule.kind is ForgeKind.LOCAL:
        return None
    if match := _WEB.fullmatch(remote):
        kind = rule.kind if rule is not None else _HOSTS.get(match[2])
        return Web(kind, f"{match[1]}://{match[2]}/{match[3]}") if kind else None
    # By SSH a forge may have another host or port than its pages.
    if (match := _SSH.fullmatch(remote)) and (kind := _HOSTS.get(match[1])):
        return Web(kind, f"https://{match[1]}/{match[2]}")
    return None


class Links(Struct, frozen=True):
    """Links about changes of one run; `commit` is that of the control repository."""

    rules: tuple[ForgeRule, ...] = ()
    control: Mirror | None = None
    commit: Oid | None = None

    def of(self, change: Change, mirror: Mirror, base: str) -> Iterator[tuple[str, str]]:
        """Yield the address behind facts of a change's text: its package, manifest and upstream."""
        web_forge, request = find_web(mirror.remote, self.rules), change.request
        main = mirror.refs().get(f"{HEADS}{base}")
        if web_forge is not None and main and mirror.subtree(main, change.package.path) is not None:
            yield "package", web_forge.directory(main, change.package.path)
        if manifest := self._manifest(change):
            yield "manifest", manifest
        web = find_web(request.upstream.remote, self.rules) if request and request.upstream else None
        if web is not None and request is not None and request.upstream is not None:
            _, path, before, after = request.upstream
            has_both = before and before != after
            yield "upstream", web.compare(before, after) if has_both else web.directory(after, path)

    def _manifest(self, change: Change) -> str:
        """Return the address of the manifest, "" where the file is not in the control repository."""
        web = find_web(self.control.remote, self.rules) if self.control is not None else None
        where = change.location
        if web is None or where is None or self.control is None or self.commit is None:
            return ""
        is_there = self.control.blob_at(self.commit, where.path) is not None
        return web.line(self.commit, where.path, where.line) if is_there else ""

    def whole_difference(self, mirror: Mirror, base: str, head: str) -> str:
        """Return the address of everything that a pull request changes, "" where it is not known."""
        web, refs = find_web(mirror.remote, self.rules), mirror.refs()
        before, after = refs.get(f"{HEADS}{base}"), refs.get(f"{HEADS}{head}")
        return web.compare(before, after) if web is not None and before and after else ""


NO_LINKS = Links()


_MOST_COMPARED = 20
"""Commits of a file that are searched for the value of a conflict."""
_MOST_WALKED = 2000
"""Commits between two revisions that are looked at; what is older is not listed."""


class UpstreamLog:
    """Reads the commits that changed a package between two revisions; the targets of one run share it."""

    def __init__(self, mirrors: Mirrors, limits: Limits) -> None:
        self.mirrors, self.limits = mirrors, limits
        self._read: dict[UpstreamCommits, tuple[UpstreamChange, ...]] = {}

    def changes(self, upstream: UpstreamCommits | None) -> tuple[UpstreamChange, ...]:
        """Return them, the newest first; none for a new package, or where they cannot be read."""
        if upstream is None or not upstream.before:
            return ()
        if upstream not in self._read:
            try:
                self._read[upstream] = tuple(_changes(self.mirrors.open(upstream.remote), upstream))
            except ReconcilerError:  # the text does without
                self._read[upstream] = ()
        return self._read[upstream]


def unmade_files(mirrors: Mirrors, change: Change, limits: Limits) -> Files:
    """Return the upstream package of a draft that functions did not make yet, as they wait or failed. Total.

    Its Secrets have values that the draft has in other files alone.
    """
    upstream = change.request.upstream if change.request and (change.conflicts or change.failed) else None
    with suppress(ReconcilerError, PackageRefusedError):
        if upstream is not None:
            mirror = mirrors.open(upstream.remote)
            tree = mirror.subtree(Oid(upstream.after), upstream.path)
            return mirror.files(tree, limits) if tree else {}
    return {}


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
