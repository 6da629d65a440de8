"""`reconciler expand` as its users meet it: what it prints, where it says a fault stands, how it exits."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from reconciler.krm.yaml import load_documents
from tests.support.command_server import run_reconciler
from tests.support.schema import violations
from tests.support.small_world import write_world

PROJECT = Path(__file__).resolve().parents[2]

FLEET = """\
apiVersion: config.porch.kpt.dev/v1alpha2
kind: PackageVariantSet
metadata:
  name: fleet
  namespace: default
spec:
  upstream: {repo: blueprints, package: web, revision: 1}
  targets:
  - repositories:
    - name: edge-1
    - name: edge-2
    template:
      downstream:
        packageExpr: |
          packageDefault + '-' +
            PLACE
      labelExprs:
      - key: from
        valueExpr: upstream.name
"""


@pytest.fixture
def control(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    text = FLEET.replace("PLACE", getattr(request, "param", "target.repo"))
    write_world(tmp_path / "w", more={"manifests/fleet.yaml": text})
    return tmp_path / "w" / "control.git"


def expand(control: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    cache = control.parent / "cache"
    line = ["expand", "--control", str(control), "--cache-dir", str(cache), *arguments]
    return run_reconciler(line, env={**os.environ, "NO_COLOR": "1"})


def test_yaml_is_one_manifest_per_variant_and_a_trace_says_why(control: Path) -> None:
    said = expand(control, "default/fleet", "--trace")

    documents = [document.value for document in load_documents(said.stdout.encode())]
    assert said.returncode == 0
    assert [d["spec"]["downstream"] for d in documents] == [
        {"repo": "edge-1", "package": "web-edge-1"},
        {"repo": "edge-2", "package": "web-edge-2"},
    ]
    assert [d["spec"]["labels"] for d in documents] == [{"from": "blueprints.web.v1"}] * 2
    assert "# spec.labels.from <- template.labelExprs[0].valueExpr: upstream.name\n" in said.stdout
    assert "# spec.downstream.repo <- the target's default\n" in said.stdout


def test_json_lists_variants_problems_and_origins(control: Path) -> None:
    said = expand(control, "-o", "json", "--trace", "--authored")

    found = json.loads(said.stdout)
    schema = json.loads((PROJECT / "docs/schemas/expansion.schema.json").read_text())
    assert violations(schema, found) == []
    assert (found["kind"], found["problems"]) == ("Expansion", [])
    names = [v["metadata"]["name"] for v in found["variants"]]
    assert {"fleet-edge-1-web-edge-1", "web-edge-1"} <= set(names)
    assert found["trace"]["default/fleet-edge-1-web-edge-1"]["downstream.package"].startswith(
        "template.downstream.packageExpr: "
    )


@pytest.mark.parametrize("control", ["cluster.name"], indirect=True)
def test_a_fault_is_told_at_its_line_and_column_and_nothing_is_printed(control: Path) -> None:
    said = expand(control)

    assert said.returncode == 3
    assert said.stdout == ""
    assert (
        "manifests/fleet.yaml:16:13: InvalidExpression: template.downstream.packageExpr:"
        " undeclared reference to 'cluster'" in said.stderr
    )
    (problem,) = json.loads(expand(control, "-o", "json").stdout)["problems"]
    assert (problem["location"]["line"], problem["reason"]) == (16, "InvalidExpression")
