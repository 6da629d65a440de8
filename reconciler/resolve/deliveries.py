"""Delivery: what is generated for a cluster as a package like any other, whose upstream is the lock."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Self

import orjson

from reconciler.api.kptfile import KPTFILE
from reconciler.api.porch import Downstream, PackageVariantSpec
from reconciler.dependencies.emit import FORMAT_VERSION, GeneratedManifests, generate_manifests, has_generated
from reconciler.dependencies.lock.format import LOCKS_DIRECTORY, ClusterLock, Resolution
from reconciler.dependencies.model.cluster import ClusterInputs
from reconciler.errors import Problem
from reconciler.expand.authored import with_defaults
from reconciler.expand.names import stable_uid
from reconciler.expand.variants import Desired, DesiredVariant, variant_key
from reconciler.ids import ObjectKey, ObjectName, Oid, PackageKey
from reconciler.inventory import Commit, Inventory, PackageState, RepositoryView
from reconciler.krm.yaml import emit
from reconciler.objects import File, Files, tree_id
from reconciler.resolve.closure import Closed
from reconciler.resolve.downstreams import wanted_packages
from reconciler.resolve.ownership import current_draft, owner_text
from reconciler.resolve.places import Place, find_place
from reconciler.resolve.publications import find_publications
from reconciler.resolve.resolution import Needs, Pin, ResolvedVariant
from reconciler.resolve.settled import ENGINE, find_settled

RETRY = "reconciler.dev/retry"
_OWNER = "dependencies@"


@dataclass(frozen=True, slots=True)
class Delivery:
    """What is generated for one cluster, on its way to a package.

    `files` are the package as it is generated, its Kptfile too. Where it is not `complete`, nothing
    may be taken away for not being in it. `emission` and `lock` tell what each file is there for.
    """

    cluster: str
    resolved: ResolvedVariant
    files: Files = field(repr=False)
    emission: GeneratedManifests = field(repr=False)
    lock: Resolution = field(repr=False)
    complete: bool = True


@dataclass(frozen=True, slots=True)
class Deliveries:
    """What goes where; `stalled` are packages of whose content nothing can be said, so they stay."""

    items: tuple[Delivery, ...] = ()
    stalled: frozenset[ObjectKey] = frozenset()
    problems: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()


def find_deliveries(inventory: Inventory, closed: Closed) -> Deliveries:
    """Return what every cluster gets beside what people wrote. Pure, order-free.

    A cluster that needs nothing of that kind has no delivery, and then its package is proposed for
    deletion as any that nobody wants. Where a part of it is not understood, what stands there stays.
    """
    worlds = {world.cluster: world for world in closed.scopes.worlds}
    found = _Found(inventory, closed, _by_cluster(inventory), _Times.of_inventory(inventory))
    for scope in closed.decision.scopes:
        if scope.after is not None:
            found.add(scope.cluster, scope.after, worlds.get(scope.cluster))
    return Deliveries(
        tuple(found.items), frozenset(found.stalled), tuple(sorted(found.problems)), tuple(found.notes)
    )


def join_deliveries(closed: Closed, deliveries: Deliveries, inventory: Inventory) -> Closed:
    """Return the closure with the deliveries among its variants: from here on they are like others."""
    variants = tuple(delivery.resolved.variant for delivery in deliveries.items)
    desired = closed.desired
    desired = replace(
        desired,
        variants=tuple(sorted((*desired.variants, *variants), key=lambda variant: variant.key)),
        stalled=desired.stalled | deliveries.stalled,
        problems=tuple(sorted({*desired.problems, *deliveries.problems})),
    )
    published = find_publications(wanted_packages(Desired(variants), inventory), desired, inventory)
    resolution = closed.resolution
    resolution = replace(
        resolution,
        variants=(*resolution.variants, *(delivery.resolved for delivery in deliveries.items)),
        publications={**resolution.publications, **published},
        needs=_with_trees(resolution.needs, deliveries.items),
    )
    return replace(closed, desired=desired, resolution=resolution)


def delivery_key(cluster: str, place: Place) -> ObjectName:
    """Return the owner of a cluster's package: a name that no PackageVariant can have."""
    return ObjectName(place.view.key.namespace, f"{_OWNER}{cluster}")


