"""CEL as the API server of Kubernetes has it: rules of definitions, and policies of admission.

Opaque types of Kubernetes are bytes with a tag here, in a normal form: equal ones are equal bytes.

Source: apiserver pkg/cel/library: quantity, urls, ip, cidr, regex, lists, semver; cel-go ext: sets.
"""

import base64
import ipaddress
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Context, Decimal
from functools import cache, lru_cache, partial
from itertools import pairwise
from typing import Any, Final
from urllib.parse import parse_qs, quote, urlsplit

from reconciler.base.lazy import regex
from reconciler.base.text import message_line
from reconciler.cel.check import Failure


def _parses(parse: Callable[[str], object], *, pattern: str = "") -> Callable[[str], bool]:
    def check(text: str) -> bool:
        try:
            parse(text)
        except ValueError:
            return False
        return not pattern or re.fullmatch(pattern, text) is not None

    return check


_DURATION: Final = regex(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:ns|us|µs|μs|ms|s|m|h)")
_UNITS: Final = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1, "m": 60, "h": 3600}
_WORDS: Final = regex(r"(\d+)\s*([A-Za-zµ]+)")
_LONG_UNITS: Final = (
    *(("nano", 1e-9), ("micro", 1e-6), ("milli", 1e-3), ("sec", 1), ("min", 60), ("hr", 3600)),
    *(("hour", 3600), ("day", 86_400), ("wk", 604_800), ("week", 604_800)),
)
_SHORT_UNITS: Final = {**_UNITS, "d": 86_400, "w": 604_800}


def parse_duration(text: str) -> timedelta:
    """Return the duration that Go writes as `1h30m`, or that a schema takes as `3 days`.

    Raises:
        ValueError: It is none.

    Source: kube-openapi pkg/validation/strfmt, ParseDuration.
    """
    sign, rest = (-1, text[1:]) if text[:1] == "-" else (1, text.removeprefix("+"))
    parts = _DURATION.findall(rest)
    if rest == "0":
        return timedelta()
    if parts and "".join(parts) == rest:
        units = ((part.rstrip("nuµμmsh"), part[len(part.rstrip("nuµμmsh")) :]) for part in parts)
        return sign * timedelta(seconds=sum(float(number) * _UNITS[unit] for number, unit in units))
    words = [_factor(unit.lower(), int(number)) for number, unit in _WORDS.findall(text)]
    if not re.fullmatch(rf"\s*({_WORDS.pattern}\s*)+", text) or not any(words):
        raise ValueError(f"{text!r} is no duration")
    return timedelta(seconds=sum(words))


def _factor(unit: str, number: int) -> float:
    named = (factor for name, factor in _LONG_UNITS if unit.startswith(name))
    return number * next(named, _SHORT_UNITS.get(unit, 0))


def parse_time(text: str) -> datetime:
    """Return a date, or a time, of RFC 3339.

    Raises:
        ValueError: It is none.
    """
    moment = datetime.fromisoformat(text.upper())
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


_UUID: Final = r"(?i)[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}"
SCHEMA_FORMATS: Final[Mapping[str, Callable[[str], bool]]] = {
    "date-time": _parses(parse_time, pattern=r"(?i).{10}t\d\d:\d\d:\d\d(\.\d+)?(z|[+-]\d\d:\d\d)"),
    "date": _parses(parse_time, pattern=r"\d{4}-\d\d-\d\d"),
    "duration": _parses(parse_duration),
    "byte": _parses(lambda text: base64.b64decode(text, validate=True)),
    "ipv4": _parses(ipaddress.IPv4Address),
    "ipv6": _parses(ipaddress.IPv6Address),
    "cidr": _parses(ipaddress.ip_interface, pattern=r"[^/]+/\d+"),
    "mac": _parses(str, pattern=r"(?i)[0-9a-f]{2}([:-][0-9a-f]{2}){5,7}|([0-9a-f]{4}\.){2,3}[0-9a-f]{4}"),
    "uuid": _parses(str, pattern=_UUID),
    "uri": _parses(str, pattern=r"[A-Za-z][A-Za-z0-9+.-]*:.*|/.*"),
}


_LABEL: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN: Final = rf"{_LABEL}(\.{_LABEL})*"
_VALUE: Final = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_NAMES: Final = {
    "dns1123Label": rf"(?=.{{1,63}}$){_LABEL}",
    "dns1123Subdomain": rf"(?=.{{1,253}}$){_SUBDOMAIN}",
    "dns1035Label": r"(?=.{1,63}$)[a-z]([-a-z0-9]*[a-z0-9])?",
    "qualifiedName": rf"((?=[^/]{{1,253}}/){_SUBDOMAIN}/)?(?=.{{1,63}}$){_VALUE}",
    "labelValue": rf"(?=.{{0,63}}$)({_VALUE})?",
}


