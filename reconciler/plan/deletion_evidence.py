"""Evidence that a recorded variant is no longer desired; without it nothing is deleted (law 4, D3, D17)."""

from collections.abc import Container, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from msgspec.structs import replace

from reconciler.api.porch import GROUP, REPOSITORY, PackageVariantSet
from reconciler.base.errors import Location
from reconciler.base.reasons import Reason
from reconciler.base.text import Text, some, time_text, verb
from reconciler.expand import expand
from reconciler.expand.authored import is_paused
from reconciler.expand.targets import named_clusters
from reconciler.expand.variants import Desired, DesiredVariant, owner_key, set_key, variant_key
from reconciler.inventory.inventory import Control, Inventory, Source, Sourced
from reconciler.inventory.snapshot import Snapshot
from reconciler.inventory.standing import SHORT
from reconciler.names.ids import GroupKind, NamedObject, ObjectKey, ObjectName, PackageKey, group_of
from reconciler.records.state import PackageVariantRecord
from reconciler.resolve.deliveries import cluster_of
from reconciler.resolve.ownership import SUSPENDED, package_name

_REPOSITORIES = GroupKind(GROUP, "Repository")


class Retention(NamedTuple):
    """Reason to keep a recorded variant although no manifest asks for it."""

    reason: Reason
    message: Text


