"""Changes of one repository: Git objects in one pack, one atomic push, then its pull requests."""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from msgspec import Struct, field

from reconciler.apply.outcome import EffectKind, Result, Target, failed_result, merge_results
from reconciler.apply.pulls import PullRequestTexts, approve_pulls, call_forge
from reconciler.base.defects import as_defect, is_unforeseen
from reconciler.base.errors import ConflictError, ReconcilerError, RefusedError, UnavailableError
from reconciler.forge.local.forge import LocalForge
from reconciler.forge.local.pulls import LocalTransaction
from reconciler.git.pack import Pack
from reconciler.git.push import PushResult, PushStatus, RefUpdate, fits_push, push
from reconciler.git.repository import Mirror
from reconciler.git.trees import PackageRefusedError
from reconciler.inventory.inventory import PullRequest, PullState
from reconciler.names.ids import Oid, PackageKey
from reconciler.names.objects import Files, Signature
from reconciler.names.refs import HEADS, TAGS
from reconciler.plan.changes import (
    Change,
    Effect,
    MoveRef,
    StartBranch,
    Write,
    WriteDraft,
    WriteGroup,
    WriteRemoval,
)
from reconciler.policy import CommitPolicy

ATTEMPTS = 3
MOST_REFUSALS = 20
"""Pushes that a repository may refuse in a row before the rest of a batch is left."""


class Composed(NamedTuple):
    """One ref to move, and the time of the commit it moves to, in seconds (0 if it goes)."""

    update: RefUpdate
    time: int


class _Push(Struct):
    """One push in the making: what it moves, and for which changes; `failures` are of those left out."""

    pack: Pack
    staged: LocalTransaction | None
    composed: list[tuple[Change, Composed]] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)
    opened: dict[tuple[str, str], PullRequest] = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)
    failures: list[Result] = field(default_factory=list)
    made: dict[str | int, Composed | None] = field(default_factory=dict)

    def compose(self, write: Write, target: Target) -> Composed | None:
        """Compose a write, once: packages of a group share theirs, those of an empty repository the first."""
        key = write.ref if isinstance(write, StartBranch) else id(write)
        if key not in self.made:
            self.made[key] = compose(write, target.mirror, self.pack, target.policy)
        return self.made[key]


def apply_repository(target: Target, changes: Sequence[Change]) -> Result:
    """Do every change of one repository; a change that cannot be done does not stop the others.

    Atomic per push, and one push is the rule: only more than three new tags need another (D4).
    Nothing is pushed that is there already. What another writer moved is left to the next run.
    """
    requests = PullRequestTexts(changes, target.risks)
    batches = _batches([change for change in changes if change.pending], target.mirror)
    return merge_results([result for batch in batches for result in _apply_batch(target, batch, requests)])


def _apply_batch(  # noqa: C901 - one push and the three ways in which it fails, in their order
    target: Target, changes: Sequence[Change], requests: PullRequestTexts
) -> Iterator[Result]:
    """Push a batch; leave out what another writer moved or the repository refuses, and push the rest.

    An atomic push that loses one ref moves none. The changes of refs that lost are left out. After a refusal
    each half is tried alone: a server names one ref of many, or none if it refuses the pack or the push.
    """
    waiting = deque([list(changes)])
    races, refusals = 0, list[PushResult]()  # in a row
    while waiting:
        # The largest part and the smallest one in turn: what is refused may stand side by side, or anywhere.
        part = waiting.pop() if len(refusals) % 2 else waiting.popleft()
        try:
            pushed = _compose(target, part, requests)
            answers = _push(target.mirror, pushed)
            failed = _failed(answers)
            if failed:
                target.mirror.fetch()
        except (ReconcilerError, PackageRefusedError) as error:
            refusal = error if isinstance(error, ReconcilerError) else RefusedError(str(error))
            yield failed_result(
                target.names.repository(part[0]),
                refusal,
                {change.package for change in chain(part, *waiting)},
            )
            return
        except Exception as error:
            if not is_unforeseen(error):
                raise
            # A bug of ours: of the halves the one without its package is pushed.
            if len(halves := _halves(part)) > 1:
                waiting += halves
                continue
            defect = as_defect(f"package {part[0].package}", error)
            packages = {change.package for change in part}
            yield failed_result(target.names.repository(part[0]), defect, packages, part[0].package.path)
            continue
        yield from pushed.failures
        if not failed:
            # The local forge keeps pull requests in refs, which the push has moved.
            after = () if pushed.staged else call_forge(target, pushed.changes, requests)
            yield Result(tuple(pushed.effects), opened=pushed.opened)
            yield from after
            yield from approve_pulls(target, pushed.changes)
            races, refusals = 0, []
            continue
        blamed = _blame(pushed, failed, target.mirror)
        rejected = next((result for result in failed.values() if result.status is PushStatus.REJECTED), None)
        if rejected is None:
            races += 1
        else:
            refusals.append(rejected)
            # A server that refuses all alike does not say which it means, unless there is one alone.
            if not blamed or len(failed) == len(answers):
                everyone = [(change, ", ".join(failed), _error(rejected)) for change in pushed.changes]
                blamed = [] if len(_halves(pushed.changes)) > 1 else blamed or everyone
        yield from (
            failed_result(target.names.repository(c), error, {c.package}, ref) for c, ref, error in blamed
        )
        lost = {change.package for change, _, _ in blamed}
        survivors = [change for change in pushed.changes if change.package not in lost]
        waiting += [survivors] if survivors and not rejected else _halves(survivors)
        if races == ATTEMPTS or len(refusals) == MOST_REFUSALS:
            why = _given_up(target.mirror, refusals if races < ATTEMPTS else ())
            yield from (failed_result(target.names.repository(c), why, {c.package}) for c in chain(*waiting))
            return