def is_formatted(text: str, name: str) -> bool:
    """Tell whether a text has a format of CEL.

    Raises:
        ValueError: There is no such format.
    """
    if check := SCHEMA_FORMATS.get("date-time" if name == "datetime" else name):
        return check(text)
    if name.endswith("Prefix") and len(text) > 1 and text.endswith("-"):
        text = f"{text[:-2]}a"  # what is generated comes after the dash
    if (pattern := _NAMES.get(name.removesuffix("Prefix"))) is None:
        raise ValueError(f"{name!r} is no format")
    return re.fullmatch(pattern, text) is not None


CEL_FORMATS: Final = (
    *(*_NAMES, "dns1123LabelPrefix", "dns1123SubdomainPrefix", "dns1035LabelPrefix"),
    *("uri", "uuid", "byte", "date", "datetime"),
)


RULE: Final = ("self", "oldSelf")
"""The variables of rules of definitions."""
POLICY: Final = ("object", "oldObject", "request", "params", "namespaceObject", "variables")
"""The variables of policies; `authorizer` asks the cluster, so it is none of them."""
_UNDECLARED: Final = regex(r"undeclared reference to '\.?([\w.]+)'")
_MISSING: Final = regex(r"Key not found in map|No such field|no_such_field|No value with name")
_STATUS: Final = regex(r"^[A-Z_]+: ")
_PLACE: Final = regex(r"ERROR: <input>:\d+:\d+: (.*)")
_LONGEST: Final = 200


class Expressions:
    """Expressions with these variables, each compiled once. Nothing of it raises.

    Raises:
        ImportError: cel-expr-python has no wheel for this platform.
    """

    def __init__(self, variables: Sequence[str]) -> None:
        """Load the engine."""
        self._environment = _environment(tuple(variables))
        self._programs: dict[str, Any] = {}

    def compile(self, text: str) -> Any:
        """Return a program, or the failure: it names what is not known here."""
        if text not in self._programs:
            try:
                self._programs[text] = self._environment.compile(text)
            except Exception as error:  # noqa: BLE001 - the binding raises RuntimeError, ValueError and its own
                unknown = _UNDECLARED.search(str(error))
                place = _PLACE.search(str(error))
                why = unknown[1] if unknown else message_line(place[1] if place else str(error))[:_LONGEST]
                self._programs[text] = Failure(why, undeclared=unknown[1] if unknown else "")
        return self._programs[text]

    def bind(self, values: Mapping[str, Any]) -> Any:
        """Convert values once for many evaluations."""
        return self._environment.Activation(values)

    def evaluate(self, program: Any, activation: Any) -> Any:
        """Return the value of a program as plain data, or the failure; `missing` where a key is absent."""
        if isinstance(program, Failure):
            return program
        try:
            value = program.eval(activation=activation)
            kind, plain = value.type().name(), value.plain_value()
        except Exception as error:  # noqa: BLE001 - one bad expression must not end the run
            kind, plain = "ERROR", str(error)
        if kind not in ("ERROR", "UNKNOWN", "*error*", "*unknown*"):
            return plain
        text = _STATUS.sub("", message_line(str(plain)))[:_LONGEST]
        return Failure(text, missing=text if _MISSING.search(text) else "")


@cache
def expressions_of(variables: tuple[str, ...]) -> Expressions | None:
    """Return the expressions with these variables, None where the engine has no wheel for this platform."""
    try:
        return Expressions(variables)
    except ImportError:
        return None


