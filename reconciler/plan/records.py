"""The files of the state branch as they are once the plan is applied (D3)."""

from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import TypeGuard

from msgspec.structs import replace

from reconciler.api.porch import GROUP
from reconciler.base.defects import DefectError, guard
from reconciler.base.reasons import Reason
from reconciler.expand import DesiredVariant
from reconciler.expand.variants import stable_uid
from reconciler.inventory.inventory import RepositoryView
from reconciler.inventory.standing import Position
from reconciler.names.ids import ObjectKey, ObjectName, Oid, PackageKey, recorded_address
from reconciler.names.refs import is_within
from reconciler.plan.changes import Change, Op, WriteRemoval
from reconciler.plan.context import PlanContext, PlanTarget, find_place, is_given_up
from reconciler.records.state import (
    IMAGES_PATH,
    REFUSED_DELETIONS,
    UPSTREAMS_DIRECTORY,
    VARIANTS_DIRECTORY,
    ImagesLock,
    PackageVariantRecord,
    RecordedDownstream,
    RefusedDeletionsRecord,
    RefusedMerge,
    RefusedPackage,
    RefusedVariant,
    RolloutRecord,
    SetRecord,
    UpstreamLock,
    lock_bytes,
    lock_path,
    record_bytes,
    record_path,
)
from reconciler.render.conflicts import answer_record, conflict_record
from reconciler.render.rendered import Blocked, Package
from reconciler.render.withdrawn import context_keys
from reconciler.resolve.deliveries import RETRY
from reconciler.resolve.ownership import find_owner
from reconciler.resolve.pins import lock_pin, upstream_data
from reconciler.resolve.resolution import ResolvedVariant


def plan_records(
    context: PlanContext, changes: Iterable[Change], refused: Mapping[PackageKey, int] = MappingProxyType({})
) -> dict[str, bytes]:
    """Return every record after the plan but locks: new and changed ones, and old ones that must stay.

    A record leaves only when nothing that its variant owns is left; it stays while its package
    cannot be looked at. `refused` are the packages with a deletion that waits for consent.
    """
    records = dict(context.inventory.records)
    for change in changes:
        resolved = context.resolved.get(change.variant) if change.variant else None
        if is_decided(resolved, change):
            records[resolved.variant.key] = _record(resolved, change, context)
        elif resolved is not None and change.reason is Reason.HELD_BACK and change.conflicts:
            # What is not in a commit yet is asked all the same: an edit may answer it.
            old, conflicts = records.get(resolved.variant.key), tuple(map(conflict_record, change.conflicts))
            if old is not None:
                records[old.key] = replace(old, conflicts=conflicts)
    for change in changes:
        old = records.get(change.variant) if change.variant else None
        if old is not None and (old.url, old.path) == change.package:
            is_proposed, is_gone = _deletion(change)
            old = replace(old, inputs="", output_tree="") if is_proposed or is_gone else old
            is_known = is_proposed or change.reason is Reason.AWAITING_WAVE
            records[old.key] = replace(old, deletion_proposed=is_proposed) if is_known else old
    by_package = {change.package: change for change in changes}
    for key, last in records.items():
        record = _with_place(last, context)
        known_as = _known_as(record.downstream, key, context) if context.inventory.former else ""
        former = tuple(_former_downstreams(record, context, by_package))
        is_same = (known_as, former) == (record.known_as, record.former)
        records[key] = record if is_same else replace(record, known_as=known_as, former=former)
    # The record is our finalizer: it leaves after its package did, never before (D3).
    for key in leaving_records(context, changes):
        records.pop(key, None)
    recorded: list[PackageVariantRecord | SetRecord] = [*records.values(), *_sets(context, records.values())]
    files = {record_path(r): record_bytes(r) for r in recorded}
    files |= {record_path(rollout): record_bytes(rollout) for rollout in _rollouts(context, records)}
    files |= _refused_deletions(context.diff.waiting, refused)
    return dict(sorted(files.items()))


