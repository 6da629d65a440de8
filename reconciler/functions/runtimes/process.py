"""Functions as processes: one for a call, or a worker for many, bounded in time, output and memory."""

import ctypes
import os
import resource
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Final, Self, cast

from msgspec import Struct

from reconciler.base.text import plural
from reconciler.base.values import Refused
from reconciler.functions.protocol import API_VERSION, KIND, FunctionCall, FunctionRun, parse_results
from reconciler.krm.yaml import Aliases, YamlError, YamlLimits, emit, load_documents
from reconciler.policy import FunctionPolicy

_STDERR_BYTES: Final = 64 << 10
_CHUNK_BYTES: Final = 1 << 16
_CHECK_S: Final = 0.1
"""How often a wait looks whether the time of all functions is over."""
_LIBC: Final = ctypes.CDLL(None) if sys.platform == "linux" else None
_PR_SET_PDEATHSIG: Final = 1
"""The option of prctl(2) for the signal that the end of the parent sends."""


class ProcessRun(Struct, frozen=True):
    """Exit code and output of a process; `problem` is why it was killed or could not be started."""

    exit_code: int = 0
    stdout: bytes = b""
    stderr: str = ""
    problem: str = ""


class ExecRuntime:
    """Runs mapped executables with an empty environment, in `/`, within limits of time and memory."""

    def __init__(self, policy: FunctionPolicy, check: Callable[[], None] = lambda: None) -> None:
        self._policy = policy
        self._check = check

    def can_run(self, call: FunctionCall) -> str:
        """Return "" for a function that the policy maps to an executable, by its `exec` or its image."""
        path = self._policy.executable_of(call.exec or call.image)
        if not path:
            return "No executable is mapped to it"
        if not os.path.isabs(path):  # noqa: PTH117 - a text of the configuration
            return f"The path of its executable, {path}, is not absolute"
        return "" if os.access(path, os.X_OK) else f"Its executable {path} cannot be executed"

    def run(self, call: FunctionCall) -> FunctionRun:
        """Run the executable on the items. Never raises for a failure of the executable."""
        memory = self._policy.memory_bytes
        ended = run_process(
            [self._policy.executable_of(call.exec or call.image)],
            write_call(call),
            environment={},
            timeout_s=self._policy.timeout_s,
            output_bytes=self._policy.output_bytes,
            prepare=lambda: limit_process(memory),
            check=self._check,
        )
        return read_run(ended, self._policy.output_bytes)


def write_call(call: FunctionCall) -> bytes:
    """Return the ResourceList on a function's standard input."""
    listed: dict[str, Any] = {"apiVersion": API_VERSION, "kind": KIND, "items": list(call.items)}
    if call.config is not None:
        listed["functionConfig"] = dict(call.config)
    return f"{emit(listed)}\n".encode()


def read_run(ended: ProcessRun, output_bytes: int) -> FunctionRun:
    """Parse the output of a function. Total: malformed output is a failed run with its reason.

    Results count also where the function failed, if its output can be parsed.
    """
    if ended.problem:
        return FunctionRun(None, (), ended.exit_code or 1, ended.stderr, ended.problem)
    value, problem = _parse_output(ended.stdout, output_bytes)
    results = parse_results(value.get("results")) if value else ()
    # A process that a signal ended has its negative number as exit code; shells show 128 and the number.
    code = ended.exit_code if ended.exit_code >= 0 else 128 - ended.exit_code
    if code:
        return FunctionRun(None, results, code, ended.stderr)
    items = value.get("items") if value else None
    if problem or not isinstance(items, list):
        reason = problem or "Its output is no ResourceList with items"
        return FunctionRun(None, results, 1, ended.stderr, reason)
    return FunctionRun(items, results, 0, ended.stderr)


