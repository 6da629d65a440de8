"""The run of `plan`: read > expand > resolve > fetch > render > plan, each once.

A shard expands between two steps of reading: `read_inputs`.
"""

import os
import re
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property, partial
from types import MappingProxyType

from msgspec import Struct, field
from msgspec.structs import replace

from reconciler.api.kptfile import KptfileHeader
from reconciler.api.porch import Downstream, PackageVariantSpec, Upstream
from reconciler.apply.preconditions import Checkout, check_checkout
from reconciler.base import effects
from reconciler.base.defects import DefectError, isolate
from reconciler.base.errors import ConfigurationError, UsageError
from reconciler.base.progress import open_task, stage, track
from reconciler.base.reasons import Phase, Reason
from reconciler.base.redact import learn_names, shown_credentials
from reconciler.dependencies.catalog.index import DependencyInputs
from reconciler.dependencies.lock.format import DEFAULT_OPTIONS, ResolveOptions
from reconciler.expand import Desired, expand
from reconciler.expand.owners import assume_upstreams
from reconciler.forge.registry import Forges
from reconciler.functions.pipeline import RunPipelines
from reconciler.functions.runtimes.pipelines import open_pipelines
from reconciler.functions.step import PipelineResult
from reconciler.git.repository import Mirrors
from reconciler.inventory.inventory import Inventory, PackageState, RepositoryRole, RepositoryView, Unit
from reconciler.inventory.shard import WHOLE, Shard
from reconciler.inventory.standing import Position
from reconciler.names.ids import ObjectName, PackageKey, normalise_url
from reconciler.names.objects import Files
from reconciler.names.problems import Problem
from reconciler.names.refs import package_name_error, relative_package
from reconciler.plan.admission import judge_packages
from reconciler.plan.build import build_plan
from reconciler.plan.changes import Op, Plan
from reconciler.plan.loss_reader import loss_trees
from reconciler.plan.set_diff import diff_variants, retained_variants, without_generated
from reconciler.read.contents import fetch_contents
from reconciler.read.control import (
    ControlHistory,
    OpenControl,
    find_default_tip,
    open_commit,
    open_control,
    read_standing,
)
from reconciler.read.dependencies import read_dependencies
from reconciler.read.governance import (
    ReadOptions,
    policy_governor,
    read_merged_policy,
    read_options,
    read_policy,
    registered_in,
    repository_check,
)
from reconciler.read.inventory import Reading, read_control, read_inventory, with_trees
from reconciler.read.state import read_applied, state_ref
from reconciler.records.state import LOCKS_DIRECTORY
from reconciler.render.delivery import render_deliveries
from reconciler.render.merging import Contents
from reconciler.render.package import render_packages
from reconciler.render.rendered import Rendered, RenderedVariant
from reconciler.render.sharing import main_values
from reconciler.render.unchanged import find_unchanged, with_unchanged, without_guesses
from reconciler.report.report import Names
from reconciler.resolve.deliveries import cluster_of
from reconciler.resolve.fleet import ResolvedFleet, find_dependent_clusters, resolve_fleet, with_deliveries
from reconciler.resolve.ownership import downstream_packages, find_owner, find_view
from reconciler.resolve.pins import find_floating
from reconciler.resolve.resolution import Resolution, ResolvedVariant
from reconciler.resolve.upstreams import source_names
from reconciler.resolve.variants import SUBPACKAGE_REVISIONS
from reconciler.run.options import RunOptions, open_mirrors