def cluster_of(owner: ObjectName) -> str:
    """Return the cluster that a delivery is for, empty for the owner of any other package."""
    return owner.name.removeprefix(_OWNER) if owner.name.startswith(_OWNER) else ""


def delivery_trees(resolved: ResolvedVariant) -> Iterator[Oid]:
    """Yield the trees that a delivery's package is made from: what is there, and what a person drafted."""
    if resolved.settled is None:
        if resolved.local is not None:
            yield resolved.local
        if resolved.draft is not None and resolved.draft.append_only:
            yield resolved.draft.tree


class _Site(NamedTuple):
    """Where one cluster's manifests go, and whether everybody there is understood."""

    place: Place
    cluster: str
    complete: bool

    @property
    def key(self) -> ObjectName:
        """The owner of the package."""
        return delivery_key(self.cluster, self.place)


@dataclass(frozen=True, slots=True)
class _Times:
    """When the manifests that ask for packages, and the index of packages, last changed (law 5)."""

    by_path: Mapping[str, int]
    index: int = 0

    @classmethod
    def of_inventory(cls, inventory: Inventory) -> Self:
        """Return the times of all manifests, looked up once."""
        found = {one.source.location.path: one.source.time for one in inventory.documents}
        return cls(found, max((one.source.time for one in inventory.index), default=0))

    def of(self, world: ClusterInputs) -> tuple[int, ...]:
        """Return the times of what one cluster's manifests are made from."""
        asking = {install.location.path for install in world.installs}
        return (self.index, *(self.by_path[path] for path in asking if path in self.by_path))


def _by_cluster(inventory: Inventory) -> dict[str, tuple[RepositoryView, ...]]:
    found: dict[str, list[RepositoryView]] = {}
    for _, view in sorted(inventory.repositories.items()):
        found.setdefault(view.cluster, []).append(view)
    return {cluster: tuple(views) for cluster, views in found.items()}


@dataclass(slots=True)
class _Found:
    inventory: Inventory
    closed: Closed
    views: Mapping[str, tuple[RepositoryView, ...]]
    times: _Times
    items: list[Delivery] = field(default_factory=list)
    stalled: set[ObjectKey] = field(default_factory=set)
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, cluster: str, locked: ClusterLock, world: ClusterInputs | None) -> None:
        """Find out what one cluster gets, and where that goes."""
        policy = self.inventory.policy
        place = find_place(cluster, self.views.get(cluster, ()), policy.delivery.path, policy.instance)
        if isinstance(place, Problem):
            self.problems.append(place)
        elif isinstance(place, str):
            self.notes += [place] if place and has_generated(locked) else []
        elif world is None or not place.view.is_available:
            self._stall(cluster, place)
        else:
            self._make(_Site(place, cluster, self._is_sure(cluster)), locked, world)

    def _make(self, site: _Site, locked: ClusterLock, world: ClusterInputs) -> None:
        """Make what a cluster gets, unless a record tells it already: then nothing is generated (D15)."""
        policy = self.inventory.policy
        owner, shared = owner_text(policy.instance, site.key), policy.delivery.shared_namespace
        digest = _lock_digest(locked, owner, shared, site)
        if self._is_held(site, locked, digest, world):
            return
        emission = generate_manifests(world, locked, owner=owner, shared_namespace=shared)
        self.problems += emission.problems
        self.notes += [str(warning) for warning in emission.warnings]
        if not emission.files:
            if emission.kept or not site.complete:
                self._stall(site.cluster, site.place)
            return
        files: Files = {KPTFILE: _kptfile(site.cluster, site.place)}
        files = {**files, **{name: File.of(data) for name, data in emission.files.items()}}
        tree = tree_id(files)
        is_told = emission.problems or emission.warnings or emission.kept or not digest
        inputs = _digest(tree, owner, *sorted(emission.kept), site.complete) if is_told else digest
        resolved = self._resolved(site, tree, inputs, world)
        self.items.append(Delivery(site.cluster, resolved, files, emission, locked.resolution, site.complete))

    def _is_held(self, site: _Site, locked: ClusterLock, digest: str, world: ClusterInputs) -> bool:
        record = self.inventory.records.get(site.key)
        if record is None or not digest or record.inputs != digest:
            return False
        resolved = self._resolved(site, Oid(record.upstream_tree), digest, world)
        if resolved.settled is None:
            return False
        self.items.append(
            Delivery(site.cluster, resolved, {}, GeneratedManifests(), locked.resolution, site.complete)
        )
        return True

    def _resolved(self, site: _Site, tree: Oid, inputs: str, world: ClusterInputs) -> ResolvedVariant:
        """Return a cluster's package as a variant whose upstream is made here."""
        inventory, view = self.inventory, site.place.view
        path = view.full_path(site.place.path)
        package = view.packages.get(path, PackageState(path))
        pin, record = _pin(site.cluster, tree, inventory), inventory.records.get(site.key)
        made_of = Commit(Oid(record.upstream_commit), 0) if record and record.upstream_commit else None
        base = replace(pin, commit=made_of, tree=Oid(made_of.oid)) if made_of else None
        resolved = ResolvedVariant(
            variant=_variant(site, self.times.of(world), inventory),
            view=view.key,
            downstream=PackageKey(view.url, path),
            pin=pin,
            base=base if package.main_tree else None,
            local=package.main_tree,
            draft=current_draft(package, view, inventory),
            draft_base=base,
            inputs=inputs,
        )
        return replace(resolved, settled=find_settled(resolved, record))

    def _stall(self, cluster: str, place: Place) -> None:
        self.stalled.add(variant_key(delivery_key(cluster, place)))

    def _is_sure(self, cluster: str) -> bool:
        control = self.inventory.control
        doubtful = {"", cluster} & self.closed.scopes.incomplete
        return control.readable and not control.broken and not doubtful


