"""Charts in a fleet: what lands is manifests, and what people edit of them survives the next chart."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from reconciler.names.objects import Files
from reconciler.render import charts
from reconciler.resolve import up_to_date
from tests.support.agents import packages_at, refused, unmarked
from tests.support.charts import KPTFILE, needs_helm
from tests.support.small_world import write_fleet
from tests.support.world import World, git, refs

pytestmark = needs_helm

CONFIGURATION = "apiVersion: reconciler.dev/v1alpha1\nkind: Reconciler\nmetadata:\n  name: fleet\n"
RECORD = "chart.yaml.input"
EDGES = ("edge-1", "edge-2", "edge-3")
CONFIG = """\
apiVersion: fn.kpt.dev/v1alpha1
kind: RenderHelmChart
metadata:
  name: web
  annotations:
    config.kubernetes.io/local-config: "true"
helmCharts:
- chartArgs:
    name: web
  templateOptions:
    releaseName: web
    includeCRDs: true
    values:
      valuesInline:
        replicas: 1 # kpt-set: ${replicas}
"""
DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ .Release.Name }}
  labels:
    app.kubernetes.io/version: {{ .Chart.Version | quote }}
spec:
  replicas: {{ .Values.replicas }}
  minReadySeconds: {{ .Values.ready }}
  template:
    spec:
      terminationGracePeriodSeconds: {{ .Values.grace }}
"""
SERVICE = "apiVersion: v1\nkind: Service\nmetadata:\n  name: web\nspec:\n  sessionAffinity: None\n"
CONFIG_MAP = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: web\ndata:\n  mode: plain\n"


def release(version: str, *, ready: int = 1, grace: int = 30, **templates: str) -> dict[str, str]:
    """Return a revision of the upstream package with a version of its chart."""
    files = {f"{name}.yaml": text for name, text in templates.items()}
    return {
        "Kptfile": KPTFILE,
        "chart.yaml": CONFIG.replace(
            "name: web\n  template", f"name: web\n    version: {version}\n  template"
        ),
        "charts/web/Chart.yaml": f"apiVersion: v2\nname: web\nversion: {version}\n",
        "charts/web/values.yaml": f"replicas: 1\nready: {ready}\ngrace: {grace}\n",
        **{f"charts/web/templates/{path}": text for path, text in files.items()},
    }


VERSIONS = (
    release("1.0.0", deployment=DEPLOYMENT, service=SERVICE, config=CONFIG_MAP),
    release("1.1.0", ready=5, grace=60, workload=DEPLOYMENT, service=SERVICE, config=CONFIG_MAP),
    release("2.0.0", ready=5, grace=90, workload=DEPLOYMENT, service=SERVICE),
)


def variant(edge: str, revision: int = 1, replicas: int = 2) -> str:
    return f"""\
apiVersion: config.porch.kpt.dev/v1alpha1
kind: PackageVariant
metadata: {{name: web-{edge}, namespace: default}}
spec:
  upstream: {{repo: blueprints, package: web, revision: {revision}}}
  downstream: {{repo: {edge}, package: web}}
  pipeline:
    mutators:
    - image: apply-setters:v0.2
      configMap: {{replicas: "{replicas}"}}
"""


@pytest.fixture
def world(tmp_path: Path) -> World:
    revisions = [VERSIONS[0], *({**dict.fromkeys(a.keys() - b.keys()), **b} for a, b in pairwise(VERSIONS))]
    variants = {f"variants/{edge}.yaml": variant(edge) for edge in EDGES}
    return write_fleet(tmp_path / "w", "web", revisions, EDGES, variants, configuration=CONFIGURATION)


def apply_and_merge(world: World) -> None:
    said = world.run("apply")
    assert said.code in (0, 7), said.out + said.err
    for edge in EDGES:
        if any(name.startswith("refs/heads/drafts/web/") for name in refs(world.root / f"{edge}.git")):
            world.run("approve", f"{edge}/web")
    said = world.run("apply")
    assert said.code in (0, 7), said.out + said.err


def main(world: World, edge: str, path: str) -> str:
    return git(world.root / f"{edge}.git", "show", f"main:web/{path}")


