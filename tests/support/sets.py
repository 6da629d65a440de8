"""Worlds for expansion, built from plain values: one set, a snapshot, registered repositories."""

from collections.abc import Mapping
from typing import Any

from reconciler.api.porch import (
    PACKAGE_VARIANT,
    PACKAGE_VARIANT_SET,
    REPOSITORY,
    GitRepository,
    PackageVariant,
    PackageVariantSet,
    Repository,
)
from reconciler.base.errors import Location
from reconciler.expand import expand
from reconciler.expand.variants import spec_data
from reconciler.inventory.inventory import (
    Commit,
    Control,
    Inventory,
    PackageRevision,
    PackageState,
    RepositoryView,
    Source,
    Sourced,
)
from reconciler.inventory.snapshot import Snapshot, SnapshotObject
from reconciler.names.ids import GroupKind, Lifecycle, ObjectName, Oid
from reconciler.policy import Policy
from reconciler.records.state import PackageVariantRecord
from tests.support.values import replace

NAMESPACE = "default"
KIND = ("example.dev/v1", "Cluster")
COMMIT = Commit(Oid("1" * 40), 1_000_000)
TREE = Oid("2" * 40)

FIVE_EXPRESSIONS: Mapping[str, Any] = {
    "downstream": {"repoExpr": "'edge'", "packageExpr": "'site-' + target.name"},
    "labelExprs": [
        {"key": "region", "valueExpr": "target.labels.region"},
        {"key": "tier", "valueExpr": "has(target.labels.tier) ? target.labels.tier : 'none'"},
    ],
    "packageContext": {"dataExprs": [{"key": "where", "valueExpr": "repository.name + '/' + target.name"}]},
}


def source(path: str = "sets.yaml", line: int = 1, time: int = 10) -> Source:
    """Return a place without marks."""
    return Source(Location(path, line), time)


def repository(name: str, *, namespace: str = NAMESPACE, **fields: Any) -> RepositoryView:
    """Return a registered repository; `labels`, `annotations` and `deployment` are of its manifest."""
    metadata = {key: fields.pop(key) for key in ("labels", "annotations") if key in fields}
    head = {"apiVersion": REPOSITORY, "kind": "Repository", "metadata": {"name": name, **metadata}}
    spec = {"deployment": fields.pop("deployment", False)}
    manifest = Repository.model_validate({**head, "spec": spec})
    given = {"url": f"host/{name}", "directory": "", "source": source("repositories.yaml"), **fields}
    return RepositoryView(
        ObjectName(namespace, name), remote=f"https://host/{name}", branch="main", manifest=manifest, **given
    )


def registered(name: str, *, git: str = "", **fields: Any) -> RepositoryView:
    """Return a repository that is registered with an address, by default `https://host/NAME`."""
    view = repository(name, **fields)
    address = GitRepository(repo=git or f"https://host/{name}")
    spec = view.manifest.spec.model_copy(update={"git": address})
    return replace(view, manifest=view.manifest.model_copy(update={"spec": spec}))


def a_package(path: str = "web", /, **fields: Any) -> PackageState:
    """Return a package of a repository, of which nothing is there unless told otherwise."""
    return PackageState(path, **fields)


def blueprints(*packages: str, revisions: int = 2) -> RepositoryView:
    """Return the upstream repository with published revisions v1, v2, ... of each package."""
    states = {
        package: a_package(
            package,
            main_tree=TREE,
            published=tuple(
                PackageRevision(
                    package, f"v{n}", n, Lifecycle.PUBLISHED, f"refs/tags/{package}/v{n}", COMMIT, TREE
                )
                for n in range(1, revisions + 1)
            ),
        )
        for package in packages or ("app",)
    }
    return repository("blueprints", packages=states)


def package_set(
    name: str = "fleet", *, targets: Any = None, at: Source | None = None, **metadata: Any
) -> Sourced[PackageVariantSet]:
    """Return a set over blueprints/app revision 1; `spec` replaces its whole spec."""
    spec = metadata.pop("spec", None) or {
        "upstream": {"repo": "blueprints", "package": "app", "revision": 1},
        "targets": targets or [],
    }
    namespace = metadata.pop("namespace", NAMESPACE)
    manifest = PackageVariantSet.model_validate(
        {
            "apiVersion": PACKAGE_VARIANT_SET,
            "kind": "PackageVariantSet",
            "metadata": {"name": name, "namespace": namespace, **metadata},
            "spec": spec,
        }
    )
    return Sourced(ObjectName(namespace, name), manifest, at or source())