def plan_locks(context: PlanContext, changes: Collection[Change]) -> dict[str, bytes]:
    """Return every pin after the plan, and the digests of images: a pin leaves with its variant's record."""
    locks: dict[ObjectName, UpstreamLock | None] = dict(context.inventory.locks)
    recorded = set(context.inventory.records)
    for change in changes:
        resolved = context.resolved.get(change.variant) if change.variant else None
        if is_decided(resolved, change):
            recorded.add(resolved.variant.key)
            locks[resolved.variant.key] = _lock(resolved, context)
    recorded.difference_update(leaving_records(context, changes))
    files = {
        lock_path(lock): lock_bytes(lock)
        for lock in locks.values()
        if lock and (lock.key in recorded or (lock.held and lock.key in context.variants))
    }
    if context.inventory.images:
        files[IMAGES_PATH] = lock_bytes(ImagesLock().pinned(context.inventory.images))
    return files


def is_decided(resolved: ResolvedVariant | None, change: Change) -> TypeGuard[ResolvedVariant]:
    """Tell whether a change decides what is recorded of its variant anew."""
    is_decided = change.op is not Op.BLOCK and change.reason.facts.decided
    return is_decided and resolved is not None and resolved.downstream == change.package


def _with_place(record: PackageVariantRecord, context: PlanContext) -> PackageVariantRecord:
    """Return a record with its whole place, unless it has that or its Repository is not there any more."""
    inventory = context.inventory
    view = inventory.repositories.get(ObjectName(record.namespace, record.repository))
    is_there = view is not None and view.url == record.url and is_within(record.path, view.directory)
    if record.remote or view is None or not is_there:
        return record
    git, file = view.manifest.spec.git, view.source.location.path
    return replace(
        record,
        branch=view.branch,
        cluster=view.cluster if view.cluster != view.key.name else "",
        remote=recorded_address(git.repo if git else "", view.remote),
        registration="" if is_within(file, inventory.policy.snapshot.path) else file,
    )


def _former_downstreams(
    record: PackageVariantRecord, context: PlanContext, changes: Mapping[PackageKey, Change]
) -> Iterator[RecordedDownstream]:
    """Yield the places where a variant was before and something of it is left after the plan (D36)."""
    old = context.inventory.records.get(record.key)
    if old is None:
        return
    for place in old.downstreams:
        is_at = (place.url, place.path) == (record.url, record.path)
        is_present = is_at and place.branch in ("", record.branch)
        if not is_present and _has_left(place, record.key, context, changes):
            target = find_place(place, context)
            change = changes[target.key] if target is not None else None
            is_proposed = change is not None and _deletion(change)[0]
            waits = change is not None and change.reason is Reason.AWAITING_WAVE
            yield replace(
                place,
                deletion_proposed=is_proposed or (place.deletion_proposed and not waits),
                known_as=_known_as(place, record.key, context),
            )


def _has_left(
    place: RecordedDownstream, owner: ObjectName, context: PlanContext, changes: Mapping[PackageKey, Change]
) -> bool:
    """Tell whether a place has something of a variant after the plan; what cannot be read may have it."""
    if PackageKey(place.url, place.path) in context.inventory.hidden or _is_unread(place, owner, context):
        return True
    target = find_place(place, context)
    return target is not None and owner in _owners_after(target, changes[target.key], context)


def _known_as(place: RecordedDownstream, owner: ObjectName, context: PlanContext) -> str:
    former = _former_view(place, owner, context)
    return former.key.name if former is not None else ""


def _former_view(place: RecordedDownstream, owner: ObjectName, context: PlanContext) -> RepositoryView | None:
    """Return the view of a former place: of several Repositories that were there, that of the owner's."""
    views = {
        view.former.packages[place.path]: view
        for view in reversed(context.inventory.views_of(place.url))
        if view.former is not None and place.path in view.former.packages
        if view.directory == place.directory and place.branch in ("", view.branch)
    }
    return views.get(owner, next(iter(views.values()), None))


def _is_unread(place: RecordedDownstream, owner: ObjectName, context: PlanContext) -> bool:
    """Tell whether nothing is known of a place, unless people gave up what is there."""
    former = _former_view(place, owner, context)
    if former is not None:
        return not former.is_planned and not is_given_up(former, context.inventory)
    return not any(view.is_planned for view in context.inventory.views_of(place.url))


