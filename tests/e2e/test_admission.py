"""What clusters would not take of a change: in the plan, the pull request, `check`, the page and metrics."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.git import Repo, kptfile
from tests.support.schema import output_violations
from tests.support.small_world import CONFIGURATION, write_fleet
from tests.support.world import World

KINDS = (
    ("apiextensions.k8s.io", "CustomResourceDefinition"),
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy"),
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding"),
    ("", "Namespace"),
)
"""The kinds that a snapshot lists for judgements."""


def snapshot(
    cluster: str,
    objects: Sequence[Mapping[str, Any]] = (),
    *,
    kinds: Sequence[tuple[str, str]] = KINDS,
    kubernetes: str = "v1.33.1",
    time: str = "2026-01-01",
    served: Sequence[str] | None = None,
) -> dict[str, str]:
    """Return the snapshot of a cluster with complete lists of some kinds."""
    lists = [
        {
            "group": g,
            "kind": k,
            "namespace": "*",
            "count": sum(o["kind"] == k for o in objects),
            "complete": True,
        }
        for g, k in kinds
    ]
    spec = {"time": f"{time}T00:00:00Z", "lists": lists, "versions": {"kubernetes": kubernetes}}
    spec |= {} if served is None else {"served": list(served)}
    header = {"apiVersion": "reconciler.dev/v1alpha1", "kind": "Snapshot", "metadata": {"name": cluster}}
    return {
        f"snapshot/{cluster}/snapshot.yaml": json.dumps({**header, "spec": spec}),
        f"snapshot/{cluster}/objects.ndjson": "".join(f"{json.dumps(v)}\n" for v in objects) or "\n",
    }


def variant(edge: str, revision: int) -> str:
    """Return the manifest of the package in a cluster."""
    return f"""\
apiVersion: config.porch.kpt.dev/v1alpha1
kind: PackageVariant
metadata: {{name: web-{edge}}}
spec:
  upstream: {{repo: blueprints, package: web, revision: {revision}}}
  downstream: {{repo: {edge}, package: web}}
"""


def fleet(
    root: Path,
    before: Mapping[str, str],
    after: Mapping[str, str | None],
    *,
    edges: Sequence[str] = ("edge-1", "edge-2"),
    settings: str = "",
    **files: str,
) -> World:
    """Return a world in which all clusters have the first revision of a package; the second one is there."""
    variants = {f"manifests/web-{edge}.yaml": variant(edge, 1) for edge in edges}
    revisions = ({"Kptfile": kptfile("web"), **before}, after)
    configuration = CONFIGURATION + settings
    world = write_fleet(root, "web", revisions, edges, variants | files, configuration=configuration)
    world.publish()
    return world


def ask_for_second(world: World, edges: Sequence[str] = ("edge-1", "edge-2")) -> None:
    """Have the second revision in these clusters."""
    Repo(world.control).commit({f"manifests/web-{edge}.yaml": variant(edge, 2) for edge in edges})


def judgements(world: World) -> list[tuple[str, str, str, str]]:
    """Return cluster, verdict, object and message of each judgement of the plan."""
    plan = json.loads(world.run("plan", "--output", "json").out)
    return sorted(
        (j["cluster"], "old " * j["old"] + j["verdict"], j["object"], j["message"])
        for change in plan["changes"]
        for j in change["judgements"]
    )


IMMUTABLE = "spec.selector: field is immutable"


def deployment(app: str, annotations: str = "{}") -> str:
    return f"""\
apiVersion: apps/v1
kind: Deployment
metadata: {{name: web, namespace: shop, annotations: {annotations}}}
spec:
  selector: {{matchLabels: {{app: {app}}}}}
  template:
    metadata: {{labels: {{app: {app}}}}}
    spec: {{containers: [{{name: web, image: nginx:1}}]}}
