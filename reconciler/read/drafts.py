"""Drafts and proposals: what we wrote on a branch, what people added, where it left main."""

from reconciler.api.kptfile import KptfileHeader
from reconciler.forge.merge_checks import find_outside
from reconciler.git.commits import CommitData
from reconciler.git.repository import Mirror
from reconciler.ids import Oid
from reconciler.inventory import Commit, DeletionBranch, Draft
from reconciler.layout import is_group
from reconciler.policy import CommitPolicy
from reconciler.read.discovery import FoundRef
from reconciler.trailers import read_answers


def read_draft(
    mirror: Mirror, found: FoundRef, main: Oid | None, header: KptfileHeader, ours: CommitPolicy
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
        foreign=bool(foreign),
        foreign_time=max((c.committer.time for c in foreign), default=0),
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
        foreign=any(not is_ours(commit, ours) for commit in own),
    )


def is_ours(commit: CommitData, ours: CommitPolicy) -> bool:
    """Whether we made a commit: its committer is the configured one."""
    return (commit.committer.name, commit.committer.email) == (ours.name, ours.email)


def _touches(mirror: Mirror, commit: CommitData, path: str) -> bool:
    parent = mirror.find_commit(commit.parents[0]) if commit.parents else None
    return bool(mirror.changed_paths(parent.tree if parent else None, commit.tree, [path]))
