"""The one redactor: what is secret leaves the process through no output (D17)."""

import base64
import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote

MASK = "***"
SHORTEST = 8
"""Known values shorter than this are not masked: they would blank out ordinary words."""

_NAMES = re.compile(r"(?i)token|secret|passw(?:or)?d|credential|(?:api|access|private|signing)_?key")
_TOKENS = re.compile(
    r"\b(?:gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|gldt-[\w-]{16,}"
    r"|xox[abprs]-[\w-]{10,}|AKIA[0-9A-Z]{16}"
    r"|eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]{4,})"
)
_PRIVATE_KEY = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL
)
_AUTHORIZATION = re.compile(r"(?i)\b(authorization\s*[:=]\s*(?:bearer|basic|token)\s+)\S+")
_HTTP_USER = re.compile(r"(?i)\b(https?://)[^/\s@]+@")
_PASSWORD = re.compile(r"(?i)\b([a-z][a-z0-9+.-]*://[^/\s@:]*:)[^/\s@]+@")


class Redactor:
    """Masks known secret values in all their spellings, and whatever looks like a credential.

    Idempotent, and total: any text is accepted.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        spellings = {form for value in secrets for form in _spellings(value)}
        longest_first = sorted(spellings, key=lambda s: (-len(s), s))
        self._known = re.compile("|".join(map(re.escape, longest_first))) if longest_first else None

    @classmethod
    def of_environment(cls, environment: Mapping[str, str]) -> "Redactor":
        """Return the redactor that knows every variable whose name says that its value is secret."""
        return cls(value for name, value in environment.items() if _NAMES.search(name))

    def text(self, text: str) -> str:
        """Return `text` without secrets."""
        if self._known:
            text = self._known.sub(MASK, text)
        text = _PRIVATE_KEY.sub(MASK, text)
        text = _TOKENS.sub(MASK, text)
        text = _AUTHORIZATION.sub(rf"\1{MASK}", text)
        text = _HTTP_USER.sub(rf"\1{MASK}@", text)
        return _PASSWORD.sub(rf"\1{MASK}@", text)

    def value(self, value: Any) -> Any:
        """Return a JSON value with every string in it redacted, keys included."""
        match value:
            case str():
                return self.text(value)
            case Mapping():
                return {self.text(str(k)): self.value(v) for k, v in value.items()}
            case list() | tuple():
                return [self.value(v) for v in value]
            case _:
                return value


def _spellings(value: str) -> Iterable[str]:
    """Return how a secret may appear: as it is, percent-encoded, and in base64 at any alignment."""
    value = value.strip()
    if len(value) < SHORTEST:
        return
    yield value
    yield quote(value, safe="")
    data = value.encode(errors="surrogateescape")
    for shift in range(3):
        encoded = base64.b64encode(b"\0" * shift + data).decode().rstrip("=")
        # The first and last digits of a shifted encoding also depend on the neighbours.
        core = encoded[(0, 2, 3)[shift] :]
        core = core if (shift + len(data)) % 3 == 0 else core[:-1]
        yield core
        yield core.replace("+", "-").replace("/", "_")