def _halves(changes: Sequence[Change]) -> list[list[Change]]:
    """Split changes in two parts, one if it is a single one; packages of a group stay together."""
    units: dict[object, list[Change]] = {}
    for change in changes:
        group = next((write.ref for write in change.writes if isinstance(write, WriteGroup)), change.package)
        units.setdefault(group, []).append(change)
    middle = (len(units) + 1) // 2
    parts = [*units.values()][:middle], [*units.values()][middle:]
    return [[*chain.from_iterable(part)] for part in parts if part]


def _given_up(mirror: Mirror, refusals: Sequence[PushResult]) -> ReconcilerError:
    """Return why the rest of a batch is left: too many pushes were refused, or others wrote meanwhile."""
    if not refusals:
        return ConflictError(f"Others keep writing to {mirror.remote}")
    last = refusals[-1].message
    message = f"{mirror.remote} refused {len(refusals)} pushes in a row, the last with: {last}"
    return RefusedError(message, hint=_refusal_hint(last))


def _compose(target: Target, changes: Sequence[Change], requests: PullRequestTexts) -> _Push:
    """Compose a push of all changes but those that fail by themselves."""
    pack = Pack(target.mirror)
    staged = target.forge.begin(pack) if isinstance(target.forge, LocalForge) else None
    pushed = _Push(pack, staged)
    reported: set[Composed] = set()
    for change in changes:
        try:
            moves = [pushed.compose(write, target) for write in change.writes]
        except UnavailableError:  # the repository or the key, not this package
            raise
        except ReconcilerError as error:
            pushed.failures.append(failed_result(target.names.repository(change), error, {change.package}))
            continue
        pushed.changes.append(change)
        for write, composed in zip(change.writes, moves, strict=True):
            if composed is None:
                continue
            pushed.composed.append((change, composed))
            if composed not in reported:
                reported.add(composed)
                ref, _, new = composed.update
                kind = EffectKind.PUSHED if new else EffectKind.DELETED
                pushed.effects.append(
                    Effect(target.names.repository(change), kind, ref.removeprefix(HEADS), new or "")
                )
                if staged and not isinstance(write, StartBranch):
                    staged.move(write.ref, composed.update.new, composed.time)
        if staged:
            pushed.effects += _stage_pulls(target, staged, change, requests)
            if change.pull and (record := staged.find_open(change.pull.head)):
                pushed.opened[change.package.url, record.head] = record.pull()
    return pushed


def _push(mirror: Mirror, pushed: _Push) -> Sequence[PushResult]:
    # Several changes may ask for the same move.
    updates = list(dict.fromkeys(composed.update for _, composed in pushed.composed))
    updates += pushed.staged.updates() if pushed.staged else []
    if not updates:
        return ()
    pushed.pack.save()
    return push(mirror, updates)


def _failed(results: Iterable[PushResult]) -> dict[str, PushResult]:
    """Return the refs that did not move; refs that an atomic push skipped only if there are no others."""
    failed = {result.update.ref: result for result in results if not result.ok}
    return {ref: r for ref, r in failed.items() if r.status is not PushStatus.SKIPPED} or failed


def _blame(
    pushed: _Push, failed: dict[str, PushResult], mirror: Mirror
) -> list[tuple[Change, str, ReconcilerError]]:
    """Return the changes that cannot be done as planned, the refs that failed, and one reason each.

    A ref that another run moved where we would have moved it is done, not lost: the same inputs make
    the same commits. A pull request that another writer moved is staged again from its current state.
    """
    blamed: dict[PackageKey, tuple[Change, list[str], ReconcilerError]] = {}
    for change, (update, _) in pushed.composed:
        result = failed.get(update.ref)
        if result is not None and not _is_there(update.ref, update.new, mirror, pushed.pack):
            error = _blocked(update.ref, mirror.refs()) or _error(result)
            blamed.setdefault(change.package, (change, [], error))[1].append(update.ref)
    return [(change, ", ".join(refs), error) for change, refs, error in blamed.values()]


