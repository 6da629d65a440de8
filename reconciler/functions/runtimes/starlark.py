"""Starlark functions, in a worker process without environment and with little memory."""

from collections.abc import Callable, Mapping
from typing import Any, Final

import orjson

from reconciler.base.values import Refused
from reconciler.functions.catalog import STARLARK
from reconciler.functions.protocol import FunctionCall, FunctionResult, FunctionRun
from reconciler.functions.runtimes.process import WorkerRuntime
from reconciler.policy import FunctionPolicy

_WORKER: Final = "reconciler.functions.runtimes.starlark_worker"
_BASE_BYTES: Final = 256 << 20
"""The memory of the interpreter itself, beside that of a script."""
_FAILURE: Final = "failed to evaluate function: error: function failure"


class StarlarkRuntime(WorkerRuntime):
    """Runs scripts one after another in one worker process; a killed worker is replaced."""

    def __init__(self, policy: FunctionPolicy, check: Callable[[], None] = lambda: None) -> None:
        super().__init__(_WORKER, _BASE_BYTES, policy, check)

    def can_run(self, call: FunctionCall) -> str:
        """Return "" for a version of the starlark function that the catalog claims, else the reason."""
        return "" if call.claimed == STARLARK else "It is not built in"

    def run(self, call: FunctionCall) -> FunctionRun:
        """Run the script in the functionConfig. Never raises for a failure of the script."""
        source, problem = _source(call.config)
        if problem:
            return _failed(problem)
        if not source:
            return _failed("`source` must not be empty")
        listed: dict[str, Any] = {
            "apiVersion": "config.kubernetes.io/v1",
            "kind": "ResourceList",
            "items": list(call.items),
            "functionConfig": call.config,
        }
        request = orjson.dumps(
            {
                "source": source,
                "resourceList": listed,
                "steps": self._policy.starlark_steps,
                "seconds": self._policy.timeout_s,
            }
        )
        with self._lock:
            reply = self._worker.ask(request)
        if isinstance(reply, Refused):
            return _failed(f"The script was stopped: it needs more than {reply.why}")
        return _parse_reply(orjson.loads(reply))


def _source(config: Mapping[str, Any] | None) -> tuple[str, str]:
    """Return the script of a functionConfig, or the problem with it."""
    if config is None:
        return "", "functionConfig is missing: expect a `ConfigMap` or `StarlarkRun` with a `source`"
    kind, version = str(config.get("kind")), str(config.get("apiVersion"))
    if kind == "ConfigMap" and version == "v1":
        data = config.get("data")
        source = data.get("source") if isinstance(data, Mapping) else None
    elif kind == "StarlarkRun" and version.partition("/")[0] == "fn.kpt.dev":
        source = config.get("source")
    else:
        return "", f"functionConfig must be a `ConfigMap` or `StarlarkRun`, not {kind} of {version}"
    if source is not None and not isinstance(source, str):
        return "", "`source` must be text"
    return source or "", ""


def _parse_reply(reply: Mapping[str, Any]) -> FunctionRun:
    stderr = str(reply.get("stderr") or "")
    if reply.get("error"):
        return _failed(str(reply["error"]), stderr)
    listed = reply.get("resource_list")
    items = listed.get("items") if isinstance(listed, Mapping) else None
    if not isinstance(items, list):
        return _failed("The script left no list of items", stderr)
    return FunctionRun(items, stderr=stderr)


def _failed(message: str, stderr: str = "") -> FunctionRun:
    return FunctionRun(None, (FunctionResult(message, "error"),), 1, stderr + _FAILURE)
