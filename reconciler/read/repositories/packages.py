"""Assemble the packages of a view from main, drafts, tags and unpublished revisions."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import NamedTuple

from reconciler.git.commits import CommitData
from reconciler.git.repository import Mirror
from reconciler.ids import Lifecycle, Oid
from reconciler.inventory import Draft, PackageRevision, PackageState, UnpublishedRevision
from reconciler.objects import Commit
from reconciler.policy import Policy
from reconciler.read.repositories.discovery import (
    PackageAtRef,
    PackageDirectory,
    Survey,
    annotated_workspaces,
    find_package,
    published_revision,
)
from reconciler.read.repositories.drafts import read_deletion, read_draft
from reconciler.read.repositories.kptfiles import HeaderIndex
from reconciler.refs import deletion_ref
from reconciler.values import dataclass

_State = tuple[CommitData, PackageDirectory]


class Searched(NamedTuple):
    """A package on main to search for unpublished states, with its tags."""

    package: PackageDirectory
    tags: Sequence[PackageRevision] = ()

    @property
    def at_head(self) -> PackageDirectory | None:
        """The package at main's head, None if its Kptfile is no regular file."""
        return None if self.package.kptfile is None or self.package.is_link else self.package


@dataclass(frozen=True, slots=True)
class ViewContent:
    """The content of one view: the commit and survey of main, and the refs of its packages."""

    head: CommitData | None
    survey: Survey
    refs: tuple[PackageAtRef, ...]

    def kptfiles(self) -> Iterator[Oid | None]:
        """Yield the Kptfiles on main and in drafts."""
        yield from (package.kptfile for package in self.survey.packages)
        yield from (draft.package.kptfile for draft in self.refs if _is_draft(draft))


class _Refs(NamedTuple):
    """The content of one view, and its drafts and tags by path."""

    content: ViewContent
    drafts: Mapping[str, list[Draft]]
    tags: Mapping[str, list[PackageRevision]]


def read_packages(
    mirror: Mirror, contents: Iterable[ViewContent], policy: Policy, index: HeaderIndex
) -> Iterator[Mapping[str, PackageState]]:
    """Yield the packages of each view of a repository by full path, sorted.

    The headers of their Kptfiles must be loaded.

    Raises:
        UnavailableError: An object is missing and cannot be fetched.
    """
    read = [_read_refs(mirror, content, policy, index) for content in contents]
    unpublished = _unpublished(mirror, read, policy, index)
    for content, drafts, tags in read:
        main = content.head.oid if content.head else None
        mains = {package.path: package for package in content.survey.packages}
        merged = unpublished.get(main, {}) if main else {}
        yield {
            path: PackageState(
                path,
                main_tree=mains[path].tree if path in mains else None,
                main_header=index.header(mains[path].kptfile) if path in mains else None,
                drafts=tuple(sorted(drafts.get(path, ()), key=lambda d: d.ref)),
                published=tuple(sorted(tags.get(path, ()), key=lambda r: (r.revision, r.ref))),
                unpublished=merged.get(path, ()),
                deletion=read_deletion(
                    mirror, deletion_ref(policy.instance, path), main, path, policy.commits
                ),
            )
            for path in sorted({*mains, *drafts, *tags})
        }


def _read_refs(mirror: Mirror, content: ViewContent, policy: Policy, index: HeaderIndex) -> _Refs:
    drafts: dict[str, list[Draft]] = {}
    tags: dict[str, list[PackageRevision]] = {}
    main = content.head.oid if content.head else None
    for ref in content.refs:
        path = ref.named.path
        if _is_draft(ref):
            header = index.header(ref.package.kptfile)
            drafts.setdefault(path, []).append(read_draft(mirror, ref, main, header, policy.commits))
        else:
            tags.setdefault(path, []).append(published_revision(mirror, ref))
    return _Refs(content, drafts, tags)


def _unpublished(
    mirror: Mirror, read: Iterable[_Refs], policy: Policy, index: HeaderIndex
) -> Mapping[Oid, Mapping[str, tuple[UnpublishedRevision, ...]]]:
    """Return the unpublished revisions by main's head and path: one walk serves all views of a branch."""
    ours = f"{policy.instance}/"
    searched: dict[Oid, dict[str, Searched]] = {}
    for content, _, tags in read:
        if content.head is None:
            continue
        # Walking back is slow: only packages of this instance that differ from their latest tag need it.
        searched.setdefault(content.head.oid, {}).update(
            (package.path, Searched(package, tags.get(package.path, ())))
            for package in content.survey.packages
            if index.header(package.kptfile).owner.startswith(ours)
            and package.tree != _latest(tags.get(package.path, ()))
        )
    walked = {head: find_unpublished(mirror, head, packages) for head, packages in searched.items()}
    states = (package for merged in walked.values() for states in merged.values() for _, package in states)
    index.load(mirror, (package.kptfile for package in states))
    return {
        head: {path: tuple(_revisions(states, index)) for path, states in merged.items()}
        for head, merged in walked.items()
    }


def _revisions(states: Iterable[_State], index: HeaderIndex) -> Iterator[UnpublishedRevision]:
    for commit, package in states:
        yield UnpublishedRevision(
            commit=Commit(commit.oid, commit.committer.time),
            tree=package.tree,
            header=index.header(package.kptfile),
            workspaces=annotated_workspaces(commit, package.path),
        )


def _latest(tags: Iterable[PackageRevision]) -> Oid | None:
    latest = PackageState("", published=tuple(tags)).latest if tags else None
    return latest.tree if latest else None


def _is_draft(ref: PackageAtRef) -> bool:
    return ref.named.lifecycle in {Lifecycle.DRAFT, Lifecycle.PROPOSED}


@dataclass(slots=True)
class _Search:
    """Search for the unpublished states of one package, back through history.

    `stop` is the position of its newest tag on main's first-parent line; `elsewhere` are the trees of its
    tags beside that line, as of a squashed draft that was tagged on its branch.
    """

    stop: int
    elsewhere: frozenset[Oid]
    states: list[_State] = field(default_factory=list)


def find_unpublished(mirror: Mirror, head: Oid, searched: Mapping[str, Searched]) -> dict[str, list[_State]]:
    """Return for each package its states on main since its newest tag, oldest first.

    After a merge, squash, rebase or plain push, main's first-parent line has a commit that changed the
    package's tree: that commit is the state. A removal ends the search: older states are of another package
    at the same path.
    """
    line = list(mirror.first_parents(head)) if searched else []
    positions = {commit.oid: index for index, commit in enumerate(line)}
    searches = {path: _start(package.tags, positions) for path, package in searched.items()}
    active = dict(searches)
    for index, commit in enumerate(line):
        active = {path: search for path, search in active.items() if index < search.stop}
        if not active:
            break
        before = line[index + 1] if index + 1 < len(line) else None
        for path in mirror.changed_paths(before.tree if before else None, commit.tree, active):
            package = find_package(mirror, commit.tree, path) if index else searched[path].at_head
            if package is None or package.tree in active[path].elsewhere:
                del active[path]
                continue
            active[path].states.append((commit, package))
            if before is None or mirror.subtree(before.tree, path) is None:
                del active[path]
    return {path: search.states[::-1] for path, search in searches.items()}


def _start(tags: Iterable[PackageRevision], positions: Mapping[Oid, int]) -> _Search:
    tagged = [(tag.commit.oid, tag.tree) for tag in tags]
    on_line = [positions[commit] for commit, _ in tagged if commit in positions]
    elsewhere = frozenset(tree for commit, tree in tagged if commit not in positions)
    return _Search(min(on_line, default=len(positions)), elsewhere)
