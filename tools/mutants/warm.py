"""Run tests on request in forks of this process, which has imported the libraries but nothing of the project.

Each line of the standard input is a JSON list of tests; each answer is a line of JSON: exit code, last line.
The working directory is a copy of the project, and every fork imports the modules that are there by then.
"""

import importlib
import json
import os
import signal
import sys
import tempfile
from pathlib import Path

OPTIONS = (
    "-q",
    "-x",
    "--assert=plain",
    "-p",
    "no:cacheprovider",
    "-p",
    "tools.mutants.quick",
    "--hypothesis-profile",
    "quick",
)
LIBRARIES = ("pytest", "_hypothesis_pytestplugin", "hypothesis.strategies", "tests.support.world")
PROJECT_PACKAGES = ("reconciler", "tests", "tools")


def import_libraries() -> None:
    """Import what the project uses, then forget the modules of the project itself."""
    for name in ("reconciler.cli.main", "reconciler.run.plan", *LIBRARIES):
        importlib.import_module(name)
    for name in [name for name in sys.modules if name.partition(".")[0] in PROJECT_PACKAGES]:
        del sys.modules[name]


def run_in_fork(tests: list[str], timeout_s: int, files: str) -> tuple[int, str]:
    """Return the exit code of the tests in a fork, below 0 for a signal, and the last line that they printed.

    Their files lie in a directory of their own: pytest's default directory is cleaned at exit, and where
    another process cleans it at the same time, the last line is a warning about that.
    """
    with tempfile.TemporaryFile() as output:
        child = os.fork()
        if not child:
            signal.alarm(timeout_s)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(output.fileno(), 1)
            os.dup2(output.fileno(), 2)
            import pytest

            os._exit(pytest.main([*OPTIONS, f"--basetemp={files}", *tests]))
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        output.seek(0)
        lines = output.read().decode(errors="replace").strip().splitlines()
    return code, (lines or ["no output"])[-1]


def main(timeout_s: int, files: str) -> None:
    """Answer each line of the standard input until it ends."""
    sys.path.insert(0, str(Path.cwd()))
    import_libraries()
    for line in sys.stdin:
        print(json.dumps(run_in_fork(json.loads(line), timeout_s, files)), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