def set_variants(world: World, *, revision: int = 1, replicas: int = 2) -> None:
    with world.edit("control", "Change the variants") as folder:
        for edge in EDGES:
            (folder / "variants" / f"{edge}.yaml").write_text(variant(edge, revision, replicas))


def edit(world: World, edge: str, path: str, old: str, new: str) -> None:
    with world.edit(edge, "Edit by hand") as folder:
        file = folder / "web" / path
        assert old in file.read_text()
        file.write_text(file.read_text().replace(old, new))


def files(world: World, edge: str) -> set[str]:
    listed = git(world.root / f"{edge}.git", "ls-tree", "-r", "--name-only", "main:web").split()
    return set(listed) - {"Kptfile", "package-context.yaml", RECORD}


@pytest.mark.parametrize("name", ["values-mine.yaml.input", "values-mine.yaml"])
def test_values_file_that_people_add_downstream_is_rendered(world: World, name: str) -> None:
    apply_and_merge(world)
    with world.edit("edge-3", "Values of this cluster") as folder:
        (folder / "web" / name).write_text("grace: 77\n")
    edit(
        world,
        "edge-3",
        RECORD,
        "      valuesInline:\n",
        "      valuesFiles: [values-mine.yaml]\n      valuesInline:\n",
    )

    apply_and_merge(world)

    assert "terminationGracePeriodSeconds: 77" in main(world, "edge-3", "deployment_web.yaml")
    set_variants(world, revision=2)
    apply_and_merge(world)
    assert "terminationGracePeriodSeconds: 77" in main(world, "edge-3", "deployment_web.yaml")
    assert "terminationGracePeriodSeconds: 60" in main(world, "edge-1", "deployment_web.yaml")
    assert main(world, "edge-3", name) == "grace: 77\n"
    assert world.run("plan", "--quiet", "--detailed-exitcode").code == 0


def test_cluster_tells_its_version_to_a_chart_that_asks(world: World) -> None:
    question = (
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: asks\ndata:\n"
        "  minor: {{ .Capabilities.KubeVersion.Minor | quote }}\n"
        '  has: {{ .Capabilities.APIVersions.Has "example.com/v1" | quote }}\n'
    )
    with world.edit("blueprints", "Ask the cluster") as folder:
        (folder / "web/charts/web/templates/asks.yaml").write_text(question)
    world.tag("blueprints", "web/v4", "main")
    set_variants(world, revision=4)

    unknown = world.run("plan").out
    for edge, minor in zip(EDGES, (29, 30, 31), strict=True):
        with world.edit("control", f"Snapshot of {edge}") as folder:
            (folder / "snapshot" / edge).mkdir(parents=True)
            (folder / "snapshot" / edge / "snapshot.yaml").write_text(
                f"apiVersion: reconciler.dev/v1alpha1\nkind: Snapshot\nmetadata: {{name: {edge}}}\nspec:\n"
                f'  time: "2026-01-01T00:00:00Z"\n  versions: {{kubernetes: v1.{minor}.1}}\n'
                "  served:\n  - example.com/v1 Cluster\n"
            )
    apply_and_merge(world)

    assert "gives other manifests for other versions of Kubernetes" in unknown
    assert 'minor: "29"\n  has: "true"' in main(world, "edge-1", "configmap_asks.yaml")
    assert 'minor: "31"' in main(world, "edge-3", "configmap_asks.yaml")
    assert "kubeVersion: v1.31.1" in main(world, "edge-3", RECORD)
    with world.edit("control", "Upgrade a cluster") as folder:
        path = folder / "snapshot" / "edge-3" / "snapshot.yaml"
        path.write_text(path.read_text().replace("v1.31.1", "v1.32.0"))
    apply_and_merge(world)
    assert 'minor: "32"' in main(world, "edge-3", "configmap_asks.yaml")
    assert 'minor: "29"' in main(world, "edge-1", "configmap_asks.yaml")


NAMESPACED = DEPLOYMENT.replace("  labels:", "  namespace: {{ .Release.Namespace }}\n  labels:")