def applied_commit(
    context: PlanContext, changes: Iterable[Change], refused: Mapping[PackageKey, int]
) -> Oid | None:
    """Return the control commit that counts as applied after the plan, None where there never was a variant.

    While every change is suspended nothing is. Where the default branch was moved, or its history is cut off,
    what is left of the commit that was applied last still needs consent or evidence: that commit stays until
    nothing is left.
    """
    control, applied = context.inventory.control, context.inventory.control.standing.applied
    has_variants = context.variants or context.inventory.records or context.inventory.set_records
    if context.inventory.policy.suspend or not (applied or has_variants):
        return applied
    if applied and control.standing.position in (Position.REWRITTEN, Position.UNKNOWN):
        staying = context.gone.keys() - set(leaving_records(context, changes))
        return applied if staying or refused else control.commit.oid
    return control.commit.oid


def _refused_deletions(
    variants: Mapping[ObjectName, int], packages: Mapping[PackageKey, int]
) -> dict[str, bytes]:
    """Return the file of the deletions that were refused; none where nothing waits for consent."""
    if not variants and not packages:
        return {}
    record = RefusedDeletionsRecord(
        variants=tuple(RefusedVariant(**key._asdict(), of=of) for key, of in sorted(variants.items())),
        packages=tuple(RefusedPackage(**key._asdict(), of=of) for key, of in sorted(packages.items())),
    )
    return {REFUSED_DELETIONS: record_bytes(record)}


def record_owners(context: PlanContext, changes: Iterable[Change]) -> dict[str, PackageKey]:
    """Return the package that each record, new, changed or leaving, waits for."""
    owners: dict[str, PackageKey] = {}
    for package, variants in context.downstreams.items():
        for variant in variants:
            owners.update(_owned_files(variant.key, package))
    for record in context.inventory.records.values():
        owners.update(_owned_files(record.key, PackageKey(record.url, record.path)))
    for change in changes:
        resolved = context.resolved.get(change.variant) if change.variant else None
        if resolved is not None and resolved.downstream == change.package:
            owners.update(_owned_files(resolved.variant.key, change.package))
    return dict(sorted(owners.items()))


def _owned_files(variant: ObjectName, package: PackageKey) -> Iterator[tuple[str, PackageKey]]:
    """Yield the files that a variant may have, whether it has them or not."""
    for directory in (VARIANTS_DIRECTORY, UPSTREAMS_DIRECTORY):
        yield f"{directory}/{variant.namespace}/{variant.name}.json", package


def _lock(resolved: ResolvedVariant, context: PlanContext) -> UpstreamLock | None:
    """Return the pin that a variant's package is made from; one that a person holds stays theirs."""
    key, upstream = resolved.variant.key, upstream_data(resolved.variant)
    old = context.inventory.locks.get(key)
    held = old is not None and old.held and old.answers(upstream)
    return old if held else lock_pin(key, upstream, resolved.pin)


def _deletion(change: Change) -> tuple[bool, bool]:
    """Return whether this plan or an earlier one proposes to delete a package, and whether it is gone.

    That we close its draft, or that people merge its removal, rejects nothing if it is wanted again; nor does
    it decline the deletion that we take the proposal back until a successor is published.
    """
    is_gone = change.op is Op.DELETE or (change.op is Op.CLOSE and change.tree is None)
    is_proposed = change.reason is Reason.DELETION_PROPOSED
    return is_proposed or any(isinstance(write, WriteRemoval) for write in change.writes), is_gone


