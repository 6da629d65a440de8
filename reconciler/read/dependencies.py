"""Read the inputs of dependency resolution: published packages, the package index and lock files."""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from reconciler.base.errors import Location, UnavailableError
from reconciler.base.reasons import Reason
from reconciler.dependencies.catalog.index import (
    INDEX_DIRECTORY,
    DependencyInputs,
    PackageTree,
    PublishedPackages,
    read_package_version,
    repository_names,
)
from reconciler.dependencies.dialects.carvel import package_id, read_kpt, version_of
from reconciler.dependencies.dialects.reading import ParsedManifest, parsed_or_broken
from reconciler.dependencies.lock.format import is_lock_file
from reconciler.dependencies.model.cluster import RefusedVersion
from reconciler.dependencies.model.packages import Candidate
from reconciler.dependencies.versions import VersionError, parse_relaxed
from reconciler.git.repository import Mirror, Mirrors
from reconciler.git.trees import PackageRefusedError
from reconciler.inventory.inventory import (
    Inventory,
    PackageRevision,
    PackageState,
    RepositoryView,
    Source,
    SourcedDocument,
    available_by_url,
    declared_upstreams,
)
from reconciler.names.ids import ObjectName, Oid, PackageKey
from reconciler.names.problems import Problem
from reconciler.names.refs import short_tag
from reconciler.policy import Limits
from reconciler.read.files import (
    LEFT_OUT,
    FileContent,
    UnreadPath,
    Walk,
    fetch_files,
    fetch_paths,
    parse_file,
    yaml_limits,
)
from reconciler.records.state import LOCKS_DIRECTORY, check_schema
from reconciler.resolve.upstreams import NOT_VERIFIED_HINT, find_fault

MANIFESTS = ("package.yaml", "package.yml")
"""Files of a kpt package that declare its dependencies."""

_GROUP = "data.packaging.carvel.dev/"
_NO_VERSION = "0.0.0"
"""The version of an untagged tree without one in its manifest."""


class _Revision(NamedTuple):
    """One tree of one package, and its manifest `file`; without a `tag` it cannot be chosen."""

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
    """Return the published packages, the lock files of main if they are reviewed, else of the state.

    Raises:
        ConfigurationError: A lock was written by a newer version.
        UnavailableError: The control repository is unreadable.
    """
    control, reviewed, limits = inventory.control, inventory.reviewed, inventory.policy.limits
    if reviewed is None:
        locks = read_lock_files(mirrors.open(control.remote), control.state, limits)
    else:
        files = {f"{LOCKS_DIRECTORY}/{path}": file.data for path, file in reviewed.files.items()}
        locks = {path: data for path, data in files.items() if is_lock_file(path)}
    for path, data in locks.items():
        check_schema(path, data)
    # Nothing can need a package: listing every repository would be wasted.
    if not (inventory.documents or inventory.variants or inventory.sets):
        return DependencyInputs(locks=locks)
    return DependencyInputs(read_published(inventory, mirrors), locks)


def read_lock_files(objects: Mirror, commit: Oid | None, limits: Limits) -> dict[str, bytes]:
    """Return the lock files of a commit of the state branch, except those beyond the size limit.

    Raises:
        UnavailableError: The control repository is unreadable.
    """
    contents = {}
    for file in fetch_files(objects, commit, LOCKS_DIRECTORY):
        if is_lock_file(file.path):
            with suppress(PackageRefusedError):
                contents[file.path] = objects.blob(file.oid, limits.manifest_bytes)
    return contents


def read_published(inventory: Inventory, mirrors: Mirrors) -> PublishedPackages:
    """Return every revision with a manifest, one batch of blobs per repository.

    Every distinct file is parsed once. A repository that fails is skipped: its problem is reported with its
    view.
    """
    views = inventory.repositories.values()
    reader = _Reader(inventory, repository_names(views), frozenset(_upstreams(inventory)))
    listed: dict[str, list[_Revision]] = {}
    for siblings in available_by_url(views).values():
        with suppress(UnavailableError):
            mirror = mirrors.open(siblings[0].remote)
            listed[mirror.url] = [r for view in siblings for r in reader.list_revisions(mirror, view)]
    mirrors.ensure_all({url: (r.oid for r in there if r.oid) for url, there in listed.items()})
    for url, revisions in listed.items():
        with suppress(UnavailableError):
            reader.read(mirrors.of(url), revisions)
    warnings = tuple(sorted(reader.warnings))
    return PublishedPackages(tuple(reader.candidates), reader.revisions, warnings, reader.refused)


def _upstreams(inventory: Inventory) -> Iterator[PackageKey]:
    for owner, upstream in declared_upstreams(inventory.variants, inventory.sets):
        view = inventory.repositories.get(ObjectName(owner.namespace, upstream.repo or ""))
        if view is not None:
            yield PackageKey(view.url, view.full_path(upstream.package or ""))


