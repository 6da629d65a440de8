"""Repositories over HTTP on the loopback: git's own server program behind a small handler."""

import base64
import os
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from types import MappingProxyType

from tests.support.http_server import Handler, read_body, serving


@dataclass
class HttpGit:
    """A server of the repositories below `root`; `requests` has method, path and authorization of each.

    It takes no request with more than `largest` bytes. With a `barrier` no POST is answered before others are
    there too. Each answer comes after `delay_s`; `most` counts requests that were waiting side by side.
    """

    root: Path
    address: str = ""
    password: str = ""
    redirect: str = ""
    moved: dict[str, str] = field(default_factory=dict)
    largest: int = 1 << 30
    barrier: threading.Barrier | None = None
    requests: list[tuple[str, str, str]] = field(default_factory=list)
    delay_s: float = 0.0
    most: int = 0
    waiting: set[int] = field(default_factory=set)

    def url(self, name: str) -> str:
        return f"{self.address}/{name}"


@contextmanager
def serve(
    root: Path, *, password: str = "", redirect: str = "", moved: Mapping[str, str] = MappingProxyType({})
) -> Iterator[HttpGit]:
    """Serve `root` until the block ends; with a password only to who has it, or redirect everything.

    Paths that start with a key of `moved` are redirected to its value, on this server.
    """
    state = HttpGit(root, password=password, redirect=redirect, moved=dict(moved))

    class Git(Handler, BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            sent = self.headers.get("Authorization", "")
            body = read_body(self)
            state.requests.append((self.command, self.path, sent))
            if state.delay_s:
                state.waiting.add(threading.get_ident())
                state.most = max(state.most, len(state.waiting))
                time.sleep(state.delay_s)
                state.waiting.discard(threading.get_ident())
            if state.barrier and self.command == "POST":
                state.barrier.wait(20)
            if len(body) > state.largest:
                return self.say(413, {}, b"")
            if state.redirect:
                return self.say(301, {"Location": state.redirect + self.path}, b"")
            for old, new in state.moved.items():
                if self.path.startswith(f"{old}/"):
                    return self.say(301, {"Location": new + self.path.removeprefix(old)}, b"")
            wanted = "Basic " + base64.b64encode(f"x-access-token:{state.password}".encode()).decode()
            if state.password and sent != wanted:
                return self.say(401, {"WWW-Authenticate": 'Basic realm="git"'}, b"")
            return self.say(*answer_git(state.root, self, body))

        do_POST = do_GET  # noqa: N815 - http.server's name

    with serving(Git) as address:
        state.address = f"http://{address}"
        yield state


def answer_git(root: Path, request: BaseHTTPRequestHandler, body: bytes) -> tuple[int, dict[str, str], bytes]:
    """Answer a request as `git http-backend` does: status, headers, body."""
    path, _, query = request.path.partition("?")
    environment = {
        "PATH": os.environ["PATH"],
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_PROJECT_ROOT": str(root),
        "GIT_HTTP_EXPORT_ALL": "1",
        "GIT_PROTOCOL": request.headers.get("Git-Protocol", ""),
        "HTTP_CONTENT_ENCODING": request.headers.get("Content-Encoding", ""),
        "REMOTE_USER": "tester",
        "REMOTE_ADDR": "127.0.0.1",
        "REQUEST_METHOD": request.command,
        "PATH_INFO": path,
        "QUERY_STRING": query,
        "CONTENT_TYPE": request.headers.get("Content-Type", ""),
        "CONTENT_LENGTH": str(len(body)),
    }
    ran = subprocess.run(
        ["git", "http-backend"], input=body, env=environment, capture_output=True, check=False
    )
    head, _, content = ran.stdout.partition(b"\r\n\r\n")
    headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n") if ": " in line)
    status = int(headers.pop("Status", "200").split()[0])
    headers.pop("Content-Length", None)
    return status, headers, content
