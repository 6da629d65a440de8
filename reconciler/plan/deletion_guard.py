"""Deletion guard: too many deletions, or those of a set that selects nothing, need consent in Git."""

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction

import orjson
from msgspec import Struct, field
from msgspec.structs import replace

from reconciler.base.reasons import Reason
from reconciler.base.text import plural, some
from reconciler.base.values import whole_number
from reconciler.expand.targets import named_clusters
from reconciler.expand.variants import ALLOW_DELETES, Desired, owner_key
from reconciler.inventory.inventory import Inventory
from reconciler.names.ids import ObjectName
from reconciler.policy import DeletionGuard
from reconciler.records.state import PackageVariantRecord
from reconciler.resolve.ownership import DELETE, deletion_policy

_WAITING = "which was refused before and waits for consent"
_MOST_DIGITS = 4
_MOST_NAMES = 3
_OWNERS = frozenset({"PackageVariant", "PackageVariantSet"})
_UNREADABLE = "and the record of what was refused before cannot be read"


class RefusedDeletions(Struct, frozen=True):
    """Deletions without consent: the variants `keys` are kept. `of` is the number of all variants then.

    `annotation` tells which annotation would allow them, as a clause; "" where none would. `newcomers` are
    stalled manifests without a package, one of which may be about to take them over.
    """

    reason: Reason
    message: str
    annotation: str
    keys: tuple[ObjectName, ...] = ()
    of: int = 0
    newcomers: tuple[str, ...] = ()

    @property
    def consent(self) -> str:
        """The checksum that allows exactly these deletions in `spec.consents` of the configuration."""
        return deletion_consent(self.keys)

    @property
    def hint(self) -> str:
        """The next step: how to consent."""
        newcomers = f"Correct {some(self.newcomers, _MOST_NAMES)} first, if it takes these over. "
        return f"{newcomers if self.newcomers else ''}{consent_hint(self.consent, self.annotation)}"


def deletion_consent(keys: Iterable[tuple[str, ...]]) -> str:
    """Return the checksum of a set of deletions: the same whatever commit consents to it. Order-free."""
    return hashlib.sha256(orjson.dumps(sorted(list(key) for key in keys))).hexdigest()


def consent_hint(consent: str, annotation: str = "") -> str:
    """Return the next step after a refusal: consent is given in Git, where others review it.

    Args:
        consent: The checksum of the refused deletions.
        annotation: The annotation that would allow them too, as a clause.
    """
    way = f"{annotation}, or " if annotation else ""
    return (
        f"Review the plan. To delete them, {way}write in the configuration: "
        f"spec.consents: {{{consent}: why}}."
    )


def exceeded_limit(deletions: int, owned: int, guard: DeletionGuard) -> str:
    """Return the exceeded limit of the guard as a clause, "" if none is.

    Deletions may reach the count and the share; only more is too many.
    """
    if deletions > guard.count:
        return f"more than {guard.count}"
    # As written: the binary share 0.29 of 100 is less than 29.
    share = Fraction(str(guard.share))
    if owned >= guard.minimum and deletions > share * owned:
        return "{} is over {}".format(*_percentages(Fraction(deletions, owned), share))
    return ""


def _percentages(first: Fraction, second: Fraction) -> tuple[str, str]:
    """Return two shares that are not equal, with as many digits as show the difference."""
    texts = ((f"{float(first):.{n}%}", f"{float(second):.{n}%}") for n in range(_MOST_DIGITS))
    return next((pair for pair in texts if len(set(pair)) > 1), (str(float(first)), str(float(second))))


class GuardedDeletions(Struct, frozen=True):
    """Result of the guard: the message of each variant that is kept, and the refusals to report."""

    messages: Mapping[ObjectName, str] = field(default_factory=dict)
    refused: tuple[RefusedDeletions, ...] = ()


def guard_deletions(
    deletions: Sequence[PackageVariantRecord], desired: Desired, inventory: Inventory
) -> GuardedDeletions:
    """Refuse deletions that look like an accident.

    First each set on its own: a selector that is there and selects nothing any more, in one of the clusters
    that the set names, needs consent to each deletion. So does a set without any target. Then the remaining
    deletions together: more than the share (from the minimum on) or the count of the policy. Consent is given
    in Git: `reconciler.dev/allow-deletes: "<n>"` on the set, for its variants, or a checksum in `consents` of
    the configuration, for exactly the deletions that it was made of. A variant with deletion policy orphan
    deletes nothing and is not counted, but an emptied selector keeps it too. Where the default branch was
    moved away from what was applied last, each needs consent (D28).

    A refusal lasts until consent is given: it is measured against the variants at the time of the first
    refusal, so that packages that leave meanwhile do not make it small enough.
    """
    if not deletions:
        return GuardedDeletions()
    before, is_moved = refused_variants(inventory), inventory.control.standing.was_moved
    consents = _consents(inventory)
    # An emptied selector is the likelier accident, so it is refused even below the share and the count.
    by_set: dict[ObjectName, list[PackageVariantRecord]] = defaultdict(list)
    for record in deletions:
        by_set[ObjectName(record.namespace, record.set_name)].append(record)
    refused: list[RefusedDeletions] = []
    unconsented: list[PackageVariantRecord] = []
    for owner, records in sorted(by_set.items()):
        emptied = _emptied_targets(owner, records, desired, inventory)
        lost = {record.key for group in emptied.values() for record in group}
        others = [record for record in records if record.key not in lost]
        deletes = [
            r for r in others if deletion_policy(r, inventory) == DELETE or r.key in before or is_moved
        ]
        count = len(lost) + len(deletes)
        if owner.name and count <= consents.get(owner, 0):
            continue
        for subject, group in emptied.items():
            message = f"{subject} selects nothing any more; it had {plural(len(group), 'variant')}"
            annotation, keys = _annotation(owner, count), _keys(group)
            refused.append(
                RefusedDeletions(Reason.DELETION_GUARD, message, annotation, keys, len(inventory.records))
            )
        unconsented += deletes
    refused += _too_many(unconsented, before, inventory)
    recorded = {owner_key(record) for record in inventory.records.values()}
    names = (key.subject for key in sorted(desired.stalled - recorded) if key.kind in _OWNERS)
    refused = [replace(refusal, newcomers=(*names,)) for refusal in refused]
    refused = [refusal for refusal in refused if refusal.consent not in inventory.policy.consents]
    messages = {key: refusal.message for refusal in refused for key in refusal.keys}
    return GuardedDeletions(messages, tuple(refused))


