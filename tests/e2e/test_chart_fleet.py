"""A chart in three versions over six clusters: waves, edits, a conflict, injected objects, a rollback."""

import json
import re
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import pytest

from tests.support.charts import needs_helm
from tests.support.small_world import CONFIGURATION, write_fleet
from tests.support.world import World, git, refs

pytestmark = [needs_helm, pytest.mark.slow]

EDGES = tuple(f"edge-{number:02}" for number in range(1, 7))
CANARIES = EDGES[:2]
KPTFILE = """\
apiVersion: kpt.dev/v1
kind: Kptfile
metadata: {name: web}
pipeline:
  mutators:
  - image: apply-replacements:v0.1.1
    configPath: replace.yaml
  - image: render-helm-chart:v0.3
    configPath: chart.yaml
"""
REPLACE = """\
apiVersion: fn.kpt.dev/v1alpha1
kind: ApplyReplacements
metadata:
  name: zone
  annotations: {config.kubernetes.io/local-config: "true"}
replacements:
- source: {kind: ConfigMap, name: site, fieldPath: data.zone}
  targets:
  - select: {kind: RenderHelmChart}
    fieldPaths: [helmCharts.0.templateOptions.values.valuesInline.zone]
"""
SITE = """\
apiVersion: v1
kind: ConfigMap
metadata:
  name: site
  annotations:
    kpt.dev/config-injection: required
    config.kubernetes.io/local-config: "true"
data: {zone: unknown}
"""
CHART = """\
apiVersion: fn.kpt.dev/v1alpha1
kind: RenderHelmChart
metadata:
  name: web
  annotations:
    config.kubernetes.io/local-config: "true"
    reconciler.dev/chart-values: keep
helmCharts:
- chartArgs: {name: web, version: VERSION}
  templateOptions:
    releaseName: web
    includeCRDs: true
    values:
      valuesFiles: [values.yaml]
      valuesInline:
        replicas: 1 # kpt-set: ${replicas}
        zone: unknown
"""
DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ .Release.Name }}
  labels: {zone: {{ .Values.zone }}}
spec:
  replicas: {{ .Values.replicas }}
  minReadySeconds: {{ .Values.ready }}
  template:
    spec:
      terminationGracePeriodSeconds: {{ .Values.grace }}
      priorityClassName: {{ .Values.priority }}
"""
SERVICE = "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec:\n  sessionAffinity: None\n"
CONFIG = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: web}\ndata: {mode: plain}\n"
NAMESPACE = "apiVersion: v1\nkind: Namespace\nmetadata: {name: shops}\n"
CRD = """\
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: shops.example.com}
spec: {group: example.com, scope: NAMES, versions: []}
"""
SET = """\
apiVersion: config.porch.kpt.dev/v1alpha2
kind: PackageVariantSet
metadata: {name: web}
spec:
  upstream: {repo: blueprints, package: web, revision: REVISION}
  targets:
  - repositorySelector: {matchLabels: {role: edge}}
    template:
      downstream: {package: web}
      injectors:
      - {kind: ConfigMap, nameExpr: "'site-' + repository.labels.zone"}
      pipeline:
        mutators:
        - image: apply-setters:v0.2
          configMapExprs:
          - {key: replicas, valueExpr: "repository.labels.tier == 'canary' ? '1' : '3'"}
"""
WAVES = """\
  rollouts:
  - waves:
    - {name: canary, selector: {matchLabels: {tier: canary}}}
    - {name: all}
"""


def release(version: str, *, ready: int, grace: int, crd: str = "", **templates: str) -> dict[str, str]:
    """Return the package with a version of its chart."""
    files = {f"charts/web/templates/{name}.yaml": text for name, text in templates.items()}
    files |= {"charts/web/crds/shops.yaml": crd} if crd else {}
    files |= {
        "Kptfile": KPTFILE,
        "chart.yaml": CHART.replace("VERSION", version),
        "replace.yaml": REPLACE,
        "site.yaml": SITE,
        "values.yaml": "priority: normal\n",
        "charts/web/Chart.yaml": f"apiVersion: v2\nname: web\nversion: {version}\n",
        "charts/web/values.yaml": f"ready: {ready}\ngrace: {grace}\npriority: low\n",
    }
    return files


CLUSTER_WIDE, NAMESPACED = (CRD.replace("NAMES", scope) for scope in ("Cluster", "Namespaced"))
VERSIONS = (
    release(
        "1.0.0", ready=1, grace=30, crd=CLUSTER_WIDE, deployment=DEPLOYMENT, service=SERVICE, config=CONFIG
    ),
    release(
        "1.1.0", ready=5, grace=60, crd=CLUSTER_WIDE, workload=DEPLOYMENT, service=SERVICE, config=CONFIG
    ),
    release("2.0.0", ready=5, grace=60, crd=NAMESPACED, workload=DEPLOYMENT, service=SERVICE, a=NAMESPACE),
)


def repository(name: str) -> str:
    zone, tier = ("north", "canary") if name in CANARIES else ("south", "main")
    labels = f"{{role: edge, tier: {tier}, zone: {zone}}}" if name in EDGES else "{}"
    return f"""\
