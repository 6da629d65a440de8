"""What kubectl prints becomes files that differ only where the cluster does, and vouch for what is absent."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reconciler.base.errors import ConfigurationError, RefusedError, UsageError
from reconciler.inventory.snapshot import Snapshot
from reconciler.names.ids import GroupKind
from reconciler.policy import Limits, Policy
from reconciler.read.snapshot import format_time, parse_header, read_snapshot, snapshot_limits
from reconciler.workdir.snapshot import (
    ImportOptions,
    KindCount,
    SnapshotFiles,
    find_directory,
    guess_plural,
    parse_api_resources,
    parse_kinds,
    plan_import,
    read_directory,
    write_directory,
)
from tests.support.control import World

CLUSTER = GroupKind("example.com", "Cluster")
SECRET = GroupKind("", "Secret")
LIMITS = snapshot_limits(Limits())
T1, T2 = 1_767_225_600, 1_767_312_000
Files = dict[str, bytes]


def obj(name: str, namespace: str = "default", kind: GroupKind = CLUSTER, **more: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace, "resourceVersion": "12", "managedFields": [{}]}
    return {
        "apiVersion": f"{kind.group}/v1" if kind.group else "v1",
        "kind": kind.kind,
        "metadata": {k: v for k, v in metadata.items() if v},
        **more,
    }


def listing(*items: dict[str, Any], **more: Any) -> bytes:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items, **more}, indent=4).encode()


def options(time: int = T1, **more: Any) -> ImportOptions:
    return ImportOptions(time, **{"cluster": "mgmt", **more})


def imported(existing: Files, data: bytes, given: ImportOptions | None = None) -> tuple[Files, SnapshotFiles]:
    planned = plan_import([("kubectl", data)], existing, given or options(), LIMITS)
    after = {path: content for path, content in existing.items() if path not in planned.remove}
    return after | dict(planned.write), planned


def test_one_file_per_kind_and_namespace() -> None:
    files, planned = imported(
        {}, listing(obj("b"), obj("a"), obj("c", "east"), obj("n", "", GroupKind("", "Node")))
    )

    assert sorted(files) == [
        "Cluster.example.com/default.json",
        "Cluster.example.com/east.json",
        "Node/_cluster.json",
        "snapshot.yaml",
    ]
    items = json.loads(files["Cluster.example.com/default.json"])["items"]
    assert [item["metadata"] for item in items] == [
        {"name": "a", "namespace": "default"},
        {"name": "b", "namespace": "default"},
    ]
    assert planned.counts == (
        KindCount(GroupKind("", "Node"), 1, 0, complete=True),
        KindCount(CLUSTER, 3, 0, complete=True),
    )


def test_repeated_import_changes_only_the_time() -> None:
    files, _ = imported({}, listing(obj("a"), obj("s", kind=SECRET)))

    _, same = imported(files, listing(obj("a"), obj("s", kind=SECRET)))
    assert (same.write, same.remove) == ({}, frozenset())

    _, later = imported(files, listing(obj("a"), obj("s", kind=SECRET)), options(T2))
    assert later.write.keys() == {"snapshot.yaml"}
    lines = (each["snapshot.yaml"].decode().splitlines() for each in (files, later.write))
    assert [b for a, b in zip(*lines, strict=True) if a != b] == ['  time: "2026-01-02T00:00:00Z"']


def test_older_lists_are_told() -> None:
    files, first = imported({}, listing(obj("a")), options(T2))

    _, older = imported(files, listing(obj("a")), options(T1))

    dates = "of 2026-01-01T00:00:00Z, older than the snapshot, which is of 2026-01-02T00:00:00Z"
    assert f"These lists are {dates}" in older.notes
    assert f"These lists are {dates}" not in first.notes


def test_one_change_is_one_line() -> None:
    files, _ = imported({}, listing(*[obj(f"c{n}", spec={"size": n}) for n in range(9)]))
    after, _ = imported(files, listing(*[obj(f"c{n}", spec={"size": n * (n != 4)}) for n in range(9)]))

    path = "Cluster.example.com/default.json"
    pairs = zip(files[path].splitlines(), after[path].splitlines(), strict=True)
    assert [b for a, b in pairs if a != b] == [b'        "size": 0']


def test_import_replaces_a_kind_and_keeps_the_others() -> None:
    files, _ = imported({}, listing(obj("a"), obj("c", "east"), obj("s", kind=SECRET)))
    below = "Cluster.example.com/below/secrets.json"
    files[below] = json.dumps(obj("t", kind=SECRET)).encode()
    after, planned = imported(files, listing(obj("new", "west")), options(T2))

    assert sorted(after) == [below, "Cluster.example.com/west.json", "Secret/default.json", "snapshot.yaml"]
    assert planned.remove == {"Cluster.example.com/default.json", "Cluster.example.com/east.json"}
    assert after["Secret/default.json"] == files["Secret/default.json"]
    assert planned.counts == (KindCount(CLUSTER, 1, 2, complete=True),)


def read(files: Files, world: Callable[..., World]) -> Snapshot:
    made = world({f"snapshot/{path}": data for path, data in files.items()})
    return read_snapshot(made.mirror, made.commit, Policy())


def test_imported_files_are_read_back(world: Callable[..., World]) -> None:
    first, _ = imported({}, listing(obj("s", kind=SECRET, data={"a": "Yg=="})), options(cluster="mgmt"))
    files, _ = imported(first, listing(obj("a"), obj("c", "east")), options(T2))
    snapshot = read(files, world)

    assert snapshot.problems == ()
    assert [o.name for o in snapshot.of_kind("example.com/v1", "Cluster")] == ["a", "c"]
    assert snapshot.is_complete(CLUSTER, "default")
    assert snapshot.is_complete(CLUSTER, "anywhere")
    assert snapshot.is_complete(SECRET, "default")
    assert not snapshot.is_complete(GroupKind("", "ConfigMap"), "default")
    assert (snapshot.cluster, snapshot.taken) == ("mgmt", T1)
    assert b"Yg==" not in b"".join(files.values())


def test_listed_kind_without_objects_is_empty(world: Callable[..., World]) -> None:
    files, _ = imported({}, listing(obj("a")))
    after, planned = imported(files, listing(), options(kinds=(CLUSTER,)))

    assert planned.counts == (KindCount(CLUSTER, 0, 1, complete=True),)
    snapshot = read(after, world)
    assert (snapshot.objects, snapshot.is_complete(CLUSTER, "default")) == ({}, True)
    text = json.dumps({"apiVersion": "example.com/v1", "kind": "ClusterList", "metadata": {}, "items": []})
    assert imported({}, text.encode())[1].counts == (KindCount(CLUSTER, 0, 0, complete=True),)


@pytest.mark.parametrize(
    ("data", "given"),
    [
        (listing(obj("a"), metadata={"continue": "abc"}), options()),
        (listing(obj("a")), options(partial=True)),
    ],
    ids=["cut off by the server", "said to be partial"],
)
def test_partial_list_is_not_complete(data: bytes, given: ImportOptions, world: Callable[..., World]) -> None:
    files, planned = imported({}, data, given)

    assert planned.counts == (KindCount(CLUSTER, 1, 0, complete=False),)
    assert not read(files, world).is_complete(CLUSTER, "default")


def test_one_namespace_replaces_only_its_own(world: Callable[..., World]) -> None:
    files, _ = imported({}, listing(obj("a"), obj("c", "east")))
    after, _ = imported(files, listing(obj("d", "east")), options(T2, namespace="east"))
    snapshot = read(after, world)

    assert [o.name for o in snapshot.of_kind("example.com/v1", "Cluster")] == ["a", "d"]
    assert snapshot.is_complete(CLUSTER, "east")
    assert snapshot.is_complete(CLUSTER, "default")
    assert not snapshot.is_complete(CLUSTER, "elsewhere")
    assert snapshot.taken is not None
    assert format_time(snapshot.taken) == format_time(T1)


TABLE = """\
NAME         SHORTNAMES   APIVERSION         NAMESPACED   KIND      VERBS         CATEGORIES
configmaps   cm           v1                 true         ConfigMap create,list
clusters                  example.com/v1     true         Cluster   create,list   all
nodes        no           v1                 false        Node      list
"""
SERVED = {("v1", "ConfigMap"), ("example.com/v1", "Cluster"), ("v1", "Node")}


@pytest.mark.parametrize(
    "text",
    [TABLE, TABLE.partition("\n")[2], "\n".join(line[:67] for line in TABLE.splitlines())],
    ids=["wide", "no headers", "plain"],
)
def test_served_apis_are_read_from_the_table(text: str, world: Callable[..., World]) -> None:
    resources = parse_api_resources(text)
    files, _ = imported({}, listing(obj("a")), options(resources=resources))

    assert resources.plurals["clusters.example.com"] == CLUSTER
    assert resources.serves(CLUSTER)
    assert not resources.serves(CLUSTER._replace(group="example.org"))
    snapshot = read(files, world)
    assert snapshot.served == SERVED
    listed = {CLUSTER: ("clusters", True), GroupKind("", "Node"): ("nodes", False)}
    assert listed.items() <= snapshot.resources.items()
    again, plan = imported(files, listing(obj("a")), options(T2))
    assert read_served(again) == read_served(files)
    assert all(
        b"  resources:\n  - Cluster.example.com clusters" in f["snapshot.yaml"] for f in (files, again)
    )
    assert plan.notes == (
        "The served APIs stay those of an earlier import: give --api-resources to renew them",
    )


def read_served(files: Files) -> list[str]:
    return [
        line
        for line in files["snapshot.yaml"].decode().splitlines()
        if line.startswith("  - ") and "/" in line
    ]


CRD = obj(
    "things.example.org",
    "",
    GroupKind("apiextensions.k8s.io", "CustomResourceDefinition"),
    spec={
        "group": "example.org",
        "names": {"plural": "things", "kind": "Thing"},
        "versions": [{"name": "v1", "served": True}, {"name": "v0", "served": False}],
    },
)


def test_served_apis_are_derived_from_names_objects_and_definitions(world: Callable[..., World]) -> None:
    names = "clusters.example.com\nthings.example.org\ncustomresourcedefinitions.apiextensions.k8s.io\n"
    files, planned = imported({}, listing(obj("a"), CRD), options(resources=parse_api_resources(names)))

    assert planned.notes == ()
    assert read(files, world).served == {
        ("example.com/v1", "Cluster"),
        ("example.org/v1", "Thing"),
        ("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
    }


@pytest.mark.parametrize(
    ("names", "told"),
    [
        ("pods", "1 resource name is of an unknown kind (pods)"),
        ("c b a", "3 resource names are of unknown kinds (a, b, c)"),
        ("d c b a", "4 resource names are of unknown kinds (a, b, c, …)"),
    ],
)
def test_unknown_resource_names_are_noted_and_not_recorded(world: Callable[..., World], names, told) -> None:
    resources = parse_api_resources("\n".join(names.split()) + "\n")
    assert resources.serves(GroupKind("", "Pod")) is (names == "pods")

    files, planned = imported({}, listing(obj("a")), options(resources=resources))

    assert planned.notes == (
        (
            f"{told}: the served APIs are not recorded; "
            "give the table of `kubectl api-resources` in place of `-o name`"
        ),
    )
    assert read(files, world).served is None


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("Cluster.example.com, Secret", (CLUSTER, SECRET)),
        ("clusters.example.com,configmaps", (CLUSTER, GroupKind("", "ConfigMap"))),
        ("Cluster.v1.example.com", (CLUSTER,)),
        ("Cluster.v2beta1.example.com,Cluster.v1.example.com", (CLUSTER,)),
        ("clusters.v1.example.com", (CLUSTER,)),
        ("ConfigMap.v1.", (GroupKind("", "ConfigMap"),)),
        ("Cluster.v1x.example.com", (GroupKind("v1x.example.com", "Cluster"),)),
        ("Cluster.velero.io", (GroupKind("velero.io", "Cluster"),)),
    ],
)
def test_kinds_are_parsed_as_in_kubectl_without_their_version(text, kinds) -> None:
    resources = parse_api_resources(TABLE)

    assert parse_kinds(text, resources) == kinds
    for wrong, why in (
        ("things.example.com", "things"),
        ("ConfigMap.v1", r"ConfigMap\.v1 has a version and no "),
    ):
        with pytest.raises(UsageError, match=why):
            parse_kinds(wrong, resources)


def test_object_in_two_versions_counts_once() -> None:
    twice = listing(obj("a"), {**obj("a"), "apiVersion": "example.com/v2"}, obj("b"))

    files, planned = imported({}, twice, options(kinds=(CLUSTER,)))

    assert [count.now for count in planned.counts] == [2]
    header = parse_header("snapshot.yaml", files["snapshot.yaml"])
    assert [listed.count for listed, _ in header.lists] == [2, 2]


@pytest.mark.parametrize(
    ("kind", "plural"),
    [("Cluster", "clusters"), ("NetworkPolicy", "networkpolicies"), ("Ingress", "ingresses")],
)
def test_plurals_are_guessed_as_kubernetes_does(kind: str, plural: str) -> None:
    assert guess_plural(GroupKind("g", kind)) == f"{plural}.g"


@pytest.mark.parametrize("data", [b"", b" \n", b"error: no server\n", b'{"items": [', listing({"kind": "X"})])
def test_invalid_input_changes_nothing(data: bytes) -> None:
    with pytest.raises(ConfigurationError):
        imported({}, data, options(kinds=(CLUSTER,)))


@pytest.mark.parametrize(
    "one",
    [
        obj("a", "../../etc"),
        obj("a", kind=GroupKind("example.com", "../Cluster")),
        obj("a", kind=GroupKind("../..", "Cluster")),
        obj("a", "_cluster"),
        obj("a", "A_b"),
        obj("a", kind=GroupKind("X.io", "K")),
    ],
)
def test_names_of_objects_stay_inside_the_directory(one: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=r"is not a (kind|namespace) of Kubernetes"):
        imported({}, listing(one))


def test_import_of_nothing_or_without_a_cluster_is_bad_usage() -> None:
    with pytest.raises(UsageError) as caught:
        imported({}, listing())
    assert "--kinds" in caught.value.hint
    with pytest.raises(UsageError, match="no cluster name"):
        imported({}, listing(obj("a")), ImportOptions(T1))


@pytest.mark.parametrize("path", ["mine.yaml", "Cluster.example.com/more/default.json"])
def test_import_refuses_a_kind_in_a_file_that_it_does_not_write(path: str) -> None:
    with pytest.raises(RefusedError) as caught:
        imported({path: json.dumps(obj("a")).encode()}, listing(obj("a")))

    assert path in str(caught.value)
    assert "Cluster.example.com/default.json" in caught.value.hint


def test_snapshot_of_another_cluster_or_with_an_invalid_header_is_not_overwritten() -> None:
    files, _ = imported({}, listing(obj("a")), options(cluster="east"))

    with pytest.raises(RefusedError):
        imported(files, listing(obj("a")), options(cluster="west"))
    with pytest.raises(ConfigurationError) as caught:
        imported({"snapshot.yaml": b"spec: 1\n"}, listing(obj("a")))
    assert (caught.value.location and caught.value.location.path) == "snapshot.yaml"


def test_written_directory_is_read_back(tmp_path: Path) -> None:
    files, planned = imported({}, listing(obj("a"), obj("c", "east")))
    write_directory(tmp_path / "snapshot", planned)
    assert read_directory(tmp_path / "snapshot") == files

    after, planned = imported(files, listing(obj("a")), options(T2))
    write_directory(tmp_path / "snapshot", planned)
    assert read_directory(tmp_path / "snapshot") == after


def test_header_is_not_written_before_all_that_it_counts(tmp_path: Path) -> None:
    (tmp_path / "team.example.com").touch()
    files = {"snapshot.yaml": b"", "team.example.com/default.json": b""}

    with pytest.raises(ConfigurationError, match=" cannot be written: "):
        write_directory(tmp_path, SnapshotFiles(files, frozenset()))

    assert not (tmp_path / "snapshot.yaml").exists()


def test_links_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "outside.json").write_bytes(listing(obj("a")))
    (tmp_path / "snapshot").mkdir()
    (tmp_path / "snapshot" / "link.json").symlink_to(tmp_path / "outside.json")

    assert read_directory(tmp_path / "snapshot") == {}


def test_each_cluster_has_its_own_directory(tmp_path: Path) -> None:
    def header(directory: Path, cluster: str) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        text = f"apiVersion: reconciler.dev/v1alpha1\nkind: Snapshot\nmetadata:\n  name: {cluster}\n"
        (directory / "snapshot.yaml").write_text(text)

    root = tmp_path / "snapshot"
    with pytest.raises(UsageError, match="cluster of this snapshot is unknown"):
        find_directory(root, "")
    assert find_directory(root, "edge-1") == root / "edge-1"
    header(root / "edge-1", "edge-1")
    assert find_directory(root, "") == root / "edge-1"
    header(root, "mgmt")
    assert find_directory(root, "mgmt") == root
    assert find_directory(root, "edge-2") == root / "edge-2"
    with pytest.raises(UsageError) as caught:
        find_directory(root, "")
    assert caught.value.hint == "Name it: --cluster NAME, one of edge-1, mgmt."


def test_snapshots_of_clusters_are_separate_from_the_root(tmp_path: Path) -> None:
    for directory, cluster in ((tmp_path, "mgmt"), (tmp_path / "edge-1", "edge-1")):
        planned = plan_import(
            [("kubectl", listing(obj("a")))], read_directory(directory), options(cluster=cluster), LIMITS
        )
        write_directory(directory, planned)

    assert sorted(read_directory(tmp_path)) == ["Cluster.example.com/default.json", "snapshot.yaml"]
