"""The snapshot: every form that kubectl prints, nothing private, and absence only where a list is whole."""

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from reconciler.base.errors import Location
from reconciler.base.reasons import Reason
from reconciler.inventory.snapshot import ALL_NAMESPACES, Snapshot
from reconciler.krm.yaml import YamlLimits
from reconciler.names.ids import GroupKind
from reconciler.policy import Policy, SnapshotPolicy
from reconciler.read.snapshot import (
    FileObjects,
    format_time,
    item_lines,
    parse_snapshot_file,
    parse_time,
    read_snapshot,
)
from tests.support.control import FIRST, STEP_S, UNREAD, World, add_unread

Make = Callable[..., World]
CLUSTER = ("infra.example.com/v1", "Cluster")
KIND = GroupKind("infra.example.com", "Cluster")


def cluster(name: str, namespace: str = "default", **labels: str) -> dict[str, Any]:
    return {
        "apiVersion": CLUSTER[0],
        "kind": CLUSTER[1],
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {"size": 3},
    }


def kubectl(*items: Mapping[str, Any]) -> str:
    """Print a list as kubectl does: four spaces, sorted keys."""
    value = {"apiVersion": "v1", "items": items, "kind": "List", "metadata": {"resourceVersion": ""}}
    return json.dumps(value, indent=4, sort_keys=True) + "\n"


def as_yaml(*items: Mapping[str, Any]) -> str:
    body = "".join(f"- {json.dumps(item)}\n" for item in items)
    return f"apiVersion: v1\nitems:\n{body}kind: List\nmetadata:\n  resourceVersion: ''\n"


def header(*lists: Mapping[str, Any], time: str = "2026-01-01T00:00:00Z", **spec: Any) -> str:
    value = {
        "apiVersion": "reconciler.dev/v1alpha1",
        "kind": "Snapshot",
        "metadata": {"name": "mgmt"},
        "spec": {"time": time, "lists": list(lists), **spec},
    }
    return json.dumps(value, indent=2)


def listed(count: int, namespace: str = "default", **more: Any) -> dict[str, Any]:
    return {
        "group": KIND.group,
        "kind": KIND.kind,
        "namespace": namespace,
        "count": count,
        "complete": True,
        **more,
    }


def read(world: World, policy: Policy | None = None) -> Snapshot:
    return read_snapshot(world.mirror, world.commit, policy or Policy())


def names(snapshot: Snapshot) -> list[str]:
    return [f"{o.namespace}/{o.name}" for o in snapshot.of_kind(*CLUSTER)]


A, B = cluster("a", tier="edge"), cluster("b", tier="core")
FORMS = {
    "kubectl's JSON": ("x.json", kubectl(A, B)),
    "kubectl's YAML": ("x.yaml", as_yaml(A, B)),
    "YAML documents": ("x.yml", f"{json.dumps(A)}\n---\n{json.dumps(B)}\n"),
    "one JSON object a line": ("x.ndjson", f"{json.dumps(A)}\n\n{json.dumps(B)}\n"),
    "the same with the other name": ("x.jsonl", f"{json.dumps(A)}\n{json.dumps(B)}"),
    "the same called JSON": ("x.json", f"{json.dumps(A)}\n{json.dumps(B)}\n"),
    "one line of JSON": ("x.json", json.dumps({"apiVersion": "v1", "kind": "List", "items": [A, B]})),
    "the answer of the API server": ("x.json",
        json.dumps({"apiVersion": CLUSTER[0], "kind": "ClusterList",
        "items": [{k: v for k, v in o.items() if k not in ("apiVersion", "kind")} for o in (A, B)]})),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS.keys())
def test_every_form_gives_the_same_objects(world: Make, form: tuple[str, str]) -> None:
    path, text = form
    snapshot = read(world({f"snapshot/deep/{path}": text}))

    assert snapshot.problems == ()
    assert (snapshot.present, snapshot.unreadable) == (True, False)
    assert names(snapshot) == ["default/a", "default/b"]
    first = snapshot.of_kind(*CLUSTER)[0]
    assert (first.labels, first.annotations) == ({"tier": "edge"}, {})
    assert first.body == A
    assert first.body["spec"]["size"] == 3
    assert len(first.body) == 4


