"""Find the losses of proposals: compare main with what is proposed, and count in the snapshots. Pure."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import chain

from msgspec import Struct, field

from reconciler.base.errors import Location
from reconciler.base.reasons import Reason
from reconciler.dependencies.catalog.index import read_index
from reconciler.dependencies.dialects import read_manifest
from reconciler.dependencies.lock.format import LockUpdate
from reconciler.dependencies.model.instances import Resolved
from reconciler.dependencies.model.packages import Candidate, Ecosystem, Install
from reconciler.functions.pipeline import waits_for_functions
from reconciler.inventory.inventory import Inventory, RepositoryRole, Source
from reconciler.inventory.snapshot import ALL_NAMESPACES, Snapshot, SnapshotObject
from reconciler.names.filled import changed_paths, masked_digest
from reconciler.names.ids import GroupKind, NamedObject, Oid, PackageKey, group_of
from reconciler.names.objects import Files
from reconciler.names.substitution import OwnValues
from reconciler.plan.changes import Change, Op, WriteRemoval
from reconciler.plan.context import PlanContext, PlanTarget
from reconciler.plan.deletions import policy_at_end
from reconciler.plan.impact import CLAIM, NAMESPACE, Loss, ResourceId, resources_in
from reconciler.render.sharing import set_values
from reconciler.resolve.fleet import ResolvedFleet
from reconciler.resolve.ownership import ORPHAN, find_owner
from reconciler.resolve.resolution import Needs

_NAMED = 5
"""Names of objects that a loss keeps; all of them are counted."""
_CRD = "CustomResourceDefinition.apiextensions.k8s.io"
_XRD = "CompositeResourceDefinition.apiextensions.crossplane.io"
_CRDS = ("apiextensions.k8s.io/v1", "CustomResourceDefinition")
_MARKS = (
    *(b"ResourceDefinition", b"Namespace", b"PersistentVolumeClaim"),
    *(b"pkg.crossplane.io", b"packaging.carvel.dev"),
)
"""Bytes without which a file has nothing that takes others with it: most files need not be parsed."""
_NAMING = ("group", "names", "claimNames")
"""Fields of a definition that name its kinds."""
_PROVIDER = "Provider"
_INSTALLERS = frozenset({Ecosystem.XPKG, Ecosystem.CARVEL})


def loss_trees(fleet: ResolvedFleet, inventory: Inventory) -> Needs:
    """Return the trees that losses are read from: main's and those of drafts, where something is proposed."""
    settled = (d.resolved for d in fleet.deliveries.items if d.resolved.settled is not None)
    desired = {*fleet.resolution.downstreams, *(resolved.downstream for resolved in settled)}
    places = {v.key: key for key, variants in fleet.resolution.downstreams.items() for v in variants}
    places |= {item.owner: item.resolved.downstream for item in fleet.deliveries.items}
    records = inventory.records.items()
    renamed = {record.moved_from: places[key] for key, record in records if key in places}
    places |= {key: renamed[str(key)] for key, _ in records if key not in places and str(key) in renamed}
    views = [view for view in inventory.views.values() if view.role is RepositoryRole.PLANNED]
    # A former place may be on another branch: there a package of the same path is another one.
    there = [view for view in views if view.former is None]
    main = {PackageKey(view.url, path): p.main_tree for view in there for path, p in view.packages.items()}
    trees: dict[str, set[Oid | None]] = {}
    for view in views:
        for path, package in view.packages.items():
            key, owner = PackageKey(view.url, path), None
            if key not in desired or view.former is not None:
                owner = find_owner(package.main_header, key, inventory)
            if package.main_tree is not None and (
                package.drafts or package.deletion is not None or owner is not None
            ):
                drafts = (draft.tree for draft in package.drafts)
                trees.setdefault(view.url, set()).update((package.main_tree, *drafts))
            if owner in places:
                # What a package that moved has at its new place is not lost with the old one.
                trees.setdefault(places[owner].url, set()).add(main.get(places[owner]))
    return Needs({url: frozenset(filter(None, oids)) for url, oids in trees.items()})


_Takers = Mapping[ResourceId, Mapping[str, object]]
"""Resources that take others with them, by their identities; of definitions what names their kinds."""


