"""A process that runs commands in forks of itself: a run costs its work, not its imports.

One JSON request per line on standard input, `{"line": [...], "point": "3:kill", "log": "file"}`; the
answer is `{"code": ..., "out": ...}`, a negative code being the signal that ended the run.
"""

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import reconciler.apply.plan
from reconciler.cli import apply, approve, main, plan, selection  # noqa: F401 - imported once, before forking
from reconciler.git import failpoints

reconciler.apply.plan.AT_ONCE = 1  # the n-th point must be the same effect in every run


def _serve() -> None:
    for request in sys.stdin:
        print(json.dumps(_answer(json.loads(request))), flush=True)


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    with tempfile.TemporaryFile() as out:
        child = os.fork()
        if child == 0:
            _run(request, out.fileno())
        _, status = os.waitpid(child, 0)
        out.seek(0)
        return {"code": os.waitstatus_to_exitcode(status), "out": out.read().decode()}


def _run(request: dict[str, Any], out: int) -> None:
    code = 99
    try:
        os.dup2(out, 1)
        os.dup2(out, 2)
        armed = {failpoints.VARIABLE: request["point"], failpoints.LOG_VARIABLE: request["log"]}
        failpoints._points = failpoints.Points.of(armed)
        code = main.invoke(request["line"])
        sys.stdout.flush()
    finally:
        os._exit(code)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    _serve()
