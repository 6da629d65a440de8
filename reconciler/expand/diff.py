"""The set diff: PackageVariants that should exist against the records of those that do."""

from dataclasses import dataclass

from reconciler.expand.variants import Desired, DesiredVariant
from reconciler.ids import ObjectName
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
class Refused:
    """Deletions that nobody consented to: what they owned is kept."""

    reason: Reason
    message: str
    hint: str
    keys: tuple[ObjectName, ...] = ()


@dataclass(frozen=True, slots=True)
class SetDiff:
    """Every desired and every recorded variant, exactly once, sorted by identity.

    A `delete` is a wish: the record leaves only when its effect is observed downstream (D3).
    A `transfer` is a record whose downstream another desired variant takes over.
    """

    create: tuple[VariantChange, ...] = ()
    update: tuple[VariantChange, ...] = ()
    delete: tuple[VariantChange, ...] = ()
    transfer: tuple[VariantChange, ...] = ()
    keep: tuple[VariantChange, ...] = ()
    refused: tuple[Refused, ...] = ()


def diff_variants(desired: Desired, inventory: Inventory) -> SetDiff:
    """Compare what the manifests ask for with the records of what was applied.

    Total: every key of either side appears exactly once. Order-free. Ignorance never deletes:
    a record whose owner is stalled, whose manifest could not be read, or whose target could
    not be looked for is kept.

    Source: porch packagevariantset_controller.go, ensurePackageVariants.
    Differs: Porch deletes while it compares, in map order, and needs no consent.
    """
    create, update, keep = [], [], []
    wanted = {variant.key: variant for variant in desired.variants}
    for key, variant in sorted(wanted.items()):
        record = inventory.records.get(key)
        if record is None:
            create.append(VariantChange(key, Reason.NOT_FOUND, variant=variant))
        elif record.spec != spec_data(variant):
            update.append(VariantChange(key, Reason.CONTENT_CHANGED, variant=variant, record=record))
        else:
            keep.append(VariantChange(key, Reason.UP_TO_DATE, variant=variant, record=record))
    keep += [
        VariantChange(key, Reason.OWNER_UNKNOWN, record=record)
        for key, record in sorted(inventory.records.items())
        if key not in wanted
    ]
    return SetDiff(tuple(create), tuple(update), keep=tuple(keep))


def spec_data(variant: DesiredVariant) -> dict[str, object]:
    """Return the spec as a record holds it: camelCase, absent fields left out."""
    return variant.spec.model_dump(mode="json", by_alias=True, exclude_none=True)