def refused_variants(inventory: Inventory) -> Mapping[ObjectName, int]:
    """Return the variants with refused deletions, each with the number of variants at that time.

    These are all variants where the record of refusals cannot be read: damage lets no deletion pass.
    """
    if inventory.refused is None:
        return dict.fromkeys(inventory.records, len(inventory.records))
    return {ObjectName(v.namespace, v.name): v.of for v in inventory.refused.variants}


def pending_consent(inventory: Inventory) -> str:
    """Return the reason why a deletion that is small enough needs consent, as a clause."""
    return _WAITING if inventory.refused is not None else _UNREADABLE


def moved_branch(inventory: Inventory) -> str:
    """Return why each deletion needs consent as a clause, "" if only too many do."""
    standing = inventory.control.standing
    return f"and {standing.cause[0].lower()}{standing.cause[1:]}" if standing.was_moved else ""


def _consents(inventory: Inventory) -> Mapping[ObjectName, int]:
    consents = {}
    for pvs in inventory.sets:
        text = (pvs.manifest.metadata.annotations or {}).get(ALLOW_DELETES, "")
        if (number := whole_number(text)) is not None:
            consents[pvs.key] = number
    return consents


def _emptied_targets(
    owner: ObjectName, records: Sequence[PackageVariantRecord], desired: Desired, inventory: Inventory
) -> Mapping[str, list[PackageVariantRecord]]:
    """Return the deletions of selectors that selected something and select nothing now, by selector.

    A target that a person took out of the set, or a cluster out of its annotation, is no accident.
    """
    if owner.name and desired.targets.get(owner) == 0:
        return {f"PackageVariantSet {owner}": list(records)}
    pvs = next((pvs for pvs in inventory.sets if pvs.key == owner), None)
    if pvs is None or owner not in desired.targets:
        return {}
    clusters, targets = named_clusters(pvs.manifest) or ("",), pvs.manifest.spec.targets or ()
    filled = {(v.target_index, v.target_cluster) for v in desired.variants if v.set_key == owner}
    emptied: dict[str, list[PackageVariantRecord]] = defaultdict(list)
    for record in records:
        index, cluster = record.target_index, record.target_cluster
        if (
            index is None
            or index >= len(targets)
            or targets[index].repositories
            or (index, cluster) in filled
        ):
            continue
        if cluster in clusters or not targets[index].object_selector:
            within = f" in cluster {cluster}" if cluster else ""
            emptied[f"spec.targets[{index}] of PackageVariantSet {owner}{within}"].append(record)
    return dict(sorted(emptied.items()))


def _too_many(
    records: Sequence[PackageVariantRecord], before: Mapping[ObjectName, int], inventory: Inventory
) -> Iterable[RefusedDeletions]:
    again = [record for record in records if record.key in before]
    # The variants that a run created beside those that it refused must not make their share smaller.
    owned = max((before[record.key] for record in again), default=len(inventory.records))
    moved = moved_branch(inventory)
    limit = moved or exceeded_limit(len(records), owned, inventory.policy.deletions)
    reason = limit or pending_consent(inventory)
    refused = records if limit else again
    if not refused:
        return
    # Where main was moved it does not matter how many there are.
    share = "" if moved else f" of {plural(owned, 'PackageVariant')}"
    count = plural(len(refused), "PackageVariant") if moved else str(len(refused))
    message = f"{count}{share} would be deleted, {reason}"
    owners = {ObjectName(record.namespace, record.set_name) for record in refused}
    owner = owners.pop()
    is_there = any(pvs.key == owner for pvs in inventory.sets)
    annotation = _annotation(owner, len(refused)) if is_there and not owners else ""
    yield RefusedDeletions(Reason.DELETION_GUARD, message, annotation, _keys(refused), owned)


def _annotation(pvs: ObjectName, deletions: int) -> str:
    return f'annotate PackageVariantSet {pvs} with {ALLOW_DELETES}: "{deletions}"'


def _keys(records: Iterable[PackageVariantRecord]) -> tuple[ObjectName, ...]:
    return tuple(sorted(record.key for record in records))
