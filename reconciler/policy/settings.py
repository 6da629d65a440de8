"""Types of settings and the base of their groups: spelling of durations, paths and names on disk."""

import re
from typing import Annotated, NoReturn, TypeVar

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field
from pydantic.alias_generators import to_camel
from pydantic.fields import FieldInfo
from pydantic.json_schema import SkipJsonSchema
from pydantic_core import PydanticCustomError

from reconciler.base.lazy import regex
from reconciler.base.redact import is_token
from reconciler.base.suggestions import parse_boolean

_DURATION = regex(r"(?:(\d+)w)?(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?")
_UNITS_S = (7 * 24 * 3600, 24 * 3600, 3600, 60, 1)
_ENVIRONMENT_NAME = regex(r"[A-Za-z_][A-Za-z0-9_]*")
_PASSWORD = regex(r"^(?:[A-Za-z][A-Za-z0-9+.-]*://)?[^/?#\[\]@]*:(?!//|\d*(?:[/?#]|$)).*@")
_AMOUNT = regex(r"[0-9]{1,6}|([0-9]{1,2}|100)%")


def _seconds(value: object) -> object:
    """Read `7d`, `12h30m` or a plain number of seconds."""
    if not isinstance(value, str) or value.isdigit():
        return value
    match = _DURATION.fullmatch(value)
    if not value or match is None:
        raise ValueError(f"{value!r} is not a duration; write 7d, 12h30m or 90s")
    return sum(int(n) * unit for n, unit in zip(match.groups(default="0"), _UNITS_S, strict=True))


def _boolean(value: object) -> bool:
    """Read a boolean; pydantic would take `on` and `1` for one too, which no other input does."""
    flag = parse_boolean(value)
    if flag is None:
        raise PydanticCustomError("bool_parsing", "Input should be a boolean")
    return flag


def _directory(value: object) -> object:
    return clean_directory(value) if isinstance(value, str) else value


def clean_directory(value: str) -> str:
    """Return a path from the repository's root as policies have it: `.` is the root.

    Raises:
        ValueError: It is no path inside the repository.
    """
    steps = [step for step in value.split("/") if step not in ("", ".")]
    if value.startswith("/") or ".." in steps or "\\" in value:
        raise ValueError(f"{value!r} is not a path inside the repository")
    return "/".join(steps)


def _environment_name(value: object) -> object:
    if isinstance(value, str) and value and not _ENVIRONMENT_NAME.fullmatch(value):
        raise ValueError("this must be the name of an environment variable, never a secret itself")
    return value


def _amount(value: object) -> object:
    """Read a number or a share such as `25%`."""
    if not _AMOUNT.fullmatch(str(value)):
        raise ValueError(f"{value!r} is neither a number nor a share; write 3 or 25%")
    return str(value)


def _no_boolean(value: object) -> object:
    """Refuse `true` as a number: pydantic would take it for one."""
    if isinstance(value, bool):
        raise PydanticCustomError("int_type", "Input should be a number")
    return value


def _no_password(value: str) -> str:
    """Refuse an address with a password, without repeating it: who reads the file has it."""
    user = value.partition("://")[2].rpartition("@")[0]
    if _PASSWORD.match(value) or is_token(user):
        raise ValueError("this address has a password in it: take it out, and name it in credentials")
    return value


def _named(value: object) -> object:
    if value == "":
        raise ValueError("this must not be empty; write . for the whole repository")
    return value


def _at_least_one(text: str) -> str:
    if not int(text.removesuffix("%")):
        raise ValueError(f"with {text} nothing moves; write at least 1 or 1%")
    return text


def matching(pattern: str, description: str) -> tuple[AfterValidator, FieldInfo]:
    """Return the check that a text matches a pattern, which messages call by its description."""
    compiled = re.compile(pattern)

    def check(value: str) -> str:
        if not compiled.search(value):
            raise ValueError(f"{value[:60]!r} is not {description}")
        return value

    return AfterValidator(check), Field(json_schema_extra={"pattern": pattern})


def address(pattern: str, description: str) -> tuple[AfterValidator, AfterValidator, FieldInfo]:
    """Return the checks of an address: it has no password, and matches a pattern."""
    return AfterValidator(_no_password), *matching(pattern, description)


def amount(text: str, of: int, *, up: bool) -> int:
    """Return the number that an `Amount` is: a share of `of` is rounded up or down."""
    if not text.endswith("%"):
        return int(text)
    share = int(text[:-1]) * of
    return -(-share // 100) if up else share // 100


def refuse_field(_: object) -> NoReturn:
    """Refuse a field that only a run sets, like any unknown field."""
    raise PydanticCustomError("unexpected_keyword_argument", "Unexpected keyword argument")


def sorted_set(values: tuple[str, ...]) -> tuple[str, ...]:
    """Return the values sorted, each once."""
    return tuple(sorted(set(values)))


T = TypeVar("T")
Number = BeforeValidator(_no_boolean)
Duration = Annotated[
    int, BeforeValidator(_seconds), Field(ge=0, json_schema_extra={"type": ["integer", "string"]}), Number
]
Flag = Annotated[bool, BeforeValidator(_boolean)]
Directory = Annotated[str, BeforeValidator(_directory)]
VariableName = Annotated[str, BeforeValidator(_environment_name)]
NonEmpty = Annotated[str, Field(min_length=1)]
Prefix = Annotated[NonEmpty, AfterValidator(_no_password)]
"""Beginning of an address of repositories."""
NamedDirectory = Annotated[Directory, BeforeValidator(_named)]
SortedSet = Annotated[tuple[NonEmpty, ...], AfterValidator(sorted_set)]
Label = Annotated[
    str,
    *matching(
        r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$",
        "1 to 63 lower-case letters, digits and dashes, with a letter or digit at both ends",
    ),
]
Share = Annotated[float, Field(ge=0, le=1), Number]
Amount = Annotated[str, BeforeValidator(_amount), Field(json_schema_extra={"type": ["integer", "string"]})]
"""A number, or a share such as `25%`."""
SomeAmount = Annotated[Amount, AfterValidator(_at_least_one)]
Count = Annotated[int, Field(ge=0), Number]
Bound = Annotated[int, Field(ge=1), Number]
Internal = SkipJsonSchema[Annotated[T, BeforeValidator(refuse_field)]]
"""A field that the file cannot set."""

SETTINGS = ConfigDict(alias_generator=to_camel, defer_build=True, extra="forbid", populate_by_name=True)
"""Names on disk are in camelCase, and unknown fields are refused. Numbers may be quoted, as in variables."""


class SettingsGroup:
    """Base of every group of settings."""

    __pydantic_config__ = SETTINGS
