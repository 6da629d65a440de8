"""Render packages: merge, Kptfile, package context, pipeline, injection, functions; in the order of Porch."""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import TypeVar

from msgspec.structs import replace

from reconciler.api.kptfile import KPTFILE
from reconciler.base.defects import DefectError, guard
from reconciler.base.reasons import Reason
from reconciler.base.text import some
from reconciler.functions.pipeline import (
    RunPipelines,
    broken_files,
    declared_steps,
    run_pipeline,
    vanished_resources,
)
from reconciler.functions.resources import SPLIT_FILES
from reconciler.functions.step import PipelineResult
from reconciler.inventory.inventory import Inventory
from reconciler.inventory.snapshot import Snapshot
from reconciler.names.filled import PackageSamples
from reconciler.names.ids import ObjectName, Oid
from reconciler.names.objects import Files, tree_id
from reconciler.names.problems import Problem, defect_problem
from reconciler.names.refs import short_branch
from reconciler.policy import Policy
from reconciler.records.state import PackageVariantRecord
from reconciler.render.answers import Classified, classify_fresh
from reconciler.render.charts import render_charts
from reconciler.render.conflicts import recorded_answers, recorded_conflicts
from reconciler.render.draft import draft_context, package_policy, update_draft, with_ticks
from reconciler.render.injection import ensure_context, inject_config
from reconciler.render.kptfile import (
    add_functions,
    other_functions,
    shared_inventories,
    stamp_kptfile,
    strip_ownership,
    unmet_gates,
)
from reconciler.render.merging import (
    Contents,
    EditedPackage,
    PackageInProgress,
    Refusals,
    RenderedSides,
    UpdateTrees,
    VariantInputs,
    base_not_found,
    clone_upstream,
    former_values,
    overwritten_edits,
    overwritten_injections,
    render_sides,
    replaced_values,
    update_local,
    updates_of,
)
from reconciler.render.rendered import (
    Blocked,
    FunctionFault,
    Package,
    Rendered,
    RenderedVariant,
    find_bad_names,
    find_excess,
    invalid_package,
)
from reconciler.render.sharing import find_classes, variant_values
from reconciler.render.subpackages import compose_upstreams, list_subpackages
from reconciler.render.update.identifiers import add_identifiers, with_files_of
from reconciler.render.update.sides import is_equal
from reconciler.render.withdrawn import function_owners, take_back
from reconciler.resolve.ownership import location_text, owner_text, package_name
from reconciler.resolve.resolution import BeyondRun, Pin, Release, Resolution, ResolvedVariant, variant_trees

Key = TypeVar("Key")
_MOST_NAMES = 5
_RENAME = "Rename one of the files, in the upstream package or where the package is"
_CORRECT = "Correct the file, or remove it if its resources are to go."
_OTHER_FILE = "Have the function write another file, or remove it from the pipeline"


def render_packages(
    resolution: Resolution,
    contents: Contents,
    inventory: Inventory,
    run: RunPipelines | None = None,
    show_progress: Callable[[Sequence[ResolvedVariant]], Iterable[ResolvedVariant]] = iter,
) -> Rendered:
    """Render the package of every resolved variant, and the orphaned packages without our annotations.

    `run` runs the functions of all packages; by default only the builtin ones. `show_progress` yields the
    variants, and may show how many are done.

    Pure, order-free, isolated: a blocked package blocks no other. A tree that is missing in `contents` could
    not be read; only the packages that need it are blocked.
    """
    run = run or _builtins(inventory.policy)
    composed = compose_upstreams(resolution.variants, contents, inventory)
    charts = render_charts(
        composed.variants, composed.contents, inventory, run, lambda f, r: _write_own_fields(f, r, inventory)
    )
    blocked = {**charts.blocked, **composed.blocked}
    times = {r.variant.key: input_time(r, inventory) for r in resolution.variants}
    rendered = {key: RenderedVariant(key, why, time=times[key]) for key, why in blocked.items()}
    variants = tuple(resolved for resolved in charts.variants if resolved.variant.key not in blocked)
    made = charts.contents.keys() - composed.contents.keys()
    variants, contents = take_back(variants, charts.contents, inventory, run)
    for shared in find_classes(variants, contents, inventory, made):
        splits: list[tuple[str, str]] = []
        watched = _with_splits(run, splits)
        like = {shared.sample.variant.key: shared.members[0][0].variant.key}
        sample = _render_variants((shared.sample,), shared.contents, shared.inventory, watched, like=like)
        for resolved, package in shared.fill(sample[shared.sample.variant.key].fresh, splits):
            key = resolved.variant.key
            rendered[key] = RenderedVariant(key, package, time=times[key])
    shared_keys = frozenset(rendered)
    others = [resolved for resolved in variants if resolved.variant.key not in shared_keys]

    def tracked(_: Sequence[ResolvedVariant]) -> Iterator[ResolvedVariant]:
        return (r for r in show_progress(variants) if r.variant.key not in shared_keys)

    rendered |= _held_once(others, _render_variants(others, contents, inventory, run, tracked))
    SPLIT_FILES.clear()
    return Rendered(
        {resolved.variant.key: rendered[resolved.variant.key] for resolved in resolution.variants},
        {release.package: render_release(release, contents) for release in resolution.releases},
    )


