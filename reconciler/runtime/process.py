"""One bounded process: its input given, its output taken up to a limit, killed when it is late."""

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, Final, cast

_STDERR_BYTES: Final = 64 << 10
_PIECE: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class ProcessRun:
    """How a process ended. `problem` says why it was ended by us, or could not be started."""

    exit_code: int = 0
    stdout: bytes = b""
    stderr: str = ""
    problem: str = ""
    started: bool = True


@dataclass(slots=True)
class _Talk:
    """What goes to and comes from a process while it runs."""

    given: memoryview
    stdout: bytearray
    stderr: bytearray


def run_process(
    command: Sequence[str],
    given: bytes,
    *,
    environment: Mapping[str, str],
    timeout_s: float,
    output_bytes: int,
    prepare: Callable[[], None] | None = None,
) -> ProcessRun:
    """Run a command in a session of its own, in an empty place, and take it down with all its children.

    Never raises for what the process does. `prepare` runs in the child before the command.
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
        return ProcessRun(127, problem=f"{command[0]} cannot be started: {error}", started=False)
    talk = _Talk(memoryview(given), bytearray(), bytearray())
    try:
        problem = _converse(process, talk, time.monotonic() + timeout_s, output_bytes)
        if problem == _LATE:
            problem = f"It was stopped after {timeout_s:g} s"
    finally:
        _end(process)
    text = bytes(talk.stderr).decode(errors="replace")
    return ProcessRun(process.returncode, bytes(talk.stdout), text, problem)


_LATE: Final = "late"


def _converse(process: subprocess.Popen[bytes], talk: _Talk, deadline: float, output_bytes: int) -> str:
    with selectors.DefaultSelector() as selector:
        for end, event in (
            (process.stdin, selectors.EVENT_WRITE),
            (process.stdout, selectors.EVENT_READ),
            (process.stderr, selectors.EVENT_READ),
        ):
            if end is not None:
                os.set_blocking(end.fileno(), False)
                selector.register(end, event)
        while selector.get_map():
            left = deadline - time.monotonic()
            if left <= 0:
                return _LATE
            for key, _ in selector.select(left):
                pipe = cast("IO[bytes]", key.fileobj)
                if not _move(process, talk, pipe):
                    selector.unregister(pipe)
                    _close(pipe)
            if len(talk.stdout) > output_bytes:
                return f"Its output is larger than {output_bytes} bytes"
        return _wait(process, deadline)


def _wait(process: subprocess.Popen[bytes], deadline: float) -> str:
    try:
        process.wait(max(0.01, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        return _LATE
    return ""


def _move(process: subprocess.Popen[bytes], talk: _Talk, pipe: IO[bytes]) -> bool:
    """Move one piece through a pipe; return whether there may be more."""
    if pipe is process.stdin:
        try:
            talk.given = talk.given[os.write(pipe.fileno(), talk.given[:_PIECE]) :]
        except BrokenPipeError:
            return False
        return len(talk.given) > 0
    piece = os.read(pipe.fileno(), _PIECE)
    if pipe is process.stdout:
        talk.stdout += piece
    elif len(talk.stderr) < _STDERR_BYTES:
        talk.stderr += piece[: _STDERR_BYTES - len(talk.stderr)]
    return bool(piece)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Leave nothing behind: no process of its group, no open pipe."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            _close(pipe)


def _close(pipe: IO[bytes]) -> None:
    with suppress(BrokenPipeError):
        pipe.close()
