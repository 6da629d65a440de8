"""A draft that people committed to: what is new on our side is brought into it, nothing of theirs goes."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from reconciler.inventory import Draft, Inventory
from reconciler.objects import Files
from reconciler.policy import OnConflict
from reconciler.render.answers import Found, Judged, Sides, asked_conflicts, judge_conflicts
from reconciler.render.baseline import Update, merge_sides
from reconciler.render.conflicts import conflict_policy, policy_sources, recorded_by_name
from reconciler.render.kptfile import strip_ownership
from reconciler.render.merging import Making, Merging, three_way, update_local
from reconciler.render.rendered import Blocked
from reconciler.render.update import Conflict, ConflictPolicy, Decision
from reconciler.render.update.identifiers import add_identifiers
from reconciler.render.update.lookup import find_document
from reconciler.render.update.model import Place
from reconciler.render.update.settle import describe_decision, rule_at
from reconciler.resolve.resolution import has_main_moved
from reconciler.trailers import NO_ANSWERS

_ASK = ConflictPolicy()
_CHOSEN = (OnConflict.UPSTREAM, OnConflict.LOCAL)


def bring_into_draft(draft: Draft, making: Making, inventory: Inventory) -> tuple[Merging, Judged] | Blocked:
    """Bring upstream and what main gained into a draft that people committed to, and judge its conflicts.

    What waited for an answer in it waits on until a person answers, or a policy does: no later merge
    may bury a question.
    """
    resolved, files = making.resolved, making.contents[draft.tree]
    policy = package_policy(making, files)
    main = _main_conflicts(making, policy)
    if isinstance(main, Blocked):
        return main
    files = _with_policies(main, making, files)
    files, taken = _with_upstream(draft_sides(making, files, policy), draft, making, files)
    merged = _with_main(draft, making, files, policy)
    if isinstance(merged, Blocked):
        return merged
    updated = update_local(making, merged.files, draft.tree, resolved.draft_base, policy)
    if isinstance(updated, Blocked):
        return updated
    recorded = recorded_by_name(inventory.records.get(resolved.variant.key))
    sides = replace(draft_sides(making, updated.files, policy), recorded=recorded)
    judged = judge_conflicts(main.found, (*taken, *merged.found, *updated.found), sides)
    return Merging(updated.files, notes=merged.notes + updated.notes), judged


def draft_sides(making: Making, files: Files, policy: ConflictPolicy = _ASK) -> Sides:
    """Return what the conflicts of a variant's draft are judged by, its files as they will be."""
    resolved, contents = making.resolved, making.contents
    draft = resolved.draft
    return Sides(
        package=resolved.downstream.path,
        commit=resolved.pin.commit.oid,
        files=add_identifiers(files),
        upstream=add_identifiers(contents.get(resolved.pin.tree, {})),
        choose=_chooser(policy, files),
        written=contents.get(draft.written) if draft is not None and draft.written else None,
        answers=draft.answers if draft is not None else NO_ANSWERS,
    )


def package_policy(making: Making, files: Files) -> ConflictPolicy:
    """Return who wins the conflicts of a variant's package with these files."""
    variant = making.resolved.variant
    sources = policy_sources(variant, making.policy)
    return conflict_policy(files, variant.annotations, making.policy.on_conflict, sources)


def _chooser(policy: ConflictPolicy, files: Files) -> Callable[[Conflict], Decision | None]:
    def choose(conflict: Conflict) -> Decision | None:
        document = find_document(files, conflict)
        winner, rule = rule_at(policy, conflict.place, document.data if document is not None else None)
        return describe_decision(policy, winner, rule, conflict.path) if winner in _CHOSEN else None

    return choose


def _main_conflicts(making: Making, policy: ConflictPolicy) -> Merging | Blocked:
    """Return what both upstream and main changed: what was asked when the draft was made."""
    resolved = making.resolved
    if resolved.local is None:
        return Merging({})
    return update_local(making, making.contents[resolved.local], resolved.local, resolved.base, policy)


def _with_policies(main: Merging, making: Making, files: Files) -> Files:
    """Return the draft with what policies choose by now, where no person changed or kept the value.

    Two packages are made of main, by the choices as our commits tell them and as they are now; what
    differs between these two is brought into the draft, and a person's own value wins.
    """
    resolved, contents = making.resolved, making.contents
    if not main.found or resolved.local is None:
        return files
    sides = draft_sides(making, files)
    before, now = dict(_choices(main.found, sides, past=True)), dict(_choices(main.found, sides, past=False))
    if before == now:
        return files
    made = []
    for places in (before, now):
        policy = ConflictPolicy(OnConflict.LOCAL, places=places)
        made.append(update_local(making, contents[resolved.local], resolved.local, resolved.base, policy))
    old, new = made
    if isinstance(old, Blocked) or isinstance(new, Blocked):
        return files
    apart = merge_sides(old.files, new.files, files, None)
    changed = three_way(*apart, ConflictPolicy(OnConflict.LOCAL))
    return files if isinstance(changed, Blocked) else changed.files


def _choices(found: tuple[Found, ...], sides: Sides, *, past: bool) -> Iterator[tuple[Place, OnConflict]]:
    """Yield the conflicts that upstream wins, by our last commit about it or by the policies of now."""
    for conflict, choice in found:
        name = sides.name(conflict)
        is_kept = sides.answers.is_kept(name)
        now = choice.winner if choice is not None and not is_kept else ""
        chosen = sides.answers.asked.get(name) if past else now
        if chosen == OnConflict.UPSTREAM:
            yield conflict.place, OnConflict.UPSTREAM


def _with_upstream(
    sides: Sides, draft: Draft, making: Making, files: Files
) -> tuple[Files, tuple[Found, ...]]:
    """Return the draft with upstream's value of what we asked in it, where a policy gives it to upstream.

    Merged again is what the questions came with: whatever else both sides have since is local's.
    """
    resolved, contents = making.resolved, making.contents
    if resolved.asked_from is None or resolved.asked_from not in contents:
        return files, ()
    given = {
        each.place: decision
        for each in asked_conflicts(sides)
        if _is_upstreams(decision := sides.choose(each))
    }
    pair = strip_ownership(contents[resolved.asked_from]), strip_ownership(contents[resolved.pin.tree])
    original, upstream = pair
    if not given or isinstance(original, Blocked) or isinstance(upstream, Blocked):
        return files, ()
    places = dict.fromkeys(given, OnConflict.UPSTREAM)
    rendered = making.sides.get(Update(resolved.asked_from, resolved.pin.tree, draft.tree))
    apart = merge_sides(original, upstream, files, rendered)
    merged = three_way(*apart, ConflictPolicy(OnConflict.LOCAL, places=places))
    if isinstance(merged, Blocked):
        return files, ()
    found = ((conflict, given.get(conflict.place, choice)) for conflict, choice in merged.found)
    return merged.files, tuple((conflict, choice) for conflict, choice in found if _is_upstreams(choice))


def _is_upstreams(decision: Decision | None) -> bool:
    """Whether a policy gives a conflict to upstream."""
    return decision is not None and decision.winner is OnConflict.UPSTREAM


def _with_main(draft: Draft, making: Making, files: Files, policy: ConflictPolicy) -> Merging | Blocked:
    """Return the draft with what main gained since the draft left it."""
    resolved, contents = making.resolved, making.contents
    if not (has_main_moved(resolved) and draft.base_tree and resolved.local):
        return Merging(files)
    return three_way(contents[draft.base_tree], contents[resolved.local], files, policy)
