"""Charts: the configuration that one gets from its cluster, the sides to render, and the package from one."""

from typing import Any

import pytest

from reconciler.functions.resources import LOCAL_CONFIG
from reconciler.functions.step import PipelineResult
from reconciler.inventory.snapshot import Snapshot
from reconciler.krm.values import mapping_at
from reconciler.names.objects import File, Files, tree_id
from reconciler.policy import Limits
from reconciler.render import charts
from reconciler.render.kptfile import kptfile_value
from reconciler.resolve.resolution import ResolvedVariant
from tests.support.charts import DEPLOYMENT, chart, config, package
from tests.support.plan_values import WEB, a_draft, a_pin, a_resolved
from tests.support.sets import repository, world

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


def test_each_side_is_its_upstream_with_its_own_pin_and_the_package_that_it_led_to() -> None:
    fresh, base, draft_base, asked = (package(chart(version=f"{n}.0.0")) for n in range(4))
    local, drafted = ({"a.yaml": File.of(text)} for text in (b"main: 1\n", b"draft: 1\n"))
    pins = [a_pin(n, tree=tree_id(files)) for n, files in enumerate([fresh, base, draft_base], start=1)]
    view = repository("edge")
    fields = dict(zip(("pin", "base", "draft_base"), pins, strict=True))
    draft = a_draft(tree=tree_id(drafted), has_foreign_commits=True)
    resolved = a_resolved(
        view=view.key, local=tree_id(local), draft=draft, asked_from=tree_id(asked), **fields
    )
    contents = {tree_id(files): files for files in (fresh, base, draft_base, asked, local, drafted)}

    def write_fields(files: Files, variant: ResolvedVariant) -> Files:
        return {**files, "pin": File.of(variant.pin.ref.encode())}

    sides = [*charts._sides(resolved, contents, world(views=(view,)), write_fields, {})]

    assert [(side.role, side.raw, (side.run or {})["pin"].data.decode(), side.local) for side in sides] == [
        ("new", fresh, "web/v1", drafted),
        ("base", base, "web/v2", local),
        ("draft_base", draft_base, "web/v3", drafted),
        ("asked_from", asked, "web/v1", drafted),
    ]


SOURCE = "# Source: web/templates/a.yaml\n"


@pytest.mark.parametrize(
    ("old", "given", "want"),
    [(None, "b: 1", "b: 1"), ("a: 1", f"{SOURCE}b: 1", f"{SOURCE}b: 1"), ("a: 1", "b: 1", "a: 1")],
    ids=["new", "a manifest of the chart that the upstream holds too", "a function's change"],
)
def test_package_of_a_chart_has_its_manifests_and_else_what_its_upstream_has(old, given, want) -> None:
    upstream = package({} if old is None else {"a.yaml": old})
    plain = {path: file for path, file in upstream.items() if path != "chart.yaml"}
    side = charts._Side(charts._Role.NEW, upstream, upstream, plain, {})
    result = PipelineResult({**upstream, "a.yaml": File.of(given.encode())})

    ((_, made),) = charts._make([(WEB, side)], lambda _: [result])

    assert made.files == {**upstream, "a.yaml": File.of(want.encode())}
    assert made.inputs == {"chart.yaml"}


@pytest.mark.parametrize(
    ("notes", "want"),
    [
        (f"{{{LOCAL_CONFIG}: 'true'}}", "Skip"),
        (f"{{{LOCAL_CONFIG}: 'true', argocd.argoproj.io/hook: PreSync}}", "PreSync"),
        (f"{{{LOCAL_CONFIG}: 'false'}}", None),
    ],
)
def test_local_configuration_is_skipped_unless_it_says_when_it_runs(notes: str, want: str | None) -> None:
    file = File.of(f"kind: A\nmetadata: {{name: a, annotations: {notes}}}\n".encode())

    done = charts._downstream({"a.yaml": file}, ())

    notes_there = mapping_at(kptfile_value(done["a.yaml"].data), "metadata", "annotations")
    assert notes_there.get("argocd.argoproj.io/hook") == want


@pytest.mark.parametrize("where", [" with chart.yaml.input", ""])
def test_failure_of_a_chart_names_the_configuration_that_people_have(where: str) -> None:
    run = package(chart())
    side = charts._Side(charts._Role.NEW, run, run, run, run if where else {})

    blocked = charts._failure(charts._Made(side, PipelineResult(run, error=" a\n\n b "), None))

    assert blocked.message == f"The chart of the package cannot be rendered{where}: a; b"


def test_values_and_charts_stay_upstream_of_packages_with_a_chart_alone() -> None:
    plain = {"a/Kptfile": "kind: Kptfile\n", "a/values.yaml": "replicas: 1\n", "notes.txt": "replicas: 1\n"}
    files = package({**chart(a=DEPLOYMENT), **plain, "other.yaml": "replicas: 2\n"})

    assert charts._without_charts(files).keys() == {"Kptfile", "chart.yaml", *plain}
