"""Deliveries: the package of a cluster that receives its generated manifests, with the lock as upstream."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec
import orjson
from msgspec import Struct, field
from msgspec.structs import replace

from reconciler.api.porch import Downstream, PackageVariantSpec
from reconciler.base.defects import DefectError, guard
from reconciler.base.errors import Location
from reconciler.base.reasons import Reason
from reconciler.base.text import Text
from reconciler.base.values import Refused, grouped
from reconciler.dependencies.catalog.cluster_inputs import FleetInputs
from reconciler.dependencies.lock.format import ClusterLock, LockUpdate, PackageLock
from reconciler.dependencies.model.cluster import Catalogue, ClusterInputs
from reconciler.dependencies.model.packages import Ecosystem
from reconciler.expand.checks import check_downstream
from reconciler.expand.owners import with_defaults
from reconciler.expand.variants import DesiredVariant, stable_uid, variant_key
from reconciler.inventory.inventory import FieldPath, Inventory, PackageState, RepositoryView
from reconciler.names.ids import ObjectKey, ObjectName, Oid, PackageKey
from reconciler.names.objects import Commit
from reconciler.names.problems import Problem, defect_problem
from reconciler.records.state import LOCKS_DIRECTORY
from reconciler.resolve.ownership import current_draft, owner_text
from reconciler.resolve.resolution import Pin, ResolvedVariant
from reconciler.resolve.up_to_date import ENGINE, find_settled

TARGET_ANNOTATION = "reconciler.dev/dependencies"
"""On a Repository: the path of the package in it; it also chooses among several of one cluster."""

RETRY = "reconciler.dev/retry"
FORMAT_VERSION = 5
"""Raised when something else is generated from the same lock; then every cluster's is made once more."""
_OWNER = "dependencies@"


class DeliveryTarget(NamedTuple):
    """A package of a repository; `path` is inside the view."""

    view: RepositoryView
    path: str


class Delivery(Struct, frozen=True):
    """The generated package of one cluster, resolved as a variant.

    `inputs` and `lock` are what its manifests are generated from, `digest` is their digest ("" where the
    lock does not record its inputs). If the cluster is not known completely (`is_complete`), no file may
    be removed for not being generated. The tree of `resolved.pin` is the recorded one until the manifests
    are generated.
    """

    cluster: str
    target: DeliveryTarget
    inputs: ClusterInputs
    lock: ClusterLock
    is_complete: bool
    digest: str
    resolved: ResolvedVariant

    @property
    def owner(self) -> ObjectName:
        """The owner of the package."""
        return self.resolved.variant.key


class Deliveries(Struct, frozen=True):
    """The deliveries of a fleet; packages of the `stalled` owners stay as they are.

    `undelivered` are the clusters without a place for what is generated for them, and why.
    """

    items: tuple[Delivery, ...] = ()
    stalled: frozenset[ObjectKey] = frozenset()
    problems: tuple[Problem, ...] = ()
    undelivered: Mapping[str, Text] = field(default_factory=dict)


