"""Find Secrets in files and values, so that no output shows them (D17). Pure.

Whether a file may be shown is decided here and nowhere else.
"""

import base64
import binascii
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Any, Final
from urllib.parse import quote, unquote

import orjson
from msgspec import Struct
from msgspec.structs import replace

from reconciler.api.kptfile import KPTFILE
from reconciler.base.lazy import regex
from reconciler.functions.resources import RESOURCE_ENDINGS, Resource
from reconciler.functions.step import StepRun
from reconciler.krm.values import mapping_at, mappings_at
from reconciler.krm.yaml import PACKAGE_LIMITS, YamlError, load_documents
from reconciler.names.filled import identities, masked_digest
from reconciler.names.ids import Oid
from reconciler.names.objects import File, Files
from reconciler.names.substitution import OwnValues

MASK: Final = "***"
_SHORTEST: Final = 6
"""In characters. Masking shorter values would mask ordinary words too."""

_LEVELS: Final = 5
"""Levels of manifests in texts of manifests that are parsed; the word in a text below them is enough."""

_DECIDED: Final[dict[Oid | bytes, bool]] = {}
"""Whether a file has a Secret: each conflict of a file asks again, and both sides of each difference."""
_MOST_DECIDED: Final = 1 << 16
_NO_VALUES: Final = OwnValues(())
_CACHED: Final = 512
"""Resources in memory: those of a package with a large chart."""

_OTHER_SPELLING: Final = regex(rb"[\\!\0]")
"""Part of every spelling without the word itself: an escape, a tag such as `!!binary`, UTF-16."""
_ESCAPE: Final = regex(
    r"\\+(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U(000[0-9a-fA-F]{5})|(\r?\n[ \t]*)|([abefnrtv]))?"
)
_KIND: Final = regex(r"""\bkind["'\s]*:\s*(?:(?:[!&]\S*|[|>][-+0-9]*)\s+)*["']?Secret(?:List)?\b""")
"""A Secret in a comment, a script or a template: its kind, as it is usually written."""
_WORD: Final = regex(r"\bSecret(?:List)?\b|![\w!<:.,/-]*(?:binary|%[0-9a-fA-F]{2})|%TAG")
"""Sign of a Secret in text that is not YAML: its kind, or a tag that may decode to it."""


def holds_secret(*files: File | None) -> bool:
    """Return whether any of these files has a Secret, or text that may be one, so that none may be shown.

    A Secret is a mapping of the kind Secret of any API group, or an item of a SecretList: a document, or
    anywhere in one, also in its texts. Of text that is not YAML the word is enough. Total.
    """
    return any(file is not None and _decide(file) for file in files)


def _may_hold(data: bytes, *words: bytes) -> bool:
    """Return whether data can hold a Secret: most files cannot, and are not parsed."""
    return all(word in data for word in words) or _OTHER_SPELLING.search(data) is not None


def _decide(file: File) -> bool:
    def decide() -> bool:
        return _may_hold(file.data, b"Secret") and any(True for _ in _secrets_of_text(file.data, 0, set()))

    return _decide_once(file.oid, decide)


def _decide_at(oid: Oid, files: Files, path: str, own_values: OwnValues) -> bool:
    # No own value has a word that is searched for: files that are equal but for these are alike.
    def decide() -> bool:
        return _decide_once(masked_digest(files, path, own_values), lambda: _decide(files[path]))

    return _decide_once(oid, decide)


def _decide_once(key: Oid | bytes, decide: Callable[[], bool]) -> bool:
    decided = _DECIDED.get(key)
    if decided is None:
        if len(_DECIDED) > _MOST_DECIDED:
            _DECIDED.clear()
        decided = _DECIDED[key] = decide()
    return decided


def _secrets_of_text(data: bytes, level: int, seen: set[str]) -> Iterator[Mapping[str, Any]]:
    """Yield the Secrets of a text; for one that is not YAML, an empty one if it may have any.

    Args:
        data: The text.
        level: Number of texts that this one is in.
        seen: Texts that were looked at: an alias repeats a text at no cost.
    """
    # Without NULs, UTF-16 and UTF-32 are the characters of ASCII that they encode.
    text = _ESCAPE.sub(_unescaped, data.replace(b"\0", b"").decode(errors="replace"))
    try:
        documents = load_documents(data, PACKAGE_LIMITS) if level < _LEVELS else None
    except YamlError:
        documents = None
    for document in documents or ():
        yield from _secrets(document.value, level, seen)
    # A text in a document is prose more often than a manifest that is not YAML.
    pattern = _WORD if documents is None and level in (0, _LEVELS) else _KIND
    if pattern.search(text):
        yield {}