def test_chart_that_writes_the_namespace_of_its_release_moves_no_resource(world: World) -> None:
    apply_and_merge(world)
    edit(world, "edge-1", "deployment_web.yaml", "Seconds: 30", "Seconds: 45")
    with world.edit("blueprints", "Write the namespace") as folder:
        for path, text in release("3.0.0", ready=8, workload=NAMESPACED, service=SERVICE).items():
            (folder / "web" / path).write_text(text)
    world.tag("blueprints", "web/v4", "main")

    set_variants(world, revision=4)
    planned = world.run("plan")
    apply_and_merge(world)

    assert "conflict" not in planned.out
    moved = main(world, "edge-1", "default/deployment_web.yaml")
    assert "  namespace: default\n" in moved
    assert "minReadySeconds: 8\n" in moved
    assert "terminationGracePeriodSeconds: 45\n" in moved

    # The next chart is one more update of the same resource, and back again.
    set_variants(world, revision=1)
    apply_and_merge(world)
    assert "default/deployment_web.yaml" not in files(world, "edge-1")
    assert "terminationGracePeriodSeconds: 45\n" in main(world, "edge-1", "deployment_web.yaml")


SETTERS = """\
apiVersion: v1
kind: ConfigMap
metadata:
  name: setters
  annotations: {config.kubernetes.io/local-config: "true"}
data: {size: small}
"""
RULES = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: rules\n"
ENVIRONMENTS = {
    "web/Kptfile": KPTFILE.replace(
        "  mutators:", "  mutators:\n  - {image: 'apply-setters:v0.2', configPath: setters.yaml}"
    ),
    "web/chart.yaml": CONFIG.replace(
        "    values:\n",
        "    values:\n      valuesFiles:\n      - ./values-dev.yaml # kpt-set: ./values-${env}.yaml\n",
    ).replace("replicas}", "replicas}\n        size: none # kpt-set: ${size}"),
    "web/setters.yaml": SETTERS,
    "web/values-dev.yaml": "grace: 31\n",
    "web/values-prod.yaml": "grace: 32\n",
    "web/values-test.yml": "# grace: 33\n",
    "web/more/values.json": "{}\n",
    "web/charts/other-1.0.0.tgz": "another chart\n",
    "web/charts/web-rules.yaml": RULES,
    "web/library/base/Chart.yaml": "apiVersion: v2\nname: base\nversion: 1.0.0\n",
    "web/library/base/templates/a.yaml": "kind: {{ .Values.kind }}\n",
}


def set_environments(world: World, *lines: str) -> None:
    """Let each edge have the values file of its environment; `lines` are in the metadata of the chart."""
    with world.edit("blueprints", "Environments") as folder:
        for path, text in ENVIRONMENTS.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text)
        chart = folder / "web/chart.yaml"
        chart.write_text(chart.read_text().replace("helmCharts:", "\n".join((*lines, "helmCharts:"))))
    world.tag("blueprints", "web/v4", "main")
    with world.edit("control", "Use them") as folder:
        for edge, env in zip(EDGES, ("dev", "prod", "prod"), strict=True):
            text = variant(edge, 4).replace('{replicas: "2"}', f'{{replicas: "2", env: {env}}}')
            (folder / "variants" / f"{edge}.yaml").write_text(text)


def package_of(world: World, edge: str) -> Files:
    (package,) = packages_at(world.root / f"{edge}.git", "main")
    return package


def test_what_no_cluster_applies_stays_upstream_or_is_a_file_that_no_agent_reads(world: World) -> None:
    set_environments(world)

    apply_and_merge(world)

    manifests = {"deployment_web.yaml", "service_web.yaml", "setters.yaml", "charts/web-rules.yaml"}
    assert files(world, "edge-1") == manifests
    assert "terminationGracePeriodSeconds: 31" in main(world, "edge-1", "deployment_web.yaml")
    assert "terminationGracePeriodSeconds: 32" in main(world, "edge-2", "deployment_web.yaml")
    assert "- ./values-prod.yaml # kpt-set" in main(world, "edge-2", RECORD)
    assert "size: small #" in main(world, "edge-2", RECORD)
    for edge in EDGES:
        assert refused(package_of(world, edge)) == []
        assert unmarked(package_of(world, edge)) == []


