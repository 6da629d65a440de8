"""All effects of a plan, in the order that makes every interruption harmless (D21)."""

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import MappingProxyType

from msgspec.structs import replace

from reconciler.apply.dashboard import DashboardWriter, reserve_dashboard_write
from reconciler.apply.outcome import EffectKind, Result, Target, failed_result, merge_results
from reconciler.apply.pulls import remaining_effects
from reconciler.apply.repository import apply_repository
from reconciler.apply.state import (
    CONTROL,
    Branch,
    is_overtaken,
    read_branch,
    read_dashboards,
    share_branch,
    surviving_records,
    write_branch,
)
from reconciler.base import effects
from reconciler.base.defects import DefectError, guard, isolate
from reconciler.base.effects import StoppedError
from reconciler.base.errors import ReconcilerError
from reconciler.base.redact import Redactor, refuse_credentials
from reconciler.base.text import plural, terminal
from reconciler.base.values import read_record
from reconciler.dependencies.lock.format import is_lock_file
from reconciler.forge.body_marker import outgoing_pull
from reconciler.git.repository import Mirror
from reconciler.inventory.inventory import Inventory
from reconciler.names.ids import ObjectName, Oid, PackageKey
from reconciler.names.refs import HEADS
from reconciler.plan.approvals import remember_refusals
from reconciler.plan.changes import Change, Effect, Outcome, Plan, Unfinished
from reconciler.plan.package_status import DIRECTORY as PACKAGES_DIRECTORY
from reconciler.plan.status import status_after, statuses_after
from reconciler.policy import Policy
from reconciler.read.state import STATUS_DIRECTORY, state_ref, status_ref
from reconciler.records.state import (
    APPLIED,
    PULLS_DIRECTORY,
    REFUSED_DELETIONS,
    ROLLOUTS_DIRECTORY,
    SETS_DIRECTORY,
    UPSTREAMS_DIRECTORY,
    VARIANTS_DIRECTORY,
    WANTED_LOCK,
    AppliedRecord,
    PackageVariantRecord,
    SetRecord,
    WantedLockRecord,
    branch_files,
    is_lines_file,
    lock_bytes,
    lock_path,
    record_bytes,
    record_path,
)
from reconciler.report.markdown import Dashboard

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
    unusable: Mapping[str, DefectError] = MappingProxyType({}),
) -> Outcome:
    """Write everything once: each repository on its own, then state and status.

    Isolated: a repository that fails is named, its records stay as they were, the others proceed. Complete:
    what a killed run left undone is what the next plan still holds. Asked to end, it ends between two
    effects, reports what is left, and records what was done.

    `targets` has the repository of every change that writes, by normalised URL. `on_effects` is called with
    the effects of each repository, in the order of the outcome. `unusable` are the repositories that are none
    of the targets, because a bug of ours keeps them from it.

    Raises:
        StoppedError: The process was asked to end before anything was written.
    """
    effects.check_shutdown()
    results: dict[str, Result] = {}
    # One write is left for the dashboard, which matters most when a limit ends the run.
    reserve_dashboard_write(target.forge for target in targets.values() if dashboards)
    pending = _by_url(plan.all_changes)
    at_once = inventory.policy.limits.repositories_at_once
    for url, result in zip(pending, _repositories(pending, {**targets, **unusable}, at_once), strict=True):
        on_effects(result.effects)
        results[url] = result
    remainder = Result((*remaining_effects(results, targets), *_not_started(results, pending)))
    on_effects(remainder.effects)
    done = merge_results([*results.values(), remainder])
    # Records come last: every effect is recognised without them, so a run killed before loses nothing.
    with effects.recording():
        redacted = _redacted(done.unfinished)
        unfinished = {package: why for package, why in redacted.items() if not why.refused}
        done = done._replace(unfinished=unfinished)

        def observe(left_out: Mapping[PackageKey, DefectError]) -> tuple[Plan, Dashboard | None]:
            part = plan.without(left_out) if left_out else plan
            part = remember_refusals(part, redacted)
            statuses = statuses_after(part, unfinished, done.opened)
            status = status_after(part, statuses, unfinished)
            dashboard = None
            if dashboards is not None:
                dashboard = dashboards.make(part, statuses, results, targets)
                status |= dashboards.files(dashboard)
            records, owners = dict(part.records), dict(part.record_owners)
            return replace(part, records=records, record_owners=owners, status=status), dashboard

        def record() -> Result:
            (observed, dashboard), broken = isolate(
                lambda: [change.package for change in plan.changes],
                observe,
                lambda key: f"records of package {key}",
            )
            failures = [
                failed_result(CONTROL, error, {key}, str(key), kind=EffectKind.RECORDED)
                for key, error in broken.items()
            ]
            left_alone = _left_alone(plan, broken)
            write_branches = partial(_branches, observed, inventory, control, done, left_alone)
            if dashboards is None or dashboard is None:
                last = write_branches()
            elif dashboards.is_shared:
                branches = write_branches()
                ref, parts = status_ref(inventory.policy.instance), dashboards.shard.parts
                reported = dashboards.write(dashboard, lambda: read_dashboards(control, ref, parts))
                last = merge_results([reported, branches])
            else:
                last = merge_results([dashboards.write(dashboard), write_branches()])
            return merge_results([*failures, last])

        try:
            with guard("records of the run"):
                last = record()
        except DefectError as error:
            policy = inventory.policy
            refs = (state_ref(policy.instance), status_ref(policy.instance))
            names = [ref.removeprefix(HEADS) for ref in refs]
            last = merge_results(
                failed_result(CONTROL, error, (), name, kind=EffectKind.RECORDED) for name in names
            )
    on_effects(last.effects)
    everything = merge_results([done, last])
    locked = bool(plan.version_changes) and any(not effect.error for effect in last.effects)
    return Outcome(everything.effects, everything.exits, redacted, done.opened, locked)