def _unescaped(match: re.Match[str]) -> str:
    """Return the character of an escape of YAML or JSON, without the backslashes of others."""
    code = match[1] or match[2] or match[3]
    if code:
        return chr(int(code, 16)) if int(code, 16) < 0x110000 else " "  # noqa: PLR2004 - Unicode's end
    return " " if match[5] else ""


def _secrets(value: Any, level: int, seen: set[str]) -> Iterator[Mapping[str, Any]]:
    """Yield every Secret in a value, also those that are written as text."""
    if isinstance(value, Mapping):
        if value.get("kind") == "Secret":
            yield value
        elif value.get("kind") == "SecretList":
            yield from (value, *mappings_at(value, "items"))
        for part in value.values():
            yield from _secrets(part, level, seen)
    elif isinstance(value, list):
        for part in value:
            yield from _secrets(part, level, seen)
    elif isinstance(value, str) and ":" in value and value not in seen:
        seen.add(value)
        data = value.encode(errors="surrogatepass")
        if _may_hold(data, b"kind", b"Secret"):
            yield from _secrets_of_text(data, level + 1, seen)


def secret_values(resources: Iterable[Resource]) -> frozenset[str]:
    """Return the values of all Secrets in resources: as written, as plain text and as base64."""
    return frozenset[str]().union(*(_values_of(resource.value) for resource in resources))


def _values_of(value: Any) -> frozenset[str]:
    try:
        return _values_of_json(orjson.dumps(value))
    except orjson.JSONEncodeError:
        return _long_values(value)


@lru_cache(maxsize=_CACHED)
def _values_of_json(data: bytes) -> frozenset[str]:
    """Return the values of Secrets in a resource, which all steps see, and packages of one chart have."""
    # What JSON itself escapes in ordinary texts is no other spelling.
    may_have = _may_hold(data.replace(b"\\n", b"").replace(b'\\"', b""), b"Secret")
    return _long_values(orjson.loads(data)) if may_have else frozenset()


def _long_values(value: Any) -> frozenset[str]:
    secrets = _secrets(value, 0, set())
    return frozenset(text for secret in secrets for text in _values(secret) if len(text) >= _SHORTEST)


def hide_secrets(run: StepRun, values: frozenset[str]) -> StepRun:
    """Return a step's output with these values masked.

    The redactor of the command line knows no values of Secrets, so they are masked here.
    """
    if not values:
        return run
    # A short value may be a part of a longer one, of which the rest would stay readable.
    longest_first = sorted(values, key=lambda value: (-len(value), value))
    pattern = re.compile("|".join(map(re.escape, longest_first)))
    results = tuple(
        replace(
            result,
            message=pattern.sub(MASK, result.message),
            field=_masked(result.field, pattern),
            tags=_masked(result.tags, pattern),
            resource_ref=_masked(result.resource_ref, pattern),
            file=_masked(result.file, pattern),
        )
        for result in run.results
    )
    return replace(run, results=results, stderr=pattern.sub(MASK, run.stderr))


def _values(secret: Mapping[str, Any]) -> Iterator[str]:
    for field in ("data", "stringData"):
        data = secret.get(field)
        for value in data.values() if isinstance(data, Mapping) else ():
            if isinstance(value, (str, int, float)):
                yield from _spellings(str(value), is_encoded=field == "data")


def _spellings(value: str, *, is_encoded: bool) -> Iterator[str]:
    """Yield a value as written, each of its lines, and its other form: base64 or decoded."""
    yield from _quotations(value)
    if not is_encoded:
        yield base64.b64encode(value.encode(errors="surrogateescape")).decode()
        return
    code = "".join(value.split())
    yield code
    try:
        yield from _quotations(base64.b64decode(code, validate=True).decode())
    except (binascii.Error, ValueError):
        return


