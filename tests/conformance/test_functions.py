"""The function catalog's own examples: our builtins give the same packages and results, twice in a row."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from reconciler.functions.pipeline import run_pipeline, run_steps
from reconciler.functions.runtimes.starlark import StarlarkRuntime
from reconciler.functions.step import PipelineResult, Stage, Step
from reconciler.krm.yaml import load_documents
from reconciler.names.objects import File, Files
from reconciler.policy import FunctionPolicy
from tests.support.conformance import absence, load_yaml, parameters, vector_files
from tests.support.porch_divergences import DOCUMENT

MODES = {mode: FunctionPolicy(compatible=mode == "compatible") for mode in ("compatible", "default")}
ERRORS = {
    "starlark/test-load-library": "There is no module 'bsoup.star'",
    "starlark/test-non-standard-features": "Variable `set` not found",
    "starlark/test-openapi": 'Key `"definitions"` was not found',
}
"""The errors of cases that pass in the catalog, in both modes."""
DEFAULT_ERRORS = {"set-namespace/test-no-fnconfig-resource": "FunctionConfig is missing"}
"""The same, in the default mode alone: an error result fails the step."""
PIPE = "starlark/test-preserve-id-annotations"
"""Its packages come from a shell pipe of three commands, of which the case has one."""


def cases() -> list[Any]:
    pattern = "functions/*/*/meta.yaml"
    folders = [file.parent for file in vector_files(pattern)]
    return parameters(((f"{f.parent.name}/{f.name}", f) for f in folders), absent=absence(pattern))


def files_of(directory: Path) -> dict[str, File]:
    paths = (path for path in sorted(directory.rglob("*")) if path.is_file())
    return {str(path.relative_to(directory)): File.of(path.read_bytes()) for path in paths}


def run(
    meta: dict[str, Any], files: Files, starlark: StarlarkRuntime, policy: FunctionPolicy
) -> PipelineResult:
    """Run the pipeline or function of a case; images without a version mean the newest one."""
    if meta["mode"] == "render" or "image" not in meta:
        return run_pipeline(_unpinned(files), [starlark], policy)
    step = Step(
        "",
        Stage.MUTATORS,
        0,
        image=meta["image"],
        config_map=meta.get("args"),
        config_path=meta.get("fnConfigFile", ""),
    )
    return run_steps(files, [step], [starlark], policy)


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
    with StarlarkRuntime(FunctionPolicy()) as runtime:
        yield runtime


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("case", cases())
def test_case(case: Path, mode: str, starlark: StarlarkRuntime) -> None:
    name = f"{case.parent.name}/{case.name}"
    meta = load_yaml(case / "meta.yaml")
    given, expected = files_of(case / "input"), files_of(case / "expected")
    context = "package-context.yaml"
    if context in expected and context not in given:
        given[context] = expected[context]  # the case has it made before

    first = run(meta, given, starlark, MODES[mode])

    assert first.unrunnable == ()
    if error := {**ERRORS, **(DEFAULT_ERRORS if mode == "default" else {})}.get(name):
        assert error in first.error
        assert meta["exitCode"] == 0, "it has the result of the catalog"
        return
    assert (1 if first.error else 0) == meta["exitCode"], first.error
    moved = meta["function"] == "ensure-name-substring"
    packages = [resources(_unpinned(files), by_identity=moved) for files in (first.files, expected)]
    assert (packages[0] == packages[1]) is (name != PIPE)
    if "results" in meta:
        assert results_of(first) == expected_results(case / meta["results"])
    if first.ok:
        second = run(meta, first.files, starlark, MODES[mode])
        assert {p: f.data for p, f in second.files.items()} == {p: f.data for p, f in first.files.items()}


def results_of(result: PipelineResult) -> list[tuple[str, str]]:
    return sorted((each.message, each.severity) for each in result.results)


def expected_results(file: Path) -> list[tuple[str, str]]:
    results = [each for item in load_yaml(file)["items"] for each in item.get("results") or ()]
    return sorted((each["message"], each.get("severity") or "info") for each in results)


def test_document_lists_the_cases_with_another_result() -> None:
    section = DOCUMENT.read_text().partition("\n## Functions\n")[2]

    names = re.findall(r"`([\w-]+/test-[\w-]+)`", section)

    assert sorted(names) == sorted([*ERRORS, *DEFAULT_ERRORS, PIPE])
