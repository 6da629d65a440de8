"""Charts of Helm: rendered in a worker with Helm's own engine, or by a `helm` that the settings map."""

import os
import re
import tempfile
import threading
from collections.abc import Callable, Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import msgspec
import orjson

from reconciler.base.values import Refused, whole_number
from reconciler.functions.charts import (
    RENDER_HELM_CHART,
    VALUES,
    Chart,
    ChartCall,
    ChartError,
    RenderedTemplate,
    chart_members,
    is_test,
    without_schemas,
)
from reconciler.functions.runtime import FunctionCall, FunctionResult, FunctionRun
from reconciler.functions.runtimes.helm_worker import OLD_VERSION
from reconciler.functions.runtimes.process import limit_process, run_process
from reconciler.functions.runtimes.worker import Worker
from reconciler.krm.schema import served_everywhere
from reconciler.krm.yaml.tree import path_text
from reconciler.policy import FunctionPolicy

_WORKER: Final = "reconciler.functions.runtimes.helm_worker"
_BASE_BYTES: Final = 512 << 20
"""The memory of the interpreter and the engine itself, beside that of a chart."""
_LIBRARY: Final = "helm_python"
_EXECUTABLE: Final = "helm"
_SOURCE: Final = "# Source: "
_SCHEMA_OF: Final = re.compile(r"([A-Za-z0-9._-]+):")
_BROKEN_RULE: Final = re.compile(r"- at '([^']*)': (.+)")
_LOOKED_UP: Final = re.compile(r"(?i)existing|secret|password|token|cert|tls|key\b|enabled$")
"""Names of values that replace what a chart makes, or that turn it off."""
_MOST_NAMED: Final = 8
_ADDITIONAL: Final = re.compile(r"^additional properties '([^']*)' not allowed$")


class HelmRuntime:
    """Renders charts one after another. The same charts and values give the same resources, or an error."""

    def __init__(self, policy: FunctionPolicy, check: Callable[[], None] = lambda: None) -> None:
        self._policy = policy
        self._check = check
        self._worker = Worker(_WORKER, _BASE_BYTES, policy, check)
        self._kept: frozenset[str] = frozenset()
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._worker.close()

    def can_run(self, call: FunctionCall) -> str:
        """Return "" for render-helm-chart where an engine is installed or mapped, else the reason."""
        if call.claimed != RENDER_HELM_CHART:
            return "It is not built in"
        if self._policy.exec.get(_EXECUTABLE) or find_spec(_LIBRARY):
            return ""
        return (
            "Helm's engine is not installed: install the reconciler with its extra `helm` (docs/install.md),"
            " or map an executable `helm` (functions.exec)"
        )

    def run(self, call: FunctionCall) -> FunctionRun:
        """Render the charts of a call. Never raises for a failure of a chart."""
        render = self._by_executable if self._policy.exec.get(_EXECUTABLE) else self._by_library
        done: list[tuple[RenderedTemplate, ...]] = []
        for chart in call.charts:
            try:
                with self._lock:
                    reply = render(chart)
                _refuse(chart, reply)
            except ChartError as error:
                text = f"{error}{f'. {error.hint}' if error.hint else ''}"
                return FunctionRun(None, (FunctionResult(text, "error"),), 1)
            files = (*reply.get("crds", {}).items(), *sorted(reply["files"].items()))
            done.append(tuple(RenderedTemplate(path, text) for path, text in files))
        unchecked = (
            f"The schema of the chart {chart.chart.name} refers to {chart.chart.elsewhere}, which no run"
            " fetches: its values are not checked"
            for chart in call.charts
            if chart.chart.elsewhere
        )
        warnings = tuple(FunctionResult(text, "warning") for text in unchecked)
        return FunctionRun(call.items, warnings, charts=tuple(done))

    def _by_library(self, call: ChartCall) -> dict[str, Any]:
        chart = call.chart
        is_kept = self._worker.is_running and chart.digest in self._kept
        api_versions, asks = _apis(call)
        request = {
            "digest": chart.digest,
            "archive": b"" if is_kept else _archive(chart),
            "values": orjson.dumps(call.values).decode(),
            "release": call.release,
            "namespace": call.namespace,
            "kube_version": call.kube_version,
            "api_versions": api_versions,
            "asks_version": chart.asks_version,
            "asks": asks,
            "include_crds": call.include_crds,
            "seconds": self._policy.timeout_s,
        }
        body = self._worker.ask(msgspec.msgpack.encode(request))
        if isinstance(body, Refused):
            raise ChartError(f"The chart {chart.name} was stopped: it needs more than {body.why}")
        reply: dict[str, Any] = msgspec.msgpack.decode(body)
        self._kept = frozenset(reply["kept"])
        return reply

    def _by_executable(self, call: ChartCall) -> dict[str, Any]:
        """Render with `helm template`, as often and with the same options as the worker does."""
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "chart.tgz").write_bytes(_archive(call.chart))
            Path(folder, "values.json").write_bytes(orjson.dumps(call.values))
            options = [f"--kube-version={call.kube_version}"] if call.kube_version else []
            api_versions, asks = _apis(call)
            options += [f"--api-versions={api_version}" for api_version in api_versions]
            plain = self._template(call, folder, options)
            differs = {"random": self._template(call, folder, options)}
            if call.chart.asks_version and not call.kube_version:
                differs["version"] = self._template(call, folder, [*options, f"--kube-version={OLD_VERSION}"])
            if asks:
                more = [f"--api-versions={api}" for api in asks]
                differs["apis"] = self._template(call, folder, [*options, *more])
        both = {
            name: sorted(p for p in {**plain, **o} if plain.get(p) != o.get(p)) for name, o in differs.items()
        }
        return {"files": plain, "differs": both}

    def _template(self, call: ChartCall, folder: str, options: Sequence[str]) -> dict[str, str]:
        files = [os.path.join(folder, name) for name in ("chart.tgz", "values.json")]  # noqa: PTH118 - arguments
        command = [self._policy.exec[_EXECUTABLE], "template", call.release, files[0], f"--values={files[1]}"]
        command += [
            f"--namespace={call.namespace}",
            *(["--include-crds"] if call.include_crds else []),
            *options,
        ]
        homes = {f"HELM_{kind}_HOME": folder for kind in ("CACHE", "CONFIG", "DATA")}
        memory = self._policy.memory_bytes + _BASE_BYTES
        ended = run_process(
            command,
            b"",
            environment={"HOME": folder, **homes},
            timeout_s=self._policy.timeout_s,
            output_bytes=self._policy.output_bytes,
            prepare=lambda: limit_process(memory),
            check=self._check,
        )
        if ended.problem or ended.exit_code:
            raise _failure(call, ended.problem or ended.stderr.strip())
        return _by_source(ended.stdout.decode(errors="replace"))


