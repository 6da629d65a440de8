"""Selected objects: how messages name them, what expressions see of them, and when a kind is served."""

from typing import Any

import pytest

from reconciler.base.errors import Location
from reconciler.expand.findings import ExpansionError
from reconciler.expand.targets import (
    Context,
    SelectedObject,
    TargetScope,
    named_clusters,
    selected_repository,
    unroll,
)
from reconciler.inventory.inventory import Source
from reconciler.inventory.snapshot import Snapshot, SnapshotObject
from reconciler.names.ids import GroupKind
from tests.support.sets import package_set, repository, select
from tests.support.values import replace

AT = Location("snapshot/clusters.yaml", 7)


@pytest.mark.parametrize(("namespace", "shown"), [("ns", "ns/a"), ("", "a")])
def test_selected_object_is_named_with_its_place(namespace: str, shown: str) -> None:
    selected = SelectedObject("a", namespace, {"x": "1"}, {"y": "2"}, AT, 5)

    assert str(selected) == f"{shown} (snapshot/clusters.yaml:7)"
    assert str(Context((), "edge", "app", selected=selected)) == str(selected)
    assert str(Context((), "edge", "app")) == "edge/app"


def test_expressions_see_metadata_of_the_selected_object_else_both_names() -> None:
    selected = SelectedObject("a", "ns", {"x": "1"}, {"y": "2"}, AT, 5)

    assert Context((), "edge", "app", selected=selected).target_input() == {
        "name": "a",
        "namespace": "ns",
        "labels": {"x": "1"},
        "annotations": {"y": "2"},
    }
    assert Context((), "edge", "app").target_input() == {"repo": "edge", "package": "app"}


def test_repository_is_selected_with_its_metadata_and_time() -> None:
    view = repository(
        "edge", labels={"x": "1"}, annotations={"y": "2"}, source=Source(Location("r.yaml", 3), 9)
    )

    assert selected_repository(view) == SelectedObject(
        "edge", "default", {"x": "1"}, {"y": "2"}, Location("r.yaml", 3), 9
    )
    bare = selected_repository(repository("edge"))
    assert (bare.labels, bare.annotations) == ({}, {})


@pytest.mark.parametrize(
    ("text", "clusters"), [("b, a", ("a", "b")), ("a,,a, ", ("a",)), ("", ()), (None, ())]
)
def test_clusters_of_a_set_are_separated_by_commas(text: str | None, clusters: tuple[str, ...]) -> None:
    annotations = {} if text is None else {"annotations": {"reconciler.dev/clusters": text}}

    assert named_clusters(package_set(**annotations).manifest) == clusters


KIND = ("example.dev/v1", "Cluster")
NEXT = "example.dev/v2"
OBJECT = SnapshotObject(*KIND, "ns", "a", {}, {}, {}, AT)


def of_crd(body: Any, version: str = "v1") -> dict[str, Any]:
    kind = (f"apiextensions.k8s.io/{version}", "CustomResourceDefinition")
    return {"objects": {kind: (SnapshotObject(*kind, "", "c", {}, {}, body, AT),)}}


DEFINED = {
    "spec": {"group": "example.dev", "names": {"kind": "Cluster"},
        "versions": [{"name": "v1", "served": True}]},
}  # fmt: skip
GROUP_KIND = GroupKind("example.dev", "Cluster")
SERVED: dict[str, tuple[dict[str, Any], bool]] = {
    "it is listed": ({"served": frozenset({KIND})}, True),
    "another version is listed": ({"served": frozenset({("example.dev/v2", "Cluster")})}, False),
    "there is an object, and the list is older": ({"served": frozenset(), "objects": {KIND: (OBJECT,)}},
        True),
    "it was listed, and the list of APIs is older": ({"served": frozenset(),
        "complete": frozenset({(GROUP_KIND, "ns")})}, True),
    "another version was listed with its objects": ({"served": frozenset({("example.dev/v2", "Cluster")}),
        "complete": frozenset({(GROUP_KIND, "ns")})}, False),
    "there is an object": ({"objects": {KIND: (OBJECT,)}}, True),
    "the namespace was listed": ({"complete": frozenset({(GROUP_KIND, "ns")})}, True),
    "the cluster was listed": ({"complete": frozenset({(GROUP_KIND, "")})}, True),
    "another namespace was listed": ({"complete": frozenset({(GROUP_KIND, "other")})}, False),
    "it has a definition": (of_crd({"spec": {"group": "example.dev", "names": {"kind": "Cluster"}}}), True),
    "its definition serves the version": (of_crd(DEFINED), True),
    "its definition of the first API serves the version": (of_crd(DEFINED, "v1beta1"), True),
    "its definition is newer than the list": ({"served": frozenset(), **of_crd(DEFINED)}, True),
    "its definition serves another version": (of_crd({"spec": {**DEFINED["spec"],
        "versions": [{"name": "v1", "served": False}, {"name": "v2"}]}}), False),
    "its definition serves another version, and it was listed": ({"complete": frozenset({(GROUP_KIND, "ns")}),
        **of_crd({"spec": {**DEFINED["spec"], "versions": [{"name": "v2"}]}})}, False),
    "its definition serves it, and its objects are of another version": (
        {"objects": of_crd(DEFINED)["objects"] | {(NEXT, "Cluster"): (replace(OBJECT, api_version=NEXT),)}},
        True),
    "it was listed, with objects of another version": ({"complete": frozenset({(GROUP_KIND, "ns")}),
        "objects": {(NEXT, "Cluster"): (replace(OBJECT, api_version=NEXT),)}}, False),
    "another group has one": (of_crd({"spec": {"group": "dev", "names": {"kind": "Cluster"}}}), False),
    "another kind has one": (of_crd({"spec": {"group": "example.dev", "names": {"kind": "C"}}}), False),
    "its definition has no names": (of_crd({"spec": {"group": "example.dev", "names": "Cluster"}}), False),
    "its definition has no spec": (of_crd({"spec": "example.dev"}), False),
    "nothing is known": ({}, False),
}  # fmt: skip