@cache
def _environment(variables: tuple[str, ...]) -> Any:
    from cel_expr_python import cel  # noqa: PLC0415 - it has no wheel for some platforms
    from cel_expr_python.ext import ext_bindings, ext_encoders, ext_math, ext_optional, ext_strings  # noqa: PLC0415 - the same

    types = {
        "s": cel.Type.STRING,
        "b": cel.Type.BOOL,
        "i": cel.Type.INT,
        "d": cel.Type.DOUBLE,
        "o": cel.Type.BYTES,
        "l": cel.Type.List(cel.Type.DYN),
        "x": cel.Type.DYN,
    }
    declared: dict[str, list[Any]] = {}
    for number, (name, shape, implementation) in enumerate(_FUNCTIONS):
        is_member, (taken, result) = shape.startswith("."), shape.lstrip(".").split(">")
        overload = cel.Overload(
            f"k8s_{number}", types[result], [types[letter] for letter in taken], is_member, implementation
        )
        declared.setdefault(name, []).append(overload)
    extensions = [
        ext_strings.ExtStrings(version=2),
        ext_bindings.ExtBindings(),
        ext_encoders.ExtEncoders(),
        ext_math.ExtMath(),
        ext_optional.ExtOptional(),
        cel.CelExtension(
            "kubernetes", [cel.FunctionDecl(name, overloads) for name, overloads in declared.items()]
        ),
    ]
    return cel.NewEnv(variables=dict.fromkeys(variables, cel.Type.DYN), extensions=extensions)


# Functions


def _tag(tag: str, text: object) -> bytes:
    return f"{tag}:{text}".encode()


def _untag(value: bytes, tag: str) -> str:
    kind, _, text = value.decode().partition(":")
    if kind != tag:
        raise ValueError("no such overload")
    return text


_QUANTITY: Final = regex(r"([+-]?(?:\d+(?:\.\d*)?|\.\d+))((?:[eE][+-]?\d+)|(?:[KMGTPE]i)|[numkMGTPE]?)")
SUFFIXES: Final = {
    **{name: Decimal(10) ** (3 * power) for power, name in enumerate(("n", "u", "m", "", "k"), start=-3)},
    **{name: Decimal(10) ** (3 * power) for power, name in enumerate("MGTPE", start=2)},
    **{f"{name}i": Decimal(1024) ** power for power, name in enumerate("KMGTPE", start=1)},
}


def parse_quantity(text: str) -> Decimal:
    """Return the number that a quantity of resources is, such as `1500m` or `2Gi`.

    Raises:
        ValueError: It is none.

    Source: apimachinery pkg/api/resource, ParseQuantity.
    """
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no quantity")
    number, suffix = match.groups()
    return (
        Decimal(number + suffix)
        if suffix[:1] in ("e", "E") and suffix[1:]
        else Decimal(number) * SUFFIXES[suffix]
    )


_EXACT: Final = Context(prec=200)


def _quantity(value: Decimal) -> bytes:
    return _tag("q", value.normalize(_EXACT))


def _number(value: bytes) -> Decimal:
    return Decimal(_untag(value, "q"))


def _compare(first: bytes, second: bytes) -> int:
    """Return the order of two quantities, or of two versions."""
    read: Callable[[bytes], Any] = (
        (lambda value: _order(_untag(value, "v"))) if first[:2] == b"v:" else _number
    )
    sides = read(first), read(second)
    return int(sides[0] > sides[1]) - int(sides[0] < sides[1])


def _integer(value: bytes) -> int:
    number = _number(value)
    if number != number.to_integral_value() or abs(number) >= _INTEGERS:
        raise ValueError("cannot convert value to integer")
    return int(number)


_INTEGERS: Final = 1 << 63
_SEMVER: Final = regex(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]+)?")


def _semver(text: str, *, is_tolerant: bool = False) -> bytes:
    if is_tolerant:  # `v1.02` is 1.2.0
        number = re.split("[-+]", text, maxsplit=1)[0]
        parts = [re.sub(r"^0+(?=\d)", "", part) for part in number.removeprefix("v").split(".")]
        text = ".".join([*parts, *["0"] * (3 - len(parts))]) + text.removeprefix(number)
    if not _SEMVER.fullmatch(text):
        raise ValueError(f"{text!r} is no semantic version")
    return _tag("v", text)


def _order(text: str) -> tuple[Any, ...]:
    match = _SEMVER.fullmatch(text)
    assert match is not None  # noqa: S101 - it was checked when it was made
    parts = match[4].split(".") if match[4] else []
    before = [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in parts]
    return (*map(int, match.groups()[:3]), not before, before)


def _part(value: bytes, index: int) -> int:
    return int(_order(_untag(value, "v"))[index])


def _url(text: str) -> bytes:
    split = urlsplit(text)
    if not (split.scheme and (split.netloc or split.path)) and not text.startswith("/"):
        raise ValueError(f"{text!r} is no URL")
    split.port  # noqa: B018 - it raises ValueError where the port is none
    return _tag("u", text)


_UNESCAPED: Final = "/%:@!$&'()*+,;=~"


