"""The default forge: pull requests live in Git refs of the bare repository itself, no account is needed."""

import sys
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice, takewhile
from types import MappingProxyType
from typing import NamedTuple, TypeVar

from reconciler.api.kptfile import KPTFILE
from reconciler.base.errors import ConflictError, ReconcilerError, RefusedError
from reconciler.base.progress import track
from reconciler.base.text import plural
from reconciler.forge.local.merge import (
    DeletionHead,
    DraftHead,
    LockHead,
    OutdatedError,
    approval_message,
    check_inside,
    check_new_package,
    files_beside,
    next_revision,
    parse_head,
    proposed_packages,
)
from reconciler.forge.local.pulls import HeldRecords, LocalTransaction, PullRecord, number_of
from reconciler.git.pack import Pack
from reconciler.git.push import TAGS_PER_PUSH, PushResult, PushStatus, RefUpdate, name_refs, push
from reconciler.git.repository import Mirror
from reconciler.git.trees import PackageRefusedError
from reconciler.inventory.inventory import CheckState, PullRequest, PullState
from reconciler.names.ids import Oid
from reconciler.names.objects import File, Signature
from reconciler.names.refs import DELETION_PROPOSED, HEADS, TAGS, is_group, tag_ref
from reconciler.policy import CommitPolicy

ATTEMPTS = 5


class Tip(NamedTuple):
    """The commit that a base branch is to have: its id, its tree, its time in seconds."""

    oid: Oid
    tree: Oid
    time: int


