"""Executables as functions: only those that our own configuration maps to an absolute path."""

import os
import resource

from reconciler.functions.runtime import FunctionCall, FunctionRun
from reconciler.policy import FunctionPolicy
from reconciler.runtime.process import run_process
from reconciler.runtime.resource_list import read_run, write_call


class ExecRuntime:
    """Runs mapped executables with an empty environment, in `/`, within limits of time and memory."""

    def __init__(self, policy: FunctionPolicy) -> None:
        self._policy = policy

    def can_run(self, call: FunctionCall) -> str:
        """Return "" for a function that the configuration maps: what `exec` says, or the image's name."""
        path = self._path(call)
        if not path:
            return "No executable is mapped to it"
        if not os.path.isabs(path):  # noqa: PTH117 - a text of the configuration
            return f"Its executable {path} is no absolute path"
        return "" if os.access(path, os.X_OK) else f"Its executable {path} is not here"

    def run(self, call: FunctionCall) -> FunctionRun:
        """Run the executable on the items. Never raises for what it does."""
        memory = self._policy.memory_bytes
        ended = run_process(
            [self._path(call)],
            write_call(call),
            environment={},
            timeout_s=self._policy.timeout_s,
            output_bytes=self._policy.output_bytes,
            prepare=lambda: _limit(memory),
        )
        return read_run(ended, self._policy.output_bytes)

    def _path(self, call: FunctionCall) -> str:
        named = call.exec or call.image
        return self._policy.exec.get(named, "") or self._policy.exec.get(named.rpartition(":")[0], "")


def _limit(memory_bytes: int) -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
