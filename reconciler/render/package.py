"""The order of the steps that make one package, as seed and Porch have it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from glob import escape

from reconciler.api.kptfile import KPTFILE
from reconciler.functions.pipeline import RunPipelines, run_pipeline
from reconciler.ids import Oid
from reconciler.inventory import Draft, Inventory, RepositoryView
from reconciler.objects import Files, tree_id
from reconciler.policy import FunctionPolicy, OnConflict, Strategy
from reconciler.reasons import Reason
from reconciler.render.adoption import find_nearest_base
from reconciler.render.baseline import RenderedSides, Update, merge_sides, render_sides
from reconciler.render.conflicts import conflict_policy, recorded_conflicts
from reconciler.render.context import ensure_context
from reconciler.render.functions import run_functions
from reconciler.render.injection import inject_config
from reconciler.render.kptfile import stamp_kptfile, strip_ownership
from reconciler.render.pipeline import add_functions
from reconciler.render.readiness import unmet_gates
from reconciler.render.rendered import Blocked, Package, Rendered, RenderedVariant
from reconciler.render.update import Conflict, ConflictPolicy, UpdateRefused, UpstreamRef, update_package
from reconciler.render.update.identifiers import add_identifiers
from reconciler.render.update.ignore import ignored_paths
from reconciler.render.update.settle import policy_at
from reconciler.resolve.needs import has_main_moved, variant_trees
from reconciler.resolve.ownership import location_text, owner_text, package_name
from reconciler.resolve.resolution import Pin, Release, Resolution, ResolvedVariant
from reconciler.snapshot import Snapshot
from reconciler.state import PackageVariantRecord

Contents = Mapping[Oid, Files]
"""The package trees that were fetched, by the id of the tree."""


@dataclass(frozen=True, slots=True)
class _Draught:
    """A package on its way: its files, and what a reviewer must hear of how they came about."""

    files: Files
    conflicts: tuple[Conflict, ...] = ()
    notes: tuple[str, ...] = ()


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
    contexts = {each.variant.key: _context_step(each, inventory) for each in resolution.variants}
    done = run_functions(
        {**fresh, **merged},
        run,
        lambda key, files: contexts[key[0]](files),
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
    return lambda packages: [run_pipeline(files, (), policy, hidden=ignored_paths) for files in packages]


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
        return RenderedVariant(key, _unread(missing, resolved), time=time)
    local = contents[resolved.local] if resolved.local is not None else None
    making = _Making(resolved, contents, sides, inventory.policy.on_conflict)
    fresh = _make(making, inventory, local)
    draft = resolved.draft
    if draft is None or not draft.touched:
        return RenderedVariant(key, fresh, time=time)
    return RenderedVariant(key, fresh, _into_draft(draft, making, inventory), time)


def render_release(release: Release, contents: Contents) -> Package | Blocked:
    """Return a package as it stands, without our annotations."""
    if release.tree not in contents:
        return unread(release.tree)
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
        injection=record.injection,
        unready=record.unready,
    )


def _unread(missing: Sequence[Oid], resolved: ResolvedVariant) -> Blocked:
    """Return why a variant's package cannot be made: what it was made from may be gone for good."""
    bases = [base for base in (resolved.base, resolved.draft_base) if base is not None]
    lost = next((base for base in bases if base.tree in missing), None)
    if lost is None or resolved.pin.tree in missing:
        return unread(missing[0])
    return _base_not_found(f"commit {lost.commit.oid} ({lost.ref}) that it was last made from cannot be read")


def _base_not_found(why: str) -> Blocked:
    hint = (
        "Register the repository that has the commit again, or push the commit to it. If it is gone for good,"
        " write the commit of the upstream that the content comes from into upstreamLock of the Kptfile."
    )
    return Blocked(Reason.BASE_NOT_FOUND, f"There is no base to merge from: {why}", hint)


def unread(tree: Oid) -> Blocked:
    """Return why a package cannot be made without a tree."""
    return Blocked(Reason.INVALID_PACKAGE, f"Tree {tree} of the package could not be read")


