"""What resolution needs beside the manifests: packages that package repositories publish, and the locks."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from reconciler.dependencies.catalog.published import (
    DependencyInputs,
    PackageTree,
    PublishedPackages,
    read_package_version,
    repository_names,
)
from reconciler.dependencies.dialects import ParsedManifest, package_id, read_kpt, version_of
from reconciler.dependencies.lock.format import LOCKS_DIRECTORY, is_lock_file
from reconciler.dependencies.model.packages import Candidate
from reconciler.dependencies.versions import VersionError, parse_relaxed
from reconciler.errors import Location, Problem, UnavailableError
from reconciler.git.repository import Mirror, Mirrors
from reconciler.git.trees import PackageRefusedError
from reconciler.ids import ObjectName, Oid, PackageKey
from reconciler.inventory import (
    Inventory,
    PackageState,
    RepositoryView,
    Source,
    SourcedDocument,
    declared_upstreams,
)
from reconciler.policy import Limits
from reconciler.read.documents import FileContent, parse_file, yaml_limits
from reconciler.read.files import FileEntry, GitObjects, Walk, json_files
from reconciler.reasons import Reason

MANIFESTS = ("package.yaml", "package.yml")
"""Where a kpt package says what it needs."""

_GROUP = "data.packaging.carvel.dev/"
_UNTAGGED = "0.0.0"
"""The version of a state of a package that has no tag, where its manifest does not say one either."""


class _Place(NamedTuple):
    """One content of one package; without a `tag` it is no version, and nobody may choose it."""

    view: RepositoryView
    path: str
    tree: Oid
    tag: str
    time: int
    file: str
    oid: Oid | None

    @property
    def key(self) -> PackageTree:
        return PackageTree(PackageKey(self.view.url, self.path), self.tree)


def read_dependencies(inventory: Inventory, mirrors: Mirrors) -> DependencyInputs:
    """Return what the registered repositories publish, and the locks: main's where they are reviewed.

    Costs next to nothing where no manifest asks for a package.

    Raises:
        UnavailableError: The control repository cannot be read.
    """
    known, reviewed = inventory.control, inventory.reviewed
    if reviewed is None:
        locks = read_lock_files(mirrors.open(known.remote), known.state, inventory.policy.limits)
    else:
        files = {f"{LOCKS_DIRECTORY}/{path}": file.data for path, file in reviewed.files.items()}
        locks = {path: data for path, data in files.items() if is_lock_file(path)}
    if not (inventory.documents or inventory.variants or inventory.sets):
        return DependencyInputs(locks=locks)
    return DependencyInputs(read_published(inventory, mirrors), locks)


def read_lock_files(objects: GitObjects, commit: Oid | None, limits: Limits) -> dict[str, bytes]:
    """Return the lock files of a commit of the state branch; what is too large to be one is left out.

    Raises:
        UnavailableError: The control repository cannot be read.
    """
    files = json_files(objects, commit, LOCKS_DIRECTORY)
    return dict(_blobs(objects, [file for file in files if is_lock_file(file.path)], limits))


def _blobs(objects: GitObjects, files: Iterable[FileEntry], limits: Limits) -> Iterator[tuple[str, bytes]]:
    for file in files:
        try:
            yield file.path, objects.blob(file.oid, limits.manifest_bytes)
        except PackageRefusedError:
            continue


def read_published(inventory: Inventory, mirrors: Mirrors) -> PublishedPackages:
    """Return every revision that says what it needs, one batch of reading per repository.

    Every distinct file is parsed once, whatever revisions hold it. A repository that fails is left
    out: it has its problem already.
    """
    found = _Found(repository_names(inventory.repositories.values()), frozenset(_upstreams(inventory)))
    by_url: dict[str, list[RepositoryView]] = {}
    for view in inventory.repositories.values():
        if view.is_available:
            by_url.setdefault(view.url, []).append(view)
    for siblings in by_url.values():
        try:
            found.read(mirrors.open(siblings[0].remote), siblings, inventory)
        except UnavailableError:
            continue
    return found.published()


def _upstreams(inventory: Inventory) -> Iterator[PackageKey]:
    """Yield the packages that variants are made from."""
    for owner, upstream in declared_upstreams(inventory.variants, inventory.sets):
        view = inventory.repositories.get(ObjectName(owner.namespace, upstream.repo or ""))
        if view is not None:
            yield PackageKey(view.url, view.full_path(upstream.package or ""))


@dataclass(slots=True)
class _Found:
    names: Mapping[str, str]
    upstreams: frozenset[PackageKey]
    candidates: list[Candidate] = field(default_factory=list)
    revisions: dict[PackageTree, Candidate] = field(default_factory=dict)
    warnings: set[Problem] = field(default_factory=set)

    def published(self) -> PublishedPackages:
        return PublishedPackages(tuple(self.candidates), self.revisions, tuple(sorted(self.warnings)))

    def read(self, mirror: Mirror, views: Iterable[RepositoryView], inventory: Inventory) -> None:
        places = [place for view in views for place in self.places(mirror, view, inventory)]
        oids = {place.oid for place in places if place.oid is not None}
        mirror.ensure(oids)
        contents = {oid: _content(mirror, oid, inventory.policy.limits) for oid in sorted(oids)}
        speaking = {place.key.package for place in places if place.oid is not None}
        for place in (one for one in places if one.key.package in speaking):
            if place.oid is None:
                self.revisions.setdefault(place.key, self.silent(place))
            for reading in self.readings(place, contents[place.oid]) if place.oid else ():
                self.add(place, reading)

    def places(self, mirror: Mirror, view: RepositoryView, inventory: Inventory) -> Iterator[_Place]:
        for path, state in view.packages.items():
            is_upstream = PackageKey(view.url, path) in self.upstreams
            if not (is_upstream or _is_origin(view, state)):
                continue
            states = [(r.tree, _tag(r.ref), r.commit.time) for r in state.published]
            if is_upstream:
                states += [(tree, "", 0) for tree in _untagged(view, state, inventory)]
            for tree, tag, time in states:
                found = ((name, mirror.blob_at(tree, name)) for name in MANIFESTS)
                file, oid = next(((name, oid) for name, oid in found if oid), ("", None))
                yield _Place(view, path, tree, tag, time, file, oid)

    def readings(self, place: _Place, content: FileContent) -> Iterator[ParsedManifest]:
        """Yield what a manifest says; its version is the tag's, its digest the package's tree."""
        where = "/".join(part for part in (place.view.key.name, place.path, place.tag, place.file) if part)
        for broken in content.broken:
            location = Location(where, *broken.problem.location[1:])
            subject = f"package {place.path}"
            yield ParsedManifest(problems=(replace(broken.problem, location=location, subject=subject),))
        for value, marks in content.objects:
            if not isinstance(value, Mapping) or not str(value.get("apiVersion") or "").startswith(_GROUP):
                continue
            reading = read_kpt(
                value,
                Source(Location(where, *marks.location[1:]), place.time, marks),
                repository=self.names[place.view.url],
                path=place.path,
                revision=_version(place, value),
            )
            found = (replace(c, digest=place.tree, source=place.tag) for c in reading.candidates)
            yield replace(reading, candidates=tuple(found))

    def add(self, place: _Place, reading: ParsedManifest) -> None:
        self.warnings.update((*reading.problems, *reading.warnings))
        is_origin = _is_origin(place.view, place.view.packages[place.path])
        for candidate in reading.candidates:
            self.revisions.setdefault(place.key, candidate if is_origin else replace(candidate, names=()))
            if place.tag and is_origin:
                self.candidates.append(candidate)

    def silent(self, place: _Place) -> Candidate:
        """Return a revision that has no manifest, of a package of which another one has."""
        id_ = package_id(self.names[place.view.url], place.path)
        version = parse_relaxed(_version(place, {}))
        return Candidate(id_, version, digest=place.tree, source=place.tag)


def _is_origin(view: RepositoryView, state: PackageState) -> bool:
    """Whether others may be made from a package: not what was made for deployment, or is a variant itself."""
    header = state.main_header
    return state.exists and not view.deployment and not (header is not None and header.owner)


def _untagged(view: RepositoryView, state: PackageState, inventory: Inventory) -> Iterator[Oid]:
    """Yield the states of a package that a variant may follow although no revision of it has them."""
    tagged = {revision.tree for revision in state.published}
    trees = [state.main_tree, *(draft.tree for draft in state.drafts)]
    trees += [tree for at, tree in inventory.trees.items() if (at.url, at.path) == (view.url, state.path)]
    yield from sorted({tree for tree in trees if tree} - tagged)


def _tag(ref: str) -> str:
    """Return the version's part of a tag; empty where it is none."""
    tag = ref.rpartition("/")[2]
    return tag if _is_version(version_of(tag)) else ""


