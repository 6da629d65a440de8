"""Objects of snapshots one by one: what is kept of a body, numbers, and clusters side by side."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from reconciler.base.errors import Location
from reconciler.base.reasons import Reason
from reconciler.inventory.snapshot import Snapshot
from reconciler.names.problems import Problem
from reconciler.policy import Limits, Policy, SnapshotPolicy
from reconciler.policy.rollouts import Gates, ObjectGate, RolloutPolicy, Wave
from reconciler.read.snapshot import JsonBody, drop_private, read_snapshot, unknown_versions
from tests.support.control import World

Make = Callable[..., World]
LAST = "kubectl.kubernetes.io/last-applied-configuration"


def body(api_version: str = "v1", kind: str = "Thing", **fields: Any) -> dict[str, Any]:
    return {"apiVersion": api_version, "kind": kind, **fields}


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (body(spec={"a": 1}, status={"x": 1}), body(spec={"a": 1})),
        (body(kind="Secret", data={"a": "b"}, stringData={"c": "d"}, type="x"),
            body(kind="Secret", type="x")),
        (body("other/v1", "Secret", data={"a": "b"}), body("other/v1", "Secret", data={"a": "b"})),
        (body(data={"a": "b"}), body(data={"a": "b"})),
        (body("pkg.crossplane.io/v1", status={"x": 1}), body("pkg.crossplane.io/v1", status={"x": 1})),
        (body("packaging.carvel.dev/v1alpha1", status={}), body("packaging.carvel.dev/v1alpha1", status={})),
        (body(metadata={"name": "a", "managedFields": [1], "annotations": {LAST: "x", "b": "c"}}),
            body(metadata={"name": "a", "annotations": {"b": "c"}})),
        (body(metadata={"annotations": {"b": "c"}}), body(metadata={"annotations": {"b": "c"}})),
        (body(metadata="odd"), body(metadata="odd")),
        (body(metadata={"annotations": "odd"}), body(metadata={"annotations": "odd"})),
    ],
)  # fmt: skip
def test_what_is_private_or_changes_all_the_time_is_dropped(given, kept) -> None:
    before = json.dumps(given)

    assert drop_private(given) == kept
    assert json.dumps(given) == before


DEPLOYMENT = {
    "observedGeneration": 3, "readyReplicas": 1, "updatedReplicas": 2, "replicas": 4,
    "conditions": [{"type": "Available", "status": "True", "reason": "r", "message": "m",
        "lastUpdateTime": "now"}, "odd", {"type": "Progressing"}],
}  # fmt: skip
APPLICATION = {
    "health": {"status": "Healthy", "message": "fine", "lastTransitionTime": "now"},
    "sync": {"status": "Synced", "revision": "c0ffee"},
    "history": [1],
    "conditions": {"odd": 1},
}


@pytest.mark.parametrize(
    ("api_version", "kind", "status", "kept"),
    [
        ("apps/v1", "Deployment", DEPLOYMENT,
            {"observedGeneration": 3, "readyReplicas": 1, "updatedReplicas": 2,
            "conditions": [{"type": "Available", "status": "True", "reason": "r", "message": "m"},
            {"type": "Progressing"}]}),
        ("argoproj.io/v1alpha1", "Application", APPLICATION,
            {"health": {"status": "Healthy", "message": "fine"}, "sync": {"status": "Synced"}}),
        ("apps/v1", "DaemonSet", {"numberReady": 1, "updatedNumberScheduled": 2, "desiredNumberScheduled": 3,
            "sync": {}}, {"numberReady": 1, "updatedNumberScheduled": 2, "desiredNumberScheduled": 3}),
        ("apps/v1", "StatefulSet", {}, {}),
        ("apps/v1", "StatefulSet", "odd", None),
        ("helm.toolkit.fluxcd.io/v2beta2", "HelmRelease", {"observedGeneration": 2},
            {"observedGeneration": 2}),
        ("example.com/v1", "Deployment", DEPLOYMENT, None),
        ("apps/v1", "ReplicaSet", DEPLOYMENT, None),
        ("apiextensions.k8s.io/v1", "CustomResourceDefinition",
            {"storedVersions": ["v1"], "conditions": []}, {"storedVersions": ["v1"]}),
        ("apiextensions.k8s.io/v1", "CustomResourceDefinition", {"conditions": []}, None),
    ],
)  # fmt: skip
def test_status_is_kept_of_the_kinds_that_gates_and_upgrades_read(api_version, kind, status, kept) -> None:
    expected = body(api_version, kind) | ({} if kept is None else {"status": kept})

    assert drop_private(body(api_version, kind, status=status)) == expected


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1),
        (str(2**63 - 1), 2**63 - 1),
        (str(2**63), float(2**63)),
        (f"[{-(2**63)}, {{'a': {2**64}}}]".replace("'", '"'), [-(2**63), {"a": float(2**64)}]),
        ("[true, 1234567890123456789]", [True, 1234567890123456789]),
        ("1.0", 1),
        ("1.5", 1.5),
        ('"99999999999999999999"', "99999999999999999999"),
    ],
)
def test_numbers_are_those_of_kubernetes(text: str, value: Any) -> None:
    read = JsonBody(f'{{"spec": {text}}}'.encode())()["spec"]

    assert (read, type(read)) == (value, type(value))


def test_bodies_are_equal_by_their_value_and_decoded_once() -> None:
    first, second = JsonBody(b'{"a": 1, "status": 1}'), JsonBody(b'{ "a": 1 }')

    assert first == second
    assert hash(first) == hash(second)
    assert first != JsonBody(b'{"a": 2}')
    assert first != {"a": 1}
    assert first() is first()


# Clusters


def thing(name: str) -> str:
    return json.dumps(body("g.io/v1", metadata={"name": name, "namespace": "n"}))


def head(cluster: str = "") -> str:
    spec = {"time": "2026-01-01T00:00:00Z", "lists": []}
    metadata = {"name": cluster} if cluster else {}
    return json.dumps(
        {"apiVersion": "reconciler.dev/v1alpha1", "kind": "Snapshot", "metadata": metadata, "spec": spec}
    )


def read(made: World, **limits: int) -> Snapshot:
    policy = Policy(limits=Limits(**limits), snapshot=SnapshotPolicy(path="snap"))
    return read_snapshot(made.mirror, made.commit, policy)


def names(snapshot: Snapshot) -> list[str]:
    return [each.name for each in snapshot.of_kind("g.io/v1", "Thing")]


def test_each_directory_with_a_header_is_the_snapshot_of_its_cluster(world: Make) -> None:
    made = world(
        {
            "snap/a/snapshot.yaml": head("a"),
            "snap/a/x.json": thing("in-a"),
            "snap/b/deep/x.json": thing("in-b"),
            "snap/Kind/x.json": thing("beside"),
            "snap/top.json": thing("top"),
        }
    )

    snapshot = read(made)

    assert {name: names(each) for name, each in snapshot.clusters.items()} == {"a": ["in-a"], "b": ["in-b"]}
    assert {each.path for each in snapshot.clusters.values()} == {"snap/a", "snap/b"}
    assert (names(snapshot), snapshot.path, snapshot.problems) == (["beside", "top"], "snap", ())


def test_several_clusters_have_their_problems_in_common_and_no_snapshot(world: Make) -> None:
    heads = {f"snap/{name}/snapshot.yaml": head() for name in "ab"}

    snapshot = read(world({**heads, "snap/a/x.json": "{", "snap/b/y.json": "["}))

    assert [problem.location.path for problem in snapshot.problems] == ["snap/a/x.json", "snap/b/y.json"]
    assert (snapshot.present, snapshot.clusters.keys()) == (False, {"a", "b"})


def test_single_cluster_alone_is_also_that_of_variants_without_one(world: Make) -> None:
    snapshot = read(world({"snap/a/snapshot.yaml": head(), "snap/a/x.json": thing("in-a")}))

    assert (names(snapshot), snapshot.cluster, snapshot.path) == (["in-a"], "a", "snap")
    assert snapshot.clusters.keys() == {"a"}
    assert snapshot.clusters["a"].time == snapshot.time > 0


def test_snapshot_in_the_directory_of_another_cluster_is_unreadable(world: Make) -> None:
    snapshot = read(world({"snap/a/snapshot.yaml": head("b"), "snap/a/x.json": thing("x")}))

    cluster = snapshot.clusters["a"]
    assert (cluster.cluster, cluster.unreadable, names(cluster)) == ("a", True, ["x"])
    assert cluster.problems == (
        Problem(
            Location("snap/a/snapshot.yaml"),
            Reason.INVALID_SNAPSHOT,
            "This is the snapshot of cluster b, in the directory of cluster a",
            "Import it into b/.",
        ),
    )
    assert snapshot.problems == cluster.problems


def test_directories_are_clusters_only_if_one_of_them_has_a_header(world: Make) -> None:
    snapshot = read(world({"snap/a/x.json": thing("in-a"), "snap/b/deep/snapshot.yaml": thing("odd")}))

    assert (snapshot.clusters, names(snapshot)) == ({}, ["in-a", "odd"])


def test_object_of_several_clusters_is_that_of_the_first_one(world: Make) -> None:
    texts = {
        name: json.dumps(body(kind="Thing", metadata={"name": n}))
        for name, n in zip("xyz", "aba", strict=True)
    }
    made = world(
        {f"snap/{n}/{f}": t for n in texts for f, t in (("snapshot.yaml", head()), ("o.json", texts[n]))}
    )

    found = read(made).in_any_cluster("v1", "Thing")

    assert [(item.name, item.location.path) for item in found] == [
        ("a", "snap/x/o.json"),
        ("b", "snap/y/o.json"),
    ]
    assert read(made).in_any_cluster("v1", "Other") == ()


def test_file_over_the_limit_is_a_problem_and_those_after_it_are_read(world: Make) -> None:
    made = world({"snap/a.json": thing("a" * 200), "snap/b.json": thing("b")})

    snapshot = read(made, snapshot_file_bytes=150)

    assert (names(snapshot), snapshot.unreadable) == (["b"], True)
    (problem,) = snapshot.problems
    assert (problem.location.path, problem.message[:23]) == ("snap/a.json", "The file was not read: ")


GATE = ObjectGate(api_version="apps/v1", kind="Deployment")
GATED = Policy(rollouts=(RolloutPolicy(waves=(Wave("all", gates=Gates(objects=(GATE,))),)),))


@pytest.mark.parametrize(
    ("api_version", "kind", "policy", "expected"),
    [
        pytest.param("pkg.crossplane.io/v2", "Provider", Policy(), "pkg.crossplane.io/v1", id="a package"),
        pytest.param("apiextensions.k8s.io/v2", "CustomResourceDefinition", Policy(),
            "apiextensions.k8s.io/v1", id="a definition"),
        pytest.param("v2", "Namespace", Policy(), "v1", id="of the core group"),
        pytest.param("apps/v2", "Deployment", GATED, "apps/v1", id="what a gate reads"),
        pytest.param("apps/v2", "Deployment", Policy(), "", id="what no gate reads"),
        pytest.param("apiextensions.k8s.io/v1beta1", "CustomResourceDefinition", Policy(), "",
            id="a version that is read"),
        pytest.param("example.com/v9", "Thing", Policy(), "", id="a kind that nothing reads"),
    ],
)  # fmt: skip
def test_unknown_version_of_a_kind_that_is_read_is_told_once(
    world: Make, api_version: str, kind: str, policy: Policy, expected: str
) -> None:
    items = [body(api_version, kind, metadata={"name": name}) for name in "ab"]
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    made = world(
        {
            f"snap/{name}/{file}": data
            for name in "xy"
            for file, data in (("snapshot.yaml", head()), ("o.json", text))
        }
    )

    notes = [*unknown_versions(read(made), policy)]

    told = (
        f"4 objects in snap/x/o.json, snap/y/o.json are read as {expected}, and passed over where that is not"
    )
    assert notes == [f"{kind} of {api_version} is not known: {told} possible"] * bool(expected)
