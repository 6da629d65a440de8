"""Set diff: the variants that are gone, on what evidence, and the consent that many deletions need."""

import hashlib
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from types import MappingProxyType
from typing import NamedTuple

import orjson
from msgspec import Struct, field
from msgspec.structs import replace

from reconciler.api.porch import GROUP, REPOSITORY, PackageVariantSet
from reconciler.base.errors import Location
from reconciler.base.reasons import Reason
from reconciler.base.text import Text, plural, some, time_text, verb
from reconciler.base.values import whole_number
from reconciler.expand import expand
from reconciler.expand.owners import is_paused
from reconciler.expand.targets import named_clusters
from reconciler.expand.variants import (
    ALLOW_DELETES,
    Desired,
    DesiredVariant,
    owner_key,
    set_key,
    spec_data,
    variant_key,
)
from reconciler.inventory.inventory import Control, Inventory, Source, Sourced
from reconciler.inventory.snapshot import Snapshot
from reconciler.inventory.standing import SHORT
from reconciler.names.ids import GroupKind, NamedObject, ObjectKey, ObjectName, PackageKey, group_of
from reconciler.names.refs import relative_package
from reconciler.policy import DeletionGuard
from reconciler.records.state import PackageVariantRecord
from reconciler.resolve.deliveries import cluster_of
from reconciler.resolve.ownership import DELETE, SUSPENDED, deletion_policy, find_view

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
        self._lost_claims = _lost_claims(self._stalled, inventory)
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
        named = record.spec.get("downstream") or {}
        claimant = self._claims.get(PackageKey(record.url, record.path))
        claimant = claimant or self._lost_claims.get((named.get("repo") or "", named.get("package") or ""))
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
        if outdated := find_outdated(record.key, PackageKey(record.url, record.path), control):
            return outdated
        why = control.unproven.get(owner_key(record), "")
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


def find_outdated(variant: ObjectName, package: PackageKey, control: Control) -> Retention | None:
    """Return why the commit that is read cannot tell that a variant let go of a package; None if it can.

    Where it does not contain what was applied last, only what it removed itself is removed.
    """
    if control.standing.is_outdated:
        return Retention(
            Reason.CHECKOUT_OUTDATED, f"{control.standing.sentence}, and newer commits may want it"
        )
    if control.before is None or (variant, package) in control.before:
        return None
    newest = (control.standing.applied or control.standing.newest or "")[:SHORT]
    here = f"This commit does not contain {newest}, which was applied last"
    return Retention(Reason.CHECKOUT_OUTDATED, f"{here}, and removes nothing of this package")


# Packages that stalled manifests name


def claimed_packages(stalled: Container[ObjectKey], inventory: Inventory) -> Mapping[PackageKey, ObjectName]:
    """Return the downstream packages that stalled PackageVariants name, each with the first of them.

    A stalled PackageVariant under a new name may be about to take over its own package (law 4).
    Downstreams in repositories that are not registered are left out: `_lost_claims` has them by their names.
    """
    claims: dict[PackageKey, ObjectName] = {}
    for key, (repo, package) in sorted(_stalled_downstreams(stalled, inventory)):
        view = inventory.repositories.get(ObjectName(key.namespace, repo))
        if view is not None and package:
            claims.setdefault(PackageKey(view.url, view.full_path(package)), key)
    return claims


def _lost_claims(stalled: Container[ObjectKey], inventory: Inventory) -> Mapping[tuple[str, str], ObjectName]:
    """Return by downstream the first new stalled PackageVariant that names it where no Repository is.

    Such as after a typo in its namespace: the downstream it names is the one of its former name (law 4).
    """
    return {
        place: key
        for key, place in sorted(_stalled_downstreams(stalled, inventory), reverse=True)
        if all(place)
        and key not in inventory.records
        and ObjectName(key.namespace, place[0]) not in inventory.repositories
    }


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
    if cluster := cluster_of(record.key):
        return f"Nothing is generated for cluster {cluster} any more"
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
    view = inventory.repositories.get(repository)
    directory = record.downstream.directory if view is None else view.directory
    place = f"{repository.name}/{relative_package(record.path, directory)}"
    upstream, listed = record.spec.get("upstream") or {}, pvs.manifest.spec.upstreams
    is_unlisted = all(item.package != upstream.get("package") for item in listed or ())
    if listed is not None and is_unlisted and not was_renamed(record, inventory):
        return f"spec.upstreams of PackageVariantSet {pvs.key} has no {upstream.get('package')} any more"
    if record.target and of_target:
        # The target is there, and its package is another one: a template names it otherwise.
        return f"PackageVariantSet {pvs.key} makes {_packages(of_target)} of {record.target} now, not {place}"
    if record.selected and not _exists(record.selected, inventory):
        where = "registered" if record.selected.kind == "Repository" else "in the snapshot"
        return f"{record.target}, which PackageVariantSet {pvs.key} selected, is not {where} any more"
    if record.target:
        return f"PackageVariantSet {pvs.key} does not select {record.target} any more"
    others = [v for v in of_target if v.spec.downstream and v.spec.downstream.repo == repository.name]
    also = f"; it makes {_packages(others)} there" if others else ""
    return f"PackageVariantSet {pvs.key} has no target for {place} any more{also}"


def was_renamed(record: PackageVariantRecord, inventory: Inventory) -> bool:
    """Return whether an upstream package has left main of its repository, and may have another name now.

    A set that has no use for one that is there let go of it.
    """
    upstream = record.spec.get("upstream") or {}
    view = inventory.repositories.get(ObjectName(record.namespace, str(upstream.get("repo"))))
    if view is None or not view.is_available:
        return False
    state = view.upstream_at(view.full_path(str(upstream.get("package"))))
    return state is None or state.main_tree is None


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


_WAITING = "which was refused before and waits for consent"
_MOST_DIGITS = 4
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

    `consent` is the checksum of the refused deletions, `annotation` one that would allow them too, as a
    clause.
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
        by_set[_heir(ObjectName(record.namespace, record.set_name), desired, inventory)].append(record)
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


def _heir(owner: ObjectName, desired: Desired, inventory: Inventory) -> ObjectName:
    """Return the set that a removed one was renamed to: the only one that makes packages of it now."""
    if not owner.name or any(pvs.key == owner for pvs in inventory.sets):
        return owner
    successors, sets = _successors(desired, inventory), {v.key: v.set_key for v in desired.variants}
    packages = (_package(r) for r in inventory.records.values() if (r.namespace, r.set_name) == owner)
    heirs = {sets[successors[package]] for package in packages if package in successors}
    return next((heir for heir in heirs if heir and len(heirs) == 1), owner)


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
    return frozenset(undesired & {change.key for change in diff_variants(desired, authored).keep})


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
        view, downstream = find_view(variant, inventory), variant.spec.downstream
        if view is not None and downstream is not None:
            successors[PackageKey(view.url, view.full_path(downstream.package or ""))] = variant.key
    return successors


def changed_fields(path: str, old: object, new: object) -> Iterator[str]:
    """Yield the fields that differ, as deep as both sides have them."""
    if old == new:
        return
    if isinstance(old, dict) and isinstance(new, dict):
        for name in sorted({*old, *new}):
            yield from changed_fields(f"{path}.{name}", old.get(name), new.get(name))
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, (before, after) in enumerate(zip(old, new, strict=True)):
            yield from changed_fields(f"{path}[{index}]", before, after)
    else:
        yield path