def test_objects_have_file_and_line(world: Make) -> None:
    snapshot = read(
        world(
            {
                "snapshot/a.json": kubectl(A, cluster("b", one="1", two="2")),
                "snapshot/c.ndjson": f"\n{json.dumps(cluster('c'))}\n",
                "snapshot/d.yaml": f"# two\n---\n{json.dumps(cluster('d'))}\n",
            }
        )
    )

    assert [str(o.location) for o in snapshot.of_kind(*CLUSTER)] == [
        "snapshot/a.json:4",
        "snapshot/a.json:18",
        "snapshot/c.ndjson:2",
        "snapshot/d.yaml:3",
    ]


def test_list_in_an_unusual_layout_has_no_line_numbers() -> None:
    assert item_lines(b'{"items": [\n{"a": 1},\n\n{"b": {\n}}]}', 2) == [0, 0]


CANARY = "c2VjcmV0LWNhbmFyeQ=="
SECRET = {
    "apiVersion": "v1", "kind": "Secret",
    "metadata": {"name": "s", "namespace": "default", "managedFields": [{"fieldsV1": CANARY}],
        "annotations": {"kubectl.kubernetes.io/last-applied-configuration": CANARY, "kept": "yes"}},
    "data": {"password": CANARY},
    "stringData": {"password": CANARY},
    "type": "Opaque",
}  # fmt: skip


@pytest.mark.parametrize("path", ["x.json", "x.yaml", "x.ndjson"])
def test_private_fields_are_dropped(world: Make, path: str) -> None:
    snapshot = read(world({f"snapshot/{path}": json.dumps(SECRET)}))

    (secret,) = snapshot.of_kind("v1", "Secret")
    assert dict(secret.body) == {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "s", "namespace": "default", "annotations": {"kept": "yes"}},
        "type": "Opaque",
    }
    assert secret.annotations == {"kept": "yes"}
    assert CANARY not in repr(snapshot)


def test_config_map_keeps_its_data(world: Make) -> None:
    text = json.dumps({**SECRET, "kind": "ConfigMap"})

    (found,) = read(world({"snapshot/x.json": text})).of_kind("v1", "ConfigMap")

    assert found.body["data"] == {"password": CANARY}
    assert "managedFields" not in found.body["metadata"]


def test_missing_snapshot_is_not_an_empty_snapshot(world: Make) -> None:
    made = world({"a.yaml": "", "snapshot/README.md": "hello"})

    assert read(made, Policy(snapshot=SnapshotPolicy(path="elsewhere"))) == Snapshot(path="elsewhere")
    empty = read(made)
    assert (empty.present, empty.objects, empty.problems) == (True, {}, ())
    assert (empty.complete, empty.served, empty.taken) == (frozenset(), None, None)


def test_header_lists_what_is_complete(world: Make) -> None:
    text = header(
        listed(2),
        listed(0, "empty"),
        listed(1, "partial", complete=False),
        listed(0, "*", kind="Empty"),
        served=["infra.example.com/v1 Cluster", "v1 ConfigMap"],
    )
    snapshot = read(
        world({"snapshot/snapshot.yaml": text, "snapshot/x.json": kubectl(A, B, cluster("c", "partial"))})
    )

    assert snapshot.problems == ()
    assert snapshot.is_complete(KIND, "default")
    assert snapshot.is_complete(KIND, "empty")
    assert not snapshot.is_complete(KIND, "partial")
    assert not snapshot.is_complete(KIND, "unknown")
    assert snapshot.is_complete(GroupKind(KIND.group, "Empty"), "never-seen")
    assert not snapshot.is_complete(GroupKind("", "Cluster"), "default")
    assert snapshot.served == {CLUSTER, ("v1", "ConfigMap")}
    assert (snapshot.taken, snapshot.cluster) == (parse_time("2026-01-01T00:00:00Z"), "mgmt")