def _quotations(value: str) -> Iterator[str]:
    """Yield a value and each of its lines, as they are and as a message quotes them."""
    for text in (value, value.strip(), *(line.strip() for line in value.splitlines())):
        quoted = (json.dumps(text), json.dumps(text, ensure_ascii=False), repr(text))
        yield from (text, *(quotation[1:-1] for quotation in quoted))


def _masked(value: Any, pattern: re.Pattern[str]) -> Any:
    if isinstance(value, str):
        return pattern.sub(MASK, value)
    if isinstance(value, Mapping):
        return {key: _masked(part, pattern) for key, part in value.items()}
    return [_masked(part, pattern) for part in value] if isinstance(value, list) else value


# Values of Secrets that stand in other places too

_KINDS_OF_INPUTS: Final = regex(rb"local-config|fn\.kpt\.dev")
_CONFIG: Final = regex(rb"""configPath["']?\s*:\s*["']?(?:\./)?([^\s"'#,}]+)""")
_KIND_LINE: Final = regex(rb"""(?m)^["' {]*kind["']?\s*:""")
_NAME: Final = regex(r"""(?m)^[\s-]*["']?name(?:space)?["']?\s*:\s*["']?([^\s"'#]+)""")
_SECRET_FIELD: Final = regex(
    r"(?i)(?:passw(?:or)?d|passphrase|secret|token|credentials?|(?:api|private|access|secret)[-_.]?key)(?:\[\d+\])?$"
)
_SETTERS: Final = regex(r"""(?m)^(.*?)["']?\s+#\s*kpt-set:(.*)$""")
_SETTER: Final = regex(r"\$\{([^}]*)\}")
_CHECKSUM_FIELD: Final = regex(r"(?i)(?:checksum|hash)[^.\[\]]*\]?$")
_CHECKSUM_LINE: Final = regex(
    r"""(?im)(^[-+ ]?\s*["']?[\w./-]*(?:checksum|hash)[\w./-]*["']?\s*:\s*["']?)[0-9a-f]{32,128}\b"""
)
_WORDS: Final = regex(r"""[^\s"'=:@,;/?&(){}\[\]<>|]{8,}""")
_BASE64: Final = regex(r"[A-Za-z0-9+/_-]{8,}={0,2}")
_LAST_DIGITS: Final = str.maketrans("-_", "+/")
_NO_KEY: Final = r"""(?!["']?[ \t]*:(?:\s|\Z))"""
_CONSTANTS: Final = frozenset({"true", "false", "yes", "no", "on", "off", "null", "none"})
_FOUND: Final[dict[frozenset[tuple[Oid, str]], "SecretValues"]] = {}
_MOST_FOUND: Final = 256


class SecretValues(Struct, frozen=True):
    """Values of the Secrets of a package, and inputs of its functions and charts that are parts of them.

    `whole` are short ones, hidden where they are a whole value. `unclear` are files that spell one in another
    way than it is searched for. In a package with a Secret checksums are hidden too: they may be of it.
    """

    values: tuple[str, ...] = ()
    whole: re.Pattern[str] | None = None
    unclear: frozenset[Oid] = frozenset()
    has_secret: bool = False

    def text(self, text: str) -> str:
        """Return a text about the package, such as the lines of a difference, without these values."""
        for value in self.values:
            if value in text:
                # A word may be a part of another one, or a key.
                text = (
                    re.sub(rf"\b{value}\b{_NO_KEY}", MASK, text)
                    if value.isalpha()
                    else text.replace(value, MASK)
                )
        text = self.whole.sub(rf"\g<1>{MASK}", text) if self.whole else text
        return _CHECKSUM_LINE.sub(rf"\g<1>{MASK}", text) if self.has_secret else text

    def value(self, value: Any) -> Any:
        """Return a value of YAML without these values, also without those in it."""
        match value:
            case Mapping():
                return {key: self.value(part) for key, part in value.items()}
            case list():
                return [self.value(part) for part in value]
            case bool() | None:
                return value
            case _:
                text = str(value)
                masked = self.text(f": {text}").removeprefix(": ")
                return value if masked == text else masked

    def hides_file(self, *files: File | None) -> bool:
        """Tell whether no line of a file may be shown."""
        return any(file is not None and file.oid in self.unclear for file in files)


