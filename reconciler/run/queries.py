"""Runs that only report: the status of every package, one of them explained, and the kinds of snapshots."""

from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from reconciler.admission.cluster import DECIDING, NAMESPACE, UNASKED, Cluster
from reconciler.api.kptfile import KPTFILE
from reconciler.apply.links import known_bases, local_origins
from reconciler.base.progress import track
from reconciler.base.reasons import Phase, Reason
from reconciler.dependencies.lock.changes import is_met_by
from reconciler.dependencies.model.cluster import ClusterInputs
from reconciler.dependencies.model.instances import MetNeed
from reconciler.dependencies.model.packages import Ecosystem, PackageNeed
from reconciler.expand import DesiredVariant, expand
from reconciler.git.commits import parse_annotations
from reconciler.git.repository import Mirror
from reconciler.inventory.inventory import Inventory, PackageState
from reconciler.inventory.standing import Standing
from reconciler.names.ids import GroupKind, ObjectName, Oid, PackageKey
from reconciler.names.objects import Files
from reconciler.names.problems import Problem
from reconciler.plan.build import find_unread, with_unread_repositories
from reconciler.plan.changes import Change, Op, Outcome, Plan
from reconciler.plan.chart_values import changed_values, with_templates
from reconciler.plan.impact import ImpactReader
from reconciler.plan.package_status import read_packages
from reconciler.plan.status import OwnerStatus, PackageStatus, current_owners, current_statuses
from reconciler.policy import OnUnavailable
from reconciler.read.contents import fetch_contents
from reconciler.read.repositories.trees import read_header
from reconciler.render.delivery import generated_versions, package_graph
from reconciler.render.injection import needed_kinds
from reconciler.report.build import MENDING, build_report, package_overviews, tell, version_label
from reconciler.report.explain import Origin, Standstill, find_obstacles, find_origins
from reconciler.report.report import HistoryEntry, PackageOverview, Report, StatusRow
from reconciler.resolve.deliveries import cluster_of
from reconciler.resolve.ownership import package_name
from reconciler.resolve.resolution import Needs
from reconciler.run.options import RunOptions
from reconciler.run.plan import PlannedRun, RunInputs, opened_pipelines, plan_run, read_inputs, resolve_inputs

_UNRELATED_TO_KINDS = frozenset({Reason.REPOSITORY_UNAVAILABLE, Reason.NO_MATCHING_TARGETS})
"""Problems that are listed as unread repositories, or that the next snapshot ends."""


class FleetStatus(Struct, frozen=True):
    """The report of a fleet as it is, with a row for each package and each owner without one."""

    planned: PlannedRun
    report: Report
    rows: list[StatusRow]


def read_status(options: RunOptions, about: str = "") -> FleetStatus:
    """Return the phase of every package, or of one, and the conditions of its owner before any effect."""
    planned = plan_about(options, about)

    def make(plan: Plan) -> FleetStatus:
        part = replace(planned, plan=plan)
        return FleetStatus(part, build_report(plan, part.names), status_rows(part))

    return tell(planned.plan, make)