def _left_alone(plan: Plan, packages: Collection[PackageKey]) -> frozenset[ObjectName]:
    """Return the variants with files on both branches that stay as they are: bugs broke the work on them."""
    context = plan.context
    return context.names_at(packages) | context.inventory.broken_records.keys() if context else frozenset()


def _redacted(unfinished: Mapping[PackageKey, Unfinished]) -> dict[PackageKey, Unfinished]:
    """Return what is recorded of effects that were not done: a remote's own words may quote a secret."""
    redactor = Redactor.of_environment(os.environ)
    return {
        package: why._replace(message=terminal(redactor.text(str(why.message))))
        for package, why in unfinished.items()
    }


def _repositories(
    changes: Mapping[str, Sequence[Change]], targets: Mapping[str, Target | DefectError], at_once: int
) -> Iterator[Result]:
    jobs = [partial(_apply_or_leave, targets[url], changes_there) for url, changes_there in changes.items()]
    if min(len(jobs), at_once) <= 1:
        yield from (job() for job in jobs)
        return
    # `map` keeps the order of repositories, so that reports do not depend on threads.
    with ThreadPoolExecutor(max_workers=at_once) as pool:
        yield from pool.map(lambda job: job(), jobs)


def _apply_or_leave(target: Target | DefectError, changes: Sequence[Change]) -> Result:
    """Do the changes of one repository; asked to end, leave them to the next run."""
    if effects.is_shutting_down():
        error = StoppedError()
        why = Unfinished(str(error), error.hint, is_left=True)
        packages = {change.package: why for change in changes if change.pending}
        return Result(unfinished=packages, exits=frozenset({error.exit_code}))
    refused: dict[PackageKey, Result] = {}
    for change in changes:
        try:
            with guard(f"package {change.package}"):
                # A credential in one change is refused before its neighbours share its push.
                for write in change.writes:
                    message, at = getattr(write, "message", ""), write.ref
                    refuse_credentials(at, f"Ref {at}")
                    refuse_credentials(message, f"The message of the commit at {at}")
                if change.pull is not None:
                    outgoing_pull(change.pull)
        except ReconcilerError as refusal:
            refused[change.package] = failed_result(change.repository.name, refusal, {change.package})
    others = [change for change in changes if change.package not in refused]
    try:
        if isinstance(target, DefectError):
            raise target
        with guard(f"repository {target.mirror.remote}"):
            done = apply_repository(target, others)
    except DefectError as error:
        pending = {change.package for change in others if change.pending}
        done = failed_result(changes[0].repository.name, error, pending)
    return merge_results([*refused.values(), done])


def _not_started(results: Mapping[str, Result], pending: Mapping[str, Sequence[Change]]) -> Iterator[Effect]:
    """Yield, if the run was asked to end, how much of it was not begun."""
    unstarted = [url for url, result in results.items() if result.failed and not result.effects]
    if unstarted:
        where = plural(len(unstarted), "repository")
        count = sum(change.pending for url in unstarted for change in pending[url])
        message = f"{plural(count, 'change')} left: {StoppedError()}"
        yield Effect(where, EffectKind.PUSHED, error=message, hint=StoppedError().hint, is_left=True)


def _branches(
    plan: Plan, inventory: Inventory, control: Mirror, done: Result, left_alone: frozenset[ObjectName]
) -> Result:
    """Write what was decided and what was observed, last: neither is needed to recognise an effect.

    Files of variants that are `left_alone` stay as they are.
    """
    # The packages of failed variants have moved: only old records know where they were.
    former = (record for record in inventory.records.values() if not record.packages.isdisjoint(done.failed))
    paths = map(record_path, former)
    failed = done.failed | {plan.record_owners[path] for path in paths if path in plan.record_owners}
    if plan.other_files is not None:
        return _shared_branches(plan, inventory, control, failed)
    policy, source = inventory.policy, inventory.control
    old = _recorded(inventory) if failed else {}
    records = surviving_records(old, plan.records, plan.record_owners, failed)
    records |= _applied(plan) | _present(control, source.state, left_alone, policy)
    plan = replace(plan, status={**plan.status, **_present(control, source.status, left_alone, policy)})
    state = Branch(state_ref(policy.instance), source.state, records, "Record what was applied\n")
    status = _status_branch(plan, inventory)
    time = source.commit.time
    written = write_branch(control, state, policy.commits, time)
    if is_overtaken(inventory, control, written):
        return written  # the other run observed a newer world, too
    return merge_results([written, write_branch(control, status, policy.commits, time)])


def _present(
    control: Mirror, commit: Oid | None, variants: frozenset[ObjectName], policy: Policy
) -> dict[str, bytes]:
    """Return the files about variants as a branch has them."""
    directories = (
        *(VARIANTS_DIRECTORY, UPSTREAMS_DIRECTORY, SETS_DIRECTORY, ROLLOUTS_DIRECTORY),
        STATUS_DIRECTORY,
    )
    there = read_branch(control, commit, policy.limits) if variants else {}
    paths = {f"{below}/{v.namespace}/{v.name}.json" for below in directories for v in variants}
    return {path: data for path, data in there.items() if path in paths}


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
