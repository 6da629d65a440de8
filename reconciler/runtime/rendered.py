"""What whole pipelines made of packages, kept from run to run: by the package, the code and the settings."""

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any, Final

import orjson

from reconciler.functions.step import PipelineResult, Stage, Step, StepRun
from reconciler.functions.wire import parse_results, result_value
from reconciler.objects import File, Files, Mode, tree_id
from reconciler.policy import FunctionPolicy
from reconciler.runtime.results import MOST_BYTES, ResultStore

_FORMAT: Final = 1
"""Raised when what is kept changes its meaning."""
_LIBRARIES: Final = ("google-re2", "jsonschema-rs", "kubernetes-validate", "pyyaml", "starlark-pyo3")
_ROOT: Final = Path(__file__).resolve().parents[1]
_CODE: Final = ("api", "functions", "krm", "render/update", "runtime")


class RenderedPackages:
    """Pipelines that succeeded, by everything that they depend on.

    A package's tree holds its functions, their configuration and their input. Executables may change
    behind their path, and what may use the network may hear another answer: nothing is kept where
    the policy has either.
    """

    def __init__(
        self,
        directory: Path | None,
        policy: FunctionPolicy,
        definitions: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        repeatable = not policy.exec and not policy.container.network
        self._store = ResultStore(directory if repeatable else None)
        self._policy = [
            policy.claim_floating,
            policy.compatible,
            policy.starlark_steps,
            sorted(policy.images.items()),
            policy.container.engine,
            list(policy.container.arguments),
            hashlib.sha256(orjson.dumps(list(definitions), option=orjson.OPT_SORT_KEYS)).hexdigest(),
        ]

    def find(self, files: Files) -> PipelineResult | None:
        """Return what the pipeline made of a package before, None if that is not known."""
        data = self._store.find(self._facts(files))
        with suppress(ValueError, KeyError, TypeError):
            return None if data is None else _decode(data, files)
        return None

    def keep(self, files: Files, result: PipelineResult) -> None:
        """Keep a pipeline that ran and did not fail."""
        if result.ok and result.steps:
            self._store.keep(self._facts(files), _encode(result, files))

    def prune(self, most_bytes: int = MOST_BYTES) -> None:
        """Forget the oldest, if some were kept since and all of them take more than that."""
        self._store.prune(most_bytes)

    def _facts(self, files: Files) -> list[Any]:
        return [_FORMAT, _code(), tree_id(files), *self._policy]


@cache
def _code() -> str:
    """Return a digest of the code that functions consist of: any change to it makes other results."""
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415 - slow to import

    digest = hashlib.sha256()
    for folder in _CODE:
        for path in sorted((_ROOT / folder).rglob("*.py")):
            digest.update(path.read_bytes())
    for name in _LIBRARIES:
        with suppress(PackageNotFoundError):
            digest.update(f"{name} {version(name)}".encode())
    return digest.hexdigest()


def changed_files(before: Files, after: Files) -> dict[str, File]:
    """Return the files that are new or other than before."""
    return {path: file for path, file in after.items() if before.get(path) != file}


def _encode(result: PipelineResult, before: Files) -> bytes:
    """Write a header of one line, then the bytes of the files that changed."""
    changed = changed_files(before, result.files)
    head = {
        "removed": sorted(before.keys() - result.files.keys()),
        "changed": [[path, file.mode, len(file.data)] for path, file in changed.items()],
        "steps": [_step_value(run) for run in result.steps],
    }
    return b"\n".join([orjson.dumps(head), b"".join(file.data for file in changed.values())])


def _step_value(run: StepRun) -> dict[str, Any]:
    return {
        "step": asdict(run.step),
        "engine": run.engine,
        "results": [result_value(each) for each in run.results],
        "stderr": run.stderr,
    }


def _decode(data: bytes, before: Files) -> PipelineResult:
    line, _, body = data.partition(b"\n")
    head = orjson.loads(line)
    files = {path: file for path, file in before.items() if path not in head["removed"]}
    start = 0
    for path, mode, size in head["changed"]:
        if start + size > len(body):
            raise ValueError(path)
        files[path] = File.of(body[start : start + size], Mode(mode))
        start += size
    return PipelineResult(files, tuple(map(_step_run, head["steps"])), declared=True)


def _step_run(value: Mapping[str, Any]) -> StepRun:
    parts: dict[str, Any] = {
        name: tuple(part) if isinstance(part, list) else part for name, part in value["step"].items()
    }
    step = Step(**{**parts, "stage": Stage(parts["stage"])})
    return StepRun(step, value["engine"], parse_results(value["results"]), 0, value["stderr"])
