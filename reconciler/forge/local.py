"""The default forge: pull requests live in Git refs of the bare repository itself, no account needed."""

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeVar

from reconciler.errors import ConflictError, RefusedError
from reconciler.forge.local_merge import (
    DeletionHead,
    DraftHead,
    LockHead,
    OutdatedError,
    approval_message,
    check_inside,
    check_new_package,
    next_revision,
    parse_head,
    proposed_packages,
)
from reconciler.forge.local_store import PullRecord
from reconciler.forge.local_transaction import LocalTransaction
from reconciler.git.pack import Pack
from reconciler.git.push import PushStatus, RefUpdate, name_refs, push
from reconciler.git.repository import Mirror
from reconciler.ids import Oid
from reconciler.inventory import CheckState, PullRequest, PullState
from reconciler.objects import Signature
from reconciler.plan.commits import removal_message
from reconciler.policy import CommitPolicy
from reconciler.refs import DELETION_PROPOSED, HEADS, is_group, tag_ref
from reconciler.wording import plural

ATTEMPTS = 5
T = TypeVar("T")


class MergeCommit(NamedTuple):
    """The commit on the base that merges a pull request, its time in seconds, and all moved refs."""

    oid: Oid
    time: int
    updates: list[RefUpdate]


class LocalForge:
    """Pull requests of one repository, stored in `refs/reconciler/pulls/<number>`.

    The same state machine as a real forge, moved by compare-and-swap: concurrent steps of people and runs
    are never lost. Every method is safe to repeat.
    """

    def __init__(self, mirror: Mirror, policy: CommitPolicy) -> None:
        self.mirror = mirror
        self.policy = policy

    def list_pulls(self) -> tuple[PullRequest, ...]:
        """Return the readable pull requests by number, then the unreadable ones."""
        transaction = self.begin(Pack(self.mirror))
        pulls = (transaction.pull_request(record) for record in transaction.records.values())
        return (*pulls, *transaction.unreadable)

    def begin(self, pack: Pack) -> LocalTransaction:
        """Return a transaction that collects the changes of one push."""
        return LocalTransaction(self.mirror, pack, self.policy)

    def ensure(self, desired: PullRequest) -> PullRequest:
        """Open a pull request for `desired.head`, or update the open one; return it."""
        return self._commit(lambda t: (t.pull_request(t.ensure(desired)), []))

    def mark_ready(self, number: int) -> None:
        """Mark a draft as ready for review; its branch moves to `proposed/`."""
        self._commit(lambda t: (None, t.mark_ready(number)))

    def mark_draft(self, number: int) -> None:
        """Turn a ready pull request into a draft; its branch moves back to `drafts/`."""
        self._commit(lambda t: (None, t.mark_draft(number)))

    def close(self, number: int, *, comment: str, duplicate_of: int = 0) -> None:
        """Close an obsolete pull request; there are no duplicates here: a branch has one record."""
        del duplicate_of
        self._commit(lambda t: (t.close(number, comment, withdrawn=True), []))

    def reject(self, number: int, *, comment: str = "") -> None:
        """Close a pull request because a person rejects its content."""
        self._commit(lambda t: (t.close(number, comment, withdrawn=False), []))

    def reopen(self, number: int) -> None:
        """Reopen a closed pull request, with its branch as it is now.

        Raises:
            RefusedError: It was merged, its branch is gone, or another one of this branch is open.
        """
        self._commit(lambda t: (t.reopen(number), []))

    def comment(self, number: int, *, key: str, body: str) -> None:
        """Write the comment with this key, or update its text."""
        self._commit(lambda t: (t.comment(number, key, body), []))

    def merge(self, number: int, *, expect: str) -> str:
        """Merge a ready pull request if its head is still `expect`; return the merge commit's id.

        Raises:
            RefusedError: It is a draft or closed, or the merge would undo a change on the base.
            ConflictError: Its head moved.
        """
        return self._commit(lambda t: self._merge(t, t.find(number), expect, drafts=False))

    def approve(self, number: int, *, expect: str) -> str:
        """Propose and merge a pull request in one step; raises as `merge`."""
        return self._commit(lambda t: self._merge(t, t.find(number), expect, drafts=True))

    def enable_auto_merge(self, number: int, *, expect: str) -> bool:
        """Refuse: a bare repository does nothing by itself."""
        del expect
        raise RefusedError(f"Pull request {number}: the local forge has no auto-merge")

    def checks(self, commit: str) -> Mapping[str, CheckState]:
        """Return an empty mapping: a bare repository runs no checks."""
        del commit
        return {}

    def _merge(
        self, transaction: LocalTransaction, record: PullRecord, expect: str, *, drafts: bool
    ) -> tuple[str, list[RefUpdate]]:
        if record.state is PullState.MERGED:
            return record.merge_oid, []
        if record.state is PullState.CLOSED:
            raise RefusedError(f"Pull request {record.number} is closed")
        if record.head_oid != expect:
            raise ConflictError(f"The head of pull request {record.number} moved")
        if record.draft and not drafts:
            raise RefusedError(
                f"Pull request {record.number} is a draft",
                hint="Mark it ready with `reconciler approve --propose-only`, or approve it right away.",
            )
        merge = self._compose(transaction.pack, record)
        transaction.mark_merged(record.number, merge.oid, merge.time)
        return merge.oid, merge.updates

    def _compose(self, pack: Pack, record: PullRecord) -> MergeCommit:
        head = Oid(record.head_oid)
        match parse_head(record.head):
            case DraftHead(path, workspace):
                return self._publish(pack, record, path, workspace)
            case DeletionHead(path):
                return self._delete(pack, record, path)
            case LockHead(path):
                main = self._checked_base(record, path)
                trees = {path: self.mirror.subtree(head, path)}
                return self._commit_trees(pack, record, main, trees, f"{record.title}\n")
            case _ if is_group(f"{HEADS}{record.head}"):
                return self._merge_group(pack, record)
            case _:
                raise RefusedError(f"{record.head} is not the draft of a package; merge it with git")

    def _publish(self, pack: Pack, record: PullRecord, path: str, workspace: str) -> MergeCommit:
        """Publish a draft: Porch's commit with two parents and a tag; the draft's branch is deleted."""
        refs = self.mirror.refs()
        package = self.mirror.subtree(Oid(record.head_oid), path)
        if package is None:
            raise RefusedError(f"{record.head} does not contain package {path}")
        base = refs.get(f"{HEADS}{record.base}")
        if base is not None:
            check_new_package(self.mirror, base, package, path)
        main = self._checked_base(record, path)
        number = next_revision(path, refs)
        message = approval_message(path, workspace, number)
        merge = self._commit_trees(pack, record, main, {path: package}, message)
        # After the base and before the deleted draft: a server without atomic pushes applies them in order.
        merge.updates.insert(1, RefUpdate(tag_ref(path, number), None, merge.oid))
        return merge

    def _delete(self, pack: Pack, record: PullRecord, path: str) -> MergeCommit:
        """Approve a deletion: the package leaves the base as on the head; its tags stay."""
        main = self._checked_base(record, path)
        trees = {path: self.mirror.subtree(Oid(record.head_oid), path)}
        merge = self._commit_trees(pack, record, main, trees, removal_message(path), parents=(main,))
        refs, marks = self.mirror.refs(), f"{HEADS}{DELETION_PROPOSED}{path}/"
        merge.updates.extend(RefUpdate(ref, refs[ref], None) for ref in sorted(refs) if ref.startswith(marks))
        return merge

    def _merge_group(self, pack: Pack, record: PullRecord) -> MergeCommit:
        """Merge the packages of a group; the next runs tag them, three tags per push (D4)."""
        head = Oid(record.head_oid)
        main = self.mirror.refs().get(f"{HEADS}{record.base}")
        fork = self.mirror.merge_base(main, head) if main else None
        if main is None or fork is None:
            raise RefusedError(f"{record.head} and {record.base} have no commit in common")
        packages = proposed_packages(self.mirror, fork, head)
        for path, (before, _) in packages.items():
            self._check_unmoved(record, path, main, before)
        trees = {path: after for path, (_, after) in packages.items()}
        message = f"Approving {plural(len(packages), 'package')}\n"
        return self._commit_trees(pack, record, main, trees, message)

    def _commit_trees(
        self,
        pack: Pack,
        record: PullRecord,
        main: Oid,
        trees: Mapping[str, Oid | None],
        message: str,
        *,
        parents: tuple[Oid, ...] = (),
    ) -> MergeCommit:
        """Commit directories of the head onto the base, and delete the head's branches.

        Args:
            pack: Receives the objects.
            record: The pull request.
            main: The base's commit.
            trees: The trees by path; None removes the directory.
            message: The commit's message.
            parents: The commit's parents, by default the base and the head.
        """
        head, refs = Oid(record.head_oid), self.mirror.refs()
        tree = self.mirror.commit(main).tree
        for path, package in trees.items():
            tree = pack.graft(tree, path, package)
        # As old as its inputs, not the clock: the same merge has the same id whenever it is made.
        time = max(self.mirror.commit(oid).committer.time for oid in (main, head))
        author = Signature(*self.policy.author(next(iter(trees), "")), time)
        committer = Signature(self.policy.name, self.policy.email, time)
        commit = pack.commit(tree, parents or (main, head), author, committer, message)
        gone = [RefUpdate(ref, refs[ref], None) for ref in record.head_refs if ref in refs]
        return MergeCommit(commit, time, [RefUpdate(f"{HEADS}{record.base}", main, commit), *gone])

    def _checked_base(self, record: PullRecord, path: str) -> Oid:
        """Return the base's commit, on which the package is unchanged since the head left it.

        Raises:
            RefusedError: The package changed on the base, or the head changes other paths too.
        """
        head = Oid(record.head_oid)
        main = self.mirror.refs().get(f"{HEADS}{record.base}")
        if main is None:
            raise RefusedError(f"{self.mirror.remote} has no branch {record.base}")
        fork = self.mirror.merge_base(main, head)
        before = self.mirror.subtree(fork, path) if fork else None
        if fork is not None:
            check_inside(self.mirror, fork, head, path, record.head)
        self._check_unmoved(record, path, main, before)
        return main

    def _check_unmoved(self, record: PullRecord, path: str, main: Oid, before: Oid | None) -> None:
        if self.mirror.subtree(main, path) != before:
            refs = self.mirror.refs()
            branch = next((ref for ref in record.head_refs if ref in refs), record.head).removeprefix(HEADS)
            raise OutdatedError(
                f"{path} changed on {record.base} since pull request {record.number} was made",
                path,
                hint=f"Merge {record.base} into {branch} with git and push it, then approve again.",
            )

    def _commit(self, step: Callable[[LocalTransaction], tuple[T, list[RefUpdate]]]) -> T:
        """Run a step in a transaction and push it; run it again on the new refs if another writer won.

        Raises:
            ConflictError: Other writers won every time.
            RefusedError: The repository refuses the push.
        """
        for _ in range(ATTEMPTS):
            pack = Pack(self.mirror)
            transaction = self.begin(pack)
            value, moves = step(transaction)
            updates = [*moves, *transaction.updates()]
            if not updates:
                return value
            pack.save()
            failed = [result for result in push(self.mirror, updates) if not result.ok]
            if not failed:
                return value
            if rejected := [result for result in failed if result.status is PushStatus.REJECTED]:
                refs = name_refs(rejected)
                raise RefusedError(f"{self.mirror.remote} refuses {refs}: {rejected[0].message}")
            self.mirror.fetch()
        raise ConflictError(f"Other writers keep changing the pull requests of {self.mirror.remote}")