def _ip(text: str) -> bytes:
    if "%" in text:
        raise ValueError("an address with a zone is none")
    return str(ipaddress.ip_address(text)).encode()  # no tag: `string` shows it


def _address(value: bytes) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    return ipaddress.ip_address(value.decode())


def _is_global_unicast(value: bytes) -> bool:
    address = _address(value)
    is_special = address.is_unspecified or address.is_loopback or address.is_multicast
    return not (is_special or address.is_link_local or str(address) == "255.255.255.255")


def _cidr(text: str) -> bytes:
    if "/" not in text:
        raise ValueError(f"{text!r} is no CIDR")
    return ipaddress.ip_interface(text).with_prefixlen.encode()  # no tag: `string` shows it


def _network(value: bytes) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    return ipaddress.ip_interface(value.decode()).network


def _contains(value: bytes, other: bytes | str) -> bool:
    inside = _address(_ip(other) if isinstance(other, str) else other)
    return inside in _network(value)


def _contains_cidr(value: bytes, other: bytes | str) -> bool:
    outer, inner = _network(value), _network(_cidr(other) if isinstance(other, str) else other)
    return type(outer) is type(inner) and inner.subnet_of(outer)  # type: ignore[arg-type]


def _slice(values: Sequence[Any], start: int, end: int) -> Sequence[Any]:
    if not 0 <= start <= end <= len(values):
        raise ValueError(f"cannot slice({start}, {end}), list is length {len(values)}")
    return values[start:end]


def _flatten(values: Sequence[Any], depth: int = 1) -> list[Any]:
    if depth < 0:
        raise ValueError("level must be non-negative")
    parts = (_flatten(v, depth - 1) if isinstance(v, list) and depth else [v] for v in values)
    return [value for part in parts for value in part]


def _sum(values: Sequence[Any]) -> Any:
    if not all(isinstance(value, int | float) for value in values):
        raise ValueError("no such overload")
    total = sum((Decimal(str(value)) for value in values), Decimal(0))
    return float(total) if any(isinstance(value, float) for value in values) else int(total)


def _subset(outer: Sequence[Any], inner: Sequence[Any]) -> bool:
    return all(value in outer for value in inner)


def _find(text: str, pattern: str) -> str:
    match = find_pattern(pattern).search(text)
    return str(match.group(0)) if match is not None else ""


def _find_all(text: str, pattern: str, most: int = -1) -> list[str]:
    matches = [match.group(0) for match in find_pattern(pattern).finditer(text)]
    return matches if most < 0 else matches[:most]


_NO_FORMAT: Final = _tag("f", "")


def _format_faults(value: bytes, text: str) -> list[str]:
    name = _untag(value, "f")
    return [] if is_formatted(text, name) else [f"must be of format {name}"]


@lru_cache(maxsize=4096)
def find_pattern(text: str) -> Any:
    """Return a compiled regular expression of Go.

    Raises:
        ValueError: It is none.
    """
    import re2  # noqa: PLC0415 - few schemas have any

    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(text, options)
    except re2.error as error:
        raise ValueError(f"{text!r} is no regular expression: {error}") from error


