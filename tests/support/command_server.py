"""Run `reconciler` in forks of a helper process that has imported it, so that a command costs no imports.

Each command is a process of its own: arguments, directory, environment, umask, standard streams and exit
code (or minus the signal that ended it). The helper process is started once per test process and listens
on a socket; commands may run side by side.

No process watches the one that works, which would take a sixth of the time of a command. Tests of imports,
of signals, of interpreter options (`-I`, hash seeds) and of terminals start `python -m reconciler.cli.main`
themselves.
"""

import array
import atexit
import contextlib
import functools
import io
import json
import mmap
import os
import pkgutil
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import NoReturn

PROJECT = Path(__file__).resolve().parents[2]
STREAMS = 3
CLIENT = """\
#!{python} -IS
import array, json, os, socket, sys
with socket.socket(socket.AF_UNIX) as server:
    server.connect({address!r})
    streams = array.array("i", (0, 1, 2))
    server.sendmsg([b"."], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, streams)])
    request = {{"arguments": sys.argv[1:], "cwd": os.getcwd(), "env": dict(os.environ)}}
    server.sendall(json.dumps(request).encode())
    server.shutdown(socket.SHUT_WR)
    code = int(server.makefile().read())
sys.exit(code if code >= 0 else 128 - code)
"""
"""The program `reconciler` for shells: the helper process runs the command with the streams of the shell."""


def run_reconciler(
    arguments: Sequence[str],
    *,
    cwd: Path = PROJECT,
    env: Mapping[str, str] | None = None,
    code: Path = PROJECT,
) -> subprocess.CompletedProcess[str]:
    """Run one command with nothing to read and return what it printed.

    Args:
        arguments: The arguments after `reconciler`.
        cwd: The working directory.
        env: The whole environment; that of the test if None.
        code: The checkout whose code runs.
    """
    environment = dict(os.environ if env is None else env)
    os.umask(umask := os.umask(0))
    request = {"arguments": list(arguments), "cwd": str(cwd), "env": environment, "umask": umask}
    with (
        Path(os.devnull).open("rb") as nothing,
        tempfile.TemporaryFile("w+", encoding="utf-8") as out,
        tempfile.TemporaryFile("w+", encoding="utf-8") as err,
        socket.socket(socket.AF_UNIX) as server,
    ):
        server.connect(address(code))
        streams = array.array("i", (nothing.fileno(), out.fileno(), err.fileno()))
        server.sendmsg([b"."], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, streams)])
        server.sendall(json.dumps(request).encode())
        server.shutdown(socket.SHUT_WR)
        with server.makefile() as answer:
            code = int(answer.read())
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(["reconciler", *arguments], code, out.read(), err.read())


def write_client(directory: Path) -> Path:
    """Write the program `reconciler` for the PATH of a shell; return its directory."""
    directory.mkdir(parents=True, exist_ok=True)
    program = directory / "reconciler"
    program.write_text(CLIENT.format(python=sys.executable, address=address()), encoding="utf-8")
    program.chmod(0o755)
    return directory


_forked: list[str] = []
_SECONDS = struct.Struct("d")
_cpu_seconds = mmap.mmap(-1, _SECONDS.size)
"""What commands of a forked helper process used so far, in memory that it shares with its parent."""


def cpu_seconds_of_commands() -> float:
    """Return the CPU time of all commands that a forked helper process has run."""
    return float(_SECONDS.unpack(_cpu_seconds[:])[0])


def fork_server() -> None:
    """Let a fork of this process, which has imported everything, be the helper process from now on."""
    path = f"{tempfile.mkdtemp(prefix='command-server-')}/socket"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        if not os.fork():
            os.closerange(STREAMS, listener.fileno())  # nobody waits for the end of a pipe that it holds
            os.closerange(listener.fileno() + 1, 256)
            _answer_all(listener)
    _forked[:] = [path]


