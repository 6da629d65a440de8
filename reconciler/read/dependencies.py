"""What resolution needs beside the manifests: packages that package repositories publish, and the locks."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from reconciler.dependencies.decision import is_lock_file
from reconciler.dependencies.dialects import read_kpt, version_of
from reconciler.dependencies.dialects.reading import Reading
from reconciler.dependencies.lockfile import LOCKS_DIRECTORY
from reconciler.dependencies.model import Candidate
from reconciler.dependencies.versions import VersionError, parse_loose
from reconciler.errors import Location, Problem, UnavailableError
from reconciler.git.files import PackageRefusedError
from reconciler.git.repository import Mirror, Mirrors
from reconciler.ids import ObjectName, Oid
from reconciler.inventory import Inventory, PackageRevision, RepositoryView, Source
from reconciler.policy import Limits
from reconciler.read.documents import FileContent, parse_file, yaml_limits
from reconciler.read.files import FoundFile, Objects, Walk

MANIFESTS = ("package.yaml", "package.yml")
"""Where a kpt package says what it needs."""

_GROUP = "data.packaging.carvel.dev/"


@dataclass(frozen=True, slots=True)
class Published:
    """Versions of kpt packages that say what they need.

    A published revision cannot be corrected, so what is wrong with one is a warning: it is no candidate.
    """

    candidates: tuple[Candidate, ...] = ()
    warnings: tuple[Problem, ...] = ()


@dataclass(frozen=True, slots=True)
class DependencyFiles:
    """All that `read` adds for resolution; empty where nobody asks for a package and nothing is locked."""

    published: Published = Published()
    locks: Mapping[str, bytes] = field(default_factory=dict)


class _Place(NamedTuple):
    view: RepositoryView
    revision: PackageRevision
    file: str
    oid: Oid


def read_dependencies(inventory: Inventory, mirrors: Mirrors) -> DependencyFiles:
    """Return the candidates of every registered repository and the locks of the state branch.

    Costs next to nothing where no manifest asks for a package.

    Raises:
        UnavailableError: The control repository cannot be read.
    """
    known = inventory.control
    locks = read_lock_files(mirrors.open(known.remote), known.state, inventory.policy.limits)
    if not inventory.documents:
        return DependencyFiles(locks=locks)
    return DependencyFiles(read_candidates(inventory.repositories, mirrors, inventory.policy.limits), locks)


def read_lock_files(objects: Objects, commit: Oid | None, limits: Limits) -> dict[str, bytes]:
    """Return the lock files of a commit of the state branch; what is too large to be one is left out.

    Raises:
        UnavailableError: The control repository cannot be read.
    """
    tree = objects.subtree(commit, LOCKS_DIRECTORY) if commit else None
    if tree is None:
        return {}
    walked = Walk((".json",)).below(objects, tree, LOCKS_DIRECTORY)
    files = [file for file in walked if isinstance(file, FoundFile) and is_lock_file(file.path)]
    objects.ensure(file.oid for file in files)
    return dict(_blobs(objects, files, limits))


def _blobs(objects: Objects, files: Iterable[FoundFile], limits: Limits) -> Iterator[tuple[str, bytes]]:
    for file in files:
        try:
            yield file.path, objects.blob(file.oid, limits.manifest_bytes)
        except PackageRefusedError:
            continue


def read_candidates(
    views: Mapping[ObjectName, RepositoryView], mirrors: Mirrors, limits: Limits
) -> Published:
    """Return every published revision that has a `package.yaml`, one batch of reading per repository.

    Every distinct file is parsed once, whatever revisions hold it. A repository that fails is left
    out: it has its problem already.
    """
    by_url: dict[str, list[RepositoryView]] = {}
    for view in views.values():
        if view.is_available:
            by_url.setdefault(view.url, []).append(view)
    readings: list[Reading] = []
    for siblings in by_url.values():
        try:
            readings += _read_repository(mirrors.open(siblings[0].remote), siblings, limits)
        except UnavailableError:
            continue
    warnings = {problem for reading in readings for problem in (*reading.problems, *reading.warnings)}
    candidates = tuple(candidate for reading in readings for candidate in reading.candidates)
    return Published(candidates, tuple(sorted(warnings)))


def _read_repository(mirror: Mirror, views: Iterable[RepositoryView], limits: Limits) -> list[Reading]:
    places = [place for view in views for place in _places(mirror, view)]
    mirror.ensure({place.oid for place in places})
    contents = {oid: _content(mirror, oid, limits) for oid in sorted({place.oid for place in places})}
    return [reading for place in places for reading in _readings(place, contents[place.oid])]


def _places(mirror: Mirror, view: RepositoryView) -> Iterator[_Place]:
    for state in view.packages.values():
        for revision in state.published:
            if not _is_version(version_of(_tag(revision))):
                continue
            for file in MANIFESTS:
                if oid := mirror.blob_at(revision.tree, file):
                    yield _Place(view, revision, file, oid)
                    break


def _tag(revision: PackageRevision) -> str:
    return revision.ref.rpartition("/")[2]


def _is_version(text: str) -> bool:
    try:
        parse_loose(text)
    except VersionError:
        return False
    return True


def _content(mirror: Mirror, oid: Oid, limits: Limits) -> FileContent:
    try:
        return parse_file("", mirror.blob(oid, limits.manifest_bytes), yaml_limits(limits))
    except PackageRefusedError:
        return FileContent()


def _readings(place: _Place, content: FileContent) -> Iterator[Reading]:
    """Yield what a revision's manifest says; its version is its tag's, its digest its tree."""
    view, revision = place.view, place.revision
    tag = _tag(revision)
    path = f"{view.key.name}/{revision.path}/{tag}/{place.file}"
    for broken in content.broken:
        where = Location(path, *broken.problem.location[1:])
        yield Reading(problems=(replace(broken.problem, location=where, subject=f"package {revision.path}"),))
    for value, marks in content.objects:
        if not isinstance(value, Mapping) or not str(value.get("apiVersion") or "").startswith(_GROUP):
            continue
        reading = read_kpt(
            value,
            Source(Location(path, *marks.location[1:]), revision.commit.time, marks),
            repository=view.url,
            path=revision.path,
            revision=version_of(tag),
        )
        found = (replace(c, digest=revision.tree, source=tag) for c in reading.candidates)
        yield replace(reading, candidates=tuple(found))