def resolve_deliveries(inventory: Inventory, clusters: FleetInputs, locks: LockUpdate) -> Deliveries:
    """Return the deliveries of every cluster with a lock. Pure, order-free."""
    # Where nobody installs anything any more, what must stay is delivered without what was needed.
    inputs = {
        scope.cluster: ClusterInputs((), Catalogue(), cluster=scope.cluster)
        for scope in locks.scopes
        if scope.finished
    }
    inputs |= {cluster_inputs.cluster: cluster_inputs for cluster_inputs in clusters.worlds}
    views = grouped((view.cluster, view) for _, view in sorted(inventory.repositories.items()))
    # Committer times of the manifests that request packages, and of the package index (law 5).
    times_by_path = {d.source.location.path: d.source.time for d in inventory.documents}
    index_time = max((item.source.time for item in inventory.index), default=0)
    items: list[Delivery] = []
    stalled: set[ObjectKey] = set()
    problems: list[Problem] = []
    undelivered: dict[str, Text] = {}
    # What people edit in a reviewed lock keeps its name: the content decides. Clusters share it.
    contents: dict[int, str] = {}

    def resolve(cluster: str, lock: ClusterLock) -> None:
        policy, control = inventory.policy, inventory.control
        path, homes = policy.dependencies.path, views.get(cluster, ())
        target = find_delivery_target(cluster, homes, path, policy.instance)
        if target is None:
            return
        if isinstance(target, Problem):
            problems.append(target)
        elif isinstance(target, Refused):
            generated = (p for p in lock.resolution.packages if not p.by_user)
            if any(package.instance.ecosystem is not Ecosystem.KPT for package in generated):
                undelivered[cluster] = target.why
        elif cluster not in inputs or not target.view.is_available:
            stalled.add(variant_key(delivery_owner(cluster, target)))
        else:
            incomplete = {"", cluster} & clusters.incomplete
            is_complete = control.readable and not control.broken and not incomplete
            is_complete &= cluster not in unsolved
            paths = {install.location.path for install in inputs[cluster].installs} & times_by_path.keys()
            times = (index_time, *(times_by_path[path] for path in paths))
            variant = _variant(cluster, target, times, inventory)
            body = lock.resolution
            content = contents[id(body)] = contents.get(id(body)) or body.digest
            digest = _lock_digest(lock.lock, content, variant.key, target, inventory, is_complete=is_complete)
            record = inventory.records.get(variant.key)
            pin = _pin(cluster, Oid(record.upstream_tree if record else ""), inventory)
            resolved = _resolve(variant, pin, digest, inventory)
            items.append(Delivery(cluster, target, inputs[cluster], lock, is_complete, digest, resolved))

    # Main may not have the lock yet that something was placed by: nothing goes while a part has no solution.
    unsolved = {scope.cluster for scope in locks.scopes if inventory.reviewed and not scope.finished}
    for scope in locks.scopes:
        try:
            with guard(f"manifests for cluster {scope.cluster}"):
                if scope.after is not None:
                    resolve(scope.cluster, scope.after)
        except DefectError as error:
            place = Location(f"{LOCKS_DIRECTORY}/{scope.cluster}.json")
            problems.append(defect_problem(error, place, subject=f"cluster {scope.cluster}"))
            stalled |= {variant_key(key) for key in inventory.records if cluster_of(key) == scope.cluster}
    return Deliveries(tuple(items), frozenset(stalled), tuple(sorted(problems)), undelivered)


def pin_delivery(delivery: Delivery, tree: Oid, inventory: Inventory, digest: str = "") -> ResolvedVariant:
    """Return the variant of a delivery, pinned to the tree that was generated.

    `digest` is that of its inputs, if the digest of the lock does not cover all of them.
    """
    pin = _pin(delivery.cluster, tree, inventory)
    return _resolve(delivery.resolved.variant, pin, digest or delivery.digest, inventory)


def _resolve(variant: DesiredVariant, pin: Pin, inputs: str, inventory: Inventory) -> ResolvedVariant:
    downstream = variant.spec.downstream or Downstream()
    view = inventory.repositories[ObjectName(variant.key.namespace, downstream.repo or "")]
    path = view.full_path(downstream.package or "")
    package = view.packages.get(path, PackageState(path))
    record = inventory.records.get(variant.key)
    commit = Commit(Oid(record.upstream_commit), 0) if record and record.upstream_commit else None
    base = replace(pin, commit=commit, tree=Oid(commit.oid)) if commit else None
    resolved = ResolvedVariant(
        variant=variant,
        view=view.key,
        downstream=PackageKey(view.url, path),
        pin=pin,
        base=base if package.main_tree else None,
        local=package.main_tree,
        draft=current_draft(package, view, inventory),
        draft_base=base,
        inputs=inputs,
    )
    return replace(resolved, settled=find_settled(resolved, record) if inputs else None)


def delivery_owner(cluster: str, target: DeliveryTarget) -> ObjectName:
    """Return the owner of a cluster's package: a name that no PackageVariant can have."""
    return ObjectName(target.view.key.namespace, f"{_OWNER}{cluster}")


def cluster_of(owner: ObjectName) -> str:
    """Return the cluster that a delivery is for, "" for the owner of any other package."""
    return owner.name.removeprefix(_OWNER) if owner.name.startswith(_OWNER) else ""


def delivery_trees(resolved: ResolvedVariant) -> Iterator[Oid]:
    """Yield the trees that rendering a delivery reads: the package on main, and a person's draft."""
    if resolved.settled is None:
        if resolved.local is not None:
            yield resolved.local
        if resolved.draft is not None and resolved.draft.append_only:
            yield resolved.draft.tree