def _held_once(
    variants: Iterable[ResolvedVariant], rendered: Mapping[ObjectName, RenderedVariant]
) -> Iterator[tuple[ObjectName, RenderedVariant]]:
    """Yield packages, those that turn out to differ in their values alone with the files of one."""
    samples, most = PackageSamples(), sys.maxsize
    for resolved in variants:
        outcome = rendered[resolved.variant.key]
        package, upstream = outcome.fresh, resolved.pin.tree
        if isinstance(package, Package) and package.files:
            values = tuple(variant_values(resolved))
            files = samples.find(upstream, package.tree, values, most, most)
            if files is None:
                samples.add(upstream, package.files, values)
            else:
                outcome = replace(outcome, fresh=replace(package, files=files))
        yield resolved.variant.key, outcome


def _with_splits(run: RunPipelines, splits: list[tuple[str, str]]) -> RunPipelines:
    """Return `run` so that `splits` gets the texts of which functions used a part."""

    def watched(packages: Sequence[Files]) -> Sequence[PipelineResult]:
        results = run(packages)
        splits.extend(pair for result in results for step in result.steps for pair in step.splits)
        return results

    return watched


def _render_variants(
    variants: Sequence[ResolvedVariant],
    contents: Contents,
    inventory: Inventory,
    run: RunPipelines,
    show_progress: Callable[[Sequence[ResolvedVariant]], Iterable[ResolvedVariant]] = iter,
    *,
    like: Mapping[ObjectName, ObjectName] = MappingProxyType({}),
) -> dict[ObjectName, RenderedVariant]:
    """Render each package by itself. Defects name the variant that a sample is `like`."""
    resolved_by_key = {resolved.variant.key: resolved for resolved in variants}

    def restore(key: tuple[ObjectName, bool], files: Files, result: PipelineResult) -> Files | Blocked:
        resolved = resolved_by_key[key[0]]
        there = contents[resolved.draft.tree] if key[1] and resolved.draft else _published(resolved, contents)
        return _restore(
            files, result, there, VariantInputs(resolved, contents, {}, inventory.policy), inventory
        )

    def former(key: tuple[ObjectName, bool]) -> Iterator[Files]:
        resolved = resolved_by_key[key[0]]
        # A person may have broken a file of a draft that main does not have yet.
        base = resolved.base.tree if resolved.base else None
        trees = (resolved.local, base, resolved.pin.tree if key[1] else None)
        yield from (contents[tree] for tree in trees if tree is not None and tree in contents)

    untouched = _untouched(variants, contents, inventory, run)
    anew = {r.variant.key: replace(r, local=None, base=None) for r in variants if r.variant.key in untouched}
    sides = render_sides([anew.get(r.variant.key, r) for r in variants], contents, run)
    rendered = [
        _guarded(anew.get(resolved.variant.key, resolved), contents, inventory, sides, like)
        for resolved in show_progress(variants)
    ]
    fresh = {(package.variant, False): package.fresh for package in rendered}
    merged = {(package.variant, True): package.merged for package in rendered if package.merged is not None}
    # One batch: the functions of many packages wait side by side.
    done = run_functions({**fresh, **merged}, run, restore, former)
    done = {key: _with_subpackages(p, resolved_by_key[key[0]], contents) for key, p in done.items()}
    for resolved in variants:
        package = done[resolved.variant.key, False]
        if isinstance(package, Package):
            notes = (*package.notes, *_adoption_notes(resolved, package.files, contents, inventory))
            done[resolved.variant.key, False] = replace(package, notes=notes)
    defects: dict[ObjectName, Problem] = {}
    for key, begun in (fresh | merged).items():
        package, resolved = done[key], resolved_by_key[key[0]]
        variant = resolved.variant
        try:
            with guard(f"PackageVariant {like.get(variant.key, variant.key)}"):
                edited = _edited(resolved, begun, package, contents, sides, is_draft=key[1])
                written_over = overwritten_edits(edited, run) if edited is not None else []
                written_over += _over_injected(resolved, begun, contents, inventory, is_draft=key[1])
                before = _lost_before(resolved, inventory) if key[1] else ()
                lost = tuple(dict.fromkeys((*before, *written_over)))
                if isinstance(package, Package):
                    is_delivered = key[1] or (key[0], True) not in merged
                    files = package.files if is_delivered and not package.failed else {}
                    warnings = (*lost, *former_values(resolved, contents, sides, files, run))
                    if warnings:
                        warnings = (*package.warnings, *warnings)
                        done[key] = replace(package, warnings=warnings, overwritten=lost)
        except DefectError as error:
            done[key] = Blocked(Reason.DEFECT, str(error))
            defects[variant.key] = defect_problem(error, variant.source.location, variant.owner)
    return {
        p.variant: replace(
            p,
            fresh=done[p.variant, False],
            merged=done.get((p.variant, True)),
            defect=p.defect or defects.get(p.variant),
        )
        for p in rendered
    }