class RunInputs(Struct, frozen=True, dict=True):
    """Everything that was read, and the repositories that it was read from.

    `expanded` are the variants, where they had to be known to read the rest, `shard` is what was read.
    """

    inventory: Inventory
    mirrors: Mirrors
    forges: Forges = field(default_factory=Forges)
    expanded: Desired | None = None
    shard: Shard = WHOLE

    @cached_property
    def dependencies(self) -> DependencyInputs:
        """Published packages and locks, read when first needed: listing pull requests needs none.

        Raises:
            UnavailableError: The control repository cannot be read.
        """
        if self.inventory.is_partial:
            return DependencyInputs()  # a shard reads the whole fleet where its clusters need packages
        return read_dependencies(self.inventory, self.mirrors)

    def without(self, units: Mapping[Unit, DefectError]) -> "RunInputs":
        """Return what was read without units that a bug of ours breaks the work on."""
        return replace(self, inventory=self.inventory.without(units), expanded=None) if units else self

    def expand(self) -> Desired:
        """Return the variants that should exist."""
        return self._desired

    @cached_property
    def _desired(self) -> Desired:
        return self.expanded or expand(self.inventory)

    @property
    def has_manifests(self) -> bool:
        """Whether any manifest was read, valid or not."""
        read = self.inventory
        return bool(read.variants or read.sets or read.stalled or read.repositories or read.documents)

    @property
    def names(self) -> Names:
        """The names of packages in reports."""
        views = self.inventory.views
        policy, directories = self.inventory.policy, {key: view.directory for key, view in views.items()}
        url, shared = policy.pull_requests.report_url, self.inventory.shared_names
        return Names(policy.instance, directories, url, str(self.forges.shard), shared)


def read_inputs(
    options: RunOptions,
    forges: Forges | None = None,
    *,
    writes: bool = False,
    lists_ended: bool = False,
    about: str = "",
) -> RunInputs:
    """Read everything that a run may know. Writes nothing.

    If the caller `writes`, an unmerged or outdated commit is refused before anything else is read.
    `lists_ended` lists all pull requests with their texts, also those that ended long ago. To tell of one
    package, `about`, as REPO/PACKAGE, what its repository needs is read, where that is enough.

    Raises:
        RefusedError: The commit is not merged or not the newest, and `writes`.
    """
    mirrors = open_mirrors(options)
    forges = forges or Forges(shard=options.shard, writes=writes, lists_ended=lists_ended)
    with open_task("reading"):
        opened = open_control(options.control, mirrors)
        if writes:
            check_opened(opened)
        reading = _reading(options, opened, mirrors)
        control = read_control(options.control, mirrors, os.environ, reading, forges)
        shard = _asked_shard(control.inventory, about) if about else options.shard
        inventory, expanded = _read_repositories(control, shard)
        if not writes:
            inventory = with_former_variants(options.control, inventory, opened, mirrors, reading)
    return RunInputs(inventory, mirrors, forges, expanded, shard)


def _asked_shard(inventory: Inventory, package: str) -> Shard:
    """Return the repository of a package, the whole fleet where others decide about its pull request."""
    name, limits = re.split("[/#]", package)[0], inventory.policy.pull_requests
    urls = [view.url for view in inventory.repositories.values() if view.key.name == name]
    # It may be an owner by its namespace, too.
    keys = (*(variant.key for variant in inventory.variants), *(pvs.key for pvs in inventory.sets))
    namespaces = {key.namespace for key in keys}
    is_alone = len(urls) == 1 and name not in namespaces and not (limits.max_open or limits.max_new)
    return Shard(parts=2, only=urls[0]) if is_alone else WHOLE


def _read_repositories(control: Reading, shard: Shard) -> tuple[Inventory, Desired | None]:
    """Read the repositories that are named, expand, then read those that variants, records and locks name.

    The whole fleet is read at once. Returns the variants too, unless something that was read later, also
    from a forge, may change them.
    """
    if shard.parts == 1:
        return control.read().complete(), None
    clusters = planned_clusters(control.inventory, shard)
    read = control.read(named_urls(control.inventory, clusters), planned=clusters)
    if not read.skipped:
        return read.complete(), None
    inventory = with_trees(read.inventory, read.mirrors)
    desired = expand(inventory)
    urls, why = wanted(desired, inventory, read_dependencies(inventory, control.mirrors), shard)
    notes = [f"Shard {shard} reads every repository: {why}"] if why and not shard.only else ()
    inventory = read.read(urls, planned=clusters).complete(*notes)
    before, after = (frozenset(map(id, i.repositories.values())) for i in (read.inventory, inventory))
    return inventory, desired if before == after else None