def variant(name: str = "mine", *, at: Source | None = None, **spec: Any) -> Sourced[PackageVariant]:
    """Return an authored PackageVariant from blueprints/app to edge/mine."""
    metadata = {"name": name, **spec.pop("metadata", {})}
    whole = {
        "upstream": {"repo": "blueprints", "package": "app", "revision": 1},
        "downstream": {"repo": "edge", "package": "mine"},
        **spec,
    }
    manifest = PackageVariant.model_validate(
        {"apiVersion": PACKAGE_VARIANT, "kind": "PackageVariant", "metadata": metadata, "spec": whole}
    )
    return Sourced(ObjectName(NAMESPACE, name), manifest, at or source("variants.yaml"))


def cluster(name: str, *, namespace: str = NAMESPACE, line: int = 1, **labels: str) -> SnapshotObject:
    """Return an object of the snapshot."""
    location = Location("snapshot/clusters.yaml", line)
    return SnapshotObject(*KIND, namespace, name, labels, {}, {}, location)


def snapshot(*objects: SnapshotObject, complete: bool = True, **fields: Any) -> Snapshot:
    """Return a snapshot of clusters, listed whole in every namespace unless told otherwise."""
    by_kind: dict[tuple[str, str], tuple[SnapshotObject, ...]] = {}
    for item in objects:
        by_kind[item.api_version, item.kind] = (*by_kind.get((item.api_version, item.kind), ()), item)
    listed = frozenset({(GroupKind("example.dev", "Cluster"), NAMESPACE)}) if complete else frozenset()
    return Snapshot(
        **{"present": True, "objects": by_kind, "complete": listed, "time": COMMIT.time, **fields}
    )


def world(*manifests: Any, views: tuple[RepositoryView, ...] | None = None, **fields: Any) -> Inventory:
    """Return an inventory of sets and variants over blueprints and one downstream, `edge`."""
    registered = (blueprints(), repository("edge")) if views is None else views
    return Inventory(
        fields.pop("policy", Policy()),
        fields.pop("control", Control("host/control", "https://host/control", COMMIT)),
        variants=tuple(m for m in manifests if isinstance(m.manifest, PackageVariant)),
        sets=tuple(m for m in manifests if isinstance(m.manifest, PackageVariantSet)),
        repositories={view.key: view for view in registered},
        **fields,
    )


def select(template: Mapping[str, Any] | None = None, **labels: str) -> dict[str, Any]:
    """Return a target that selects clusters by labels."""
    selector: dict[str, Any] = {"apiVersion": KIND[0], "kind": KIND[1]}
    if labels:
        selector["matchLabels"] = labels
    target: dict[str, Any] = {"objectSelector": selector}
    return target if template is None else {**target, "template": template}


def record_all(inventory: Inventory) -> dict[ObjectName, PackageVariantRecord]:
    """Return the records that applying everything desired would leave."""
    return {
        v.key: PackageVariantRecord(
            namespace=v.key.namespace,
            name=v.key.name,
            uid=v.uid,
            manifest=v.source.location.path,
            set_name=v.set_key.name if v.set_key else "",
            target=str(v.target or ""),
            target_index=v.target_index,
            target_cluster=v.target_cluster,
            url=f"host/{v.spec.downstream.repo}",  # type: ignore[union-attr]
            path=v.spec.downstream.package or "",  # type: ignore[union-attr]
            repository=v.spec.downstream.repo or "",  # type: ignore[union-attr]
            deletion_policy=v.spec.deletion_policy or "delete",
            spec=spec_data(v),
        )
        for v in expand(inventory).variants
    }


def fleet(
    objects: int, *, share: float, template: Mapping[str, Any], recorded: bool = False, bad: int | None = None
) -> Inventory:
    """Return one set over `share` of that many clusters; cluster number `bad` has no region."""
    selected = int(objects * share)
    found = tuple(
        cluster(
            f"cluster-{n:06}",
            line=n + 1,
            **({} if n == bad else {"region": f"r{n % 7}"}),
            selected="yes" if n < selected else "no",
        )
        for n in range(objects)
    )
    key = GroupKind("example.dev", "Cluster")
    held = Snapshot(
        present=True, objects={KIND: found}, complete=frozenset({(key, NAMESPACE)}), time=COMMIT.time
    )
    fleet_set = package_set(targets=[select(template, selected="yes")])
    inventory = world(fleet_set, snapshot=held)
    if not recorded:
        return inventory
    return world(fleet_set, snapshot=held, records=record_all(inventory))
