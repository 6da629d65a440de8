"""Drafts and proposals: what we wrote on a branch, what people added, where it left main."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

from reconciler.api.kptfile import KptfileHeader
from reconciler.forge.local_merge import find_outside
from reconciler.git.commits import CommitData, parse_annotations
from reconciler.git.repository import Mirror
from reconciler.ids import Lifecycle, Oid
from reconciler.inventory import Commit, DeletionBranch, Draft, GroupBranch
from reconciler.policy import CommitPolicy, Policy
from reconciler.read.repositories.discovery import PackageAtRef, find_package
from reconciler.refs import RevisionRef, group_refs, is_group
from reconciler.trailers import read_answers


def read_draft(
    mirror: Mirror, found: PackageAtRef, main: Oid | None, header: KptfileHeader, ours: CommitPolicy
) -> Draft:
    """Return a draft branch judged by its commits above main.

    Our commits are known by their committer. A branch that is wholly in main (it was merged, or
    never left) has no commits of its own: then its tip is judged alone.
    """
    ref, named, tip, package = found
    merged = mirror.ancestry(main) if main else frozenset()
    base = mirror.merge_base(main, tip.oid) if main else None
    own = [mirror.commit(oid) for oid in mirror.walk(tip.oid, merged)] or [tip]
    foreign = [c for c in own if not is_ours(c, ours)] if base != tip.oid else []
    mine = [c for c in own if is_ours(c, ours)]
    # A commit that only brings main into the branch writes nothing of the package.
    newest = next((c for c in mine if _touches(mirror, c, named.path)), mine[0] if mine else None)
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
        foreign_commit_time=max((c.committer.time for c in foreign), default=0),
        answers=read_answers((c.message for c in reversed(own)), named.path, alone=not is_group(ref)),
        has_more=bool(foreign and base and find_outside(mirror, base, tip.oid, named.path)),
        behind=main is not None and mirror.subtree(main, named.path) != base_tree,
    )


def read_deletion(
    mirror: Mirror, ref: str, main: Oid | None, path: str, ours: CommitPolicy
) -> DeletionBranch | None:
    """Return the branch that proposes to delete a package, None if there is none."""
    oid = mirror.refs().get(ref)
    tip = mirror.find_commit(oid) if oid else None
    if oid is None or tip is None:
        return None
    base = mirror.merge_base(main, oid) if main else None
    merged = mirror.ancestry(main) if main else frozenset()
    own = (mirror.commit(each) for each in mirror.walk(oid, merged))
    return DeletionBranch(
        tip=Commit(oid, tip.committer.time),
        base_tree=mirror.subtree(base, path) if base else None,
        has_foreign_commits=any(not is_ours(commit, ours) for commit in own),
    )


def is_ours(commit: CommitData, ours: CommitPolicy) -> bool:
    """Whether we made a commit: its committer is the configured one."""
    return (commit.committer.name, commit.committer.email) == (ours.name, ours.email)


def _touches(mirror: Mirror, commit: CommitData, path: str) -> bool:
    parent = mirror.find_commit(commit.parents[0]) if commit.parents else None
    return bool(mirror.changed_paths(parent.tree if parent else None, commit.tree, [path]))


_BACK = 50
"""How many commits below the tip of a merged group are looked at for the one that we wrote."""


@dataclass(frozen=True, slots=True)
class GroupDrafts:
    """A group's branch, and the drafts that stand on it."""

    branch: GroupBranch
    drafts: tuple[PackageAtRef, ...]


def read_groups(mirror: Mirror, mains: Iterable[Oid], policy: Policy) -> Iterator[GroupDrafts]:
    """Yield the groups of this instance in one repository; nothing but Git tells of them (D21).

    The `kpt:` lines of our own commits name the packages. A name is believed only as far as the
    branch holds a package there that differs from main where the branch left it.

    Args:
        mirror: The repository.
        mains: The heads of the branches that groups are merged into.
        policy: The instance, and how its commits are recognised.
    """
    hidden = frozenset[Oid]().union(*(mirror.ancestry(main) for main in mains))
    for ref, oid in sorted(mirror.refs().items()):
        tip = mirror.find_commit(oid) if ref.startswith(group_refs(policy.instance)) else None
        if tip is not None:
            yield _read_group(mirror, ref, tip, hidden, policy)


def _read_group(
    mirror: Mirror, ref: str, tip: CommitData, hidden: frozenset[Oid], policy: Policy
) -> GroupDrafts:
    own = [mirror.commit(oid) for oid in mirror.walk(tip.oid, hidden)]
    at = Commit(tip.oid, tip.committer.time)
    if not own:
        below = islice(mirror.first_parents(tip.oid), _BACK)
        last = next((commit for commit in below if is_ours(commit, policy.commits)), None)
        return GroupDrafts(GroupBranch(ref, at, tuple(_named([last] if last else [])), merged=True), ())
    foreign = [commit for commit in own if not is_ours(commit, policy.commits)]
    named = _named(commit for commit in own if is_ours(commit, policy.commits))
    base = mirror.merge_base_with(hidden, tip.oid)
    drafts: list[PackageAtRef] = []
    dropped: set[str] = set()
    for path, workspace in named.items():
        proposed, before = mirror.subtree(tip.oid, path), mirror.subtree(base, path) if base else None
        found = find_package(mirror, tip.tree, path)
        if found is not None and proposed != before:
            drafts.append(PackageAtRef(ref, RevisionRef(path, workspace, 0, Lifecycle.DRAFT), tip, found))
        elif _last_written(mirror, own, path, policy) != before:
            dropped.add(path)
    branch = GroupBranch(
        ref,
        at,
        tuple(named),
        dropped=frozenset(dropped),
        has_foreign_commits=bool(foreign),
        foreign_commit_time=max((commit.committer.time for commit in foreign), default=0),
    )
    return GroupDrafts(branch, tuple(drafts))


def _named(commits: Iterable[CommitData]) -> Mapping[str, str]:
    """Return the packages that commits name, each with the workspace that the newest gives it; sorted."""
    found: dict[str, str] = {}
    for commit in commits:
        for note in parse_annotations(commit.message):
            found.setdefault(note.package, note.workspace)
    return {path: found[path] for path in sorted(found) if path}


def _last_written(mirror: Mirror, own: Iterable[CommitData], path: str, policy: Policy) -> Oid | None:
    """Return the package as our newest commit that names it left it."""
    mine = (commit for commit in own if is_ours(commit, policy.commits))
    newest = next((commit for commit in mine if path in _named([commit])), None)
    return mirror.subtree(newest.oid, path) if newest else None
