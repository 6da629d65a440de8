"""All effects of a plan, in the order that makes every interruption harmless (D21)."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from msgspec.structs import replace

from reconciler.apply.dashboard import DashboardWriter, reserve_dashboard_write
from reconciler.apply.outcome import EffectKind, Result, Target, failed_result, merge_results
from reconciler.apply.pulls import remaining_effects
from reconciler.apply.repository import apply_repository
from reconciler.apply.state import (
    Branch,
    is_overtaken,
    read_dashboards,
    share_branch,
    state_ref,
    status_ref,
    surviving_records,
    write_branch,
)
from reconciler.base.errors import RefusedError
from reconciler.base.escape import terminal
from reconciler.base.redact import Redactor, refuse_credentials
from reconciler.base.wire import read_record
from reconciler.base.wording import plural
from reconciler.dependencies.lock.format import is_lock_file
from reconciler.dependencies.status import DIRECTORY as PACKAGES_DIRECTORY
from reconciler.forge.outgoing import outgoing_pull
from reconciler.git import effects
from reconciler.git.effects import StoppedError
from reconciler.git.repository import Mirror
from reconciler.inventory.inventory import Inventory
from reconciler.names.ids import Oid, PackageKey
from reconciler.plan.approvals import remember_refusals
from reconciler.plan.changes import Change, Effect, Outcome, Plan, Unfinished
from reconciler.plan.status import status_after, statuses_after
from reconciler.records.state import (
    APPLIED,
    PULLS_DIRECTORY,
    REFUSED_DELETIONS,
    SETS_DIRECTORY,
    WANTED_LOCK,
    AppliedRecord,
    PackageVariantRecord,
    SetRecord,
    WantedLockRecord,
    branch_files,
    is_lines_file,
    record_bytes,
    record_path,
)
from reconciler.records.upstream_lock import lock_bytes, lock_path

_OF_CLUSTERS = f"{PACKAGES_DIRECTORY}/"
"""Files of the status branch that only a shard with the whole fleet can write."""
OnEffects = Callable[[Sequence[Effect]], None]


def apply_changes(
    plan: Plan,
    inventory: Inventory,
    targets: Mapping[str, Target],
    control: Mirror,
    on_effects: OnEffects = lambda _: None,
    *,
    dashboards: DashboardWriter | None = None,
) -> Outcome:
    """Write everything once: each repository on its own, then state and status.

    Isolated: a repository that fails is named, its records stay as they were, the others proceed.
    Complete: what a killed run left undone is what the next plan still holds. Asked to end, it ends
    between two effects, reports what is left, and records what was done.

    Args:
        plan: What to do.
        inventory: The world that it was made from.
        targets: The repository of every change that writes, by normalised URL.
        control: The control repository's mirror.
        on_effects: Called with the effects of each repository, in the order of the outcome.
        dashboards: Writer of the dashboard, if one is kept.

    Raises:
        StoppedError: The process was asked to end before anything was written.
    """
    effects.check_shutdown()
    results: dict[str, Result] = {}
    # One write is left for the dashboard, which matters most when a limit ends the run.
    reserve_dashboard_write(target.forge for target in targets.values() if dashboards)
    pending = _by_url(plan.all_changes)
    at_once = inventory.policy.limits.repositories_at_once
    for url, result in zip(pending, _repositories(pending, targets, at_once), strict=True):
        on_effects(result.effects)
        results[url] = result
    left = Result((*remaining_effects(results, targets), *_not_started(results, pending)))
    on_effects(left.effects)
    done = merge_results([*results.values(), left])
    # Records come last: every effect is recognised without them, so a run killed before loses nothing.
    with effects.recording():
        redacted = _redacted(done.unfinished)
        plan = remember_refusals(plan, redacted)
        unfinished = {package: why for package, why in redacted.items() if not why.refused}
        done = done._replace(unfinished=unfinished)
        status = status_after(plan, unfinished, done.opened)
        if dashboards is None:
            last = _branches(replace(plan, status=status), inventory, control, done)
        else:
            dashboard = dashboards.make(plan, statuses_after(plan, unfinished, done.opened), results, targets)
            reported = Result() if dashboards.is_shared else dashboards.write(dashboard)
            status |= dashboards.files(dashboard)
            branches = _branches(replace(plan, status=status), inventory, control, done)
            if dashboards.is_shared:
                ref, parts = status_ref(inventory.policy.instance), dashboards.shard.parts
                reported = dashboards.write(dashboard, lambda: read_dashboards(control, ref, parts))
            last = merge_results([reported, branches])
    on_effects(last.effects)
    everything = merge_results([done, last])
    locked = bool(plan.version_changes) and any(not effect.error for effect in last.effects)
    return Outcome(everything.effects, everything.exits, redacted, done.opened, locked)


def _redacted(unfinished: Mapping[PackageKey, Unfinished]) -> dict[PackageKey, Unfinished]:
    """Return what is recorded of effects that were not done: a remote's own words may quote a secret."""
    redactor = Redactor.of_environment(os.environ)
    return {
        package: why._replace(message=terminal(redactor.text(why.message)))
        for package, why in unfinished.items()
    }


