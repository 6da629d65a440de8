"""Charts of packages: what is rendered of which configuration, what is refused, and two engines alike."""

import io
import json
import sys
import tarfile
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pytest

from reconciler.functions.charts import is_test
from reconciler.functions.pipeline import run_pipeline
from reconciler.functions.protocol import FunctionRuntime
from reconciler.functions.runtimes.pipelines import open_runtimes
from reconciler.functions.step import PipelineResult
from reconciler.names.objects import File, Files, Mode
from reconciler.policy import FunctionPolicy, Limits
from tests.support.charts import DEPLOYMENT, chart, config, needs_helm, package

pytestmark = needs_helm

_HELM = """\
#!{python}
import json, sys, tempfile
sys.path[:0] = {path!r}
import helm_python
from helm_python import _native

options = [each.removeprefix("--").partition("=") for each in sys.argv[4:]]
named = {{name: value for name, _, value in options}}
chart = helm_python.Chart.load(sys.argv[3])
asked = {{"name": sys.argv[2], "namespace": named["namespace"], "is_install": True}}
if "kube-version" in named:
    asked["kube_version"] = named["kube-version"]
asked["api_versions"] = [value for name, _, value in options if name == "api-versions"]
files = json.loads(
    _native.call_string("helm_render", chart._raw(), open(named["values"]).read(), json.dumps(asked))
)
crds = {{crd["filename"]: crd["data"] for crd in chart.crds}} if "include-crds" in named else {{}}
for path, text in {{**crds, **files}}.items():
    for document in text.split("---\\n"):
        if document.strip():
            print(f"---\\n# Source: {{path}}\\n{{document.strip()}}")
"""


