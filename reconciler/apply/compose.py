"""The writes of a change as Git objects in a pack, and the refs that show them. Nothing is sent."""

from typing import NamedTuple

from reconciler.errors import ReconcilerError
from reconciler.git.pack import Pack
from reconciler.git.push import RefUpdate
from reconciler.git.repository import Mirror
from reconciler.ids import Oid
from reconciler.objects import Files, Signature
from reconciler.plan.changes import MoveRef, StartBranch, Write, WriteDraft, WriteGroup, WriteRemoval
from reconciler.policy import CommitPolicy


class Composed(NamedTuple):
    """One ref to move, and the time of the commit it moves to, in seconds (0 if it goes)."""

    update: RefUpdate
    time: int


def compose(write: Write, mirror: Mirror, pack: Pack, policy: CommitPolicy) -> Composed | None:
    """Put a write's objects into `pack`; return the move of its ref, None if the ref is there already.

    Reproducible: author and committer are the policy's, their time is the write's, never the clock.
    """
    new = _target(write, mirror, pack, policy)
    if mirror.refs().get(write.ref) == new:
        return None
    return Composed(RefUpdate(write.ref, write.expect, new), _time(write, mirror))


def _target(write: Write, mirror: Mirror, pack: Pack, policy: CommitPolicy) -> Oid | None:
    match write:
        case WriteDraft():
            return _commit(write, _draft_tree(write, mirror, pack), pack, policy)
        case WriteGroup():
            return _commit(write, _group_tree(write, mirror, pack), pack, policy)
        case StartBranch():
            author, committer = _people(policy, "", write.time)
            return pack.commit(pack.files(write.files), (), author, committer, write.message)
        case WriteRemoval():
            tree = pack.patch_tree(mirror.commit(write.onto).tree, write.path, None)
            return _commit(write, tree, pack, policy)
        case MoveRef(to=to):
            return to


def _time(write: Write, mirror: Mirror) -> int:
    if isinstance(write, MoveRef):
        return mirror.commit(write.to).committer.time if write.to else 0
    return write.time


def _draft_tree(write: WriteDraft, mirror: Mirror, pack: Pack) -> Oid:
    package = _package(write.ref, write.files, write.tree, pack)
    return pack.graft(_base(write, mirror, pack), write.path, package)


def _group_tree(write: WriteGroup, mirror: Mirror, pack: Pack) -> Oid:
    tree = _base(write, mirror, pack)
    for part in write.parts:
        package = _package(write.ref, part.files, part.tree, pack) if part.tree else None
        tree = pack.graft(tree, part.path, package)
    return tree


def _package(ref: str, files: Files, tree: Oid, pack: Pack) -> Oid:
    """Return a package's tree with its files in the pack; without files the repository has them."""
    package = pack.files(files) if files else tree
    if package != tree:
        raise ReconcilerError(f"{ref} would hold {package}, but {tree} was planned")
    return package


def _base(write: WriteDraft | WriteGroup, mirror: Mirror, pack: Pack) -> Oid:
    commit = (write.merges if isinstance(write, WriteDraft) else None) or write.onto
    return pack.tree_of(commit) or mirror.commit(commit).tree


def _commit(
    write: WriteDraft | WriteGroup | WriteRemoval, tree: Oid, pack: Pack, policy: CommitPolicy
) -> Oid:
    path = write.parts[0].path if isinstance(write, WriteGroup) else write.path
    author, committer = _people(policy, path, write.time)
    merged = (write.merges,) if isinstance(write, WriteDraft) and write.merges else ()
    return pack.commit(tree, (write.onto, *merged), author, committer, write.message)


def _people(policy: CommitPolicy, path: str, time: int) -> tuple[Signature, Signature]:
    """Return the author and the committer of a commit to what stands at `path`."""
    return Signature(*policy.author(path), time), Signature(policy.name, policy.email, time)
