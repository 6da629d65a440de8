"""Formats of texts that the API server knows: those of schemas, and those of CEL. Pure.

Source: kube-openapi pkg/validation/strfmt; apiserver pkg/cel/library/format.go.
"""

import base64
import binascii
import ipaddress
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final


def _parses(parse: Callable[[str], object], *, pattern: str = "") -> Callable[[str], bool]:
    def check(text: str) -> bool:
        try:
            parse(text)
        except (ValueError, binascii.Error):
            return False
        return not pattern or re.fullmatch(pattern, text) is not None

    return check


_DURATION: Final = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:ns|us|µs|μs|ms|s|m|h)")
_UNITS: Final = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1, "m": 60, "h": 3600}
_WORDS: Final = re.compile(r"(\d+)\s*([A-Za-zµ]+)")
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