def _reading(options: RunOptions, opened: OpenControl, mirrors: Mirrors) -> ReadOptions:
    """Return the rules to read the commit by: an unmerged one may use what the default branch registers."""
    reading = read_options(opened, os.environ)
    tip = find_default_tip(opened.mirror) if reading.is_proposed else None
    if tip is None:
        return reading
    merged = read_merged_policy(opened.mirror, os.environ)
    shallow = ReadOptions(open_commit(opened.mirror, tip), policy_governor(merged), deep=False)
    try:
        registered = registered_in(read_inventory(options.control, mirrors, os.environ, shallow))
    except ConfigurationError:
        return reading
    return replace(reading, check=repository_check(merged, opened.mirror, registered))


def with_former_variants(
    control: str, inventory: Inventory, opened: OpenControl, mirrors: Mirrors, reading: ReadOptions
) -> Inventory:
    """Return the inventory of an unmerged commit, with what was desired where it left the default branch.

    It may have left before the commit that was applied last: what that brought, it does not remove.
    """
    standing = inventory.control.standing
    if standing.position is not Position.UNMERGED or standing.contains_applied:
        return inventory
    history = ControlHistory(opened)
    bases = (history.merge_base(oid, opened.commit.oid) for oid in (standing.applied, standing.newest) if oid)
    base = next(filter(None, bases), None)
    before: dict[tuple[ObjectName, PackageKey], PackageVariantSpec] = {}
    if base is not None:
        shallow = replace(reading, control=open_commit(opened.mirror, base), deep=False)
        with suppress(ConfigurationError):  # nothing is known to have been desired
            there = assume_upstreams(read_inventory(control, mirrors, os.environ, shallow))
            downstreams = downstream_packages(expand(there).variants, there)
            before = {
                (variant.key, package): variant.spec for package, of in downstreams.items() for variant in of
            }
    return replace(inventory, control=replace(inventory.control, before=before))


def check_opened(opened: OpenControl) -> None:
    """Refuse to write for everybody from a commit that is not merged, or not the newest.

    Raises:
        RefusedError: The commit is such a one.
    """
    mirror, is_governed = opened.mirror, find_default_tip(opened.mirror) is not None
    policy = read_merged_policy(mirror, os.environ) if is_governed else read_policy(opened, os.environ)
    state = mirror.refs().get(state_ref(policy.instance)) if policy else None
    standing = read_standing(opened, read_applied(mirror, state, policy.limits) if policy else None)
    checkout = Checkout(mirror.remote, opened.commit.oid, opened.branch, opened.published, standing)
    check_checkout(checkout, mirror.head_branch)


_COLLISIONS = frozenset({Reason.DUPLICATE_DOWNSTREAM, Reason.AMBIGUOUS_IDENTIFIER})


def planned_clusters(inventory: Inventory, shard: Shard) -> frozenset[str]:
    """Return the clusters that have a repository which the shard writes.

    A cluster is planned as a whole, also where another shard writes some of its repositories: what one of
    its packages needs may go into another repository of the cluster.
    """
    return frozenset(view.cluster for view in inventory.repositories.values() if shard.holds(view.url))


