"""Manifests of the control repository at a commit: what was understood, and who stalls because it was not."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeVar

from reconciler.api.meta import Manifest
from reconciler.api.porch import PackageVariant, PackageVariantSet, Repository
from reconciler.errors import Location, Problem
from reconciler.git.trees import PackageRefusedError
from reconciler.ids import ObjectKey, ObjectName, Oid
from reconciler.inventory import Source, Sourced, SourcedDocument
from reconciler.lock import LOCKS_DIRECTORY
from reconciler.policy import Policy
from reconciler.read.classify import Classification, classify_broken, classify_object
from reconciler.read.documents import FileContent, parse_file, yaml_limits
from reconciler.read.files import FileEntry, GitObjects, UnreadPath, Walk, is_below
from reconciler.reasons import Reason

SUFFIXES = (".yaml", ".yml", ".json")

M = TypeVar("M", bound=Manifest)


@dataclass(frozen=True, slots=True)
class Manifests:
    """Every manifest of ours, sorted by namespace and name.

    `stalled` are the owners that could not be understood, `broken` the files that hold something
    whose owner is not even known: what their manifests owned is kept. `claims` are the downstreams that
    stalled PackageVariants name. `files` were read, `unread` were not looked into, `missing` are manifest
    paths that do not exist. `documents` are left to the dialects of dependencies.
    """

    variants: tuple[Sourced[PackageVariant], ...] = ()
    sets: tuple[Sourced[PackageVariantSet], ...] = ()
    repositories: tuple[Sourced[Repository], ...] = ()
    others: tuple[Sourced[Manifest], ...] = ()
    documents: tuple[SourcedDocument, ...] = ()
    stalled: frozenset[ObjectKey] = frozenset()
    claims: Mapping[ObjectName, tuple[str, str]] = field(default_factory=dict)
    broken: frozenset[str] = frozenset()
    problems: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()
    files: frozenset[str] = frozenset()
    unread: tuple[UnreadPath, ...] = ()
    missing: tuple[str, ...] = ()


class _Found(NamedTuple):
    """The files below the manifest paths, each with the path that led to it."""

    files: Mapping[str, tuple[FileEntry, str]]
    unread: tuple[UnreadPath, ...]
    missing: tuple[str, ...]


@dataclass(slots=True)
class _Contents:
    """What was parsed so far, by path."""

    by_path: dict[str, FileContent] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)


def read_manifests(
    objects: GitObjects,
    commit: Oid,
    policy: Policy,
    *,
    registered: Iterable[Repository] = (),
    is_control: Callable[[str], bool] = lambda _: False,
) -> Manifests:
    """Return the manifests below the policy's paths.

    Isolated: whatever is wrong with one file or object becomes a problem, and the others are read.
    Hidden files, the snapshot, the configuration, a reviewed lock, and what is registered as a package
    repository (its directory; packages below a registered root) are not manifests, unless a manifest
    path names something inside.

    Args:
        objects: The control repository.
        commit: Where to read it.
        policy: Paths, limits and the default namespace.
        registered: Repositories known from elsewhere, from the snapshot say.
        is_control: Tells whether a `spec.git.repo` means the control repository itself.

    Raises:
        UnavailableError: The control repository cannot be read.
    """
    found = _find(objects, commit, policy)
    contents = _Contents()
    outside = [file for file, _ in found.files.values() if file.package is None]
    _parse(objects, outside, policy, contents)
    directories = _registered_directories(contents, policy, registered, is_control)
    kept = {path for path, (file, via) in found.files.items() if not _is_registered(file, via, directories)}
    inside = [file for path, (file, _) in found.files.items() if file.package is not None and path in kept]
    _parse(objects, inside, policy, contents)
    judged = [
        *_judge(contents, sorted(kept & contents.by_path.keys()), policy),
        *(
            Classification(broken=p.location.path, problems=(p,))
            for p in contents.problems
            if p.location.path in kept
        ),
    ]
    times = objects.last_touched(commit, sorted({s.location.path for j in judged if (s := _source(j))}))
    return replace(
        _assemble(judged, times), files=frozenset(kept), unread=found.unread, missing=found.missing
    )


def _find(objects: GitObjects, commit: Oid, policy: Policy) -> _Found:
    """Return every file that may hold manifests; a path inside another one leads to its files first."""
    locks = {LOCKS_DIRECTORY} if policy.lock.is_reviewed else set()
    walk = Walk(SUFFIXES, frozenset({policy.snapshot_path, *locks}), policy.limits.path_depth)
    files: dict[str, tuple[FileEntry, str]] = {}
    unread: set[UnreadPath] = set()
    missing: list[str] = []
    for path in sorted(policy.manifest_paths, key=lambda p: (-len(p), p)):
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
    return _Found(files, tuple(sorted(unread)), tuple(sorted(missing)))


def _parse(objects: GitObjects, files: Iterable[FileEntry], policy: Policy, into: _Contents) -> None:
    batch = sorted(files)
    objects.ensure(file.oid for file in batch)
    limits = yaml_limits(policy.limits)
    for file in batch:
        try:
            data = objects.blob(file.oid, policy.limits.manifest_bytes)
        except PackageRefusedError as error:
            message = f"The file was not read: {error.why}"
            hint = "Split the file, or raise spec.limits.manifestBytes."
            into.problems.append(Problem(Location(file.path), Reason.MANIFEST_UNREADABLE, message, hint))
        else:
            into.by_path[file.path] = parse_file(file.path, data, limits)


def _registered_directories(
    contents: _Contents, policy: Policy, known: Iterable[Repository], is_control: Callable[[str], bool]
) -> frozenset[str]:
    """Return the directories of the control repository that are package repositories.

    A registration inside such a directory is a package's content and registers nothing, so those
    nearest to the root are looked at first.
    """
    directories = {d for repository in known if (d := _directory(repository, is_control)) is not None}
    paths = sorted(contents.by_path, key=lambda p: (p.count("/"), p))
    for path in paths:
        if any(d and is_below(path, d) for d in directories):
            continue
        for judged in _judge(contents, [path], policy):
            if isinstance(judged.manifest, Repository):
                directory = _directory(judged.manifest, is_control)
                directories |= {directory} if directory is not None else set()
    return frozenset(directories)


def _directory(repository: Repository, is_control: Callable[[str], bool]) -> str | None:
    git = repository.spec.git
    return git.directory.strip("/") if git and is_control(git.repo) else None


def _is_registered(file: FileEntry, via: str, directories: Iterable[str]) -> bool:
    """Tell whether a file belongs to a package repository; a manifest path inside opens the rest."""
    if file.package is not None and file.package != via:
        return any(is_below(file.package, d) for d in directories)
    return any(d and is_below(file.path, d) and not is_below(via, d) for d in directories)


def _judge(contents: _Contents, paths: Iterable[str], policy: Policy) -> list[Classification]:
    judged: list[Classification] = []
    for path in paths:
        content = contents.by_path[path]
        judged += (classify_object(o, policy.default_namespace) for o in content.objects)
        judged += (classify_broken(b, path, policy.default_namespace) for b in content.broken)
    return judged


def _assemble(judged: list[Classification], times: Mapping[str, int]) -> Manifests:
    places: dict[ObjectKey, list[Classification]] = {}
    for one in judged:
        if one.key is not None:
            places.setdefault(one.key, []).append(one)
    twice = {key: sharing for key, sharing in places.items() if len(sharing) > 1}
    problems = {p for one in judged for p in one.problems}
    problems |= {p for key, sharing in twice.items() for p in _duplicates(key, sharing)}
    stalled = {one.key for one in judged if one.key and one.manifest is None} | twice.keys()
    good = [one for one in judged if one.manifest is not None and one.key not in twice]
    return Manifests(
        variants=_sourced(good, PackageVariant, times),
        sets=_sourced(good, PackageVariantSet, times),
        repositories=_sourced(good, Repository, times),
        others=tuple(
            one
            for one in _sourced(good, Manifest, times)
            if not isinstance(one.manifest, PackageVariant | PackageVariantSet | Repository)
        ),
        documents=_documents(judged, times),
        stalled=frozenset(stalled),
        claims={
            ObjectName(one.key.namespace, one.key.name): one.claim for one in judged if one.key and one.claim
        },
        broken=frozenset(one.broken for one in judged if one.broken),
        problems=tuple(sorted(problems)),
        notes=_notes(judged),
    )


def _source(judged: Classification) -> Source | None:
    return judged.document.source if judged.document else judged.source


def _duplicates(key: ObjectKey, sharing: list[Classification]) -> Iterable[Problem]:
    """Say at each place of an object where else it is declared."""
    locations = sorted(one.source.location for one in sharing if one.source)
    for here in locations:
        others = ", ".join(str(there) for there in locations if there != here)
        subject = f"{key.kind} {key.namespace}/{key.name}"
        message = f"{subject} is also declared at {others}"
        yield Problem(here, Reason.DUPLICATE_OBJECT, message, "Keep one of them.", subject)


def _sourced(
    good: Iterable[Classification], model: type[M], times: Mapping[str, int]
) -> tuple[Sourced[M], ...]:
    found = [
        Sourced(
            ObjectName(one.key.namespace, one.key.name),
            one.manifest,
            replace(one.source, time=times.get(one.source.location.path, 0)),
        )
        for one in good
        if one.key and one.source and isinstance(one.manifest, model)
    ]
    return tuple(sorted(found, key=lambda s: (s.key, s.source.location)))


def _documents(judged: Iterable[Classification], times: Mapping[str, int]) -> tuple[SourcedDocument, ...]:
    found = (one.document for one in judged if one.document)
    timed = (
        replace(one, source=replace(one.source, time=times.get(one.source.location.path, 0))) for one in found
    )
    return tuple(sorted(timed, key=lambda one: one.source.location))


def _notes(judged: Iterable[Classification]) -> tuple[str, ...]:
    foreign = Counter(one.foreign for one in judged if one.foreign)
    if not foreign:
        return ()
    kinds = ", ".join(f"{kind} ({count})" for kind, count in sorted(foreign.items()))
    return (f"Objects of other kinds among the manifests are not read: {kinds}",)
