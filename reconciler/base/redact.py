"""The two doors of credentials: texts for people are masked, what machines read is refused (D35)."""

import base64
import html
import json
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any, Final, NamedTuple
from urllib.parse import quote, quote_plus

import orjson

from reconciler.base.defects import is_unforeseen
from reconciler.base.errors import RefusedError
from reconciler.base.lazy import regex

MASK = "***"
SHORTEST = 8
"""Values of variables that are shorter are not masked: they would blank out ordinary words."""
SHORTEST_CREDENTIAL = 6
"""The same for credentials that are in use: those are no guess."""
_FEWEST_CHARACTERS = 4
"""Different ones: a line of dashes is no secret, and the frame of every table."""
_SHORTEST_LINE = 16
_SHORTEST_TOKEN = 20
_PER_TURN, _PER_CHANGE = 8, 4
"""A token turns between letters and digits once in eight characters, or to a capital too once in four."""

_NAMES = regex(r"(?i)token|secret|passw(?:or)?d|credential|(?:api|app|access|private|signing|deploy)_?key")
_FIXED = (
    *("x-access-token", "x-oauth-basic", "x-token-auth", "gitlab-ci-token", "oauth2"),
    *("reconciler:begin", "reconciler:end", "reconciler:comment:", "reconciler:ask", "reconciler:shard"),
    *("PackageVariantSet", "Repository"),
)
"""Words that forges take for a user or a password, marks by which runs find their own texts, and kinds."""
_TOKENS = regex(
    r"\b(?:gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|gldt-[\w-]{16,}"
    r"|xox[abprs]-[\w-]{10,}|AKIA[0-9A-Z]{16}"
    r"|eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]{4,})"
)
_TOKEN_PARTS = ("gh", "glpat-", "gldt-", "xox", "AKIA", "eyJ", "github_pat_", "-----BEGIN ")
_NAME_LIKE = regex(r"[A-Za-z0-9._/-]+")
_VISIBLE = regex(r"[!-~]+")
_FIELD = regex(r"[a-z]+(?:[A-Z][a-z]*)*")
"""The name of a field, as records and reports write it."""
_SEGMENT = regex(r"[A-Za-z0-9]+")
_OBJECT_ID = regex(r"(?:sha256:)?(?:[0-9a-f]{40}|[0-9a-f]{64})")
_PRIVATE_KEY = regex(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL
)
_AUTHORIZATION = regex(r"(?i)\b(authorization\s*[:=]\s*(?:bearer|basic|token)\s+)\S+")
_HTTP_USER = regex(r"(?i)\b(https?://)[^/\s@]+@")
_PASSWORD = regex(r"(?i)\b([a-z][a-z0-9+.-]*://[^/\s@:]*:)[^/\s@]+@")

PATTERNS: Final = (
    (_PRIVATE_KEY, MASK),
    (_TOKENS, MASK),
    (_AUTHORIZATION, rf"\1{MASK}"),
    (_HTTP_USER, rf"\1{MASK}@"),
    (_PASSWORD, rf"\1{MASK}@"),
)
"""Patterns of credentials, in the order of their use, each with its replacement."""

_TEXTS = frozenset(
    {"title", "body", "description", "message", "content", "raw", "comments", "why", "unready"}
)
"""Fields of records, and of requests to forges, that are texts for people."""
_CONTENTS = frozenset({"upstream", "local", "chosen"})
"""Fields of records that are values from files of packages."""
_NAMED_BY_PEOPLE = frozenset({"spec", "labels", "annotations"})
"""Fields of records that are maps with names of people's choice."""
_HINT = "Take it out of there, and replace it: others read that place."
_MOST_NAMES = 8
"""Sources of names: a run has a few, a process of tests has many runs."""


class _Credential(NamedTuple):
    """A credential in use: where it is from, in words, and its spellings; none if it cannot be hidden.

    One that is not `ours` is what a server handed out, which may be whatever that server likes.
    """

    origin: str
    spellings: tuple[str, ...]
    ours: bool = True


def _is_in(value: str, names: Callable[[], Iterable[str]]) -> bool:
    """Tell whether a value is a part of one of the names; of those that a bug of ours breaks it is none."""
    try:
        return any(value in name for name in names())
    except Exception as error:
        if not is_unforeseen(error):
            raise
        return False  # it stays hidden, and the guard of what is named tells