_FUNCTIONS: Final[tuple[tuple[str, str, Callable[..., Any]], ...]] = (
    ("quantity", "s>o", lambda text: _quantity(parse_quantity(text))),
    ("isQuantity", "s>b", _parses(parse_quantity)),
    ("isInteger", ".o>b", _parses(_integer)),  # type: ignore[arg-type]
    ("asInteger", ".o>i", _integer),
    ("asApproximateFloat", ".o>d", lambda value: float(_number(value))),
    ("sign", ".o>i", lambda value: (_number(value) > 0) - (_number(value) < 0)),
    ("add", ".oo>o", lambda a, b: _quantity(_EXACT.add(_number(a), _number(b)))),
    ("add", ".oi>o", lambda a, b: _quantity(_EXACT.add(_number(a), b))),
    ("sub", ".oo>o", lambda a, b: _quantity(_EXACT.subtract(_number(a), _number(b)))),
    ("sub", ".oi>o", lambda a, b: _quantity(_EXACT.subtract(_number(a), b))),
    ("isLessThan", ".oo>b", lambda a, b: _compare(a, b) < 0),
    ("isGreaterThan", ".oo>b", lambda a, b: _compare(a, b) > 0),
    ("compareTo", ".oo>i", _compare),
    ("semver", "s>o", _semver),
    ("semver", "sb>o", lambda text, is_tolerant: _semver(text, is_tolerant=is_tolerant)),
    ("isSemver", "s>b", _parses(_semver)),
    ("isSemver", "sb>b", lambda text, is_tolerant: _parses(partial(_semver, is_tolerant=is_tolerant))(text)),
    ("major", ".o>i", lambda value: _part(value, 0)),
    ("minor", ".o>i", lambda value: _part(value, 1)),
    ("patch", ".o>i", lambda value: _part(value, 2)),
    ("url", "s>o", _url),
    ("isURL", "s>b", _parses(_url)),
    ("getScheme", ".o>s", lambda value: urlsplit(_untag(value, "u")).scheme),
    ("getHost", ".o>s", lambda value: urlsplit(_untag(value, "u")).netloc.rpartition("@")[2]),
    ("getHostname", ".o>s", lambda value: urlsplit(_untag(value, "u")).hostname or ""),
    ("getPort", ".o>s", lambda value: str(urlsplit(_untag(value, "u")).port or "")),
    ("getEscapedPath", ".o>s", lambda value: quote(urlsplit(_untag(value, "u")).path, _UNESCAPED)),
    ("getQuery", ".o>x", lambda value: parse_qs(urlsplit(_untag(value, "u")).query, keep_blank_values=True)),
    ("ip", "s>o", _ip),
    ("isIP", "s>b", _parses(_ip)),
    ("ip.isCanonical", "s>b", lambda text: str(_address(_ip(text))) == text),
    ("family", ".o>i", lambda value: _address(value).version),
    ("isUnspecified", ".o>b", lambda value: _address(value).is_unspecified),
    ("isLoopback", ".o>b", lambda value: _address(value).is_loopback),
    ("isLinkLocalMulticast", ".o>b", lambda value: str(_address(value)).startswith(("224.0.0.", "ff02:"))),
    ("isLinkLocalUnicast", ".o>b", lambda value: _address(value).is_link_local),
    ("isGlobalUnicast", ".o>b", _is_global_unicast),
    ("cidr", "s>o", _cidr),
    ("isCIDR", "s>b", _parses(_cidr)),
    ("containsIP", ".oo>b", _contains),
    ("containsIP", ".os>b", _contains),
    ("containsCIDR", ".oo>b", _contains_cidr),
    ("containsCIDR", ".os>b", _contains_cidr),
    ("ip", ".o>o", lambda value: str(ipaddress.ip_interface(value.decode()).ip).encode()),
    ("masked", ".o>o", lambda value: _network(value).with_prefixlen.encode()),
    ("prefixLength", ".o>i", lambda value: _network(value).prefixlen),
    ("find", ".ss>s", _find),
    ("findAll", ".ss>l", _find_all),
    ("findAll", ".ssi>l", _find_all),
    ("isSorted", ".l>b", lambda values: all(not later < value for value, later in pairwise(values))),
    ("sum", ".l>x", _sum),
    ("min", ".l>x", min),
    ("max", ".l>x", max),
    ("indexOf", ".lx>i", lambda values, value: values.index(value) if value in values else -1),
    (
        "lastIndexOf",
        ".lx>i",
        lambda values, value: max((i for i, v in enumerate(values) if v == value), default=-1),
    ),
    ("distinct", ".l>l", lambda values: [v for i, v in enumerate(values) if v not in values[:i]]),
    ("slice", ".lii>l", _slice),
    ("reverse", ".l>l", lambda values: values[::-1]),
    ("sort", ".l>l", sorted),
    ("flatten", ".l>l", _flatten),
    ("flatten", ".li>l", _flatten),
    ("lists.range", "i>l", lambda size: [*range(size)]),
    # An optional list of faults is that list, empty where there are none.
    *((f"format.{name}", ">o", partial(_tag, "f", name)) for name in CEL_FORMATS),
    ("format.named", "s>o", lambda name: _tag("f", name) if name in CEL_FORMATS else _NO_FORMAT),
    ("hasValue", ".o>b", lambda value: value != _NO_FORMAT),
    ("value", ".o>o", lambda value: value),
    ("validate", ".os>l", _format_faults),
    ("hasValue", ".l>b", bool),
    ("value", ".l>l", lambda faults: faults),
    ("sets.contains", "ll>b", _subset),
    ("sets.equivalent", "ll>b", lambda a, b: _subset(a, b) and _subset(b, a)),
    ("sets.intersects", "ll>b", lambda a, b: any(value in a for value in b)),
)
"""Name, types and implementation of each overload: a dot before what a method takes, `>` before the result.

s string, b bool, i int, d double, o an opaque type, l a list, x anything.
"""