def test_list_with_missing_objects_is_not_complete(world: Make) -> None:
    files = {"snapshot/snapshot.yaml": header(listed(2), listed(0, "empty")), "snapshot/x.json": kubectl(A)}
    snapshot = read(world(files))

    (problem,) = snapshot.problems
    assert problem.location == Location("snapshot/snapshot.yaml", 10, 7)
    assert "should have 2 objects, but has 1" in problem.message
    assert not snapshot.is_complete(KIND, "default")
    assert snapshot.is_complete(KIND, "empty")


def test_snapshot_has_the_time_of_its_oldest_complete_list(world: Make) -> None:
    files = {
        "snapshot/snapshot.yaml": header(
            listed(0, time="2025-12-01T00:00:00Z"),
            listed(0, "x", complete=False, time="2025-01-01T00:00:00Z"),
            listed(0, "y"),
        )
    }

    snapshot = read(world(files))

    assert snapshot.taken is not None
    assert format_time(snapshot.taken) == "2025-12-01T00:00:00Z"


def test_snapshot_time_is_its_last_change(world: Make) -> None:
    first = {"snapshot/x.json": kubectl(A), "y": "1"}
    made = world(
        first, {**first, "snapshot/x.json": kubectl(A, B)}, {"snapshot/x.json": kubectl(A, B), "y": "2"}
    )

    assert read(made).time == FIRST + STEP_S


class Broken(NamedTuple):
    reason: str
    path: str
    text: str
    line: int
    message: str


BROKEN = [
    Broken("JSON that ends early", "x.json", kubectl(A)[:100], 0, "truncated"),
    Broken("a line that is no JSON", "x.ndjson", f"{json.dumps(A)}\n{{oops\n{json.dumps(B)}\n", 2,
        "malformed"),
    Broken("YAML that is none", "x.yaml", "a: b: c\n", 1, "not allowed"),
    Broken("an object without a name", "x.json", json.dumps({**A, "metadata": {}}), 1, "no metadata.name"),
    Broken("an object without a kind", "x.ndjson", json.dumps({**A, "kind": ""}), 1,
        "no apiVersion or kind"),
    Broken("labels that are none", "x.json", kubectl(A, {**B, "metadata": {"name": "b", "labels": {"a": 1}}}),
        18, "Expected `str`"),
    Broken("the same in YAML", "x.yaml", as_yaml(A, {**B, "metadata": {"name": "b", "labels": [1]}}), 4,
        "Expected `object"),
    Broken("a bare text", "x.yaml", "hello\n", 1, "not a Kubernetes object"),
    Broken("bytes that are no text", "x.json", "\x00", 1, ""),
    Broken("two truths of one object", "x.json", kubectl(A, {**A, "spec": {}}), 18,
        "is also at snapshot/x.json:4"),
]  # fmt: skip


@pytest.mark.parametrize("case", BROKEN, ids=lambda c: c.reason)
def test_broken_snapshot_file_is_a_problem_and_nothing_is_complete(world: Make, case: Broken) -> None:
    files = {
        "snapshot/snapshot.yaml": header(listed(0, "other")),
        f"snapshot/{case.path}": case.text,
        "snapshot/good.json": kubectl(cluster("good")),
    }
    snapshot = read(world(files))

    (problem,) = snapshot.problems
    assert (problem.location.path, problem.location.line) == (f"snapshot/{case.path}", case.line)
    assert problem.reason == Reason.INVALID_SNAPSHOT
    assert case.message in problem.message
    assert problem.hint
    assert snapshot.unreadable
    assert not snapshot.is_complete(KIND, "other")
    assert "default/good" in names(snapshot)


@pytest.mark.parametrize("path", ["x.ndjson", "x.json", "x.yaml"])
def test_file_with_too_many_objects_is_one_problem(path: str) -> None:
    limits = YamlLimits(max_bytes=1 << 20, max_documents=2, max_nodes=1000)
    texts = {
        "x.ndjson": json.dumps(A) + "\n",
        "x.json": json.dumps(A) + ",",
        "x.yaml": f"---\n{json.dumps(A)}\n",
    }

    def parse(number: int) -> FileObjects:
        text = texts[path] * number
        return parse_snapshot_file(
            path,
            (f'{{"kind": "List", "items": [{text[:-1]}]}}' if path == "x.json" else text).encode(),
            limits,
        )

    assert len(parse(2).objects) == 2
    (problem,) = parse(3).problems
    assert parse(3).objects == ()
    assert problem.message in ("The file has more than 2 objects", "The file has more than 2 documents")


