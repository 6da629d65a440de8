"""Set diff: the PackageVariants that should exist against the records of those that were applied."""

from collections.abc import Container, Iterable, Iterator, Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from reconciler.base.reasons import Reason
from reconciler.base.text import Text
from reconciler.expand.variants import Desired, DesiredVariant, spec_data
from reconciler.inventory.inventory import Inventory
from reconciler.names.ids import ObjectName, PackageKey
from reconciler.plan.deletion_evidence import DeletionEvidence, explain_absence, last_expansions
from reconciler.plan.deletion_guard import RefusedDeletions, guard_deletions, refused_variants
from reconciler.records.state import PackageVariantRecord
from reconciler.resolve.deliveries import cluster_of
from reconciler.resolve.ownership import SUSPENDED


class VariantChange(Struct, frozen=True):
    """Change of one PackageVariant, with the reason.

    `record` is what was applied, `variant` what is desired; `successor` is the desired variant
    that takes over the downstream of one that goes (D5: a rename deletes nothing).
    """

    key: ObjectName
    reason: Reason
    message: Text = ""
    variant: DesiredVariant | None = None
    record: PackageVariantRecord | None = None
    successor: ObjectName | None = None


class SetDiff(Struct, frozen=True):
    """Every desired and every recorded variant, exactly once, sorted by identity.

    A `delete` is a proposal: the record leaves only when its effect is observed downstream (D3).
    A `transfer` is a record with a downstream that another desired variant takes over. `refused` are
    the deletions that the guard turned into `keep`. `waiting` are all refused deletions, of this run and
    earlier ones, each with the number of variants at the time of its first refusal.
    """

    create: tuple[VariantChange, ...] = ()
    update: tuple[VariantChange, ...] = ()
    delete: tuple[VariantChange, ...] = ()
    transfer: tuple[VariantChange, ...] = ()
    keep: tuple[VariantChange, ...] = ()
    refused: tuple[RefusedDeletions, ...] = ()
    waiting: Mapping[ObjectName, int] = field(default_factory=dict)


def diff_variants(desired: Desired, inventory: Inventory) -> SetDiff:
    """Compare the desired variants with the records of what was applied.

    Total: every key of either side appears exactly once. Order-free. Ignorance never deletes:
    a record is kept if its owner is stalled, its manifest could not be read, or its target could
    not be looked for. A deletion that was proposed already needs no new consent.

    Source: porch packagevariantset_controller.go, ensurePackageVariants.
    Differs: Porch deletes while it compares, in map order, and needs neither evidence nor consent.
    """
    variants = {variant.key: variant for variant in desired.variants}
    compared = [
        _compare(variant, inventory.records.get(key), suspended=inventory.policy.suspend)
        for key, variant in sorted(variants.items())
    ]
    undesired = [inventory.records[key] for key in sorted(inventory.records.keys() - variants)]
    transfer, keep, deletions = _classify(undesired, desired, inventory)
    new = [c.record for c in deletions if c.record and not c.record.deletion_proposed]
    guarded = guard_deletions(new, desired, inventory)
    delete = [change for change in deletions if change.key not in guarded.messages]
    keep += [
        VariantChange(change.key, Reason.DELETION_GUARD, guarded.messages[change.key], record=change.record)
        for change in deletions
        if change.key in guarded.messages
    ]
    keep += [change for change in compared if change.reason in {Reason.PAUSED, Reason.UP_TO_DATE}]
    return SetDiff(
        create=tuple(change for change in compared if change.reason is Reason.NEW),
        update=tuple(change for change in compared if change.reason is Reason.CONTENT_CHANGED),
        delete=tuple(delete),
        transfer=tuple(transfer),
        keep=tuple(sorted(keep, key=lambda change: change.key)),
        refused=guarded.refused,
        waiting=dict(_waiting(guarded.refused, keep, variants, inventory)),
    )