def _version(place: _Place, manifest: Mapping[str, object]) -> str:
    """Return the version of a state: its tag's, else the one that the author means it to be, marked so."""
    if place.tag:
        return version_of(place.tag)
    spec = manifest.get("spec")
    said = str(spec.get("version") or "") if isinstance(spec, Mapping) else ""
    return f"{said.partition('+')[0] if _is_version(said) else _UNTAGGED}+{place.tree[:12]}"


def _is_version(text: str) -> bool:
    try:
        parse_relaxed(text)
    except VersionError:
        return False
    return True


def _content(mirror: Mirror, oid: Oid, limits: Limits) -> FileContent:
    try:
        return parse_file("", mirror.blob(oid, limits.manifest_bytes), yaml_limits(limits))
    except PackageRefusedError:
        return FileContent()


INDEX_DIRECTORY = "index"
INDEX_SUFFIXES = (".yaml", ".yml", ".json")


@dataclass(frozen=True, slots=True)
class IndexFolders:
    """The documents of the index, sorted by place, and the files that are not YAML."""

    documents: tuple[SourcedDocument, ...] = ()
    problems: tuple[Problem, ...] = ()


def read_index_folders(objects: GitObjects, commit: Oid, limits: Limits) -> IndexFolders:
    """Return what stands below `index/` at a commit; nothing where there is no such directory.

    Isolated: a file that cannot be read is a problem, the others are read.

    Raises:
        UnavailableError: The control repository cannot be read.
    """
    tree = objects.subtree(commit, INDEX_DIRECTORY)
    if tree is None:
        return IndexFolders()
    walked = Walk(INDEX_SUFFIXES).below(objects, tree, INDEX_DIRECTORY)
    files = sorted(file for file in walked if isinstance(file, FileEntry))
    objects.ensure(file.oid for file in files)
    contents: dict[str, bytes] = {}
    problems = []
    for file in files:
        try:
            contents[file.path] = objects.blob(file.oid, limits.manifest_bytes)
        except PackageRefusedError as error:
            message = f"The file of the index was not read: {error.reason}"
            problems.append(Problem(Location(file.path), Reason.MANIFEST_UNREADABLE, message))
    return _parsed(contents, limits, problems)


