"""What a functionConfig asks charts for, and what their templates see, without an engine."""

from typing import Any

import pytest

from reconciler.functions.charts import (
    FILES,
    ChartCall,
    ChartError,
    chart_members,
    find_value,
    read_charts,
    values_of,
)
from reconciler.krm.yaml import load_documents
from reconciler.names.objects import File, Files
from reconciler.policy import Limits
from tests.support.charts import DEPLOYMENT, chart, config, package

FOLDER = "charts/web"
WITH_PARTS = {
    f"{FOLDER}/Chart.yaml": "name: web\nversion: 1.0.0\nappVersion: a\ndependencies: "
    "[{name: db, alias: main}, {name: db, alias: spare}, {name: kv, version: 1.x, alias: old}, "
    "{name: kv, version: 2.x, alias: new}]\n",
    f"{FOLDER}/values.yaml": "replicas: 1\nmain: {size: 5}\n",
    f"{FOLDER}/charts/db/Chart.yaml": "name: db\nversion: 2.0.0\n",
    f"{FOLDER}/charts/db/values.yaml": "size: 1\nport: 2\n",
    f"{FOLDER}/charts/db/charts/log/Chart.yaml": "name: log\nversion: 3.0.0\n",
    f"{FOLDER}/charts/db/charts/log/values.yaml": "level: info\n",
    f"{FOLDER}/charts/kv/Chart.yaml": "name: kv\nversion: 1.5.0\n",
    f"{FOLDER}/charts/kv/values.yaml": "size: 7\n",
    f"{FOLDER}/charts/kv-2.5.0/Chart.yaml": "name: kv\nversion: 2.5.0\n",
    f"{FOLDER}/charts/kv-2.5.0/values.yaml": "size: 8\n",
    f"{FOLDER}/templates/x/Chart.yaml": "name: none\n",
}


def call_of(files: Files, configuration: str) -> ChartCall:
    (call,) = read_charts(load_documents(configuration.encode())[0].value, files, Limits())
    return call


def test_templates_see_defaults_of_every_chart_by_its_names_below_those_of_its_parents() -> None:
    options = {"values": {"valuesInline": {"replicas": 3}}, "namespace": "n", "kubeVersion": "v1.30.0"}
    call = call_of(package({**chart(a=DEPLOYMENT), **WITH_PARTS}), config(**options))

    log = {"log": {"level": "info"}}
    assert values_of(call, chart_members(call.chart)) == {
        "Values": {
            "replicas": 3,
            "main": {"size": 5, "port": 2, **log},
            "spare": {"size": 1, "port": 2, **log},
            "old": {"size": 7},
            "new": {"size": 8},
        },
        "Chart": {
            "": {"version": "1.0.0", "appVersion": "a"},
            "charts/db/": {"version": "2.0.0"},
            "charts/db/charts/log/": {"version": "3.0.0"},
            "charts/kv/": {"version": "1.5.0"},
            "charts/kv-2.5.0/": {"version": "2.5.0"},
        },
        "Release": {"Name": "web", "Namespace": "n"},
        "Capabilities": {"KubeVersion": "v1.30.0", "APIVersions": None},
    }


def config_map(**data: str) -> str:
    listed = "".join(f"  {name}: {value}\n" for name, value in data.items())
    return f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: a}}\ndata:\n  name: web\n{listed}"


def test_config_map_names_one_chart() -> None:
    files = package({**chart(a=DEPLOYMENT), "v.yaml": "replicas: 7\nmain: {size: 1}\n"})
    text = config_map(valuesFile="v.yaml", releaseName="r", namespace="shop", includeCRDs="'true'")

    call = call_of(files, text)

    assert (call.release, call.namespace, call.include_crds, call.skip_tests) == ("r", "shop", True, False)
    assert call.values == {"replicas": 7, "main": {"size": 1}}
    value = load_documents(text.encode())[0].value
    assert find_value(call, value, ("main", "size"), files) == "v.yaml:2"
    assert find_value(call, value, ("nowhere",), files) == (*call.path, "values")
    assert files.keys() - call.chart_files == {"Kptfile", "chart.yaml"}
    moved = {path.replace("charts/", "lib/"): file for path, file in files.items()}
    assert call_of(moved, config_map(chartHome="lib")).chart.name == "web"


@pytest.mark.parametrize(
    ("configuration", "files", "message"),
    [
        ("kind: Other\n", {}, "Its functionConfig must be a RenderHelmChart or a ConfigMap"),
        ("kind: RenderHelmChart\nhelmCharts: []\n", {}, "helmCharts names no chart"),
        (config(chart_args={"name": ""}), {}, "chartArgs.name is missing"),
        (config(nameTemplate="{{ randAlpha 4 }}"), {}, "nameTemplate has a template"),
        (config(releaseName="r", nameTemplate="{{ randAlpha 4 }}"), {}, ""),
        (config(skipTests="perhaps"), {}, "skipTests is 'perhaps'"),
        (config(values={"valuesMerge": "mix"}), {}, "valuesMerge is 'mix'"),
        (config(values={"valuesFiles": ["v.yaml"]}), {"v.yaml": "a: [\n"}, "v.yaml:2: "),
        (config(values={"valuesFiles": ["v.yaml"]}), {"v.yaml": "- a\n"}, "v.yaml has no mapping of values"),
        (config(values={"valuesFiles": ["v.yaml"]}), {"v.yaml": "# nothing\n"}, ""),
        (config(kubeVersion="v1.x"),
            {f"{FOLDER}/Chart.yaml": "name: web\nversion: 1.0.0\nkubeVersion: '>1'\n"}, ""),
        (config().replace("annotations:", f"annotations:\n    {FILES}: odd"), {}, f"{FILES} is 'odd'"),
    ],
)  # fmt: skip
def test_configuration_that_no_chart_can_be_read_from_is_refused(
    configuration: str, files: dict[str, str], message: str
) -> None:
    value: Any = load_documents(configuration.encode())[0].value
    whole = {**package(chart(a=DEPLOYMENT)), **{p: File.of(text.encode()) for p, text in files.items()}}
    found = ""

    try:
        read_charts(value, whole, Limits())
    except ChartError as error:
        found = str(error)

    assert found.startswith(message)
    assert bool(found) is bool(message)
