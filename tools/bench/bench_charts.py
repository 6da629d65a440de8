"""What a fleet of charts costs: a chart of 40 resources in 1,000 packages, each with a value of its own.

Run as `python tools/bench/bench_charts.py [PACKAGES]`, by default 1000 in 20 Git repositories, with the extra
`helm`. The engine's own time is that of as many renderings of the same chart in this process.
"""

import json
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

if __package__ in {None, ""}:
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from reconciler.functions.charts import find_chart
from reconciler.git.working_copy import NewCommit, create_bare
from reconciler.names.objects import File
from tests.support.charts import KPTFILE
from tests.support.git import Repo
from tools.bench.bench_fleet import EPOCH, HEAD, PORCH, START
from tools.bench.goals import Goals
from tools.bench.process import Cost, measure

REPOSITORIES = 20
RESOURCES = 40
CONFIG = """\
apiVersion: fn.kpt.dev/v1alpha1
kind: RenderHelmChart
metadata:
  name: web
  annotations: {config.kubernetes.io/local-config: "true"}
helmCharts:
- chartArgs: {name: web}
  templateOptions:
    releaseName: web
    values:
      valuesInline:
        host: unknown # kpt-set: ${host}
"""
DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ .Release.Name }}-NUMBER
  labels: {{- include "web.labels" . | nindent 4 }}
spec:
  replicas: {{ .Values.replicas | default 1 }}
  selector:
    matchLabels: {app: web-NUMBER}
  template:
    metadata:
      labels: {app: web-NUMBER}
    spec:
      containers:
      - name: web
        image: {{ printf "%s:%s" .Values.image .Chart.AppVersion | quote }}
        env:
        - name: HOST
          value: {{ .Values.host | quote }}
"""
HELPERS = '{{ define "web.labels" }}app.kubernetes.io/name: web\nhost: {{ .Values.host }}{{ end }}\n'


def package(number: int) -> dict[str, bytes]:
    """Return a revision of the package, with a version of its chart."""
    version = f"apiVersion: v2\nname: web\nversion: {number}.0.0\nappVersion: 1.{number}.0\n"
    texts = {"Chart.yaml": version, "values.yaml": f"image: nginx\nreplicas: {number}\n"}
    texts["templates/_helpers.tpl"] = HELPERS
    texts |= {f"templates/web-{n}.yaml": DEPLOYMENT.replace("NUMBER", str(n)) for n in range(RESOURCES)}
    files = {f"web/charts/web/{path}": text.encode() for path, text in texts.items()}
    return {"web/Kptfile": KPTFILE.encode(), "web/chart.yaml": CONFIG.encode(), **files}


def control(count: int, revision: int) -> Iterator[tuple[str, bytes]]:
    """Yield the files of the control repository."""
    yield "reconciler.yaml", HEAD.format("reconciler.dev/v1alpha1", "Reconciler", "fleet").encode()
    names = [f"c{number:02}" for number in range(REPOSITORIES)]
    for name in ("blueprints", *names):
        head = HEAD.format(f"{PORCH}v1alpha1", "Repository", name)
        spec = f"spec:\n  deployment: {str(name in names).lower()}\n"
        spec += f"  git: {{repo: ../{name}.git, branch: main}}\n"
        yield f"manifests/{name}.yaml", f"{head}{spec}".encode()
    packages = ", ".join(f"web-{number}" for number in range(count // REPOSITORIES))
    listed = "".join(f"    - {{name: {name}, packageNames: [{packages}]}}\n" for name in names)
    head = HEAD.format(f"{PORCH}v1alpha2", "PackageVariantSet", "web")
    spec = f"spec:\n  upstream: {{repo: blueprints, package: web, revision: {revision}}}\n  targets:\n"
    pipeline = "    template:\n      pipeline:\n        mutators:\n        - image: apply-setters:v0.2\n"
    value = "          configMapExprs: [{key: host, valueExpr: \"target.repo + '-' + target.package\"}]\n"
    yield "manifests/web.yaml", f"{head}{spec}  - repositories:\n{listed}{pipeline}{value}".encode()


def engine_s(count: int) -> float:
    """Return the CPU time of as many renderings by the engine alone, each with another value."""
    from helm_python import Chart, _native

    files = {path.removeprefix("web/"): File.of(data) for path, data in package(1).items()}
    chart = Chart.load_archive(find_chart("web", "", "charts", files).archive)
    options = json.dumps({"name": "web", "namespace": "default", "is_install": True})
    start = time.process_time()
    for number in range(count):
        _native.call_string("helm_render", chart._raw(), json.dumps({"host": f"c{number}"}), options)
    return time.process_time() - start


def run(root: Path, *arguments: str) -> Cost:
    line = [sys.executable, "-m", "reconciler.cli.main", *arguments]
    return measure([*line, "--control", "control.git", "--cache-dir", "cache"], root, times=1, warm=False)


def main(count: int) -> int:
    goals = Goals(__file__)
    if not find_spec("helm_python"):
        goals.at_most("a fleet of charts", None, 0, note="skipped: the extra `helm` is not installed")
        return goals.finish()
    with tempfile.TemporaryDirectory(prefix="charts-") as name:
        root = Path(name)
        releases = [NewCommit(f"v{n}", package(n), EPOCH + n, (f"web/v{n}",)) for n in (1, 2)]
        create_bare(root / "blueprints.git", releases)
        for number in range(REPOSITORIES):
            create_bare(root / f"c{number:02}.git", [START])
        create_bare(root / "control.git", [NewCommit("Describe the fleet", dict(control(count, 1)), EPOCH)])
        engine = engine_s(count)
        costs = {"plan": run(root, "plan")}
        run(root, "apply")
        run(root, "approve", "--all")
        run(root, "apply")
        costs["settled"] = run(root, "plan")
        Repo(root / "control.git").commit(dict(control(count, 2)))
        costs["bump: plan"] = run(root, "plan")
    print(f"engine alone {engine:6.2f} s CPU for {count} renderings of {RESOURCES} resources")
    for what, cost in costs.items():
        print(
            f"{what:24} {cost.cpu_s:6.1f} s CPU {cost.peak_mib:5.0f} MiB, {cost.cpu_s / engine:.1f} x engine"
        )
    # A plan renders twice, because a chart must give the same twice; a bump renders both versions.
    goals.at_most("plan from nothing against the engine alone", costs["plan"].cpu_s / engine, 10)
    goals.at_most("plan of a bump against the engine alone", costs["bump: plan"].cpu_s / engine, 25)
    peak = max(cost.peak_mib for cost in costs.values())
    goals.at_most("memory of a plan", peak, 512, "MiB")
    return goals.finish()


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000))
