"""Addresses on the web: the server that one names, where that is, and what may be shown of one."""

import re
import string
from typing import NamedTuple
from urllib.parse import quote, unquote, urljoin

from reconciler.git.urls import LOOPBACK, without_user

_ADDRESS = re.compile(
    r"(?P<scheme>https?)://(?P<host>\[[0-9a-f:.]+\]|[a-z0-9._-]+)(:(?P<port>[0-9]{1,5}))?(?P<path>[/?][!-~]*)?",
    re.IGNORECASE,
)
"""So strict that all readers of addresses see the same server in one."""
_SAFE = string.digits + string.ascii_letters + string.punctuation
_DEFAULT_PORTS = {"http": 80, "https": 443}
_LARGEST_PORT = 65_535
_MOST_SHOWN = 500


class Server(NamedTuple):
    """A server; another scheme or port is another server."""

    scheme: str
    host: str
    port: int

    def __str__(self) -> str:
        port = "" if self.port == _DEFAULT_PORTS[self.scheme] else f":{self.port}"
        return f"{self.scheme}://{self.host}{port}"

    @property
    def is_private(self) -> bool:
        """Whether requests are encrypted, or stay on this machine."""
        return self.scheme == "https" or self.host.strip("[]") in LOOPBACK


def find_server(url: str) -> Server:
    """Return the server of an address.

    Raises:
        ValueError: It is no address of http or https, has a user, or steps up in its path.
    """
    match = _ADDRESS.fullmatch(url)
    if match is None:
        raise ValueError("it is no address of http or https without a user")
    scheme = match["scheme"].lower()
    port = int(match["port"] or _DEFAULT_PORTS[scheme])
    steps = unquote((match["path"] or "").partition("?")[0]).split("/")
    if port > _LARGEST_PORT or {".", ".."} & {*steps}:
        raise ValueError("it has `..` in its path, or a port that none is")
    return Server(scheme, match["host"].lower(), port)


def resolve(base: str, target: str) -> str:
    """Return where a link in an answer leads, or an address as it is requested, with "" for the base.

    Raises:
        ValueError: That is no address that may be asked.
    """
    url = urljoin(base, printable(target.strip())).partition("#")[0]
    find_server(url)
    return url


def printable(text: str) -> str:
    """Return a part of an address with everything quoted that no address may have."""
    return quote(text, safe=_SAFE)


def shown(url: str) -> str:
    """Return an address without its user, and without its query, which may be signed."""
    return without_user(url.partition("?")[0])[:_MOST_SHOWN]
