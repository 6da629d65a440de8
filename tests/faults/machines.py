"""A process that lets two runs take turns at the effects that others can see, as a schedule says.

One JSON request per line on standard input, `{"lines": [[...], [...]], "turns": [[0, 2], [1, 1], [0, 0],
[1, 0]]}`: the first run stops before its second push or forge request, the second one before its first,
then each goes on to its end (0). A run begins at its first turn. The answer is a list of
`{"code": ..., "out": ..., "points": [...]}`, where `points` are the effects that it stopped before.
"""

import json
import os
import sys
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.faults.runner import run_in_fork

VISIBLE = ("before git push", "before forge ")


class Turns:
    """In place of the failpoints of a run: it reports every visible effect and waits to be let go."""

    def __init__(self, at: int, go: int) -> None:
        self.at, self.go = at, go
        self.lock = threading.Lock()

    def reach(self, name: str) -> None:
        if name.startswith(VISIBLE):
            with self.lock:
                os.write(self.at, f"{name}\n".encode())
                os.read(self.go, 1)


class Machine:
    """One forked run, which stands before an effect until it is its turn."""

    def __init__(self, line: list[str], environment: Mapping[str, str]) -> None:
        self.out = tempfile.TemporaryFile()  # noqa: SIM115 - read and closed by `result`
        reached, at = os.pipe()
        go, self.let_go = os.pipe()
        self.pid = run_in_fork(line, self.out.fileno(), Turns(at, go), environment)
        os.close(at)
        os.close(go)
        self.reached = os.fdopen(reached, "rb", buffering=0)
        self.points: list[str] = []
        self.ended = False
        self._arrive()

    def _arrive(self) -> None:
        """Wait until the run stands before its next visible effect, or has ended."""
        name = self.reached.readline()
        self.ended = not name
        if name:
            self.points.append(name.decode().strip())

    def run_until(self, effect: int) -> None:
        """Let the run stop before a visible effect, counted from 1; 0 lets it go on to its end."""
        while not self.ended and (len(self.points) < effect or not effect):
            os.write(self.let_go, b".")
            self._arrive()

    def result(self) -> dict[str, Any]:
        _, status = os.waitpid(self.pid, 0)
        self.reached.close()
        os.close(self.let_go)
        with self.out:
            self.out.seek(0)
            text = self.out.read().decode()
        return {"code": os.waitstatus_to_exitcode(status), "out": text, "points": self.points}


def _take_turns(
    lines: list[list[str]], turns: list[tuple[int, int]], environment: Mapping[str, str]
) -> list[dict[str, Any]]:
    machines: dict[int, Machine] = {}
    for number, effect in turns:
        if number not in machines:
            machines[number] = Machine(lines[number], environment)
        machines[number].run_until(effect)
    return [machines[number].result() for number in sorted(machines)]


def _serve() -> None:
    for request in sys.stdin:
        asked = json.loads(request)
        print(json.dumps(_take_turns(asked["lines"], asked["turns"], asked["env"])), flush=True)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    _serve()
