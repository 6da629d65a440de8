"""The default forge: pull requests live in Git refs of the bare repository itself, no account needed."""

from collections.abc import Callable
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
from reconciler.forge.local_transaction import Staging
from reconciler.git.pack import Pack
from reconciler.git.push import PushStatus, RefUpdate, push
from reconciler.git.repository import Mirror
from reconciler.ids import Oid
from reconciler.inventory import PullRequest, PullState
from reconciler.objects import Signature
from reconciler.plan.messages import removal_message
from reconciler.policy import CommitPolicy
from reconciler.refs import DELETION_PROPOSED, HEADS, is_group, tag_ref

ATTEMPTS = 5
T = TypeVar("T")


class Merging(NamedTuple):
    """What approving a pull request does: the commit on the base, its time, the refs that move."""

    commit: Oid
    time: int
    updates: list[RefUpdate]


class LocalForge:
    """Pull requests of one repository, kept as `refs/reconciler/pulls/<number>`.

    The same state machine as a real forge, moved by compare-and-swap: two people, or a person and
    a run, never lose each other's step. Every method is safe to repeat.
    """

    def __init__(self, mirror: Mirror, policy: CommitPolicy) -> None:
        self.mirror = mirror
        self.policy = policy

    def list_pulls(self) -> tuple[PullRequest, ...]:
        """Return every pull request by number, then what is legible of those that cannot be read."""
        staged = self.stage(Pack(self.mirror))
        return (*(staged.pull(record) for record in staged.records.values()), *staged.unreadable)

    def records(self) -> tuple[PullRecord, ...]:
        """Return every pull request with what only this forge knows of it, sorted by number."""
        return tuple(self.stage(Pack(self.mirror)).records.values())

    def stage(self, pack: Pack) -> Staging:
        """Return where the effects of one push are gathered, pull requests and branches alike."""
        return Staging(self.mirror, pack, self.policy)

    def ensure(self, wanted: PullRequest) -> PullRequest:
        """Open a pull request for `wanted.head`, or bring the open one up to date; return it."""
        return self._now(lambda staged: (staged.pull(staged.ensure(wanted)), []))

    def mark_ready(self, number: int) -> None:
        """Mark a draft as ready for review; its branch moves to `proposed/`."""
        self._now(lambda staged: (None, staged.mark_ready(number)))

    def mark_draft(self, number: int) -> None:
        """Make a ready pull request a draft again; its branch moves back to `drafts/`."""
        self._now(lambda staged: (None, staged.mark_draft(number)))

    def close(self, number: int, *, comment: str, duplicate_of: int = 0) -> None:
        """Close a pull request that is obsolete; here no branch ever has two."""
        del duplicate_of
        self._now(lambda staged: (staged.close(number, comment, withdrawn=True), []))

    def reject(self, number: int, *, comment: str = "") -> None:
        """Close a pull request because a person does not want its content."""
        self._now(lambda staged: (staged.close(number, comment, withdrawn=False), []))

    def reopen(self, number: int) -> None:
        """Open a closed pull request again, as its branch is now; nothing happens if it is open.

        Raises:
            RefusedError: It was merged, its branch is gone, or another one of this branch is open.
        """
        self._now(lambda staged: (staged.reopen(number), []))

    def comment(self, number: int, *, key: str, body: str) -> None:
        """Write or update the one comment of ours that `key` names."""
        self._now(lambda staged: (staged.comment(number, key, body), []))

    def merge(self, number: int, *, expect: str) -> str:
        """Merge a pull request that is ready and whose head is still `expect`; return the merge commit.

        Raises:
            RefusedError: It is a draft, it was closed, or merging would undo somebody's change.
            ConflictError: Its head moved.
        """
        return self._now(lambda staged: self._merge(staged, staged.find(number), expect, drafts=False))

    def approve(self, number: int, *, expect: str) -> str:
        """Propose and merge in one step, as a person with the right to approve does."""
        return self._now(lambda staged: self._merge(staged, staged.find(number), expect, drafts=True))

    def passed_checks(self, commit: str) -> frozenset[str]:
        """Return no check: there is nobody here who would run one."""
        del commit
        return frozenset()

    def _merge(
        self, staged: Staging, record: PullRecord, expect: str, *, drafts: bool
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
        merging = self._compose(staged, record)
        staged.merged(record.number, merging.commit, merging.time)
        return merging.commit, merging.updates

    def _compose(self, staged: Staging, record: PullRecord) -> Merging:
        match parse_head(record.head):
            case DraftHead(path, workspace):
                return self._publication(staged.pack, record, path, workspace)
            case DeletionHead(path):
                return self._removal(staged.pack, record, path)
            case LockHead(path):
                return self._lock(staged.pack, record, path)
            case _ if is_group(f"{HEADS}{record.head}"):
                return self._group(staged.pack, record)
            case _:
                raise RefusedError(f"{record.head} is no draft of one package; merge it with git")

    def _publication(self, pack: Pack, record: PullRecord, path: str, workspace: str) -> Merging:
        """Publish a draft: Porch's commit with two parents, the tag, and no draft any more."""
        refs, head = self.mirror.refs(), Oid(record.head_oid)
        files = self.mirror.subtree(head, path)
        if files is None:
            raise RefusedError(f"{record.head} holds no package {path}")
        base = refs.get(f"{HEADS}{record.base}")
        if base is not None:
            check_new_package(self.mirror, base, files, path)
        main = self._unmoved_base(record, path)
        time = max(self.mirror.commit(c).committer.time for c in (main, head))
        number = next_revision(path, refs)
        tree = pack.graft(self.mirror.commit(main).tree, path, files)
        author, committer = self._people(path, time)
        commit = pack.commit(tree, (main, head), author, committer, approval_message(path, workspace, number))
        updates = [
            RefUpdate(f"{HEADS}{record.base}", main, commit),
            RefUpdate(tag_ref(path, number), None, commit),
            *(RefUpdate(ref, refs[ref], None) for ref in record.head_refs if ref in refs),
        ]
        return Merging(commit, time, updates)

    def _removal(self, pack: Pack, record: PullRecord, path: str) -> Merging:
        """Approve a deletion: the package leaves the base as the head shows it; its tags stay."""
        refs, head = self.mirror.refs(), Oid(record.head_oid)
        main = self._unmoved_base(record, path)
        time = max(self.mirror.commit(c).committer.time for c in (main, head))
        tree = pack.graft(self.mirror.commit(main).tree, path, self.mirror.subtree(head, path))
        author, committer = self._people(path, time)
        commit = pack.commit(tree, (main,), author, committer, removal_message(path))
        beside = f"{HEADS}{DELETION_PROPOSED}{path}/"
        gone = [ref for ref in refs if ref in record.head_refs or ref.startswith(beside)]
        updates = [RefUpdate(ref, refs[ref], None) for ref in sorted(gone)]
        return Merging(commit, time, [RefUpdate(f"{HEADS}{record.base}", main, commit), *updates])

    def _lock(self, pack: Pack, record: PullRecord, path: str) -> Merging:
        """Merge another lock: its directory as the head has it, everything else as the base has it."""
        refs, head = self.mirror.refs(), Oid(record.head_oid)
        main = self._unmoved_base(record, path)
        time = max(self.mirror.commit(c).committer.time for c in (main, head))
        tree = pack.graft(self.mirror.commit(main).tree, path, self.mirror.subtree(head, path))
        author, committer = self._people(path, time)
        commit = pack.commit(tree, (main, head), author, committer, f"{record.title}\n")
        gone = [RefUpdate(ref, refs[ref], None) for ref in record.head_refs if ref in refs]
        return Merging(commit, time, [RefUpdate(f"{HEADS}{record.base}", main, commit), *gone])

    def _group(self, pack: Pack, record: PullRecord) -> Merging:
        """Merge the drafts of a group; each package is tagged by the next run, three tags a push (D4)."""
        refs, head = self.mirror.refs(), Oid(record.head_oid)
        main = refs.get(f"{HEADS}{record.base}")
        fork = self.mirror.merge_base(main, head) if main else None
        if main is None or fork is None:
            raise RefusedError(f"{record.head} and {record.base} have no commit in common")
        tree, packages = self.mirror.commit(main).tree, proposed_packages(self.mirror, fork, head)
        for path, (before, after) in packages.items():
            self._check_unmoved(record, path, main, before)
            tree = pack.graft(tree, path, after)
        time = max(self.mirror.commit(c).committer.time for c in (main, head))
        author, committer = self._people(next(iter(packages), ""), time)
        message = f"Approving {len(packages)} packages\n"
        commit = pack.commit(tree, (main, head), author, committer, message)
        gone = [RefUpdate(ref, refs[ref], None) for ref in record.head_refs if ref in refs]
        return Merging(commit, time, [RefUpdate(f"{HEADS}{record.base}", main, commit), *gone])

    def _people(self, path: str, time: int) -> tuple[Signature, Signature]:
        """Return the author and the committer of a commit to what stands at `path`."""
        return Signature(*self.policy.author(path), time), Signature(
            self.policy.name, self.policy.email, time
        )

    def _unmoved_base(self, record: PullRecord, path: str) -> Oid:
        """Return the base's head, if the package there is still what the proposal was made from.

        Raises:
            RefusedError: Somebody changed it since; merging would undo that.
        """
        main = self.mirror.refs().get(f"{HEADS}{record.base}")
        if main is None:
            raise RefusedError(f"{self.mirror.remote} has no branch {record.base}")
        fork = self.mirror.merge_base(main, Oid(record.head_oid))
        before = self.mirror.subtree(fork, path) if fork else None
        if fork is not None:
            check_inside(self.mirror, fork, Oid(record.head_oid), path, record.head)
        self._check_unmoved(record, path, main, before)
        return main

    def _check_unmoved(self, record: PullRecord, path: str, main: Oid, before: Oid | None) -> None:
        if self.mirror.subtree(main, path) != before:
            branch = self._branch(record)
            raise OutdatedError(
                f"{path} changed on {record.base} since pull request {record.number} was made",
                path,
                hint=f"Merge {record.base} into {branch} with git and push it, then approve again.",
            )

    def _branch(self, record: PullRecord) -> str:
        """Return the short name of the branch where a head stands now."""
        refs = self.mirror.refs()
        return next((ref for ref in record.head_refs if ref in refs), record.head).removeprefix(HEADS)

    def _now(self, act: Callable[[Staging], tuple[T, list[RefUpdate]]]) -> T:
        """Do one thing at once: stage, push, and decide anew if somebody else was faster.

        Raises:
            ConflictError: Others were faster every time.
            RefusedError: The repository refuses the push.
        """
        for _ in range(ATTEMPTS):
            pack = Pack(self.mirror)
            staged = self.stage(pack)
            result, moves = act(staged)
            updates = [*moves, *staged.updates()]
            if not updates:
                return result
            pack.save()
            failed = [answer for answer in push(self.mirror, updates) if not answer.ok]
            if not failed:
                return result
            for answer in failed:
                if answer.status is PushStatus.REJECTED:
                    raise RefusedError(f"{self.mirror.remote} refuses {answer.update.ref}: {answer.message}")
            self.mirror.fetch()
        raise ConflictError(f"Others keep moving the pull requests of {self.mirror.remote}")
