"""Read the manifests of the control repository at a commit."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from reconciler.api.meta import Manifest
from reconciler.api.porch import PackageVariant, PackageVariantSet, Repository
from reconciler.base.errors import Location
from reconciler.base.reasons import Reason
from reconciler.dependencies.catalog.index import INDEX_DIRECTORY
from reconciler.git.repository import Mirror
from reconciler.git.trees import PackageRefusedError
from reconciler.inventory.inventory import Source, Sourced, SourcedDocument
from reconciler.names.ids import ObjectKey, ObjectName, Oid
from reconciler.names.problems import Problem
from reconciler.policy import Policy
from reconciler.read.classify import Classification, classify_broken, classify_object
from reconciler.read.documents import FileContent, parse_file, yaml_limits
from reconciler.read.files import FileEntry, UnreadPath, Walk, is_below
from reconciler.records.upstream_lock import LOCKS_DIRECTORY

SUFFIXES = (".yaml", ".yml", ".json")

M = TypeVar("M", bound=Manifest)


class Manifests(Struct, frozen=True):
    """All manifests, sorted by namespace and name.

    `stalled` are owners with invalid manifests; `claims` are the downstreams (repository, package) that they
    name. `broken` are files with objects of uncertain identity: everything declared there is kept. `files`
    were read, `unread` were not, `missing` are manifest paths that do not exist. `documents` belong to the
    dependency dialects.
    """

    variants: tuple[Sourced[PackageVariant], ...] = ()
    sets: tuple[Sourced[PackageVariantSet], ...] = ()
    repositories: tuple[Sourced[Repository], ...] = ()
    documents: tuple[SourcedDocument, ...] = ()
    stalled: frozenset[ObjectKey] = frozenset()
    claims: Mapping[ObjectName, tuple[str, str]] = field(default_factory=dict)
    broken: frozenset[str] = frozenset()
    problems: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()
    files: frozenset[str] = frozenset()
    unread: tuple[UnreadPath, ...] = ()
    missing: tuple[str, ...] = ()


class _Files(NamedTuple):
    """The files below the manifest paths, each with the manifest path above it."""

    files: Mapping[str, tuple[FileEntry, str]]
    unread: tuple[UnreadPath, ...]
    missing: tuple[str, ...]


class _Contents(Struct):
    """Parsed files by path, and the problems of unreadable ones."""

    by_path: dict[str, FileContent] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)


def read_manifests(
    objects: Mirror,
    commit: Oid,
    policy: Policy,
    *,
    registered: Iterable[Repository] = (),
    is_control: Callable[[str], bool] = lambda _: False,
) -> Manifests:
    """Return the manifests below the policy's paths.

    Isolated: an error in one file or object becomes a problem, and the others are read. Hidden files, the
    snapshot, the index, the configuration, a reviewed lock and registered package repositories (their
    directory, or packages below a registered root) are no manifests, unless a manifest path is inside them.

    Args:
        objects: The control repository.
        commit: The commit to read.
        policy: Paths, limits and the default namespace.
        registered: Repositories registered elsewhere, as in the snapshot.
        is_control: Tells whether a `spec.git.repo` is the control repository itself.

    Raises:
        UnavailableError: The control repository is unreadable.
    """
    found_files = _list_files(objects, commit, policy)
    files, contents = found_files.files, _Contents()
    # Registrations decide which packages are read, so files outside of packages come first.
    _parse([file for file, _ in files.values() if file.package is None], objects, policy, contents)
    directories = _registered_directories(contents, policy, registered, is_control)
    kept = {path for path, (file, via) in files.items() if not _is_registered(file, via, directories)}
    inside = [file for path, (file, _) in files.items() if file.package is not None and path in kept]
    _parse(inside, objects, policy, contents)
    classified = [
        *_classify(contents, sorted(kept & contents.by_path.keys()), policy),
        *(
            Classification(broken=problem.location.path, problems=(problem,))
            for problem in contents.problems
            if problem.location.path in kept
        ),
    ]
    paths = {each.source.location.path for each in classified if each.source}
    manifests = _assemble(classified, objects.last_touched(commit, sorted(paths)))
    return replace(manifests, files=frozenset(kept), unread=found_files.unread, missing=found_files.missing)


def parse_manifests(files: Mapping[str, bytes], policy: Policy) -> Manifests:
    """Return the manifests of files by path, as `read_manifests` does of a commit. Total."""
    contents, limits = _Contents(), yaml_limits(policy.limits)
    for path, data in files.items():
        contents.by_path[path] = parse_file(path, data, limits)
    return _assemble(_classify(contents, sorted(contents.by_path), policy), {})


def declared_objects(path: str, data: bytes, policy: Policy) -> frozenset[ObjectKey] | None:
    """Return the objects that a file declares, valid or not; None if it may declare others. Total."""
    contents = _Contents({path: parse_file(path, data, yaml_limits(policy.limits))})
    classified = _classify(contents, [path], policy)
    if any(each.broken for each in classified):
        return None
    return frozenset(each.key for each in classified if each.key)


def _list_files(objects: Mirror, commit: Oid, policy: Policy) -> _Files:
    """Return every file that may hold manifests, each below its most specific manifest path."""
    locks = {LOCKS_DIRECTORY} if policy.lock.is_reviewed else set()
    left_out = frozenset({policy.snapshot.path, INDEX_DIRECTORY, *locks})
    walk = Walk(SUFFIXES, left_out, policy.limits.path_depth)
    files: dict[str, tuple[FileEntry, str]] = {}
    unread: set[UnreadPath] = set()
    missing: list[str] = []
    for path in sorted(policy.manifests, key=lambda p: (-len(p), p)):
        if tree := objects.subtree(commit, path):
            below = walk.below(objects, tree, path)
        elif blob := objects.blob_at(commit, path):
            below = iter((FileEntry(path, blob),))
        else:
            missing.append(path)
            continue
        for file in below:
            if isinstance(file, UnreadPath):
                unread.add(file)
            else:
                files.setdefault(file.path, (file, path))
    files.pop(policy.config_path, None)
    return _Files(files, tuple(sorted(unread)), tuple(sorted(missing)))


def _parse(files: Iterable[FileEntry], objects: Mirror, policy: Policy, contents: _Contents) -> None:
    batch = sorted(files)
    objects.ensure(file.oid for file in batch)
    limits = yaml_limits(policy.limits)
    for file in batch:
        try:
            data = objects.blob(file.oid, policy.limits.manifest_bytes)
        except PackageRefusedError as error:
            message = f"The file was not read: {error.reason}"
            hint = "Split the file, or raise spec.limits.manifestBytes."
            problem = Problem(Location(file.path), Reason.MANIFEST_UNREADABLE, message, hint)
            contents.problems.append(problem)
        else:
            contents.by_path[file.path] = parse_file(file.path, data, limits)


def _registered_directories(
    contents: _Contents, policy: Policy, registered: Iterable[Repository], is_control: Callable[[str], bool]
) -> frozenset[str]:
    """Return the directories of the control repository that are package repositories."""
    directories = {d for repository in registered if (d := _directory(repository, is_control)) is not None}
    # Nearest to the root first: a registration inside a package repository is content and registers nothing.
    for path in sorted(contents.by_path, key=lambda p: (p.count("/"), p)):
        if any(d and is_below(path, d) for d in directories):
            continue
        for each in _classify(contents, [path], policy):
            if isinstance(each.manifest, Repository):
                directory = _directory(each.manifest, is_control)
                directories |= {directory} if directory is not None else set()
    return frozenset(directories)


def _directory(repository: Repository, is_control: Callable[[str], bool]) -> str | None:
    git = repository.spec.git
    return git.directory.strip("/") if git and is_control(git.repo) else None


def _is_registered(file: FileEntry, via: str, directories: Iterable[str]) -> bool:
    """Tell whether a file belongs to a package repository and the manifest path `via` is not inside it."""
    if file.package is not None and file.package != via:
        return any(is_below(file.package, d) for d in directories)
    return any(d and is_below(file.path, d) and not is_below(via, d) for d in directories)


def _classify(contents: _Contents, paths: Iterable[str], policy: Policy) -> list[Classification]:
    classified: list[Classification] = []
    for path in paths:
        content = contents.by_path[path]
        classified += (classify_object(o, policy) for o in content.objects)
        classified += (classify_broken(b, path, policy.default_namespace) for b in content.broken)
    return classified


def _assemble(classified: list[Classification], times: Mapping[str, int]) -> Manifests:
    by_key: dict[ObjectKey, list[Classification]] = {}
    for each in classified:
        if each.key is not None:
            by_key.setdefault(each.key, []).append(each)
    duplicates = {key: declared for key, declared in by_key.items() if len(declared) > 1}
    problems = {problem for each in classified for problem in each.problems}
    problems |= {problem for key in duplicates for problem in _duplicates(key, duplicates[key])}
    invalid = {each.key for each in classified if each.key and each.manifest is None}
    valid = [each for each in classified if each.manifest is not None and each.key not in duplicates]
    return Manifests(
        variants=_sourced(valid, PackageVariant, times),
        sets=_sourced(valid, PackageVariantSet, times),
        repositories=_sourced(valid, Repository, times),
        documents=_documents(classified, times),
        stalled=frozenset(invalid | duplicates.keys()),
        claims={each.key.object_name: each.claim for each in classified if each.key and each.claim},
        broken=frozenset(each.broken for each in classified if each.broken),
        problems=tuple(sorted(problems)),
        notes=_notes(classified),
    )


def _duplicates(key: ObjectKey, declared: list[Classification]) -> Iterable[Problem]:
    """Yield a problem at each declaration of an object, with the locations of the others."""
    locations = sorted(each.source.location for each in declared if each.source)
    for here in locations:
        others = ", ".join(str(there) for there in locations if there != here)
        message = f"{key.subject} is also declared at {others}"
        yield Problem(here, Reason.DUPLICATE_OBJECT, message, "Keep one of them.").owned_by(key)


def _sourced(
    valid: Iterable[Classification], model: type[M], times: Mapping[str, int]
) -> tuple[Sourced[M], ...]:
    manifests = [
        Sourced(each.key.object_name, each.manifest, _with_time(each.source, times))
        for each in valid
        if each.key and each.source and isinstance(each.manifest, model)
    ]
    return tuple(sorted(manifests, key=lambda s: (s.key, s.source.location)))


def _documents(classified: Iterable[Classification], times: Mapping[str, int]) -> tuple[SourcedDocument, ...]:
    documents = (each.document for each in classified if each.document)
    timed = (replace(document, source=_with_time(document.source, times)) for document in documents)
    return tuple(sorted(timed, key=lambda document: document.source.location))


def _with_time(source: Source, times: Mapping[str, int]) -> Source:
    return replace(source, time=times.get(source.location.path, 0))


def _notes(classified: Iterable[Classification]) -> tuple[str, ...]:
    foreign = Counter(each.foreign for each in classified if each.foreign)
    if not foreign:
        return ()
    kinds = ", ".join(f"{kind} ({count})" for kind, count in sorted(foreign.items()))
    return (f"Objects of other kinds among the manifests are not read: {kinds}",)
