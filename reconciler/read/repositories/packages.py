"""Assemble the packages of a view from main, drafts, tags and unpublished revisions."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from reconciler.api.kptfile import KptfileHeader
from reconciler.git.commits import CommitData
from reconciler.git.repository import Mirror
from reconciler.inventory.inventory import Draft, PackageRevision, PackageState, UnpublishedRevision
from reconciler.names.ids import Lifecycle, Oid
from reconciler.names.objects import Commit
from reconciler.names.refs import deletion_ref
from reconciler.policy import Policy
from reconciler.read.repositories.discovery import (
    PackageAtRef,
    PackageDirectory,
    Survey,
    annotated_workspaces,
    find_package,
    find_root_tags,
    published_revision,
)
from reconciler.read.repositories.drafts import Onto, read_deletion, read_draft
from reconciler.read.repositories.kptfiles import HeaderIndex

_State = tuple[CommitData, PackageDirectory]


class Searched(NamedTuple):
    """A package on main to search for unpublished states, with its tags."""

    package: PackageDirectory
    tags: Sequence[PackageRevision] = ()

    @property
    def at_head(self) -> PackageDirectory | None:
        """The package at main's head, None if its Kptfile is no regular file."""
        return None if self.package.kptfile is None or self.package.is_link else self.package


class ViewContent(Struct, frozen=True):
    """One view to read: main's commit, the refs of its packages, and the survey of main."""

    head: CommitData | None
    refs: tuple[PackageAtRef, ...]
    survey: Survey = Survey()

    def kptfiles(self) -> Iterator[Oid | None]:
        """Yield the Kptfiles on main and in drafts."""
        root = (self.survey.root,) if self.survey.root else ()
        yield from (package.kptfile for package in (*root, *self.survey.packages))
        yield from (draft.package.kptfile for draft in self.refs if _is_draft(draft))


def read_packages(
    mirror: Mirror, contents: Sequence[ViewContent], policy: Policy, index: HeaderIndex
) -> Iterator[Mapping[str, PackageState]]:
    """Yield the packages of each view of a repository by full path, sorted.

    The headers of their Kptfiles must be loaded.

    Raises:
        UnavailableError: An object is missing and cannot be fetched.
    """
    walked = _walk_back(mirror, contents, policy, index)
    prefix = deletion_ref(policy.instance, "")
    has_deletions = any(ref.startswith(prefix) for ref in mirror.refs())
    heads = {content.head.oid for content in contents if content.head}
    hidden = frozenset[Oid]().union(*map(mirror.ancestry, heads))
    for content in contents:
        head = content.head.oid if content.head else None
        onto, packages = (
            Onto(head, hidden),
            _main_packages(content, walked.get(head, {}) if head else {}, index),
        )
        drafts, tags = _read_refs(mirror, content, onto, policy, index)
        for path in {*drafts, *tags}:
            packages[path] = replace(
                packages.get(path) or PackageState(path),
                drafts=tuple(sorted(drafts.get(path, ()), key=lambda d: d.ref)),
                published=tuple(sorted(tags.get(path, ()), key=lambda r: (r.revision, r.ref))),
            )
        for path in packages if has_deletions else ():
            deletion = read_deletion(mirror, f"{prefix}{path}", onto, path, policy.commits)
            packages[path] = replace(packages[path], deletion=deletion)
        yield dict(sorted(packages.items()))


def read_root(mirror: Mirror, content: ViewContent, index: HeaderIndex) -> PackageState | None:
    """Return the package that a whole repository is, on main or at tags; None if it never was one.

    The header of its Kptfile must be loaded.
    """
    root = content.survey.root
    tags = (published_revision(mirror, tag) for tag in find_root_tags(mirror))
    published = tuple(sorted(tags, key=lambda r: (r.revision, r.ref)))
    if root is None:
        return PackageState("", published=published) if published else None
    return PackageState("", root.tree, _header(root, index), published=published)


def share_texts(packages: Mapping[str, PackageState], texts: Mapping[str, str]) -> Mapping[str, PackageState]:
    """Return the packages of a view with the paths and trees that other values hold, and each commit once."""
    commits: dict[Commit, Commit] = {}

    def shared(package: PackageState) -> PackageState:
        tree, path = package.main_tree, texts.get(package.path, package.path)
        unpublished = tuple(
            replace(
                state, commit=commits.setdefault(state.commit, state.commit), tree=_held(state.tree, texts)
            )
            for state in package.unpublished
        )
        main_tree = _held(tree, texts) if tree else None
        return replace(package, path=path, main_tree=main_tree, unpublished=unpublished)

    shares = map(shared, packages.values())
    return {package.path: package for package in shares}


def _held(tree: Oid, texts: Mapping[str, str]) -> Oid:
    return Oid(texts.get(tree, tree))


def _read_refs(
    mirror: Mirror, content: ViewContent, onto: Onto, policy: Policy, index: HeaderIndex
) -> tuple[dict[str, list[Draft]], dict[str, list[PackageRevision]]]:
    """Return drafts and tags of a view by path."""
    drafts: dict[str, list[Draft]] = {}
    tags: dict[str, list[PackageRevision]] = {}
    for ref in content.refs:
        path = ref.named.path
        if _is_draft(ref):
            header = index.header(ref.package.kptfile)
            draft = read_draft(mirror, ref, onto, header, policy.commits)
            drafts.setdefault(path, []).append(draft)
        else:
            tags.setdefault(path, []).append(published_revision(mirror, ref))
    return drafts, tags


def _main_packages(
    content: ViewContent, walked: Mapping[str, list[_State]], index: HeaderIndex
) -> dict[str, PackageState]:
    return {
        package.path: PackageState(
            package.path,
            main_tree=package.tree,
            main_header=_header(package, index),
            unpublished=tuple(_revisions(walked.get(package.path, ()), index)),
        )
        for package in content.survey.packages
    }


def _header(package: PackageDirectory, index: HeaderIndex) -> KptfileHeader:
    return KptfileHeader() if package.is_plain else index.header(package.kptfile)


def _walk_back(
    mirror: Mirror, contents: Iterable[ViewContent], policy: Policy, index: HeaderIndex
) -> Mapping[Oid, Mapping[str, list[_State]]]:
    """Return the unpublished states by main's head and path: one walk serves all views of a branch."""
    ours = f"{policy.instance}/"
    searched: dict[Oid, dict[str, Searched]] = {}
    for content in contents:
        if content.head is None:
            continue
        tags: dict[str, list[PackageRevision]] = {}
        for ref in content.refs:
            if not _is_draft(ref):
                tags.setdefault(ref.named.path, []).append(published_revision(mirror, ref))
        # Walking back is slow: only packages of this instance that differ from their latest tag need it.
        searched.setdefault(content.head.oid, {}).update(
            (package.path, Searched(package, tags.get(package.path, ())))
            for package in content.survey.packages
            if index.header(package.kptfile).owner.startswith(ours)
            and package.tree != _latest(tags.get(package.path, ()))
        )
    walked = {
        head: find_unpublished(mirror, head, packages) for head, packages in searched.items() if packages
    }
    states = (package for merged in walked.values() for states in merged.values() for _, package in states)
    index.load(mirror, (package.kptfile for package in states))
    return walked


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


class _Search(Struct):
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