def named_urls(inventory: Inventory, clusters: Container[str]) -> frozenset[str]:
    """Return the URLs that the manifests and records of the planned clusters name, before sets expand.

    The upstream of every set is among them: whether a set expands decides which of its variants are gone,
    and the deletion guard counts those of the whole fleet. So is the downstream of other shards where a new
    package would get a name that only an existing package may have: if it does not exist, its owner stalls.
    """
    views = inventory.repositories
    planned = {view.url for view in views.values() if view.cluster in clusters}
    named = {
        _source(pvs.key.namespace, upstream)
        for pvs in inventory.sets
        for upstream in pvs.manifest.spec.sources
    }
    for variant in inventory.variants:
        namespace, spec = variant.key.namespace, variant.manifest.spec
        downstream = spec.downstream or Downstream()
        view = views.get(ObjectName(namespace, downstream.repo or ""))
        if view is not None and view.url in planned:
            named.add(_source(namespace, spec.upstream))
        elif view is not None and _may_stall(view, downstream.package or ""):
            named.add(view.key)
    for record in inventory.records.values():
        if record.url in planned:
            named.add(ObjectName(record.namespace, (record.spec.get("upstream") or {}).get("repo") or ""))
    return frozenset((*planned, *(views[name].url for name in named if name in views)))


def wanted(
    desired: Desired, inventory: Inventory, dependencies: DependencyInputs, shard: Shard
) -> tuple[frozenset[str], str]:
    """Return the URLs to read once sets are expanded, and why that is the whole fleet, "" if it is not.

    Else those are the bases of updates, which upstreamLocks of planned packages name.
    """
    why = next(_reasons(desired, inventory, dependencies, shard), "")
    urls = (view.url for view in inventory.views.values()) if why else _base_urls(inventory)
    return frozenset(urls), why


def _reasons(
    desired: Desired, inventory: Inventory, dependencies: DependencyInputs, shard: Shard
) -> Iterator[str]:
    """Yield what cannot be decided without reading the whole fleet."""
    if inventory.former:
        # The deletion guard counts what is left at former places among all packages of the fleet.
        yield "packages are left where no Repository is any more"
    refused = inventory.refused
    if refused is None or refused.variants or refused.packages:
        yield "deletions wait for consent"
    if inventory.reviewed is not None and shard.holds(inventory.control.url):
        yield "it proposes the lock"
    # A set of other shards may stall for its own reasons, and then it collides with nobody.
    if any(problem.reason in _COLLISIONS for problem in desired.problems):
        yield "several owners want one package"
    if _has_wrong_names(desired, inventory):
        yield "a set names packages that cannot be made"
    # The deletion guard counts these packages, not records, in all repositories.
    if _has_moved(desired, inventory):
        yield "a variant has another downstream now"
    if inventory.policy.rollouts and inventory.sets:
        yield "a wave waits for packages of other repositories"
    if any(SUBPACKAGE_REVISIONS in variant.annotations for variant in desired.variants):
        yield "a variant sets the revision of a sub-package"
    yield from _undecided_deletions(desired, inventory)
    if _has_dependencies(desired, inventory, dependencies, shard):
        yield "packages of its clusters need other packages"


def _undecided_deletions(desired: Desired, inventory: Inventory) -> Iterator[str]:
    authored = without_generated(inventory)
    diff = diff_variants(desired, authored)
    if diff.refused:
        yield "the deletion guard refuses deletions"
    gone = [change.record for change in (*diff.delete, *diff.transfer) if change.record is not None]
    if gone and len(authored.records) < len(inventory.records):
        yield "packages that only deleted ones needed may be deleted with them"


def _has_wrong_names(desired: Desired, inventory: Inventory) -> bool:
    """Whether a set gives names that no new package may have: its conditions list all of them."""
    owners = (problem.owner for problem in desired.problems if problem.reason == Reason.INVALID_NAME)
    if any(owner is not None and owner.kind == "PackageVariantSet" for owner in owners):
        return True
    named = ((find_view(v, inventory), v.spec.downstream) for v in desired.variants if v.set_key)
    return any(view and place and _may_stall(view, place.package or "") for view, place in named)


