"""What the configuration of a chart gets from the snapshot of its cluster."""

from typing import Any

import pytest

from reconciler.inventory.snapshot import Snapshot
from reconciler.policy import Limits
from reconciler.render import charts
from reconciler.render.kptfile import kptfile_value
from tests.support.charts import DEPLOYMENT, chart, config, package

ASKS = {"kubeVersion": "v1.30.0", "apiVersions": ["policy/v1"]}
QUESTIONS = '# {{ .Capabilities.KubeVersion.Version }}{{ .Capabilities.APIVersions.Has "policy/v1" }}'
QUESTIONS += '{{ .Capabilities.APIVersions.Has "e.io/v1" }}\n'
KNOWN = {"kubernetes": "v1.30.0"}
SERVED = frozenset({("policy/v1", "PodDisruptionBudget"), ("v1", "Pod")})


@pytest.mark.parametrize(
    ("question", "versions", "served", "options", "want"),
    [
        (QUESTIONS, KNOWN, SERVED, {}, ASKS),
        ("", KNOWN, SERVED, {}, {}),
        (QUESTIONS, {}, SERVED, {}, {"apiVersions": ["policy/v1"]}),
        (QUESTIONS, {"crossplane": "v1.2.0"}, None, {}, {}),
        (QUESTIONS, KNOWN, None, {}, {"kubeVersion": "v1.30.0"}),
        (QUESTIONS, KNOWN, frozenset(), {}, {**ASKS, "apiVersions": []}),
        (QUESTIONS, KNOWN, SERVED, {"kubeVersion": "v1.29.0"}, {**ASKS, "kubeVersion": "v1.29.0"}),
        (QUESTIONS, KNOWN, SERVED, {"apiVersions": ["a/v1"]}, {**ASKS, "apiVersions": ["a/v1"]}),
    ],
)
def test_chart_gets_what_it_asks_of_its_cluster_and_nobody_wrote(
    question: str,
    versions: dict[str, str],
    served: frozenset[tuple[str, str]] | None,
    options: dict[str, Any],
    want: dict[str, Any],
) -> None:
    files = package(chart(a=question + DEPLOYMENT), config(**options))
    snapshot = Snapshot(present=True, versions=versions, served=served)

    given = charts._with_capabilities(files, snapshot, Limits())

    value = kptfile_value(given["chart.yaml"].data)
    assert value["helmCharts"][0].get("templateOptions", {}) == want
    assert {path: file for path, file in given.items() if path != "chart.yaml"} == {
        path: file for path, file in files.items() if path != "chart.yaml"
    }