def _over_injected(
    resolved: ResolvedVariant,
    injected: Package | Blocked,
    contents: Contents,
    inventory: Inventory,
    *,
    is_draft: bool,
) -> Iterator[str]:
    """Yield the edits of people, on main or in a draft, that an injected object writes over."""
    draft, record = resolved.draft if is_draft else None, inventory.records.get(resolved.variant.key)
    unedited = (record.unedited if record is not None else None) or ()
    ours = (tree for tree in resolved.former if tree in unedited)
    local, written = (draft.tree, draft.written) if draft else (resolved.local, next(ours, None))
    if not resolved.variant.spec.injectors or not isinstance(injected, Package):
        return
    if local is not None and written is not None and contents.keys() >= {local, written}:
        yield from overwritten_injections(contents[written], contents[local], injected.files)


def _lost_before(resolved: ResolvedVariant, inventory: Inventory) -> tuple[str, ...]:
    """Return the edits that the run before wrote over in a draft, while all of its inputs are the same.

    The draft itself has them no more, and its answered conflicts have it rendered by every run.
    """
    record, draft = inventory.records.get(resolved.variant.key), resolved.draft
    if record is None or draft is None or record.inputs != resolved.inputs:
        return ()
    is_there = record.output_tree in (draft.tree, draft.written)
    return record.overwritten if is_there and record.local_tree == (resolved.local or "") else ()


def _adoption_notes(
    resolved: ResolvedVariant, files: Files, contents: Contents, inventory: Inventory
) -> Iterator[str]:
    """Yield what adoption does to values of people, and the functions of other variants that stay."""
    if resolved.local is None or resolved.local not in contents:
        return
    owners = function_owners(contents[resolved.local], resolved, inventory, contents)
    if owners.former is not None:
        return
    base = contents.get(resolved.base.tree, {}) if resolved.base else {}
    if names := replaced_values(contents[resolved.local], files, base):
        yield f"Its manifest replaces {some(names, _MOST_NAMES)}"
    if names := other_functions(files, owners):
        yield f"Functions of other variants stay in its Kptfile: {some(names, _MOST_NAMES)}"


def _edited(
    resolved: ResolvedVariant,
    merged: Package | Blocked,
    done: Package | Blocked,
    contents: Contents,
    sides: RenderedSides,
    *,
    is_draft: bool,
) -> EditedPackage | None:
    """Return the sides of a package that its functions changed after an update, None for any other."""
    draft = resolved.draft if is_draft else None
    base, local = (resolved.draft_base, draft.tree) if draft else (resolved.base, resolved.local)
    if base is None or local is None or not isinstance(merged, Package) or not isinstance(done, Package):
        return None
    if merged.tree == done.tree or not contents.keys() >= {local, base.tree}:
        return None
    rendered = sides.get(UpdateTrees(base.tree, resolved.pin.tree, local))
    if rendered is None and declared_steps(contents[local]):
        return None
    # Without a pipeline until now what was made is the upstream as it is.
    made = rendered.original if rendered is not None else contents[base.tree]
    trees = ((draft.written,) if draft and draft.written else ()) + resolved.former
    former = tuple(contents[tree] for tree in trees if tree in contents)
    edited = EditedPackage(made, contents[local], merged.files, done.files, contents[base.tree], former)
    if draft is None or draft.written is None:
        return edited
    written = contents.get(draft.written, {})
    return edited._replace(written=written, origins=_origins(resolved, base, contents, sides))