def _repositories(
    changes: Mapping[str, Sequence[Change]], targets: Mapping[str, Target], at_once: int
) -> Iterator[Result]:
    jobs = [partial(_apply_or_leave, targets[url], own) for url, own in changes.items()]
    if min(len(jobs), at_once) <= 1:
        yield from (job() for job in jobs)
        return
    # `map` keeps the order of repositories, so that reports do not depend on threads.
    with ThreadPoolExecutor(max_workers=at_once) as pool:
        yield from pool.map(lambda job: job(), jobs)


def _apply_or_leave(target: Target, changes: Sequence[Change]) -> Result:
    """Do the changes of one repository; asked to end, leave them to the next run."""
    if effects.is_shutting_down():
        error = StoppedError()
        why = Unfinished(str(error), error.hint, left=True)
        packages = {change.package: why for change in changes if change.pending}
        return Result(unfinished=packages, exits=frozenset({error.exit_code}))
    refused: dict[PackageKey, Result] = {}
    for change in changes:
        try:
            _refuse_credentials(change)
        except RefusedError as refusal:
            refused[change.package] = failed_result(change.repository.name, refusal, {change.package})
    others = [change for change in changes if change.package not in refused]
    return merge_results([*refused.values(), apply_repository(target, others)])


def _refuse_credentials(change: Change) -> None:
    """Refuse a change of which a machine would read a credential, before its neighbours share its push.

    Raises:
        RefusedError: It is in the name of a ref, in the message of a commit, or in a pull request.
    """
    for write in change.writes:
        refuse_credentials(write.ref, f"Ref {write.ref}")
        refuse_credentials(getattr(write, "message", ""), f"The message of the commit at {write.ref}")
    if change.pull is not None:
        outgoing_pull(change.pull)


def _not_started(results: Mapping[str, Result], pending: Mapping[str, Sequence[Change]]) -> Iterator[Effect]:
    """Yield, if the run was asked to end, how much of it was not begun."""
    left = [url for url, result in results.items() if result.failed and not result.effects]
    if left:
        where = plural(len(left), "repository")
        count = sum(change.pending for url in left for change in pending[url])
        message = f"{plural(count, 'change')} left: {StoppedError()}"
        yield Effect(where, EffectKind.PUSHED, error=message, hint=StoppedError().hint, left=True)