def status_rows(planned: PlannedRun, outcome: Outcome | None = None) -> list[StatusRow]:
    """Return the rows of the status before any effect of a plan, or after its outcome.

    Packages of clusters are first, then owners, by kind and name.
    """
    plan, inventory = planned.plan, planned.inputs.inventory
    statuses = current_statuses(plan, outcome)
    owners = current_owners(plan, statuses, outcome)
    overviews = package_overviews(plan, statuses)
    changes = {change.package: change for change in plan.changes}
    of_variants = {owner.key: owner for owner in owners if owner.kind == "PackageVariant"}
    rows: dict[ObjectName, list[StatusRow]] = {}
    for status in statuses:
        if (variant := status.variant) is not None:
            overview = overviews[variant, status.package]
            label = inventory.label(status.repository) if status.repository is not None else ""
            change = changes.get(status.package) if status.package else None
            rows.setdefault(variant, []).append(
                StatusRow(of_variants[variant], status, overview, label, change)
            )
    downstreams = plan.context.downstreams if plan.context else {}
    # Of a delivery that moves, the place where it goes comes last.
    deliveries: dict[str, tuple[PackageStatus, PackageOverview]] = {
        cluster: (status, overviews[status.variant, status.package])
        for status in sorted(statuses, key=lambda status: status.package in downstreams)
        if status.variant is not None and (cluster := cluster_of(status.variant))
    }
    on_main = _versions_on_main(planned, statuses)
    untouched = {*_untouched_installs(planned, deliveries, on_main)}
    undelivered = plan.context.rendered.deliveries.undelivered if plan.context else {}
    moving = {cluster for move in plan.version_changes for cluster in move.clusters}
    listed = []
    for owner in read_packages(plan.other_status or {}):
        alone = PackageStatus(Phase.PUBLISHED), PackageOverview()
        is_untouched = (owner.cluster, owner.kind, *owner.key) in untouched
        if owner.cluster in moving and not is_untouched:
            alone = PackageStatus(Phase.PENDING), PackageOverview(waiting_for="the next apply")
        if why := undelivered.get(owner.cluster):
            alone = PackageStatus(Phase.STALLED, message=why), PackageOverview(waiting_for=MENDING)
        delivery, summary = alone if is_untouched else deliveries.get(owner.cluster, alone)
        leaves = delivery.package is not None and delivery.package not in downstreams
        versions = _row_versions(owner, delivery, on_main, leaves=leaves)
        listed.append(_cluster_row(owner, delivery, summary, versions))
    for row in map(StatusRow, owners):
        listed += rows.get(row.owner.key, [row]) if row.is_variant else [row]
    return listed


def _versions_on_main(planned: PlannedRun, statuses: Iterable[PackageStatus]) -> dict[tuple[str, ...], str]:
    """Return the versions that main has of deliveries under way, by cluster, kind, namespace and name."""
    context = planned.plan.context
    trees: dict[tuple[str, PackageKey], Oid] = {}
    of_clusters = [(cluster_of(s.variant), s) for s in statuses if s.variant and cluster_of(s.variant)]
    moving = {cluster for cluster, status in of_clusters if status.phase is not Phase.PUBLISHED}
    for cluster, status in of_clusters:
        target = context.targets.get(status.package) if context and status.package else None
        if target is not None and target.package.main_tree and cluster in moving:
            trees[cluster, target.key] = target.package.main_tree
    needs = Needs.of((package.url, tree) for (_, package), tree in trees.items())
    inputs = planned.inputs
    files = fetch_contents(needs, inputs.mirrors, inputs.inventory.policy.limits).files if trees else {}
    return {
        (cluster, *ref): version
        for (cluster, _), tree in trees.items()
        for ref, version in generated_versions(files.get(tree, {}))
    }


def _untouched_installs(
    planned: PlannedRun,
    deliveries: Mapping[str, tuple[PackageStatus, PackageOverview]],
    on_main: Mapping[tuple[str, ...], str],
) -> Iterator[tuple[str, ...]]:
    """Yield the users' packages that no delivery under way concerns: main has what they need.

    Their manifests are the users', and no part of it. Each has its cluster, kind, namespace and name.
    """
    worlds = {world.cluster: world for world in planned.fleet.clusters.worlds}
    namespace = planned.inputs.inventory.policy.dependencies.shared_namespace
    plan = planned.plan
    moving = {(cluster, move.instance) for move in plan.version_changes for cluster in move.clusters}
    undelivered = plan.context.rendered.deliveries.undelivered if plan.context else {}
    for scope in planned.fleet.locks.scopes:
        cluster = scope.cluster
        status = deliveries[cluster][0] if cluster in deliveries else None
        is_idle = status is None or status.phase in (Phase.PUBLISHED, Phase.STALLED)
        if is_idle or cluster in undelivered or scope.after is None or cluster not in worlds:
            continue
        family = package_graph(worlds[cluster], scope.after, namespace)
        for package in family.packages.values():
            delivered = (
                (need, (cluster, *family.ref_of(target)))
                for need in package.dependencies
                if (target := need.resolved and family.packages.get(need.resolved)) and not target.by_user
            )
            if (
                package.by_user
                and package.instance.ecosystem != Ecosystem.KPT
                and (cluster, str(package.instance)) not in moving
                and all(_has(on_main.get(ref, ""), need) for need, ref in delivered)
            ):
                yield cluster, *family.ref_of(package)


