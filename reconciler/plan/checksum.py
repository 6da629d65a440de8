"""The checksum of a plan: what a reviewer approved is what runs."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping

import msgspec
import orjson

from reconciler.dependencies.lock.format import LockUpdate
from reconciler.inventory.inventory import Inventory, PullRequest, repository_commits
from reconciler.plan.changes import Change, MoveRef, Plan, StartBranch, Write, WriteDraft, WriteGroup
from reconciler.policy import CommitPolicy
from reconciler.records.upstream_lock import UPSTREAMS_DIRECTORY, lock_bytes, lock_path

CONTROL_ADDRESS = "control"
"""Name of the control repository in effects: its address differs from run to run."""


def plan_checksum(plan: Plan, inventory: Inventory, decision: LockUpdate) -> str:
    """Return the SHA-256 of the plan's effects as canonical JSON: equal if and only if the effects are (D21).

    Effects are the refs with their expected and their new content, what happens to pull requests, and
    the locks that are decided. A commit that is still to be made is named by everything that its id is
    computed from: parent, path, tree, message, time and author. Reasons and messages explain effects and
    are none; records and conditions follow from effects.
    """
    effects = plan_effects(plan, inventory, decision)
    return hashlib.sha256(orjson.dumps(effects, option=orjson.OPT_SORT_KEYS)).hexdigest()


def plan_effects(plan: Plan, inventory: Inventory, decision: LockUpdate) -> dict[str, object]:
    """Return everything that applying the plan does, by the registered addresses of repositories."""
    addresses = registered_addresses(inventory)
    by_address: dict[str, list[Change]] = {}
    for change in plan.all_changes:
        if change.pending:
            address = addresses.get(change.package.url, change.package.url)
            by_address.setdefault(address, []).append(change)
    effects: dict[str, object] = {
        address: _repository_effects(changes, _commits_of(changes, inventory))
        for address, changes in by_address.items()
    }
    locks = dict(_decided_locks(plan, inventory, decision))
    return {"repositories": effects, **({"locks": locks} if locks else {})}


def registered_addresses(inventory: Inventory) -> dict[str, str]:
    """Return the registered address of each repository by its URL: it does not depend on the clone."""
    addresses = {inventory.control.url: CONTROL_ADDRESS}
    for _, view in sorted(inventory.views.items(), reverse=True):
        git = view.manifest.spec.git
        addresses[view.url] = git.repo if git else view.url
    return addresses


def _repository_effects(changes: Iterable[Change], commits: CommitPolicy) -> dict[str, object]:
    """Return the effects of one repository; what several changes share counts once."""
    changes = list(changes)
    writes = [write for change in changes for write in change.writes]
    effects = {
        "refs": _unique(map(_write, writes)),
        "pulls": _unique(_pull(change.pull) for change in changes if change.pull),
        "close": _unique([c.number, c.comment, c.duplicate_of] for change in changes for c in change.close),
        "approve": _unique(list(change.approve) for change in changes if change.approve),
    }
    if any(not isinstance(write, MoveRef) for write in writes):
        effects["commits"] = [
            commits.name,
            commits.email,
            commits.sign,
            commits.sign_off,
            *map(list, commits.authors),
        ]
    return {name: value for name, value in effects.items() if value}


def _commits_of(changes: Iterable[Change], inventory: Inventory) -> CommitPolicy:
    urls = {change.package.url for change in changes}
    views = (view for url in urls for view in inventory.views_of(url))
    return repository_commits(views, inventory.policy.commits)


def _unique(values: Iterable[list[object]]) -> list[object]:
    return [orjson.loads(text) for text in sorted({orjson.dumps(value) for value in values})]


def _write(write: Write) -> list[object]:
    match write:
        case MoveRef():
            return ["move", write.ref, write.expect, write.to]
        case StartBranch():
            return ["start", write.ref, None, write.oid]
        case WriteGroup():
            content: object = [[part.path, part.tree] for part in write.parts]
        case WriteDraft():
            content = [[write.path, write.tree]]
        case _:
            content = [[write.path, None]]
    merged = [write.merges] if isinstance(write, WriteDraft) and write.merges else []
    return ["commit", write.ref, write.expect, write.onto, content, write.message, write.time, *merged]


def _pull(pull: PullRequest) -> list[object]:
    content = [pull.title, pull.body, pull.digest, sorted(pull.labels), pull.draft, pull.redraft]
    people = [pull.reviewers, pull.assignees] if pull.reviewers or pull.assignees else []
    status = [list(pull.status)] if pull.status is not None else []
    return [pull.number, pull.head, pull.base, *content, *people, *status]


def _decided_locks(
    plan: Plan, inventory: Inventory, decision: LockUpdate
) -> Iterator[tuple[str, str | None]]:
    """Yield the digest of each lock that changes on the state branch, None where it goes."""
    for path, _, data in changed_pins(plan, inventory):
        yield path, hashlib.sha256(data).hexdigest() if data is not None else None
    if inventory.reviewed is not None:
        return
    for scope in decision.scopes:
        if scope.changed and not scope.is_refresh:
            lock = msgspec.json.encode(scope.after.lock) if scope.after else None
            yield f"cluster {scope.cluster}", hashlib.sha256(lock).hexdigest() if lock else None


def changed_pins(plan: Plan, inventory: Inventory) -> Iterator[tuple[str, bytes | None, bytes | None]]:
    """Yield each pin of an upstream that changes on the state branch, before and after."""
    if not (inventory.locks or plan.has_pins):
        return
    before: Mapping[str, bytes] = {lock_path(lock): lock_bytes(lock) for lock in inventory.locks.values()}
    after = {p: data for p, data in plan.records.items() if p.startswith(f"{UPSTREAMS_DIRECTORY}/")}
    elsewhere = plan.other_files or ()
    for path in sorted(before.keys() | after.keys()):
        if before.get(path) != after.get(path) and path in plan.record_owners and path not in elsewhere:
            yield path, before.get(path), after.get(path)