@pytest.fixture(scope="module")
def runtimes() -> Iterator[Any]:
    """The library as the engine."""
    with open_runtimes(FunctionPolicy(timeout_s=60)) as opened:
        yield opened


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The program as the engine: only its arguments and its output differ, so few tests need it."""
    helm = tmp_path_factory.mktemp("bin") / "helm"
    helm.write_text(_HELM.format(python=sys.executable, path=sys.path))
    helm.chmod(0o755)
    with open_runtimes(FunctionPolicy(exec={"helm": str(helm)}, timeout_s=60)) as opened:
        yield opened


@pytest.fixture(params=["runtimes", "program"], ids=["library", "executable"])
def engine(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(request.param)


def made(result: PipelineResult, before: Files) -> dict[str, str]:
    """Return the files that a pipeline added."""
    assert not result.error, result.error
    return {path: file.data.decode() for path, file in result.files.items() if path not in before}


def test_resources_are_files_with_the_text_of_their_template(engine: Sequence[FunctionRuntime]) -> None:
    files = package(chart(deployment=DEPLOYMENT), config(values={"valuesInline": {"replicas": 3}}))

    result = run_pipeline(files, engine)

    assert made(result, files) == {
        "deployment_web.yaml": "# Source: web/templates/deployment.yaml\n"
        + DEPLOYMENT.replace("{{ .Release.Name }}", "web").replace("{{ .Values.replicas }}", "3")
    }
    assert dict(run_pipeline(result.files, engine).files) == dict(result.files)


class Rendered(NamedTuple):
    """A chart with its configuration, and the one line that its template gives."""

    reason: str
    line: str
    options: dict[str, Any]
    want: str
    files: dict[str, str] | None = None


ONE_LINE = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  got: {{ %s | quote }}\n"
RENDERED = [
    Rendered("defaults of the chart", ".Values.replicas", {}, "1"),
    Rendered("inline values win over files", ".Values.replicas",
        {"values": {"valuesFiles": ["a.yaml"], "valuesInline": {"replicas": 3}}}, "3",
        {"a.yaml": "replicas: 2"}),
    Rendered("files win where inline values are merged below them", ".Values.replicas",
        {"values": {"valuesFiles": ["a.yaml"], "valuesInline": {"replicas": 3}, "valuesMerge": "merge"}},
        "2", {"a.yaml": "replicas: 2"}),
    Rendered("inline values replace files", '(.Values.x | default "none")',
        {"values": {"valuesFiles": ["a.yaml"], "valuesInline": {"y": 3}, "valuesMerge": "replace"}},
        "none", {"a.yaml": "x: 2"}),
    Rendered("the last file wins", ".Values.replicas", {"values": {"valuesFiles": ["a.yaml", "b.yaml"]}},
        "5", {"a.yaml": "replicas: 2", "b.yaml": "replicas: 5"}),
    Rendered("false and nothing are values too", '(printf "%v %v" .Values.on .Values.n)',
        {"values": {"valuesInline": {"on": False, "n": 0}}}, "false 0"),
    Rendered("release and namespace", '(printf "%s/%s" .Release.Namespace .Release.Name)',
        {"releaseName": "r", "namespace": "n"}, "n/r"),
    Rendered("the name of a template is that of the release", ".Release.Name", {"nameTemplate": "t"}, "t"),
    Rendered("the version of the cluster", ".Capabilities.KubeVersion.Version", {"kubeVersion": "v1.31.2"},
        "v1.31.2"),
    Rendered("what the cluster serves", '(.Capabilities.APIVersions.Has "example.com/v1")',
        {"apiVersions": ["example.com/v1"], "kubeVersion": "v1.31.0"}, "true"),
    Rendered("there is no cluster to look into", '(lookup "v1" "Pod" "a" "b" | len)', {}, "0"),
    Rendered("no file outside of the chart", '(.Files.Get "../../Kptfile" | len)', {}, "0"),
]  # fmt: skip


@pytest.mark.parametrize("case", RENDERED, ids=lambda case: case.reason)
def test_what_templates_see(case: Rendered, engine: Sequence[FunctionRuntime]) -> None:
    files = package({**chart(a=ONE_LINE % case.line), **(case.files or {})}, config(**case.options))

    (text,) = made(run_pipeline(files, engine), files).values()

    assert f'got: "{case.want}"' in text


class Refused(NamedTuple):
    """A package whose chart is not rendered, with what the message says, and where."""

    reason: str
    files: dict[str, str]
    configuration: str
    want: str


SECRET = (
    "apiVersion: v1\nkind: Secret\nmetadata:\n  name: a\ndata:\n"
    "  p: {{ .Values.password | default (randAlphaNum 9) }}\n"
)
DRAWN = (
    '{{ define "db.password" }}{{ .Values.adminPassword | default (randAlphaNum 9) | b64enc }}{{ end }}\n'
    "{{/* .Values.autoscaling.enabled */}}\n"
)
NAMED_SECRET = (
    "apiVersion: v1\nkind: Secret\nmetadata:\n  name: %s\ndata:\n"
    '  p: {{ include "manage" (dict "provided" (list "auth.password") "context" $) | b64enc }}\n'
)
MANAGE = """\
{{- define "manage" -}}
{{- $given := "" -}}
{{- range .provided -}}
{{- $steps := splitList "." . -}}
{{- $given = get (get $.context.Values (first $steps)) (last $steps) -}}
{{- end -}}
{{- $given | default (randAlphaNum 9) -}}
{{- end -}}
"""
"""A library that reads values by the names that it is given, as those of public charts do."""
SECRET_OF_DB = (
    "{{ if not .Values.existingSecret }}\napiVersion: v1\nkind: Secret\nmetadata:\n  name: db\ndata:\n"
    '  admin-password: {{ include "db.password" . }}\n{{ end }}\n'
)
INGRESS = (
    "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Capabilities.KubeVersion.Minor | quote }}\n"
)
MONITOR = (
    '{{ if .Capabilities.APIVersions.Has "m.example.com/v1" }}\n'
    "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n{{ end }}"
)
TIMED = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  at: {{ now | %s | quote }}\n"
REFUSED = [
    *(
        Refused(
            f"the time of the run by {function.split()[0]}",
            chart(a=TIMED % function),
            config(),
            "each time (data.at of ConfigMap a)",
        )
        for function in ('date "2006-01-02T15:04:05Z"', "unixEpoch")
    ),
    Refused(
        "an unknown field",
        chart(a=DEPLOYMENT),
        config(relaseName="x"),
        "chart.yaml:11: helmCharts[0].templateOptions.relaseName is no field of"
        " RenderHelmChart. Did you mean releaseName?",
    ),
    Refused("a chart that is not there", chart(a=DEPLOYMENT), config("wep"),
        "chart.yaml:9: The package has no chart wep in charts/. Did you mean web?"),
    Refused("a chart beside the directory of charts",
        {path.removeprefix("charts/"): file for path, file in chart(a=DEPLOYMENT).items()}, config("web"),
        "The package has no chart web in charts/. Move web/ to charts/web/."),
    Refused("another version", chart(a=DEPLOYMENT), config(chart_args={"version": "2.0.0"}),
        "The chart web of the package is version 1.0.0, not 2.0.0"),
    Refused("a values file outside", chart(a=DEPLOYMENT), config(values={"valuesFiles": ["../Kptfile"]}),
        "The package has no values file ../Kptfile"),
    Refused("a values file on a server", chart(a=DEPLOYMENT),
        config(values={"valuesFiles": ["https://x/y"]}), "Put it into the package: no run fetches it."),
    Refused("values of another type than the chart's schema", chart(a=DEPLOYMENT)
        | {"charts/web/values.schema.json": '{"properties": {"replicas": {"type": "integer"}}}'},
        config(values={"valuesInline": {"replicas": "x"}}), "replicas"),
    Refused(
        "values that break the rules of a schema",
        chart(a=DEPLOYMENT)
        | {
            "v.yaml": "image:\n  tag: A\n",
            "charts/web/values.schema.json": '{"properties": {"replicas": {"type": "integer"}, "image":'
            ' {"properties": {"tag": {"pattern": "^[a-z]$"}}}}, "additionalProperties": false}',
        },
        config(values={"valuesFiles": ["v.yaml"], "valuesInline": {"replicas": "x", "more": 1}}),
        "The values.schema.json of the chart web refuses "
        "chart.yaml:15: replicas: got string, want integer; "
        "chart.yaml:16: more: additional properties 'more' not allowed; "
        "v.yaml:2: image.tag: 'A' does not match pattern '^[a-z]$'",
    ),
    Refused("a default that breaks the rules of a dependency's schema",
        chart(a=DEPLOYMENT) | {"charts/web/values.yaml": "replicas: 1\ndb:\n  size: big\n",
        "charts/web/charts/db/Chart.yaml": "apiVersion: v2\nname: db\nversion: 1.0.0\n",
        "charts/web/charts/db/values.schema.json": '{"properties": {"size": {"type": "integer"}}}'}, config(),
        "charts/web/values.yaml:3: db.size: got string, want integer"),
    Refused("a library", chart(a="")
        | {"charts/web/Chart.yaml": "apiVersion: v2\nname: web\nversion: 1.0.0\ntype: library\n"},
        config(), "chart.yaml:9: web is a library chart, which renders nothing itself"),
    Refused(
        "a chart for other versions of Kubernetes",
        chart(a=DEPLOYMENT)
        | {
            "charts/web/Chart.yaml": "apiVersion: v2\nname: web\nversion: 1.0.0\n"
            "kubeVersion: '>=1.31.0-0 <1.33'\n"
        },
        config(kubeVersion="v1.30.2"),
        "chart.yaml:11: The chart web is for Kubernetes >=1.31.0-0 <1.33, and the cluster has v1.30.2",
    ),
    Refused(
        "a resource twice with other content",
        chart(a=ONE_LINE % "1", b=ONE_LINE % "2"),
        config(),
        "web/templates/b.yaml of the chart web gives ConfigMap a with other content than"
        " web/templates/a.yaml",
    ),
    Refused("a template that fails", chart(a='{{ fail "no luck" }}'), config(), "no luck"),
    Refused(
        "random values",
        chart(a=SECRET),
        config(),
        "web/templates/a.yaml of the chart web gives other manifests each time (data.p of Secret a). A"
        " package must be the same in every run: set password in the values",
    ),
    Refused(
        "random values of two templates, with a value that a library is told by name",
        {
            **chart(a=NAMED_SECRET % "a", b=NAMED_SECRET % "b"),
            "charts/web/templates/_manage.tpl": MANAGE,
            "charts/web/values.yaml": 'auth: {password: ""}\n',
        },
        config(),
        "web/templates/a.yaml, web/templates/b.yaml of the chart web give other manifests each time"
        " (data.p of Secret a, data.p of Secret b). A package must be the same in every run: set"
        " auth.password in the values",
    ),
    Refused(
        "random values of a chart in a chart",
        {
            **chart(a=ONE_LINE % "1"),
            "charts/web/charts/db/Chart.yaml": "apiVersion: v2\nname: db\nversion: 1.0.0\n",
            "charts/web/charts/db/templates/_p.tpl": DRAWN,
            "charts/web/charts/db/templates/s.yaml": SECRET_OF_DB,
        },
        config(),
        "(data.admin-password of Secret db). A package must be the same in every run: set db.adminPassword or"
        " db.existingSecret in the values",
    ),
    Refused("the time", chart(a=ONE_LINE % "now"), config(), "gives other manifests each time"),
    Refused("a version that nobody tells", chart(a=INGRESS), config(),
        "web/templates/a.yaml gives other manifests for other versions of Kubernetes"),
    Refused("APIs that nobody tells", chart(a=MONITOR), config(),
        "where the cluster serves m.example.com/v1"),
    Refused("no name", chart(a="apiVersion: v1\nkind: Pod\nmetadata: {generateName: a-}\n"), config(),
        "web/templates/a.yaml of the chart web gives no resource with apiVersion, kind and metadata.name"),
    Refused("no YAML", chart(a="a: b: c\n"), config(), "web/templates/a.yaml"),
]  # fmt: skip


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.reason)
def test_what_is_refused(case: Refused, runtimes: Sequence[FunctionRuntime]) -> None:
    files = package(case.files, case.configuration)

    result = run_pipeline(files, runtimes)

    assert case.want in result.error
    assert result.files is files


OF_THE_ENGINE = {
    "APIs that nobody tells",
    "a resource twice with other content",
    "a template that fails",
    "no YAML",
    "random values",
    "values of another type than the chart's schema",
}
"""Cases that are refused by what the engine says or gives, not before it runs."""


@pytest.mark.parametrize(
    "case", [case for case in REFUSED if case.reason in OF_THE_ENGINE], ids=lambda case: case.reason
)
def test_answers_of_the_program_are_refused_alike(case: Refused, program: Sequence[FunctionRuntime]) -> None:
    result = run_pipeline(package(case.files, case.configuration), program)

    assert case.want in result.error


def test_known_apis_answer_the_question_of_a_chart(engine: Sequence[FunctionRuntime]) -> None:
    files = package(chart(a=MONITOR, b=DEPLOYMENT), config(apiVersions=[], kubeVersion="v1.31.0"))

    assert list(made(run_pipeline(files, engine), files)) == ["deployment_web.yaml"]


@pytest.mark.parametrize(
    ("api", "made_by"),
    [
        ("policy/v1/PodDisruptionBudget", "deployment_web.yaml"),
        ("apiregistration.k8s.io/v1", "deployment_web.yaml"),
        ("autoscaling/v2", "deployment_web.yaml"),
        ("policy/v1beta1/PodSecurityPolicy", ""),
        ("batch/v1beta1/CronJob", ""),
        ("autoscaling/v2beta2/HorizontalPodAutoscaler", "nothing tells"),
        ("policy/v1/Unknown", "nothing tells"),
    ],
)
def test_what_all_or_no_clusters_serve_is_no_question(
    api: str, made_by: str, runtimes: Sequence[FunctionRuntime]
) -> None:
    asked = f'{{{{ if .Capabilities.APIVersions.Has "{api}" }}}}\n{DEPLOYMENT}{{{{ end }}}}'
    files = package(chart(a=asked), config(kubeVersion="v1.31.0"))

    result = run_pipeline(files, runtimes)

    assert bool(result.error) is (made_by == "nothing tells")
    assert made_by in (result.error or "".join(made(result, files)))


def archived(plain: Files, name: str) -> Files:
    """Return a package with its chart in an archive."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for path, file in plain.items():
            if path.startswith("charts/"):
                member = tarfile.TarInfo(path.removeprefix("charts/"))
                member.size = len(file.data)
                archive.addfile(member, io.BytesIO(file.data))
    files = {path: file for path, file in plain.items() if not path.startswith("charts/")}
    return {**files, f"charts/{name}.tgz": File.of(packed.getvalue())}


