"""Starlark functions, in a worker process without environment and with little memory."""

import selectors
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import orjson

from reconciler.functions.catalog import STARLARK
from reconciler.functions.runtime import FunctionCall, FunctionResult, FunctionRun
from reconciler.policy import FunctionPolicy

_ROOT: Final = str(Path(__file__).resolve().parents[3])
_START: Final = (
    f"import sys; sys.path.insert(0, {_ROOT!r}); "
    "from reconciler.functions.runtimes.starlark_worker import main; main()"
)
_BASE_BYTES: Final = 256 << 20
"""The memory of the interpreter itself, beside that of a script."""

_FAILURE: Final = "failed to evaluate function: error: function failure"


class StarlarkRuntime:
    """Runs scripts one after another in one worker process; a killed worker is replaced."""

    def __init__(self, policy: FunctionPolicy) -> None:
        self._policy = policy
        self._worker: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the worker, if there is one."""
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.kill()
            worker.wait()
            for pipe in (worker.stdin, worker.stdout):
                if pipe is not None:
                    pipe.close()

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
            reply = self._exchange(request)
        return _failed(reply) if isinstance(reply, str) else _parse_reply(reply)

    def _exchange(self, request: bytes) -> dict[str, Any] | str:
        """Return the worker's reply; if it has none, end the worker and return the reason."""
        worker = self._worker = self._worker or self._start()
        if worker.stdin is None or worker.stdout is None:
            return "The worker has no pipes"
        deadline = time.monotonic() + self._policy.timeout_s
        try:
            worker.stdin.write(len(request).to_bytes(4) + request)
            worker.stdin.flush()
            body = self._read(worker, deadline)
        except BrokenPipeError:
            body = None
        except BaseException:
            self.close()  # it would answer the next request with the result of this one
            raise
        if body is None:
            late = time.monotonic() >= deadline
            self.close()
            limit = (
                f"{self._policy.timeout_s} s" if late else f"{self._policy.memory_bytes >> 20} MiB of memory"
            )
            return f"The script was stopped: it needs more than {limit}"
        reply: dict[str, Any] = orjson.loads(body)
        return reply

    def _start(self) -> subprocess.Popen[bytes]:
        memory = self._policy.memory_bytes + _BASE_BYTES
        # Isolated (-I): no variable and no directory of the user decides what is imported.
        command = [sys.executable, "-I", "-c", _START, str(memory)]
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={},
            cwd="/",
            bufsize=0,
        )

    def _read(self, worker: subprocess.Popen[bytes], deadline: float) -> bytes | None:
        """Return the worker's next frame, None if it died, is late or exceeds the limit of output."""
        head = self._take(worker, 4, deadline)
        if head is None or (length := int.from_bytes(head)) > self._policy.output_bytes:
            return None
        return self._take(worker, length, deadline)

    @staticmethod
    def _take(worker: subprocess.Popen[bytes], size: int, deadline: float) -> bytes | None:
        pipe = worker.stdout
        data = bytearray()
        if pipe is None:
            return None
        # Not select.select(): it refuses descriptors above 1,023, and a large fleet has that many open.
        with selectors.DefaultSelector() as selector:
            selector.register(pipe, selectors.EVENT_READ)
            while len(data) < size:
                left = deadline - time.monotonic()
                if left <= 0 or not selector.select(left):
                    return None
                chunk = pipe.read(min(size - len(data), 1 << 20))
                if not chunk:
                    return None
                data += chunk
        return bytes(data)


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