def _has_dependencies(
    desired: Desired, inventory: Inventory, dependencies: DependencyInputs, shard: Shard
) -> bool:
    """Whether planned clusters need packages, which any repository may publish."""
    clusters = planned_clusters(inventory, shard)
    planned = {view.url for view in inventory.repositories.values() if view.cluster in clusters}
    generated = (r.url for r in inventory.records.values() if r.requested_by or cluster_of(r.key))
    if any(url in planned for url in generated) or any(
        f"{LOCKS_DIRECTORY}/{cluster}.json" in dependencies.locks for cluster in clusters
    ):
        return True
    retained = retained_variants(desired, inventory)
    dependent = find_dependent_clusters(inventory, desired, dependencies, retained)
    return "" in dependent or not dependent.isdisjoint(clusters)


def _source(namespace: str, upstream: Upstream | None) -> ObjectName:
    return ObjectName(namespace, (upstream and upstream.repo) or "")


def _has_moved(desired: Desired, inventory: Inventory) -> bool:
    """Whether a variant leaves a package behind: the guard counts those among all packages of the fleet."""
    downstreams = downstream_packages(desired.variants, inventory).items()
    places = {variant.key: package for package, variants in downstreams for variant in variants}
    recorded = ((key, PackageKey(r.url, r.path)) for key, r in inventory.records.items())
    return any(
        places.get(owner, package) != package for owner, package in (*recorded, *_owned_packages(inventory))
    )


def _owned_packages(inventory: Inventory) -> Iterator[tuple[ObjectName, PackageKey]]:
    for view in inventory.repositories.values():
        for path, package in view.packages.items() if view.is_planned else ():
            key = PackageKey(view.url, path)
            for header in _headers(package):
                if (owner := find_owner(header, key, inventory)) is not None:
                    yield owner, key


def _headers(package: PackageState) -> Iterator[KptfileHeader]:
    headers = (package.main_header, *(draft.header for draft in package.drafts))
    yield from (header for header in headers if header is not None)


def _may_stall(view: RepositoryView, package: str) -> bool:
    """Whether a package of a skipped repository has a name that no new package may have."""
    if view.role is not RepositoryRole.SKIPPED:
        return False
    name = relative_package(view.full_path(package), view.directory)
    return bool(package_name_error(view.key.name, name))


def _base_urls(inventory: Inventory) -> Iterator[str]:
    """Yield the URLs that the upstreamLocks of planned packages name: there is the base of an update."""
    views = inventory.repositories.values()
    urls = {name: view.url for view in views for name in source_names(view)}
    packages = (package for view in views if view.is_planned for package in view.packages.values())
    locks = (header.upstream_lock for package in packages for header in _headers(package))
    for repo in {lock.repo for lock in locks if lock is not None}:
        if url := urls.get(normalise_url(repo)):
            yield url


_CRD = ("apiextensions.k8s.io/v1", "CustomResourceDefinition")


class PlannedRun(Struct, frozen=True):
    """A plan, and the values of the stages before it."""

    inputs: RunInputs
    fleet: ResolvedFleet
    plan: Plan
    contents: Contents = field(default_factory=dict)
    """The packages that rendering read, by tree."""

    @property
    def desired(self) -> Desired:
        """The variants that should exist."""
        return self.fleet.desired

    @property
    def resolution(self) -> Resolution:
        """The pins of the variants."""
        return self.fleet.resolution

    @property
    def names(self) -> Names:
        """The names of packages in reports."""
        return self.inputs.names

    @property
    def steps(self) -> int:
        """The approximate number of effects, for a progress bar."""
        changes = (change for change in self.plan.all_changes if change.pending)
        return 2 + sum(len(c.writes) + bool(c.pull) + len(c.close) for c in changes)


