"""Assemble the packages of a view from main, drafts, tags and unpublished revisions."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field

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


def read_packages(
    mirror: Mirror, content: ViewContent, policy: Policy, index: HeaderIndex
) -> Mapping[str, PackageState]:
    """Return the packages of a view by full path, sorted. The headers of its Kptfiles must be loaded.

    Raises:
        UnavailableError: An object is missing and cannot be fetched.
    """
    mains = {package.path: package for package in content.survey.packages}
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
    unpublished = _unpublished(mirror, content, tags, policy, index)
    return {
        path: PackageState(
            path,
            main_tree=mains[path].tree if path in mains else None,
            main_header=index.header(mains[path].kptfile) if path in mains else None,
            drafts=tuple(sorted(drafts.get(path, ()), key=lambda d: d.ref)),
            published=tuple(sorted(tags.get(path, ()), key=lambda r: (r.revision, r.ref))),
            unpublished=unpublished.get(path, ()),
            deletion=read_deletion(mirror, deletion_ref(policy.instance, path), main, path, policy.commits),
        )
        for path in sorted({*mains, *drafts, *tags})
    }


def _unpublished(
    mirror: Mirror,
    content: ViewContent,
    tags: Mapping[str, list[PackageRevision]],
    policy: Policy,
    index: HeaderIndex,
) -> Mapping[str, tuple[UnpublishedRevision, ...]]:
    if content.head is None:
        return {}
    ours = f"{policy.instance}/"
    # Walking back is slow: only packages of this instance that differ from their latest tag need it.
    searched = {
        package.path: [(revision.commit.oid, revision.tree) for revision in tags.get(package.path, ())]
        for package in content.survey.packages
        if index.header(package.kptfile).owner.startswith(ours)
        and package.tree != _latest(tags, package.path)
    }
    merged = find_unpublished(mirror, content.head.oid, searched)
    index.load(mirror, (package.kptfile for states in merged.values() for _, package in states))
    return {
        path: tuple(
            UnpublishedRevision(
                commit=Commit(commit.oid, commit.committer.time),
                tree=package.tree,
                header=index.header(package.kptfile),
                workspaces=annotated_workspaces(commit, path),
            )
            for commit, package in states
        )
        for path, states in merged.items()
    }


def _latest(tags: Mapping[str, list[PackageRevision]], path: str) -> Oid | None:
    latest = PackageState(path, published=tuple(tags.get(path, ()))).latest
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
    states: list[tuple[CommitData, PackageDirectory]] = field(default_factory=list)


def find_unpublished(
    mirror: Mirror, head: Oid, tagged: Mapping[str, Iterable[tuple[Oid, Oid]]]
) -> dict[str, list[tuple[CommitData, PackageDirectory]]]:
    """Return for each package its states on main since its newest tag, oldest first.

    After a merge, squash, rebase or plain push, main's first-parent line has a commit that changed the
    package's tree: that commit is the state. A removal ends the search: older states are of another package
    at the same path.

    Args:
        mirror: The repository.
        head: Main's head.
        tagged: The packages to search, each with commit and package tree of its tags.
    """
    line = list(mirror.first_parents(head)) if tagged else []
    positions = {commit.oid: index for index, commit in enumerate(line)}
    searches = {path: _start(tags, positions) for path, tags in tagged.items()}
    active = dict(searches)
    for index, commit in enumerate(line):
        active = {path: search for path, search in active.items() if index < search.stop}
        if not active:
            break
        before = line[index + 1] if index + 1 < len(line) else None
        for path in mirror.changed_paths(before.tree if before else None, commit.tree, active):
            package = find_package(mirror, commit.tree, path)
            if package is None or package.tree in active[path].elsewhere:
                del active[path]
                continue
            active[path].states.append((commit, package))
            if before is None or mirror.subtree(before.tree, path) is None:
                del active[path]
    return {path: search.states[::-1] for path, search in searches.items()}


def _start(tags: Iterable[tuple[Oid, Oid]], positions: Mapping[Oid, int]) -> _Search:
    tags = list(tags)
    on_line = [positions[commit] for commit, _ in tags if commit in positions]
    elsewhere = frozenset(tree for commit, tree in tags if commit not in positions)
    return _Search(min(on_line, default=len(positions)), elsewhere)
