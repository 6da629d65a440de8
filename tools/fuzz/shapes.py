"""Odd shapes: a valid sample of JSON or YAML, with odd values in a few of its places.

What breaks readers is seldom a changed byte; it is a list for a mapping, a number without an end, a key that
is there twice. An input may have several parts, each a line and what follows it: all of them are drawn from.
"""

import json
import random
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import yaml

SEPARATOR = b"\n=====\n"
_LOADER = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
_MOST_BYTES, _MOST_REPEATED = 1 << 20, 1 << 16


class Text(str):
    """Text that is written as it is: what no value of Python can say."""

    __slots__ = ()


class _Pairs(NamedTuple):
    """A mapping that has a key twice."""

    items: tuple[tuple[Any, Any], ...]


_HUGE = 10**400
ODD: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 7, 1 << 31, 1 << 63, -(1 << 64), _HUGE, 0.1, 1e300),
    *map(Text, ("NaN", "-Infinity", "1e999", "-0.0", "1" + "0" * 5000, '"\\ud800"', '"\\udc00\\ud800"', "")),
    *map(Text, ("[" * 90 + "]" * 90, "[" * 2000 + "]" * 2000, '{"a":' * 300 + "1" + "}" * 300)),
    *map(
        Text, ("&a [*a]", "&a {b: 1, <<: *a}", "!!binary x", "!!set {a}", "*b", "? [a]\n: b", "|9\n a", "---")
    ),
    *("", " ", "\0", "\x1b[31m", "\u202e", "\ufeff", "\u00df" * 300),
    *("a" * 70_000, "a." * 5000, "-" * 5000, "::" * 3000, "9" * 5000, "1." * 400, f"1.{'0' * 5000}.0"),
    *(f"https://h/x?{'&ref=a' * 9000}#", "\u00b2"),
    *[
        "null",
        "~",
        "no",
        "1",
        "0x1",
        "1e3",
        "1_0",
        "2026-01-02",
        "=",
        "<<",
        "*",
        "&a",
        "{{.x}}",
        "${A}",
        "%",
        "%zz",
    ],
    *["0001-01-01T00:00:00Z", "9999-12-31T23:59:59-23:59", "2026-02-31T25:61:61Z", "now", "1970-01-01"],
    *[
        "//[",
        "https://[::1",
        "https://u:p@h:99999/..",
        "http://h\\@x/",
        "?page=2",
        "file:///",
        "git@h:",
        "../..",
        "/",
        ".",
    ],
    *("v1.2.3-0-0+a+b", ">= 1 <", "^", "^1 || ~2 ,", "sha256:", f"a:b@sha256:{'0' * 64}"),
    *([], {}, [None], [[]], [{}], {"": None}, {"a": {"a": {"a": {}}}}, [0, "a", None, {}], {"name": []}),
)
"""What stands where something else is expected."""


def drawn(draw: random.Random, pool: list[bytes]) -> bytes:
    """Return an input of the pool with an odd shape in one of its parts, if any of them has a shape."""
    parts = draw.choice(pool).split(SEPARATOR)
    for _ in range(draw.choice((1, 1, 1, 2))):
        at = draw.randrange(len(parts))
        parts[at] = _part(draw, parts[at]) or parts[at]
        if draw.random() < 0.1:
            parts.insert(at, draw.choice(parts))
    return SEPARATOR.join(parts)[:_MOST_BYTES]


def _part(draw: random.Random, part: bytes) -> bytes | None:
    """Return a part with an odd shape: of all of it, or of its first line or what follows that."""
    head, newline, rest = part.partition(b"\n")
    for text, before, after in draw.sample([(head, b"", newline + rest), (rest, head + newline, b"")], 2):
        if not rest or not head.startswith((b"{", b"^", b">")):
            break
        if (odd := _odd_text(draw, text)) is not None:
            return before + odd.replace(b"\n", b" " if after else b"\n") + after
    return _odd_text(draw, part)