def _has(version: str, need: MetNeed) -> bool:
    is_free = need.need != "package" or not need.constraints
    return bool(version) and (is_free or is_met_by(need, version))


def _row_versions(
    owner: OwnerStatus,
    delivery: PackageStatus,
    on_main: Mapping[tuple[str, ...], str],
    *,
    leaves: bool,
) -> tuple[str, str]:
    """Return the version of a package of a cluster on main, and the one in review if it is another.

    `leaves` is whether the package that delivers it is to be removed.
    """
    locked = owner.details
    version = str(locked.get("version") or str(locked.get("currentIdentifier", "")).rpartition(":")[2])
    if delivery.phase is Phase.PUBLISHED:
        return version, ""
    if delivery.phase is Phase.STALLED and delivery.package is None:
        return "", ""
    main = on_main.get((owner.cluster, owner.kind, *owner.key), "")
    if leaves:
        return main or version, ""
    is_same = main.removeprefix("v") == version.removeprefix("v")  # an Installation has none
    return (version, "") if is_same else (main, version)


def _cluster_row(
    owner: OwnerStatus, delivery: PackageStatus, overview: PackageOverview, versions: tuple[str, str]
) -> StatusRow:
    """Return the row of a package of a cluster with its `versions` on main and in review.

    One that is neither stalled nor waits for its activation has the state of the package that delivers it.
    """
    row, waiting = StatusRow(owner), overview.waiting_for
    status = replace(delivery, package=None, repository=None, name="", head="", pull=0, url="")
    if delivery.repository is not None and waiting:
        waiting = f"{delivery.repository.name}/{delivery.name}: {waiting}"
    if row.condition("Ready").status == "False":
        waiting, phase = "", Phase.STALLED if row.is_stalled else Phase.NOT_READY
        if phase is not delivery.phase:
            status = replace(status, phase=phase, since=0, reason="", message="")
    return StatusRow(owner, status, PackageOverview("", owner.cluster, *versions, waiting))


class NeededKinds(Struct, frozen=True):
    """The kinds of objects that a fleet reads from snapshots of clusters, sorted.

    `problems` are manifests and `unread` repositories that may need further kinds. `standing` is
    the position of the commit that was read.
    """

    kinds: tuple[GroupKind, ...]
    problems: tuple[Problem, ...] = ()
    unread: Mapping[Problem, OnUnavailable] = field(default_factory=dict)
    standing: Standing = Standing()


def _needed_ecosystems(worlds: Iterable[ClusterInputs]) -> set[Ecosystem]:
    """Return the ecosystems of what is installed, and of what may be where variants need packages."""
    ecosystems: set[Ecosystem] = set()
    for world in worlds:
        installed = {install.need.id.ecosystem for install in world.installs}
        ecosystems |= installed
        for versions in world.catalogue.packages.values() if Ecosystem.KPT in installed else ():
            ecosystems |= {
                need.id.ecosystem
                for candidate in versions
                for requirement in candidate.requires
                for need in requirement.alternatives
                if isinstance(need, PackageNeed)
            }
    return ecosystems


def _deciding_kinds(inventory: Inventory) -> Iterator[GroupKind]:
    """Yield the kinds that decide about objects of clusters, where snapshots are to have them."""
    if inventory.policy.admission.snapshots or inventory.snapshot.lists_any(DECIDING):
        yield from (*DECIDING, NAMESPACE, *UNASKED[:2])
        for snapshot in (inventory.snapshot, *inventory.snapshot.clusters.values()):
            yield from Cluster(snapshot.cluster, snapshot).parameters


