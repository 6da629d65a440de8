"""Read the reviewed lock, with the branch that proposes another one, and the locked image digests."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import msgspec

from reconciler.base.errors import ConfigurationError, Location
from reconciler.base.reasons import Reason
from reconciler.base.values import read_record
from reconciler.forge.local.merge import find_outside
from reconciler.git.commits import CommitData
from reconciler.git.repository import Mirror
from reconciler.git.trees import PackageRefusedError
from reconciler.inventory.inventory import LockBranch, ReviewedLock
from reconciler.names.ids import ObjectName, Oid
from reconciler.names.objects import Commit, Files
from reconciler.names.problems import Problem
from reconciler.names.refs import HEADS, lock_ref
from reconciler.policy import Limits, Policy
from reconciler.read.control import OpenControl
from reconciler.read.files import read_directory
from reconciler.read.repositories.packages import newest_time, split_by_author
from reconciler.read.state import check_schema
from reconciler.records.state import (
    IMAGES_PATH,
    LOCKS_DIRECTORY,
    UPSTREAMS_DIRECTORY,
    ImagesLock,
    UpstreamLock,
    lock_path,
)

MAX_LOCK_BYTES = 1 << 30
MAX_LOCK_FILES = 1_000_000
"""A fleet has more lock files than a package has files."""


def read_reviewed_lock(opened: OpenControl, policy: Policy, computed_tree: Oid | None) -> ReviewedLock | None:
    """Return the lock at the opened commit, None if pins are not reviewed.

    An unreadable pin is a problem, and its variant does not move. `computed_tree` is the tree of the lock
    that the last run computed.

    Raises:
        ConfigurationError: The lock as a whole is unreadable, or was written by a newer version.
        UnavailableError: The control repository cannot be read.
    """
    if not policy.lock.is_reviewed:
        return None
    files = _files(opened.objects, opened.commit.oid, policy.limits)
    base = opened.mirror.head_branch
    branch = _read_branch(opened, policy, files, base)
    return msgspec.structs.replace(_parsed(files), base=base, computed_tree=computed_tree, branch=branch)


def read_working_lock(directory: Path, merged: ReviewedLock) -> ReviewedLock:
    """Return the lock in a working copy, committed or not.

    Raises:
        ConfigurationError: It is unreadable as a whole, or was written by a newer version.
    """
    files = read_directory(directory) if directory.is_dir() else {}
    return msgspec.structs.replace(
        _parsed(files), base=merged.base, computed_tree=merged.computed_tree, branch=merged.branch
    )


def _parsed(files: Files) -> ReviewedLock:
    pins, problems = parse_pins({f"{LOCKS_DIRECTORY}/{path}": file.data for path, file in files.items()})
    broken = frozenset(filter(None, (_variant_at(problem.location.path) for problem in problems)))
    return ReviewedLock(files=files, pins=pins, broken=broken, problems=problems)


def parse_pins(files: Mapping[str, bytes]) -> tuple[Mapping[ObjectName, UpstreamLock], tuple[Problem, ...]]:
    """Return the pins of upstreams among the files of a lock, and the problems of unreadable ones.

    Raises:
        ConfigurationError: One was written by a newer version.
    """
    pins: dict[ObjectName, UpstreamLock] = {}
    problems: list[Problem] = []
    for path, data in sorted(files.items()):
        if not _variant_at(path):
            continue
        check_schema(path, data)
        try:
            lock = read_record(data, UpstreamLock)
        except ValueError as error:
            problems.append(_unreadable(path, str(error)))
            continue
        if lock_path(lock) == path:
            pins[lock.key] = lock
        else:
            problems.append(_unreadable(path, f"It is the pin of {lock.key}, which has a file of its own"))
    return pins, tuple(problems)


def _unreadable(path: str, why: str) -> Problem:
    hint = "Correct it, or remove it and take the pin that `reconciler lock` finds."
    return Problem(Location(path), Reason.INVALID_STATE, f"The pin cannot be read: {why}", hint)


def _variant_at(path: str) -> ObjectName | None:
    """Return the variant of a pin's path, None for any other path."""
    parts = PurePosixPath(path)
    if parts.suffix != ".json" or str(parts.parent.parent) != UPSTREAMS_DIRECTORY:
        return None
    return ObjectName(parts.parent.name, parts.stem)