def _branches(plan: Plan, inventory: Inventory, control: Mirror, done: Result) -> Result:
    """Write what was decided and what was observed, last: neither is needed to recognise an effect."""
    if plan.other_files is not None:
        return _shared_branches(plan, inventory, control, done.failed)
    policy, source = inventory.policy, inventory.control
    old = _recorded(inventory) if done.failed else {}
    records = surviving_records(old, plan.records, plan.record_owners, done.failed)
    records |= _applied(plan)
    state = Branch(state_ref(policy.instance), source.state, records, "Record what was applied\n")
    status = _status_branch(plan, inventory)
    time = source.commit.time
    written = write_branch(control, state, policy.commits, time)
    if is_overtaken(inventory, control, written):
        return written  # the other run observed a newer world, too
    return merge_results([written, write_branch(control, status, policy.commits, time)])


def _applied(plan: Plan) -> dict[str, bytes]:
    """Return the file that names the control commit which is applied."""
    return {APPLIED: record_bytes(AppliedRecord(commit=plan.applied))} if plan.applied else {}


def _status_branch(plan: Plan, inventory: Inventory) -> Branch:
    ref, optional = status_ref(inventory.policy.instance), "" if inventory.is_history_due else PULLS_DIRECTORY
    return Branch(ref, inventory.control.status, plan.status, "Record conditions\n", optional)


def _recorded(inventory: Inventory) -> dict[str, bytes]:
    """Return the files of the state branch that wait for a package, as they were read."""
    records: list[PackageVariantRecord | SetRecord] = [*inventory.records.values()]
    records += inventory.set_records.values()
    files = {record_path(record): record_bytes(record) for record in records}
    files |= {lock_path(lock): lock_bytes(lock) for lock in inventory.locks.values()}
    if inventory.reviewed and inventory.reviewed.computed_tree:
        files[WANTED_LOCK] = record_bytes(WantedLockRecord(tree=inventory.reviewed.computed_tree))
    return files


def _shared_branches(
    plan: Plan, inventory: Inventory, control: Mirror, failed: frozenset[PackageKey]
) -> Result:
    """Write a shard's part of both branches: the files of other shards stay as those leave them."""
    policy, source = inventory.policy, inventory.control
    elsewhere = plan.other_files or ()
    # Locks, and what waits for consent, are decided by the shards that read the whole fleet.
    is_whole = not inventory.is_partial

    def is_decided_here(path: str) -> bool:
        if path in plan.record_owners:
            return path not in elsewhere and plan.record_owners[path] not in failed
        if is_lines_file(path):  # lines that nobody can read go with the records beside them
            return path in lines
        if path in records or path.startswith(f"{SETS_DIRECTORY}/"):
            return True
        return is_whole and (path == REFUSED_DELETIONS or is_lock_file(path))

    def is_observed_here(path: str) -> bool:
        return path not in elsewhere and (is_whole or not path.startswith(_OF_CLUSTERS))

    records = {**plan.records, **_applied(plan)}
    lines = branch_files({path: data for path, data in plan.records.items() if is_decided_here(path)})
    state = Branch(state_ref(policy.instance), source.state, records, "Record what was applied\n")
    status = _status_branch(plan, inventory)
    time = source.commit.time
    return merge_results(
        [
            share_branch(
                control,
                state,
                is_decided_here,
                policy,
                time,
                common=lambda path: is_whole and is_lock_file(path),
                is_newer=lambda there: _is_newer(there, plan.applied, control),
            ),
            share_branch(control, status, is_observed_here, policy, time),
        ]
    )


def _is_newer(records: Mapping[str, bytes], applied: Oid | None, control: Mirror) -> bool:
    """Tell whether these records were made from a newer commit of the control repository."""
    data = records.get(APPLIED)
    if applied is None or data is None:
        return False
    try:
        there = Oid(read_record(data, AppliedRecord).commit)
    except ValueError:
        return False
    return there != applied and control.contains(there, applied)


def _by_url(changes: Iterable[Change]) -> dict[str, list[Change]]:
    """Return the changes of every repository that something is to be written to."""
    by_url: dict[str, list[Change]] = {}
    for change in changes:
        by_url.setdefault(change.package.url, []).append(change)
    return {url: by_url[url] for url in sorted(by_url) if any(change.pending for change in by_url[url])}
