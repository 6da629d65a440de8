"""A worker process that answers requests one after another, within limits of time, memory and output."""

import selectors
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from reconciler.base.values import Refused
from reconciler.policy import FunctionPolicy

_ROOT: Final = str(Path(__file__).resolve().parents[3])
_CHECK_S: Final = 0.1
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