def run_process(
    command: Sequence[str],
    stdin: bytes,
    *,
    environment: Mapping[str, str],
    timeout_s: float,
    output_bytes: int,
    prepare: Callable[[], None] | None = None,
    check: Callable[[], None] = lambda: None,
) -> ProcessRun:
    """Run a command in a session of its own in `/`, and kill it with all its children at its end.

    Never raises for a failure of the process. `prepare` is called in the child before the command, `check`
    again and again while it runs: what that raises ends it.
    """
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(environment),
            cwd="/",
            start_new_session=True,
            preexec_fn=prepare,  # noqa: PLW1509 - limits are set in the child; nothing else runs there
        )
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        return ProcessRun(127, problem=f"{command[0]} cannot be started: {error}")
    exchange = _Exchange(process, memoryview(stdin), bytearray(), bytearray())
    try:
        problem = exchange.run(time.monotonic() + timeout_s, output_bytes, check)
    except subprocess.TimeoutExpired:
        problem = f"It was stopped after {timeout_s:g} s"
    finally:
        _kill(process)
    text = bytes(exchange.stderr).decode(errors="replace")
    return ProcessRun(process.returncode, bytes(exchange.stdout), text, problem)


class _Exchange(Struct):
    """The data on the pipes of a running process.

    Not `Popen.communicate`: it collects output without a limit.
    """

    process: subprocess.Popen[bytes]
    stdin: memoryview
    stdout: bytearray
    stderr: bytearray

    def run(self, deadline: float, output_bytes: int, check: Callable[[], None]) -> str:
        """Write the input and read the output until the process ends; return the problem, "" for none.

        Raises: TimeoutExpired after the deadline.
        """
        process = self.process
        with selectors.DefaultSelector() as selector:
            for pipe in filter(None, (process.stdin, process.stdout, process.stderr)):
                os.set_blocking(pipe.fileno(), False)
                selector.register(
                    pipe, selectors.EVENT_WRITE if pipe is process.stdin else selectors.EVENT_READ
                )
            while selector.get_map():
                check()
                remaining_s = deadline - time.monotonic()
                if remaining_s <= 0:
                    raise subprocess.TimeoutExpired(process.args, 0)
                for key, _ in selector.select(min(remaining_s, _CHECK_S)):
                    pipe = cast("IO[bytes]", key.fileobj)
                    if not self._move(pipe):
                        selector.unregister(pipe)
                        _close(pipe)
                if len(self.stdout) > output_bytes:
                    return f"Its output is larger than {plural(output_bytes, 'byte')}"
        while True:  # it may go on without its pipes
            check()
            with suppress(subprocess.TimeoutExpired):
                process.wait(_CHECK_S)
                return ""
            if time.monotonic() >= deadline:
                raise subprocess.TimeoutExpired(process.args, 0)

    def _move(self, pipe: IO[bytes]) -> bool:
        """Move one chunk through a pipe; return whether there may be more."""
        if pipe is self.process.stdin:
            try:
                self.stdin = self.stdin[os.write(pipe.fileno(), self.stdin[:_CHUNK_BYTES]) :]
            except BrokenPipeError:  # the process need not read its whole input
                return False
            return len(self.stdin) > 0
        chunk = os.read(pipe.fileno(), _CHUNK_BYTES)
        if pipe is self.process.stdout:
            self.stdout += chunk
        else:
            self.stderr += chunk[: max(0, _STDERR_BYTES - len(self.stderr))]
        return bool(chunk)


def _parse_output(data: bytes, output_bytes: int) -> tuple[dict[str, Any], str]:
    if not data.strip():
        return {}, "It printed nothing: no resource was deleted"
    limits = YamlLimits(
        max_bytes=output_bytes, max_documents=1, max_nodes=2_000_000, max_depth=100, aliases=Aliases.BOUNDED
    )
    try:
        documents = load_documents(data, limits)
    except YamlError as error:
        return {}, f"Its output is no YAML: {error.message}"
    value = documents[0].value if documents else None
    if not isinstance(value, dict) or value.get("kind") != KIND:
        return {}, f"Its output is no {KIND}"
    return value, ""