def _variant(
    cluster: str, target: DeliveryTarget, times: tuple[int, ...], inventory: Inventory
) -> DesiredVariant:
    view, key = target.view, delivery_owner(cluster, target)
    annotations = view.manifest.metadata.annotations or {}
    downstream = Downstream(repo=view.key.name, package=target.path)
    return DesiredVariant(
        key=key,
        uid=stable_uid(inventory.policy.instance, *key),
        spec=with_defaults(PackageVariantSpec(downstream=downstream)),
        source=view.source,
        times=times,
        annotations={RETRY: annotations[RETRY]} if RETRY in annotations else {},
    )


def _pin(cluster: str, tree: Oid, inventory: Inventory) -> Pin:
    """Return the lock as an upstream. The content has no commit of its own, so its tree is the commit."""
    control = inventory.control
    return Pin(
        package=PackageKey(control.url, LOCKS_DIRECTORY),
        remote=control.remote,
        ref=f"{LOCKS_DIRECTORY}/{cluster}",
        revision=-1,
        commit=Commit(tree, 0),
        tree=tree,
        repository="control",
        name=LOCKS_DIRECTORY,
    )


def _lock_digest(
    lock: PackageLock,
    resolution: str,
    owner: ObjectName,
    target: DeliveryTarget,
    inventory: Inventory,
    *,
    is_complete: bool,
) -> str:
    """Return the digest of the inputs of a generated package, "" if the lock does not record its own.

    `resolution` is the digest of the lock's resolution.
    """
    policy = inventory.policy
    if not lock.input_digest:
        return ""
    return delivery_digest(
        FORMAT_VERSION,
        lock.input_digest,
        resolution,
        *(msgspec.json.encode(revision).decode() for revision in lock.revisions),
        owner_text(policy.instance, owner),
        policy.dependencies.shared_namespace,
        str(target.view.key),
        target.path,
        is_complete,
    )


def delivery_digest(*facts: str | int) -> str:
    """Return the digest of the inputs of a generated package."""
    return hashlib.sha256(orjson.dumps(["delivery", ENGINE, *facts])).hexdigest()


def find_delivery_target(
    cluster: str, views: Sequence[RepositoryView], path: str, instance: str
) -> DeliveryTarget | Problem | Refused | None:
    """Return the package for a cluster's manifests; None where the configuration turns delivery off.

    It is in the Repository that has the annotation, else in the only one of the cluster that is deployed
    from, else in the only one; without any of them it is refused.

    `views` are the repositories of the cluster, sorted; `path` is "" where nothing is to be delivered.
    """
    annotated = [view for view in views if TARGET_ANNOTATION in _annotations(view)]
    if len(annotated) > 1:
        return _duplicate_target(cluster, annotated)
    if annotated:
        return _checked_target(annotated[0], _annotations(annotated[0])[TARGET_ANNOTATION], instance)
    if not path:
        return None
    candidates = [view for view in views if view.deployment] or views
    if len(candidates) == 1:
        return _checked_target(candidates[0], path, instance)
    nothing = f"Nothing is delivered to cluster {cluster}"
    if candidates:
        names = ", ".join(view.key.name for view in candidates)
        hint = f"annotate one of its Repositories with {TARGET_ANNOTATION}: {path}"
        return Refused(f"{nothing}: it has several Repositories, {names}; {hint}")
    hint = f"register one, or remove its manifests, clusters/{cluster}"
    return Refused(f"{nothing}: no Repository belongs to it; {hint}")


def _checked_target(view: RepositoryView, path: str, instance: str) -> DeliveryTarget | Problem:
    field_path: FieldPath = ("metadata", "annotations", TARGET_ANNOTATION)
    hint = "Write the path of a package below the Repository's directory, `dependencies` for example."
    is_absolute = path.startswith("/")
    invalid = None if is_absolute else next(check_downstream(view, path, instance, field_path), None)
    if not is_absolute and invalid is None:
        return DeliveryTarget(view, path.strip("/"))
    message = invalid.message if invalid else f"package path {path!r} is not valid: it begins with a slash"
    return view.problem_at(Reason.INVALID_NAME, message, hint, *field_path)


def _duplicate_target(cluster: str, annotated: Iterable[RepositoryView]) -> Problem:
    first, *others = annotated
    names = ", ".join(f"{view.key} ({view.source.location})" for view in others)
    message = f"The manifests of cluster {cluster} would also go to Repository {names}"
    hint = f"Keep the annotation {TARGET_ANNOTATION} on one of them."
    path: FieldPath = ("metadata", "annotations", TARGET_ANNOTATION)
    return first.problem_at(Reason.DUPLICATE_DOWNSTREAM, message, hint, *path)


def _annotations(view: RepositoryView) -> Mapping[str, str]:
    return view.manifest.metadata.annotations or {}