def _files(mirror: Mirror, commit: Oid, limits: Limits) -> Files:
    tree = mirror.subtree(commit, LOCKS_DIRECTORY)
    if tree is None:
        return {}
    try:
        lock_limits = replace(limits, package_files=MAX_LOCK_FILES, package_bytes=MAX_LOCK_BYTES)
        mirror.ensure(mirror.list_blobs(tree, lock_limits))
        return mirror.files(tree, lock_limits)
    except PackageRefusedError as error:
        message = f"The lock cannot be read: {error}"
        raise ConfigurationError(message, location=Location(LOCKS_DIRECTORY)) from error


def _read_branch(opened: OpenControl, policy: Policy, main: Files, into: str) -> LockBranch | None:
    mirror, refs = opened.mirror, opened.mirror.refs()
    tip = refs.get(lock_ref(policy.instance))
    if tip is None:
        return None
    base = refs.get(f"{HEADS}{into}")
    merged = mirror.ancestry(base) if base else frozenset()
    ours, foreign = split_by_author(map(mirror.commit, mirror.walk(tip, merged)), policy.commits)
    files = _files(mirror, tip, policy.limits)
    # A file that people removed is only in the lock that we wrote.
    written = _files(mirror, ours[0].oid, policy.limits) if foreign and ours else {}
    paths = {f"{LOCKS_DIRECTORY}/{path}" for path in (*main, *files, *written)}
    edited = {path for commit in foreign for path in _changed(mirror, commit, paths)}
    start = mirror.merge_base(base, tip) if base else None
    tree = mirror.commit(start).tree if start else None
    moved = mirror.changed_paths(tree, mirror.commit(base).tree, paths) if base else ()
    return LockBranch(
        tip=Commit(tip, mirror.commit(tip).committer.time),
        files=files,
        edited_files=_below(edited),
        has_foreign_commits=bool(foreign),
        foreign_commit_time=newest_time(foreign),
        behind=_below(moved),
        only_locks=not foreign
        or (start is not None and find_outside(mirror, start, tip, LOCKS_DIRECTORY) is None),
    )


def _below(paths: Iterable[str]) -> frozenset[str]:
    return frozenset(path.removeprefix(f"{LOCKS_DIRECTORY}/") for path in paths)


def _changed(mirror: Mirror, commit: CommitData, paths: Iterable[str]) -> Iterator[str]:
    """Yield the paths at which a commit differs from every parent: a merge alone edits nothing."""
    remaining = set(paths)
    for parent in commit.parents or (None,):
        before = mirror.commit(parent).tree if parent else None
        remaining = mirror.changed_paths(before, commit.tree, remaining)
    yield from remaining


class ImageDigests(NamedTuple):
    """The lock of function images; empty with a `problem` if it is unreadable."""

    lock: ImagesLock = ImagesLock()
    problem: Problem | None = None


def read_image_digests(objects: Mirror, commit: Oid | None, limit: int) -> ImageDigests:
    """Return the image digests that a commit locks.

    An unreadable lock pins nothing: packages that need it stall.

    `commit` is one of the state branch, or of main if the lock is reviewed.

    Raises:
        ConfigurationError: The lock was written by a newer version.
        UnavailableError: The repository is unreadable.
    """
    oid = objects.blob_at(commit, IMAGES_PATH) if commit else None
    if oid is None:
        return ImageDigests()
    objects.ensure([oid])
    try:
        data = objects.blob(oid, limit)
        check_schema(IMAGES_PATH, data)
        return ImageDigests(read_record(data, ImagesLock))
    except ValueError as error:
        return ImageDigests(problem=_unreadable_images(str(error)))
    except PackageRefusedError as error:
        return ImageDigests(problem=_unreadable_images(error.reason))


def with_image_digests(policy: Policy, lock: ImagesLock) -> Policy:
    """Return the policy with the locked digests; digests of the configuration take precedence."""
    functions = policy.functions
    return replace(policy, functions=replace(functions, images={**lock.images, **functions.images}))


def _unreadable_images(why: str) -> Problem:
    hint = "Remove the file, and pin the images again with `reconciler functions pull`."
    message = f"The lock of function images cannot be read: {why}"
    return Problem(Location(IMAGES_PATH), Reason.INVALID_STATE, message, hint)