@dataclass(frozen=True, slots=True)
class _Making:
    """What one variant's package is made from; `fallback` decides conflicts where nothing else does."""

    resolved: ResolvedVariant
    contents: Contents
    sides: RenderedSides
    fallback: OnConflict


def _make(making: _Making, inventory: Inventory, local: Files | None) -> Package | Blocked:
    resolved = making.resolved
    if local is None:
        start = _clone(resolved, making.contents)
    else:
        start = _update(making, local, resolved.local, resolved.base)
    if isinstance(start, Blocked):
        return start
    return _mutate(start, resolved, inventory)


def _clone(resolved: ResolvedVariant, contents: Contents) -> _Draught | Blocked:
    files = strip_ownership(contents[resolved.pin.tree])
    return files if isinstance(files, Blocked) else _Draught(add_identifiers(files))


def _update(making: _Making, local: Files, tree: Oid | None, base: Pin | None) -> _Draught | Blocked:
    """Bring the pinned upstream into `local`, which is made from the package at `tree`."""
    resolved, contents = making.resolved, making.contents
    pin = resolved.pin
    if base is None and resolved.lost_base:
        return _base_not_found(resolved.lost_base)
    if base is None:
        return _adopt(making, local)
    if base.tree == pin.tree:
        return _Draught(local)
    original, upstream = strip_ownership(contents[base.tree]), strip_ownership(contents[pin.tree])
    if isinstance(original, Blocked):
        return original
    if isinstance(upstream, Blocked):
        return upstream
    policy = conflict_policy(local, resolved.variant.annotations, making.fallback)
    rendered = making.sides.get(Update(base.tree, pin.tree, tree)) if tree is not None else None
    sides = merge_sides(original, upstream, local, rendered)
    return _three_way(*sides, policy, new_upstream=_reference(pin))


def _adopt(making: _Making, local: Files) -> _Draught | Blocked:
    """Merge upstream into a package without upstreamLock: nothing of it is lost, new files arrive.

    The lock that is written next says that the package holds the pinned revision, so all that
    this revision adds must be there.
    """
    resolved, contents = making.resolved, making.contents
    nearest = find_nearest_base(resolved.candidates, contents, local)
    upstream = strip_ownership(contents[resolved.pin.tree])
    original = nearest.files if nearest else {}
    if KPTFILE in original:
        stripped = strip_ownership(original)
        if isinstance(stripped, Blocked):
            return stripped
        original = stripped
    if isinstance(upstream, Blocked):
        return upstream
    policy = conflict_policy(local, resolved.variant.annotations, making.fallback)
    merged = _three_way(
        *merge_sides(original, upstream, local, None),
        policy,
        new_upstream=_reference(resolved.pin),
        strategy=Strategy.RESOURCE_MERGE,
    )
    if isinstance(merged, Blocked):
        return merged
    told = (
        f"compared with {nearest.pin.ref}, the nearest published revision"
        if nearest
        else "nothing to compare"
    )
    return replace(merged, notes=(f"There was no upstreamLock: {told}", *merged.notes))


def _three_way(
    original: Files,
    upstream: Files,
    local: Files,
    policy: ConflictPolicy,
    *,
    new_upstream: UpstreamRef | None = None,
    strategy: Strategy | None = None,
) -> _Draught | Blocked:
    try:
        updated = update_package(
            original,
            upstream,
            local,
            strategy=strategy,
            on_conflict=policy,
            new_upstream=new_upstream,
        )
    except UpdateRefused as refused:
        return Blocked(Reason.MERGE_CONFLICT, refused.message, conflicts=refused.conflicts)
    return _Draught(updated.files, updated.conflicts, updated.notes)