NO_SECRET_VALUES: Final = SecretValues()


def values_in_secrets(*sides: Files, own_values: OwnValues = _NO_VALUES) -> SecretValues:
    """Return the values of the Secrets of a package on any side, and the inputs that are in them. Total.

    Files of several packages that are equal but for their `own_values` are searched for Secrets once.

    Inputs are in a Kptfile, in the configuration of a function, in what is marked as local, and in files
    without objects, such as the values of a chart. One is secret if it is in a Secret, also in a larger
    text there, or encoded; or if its field has the name of a secret, or of a setter that a Secret names.
    Names of resources are not. A field that is secret on one side is so on all: the functions that write it
    into the Secret may not have run there.
    """
    # What a file is for depends on its path, too: a copy under another name may be no input.
    places = {(file.oid, path): side for side in sides for path, file in identities(side).items()}
    by_oid = {oid: (side, path) for (oid, path), side in places.items()}
    secrets = [oid for oid, (side, path) in by_oid.items() if _decide_at(oid, side, path, own_values)]
    if not secrets:
        return NO_SECRET_VALUES
    key = frozenset(places)
    if key not in _FOUND:
        if len(_FOUND) == _MOST_FOUND:
            _FOUND.clear()
        files = [(path, side[path]) for (_, path), side in places.items()]
        _FOUND[key] = _find_values([by_oid[oid][0][by_oid[oid][1]] for oid in secrets], files)
    return _FOUND[key]


def hides_field(sides: Collection[Files], path: str, field: str, *values: str | None) -> bool:
    """Tell whether a field of a file may not be shown: nothing of a Secret, and no value that is in one."""
    files = [side.get(path) for side in sides]
    if holds_secret(*files):
        return True
    secrets = values_in_secrets(*sides)
    is_checksum = secrets.has_secret and _CHECKSUM_FIELD.search(field) is not None
    return is_checksum or secrets.hides_file(*files) or any(secrets.value(value) != value for value in values)


def _find_values(secrets: Collection[File], files: Collection[tuple[str, File]]) -> SecretValues:
    plain = {text for file in secrets for text in _plain_values(file)}
    in_secrets = "\0".join(form for text in plain for form in _decoded(text, 2))
    configs = tuple(
        name for path, file in files if path.endswith(KPTFILE) for name in _CONFIG.findall(file.data)
    )
    values_by_file = [(path, file, list(_inputs(path, file, configs))) for path, file in files]
    values = [(path, field, text) for path, _, of_file in values_by_file for field, text in of_file]
    names = [name for _, file in files for name in _names(file)]
    in_names = "\0".join(names)

    def is_whole(text: str) -> bool:
        return text in in_secrets if len(text) >= _SHORTEST else text in plain

    secret_fields = {
        (path, field)
        for path, field, text in values
        if text not in in_names and any(map(is_whole, _lines(text)))
    }
    setters = {name for file in secrets for name in _setters(file, plain)}
    for path, field, text in values:
        if (path, field) in secret_fields or not setters.isdisjoint(_field_names(field)):
            plain.add(text)
    inputs = {text for *_, text in values}
    in_inputs = "\0".join(inputs)
    hidden = {line for text in plain for line in _lines(text)}
    hidden |= {word for line in hidden for word in _passwords(line) if word in in_inputs}
    for _, field, text in values:
        is_secret = _SECRET_FIELD.search(field) is not None
        hidden.update(part for part in _lines(text) if is_secret or part in in_secrets)
    long = {text for text in hidden if len(text) >= _SHORTEST and text not in in_names}
    short = (text for text in hidden & plain & inputs if len(text) < _SHORTEST and text not in names)
    unclear = (
        file.oid
        for _, file, of_file in values_by_file
        if any(part in long and not _is_found(part, file) for _, text in of_file for part in _lines(text))
    )
    forms = {form for text in long for form in _forms(text)}
    longest_first = sorted(forms, key=lambda form: (-len(form), form))
    return SecretValues(tuple(longest_first), _pattern_of_whole(short), frozenset(unclear), has_secret=True)