class DeletionEvidence:
    """Decides for recorded variants whether their absence from the manifests proves that they may go."""

    def __init__(self, desired: Desired, inventory: Inventory) -> None:
        self._inventory = inventory
        self._released, self._needed, self._waiting = desired.released, desired.still_needed, desired.waiting
        self._stalled = inventory.stalled | desired.stalled
        self._claims = claimed_packages(self._stalled, inventory)
        self._sets = {pvs.key: pvs for pvs in inventory.sets}
        self._set_retentions: dict[ObjectName, Retention | None] = {}

    def find_retention(self, record: PackageVariantRecord) -> Retention | None:
        """Return the reason to keep an undesired variant; None with positive evidence that it may go."""
        if self._inventory.policy.suspend:
            return Retention(Reason.PAUSED, SUSPENDED)
        owner = ObjectName(record.namespace, record.set_name)
        if stalled := self._stalled_owner(record, owner):
            return Retention(Reason.OWNER_STALLED, f"{stalled} is stalled")
        if unread := self._unread_manifest(record):
            return unread
        if unproven := self._unproven(record):
            return unproven
        if record.key in self._waiting or (record.requested_by and record.key not in self._released):
            return self._still_needed(record)
        pvs = self._sets.get(owner) if record.set_name else None
        return self._retained_by_set(pvs, record) if pvs else None

    def _stalled_owner(self, record: PackageVariantRecord, owner: ObjectName) -> str:
        """Return the stalled manifest that may still want the variant's package, "" for none."""
        if variant_key(record.key) in self._stalled:
            return "The PackageVariant"
        if record.set_name and set_key(owner) in self._stalled:
            return f"PackageVariantSet {owner}"
        claimant = self._claims.get(PackageKey(record.url, record.path))
        return f"PackageVariant {claimant}, which names this downstream," if claimant else ""

    def _still_needed(self, record: PackageVariantRecord) -> Retention:
        """Return the reason to keep what was generated and not released."""
        if record.key in self._waiting:
            return Retention(Reason.LOCK_PENDING, self._waiting[record.key])
        if record.key in self._needed:
            return Retention(Reason.STILL_NEEDED, self._needed[record.key])
        dependents = ", ".join(record.requested_by)
        return Retention(Reason.DEPENDENTS_UNKNOWN, f"It may still be required: {dependents} required it")

    def _unread_manifest(self, record: PackageVariantRecord) -> Retention | None:
        control = self._inventory.control
        if not control.readable:
            return Retention(Reason.MANIFEST_UNREADABLE, "Not every manifest path could be read")
        if record.manifest in control.broken:
            return Retention(Reason.MANIFEST_UNREADABLE, f"{record.manifest} did not parse")
        return None

    def _unproven(self, record: PackageVariantRecord) -> Retention | None:
        """Return the reason why the removal of the variant is not proven, None if it is (D28)."""
        control = self._inventory.control
        if (record.requested_by or cluster_of(record.key)) and not control.standing.is_outdated:
            return None  # whether it leaves follows from the packages that need it
        outdated = find_outdated(record.key, PackageKey(record.url, record.path), control)
        why = outdated or control.unproven.get(owner_key(record), "")
        return Retention(Reason.REMOVAL_UNPROVEN, why) if why else None

    def _retained_by_set(
        self, pvs: Sourced[PackageVariantSet], record: PackageVariantRecord
    ) -> Retention | None:
        if is_paused(pvs.manifest.metadata):
            return Retention(Reason.PAUSED, f"PackageVariantSet {pvs.key} is paused")
        if pvs.key not in self._set_retentions:
            self._set_retentions[pvs.key] = self._unknown_targets(pvs)
        return self._set_retentions[pvs.key] or self._unknown_repository(pvs, record)

    def _unknown_targets(self, pvs: Sourced[PackageVariantSet]) -> Retention | None:
        """Return the reason why an object that a selector does not match may exist nevertheless."""
        for target in pvs.manifest.spec.targets or ():
            selector = target.object_selector
            if selector is None or selector.api_version == REPOSITORY:
                continue
            kind = GroupKind(group_of(selector.api_version or ""), selector.kind or "")
            for cluster in named_clusters(pvs.manifest) or ("",):
                if retention := self._unknown_objects(cluster, kind, pvs.key.namespace):
                    return retention
        return None

    def _unknown_objects(self, cluster: str, kind: GroupKind, namespace: str) -> Retention | None:
        """Return the reason why the snapshot of a cluster ("": the main one) does not prove absence."""
        snapshot = self._inventory.snapshot
        snapshot = snapshot.exactly(cluster) if cluster else snapshot
        of_cluster = f" of cluster {cluster}" if cluster else ""
        if not snapshot.is_complete(kind, namespace):
            message = f"The snapshot{of_cluster} does not list {kind} in {namespace} completely"
            return Retention(Reason.SNAPSHOT_INCOMPLETE, message)
        # No commit of another repository counts: whoever may push there may give it any date (D17).
        age = self._inventory.control.commit.time - _taken(snapshot)
        if age > self._inventory.policy.snapshot.max_age_s:
            return Retention(Reason.SNAPSHOT_STALE, f"The snapshot{of_cluster} {self._stale_text(snapshot)}")
        return None

    def _unknown_repository(
        self, pvs: Sourced[PackageVariantSet], record: PackageVariantRecord
    ) -> Retention | None:
        """Return the reason why a Repository that is not registered may still exist in the cluster.

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
            message = f"Repository {pvs.key.namespace}/{record.repository} is stalled"
            return Retention(Reason.OWNER_STALLED, message)
        if control.broken:
            message = "A file that did not parse may hold the Repository"
            return Retention(Reason.MANIFEST_UNREADABLE, message)
        repository = ObjectKey(GROUP, "Repository", pvs.key.namespace, record.repository)
        if why := control.unproven.get(repository):
            return Retention(Reason.REMOVAL_UNPROVEN, why)
        # What a commit removed from the manifests is not looked for in the cluster.
        is_removed = repository in control.removed
        if not is_removed and snapshot.present and not snapshot.is_complete(_REPOSITORIES, pvs.key.namespace):
            message = f"The snapshot does not list {_REPOSITORIES} in {pvs.key.namespace} completely"
            return Retention(Reason.SNAPSHOT_INCOMPLETE, message)
        return None

    def _stale_text(self, snapshot: Snapshot) -> str:
        """Return how old a snapshot is, against what, and what to do."""
        commit = self._inventory.control.commit
        dated = f"commit {commit.oid[:8]} of the control repository, which is dated {time_text(commit.time)}"
        return (
            f"is from {time_text(_taken(snapshot))}, more than snapshot.maxAge before {dated}. "
            "Import a newer one with `reconciler snapshot import`"
        )


def _taken(snapshot: Snapshot) -> int:
    return snapshot.time if snapshot.taken is None else snapshot.taken


def find_outdated(variant: ObjectName, package: PackageKey, control: Control) -> str:
    """Return why the commit that is read cannot tell that a variant let go of a package; "" if it can.

    Where it does not contain what was applied last, only what it removed itself is removed.
    """
    if control.standing.is_outdated:
        return f"{control.standing.sentence}, so nothing proves that it was removed"
    if control.before is None or (variant, package) in control.before:
        return ""
    newest = (control.standing.applied or control.standing.newest or "")[:SHORT]
    return (
        f"This commit does not contain {newest}, which was applied last, and removes nothing of this package"
    )


# Packages that stalled manifests name


def claimed_packages(stalled: Container[ObjectKey], inventory: Inventory) -> Mapping[PackageKey, ObjectName]:
    """Return the downstream packages that stalled PackageVariants name, each with the first of them.

    A stalled PackageVariant under a new name may be about to take over its own package (law 4).
    Downstreams in repositories that are not registered are left out.
    """
    claims: dict[PackageKey, ObjectName] = {}
    for key, (repo, package) in sorted(_stalled_downstreams(stalled, inventory)):
        view = inventory.repositories.get(ObjectName(key.namespace, repo))
        if view is not None and package:
            claims.setdefault(PackageKey(view.url, view.full_path(package)), key)
    return claims


def _stalled_downstreams(
    stalled: Container[ObjectKey], inventory: Inventory
) -> Iterator[tuple[ObjectName, tuple[str, str]]]:
    yield from inventory.claims.items()
    for variant in inventory.variants:
        downstream = variant.manifest.spec.downstream
        if downstream is not None and variant_key(variant.key) in stalled:
            yield variant.key, (downstream.repo or "", downstream.package or "")


# Explanations


def last_expansions(
    records: Iterable[PackageVariantRecord], inventory: Inventory
) -> Mapping[ObjectName, tuple[Sourced[PackageVariantSet], Desired]]:
    """Return the sets of records that were removed, as Git had them last, with what they would make now."""
    removed: dict[ObjectName, tuple[Sourced[PackageVariantSet], Desired]] = {}
    for owner in {ObjectName(record.namespace, record.set_name) for record in records if record.set_name}:
        removal = inventory.control.removed.get(set_key(owner))
        if removal is not None and isinstance(removal.last, PackageVariantSet):
            last = Sourced(owner, removal.last, Source(Location(removal.path)))
            made = expand(replace(inventory, sets=(last,), variants=(), records={}))
            removed |= {} if set_key(owner) in made.stalled else {owner: (last, made)}
    return removed


def explain_absence(
    record: PackageVariantRecord,
    desired: Desired,
    inventory: Inventory,
    removed: Mapping[ObjectName, tuple[Sourced[PackageVariantSet], Desired]] = MappingProxyType({}),
) -> str:
    """Return which object, manifest or target of a recorded variant is gone, and its followers (D17).

    It depends on the declarations alone: the next run, which has records of the followers, returns the same.
    `removed` are the sets that were removed: what one of them made no longer was not let go by its removal.
    """
    if record.requested_by:
        return f"Not needed any more by {', '.join(record.requested_by)}"
    owner = ObjectName(record.namespace, record.set_name)
    pvs = next((pvs for pvs in inventory.sets if pvs.key == owner), None) if record.set_name else None
    if pvs is not None:
        cause = _unselected(record, pvs, desired, inventory)
    else:
        declared = f"PackageVariantSet {owner}" if record.set_name else f"PackageVariant {record.key}"
        cause = _removed(declared, record, inventory)
        last, made = removed.get(owner, (None, Desired()))
        if last is not None and all(variant.key != record.key for variant in made.variants):
            cause = f"{_unselected(record, last, Desired(), inventory)}; {cause}"
    followers = [v for v in desired.variants if v.set_key != owner and _follows(v, record)]
    if not followers:
        return cause
    owners = (f"PackageVariantSet {v.set_key}" if v.set_key else f"PackageVariant {v.key}" for v in followers)
    makers = sorted(set(owners))
    make = f"{some(makers, _MOST_NAMES)} {verb(len(makers), 'makes', 'make')} {_packages(followers)}"
    return f"{cause}; {make} of the same upstream package"


def _follows(variant: DesiredVariant, record: PackageVariantRecord) -> bool:
    """Whether a variant of another owner makes the same upstream package in the place of a recorded one.

    It does for the same target, and where a manifest of its own takes over from a set in a Repository. The
    removal of such a manifest explains itself, and its neighbours may have been there all the time.
    """
    spec, upstream = variant.spec, record.spec.get("upstream") or {}
    names = (upstream.get("repo"), upstream.get("package"))
    if spec.upstream is None or (spec.upstream.repo, spec.upstream.package) != names:
        return False
    if variant.key.namespace != record.namespace:
        return False
    in_place = spec.downstream is not None and spec.downstream.repo == record.repository
    left_set = bool(record.set_name) and not variant.set_key
    return (left_set and in_place) or bool(record.selected and variant.target == record.selected)


def _packages(variants: Iterable[DesiredVariant]) -> str:
    downstreams = (v.spec.downstream for v in variants)
    return some(sorted(f"{d.repo}/{d.package}" for d in downstreams if d is not None), _MOST_NAMES)


_MOST_NAMES = 3


def _removed(owner: str, record: PackageVariantRecord, inventory: Inventory) -> str:
    removal, standing = inventory.control.removed.get(owner_key(record)), inventory.control.standing
    if removal is None and standing.was_moved:
        return f"{standing.cause}, and {record.manifest} does not declare {owner} there"
    if removal is None:
        return f"{record.manifest} does not declare {owner} any more"
    if removal.is_file:
        return f"{removal.path}, which declared {owner}, was removed in commit {removal.commit}"
    return f"{removal.path} does not declare {owner} any more, since commit {removal.commit}"


def _unselected(
    record: PackageVariantRecord, pvs: Sourced[PackageVariantSet], desired: Desired, inventory: Inventory
) -> str:
    """Return why a set that is there has no target for a package any more."""
    repository = ObjectName(record.namespace, record.repository)
    made = [v for v in desired.variants if v.set_key == pvs.key]
    of_target = [v for v in made if v.target == record.selected]
    place = f"{repository.name}/{_name_in(record, inventory)}"
    if record.target and of_target:
        # The target is there, and its package is another one: a template names it otherwise.
        return f"PackageVariantSet {pvs.key} makes {_packages(of_target)} of {record.target} now, not {place}"
    if record.selected and not _exists(record.selected, inventory):
        where = "registered" if record.selected.kind == "Repository" else "in the snapshot"
        return f"{record.target}, which PackageVariantSet {pvs.key} selected, is not {where} any more"
    if record.target:
        return f"PackageVariantSet {pvs.key} does not select {record.target} any more"
    if repository not in inventory.repositories:
        return f"Repository {repository} is not registered any more"
    others = [v for v in of_target if v.spec.downstream and v.spec.downstream.repo == repository.name]
    also = f"; it makes {_packages(others)} there" if others else ""
    return f"PackageVariantSet {pvs.key} has no target for {place} any more{also}"


def _name_in(record: PackageVariantRecord, inventory: Inventory) -> str:
    """Return the name of a recorded package in its Repository, where that is registered."""
    view = inventory.repositories.get(ObjectName(record.namespace, record.repository))
    return package_name(view, record.path) if view is not None else record.path


def _exists(target: NamedObject, inventory: Inventory) -> bool:
    kind, *name = target
    if kind == "Repository" and ObjectName(*name) in inventory.repositories:
        return True
    snapshot = inventory.snapshot
    of_kind = (
        manifest
        for of_cluster in (snapshot, *snapshot.clusters.values())
        for (_, listed), objects in of_cluster.objects.items()
        if listed == kind
        for manifest in objects
    )
    return any([manifest.namespace, manifest.name] == name for manifest in of_kind)
