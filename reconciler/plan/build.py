"""Build the complete plan from the inventory, the resolved fleet and the rendered packages; its checksum."""

import functools
import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec
import orjson
from msgspec.structs import replace

from reconciler.api.porch import GROUP
from reconciler.base.errors import Exit
from reconciler.base.reasons import LEFT_BY_RUN, Reason
from reconciler.base.text import Text, plural, verb
from reconciler.base.values import LazyMapping
from reconciler.dependencies.lock import changes as lock_changes
from reconciler.dependencies.lock.changes import MoveOp
from reconciler.dependencies.lock.format import LockUpdate
from reconciler.expand.expansion import empty_selections
from reconciler.functions.pipeline import waits_for_functions
from reconciler.inventory.inventory import (
    Inventory,
    PullRequest,
    RepositoryView,
    repository_commits,
    unreadable_problem,
)
from reconciler.inventory.shard import WHOLE, Shard, files_of_other_shards
from reconciler.krm.yaml import YamlError, load_documents
from reconciler.names.ids import Lifecycle, ObjectKey, ObjectName, PackageKey
from reconciler.names.objects import Files
from reconciler.names.problems import Problem
from reconciler.names.refs import HEADS, deletion_ref, parse_ref, short_branch
from reconciler.plan import package_status as lock_status_files
from reconciler.plan.approvals import approve_changes, find_approvable, find_objections, refuse_losses
from reconciler.plan.changes import (
    Change,
    LockProposal,
    MoveRef,
    Op,
    Plan,
    Refusal,
    StartBranch,
    Write,
    WriteDraft,
    WriteGroup,
    problem_exits,
)
from reconciler.plan.chart_values import with_templates
from reconciler.plan.compare import compare_upstreams
from reconciler.plan.compose import Changes, Held, Veto
from reconciler.plan.context import PlanContext, build_context
from reconciler.plan.decide import decide
from reconciler.plan.deletions import guard_moved
from reconciler.plan.groups import group_changes
from reconciler.plan.impact import ImpactReader, all_losses
from reconciler.plan.loss_reader import LossReader
from reconciler.plan.path_conflicts import find_blocked_refs, index_neighbours
from reconciler.plan.proposals import LockPlan, plan_lock
from reconciler.plan.records import (
    applied_commit,
    is_decided,
    leaving_records,
    plan_locks,
    plan_records,
    record_owners,
)
from reconciler.plan.requests import plan_requests, postpone_requests
from reconciler.plan.status import plan_conditions, plan_status, status_owners
from reconciler.policy import CommitPolicy, OnUnavailable
from reconciler.records.state import UPSTREAMS_DIRECTORY, history_path, lock_bytes, lock_path, record_bytes
from reconciler.render import delivery as generated_manifests
from reconciler.render.merging import Contents
from reconciler.render.rendered import Package, Rendered, RenderedDelivery
from reconciler.render.sharing import set_values
from reconciler.resolve.fleet import ResolvedFleet
from reconciler.resolve.pins import may_float
from reconciler.resolve.rollout_model import Rollout, RolloutPhase


def with_unread_repositories(problems: Collection[Problem], inventory: Inventory) -> tuple[Problem, ...]:
    """Return the problems with one for every repository that could not be read.

    A variant or set that needs such a repository is counted there: one dead repository with a
    thousand variants gives one line.
    """
    unread = [view for view in inventory.repositories.values() if view.problem]
    needing = {(p.repository, p.owner) for p in problems if p.repository is not None}
    counts = Counter(repository for repository, _ in needing)
    reported = (p for p in problems if p.repository is None)
    return (*reported, *(_problem(view, view.problem, counts[view.key]) for view in unread if view.problem))


def find_unread(inventory: Inventory) -> Mapping[Problem, OnUnavailable]:
    """Return why each repository that could not be read was not, sorted, and whether that is a failure."""
    unread = {p: OnUnavailable.FAIL for p in inventory.problems if p.reason == Reason.REPOSITORY_UNAVAILABLE}
    for view in inventory.repositories.values():
        if view.problem and view.is_unreachable:
            unread[view.problem] = view.unavailable
    return dict(sorted(unread.items()))


