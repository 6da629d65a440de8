"""The deletion guard: more than a share or a count needs consent in Git, and so does an emptied selector."""

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import orjson

from reconciler.expand.owners import ALLOW_DELETES
from reconciler.expand.variants import Desired
from reconciler.ids import ObjectName
from reconciler.inventory import Inventory
from reconciler.policy import DeletionGuard
from reconciler.reasons import Reason
from reconciler.state import PackageVariantRecord

_DELETE = "delete"
WAITING = "which was refused before and waits for consent"
UNKNOWN = "and the record of what was refused before cannot be read"


@dataclass(frozen=True, slots=True)
class Refused:
    """Deletions that nobody consented to: what they owned is kept. There were `of` variants then."""

    reason: Reason
    message: str
    hint: str
    keys: tuple[ObjectName, ...] = ()
    of: int = 0

    @property
    def consent(self) -> str:
        """What a person writes into the configuration to allow exactly these deletions."""
        return deletion_consent(self.keys)


def deletion_consent(keys: Iterable[tuple[str, ...]]) -> str:
    """Return the checksum of a set of deletions: the same whatever commit consents to it. Order-free."""
    return hashlib.sha256(orjson.dumps(sorted(list(key) for key in keys))).hexdigest()


def why_too_many(deletions: int, owned: int, guard: DeletionGuard) -> str:
    """Return why so many deletions are too many, to follow their arithmetic; empty if they are not.

    The count may be reached and the share may be reached; only more is too many.
    """
    if deletions > guard.count:
        return f"more than {guard.count}"
    if owned >= guard.minimum and deletions > guard.share * owned:
        return f"{deletions / owned:.0%} is over {guard.share:.0%}"
    return ""


@dataclass(frozen=True, slots=True)
class Guarded:
    """Which deletions became keeps, with the message of each, and the refusals to report."""

    kept: Mapping[ObjectName, str] = field(default_factory=dict)
    refused: tuple[Refused, ...] = ()


def guard_deletions(
    doomed: Sequence[PackageVariantRecord], desired: Desired, inventory: Inventory
) -> Guarded:
    """Refuse deletions that look like an accident.

    First every set on its own: one that exists and lost all of its targets needs consent to each
    deletion. Then what is left together: more than the share (from the minimum on) or the count
    of the policy. Consent is `reconciler.dev/allow-deletes: "<n>"` on the set, for its own
    variants, or `deletions.allowed` of the policy, for everything. A variant with deletion policy
    orphan deletes nothing and is not counted, but an emptied set keeps it too. A checksum in
    `consents` of the configuration allows exactly the deletions that it was made of.

    What was refused once stays refused until somebody consents, whatever left meanwhile: it is measured
    against what there was when it was refused.
    """
    if not doomed:
        return Guarded()
    allowed = inventory.policy.deletions.allowed
    if allowed and sum(record.deletion_policy == _DELETE for record in doomed) <= allowed:
        return Guarded()
    before = refused_variants(inventory)
    consents = _consents(inventory)
    by_set: dict[ObjectName, list[PackageVariantRecord]] = defaultdict(list)
    for record in doomed:
        by_set[ObjectName(record.namespace, record.set_name)].append(record)
    refused: list[Refused] = []
    unconsented: list[PackageVariantRecord] = []
    for owner, records in sorted(by_set.items()):
        deletes = [r for r in records if r.deletion_policy == _DELETE or r.key in before]
        is_emptied = bool(owner.name) and desired.targets.get(owner) == 0
        if owner.name and len(records if is_emptied else deletes) <= consents.get(owner, 0):
            continue
        if is_emptied:
            refused.append(_emptied(owner, records, len(inventory.records)))
        else:
            unconsented += deletes
    refused += _too_many(unconsented, before, inventory)
    refused = [one for one in refused if one.consent not in inventory.policy.consents]
    kept = {key: one.message for one in refused for key in one.keys}
    return Guarded(kept, tuple(refused))


def refused_variants(inventory: Inventory) -> Mapping[ObjectName, int]:
    """Return the variants whose deletion was refused, each with how many variants there were then.

    That is all of them where the record of it cannot be read: damage lets no deletion pass.
    """
    if inventory.refused is None:
        return dict.fromkeys(inventory.records, len(inventory.records))
    return {ObjectName(one.namespace, one.name): one.of for one in inventory.refused.variants}


def waiting_text(inventory: Inventory) -> str:
    """Return why a deletion that is small enough needs consent all the same."""
    return WAITING if inventory.refused is not None else UNKNOWN


def _consents(inventory: Inventory) -> Mapping[ObjectName, int]:
    found = {}
    for pvs in inventory.sets:
        text = (pvs.manifest.metadata.annotations or {}).get(ALLOW_DELETES, "")
        if text.isascii() and text.isdigit():
            found[pvs.key] = int(text)
    return found


def _emptied(owner: ObjectName, records: Sequence[PackageVariantRecord], owned: int) -> Refused:
    message = f"PackageVariantSet {owner} selects nothing any more; it had {len(records)} variants"
    hint = f'To delete them, annotate the set with {ALLOW_DELETES}: "{len(records)}".'
    return Refused(Reason.DELETION_GUARD, message, hint, _keys(records), owned)


def _too_many(
    records: Sequence[PackageVariantRecord], before: Mapping[ObjectName, int], inventory: Inventory
) -> Iterable[Refused]:
    again = [record for record in records if record.key in before]
    owned = max([len(inventory.records), *(before[record.key] for record in again)])
    why = why_too_many(len(records), owned, inventory.policy.deletions)
    refused = records if why else again
    if not refused:
        return
    message = f"{len(refused)} of {owned} PackageVariants would be deleted, {why or waiting_text(inventory)}"
    consent = f'{ALLOW_DELETES}: "{len(refused)}"'
    sets = sorted({str(ObjectName(one.namespace, one.set_name)) for one in refused if one.set_name})
    hint = "Review the plan, then allow them with --allow-deletes, or consent in the configuration"
    hint += f", or annotate PackageVariantSet {sets[0]} with {consent}." if len(sets) == 1 else "."
    yield Refused(Reason.DELETION_GUARD, message, hint, _keys(refused), owned)


def _keys(records: Iterable[PackageVariantRecord]) -> tuple[ObjectName, ...]:
    return tuple(sorted(record.key for record in records))