def _origins(
    resolved: ResolvedVariant, base: Pin, contents: Contents, sides: RenderedSides
) -> tuple[Files, ...]:
    """Return what main's functions make of both upstreams, and upstream's files that main has as made."""
    if resolved.base is None or resolved.local is None or resolved.local not in contents:
        return (contents[base.tree],)
    rendered = sides.get(UpdateTrees(resolved.base.tree, resolved.pin.tree, resolved.local))
    made = rendered[:2] if rendered is not None else (add_identifiers(contents[resolved.base.tree]),)
    main = contents[resolved.local]
    upstream = {
        path: file
        for path, file in contents[base.tree].items()
        if path not in main or is_equal(main[path], made[0].get(path))
    }
    return (*made, upstream)


def _untouched(
    variants: Iterable[ResolvedVariant], contents: Contents, inventory: Inventory, run: RunPipelines
) -> set[ObjectName]:
    """Return the variants that have on main, byte by byte, what a new package of the old upstream is.

    Where the record has it, no rendering needs to tell. Such a package has no edits: its update is a new
    package (D32), and there is nothing to merge.
    """
    untouched: set[ObjectName] = set()
    made: dict[ObjectName, ResolvedVariant] = {}
    for resolved in variants:
        base, local, draft = resolved.base, resolved.local, resolved.draft
        if base is None or local is None or resolved.settled is not None or resolved.has_charts:
            continue
        trees = {base.tree, resolved.pin.tree, local}
        if base.tree == resolved.pin.tree or not contents.keys() >= trees:
            continue
        is_edited = draft is not None and draft.append_only
        if is_edited or any(list_subpackages(contents[tree], {}) for tree in trees):
            continue
        if resolved.is_unedited:
            untouched.add(resolved.variant.key)
        else:
            made[resolved.variant.key] = replace(resolved, pin=base, local=None, base=None)
    begun = {
        key: _render_fresh(VariantInputs(resolved, contents, {}, inventory.policy), inventory)
        for key, resolved in made.items()
    }
    updated = {resolved.variant.key: resolved for resolved in variants}

    def restore(key: ObjectName, files: Files, result: PipelineResult) -> Files | Blocked:
        inputs = VariantInputs(made[key], contents, {}, inventory.policy)
        return _restore(files, result, _published(updated[key], contents), inputs, inventory)

    return untouched.union(
        key
        for key, package in run_functions(begun, run, restore).items()
        if isinstance(package, Package) and package.tree == updated[key].local
    )


def _with_subpackages(
    package: Package | Blocked, resolved: ResolvedVariant, contents: Contents
) -> Package | Blocked:
    if isinstance(package, Blocked) or package.is_recorded:
        return package
    main = contents.get(resolved.local, {}) if resolved.local else {}
    subpackages = list_subpackages(package.files, main)
    return replace(package, subpackages=subpackages) if subpackages else package


def _builtins(policy: Policy) -> RunPipelines:
    return lambda packages: [
        run_pipeline(files, (), policy.functions, limits=policy.limits) for files in packages
    ]


def _guarded(
    resolved: ResolvedVariant,
    contents: Contents,
    inventory: Inventory,
    sides: RenderedSides,
    like: Mapping[ObjectName, ObjectName],
) -> RenderedVariant:
    """Render one variant's package up to its functions; a defect, as of a merge, blocks it alone."""
    variant = resolved.variant
    try:
        with guard(f"PackageVariant {like.get(variant.key, variant.key)}"):
            return render_variant(resolved, contents, inventory, sides)
    except DefectError as error:
        problem = defect_problem(error, variant.source.location, variant.owner)
        return RenderedVariant(variant.key, Blocked(Reason.DEFECT, str(error)), defect=problem)