def is_unavailable(view: RepositoryView) -> bool:
    """Tell whether a repository could not be read, and that is a failure of the run."""
    return view.is_unreachable and view.unavailable is OnUnavailable.FAIL


def _problem(view: RepositoryView, problem: Problem, count: int) -> Problem:
    needing = f"{count} {verb(count, 'variant or set that needs it is', 'variants or sets that need it are')}"
    stalled = f"; {needing} kept as {verb(count, 'it is', 'they are')}" if count else ""
    return replace(problem, message=f"{view.unread_message}{stalled}", consequence=stalled)


def find_unreadable_pulls(
    changes: Mapping[PackageKey, Change], context: PlanContext
) -> tuple[Mapping[PackageKey, Held], tuple[Problem, ...]]:
    """Return the vetoes of packages with a pull request that cannot be read, and a problem of each.

    People's answers there are unknown, so nothing of such a package is written but the tags of main's
    revisions. The other packages of the repository proceed, also where not even the branch is legible.
    """
    vetoes = {}
    for key, change in changes.items():
        if pull := _find_unreadable(change, context):
            message = f"Pull request #{pull.number} cannot be read: {pull.unreadable}"
            op = Op.KEEP if change.before is not None else Op.BLOCK
            vetoes[key] = Held(Veto.PULL_REQUEST, Reason.PULL_REQUEST_UNREADABLE, message, op)
    problems: list[Problem] = []
    for url, pulls in sorted(context.inventory.unreadable_pulls.items()):
        for view in context.inventory.views_of(url)[:1]:
            where, name = view.source.at("spec", "git", "repo"), f"repository {view.key.name}"
            problems += [unreadable_problem(where, name, pull).owned_by(view.owner) for pull in pulls]
    return vetoes, tuple(problems)


def _find_unreadable(change: Change, context: PlanContext) -> PullRequest | None:
    """Return the unreadable pull request that a change of ours is about, None for none."""
    pulls = context.inventory.unreadable_pulls.get(change.package.url, ())
    if not pulls or change.variant is None:
        return None
    path, draft = change.package.path, context.targets[change.package].draft
    refs = [deletion_ref(context.inventory.policy.instance, path), *([draft.ref] if draft else [])]
    refs += [write.ref for write in change.writes if write.ref.startswith(HEADS)]
    heads = {change.group, *map(short_branch, refs)}
    return next((p for p in pulls if p.head and (p.head in heads or _drafts(p.head, path))), None)


def _drafts(head: str, path: str) -> bool:
    """Whether a head is a draft or proposal of the package at `path`."""
    named = parse_ref(f"{HEADS}{head}")
    is_draft = named is not None and named.lifecycle in {Lifecycle.DRAFT, Lifecycle.PROPOSED}
    return is_draft and named is not None and named.path == path


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
    losses = LossReader(inventory, fleet.locks)
    decided = _decide_changes(context, losses, contents)
    locked, locks = inventory, fleet.locks
    if inventory.reviewed is not None and (leaving := set(leaving_records(context, decided.every))):
        # Pins go with the records that leave: otherwise the next run would propose another lock.
        records = {key: record for key, record in inventory.records.items() if key not in leaving}
        locked = replace(inventory, records=records)
    lock = plan_lock(locked, fleet)
    problems = {*with_unread_repositories(decided.problems, inventory), *locks.problems}
    of_shard = [change for change in decided.every if shard.holds(change.package.url)]
    described = _described(of_shard, fleet, context, contents or {})
    changes = tuple(sorted((*described, *_hidden_rows(inventory, shard)), key=lambda change: change.package))
    proposal = lock.proposal if lock.proposal and shard.holds(inventory.control.url) else None
    holders = dict(_holders(decided.every)) if context.resolution.rollouts else {}
    refusals = (*decided.refusals, *refuse_losses(changes, inventory))
    lost = all_losses((*losses.of_locks(), *(loss for change in changes for loss in change.losses)))
    plan = Plan(
        changes=changes,
        problems=tuple(sorted(problems)),
        refusals=refusals,
        exits=frozenset(_exits(changes, problems, refusals, proposal, context)),
        notes=(
            *inventory.notes,
            *context.resolution.notes,
            *empty_selections(fleet.desired, inventory),
            *_relabelled(changes, context),
            *_lost_holds(context),
            *rendered.deliveries.notes,
            *(f"{warning}" for warning in locks.warnings),
            *dict.fromkeys(loss.replacement for loss in lost if loss.heir),
        ),
        lock=proposal,
        # A reviewed lock is written by merging its proposal, which has a row for each.
        version_changes=lock_changes.version_changes(locks) if inventory.reviewed is None else (),
        rollouts=tuple(rollout.with_holders(holders) for rollout in _known_rollouts(context)),
        losses=lost,
        unjudged=rendered.unjudged,
        applied=applied_commit(context, decided.every, decided.waiting),
        has_pins=any(may_float(resolved.variant) for resolved in context.resolution.variants),
        context=context,
    )
    plan = _with_files(plan, decided.every, decided.waiting, fleet, context, lock=lock, shard=shard)
    plan = replace(plan, version_changes=(*plan.version_changes, *_upstream_moves(plan, inventory)))
    return replace(plan, checksum=plan_checksum(plan, inventory, locks))