def test_values_that_a_package_keeps_are_those_of_its_own_environment(world: World) -> None:
    set_environments(world, "  # kept", '    reconciler.dev/chart-values: "keep"')
    apply_and_merge(world)
    kept = {each for each in files(world, "edge-2") if each.startswith("values")}
    assert kept == {"values-prod.yaml.input"}

    edit(world, "edge-2", "values-prod.yaml.input", "grace: 32", "grace: 99")
    apply_and_merge(world)

    assert "terminationGracePeriodSeconds: 99" in main(world, "edge-2", "deployment_web.yaml")
    assert "terminationGracePeriodSeconds: 32" in main(world, "edge-3", "deployment_web.yaml")
    assert refused(package_of(world, "edge-2")) == []


@contextmanager
def an_older_run() -> Iterator[None]:
    """Let runs name and leave files as they did before inputs of charts had names of their own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(up_to_date, "ENGINE", up_to_date.ENGINE - 1)
        patch.setattr(charts, "INPUT", "")
        yield


def test_package_of_an_older_run_moves_without_a_conflict_and_keeps_its_edits(world: World) -> None:
    with an_older_run():
        set_environments(world)
        apply_and_merge(world)
        assert {"chart.yaml", "setters.yaml"} < files(world, "edge-1")
        for edge in EDGES[:2]:
            with world.edit(edge, "As it landed") as folder:
                for name in ("values-dev.yaml", "values-prod.yaml"):
                    (folder / "web" / name).write_text(ENVIRONMENTS[f"web/{name}"])
        edit(
            world, "edge-1", "chart.yaml", "      valuesInline:\n", "      valuesInline:\n        ready: 7\n"
        )
        edit(world, "edge-1", "values-prod.yaml", "grace: 32", "grace: 66 # for later")
        edit(world, "edge-2", "deployment_web.yaml", "replicas: 2", "replicas: 9")
        with world.edit("blueprints", "Next") as folder:
            template = folder / "web/charts/web/templates/service.yaml"
            template.write_text(SERVICE.replace("None", "ClientIP"))
        world.tag("blueprints", "web/v5", "main")
        with world.edit("control", "Follow") as folder:
            path = folder / "variants/edge-3.yaml"
            path.write_text(path.read_text().replace("revision: 4", "revision: 5"))
        world.run("apply")
        branch = world.draft_branch("edge-3", "web")
        with world.edit("edge-3", "Edit the draft", branch=branch) as folder:
            for name, old, new in (
                ("deployment_web.yaml", "replicas: 2", "replicas: 8"),
                ("chart.yaml", "Inline:\n", "Inline:\n        ready: 6\n"),
            ):
                file = folder / "web" / name
                file.write_text(file.read_text().replace(old, new))
        edit(world, "edge-3", "service_web.yaml", "kind: Service\n", "kind: Service # ours\n")

    with world.edit("control", "Follow") as folder:
        for path in (folder / "variants").iterdir():
            path.write_text(path.read_text().replace("revision: 4", "revision: 5"))
    planned = world.run("plan")
    apply_and_merge(world)

    assert "conflict" not in planned.out
    for edge in EDGES:
        assert "sessionAffinity: ClientIP" in main(world, edge, "service_web.yaml")
        assert refused(package_of(world, edge)) == []
        assert unmarked(package_of(world, edge)) == []
        assert RECORD in package_of(world, edge)
    assert "minReadySeconds: 7" in main(world, "edge-1", "deployment_web.yaml")
    assert "ready: 7" in main(world, "edge-1", RECORD)
    assert "for later" in main(world, "edge-1", "values-prod.yaml.input")
    assert "replicas: 9" in main(world, "edge-2", "deployment_web.yaml")
    assert not {path for path in package_of(world, "edge-2") if path.startswith("values")}
    assert "replicas: 8" in main(world, "edge-3", "deployment_web.yaml")
    assert "minReadySeconds: 6" in main(world, "edge-3", "deployment_web.yaml")
    assert "kind: Service # ours" in main(world, "edge-3", "service_web.yaml")
    before = world.all_refs()
    assert world.run("apply", cache="another").code == 0
    assert world.all_refs() == before
