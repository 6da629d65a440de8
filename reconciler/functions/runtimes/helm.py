"""Charts of Helm: rendered in a worker with Helm's own engine, or by a `helm` that the settings map."""

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import orjson
from msgspec.structs import replace

from reconciler.base.lazy import regex
from reconciler.base.text import some
from reconciler.base.values import Refused, whole_number
from reconciler.functions.charts import (
    CHART_FILE,
    RENDER_HELM_CHART,
    VALUES,
    Chart,
    ChartCall,
    ChartError,
    RenderedTemplate,
    chart_members,
    is_test,
    merge_values,
    random_values,
    without_schemas,
)
from reconciler.functions.protocol import FunctionCall, FunctionResult, FunctionRun
from reconciler.functions.runtimes.helm_worker import OLD_VERSION, pass_a_second
from reconciler.functions.runtimes.process import WorkerRuntime, limit_process, run_process
from reconciler.krm.schema import served_everywhere
from reconciler.krm.values import differences, value_at
from reconciler.krm.yaml import PACKAGE_LIMITS, YamlError, load_documents
from reconciler.krm.yaml.tree import path_text
from reconciler.policy import FunctionPolicy

_Render = Callable[[ChartCall], dict[str, Any]]
_WORKER: Final = "reconciler.functions.runtimes.helm_worker"
_BASE_BYTES: Final = 512 << 20
"""The memory of the interpreter and the engine itself, beside that of a chart."""
_KEPT_REPLIES: Final = 8
"""Clusters of one environment often have equal values; packages of one chart are rendered in turn."""
_LIBRARY: Final = "helm_python"
_EXECUTABLE: Final = "helm"
_SOURCE: Final = "# Source: "
_SCHEMA_OF: Final = regex(r"([A-Za-z0-9._-]+):")
_BROKEN_RULE: Final = regex(r"- at '([^']*)': (.+)")
_LOOKED_UP: Final = regex(r"(?i)existing|secret|password|token|cert|tls|key\b|enabled$")
"""Names of values that replace what a chart makes, or that turn it off."""
_QUOTED: Final = regex(r"\"([A-Za-z]\w*(?:\.\w+)+)\"")
_MOST_NAMED: Final = 4
_MOST_FIELDS: Final = 3
_MOST_TRIED: Final = 16
"""Each is rendered twice."""
_TRIED: Final = "tried-value-16ch"
_ADDITIONAL: Final = regex(r"^additional properties '([^']*)' not allowed$")