def plan_run(
    options: RunOptions, forges: Forges | None = None, *, to_apply: bool = False, about: str = ""
) -> PlannedRun:
    """Read everything, or what tells of one package (`about`), and compute the plan. Writes nothing.

    Raises:
        RefusedError: The commit is not merged, and the plan is to be applied.
        UsageError: A name to upgrade is no package's.
    """
    with stage("read"):
        inputs = read_inputs(options, forges, writes=to_apply, about=about)
    if options.resolving.upgrade:
        # Variants follow their upstreams, unless they are held.
        variants = inputs.expand().variants
        for name in sorted(options.resolving.upgrade):
            if find_floating(variants, name):
                hint = (
                    f"It follows its upstream by itself; if it is held, run `reconciler lock follow {name}`."
                )
                raise UsageError(f"{name} is a variant, and no package that a cluster needs", hint=hint)
    return plan_fleet(inputs, inputs.shard, options.resolving)


def plan_fleet(
    inputs: RunInputs, shard: Shard = WHOLE, resolving: ResolveOptions = DEFAULT_OPTIONS
) -> PlannedRun:
    """Compute the plan. Fetches package contents, writes nothing.

    Where a bug of ours breaks the work on a manifest, a record or a package, they are left alone, and all
    others get what they get where those cannot be understood.
    """
    return isolate(
        inputs.inventory.units, lambda left_out: _plan(inputs.without(left_out), shard, resolving)
    )[0]


def _plan(inputs: RunInputs, shard: Shard, resolving: ResolveOptions) -> PlannedRun:
    """Compute the plan: again while a bug of ours breaks the work on further packages, which then stall."""
    defects = dict(inputs.inventory.broken_records)
    done: dict[ObjectName, tuple[ResolvedVariant, RenderedVariant]] = {}
    inventory = inputs.inventory
    while True:
        effects.check_shutdown()
        fleet = _resolve(inputs, inventory, resolving, defects=defects)
        with stage("fetch"):
            limits, losses = inventory.policy.limits, loss_trees(fleet, inventory)
            values = main_values(fleet.resolution.variants)
            contents = fetch_contents(fleet.needs, inputs.mirrors, limits, later=losses, values=values)
            # Apart, so that what reports tell of takes no place of what rendering reads.
            compared = fetch_contents(losses, inputs.mirrors, limits)
        with opened_pipelines(inputs) as run:
            with stage("render"):
                rendered = _render(inventory, fleet, contents, run, done)
                rendered = with_unchanged(rendered, fleet.resolution, contents, inventory)
            if broken := _broken(rendered):
                defects |= broken
                continue
            unchanged = find_unchanged(rendered, fleet.resolution, inventory)
            if unchanged:
                # Where a revision or its values change nothing, the next wave need not wait for a run.
                inventory = replace(inventory, unchanged={**inventory.unchanged, **unchanged})
                done = {
                    r.variant.key: (r, rendered.variants[r.variant.key]) for r in fleet.resolution.variants
                }
                continue
            fleet = replace(fleet, resolution=without_guesses(fleet.resolution))
            deliveries = rendered.deliveries
            # Generated manifests are by_owner only after rendering: now they are variants like all others.
            generated = (delivery.resolved for delivery in deliveries.items.values())
            fleet = with_deliveries(fleet, inventory, generated, deliveries.stalled, deliveries.problems)
            # What a signal interrupted may look like a problem of a repository.
            effects.check_shutdown()
            with stage("plan"):
                trees = {**compared, **contents}
                rendered = judge_packages(inventory, fleet, rendered, trees)
                if (broken := _broken(rendered)).keys() - defects.keys():
                    defects |= broken
                    continue
                plan = build_plan(inventory, fleet, rendered, shard, trees)
        by_owner = {problem.owner: problem for problem in plan.problems if problem.reason == Reason.DEFECT}
        stalling = {
            variant.key: by_owner[variant.owner]
            for variant in fleet.desired.variants
            if variant.owner in by_owner
        }
        if stalling.keys() <= defects.keys():
            learn_names(partial(_names, plan))
            # After the checksum: what a run is given decides nothing.
            noted = replace(plan, notes=tuple(dict.fromkeys((*plan.notes, *shown_credentials()))))
            return PlannedRun(inputs, fleet, noted, contents)
        # Others may have counted on what it would publish: they are resolved again.
        defects |= stalling


