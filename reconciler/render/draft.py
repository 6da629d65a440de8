"""Update a draft that people committed to: merge the changes of upstream and main, keep their edits."""

from collections.abc import Callable, Iterable, Iterator

from msgspec.structs import replace

from reconciler.inventory.inventory import Draft, Inventory
from reconciler.names.objects import Files
from reconciler.names.trailers import KEEPS, NO_ANSWERS, TAKES
from reconciler.policy import OnConflict
from reconciler.render.answers import (
    Classified,
    DraftContext,
    FoundConflict,
    asked_conflicts,
    classify_conflicts,
    current_value,
    find_document,
)
from reconciler.render.conflicts import conflict_policy, policy_sources, recorded_by_name
from reconciler.render.kptfile import strip_ownership
from reconciler.render.merging import (
    PackageInProgress,
    UpdateTrees,
    VariantInputs,
    merge_three_way,
    prepare_sides,
    update_local,
)
from reconciler.render.rendered import Blocked
from reconciler.render.update import Conflict, ConflictDecision, ConflictPolicy
from reconciler.render.update.conflicts import Place, describe_decision, find_rule
from reconciler.render.update.identifiers import add_identifiers
from reconciler.render.update.sides import Sides
from reconciler.resolve.resolution import has_main_moved

_ASK = ConflictPolicy()
_CHOSEN = (OnConflict.UPSTREAM, OnConflict.LOCAL)
_BOXES = {KEEPS: OnConflict.LOCAL, TAKES: OnConflict.UPSTREAM}


def update_draft(
    draft: Draft, inputs: VariantInputs, inventory: Inventory
) -> tuple[PackageInProgress, Classified] | Blocked:
    """Merge upstream and main into a draft that people committed to, and classify its conflicts.

    An open conflict stays open until a person or a policy answers it, whatever a later merge changes.
    """
    resolved = inputs.resolved
    files = inputs.contents[resolved.draft_local or draft.tree]
    policy = package_policy(inputs, files)
    main = _merge_main_with_upstream(inputs, policy)
    if (ticked := with_ticks(inputs, main, policy)).places:
        policy, main = ticked, _merge_main_with_upstream(inputs, ticked)
    if isinstance(main, Blocked):
        return main
    # Policies come first, so that the merges below start from the values that they choose now.
    files = _apply_changed_policies(main, inputs, files)
    files, chosen = _apply_upstream_choices(draft_context(inputs, files, policy), draft, inputs, files)
    merged = _merge_main(draft, inputs, files, policy)
    if isinstance(merged, Blocked):
        return merged
    updated = update_local(inputs, merged.files, draft.tree, resolved.draft_base, policy)
    if isinstance(updated, Blocked):
        return updated
    recorded = recorded_by_name(inventory.records.get(resolved.variant.key))
    context = replace(draft_context(inputs, updated.files, policy), recorded=recorded)
    new = (*chosen, *merged.conflicts, *updated.conflicts)
    conflicts, answers = classify_conflicts(main.conflicts, new, context)
    classified = tuple(sorted(_carried(conflicts, merged, context))), answers
    notes = merged.notes + updated.notes
    return PackageInProgress(updated.files, notes=notes, warnings=updated.warnings), classified


def _carried(
    conflicts: Iterable[Conflict], merged: PackageInProgress, context: DraftContext
) -> Iterator[Conflict]:
    """Yield open conflicts, those with main at the value that upstream's merge left in the draft.

    Our commit names what the draft has: another value would look like the answer of a person.
    """
    before, of_main = add_identifiers(merged.files), {conflict.place for conflict, _ in merged.conflicts}
    for conflict in conflicts:
        value = current_value(context.files, conflict)
        if conflict.place not in of_main or value == current_value(before, conflict):
            yield conflict
        elif value != conflict.upstream:
            yield context.named(replace(conflict, local=value))


def with_ticks(
    inputs: VariantInputs, merged: PackageInProgress | Blocked, policy: ConflictPolicy
) -> ConflictPolicy:
    """Return the policy with the answers of ticked boxes, while their conflicts have the values shown."""
    if isinstance(merged, Blocked) or not inputs.resolved.ticks:
        return policy
    context = draft_context(inputs, merged.files)
    chosen = {name: _BOXES[choice] for choice, name in inputs.resolved.ticks}
    names = {conflict.place: str(context.name(conflict)) for conflict, _ in merged.conflicts}
    return replace(policy, places={key: chosen[name] for key, name in names.items() if name in chosen})


def draft_context(inputs: VariantInputs, files: Files, policy: ConflictPolicy = _ASK) -> DraftContext:
    """Return the context that classifies the conflicts of a draft with these files."""
    resolved, contents = inputs.resolved, inputs.contents
    draft = resolved.draft
    return DraftContext(
        package=resolved.downstream.path,
        commit=resolved.pin.commit.oid,
        files=add_identifiers(files),
        upstream=add_identifiers(contents.get(resolved.pin.tree, {})),
        choose=_chooser(policy, files),
        written=contents.get(draft.written) if draft is not None and draft.written else None,
        answers=draft.answers if draft is not None else NO_ANSWERS,
    )