def _variant(site: _Site, times: tuple[int, ...], inventory: Inventory) -> DesiredVariant:
    view = site.place.view
    annotations = view.manifest.metadata.annotations or {}
    downstream = Downstream(repo=view.key.name, package=site.place.path)
    return DesiredVariant(
        key=site.key,
        uid=stable_uid(inventory.policy.instance, *site.key),
        spec=with_defaults(PackageVariantSpec(downstream=downstream)),
        source=view.source,
        times=times,
        annotations={RETRY: annotations[RETRY]} if RETRY in annotations else {},
    )


def _pin(cluster: str, tree: Oid, inventory: Inventory) -> Pin:
    """Return the lock as an upstream: its content has no commit of its own, its tree stands for it."""
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


def _kptfile(cluster: str, place: Place) -> File:
    value = {
        "apiVersion": "kpt.dev/v1",
        "kind": "Kptfile",
        "metadata": {
            "name": place.path.rpartition("/")[2],
            "annotations": {"config.kubernetes.io/local-config": "true"},
        },
        "info": {"description": f"What packages of cluster {cluster} need and nobody wrote a manifest for."},
    }
    return File.of(f"{emit(value)}\n".encode())


def _lock_digest(locked: ClusterLock, owner: str, shared_namespace: str, site: _Site) -> str:
    """Return the digest of all that is generated from, empty where the lock does not know its inputs."""
    lock = locked.lock
    if not lock.input_digest:
        return ""
    revisions = [revision.model_dump_json() for revision in lock.revisions]
    place = (str(site.place.view.key), site.place.path, site.complete)
    return _digest(
        FORMAT_VERSION, lock.input_digest, lock.resolution, *revisions, owner, shared_namespace, *place
    )


def _digest(*facts: str | int) -> str:
    return hashlib.sha256(orjson.dumps(["delivery", ENGINE, *facts])).hexdigest()


def _with_trees(needs: Needs, items: Iterable[Delivery]) -> Needs:
    trees: dict[str, frozenset[Oid]] = dict(needs.trees)
    for delivery in items:
        url = delivery.resolved.downstream.url
        more = frozenset(delivery_trees(delivery.resolved))
        if more:
            trees[url] = trees.get(url, frozenset()) | more
    return Needs(trees)
