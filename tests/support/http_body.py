"""The body of an HTTP request, also one that is sent in chunks, as git sends large ones."""

from http.server import BaseHTTPRequestHandler


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