def test_archive_is_rendered_as_its_directory(engine: Sequence[FunctionRuntime]) -> None:
    plain = package(chart(deployment=DEPLOYMENT))
    files = archived(plain, "web-1.0.0")

    assert made(run_pipeline(files, engine), files) == made(run_pipeline(plain, engine), plain)


def test_archive_of_a_chart_with_a_longer_name_is_another_chart(runtimes: Sequence[FunctionRuntime]) -> None:
    texts = chart(deployment=DEPLOYMENT)
    admin = {**texts, "charts/web/Chart.yaml": texts["charts/web/Chart.yaml"].replace("web", "web-admin")}
    files = archived(package(admin), "web-admin-1.0.0")

    assert "The package has no chart web in charts/" in run_pipeline(files, runtimes).error
    both = {**files, **archived(package(texts), "web-stable")}
    assert "deployment_web.yaml" in made(run_pipeline(both, runtimes), both)


def test_tests_hooks_and_crds_are_as_the_options_say(engine: Sequence[FunctionRuntime]) -> None:
    pod = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: {0}\n  annotations:\n    helm.sh/hook: {0}\n"
    crd = (
        "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\n"
        "metadata:\n  name: x.example.com\n"
    )
    charts = {**chart(t=pod.format("test"), h=pod.format("pre-install")), "charts/web/crds/x.yaml": crd}

    def paths(**options: bool) -> set[str]:
        files = package(charts, config(**options))
        return set(made(run_pipeline(files, engine), files))

    assert paths() == {"pod_test.yaml", "pod_pre-install.yaml"}
    assert paths(skipTests=True) == {"pod_pre-install.yaml"}
    assert paths(includeCRDs=True) - paths() == {"customresourcedefinition_x.example.com.yaml"}


