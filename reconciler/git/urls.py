"""Addresses of repositories, without the secrets that a URL may contain."""

import os
import re
from dataclasses import field
from pathlib import Path
from urllib.parse import unquote, urlsplit, urlunsplit

from reconciler.errors import UnavailableError
from reconciler.ids import normalise_url
from reconciler.report.redact import learn_address
from reconciler.values import dataclass

_SCHEMES = frozenset({"file", "http", "https", "ssh"})
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_SCP = re.compile(r"^(?:[A-Za-z0-9._~-]+@)?[A-Za-z0-9._-]+:(?!//)")
_HELPER = re.compile(r"^[A-Za-z0-9+.-]+::")
_USER = re.compile(r"(?<=:)//[^/]*@")
_SCHEME = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*)://")


@dataclass(frozen=True, slots=True)
class Credential:
    """The credential of a remote: a user with a password or token, or an SSH key; never shown.

    `known_hosts` is a file with additional keys of hosts.
    """

    username: str = ""
    password: str = field(default="", repr=False)
    ssh_key: Path | None = None
    known_hosts: Path | None = None


@dataclass(frozen=True, slots=True)
class Remote:
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
    """Tell whether an http or https address is on this machine."""
    return "://" in address and urlsplit(address).hostname in _LOOPBACK


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


def without_user(url: str) -> str:
    """Return a URL without user and password, to be shown. Total."""
    return _USER.sub("//", url, count=1)


def parse_remote(remote: str, base: Path | None = None) -> Remote:
    """Parse a configured remote into its address, its identity and its credential.

    Raises: UnavailableError for an unsafe address: an unknown transport (`ext::` runs commands), an option
    in place of a host, a control character.
    """
    text = remote.strip()
    if _SCHEME.match(text):
        learn_address(text)
    if not text or text.startswith("-") or _HELPER.match(text) or not text.isprintable():
        raise UnavailableError(f"Repository address {remote!r} is not usable", hint="Give a URL or a path.")
    if path := local_path(text, base):
        return Remote(str(path), normalise_url(str(path)), path)
    if not (match := _SCHEME.match(text)):
        return Remote(text, normalise_url(text))
    scheme = match.group(1).lower()
    host = urlsplit(text).hostname or ""
    if scheme not in _SCHEMES or not host or host.startswith("-"):
        hint = "Use https, ssh, http, file or a path."
        raise UnavailableError(f"Repository address {without_user(text)!r} is not supported", hint=hint)
    if scheme != "file" and {".", ".."} & {unquote(step) for step in urlsplit(text).path.split("/")}:
        # Credentials are chosen by the prefix of an address; `..` would leave it.
        raise UnavailableError(f"Repository address {without_user(text)!r} is not usable", hint="Drop `..`.")
    if scheme == "ssh":
        return Remote(_without_password(text), normalise_url(text))
    parts = urlsplit(text)
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    credential = Credential(user, password) if user or password else None
    return Remote(without_user(text), normalise_url(text), credential=credential)


def _without_password(url: str) -> str:
    parts = urlsplit(url)
    user, at, host = parts.netloc.rpartition("@")
    return urlunsplit(parts._replace(netloc=f"{user.partition(':')[0]}{at}{host}"))