class LossReader(Struct):
    """Finds losses; what several packages have in common, but for their own values, is read once."""

    inventory: Inventory
    locks: LockUpdate
    _removable: dict[bytes, tuple[_Takers, bool]] = field(default_factory=dict)
    """By the masked digest of a file, and whether they have the places of own values."""
    _candidates: tuple[Candidate, ...] | None = None

    def of_changes(
        self, context: PlanContext, changes: Mapping[PackageKey, Change], contents: Mapping[Oid, Files]
    ) -> Mapping[PackageKey, tuple[Loss, ...]]:
        """Return what merging the proposal of each package takes with it; no entry where nothing is."""
        losses = {
            key: tuple(sorted(set(self._of_change(change, context.targets[key], context, contents))))
            for key, change in changes.items()
        }
        return {key: found_losses for key, found_losses in losses.items() if found_losses}

    def of_locks(self) -> Iterator[Loss]:
        """Yield what goes with packages that the locks do not have any more, or have in other versions."""
        for scope in self.locks.scopes:
            if scope.before is None or not scope.changed:
                continue
            after = scope.after.resolution.packages if scope.after else ()
            versions = {_resource(package): package.version for package in after}
            for package in scope.before.resolution.packages:
                resource, (ecosystem, source) = _resource(package), package.instance.package
                if ecosystem in _INSTALLERS and package.kind:
                    version = versions.get(resource)
                    kinds = self._kinds_of(
                        scope.cluster, (ecosystem, source), package.version, version, resource
                    )
                    heir = _heir(after, ecosystem, source, resource)
                    yield from self._with_kinds(scope.cluster, resource.object, kinds, heir)

    # Removed objects

    def _of_change(
        self, change: Change, target: PlanTarget, context: PlanContext, contents: Mapping[Oid, Files]
    ) -> Iterator[Loss]:
        main = target.package.main_tree
        after = _proposed(change, target, contents) if main is not None else None
        if change.reason is Reason.DELETION_GUARD and change.variant is not None:
            # Consent is asked for what is deleted with it.
            after = {} if policy_at_end(change.variant, context) != ORPHAN else None
        if main is None or after is None:
            return
        cluster, before = target.view.cluster, contents.get(main)
        if before is None or isinstance(after, str):
            yield Loss(cluster, NamedObject("package", "", change.package.path), "")
            return
        if waits_for_functions(change.conflicts, after):
            return
        owner = target.owner
        if owner is not None and owner not in context.variants:
            owner = context.moves.get(owner, owner)
        moved = context.resolved.get(owner) if owner is not None else None
        place = context.targets.get(moved.downstream) if moved is not None else None
        elsewhere: Files = {}
        if place is not None and place.key != target.key and place.view.cluster == cluster:
            elsewhere = contents.get(place.package.main_tree or Oid(""), {})
        # Of a file that stays as it is nothing goes.
        resolved = context.resolved.get(change.variant) if change.variant is not None else None
        values = set_values(resolved.variant.spec) if resolved is not None else ()
        own_values = OwnValues.of((*change.own_names, *values))
        old = self._all(before, changed_paths(before, after), own_values)
        sides = (elsewhere, after) if old else ()
        new = dict(chain.from_iterable(self._all(side, side, own_values).items() for side in sides))
        named = {resource._replace(namespace="") for resource in new}
        for resource, value in sorted(old.items(), key=lambda item: item[0]):
            # Who applies a resource without a namespace may have put it there before.
            bare = resource._replace(namespace="")
            if {resource, bare} & new.keys() or (resource == bare and bare in named):
                yield from self._of_installs(cluster, resource, value, new.get(resource, value))
            else:
                yield from self._of_resource(cluster, resource, value)

    def _all(self, files: Files, paths: Iterable[str], own_values: OwnValues) -> _Takers:
        """Return the resources of these files that take others with them."""
        takers: dict[ResourceId, Mapping[str, object]] = {}
        for path in sorted(paths):
            if path in files and path.endswith((".yaml", ".yml", ".json")):
                takers.update(self._takers(files, path, own_values))
        return takers

    def _takers(self, files: Files, path: str, own_values: OwnValues) -> _Takers:
        digest, fill = masked_digest(files, path, own_values), own_values.fill_text
        if digest not in self._removable:
            data = files[path].data
            takers: _Takers = dict(_removable(data)) if any(mark in data for mark in _MARKS) else {}
            parts = [[*name, body] for name, body in takers.items()]
            has_values = own_values.may_be_in(parts)
            if has_values and "\\x00" in repr(parts):
                return takers
            if has_values:
                takers = {
                    ResourceId(*map(own_values.mask_text, name)): own_values.mask_value(body)
                    for name, body in takers.items()
                }
            self._removable[digest] = takers, has_values
        takers, has_values = self._removable[digest]
        if not has_values:
            return takers
        return {ResourceId(*map(fill, name)): own_values.fill_value(body) for name, body in takers.items()}

    def _of_resource(self, cluster: str, resource: ResourceId, value: Mapping[str, object]) -> Iterator[Loss]:
        if resource.group_kind == NAMESPACE:
            yield from self._of_namespace(cluster, resource.name)
        elif resource.group_kind == CLAIM:
            yield Loss(cluster, resource.object, CLAIM, 1, is_complete=True)
        elif resource.group_kind in (_CRD, _XRD):
            yield from self._with_kinds(cluster, resource.object, _defined_kinds(value))
        else:
            yield from self._of_installs(cluster, resource, value)

    def _of_installs(
        self,
        cluster: str,
        resource: ResourceId,
        value: Mapping[str, object],
        after: Mapping[str, object] | None = None,
    ) -> Iterator[Loss]:
        """Yield the losses with what installs a package: removed, or asking for another version `after`."""
        lock = next((scope.after for scope in self.locks.scopes if scope.cluster == cluster), None)
        packages = lock.resolution.packages if lock is not None else ()
        rid = ResourceId(resource.group_kind.partition(".")[0], resource.namespace, resource.name)
        new = next(map(_version, _installs(after or {})), None)
        if after is None and rid in (_resource(p) for p in packages if p.by_user):
            return  # a manifest of a person has the object now
        for install in _installs(value):
            ecosystem, source = install.need.id
            kinds = self._kinds_of(cluster, (ecosystem, source), _version(install), new, rid)
            if after is None and (observed := self._observed(cluster, rid)):
                kinds = (kinds or frozenset()) | observed
            yield from self._with_kinds(cluster, rid.object, kinds, _heir(packages, ecosystem, source, rid))

    def _of_namespace(self, cluster: str, name: str) -> Iterator[Loss]:
        snapshot, cause = self.snapshot_of(cluster), NamedObject(NAMESPACE, "", name)
        kinds: dict[GroupKind, set[str]] = {}
        for (api_version, kind), objects in snapshot.objects.items():
            inside = {item.name for item in objects if item.namespace == name}
            if inside:
                kinds.setdefault(GroupKind(group_of(api_version), kind), set()).update(inside)
        for group_kind, inside in sorted(kinds.items()):
            names = tuple(f"{name}/{member}" for member in sorted(inside)[:_NAMED])
            is_complete = self._is_complete(snapshot, group_kind, name)
            yield Loss(cluster, cause, str(group_kind), len(inside), is_complete=is_complete, names=names)
        yield Loss(cluster, cause, "")

    # Objects of kinds

    def snapshot_of(self, cluster: str) -> Snapshot:
        """Return the snapshot of exactly this cluster; one without a name counts where there is no other."""
        snapshot = self.inventory.snapshot.exactly(cluster)
        clusters = {view.cluster for view in self.inventory.repositories.values() if view.deployment}
        is_named = snapshot.cluster or clusters <= {cluster}
        return snapshot if is_named else Snapshot(cluster=cluster)

    def _with_kinds(
        self, cluster: str, cause: NamedObject, kinds: Collection[str] | None, heir: str = ""
    ) -> Iterator[Loss]:
        """Yield the loss of each kind; of kinds that are not known (None) there is one."""
        if kinds is None:
            yield Loss(cluster, cause, "", heir=heir)
            return
        snapshot = self.snapshot_of(cluster)
        for kind in sorted(kinds):
            name, _, group = kind.partition(".")
            names = {
                f"{item.namespace}/{item.name}" if item.namespace else item.name
                for (api_version, kind_there), objects in snapshot.objects.items()
                if kind_there == name and group_of(api_version) == group
                for item in objects
            }
            is_complete = self._is_complete(snapshot, GroupKind(group, name), ALL_NAMESPACES)
            examples = tuple(sorted(names)[:_NAMED])
            yield Loss(cluster, cause, kind, len(names), is_complete=is_complete, names=examples, heir=heir)

    def _is_complete(self, snapshot: Snapshot, kind: GroupKind, namespace: str) -> bool:
        taken = snapshot.time if snapshot.taken is None else snapshot.taken
        age_s = self.inventory.control.commit.time - taken
        return snapshot.is_complete(kind, namespace) and age_s <= self.inventory.policy.snapshot.max_age_s

    # Kinds of packages

    def _kinds_of(
        self, cluster: str, package: tuple[str, str], version: str, after: str | None, owner: ResourceId
    ) -> frozenset[str] | None:
        """Return the kinds that go with a package, or with its version; None if they are not known.

        With its object, the `owner`, those of packages go that it installed before, too. With another
        version (`after`) a Provider or Configuration keeps what only the old one has, as it owns it too.
        A PackageInstall removes it.
        """
        ecosystem, name = package
        if after is not None:
            is_kept = ecosystem != Ecosystem.CARVEL or after == version
            old, new = (self._indexed(ecosystem, name, number) for number in (version, after))
            return frozenset() if is_kept or old is None or new is None else old - new
        kinds, of = self._indexed(ecosystem, name, version), f"{owner.group_kind}/{owner.name}"
        for scope in self.locks.scopes:
            for lock in (scope.before, scope.after) if scope.cluster == cluster else ():
                table = lock.resolution.custom_resource_definitions if lock is not None else {}
                for kind, entry in table.items():
                    if (entry.package and entry.package.package == package) or entry.object == of:
                        kinds = (kinds or frozenset()) | {kind}
        return kinds

    def _indexed(self, ecosystem: str, name: str, version: str) -> frozenset[str] | None:
        """Return the kinds of a version by the index ("" for all versions); None if it has none of them."""
        if self._candidates is None:
            self._candidates = read_index(self.inventory.index).candidates
        every = [
            {str(gvk.group_kind) for gvk in candidate.provides if gvk.version}
            for candidate in self._candidates
            if candidate.id.ecosystem == ecosystem and name in (candidate.id.name, *candidate.names)
            if version in ("", candidate.version.text)
            # A Provider without a kind does not exist: the index has its manifest alone.
            if candidate.provides or candidate.kind != _PROVIDER
        ]
        return frozenset().union(*every) if every else None

    def _observed(self, cluster: str, owner: ResourceId) -> frozenset[str]:
        """Return the kinds of definitions in the snapshot that name an owner in their references."""
        return frozenset(
            kind
            for crd in self.snapshot_of(cluster).of_kind(*_CRDS)
            if _is_owner(crd, owner)
            for kind in _defined_kinds(crd.body) or ()
        )


