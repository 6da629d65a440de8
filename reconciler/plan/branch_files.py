"""The files of the state and status branches after a plan, computed at their first use."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from reconciler.api.meta import Condition
from reconciler.base.lazy import LazyMapping, LazyModule
from reconciler.names.ids import ObjectKey, PackageKey
from reconciler.plan.changes import Change
from reconciler.plan.conditions import plan_conditions
from reconciler.plan.context import PlanContext
from reconciler.plan.lock_pull_request import LockPlan
from reconciler.plan.records import plan_records, record_owners
from reconciler.plan.status import plan_status, status_owners
from reconciler.records.state import history_path, record_bytes
from reconciler.resolve.fleet import ResolvedFleet

if TYPE_CHECKING:
    from reconciler.dependencies import status as lock_status_files
else:
    lock_status_files = LazyModule("reconciler.dependencies.status")


class BranchFiles(NamedTuple):
    """Conditions of all owners, the files of both branches, and the packages that these are about.

    `owners` are those of the files of both branches, `other_status` the files of the status branch that are
    about no owner.
    """

    conditions: Mapping[ObjectKey, tuple[Condition, ...]]
    records: Mapping[str, bytes]
    record_owners: Mapping[str, PackageKey]
    status: Mapping[str, bytes]
    status_owners: Mapping[str, PackageKey]
    other_status: Mapping[str, bytes]
    owners: Mapping[str, PackageKey]


def branch_files(
    context: PlanContext,
    changes: Sequence[Change],
    refused: Mapping[PackageKey, int],
    fleet: ResolvedFleet,
    lock: LockPlan,
) -> BranchFiles:
    """Return what a run leaves on both branches. Pure.

    They cost a quarter of a plan, and showing it needs none: each is made at its first use.

    Args:
        context: Input of planning.
        changes: The changes of all packages, also those of other shards.
        refused: The packages with a deletion that waits for consent.
        fleet: The resolved fleet.
        lock: What is planned for a reviewed lock.
    """
    inventory = context.inventory
    # A reviewed lock is recorded by merging its pull request, any other by this run.
    locks = {} if inventory.reviewed is not None else fleet.locks.files
    namespace = inventory.policy.dependencies.shared_namespace

    def records() -> dict[str, bytes]:
        files = {**plan_records(context, changes, refused), **locks, **lock.records}
        return dict(sorted(files.items()))

    def other_status() -> dict[str, bytes]:
        lock_status = lock_status_files.status_files(
            fleet.clusters.worlds, fleet.locks, shared_namespace=namespace
        )
        histories = {history_path(url): record_bytes(h) for url, h in sorted(inventory.histories.items())}
        return {**lock_status, **histories}

    def owners() -> dict[str, PackageKey]:
        return dict(sorted({**record_owners(context, changes), **lock.record_owners}.items()))

    conditions = LazyMapping(lambda: plan_conditions(context, changes))
    others = LazyMapping(other_status)
    own, reported = LazyMapping(owners), LazyMapping(lambda: status_owners(context, changes))
    histories = {history_path(url): PackageKey(url, "") for url in inventory.histories}
    return BranchFiles(
        conditions=conditions,
        records=LazyMapping(records),
        record_owners=own,
        status=LazyMapping(lambda: {**plan_status(context, conditions), **others}),
        status_owners=reported,
        other_status=others,
        owners=LazyMapping(lambda: {**own, **reported, **histories}),
    )
