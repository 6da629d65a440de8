"""What functions make or do not see is told, and fails no package."""

import pytest

from reconciler.functions.pipeline import run_pipeline
from reconciler.functions.runtimes.result_cache import PackageCache
from reconciler.functions.step import PipelineResult
from reconciler.policy import FunctionPolicy
from tests.support.model import package

HEAD = "apiVersion: kpt.dev/v1\nkind: Kptfile\nmetadata:\n  name: p\npipeline:\n  mutators:\n"
SET = "  - image: set-namespace:v0.4.1\n    configMap: {namespace: prod}\n"
SETTERS = '  - image: apply-setters:v0.2\n    configMap: {version: "0071335", flag: "yes", word: "abc"}\n'
MAP = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: x\n"


def rendered(pipeline: str, policy: FunctionPolicy = FunctionPolicy(), **files: str) -> PipelineResult:  # noqa: B008
    names = {f"{name.replace('__', '/')}.yaml": text for name, text in files.items()}
    result = run_pipeline(package({"Kptfile": HEAD + pipeline, **names}), (), policy)
    assert result.ok, result.error
    return result


def warnings(result: PipelineResult) -> list[str]:
    return [each.message for each in result.results if each.severity == "warning"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("apiVersion: batch/v1\nkind: Job\nmetadata:\n  generateName: a-\n", "it has no metadata.name"),
        (MAP.replace("name:", "nam:"), "it has no metadata.name"),
        (MAP + " bad: x\n", "it is no YAML: line 5"),
        ("replicas: 1\n", ""),
        (MAP, ""),
        ("# nothing\n", ""),
    ],
)
def test_objects_that_no_function_sees_are_named(text: str, why: str) -> None:
    unseen = rendered(SET, it=text).unseen

    assert bool(unseen) is bool(why)
    assert all(path == "it.yaml" and cause.startswith(why) for path, cause in unseen)


def test_templates_of_charts_are_no_objects() -> None:
    assert not rendered(SET, chart__Chart="name: c\n", chart__templates__a="{{ if .x }}\n").unseen


@pytest.mark.parametrize(
    ("where", "kind", "fields"),
    [
        ("metadata:\n  name: x\n  labels:\n", "Service", "metadata.labels"),
        ("metadata:\n  name: x\n  annotations:\n", "Service", "metadata.annotations"),
        ("metadata:\n  name: x\ndata:\n", "ConfigMap", "data"),
        ("metadata:\n  name: x\nspec:\n", "Service", ""),
    ],
)
def test_text_that_becomes_a_number_or_a_boolean_is_named_once(where: str, kind: str, fields: str) -> None:
    values = "".join(f"    {name}: a # kpt-set: ${{{name}}}\n" for name in ("version", "flag", "word"))
    text = f"apiVersion: v1\nkind: {kind}\n{where}{values}"

    told = warnings(rendered(SETTERS + SETTERS, it=text))
    quiet = warnings(rendered(SETTERS, FunctionPolicy(compatible=True), it=text))

    want = [f"{fields}.{name} of {kind} x was text before: quote the field" for name in ("version", "flag")]
    assert told == (want if fields else [])
    assert not quiet


def test_list_of_references_that_set_namespace_leaves_alone_is_named() -> None:
    one = "apps/namespaces/old/Deployment/x"
    note = "  annotations:\n    config.kubernetes.io/depends-on: {}\n"

    assert not warnings(rendered(SET, it=MAP + note.format(one)))
    assert warnings(rendered(SET, it=MAP + note.format(f"{one},/namespaces/old/Secret/y"))) == [
        "ConfigMap x: set-namespace leaves a list in config.kubernetes.io/depends-on alone"
    ]


def test_cached_result_has_its_warnings(tmp_path_factory: pytest.TempPathFactory) -> None:
    files = package({"Kptfile": HEAD + SET, "job.yaml": MAP.replace("name:", "nam:")})
    cache, result = PackageCache(tmp_path_factory.mktemp("cache"), FunctionPolicy()), run_pipeline(files)
    cache.keep(files, result)

    found = cache.find(files)

    assert found is not None
    assert found.unseen == result.unseen != ()
