"""Read drafts and deletion proposals, on branches of their own or in groups."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import NamedTuple

from msgspec import Struct

from reconciler.api.kptfile import KptfileHeader
from reconciler.forge.local.merge import find_outside
from reconciler.git.commits import CommitData, parse_annotations
from reconciler.git.repository import Mirror
from reconciler.inventory.inventory import DeletionBranch, Draft, GroupBranch
from reconciler.names.ids import Lifecycle, Oid
from reconciler.names.objects import Commit
from reconciler.names.refs import RevisionRef, group_refs, is_group, parse_ref
from reconciler.names.trailers import read_answers
from reconciler.policy import CommitPolicy, Policy
from reconciler.read.repositories.discovery import PackageAtRef, find_package


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
        has_more=bool(foreign and base and find_outside(mirror, base, tip.oid, named.path)),
        behind=main is not None and mirror.subtree(main, named.path) != base_tree,
    )


def read_deletion(
    mirror: Mirror, ref: str, onto: Onto, path: str, policy: CommitPolicy
) -> DeletionBranch | None:
    """Return the branch that proposes to delete a package, None if there is none."""
    oid = mirror.refs().get(ref)
    tip = mirror.find_commit(oid) if oid else None
    if oid is None or tip is None:
        return None
    base = mirror.merge_base(onto.main, oid) if onto.main else None
    commits = map(mirror.commit, mirror.walk(oid, onto.hidden))
    return DeletionBranch(
        tip=Commit(oid, tip.committer.time),
        base_tree=mirror.subtree(base, path) if base else None,
        has_foreign_commits=any(not is_ours(commit, policy) for commit in commits),
    )


def is_ours(commit: CommitData, policy: CommitPolicy) -> bool:
    """Tell whether we made a commit: its committer is the configured one."""
    return (commit.committer.name, commit.committer.email) == (policy.name, policy.email)


def _touches(mirror: Mirror, commit: CommitData, path: str) -> bool:
    """Tell whether a commit changed what is at a path; one that merges took neither side as it was."""
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


def read_groups(mirror: Mirror, mains: Iterable[Oid], policy: Policy) -> Iterator[GroupDrafts]:
    """Yield the groups of this instance in one repository, as recorded in Git alone (D21).

    The `kpt:` lines of our own commits name the packages. A name counts only if the branch contains that
    package and it differs from main where the branch left it.
    """
    hidden = frozenset[Oid]().union(*(mirror.ancestry(main) for main in mains))
    for ref, oid in sorted(mirror.refs().items()):
        tip = mirror.find_commit(oid) if ref.startswith(group_refs(policy.instance)) else None
        if tip is not None:
            yield _read_group(mirror, ref, tip, hidden, policy)


def read_emptied(mirror: Mirror, mains: Iterable[Oid], policy: Policy) -> Iterator[GroupBranch]:
    """Yield each draft branch from which a person deleted its package, as a group of that one package."""
    hidden = frozenset[Oid]().union(*(mirror.ancestry(main) for main in mains))
    for ref, oid in sorted(mirror.refs().items()):
        named = parse_ref(ref)
        if named is None or named.lifecycle not in {Lifecycle.DRAFT, Lifecycle.PROPOSED} or oid in hidden:
            continue
        tip = mirror.find_commit(oid)
        if tip is None or find_package(mirror, tip.tree, named.path) is not None:
            continue
        base = mirror.merge_base_with(hidden, oid)
        ours, _ = split_by_author(map(mirror.commit, mirror.walk(oid, hidden)), policy.commits)
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
    """Return the packages that commits name, each with its workspace in the newest of them; sorted."""
    workspaces: dict[str, str] = {}
    for commit in commits:
        for note in parse_annotations(commit.message):
            workspaces.setdefault(note.package, note.workspace)
    return {path: workspaces[path] for path in sorted(workspaces) if path}


def _last_written(mirror: Mirror, ours: Iterable[CommitData], path: str) -> Oid | None:
    """Return the package tree of our newest commit that names it."""
    newest = next((commit for commit in ours if path in _named([commit])), None)
    return mirror.subtree(newest.oid, path) if newest else None
