"""Steps of a pipeline as a Kptfile declares them, the resources that each selects, and their results."""

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, Self

from msgspec import Struct

from reconciler.api.porch import Function
from reconciler.base.reasons import Reason
from reconciler.functions.protocol import FunctionResult, result_value
from reconciler.functions.resources import Resource
from reconciler.krm.yaml import Path
from reconciler.names.objects import Files


class Stage(StrEnum):
    """The lists of a pipeline: mutators change resources, validators only check them."""

    MUTATORS = "mutators"
    VALIDATORS = "validators"


class InvalidPipelineError(Exception):
    """The pipeline of a Kptfile is invalid; `path` is the field that is wrong."""

    def __init__(self, message: str, path: Path = ("pipeline",)) -> None:
        super().__init__(message)
        self.path = path


class Step(Struct, frozen=True):
    """One function of a pipeline, as written in a Kptfile; `package` is the directory of that Kptfile."""

    package: str
    stage: Stage
    index: int
    name: str = ""
    image: str = ""
    tag: str = ""
    exec: str = ""
    config_path: str = ""
    config_map: Mapping[str, Any] | None = None
    selectors: tuple[Mapping[str, Any], ...] = ()
    exclude: tuple[Mapping[str, Any], ...] = ()

    @classmethod
    def of(cls, function: Function, stage: Stage, index: int) -> Self:
        """Return a function of a manifest as a step of a root package."""
        image, tag, executable = (text or "" for text in (function.image, function.tag, function.exec))
        config_path = function.config_path or ""
        return cls("", stage, index, "", image, tag, executable, config_path, function.config_map)

    @property
    def function(self) -> str:
        """The image with its tag, or the executable."""
        return self.exec or (f"{self.image} ({self.tag})" if self.tag else self.image)

    def __str__(self) -> str:
        where = f' of package "{self.package}"' if self.package else ""
        return f"{self.stage}[{self.index}]{where}: {self.function}"


def parse_steps(kptfile: Mapping[str, Any], package: str) -> tuple[Step, ...]:
    """Return the steps of one package: its mutators, then its validators.

    Raises:
        InvalidPipelineError: The pipeline has a wrong structure.
    """
    pipeline = kptfile.get("pipeline")
    if pipeline is None:
        return ()
    if not isinstance(pipeline, Mapping):
        raise InvalidPipelineError("The pipeline of the Kptfile is no mapping")
    return tuple(step for stage in Stage for step in _steps(pipeline.get(stage.value), stage, package))


def _steps(entries: Any, stage: Stage, package: str) -> Iterator[Step]:
    if entries is None:
        return
    if not isinstance(entries, list):
        raise InvalidPipelineError(f"pipeline.{stage} is no list", ("pipeline", stage.value))
    for index, item in enumerate(entries):
        where = f"pipeline.{stage}[{index}]"
        path: Path = ("pipeline", stage.value, index)
        if not isinstance(item, Mapping):
            raise InvalidPipelineError(f"{where} is no mapping", path)
        try:
            yield _step(item, Step(package, stage, index), where)
        except InvalidPipelineError as error:
            raise InvalidPipelineError(str(error), path) from error


def _step(item: Mapping[str, Any], bare: Step, where: str) -> Step:
    image, executable = _text(item, "image", where), _text(item, "exec", where)
    if bool(image) == bool(executable):
        raise InvalidPipelineError(f"{where} must have exactly one of image and exec")
    path, values = _text(item, "configPath", where), item.get("configMap")
    if values is not None and not isinstance(values, Mapping):
        raise InvalidPipelineError(f"{where}.configMap is no mapping")
    if path and values:
        raise InvalidPipelineError(f"{where} has both configPath and configMap")
    # A configuration outside of the package could be a file of another tenant.
    if path.startswith("/") or ".." in path.split("/"):
        raise InvalidPipelineError(f"{where}.configPath {path!r} leads out of the package")
    return Step(
        bare.package,
        bare.stage,
        bare.index,
        _text(item, "name", where),
        image,
        _text(item, "tag", where),
        executable,
        path,
        values,
        _selectors(item.get("selectors"), f"{where}.selectors"),
        _selectors(item.get("exclude"), f"{where}.exclude"),
    )


def _text(item: Mapping[str, Any], field: str, where: str) -> str:
    value = item.get(field)
    if value is not None and not isinstance(value, str):
        raise InvalidPipelineError(f"{where}.{field} is no string")
    return value or ""


def _selectors(value: Any, where: str) -> tuple[Mapping[str, Any], ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(selector, Mapping) for selector in value):
        raise InvalidPipelineError(f"{where} is no list of selectors")
    return tuple(value)