def _known_rollouts(context: PlanContext) -> Iterator[Rollout]:
    """Yield the rollouts; an outdated checkout asks for old ones, of which only the recorded ones are."""
    inventory = context.inventory
    for rollout in context.resolution.rollouts:
        recorded = inventory.rollouts.get(rollout.key)
        is_recorded = recorded is not None and recorded.revision == rollout.revision
        if is_recorded or not inventory.control.standing.is_outdated:
            yield rollout


def _relabelled(changes: Iterable[Change], context: PlanContext) -> Iterator[str]:
    """Yield a sentence about each variant that only gets other labels: the plan has no row for it."""
    for change in changes:
        resolved = context.resolved.get(change.variant) if change.variant else None
        record = context.inventory.records.get(change.variant) if change.variant else None
        if change.pending or record is None or not is_decided(resolved, change):
            continue
        for field in ("labels", "annotations"):
            now, before = getattr(resolved.variant.spec, field) or {}, record.spec.get(field) or {}
            parts = [f"{key}={value}" for key, value in sorted(now.items()) if before.get(key) != value]
            parts += [f"{key} removed" for key in sorted(before.keys() - now.keys())]
            if parts:
                yield f"PackageVariant {resolved.variant.key} gets other {field}: {', '.join(parts)}"


def _lost_holds(context: PlanContext) -> Iterator[str]:
    """Yield a sentence about each variant with the package of another that a person held: it follows."""
    inventory = context.inventory
    pins = inventory.reviewed.pins if inventory.reviewed else inventory.locks
    held = [key for key, lock in pins.items() if lock.held and key not in context.variants]
    records = [record for key in held if (record := inventory.records.get(key)) is not None]
    holders = {PackageKey(record.url, record.path): record.key for record in records}
    for key, resolved in sorted(context.resolved.items()) if holders else ():
        former, lock = holders.get(resolved.downstream), pins.get(key)
        if former is not None and may_float(resolved.variant) and not (lock and lock.held):
            ref, commit = pins[former].ref, pins[former].commit[:8]
            yield (
                f"PackageVariant {key} follows its upstream: {former}, from which it takes over, was held at"
                f" {ref}@{commit}; hold it again with `reconciler lock hold {key} {ref}`"
            )


def _upstream_moves(plan: Plan, inventory: Inventory) -> Iterator[lock_changes.VersionChange]:
    """Yield the pins of upstreams that move, except those that move with a package."""
    moved = {f"PackageVariant {change.variant}" for change in plan.changes if change.pending}
    changed = list(changed_pins(plan, inventory))
    before = {path: old for path, old, _ in changed if old is not None}
    for pin in compare_upstreams(before, {path: new for path, _, new in changed if new is not None}):
        if pin.what not in moved:
            op = MoveOp.ADD if not pin.before else MoveOp.CHANGE if pin.after else MoveOp.REMOVE
            yield lock_changes.VersionChange(op, *pin, ())


def _holders(changes: Iterable[Change]) -> Iterator[tuple[ObjectName, Text]]:
    """Yield the packages that a person or a limit holds, with what they wait for."""
    for change in changes:
        why = change.postponed.message if change.postponed else next(iter(change.unready), "")
        if change.conflicts:
            why = f"{plural(len(change.conflicts), 'conflict')} to answer"
        elif (change.waits or change.reason is Reason.REJECTED) and not why:
            why = str(change.reason)
        if change.variant and why:
            yield change.variant, why