apiVersion: config.porch.kpt.dev/v1alpha1
kind: Repository
metadata: {{name: {name}, labels: {labels}}}
spec:
  type: git
  deployment: {str(name in EDGES).lower()}
  git: {{repo: ../{name}.git, branch: main}}
"""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    control = {"manifests/web.yaml": SET.replace("REVISION", "1")}
    control |= {f"manifests/{edge}.yaml": repository(edge) for edge in EDGES}
    for zone in ("north", "south"):
        control[f"snapshot/{zone}.yaml"] = (
            f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: site-{zone}, namespace: default}}\n"
            f"data: {{zone: {zone}-1}}\n"
        )
    revisions = [VERSIONS[0], *({**dict.fromkeys(a.keys() - b.keys()), **b} for a, b in pairwise(VERSIONS))]
    root = tmp_path_factory.mktemp("charts")
    return write_fleet(root, "web", revisions, EDGES, control, configuration=CONFIGURATION + WAVES)


BY_NAME = tuple(f"{edge}/web" for edge in EDGES)


def settle(world: World, which: Iterable[str] = ("--all",)) -> str:
    """Apply and approve until nothing moves; return what was printed."""
    printed = ""
    for _ in range(6):
        said = world.run("apply")
        assert said.code in (0, 4, 7), said.out + said.err  # 4: a Namespace goes with a roll back
        approved = "".join(world.run("approve", each).out for each in which)
        # The scope of a definition is immutable: a package that changes it is approved by its name.
        for name in re.findall(r"refused: (\S+): \S+ request \S+ has what its cluster", approved):
            approved += world.run("approve", name).out
        printed += said.out + approved
        if "approved" not in approved:
            break
    return printed


def follow(world: World, revision: int) -> None:
    with world.edit("control", f"Follow web/v{revision}") as folder:
        (folder / "manifests/web.yaml").write_text(SET.replace("REVISION", str(revision)))


def edit(world: World, edge: str, path: str, old: str, new: str) -> None:
    with world.edit(edge, "Edit by hand") as folder:
        file = folder / "web" / path
        assert old in file.read_text()
        file.write_text(file.read_text().replace(old, new))


def on_main(world: World, edge: str, path: str) -> str:
    return git(world.root / f"{edge}.git", "show", f"main:web/{path}")


def having(world: World, path: str, text: str) -> set[str]:
    return {edge for edge in EDGES if text in on_main(world, edge, path)}


def test_life_of_a_chart_in_a_fleet(world: World) -> None:
    """One story in parts, because each part needs what the one before left."""
    for part in (created_in_waves, edited_and_bumped, conflict_answered, bumped_again, rolled_back):
        part(world)
        before = world.all_refs()
        settle(world)
        assert world.all_refs() == before, part.__name__


def created_in_waves(world: World) -> None:
    printed = settle(world)

    assert printed.index("wave canary: complete, 2 of 2") < printed.index("approved edge-03/web: web/v1")
    listed = git(world.root / "edge-01.git", "ls-tree", "-r", "--name-only", "main:web").split()
    assert [name for name in listed if "chart" in name] == ["chart.yaml.input"]
    assert having(world, "deployment_web.yaml", "replicas: 1\n") == set(CANARIES)
    assert having(world, "deployment_web.yaml", "{zone: north-1}") == set(CANARIES)
    assert having(world, "deployment_web.yaml", "{zone: south-1}") == set(EDGES) - set(CANARIES)
    assert having(world, "deployment_web.yaml", "priorityClassName: normal") == set(EDGES)
    assert having(world, "customresourcedefinition_shops.example.com.yaml", "scope: Cluster") == set(EDGES)
    fields = {each["field"]: each for each in explained(world, "edge-03")["fields"]}
    assert (
        "valueExpr: repository.labels.tier == 'canary'" in fields["helmCharts[0].values.replicas"]["source"]
    )
    assert fields["helmCharts[0].values.replicas"]["location"]["path"] == "manifests/web.yaml"
    zone = fields["helmCharts[0].values.zone"]
    assert zone["source"].startswith("data.zone of object ConfigMap default/site-south of the snapshot, by ")
    assert (zone["value"], zone["location"]["path"]) == ("south-1", "snapshot/south.yaml")
    assert fields["priority"]["source"] == "upstream web/v1: values.yaml"
    assert fields["values"]["source"].startswith("defaults of chart web 1.0.0")


def edited_and_bumped(world: World) -> None:
    edit(world, "edge-02", "service_web.yaml", "sessionAffinity: None", "sessionAffinity: ClientIP")
    edit(world, "edge-05", "deployment_web.yaml", "Seconds: 30", "Seconds: 45")
    edit(world, "edge-06", "values.yaml.input", "normal", "high")
    follow(world, 2)
    world.run("apply")
    world.run("approve", "--all")
    planned = json.loads(world.run("plan", "-o", "json").out)["changes"]
    (conflict,) = [each for change in planned for each in change["conflicts"]]
    assert conflict["template"] == "web/templates/workload.yaml"
    settle(world)

    others = set(EDGES) - {"edge-05"}
    assert having(world, "deployment_web.yaml", "# Source: web/templates/workload.yaml") == others
    assert having(world, "deployment_web.yaml", "Seconds: 60\n") == others
    assert having(world, "service_web.yaml", "sessionAffinity: ClientIP") == {"edge-02"}
    assert having(world, "deployment_web.yaml", "priorityClassName: high") == {"edge-06"}
    fields = {each["field"]: each["source"] for each in explained(world, "edge-06")["fields"]}
    assert fields["priority"] == "an edit in the package"


def conflict_answered(world: World) -> None:
    (conflict,) = explained(world, "edge-05")["conflicts"]
    assert (conflict["upstream"], conflict["local"]) == ("60", "45")
    assert conflict["template"] == "web/templates/workload.yaml"
    changed = {f["field"]: (f["value"], f["source"]) for f in explained(world, "edge-05")["fields"]}
    assert changed[".Values.grace"] == ("30 -> 60", "defaults of chart web 1.1.0")
    assert changed[".Chart.Version"] == ("1.0.0 -> 1.1.0", "upstream web/v2")
    body = world.run("pr", "show", "edge-05/web").out
    rows = (
        "| before | `30` |",
        "| upstream | `60` |",
        "| local | `45` |",
        "| template | `web/templates/workload.yaml` |",
    )
    assert all(row in body for row in rows)
    keep_local(world, conflict)
    settle(world)

    assert having(world, "deployment_web.yaml", "Seconds: 45\n") == {"edge-05"}
    assert having(world, "chart.yaml.input", "version: 1.1.0") == set(EDGES)
    assert having(world, "chart.yaml.input", "zone: unknown") == set()
    assert having(world, "chart.yaml.input", "replicas: 1 #") == set(CANARIES)


def bumped_again(world: World) -> None:
    follow(world, 3)
    planned = json.loads(world.run("plan", "-o", "json").out)
    (canary, _) = [each for each in planned["changes"] if each["op"] == "update"]
    assert [each["class"] for each in canary["risks"]] == ["removal", "crd", "namespace"]
    settle(world)

    assert having(world, "customresourcedefinition_shops.example.com.yaml", "scope: Namespaced") == set(EDGES)
    assert not any(
        "configmap_web.yaml" in git(world.root / f"{e}.git", "ls-tree", "-r", "main:web") for e in EDGES
    )
    assert having(world, "service_web.yaml", "sessionAffinity: ClientIP") == {"edge-02"}
    assert having(world, "deployment_web.yaml", "Seconds: 45\n") == {"edge-05"}


def rolled_back(world: World) -> None:
    follow(world, 1)
    settle(world, BY_NAME)  # a CRD goes, and its objects with it: `--all` leaves that to people
    (conflict,) = explained(world, "edge-05")["conflicts"]
    assert (conflict["upstream"], conflict["local"]) == ("30", "45")
    keep_local(world, conflict)
    settle(world, BY_NAME)

    assert having(world, "configmap_web.yaml", "mode: plain") == set(EDGES)
    assert having(world, "deployment_web.yaml", "# Source: web/templates/deployment.yaml") == set(EDGES)
    assert having(world, "deployment_web.yaml", "Seconds: 45\n") == {"edge-05"}
    assert having(world, "deployment_web.yaml", "Seconds: 30\n") == set(EDGES) - {"edge-05"}
    assert having(world, "service_web.yaml", "sessionAffinity: ClientIP") == {"edge-02"}
    assert having(world, "deployment_web.yaml", "priorityClassName: high") == {"edge-06"}


def keep_local(world: World, conflict: dict[str, str]) -> None:
    (branch,) = [name for name in refs(world.root / "edge-05.git") if "/drafts/web/" in name]
    with world.edit("edge-05", conflict["keep"], branch=branch.removeprefix("refs/heads/")):
        pass


def explained(world: World, edge: str) -> dict[str, Any]:
    said = world.run("explain", f"{edge}/web", "-o", "json")
    assert said.code == 0, said.err
    return dict(json.loads(said.out))
