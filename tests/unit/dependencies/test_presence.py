"""What a snapshot tells about APIs, owners and installations."""

from typing import Any

import pytest

from reconciler.base.errors import Location
from reconciler.dependencies.catalog.cluster_inputs import (
    FleetClusters,
    VariantInstalls,
    collect_cluster_inputs,
    observe_cluster,
    observed_revisions,
)
from reconciler.dependencies.catalog.index import read_index, served_apis
from reconciler.dependencies.dialects import read_manifest
from reconciler.dependencies.model.instances import DesiredState, LockedRevision
from reconciler.dependencies.model.packages import (
    Candidate,
    Dialect,
    Ecosystem,
    Gvk,
    Install,
    Interface,
    PackageId,
    PackageNeed,
    Requirement,
    version_range,
)
from reconciler.dependencies.versions import parse_loose
from reconciler.inventory.inventory import Source
from reconciler.inventory.snapshot import Snapshot, SnapshotObject
from reconciler.names.ids import GroupKind
from tests.support.values import replace

CRD: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "buckets.s3.io", "ownerReferences": [{"kind": "Provider", "name": "aws"}]},
    "spec": {"group": "s3.io", "names": {"kind": "Bucket", "plural": "buckets"},
        "versions": [{"name": "v1", "served": True}, {"name": "v1beta1", "served": False}]},
}  # fmt: skip
PROVIDER = {
    "apiVersion": "pkg.crossplane.io/v1",
    "kind": "Provider",
    "metadata": {"name": "aws"},
    "spec": {"package": "x.io/aws:v1.2.0"},
}
INSTALLED = {
    "apiVersion": "packaging.carvel.dev/v1alpha1",
    "kind": "PackageInstall",
    "metadata": {"name": "db", "namespace": "prod"},
    "spec": {"packageRef": {"refName": "db.io", "versionSelection": {"constraints": ">=1.0.0"}}},
    "status": {"version": "1.4.0"},
}
GROUP = "pkg.crossplane.io"
AWS = PackageId(Ecosystem.XPKG, "x.io/aws")


def snapshot(*bodies: dict[str, Any], served: frozenset[tuple[str, str]] | None = None) -> Snapshot:
    objects: dict[tuple[str, str], tuple[SnapshotObject, ...]] = {}
    for body in bodies:
        meta = body["metadata"]
        one = SnapshotObject(
            body["apiVersion"],
            body["kind"],
            meta.get("namespace", ""),
            meta["name"],
            {},
            {},
            body,
            Location("snapshot/all.yaml"),
        )
        key = (body["apiVersion"], body["kind"])
        objects[key] = (*objects.get(key, ()), one)
    return Snapshot(present=True, objects=objects, served=served)


def test_a_crd_serves_its_served_versions_and_has_a_plural() -> None:
    assert served_apis(CRD) == (Gvk("s3.io", "", "buckets"), Gvk("s3.io", "v1", "Bucket"))
    assert served_apis({"spec": None}) == ()
    assert served_apis({**CRD, "spec": {**CRD["spec"], "versions": []}}) == ()


def test_served_apis_come_from_the_list_and_from_crds() -> None:
    found = observe_cluster(snapshot(CRD, served=frozenset({("apps/v1", "Deployment"), ("v1", "Pod")})))

    assert {Gvk("apps", "v1", "Deployment"), Gvk("", "v1", "Pod"), Gvk("s3.io", "v1", "Bucket")} <= found.apis
    assert Gvk("s3.io", "v1beta1", "Bucket") not in found.apis


def test_an_owner_reference_names_the_package_that_brought_a_kind() -> None:
    found = observe_cluster(snapshot(CRD, PROVIDER))

    assert dict(found.owners)[GroupKind("s3.io", "Bucket")] == AWS
    assert observe_cluster(snapshot(CRD)).owners == ()


def test_installations_count_unless_a_manifest_declares_them() -> None:
    reading = read_manifest(PROVIDER, Source(Location("config/aws.yaml")))
    assert reading is not None

    found = observe_cluster(snapshot(PROVIDER, INSTALLED))
    rest = observe_cluster(snapshot(PROVIDER, INSTALLED), ours=reading.installs)
    elsewhere = {**INSTALLED, "metadata": {"name": "db", "namespace": "dev"}}
    declared = read_manifest(elsewhere, Source(Location("config/db.yaml")))
    assert declared is not None
    both = observe_cluster(snapshot(INSTALLED, elsewhere), ours=declared.installs)

    rows = [(one.id.name, one.namespace, str(one.version)) for one in found.installations]
    assert rows == [("db.io", "prod", "1.4.0"), ("x.io/aws", "", "v1.2.0")]
    assert [one.id.name for one in rest.installations] == ["db.io"]
    assert [one.namespace for one in both.installations] == ["prod"]


