"""The run of `plan`: read > expand > resolve > fetch > render > plan, each once.

A shard expands between two steps of reading: `read_inputs`.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from types import MappingProxyType

from msgspec import Struct
from msgspec.structs import replace

from reconciler.base import effects
from reconciler.base.defects import isolate
from reconciler.base.errors import UsageError
from reconciler.base.progress import stage, track
from reconciler.base.reasons import Phase, Reason
from reconciler.base.redact import learn_names, shown_credentials
from reconciler.dependencies.lock.format import DEFAULT_OPTIONS, ResolveOptions
from reconciler.expand import Desired, expand
from reconciler.forge.registry import Forges
from reconciler.functions.pipeline import RunPipelines
from reconciler.functions.runtimes.pipelines import open_pipelines
from reconciler.functions.step import PipelineResult
from reconciler.inventory.inventory import Inventory
from reconciler.inventory.shard import WHOLE, Shard
from reconciler.names.ids import ObjectName
from reconciler.names.objects import Files
from reconciler.names.problems import Problem
from reconciler.plan.admission import judge_packages
from reconciler.plan.build import build_plan
from reconciler.plan.changes import Op, Plan
from reconciler.plan.loss_reader import loss_trees
from reconciler.plan.set_diff import retained_variants
from reconciler.read.contents import fetch_contents
from reconciler.render.delivery import render_deliveries
from reconciler.render.merging import Contents
from reconciler.render.package import render_packages
from reconciler.render.rendered import Rendered, RenderedVariant
from reconciler.render.unchanged import find_unchanged, with_unchanged, without_guesses
from reconciler.report.report import Names
from reconciler.resolve.fleet import ResolvedFleet, resolve_fleet, with_deliveries
from reconciler.resolve.pins import find_floating
from reconciler.resolve.resolution import Resolution, ResolvedVariant
from reconciler.run.inputs import RunInputs, read_inputs
from reconciler.run.options import RunOptions

_CRD = ("apiextensions.k8s.io/v1", "CustomResourceDefinition")


class PlannedRun(Struct, frozen=True):
    """A plan, and the values of the stages before it."""

    inputs: RunInputs
    fleet: ResolvedFleet
    plan: Plan

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


def plan_run(options: RunOptions, forges: Forges | None = None, *, to_apply: bool = False) -> PlannedRun:
    """Read everything, and compute the plan. Writes nothing.

    Raises:
        RefusedError: The commit is not merged, and the plan is to be applied.
        UsageError: A name to upgrade is no package's.
    """
    with stage("read"):
        inputs = read_inputs(options, forges, writes=to_apply)
    if options.resolving.upgrade:
        # Variants follow their upstreams, unless they are held.
        variants = inputs.expand().variants
        for name in sorted(options.resolving.upgrade):
            if find_floating(variants, name):
                hint = (
                    f"It follows its upstream by itself; if it is held, run `reconciler lock follow {name}`."
                )
                raise UsageError(f"{name} is a variant, and no package that a cluster needs", hint=hint)
    return plan_fleet(inputs, options.shard, options.resolving)


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
            contents = fetch_contents(fleet.needs, inputs.mirrors, limits, later=losses)
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
                rendered = judge_packages(inventory, fleet, rendered, {**compared, **contents})
                if (broken := _broken(rendered)).keys() - defects.keys():
                    defects |= broken
                    continue
                plan = build_plan(inventory, fleet, rendered, shard, {**compared, **contents})
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
            return PlannedRun(inputs, fleet, noted)
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