def _archive(chart: Chart) -> bytes:
    """Return the archive to render, without schemas that would be fetched."""
    return without_schemas(chart) if chart.elsewhere else chart.archive


def _failure(call: ChartCall, error: str) -> ChartError:
    """Return the failure of a chart; each value that breaks a rule of a schema is named."""
    faults: list[str] = []
    chart: tuple[str | int, ...] = ()
    for line in error.splitlines():
        if header := _SCHEMA_OF.fullmatch(line.strip()):
            chart = () if header[1] == call.chart.name else (header[1],)
        elif fault := _BROKEN_RULE.fullmatch(line.strip()):
            steps = [segment.replace("~1", "/").replace("~0", "~") for segment in fault[1].split("/")[1:]]
            steps += _ADDITIONAL.findall(fault[2])
            path = (*chart, *(step if (number := whole_number(step)) is None else number for step in steps))
            faults.append(f"{call.locate(path)}: {path_text(path) or 'the values'}: {fault[2]}")
    if not faults:
        return ChartError(f"The chart {call.chart.name}: {error}")
    # The engine tells them in another order each time.
    text = "; ".join(sorted(faults))
    return ChartError(f"The values.schema.json of the chart {call.chart.name} refuses {text}")


def _apis(call: ChartCall) -> tuple[list[str], list[str]]:
    """Return the APIs that the cluster is taken to serve, and those that it may or may not serve."""
    if call.api_versions is not None:
        return list(call.api_versions), []
    served = {api: served_everywhere(api) for api in call.chart.asks}
    return [api for api, is_served in served.items() if is_served], [
        api for api, is_served in served.items() if is_served is None
    ]


def _by_source(output: str) -> dict[str, str]:
    """Return the documents of `helm template` by the template that each names."""
    files: dict[str, list[str]] = {}
    for document in output.split("---\n" + _SOURCE):
        path, _, text = document.removeprefix("---\n").removeprefix(_SOURCE).partition("\n")
        if text.strip():
            files.setdefault(path, []).append(text)
    return {path: "\n---\n".join([*map(str.rstrip, texts[:-1]), texts[-1]]) for path, texts in files.items()}


def _refuse(call: ChartCall, reply: dict[str, Any]) -> None:
    """Raise ChartError where a chart failed, or gives what other runs or clusters would not."""
    chart = call.chart
    if reply.get("error"):
        raise _failure(call, reply["error"])
    files = reply["files"]
    differs = {
        name: ", ".join(path for path in paths if not (call.skip_tests and is_test(files.get(path, ""))))
        for name, paths in reply["differs"].items()
    }
    if random := differs.get("random"):
        raise ChartError(
            f"{random} of the chart {chart.name} gives other manifests each time",
            hint=_fixed(chart, random.split(", ")),
        )
    where = f"and nothing tells what this cluster has: write templateOptions.{{}} for {chart.name}, or {{}}"
    if version := differs.get("version"):
        more = where.format("kubeVersion", "record it with `snapshot import --platform kubernetes=VERSION`")
        raise ChartError(f"{version} gives other manifests for other versions of Kubernetes, {more}")
    if apis := differs.get("apis"):
        names = ", ".join(_apis(call)[1])
        more = where.format(
            "apiVersions (`[]` for none)", "record them with `snapshot import --api-resources FILE`"
        )
        raise ChartError(f"{apis} gives other manifests where the cluster serves {names}, {more}")


def _fixed(chart: Chart, paths: Iterable[str]) -> str:
    """Return how to get the same each time: with the values for it that these templates read."""
    members = chart_members(chart)
    texts = [members.get(path.partition("/")[2], b"").decode(errors="replace") for path in paths]
    read = sorted({name for text in texts for name in VALUES.findall(text) if _LOOKED_UP.search(name)})
    names = list(dict.fromkeys((*read, *chart.random)))[:_MOST_NAMED]
    if not names:
        return (
            "A package must be the same in every run: set the value that replaces it, leave tests out "
            "(`skipTests: true`), or change the template in your copy of the chart"
        )
    return f"A package must be the same in every run: set {' or '.join(names)} in the values"