def test_separator_with_a_comment_right_behind_it_separates(engine: Sequence[FunctionRuntime]) -> None:
    another = DEPLOYMENT.replace("Release.Name", "Chart.Version")
    glued = f"{DEPLOYMENT}---\n{{{{- if true -}}}}\n# Another\n{another}{{{{ end }}}}\n"
    files = package(chart(deployment=glued))

    added = made(run_pipeline(files, engine), files)

    assert set(added) == {"deployment_web.yaml", "deployment_1.0.0.yaml"}
    assert "\n# Another\napiVersion" in added["deployment_1.0.0.yaml"]


@pytest.mark.parametrize("address", ["http://127.0.0.1:9/a.json", "file:///etc/passwd", "other.json"])
def test_schema_elsewhere_is_not_fetched(address: str, runtimes: Sequence[FunctionRuntime]) -> None:
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "properties": {"replicas": {"$ref": address}},
    }
    files = package(
        chart(deployment=DEPLOYMENT) | {"charts/web/values.schema.json": json.dumps(schema)}, config()
    )

    result = run_pipeline(files, runtimes)

    assert list(made(result, files)) == ["deployment_web.yaml"]
    (warning,) = result.steps[0].results
    assert f"refers to {address}, which no run fetches" in warning.message


BY_TEMPLATE = config().replace("annotations:\n", "annotations:\n    reconciler.dev/chart-files: templates\n")