def find_needed_kinds(options: RunOptions) -> NeededKinds:
    """Return the kinds of objects that this fleet reads from snapshots of clusters."""
    inputs = read_inputs(options)
    fleet = resolve_inputs(inputs)
    injected = [resolved for resolved in fleet.resolution.variants if resolved.variant.spec.injectors]
    needs = Needs.of((resolved.pin.package.url, resolved.pin.tree) for resolved in injected)
    contents = fetch_contents(needs, inputs.mirrors, inputs.inventory.policy.limits)
    problems = {*inputs.inventory.problems, *fleet.desired.problems, *fleet.resolution.problems}
    problems = {*with_unread_repositories(problems, inputs.inventory)}
    kinds = needed_kinds(inputs.inventory, injected, contents, _needed_ecosystems(fleet.clusters.worlds))
    return NeededKinds(
        tuple(sorted({*kinds, *_deciding_kinds(inputs.inventory)})),
        tuple(sorted(p for p in problems if p.reason not in _UNRELATED_TO_KINDS)),
        find_unread(inputs.inventory),
        inputs.inventory.control.standing,
    )


def plan_about(options: RunOptions, package: str) -> PlannedRun:
    """Return the plan of the repository of a package.

    It is that of the whole fleet where the repository has no package of that name, or one with sub-packages:
    their upstreams may be anywhere.
    """
    planned = plan_run(options, about=package)
    is_whole = planned.inputs.shard == options.shard
    by_itself = (names for *names, change in named_changes(planned) if not change.subpackages)
    is_enough = is_whole or any(package in names for names in by_itself)
    return planned if is_enough else plan_run(options)


def named_changes(planned: PlannedRun) -> Iterator[tuple[str, str, Change]]:
    """Yield the change of every package of the plan and of every other repository, with both of its names."""
    for change in planned.plan.changes:
        repository = planned.names.repository(change)
        yield planned.names.of(change), f"{repository}/{change.package.path}", change
    planned_packages = {change.package for change in planned.plan.changes}
    for _, view in sorted(planned.inputs.inventory.repositories.items()):
        for path, package in sorted(view.packages.items()):
            key = PackageKey(view.url, path)
            if key not in planned_packages:
                change = Change(key, view.key, Op.KEEP, Reason.NOT_OURS, before=package.main_tree)
                repository = planned.names.repository(change)
                yield f"{repository}/{package_name(view, path)}", f"{repository}/{path}", change


def trace_variant(planned: PlannedRun, change: Change) -> DesiredVariant | None:
    """Return the variant of a change with the origin of every field that a set gave it."""
    variant = next((v for v in planned.desired.variants if v.key == change.variant), None)
    if variant is None:
        return None
    inventory = planned.inputs.inventory
    # Its set alone is expanded again: what others give cannot change where its fields come from.
    sets = tuple(pvs for pvs in inventory.sets if pvs.key == variant.set_key)
    authored = tuple(pv for pv in inventory.variants if pv.key == variant.key)
    traced = expand(replace(inventory, sets=sets, variants=authored), trace=True).variants
    return next((v for v in traced if v.key == variant.key), variant)


def explain_standstill(
    planned: PlannedRun, change: Change, variant: DesiredVariant | None, revision: str
) -> Standstill:
    """Return what keeps a package from an upstream revision, "" for the newest one."""
    trace = {variant.key: variant.trace} if variant else {}
    return find_obstacles(planned.plan, change, planned.names.of(change), revision, trace)