def package_policy(inputs: VariantInputs, files: Files) -> ConflictPolicy:
    """Return the conflict policy of a variant's package with these files."""
    variant = inputs.resolved.variant
    sources = policy_sources(variant, inputs.policy)
    return conflict_policy(files, variant.annotations, inputs.policy.on_conflict, sources)


def _chooser(policy: ConflictPolicy, files: Files) -> Callable[[Conflict], ConflictDecision | None]:
    def choose(conflict: Conflict) -> ConflictDecision | None:
        document = find_document(files, conflict)
        winner, rule = find_rule(policy, conflict.place, document.data if document is not None else None)
        return describe_decision(policy, winner, rule, conflict.path) if winner in _CHOSEN else None

    return choose


def _merge_main_with_upstream(inputs: VariantInputs, policy: ConflictPolicy) -> PackageInProgress | Blocked:
    """Merge upstream into main: its conflicts are those that were open when the draft was created."""
    resolved = inputs.resolved
    if resolved.local is None:
        return PackageInProgress({})
    return update_local(inputs, inputs.contents[resolved.local], resolved.local, resolved.base, policy)


def _apply_changed_policies(main: PackageInProgress, inputs: VariantInputs, files: Files) -> Files:
    """Return the draft with the values that policies choose now, unless a person changed or kept the value.

    Main is merged twice, with the choices in our commits and with the current ones. The difference between
    the results is merged into the draft, and a person's value wins.
    """
    resolved, contents = inputs.resolved, inputs.contents
    if not main.conflicts or resolved.local is None:
        return files
    context = draft_context(inputs, files)
    before = dict(_upstream_choices(main.conflicts, context, past=True))
    now = dict(_upstream_choices(main.conflicts, context, past=False))
    if before == now:
        return files
    old, new = (
        update_local(
            inputs,
            contents[resolved.local],
            resolved.local,
            resolved.base,
            ConflictPolicy(OnConflict.LOCAL, places=places),
        )
        for places in (before, now)
    )
    if isinstance(old, Blocked) or isinstance(new, Blocked):
        return files
    changed = merge_three_way(
        prepare_sides(old.files, new.files, files, None), ConflictPolicy(OnConflict.LOCAL)
    )
    return files if isinstance(changed, Blocked) else changed.files


def _upstream_choices(
    conflicts: Iterable[FoundConflict], context: DraftContext, *, past: bool
) -> Iterator[tuple[Place, OnConflict]]:
    """Yield the conflicts that upstream wins, by our last commit or by the current policies."""
    for conflict, decision in conflicts:
        name = context.name(conflict)
        now = decision.winner if decision is not None and not context.answers.is_kept(name) else ""
        if (context.answers.named.get(name) if past else now) == OnConflict.UPSTREAM:
            yield conflict.place, OnConflict.UPSTREAM


def _apply_upstream_choices(
    context: DraftContext, draft: Draft, inputs: VariantInputs, files: Files
) -> tuple[Files, tuple[FoundConflict, ...]]:
    """Return the draft with upstream's values of the open conflicts that a policy now gives to upstream.

    The merge that raised the conflicts is repeated; other differences of it keep local's values.
    """
    resolved, contents = inputs.resolved, inputs.contents
    if resolved.asked_from is None or resolved.asked_from not in contents:
        return files, ()
    chosen = {
        conflict.place: decision
        for conflict in asked_conflicts(context)
        if _is_upstream(decision := context.choose(conflict))
    }
    original = strip_ownership(contents[resolved.asked_from])
    upstream = strip_ownership(contents[resolved.pin.tree])
    if not chosen or isinstance(original, Blocked) or isinstance(upstream, Blocked):
        return files, ()
    rendered = inputs.sides.get(UpdateTrees(resolved.asked_from, resolved.pin.tree, draft.tree))
    policy = ConflictPolicy(OnConflict.LOCAL, places=dict.fromkeys(chosen, OnConflict.UPSTREAM))
    merged = merge_three_way(prepare_sides(original, upstream, files, rendered), policy)
    if isinstance(merged, Blocked):
        return files, ()
    conflicts = ((conflict, chosen.get(conflict.place, decision)) for conflict, decision in merged.conflicts)
    return merged.files, tuple(conflict for conflict in conflicts if _is_upstream(conflict[1]))


def _is_upstream(decision: ConflictDecision | None) -> bool:
    return decision is not None and decision.winner is OnConflict.UPSTREAM


def _merge_main(
    draft: Draft, inputs: VariantInputs, files: Files, policy: ConflictPolicy
) -> PackageInProgress | Blocked:
    resolved, contents = inputs.resolved, inputs.contents
    if not (has_main_moved(resolved) and draft.base_tree and resolved.local):
        return PackageInProgress(files)
    return merge_three_way(Sides(contents[draft.base_tree], contents[resolved.local], files), policy)