def test_files_may_be_named_by_their_templates(engine: Sequence[FunctionRuntime]) -> None:
    files = package(chart(all=f"{DEPLOYMENT}---\n{DEPLOYMENT.replace('Name }}', 'Name }}-b')}"), BY_TEMPLATE)

    (text,) = [made(run_pipeline(files, engine), files)["all.yaml"]]

    assert text.count("kind: Deployment") == 2


NAMED = "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: '{1}', namespace: '{0}'}}\n"


@pytest.mark.parametrize(
    ("names", "there", "expected"),
    [
        (("x", "X"), {}, {"x": "configmap_x.yaml", "X": "configmap_x-2.yaml"}),
        (("x", "x.yaml/y"), {}, {"x": "configmap_x.yaml", "x.yaml/y": "configmap_x.yaml_y.yaml"}),
        (("a:b", "a_b"), {}, {"a:b": "configmap_a_b.yaml", "a_b": "configmap_a_b-2.yaml"}),
        (("x", "X", "x-2"), {},
            {"x": "configmap_x.yaml", "x-2": "configmap_x-2.yaml", "X": "configmap_x-3.yaml"}),
        (
            ("ns/x", "NS/x", "NS/y"),
            {},
            {"ns/x": "ns/configmap_x.yaml", "NS/x": "ns-2/configmap_x.yaml", "NS/y": "ns-2/configmap_y.yaml"},
        ),
        (("x",), {"configmap_x.yaml": "mine"}, {"x": "configmap_x-2.yaml"}),
        (("x",), {"ConfigMap_X.yaml": "mine"}, {"x": "configmap_x-2.yaml"}),
        (("X",), {"configmap_x.yaml/a": ""}, {"X": "configmap_x-2.yaml"}),
        (("configmap_x.yaml/y", "x"), {}, {"configmap_x.yaml/y": "configmap_x.yaml-2/configmap_y.yaml",
            "x": "configmap_x.yaml"}),
    ],
)  # fmt: skip
def test_each_resource_has_a_file_that_clashes_with_none(
    names: tuple[str, ...],
    there: dict[str, str],
    expected: dict[str, str],
    runtimes: Sequence[FunctionRuntime],
) -> None:
    split = [name.rpartition("/")[::2] if not name.startswith("x.") else ("", name) for name in names]
    own = {path: MINE if text else "" for path, text in there.items()}
    results = []
    for order in (1, -1):
        documents = "---\n".join(NAMED.format(*each) for each in split[::order])
        files = package({**chart(all=documents), **own})
        result = run_pipeline(files, runtimes)
        results.append(made(result, files))
        assert dict(run_pipeline(result.files, runtimes).files) == dict(result.files)

    homes = {name: path for name in names for path, text in results[0].items() if _has(text, name)}
    assert homes == expected
    assert results[0] == results[1]