def _kill(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for pipe in filter(None, (process.stdin, process.stdout, process.stderr)):
        _close(pipe)


def _close(pipe: IO[bytes]) -> None:
    with suppress(BrokenPipeError):
        pipe.close()


def limit_process(memory_bytes: int) -> None:
    """Limit this process before it becomes the function, and let it end with a run that is killed."""
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
    resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))


_ROOT: Final = str(Path(__file__).resolve().parents[3])
"""How often a wait looks whether the time of all functions is over."""


class Worker:
    """A process that runs `main()` of a module, without environment; one that was killed is replaced.

    A frame is a body with its length in four bytes before it.
    """

    def __init__(
        self, module: str, base_bytes: int, policy: FunctionPolicy, check: Callable[[], None] = lambda: None
    ) -> None:
        """Prepare a worker; it is started by the first request.

        Args:
            module: The module, which gets its most bytes of memory as its argument.
            base_bytes: The memory of the worker itself, beside that of one function.
            policy: The limits.
            check: Called again and again while a request waits: what it raises ends the worker.
        """
        self._start = f"import sys; sys.path.insert(0, {_ROOT!r}); from {module} import main; main()"
        self._memory_bytes = policy.memory_bytes + base_bytes
        self._policy = policy
        self._check = check
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def is_running(self) -> bool:
        """Whether the process of the last request may answer another one."""
        return self._process is not None

    def close(self) -> None:
        """End the process, if there is one."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()

    def ask(self, request: bytes) -> bytes | Refused:
        """Return the reply; if there is none, end the process and return the limit that it exceeded."""
        process = self._process = self._process or self._begin()
        if process.stdin is None or process.stdout is None:
            return Refused("pipes")
        deadline = time.monotonic() + self._policy.timeout_s
        try:
            process.stdin.write(len(request).to_bytes(4) + request)
            process.stdin.flush()
            body = self._read(process, deadline)
        except BrokenPipeError:
            body = None
        except BaseException:
            self.close()  # it would answer the next request with the result of this one
            raise
        if body is None:
            late = time.monotonic() >= deadline
            self.close()
            policy = self._policy
            memory = f"{policy.memory_bytes >> 20} MiB of memory"
            return Refused(f"{policy.timeout_s} s" if late else memory)
        return body

    def _begin(self) -> subprocess.Popen[bytes]:
        # Isolated (-I): no variable and no directory of the user decides what is imported.
        command = [sys.executable, "-I", "-c", self._start, str(self._memory_bytes)]
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={},
            cwd="/",
            bufsize=0,
        )

    def _read(self, process: subprocess.Popen[bytes], deadline: float) -> bytes | None:
        """Return the next frame, None if the process died, is late or exceeds the limit of output."""
        head = self._take(process, 4, deadline)
        if head is None or (length := int.from_bytes(head)) > self._policy.output_bytes:
            return None
        return self._take(process, length, deadline)

    def _take(self, process: subprocess.Popen[bytes], size: int, deadline: float) -> bytes | None:
        pipe = process.stdout
        data = bytearray()
        if pipe is None:
            return None
        # Not select.select(): it refuses descriptors above 1,023, and a large fleet has that many open.
        with selectors.DefaultSelector() as selector:
            selector.register(pipe, selectors.EVENT_READ)
            while len(data) < size:
                self._check()
                remaining_s = deadline - time.monotonic()
                if remaining_s <= 0:
                    return None
                if not selector.select(min(remaining_s, _CHECK_S)):
                    continue
                chunk = pipe.read(min(size - len(data), 1 << 20))
                if not chunk:
                    return None
                data += chunk
        return bytes(data)


class WorkerRuntime:
    """A runtime with one worker process, which answers one call after another and ends with the runtime."""

    def __init__(
        self, module: str, base_bytes: int, policy: FunctionPolicy, check: Callable[[], None] = lambda: None
    ) -> None:
        """Prepare the worker; the arguments are its own."""
        self._policy, self._check = policy, check
        self._worker = Worker(module, base_bytes, policy, check)
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._worker.close()