def _broken(rendered: Rendered) -> dict[ObjectName, Problem]:
    return {outcome.variant: outcome.defect for outcome in rendered.variants.values() if outcome.defect}


def _names(plan: Plan) -> Iterator[str]:
    """Yield the names that a plan writes or shows."""
    yield from (*Op, *Reason, *Phase, *plan.records, *plan.status)
    for change in plan.all_changes:
        yield from (change.package.path, *change.repository, *(change.variant or ()))
        yield from (text for write in change.writes for text in (write.ref, getattr(write, "message", "")))
        yield from (
            text
            for conflict in change.conflicts
            for text in (conflict.path, conflict.resource, conflict.field)
        )
        if change.pull is not None:
            yield from (change.pull.head, change.pull.base, change.pull.title, *change.pull.labels)


def resolve_inputs(
    inputs: RunInputs, options: ResolveOptions = DEFAULT_OPTIONS, *, trace: bool = False
) -> ResolvedFleet:
    """Return every variant with its pin, those that others need included, and the locks. Writes nothing.

    `trace` also records the origin of every field of every variant.
    """

    def resolved(inputs: RunInputs) -> ResolvedFleet:
        return _resolve(inputs, inputs.inventory, options, trace=trace)

    return isolate(inputs.inventory.units, lambda left_out: resolved(inputs.without(left_out)))[0]


def _resolve(
    inputs: RunInputs,
    inventory: Inventory,
    options: ResolveOptions,
    *,
    trace: bool = False,
    defects: Mapping[ObjectName, Problem] = MappingProxyType({}),
) -> ResolvedFleet:
    """Resolve the fleet with variants stalled that have defects."""
    # Reading ends here: everything below is computed.
    with stage("read"):
        dependencies = inputs.dependencies
    with stage("expand"):
        desired = expand(inventory, trace=True) if trace else inputs.expand()
    with stage("resolve"):
        retained = retained_variants(desired, inventory)
        return resolve_fleet(inventory, desired, dependencies, retained, options=options, defects=defects)


@contextmanager
def opened_pipelines(inputs: RunInputs) -> Iterator[RunPipelines]:
    """Yield a function that runs the pipelines of packages, which a signal may end."""
    policy, cache = inputs.inventory.policy, inputs.mirrors.cache_dir / "functions"
    definitions = [definition.body for definition in inputs.inventory.snapshot.in_any_cluster(*_CRD)]
    with open_pipelines(policy.functions, cache, definitions, policy.limits) as run:

        def interruptible(packages: Sequence[Files]) -> Sequence[PipelineResult]:
            with effects.interruptible():
                return run(packages)

        yield interruptible


def _render(
    inventory: Inventory,
    fleet: ResolvedFleet,
    contents: Contents,
    run: RunPipelines,
    done: Mapping[ObjectName, tuple[ResolvedVariant, RenderedVariant]],
) -> Rendered:
    """Return the packages of all variants and deliveries; those that are `done` are taken from there."""
    same = {
        resolved.variant.key: done[resolved.variant.key][1]
        for resolved in fleet.resolution.variants
        if resolved.variant.key in done and done[resolved.variant.key][0] == resolved
    }
    variants = tuple(r for r in fleet.resolution.variants if r.variant.key not in same)
    resolution = replace(fleet.resolution, variants=variants) if same else fleet.resolution
    rendered = render_packages(
        resolution, contents, inventory, run, partial(track, name="rendering packages")
    )
    deliveries = render_deliveries(fleet.deliveries, contents, inventory)
    packages = {owner: delivery.rendered for owner, delivery in deliveries.items.items()}
    return replace(rendered, variants={**same, **rendered.variants, **packages}, deliveries=deliveries)
