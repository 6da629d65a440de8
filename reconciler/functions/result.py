"""What a pipeline did, as values: the files, every step with its results, and what stood in the way."""

from dataclasses import dataclass
from typing import Any

from reconciler.functions.runtime import FunctionResult
from reconciler.functions.step import Step
from reconciler.functions.wire import result_value
from reconciler.objects import Files


@dataclass(frozen=True, slots=True)
class StepRun:
    """One step that ran: who ran it (`builtin set-labels`, `starlark`, ...) and what it said."""

    step: Step
    engine: str
    results: tuple[FunctionResult, ...] = ()
    exit_code: int = 0
    stderr: str = ""


@dataclass(frozen=True, slots=True)
class Unrunnable:
    """A function that nobody here can run, and why not."""

    function: str
    reason: str


@dataclass(frozen=True, slots=True)
class PipelineResult:
    """A rendered package. Where `error` is set, `files` are those that were given, untouched.

    `unrunnable` names each function that nobody can run, once, sorted; `error` then says so too.
    `declared` tells whether there is any pipeline at all, `trespass` that a function changed a field of
    the Kptfile that no function may change.
    """

    files: Files
    steps: tuple[StepRun, ...] = ()
    error: str = ""
    unrunnable: tuple[Unrunnable, ...] = ()
    declared: bool = False
    trespass: bool = False

    @property
    def results(self) -> tuple[FunctionResult, ...]:
        """The results of all steps, in the order in which they ran."""
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
        "items": [_item(step) for step in result.steps],
    }


def _item(run: StepRun) -> dict[str, Any]:
    key = "exec" if run.step.exec else "image"
    item: dict[str, Any] = {key: run.step.exec or run.step.image}
    if run.stderr:
        item["stderr"] = run.stderr
    item["exitCode"] = run.exit_code
    if run.results:
        item["results"] = [result_value(each) for each in run.results]
    return item
