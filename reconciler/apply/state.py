"""Write the state branch (records and locks) and the status branch, after all other effects (D3)."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from reconciler.apply.outcome import EffectKind, Result, failed_result, merge_results
from reconciler.base.defects import guard
from reconciler.base.errors import ConflictError, Exit, ReconcilerError, RefusedError, UnavailableError
from reconciler.base.redact import outgoing_file, refuse_credentials
from reconciler.dependencies.lock.format import is_lock_file
from reconciler.git.pack import Pack
from reconciler.git.push import PushResult, PushStatus, RefUpdate, push
from reconciler.git.repository import Mirror
from reconciler.git.trees import PackageRefusedError
from reconciler.inventory.inventory import Inventory
from reconciler.inventory.shard import Shard, dashboard_file
from reconciler.names.ids import Oid, PackageKey
from reconciler.names.objects import File, Signature, tree_id
from reconciler.names.refs import HEADS
from reconciler.plan.changes import Effect
from reconciler.policy import CommitPolicy, Limits, Policy
from reconciler.read.state import state_ref
from reconciler.records.state import (
    MOST_BYTES,
    UpstreamLock,
    branch_files,
    branch_records,
    lock_bytes,
    lock_path,
)

MOST_FILES = 1_000_000
"""A fleet has more variants than a package has files."""

MOST_TRIES = 50
"""Writers of one branch side by side, about: each try that fails let another one through."""

_ROOMY = Limits(package_files=MOST_FILES, package_bytes=MOST_BYTES)

CONTROL = "control"
"""Name of the control repository in reports."""


class Branch(NamedTuple):
    """A machine-owned branch: its full ref, the commit we decided on, the records it will hold, by path.

    Changes of the directory `optional` alone are no reason to write.
    """

    ref: str
    expect: Oid | None
    files: Mapping[str, bytes]
    message: str
    optional: str = ""


def surviving_records(
    old: Mapping[str, bytes],
    new: Mapping[str, bytes],
    owners: Mapping[str, PackageKey],
    failed: frozenset[PackageKey],
) -> dict[str, bytes]:
    """Return the records to write; records of packages that failed stay as they were. Pure."""
    if not failed:
        return dict(new)
    unchanged = {path for path in old.keys() | new.keys() if owners.get(path) in failed}
    fresh = {path: data for path, data in new.items() if path not in unchanged}
    return fresh | {path: old[path] for path in unchanged if path in old}


def read_branch(mirror: Mirror, commit: Oid | None, limits: Limits) -> dict[str, bytes]:
    """Return the records of a machine-owned branch at a commit, by path; none if there is no commit.

    Raises:
        UnavailableError: The branch holds something that we never write.
    """
    if commit is None:
        return {}
    roomy = replace(limits, package_files=MOST_FILES, package_bytes=MOST_BYTES)
    try:
        files = mirror.files(mirror.commit(commit).tree, roomy)
    except PackageRefusedError as error:
        raise UnavailableError(f"{commit} of {mirror.remote} cannot be read: {error}") from error
    return branch_records({path: file.data for path, file in files.items()})


def read_dashboards(mirror: Mirror, ref: str, parts: int) -> dict[int, str]:
    """Return the parts of a dashboard of several shards, as a status branch has them now.

    Raises:
        UnavailableError: The branch cannot be read.
    """
    mirror.fetch()
    tip = mirror.refs().get(ref)
    paths = {part: dashboard_file(Shard(part, parts)) for part in range(parts)}
    oids = {part: oid for part, path in paths.items() if tip and (oid := mirror.blob_at(tip, path))}
    mirror.ensure(oids.values())
    return {part: mirror.blob(oid, MOST_BYTES).decode(errors="replace") for part, oid in oids.items()}


def write_branch(mirror: Mirror, branch: Branch, policy: CommitPolicy, time: int) -> Result:
    """Move one branch by compare-and-swap; nothing happens if it holds these files already.

    Another writer who wrote the same files first did our work. One who wrote others decided on a
    newer world than ours: nothing is overwritten, and the next run decides again. A file in which a
    machine would read a credential stays as it was, and is named; so does one that a bug of ours breaks.
    """
    files: dict[str, bytes] = {}
    refusals: dict[str, ReconcilerError] = {}
    for path, data in branch.files.items():
        try:
            with guard(f"record {path}"):
                refuse_credentials(path, f"The name of record {path}")
                files[path] = outgoing_file(data, f"record {path}")
        except ReconcilerError as error:
            refusals[path] = error
    if refusals:
        there = read_branch(mirror, mirror.refs().get(branch.ref), Limits())
        files |= {path: there[path] for path in refusals if path in there}
    name = branch.ref.removeprefix(HEADS)
    refused = [failed_result(CONTROL, e, (), name, kind=EffectKind.RECORDED) for e in refusals.values()]
    return merge_results([_write_branch(mirror, branch._replace(files=files), policy, time), *refused])


def _write_branch(mirror: Mirror, branch: Branch, policy: CommitPolicy, time: int) -> Result:
    try:
        with guard(branch.ref):
            return _write(mirror, branch, policy, time)
    except ReconcilerError as error:
        return failed_result(CONTROL, error, (), branch.ref.removeprefix(HEADS), kind=EffectKind.RECORDED)


def _write(mirror: Mirror, branch: Branch, policy: CommitPolicy, time: int) -> Result:
    current = mirror.refs().get(branch.ref)
    if not branch.files and current is None:
        return Result()
    pack = Pack(mirror)
    files = {path: File.of(data) for path, data in branch_files(branch.files).items()}
    # Nobody checks it out: addresses may be longer than a name of a file, and clusters differ in case.
    tree = pack.files(files, before=files)
    if _holds(mirror, current, tree) or _holds_all_but(branch.optional, mirror, current, files):
        return Result()
    parents = (branch.expect,) if branch.expect else ()
    who = Signature(policy.name, policy.email, time)
    commit = pack.commit(tree, parents, who, who, branch.message)
    pack.save()
    (answer,) = push(mirror, [RefUpdate(branch.ref, branch.expect, commit)])
    if not answer.ok:
        # Another run with the same inputs writes the same files in another commit: nothing is missing then.
        mirror.fetch()
        if _holds(mirror, mirror.refs().get(branch.ref), tree):
            return Result()
        return failed_result(
            CONTROL, _error(answer), (), branch.ref.removeprefix(HEADS), kind=EffectKind.RECORDED
        )
    return Result((Effect(CONTROL, EffectKind.RECORDED, branch.ref.removeprefix(HEADS), commit),))


def share_branch(
    mirror: Mirror,
    branch: Branch,
    mine: Callable[[str], bool],
    policy: Policy,
    time: int,
    *,
    common: Callable[[str], bool] = lambda _: False,
    is_newer: Callable[[Mapping[str, bytes]], bool] = lambda _: False,
) -> Result:
    """Move a branch that several shards write: our files replace ours, what others wrote stays.

    A file that came after the commit that we decided on, and that we know nothing of, stays too. By
    compare-and-swap on what the branch holds now; a slower writer reads it again.

    `branch` has the commit that we decided on, and the files that the whole branch would hold. `mine` tells
    which files are ours to write, `common` which of them every shard decides alike: if they are neither what
    we decided on nor what we decided, it is a newer decision, which stays, and the next run decides again.
    `is_newer` tells whether records were made from newer inputs than ours: then nothing is written.
    """
    result = Result()
    for _ in range(MOST_TRIES):
        try:
            mirror.fetch()
            tip = mirror.refs().get(branch.ref)
            there = read_branch(mirror, tip, policy.limits)
            before = there if tip == branch.expect else read_branch(mirror, branch.expect, policy.limits)
        except UnavailableError as error:
            return failed_result(CONTROL, error, (), branch.ref.removeprefix(HEADS), kind=EffectKind.RECORDED)
        if is_newer(there):
            return _overtaken(branch, "Another run applied a newer commit first; what it recorded stays")
        # Locks are decided by every shard: a decision that is neither old nor ours is newer than ours.
        overtaken = _only(there, common) not in (_only(before, common), _only(branch.files, common))
        unseen = there.keys() - before.keys()
        keep = {path for path in there if not mine(path) or path in unseen or (overtaken and common(path))}
        ours = {p: d for p, d in branch.files.items() if mine(p) and not (overtaken and common(p))}
        files = {path: there[path] for path in keep} | ours
        result = write_branch(mirror, branch._replace(expect=tip, files=files), policy.commits, time)
        if Exit.UNAVAILABLE not in result.exits:
            return merge_results([result, _overtaken(branch, _LOCKS)]) if overtaken else result
    return result


def _only(files: Mapping[str, bytes], which: Callable[[str], bool]) -> dict[str, bytes]:
    return {path: data for path, data in files.items() if which(path)}


_LOCKS = "Another run decided the locks first; what it wrote stays"


def _overtaken(branch: Branch, why: str) -> Result:
    return failed_result(
        CONTROL, ConflictError(why), (), branch.ref.removeprefix(HEADS), kind=EffectKind.RECORDED
    )


def _holds(mirror: Mirror, commit: Oid | None, tree: Oid) -> bool:
    existing = mirror.find_commit(commit) if commit else None
    return existing is not None and existing.tree == tree


def _holds_all_but(directory: str, mirror: Mirror, commit: Oid | None, files: Mapping[str, File]) -> bool:
    """Tell whether a commit holds these files but for those of a directory; "" leaves none out."""
    if not directory or commit is None:
        return False
    inside = f"{directory}/"
    there = mirror.subtree(commit, directory)
    present = {f"{inside}{path}": file for path, file in mirror.files(there, _ROOMY).items()} if there else {}
    others = {path: file for path, file in files.items() if not path.startswith(inside)}
    return _holds(mirror, commit, tree_id({**others, **present}))


def _error(answer: PushResult) -> ReconcilerError:
    if answer.status is PushStatus.REJECTED:
        return RefusedError(f"The repository refuses it: {answer.message}")
    return ConflictError(f"Another run wrote it first: {answer.message}")


def write_locks(
    inventory: Inventory,
    control: Mirror,
    files: Mapping[str, bytes] | None,
    pins: Iterable[UpstreamLock] = (),
) -> Result:
    """Replace the locks of clusters by `files`, by compare-and-swap, and set these pins of upstreams.

    Every other file stays as it is, with None those of clusters too.

    Raises:
        UnavailableError: The state branch cannot be read.
    """
    policy, recorded = inventory.policy, inventory.control
    before = read_branch(control, recorded.state, policy.limits)
    others = {path: data for path, data in before.items() if files is None or not is_lock_file(path)}
    chosen = {lock_path(lock): lock_bytes(lock) for lock in pins}
    there = others | dict(files or {}) | chosen
    branch = Branch(state_ref(policy.instance), recorded.state, there, "Record locks\n")
    return write_branch(control, branch, policy.commits, recorded.commit.time)


def is_overtaken(inventory: Inventory, control: Mirror, result: Result) -> bool:
    """Tell whether the locks were not written because another run moved the state branch first."""
    there = control.refs().get(state_ref(inventory.policy.instance))
    return Exit.UNAVAILABLE in result.exits and there != inventory.control.state
