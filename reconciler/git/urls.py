"""Addresses of repositories, without the secrets that a URL may contain."""

import ipaddress
import os
import posixpath
import re
import socket
import unicodedata
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit, urlunsplit

from msgspec import Struct

from reconciler.base.errors import UnavailableError
from reconciler.base.lazy import regex
from reconciler.names.ids import DEFAULT_PORTS, normalise_url

_SCHEMES = frozenset({"file", "http", "https", "ssh"})
_LOCAL_NAMES = regex(r"(.*\.)?localhost(\.localdomain)?|ip6-(localhost|loopback)")
LOOPBACK = ("localhost", "127.0.0.1", "::1")
"""The hosts to which plain http leaves no machine."""
# host:path is SSH where no slash is before the colon: git's scp-like form.
_SCP = regex(r"^(?:[A-Za-z0-9._~-]+@)?[A-Za-z0-9._-]+:(?!//)")
# For `name::address` git runs the program git-remote-name.
_HELPER = regex(r"^[A-Za-z0-9+.-]+::")
_USER = regex(r"(?<=:)//(?:[^/]*@|[^/?#\[\]]*:(?!\d*(?:[/?#]|$)).*@)")
"""A user with a password; one with a slash in it looks like a host with a port that is no number."""
_SCHEME = regex(r"^([A-Za-z][A-Za-z0-9+.-]*)://")
_HOST = regex(r"^(?:.*@)?(\[.*\]|[^:]*):?(.*)$", re.DOTALL)
_AUTHORITY = regex(r"(?:\[[0-9A-Fa-f:.]+(?:%\w+)?\]|[^\[\]:]+)(?::[0-9]*)?")
_QUERY = regex(r"[?#].*$", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Credential:
    """The credential of a remote: a user with a password or token, or an SSH key; never shown.

    `known_hosts` is a file with additional keys of hosts.
    """

    username: str = ""
    password: str = field(default="", repr=False)
    ssh_key: Path | None = None
    known_hosts: Path | None = None


class Remote(Struct, frozen=True):
    """An address for git without secrets, and the normalised URL that identifies the repository."""

    address: str
    url: str
    path: Path | None = None
    credential: Credential | None = None

    @property
    def is_clear(self) -> bool:
        """Whether the connection is unencrypted: plain http beyond this machine."""
        return self.address.lower().startswith("http://") and not is_loopback(self.address)


def is_loopback(address: str) -> bool:
    """Tell whether an http or https address is on this machine. Total."""
    return "://" in address and _find_host(address) in LOOPBACK


def _find_host(url: str) -> str:
    """Return the host of a URL, empty where there is none or it is malformed. Total.

    Patch releases of Python differ: some take `[::1].example.com` for `::1`, or any text in brackets.
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        return ""
    authority = parts.netloc.rpartition("@")[2]
    return parts.hostname or "" if _AUTHORITY.fullmatch(authority) else ""


def is_local_host(name: str) -> bool:
    """Tell whether a host is this machine or its link, in any spelling of names and numbers."""
    text = name.lower().rstrip(".").removeprefix("[").removesuffix("]")
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        try:
            address = ipaddress.ip_address(socket.inet_aton(text))  # 127.1, 0x7f000001, 2130706433
        except OSError:
            return _LOCAL_NAMES.fullmatch(text) is not None
    address = getattr(address, "ipv4_mapped", None) or address
    return address.is_loopback or address.is_link_local or address.is_unspecified


def local_path(remote: str, base: Path | None = None) -> Path | None:
    """Return the path of a repository on this machine, None for a remote one.

    A relative path is relative to `base`, else to the working directory.
    """
    if match := _SCHEME.match(remote):
        if match.group(1).lower() != "file":
            return None
        return Path(unquote("/" + remote[match.end() :].partition("/")[2]))
    if _SCP.match(remote):
        return None
    return Path(os.path.abspath((base or Path()) / remote))  # noqa: PTH100 - resolve() follows links


class Place(NamedTuple):
    """Where an address leads, for checks: whatever two spellings may have in common is left out.

    To be compared with `covers` only. Never for a credential: another scheme or port is not its server.
    """

    scheme: str
    host: str
    port: str
    steps: tuple[str, ...]

    def covers(self, other: "Place") -> bool:
        """Tell whether the other place may be this one, or below it."""
        if (self.scheme == "file") != (other.scheme == "file") or self.host not in ("", other.host):
            return False
        # The same server has another port for another scheme.
        other_port = self.scheme == other.scheme and self.port and other.port and self.port != other.port
        return not other_port and other.steps[: len(self.steps)] == self.steps


def find_place(address: str) -> Place:
    """Return where an address leads. Total.

    The scheme of a remote address, its user, a default port, percent-encoding, letter case, `.git`, slashes,
    `..`, and the links on the way to a local repository do not tell two places apart.
    """
    text = address.strip()
    if (path := local_path(text)) is not None:
        return Place("file", "", "", _steps(os.path.realpath(path)))
    match = _SCHEME.match(text)
    scheme, rest = match.group(1).lower() if match else "ssh", text[match.end() :] if match else text
    authority, _, path_text = rest.partition("/" if match else ":")
    host, port = _HOST.sub(r"\1", authority), _HOST.sub(r"\2", authority)
    path_text = unquote(_QUERY.sub("", path_text) if match else path_text)
    return Place(scheme, _host(host), "" if port == DEFAULT_PORTS.get(scheme) else port, _steps(path_text))


def _host(name: str) -> str:
    name = unquote(name).lower().rstrip(".")
    try:
        return name.encode("idna").decode()
    except UnicodeError:
        return name


def _steps(path: str) -> tuple[str, ...]:
    folded = unicodedata.normalize("NFKC", path.replace("\\", "/")).casefold()
    return tuple(
        name
        for step in posixpath.normpath(f"/{folded}").split("/")
        if (name := step.removesuffix(".git")) not in ("", "~")
    )


def without_user(url: str) -> str:
    """Return a URL without user and password, to be shown. Total."""
    return _USER.sub("//", url, count=1)


def parse_remote(remote: str, base: Path | None = None) -> Remote:
    """Parse a configured remote into its address, its identity and its credential.

    Raises: UnavailableError for an unsafe address: an unknown transport (`ext::` runs commands), an option
    in place of a host, a control character.
    """
    text = remote.strip()
    if not text or text.startswith("-") or _HELPER.match(text) or not text.isprintable():
        message = f"Repository address {without_user(remote)!r} is not usable"
        raise UnavailableError(message, hint="Give a URL or a path.")
    if path := local_path(text, base):
        return Remote(str(path), normalise_url(str(path)), path)
    if not (match := _SCHEME.match(text)):
        _refuse_steps(text, text.partition(":")[2])
        return Remote(text, normalise_url(text))
    scheme = match.group(1).lower()
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError as error:
        message = f"Repository address {without_user(text)!r} is not usable: it names no host and port"
        raise UnavailableError(message, hint="Write a slash in a password as %2F.") from error
    host = _find_host(text)
    # ssh takes a host that begins with a dash for an option, and -oProxyCommand runs anything
    # (CVE-2017-1000117).
    if scheme not in _SCHEMES or not host or host.startswith("-"):
        hint = "Use https, ssh, http, file or a path."
        raise UnavailableError(f"Repository address {without_user(text)!r} is not supported", hint=hint)
    if scheme != "file":
        _refuse_steps(text, parts.path)
    if scheme == "ssh":
        return Remote(_without_password(text), normalise_url(text))
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    credential = Credential(user, password) if user or password else None
    return Remote(without_user(text), normalise_url(text), credential=credential)


def reading_of(remote: str) -> tuple[str, str]:
    """Return in which way a usable address is read: its scheme, and its user with the password if any."""
    text = remote.strip()
    if local_path(text) is not None:
        return "file", ""
    scheme, separator, rest = text.partition("://")
    authority = rest.partition("/")[0] if separator else text.partition(":")[0]
    return scheme.lower() if separator else "ssh", authority.rpartition("@")[0]


def _refuse_steps(address: str, path: str) -> None:
    """Refuse `..` in a remote address: credentials are chosen by its prefix, which `..` would leave."""
    if {".", ".."} & {unquote(step) for step in path.split("/")}:
        raise UnavailableError(
            f"Repository address {without_user(address)!r} is not usable", hint="Drop `..`."
        )


def _without_password(url: str) -> str:
    parts = urlsplit(url)
    user, at, host = parts.netloc.rpartition("@")
    return urlunsplit(parts._replace(netloc=f"{user.partition(':')[0]}{at}{host}"))
