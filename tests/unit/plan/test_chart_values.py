"""Values of a rendered chart: where each is written, and who wrote it."""

from reconciler.krm.yaml import emit
from reconciler.names.objects import File, Files
from reconciler.plan.chart_values import (
    ChangedValue,
    ChartDefaults,
    ChartValue,
    chart_values,
    template_of,
    with_templates,
)
from tests.support.charts import config, package
from tests.support.plan_values import a_conflict

REPLACEMENTS = emit(
    {
        "apiVersion": "fn.kpt.dev/v1alpha1",
        "kind": "ApplyReplacements",
        "metadata": {"name": "copy"},
        "replacements": [
            {
                "source": {"kind": "Team", "name": "blue", "fieldPath": "spec.code"},
                "targets": [
                    {
                        "select": {"kind": "RenderHelmChart"},
                        "fieldPaths": ["helmCharts.0.templateOptions.values.valuesInline.team"],
                    },
                    {"select": {"kind": "ConfigMap"}, "fieldPaths": ["data.team"]},
                ],
            }
        ],
    }
)
VALUES = {
    "valuesInline": {"size": 1, "team": "x", "hosts": ["a", "b"], "empty": {}},
    "valuesFiles": ["v.yaml"],
}
OPTIONS = {"kubeVersion": "v1.30.0", "values": VALUES}
AT = "helmCharts[0].templateOptions"
INLINE = f"{AT}.values.valuesInline"


def side(replicas: str, **inline: object) -> Files:
    values = {**VALUES, "valuesInline": {**VALUES["valuesInline"], **inline}}
    text = config(chart_args={"version": "1.2.0"}, **{**OPTIONS, "values": values})
    files = {"v.yaml": f"image: {{tag: {replicas}}}\n", "copy.yaml": REPLACEMENTS}
    return package(files, text.replace("size: 1\n", "size: 1 # kpt-set: ${size}\n"))


def test_values_of_a_chart_name_their_file_their_field_and_their_writer() -> None:
    upstream, local = side("1"), side("2", team="blue")

    assert list(chart_values(upstream, local)) == [
        ChartValue("chart.yaml", f"{AT}.kubeVersion", "v1.30.0"),
        ChartValue("chart.yaml", f"{INLINE}.size", "1", "# kpt-set: ${size}"),
        ChartValue("chart.yaml", f"{INLINE}.team", "blue", "", ("Team", "blue", "spec.code"), changed=True),
        ChartValue("chart.yaml", f"{INLINE}.hosts", "[a, b]"),
        ChartValue("chart.yaml", f"{INLINE}.empty", "{}"),
        ChartValue("v.yaml", "image.tag", "2", changed=True),
        ChartDefaults("chart.yaml", "web", "1.2.0"),
    ]


def test_chart_of_a_sub_package_names_its_files_below_it() -> None:
    files = {f"sub/{path}": file for path, file in side("1").items()}

    assert {value.file for value in chart_values(files, files)} == {"sub/chart.yaml", "sub/v.yaml"}


def test_files_that_the_package_does_not_have_are_those_of_its_upstream() -> None:
    upstream = side("1")
    of_upstream = list(chart_values(upstream, upstream))

    assert list(chart_values(upstream, {})) == of_upstream
    assert not any(each.changed for each in of_upstream if isinstance(each, ChartValue))
    assert list(chart_values({}, side("1"))) == []


def test_first_line_of_a_rendered_file_names_its_template() -> None:
    assert template_of(File.of(b"# Source: web/templates/a.yaml\nkind: A\n")) == "web/templates/a.yaml"
    assert [template_of(None), template_of(File.of(b"kind: A\n# Source: web/templates/a.yaml\n"))] == ["", ""]


def test_conflict_names_the_template_that_gave_its_file() -> None:
    made = File.of(b"# Source: web/templates/a.yaml\nkind: A\n")
    notes = [a_conflict(path, "x", "1", "2") for path in ("draft.yaml", "main.yaml", "plain.yaml")]

    named = with_templates(
        notes, {"draft.yaml": made, "plain.yaml": File.of(b"kind: A\n")}, {"main.yaml": made}
    )

    assert [note.template for note in named] == ["web/templates/a.yaml", "web/templates/a.yaml", ""]


def test_sub_chart_of_a_sub_chart_is_named_with_the_chart_that_it_is_in() -> None:
    """Public charts have two of one name: `crds` of the chart, and of a chart that it depends on."""
    folders = ("", "charts/crds/", "charts/frr/charts/crds/")

    names = [ChangedValue("web", "Chart", (folder, "version"), "1", "2").name for folder in folders]

    assert names == [".Chart.Version", ".Chart.Version of crds", ".Chart.Version of frr/crds"]