class MergeComposer:
    """Composes merge commits of pull requests, and the moves of refs that publish all of them at once.

    The packages of one push are apart from each other, so that each is judged by the base as it is.
    """

    def __init__(self, mirror: Mirror, pack: Pack, policy: CommitPolicy) -> None:
        self.mirror = mirror
        self.pack = pack
        self.policy = policy
        self.owners: dict[str, int] = {}
        self._tips: dict[str, Tip] = {}
        self._paths: set[str] = set()
        self._parents: set[str] = set()
        self._tags: list[RefUpdate] = []
        self._gone: list[RefUpdate] = []
        self._refs = sorted(mirror.refs())

    def updates(self) -> list[RefUpdate]:
        """Return the moves of refs; a server without atomic pushes applies them in this order."""
        refs = self.mirror.refs()
        bases = [RefUpdate(ref, refs.get(ref), tip.oid) for ref, tip in self._tips.items()]
        # The base first and deletions last: a push that ends between loses nothing.
        return [*bases, *self._tags, *self._gone]

    def compose(self, record: PullRecord) -> Tip:
        """Compose the merge of a pull request.

        Raises:
            RefusedError: The merge would undo a change on the base, or change more than its packages.
            ConflictError: Another merge of the same push is about the same package.
        """
        head = Oid(record.head_oid)
        match parse_head(record.head):
            case DraftHead(path, workspace):
                return self._publish(record, path, workspace)
            case DeletionHead(path):
                return self._delete(record, path)
            case LockHead(path, is_chart=True):
                return self._merge_chart(record, path)
            case LockHead(path):
                main = self._checked_base(record, path)
                trees = {path: self.mirror.subtree(head, path)}
                return self._commit_trees(record, main, trees, f"{record.title}\n")
            case _ if is_group(f"{HEADS}{record.head}"):
                return self._merge_group(record)
            case _:
                raise RefusedError(f"{record.head} is not the draft of a package; merge it with git")

    def _publish(self, record: PullRecord, path: str, workspace: str) -> Tip:
        """Publish a draft: Porch's commit with two parents and a tag; the draft's branch is deleted.

        A draft from which a person deleted the package deletes it, and gets no tag.
        """
        base = self.mirror.refs().get(f"{HEADS}{record.base}")
        package = self.mirror.subtree(Oid(record.head_oid), path)
        if package is None or self.mirror.blob_at(package, KPTFILE) is None:
            if base is None or self.mirror.subtree(base, path) is None:
                hint = "Put it back there with git, or close the pull request to reject it."
                raise RefusedError(f"{record.head} does not contain package {path}", hint=hint)
            return self._delete(record, path)
        if base is not None:
            check_new_package(self.mirror, base, package, path)
        main = self._checked_base(record, path)
        number = next_revision(path, self._refs_below(f"{TAGS}{path}/"))
        # Porch finds the commits of a revision by the `kpt:` line of their messages.
        message = approval_message(path, workspace, number)
        merge = self._commit_trees(record, main, {path: package}, message)
        tag = tag_ref(path, number)
        self.owners[tag] = record.number
        self._tags.append(RefUpdate(tag, None, merge.oid))
        return merge

    def _delete(self, record: PullRecord, path: str) -> Tip:
        """Approve a deletion: the package leaves the base as on the head; its tags stay."""
        main = self._checked_base(record, path)
        trees = {path: self.mirror.subtree(Oid(record.head_oid), path)}
        merge = self._commit_trees(record, main, trees, f"Delete {path}\n", is_merge=False)
        self._remove(record, self._refs_below(f"{HEADS}{DELETION_PROPOSED}{path}/"))
        return merge

    def _merge_chart(self, record: PullRecord, path: str) -> Tip:
        head = Oid(record.head_oid)
        main = self.mirror.refs().get(f"{HEADS}{record.base}")
        fork = self.mirror.merge_base(main, head) if main else None
        if main is None or fork is None:
            raise RefusedError(f"{record.head} and {record.base} have no commit in common")
        self._check_unmoved(record, path, main, self.mirror.subtree(fork, path))
        beside = files_beside(self.mirror, fork, head, path)
        for name, file in beside.items():
            if self.mirror.blob_at(main, name) != file.before:
                hint = "`reconciler index sync --pull-request` makes it anew."
                message = f"{name} changed on {record.base} since pull request {record.number} was made"
                raise OutdatedError(message, name, hint=hint)
        trees = {path: self.mirror.subtree(head, path)}
        files = {name: file.after for name, file in beside.items()}
        return self._commit_trees(record, main, trees, f"{record.title}\n", beside=files)

    def _merge_group(self, record: PullRecord) -> Tip:
        """Merge the packages of a group; the next runs tag them, three tags per push (D4)."""
        head = Oid(record.head_oid)
        main = self.mirror.refs().get(f"{HEADS}{record.base}")
        fork = self.mirror.merge_base(main, head) if main else None
        if main is None or fork is None:
            raise RefusedError(f"{record.head} and {record.base} have no commit in common")
        proposed = proposed_packages(self.mirror, fork, head)
        # What the base has already, as the deletion of a package, is no change of the group any more.
        packages = {p: pair for p, pair in proposed.items() if self.mirror.subtree(main, p) != pair[1]}
        for path, (before, _) in packages.items():
            self._check_unmoved(record, path, main, before)
        trees = {path: after for path, (_, after) in packages.items()}
        return self._commit_trees(record, main, trees, f"Approving {plural(len(packages), 'package')}\n")

    def _commit_trees(
        self,
        record: PullRecord,
        main: Oid,
        trees: Mapping[str, Oid | None],
        message: str,
        *,
        beside: Mapping[str, File] = MappingProxyType({}),
        is_merge: bool = True,
    ) -> Tip:
        """Commit directories of the head onto the base, and delete the head's branches.

        Args:
            record: The pull request.
            main: The base's commit.
            trees: The trees by path; None removes the directory.
            message: The commit's message.
            beside: Files elsewhere that it replaces.
            is_merge: The head is a parent, too.
        """
        self._claim([*trees, *beside])
        head, base = Oid(record.head_oid), f"{HEADS}{record.base}"
        tip = self._tips.get(base) or self._tip_of(main)
        tree = self.pack.graft(tip.tree, trees)
        for path, file in beside.items():
            tree = self.pack.replace_file(tree, path, file)
        # As old as its inputs, not the clock: the same merge has the same id whenever it is made.
        time = max(tip.time, self.mirror.commit(head).committer.time)
        author = Signature(*self.policy.author(next(iter(trees), "")), time)
        committer = Signature(self.policy.name, self.policy.email, time)
        parents = (tip.oid, head) if is_merge else (tip.oid,)
        merge = Tip(self.pack.commit(tree, parents, author, committer, message), tree, time)
        self._tips[base] = merge
        self._remove(record, record.head_refs)
        return merge

    def _tip_of(self, oid: Oid) -> Tip:
        commit = self.mirror.commit(oid)
        return Tip(oid, commit.tree, commit.committer.time)

    def _remove(self, record: PullRecord, names: Iterable[str]) -> None:
        refs = self.mirror.refs()
        for ref in names:
            if ref in refs:
                self.owners[ref] = record.number
                self._gone.append(RefUpdate(ref, refs[ref], None))

    def _claim(self, paths: Iterable[str]) -> None:
        """Refuse packages that are the same as, inside of, or around one that is merged already.

        Raises:
            ConflictError: There is such a package.
        """
        parents = {path: _parents(path) for path in paths}
        for path, above in parents.items():
            if path in self._paths or path in self._parents or not self._paths.isdisjoint(above):
                raise ConflictError(f"Another pull request about {path} is merged first")
        self._paths.update(parents)
        self._parents.update(parent for above in parents.values() for parent in above)

    def _refs_below(self, prefix: str) -> list[str]:
        first = bisect_left(self._refs, prefix)
        return list(takewhile(lambda ref: ref.startswith(prefix), islice(self._refs, first, None)))

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