class _Reader(Struct):
    """Collects the published packages of all repositories; `names` are their names in package ids, by URL."""

    inventory: Inventory
    names: Mapping[str, str]
    upstreams: frozenset[PackageKey]
    candidates: list[Candidate] = field(default_factory=list)
    revisions: dict[PackageTree, Candidate] = field(default_factory=dict)
    warnings: set[Problem] = field(default_factory=set)
    refused: dict[str, tuple[RefusedVersion, ...]] = field(default_factory=dict)

    def read(self, mirror: Mirror, revisions: Sequence[_Revision]) -> None:
        oids = {revision.oid for revision in revisions if revision.oid is not None}
        mirror.ensure(oids)
        contents = {oid: _content(mirror, oid, self.inventory.policy.limits) for oid in sorted(oids)}
        declared = {revision.key.package for revision in revisions if revision.oid is not None}
        for revision in revisions:
            if revision.key.package not in declared:
                continue
            if revision.oid is None:
                id_ = package_id(self.names[revision.view.url], revision.path)
                version = parse_relaxed(_version(revision, {}))
                self.revisions.setdefault(
                    revision.key, Candidate(id_, version, digest=revision.tree, source=revision.tag)
                )
            for manifest in self.parse(revision, contents[revision.oid]) if revision.oid else ():
                self.add(revision, manifest)

    def list_revisions(self, mirror: Mirror, view: RepositoryView) -> Iterator[_Revision]:
        root = {"": view.root} if view.root is not None else {}
        for path, state in (root | dict(view.packages)).items():
            is_upstream = PackageKey(view.url, path) in self.upstreams
            if not (is_upstream or _is_origin(view, state)):
                continue
            published = [r for r in state.published if self.is_verified(view, r)]
            trees = [(r.tree, _tag(r.ref), r.commit.time) for r in published]
            if is_upstream:
                trees += [(tree, "", 0) for tree in _untagged(view, state, self.inventory)]
            for tree, tag, time in trees:
                blobs = ((name, mirror.blob_at(tree, name)) for name in MANIFESTS)
                file, oid = next(((name, oid) for name, oid in blobs if oid), ("", None))
                yield _Revision(view, path, tree, tag, time, file, oid)

    def is_verified(self, view: RepositoryView, revision: PackageRevision) -> bool:
        """Tell whether a revision may be chosen; refuse the others of its package by name."""
        tag = short_tag(revision.ref)
        fault = find_fault(view.url, tag, revision.commit.oid, self.inventory)
        if fault:
            message = f"not verified: {fault}"
            where, subject = Location(f"{view.key.name}/{tag}"), f"package {revision.path}"
            problem = Problem(where, Reason.UPSTREAM_NOT_VERIFIED, message, NOT_VERIFIED_HINT, subject)
            name = package_id(self.names[view.url], revision.path).name
            refused = RefusedVersion(version_of(_tag(revision.ref)), problem)
            self.refused[name] = (*self.refused.get(name, ()), refused)
        return not fault

    def parse(self, revision: _Revision, content: FileContent) -> Iterator[ParsedManifest]:
        """Yield the manifests of a revision, with the version of its tag and the digest of its tree."""
        steps = (revision.view.key.name, revision.path, revision.tag, revision.file)
        where = "/".join(step for step in steps if step)
        for broken in content.broken:
            location = Location(where, *broken.problem.location[1:])
            problem = replace(broken.problem, location=location, subject=f"package {revision.path}")
            yield ParsedManifest(problems=(problem,))
        for value, marks in content.objects:
            if not isinstance(value, Mapping) or not str(value.get("apiVersion") or "").startswith(_GROUP):
                continue
            source = Source(Location(where, *marks.location[1:]), revision.time, marks)
            read = partial(
                read_kpt,
                value,
                source,
                repository=self.names[revision.view.url],
                path=revision.path,
                revision=_version(revision, value),
            )
            manifest = parsed_or_broken(source, read) or ParsedManifest()
            candidates = (replace(c, digest=revision.tree, source=revision.tag) for c in manifest.candidates)
            yield replace(manifest, candidates=tuple(candidates))

    def add(self, revision: _Revision, manifest: ParsedManifest) -> None:
        self.warnings.update((*manifest.problems, *manifest.warnings))
        if manifest.problems:
            name = package_id(self.names[revision.view.url], revision.path).name
            version = version_of(revision.tag) if revision.tag else ""
            refused = (RefusedVersion(version, problem) for problem in manifest.problems)
            self.refused[name] = (*self.refused.get(name, ()), *refused)
        state = revision.view.upstream_at(revision.path)
        is_origin = state is not None and _is_origin(revision.view, state)
        for candidate in manifest.candidates:
            self.revisions.setdefault(revision.key, candidate if is_origin else replace(candidate, names=()))
            if revision.tag and is_origin:
                self.candidates.append(candidate)


