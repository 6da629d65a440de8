"""The one redactor: what is secret leaves the process through no output (D17)."""

import base64
import html
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final
from urllib.parse import quote, quote_plus, unquote

MASK = "***"
SHORTEST = 8
"""Values of variables that are shorter are not masked: they would blank out ordinary words."""
SHORTEST_CREDENTIAL = 6
"""The same for credentials that are in use: those are no guess."""
_SHORTEST_LINE = 16

_NAMES = re.compile(
    r"(?i)token|secret|passw(?:or)?d|credential|(?:api|app|access|private|signing|deploy)_?key"
)
_USERS = frozenset({"git", "oauth2", "x-access-token", "x-token-auth", "gitlab-ci-token"})
"""Users that a token comes with: names of a protocol, no secrets."""
_TOKENS = re.compile(
    r"\b(?:gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|gldt-[\w-]{16,}"
    r"|xox[abprs]-[\w-]{10,}|AKIA[0-9A-Z]{16}"
    r"|eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]{4,})"
)
_TOKEN_PARTS = ("gh", "glpat-", "gldt-", "xox", "AKIA", "eyJ", "github_pat_", "-----BEGIN ")
_PRIVATE_KEY = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL
)
_AUTHORIZATION = re.compile(r"(?i)\b(authorization\s*[:=]\s*(?:bearer|basic|token)\s+)\S+")
_HTTP_USER = re.compile(r"(?i)\b(https?://)[^/\s@]+@")
_PASSWORD = re.compile(r"(?i)\b([a-z][a-z0-9+.-]*://[^/\s@:]*:)[^/\s@]+@")

PATTERNS: Final = (
    (_PRIVATE_KEY, MASK),
    (_TOKENS, MASK),
    (_AUTHORIZATION, rf"\1{MASK}"),
    (_HTTP_USER, rf"\1{MASK}@"),
    (_PASSWORD, rf"\1{MASK}@"),
)
"""Patterns of credentials, in the order of their use, each with its replacement."""


class _Credentials:
    """Every credential that this process has in use; safe for several threads without a lock.

    Later readers see every value that was added; the order is computed again after each.
    """

    def __init__(self) -> None:
        self._values: dict[str, tuple[str, ...]] = {}
        self._ordered: tuple[int, tuple[str, ...]] = (0, ())

    def add(self, value: str, spellings: Iterable[str]) -> None:
        self._values.setdefault(value, tuple(spellings))

    @property
    def spellings(self) -> tuple[str, ...]:
        """Every spelling of every credential, the longest first."""
        count, ordered = self._ordered
        if count != len(self._values):
            longest = list(self._values.values())
            ordered = tuple(_longest_first({form for forms in longest for form in forms}))
            self._ordered = (len(longest), ordered)
        return ordered


_IN_USE: Final = _Credentials()


def learn_credential(value: str) -> None:
    """Mask a credential in everything that leaves this process from now on, in every spelling.

    Call it before any authentication, with Git or a forge, and after reading a key. Of a key of several
    lines each line is masked too. Empty and very short values are not.
    """
    _IN_USE.add(value, _spellings(value, SHORTEST_CREDENTIAL))
    lines = [line.strip() for line in value.splitlines()]
    for line in lines if len(lines) > 1 else ():
        if len(line) >= _SHORTEST_LINE and not line.startswith("-----"):
            _IN_USE.add(line, (line, quote(line, safe="")))


def learn_address(url: str) -> None:
    """Mask what the user part of an address holds: a password, or a token in place of a user."""
    authority = re.split(r"[/?#]", url.partition("://")[2], maxsplit=1)[0]
    user, separator, password = authority.rpartition("@")[0].partition(":")
    secret = password if separator else user
    if secret not in _USERS:
        learn_credential(secret)
        learn_credential(unquote(secret))


def mask_credentials(text: str) -> str:
    """Return text without any credential that is in use; what only looks like one stays."""
    for spelling in _IN_USE.spellings:
        if spelling in text:
            text = text.replace(spelling, MASK)
    return text


