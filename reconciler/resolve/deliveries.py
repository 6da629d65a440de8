"""Delivery: what is generated for a cluster as a package like any other, whose upstream is the lock."""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

import orjson

from reconciler.api.kptfile import KPTFILE
from reconciler.api.porch import Downstream, PackageVariantSpec
from reconciler.dependencies.decision import ScopeDecision
from reconciler.dependencies.emit import Emission, emit_scope
from reconciler.dependencies.lockfile import LOCKS_DIRECTORY, Resolution
from reconciler.dependencies.world import World
from reconciler.errors import Problem
from reconciler.expand.authored import with_defaults
from reconciler.expand.names import stable_uid
from reconciler.expand.owners import variant_key
from reconciler.expand.variants import Desired, DesiredVariant
from reconciler.ids import ObjectKey, ObjectName, Oid, PackageKey
from reconciler.inventory import Commit, Inventory, PackageState
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
    emission: Emission = field(repr=False)
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
    found = _Found(inventory, closed)
    for scope in closed.decision.scopes:
        if scope.after is not None:
            found.add(scope, worlds.get(scope.cluster))
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
        if resolved.draft is not None and resolved.draft.touched:
            yield resolved.draft.tree


@dataclass(slots=True)
class _Found:
    inventory: Inventory
    closed: Closed
    items: list[Delivery] = field(default_factory=list)
    stalled: set[ObjectKey] = field(default_factory=set)
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, scope: ScopeDecision, world: World | None) -> None:
        """Find out what one cluster gets, and where that goes."""
        place = find_place(scope.cluster, self.inventory)
        if isinstance(place, Problem):
            self.problems.append(place)
            return
        if world is None or scope.after is None:
            if isinstance(place, Place):
                self._stall(scope.cluster, place)
            return
        policy = self.inventory.policy
        key = delivery_key(scope.cluster, place) if isinstance(place, Place) else ObjectName("", "")
        owner = owner_text(policy.instance, key)
        emission = emit_scope(
            world, scope.after, owner=owner, shared_namespace=policy.delivery.shared_namespace
        )
        self.notes += [str(warning) for warning in emission.warnings]
        if isinstance(place, str):
            self.notes += [place] if place and emission.files else []
            return
        self.problems += emission.problems
        complete = self._is_sure(scope.cluster)
        unknown = not emission.files and (emission.kept or not complete)
        if unknown or not place.view.is_available:
            self._stall(scope.cluster, place)
        elif emission.files:
            resolved, files = _made(place, world, emission, self.inventory, complete=complete)
            lock = scope.after.resolution
            self.items.append(Delivery(scope.cluster, resolved, files, emission, lock, complete))

    def _stall(self, cluster: str, place: Place) -> None:
        self.stalled.add(variant_key(delivery_key(cluster, place)))

    def _is_sure(self, cluster: str) -> bool:
        control = self.inventory.control
        doubtful = {"", cluster} & self.closed.scopes.doubtful
        return control.readable and not control.broken and not doubtful


def _made(
    place: Place, world: World, emission: Emission, inventory: Inventory, *, complete: bool
) -> tuple[ResolvedVariant, Files]:
    """Return a cluster's package as a variant whose upstream is made here, and that upstream's files."""
    view, cluster = place.view, world.cluster
    key, path = delivery_key(cluster, place), view.full_path(place.path)
    files: Files = {KPTFILE: _kptfile(cluster, place)}
    files = {**files, **{name: File.of(data) for name, data in emission.files.items()}}
    variant = _variant(key, place, _times(world, inventory), inventory)
    package = view.packages.get(path, PackageState(path))
    pin = _pin(cluster, tree_id(files), inventory)
    record = inventory.records.get(key)
    made_of = Commit(Oid(record.upstream_commit), 0) if record and record.upstream_commit else None
    base = replace(pin, commit=made_of, tree=Oid(made_of.oid)) if made_of else None
    resolved = ResolvedVariant(
        variant=variant,
        view=view.key,
        downstream=PackageKey(view.url, path),
        pin=pin,
        base=base if package.main_tree else None,
        local=package.main_tree,
        draft=current_draft(package, view, inventory),
        draft_base=base,
        inputs=_inputs(
            pin.tree, owner_text(inventory.policy.instance, key), *sorted(emission.kept), complete
        ),
    )
    return replace(resolved, settled=find_settled(resolved, record)), files


def _variant(key: ObjectName, place: Place, times: tuple[int, ...], inventory: Inventory) -> DesiredVariant:
    annotations = place.view.manifest.metadata.annotations or {}
    downstream = Downstream(repo=place.view.key.name, package=place.path)
    return DesiredVariant(
        key=key,
        uid=stable_uid(inventory.policy.instance, *key),
        spec=with_defaults(PackageVariantSpec(downstream=downstream)),
        source=place.view.source,
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


def _times(world: World, inventory: Inventory) -> tuple[int, ...]:
    """Return when the manifests that ask for packages, and the index of packages, last changed."""
    asking = {install.location.path for install in world.installs}
    times = [
        document.source.time for document in inventory.documents if document.source.location.path in asking
    ]
    return (*times, *(document.source.time for document in inventory.index))


def _inputs(*facts: str | bool) -> str:
    return hashlib.sha256(orjson.dumps(["delivery", ENGINE, *facts])).hexdigest()


def _with_trees(needs: Needs, items: Iterable[Delivery]) -> Needs:
    trees: dict[str, frozenset[Oid]] = dict(needs.trees)
    for delivery in items:
        url = delivery.resolved.downstream.url
        more = frozenset(delivery_trees(delivery.resolved))
        if more:
            trees[url] = trees.get(url, frozenset()) | more
    return Needs(trees)
