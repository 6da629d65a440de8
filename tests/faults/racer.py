"""A process that lets two runs race: both are forked from it, and both wait before their first push.

One JSON request per line on standard input, `{"lines": [[...], [...]]}`; the answer is a list of
`{"code": ..., "pushes": ..., "out": ...}`. Who pushes twice was rejected once.
"""

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import reconciler.dependencies.solve.resolve
import reconciler.report.locks
import reconciler.run.apply  # noqa: F401 - these are imported once, before forking
from reconciler.base import effects
from reconciler.cli import lock, main  # noqa: F401 - and so are these

PUSH = "before git push"


class Gate:
    """In place of the failpoints of one racer: it says that it stands at its push, and waits to be let go."""

    def __init__(self, ready: int, go: int) -> None:
        self.ready = ready
        self.go = go
        self.pushes = 0

    def reach(self, name: str) -> None:
        if name != PUSH:
            return
        self.pushes += 1
        if self.pushes == 1:
            os.write(self.ready, b".")
            os.read(self.go, 1)


class Racer:
    """One forked run, with its two ends of the barrier."""

    def __init__(self, line: list[str]) -> None:
        self.out = tempfile.TemporaryFile()  # noqa: SIM115 - read and closed by `result`
        self.count = tempfile.TemporaryFile()  # noqa: SIM115 - read and closed by `result`
        is_ready, ready = os.pipe()
        go, let_go = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            self._run(line, Gate(ready, go))
        os.close(ready)
        os.close(go)
        self.is_ready, self.let_go = is_ready, let_go

    def _run(self, line: list[str], gate: Gate) -> None:
        code = 99
        try:
            os.dup2(self.out.fileno(), 1)
            os.dup2(self.out.fileno(), 2)
            effects.failpoints = gate  # type: ignore[assignment]  # it has the one method that is called
            code = main.invoke(line)
            sys.stdout.flush()
            os.write(self.count.fileno(), str(gate.pushes).encode())
        finally:
            os._exit(code)

    def result(self) -> dict[str, Any]:
        _, status = os.waitpid(self.pid, 0)
        for end in (self.is_ready, self.let_go):
            os.close(end)
        with self.out, self.count:
            self.out.seek(0)
            self.count.seek(0)
            pushes = int(self.count.read() or b"0")
            out = self.out.read().decode()
        return {"code": os.waitstatus_to_exitcode(status), "pushes": pushes, "out": out}


def _serve() -> None:
    for request in sys.stdin:
        racers = [Racer(line) for line in json.loads(request)["lines"]]
        for racer in racers:
            os.read(racer.is_ready, 1)
        for racer in racers:
            os.write(racer.let_go, b".")
        print(json.dumps([racer.result() for racer in racers]), flush=True)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    _serve()