MINE = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: mine}\n"


def _has(text: str, name: str) -> bool:
    namespace, _, own = name.rpartition("/") if not name.startswith("x.") else ("", "", name)
    return f"name: '{own}', namespace: '{namespace}'" in text


def test_files_of_templates_clash_with_none(runtimes: Sequence[FunctionRuntime]) -> None:
    two = {"a": NAMED.format("", "a") + "---\n" + NAMED.format("", "b"), "A": NAMED.format("", "c")}
    files = package(chart(**two), BY_TEMPLATE)

    result = run_pipeline(files, runtimes)

    assert {path: text.count("kind:") for path, text in made(result, files).items()} == {
        "a.yaml": 2,
        "a-2.yaml": 1,
    }
    assert dict(run_pipeline(result.files, runtimes).files) == dict(result.files)


NEEDY = "apiVersion: v2\nname: web\nversion: 1.0.0\ndependencies:\n- {name: db}\n- {name: base}\n"


@pytest.mark.parametrize(
    ("more", "missing"),
    [
        ({}, "db, base"),
        ({"charts/db/Chart.yaml": "name: db\nversion: 1.0.0\n"}, "base"),
        ({"Chart.yaml": "name: web\nversion: 1.0.0\n", "requirements.yaml": NEEDY}, "db, base"),
    ],
)
def test_chart_that_is_not_there_is_named_before_anything_is_rendered(
    more: dict[str, str], missing: str, runtimes: Sequence[FunctionRuntime]
) -> None:
    files = {"Chart.yaml": NEEDY, **more, "templates/a.yaml": "{{ .Values.db.enabled.x }}"}
    result = run_pipeline(package({f"charts/web/{p}": text for p, text in files.items()}), runtimes)

    assert f"The chart web depends on {missing}, which charts/web/charts/ does not have" in result.error
    assert "git add -f" in result.error


