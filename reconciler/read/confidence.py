"""Read how the packages of a fleet fared with each upstream revision, from main of their repositories."""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from itertools import pairwise
from typing import NamedTuple

from reconciler.api.kptfile import KPTFILE, KptfileHeader
from reconciler.confidence import Confidence, Confidences, UpstreamRevision
from reconciler.errors import UnavailableError
from reconciler.git.commits import CommitData
from reconciler.git.repository import Mirror, Mirrors
from reconciler.ids import Oid
from reconciler.inventory import PackageState, RepositoryView
from reconciler.read.repositories.kptfiles import HeaderIndex
from reconciler.trailers import read_answers
from reconciler.values import dataclass

_MOST_COMMITS = 100
"""Commits of one draft that are searched for conflicts."""


class _Stage(NamedTuple):
    """A state of a package on main: the commit that brought it, its time, and its upstream."""

    commit: Oid
    time: int
    upstream: UpstreamRevision | None


@dataclass(slots=True)
class _Fared:
    """How the packages that were counted so far fared with one revision."""

    since: list[int] = field(default_factory=list)
    reverted: int = 0
    conflicts: int = 0
    total: int = 0


def read_confidences(
    views: Iterable[RepositoryView], mirrors: Mirrors, upstreams: Iterable[str] | None = None
) -> Confidences | None:
    """Return the confidence in every upstream revision that a package ever had on main. Deterministic.

    A package counts with its published revisions and what main has since. It went back from a revision if
    the next one is one that it had before. It met a conflict with one if a commit that brought it names one.

    Args:
        views: The repositories. Where one could not be read, nothing is known: None.
        mirrors: The local mirrors of repositories.
        upstreams: Paths of upstream packages: only packages made from one of them count; all without it.
    """
    views = list(views)
    if any(view.problem for view in views):
        return None
    selected = None if upstreams is None else frozenset(upstreams)
    index = HeaderIndex(mirrors.cache_dir / "published-headers.json")
    counted: dict[UpstreamRevision, _Fared] = {}
    for view in views:
        if not view.is_available or view.head is None:
            continue
        packages = [state for state in view.packages.values() if _is_selected(state.main_header, selected)]
        if packages:
            try:
                _count_all(mirrors.open(view.remote), view, packages, index, counted)
            except UnavailableError:
                return None
    index.save()
    return {
        revision: Confidence(tuple(sorted(fared.since)), fared.reverted, fared.conflicts, fared.total)
        for revision, fared in sorted(counted.items())
    }


def _is_selected(header: KptfileHeader | None, selected: frozenset[str] | None) -> bool:
    upstream = _upstream(header)
    return upstream is not None and (selected is None or upstream.path in selected)


def _upstream(header: KptfileHeader | None) -> UpstreamRevision | None:
    lock = header.upstream_lock if header else None
    return UpstreamRevision(lock.directory.strip("/"), Oid(lock.commit)) if lock and lock.commit else None


def _count_all(
    mirror: Mirror,
    view: RepositoryView,
    packages: Sequence[PackageState],
    index: HeaderIndex,
    counted: dict[UpstreamRevision, _Fared],
) -> None:
    # The newest revision is often what main has, and its Kptfile was read with it.
    kptfiles = {
        revision.tree: mirror.blob_at(revision.tree, KPTFILE)
        for state in packages
        for revision in state.published
        if revision.tree != state.main_tree
    }
    index.load(mirror, kptfiles.values())
    headers = {tree: index.header(oid) for tree, oid in kptfiles.items()}
    listed = [(state.path, list(_stages(view, state, headers))) for state in packages]
    moved = {stage.commit for _, stages in listed for stage, _ in _moves(stages)}
    line = (
        frozenset(c.oid for c in mirror.first_parents(view.head.oid)) if moved and view.head else frozenset()
    )
    for path, stages in listed:
        met = {now for stage, now in _moves(stages) if _met_conflict(mirror, stage.commit, path, line)}
        _count(stages, met, counted)


def _moves(stages: Sequence[_Stage]) -> Iterator[tuple[_Stage, UpstreamRevision]]:
    """Yield the states that brought a package another upstream revision, with that revision."""
    for before, stage in pairwise(stages):
        if stage.upstream is not None and stage.upstream != before.upstream:
            yield stage, stage.upstream


def _stages(
    view: RepositoryView, state: PackageState, headers: Mapping[Oid, KptfileHeader]
) -> Iterator[_Stage]:
    """Yield the states of a package on main, the oldest first; the last is what main has."""
    tree = None
    numbered = sorted((r for r in state.published if r.revision > 0), key=lambda r: r.revision)
    for revision in numbered:
        tree = revision.tree
        header = state.main_header if tree == state.main_tree else headers.get(tree)
        yield _Stage(revision.commit.oid, revision.commit.time, _upstream(header))
    for merged in state.unpublished:
        tree = merged.tree
        yield _Stage(merged.commit.oid, merged.commit.time, _upstream(merged.header))
    if view.head is not None and tree != state.main_tree:
        yield _Stage(view.head.oid, view.head.time, _upstream(state.main_header))


def _count(
    stages: Sequence[_Stage], conflicts: Container[UpstreamRevision], counted: dict[UpstreamRevision, _Fared]
) -> None:
    """Count one package at every revision that it ever had."""
    had: dict[UpstreamRevision, None] = {}
    reverted: set[UpstreamRevision] = set()
    before, since = None, 0
    for stage in stages:
        now = stage.upstream
        if now != before:
            since = stage.time
            if before is not None and now in had:
                reverted.add(before)
        if now is not None:
            had[now] = None
        before = now
    for revision in had:
        fared = counted.setdefault(revision, _Fared())
        fared.total += 1
        fared.reverted += revision in reverted
        fared.conflicts += revision in conflicts
    if before is not None:
        counted[before].since.append(since)


def _met_conflict(mirror: Mirror, commit: Oid, path: str, line: Container[Oid]) -> bool:
    """Tell whether the commit that brought a state, or one of the draft that it merged, names a conflict."""
    messages = (data.message for data in _merged_commits(mirror, commit, line))
    return bool(read_answers(messages, path, alone=False).named)


def _merged_commits(mirror: Mirror, commit: Oid, line: Container[Oid]) -> Iterator[CommitData]:
    """Yield a commit of main and those of the branch that it merged, the newest first."""
    data = mirror.find_commit(commit)
    if data is None:
        return
    yield data
    for parent in data.parents[1:]:
        for number, merged in enumerate(mirror.first_parents(parent)):
            if merged.oid in line or number >= _MOST_COMMITS:
                break
            yield merged
