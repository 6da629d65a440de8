"""Evidence that a variant is no longer desired; without it nothing is deleted (law 4, D3, D17)."""

from typing import NamedTuple

from reconciler.api.porch import GROUP, REPOSITORY, PackageVariantSet
from reconciler.expand.authored import is_paused
from reconciler.expand.claims import claimed_packages
from reconciler.expand.owners import set_key, variant_key
from reconciler.expand.targets import named_clusters
from reconciler.expand.variants import Desired
from reconciler.ids import GroupKind, ObjectKey, ObjectName, PackageKey, group_of
from reconciler.inventory import Inventory, Sourced
from reconciler.reasons import Reason
from reconciler.snapshot import Snapshot
from reconciler.state import PackageVariantRecord

_REPOSITORIES = GroupKind(GROUP, "Repository")


class Kept(NamedTuple):
    """Why a recorded variant is kept although nothing desires it."""

    reason: Reason
    message: str


class Evidence:
    """What one run knows about the absence of variants."""

    def __init__(self, desired: Desired, inventory: Inventory) -> None:
        self._inventory = inventory
        self._released, self._held = desired.released, desired.held
        self._stalled = inventory.stalled | desired.stalled
        self._claims = claimed_packages(self._stalled, inventory)
        self._sets = {pvs.key: pvs for pvs in inventory.sets}
        self._set_reasons: dict[ObjectName, Kept | None] = {}

    def why_kept(self, record: PackageVariantRecord) -> Kept | None:
        """Return why an undesired variant is kept; None where there is positive evidence that it may go."""
        if self._inventory.policy.suspend:
            return Kept(Reason.PAUSED, "The configuration suspends every change")
        owner = ObjectName(record.namespace, record.set_name)
        if stalled := self._who_stalls(record, owner):
            return Kept(Reason.OWNER_STALLED, f"{stalled} is stalled")
        if unread := self._why_unread(record):
            return unread
        if record.requested_by and record.key not in self._released:
            return self._why_needed(record)
        pvs = self._sets.get(owner) if record.set_name else None
        return self._why_set_keeps(pvs, record) if pvs else None

    def _who_stalls(self, record: PackageVariantRecord, owner: ObjectName) -> str:
        """Return the stalled manifest that may still want a variant's package, "" for none."""
        if variant_key(record.key) in self._stalled:
            return "The PackageVariant"
        if record.set_name and set_key(owner) in self._stalled:
            return f"PackageVariantSet {owner}"
        claimant = self._claims.get(PackageKey(record.url, record.path))
        return f"PackageVariant {claimant}, which names this downstream," if claimant else ""

    def _why_needed(self, record: PackageVariantRecord) -> Kept:
        """Return why a variant that nobody declared is kept although no other is known to need it."""
        if record.key in self._held:
            return Kept(Reason.STILL_NEEDED, self._held[record.key])
        askers = ", ".join(record.requested_by)
        return Kept(Reason.DEPENDENTS_UNKNOWN, f"It is not certain that nobody needs it; {askers} did")

    def _why_unread(self, record: PackageVariantRecord) -> Kept | None:
        control = self._inventory.control
        if not control.readable:
            return Kept(Reason.MANIFEST_UNREADABLE, "Not every manifest path could be read")
        if record.manifest in control.broken:
            return Kept(Reason.MANIFEST_UNREADABLE, f"{record.manifest} did not parse")
        return None

    def _why_set_keeps(self, pvs: Sourced[PackageVariantSet], record: PackageVariantRecord) -> Kept | None:
        if is_paused(pvs.manifest.metadata):
            return Kept(Reason.PAUSED, f"PackageVariantSet {pvs.key} is paused")
        if pvs.key not in self._set_reasons:
            self._set_reasons[pvs.key] = self._why_absence_means_nothing(pvs)
        return self._set_reasons[pvs.key] or self._why_repository_counts(pvs, record)

    def _why_absence_means_nothing(self, pvs: Sourced[PackageVariantSet]) -> Kept | None:
        """Return why an object that a selector does not find may exist all the same."""
        for target in pvs.manifest.spec.targets or ():
            selector = target.object_selector
            if selector is None or selector.api_version == REPOSITORY:
                continue
            kind = GroupKind(group_of(selector.api_version or ""), selector.kind or "")
            for cluster in named_clusters(pvs.manifest) or ("",):
                if kept := self._why_absence_in(cluster, kind, pvs.key.namespace):
                    return kept
        return None

    def _why_absence_in(self, cluster: str, kind: GroupKind, namespace: str) -> Kept | None:
        """Return why an object that is not in a cluster's snapshot may be there; "" is the main one."""
        snapshot = self._inventory.snapshot
        snapshot = snapshot.exactly(cluster) if cluster else snapshot
        of_cluster = f" of cluster {cluster}" if cluster else ""
        if not snapshot.is_complete(kind, namespace):
            message = f"The snapshot{of_cluster} does not list {kind} in {namespace} completely"
            return Kept(Reason.SNAPSHOT_INCOMPLETE, message)
        if self._is_stale(snapshot):
            return Kept(Reason.SNAPSHOT_STALE, f"The snapshot{of_cluster} is older than snapshot.maxAge")
        return None

    def _why_repository_counts(
        self, pvs: Sourced[PackageVariantSet], record: PackageVariantRecord
    ) -> Kept | None:
        """Return why a Repository that is not registered any more may still be: it may live in the cluster.

        One that is registered and merely not selected is evidence in itself.
        """
        selects = any(
            target.repository_selector is not None
            or (target.object_selector is not None and target.object_selector.api_version == REPOSITORY)
            for target in pvs.manifest.spec.targets or ()
        )
        if not selects or ObjectName(pvs.key.namespace, record.repository) in self._inventory.repositories:
            return None
        control, snapshot = self._inventory.control, self._inventory.snapshot
        if ObjectKey(GROUP, "Repository", pvs.key.namespace, record.repository) in self._stalled:
            return Kept(
                Reason.OWNER_STALLED, f"Repository {pvs.key.namespace}/{record.repository} is stalled"
            )
        if control.broken:
            return Kept(Reason.MANIFEST_UNREADABLE, "A file that did not parse may hold the Repository")
        if snapshot.present and not snapshot.is_complete(_REPOSITORIES, pvs.key.namespace):
            message = f"The snapshot does not list {_REPOSITORIES} in {pvs.key.namespace} completely"
            return Kept(Reason.SNAPSHOT_INCOMPLETE, message)
        return None

    def _is_stale(self, snapshot: Snapshot) -> bool:
        control = self._inventory.control
        heads = [view.head.time for view in self._inventory.repositories.values() if view.head]
        newest = max([control.commit.time, snapshot.time, *heads])
        taken = snapshot.time if snapshot.taken is None else snapshot.taken
        return newest - taken > self._inventory.policy.snapshot_max_age_s