def _into_draft(draft: Draft, making: _Making, inventory: Inventory) -> Package | Blocked:
    """Bring upstream, mutations and what main gained into a draft that people committed to.

    What waited for an answer in it waits on until a person edits the draft, or the policy answers:
    no later merge may bury a question.
    """
    resolved, contents = making.resolved, making.contents
    policy = conflict_policy(contents[draft.tree], resolved.variant.annotations, making.fallback)
    asked = _unanswered(draft, policy, inventory.records.get(resolved.variant.key))
    begun = _answer(_Draught(contents[draft.tree], asked), policy, making, draft.tree)
    files, waiting = begun.files, begun.conflicts
    start: _Draught | Blocked = begun
    if has_main_moved(resolved) and draft.base_tree and resolved.local:
        merged = _three_way(contents[draft.base_tree], contents[resolved.local], files, policy)
        start = (
            merged if isinstance(merged, Blocked) else replace(merged, conflicts=waiting + merged.conflicts)
        )
    if isinstance(start, Blocked):
        return start
    updated = _update(making, start.files, draft.tree, resolved.draft_base)
    if isinstance(updated, Blocked):
        return updated
    places = {(c.path, c.resource, c.field): c for c in (*start.conflicts, *updated.conflicts)}
    both = _Draught(updated.files, tuple(places.values()), start.notes + updated.notes)
    return _mutate(both, resolved, inventory)


def _unanswered(
    draft: Draft, policy: ConflictPolicy, record: PackageVariantRecord | None
) -> tuple[Conflict, ...]:
    if draft.edited or record is None or record.output_tree != draft.tree:
        return ()
    waiting = recorded_conflicts(record)
    return tuple(c for c in waiting if policy_at(policy, c.field, policy.default) is not OnConflict.LOCAL)


def _answer(start: _Draught, policy: ConflictPolicy, making: _Making, tree: Oid) -> _Draught:
    """Take upstream's value of the conflicts that a policy gives to it by now, and nothing else of it.

    Merged again is what they came with: whatever else both sides have since is local's.
    """
    resolved, contents = making.resolved, making.contents
    settled = {c.field for c in start.conflicts if _is_upstreams(c, policy)}
    if not settled or resolved.asked_from is None:
        return start
    sides = strip_ownership(contents[resolved.asked_from]), strip_ownership(contents[resolved.pin.tree])
    original, upstream = sides
    if isinstance(original, Blocked) or isinstance(upstream, Blocked):
        return start
    only = ConflictPolicy(OnConflict.LOCAL, {escape(name): OnConflict.UPSTREAM for name in settled})
    rendered = making.sides.get(Update(resolved.asked_from, resolved.pin.tree, tree))
    original, upstream, local = merge_sides(original, upstream, start.files, rendered)
    merged = _three_way(original, upstream, local, only)
    if isinstance(merged, Blocked):
        return start
    left = tuple(c for c in start.conflicts if not _is_upstreams(c, policy))
    return replace(start, files=merged.files, conflicts=left)


def _is_upstreams(conflict: Conflict, policy: ConflictPolicy) -> bool:
    return policy_at(policy, conflict.field, policy.default) is OnConflict.UPSTREAM


def _mutate(start: _Draught, resolved: ResolvedVariant, inventory: Inventory) -> Package | Blocked:
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
        conflicts=start.conflicts,
        notes=start.notes,
        context=True if context and (context.data or context.remove_keys) else None,
        injection=injected.failure,
        unready=unmet_gates(injected.files[KPTFILE].data) if KPTFILE in injected.files else (),
    )


def _steps(resolved: ResolvedVariant, inventory: Inventory) -> Iterator[Callable[[Files], Files | Blocked]]:
    variant, path = resolved.variant, resolved.downstream.path
    view: RepositoryView = inventory.repositories[resolved.view]
    owner = owner_text(inventory.policy.instance, variant.key)
    place = location_text(view, path)
    name = package_name(view, path).rpartition("/")[2]
    yield lambda files: stamp_kptfile(files, name=name, pin=resolved.pin, owner=owner, location=place)
    yield _context_step(resolved, inventory)
    yield lambda files: add_functions(files, variant.spec, variant.key.name)


def _context_step(resolved: ResolvedVariant, inventory: Inventory) -> Callable[[Files], Files | Blocked]:
    view: RepositoryView = inventory.repositories[resolved.view]
    package = package_name(view, resolved.downstream.path)
    spec = resolved.variant.spec.package_context
    return lambda files: ensure_context(files, deployment=view.deployment, package=package, spec=spec)


def _reference(pin: Pin) -> UpstreamRef:
    return UpstreamRef(pin.address, pin.package.path, pin.ref, pin.commit.oid)
