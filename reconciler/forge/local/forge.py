"""The default forge: pull requests live in Git refs of the bare repository itself, no account needed."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from reconciler.base.errors import ConflictError, ReconcilerError, RefusedError
from reconciler.forge.local.approval import ATTEMPTS, Approvals, LocalMerge
from reconciler.forge.local.transaction import LocalTransaction
from reconciler.git.pack import Pack
from reconciler.git.push import PushStatus, RefUpdate, name_refs, push
from reconciler.git.repository import Mirror
from reconciler.inventory.inventory import CheckState, PullRequest
from reconciler.policy import CommitPolicy

T = TypeVar("T")


# Pull requests are refs of the repository: whoever may push may open one, and no server is needed.
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
        return self._merged(LocalMerge(number, expect, drafts=False))

    def approve(self, number: int, *, expect: str) -> str:
        """Propose and merge a pull request in one step; raises as `merge`."""
        return self._merged(LocalMerge(number, expect))

    def approve_all(self, approvals: Sequence[LocalMerge]) -> Mapping[int, str | ReconcilerError]:
        """Merge pull requests in their order, in as few pushes as possible.

        Returns: by number the merge commit's id, or the error that `approve` would raise.
        """
        merges = Approvals(self.mirror, self.policy, self.begin)
        merges.merge(approvals)
        return merges.results

    def enable_auto_merge(self, number: int, *, expect: str) -> bool:
        """Refuse: a bare repository does nothing by itself."""
        del expect
        raise RefusedError(f"Pull request {number}: the local forge has no auto-merge")

    def checks(self, commit: str) -> Mapping[str, CheckState]:
        """Return an empty mapping: a bare repository runs no checks."""
        del commit
        return {}

    def _merged(self, approval: LocalMerge) -> str:
        result = self.approve_all([approval])[approval.number]
        if isinstance(result, ReconcilerError):
            raise result
        return result

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