@pytest.mark.parametrize("case", UNREAD)
def test_path_that_is_not_read_is_a_problem_and_nothing_is_complete(
    world: Make, tmp_path: Path, case: str
) -> None:
    world({"snapshot/snapshot.yaml": header(listed(2)), "snapshot/good.json": kubectl(A, B)})

    snapshot = read(add_unread(tmp_path, "snapshot", case))

    (problem,) = snapshot.problems
    assert problem.location.path.startswith("snapshot/")
    assert UNREAD[case][2] in problem.message
    assert snapshot.unreadable
    assert names(snapshot) == ["default/a", "default/b"]


def test_duplicate_object_counts_once(world: Make) -> None:
    snapshot = read(world({"snapshot/x.json": kubectl(A), "snapshot/y.yaml": as_yaml(A)}))

    assert (names(snapshot), snapshot.problems) == (["default/a"], ())
    assert snapshot.of_kind(*CLUSTER)[0].location.path == "snapshot/x.json"


def test_object_of_two_api_versions_counts_once_in_its_namespace_and_in_all(world: Make) -> None:
    def stored(version: str, kind: str, name: str, namespace: str = "default") -> dict[str, Any]:
        return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": namespace}}

    items = [
        *(stored("apps/v1", "Deployment", "a", namespace) for namespace in ("default", "other")),
        *(stored(version, "Deployment", "b") for version in ("apps/v1", "apps/v1beta1")),
        *(stored("apps/v1beta1", "Deployment", "c"), stored("v1", "ConfigMap", "a")),
    ]
    counts = {
        ("apps", "Deployment"): {"default": 3, "other": 1, ALL_NAMESPACES: 4},
        ("", "ConfigMap"): {"default": 1, ALL_NAMESPACES: 1},
    }
    lists = [
        listed(count, namespace, group=group, kind=kind)
        for (group, kind), spaces in counts.items()
        for namespace, count in spaces.items()
    ]

    snapshot = read(world({"snapshot/snapshot.yaml": header(*lists), "snapshot/x.json": kubectl(*items)}))

    assert snapshot.problems == ()
    assert len(snapshot.complete) == len(lists)


@pytest.mark.parametrize(
    "text",
    [
        *("a: [", "x\n---\ny\n", header(listed(0), extra=1), header(time="yesterday"), header({"kind": 1})),
        header().replace("/v1alpha1", "/v2"),
    ],
    ids=["not YAML", "two documents", "an unknown field", "no time", "a list without a count", "newer"],
)
def test_nothing_is_complete_with_an_invalid_header(world: Make, text: str) -> None:
    snapshot = read(world({"snapshot/snapshot.yaml": text, "snapshot/x.json": kubectl(A)}))

    assert snapshot.problems
    assert {p.location.path for p in snapshot.problems} == {"snapshot/snapshot.yaml"}
    assert names(snapshot) == ["default/a"]
    assert not snapshot.is_complete(KIND, "other")


@pytest.mark.parametrize("depth", [150, 2000, 100_000])
def test_deeply_nested_values_are_a_problem(world: Make, depth: int) -> None:
    spec = "[" * depth + "]" * depth
    text = f'{{"apiVersion": "v1", "kind": "X", "metadata": {{"name": "a"}}, "spec": {spec}}}'

    assert read(world({"snapshot/x.json": text})).unreadable


def test_cluster_scoped_objects_have_no_namespace(world: Make) -> None:
    text = json.dumps({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "labels": None}})

    (node,) = read(world({"snapshot/x.json": text})).of_kind("v1", "Node")

    assert (node.namespace, node.labels) == ("", {})


def test_times_round_trip(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        assert format_time(parse_time("2026-03-01T12:00:00")) == "2026-03-01T12:00:00Z"
    finally:
        monkeypatch.delenv("TZ")
        time.tzset()
    assert format_time(parse_time("2026-03-01T12:00:00+02:00")) == "2026-03-01T10:00:00Z"
    assert parse_time("1700000000") == 1_700_000_000
