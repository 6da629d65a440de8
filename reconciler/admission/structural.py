"""Structural schemas of CustomResourceDefinitions: defaults, pruning, validation, and rules in CEL.

Source: apiextensions-apiserver pkg/apiserver/schema (defaulting, pruning, listtype, cel), kube-openapi.
"""

import base64
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, Final

import orjson

from reconciler.admission.defaults import field, items
from reconciler.admission.immutable import Fault
from reconciler.base.lazy import regex
from reconciler.cel.check import Failure
from reconciler.cel.kubernetes import (
    RULE,
    SCHEMA_FORMATS,
    expressions_of,
    find_pattern,
    parse_duration,
    parse_time,
)

Schema = Mapping[str, Any]
_UNSET: Final = object()
_PRESERVE: Final = "x-kubernetes-preserve-unknown-fields"
_INT_OR_STRING: Final = "x-kubernetes-int-or-string"
_RULES: Final = "x-kubernetes-validations"
_LIST_TYPE: Final = "x-kubernetes-list-type"
_UNORDERED: Final = ("set", "map")
_SORTED: Final = orjson.OPT_SORT_KEYS
_OF_OBJECTS: Final = frozenset({"apiVersion", "kind", "metadata"})
_TYPES: Final[Mapping[str, Callable[[Any], bool]]] = {
    "object": lambda value: isinstance(value, Mapping),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: _is_number(value) and (isinstance(value, int) or value.is_integer()),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
}
_SIZES: Final = {str: ("Length", "characters"), list: ("Items", "items"), dict: ("Properties", "properties")}
_RESERVED: Final = frozenset(
    {
        *("true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if"),
        *("import", "let", "loop", "package", "namespace", "return", "var", "void", "while"),
    }
)
_IDENTIFIER: Final = regex(r"[A-Za-z_][A-Za-z0-9_]*")
_ESCAPES: Final = (("__", "__underscores__"), (".", "__dot__"), ("-", "__dash__"), ("/", "__slash__"))


class Structural:
    """The schema of one version of a kind; a status that has its own endpoint is not part of a request."""

    def __init__(self, schema: Schema, *, has_own_status: bool = False) -> None:
        """Take an `openAPIV3Schema`."""
        self._schema, self._left = schema, frozenset({"status"} if has_own_status else ())

    @property
    def of_files(self) -> "Structural":
        """The same schema for a file, of which a status is a part."""
        return Structural(self._schema)

    def complete(self, value: Mapping[str, Any]) -> dict[str, Any]:
        """Return an object as it is stored: without unknown fields, with defaults."""
        parts = {key: part for key, part in value.items() if key not in self._left}
        done: dict[str, Any] = complete(self._schema, parts, is_root=True)
        return {key: part for key, part in done.items() if key not in self._left}

    def find_faults(self, old: Mapping[str, Any] | None, new: Mapping[str, Any]) -> Iterator[Fault]:
        """Yield the faults of an object, or of its update; of rules only where all else fits.

        A part that an update leaves as it is passes (ratcheting).

        Raises:
            ValueError: The schema has a pattern that is none.
        """
        before = self.complete(old) if old is not None else _UNSET
        after = self.complete(new)
        faults = list(_validate(self._schema, after, before, ""))
        yield from faults or _rules(self._schema, after, before, "")


def schemas_of(definition: Mapping[str, Any]) -> Iterator[tuple[str, Structural]]:
    """Yield the name and the schema of each version of a definition's spec that has one."""
    for version in items(definition, "versions"):
        schema = field(version, "schema", "openAPIV3Schema")
        if isinstance(schema, Mapping):
            has_own_status = field(version, "subresources", "status") is not None
            yield str(version.get("name")), Structural(schema, has_own_status=has_own_status)


# Defaults and pruning