def test_symbolic_links_of_charts_are_refused(runtimes: Sequence[FunctionRuntime]) -> None:
    files = package(chart(a=DEPLOYMENT)) | {"charts/web/b": File.of(b"/etc/passwd", Mode.SYMLINK)}

    assert "charts/web/b is a symbolic link" in run_pipeline(files, runtimes).error


MANY = f"{{{{ range until 60 }}}}---\n{ONE_LINE % '1'}{{{{ end }}}}".replace("name: a", "name: a{{ . }}")
ITEM = "- {apiVersion: v1, kind: Pod, metadata: {name: a{{ . }}}}\n"
LIST = f"apiVersion: v1\nkind: List\nitems:\n{{{{ range until 60 }}}}{ITEM}{{{{ end }}}}"


@pytest.mark.parametrize(
    ("template", "limits", "want"),
    [
        (MANY, Limits(yaml_documents=58), "The chart web gives "),
        (MANY, Limits(yaml_documents=58), "bytes: limits.yamlDocuments is 58, limits.packageBytes 16777216"),
        (MANY, Limits(package_bytes=4000), "bytes: limits.yamlDocuments is 10000, limits.packageBytes 4000"),
        (MANY, Limits(package_files=60),
            "render-helm-chart:v0.3 makes more than 60 files (limits.packageFiles)"),
        (LIST, Limits(package_files=60),
            "render-helm-chart:v0.3 makes more than 60 files (limits.packageFiles)"),
        (LIST, Limits(package_file_bytes=40), " bytes, and limits.packageFileBytes is 40"),
        (MANY, Limits(package_bytes=5500), " bytes, and limits.packageBytes is 5500"),
    ],
)  # fmt: skip
def test_more_than_a_package_may_have_is_refused_before_it_is_made(
    template: str, limits: Limits, want: str, runtimes: Sequence[FunctionRuntime]
) -> None:
    files = package(chart(a=template))

    result = run_pipeline(files, runtimes, limits=limits)

    assert want in result.error
    assert result.files is files
    assert len(made(run_pipeline(files, runtimes), files)) == 60


ENDLESS = "{{ range untilStep 0 2000000000 1 }}{{ end }}"
LARGE = '{{ $x := "aaaaaaaaaaaaaaaa" }}{{ range until 40 }}{{ $x = printf "%s%s" $x $x }}{{ end }}'


@pytest.mark.parametrize("hostile", [ENDLESS, LARGE], ids=["endless", "large"])
def test_hostile_chart_ends_and_hurts_no_other(hostile: str) -> None:
    bad, good = package(chart(a=hostile)), package(chart(a=DEPLOYMENT))

    with open_runtimes(FunctionPolicy(timeout_s=3)) as runtimes:
        stopped, after = run_pipeline(bad, runtimes), run_pipeline(good, runtimes)

    assert "was stopped: it needs more than" in stopped.error
    assert "deployment_web.yaml" in made(after, good)


def test_without_an_engine_the_function_is_named() -> None:
    files = package(chart(a=DEPLOYMENT))

    assert "render-helm-chart" in run_pipeline(files, ()).error


def test_random_names_of_tests_that_are_left_out_do_no_harm(runtimes: Sequence[FunctionRuntime]) -> None:
    pod = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: t-{{ randAlphaNum 5 | lower }}\n"
    test = f'{pod}  annotations:\n    "helm.sh/hook": test\n'
    files = package(chart(t=test, b=DEPLOYMENT), config(skipTests=True))

    assert list(made(run_pipeline(files, runtimes), files)) == ["deployment_web.yaml"]
    assert (
        "each time (metadata.name of Pod). A package must be the same in every run: set the value"
        in run_pipeline(package(chart(t=test)), runtimes).error
    )


TEST_POD = "kind: Pod\nmetadata:\n  annotations:\n    helm.sh/hook: test\n"


@pytest.mark.parametrize(
    ("text", "is_left_out"),
    [
        ("", False),
        (TEST_POD, True),
        (f"{TEST_POD}---\n{TEST_POD}", True),
        (f"{TEST_POD}---\n{DEPLOYMENT}", False),
    ],
)
def test_template_of_tests_alone_is_left_out(text: str, *, is_left_out: bool) -> None:
    assert is_test(text) is is_left_out