@pytest.mark.parametrize("case", SERVED)
def test_kind_is_served_by_any_evidence_of_the_snapshot(case: str) -> None:
    fields, served = SERVED[case]

    assert Snapshot(present=True, **fields).serves(*KIND, "ns") is served
    assert not Snapshot(present=False, **fields).serves(*KIND, "ns")


def test_object_is_there_once_in_whatever_version_the_snapshot_has_it() -> None:
    old, new = OBJECT, replace(OBJECT, api_version=NEXT)
    other, later = replace(new, name="b"), replace(OBJECT, api_version="example.dev/v3", name="b")
    of_group = replace(OBJECT, api_version="example.com/v1")
    objects = {(o.api_version, o.kind): (o,) for o in (old, later, of_group)} | {
        (NEXT, "Cluster"): (new, other)
    }

    snapshot = Snapshot(present=True, objects=objects)

    assert snapshot.of_kind(*KIND) == (old, later)
    assert snapshot.of_kind(NEXT, "Cluster") == (new, other)
    assert snapshot.of_kind("example.dev/v9", "Cluster") == (new, later)
    assert snapshot.of_kind("example.com/v9", "Cluster") == (of_group,)
    assert snapshot.of_kind("example.dev/v1", "Other") == ()


def test_object_that_the_snapshot_has_in_another_served_version_is_selected() -> None:
    """Clusters list objects in the version that they prefer, which may change between snapshots."""
    newer = {(NEXT, "Cluster"): (replace(OBJECT, api_version=NEXT),)}
    snapshot = Snapshot(present=True, objects=of_crd(DEFINED)["objects"] | newer)

    (context,) = unroll(package_set(targets=[select()]).manifest.spec, TargetScope("ns", {}, snapshot))

    assert context.selected is not None
    assert context.selected.name == "a"


def test_version_that_is_not_served_names_those_that_are() -> None:
    snapshot = Snapshot(present=True, objects={(NEXT, "Cluster"): (replace(OBJECT, api_version=NEXT),)})

    with pytest.raises(ExpansionError) as caught:
        unroll(package_set(targets=[select()]).manifest.spec, TargetScope("ns", {}, snapshot))

    assert caught.value.finding.hint == (
        "The snapshot knows it as example.dev/v2: select that. If the cluster serves example.dev/v1 too, "
        "import it so: --kinds Cluster.v1.example.dev."
    )


@pytest.mark.parametrize(
    ("root", "is_found"),
    [
        ({"present": True}, True),
        ({"present": True, "cluster": "prod"}, True),
        ({"present": True, "cluster": "dev"}, False),
        ({}, False),
        ({"clusters": {"prod": Snapshot(present=True, cluster="prod")}}, True),
        ({"clusters": {"dev": Snapshot(present=True, cluster="dev")}}, False),
        ({"present": True, "clusters": {"dev": Snapshot(present=True, cluster="dev")}}, True),
        ({"present": True, "clusters": {"prod": Snapshot()}}, False),
        ({"present": True, "cluster": "dev", "clusters": {"dev": Snapshot()}}, False),
    ],
)
def test_snapshot_of_a_cluster_is_its_own_or_one_without_a_name(
    root: dict[str, Any], *, is_found: bool
) -> None:
    found = Snapshot(path="snapshots", **root).exactly("prod")

    assert found.present is is_found
    if not is_found:
        assert found == Snapshot(cluster="prod", path="snapshots/prod")


def test_snapshot_at_the_root_is_of_any_cluster_unless_it_is_named_among_the_others() -> None:
    root, prod = Snapshot(present=True, cluster="dev"), Snapshot(present=True, cluster="prod")
    beside = replace(root, clusters={"prod": prod})

    assert root.of("prod") is root
    assert (beside.of("prod"), beside.of("dev"), beside.of("x")) == (prod, beside, beside)
    assert not replace(beside, clusters={"prod": prod, "dev": root}).of("x").present