def complete(schema: Schema, value: Any, *, is_root: bool = False) -> Any:
    """Return a value as it is stored: without unknown fields, with defaults. Total."""
    if isinstance(value, dict):
        return _complete_object(schema, value, is_root=is_root)
    if isinstance(value, list) and ("items" in schema or schema.get(_PRESERVE) is not True):
        members = _mapping(schema.get("items"))
        is_nullable, default = members.get("nullable") is True, members.get("default")
        return [complete(members, default if part is None and not is_nullable else part) for part in value]
    return value


def _complete_object(schema: Schema, value: Mapping[str, Any], *, is_root: bool) -> dict[str, Any]:
    properties, additional = _mapping(schema.get("properties")), schema.get("additionalProperties")
    fixed_fields = (
        _OF_OBJECTS if is_root or schema.get("x-kubernetes-embedded-resource") is True else frozenset()
    )
    done: dict[str, Any] = {}
    for key, part in value.items():
        part_schema = properties.get(key, additional)
        if key in fixed_fields:
            done[key] = part
        elif isinstance(part_schema, dict):
            if part is not None or part_schema.get("nullable") is True:
                done[key] = complete(part_schema, part)
            elif key not in properties and part_schema.get("default") is not None:
                done[key] = complete(part_schema, part_schema["default"])
        elif schema.get(_PRESERVE) is True:
            done[key] = part
        elif isinstance(additional, bool):
            done[key] = complete({}, part)  # it keeps fields, and nothing in them
    for key, part_schema in properties.items():
        if key not in done and isinstance(part_schema, dict) and part_schema.get("default") is not None:
            done[key] = complete(part_schema, part_schema["default"])
    return done


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


# Validation


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _validate(schema: Schema, value: Any, old: Any, path: str) -> Iterator[Fault]:
    if old is not _UNSET and _same(value, old):
        return
    if value is None and schema.get("nullable") is True and value in schema.get("enum", (None,)):
        return
    if schema.get(_INT_OR_STRING) is True:
        if not isinstance(value, str) and not _TYPES["integer"](value):
            yield Fault(path, "must be an integer or a string")
            return
    elif (kind := str(schema.get("type"))) in _TYPES and not _TYPES[kind](value):
        yield Fault(path, f"must be of type {kind}")
        return
    yield from (Fault(path, reason) for reason in _reasons(schema, value))
    if isinstance(value, dict):
        yield from _validate_object(schema, value, old, path)
    elif isinstance(value, list):
        members = schema.get("items")
        if isinstance(members, Mapping):
            for index, (part, before) in enumerate(_correlated(schema, value, old)):
                yield from _validate(members, part, before, f"{path}[{index}]")


def _validate_object(schema: Schema, value: Mapping[str, Any], old: Any, path: str) -> Iterator[Fault]:
    for key in schema.get("required") or ():
        if key not in value:
            yield Fault(_join(path, key), "Required value")
    for key, part in value.items():
        part_schema = _property(schema, key)
        if part_schema is not None and not (not path and key in _OF_OBJECTS and key != "metadata"):
            before = old.get(key, _UNSET) if isinstance(old, Mapping) else _UNSET
            yield from _validate(part_schema, part, before, _join(path, key))


def _property(schema: Schema, key: str) -> Schema | None:
    """Return the schema of a field of an object."""
    part_schema = _mapping(schema.get("properties")).get(key, schema.get("additionalProperties"))
    return part_schema if isinstance(part_schema, dict) else None


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _fits(schema: Schema, value: Any) -> bool:
    return next(_validate(schema, value, _UNSET, ""), None) is None