def _is_origin(view: RepositoryView, state: PackageState) -> bool:
    """Tell whether a package may be an upstream: no deployment package, and no variant itself."""
    header = state.main_header
    return state.exists and not view.deployment and not (header is not None and header.owner)


def _untagged(view: RepositoryView, state: PackageState, inventory: Inventory) -> Iterator[Oid]:
    """Yield the trees of a package without a revision that a variant may follow."""
    tagged = {revision.tree for revision in state.published}
    trees = [(view.head.oid, state.main_tree)] if view.head else []
    trees += [(draft.tip.oid, draft.tree) for draft in state.drafts]
    at_commits = ((at, tree) for at, tree in inventory.trees.items() if at.path == state.path)
    trees += [(at.commit, tree) for at, tree in at_commits if at.url == view.url]
    trust = inventory.trust.get(view.url)
    verified = {tree for commit, tree in trees if tree and (trust is None or trust.has(commit))}
    yield from sorted(verified - tagged)


def _tag(ref: str) -> str:
    tag = ref.rpartition("/")[2]
    return tag if _is_version(version_of(tag)) else ""


def _version(revision: _Revision, manifest: Mapping[str, object]) -> str:
    """Return the version of a revision: of its tag, else of its manifest with the tree as build metadata."""
    if revision.tag:
        return version_of(revision.tag)
    spec = manifest.get("spec")
    declared = str(spec.get("version") or "") if isinstance(spec, Mapping) else ""
    version = declared.partition("+")[0] if _is_version(declared) else _NO_VERSION
    return f"{version}+{revision.tree[:12]}"


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


INDEX_SUFFIXES = (".yaml", ".yml", ".json")


class IndexFolders(Struct, frozen=True):
    """The documents of the package index, sorted by location, and the problems of invalid files.

    A file that is empty or broken has one empty document, which counts for its folder.
    """

    documents: tuple[SourcedDocument, ...] = ()
    problems: tuple[Problem, ...] = ()


def read_index_folders(
    objects: Mirror, commit: Oid, limits: Limits, left_out: Container[str] = ()
) -> IndexFolders:
    """Return the documents below `index/` of a commit. Isolated: an unreadable file is a problem.

    A file that is `left_out` is not read.

    Raises:
        UnavailableError: The control repository is unreadable.
    """
    contents: dict[str, bytes] = {}
    walk = Walk(INDEX_SUFFIXES, depth=limits.path_depth)
    files, unread = fetch_paths(objects, commit, INDEX_DIRECTORY, walk)
    for file in sorted(files):
        if file.path in left_out:
            unread.append(UnreadPath(file.path, LEFT_OUT))
            continue
        try:
            contents[file.path] = objects.blob(file.oid, limits.manifest_bytes)
        except PackageRefusedError as error:
            unread.append(UnreadPath(file.path, error.reason))
    return parse_index(contents, limits, map(_unread_problem, unread))


def _unread_problem(unread: UnreadPath) -> Problem:
    message = f"The path of the index was not read: {unread.why}"
    return Problem(Location(unread.path), Reason.MANIFEST_UNREADABLE, message)


def read_index_directory(root: Path, limits: Limits) -> IndexFolders:
    """Return the documents below `index/` of a working copy, committed or not."""
    paths = (path for path in sorted((root / INDEX_DIRECTORY).rglob("*")) if path.suffix in INDEX_SUFFIXES)
    contents = {path.relative_to(root).as_posix(): path.read_bytes() for path in paths if path.is_file()}
    return parse_index(contents, limits)


def parse_version(files: Mapping[str, bytes]) -> ParsedManifest:
    """Return the manifest of one version's folder in the index, given its files by path. Total."""
    folders = parse_index(files, Limits())
    manifest = read_package_version((document.value, document.source) for document in folders.documents)
    return replace(manifest, problems=(*folders.problems, *manifest.problems))


def parse_index(
    contents: Mapping[str, bytes], limits: Limits, unread: Iterable[Problem] = ()
) -> IndexFolders:
    """Return the documents of files of the index by path. Total."""
    documents: list[SourcedDocument] = []
    problems = list(unread)
    for path, data in contents.items():
        content = parse_file(path, data, yaml_limits(limits))
        problems += (broken.problem for broken in content.broken)
        if content.broken or not content.objects:
            fault = content.broken[0].problem if content.broken else None
            documents.append(SourcedDocument({}, Source(Location(path, 1), fault=fault)))
        for value, place in content.objects:
            if isinstance(value, Mapping):
                documents.append(SourcedDocument(value, Source(place.location, marks=place)))
            else:
                message = "A document of the index is a mapping"
                problems.append(Problem(place.location, Reason.INVALID_MANIFEST, message))
    documents.sort(key=lambda document: document.source.location)
    return IndexFolders(tuple(documents), tuple(sorted(problems)))