def mask_credentials_in(data: bytes) -> bytes:
    """Return a machine-owned file without any credential that is in use; JSON stays JSON."""
    text = data.decode("utf-8", "surrogateescape")
    masked = mask_credentials(text)
    return data if masked == text else masked.encode("utf-8", "surrogateescape")


class Redactor:
    """Masks credentials in use, other known secret values, and whatever looks like a credential.

    Every value in all its spellings. Idempotent, and total: any text is accepted.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        forms = {form for value in secrets for form in _spellings(value, SHORTEST)}
        self._known = _any_of(forms)
        self._known_in_json = _any_of(set(map(_as_json, forms)))

    @classmethod
    def of_environment(cls, environment: Mapping[str, str]) -> "Redactor":
        """Return a redactor of the values of all variables with a name of a secret, such as TOKEN."""
        return cls(value for name, value in environment.items() if _NAMES.search(name))

    def text(self, text: str) -> str:
        """Return `text` without secrets."""
        text = mask_credentials(text)
        if self._known:
            text = self._known.sub(MASK, text)
        if not _may_be_secret(text):
            return text
        for pattern, replacement in PATTERNS:
            text = pattern.sub(replacement, text)
        return text

    def is_clean(self, text: str) -> bool:
        """Tell whether nothing in a JSON text can be secret, in any string of it."""
        # JSON writes each character by itself, so a secret is in the text as its own JSON form.
        if _may_be_secret(text) or any(_as_json(spelling) in text for spelling in _IN_USE.spellings):
            return False
        return self._known_in_json is None or self._known_in_json.search(text) is None

    def value(self, value: Any) -> Any:
        """Return a JSON value with every string in it redacted, keys included."""
        return self._value(value, {})

    def _value(self, value: Any, texts: dict[str, str]) -> Any:
        """Redact a value; `texts` remembers each distinct string, since most occur thousands of times."""
        match value:
            case str():
                redacted = texts.get(value)
                if redacted is None:
                    redacted = texts[value] = self.text(value)
                return redacted
            case Mapping():
                return {self._value(str(k), texts): self._value(v, texts) for k, v in value.items()}
            case list() | tuple():
                return [self._value(v, texts) for v in value]
            case _:
                return value


def _may_be_secret(text: str) -> bool:
    """Tell whether one of the patterns may match: each needs one of these parts."""
    return (
        ("://" in text and "@" in text)
        or any(part in text for part in _TOKEN_PARTS)
        or "author" in text.lower()
    )


def _as_json(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]


def _any_of(spellings: Iterable[str]) -> re.Pattern[str] | None:
    ordered = _longest_first(spellings)
    return re.compile("|".join(map(re.escape, ordered))) if ordered else None


def _longest_first(spellings: Iterable[str]) -> list[str]:
    return sorted(spellings, key=lambda spelling: (-len(spelling), spelling))


def _spellings(value: str, shortest: int) -> Iterator[str]:
    """Yield how a secret may appear: as it is, escaped for URLs, JSON and HTML, in base64 at any offset."""
    value = value.strip()
    if len(value) < shortest:
        return
    yield value
    yield from (quoted := (quote(value, safe=""), quote(value), quote_plus(value)))
    yield from (re.sub("%[0-9A-F]{2}", lambda match: match[0].lower(), form) for form in quoted)
    yield from (json.dumps(value, ensure_ascii=ascii_only)[1:-1] for ascii_only in (True, False))
    yield html.escape(value)
    data = value.encode(errors="surrogateescape")
    for shift in range(3):
        encoded = base64.b64encode(b"\0" * shift + data).decode().rstrip("=")
        # The first and last digits of a shifted encoding also depend on the neighbours.
        core = encoded[(0, 2, 3)[shift] :]
        core = core if (shift + len(data)) % 3 == 0 else core[:-1]
        for form in (core, core.replace("+", "-").replace("/", "_")):
            yield form
            yield quote(form, safe="")
            yield form.replace("/", "\\/")