class _Credentials:
    """Every credential that this process has in use; safe for several threads without a lock.

    Later readers see every value that was added.
    """

    def __init__(self) -> None:
        self.values: dict[str, _Credential] = {}
        self.names: deque[Callable[[], Iterable[str]]] = deque(maxlen=_MOST_NAMES)
        self.words: dict[str, bool] = {}
        self._hidden: tuple[int, object, tuple[str, ...]] = (-1, None, ())

    def is_word(self, value: str) -> bool:
        """Tell whether a value is a name of the plan, or a part of one.

        What has the shape of a token is none, unless a server handed it out.
        """
        words, is_ours = self.words, value not in self.values or self.values[value].ours
        if "\n" in value or (is_token(value) and is_ours):
            return False
        if value not in words:
            is_name = any(_is_in(value, names) for names in tuple(self.names))
            words[value] = is_name or any(value in word for word in _FIXED)
        return words[value]

    @property
    def hidden(self) -> tuple[str, ...]:
        """Every spelling of every credential that texts for people hide, the longest first."""
        count, words, forms = self._hidden
        if count != len(self.values) or words is not self.words:
            count, words, every = len(self.values), self.words, tuple(self.values.items())
            hidden = (secret for value, secret in every if not self.is_word(value))
            forms = tuple(_longest_first({form for secret in hidden for form in secret.spellings}))
            self._hidden = count, words, forms
        return forms

    def refused(self, *, in_names: bool) -> tuple[str, ...]:
        """Return every spelling of our credentials that no machine may read.

        A name may equal a credential that has not the shape of a token.
        """
        ours = [(value, secret) for value, secret in tuple(self.values.items()) if secret.ours]
        return tuple(
            form
            for value, secret in ours
            if is_token(value) or not (in_names or self.is_word(value))
            for form in secret.spellings
        )


_IN_USE: Final = _Credentials()


def is_token(value: str) -> bool:
    """Tell whether a value has the shape of a token, which words and names have not.

    It is as long, has no space, and digits and capitals are all over it.
    """
    if len(value) < _SHORTEST_TOKEN or not _VISIBLE.fullmatch(value):
        return False
    pairs = [pair for segment in _SEGMENT.findall(value) for pair in pairwise(segment)]
    turns: int = sum(before.isdigit() != after.isdigit() for before, after in pairs)
    changes: int = turns + sum(before.islower() and after.isupper() for before, after in pairs)
    return turns * _PER_TURN >= len(value) or (turns > 0 and changes * _PER_CHANGE >= len(value))


def learn_credential(value: str, origin: str) -> None:
    """Hide a credential in every text that leaves this process from now on, in every spelling.

    Call it before any authentication, with Git or a forge, and after reading a key. Of a key of several
    lines each line is hidden too. `origin` tells people which one it is.
    """
    _learn(value, _Credential(origin, tuple(_spellings(value, SHORTEST_CREDENTIAL))))
    lines = [line.strip() for line in value.splitlines()]
    for line in lines if len(lines) > 1 else ():
        if len(line) >= _SHORTEST_LINE and not line.startswith("-----"):
            _learn(line, _Credential(origin, (line, quote(line, safe=""))))


def learn_token(value: str) -> None:
    """Hide what a server handed out in every text from now on, if it has the shape of a token.

    A server may hand out anything: ids of objects and digests are no tokens.
    """
    if is_token(value) and not _OBJECT_ID.fullmatch(value):
        _learn(value, _Credential("a server", tuple(_spellings(value, SHORTEST_CREDENTIAL)), ours=False))


def _learn(value: str, credential: _Credential) -> None:
    if value:
        _IN_USE.values.setdefault(value, credential)


def learn_names(names: Callable[[], Iterable[str]]) -> None:
    """Show these names from now on, and parts of them, even where one equals a credential.

    They are collected only if a credential has not the shape of a token, so seldom at all.
    """
    _IN_USE.names.append(names)
    _IN_USE.words = {}


def shown_credentials() -> tuple[str, ...]:
    """Return a note on each credential of ours that texts show: it is too short, or a name of the plan."""
    ours = [(value, secret) for value, secret in tuple(_IN_USE.values.items()) if secret.ours]
    origins = sorted({s.origin for value, s in ours if not s.spellings or _IN_USE.is_word(value)})
    why = "it is too short, or a part of a name here. Replace it by a random one"
    return tuple(f"Texts show the credential of {origin}: {why}" for origin in origins)


def mask_credentials(text: str) -> str:
    """Return a text for people without any credential that is in use; what only looks like one stays."""
    for spelling in _IN_USE.hidden:
        if spelling in text:
            text = text.replace(spelling, MASK)
    return text