def _reasons(schema: Schema, value: Any) -> Iterator[str]:  # noqa: C901, PLR0912 - a table of keywords
    """Yield why a value of the right type does not fit, its parts apart."""
    if "enum" in schema and value not in schema["enum"]:
        yield f"supported values: {', '.join(orjson.dumps(v).decode() for v in schema['enum'])}"
    if isinstance(value, str | list | Mapping):
        name, noun = _SIZES[type(value) if isinstance(value, str | list) else dict]
        if len(value) < (least := schema.get(f"min{name}", 0)):
            yield f"should have at least {least} {noun}"
        if len(value) > (most := schema.get(f"max{name}", len(value))):
            yield f"should have at most {most} {noun}"
    if isinstance(value, str):
        if isinstance(pattern := schema.get("pattern"), str) and not find_pattern(pattern).search(value):
            yield f"should match '{pattern}'"
        if (check := SCHEMA_FORMATS.get(str(schema.get("format")))) is not None and not check(value):
            yield f"must be of format {schema['format']}"
    elif _is_number(value):
        yield from _number_reasons(schema, value)
    elif isinstance(value, list) and (key := _duplicate(schema, value)) is not None:
        yield f"Duplicate value: {key}"
    if not all(_fits(part, value) for part in schema.get("allOf") or ()):
        yield "must validate all the schemas (allOf)"
    if (parts := schema.get("anyOf")) and not any(_fits(part, value) for part in parts):
        yield "must validate at least one schema (anyOf)"
    if (parts := schema.get("oneOf")) and sum(_fits(part, value) for part in parts) != 1:
        yield "must validate one and only one schema (oneOf)"
    if isinstance(part := schema.get("not"), Mapping) and part and _fits(part, value):
        yield "must not validate the schema (not)"


def _number_reasons(schema: Schema, value: float) -> Iterator[str]:
    for name, sign, text in ("Minimum", 1, "greater"), ("Maximum", -1, "less"):
        bound, is_exclusive = schema.get(name.lower()), schema.get(f"exclusive{name}") is True
        if bound is not None and (sign * (value - bound) < 0 or (is_exclusive and value == bound)):
            yield f"should be {text} than {'' if is_exclusive else 'or equal to '}{bound}"
    factor = schema.get("multipleOf")
    if factor and abs(value / factor - round(value / factor)) > 1e-9:  # noqa: PLR2004 - as kube-openapi rounds
        yield f"should be a multiple of {factor}"
    bits = {"int32": 31, "int64": 63}.get(str(schema.get("format")))
    if bits is not None and not -(2**bits) <= value < 2**bits:
        yield f"must be of format {schema['format']}"


def _duplicate(schema: Schema, value: list[Any]) -> str | None:
    """Return a member that a list has twice, None if it has none or may."""
    if schema.get(_LIST_TYPE) not in _UNORDERED and schema.get("uniqueItems") is not True:
        return None
    seen = set()
    for text in (_key(schema, part) for part in value):
        if text in seen:
            return text
        seen.add(text)
    return None


def _key(schema: Schema, part: Any) -> str:
    """Return by what a member of a list is known: the fields that name it, or all of it."""
    keys = schema.get("x-kubernetes-list-map-keys") or ()
    is_named = schema.get(_LIST_TYPE) == "map" and isinstance(part, Mapping)
    return orjson.dumps({key: part.get(key) for key in keys} if is_named else part, option=_SORTED).decode()


def _same(value: Any, old: Any) -> bool:
    return bool(value == old and type(value) is type(old))


