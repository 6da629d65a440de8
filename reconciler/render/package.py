"""The order of the steps that make one package, as seed and Porch have it."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from reconciler.api.kptfile import KPTFILE
from reconciler.functions.pipeline import RunPipelines, run_pipeline
from reconciler.ids import Oid
from reconciler.inventory import Inventory, RepositoryView
from reconciler.objects import Files, tree_id
from reconciler.policy import FunctionPolicy
from reconciler.reasons import Reason
from reconciler.render.answers import Judged, judge_fresh
from reconciler.render.baseline import RenderedSides, render_sides
from reconciler.render.conflicts import recorded_answers, recorded_conflicts
from reconciler.render.context import ensure_context
from reconciler.render.draft import bring_into_draft, draft_sides, package_policy
from reconciler.render.functions import run_functions
from reconciler.render.injection import inject_config
from reconciler.render.kptfile import stamp_kptfile, strip_ownership
from reconciler.render.merging import (
    Contents,
    Making,
    Merging,
    Refusals,
    base_not_found,
    clone_upstream,
    update_local,
)
from reconciler.render.pipeline import add_functions
from reconciler.render.readiness import unmet_gates
from reconciler.render.rendered import Blocked, Package, Rendered, RenderedVariant
from reconciler.resolve.ownership import location_text, owner_text, package_name
from reconciler.resolve.resolution import Release, Resolution, ResolvedVariant, variant_trees
from reconciler.snapshot import Snapshot
from reconciler.state import PackageVariantRecord


def render_packages(
    resolution: Resolution,
    contents: Contents,
    inventory: Inventory,
    run: RunPipelines | None = None,
) -> Rendered:
    """Make every resolved variant's package, and the released ones without our annotations.

    `run` runs the functions of all packages; without it, those alone that are built in.

    Pure, order-free, isolated: what blocks one package blocks no other. A tree that `contents`
    does not hold could not be read; only the packages that need it are blocked.
    """
    run = run or _builtins(inventory.policy.functions)
    sides = render_sides(resolution.variants, contents, run)
    made = [make_variant(resolved, contents, inventory, sides) for resolved in resolution.variants]
    fresh = {(each.variant, False): each.fresh for each in made}
    merged = {(each.variant, True): each.merged for each in made if each.merged is not None}
    restored = {each.variant.key: _restore_step(each, inventory) for each in resolution.variants}
    done = run_functions(
        {**fresh, **merged},
        run,
        lambda key, files: restored[key[0]](files),
    )
    return Rendered(
        {
            each.variant: replace(
                each, fresh=done[each.variant, False], merged=done.get((each.variant, True))
            )
            for each in made
        },
        {release.package: render_release(release, contents) for release in resolution.releases},
    )


def _builtins(policy: FunctionPolicy) -> RunPipelines:
    return lambda packages: [run_pipeline(files, (), policy) for files in packages]


def make_variant(
    resolved: ResolvedVariant, contents: Contents, inventory: Inventory, sides: RenderedSides
) -> RenderedVariant:
    """Make one variant's package but for its functions; nothing is made of what a record already tells."""
    time = input_time(resolved, inventory)
    key = resolved.variant.key
    if resolved.settled is not None:
        return RenderedVariant(key, known_package(resolved.settled, inventory.records[key]), time=time)
    missing = [tree for _, tree in variant_trees(resolved) if tree not in contents]
    if missing:
        return RenderedVariant(key, _unread(missing, resolved, contents), time=time)
    local = contents[resolved.local] if resolved.local is not None else None
    making = Making(resolved, contents, sides, inventory.policy)
    fresh = _make(making, inventory, local)
    draft = resolved.draft
    if draft is None or not draft.append_only:
        return RenderedVariant(key, fresh, time=time)
    start = bring_into_draft(draft, making, inventory)
    merged = start if isinstance(start, Blocked) else _mutate(*start, resolved, inventory)
    return RenderedVariant(key, fresh, merged, time)


def render_release(release: Release, contents: Contents) -> Package | Blocked:
    """Return a package as it stands, without our annotations."""
    if release.tree not in contents:
        return unread(release.tree, contents)
    files = strip_ownership(contents[release.tree])
    return files if isinstance(files, Blocked) else Package(tree_id(files), files)


def input_time(resolved: ResolvedVariant, inventory: Inventory) -> int:
    """Return the newest committer time of a variant's inputs, in seconds; never the clock (law 5)."""
    variant = resolved.variant
    injected = [cluster_snapshot(resolved, inventory).time] if variant.spec.injectors else []
    return max([*variant.times, variant.source.time, resolved.pin.commit.time, *injected])