class _Decided(NamedTuple):
    """Changes of all packages, what was refused or is wrong, and the packages that wait for consent."""

    changes: Changes
    refusals: tuple[Refusal, ...]
    waiting: Mapping[PackageKey, int]
    problems: tuple[Problem, ...]

    @property
    def every(self) -> tuple[Change, ...]:
        """The changes of all packages, as far as their own effects go."""
        return tuple(self.changes.composed.values())


def _decide_changes(context: PlanContext, losses: LossReader, contents: Contents | None) -> _Decided:
    """Decide about each package, then about what packages share: consent, groups, pull requests, refs.

    A stage sees the changes as the stages before it leave them; `compose` decides what of all counts.
    """
    # Whether a path is free depends on which packages leave, so neighbours are indexed before any decision.
    context = replace(context, neighbours=index_neighbours(context))
    decisions = [decide(target, context) for target in context.targets.values()]
    changes = Changes(decisions)
    guarded = guard_moved(context, changes.composed.values())
    changes.add(guarded.vetoes, lambda parts, veto: parts._replace(guard=veto))
    places = group_changes(context, changes.composed)
    changes.add(places, lambda parts, place: parts._replace(group=place))
    if contents is not None:
        lost = losses.of_changes(context, changes.composed, contents)
        changes.add(lost, lambda parts, losses: parts._replace(losses=losses))
    approvals = approve_changes(context, changes.composed)
    changes.add(approvals, lambda parts, approval: parts._replace(approval=approval))
    requests = plan_requests(context, changes.composed)
    changes.add(requests, lambda parts, request: parts._replace(request=request))
    vetoes, unreadable = find_unreadable_pulls(changes.composed, context)
    changes.add(vetoes, lambda parts, veto: parts._replace(unreadable=veto))
    vetoes, blocked = find_blocked_refs(changes.composed, context)
    changes.add(vetoes, lambda parts, veto: parts._replace(blocked=veto))
    # What is blocked takes no place among the limited number of pull requests.
    postponed = postpone_requests(context, changes.composed)
    changes.add(postponed, lambda parts, postponement: parts._replace(postponed=postponement))
    named = (problem for decision in decisions for problem in decision.problems)
    inventory, desired, resolution = context.inventory, context.desired, context.resolution
    stages = (inventory.problems, inventory.hidden.values(), desired.problems, resolution.problems)
    problems = (*(problem for stage in stages for problem in stage), *unreadable, *blocked, *named)
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
    yield from problem_exits(problems)
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
    if any(change.reason in LEFT_BY_RUN for change in changes):
        yield Exit.PARTIAL
    if any(change.pending for change in every):
        yield Exit.PENDING


def _described(
    of_shard: Iterable[Change], fleet: ResolvedFleet, context: PlanContext, contents: Contents
) -> Iterator[Change]:
    """Yield changes with what they mean: moved versions, requirements, the difference from main."""
    reader, deliveries = ImpactReader(context.inventory.policy.risks), context.rendered.deliveries.items
    variants = {resolved.variant.key: resolved for resolved in context.resolution.variants}
    for change in of_shard:
        key, written = change.variant, change.written
        requirements = fleet.requirement_changes.get(key, ()) if key else ()
        delivery = deliveries.get(key) if key else None
        pins = _moved_pins(change, delivery) if delivery is not None else ()
        tree = context.targets[change.package].package.main_tree if written else None
        before = {} if tree is None else contents.get(tree)
        impact = None
        if written is not None and written.files and before is not None:
            values = set_values(variants[key].variant.spec) if key in variants else ()
            impact = reader.impact(before, written.files, change.own_names, values)
        conflicts = change.conflicts
        if impact is not None and written is not None and waits_for_functions(conflicts, written.files):
            impact = replace(impact, risks=())
        if conflicts and written is not None and key in variants:
            local = variants[key].local
            conflicts = with_templates(conflicts, written.files, contents.get(local, {}) if local else {})
        yield replace(change, pins=pins, requirements=requirements, impact=impact, conflicts=conflicts)


