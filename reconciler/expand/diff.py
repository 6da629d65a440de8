"""The set diff: PackageVariants that should exist against the records of those that do."""

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from reconciler.expand.absence import explain_absence
from reconciler.expand.evidence import Evidence
from reconciler.expand.guard import Refused, guard_deletions, refused_variants
from reconciler.expand.variants import Desired, DesiredVariant
from reconciler.ids import ObjectName, PackageKey
from reconciler.inventory import Inventory
from reconciler.reasons import Reason
from reconciler.state import PackageVariantRecord


@dataclass(frozen=True, slots=True)
class VariantChange:
    """What happens to one PackageVariant, and why.

    `record` is what was applied, `variant` what is desired; `successor` is the desired variant
    that takes over the downstream of one that goes (D5: a rename deletes nothing).
    """

    key: ObjectName
    reason: Reason
    message: str = ""
    variant: DesiredVariant | None = None
    record: PackageVariantRecord | None = None
    successor: ObjectName | None = None


@dataclass(frozen=True, slots=True)
class SetDiff:
    """Every desired and every recorded variant, exactly once, sorted by identity.

    A `delete` is a wish: the record leaves only when its effect is observed downstream (D3).
    A `transfer` is a record whose downstream another desired variant takes over. `refused` are
    the deletions that the guard turned into `keep`. `waiting` are all that were refused, now or before,
    each with how many variants there were when it was first refused.
    """

    create: tuple[VariantChange, ...] = ()
    update: tuple[VariantChange, ...] = ()
    delete: tuple[VariantChange, ...] = ()
    transfer: tuple[VariantChange, ...] = ()
    keep: tuple[VariantChange, ...] = ()
    refused: tuple[Refused, ...] = ()
    waiting: Mapping[ObjectName, int] = field(default_factory=dict)


def diff_variants(desired: Desired, inventory: Inventory) -> SetDiff:
    """Compare what the manifests ask for with the records of what was applied.

    Total: every key of either side appears exactly once. Order-free. Ignorance never deletes:
    a record whose owner is stalled, whose manifest could not be read, or whose target could
    not be looked for is kept. A deletion that people were asked for already needs no new consent.

    Source: porch packagevariantset_controller.go, ensurePackageVariants.
    Differs: Porch deletes while it compares, in map order, and needs neither evidence nor consent.
    """
    wanted = {variant.key: variant for variant in desired.variants}
    compared = [
        _compare(variant, inventory.records.get(key), suspended=inventory.policy.suspend)
        for key, variant in sorted(wanted.items())
    ]
    gone = [record for key, record in sorted(inventory.records.items()) if key not in wanted]
    transfer, kept, doomed = _settle(gone, desired, inventory)
    new = [c.record for c in doomed if c.record and not c.record.deletion_proposed]
    guarded = guard_deletions(new, desired, inventory)
    delete = [change for change in doomed if change.key not in guarded.kept]
    kept += [
        VariantChange(change.key, Reason.DELETION_GUARD, guarded.kept[change.key], record=change.record)
        for change in doomed
        if change.key in guarded.kept
    ]
    kept += [change for change in compared if change.reason in {Reason.PAUSED, Reason.UP_TO_DATE}]
    return SetDiff(
        create=tuple(change for change in compared if change.reason is Reason.NEW),
        update=tuple(change for change in compared if change.reason is Reason.CONTENT_CHANGED),
        delete=tuple(delete),
        transfer=tuple(transfer),
        keep=tuple(sorted(kept, key=lambda change: change.key)),
        refused=guarded.refused,
        waiting=dict(_waiting(guarded.refused, kept, wanted, inventory)),
    )


def _waiting(
    refused: Iterable[Refused],
    kept: Iterable[VariantChange],
    wanted: Container[ObjectName],
    inventory: Inventory,
) -> Iterator[tuple[ObjectName, int]]:
    """Yield the refused deletions; one that is also kept for another reason is not forgotten meanwhile."""
    before = refused_variants(inventory)
    for change in kept:
        if change.key in before and change.key not in wanted:
            yield change.key, before[change.key]
    for refusal in refused:
        yield from ((key, before.get(key, refusal.of)) for key in refusal.keys)


def spec_data(variant: DesiredVariant) -> dict[str, Any]:
    """Return the spec as a record holds it: camelCase, absent fields left out."""
    return variant.spec.model_dump(mode="json", by_alias=True, exclude_none=True)


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
    message = "Paused by annotation or configuration" if reason is Reason.PAUSED else ""
    return VariantChange(variant.key, reason, message, variant, record)


def _settle(
    gone: Iterable[PackageVariantRecord], desired: Desired, inventory: Inventory
) -> tuple[list[VariantChange], list[VariantChange], list[VariantChange]]:
    """Sort the records that nothing desires any more into taken over, kept and to be deleted."""
    evidence = Evidence(desired, inventory)
    successors = _successors(desired, inventory)
    transfer, keep, delete = [], [], []
    several = list(gone)
    kept = {record.key: evidence.why_kept(record) for record in several}
    places = {_place(record): why for record in several if (why := kept[record.key])}
    for record in several:
        found = kept[record.key]
        heir = successors.get(_place(record))
        if heir is None and found is None:
            found = places.get(_place(record))  # whoever is kept may be about to take it over
        if found is not None:
            keep.append(VariantChange(record.key, found.reason, found.message, record=record))
        elif heir is not None:
            message = f"PackageVariant {heir} has the same downstream"
            transfer.append(
                VariantChange(record.key, Reason.OWNER_CHANGED, message, record=record, successor=heir)
            )
        else:
            delete.append(
                VariantChange(
                    record.key, Reason.NOT_DESIRED, explain_absence(record, inventory), record=record
                )
            )
    return transfer, keep, delete


def _place(record: PackageVariantRecord) -> PackageKey:
    return PackageKey(record.url, record.path)


def _successors(desired: Desired, inventory: Inventory) -> Mapping[PackageKey, ObjectName]:
    found: dict[PackageKey, ObjectName] = {}
    for variant in desired.variants:
        downstream = variant.spec.downstream
        name = (downstream and downstream.repo) or ""
        view = inventory.repositories.get(ObjectName(variant.key.namespace, name))
        if view is not None and downstream is not None:
            found[PackageKey(view.url, view.full_path(downstream.package or ""))] = variant.key
    return found