def _parents(path: str) -> set[str]:
    segments = path.split("/")
    return {"/".join(segments[:count]) for count in range(1, len(segments))}


class LocalMerge(NamedTuple):
    """A pull request to merge if its head is still `expect`; `drafts`: although it is a draft."""

    number: int
    expect: str
    drafts: bool = True


Begin = Callable[[Pack], LocalTransaction]


class Approvals:
    """Merges pull requests of one repository in as few pushes as possible.

    The outcome is that of one push for each, in the given order: what fails alone stops no other.
    """

    def __init__(self, mirror: Mirror, policy: CommitPolicy, begin: Begin) -> None:
        self.mirror = mirror
        self.policy = policy
        self.results: dict[int, str | ReconcilerError] = {}
        self._begin = begin
        # A host creates no events for more tags in one push; a directory has no such limit.
        self._most = sys.maxsize if mirror.is_local else TAGS_PER_PUSH

    def merge(self, approvals: Sequence[LocalMerge]) -> None:
        """Merge pull requests; `results` gets the merge commit or the error of each."""
        waiting = list(approvals)
        while waiting:
            waiting = [*self._merge_some(waiting[: self._most]), *waiting[self._most :]]

    def _merge_some(self, approvals: Sequence[LocalMerge]) -> Sequence[LocalMerge]:
        """Make one push; return the pull requests that are to be tried again after it."""
        for _ in range(ATTEMPTS):
            attempt = _Attempt(self.mirror, self.policy, self._begin, approvals)
            try:
                failed = attempt.push()
            except ReconcilerError as error:
                self.results |= attempt.settled | dict.fromkeys(attempt.merged, error)
                return attempt.later
            if not failed:
                self.results |= attempt.settled | attempt.merged
                return attempt.later
            if rejected := [result for result in failed if result.status is PushStatus.REJECTED]:
                self.results |= attempt.settled
                return self._without_rejected(attempt, rejected)
            self.mirror.fetch()
        lost = ConflictError(f"Other writers keep changing the pull requests of {self.mirror.remote}")
        self.results |= dict.fromkeys((approval.number for approval in approvals), lost)
        return ()

    def _without_rejected(self, attempt: "_Attempt", rejected: Sequence[PushResult]) -> Sequence[LocalMerge]:
        """Return what to try again after a refusal of the server, which may be about one of many."""
        tried = [approval for approval in attempt.approvals if approval.number in attempt.merged]
        guilty = {attempt.owner(result.update.ref) for result in rejected}
        if None in guilty or len(guilty) == len(tried):
            # The server does not say which, unless there is one alone.
            guilty = {tried[0].number} if len(tried) == 1 else set()
        message = f"{self.mirror.remote} refuses {name_refs(rejected)}: {rejected[0].message}"
        self.results |= {n: RefusedError(message) for n in attempt.merged if n in guilty}
        remaining = [approval for approval in tried if approval.number not in guilty]
        # It may refuse many, and names one at a time: each half alone takes fewer commits than all again.
        half = len(remaining) // 2
        self.merge(remaining[:half])
        self.merge(remaining[half:])
        return attempt.later