_IDENTITY = ("apiVersion", "kind", "name", "namespace")
_SELECTOR_FIELDS = (*_IDENTITY, "labels", "annotations")


def select(
    resources: Sequence[Resource],
    selectors: Sequence[Mapping[str, Any]],
    exclude: Sequence[Mapping[str, Any]],
) -> list[Resource]:
    """Return the resources that match any selector, without those that match an exclusion.

    Equality only. An empty exclusion excludes nothing.

    Source: kpt internal/fnruntime/runner.go, SelectInput and ShouldExclude.
    Differs: a resource of two selectors is passed once.
    """
    # kpt ignores an empty exclusion, where an empty selector selects everything.
    exclude = [selector for selector in exclude if any(selector.get(field) for field in _SELECTOR_FIELDS)]
    return [
        resource
        for resource in resources
        if (not selectors or any(_matches(selector, resource) for selector in selectors))
        and not any(_matches(selector, resource) for selector in exclude)
    ]


def _matches(selector: Mapping[str, Any], resource: Resource) -> bool:
    identity = (resource.api_version, resource.kind, resource.name, resource.namespace)
    pairs = zip(_IDENTITY, identity, strict=True)
    if any(selector.get(field) not in (None, "", value) for field, value in pairs):
        return False
    labels = resource.metadata.get("labels")
    return _contains(labels, selector.get("labels")) and _contains(
        resource.annotations, selector.get("annotations")
    )


def _contains(values: Any, expected: Any) -> bool:
    if not isinstance(expected, Mapping) or not expected:
        return True
    return isinstance(values, Mapping) and all(values.get(key) == value for key, value in expected.items())


class StepRun(Struct, frozen=True):
    """Output of one step; `engine` is what ran it, such as `builtin set-labels 0.2.2` or `starlark`.

    `files` are the paths that its resources got and that none had before, `splits` the texts of which it used
    a part, each with the separator of the parts, "" for a pattern.
    """

    step: Step
    engine: str
    results: tuple[FunctionResult, ...] = ()
    exit_code: int = 0
    stderr: str = ""
    files: tuple[str, ...] = ()
    splits: tuple[tuple[str, str], ...] = ()


class Unrunnable(Struct, frozen=True):
    """A function without a runtime, the reason, and as a hint the one that was probably meant.

    `claimed` is the catalog's name of a function that an optional library runs, "" for any other.
    """

    function: str
    reason: str
    hint: str = ""
    claimed: str = ""


class FunctionTimeoutError(Exception):
    """A function takes longer than it may: its step fails."""


class RunTimeoutError(Exception):
    """The time of all functions of a run is over: the package is not rendered.

    `is_running` tells that the function had begun.
    """

    def __init__(self, message: str, *, is_running: bool) -> None:
        super().__init__(message)
        self.is_running = is_running


class PipelineResult(Struct, frozen=True):
    """A rendered package. With an `error`, `files` are the unchanged input."""

    files: Files
    steps: tuple[StepRun, ...] = ()
    error: str = ""
    unrunnable: tuple[Unrunnable, ...] = ()
    """Functions without a runtime, each once, sorted."""
    refusal: Reason | None = None
    """The forbidden act of a function: it changed a protected field, or gave a file a bad name."""
    is_late: bool = False
    """Whether a function was stopped because of the time."""
    is_postponed: bool = False
    """Whether the time of all functions was over before: another run may render the package."""
    repeats: bool = False
    """Whether a builtin failed: every run would fail alike."""
    partial: Files | None = None
    """Files that were made before the failure, if the package asks for them."""
    failed: Step | None = None
    """The step that failed."""
    unseen: tuple[tuple[str, str], ...] = ()
    """Files with objects that no function sees, and why."""

    @property
    def results(self) -> tuple[FunctionResult, ...]:
        """The results of all steps in the order of their runs."""
        return tuple(result for step in self.steps for result in step.results)

    @property
    def ok(self) -> bool:
        """Whether every step ran and none failed."""
        return not self.error


def result_list(result: PipelineResult) -> dict[str, Any]:
    """Return kpt's FunctionResultList of a pipeline, with severities spelled out.

    Source: kpt pkg/api/fnresult/v1.
    """
    return {
        "apiVersion": "kpt.dev/v1",
        "kind": "FunctionResultList",
        "metadata": {"name": "fnresults"},
        "exitCode": 0 if result.ok else 1,
        "items": [_run_value(step) for step in result.steps],
    }


def _run_value(run: StepRun) -> dict[str, Any]:
    key = "exec" if run.step.exec else "image"
    item: dict[str, Any] = {key: run.step.exec or run.step.image}
    if run.stderr:
        item["stderr"] = run.stderr
    item["exitCode"] = run.exit_code
    if run.results:
        item["results"] = [result_value(result) for result in run.results]
    return item