def retained_variants(desired: Desired, inventory: Inventory) -> frozenset[ObjectName]:
    """Return the variants that are kept although no manifest asks for them any more.

    Variants that were generated for the dependencies of others, and packages of generated manifests, are
    left out: whether they stay follows from the resolution.
    """
    authored = without_generated(inventory)
    undesired = authored.records.keys() - {variant.key for variant in desired.variants}
    if not undesired:
        return frozenset()
    diff = diff_variants(desired, authored)
    return frozenset(undesired & {change.key for change in diff.keep})


def without_generated(inventory: Inventory) -> Inventory:
    """Return the inventory without the records of what was generated, for variants and for clusters."""
    records = {k: r for k, r in inventory.records.items() if not r.requested_by and not cluster_of(k)}
    return replace(inventory, records=records)


def _waiting(
    refused: Iterable[RefusedDeletions],
    keep: Iterable[VariantChange],
    desired: Container[ObjectName],
    inventory: Inventory,
) -> Iterator[tuple[ObjectName, int]]:
    """Yield the refused deletions; one that is kept for another reason meanwhile stays refused."""
    before = refused_variants(inventory)
    for change in keep:
        if change.key in before and change.key not in desired:
            yield change.key, before[change.key]
    for refusal in refused:
        yield from ((key, before.get(key, refusal.of)) for key in refusal.keys)


def _compare(
    variant: DesiredVariant, record: PackageVariantRecord | None, *, suspended: bool
) -> VariantChange:
    reason = Reason.UP_TO_DATE
    if suspended or variant.paused:
        reason = Reason.PAUSED
    elif record is None:
        reason = Reason.NEW
    elif record.spec != spec_data(variant):
        reason = Reason.CONTENT_CHANGED
    message = "" if reason is not Reason.PAUSED else SUSPENDED if suspended else "Paused by annotation"
    return VariantChange(variant.key, reason, message, variant, record)


def _classify(
    undesired: Iterable[PackageVariantRecord], desired: Desired, inventory: Inventory
) -> tuple[list[VariantChange], list[VariantChange], list[VariantChange]]:
    """Return the changes of undesired records: those taken over, kept and deleted."""
    if not (records := list(undesired)):
        return [], [], []
    evidence = DeletionEvidence(desired, inventory)
    successors = _successors(desired, inventory)
    retentions = {record.key: evidence.find_retention(record) for record in records}
    packages = {_package(record): r for record in records if (r := retentions[record.key])}
    removed = last_expansions(records, inventory)
    transfer, keep, delete = [], [], []
    for record in records:
        retention, successor = retentions[record.key], successors.get(_package(record))
        if retention is None and successor is None:
            # A kept record of the same package may be about to take it over.
            retention = packages.get(_package(record))
        if retention is not None:
            keep.append(VariantChange(record.key, retention.reason, retention.message, record=record))
        elif successor is not None:
            message = f"PackageVariant {successor} has the same downstream"
            transfer.append(
                VariantChange(record.key, Reason.OWNER_CHANGED, message, record=record, successor=successor)
            )
        else:
            message = explain_absence(record, desired, inventory, removed)
            delete.append(VariantChange(record.key, Reason.NOT_DESIRED, message, record=record))
    return transfer, keep, delete


def _package(record: PackageVariantRecord) -> PackageKey:
    return PackageKey(record.url, record.path)


def _successors(desired: Desired, inventory: Inventory) -> Mapping[PackageKey, ObjectName]:
    """Return the desired variant of each downstream package, the last one where several contest it."""
    successors: dict[PackageKey, ObjectName] = {}
    for variant in desired.variants:
        downstream = variant.spec.downstream
        name = (downstream and downstream.repo) or ""
        view = inventory.repositories.get(ObjectName(variant.key.namespace, name))
        if view is not None and downstream is not None:
            successors[PackageKey(view.url, view.full_path(downstream.package or ""))] = variant.key
    return successors
