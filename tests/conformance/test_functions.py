"""The function catalog's own examples: our builtins give the same packages and results, twice in a row."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from reconciler.functions.package_files import read_resources
from reconciler.functions.pipeline import run_pipeline, run_steps
from reconciler.functions.step import PipelineResult, Stage, Step
from reconciler.krm.yaml import load_documents
from reconciler.objects import File, Files
from reconciler.policy import FunctionPolicy
from reconciler.runtime.starlark import StarlarkRuntime
from tests.support.conformance import absence, load_yaml, parameters, vector_files

POLICY = FunctionPolicy(compatible=True)
KNOWN = {
    "test-load-library": "loads modules with network or files: http, xlsx, zipfile, html, bsoup, geo",
    "test-non-standard-features": "uses set(), which the engine does not have",
    "test-openapi": "prints from the OpenAPI schema, which is not given to scripts",
    "test-preserve-id-annotations": "is a shell pipe of three commands",
}


def cases() -> list[Any]:
    pattern = "functions/*/*/meta.yaml"
    folders = [file.parent for file in vector_files(pattern)]
    return parameters(((f"{f.parent.name}/{f.name}", f) for f in folders), absent=absence(pattern))


def files_of(directory: Path) -> dict[str, File]:
    paths = (path for path in sorted(directory.rglob("*")) if path.is_file())
    return {str(path.relative_to(directory)): File.of(path.read_bytes()) for path in paths}


def run(meta: dict[str, Any], files: Files, starlark: StarlarkRuntime) -> PipelineResult:
    """Run the pipeline or function of a case; images without a version mean the newest one."""
    if meta["mode"] == "render" or "image" not in meta:
        return run_pipeline(_unpinned(files), [starlark], POLICY)
    step = Step(
        "",
        Stage.MUTATORS,
        0,
        image=meta["image"],
        config_map=meta.get("args"),
        config_path=meta.get("fnConfigFile", ""),
    )
    return run_steps(read_resources(files), [step], [starlark], POLICY)


def _unpinned(files: Files) -> Files:
    """The cases describe the newest code, whatever the tag in the Kptfile."""
    kptfile = files.get("Kptfile")
    if kptfile is None:
        return files
    return {**files, "Kptfile": File.of(kptfile.data.replace(b":v0.3.4", b":unstable"))}


def resources(files: Files, *, by_identity: bool) -> list[tuple[str, Any]]:
    objects = []
    for path, file in files.items():
        if not path.endswith((".yaml", "Kptfile")):
            continue
        for document in load_documents(file.data):
            value = document.value
            if path.endswith("Kptfile"):
                value.pop("status", None)
            key = "" if by_identity else path
            objects.append((f"{key} {value.get('kind')} {value['metadata'].get('name')}", value))
    return sorted(objects, key=lambda pair: (pair[0], yaml.safe_dump(pair[1])))


@pytest.fixture(scope="module")
def starlark() -> Any:
    with StarlarkRuntime(POLICY) as runtime:
        yield runtime


@pytest.mark.parametrize("case", cases())
def test_case(case: Path, starlark: StarlarkRuntime) -> None:
    if case.name in KNOWN:
        pytest.skip(f"see docs/divergences.md: it {KNOWN[case.name]}")
    meta = load_yaml(case / "meta.yaml")
    given, expected = files_of(case / "input"), files_of(case / "expected")
    context = "package-context.yaml"
    if context in expected and context not in given:
        given[context] = expected[context]  # the case has it made before

    first = run(meta, given, starlark)

    moved = meta["function"] == "ensure-name-substring"
    assert first.unrunnable == ()
    assert (1 if first.error else 0) == meta["exitCode"], first.error
    assert resources(_unpinned(first.files), by_identity=moved) == resources(
        _unpinned(expected), by_identity=moved
    )
    if "results" in meta:
        assert results_of(first) == expected_results(case / meta["results"])
    if first.ok:
        second = run(meta, first.files, starlark)
        assert {p: f.data for p, f in second.files.items()} == {p: f.data for p, f in first.files.items()}


def results_of(result: PipelineResult) -> list[tuple[str, str]]:
    return sorted((each.message, each.severity) for each in result.results)


def expected_results(file: Path) -> list[tuple[str, str]]:
    results = [each for item in load_yaml(file)["items"] for each in item.get("results") or ()]
    return sorted((each["message"], each.get("severity") or "info") for each in results)


def test_few_cases_are_skipped() -> None:
    assert len(KNOWN) <= 8