def render_variant(
    resolved: ResolvedVariant, contents: Contents, inventory: Inventory, sides: RenderedSides
) -> RenderedVariant:
    """Render one variant's package up to its functions; an up-to-date package is taken from its record."""
    time = input_time(resolved, inventory)
    key = resolved.variant.key
    if resolved.settled is not None:
        return RenderedVariant(key, recorded_package(resolved.settled, inventory.records[key]), time=time)
    missing = [tree for _, tree in variant_trees(resolved) if tree not in contents]
    if missing:
        return RenderedVariant(key, _unreadable(missing, resolved, contents), time=time)
    late = (sides[update].postponed for update in updates_of(resolved) if update in sides)
    if why := next(filter(None, late), ""):
        return RenderedVariant(key, Blocked(Reason.FUNCTIONS_POSTPONED, why), time=time)
    inputs = VariantInputs(resolved, contents, sides, inventory.policy)
    fresh = _render_fresh(inputs, inventory)
    draft = resolved.draft
    if draft is None or not draft.append_only:
        return RenderedVariant(key, fresh, time=time)
    updated = update_draft(draft, inputs, inventory)
    merged = (
        updated
        if isinstance(updated, Blocked)
        else _mutate(*updated, inputs, inventory, before=contents[draft.tree], side="the draft")
    )
    return RenderedVariant(key, fresh, merged, time)


def render_release(release: Release, contents: Contents) -> Package | Blocked:
    """Return an orphaned package without our annotations."""
    if release.tree not in contents:
        return unreadable_package(release.tree, contents)
    files = strip_ownership(contents[release.tree])
    return files if isinstance(files, Blocked) else Package(tree_id(files), files)


def input_time(resolved: ResolvedVariant, inventory: Inventory) -> int:
    """Return the newest committer time of a variant's inputs, in seconds; never the clock (law 5)."""
    variant = resolved.variant
    # Only a variant with injectors reads the snapshot.
    injected = [cluster_snapshot(resolved, inventory).time] if variant.spec.injectors else []
    return max([*variant.times, variant.source.time, resolved.pin.commit.time, *injected])


def cluster_snapshot(resolved: ResolvedVariant, inventory: Inventory) -> Snapshot:
    """Return the snapshot of the cluster of a variant's downstream repository."""
    return inventory.snapshot.of(inventory.repositories[resolved.view].cluster)


def recorded_package(tree: Oid, record: PackageVariantRecord) -> Package:
    """Return an up-to-date package from its record."""
    return Package(
        tree,
        is_recorded=True,
        conflicts=recorded_conflicts(record),
        answers=recorded_answers(record),
        injection=record.injection,
        unready=record.unready,
        failed=record.failed,
        subpackages=record.subpackages,
        warnings=record.warnings,
        overwritten=record.overwritten,
    )


def _unreadable(missing: Sequence[Oid], resolved: ResolvedVariant, contents: Contents) -> Blocked:
    """Return the problem of a variant with missing trees: its merge base may be lost for good."""
    postponed = (_beyond_run(tree, contents) for tree in missing)
    if blocked := next(filter(None, postponed), None):
        return blocked
    bases = [base for base in (resolved.base, resolved.draft_base) if base is not None]
    lost = next((base for base in bases if base.tree in missing), None)
    if lost is None or resolved.pin.tree in missing:
        tree, draft = missing[0], resolved.draft
        where = "main" if tree == resolved.local else draft.ref if draft and tree == draft.tree else ""
        return unreadable_package(tree, contents, where or "the upstream package")
    why = _refusal(lost.tree, contents)
    return base_not_found(
        f"commit {lost.commit.oid} ({lost.ref}) that it was last made from cannot be read{why}"
    )


def unreadable_package(tree: Oid, contents: Contents, where: str = "main") -> Blocked:
    """Return the problem of a package with a missing tree, which is on main or elsewhere."""
    if postponed := _beyond_run(tree, contents):
        return postponed
    why = _refusal(tree, contents)
    step = f"Commit a correction to {short_branch(where)}, or raise the limit that is named" if why else ""
    return invalid_package(f"Tree {tree} of the package could not be read{why}", step)


def _beyond_run(tree: Oid, contents: Contents) -> Blocked | None:
    """Return a package that is left to the next run if a limit of this run kept its tree from being read."""
    why = contents.refused.get(tree) if isinstance(contents, Refusals) else None
    return Blocked(Reason.NOT_IN_THIS_RUN, str(why)) if isinstance(why, BeyondRun) else None


def _refusal(tree: Oid, contents: Contents) -> str:
    why = contents.refused.get(tree, "") if isinstance(contents, Refusals) else ""
    return f": {why}" if why else ""


