"""Redirects of Git servers: followed on the same scheme, host and port, and nowhere else."""

import re
from urllib.parse import urljoin, urlsplit

_REDIRECTED = re.compile(r"returned error: 30[12378]\b")
_LOCATION = re.compile(r"(?im)<= recv header: location:[ \t]*(\S+)")
_PLAIN = re.compile(r"https?://[A-Za-z0-9.:\[\]-]+/[A-Za-z0-9._~/%+-]*")
_SERVICE = re.compile(r"/info/refs(?:\?.*)?$")

TRACE = {"GIT_TRACE_CURL": "1", "GIT_TRACE_CURL_NO_DATA": "1"}
"""With these in its environment git says which headers it received; it redacts what it sent."""


def is_redirected(err: str) -> bool:
    """Tell whether git stopped because a server redirected it, which it may not follow by itself."""
    return _REDIRECTED.search(err) is not None


def redirect_target(remote: str, trace: str) -> str:
    """Return where a server moved a repository to; empty if that is not the same scheme, host and port.

    Args:
        remote: The address that was asked.
        trace: What git said with TRACE in its environment.
    """
    found = _LOCATION.findall(trace)
    if not found:
        return ""
    target = _SERVICE.sub("", urljoin(f"{remote.rstrip('/')}/info/refs", found[-1]))
    plain = _PLAIN.fullmatch(target) and ".." not in target
    return target if plain and target != remote and _origin(target) == _origin(remote) else ""


def _origin(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    return parts.scheme.lower(), parts.netloc.rpartition("@")[2].lower()