def cluster_snapshot(resolved: ResolvedVariant, inventory: Inventory) -> Snapshot:
    """Return the snapshot of the cluster that a variant's downstream repository belongs to."""
    return inventory.snapshot.of(inventory.repositories[resolved.view].cluster)


def known_package(tree: Oid, record: PackageVariantRecord) -> Package:
    """Return what a record tells of a package that need not be made again."""
    return Package(
        tree,
        is_known=True,
        conflicts=recorded_conflicts(record),
        answers=recorded_answers(record),
        injection=record.injection,
        unready=record.unready,
    )


def _unread(missing: Sequence[Oid], resolved: ResolvedVariant, contents: Contents) -> Blocked:
    """Return why a variant's package cannot be made: what it was made from may be gone for good."""
    bases = [base for base in (resolved.base, resolved.draft_base) if base is not None]
    lost = next((base for base in bases if base.tree in missing), None)
    if lost is None or resolved.pin.tree in missing:
        return unread(missing[0], contents)
    why = _refusal(lost.tree, contents)
    return base_not_found(
        f"commit {lost.commit.oid} ({lost.ref}) that it was last made from cannot be read{why}"
    )


def unread(tree: Oid, contents: Contents) -> Blocked:
    """Return why a package cannot be made without a tree."""
    why = _refusal(tree, contents)
    return Blocked(Reason.INVALID_PACKAGE, f"Tree {tree} of the package could not be read{why}")


def _refusal(tree: Oid, contents: Contents) -> str:
    """Return why a tree is not among those that were fetched, to be added to a sentence."""
    why = contents.refused.get(tree, "") if isinstance(contents, Refusals) else ""
    return f": {why}" if why else ""


def _make(making: Making, inventory: Inventory, local: Files | None) -> Package | Blocked:
    resolved = making.resolved
    if local is None:
        start = clone_upstream(resolved, making.contents)
    else:
        start = update_local(making, local, resolved.local, resolved.base, package_policy(making, local))
    if isinstance(start, Blocked):
        return start
    judged = Judged()
    if start.found:
        judged = judge_fresh(start.found, draft_sides(making, start.files))
    return _mutate(start, judged, resolved, inventory)


def _mutate(
    start: Merging, judged: Judged, resolved: ResolvedVariant, inventory: Inventory
) -> Package | Blocked:
    """Apply the variant's own changes: Kptfile, package context, pipeline, injection. Idempotent."""
    files = start.files
    for step in _steps(resolved, inventory):
        changed = step(files)
        if isinstance(changed, Blocked):
            return changed
        files = changed
    variant = resolved.variant
    snapshot = cluster_snapshot(resolved, inventory)
    injected = inject_config(files, variant.spec.injectors or (), snapshot, variant.key.namespace)
    if isinstance(injected, Blocked):
        return injected
    context = resolved.variant.spec.package_context
    return Package(
        tree_id(injected.files),
        injected.files,
        conflicts=judged.waiting,
        answers=judged.answers,
        notes=start.notes,
        context=True if context and (context.data or context.remove_keys) else None,
        injection=injected.failure,
        unready=unmet_gates(injected.files[KPTFILE].data) if KPTFILE in injected.files else (),
    )


def _steps(resolved: ResolvedVariant, inventory: Inventory) -> Iterator[Callable[[Files], Files | Blocked]]:
    variant = resolved.variant
    yield _stamp_step(resolved, inventory)
    yield _context_step(resolved, inventory)
    yield lambda files: add_functions(files, variant.spec, variant.key.name)


def _restore_step(resolved: ResolvedVariant, inventory: Inventory) -> Callable[[Files], Files | Blocked]:
    """Return the step that writes again what no function decides: the package's name and context."""
    stamp, context = _stamp_step(resolved, inventory), _context_step(resolved, inventory)

    def restore(files: Files) -> Files | Blocked:
        stamped = stamp(files)
        return stamped if isinstance(stamped, Blocked) else context(stamped)

    return restore


def _stamp_step(resolved: ResolvedVariant, inventory: Inventory) -> Callable[[Files], Files | Blocked]:
    view: RepositoryView = inventory.repositories[resolved.view]
    owner = owner_text(inventory.policy.instance, resolved.variant.key)
    place = location_text(view, resolved.downstream.path)
    name = package_name(view, resolved.downstream.path).rpartition("/")[2]
    return lambda files: stamp_kptfile(files, name=name, pin=resolved.pin, owner=owner, location=place)


def _context_step(resolved: ResolvedVariant, inventory: Inventory) -> Callable[[Files], Files | Blocked]:
    view: RepositoryView = inventory.repositories[resolved.view]
    package = package_name(view, resolved.downstream.path)
    spec = resolved.variant.spec.package_context
    return lambda files: ensure_context(files, deployment=view.deployment, package=package, spec=spec)
