"""Build the complete plan from the inventory, the resolved fleet and the rendered packages."""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from msgspec.structs import replace

from reconciler.base.errors import Exit
from reconciler.base.lazy import LazyMapping
from reconciler.base.reasons import Reason
from reconciler.base.wording import plural
from reconciler.dependencies import emit as generated_manifests
from reconciler.dependencies import status as lock_status_files
from reconciler.dependencies.update import changes as lock_changes
from reconciler.inventory.inventory import Inventory
from reconciler.inventory.shard import WHOLE, Shard, files_of_other_shards
from reconciler.krm.yaml import YamlError, load_documents
from reconciler.names.ids import ObjectName, PackageKey
from reconciler.names.objects import Files
from reconciler.names.problems import Problem
from reconciler.plan.approvals import approve_changes
from reconciler.plan.changes import Change, LockProposal, Plan, Refusal
from reconciler.plan.checksum import plan_checksum
from reconciler.plan.conditions import plan_conditions
from reconciler.plan.context import PlanContext, build_context
from reconciler.plan.decide import decide
from reconciler.plan.deletions import guard_changes
from reconciler.plan.groups import group_changes
from reconciler.plan.impact import ImpactReader
from reconciler.plan.lock_pull_request import LockPlan, plan_lock
from reconciler.plan.path_conflicts import index_neighbours, refuse_blocked_refs
from reconciler.plan.records import applied_commit, plan_records, record_owners
from reconciler.plan.request_limits import postpone_requests
from reconciler.plan.requests import plan_requests
from reconciler.plan.status import plan_status, status_owners
from reconciler.plan.unread import is_unavailable, keep_unreadable_pulls, with_unread_repositories
from reconciler.records.state import history_path, record_bytes
from reconciler.render.merging import Contents
from reconciler.render.rendered import Package, Rendered, RenderedDelivery
from reconciler.resolve.fleet import ResolvedFleet
from reconciler.resolve.pins import may_float
from reconciler.resolve.rollout_model import RolloutPhase


def build_plan(
    inventory: Inventory,
    fleet: ResolvedFleet,
    rendered: Rendered,
    shard: Shard = WHOLE,
    contents: Contents | None = None,
) -> Plan:
    """Compare what should be with what is, package by package, and list every effect of this shard.

    Total: every package in scope yields exactly one change. Deterministic and order-free. A plan
    made after its own application keeps every package (law 1). The checksum covers all effects, so the
    plan must not be changed afterwards. `contents` are the packages on main, from which impacts are computed.
    """
    context = build_context(inventory, fleet, rendered)
    decided = _decide_changes(context)
    locks, lock = fleet.locks, plan_lock(inventory, fleet)
    problems = {*with_unread_repositories(decided.problems, inventory), *locks.problems}
    changes = tuple(change for change in decided.changes if shard.holds(change.package.url))
    proposal = lock.proposal if lock.proposal and shard.holds(inventory.control.url) else None
    holders = dict(_holders(decided.changes)) if context.resolution.rollouts else {}
    described = _with_pins(_with_requirements(changes, fleet), rendered)
    plan = Plan(
        changes=tuple(_with_impacts(described, context, contents or {})),
        problems=tuple(sorted(problems)),
        refusals=decided.refusals,
        exits=frozenset(_exits(changes, problems, decided.refusals, proposal, context)),
        notes=(
            *inventory.notes,
            *context.resolution.notes,
            *rendered.deliveries.notes,
            *(f"{warning}" for warning in locks.warnings),
        ),
        lock=proposal,
        version_changes=lock_changes.version_changes(locks) if locks.scopes else (),
        rollouts=tuple(rollout.with_holders(holders) for rollout in context.resolution.rollouts),
        applied=applied_commit(context, decided.changes, decided.waiting),
        has_pins=any(may_float(resolved.variant) for resolved in context.resolution.variants),
        context=context,
    )
    plan = _with_files(plan, context, decided, fleet, lock=lock, shard=shard)
    return replace(plan, checksum=plan_checksum(plan, inventory, locks))


def _holders(changes: Iterable[Change]) -> Iterator[tuple[ObjectName, str]]:
    """Yield the packages that a person or a limit holds, with what they wait for."""
    for change in changes:
        why = change.postponed.message if change.postponed else next(iter(change.unready), "")
        if change.conflicts:
            why = f"{plural(len(change.conflicts), 'conflict')} to answer"
        elif change.waits and not why:
            why = str(change.reason)
        if change.variant and why:
            yield change.variant, why


class _Decided(NamedTuple):
    """Changes of all packages, what was refused or is wrong, and the packages that wait for consent."""

    changes: tuple[Change, ...]
    refusals: tuple[Refusal, ...]
    waiting: Mapping[PackageKey, int]
    problems: tuple[Problem, ...]


def _decide_changes(context: PlanContext) -> _Decided:
    """Decide about each package, then about what packages share: consent, groups, pull requests, refs."""
    # Whether a path is free depends on which packages leave, so neighbours are indexed before any decision.
    context = replace(context, neighbours=index_neighbours(context))
    decisions = tuple(decide(target, context) for target in context.targets.values())
    # The guard comes first: a refused deletion must not share a group or a pull request. Approval comes after
    # grouping, because a pull request is merged for all of its packages or not at all. Refs come last, when
    # every write is known.
    guarded = guard_changes(context, [decision.change for decision in decisions])
    changes = approve_changes(context, group_changes(context, guarded.changes))
    changes = plan_requests(context, changes)
    changes, unreadable = keep_unreadable_pulls(changes, context)
    changes, blocked = refuse_blocked_refs(changes, context)
    # Last of all: what is blocked takes no place among the limited number of pull requests.
    changes = postpone_requests(context, changes)
    own = (problem for decision in decisions for problem in decision.problems)
    stages = (context.inventory.problems, context.desired.problems, context.resolution.problems)
    problems = (*(problem for stage in stages for problem in stage), *unreadable, *blocked, *own)
    return _Decided(changes, guarded.refusals, guarded.waiting, problems)


