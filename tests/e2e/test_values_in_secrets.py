"""A value that a chart or a setter puts into a Secret is in no output, wherever else it stands."""

import base64
import json
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.e2e.test_secrets import outputs
from tests.support.charts import KPTFILE, needs_helm
from tests.support.git import Repo
from tests.support.small_world import write_fleet
from tests.support.world import World, git, restored

pytestmark = [needs_helm, pytest.mark.slow]

EDGE, NAME = "edge-1", "edge-1/web"
HELPERS = '{{- define "conf" }}pin = {{ .Values.pin }}\nmode = fast{{ end -}}'
SECRET = """\
apiVersion: v1
kind: Secret
metadata:
  name: web
data:
  plain: {{ .Values.plain | b64enc }}
  url: {{ printf "https://kim:%s@db.example/x" (urlquery .Values.query) | b64enc | quote }}
stringData:
  conf.ini: {{ include "conf" . | quote }}
  long: {{ .Values.long }}
  own: {{ .Values.own | quote }}
  docker: {{ printf `{"auths":{"r.example":{"auth":%q}}}` (printf "kim:%s" .Values.auth | b64enc) | quote }}
  quoted: {{ .Values.quoted | quote }}
  lines: |
{{ .Values.lines | indent 4 }}
"""
DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
spec:
  template:
    metadata:
      annotations:
        checksum/secret: {{ include (print $.Template.BasePath "/secret.yaml") . | sha256sum }}
    spec:
      containers:
      - name: web
        image: {{ .Values.image }}
        args: ["--database={{ .Values.dsn }}"]
"""
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
    values:
      valuesInline:
        own: inline-{turn}-own # kpt-set: ${own}
        dsn: "postgres://app:pl41n-{turn}-value@db/x"
        "quoted": "say \\"qu0ted-{turn}-value\\""
"""
SETTERS = """\
apiVersion: v1
kind: ConfigMap
metadata:
  name: setters
data:
  own: setter-{turn}-own
  region: "eu-{turn}"
"""
KEYS = {
    "plain": "pl41n-{turn}-value",
    "query": "qu/ry+{turn}&v&lue",
    "pin": "p1n-of-{turn}",
    "long": "l0ng" * 20 + "-{turn}",
    "auth": "4uth-{turn}-value",
    "own": "setter-{turn}-own",
}
TURNS = ("first", "second")
HELD = "3dited-by-hand"
LINES = "user = app-of-{turn}\\nl1ne-of-{turn}-value"


def secrets() -> set[str]:
    """Return every value that no output may have, with its spellings."""
    values = {text.format(turn=turn) for text in KEYS.values() for turn in TURNS}
    values |= {
        text.format(turn=turn) for turn in TURNS for text in ("l1ne-of-{turn}-value", "qu0ted-{turn}-value")
    }
    values.add(HELD)
    forms = {base64.b64encode(value.encode()).decode().rstrip("=")[:-1] for value in values}
    return values | forms | {quote(value, safe="") for value in values}


def release(number: int) -> dict[str, str]:
    """Return a revision of the upstream package, with other values in its Secret."""
    turn = TURNS[number - 1]
    values = {name: text.format(turn=turn) for name, text in KEYS.items()}
    values |= {"lines": LINES.format(turn=turn).replace("\\n", "\n"), "image": f"nginx:1.{number}"}
    setters = KPTFILE.replace(
        "  mutators:\n", "  mutators:\n  - image: apply-setters:v0.2\n    configPath: setters.yaml\n"
    )
    return {
        "Kptfile": setters,
        "setters.yaml": SETTERS.format(turn=turn),
        "chart.yaml": CONFIG.replace("{turn}", turn),
        "charts/web/Chart.yaml": f"apiVersion: v2\nname: web\nversion: 1.{number}.0\n",
        "charts/web/values.yaml": json.dumps(values, indent=2) + "\n",
        "charts/web/templates/_conf.tpl": HELPERS,
        "charts/web/templates/secret.yaml": SECRET,
        "charts/web/templates/deployment.yaml": DEPLOYMENT,
    }


def variant(revision: int) -> str:
    return f"""\
apiVersion: config.porch.kpt.dev/v1alpha1
kind: PackageVariant
metadata: {{name: web, namespace: default}}
spec:
  upstream: {{repo: blueprints, package: web, revision: {revision}}}
  downstream: {{repo: {EDGE}, package: web}}
"""


@pytest.fixture
def world() -> World:
    """The first revision is on main; the second one is asked for."""
    return restored("values-in-secrets", make_world)


def make_world(root: Path) -> World:
    files = {"manifests/variant.yaml": variant(1)}
    world = write_fleet(root, "web", [release(1), release(2)], [EDGE], files)
    assert world.run("apply").code == 0
    assert world.run("approve", NAME).code == 0
    Repo(root / "control.git").commit({"manifests/variant.yaml": variant(2)})
    return world


def leaking(world: World) -> dict[str, list[str]]:
    """Return for each output the values in it."""
    texts = dict(outputs(world))
    assert any("***" in text for text in texts.values())
    every = secrets()
    found = {name: sorted(value for value in every if value in text) for name, text in texts.items()}
    return {name: values for name, values in found.items() if values}


def test_changed_value_of_a_secret_is_in_no_output(world: World) -> None:
    planned = world.run("plan", "--diff", "--all").out
    before = leaking(world)
    assert world.run("apply").code == 0

    assert (before, leaking(world)) == ({}, {})
    body = world.run("pr", "show", NAME).out
    for text in (planned, body):
        assert "-        own: ***" in text, "what changes is told, not its values"
        assert 'postgres://app:***@db/x"' in text
        assert "+        checksum/secret: ***" in text
        assert "+        image: nginx:1.2" in text, "what is in no Secret is shown"
        assert 'region: "eu-second"' in text
    assert "# .Values.long: *** -> ***, from defaults of chart web" in planned
    assert "setter-second-own" in git(
        world.root / f"{EDGE}.git", "show", f"{draft(world)}:web/chart.yaml.input"
    )


def test_conflict_about_a_value_of_a_secret_is_in_no_output(world: World) -> None:
    """People replaced the value in its Secret, so main has the old one in no Secret any more."""
    with world.edit(EDGE, "Ours") as copy:
        replace_in(copy / "web/chart.yaml.input", "pl41n-first-value", HELD)
        replace_in(copy / "web/secret_web.yaml", "p1n-of-first", HELD)
        replace_in(copy / "web/deployment_web.yaml", "nginx:1.1", "nginx:1.1-ours")
        replace_in(copy / "web/deployment_web.yaml", "checksum/secret: ", f"checksum/secret: {'0' * 64} # ")

    before = leaking(world)
    assert world.run("apply").code == 7
    held = leaking(world)
    told = json.loads(world.run("explain", NAME, "-o", "json").out)
    keeps = [each["keep"] for each in told["conflicts"]]
    with world.edit(EDGE, "Keep\n\n" + "\n".join(keeps), branch=draft(world)) as copy:
        (copy / "web/note.txt").write_text("kept\n")
    world.run("apply")

    assert (before, held, leaking(world)) == ({}, {}, {})
    hidden = {each["path"] for each in told["conflicts"] if each["upstream"] == "***"}
    assert {"chart.yaml.input", "secret_web.yaml"} <= hidden
    assert [each["local"] for each in told["conflicts"] if each["field"].endswith("image")] == [
        "nginx:1.1-ours"
    ]


def replace_in(file: Path, old: str, new: str) -> None:
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new))


def draft(world: World) -> str:
    return world.draft_branch(EDGE, "web")
