"""Assemble the packages of a view from main, drafts, tags and unpublished revisions."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import islice
from typing import NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from reconciler.api.kptfile import KptfileHeader
from reconciler.base.errors import RefusedError
from reconciler.forge.local.merge import check_inside, proposed_packages
from reconciler.git.commits import CommitData, parse_annotations
from reconciler.git.repository import Mirror
from reconciler.inventory.inventory import (
    DeletionBranch,
    Draft,
    GroupBranch,
    PackageRevision,
    PackageState,
    UnpublishedRevision,
)
from reconciler.names.ids import Lifecycle, Oid
from reconciler.names.objects import Commit
from reconciler.names.refs import RevisionRef, deletion_ref, group_refs, is_group, parse_ref, short_branch
from reconciler.names.trailers import read_answers
from reconciler.policy import CommitPolicy, Policy
from reconciler.read.repositories.discovery import (
    PackageAtRef,
    PackageDirectory,
    Survey,
    annotated_workspaces,
    find_package,
    find_root_tags,
    published_revision,
)
from reconciler.read.repositories.trees import HeaderIndex


def split_by_author(
    commits: Iterable[CommitData], policy: CommitPolicy
) -> tuple[list[CommitData], list[CommitData]]:
    """Return our commits, which have the configured committer, and foreign ones, in the order given."""
    commits = tuple(commits)
    return [c for c in commits if is_ours(c, policy)], [c for c in commits if not is_ours(c, policy)]


def newest_time(commits: Iterable[CommitData]) -> int:
    """Return the time of the newest commit, in seconds; 0 for none."""
    # Clocks of people may be wrong: the tip is not always the newest.
    return max((commit.committer.time for commit in commits), default=0)


class Onto(NamedTuple):
    """The head of the branch that a view is of, and every commit of the branches that views are of."""

    main: Oid | None
    hidden: frozenset[Oid]


def read_draft(
    mirror: Mirror, branch: PackageAtRef, onto: Onto, header: KptfileHeader, policy: CommitPolicy
) -> Draft:
    """Return a draft, with the authorship of its commits above main.

    A branch that main contains has no commits of its own: then its tip alone counts. Commits of
    another branch are no edits of people: a draft that was made onto that has what it has.
    """
    main = onto.main
    ref, named, tip, package = branch
    merged = mirror.ancestry(main) if main else frozenset()
    base = mirror.merge_base(main, tip.oid) if main else None
    commits = [mirror.commit(oid) for oid in mirror.walk(tip.oid, merged)] or [tip]
    ours, foreign = split_by_author(commits, policy)
    foreign = [commit for commit in foreign if commit.oid not in onto.hidden]
    # A commit that only merges main into the branch does not write the package.
    newest = next((c for c in ours if _touches(mirror, c, named.path)), ours[0] if ours else None)
    base_tree = mirror.subtree(base, named.path) if base else None
    return Draft(
        path=named.path,
        workspace=named.workspace,
        lifecycle=named.lifecycle,
        ref=ref,
        tip=Commit(tip.oid, tip.committer.time),
        tree=package.tree,
        header=header,
        base=base or Oid(""),
        base_tree=base_tree,
        written=mirror.subtree(newest.oid, named.path) if newest else None,
        has_foreign_commits=bool(foreign),
        foreign_commit_time=newest_time(foreign),
        is_touched=any(_touches(mirror, commit, named.path) for commit in foreign),
        answers=read_answers((c.message for c in reversed(commits)), named.path, alone=not is_group(ref)),
        outside=_outside(mirror, base, branch) if foreign and base else "",
        behind=main is not None and mirror.subtree(main, named.path) != base_tree,
    )


def _outside(mirror: Mirror, base: Oid, branch: PackageAtRef) -> str:
    try:
        if is_group(branch.ref):
            proposed_packages(mirror, base, branch.commit.oid)
        else:
            check_inside(mirror, base, branch.commit.oid, branch.named.path, short_branch(branch.ref))
    except RefusedError as error:
        return str(error)
    return ""


def read_deletion(
    mirror: Mirror, ref: str, onto: Onto, path: str, policy: CommitPolicy
) -> DeletionBranch | None:
    """Return the branch that proposes to delete a package, None if there is none."""
    oid = mirror.refs().get(ref)
    if oid is None or mirror.find_commit(oid) is None:
        return None
    base = mirror.merge_base(onto.main, oid) if onto.main else None
    commits = map(mirror.commit, mirror.walk(oid, onto.hidden))
    return DeletionBranch(
        base_tree=mirror.subtree(base, path) if base else None,
        has_foreign_commits=any(not is_ours(commit, policy) for commit in commits),
    )


def is_ours(commit: CommitData, policy: CommitPolicy) -> bool:
    """Tell whether we made a commit: its committer is the configured one."""
    return (commit.committer.name, commit.committer.email) == (policy.name, policy.email)


def _touches(mirror: Mirror, commit: CommitData, path: str) -> bool:
    parents = [mirror.find_commit(oid) for oid in commit.parents] or [None]
    return all(
        mirror.changed_paths(parent.tree if parent else None, commit.tree, [path]) for parent in parents
    )


_MAX_COMMITS = 50
"""Commits below the tip of a merged group that are searched for one of ours."""


class GroupDrafts(Struct, frozen=True):
    """A group branch and its drafts."""

    branch: GroupBranch
    drafts: tuple[PackageAtRef, ...]


def read_groups(mirror: Mirror, mains: Collection[Oid], policy: Policy) -> Iterator[GroupDrafts]:
    """Yield the groups of this instance in one repository, as recorded in Git alone (D21).

    The `kpt:` lines of our own commits name the packages. A name counts only if the branch contains that
    package and it differs from main where the branch left it.
    """
    hidden = cache(lambda: _hidden(mirror, mains))
    for ref, oid in sorted(mirror.refs().items()):
        tip = mirror.find_commit(oid) if ref.startswith(group_refs(policy.instance)) else None
        if tip is not None:
            yield _read_group(mirror, ref, tip, hidden(), policy)


def _hidden(mirror: Mirror, mains: Iterable[Oid]) -> frozenset[Oid]:
    """Return all commits of main: a long walk, which a repository without drafts is spared."""
    return frozenset[Oid]().union(*map(mirror.ancestry, mains))


def read_emptied(mirror: Mirror, mains: Collection[Oid], policy: Policy) -> Iterator[GroupBranch]:
    """Yield each draft branch from which a person deleted its package, as a group of that one package."""
    hidden = cache(lambda: _hidden(mirror, mains))
    for ref, oid in sorted(mirror.refs().items()):
        named = parse_ref(ref)
        if named is None or named.lifecycle not in {Lifecycle.DRAFT, Lifecycle.PROPOSED}:
            continue
        tip = mirror.find_commit(oid)
        if tip is None or find_package(mirror, tip.tree, named.path) is not None or oid in hidden():
            continue
        base = mirror.merge_base_with(hidden(), oid)
        ours, _ = split_by_author(map(mirror.commit, mirror.walk(oid, hidden())), policy.commits)
        paths = frozenset([named.path])
        is_on_main = base is not None and mirror.subtree(base, named.path) is not None
        if is_on_main or _last_written(mirror, ours, named.path) is not None:
            yield GroupBranch(
                ref,
                Commit(oid, tip.committer.time),
                (named.path,),
                dropped=frozenset() if is_on_main else paths,
                deleted=paths if is_on_main else frozenset(),
                has_foreign_commits=True,
            )


def _read_group(
    mirror: Mirror, ref: str, tip: CommitData, hidden: frozenset[Oid], policy: Policy
) -> GroupDrafts:
    ours, foreign = split_by_author(map(mirror.commit, mirror.walk(tip.oid, hidden)), policy.commits)
    at = Commit(tip.oid, tip.committer.time)
    if not ours and not foreign:
        below = islice(mirror.first_parents(tip.oid), _MAX_COMMITS)
        last = next((commit for commit in below if is_ours(commit, policy.commits)), None)
        return GroupDrafts(GroupBranch(ref, at, tuple(_named([last] if last else [])), merged=True), ())
    named = _named(ours)
    base = mirror.merge_base_with(hidden, tip.oid)
    drafts: list[PackageAtRef] = []
    dropped: set[str] = set()
    deleted: set[str] = set()
    for path, workspace in named.items():
        proposed, before = mirror.subtree(tip.oid, path), mirror.subtree(base, path) if base else None
        package = find_package(mirror, tip.tree, path)
        if package is not None and proposed != before:
            drafts.append(PackageAtRef(ref, RevisionRef(path, workspace, 0, Lifecycle.DRAFT), tip, package))
        elif _last_written(mirror, ours, path) != before:
            # We proposed a change of this package, and the branch has none any more.
            dropped.add(path)
        if package is None and before is not None:
            deleted.add(path)
    branch = GroupBranch(
        ref,
        at,
        tuple(named),
        dropped=frozenset(dropped),
        deleted=frozenset(deleted),
        has_foreign_commits=bool(foreign),
        foreign_commit_time=newest_time(foreign),
    )
    return GroupDrafts(branch, tuple(drafts))


def _named(commits: Iterable[CommitData]) -> Mapping[str, str]:
    workspaces: dict[str, str] = {}
    for commit in commits:
        for note in parse_annotations(commit.message):
            workspaces.setdefault(note.package, note.workspace)
    return {path: workspaces[path] for path in sorted(workspaces) if path}


def _last_written(mirror: Mirror, ours: Iterable[CommitData], path: str) -> Oid | None:
    newest = next((commit for commit in ours if path in _named([commit])), None)
    return mirror.subtree(newest.oid, path) if newest else None


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
    published = [_published(mirror, content) for content in contents]
    walked = _walk_back(mirror, contents, published, policy, index)
    prefix = deletion_ref(policy.instance, "")
    has_deletions = any(ref.startswith(prefix) for ref in mirror.refs())
    heads = {content.head.oid for content in contents if content.head}
    has_drafts = any(_is_draft(ref) for content in contents for ref in content.refs)
    hidden = _hidden(mirror, heads) if has_drafts or has_deletions else frozenset[Oid]()
    for content, tags in zip(contents, published, strict=True):
        head = content.head.oid if content.head else None
        onto = Onto(head, hidden)
        packages = _main_packages(content, walked.get(head, {}) if head else {}, index)
        drafts: dict[str, list[Draft]] = {}
        for ref in filter(_is_draft, content.refs):
            draft = read_draft(mirror, ref, onto, index.header(ref.package.kptfile), policy.commits)
            drafts.setdefault(ref.named.path, []).append(draft)
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

    return {package.path: package for package in map(shared, packages.values())}


def _held(tree: Oid, texts: Mapping[str, str]) -> Oid:
    return Oid(texts.get(tree, tree))


def _published(mirror: Mirror, content: ViewContent) -> dict[str, list[PackageRevision]]:
    """Return the revisions of a view that have a tag, by path."""
    tags: dict[str, list[PackageRevision]] = {}
    for ref in content.refs:
        if not _is_draft(ref):
            tags.setdefault(ref.named.path, []).append(published_revision(mirror, ref))
    return tags


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
    mirror: Mirror,
    contents: Iterable[ViewContent],
    published: Iterable[Mapping[str, list[PackageRevision]]],
    policy: Policy,
    index: HeaderIndex,
) -> Mapping[Oid, Mapping[str, list[_State]]]:
    """Return the unpublished states by main's head and path: one walk serves all views of a branch."""
    ours = f"{policy.instance}/"
    searched: dict[Oid, dict[str, Searched]] = {}
    for content, tags in zip(contents, published, strict=True):
        if content.head is None:
            continue
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