def _setters(file: File, plain: Collection[str]) -> Iterator[str]:
    """Yield the setters of the values of Secrets in a file, and not those of the names beside them."""
    for line, pattern in _SETTERS.findall(file.data.decode(errors="replace")):
        ends = (line.endswith((f" {text}", f'"{text}', f"'{text}")) for text in plain)
        if line.endswith(":") or any(ends):
            yield from _SETTER.findall(pattern)


def _field_names(field: str) -> Iterator[str]:
    """Yield the ends of a path: a name may have dots."""
    parts = field.split(".")
    yield from (".".join(parts[start:]) for start in range(len(parts)))


def _plain_values(file: File) -> Iterator[str]:
    """Yield the values of the Secrets of a file, as they are written and decoded."""
    for secret in _secrets_of_text(file.data, 0, set()):
        yield from map(str, mapping_at(secret, "stringData").values())
        for value in mapping_at(secret, "data").values():
            yield (code := "".join(str(value).split()))
            yield from _from_base64(code)


def _from_base64(code: str) -> Iterator[str]:
    """Yield the text that is encoded so, with either pair of last digits, with or without padding."""
    with suppress(ValueError):
        yield base64.b64decode(
            code.translate(_LAST_DIGITS).rstrip("=") + "=" * (-len(code.rstrip("=")) % 4)
        ).decode()


def _decoded(text: str, levels: int) -> Iterator[str]:
    """Yield a text, and what is encoded in it: in URLs, in quotes, in base64."""
    yield text
    if "%" in text:
        yield unquote(text)
    if "\\" in text:
        yield text.replace('\\"', '"').replace("\\\\", "\\")
    if levels:
        for code in _BASE64.findall(text):
            for inner in _from_base64(code):
                yield from _decoded(inner, levels - 1)


def _inputs(path: str, file: File, configs: tuple[bytes, ...]) -> Iterator[tuple[str, str]]:
    """Yield the inputs of functions and charts in a file, each with the name of its field."""
    is_object = _KIND_LINE.search(file.data) and not _KINDS_OF_INPUTS.search(file.data)
    if path.endswith(KPTFILE) or (path.endswith((*RESOURCE_ENDINGS, ".json")) and not is_object):
        is_input = not holds_secret(file)
    else:
        is_input = path.encode().endswith(configs)
    if is_input:
        with suppress(YamlError):
            for document in load_documents(file.data, PACKAGE_LIMITS):
                yield from _scalars("", document.value)


def _scalars(field: str, value: Any) -> Iterator[tuple[str, str]]:
    """Yield the scalars of a value with their paths, which mappings in a list, such as functions, share."""
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield from _scalars(f"{field}.{key}" if field else str(key), part)
    elif isinstance(value, list):
        for number, part in enumerate(value):
            yield from _scalars(field if isinstance(part, Mapping) else f"{field}[{number}]", part)
    elif isinstance(value, (str, int, float)) and not isinstance(value, bool):
        yield field, str(value)


def _lines(text: str) -> Iterator[str]:
    """Yield the lines of a value that may be searched for."""
    lines = (line.strip() for line in text.splitlines())
    yield from (line for line in lines if line and line.lower() not in _CONSTANTS)


def _passwords(line: str) -> Iterator[str]:
    """Yield what may be a password in an address or a setting, which has the same in another place."""
    for word in _WORDS.findall(line):
        if not word.isalpha() and not word.isdigit():
            yield word


def _forms(text: str) -> set[str]:
    quoted = (json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1], text.replace("'", "''"))
    return {text, *quoted, quote(text, safe="")}


def _is_found(text: str, file: File) -> bool:
    data = file.data.decode(errors="replace")
    return any(form in data for form in _forms(text))


def _names(file: File) -> Iterator[str]:
    if b"name" in file.data:
        yield from _NAME.findall(file.data.decode(errors="replace"))


def _pattern_of_whole(texts: Iterable[str]) -> re.Pattern[str] | None:
    """Return what finds short values where they are all of a field or of an item."""
    any_of = "|".join(sorted(re.escape(text) for text in texts if not text.isdigit()))
    before, after = r"""((?::|^[-+ ]?\s*-)[ \t]+["']?)""", r"""(?=["']?[ \t]*(?:[,}\]\#]|$))"""
    return re.compile(f"{before}(?:{any_of}){after}", re.MULTILINE) if any_of else None