def read_origins(
    planned: PlannedRun, change: Change, variant: DesiredVariant | None
) -> tuple[tuple[Origin, ...], Change]:
    """Return where each field of a package came from, and its change with that of its conflicts.

    There are none where no variant makes the package.
    """
    resolved = next((r for r in planned.resolution.variants if r.variant.key == change.variant), None)
    if variant is None or resolved is None or resolved.downstream != change.package:
        return (), change
    inventory = planned.inputs.inventory
    pins = [pin for pin in (resolved.pin, resolved.base) if pin is not None]
    ours = [(change.package.url, tree) for tree in (resolved.local, change.tree)]
    needs = Needs.of([*((pin.package.url, pin.tree) for pin in pins), *ours])
    contents = fetch_contents(needs, planned.inputs.mirrors, inventory.policy.limits)
    files = change.written.files if change.written else None
    if not files and change.tree is not None:
        files = contents.get(change.tree)
    upstream = contents.get(resolved.pin.tree) or {}
    with opened_pipelines(planned.inputs) as run:
        changed = tuple(changed_values(run, resolved, contents, files)) if files else ()
    main = contents.get(resolved.local or Oid("")) or {}
    conflicts = with_templates(change.conflicts, files or {}, main)
    origins = find_origins(
        resolved, files or {}, inventory, variant.trace, upstream, main=main, changed=changed
    )
    if change.conflicts:  # functions wait for the answers: the draft lacks the values that the variant sets
        origins = tuple(o for o in origins if o.location is None or not o.field.startswith(".Values."))
    view = inventory.views[change.repository]
    mirror = planned.inputs.mirrors.open(view.remote) if conflicts and view.head else None
    change = replace(change, conflicts=conflicts)
    return origins, known_bases(change, local_origins(mirror, view.branch, change)) if mirror else change


def read_history(inputs: RunInputs, change: Change) -> Iterator[HistoryEntry]:
    """Yield the revisions of a package, the newest first; open drafts come before them.

    Raises:
        ConfigurationError, UnavailableError: Its repository was not read.
    """
    view = inputs.inventory.views[change.repository]
    view.require_read()
    package = view.packages.get(change.package.path)
    if package is None:
        return
    mirror = inputs.mirrors.open(view.remote)
    stages, drafts = package_stages(package), len(package.drafts)
    trees = [tree for _, _, tree in stages]
    older = [*(package.main_tree for _ in package.drafts), *trees[drafts + 1 :], None]
    needs = Needs.of((view.url, tree) for tree in trees)
    contents = fetch_contents(needs, inputs.mirrors, inputs.inventory.policy.limits).files
    reader = ImpactReader(inputs.inventory.policy.risks)
    for (label, commit, tree), base in zip(track(stages, "comparing revisions"), older, strict=False):
        before = contents.get(base, {}) if base else {}
        after = contents.get(tree, {})
        impact = reader.impact(before, after, ()) if tree in contents else None
        labels = _labels(commit, change.package.path, mirror)
        yield read_entry(label, commit, after, mirror)._replace(impact=impact, labels=labels)


def package_stages(package: PackageState) -> list[tuple[str, Oid, Oid]]:
    """Return label, commit and tree of each revision, the newest first; open drafts come before them."""
    drafts = sorted(package.drafts, key=lambda draft: -draft.tip.time)
    untagged = sorted(package.unpublished, key=lambda state: -state.commit.time)
    numbered = sorted((r for r in package.published if r.revision > 0), key=lambda r: -r.revision)
    return [
        *((f"draft {draft.workspace}", draft.tip.oid, draft.tree) for draft in drafts),
        *(("untagged", state.commit.oid, state.tree) for state in untagged),
        *((f"v{r.revision}", r.commit.oid, r.tree) for r in numbered),
    ]


def _labels(oid: Oid, path: str, mirror: Mirror) -> Mapping[str, str]:
    """Return the labels that a commit gave a package: our own, one that merged it, or that squashed it."""
    commit = mirror.find_commit(oid)
    merged = map(mirror.find_commit, commit.parents[1:]) if commit else ()
    texts = (source.message for source in (commit, *merged) if source)
    named = (
        annotation for text in texts for annotation in parse_annotations(text) if annotation.package == path
    )
    return next((annotation.labels for annotation in named if annotation.labels), {})


def read_entry(label: str, commit: Oid, files: Files, mirror: Mirror) -> HistoryEntry:
    """Return a revision or a draft; its upstream is that of its files."""
    data = mirror.find_commit(commit)
    kptfile = files.get(KPTFILE)
    upstream = version_label(read_header(kptfile.data)) if kptfile else ""
    if data is None:
        return HistoryEntry(label, commit, upstream)
    subject = data.message.strip().partition("\n")[0]
    return HistoryEntry(label, commit, upstream, data.committer.time, data.author.name, subject)