"""


@pytest.fixture
def world(tmp_path: Path) -> World:
    return fleet(tmp_path / "w", {"d.yaml": deployment("a")}, {"d.yaml": deployment("b")})


def test_plan_names_once_what_every_cluster_would_refuse(world: World) -> None:
    ask_for_second(world)

    shown = world.run("plan").out

    assert f"would be refused: Deployment {IMMUTABLE} (2 packages: edge-1/web, edge-2/web)" in shown
    assert "2 to update, 2 not ready" in shown
    assert judgements(world) == [
        (edge, "refused", "Deployment shop/web", IMMUTABLE) for edge in ("edge-1", "edge-2")
    ]
    assert not list(output_violations("plan", world.run("plan", "--output", "json").out))


def test_refused_draft_is_written_and_approved_by_name_alone(world: World) -> None:
    ask_for_second(world)
    world.run("apply")

    body = world.run("pr", "show", "edge-1#2").out
    by_all = world.run("approve", "--all")
    by_name = world.run("approve", "edge-1/web")

    assert f"`edge-1 would refuse Deployment shop/web: {IMMUTABLE}`" in body
    assert "It is not ready yet" in body
    assert by_all.code == 4
    assert IMMUTABLE in by_all.out + by_all.err
    assert by_name.code == 0
    assert "although it has what its cluster does not take: edge-1 would refuse Deployment" in by_name.out
    assert world.run("apply").code == 0
    assert [j[0] for j in judgements(world)] == ["edge-2"], "main has what was approved"


@pytest.mark.parametrize(("settings", "code"), [("", 0), ("  admission: {refused: problem}\n", 3)])
def test_check_lists_what_a_change_adds_and_fails_where_settings_ask_for_it(
    tmp_path: Path, settings: str, code: int
) -> None:
    files = ({"d.yaml": deployment("a")}, {"d.yaml": deployment("b")})
    world = fleet(tmp_path / "w", *files, settings=settings)
    control = Repo(world.control)
    control.commit({"manifests/web-edge-1.yaml": variant("edge-1", 2)})
    control.commit({"manifests/web-edge-2.yaml": variant("edge-2", 2)}, branch="more", start="main")

    checked = world.run("check", "--base", "main", "--head", "more")
    value = json.loads(world.run("check", "--base", "main", "--head", "more", "--output", "json").out)
    sarif = json.loads(world.run("check", "--base", "main", "--head", "more", "--output", "sarif").out)

    assert checked.code == code
    assert f"would be refused: Deployment {IMMUTABLE} (1 package: edge-2/web)" in checked.out
    assert [(row["verdict"], row["names"]) for row in value["judgements"]] == [("refused", ["edge-2/web"])]
    refused = [(r["level"], r["ruleId"]) for r in sarif["runs"][0]["results"] if "edge-2 would" in str(r)]
    assert refused == [("error" if code else "warning", "WouldBeRefused")]
    planned = json.loads(world.run("plan", "--output", "sarif").out)["runs"][0]["results"]
    assert [r["ruleId"] for r in planned if IMMUTABLE in str(r)] == ["WouldBeRefused"]


CRON = "apiVersion: {0}\nkind: CronJob\nmetadata: {{name: c}}\nspec: {{schedule: '* * * * *'}}\n"


def test_version_that_kubernetes_serves_no_more_is_refused_where_the_snapshot_names_the_version(
    tmp_path: Path,
) -> None:
    files = {**snapshot("edge-1", kubernetes="v1.24.3"), **snapshot("edge-2")}
    world = fleet(
        tmp_path / "w", {"c.yaml": CRON.format("batch/v1")}, {"c.yaml": CRON.format("batch/v1beta1")}, **files
    )
    ask_for_second(world)

    reason = "apiVersion: Kubernetes serves no CronJob of batch/v1beta1 since 1.25"
    assert judgements(world) == [("edge-2", "refused", "CronJob c", reason)]


def definition(*versions: str, stored: tuple[str, ...] = ()) -> dict[str, object]:
    value: dict[str, object] = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "nets.x.io"},
        "spec": {
            "group": "x.io",
            "scope": "Namespaced",
            "names": {"kind": "Net", "plural": "nets"},
            "versions": [
                {"name": name, "served": True, "storage": name == versions[-1]} for name in versions
            ],
        },
    }
    return {**value, "status": {"storedVersions": list(stored)}} if stored else value


def test_what_a_snapshot_lacks_is_not_judged_once_for_its_cluster(tmp_path: Path) -> None:
    files = {"c.yaml": CRON.format("batch/v1")}, {"c.yaml": None}
    world = fleet(tmp_path / "w", *files, edges=("edge-1",), **snapshot("edge-1", time="2025-01-01"))
    ask_for_second(world, ("edge-1",))

    (line,) = [line for line in world.run("plan").out.splitlines() if line.startswith("not judged")]
    sarif = json.loads(world.run("plan", "--output", "sarif").out)["runs"][0]["results"]
    (note,) = [r["message"]["text"] for r in sarif if r["ruleId"] == "not judged: Snapshot"]

    assert "its snapshot is older than snapshot.maxAge" in line
    assert line.endswith("(1 cluster: edge-1)")
    assert "its snapshot is older than snapshot.maxAge" in note
    assert "(1 cluster: edge-1)" in note


CLASS_RULE = {"rule": "self == oldSelf", "message": "the class is immutable"}
SCHEMA = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "required": ["size"],
            "properties": {
                "size": {"type": "string", "default": "small"},
                "class": {"type": "string", "x-kubernetes-validations": [CLASS_RULE]},
                "mode": {"type": "string", "pattern": "^(?i)(fast|slow)$"},
            },
        }
    },
}


def with_schema() -> dict[str, object]:
    value = definition("v1")
    value["spec"]["versions"][0]["schema"] = {"openAPIV3Schema": SCHEMA}  # type: ignore[index]
    return value


def net(fields: str, name: str = "a") -> str:
    return f"apiVersion: x.io/v1\nkind: Net\nmetadata: {{name: {name}}}\nspec: {{{fields}}}\n"


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("class: a", "class: b", "spec.class: the class is immutable"),
        ("class: a", "class: a, mode: FAST", ""),
        ("class: a", "class: a, mode: other", "spec.mode: should match '^(?i)(fast|slow)$'"),
    ],
)
def test_schema_and_rules_of_the_definition_in_the_snapshot_decide(
    tmp_path: Path, before: str, after: str, message: str
) -> None:
    files = {**snapshot("edge-1", [with_schema()]), **snapshot("edge-2")}
    world = fleet(tmp_path / "w", {"net.yaml": net(before)}, {"net.yaml": net(after)}, **files)
    ask_for_second(world)

    unknown = ("edge-2", "not judged", "Net a", "the cluster has no definition of Net.x.io")
    assert judgements(world) == [*([("edge-1", "refused", "Net a", message)] if message else []), unknown]


def test_definition_of_the_same_change_does_not_govern(tmp_path: Path) -> None:
    loose = with_schema()
    properties = {"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    loose["spec"]["versions"][0]["schema"] = {"openAPIV3Schema": {"type": "object", "properties": properties}}  # type: ignore[index]
    before = {"crd.yaml": json.dumps(with_schema()), "net.yaml": net("class: a")}
    after = {"crd.yaml": json.dumps(loose), "net.yaml": net("class: b")}
    world = fleet(tmp_path / "w", before, after, edges=("edge-1",))
    ask_for_second(world, ("edge-1",))

    text = "spec.class: the class is immutable, unless its new definition comes first"
    assert judgements(world) == [("edge-1", "not judged", "Net a", text)]


ADMISSION = "admissionregistration.k8s.io/v1"
REPLICAS = {"expression": "object.spec.replicas <= variables.most", "message": "too many replicas"}


def policy(name: str = "few", **spec: Any) -> dict[str, Any]:
    rule = {
        "apiGroups": ["apps"],
        "apiVersions": ["v1"],
        "operations": ["CREATE", "UPDATE"],
        "resources": ["deployments"],
    }
    body = {
        "matchConstraints": {"resourceRules": [rule]},
        "variables": [{"name": "most", "expression": "5"}],
        "validations": [REPLICAS],
        **spec,
    }
    return {
        "apiVersion": ADMISSION,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": body,
    }


def binding(name: str = "few", actions: Sequence[str] = ("Deny",), **spec: Any) -> dict[str, Any]:
    body = {"policyName": name, "validationActions": list(actions), **spec}
    kind = "ValidatingAdmissionPolicyBinding"
    return {"apiVersion": ADMISSION, "kind": kind, "metadata": {"name": f"{name}-all"}, "spec": body}


def namespace(**labels: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop", "labels": labels}}


def scaled(replicas: str, more: str = "") -> str:
    return deployment("a").replace("spec:\n  selector", f"spec:\n  replicas: {replicas}{more}\n  selector")


PODS = {
    "resourceRules": [
        {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    ]
}
LATEST = {"expression": "object.spec.containers.all(c, !c.image.endsWith(':1'))", "message": "no image 1"}


def test_pods_of_a_workload_are_judged_and_old_faults_are_told_apart(tmp_path: Path) -> None:
    files = snapshot("edge-1", [policy("tags", matchConstraints=PODS, validations=[LATEST]), binding("tags")])
    both = ({"d.yaml": scaled("2")}, {"d.yaml": scaled("7")})
    world = fleet(tmp_path / "w", *both, edges=("edge-1",), **files)
    Repo(world.control).commit(
        {"manifests/web-edge-1.yaml": variant("edge-1", 2)}, branch="more", start="main"
    )
    checked = world.run("check", "--base", "main", "--head", "more").out
    ask_for_second(world, ("edge-1",))
    metrics = tmp_path / "metrics.txt"

    shown = world.run("plan", "--metrics-file", str(metrics)).out

    assert "refused" not in checked, "the change does not add it"
    assert 'verdict="refused"} 0.0' in metrics.read_text()
    assert "refused already: Deployment policy tags for its Pods: no image 1 (1 package: edge-1/web)" in shown
    assert "not ready" not in shown, "main is refused alike"


def moved(edge: str, package: str, name: str) -> str:
    manifest = variant(edge, 2).replace(f"name: web-{edge}", f"name: {name}")
    return manifest.replace(f"repo: {edge}, package: web", f"repo: {edge}, package: {package}")


@pytest.mark.parametrize(
    ("files", "count"),
    [
        pytest.param({"manifests/web-edge-1.yaml": moved("edge-1", "shop/web", "web-edge-1")}, 1, id="moved"),
        pytest.param({"manifests/web-edge-1.yaml": None}, 0, id="removed"),
    ],
)
def test_package_that_moves_is_compared_with_what_main_has_of_it(
    world: World, files: dict[str, str | None], count: int
) -> None:
    Repo(world.control).commit(files)

    assert len([j for j in judgements(world) if j[1] == "refused"]) == count