def _exits(
    changes: Iterable[Change],
    problems: Iterable[Problem],
    refusals: Iterable[Refusal],
    proposal: LockProposal | None,
    context: PlanContext,
) -> Iterator[Exit]:
    """Yield every class of exit that applies (D1)."""
    inventory = context.inventory
    if any(problem.reason != Reason.REPOSITORY_UNAVAILABLE for problem in problems):
        yield Exit.INVALID_INPUT
    if any(map(is_unavailable, inventory.repositories.values())):
        yield Exit.UNAVAILABLE
    if inventory.reviewed is not None and not inventory.reviewed.is_open:
        yield Exit.UNAVAILABLE
    if refusals:
        yield Exit.REFUSED
    every = (*changes, *((proposal.change,) if proposal else ()))
    failed = any(rollout.phase is RolloutPhase.FAILED for rollout in context.resolution.rollouts)
    if failed or any(change.waits for change in every):
        yield Exit.WAITING
    if any(change.reason is Reason.FUNCTIONS_POSTPONED for change in changes):
        yield Exit.PARTIAL
    if any(change.pending for change in every):
        yield Exit.PENDING


def _with_impacts(changes: Iterable[Change], context: PlanContext, contents: Contents) -> Iterator[Change]:
    """Yield the changes; those that write a draft have its difference from main."""
    reader = ImpactReader(context.inventory.policy.risks)
    for change in changes:
        written = change.written
        tree = context.targets[change.package].package.main_tree if written else None
        before = {} if tree is None else contents.get(tree)
        after = written.files if written else None
        if not after or before is None:
            yield change
            continue
        yield replace(change, impact=reader.impact(before, after, change.own_names))


# Version changes of generated packages


def _with_requirements(changes: Iterable[Change], fleet: ResolvedFleet) -> Iterator[Change]:
    """Yield the changes, those of upgraded variants with what the new revision requires differently."""
    for change in changes:
        rows = fleet.requirement_changes.get(change.variant, ()) if change.variant else ()
        yield replace(change, requirements=rows) if rows else change


def _with_pins(changes: Iterable[Change], rendered: Rendered) -> Iterator[Change]:
    """Yield the changes, those of generated packages with the versions that merging them changes."""
    for change in changes:
        delivery = rendered.deliveries.items.get(change.variant) if change.variant else None
        files = _proposed_files(change, delivery) if delivery is not None else None
        if delivery is None or files is None:
            yield change
            continue
        before, after = _installed_versions(delivery.local), _installed_versions(files)
        pins = lock_changes.object_version_changes(
            before, after, delivery.packages, delivery.lock, delivery.cluster
        )
        yield replace(change, pins=pins)


def _proposed_files(change: Change, delivery: RenderedDelivery) -> Files | None:
    """Return the files of a generated package if this run writes its draft or its pull request, else None."""
    if change.written is not None:
        return change.written.files
    # A run that was killed may have left a draft without its pull request, whose text is the same then.
    fresh = delivery.rendered.fresh
    if change.pull is None or not isinstance(fresh, Package) or fresh.tree != change.after:
        return None
    return fresh.files or None


def _installed_versions(files: Files) -> dict[str, str]:
    """Return the version that each manifest of a package installs, without those that install nothing."""
    versions = {path: _version(file.data) for path, file in files.items() if path.endswith(".yaml")}
    return {path: version for path, version in versions.items() if version}


def _version(data: bytes) -> str:
    try:
        documents = load_documents(data)
    except YamlError:
        return ""
    value = documents[0].value if documents else None
    return generated_manifests.installed_version(value) if isinstance(value, Mapping) else ""


# Files of the state and status branches


def _with_files(
    plan: Plan,
    context: PlanContext,
    decided: _Decided,
    fleet: ResolvedFleet,
    *,
    lock: LockPlan,
    shard: Shard,
) -> Plan:
    """Return the plan with what a run leaves on both branches, about the packages of other shards too.

    It costs a quarter of a plan, and showing a plan needs none of it: each part is made at its first use.
    """
    inventory = context.inventory
    # A reviewed lock is recorded by merging its pull request, any other by this run.
    locks = {} if inventory.reviewed is not None else fleet.locks.files

    def records() -> dict[str, bytes]:
        files = {**plan_records(context, decided.changes, decided.waiting), **locks, **lock.records}
        return dict(sorted(files.items()))

    def other_status() -> dict[str, bytes]:
        namespace = inventory.policy.dependencies.shared_namespace
        status = lock_status_files.status_files(
            fleet.clusters.worlds, fleet.locks, shared_namespace=namespace
        )
        histories = {history_path(url): record_bytes(h) for url, h in sorted(inventory.histories.items())}
        return {**status, **histories}

    def owners() -> dict[str, PackageKey]:
        return dict(sorted({**record_owners(context, decided.changes), **lock.record_owners}.items()))

    conditions = LazyMapping(lambda: plan_conditions(context, decided.changes))
    others = LazyMapping(other_status)
    own, reported = LazyMapping(owners), LazyMapping(lambda: status_owners(context, decided.changes))
    histories = {history_path(url): PackageKey(url, "") for url in inventory.histories}
    return replace(
        plan,
        conditions=conditions,
        records=LazyMapping(records),
        record_owners=own,
        status=LazyMapping(lambda: {**plan_status(context, conditions), **others}),
        status_owners=reported,
        other_status=others,
        other_files=files_of_other_shards(shard, LazyMapping(lambda: {**own, **reported, **histories})),
    )