def _record(resolved: ResolvedVariant, change: Change, context: PlanContext) -> PackageVariantRecord:
    variant, old = resolved.variant, context.inventory.records.get(resolved.variant.key)
    fresh = context.rendered.variants[variant.key].fresh
    is_published = isinstance(fresh, Package) and fresh.tree == resolved.local
    header = context.targets[resolved.downstream].package.main_header
    keys = context_keys(variant.spec.package_context)
    lock = header.upstream_lock if header else None
    has_equal = is_published and lock is not None and lock.commit != resolved.pin.commit.oid
    return PackageVariantRecord(
        namespace=variant.key.namespace,
        name=variant.key.name,
        uid=variant.uid,
        manifest=variant.source.location.path,
        set_name=variant.set_key.name if variant.set_key else "",
        target=str(variant.target or ""),
        target_index=variant.target_index,
        target_cluster=variant.target_cluster,
        requested_by=variant.requested_by,
        url=resolved.downstream.url,
        path=resolved.downstream.path,
        repository=resolved.view.name,
        deletion_policy=variant.spec.deletion_policy or "delete",
        spec=variant.spec.model_dump(exclude_none=True),
        upstream_commit=resolved.pin.commit.oid,
        upstream_tree=resolved.pin.tree,
        inputs=resolved.inputs,
        local_tree=resolved.local or "",
        output_tree=_output(resolved, change, context) or "",
        # Of a package that was rejected in a group only this tells which one.
        group=change.group or (old.group if old and change.reason is Reason.REJECTED else ""),
        retry=variant.annotations.get(RETRY, ""),
        injection=fresh.injection if isinstance(fresh, Package) else None,
        objects=dict(resolved.objects),
        facts=dict(resolved.facts),
        conflicts=tuple(map(conflict_record, change.conflicts)),
        answers=tuple(map(answer_record, change.answers)),
        asked_from=_asked_from(resolved, change, context),
        # What the cluster would refuse is judged anew by every run.
        unready=(unready := tuple(str(text) for text in change.unready if text not in change.refusals)),
        failed=change.failed and bool(unready),
        subpackages=fresh.subpackages if isinstance(fresh, Package) else (),
        warnings=context.rendered.variants[variant.key].warnings,
        overwritten=context.rendered.variants[variant.key].overwritten,
        unedited=_unedited(resolved, change, context),
        moved_from=old.moved_from if old is not None else _moved_from(variant, context),
        # What main may have of an earlier wish is still to be taken out.
        context=keys if old is None or is_published else {**old.context, **keys},
        refused=_refused(resolved, change, context),
        equal_commit=lock.commit if lock is not None and has_equal else "",
    )


def _moved_from(variant: DesiredVariant, context: PlanContext) -> str:
    """Return the variant that this one was before it was renamed and moved at once, "" for any other."""
    former = (key for key, moved in context.moves.items() if moved == variant.key)
    return str(next(former, ""))


def _unedited(resolved: ResolvedVariant, change: Change, context: PlanContext) -> tuple[str, ...] | None:
    """Return the trees of a package that have nothing of people: those on main, and what is made of these."""
    old, target = context.inventory.records.get(resolved.variant.key), context.targets[resolved.downstream]
    if old is not None and old.unedited is None and resolved.local is not None:
        return None  # recorded before this was: it stays unknown
    trees = set(old.unedited or ()) if old is not None else set[str]()
    output = _output(resolved, change, context)
    is_new = resolved.local is None or resolved.local in trees
    is_edited = target.draft is not None and target.draft.append_only
    if is_edited:
        return tuple(sorted(trees))  # an edit of the draft changes nothing about what was made without one
    made = {output} if output and is_new else set()
    recorded = old.downstreams if old is not None else ()
    if any(_is_unread(place, resolved.variant.key, context) for place in recorded):
        return tuple(sorted(made | trees))  # another shard reads that place
    places = (find_place(place, context) for place in recorded)
    there = {resolved.local, *(place.package.main_tree for place in places if place is not None)}
    return tuple(sorted(made | (trees & there)))


def _refused(resolved: ResolvedVariant, change: Change, context: PlanContext) -> RefusedMerge | None:
    """Return that the forge refused to merge the draft, while it has that head and is not asked again."""
    old, draft = context.inventory.records.get(resolved.variant.key), resolved.draft
    refused = old.refused if old is not None else None
    is_kept = refused and draft is not None and draft.tip.oid == refused.head
    return refused if is_kept and change.approve is None and not change.writes else None


def _asked_from(resolved: ResolvedVariant, change: Change, context: PlanContext) -> str:
    """Return the upstream tree before the one that the open conflicts came with, the oldest of several."""
    if not change.conflicts:
        return ""
    old = context.inventory.records.get(resolved.variant.key)
    base = resolved.draft_base or resolved.base
    if old is not None and old.conflicts:
        return old.asked_from
    return base.tree if base is not None and change.written is not None else ""