def _proposed(change: Change, target: PlanTarget, contents: Mapping[Oid, Files]) -> Files | Oid | None:
    """Return the package as the proposal has it: its tree where it is unread, None without a proposal."""
    written, draft = change.written, target.draft
    if any(isinstance(write, WriteRemoval) for write in change.writes):
        return {}
    if written is not None:
        return written.files or ({} if written.tree is None else contents.get(written.tree, written.tree))
    if change.reason in (Reason.DELETED_BY_PERSON, Reason.DELETION_PROPOSED):
        return {}
    if draft is None or change.op is Op.CLOSE or draft.ref in change.removed:
        return None
    if change.reason is Reason.REJECTED or draft.tree is None:
        return None
    return contents.get(draft.tree, draft.tree)


def _removable(data: bytes) -> Iterator[tuple[ResourceId, Mapping[str, object]]]:
    """Yield the resources of a file that take others with them."""
    for resource, body in resources_in(data):
        if resource.group_kind in (_CRD, _XRD, NAMESPACE):
            spec = body.get("spec")
            names = {k: spec[k] for k in _NAMING if k in spec} if isinstance(spec, Mapping) else spec
            yield resource._replace(namespace=""), {"spec": names}
        elif resource.group_kind == CLAIM or _installs(body):
            yield resource, body


