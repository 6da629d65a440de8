"""Upgrades that drop a version of a kind in which a cluster stores objects: refused, or told as not judged.

Source: Kubernetes, ValidateCustomResourceDefinitionStoredVersions; crossplane#2165.
"""

from typing import Any

import pytest

from reconciler.base.errors import Location
from reconciler.base.reasons import Reason
from reconciler.dependencies.catalog.cluster_inputs import FleetClusters, collect_cluster_inputs
from reconciler.dependencies.catalog.index import read_index
from reconciler.dependencies.lock.format import LockUpdate, read_locks
from reconciler.dependencies.lock.update import update_locks
from reconciler.inventory.inventory import Source, SourcedDocument
from reconciler.inventory.snapshot import ALL_NAMESPACES, Snapshot, SnapshotObject
from reconciler.names.ids import GroupKind
from reconciler.read.snapshot import drop_private

BUCKET = GroupKind("s3.io", "Bucket")
CRD = ("apiextensions.k8s.io/v1", "CustomResourceDefinition")
S3 = "x.io/s3"


def sourced(path: str, body: dict[str, Any]) -> SourcedDocument:
    return SourcedDocument(body, Source(Location(path, 1)))


def definition(*versions: str, stored: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the definition of Bucket; a version with a dash at its end is not served."""
    listed = [{"name": version.rstrip("-"), "served": version[-1] != "-"} for version in versions]
    names = {"kind": "Bucket", "plural": "buckets"}
    body = {"apiVersion": CRD[0], "kind": CRD[1], "metadata": {"name": "buckets.s3.io"}}
    spec = {"group": "s3.io", "names": names, "scope": "Cluster", "versions": listed}
    return {**body, "spec": spec, **({"status": {"storedVersions": list(stored)}} if stored else {})}


def version(number: str, *crds: dict[str, Any], provides: tuple[str, ...] = ()) -> list[SourcedDocument]:
    head = {
        "apiVersion": "reconciler.dev/v1alpha1",
        "kind": "PackageVersion",
        "source": S3,
        "version": number,
    }
    meta = {
        "apiVersion": "meta.pkg.crossplane.io/v1",
        "kind": "Provider",
        "metadata": {"name": "s3"},
        "spec": {},
    }
    bodies = {"version": {**head, "provides": list(provides)}, "crossplane": meta}
    bodies |= {f"crd{place}": crd for place, crd in enumerate(crds)}
    return [sourced(f"index/{S3}/{number}/{name}.yaml", body) for name, body in bodies.items()]


INDEX = [
    *version("v1.0.0", definition("v1alpha1", "v1")),
    *version("v2.0.0", definition("v1")),
    *version("v3.0.0", definition("v1alpha1-", "v1")),
    *version("v4.0.0", provides=("s3.io/v1/Bucket",)),
]


def snapshot(*stored: str, buckets: int = 0, is_complete: bool = True) -> Snapshot:
    bodies = [drop_private(definition("v1alpha1", "v1", stored=stored))]
    bodies += [
        {"apiVersion": "s3.io/v1", "kind": "Bucket", "metadata": {"name": f"b{n}"}} for n in range(buckets)
    ]
    objects: dict[tuple[str, str], tuple[SnapshotObject, ...]] = {}
    for body in bodies:
        key, name = (body["apiVersion"], body["kind"]), body["metadata"]["name"]
        one = SnapshotObject(*key, "", name, {}, {}, body, Location("snapshot/dev/all.yaml"))
        objects[key] = (*objects.get(key, ()), one)
    complete = frozenset({(BUCKET, ALL_NAMESPACES)}) if is_complete else frozenset[tuple[GroupKind, str]]()
    return Snapshot(present=True, objects=objects, cluster="dev", complete=complete)


def decided(wanted: str, there: Snapshot, before: LockUpdate | None = None) -> LockUpdate:
    body = {"apiVersion": "pkg.crossplane.io/v1", "kind": "Provider", "metadata": {"name": "s3"}}
    manifest = sourced("clusters/dev/s3.yaml", {**body, "spec": {"package": f"{S3}:{wanted}"}})
    fleet = FleetClusters({"dev": ""}, there)
    worlds = collect_cluster_inputs([manifest], (), read_index(INDEX), fleet)
    assert worlds.problems == ()
    return update_locks(worlds, read_locks(before.files if before else {}))


def locked(update: LockUpdate) -> list[str]:
    (scope,) = update.scopes
    return [package.version for package in scope.after.resolution.packages] if scope.after else []


@pytest.mark.parametrize(
    ("buckets", "is_complete", "counted"),
    [
        (0, True, "0 objects"),
        (2, True, "2 objects"),
        (1, False, "at least 1 object"),
        (0, False, "an unknown number of objects"),
    ],
)
def test_upgrade_that_drops_a_stored_version_is_refused_with_its_objects(
    buckets: int, is_complete: bool, counted: str
) -> None:
    there = snapshot("v1alpha1", "v1", buckets=buckets, is_complete=is_complete)
    first = decided("v1.0.0", there)

    update = decided("v2.0.0", there, first)

    (problem,) = update.problems
    assert problem.reason == Reason.DEPENDENCY_CONFLICT
    assert "x.io/s3 v2.0.0 drops v1alpha1 of Bucket.s3.io" in problem.message
    assert f"it has {counted}, and its API server refuses that" in problem.message
    assert locked(update) == ["v1.0.0"]


@pytest.mark.parametrize(
    ("wanted", "stored"),
    [
        pytest.param("v3.0.0", ("v1alpha1", "v1"), id="the version is there still, and not served"),
        pytest.param("v2.0.0", ("v1",), id="nothing is stored in it any more"),
    ],
)
def test_upgrade_that_keeps_what_is_stored_is_taken(wanted: str, stored: tuple[str, ...]) -> None:
    there = snapshot(*stored, buckets=1)

    update = decided(wanted, there, decided("v1.0.0", there))

    assert (locked(update), update.problems, update.warnings) == ([wanted], (), ())


@pytest.mark.parametrize(
    ("wanted", "there"),
    [
        pytest.param("v2.0.0", Snapshot(), id="no snapshot"),
        pytest.param("v2.0.0", snapshot(buckets=1), id="a definition without its stored versions"),
        pytest.param("v4.0.0", snapshot("v1alpha1", buckets=1), id="a package without its definitions"),
    ],
)
def test_upgrade_that_cannot_be_judged_is_taken_and_told(wanted: str, there: Snapshot) -> None:
    update = decided(wanted, there, decided("v1.0.0", there))

    assert (locked(update), update.problems) == ([wanted], ())
    (warning,) = update.warnings
    expected = (
        f"x.io/s3 {wanted} drops v1alpha1 of Bucket.s3.io; it is not known whether dev stores objects in it"
    )
    assert (warning.reason, warning.message) == (Reason.SNAPSHOT_INCOMPLETE, expected)
