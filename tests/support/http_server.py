"""Servers of HTTP on the loopback, and the body of a request, which git sends in chunks if it is large."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Handler(BaseHTTPRequestHandler):
    """A handler that logs nothing."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """A test reads what was requested from its own list."""

    def say(self, code: int, headers: Mapping[str, str], body: bytes) -> None:
        """Answer with a body of this length; HEAD gets the headers alone."""
        self.send_response(code)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(b"" if self.command == "HEAD" else body)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """A client that gave up is no error of the test."""


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """Serve until the block ends; yield host and port."""
    with _Server(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def read_body(request: BaseHTTPRequestHandler) -> bytes:
    """Return all of a request's body."""
    if request.headers.get("Transfer-Encoding", "") != "chunked":
        return request.rfile.read(int(request.headers.get("Content-Length", 0)))
    chunks = []
    while size := int(request.rfile.readline(), 16):
        chunks.append(request.rfile.read(size))
        request.rfile.readline()
    request.rfile.readline()
    return b"".join(chunks)