def _render_fresh(inputs: VariantInputs, inventory: Inventory) -> Package | Blocked:
    resolved, contents = inputs.resolved, inputs.contents
    if resolved.local is None:
        merged = clone_upstream(resolved, contents)
    else:
        local = contents[resolved.local]
        policy = package_policy(inputs, local)
        merged = update_local(inputs, local, resolved.local, resolved.base, policy)
        if (ticked := with_ticks(inputs, merged, policy)).places:
            merged = update_local(inputs, local, resolved.local, resolved.base, ticked)
    if isinstance(merged, Blocked):
        return merged
    conflicts: Classified = (), ()
    if merged.conflicts:
        conflicts = classify_fresh(merged.conflicts, draft_context(inputs, merged.files))
    side = "main" if resolved.local else ""
    before, upstream = _published(resolved, contents), contents[resolved.pin.tree]
    merged = replace(merged, warnings=(*merged.warnings, *shared_inventories(merged.files, upstream)))
    return _mutate(merged, conflicts, inputs, inventory, before=before, side=side)


def _published(resolved: ResolvedVariant, contents: Contents) -> Files:
    """Return the package on main, of which odd names stay; none if it is not one of ours yet."""
    is_ours = resolved.local is not None and resolved.base is not None
    return contents.get(resolved.local, {}) if is_ours and resolved.local else {}


def _mutate(
    merged: PackageInProgress,
    classified: Classified,
    inputs: VariantInputs,
    inventory: Inventory,
    *,
    before: Files,
    side: str,
) -> Package | Blocked:
    """Apply the variant's own changes: Kptfile, package context, pipeline, injection. Idempotent.

    `before` are the files of main or of the draft, `side` is which of the two was merged into, if any.
    """
    resolved, contents = inputs.resolved, inputs.contents
    variant = resolved.variant
    files = _write_own_fields(merged.files, resolved, inventory)
    if not isinstance(files, Blocked):
        files = add_functions(
            files, variant.spec, function_owners(merged.files, resolved, inventory, contents)
        )
    if isinstance(files, Blocked):
        return files
    snapshot = cluster_snapshot(resolved, inventory)
    context = variant.spec.package_context
    injected = inject_config(files, variant.spec.injectors or (), snapshot, variant.key.namespace, context)
    if isinstance(injected, Blocked):
        return injected
    if bad := find_bad_names(injected.files, before, "The package context", _RENAME):
        maker = f"The merge of {resolved.pin.ref} into {side}" if side else resolved.pin.ref
        return find_bad_names(merged.files, before, maker, _RENAME) or bad
    if excess := find_excess(injected.files, inventory.policy.limits):
        return excess
    conflicts, answers = classified
    return Package(
        tree_id(injected.files),
        injected.files,
        conflicts=conflicts,
        answers=answers,
        notes=merged.notes,
        warnings=merged.warnings,
        context=True if context and (context.data or context.remove_keys) else None,
        injection=injected.failure,
        unready=unmet_gates(injected.files[KPTFILE].data) if KPTFILE in injected.files else (),
    )


def _write_own_fields(files: Files, resolved: ResolvedVariant, inventory: Inventory) -> Files | Blocked:
    """Write the fields that no merge and no function decides: name, upstream, owner, package context."""
    view, path = inventory.repositories[resolved.view], resolved.downstream.path
    package = package_name(view, path)
    stamped = stamp_kptfile(
        files,
        name=package.rpartition("/")[2],
        pin=resolved.pin,
        owner=owner_text(inventory.policy.instance, resolved.variant.key),
        location=location_text(view, path),
    )
    if isinstance(stamped, Blocked):
        return stamped
    spec = resolved.variant.spec.package_context
    return ensure_context(stamped, deployment=view.deployment, package=package, spec=spec)


def _restore(
    unrendered: Files, result: PipelineResult, before: Files, inputs: VariantInputs, inventory: Inventory
) -> Files | Blocked:
    """Return what functions made of a package, with the fields and the file names that none decides.

    `before` are the files of main or of the draft.
    """
    resolved = inputs.resolved
    files = _write_own_fields(with_files_of(result.files, unrendered, before), resolved, inventory)
    if not isinstance(files, Blocked):
        # A function may change its own entry, and what the next update renders is read from there.
        owners = function_owners(unrendered, resolved, inventory, inputs.contents)
        files = add_functions(files, resolved.variant.spec, owners)
    if isinstance(files, Blocked):
        return files
    if (bad := find_bad_names(files, before, "Its pipeline", _OTHER_FILE)) is None:
        return find_excess(files, inventory.policy.limits) or files
    paths = set(unrendered)
    for run in result.steps:
        paths |= {*run.files}
        if named := find_bad_names(paths, before, str(run.step), _OTHER_FILE):
            return named
    return bad


