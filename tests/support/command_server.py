"""Run `reconciler` in forks of a helper process that has imported it, so that a command costs no imports.

Each command is a process of its own: arguments, directory, environment, standard streams,
exit code or signal. The helper process is started once per test process and runs one command at a time.

Tests of commands side by side, of imports, of interpreter options (`-I`, hash seeds) and of
terminals start `python -m reconciler.cli.main` themselves.
"""

import atexit
import functools
import json
import os
import pkgutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parents[2]


def run_reconciler(
    arguments: Sequence[str], *, cwd: Path = PROJECT, env: Mapping[str, str] | None = None, stdin: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run one command and return what it printed.

    Args:
        arguments: The arguments after `reconciler`.
        cwd: The working directory.
        env: The whole environment; that of the test if None.
        stdin: What the command reads.
    """
    with tempfile.TemporaryDirectory(prefix="command-") as scratch:
        streams = [str(Path(scratch) / name) for name in ("stdin", "stdout", "stderr")]
        Path(streams[0]).write_text(stdin, encoding="utf-8")
        request = {
            "arguments": list(arguments),
            "cwd": str(cwd),
            "env": dict(os.environ if env is None else env),
            "streams": streams,
        }
        code = _server().ask(request)
        out, err = (Path(path).read_text(encoding="utf-8") for path in streams[1:])
    return subprocess.CompletedProcess(["reconciler", *arguments], code, out, err)


class CommandServer:
    """The helper process; it answers one request, a line of JSON, at a time."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.command_server"],
            cwd=PROJECT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, request: Mapping[str, Any]) -> int:
        """Return the exit code of one command, or minus the signal that ended it."""
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    def stop(self) -> None:
        """End the process."""
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.close()
        self.process.wait(60)
        self.process.stdout.close()


@functools.cache
def _server() -> CommandServer:
    server = CommandServer()
    atexit.register(server.stop)
    return server


def _serve() -> None:
    import reconciler

    for module in pkgutil.walk_packages(reconciler.__path__, "reconciler."):
        if not module.name.endswith("__main__"):
            import_module(module.name)
    for request in sys.stdin:
        child = os.fork()
        if not child:
            _become(json.loads(request))
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def _become(request: Mapping[str, Any]) -> None:
    """Run the command in this fork as its entry point does, and leave with its exit code."""
    from reconciler.cli import main
    from reconciler.git import effects

    code = 70
    try:
        os.chdir(request["cwd"])
        os.environ.clear()
        os.environ.update(request["env"])
        flags = (os.O_RDONLY, os.O_WRONLY | os.O_CREAT, os.O_WRONLY | os.O_CREAT)
        for number, (path, flag) in enumerate(zip(request["streams"], flags, strict=True)):
            opened = os.open(path, flag)
            os.dup2(opened, number)
            os.close(opened)
        effects._failpoints = effects.Failpoints.of(os.environ)  # read when the module is imported
        sys.argv = ["reconciler", *request["arguments"]]
        main.entrypoint()
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    _serve()
