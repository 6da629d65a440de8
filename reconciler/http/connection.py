"""Connections to HTTP servers, the only door to httpx: an answer has a time as a whole, and a size."""

import os
import ssl
import threading
import time
import weakref
import zlib
from collections.abc import Iterable, Mapping
from functools import cache
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any

import httpcore
import httpx

from reconciler.base.errors import UnavailableError
from reconciler.base.text import plural

_MOST_WORDS = 300
_REFUSAL_BYTES = 1 << 16
"""Of the body of what is no success."""


class NoAnswerError(Exception):
    """No whole answer came; with `is_final` another try would not help.

    With `is_broken` the server is there: it sent something that cannot be read, or closed the connection.
    """

    def __init__(self, message: str, *, is_final: bool = False, is_broken: bool = False) -> None:
        super().__init__(message)
        self.is_final = is_final
        self.is_broken = is_broken


class Connections:
    """Connections that are used again; thread-safe. No cookie is kept, and no redirect is followed.

    Proxies of the environment are used, but for this machine: plain http must not leave it.
    """

    def __init__(self, silence_s: float, headers: Mapping[str, str]) -> None:
        try:
            self._client = httpx.Client(
                headers=headers,
                timeout=silence_s,
                verify=_trusted(os.environ.get("SSL_CERT_FILE", ""), os.environ.get("SSL_CERT_DIR", "")),
                cookies=CookieJar(DefaultCookiePolicy(allowed_domains=())),
                mounts=dict.fromkeys(("all://localhost", "all://127.0.0.1", "all://[::1]")),
            )
        except (ImportError, ValueError) as error:
            message = f"The proxy of the environment cannot be used: {error}"
            raise UnavailableError(message, hint="Correct HTTPS_PROXY and its like.") from error
        self._until = _Until()
        # httpcore lets a backend bound what a connection does, but httpx hands none on to it.
        transports: list[Any] = [self._client._transport, *self._client._mounts.values()]  # noqa: SLF001
        for transport in filter(None, transports):
            transport._pool._network_backend = _Backend(self._until)  # noqa: SLF001 - as above
        weakref.finalize(self, self._client.close)

    def send(
        self, method: str, url: str, headers: Mapping[str, str], content: bytes, *, limit: int, until: float
    ) -> tuple[int, Mapping[str, str], bytes]:
        """Send one request, and return status, headers (names in lower case) and body of its answer.

        Raises:
            NoAnswerError: None came until then, by the monotonic clock, or none that can be read, or one
                with a body of more bytes than the limit.
        """
        self._until.time = until
        try:
            with self._client.stream(method, url, headers=dict(headers), content=content or None) as reply:
                most = limit if reply.is_success else _REFUSAL_BYTES
                body = _read(reply.iter_raw(), reply.headers.get("content-encoding", ""), most)
                lowered = {name.lower(): value for name, value in reply.headers.items()}
        except (httpx.HTTPError, httpx.StreamError, zlib.error) as error:
            is_broken = isinstance(error, httpx.RemoteProtocolError | zlib.error)
            words = f"{type(error).__name__} {error}".strip()[:_MOST_WORDS]
            raise NoAnswerError(words, is_broken=is_broken) from error
        except (
            httpx.InvalidURL,
            ValueError,
        ) as error:  # httpx reads the target of a redirect, followed or not
            raise NoAnswerError(str(error)[:_MOST_WORDS], is_final=True) from error
        if len(body) > most and reply.is_success:
            raise NoAnswerError(f"it has more than the {plural(limit, 'byte')} that it may", is_final=True)
        return reply.status_code, lowered, body[:most]


def _read(chunks: Iterable[bytes], encoding: str, most: int) -> bytes:
    """Return a body, unpacked; of one that is too large, a byte more than it may have."""
    body, unpacker = bytearray(), None
    for chunk in chunks:
        if encoding.lower() in {"gzip", "x-gzip"}:
            unpacker = unpacker or zlib.decompressobj(zlib.MAX_WBITS | 16)
            body += unpacker.decompress(chunk, most + 1 - len(body))
        elif encoding.lower() in {"", "identity"}:
            body += chunk
        else:
            raise ValueError(f"its encoding {encoding[:40]!r} was not asked for")
        if len(body) > most or (unpacker and unpacker.eof):
            return bytes(body[: most + 1])
    if unpacker:
        raise zlib.error("a body that was cut short")
    return bytes(body)


class _Until(threading.local):
    """The time until which this thread waits for an answer as a whole."""

    time = 0.0

    def left(self, timeout: float | None) -> float:
        """Return for how long one step may take; only the look-up of a host's name takes its own time."""
        remaining_s = self.time - time.monotonic()
        if remaining_s <= 0:
            raise httpcore.ReadTimeout
        return remaining_s if timeout is None else min(timeout, remaining_s)


class _Backend(httpcore.SyncBackend):
    def __init__(self, until: _Until) -> None:
        self._until = until

    def connect_tcp(
        self, host: str, port: int, timeout: float | None = None, *more: Any, **options: Any
    ) -> httpcore.NetworkStream:
        stream = super().connect_tcp(host, port, self._until.left(timeout), *more, **options)
        return _Stream(stream, self._until)


class _Stream(httpcore.NetworkStream):
    def __init__(self, stream: httpcore.NetworkStream, until: _Until) -> None:
        self._stream, self._until = stream, until

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, self._until.left(timeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, self._until.left(timeout))

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        stream = self._stream.start_tls(ssl_context, server_hostname, self._until.left(timeout))
        return _Stream(stream, self._until)

    def close(self) -> None:
        self._stream.close()

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


@cache
def _trusted(_file: str, _directory: str) -> ssl.SSLContext:
    """Return the authorities that the environment's two variables choose; loading them takes 25 ms."""
    return httpx.create_ssl_context()