class _Attempt:
    """One push of merges, composed on the refs as they are now."""

    def __init__(
        self, mirror: Mirror, policy: CommitPolicy, begin: Begin, approvals: Sequence[LocalMerge]
    ) -> None:
        self.approvals = approvals
        self.merged: dict[int, str] = {}
        self.settled: dict[int, str | ReconcilerError] = {}
        self.later: list[LocalMerge] = []
        self._mirror = mirror
        self._pack = Pack(mirror)
        self._composer = MergeComposer(mirror, self._pack, policy)
        self._begin = begin

    def push(self) -> Sequence[PushResult]:
        """Compose and push; return the refs that did not move.

        Raises:
            UnavailableError: The repository cannot be reached.
        """
        transaction = self._begin(self._pack)
        for approval in track(self.approvals, "approving"):
            try:
                self._merge(transaction, approval)
            except (ReconcilerError, PackageRefusedError) as error:
                if self.merged:  # it may be right after what is merged before it
                    self.later.append(approval)
                else:
                    refusal = error if isinstance(error, ReconcilerError) else RefusedError(str(error))
                    self.settled[approval.number] = refusal
        updates = [*self._composer.updates(), *transaction.updates()]
        if not updates:
            return ()
        self._pack.save()
        return [result for result in push(self._mirror, updates) if not result.ok]

    def owner(self, ref: str) -> int | None:
        """Return the pull request that alone moves a ref, None for a base branch."""
        return number_of(ref) or self._composer.owners.get(ref)

    def _merge(self, transaction: LocalTransaction, approval: LocalMerge) -> None:
        record = transaction.find(approval.number)
        if record.state is PullState.MERGED:
            self.settled[record.number] = record.merge_oid
            return
        if record.state is PullState.CLOSED:
            raise RefusedError(f"Pull request {record.number} is closed")
        if record.head_oid != approval.expect:
            raise ConflictError(f"The head of pull request {record.number} moved")
        if record.draft and not approval.drafts:
            ready = f"`reconciler approve --propose-only REPOSITORY#{record.number}`"
            raise RefusedError(
                f"Pull request {record.number} of {transaction.mirror.remote} is a draft",
                hint=f"Mark it ready with {ready}, or approve it right away.",
            )
        merge = self._composer.compose(record)
        transaction.mark_merged(record.number, merge.oid, merge.time)
        self.merged[record.number] = merge.oid


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
        self._held: HeldRecords = {}

    def list_pulls(self) -> tuple[PullRequest, ...]:
        """Return the readable pull requests by number, then the unreadable ones."""
        transaction = self.begin(Pack(self.mirror))
        pulls = (transaction.pull_request(record) for record in transaction.records.values())
        return (*pulls, *transaction.unreadable)

    def begin(self, pack: Pack) -> LocalTransaction:
        """Return a transaction that collects the changes of one push."""
        return LocalTransaction(self.mirror, pack, self.policy, self._held)

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