def run_functions(
    packages: Mapping[Key, Package | Blocked],
    run: RunPipelines,
    restore: Callable[[Key, Files, PipelineResult], Files | Blocked] = lambda _, _files, result: result.files,
    former: Callable[[Key], Iterable[Files]] = lambda _: (),
) -> dict[Key, Package | Blocked]:
    """Run the functions of packages in one batch.

    `restore` gets the files before and the result, and writes again what no function decides. If a function
    fails, or a file is broken that has resources in `former` versions of the package, the package stays as it
    was before its functions: people can look at it, and it is not ready. The functions of packages with open
    conflicts and of recorded packages do not run.
    """
    waiting = {
        key: package
        for key, package in packages.items()
        if isinstance(package, Package) and not package.conflicts and not package.is_recorded
    }
    results = run([package.files for package in waiting.values()])
    done = zip(waiting.items(), results, strict=True)
    rendered = {
        key: _broken(package, result, former(key)) or _apply_result(package, result, partial(restore, key))
        for (key, package), result in done
    }
    return {**packages, **rendered}


def _broken(package: Package, result: PipelineResult, former: Iterable[Files]) -> Package | None:
    """Return a package that is not ready as a file is broken that had resources before, None if none is."""
    if result.error:
        return None
    if result.steps:
        unseen = dict(result.unseen)
        lost = sorted({path for files in former if unseen for path in vanished_resources(unseen, files)})
        causes = [f"they do not see {path}, which had resources before: {unseen[path]}" for path in lost]
        failure = f"Functions failed: {'; '.join(causes)}"
    else:
        broken = broken_files(package.files, former).items()
        causes = [f"{path}, which had resources before, is broken: {why}" for path, why in broken]
        failure = "; ".join(causes)
    if not causes:
        return None
    failure = _one_line(failure)
    unready = (failure, *package.unready)
    return replace(package, unready=unready, failed=True, faults=(FunctionFault("", failure, _CORRECT),))


def _apply_result(
    package: Package, result: PipelineResult, restore: Callable[[Files, PipelineResult], Files | Blocked]
) -> Package | Blocked:
    if result.refusal is not None:
        message = _one_line(result.error)
        hint = "Remove the function from the pipeline, or have it select other resources than the Kptfile."
        is_names = result.refusal is Reason.INVALID_PACKAGE
        return invalid_package(message, _OTHER_FILE) if is_names else Blocked(result.refusal, message, hint)
    if result.is_postponed:
        return Blocked(Reason.FUNCTIONS_POSTPONED, result.error)
    if result.error:
        kind = "cannot run" if result.unrunnable else "failed"
        failure = f"Functions {kind}: {_one_line(result.error)}"
        faults = [
            FunctionFault(f.function, f"{f.function} cannot run: {f.reason}", f.hint)
            for f in result.unrunnable
        ]
        step = result.failed
        if not faults:
            index = step.index if step and not step.package else -1
            faults = [FunctionFault(step.function if step else "", failure, step_index=index)]
        return replace(package, unready=(failure, *package.unready), failed=True, faults=tuple(faults))
    package = replace(package, warnings=(*package.warnings, *_warnings(result)))
    if result.files is package.files or dict(result.files) == dict(package.files):
        return package
    files = restore(package.files, result)
    if isinstance(files, Blocked):
        return files
    unready = unmet_gates(files[KPTFILE].data) if KPTFILE in files else package.unready
    return replace(package, tree=tree_id(files), files=files, unready=unready)


def _warnings(result: PipelineResult) -> Iterator[str]:
    """Yield the warnings of functions, each with its step and file, and about what none of them sees."""
    yield from (_one_line(f"Functions do not see {path}: {why}") for path, why in result.unseen)
    for run in result.steps:
        for function_result in run.results:
            if function_result.severity == "warning":
                path = str((function_result.file or {}).get("path") or "")
                yield _one_line(f"{run.step}: {function_result.message}{f' ({path})' if path else ''}")


def _one_line(text: str) -> str:
    return "; ".join(line.strip() for line in text.splitlines() if line.strip())