def _hidden_rows(inventory: Inventory, shard: Shard) -> Iterator[Change]:
    """Yield the rows of packages that no stage looked at: nothing of them changes."""
    for package, problem in inventory.hidden.items():
        view = next(iter(inventory.views_of(package.url)), None)
        if view is not None and shard.holds(package.url):
            yield Change(package, view.key, Op.KEEP, Reason.DEFECT, problem.message)


def _moved_pins(change: Change, delivery: RenderedDelivery) -> tuple[lock_changes.VersionChange, ...]:
    """Return the versions that merging the draft of a generated package changes."""
    files = _proposed_files(change, delivery)
    if files is None:
        return ()
    before, after = _installed_versions(delivery.local), _installed_versions(files)
    return lock_changes.object_version_changes(
        before, after, delivery.packages, delivery.lock, delivery.cluster
    )


def _proposed_files(change: Change, delivery: RenderedDelivery) -> Files | None:
    """Return the files of a generated package if this run writes its draft or its pull request, else None."""
    if change.written is not None:
        return change.written.files
    # A run that was killed may have left a draft without its pull request, whose text is the same then.
    fresh = delivery.rendered.fresh
    if change.pull is None or not isinstance(fresh, Package) or fresh.tree != change.tree:
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
    every: Sequence[Change],
    waiting: Mapping[PackageKey, int],
    fleet: ResolvedFleet,
    context: PlanContext,
    *,
    lock: LockPlan,
    shard: Shard,
) -> Plan:
    """Return the plan with what a run leaves on both branches, about the packages of other shards too.

    And with what speaks against approvals. It costs a quarter of a plan, and showing a plan needs little of
    it: each part is made at its first use.
    """

    def without(packages: Collection[PackageKey]) -> Plan:
        rest, others = context.without(packages), [c for c in every if c.package not in packages]
        owners = {ObjectKey(GROUP, "PackageVariant", *name) for name in context.names_at(packages)}
        part = replace(
            plan,
            changes=tuple(change for change in plan.changes if change.package not in packages),
            problems=tuple(problem for problem in plan.problems if problem.owner not in owners),
            context=rest,
        )
        return _with_files(part, others, waiting, fleet, rest, lock=lock, shard=shard)

    inventory = context.inventory
    # A reviewed lock is recorded by merging its pull request, any other by this run.
    decided = {} if inventory.reviewed is not None else fleet.locks.files
    locks = LazyMapping(lambda: {**plan_locks(context, every), **decided, **lock.records})

    def records() -> dict[str, bytes]:
        return dict(sorted({**plan_records(context, every, waiting), **locks}.items()))

    def other_status() -> dict[str, bytes]:
        namespace = inventory.policy.dependencies.shared_namespace
        status = lock_status_files.status_files(
            fleet.clusters.worlds, fleet.locks, shared_namespace=namespace
        )
        histories = {history_path(url): record_bytes(h) for url, h in sorted(inventory.histories.items())}
        return {**status, **histories}

    def owners() -> dict[str, PackageKey]:
        return dict(sorted({**record_owners(context, every), **lock.record_owners}.items()))

    conditions = LazyMapping(lambda: plan_conditions(context, every))
    others = LazyMapping(other_status)
    owned, reported = LazyMapping(owners), LazyMapping(lambda: status_owners(context, every))
    histories = {history_path(url): PackageKey(url, "") for url in inventory.histories}
    return replace(
        plan,
        without=without,
        conditions=conditions,
        records=LazyMapping(records),
        locks=locks,
        record_owners=owned,
        status=LazyMapping(lambda: {**plan_status(context, conditions), **others}),
        approvable=LazyMapping(lambda: find_approvable(inventory, plan.changes)),
        objections=LazyMapping(functools.partial(find_objections, plan)),
        other_status=others,
        other_files=files_of_other_shards(shard, LazyMapping(lambda: {**owned, **reported, **histories})),
    )


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
    after = {p: data for p, data in plan.locks.items() if p.startswith(f"{UPSTREAMS_DIRECTORY}/")}
    elsewhere = plan.other_files or ()
    for path in sorted(before.keys() | after.keys()):
        if before.get(path) != after.get(path) and path in plan.record_owners and path not in elsewhere:
            yield path, before.get(path), after.get(path)