def _blocked(ref: str, refs: Iterable[str]) -> RefusedError | None:
    """Return why a ref cannot be created: another ref is a prefix of its path, or below it."""
    for other in sorted(refs):
        if ref.startswith(f"{other}/") or other.startswith(f"{ref}/"):
            name = other.removeprefix(HEADS)
            return RefusedError(f"Branch {name} stands in the way; rename or delete it")
    return None


def _error(result: PushResult) -> ReconcilerError:
    if result.status is PushStatus.REJECTED:
        return RefusedError(
            f"The repository refuses it: {result.message}", hint=_refusal_hint(result.message)
        )
    return ConflictError(f"Another writer moved or locked it: {result.message}")


def _refusal_hint(message: str) -> str:
    """Return what to do about a refusal.

    Every commit contains the tree of its branch: while a part of that is malformed, every push fails.
    """
    if "missing necessary objects" not in message:
        return "Change what the server names, in the package or in its rules, or pause the variant."
    return "Git takes no push onto a malformed tree: `git fsck` names it; commit to the branch without it."


def _stage_pulls(
    target: Target, staged: LocalTransaction, change: Change, requests: PullRequestTexts
) -> Iterator[Effect]:
    name = target.names.repository(change)
    if change.pull:
        before = staged.find_open(change.pull.head)
        record = staged.ensure(requests.wanted(target, change, change.pull))
        if record != before:
            kind = EffectKind.UPDATED if before else EffectKind.OPENED
            yield Effect(name, kind, f"#{record.number} {record.title}")
    for close in change.close:
        before = staged.find(close.number)
        # One with content that the base has counts as merged as soon as its branch goes.
        is_merged = before.state is PullState.MERGED
        if staged.close(close.number, close.comment, withdrawn=True) != before or is_merged:
            yield Effect(name, EffectKind.CLOSED, f"#{before.number} {before.title}")


def _batches(changes: Sequence[Change], mirror: Mirror) -> Iterator[list[Change]]:
    """Split changes so that each batch is one push: few new tags, a bounded number of refs."""
    batch: list[Change] = []
    tags = refs = 0
    for change in changes:
        moves = (write for write in change.writes if isinstance(write, MoveRef) and write.to)
        new_tags, new_refs = sum(move.ref.startswith(TAGS) for move in moves), len(change.writes) + 1
        # Each branch may bring the ref of a local pull request with it.
        if batch and not fits_push(mirror, tags + new_tags, 2 * (refs + new_refs)):
            yield batch
            batch, tags, refs = [], 0, 0
        batch.append(change)
        tags, refs = tags + new_tags, refs + new_refs
    if batch:
        yield batch


def compose(write: Write, mirror: Mirror, pack: Pack, policy: CommitPolicy) -> Composed | None:
    """Put a write's objects into `pack`; return the move of its ref, None if the ref is there already.

    Reproducible: author and committer are the policy's, their time is the write's, never the clock. A
    commit that another run made with another key, or without one, is there already.
    """
    new = _target(write, mirror, pack, policy)
    if _is_there(write.ref, new, mirror, pack):
        return None
    return Composed(RefUpdate(write.ref, write.expect, new), _time(write, mirror))


def _is_there(ref: str, new: Oid | None, mirror: Mirror, pack: Pack) -> bool:
    """Tell whether a ref is where it is to be; another run's key may have signed the same commit."""
    there = mirror.refs().get(ref)
    return there == new or bool(there and new and pack.differs_in_signature(new, there))


def _target(write: Write, mirror: Mirror, pack: Pack, policy: CommitPolicy) -> Oid | None:
    match write:
        case WriteDraft():
            package = _package(write.ref, write.files, write.tree, pack)
            tree = pack.graft(_base(write, mirror, pack), {write.path: package})
            for path, file in write.beside.items():
                tree = pack.replace_file(tree, path, file)
            return _commit(write, tree, pack, policy)
        case WriteGroup():
            trees = {
                part.path: _package(write.ref, part.files, part.tree, pack) if part.tree else None
                for part in write.parts
            }
            return _commit(write, pack.graft(_base(write, mirror, pack), trees), pack, policy)
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


def _package(ref: str, files: Files, tree: Oid, pack: Pack) -> Oid:
    """Return a package's tree with its files in the pack; without files the repository has them."""
    # Planning checked the names against those on main, or in the draft: two that clash there stay.
    package = pack.files(files, before=files) if files else tree
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
    """Return the author and the committer of a commit to the package at `path`."""
    return Signature(*policy.author(path), time), Signature(policy.name, policy.email, time)