def test_installations_that_this_instance_generated_are_no_foreign_ones() -> None:
    def generated(body: dict[str, Any], owner: str) -> dict[str, Any]:
        return {**body, "metadata": {**body["metadata"], "annotations": {"reconciler.dev/owner": owner}}}

    ours, others = (generated(INSTALLED, f"{name}/default/dependencies@dev") for name in ("main", "other"))

    assert observe_cluster(snapshot(ours), instance="main").installations == ()
    assert len(observe_cluster(snapshot(others), instance="main").installations) == 1


def test_versions_of_platforms_are_read_as_their_tools_read_them() -> None:
    versions = {
        "kubernetes": "v1.30.1-gke.100",
        "kapp-controller": "v0.55.0-rc.1+build",
        "crossplane": "unknown",
        "reconciler": "1.0.0",
    }
    known = dict(observe_cluster(Snapshot(present=True, versions=versions)).platforms)

    assert {str(name): version.text for name, version in known.items()} == {
        "kubernetes": "v1.30.1-gke.100",
        "kapp-controller": "v0.55.0",
    }


def labelled(
    kind: str, name: str, *, label: str | None = "aws", group: str = GROUP, **spec: Any
) -> SnapshotObject:
    body = {"apiVersion": f"{group}/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}
    labels = {"pkg.crossplane.io/package": label} if label else {}
    return SnapshotObject(f"{group}/v1", kind, "", name, labels, {}, body, Location("f"))


def _revision(*texts: str, number: int, state: str = "Active", digest: str = "") -> LockedRevision:
    package, name, image = texts
    state = DesiredState(state)
    return LockedRevision(
        package=package, name=name, revision=number, desired_state=state, image=image, digest=digest
    )


def revisions(*objects: SnapshotObject) -> tuple[LockedRevision, ...]:
    return observed_revisions(Snapshot(present=True, objects={("v", "K"): objects}))


def test_revision_of_a_snapshot_has_its_package_number_image_and_state() -> None:
    digest = f"sha256:{'0' * 64}"
    tagged = labelled("ProviderRevision", "aws-1", revision=1, image="x.io/aws:v1", desiredState="Active")
    pinned = labelled("ProviderRevision", "aws-2", revision=2, image=f"x.io/aws@{digest}")

    assert revisions(pinned, tagged) == (
        _revision("Provider/aws", "aws-1", "x.io/aws:v1", number=1),
        _revision("Provider/aws", "aws-2", "x.io/aws", number=2, state="Inactive", digest=digest),
    )


@pytest.mark.parametrize(
    "other",
    [
        labelled("Provider", "aws-1", revision=1),
        labelled("ProviderRevision", "aws-1", label=None, revision=1),
        labelled("ProviderRevision", "aws-1", revision="1"),
        labelled("ProviderRevision", "aws-1"),
        labelled("ProviderRevision", "aws-1", group="other.io", revision=1),
    ],
)
def test_object_that_is_no_numbered_revision_of_a_package_is_none(other: SnapshotObject) -> None:
    assert revisions(other) == ()


def test_last_of_several_active_revisions_is_active_and_of_one_number_the_last_name_counts() -> None:
    first, second, third = (
        labelled("FunctionRevision", name, revision=number, image="x", desiredState="Active")
        for name, number in (("b", 1), ("a", 1), ("c", 2))
    )

    assert revisions(third, first, second) == (
        _revision("Function/aws", "b", "x", number=1, state="Inactive"),
        _revision("Function/aws", "c", "x", number=2),
    )
    apart = labelled("FunctionRevision", "d", label="other", revision=1, image="x", desiredState="Active")
    assert [r.is_active for r in revisions(third, apart)] == [True, True]


@pytest.mark.parametrize(("version", "known"), [("1.0.0", True), ("2.0.0", False)])
def test_installation_in_a_cluster_has_the_interfaces_of_its_bundle_in_the_index(version, known) -> None:
    database = PackageId(Ecosystem.BUNDLE, "r.io/db")
    bundle = Candidate(database, parse_loose("1.0.0"), interfaces=(Interface("sql"),))
    need = PackageNeed(database, version_range(Dialect.PORTER, ""))
    install = Install("prod", "mine", Dialect.PORTER, need, kind="Installation")
    spec: dict[str, Any] = {"schemaVersion": "1.0.2", "namespace": "prod", "name": "db"}
    spec["bundle"] = {"repository": database.name, "version": version}
    there = {
        "apiVersion": "getporter.org/v1",
        "kind": "Installation",
        "metadata": {"name": "db"},
        "spec": spec,
    }
    seen = SnapshotObject("getporter.org/v1", "Installation", "prod", "db", {}, {}, there, Location("s.yaml"))
    objects = {("getporter.org/v1", "Installation"): (seen,)}
    fleet = FleetClusters({"one": ""}, Snapshot(present=True, cluster="one", objects=objects))
    variants = {"one": VariantInstalls((install,), (replace(bundle, requires=(Requirement((need,)),)),))}

    (world,) = collect_cluster_inputs((), (bundle,), read_index(()), fleet, variants).worlds

    (installation,) = world.presence.installations
    assert [interface.id for interface in installation.interfaces] == ["sql"] * known