def mask_tokens(text: str) -> str:
    """Return words of a server without the credentials that no name can equal.

    Where they arrive, before they are cut and escaped, the names of the plan may not be known yet.
    """
    for value, secret in tuple(_IN_USE.values.items()):
        if is_token(value) or not _NAME_LIKE.fullmatch(value):
            for spelling in secret.spellings:
                text = text.replace(spelling, MASK)
    return text


def refuse_credentials(text: str, what: str) -> None:
    """Refuse text that machines read, such as the name of a ref, if a credential is in it.

    Raises:
        RefusedError: A credential is in it.
    """
    if any(spelling in text for spelling in _IN_USE.refused(in_names=True)):
        raise RefusedError(f"{what} holds a credential that this run uses", hint=_HINT)


def outgoing_fields(value: Any, what: str, mask: Callable[[str], str] = mask_credentials) -> Any:
    """Return a record or a request as it may leave: `mask` is for its texts for people, and nothing else is.

    Raises:
        RefusedError: A credential is in another field.
    """
    if not _IN_USE.values:
        return value
    names, contents = (_IN_USE.refused(in_names=in_names) for in_names in (True, False))

    def outgoing(value: Any, field: str, name: str) -> Any:
        match value:
            case str() if name in _TEXTS:
                return mask(value)
            case str():
                if any(form in value for form in (contents if name in _CONTENTS else names)):
                    message = f"Field {field} of {what} holds a credential that this run uses"
                    raise RefusedError(message, hint=_HINT)
                return value
            case Mapping():
                fixed = name in _TEXTS | _NAMED_BY_PEOPLE
                return {
                    outgoing(str(key), field, ""): outgoing(
                        part, f"{field}.{key}".lstrip("."), name if fixed else str(key)
                    )
                    for key, part in value.items()
                }
            case list() | tuple():
                parts = (outgoing(part, f"{field}[{n}]", name) for n, part in enumerate(value))
                return tuple(parts) if isinstance(value, tuple) else list(parts)
            case _:
                return value

    return outgoing(value, "", "")


def outgoing_file(data: bytes, what: str) -> bytes:
    """Return a file of a machine-owned branch as it may leave; what is no JSON is a text for people.

    Raises:
        RefusedError: A credential is in a field of its JSON that is no text for people.
    """
    if not _IN_USE.values:
        return data
    text = data.decode("utf-8", "surrogateescape")
    if not any(form in text for secret in tuple(_IN_USE.values.values()) for form in secret.spellings):
        return data
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError:
        return mask_credentials(text).encode("utf-8", "surrogateescape")
    indent = orjson.OPT_INDENT_2 if b"\n" in data.rstrip(b"\n") else 0
    option = orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE | indent
    return orjson.dumps(outgoing_fields(value, what), option=option)


class Redactor:
    """Masks texts for people: credentials in use, other secret values, and what looks like a credential.

    Every value in all its spellings. Idempotent, and total: any text is accepted.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._secrets = {value: tuple(_spellings(value, SHORTEST)) for value in secrets}
        self._words: object = None
        self._known: re.Pattern[str] | None = None
        self._known_in_json: re.Pattern[str] | None = None

    @classmethod
    def of_environment(cls, environment: Mapping[str, str]) -> "Redactor":
        """Return a redactor of the values of all variables with a name of a secret, such as TOKEN."""
        return cls(value for name, value in environment.items() if _NAMES.search(name))

    def text(self, text: str) -> str:
        """Return `text` without secrets."""
        text = mask_credentials(text)
        self._compile()
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
        if _may_be_secret(text) or any(_as_json(spelling) in text for spelling in _IN_USE.hidden):
            return False
        self._compile()
        return self._known_in_json is None or self._known_in_json.search(text) is None

    def _compile(self) -> None:
        """Look anew for secrets that are names of the plan after more names were learned."""
        if self._words is not _IN_USE.words:
            self._words = _IN_USE.words
            secrets = [forms for value, forms in self._secrets.items() if not _IN_USE.is_word(value)]
            forms = {form for spellings in secrets for form in spellings}
            self._known, self._known_in_json = _any_of(forms), _any_of(set(map(_as_json, forms)))

    def value(self, value: Any) -> Any:
        """Return a JSON value with every string in it redacted; names of fields are words of ours."""
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
                keys = {k: str(k) if _FIELD.fullmatch(str(k)) else self._value(str(k), texts) for k in value}
                return {keys[k]: self._value(part, texts) for k, part in value.items()}
            case list() | tuple():
                return [self._value(v, texts) for v in value]
            case _:
                return value


def _may_be_secret(text: str) -> bool:
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
    if len(value) < shortest or len(set(value)) < _FEWEST_CHARACTERS:
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