def _odd_text(draw: random.Random, text: bytes) -> bytes | None:
    sample = _parsed(text)
    if not sample:
        return None
    at = draw.randrange(len(sample))
    write = draw.choice((to_json, to_yaml)) if text[:1] not in (b"{", b"[") else to_json
    with suppress(RecursionError):  # an odd shape of before: a list in itself, or too many in one another
        sample[at] = oddly(draw, sample[at])
        return b"\n---\n".join(write(value).encode("utf-8", "surrogatepass") for value in sample)
    return None


def _parsed(text: bytes) -> list[Any]:
    """Return the documents of a sample: collections only, as there is no place in anything else."""
    try:
        documents = [json.loads(text)]
    except (ValueError, RecursionError):
        try:
            documents = list(yaml.load_all(text[:100_000], _LOADER))
        except (yaml.YAMLError, UnicodeError, ValueError, RecursionError):
            return []
    return [each for each in documents if isinstance(each, dict | list)]


def oddly(draw: random.Random, value: Any) -> Any:
    """Return a copy of a value with one to three odd places."""
    for _ in range(draw.choice((1, 1, 2, 3))):
        places = list(_places(value))
        path = draw.choice(places)
        value = _changed(value, path, _odd(draw, _at(value, path), places, value))
    return value


def _odd(  # noqa: PLR0911 - a line each
    draw: random.Random, old: Any, places: list[tuple[Any, ...]], whole: Any
) -> Any:
    match draw.randrange(10):
        case 0:
            return [old]
        case 1:
            return {draw.choice(("a", "name", "", "<<")): old}
        case 2:
            return _at(whole, draw.choice(places))
        case 3 if isinstance(old, dict) and old:
            key = draw.choice(list(old))
            return {k: v for k, v in old.items() if k != key}
        case 4 if isinstance(old, dict) and old:
            key, value = draw.choice(list(old.items()))
            return _Pairs((*old.items(), (key, draw.choice((value, draw.choice(ODD))))))
        case 5 if isinstance(old, dict) and old:
            value = draw.choice(list(old.values()))
            return old | {str(draw.choice(ODD)): value} | {draw.choice(list(old)): draw.choice(ODD)}
        case 6 if isinstance(old, list) and old:
            item = draw.choice(old)
            return [item] * min(draw.choice((2, 40, 1500)), 2 + _MOST_REPEATED // len(to_json(item) or " "))
        case 7 if isinstance(old, str):
            return draw.choice(
                (
                    old * 2,
                    old * min(3000, 2 + _MOST_REPEATED // (len(old) or 1)),
                    old[:-1],
                    old.upper(),
                    f"{old}\n",
                    f"{old}\0",
                    f" {old}",
                )
            )
        case _:
            return draw.choice(ODD)


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    children: Iterable[tuple[Any, Any]] = value.items() if isinstance(value, dict) else ()
    if isinstance(value, list):
        children = enumerate(value[:50])
    for key, child in children:
        yield from _places(child, (*path, key))


def _at(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


def _changed(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = _changed(value[path[0]], path[1:], new)
    return copy


def to_json(value: Any) -> str:
    """Return a value as JSON, or nearly so."""
    match value:
        case Text():
            return str(value)
        case _Pairs() | dict():
            items = value.items if isinstance(value, _Pairs) else value.items()
            return "{" + ", ".join(f"{to_json(str(key))}: {to_json(each)}" for key, each in items) + "}"
        case list():
            return "[" + ", ".join(map(to_json, value)) + "]"
        case int() if not isinstance(value, bool):
            return str(value)
        case _:
            return json.dumps(value)


def to_yaml(value: Any, indent: str = "\n") -> str:
    """Return a value as YAML in blocks, with texts as they are where they are plain."""
    inner = f"{indent}  "
    match value:
        case Text():
            return str(value)
        case _Pairs() | dict() if value:
            items = value.items if isinstance(value, _Pairs) else value.items()
            lines = (f"{_plain(str(key))}: {to_yaml(each, inner)}" for key, each in items)
            return indent + indent.join(lines)
        case list() if value:
            return indent + indent.join(f"- {to_yaml(each, inner)}" for each in value)
        case str():
            return _plain(value)
        case _:
            return to_json(value)


def _plain(text: str) -> str:
    return text if text.replace("/", "").replace(".", "").replace("-", "").isalnum() else json.dumps(text)
