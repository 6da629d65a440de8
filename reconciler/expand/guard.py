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
from reconciler.reasons import Reason
from reconciler.state import PackageVariantRecord

_DELETE = "delete"


@dataclass(frozen=True, slots=True)
class Refused:
    """Deletions that nobody consented to: what they owned is kept."""

    reason: Reason
    message: str
    hint: str
    keys: tuple[ObjectName, ...] = ()

    @property
    def consent(self) -> str:
        """What a person writes into the configuration to allow exactly these deletions."""
        return deletion_consent(self.keys)


def deletion_consent(keys: Iterable[tuple[str, ...]]) -> str:
    """Return the checksum of a set of deletions: the same whatever commit consents to it. Order-free."""
    return hashlib.sha256(orjson.dumps(sorted(list(key) for key in keys))).hexdigest()


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
    """
    allowed = inventory.policy.deletions.allowed
    if len(doomed) <= allowed:
        return Guarded()
    consents = _consents(inventory)
    by_set: dict[ObjectName, list[PackageVariantRecord]] = defaultdict(list)
    for record in doomed:
        by_set[ObjectName(record.namespace, record.set_name)].append(record)
    refused: list[Refused] = []
    unconsented: list[PackageVariantRecord] = []
    for owner, records in sorted(by_set.items()):
        if owner.name and len(records) <= consents.get(owner, 0):
            continue
        if owner.name and desired.targets.get(owner) == 0:
            refused.append(_emptied(owner, records))
        else:
            unconsented += [record for record in records if record.deletion_policy == _DELETE]
    refused += _too_many(unconsented, inventory)
    refused = [one for one in refused if one.consent not in inventory.policy.consents]
    kept = {key: one.message for one in refused for key in one.keys}
    return Guarded(kept, tuple(refused))


def _consents(inventory: Inventory) -> Mapping[ObjectName, int]:
    found = {}
    for pvs in inventory.sets:
        text = (pvs.manifest.metadata.annotations or {}).get(ALLOW_DELETES, "")
        if text.isascii() and text.isdigit():
            found[pvs.key] = int(text)
    return found


def _emptied(owner: ObjectName, records: Sequence[PackageVariantRecord]) -> Refused:
    message = f"PackageVariantSet {owner} selects nothing any more; it had {len(records)} variants"
    hint = f'To delete them, annotate the set with {ALLOW_DELETES}: "{len(records)}".'
    return Refused(Reason.DELETION_GUARD, message, hint, _keys(records))


def _too_many(records: Sequence[PackageVariantRecord], inventory: Inventory) -> Iterable[Refused]:
    guard = inventory.policy.deletions
    deletes, owned = len(records), len(inventory.records)
    share = deletes / owned if owned else 0.0
    arithmetic = f"{deletes} of {owned} PackageVariants would be deleted"
    if deletes > guard.count:
        message = f"{arithmetic}, more than {guard.count}"
    elif owned >= guard.minimum and share > guard.share:
        message = f"{arithmetic}, {share:.0%} is over {guard.share:.0%}"
    else:
        return
    hint = f'Annotate the set with {ALLOW_DELETES}: "{deletes}", or allow the deletions in the configuration.'
    yield Refused(Reason.DELETION_GUARD, message, hint, _keys(records))


def _keys(records: Iterable[PackageVariantRecord]) -> tuple[ObjectName, ...]:
    return tuple(sorted(record.key for record in records))