def _correlated(schema: Schema, value: list[Any], old: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the members of a list, each with that of the old list of its keys, or of an equal list."""
    if _same(value, old):
        yield from zip(value, value, strict=True)
        return
    if not isinstance(old, list) or schema.get(_LIST_TYPE) != "map":
        yield from ((part, _UNSET) for part in value)
        return
    by_keys = {_key(schema, part): part for part in old}
    yield from ((part, by_keys.get(_key(schema, part), _UNSET)) for part in value)


def _aligned(schema: Schema, old: Any, new: Any) -> Any:
    """Return an old value with sets and maps of objects in the order of the new ones: theirs is none."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        return {key: _aligned(_property(schema, key) or {}, part, new.get(key)) for key, part in old.items()}
    if not isinstance(old, list) or not isinstance(new, list) or schema.get(_LIST_TYPE) not in _UNORDERED:
        return old
    places = {_key(schema, part): place for place, part in enumerate(new)}
    order = [(places.get(_key(schema, part), len(new)), part) for part in old]
    members, rest = _mapping(schema.get("items")), [*new, None]
    return [_aligned(members, part, rest[place]) for place, part in sorted(order, key=lambda pair: pair[0])]


# Rules


@lru_cache(maxsize=4096)
def _uses_old(text: str) -> bool:
    return re.search(r"\boldSelf\b", text) is not None


def _rules(schema: Schema, value: Any, old: Any, path: str, nested: Sequence[Schema] = ()) -> Iterator[Fault]:
    """Yield the rules that fail; `nested` is what `allOf` of its parents has for a value."""
    if value is None or not (nested or has_rules(schema)):
        return
    parts = [schema, *_with_all_of(nested), *_with_all_of(items(schema, "allOf"))]
    is_unchanged = old is not _UNSET and _same(value, old)
    due = []
    for rule in (rule for part in parts for rule in items(part, _RULES)):
        is_transition = _uses_old(str(rule.get("rule")))
        has_sides = old is not _UNSET or rule.get("optionalOldSelf") is True
        if has_sides if is_transition else not is_unchanged:
            due.append(rule)
    if due:
        yield from _evaluated(due, schema, value, old, path)
    if isinstance(value, Mapping):
        for key, part in value.items():
            part_schema, *others = (_property(beside, key) for beside in parts)
            if part_schema is not None:
                before = old.get(key, _UNSET) if isinstance(old, Mapping) else _UNSET
                yield from _rules(part_schema, part, before, _join(path, key), [*filter(None, others)])
    members = schema.get("items")
    if isinstance(value, list) and isinstance(members, Mapping):
        more = [beside["items"] for beside in parts[1:] if isinstance(beside.get("items"), Mapping)]
        for index, (part, before) in enumerate(_correlated(schema, value, old)):
            yield from _rules(members, part, before, f"{path}[{index}]", more)


def _with_all_of(parts: Iterable[Schema]) -> Iterator[Schema]:
    for part in parts:
        yield part
        yield from _with_all_of(items(part, "allOf"))


_ANYWHERE: dict[tuple[int, str], tuple[Schema, bool]] = {}


def has_rules(schema: Schema) -> bool:
    """Tell whether a schema has rules anywhere: most parts have none, and need no look at their values."""
    return _is_anywhere(schema, _RULES, bool)


def _is_anywhere(schema: Schema, keyword: str, is_meant: Callable[[Any], bool]) -> bool:
    if (id(schema), keyword) not in _ANYWHERE:
        parts = [
            *_mapping(schema.get("properties")).values(),
            schema.get("items"),
            schema.get("additionalProperties"),
            *items(schema, "allOf"),
        ]
        is_any = is_meant(schema.get(keyword)) or any(
            _is_anywhere(part, keyword, is_meant) for part in parts if isinstance(part, Mapping)
        )
        _ANYWHERE[id(schema), keyword] = (
            schema,
            is_any,
        )  # it keeps the schema, so that no other one gets its id
    return _ANYWHERE[id(schema), keyword][1]


def _evaluated(due: Sequence[Schema], schema: Schema, value: Any, old: Any, path: str) -> Iterator[Fault]:
    expressions = expressions_of(RULE)
    if expressions is None:
        yield Fault(path, "its rules need CEL, which this platform has not", is_sure=False)
        return
    before = _UNSET if old is _UNSET else _aligned(schema, old, value)
    sides = {"self": to_cel(schema, value), "oldSelf": None if old is _UNSET else to_cel(schema, before)}
    activation, typed = expressions.bind(sides), "{}"
    if _is_anywhere(schema, "format", _TIMES.__contains__):
        for name, side in ("self", value), ("oldSelf", before):
            if side is not _UNSET and (cast := _cast(schema, side, name)):
                typed = typed.replace("{}", f"cel.bind({name}, {cast}, {{}})")
    for rule in due:
        text, program = str(rule.get("rule")), typed
        if rule.get("optionalOldSelf") is True:
            wrapped = "optional.none()" if old is _UNSET else "optional.of(oldSelf)"
            program = typed.replace("{}", f"cel.bind(oldSelf, {wrapped}, {{}})")
        result = expressions.evaluate(expressions.compile(program.replace("{}", text)), activation)
        if result is True:
            continue
        if result is not False:
            why = result.message if isinstance(result, Failure) else "its result is no boolean"
            yield Fault(path, f"rule {text!r} cannot be judged: {why}", is_sure=False)
            continue
        message = str(rule.get("message") or "") or f"failed rule: {' '.join(text.split())}"
        if isinstance(rule.get("messageExpression"), str):
            computed = expressions.evaluate(
                expressions.compile(program.replace("{}", rule["messageExpression"])), activation
            )
            message = computed if isinstance(computed, str) and computed.strip() else message
        yield Fault(path + str(rule.get("fieldPath") or ""), message)


def to_cel(schema: Schema, value: Any) -> Any:
    """Return a value with the types and the names of fields that rules see; times and durations are texts.

    A known field that is null is as one that is absent.
    """
    if isinstance(value, Mapping):
        properties = _mapping(schema.get("properties"))
        return {
            _escaped(key) if key in properties else key: to_cel(_property(schema, key) or {}, part)
            for key, part in value.items()
            if part is not None or key not in properties
        }
    if isinstance(value, list):
        members = _mapping(schema.get("items"))
        return [to_cel(members, part) for part in value]
    kind, form = schema.get("type"), schema.get("format")
    if kind == "number" and _is_number(value):
        return float(value)
    if kind == "integer" and isinstance(value, float):
        return int(value)
    if isinstance(value, str) and form in _TEXTS:
        with suppress(ValueError):
            return _TEXTS[form](value)
    return value


_TIMES: Final[Mapping[Any, str]] = {"date-time": "timestamp", "date": "timestamp", "duration": "duration"}
_TEXTS: Final[Mapping[Any, Callable[[str], Any]]] = {
    "date-time": lambda text: parse_time(text).isoformat(),
    "date": lambda text: parse_time(text).isoformat(),
    "duration": lambda text: f"{parse_duration(text).total_seconds():.9f}s",
    "byte": base64.b64decode,
}


def _cast(schema: Schema, value: Any, name: str) -> str:
    """Return an expression for a value that has times as texts, which the engine asks for; "" without any."""
    if isinstance(value, Mapping):
        properties = _mapping(schema.get("properties"))
        names = {
            key: orjson.dumps(_escaped(key) if key in properties else key).decode()
            for key, part in value.items()
            if part is not None or key not in properties
        }
        casts = {
            key: _cast(_property(schema, key) or {}, value[key], f"{name}[{names[key]}]") for key in names
        }
        pairs = (f"{names[key]}: {cast or f'{name}[{names[key]}]'}" for key, cast in casts.items())
        return f"{{{', '.join(pairs)}}}" if any(casts.values()) else ""
    if isinstance(value, list):
        members = _mapping(schema.get("items"))
        listed = [_cast(members, part, f"{name}[{place}]") for place, part in enumerate(value)]
        parts = (cast or f"{name}[{place}]" for place, cast in enumerate(listed))
        return f"[{', '.join(parts)}]" if any(listed) else ""
    form = schema.get("format")
    return f"{_TIMES[form]}({name})" if isinstance(value, str) and form in _TIMES else ""


def _escaped(name: str) -> str:
    """Return the name by which a rule reads a field."""
    if name in _RESERVED:
        return f"__{name}__"
    if _IDENTIFIER.fullmatch(name) and "__" not in name:
        return name
    for text, escape in _ESCAPES:
        name = name.replace(text, escape)
    return name