class HelmRuntime(WorkerRuntime):
    """Renders charts one after another. The same charts and values give the same resources, or an error."""

    def __init__(self, policy: FunctionPolicy, check: Callable[[], None] = lambda: None) -> None:
        super().__init__(_WORKER, _BASE_BYTES, policy, check)
        self._kept: frozenset[str] = frozenset()
        self._replies: dict[bytes, dict[str, Any]] = {}

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
                    _refuse(chart, reply, render)
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
        api_versions, asks = _apis(call)
        request = {
            "digest": chart.digest,
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
        question = msgspec.msgpack.encode(request)
        if question in self._replies:
            return self._replies[question]
        is_kept = self._worker.is_running and chart.digest in self._kept
        archive = b"" if is_kept else _archive(chart)
        body = self._worker.ask(msgspec.msgpack.encode({**request, "archive": archive}))
        if isinstance(body, Refused):
            raise ChartError(f"The chart {chart.name} was stopped: it needs more than {body.why}")
        reply: dict[str, Any] = msgspec.msgpack.decode(body)
        self._kept = frozenset(reply["kept"])
        if len(self._replies) == _KEPT_REPLIES:
            del self._replies[next(iter(self._replies))]
        self._replies[question] = reply
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
            pass_a_second(plain)
            differs = {"random": self._template(call, folder, options)}
            if call.chart.asks_version and not call.kube_version:
                differs["version"] = self._template(call, folder, [*options, f"--kube-version={OLD_VERSION}"])
            if asks:
                more = [f"--api-versions={api}" for api in asks]
                differs["apis"] = self._template(call, folder, [*options, *more])
        both = {
            name: sorted(p for p in {**plain, **o} if plain.get(p) != o.get(p)) for name, o in differs.items()
        }
        again = {path: text for path, text in differs["random"].items() if plain.get(path) != text}
        return {"files": plain, "differs": both, "again": again}

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


def _refuse(call: ChartCall, reply: dict[str, Any], render: _Render) -> None:
    chart = call.chart
    if reply.get("error"):
        raise _failure(call, reply["error"])
    files = reply["files"]
    differs = {
        name: ", ".join(path for path in paths if not (call.skip_tests and is_test(files.get(path, ""))))
        for name, paths in reply["differs"].items()
    }
    if random := differs.get("random"):
        changing = {field for field in _changing(reply) if field.path in random.split(", ")}
        fields = some(sorted({f"{item.field} of {item.resource}" for item in changing}), _MOST_FIELDS)
        raise ChartError(
            f"{random} of the chart {chart.name} {_give(random)} other manifests each time"
            f"{f' ({fields})' if fields else ''}",
            hint=_fixed(call, changing, render),
        )
    where = f"and nothing tells what this cluster has: write templateOptions.{{}} for {chart.name}, or {{}}"
    if version := differs.get("version"):
        more = where.format("kubeVersion", "record it with `snapshot import --platform kubernetes=VERSION`")
        raise ChartError(
            f"{version} {_give(version)} other manifests for other versions of Kubernetes, {more}"
        )
    if apis := differs.get("apis"):
        names = ", ".join(_apis(call)[1])
        more = where.format(
            "apiVersions (`[]` for none)", "record them with `snapshot import --api-resources FILE`"
        )
        raise ChartError(f"{apis} {_give(apis)} other manifests where the cluster serves {names}, {more}")


def _give(paths: str) -> str:
    return "give" if ", " in paths else "gives"


class _Changing(NamedTuple):
    """A field that a chart gives another value each time, with the template that gives it."""

    path: str
    resource: str
    field: str


def _changing(reply: dict[str, Any]) -> Iterator[_Changing]:
    for path, text in reply.get("again", {}).items():
        with suppress(YamlError):
            sides = (
                load_documents(side.encode(), PACKAGE_LIMITS) for side in (reply["files"].get(path, ""), text)
            )
            for old, new in zip(*sides, strict=False):
                kind = value_at(new.value, "kind")
                names = {str(value_at(side.value, "metadata", "name")) for side in (old, new)}
                resource = f"{kind} {names.pop()}" if len(names) == 1 else str(kind)
                for edit in differences(old.value, new.value):
                    yield _Changing(path, resource, path_text(edit.path))


def _fixed(call: ChartCall, changing: AbstractSet[_Changing], render: _Render) -> str:
    """Return how to get the same each time: with the values that were tried, and that fix a field."""
    named = list(dict.fromkeys(name for field in sorted(changing) for name in _candidates(call.chart, field)))
    helps: dict[_Changing, list[str]] = {}
    for name in named[:_MOST_TRIED]:
        value: Any = False if name.endswith(("enabled", "create")) else _TRIED
        for step in reversed(name.split(".")):
            value = {step: value}
        try:
            reply = render(replace(call, values=merge_values(call.values, value)))
        except ChartError:
            continue
        if not reply.get("error"):
            for field in changing - set(_changing(reply)):
                helps.setdefault(field, []).append(name)
    ways = sorted({" or ".join(names[:_MOST_NAMED]) for names in helps.values()})
    if not ways:
        return (
            "A package must be the same in every run: set the value that replaces it, leave tests out "
            "(`skipTests: true`), or change the template in your copy of the chart"
        )
    return f"A package must be the same in every run: set {', and '.join(ways)} in the values"


def _candidates(chart: Chart, changing: _Changing) -> list[str]:
    """Return the values that may fix a field, by their names for the whole chart, the likeliest first."""
    members = chart_members(chart)
    folder, _, template = changing.path.partition("/")[2].rpartition("templates/")
    if f"{folder}{CHART_FILE}" not in members:  # a chart of that alias
        ends = (path.removesuffix(f"templates/{template}") for path in members if path.endswith(template))
        folder = next((end for end in ends if f"{end}{CHART_FILE}" in members), folder)
    texts = [
        data
        for path, data in members.items()
        if path == f"{folder}templates/{template}"
        or (path.startswith(f"{folder}templates/") and path.endswith(".tpl"))
    ]
    values = load_documents(members.get(f"{folder}values.yaml", b"{}"), PACKAGE_LIMITS)
    defaults = values[0].value if values else {}
    read: set[str] = set()
    for text in (data.decode(errors="replace") for data in texts):
        read.update(VALUES.findall(text))
        # Libraries are told the names of values.
        read.update(n for n in _QUOTED.findall(text) if value_at(defaults, *n.split(".")) is not None)
    drawn = set(random_values(texts))
    word = "".join(filter(str.isalnum, changing.field.rpartition(".")[2])).lower()
    likely = [name for name in read if name in drawn or _LOOKED_UP.search(name)]
    steps = changing.path.split("/")[2:-1:2] if "/charts/" in changing.path else []
    prefix = "".join(f"{step}." for step in steps[: changing.path.count("/charts/")])
    ordered = sorted(
        likely, key=lambda name: (name.lower().rpartition(".")[2] != word, name not in drawn, name)
    )
    return [name if name.startswith("global.") else f"{prefix}{name}" for name in ordered]