def _installs(value: Mapping[str, object]) -> tuple[Install, ...]:
    if group_of(str(value.get("apiVersion") or "")) not in _GROUPS:
        return ()
    reading = read_manifest(value, Source(Location(""), observed=True))
    return reading.installs if reading is not None else ()


_GROUPS = frozenset({"pkg.crossplane.io", "packaging.carvel.dev"})


def _defined_kinds(value: Mapping[str, object]) -> frozenset[str] | None:
    """Return the kinds that a definition makes, those of claims too; None where it cannot be understood."""
    spec = value.get("spec")
    if not isinstance(spec, Mapping):
        return None
    group, names = spec.get("group"), [spec.get(key) for key in ("names", "claimNames")]
    kinds = [item.get("kind") for item in names if isinstance(item, Mapping)]
    if not isinstance(group, str) or not kinds or not all(isinstance(kind, str) for kind in kinds):
        return None
    return frozenset(str(GroupKind(group, str(kind))) for kind in kinds)


def _version(install: Install) -> str:
    """Return the version that a manifest asks for, "" where it may be any."""
    text = install.need.range.text.lstrip("=")
    return "" if text.startswith("sha256:") else text


def _is_owner(crd: SnapshotObject, owner: ResourceId) -> bool:
    metadata = crd.body.get("metadata")
    references = metadata.get("ownerReferences") if isinstance(metadata, Mapping) else None
    return any(
        isinstance(ref, Mapping) and (ref.get("kind"), ref.get("name")) == (owner.group_kind, owner.name)
        for ref in (references if isinstance(references, list) else ())
    )


def _resource(package: Resolved) -> ResourceId:
    """Return the object of a locked package."""
    return ResourceId(package.kind, package.instance.slot.namespace, package.name)


def _heir(packages: Iterable[Resolved], ecosystem: str, name: str, removed: ResourceId) -> str:
    """Return another object that installs the package of a removed one, "" without one."""
    for package in packages:
        resource = _resource(package)
        is_same = package.instance.package == (ecosystem, name) and resource.namespace == removed.namespace
        if is_same and resource != removed:
            return str(resource)
    return ""