def address(code: Path = PROJECT) -> str:
    """Return the path of the socket of the helper process that runs the code of a checkout."""
    return _forked[0] if _forked and code == PROJECT else _start(code)


@functools.cache
def _start(code: Path) -> str:
    """Start a helper process and return the path of its socket."""
    directory = tempfile.mkdtemp(prefix="command-server-")
    path = f"{directory}/socket"
    process = subprocess.Popen(
        [sys.executable, "-P", __file__, path],
        env={**os.environ, "PYTHONPATH": str(code)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )

    def stop() -> None:
        process.kill()
        process.communicate()
        shutil.rmtree(directory, ignore_errors=True)

    atexit.register(stop)
    assert process.stdout
    process.stdout.readline()  # it listens
    return path


def _serve(path: str) -> None:
    from pydantic import BaseModel

    import reconciler

    def build(model: type[BaseModel]) -> None:
        """Make the validators that a process makes at their first use: two fifths of the time of a plan."""
        for each in model.__subclasses__():
            each.model_rebuild()
            build(each)

    for module in pkgutil.walk_packages(reconciler.__path__, "reconciler."):
        if not module.name.endswith("__main__"):
            import_module(module.name)
    build(BaseModel)
    _make_what_is_made_once()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        print("listening", flush=True)
        _answer_all(listener)


def _make_what_is_made_once() -> None:
    """Run a command: half of its time is for expressions and tables that all later ones share."""
    from reconciler.cli.main import invoke

    quiet = io.StringIO()
    with (
        tempfile.TemporaryDirectory() as scratch,
        contextlib.redirect_stdout(quiet),
        contextlib.redirect_stderr(quiet),
    ):
        invoke(["demo", f"{scratch}/demo"])
        invoke(["plan", "--control", f"{scratch}/demo/control.git", "--cache-dir", f"{scratch}/cache"])


def _answer_all(listener: socket.socket) -> NoReturn:
    """Run the command of each request in a fork of this process, which ends soon after its starter."""
    starter = os.getppid()
    waiting: dict[int, socket.socket] = {}
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    os.set_blocking(reading, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(writing)
    while True:
        ready, _, _ = select.select([listener, reading], [], [], 5)
        if not ready and os.getppid() != starter:
            os._exit(0)
        if reading in ready:
            os.read(reading, 1 << 16)
            _tell_exits(waiting)
        if listener in ready:
            client, _ = listener.accept()
            pid = os.fork()
            if not pid:
                _become(client)
            waiting[pid] = client


def _tell_exits(waiting: dict[int, socket.socket]) -> None:
    """Answer the requests whose command ended with its exit code."""
    while waiting:
        pid, status, used = os.wait4(-1, os.WNOHANG)
        if not pid:
            return
        _cpu_seconds[:] = _SECONDS.pack(cpu_seconds_of_commands() + used.ru_utime + used.ru_stime)
        with waiting.pop(pid) as client, contextlib.suppress(BrokenPipeError):  # who asked may be gone
            client.sendall(str(os.waitstatus_to_exitcode(status)).encode())


def _become(client: socket.socket) -> NoReturn:
    """Run the command of a request in this fork as its entry point does, and leave with its exit code."""
    from reconciler.base import effects
    from reconciler.cli import main

    code = 70
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        _, streams, _, _ = socket.recv_fds(client, 1, STREAMS)
        with client.makefile() as text:
            request = json.load(text)
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        os.closerange(STREAMS, 256)
        sys.stdin = os.fdopen(0, closefd=False)  # forks of multiprocessing have another one
        os.chdir(request["cwd"])
        os.umask(request.get("umask", 0o022))
        os.environ.clear()
        os.environ.update(request["env"])
        effects.failpoints = effects.Failpoints.of(os.environ)  # read when the module is imported
        sys.argv = ["reconciler", *request["arguments"]]
        vars(main)["run_watched"] = lambda work, *_: work()  # this fork is the one that works
        main.entrypoint()
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    _serve(sys.argv[1])