def read_index_directory(root: Path, limits: Limits) -> IndexFolders:
    """Return what stands below `index/` of a working copy, committed or not."""
    found = (path for path in sorted((root / INDEX_DIRECTORY).rglob("*")) if path.suffix in INDEX_SUFFIXES)
    contents = {path.relative_to(root).as_posix(): path.read_bytes() for path in found if path.is_file()}
    return _parsed(contents, limits, ())


def parse_version(files: Mapping[str, bytes]) -> ParsedManifest:
    """Return what the files of one version's folder mean together, by path. Total."""
    folders = _parsed(files, Limits(), ())
    reading = read_package_version((one.value, one.source) for one in folders.documents)
    return replace(reading, problems=(*folders.problems, *reading.problems))


def _parsed(contents: Mapping[str, bytes], limits: Limits, problems: Iterable[Problem]) -> IndexFolders:
    documents: list[SourcedDocument] = []
    wrong = list(problems)
    for path, data in contents.items():
        content = parse_file(path, data, yaml_limits(limits))
        wrong += (broken.problem for broken in content.broken)
        for value, place in content.objects:
            if isinstance(value, Mapping):
                documents.append(SourcedDocument(value, Source(place.location, marks=place)))
            else:
                wrong.append(_no_object(place.location))
    return IndexFolders(tuple(sorted(documents, key=_place)), tuple(sorted(wrong)))


def _no_object(location: Location) -> Problem:
    return Problem(location, Reason.INVALID_MANIFEST, "A document of the index is a mapping")


def _place(document: SourcedDocument) -> Location:
    return document.source.location