def _output(resolved: ResolvedVariant, change: Change, context: PlanContext) -> Oid | None:
    """Return the tree that we propose: written now, or before and still up to date."""
    if change.written is not None:
        return change.written.tree
    fresh = context.rendered.variants[resolved.variant.key].fresh
    if isinstance(fresh, Blocked):
        return None
    draft = resolved.draft
    if draft is None or not draft.append_only or fresh.tree in (draft.written, draft.tree, resolved.local):
        return fresh.tree
    return draft.written


def leaving_records(context: PlanContext, changes: Iterable[Change]) -> Iterator[ObjectName]:
    """Yield the records of variants that are gone and own nothing once the plan is applied."""
    gone = sorted((*context.diff.delete, *context.diff.transfer), key=lambda c: c.key)
    by_package = {change.package: change for change in changes} if gone else {}
    owning: set[ObjectName] = set()
    for target in context.targets.values() if gone else ():
        owning.update(_owners_after(target, by_package[target.key], context))
    hidden = context.inventory.hidden
    for change in gone:
        record = change.record
        if record is None or PackageKey(record.url, record.path) in hidden:
            continue
        if change.key not in owning and not any(
            _is_unread(place, change.key, context) for place in record.downstreams
        ):
            yield change.key


def _owners_after(target: PlanTarget, change: Change, context: PlanContext) -> Iterator[ObjectName]:
    """Yield the variants that own the package on main or in a draft after the change."""
    if target.main_owner is not None:
        yield target.main_owner
    moved = {write.ref for write in change.writes}
    for draft in target.drafts:
        if draft.ref not in moved:
            owner = find_owner(draft.header, target.key, context.inventory)
            if owner is not None:
                yield owner
    if change.written is not None and change.op is not Op.ORPHAN and change.variant:
        yield change.variant


def _sets(context: PlanContext, variants: Iterable[PackageVariantRecord]) -> Iterator[SetRecord]:
    """Yield a record for every set: as it is now, or as it was while anything of it is left."""
    inventory = context.inventory
    if inventory.policy.suspend:
        yield from inventory.set_records.values()
        return
    now = {pvs.key: pvs for pvs in inventory.sets}
    remaining = {ObjectName(r.namespace, r.set_name) for r in variants if r.set_name}
    for key in sorted({*inventory.set_records, *context.desired.targets}):
        old, targets = inventory.set_records.get(key), context.desired.targets.get(key)
        if targets is not None and key in now:
            pvs = now[key]
            with suppress(DefectError), guard(f"record of PackageVariantSet {key}"):
                uid = pvs.manifest.metadata.uid or stable_uid(inventory.policy.instance, *key)
                old = SetRecord(
                    namespace=key.namespace,
                    name=key.name,
                    uid=uid,
                    manifest=pvs.source.location.path,
                    targets=targets,
                )
        elif old is not None and key not in remaining and key not in now and _is_known_absent(old, context):
            continue
        if old is not None:
            yield old


def _rollouts(context: PlanContext, records: Container[ObjectName]) -> Iterator[RolloutRecord]:
    """Yield the record of every rollout: as it is now, or as it was while its set cannot be understood.

    Targets that left go with their records.
    """
    now = {}
    for rollout in context.resolution.rollouts:
        record = rollout.record
        members = tuple(m for m in record.members if m.key in context.variants or m.key in records)
        if len(members) < len(record.members):
            used = {member.before.values for member in members if member.before is not None}
            values = {digest: of for digest, of in (record.values or {}).items() if digest in used}
            record = replace(record, members=members, values=values)
        now[rollout.key] = record
    for key, old in context.inventory.rollouts.items():
        recorded = context.inventory.set_records.get(key.owner)
        if key not in now and recorded is not None and key.owner not in context.desired.targets:
            now |= {} if _is_known_absent(recorded, context) else {key: old}
    yield from now.values()


def _is_known_absent(record: SetRecord, context: PlanContext) -> bool:
    control = context.inventory.control
    stalled = ObjectKey(GROUP, "PackageVariantSet", *record.key) in context.stalled
    return control.readable and record.manifest not in control.broken and not stalled
