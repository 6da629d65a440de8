"""create-setters and list-setters: the comments that apply-setters reads, written and counted."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from reconciler.functions.builtin.apply_setters import PREFIX, setter_pattern
from reconciler.functions.builtin.call import Call, FunctionFailedError, as_text, file_of, shown
from reconciler.functions.patterns import compile_pattern, quote
from reconciler.functions.resource import Resource
from reconciler.functions.runtime import FunctionResult
from reconciler.krm.yaml import Edit, Field, Scalar, SetLineComment, Tree, YamlError, fields_of


class _Setter(NamedTuple):
    name: str
    value: str


def create_setters(call: Call) -> Iterator[FunctionResult]:
    """Write a setter comment to every field whose value holds a given one; longer values go first.

    Source: krm-functions-catalog functions/go/create-setters/createsetters/create_setters.go.
    """
    scalars, arrays = _given(call.data)
    if not scalars and not arrays:
        raise FunctionFailedError("failed to configure function: input setters list cannot be empty")
    created = 0
    for resource in call.items:
        if _is_configuration(resource, call):
            continue
        edits: list[Edit] = []
        for field in fields_of(resource.tree):
            pattern = _pattern(field, scalars, arrays)
            if not pattern or setter_pattern(field.comment) == pattern:
                created += bool(pattern)
                continue
            edits.append(SetLineComment(field.path, PREFIX + pattern))
            created += 1
            value = shown(resource, _shown(field))
            yield FunctionResult(
                f'Added line comment "kpt-set: {pattern}" for field with value "{value}"',
                field={"path": field.name},
                file=file_of(resource),
            )
        if edits:
            resource.edit(edits)
    if not created:
        raise FunctionFailedError("failed to create setters: no matches for the input list of setters")


def _is_configuration(resource: Resource, call: Call) -> bool:
    """The list of setters itself holds every value, and gets no comments."""
    return bool(call.config_file) and resource.file == call.config_file


def _given(data: Mapping[str, str]) -> tuple[list[_Setter], dict[str, tuple[str, ...]]]:
    scalars, arrays = [], {}
    for name, text in data.items():
        value = _parsed(text)
        if isinstance(value, list):
            arrays[name] = tuple(sorted(map(as_text, value)))
        elif text:
            scalars.append(_Setter(name, text))
    scalars.sort(key=lambda setter: (-len(setter.value), setter.value, setter.name))
    return scalars, arrays


def _parsed(text: str) -> Any:
    try:
        return Tree.parse(text).value
    except YamlError:
        return text


def _pattern(field: Field, scalars: list[_Setter], arrays: Mapping[str, tuple[str, ...]]) -> str:
    if not isinstance(field.node, Scalar):
        items = field.node.value
        if not items or any(isinstance(item, (dict, list)) for item in items):
            return ""
        have = tuple(sorted(map(as_text, items)))
        return next((f"${{{name}}}" for name in sorted(arrays) if arrays[name] == have), "")
    text = field.node.content
    if "\n" in text:
        return ""
    pattern = text
    for setter in scalars:
        pattern = pattern.replace(setter.value, f"${{{setter.name}}}")
    return pattern if pattern != text else ""


def _shown(field: Field) -> str:
    if isinstance(field.node, Scalar):
        return field.node.content
    return f"[{', '.join(as_text(item) for item in field.node.value)}]"


class _Found(NamedTuple):
    value: str
    type: str


def list_setters(call: Call) -> Iterator[FunctionResult]:
    """Tell which setters there are, with the value and type of each, and how many fields use it.

    Source: krm-functions-catalog functions/go/list-setters/listsetters/list_setters.go.
    """
    values: dict[str, _Found] = {}
    counts: dict[str, int] = {}
    for resource in call.items:
        if PREFIX not in resource.text:
            continue
        for field in fields_of(resource.tree, PREFIX):
            for name, found in _used(field):
                values[name] = found._replace(value=shown(resource, found.value))
                counts[name] = counts.get(name, 0) + 1
    for name in sorted(values):
        found = values[name]
        yield FunctionResult(f"Name: {name}, Value: {found.value}, Type: {found.type}, Count: {counts[name]}")
    if not values:
        yield FunctionResult("no setters found", "warning")


def _used(field: Field) -> Iterator[tuple[str, _Found]]:
    pattern = setter_pattern(field.comment)
    if not pattern:
        return
    names, pieces = _names_and_pieces(pattern)
    if not isinstance(field.node, Scalar):
        items = ", ".join(sorted(as_text(item) for item in field.node.value))
        for name in names:
            yield name, _Found(f"[{items}]", "array")
        return
    found = compile_pattern("(.*)".join(map(quote, pieces))).search(field.node.content)
    groups = found.groups() if found is not None else ()
    if len(groups) == len(names):
        alone = len(names) == 1 and pieces == ["", ""]
        kind = _type(field.node.value) if alone else "str"
        for name, text in zip(names, groups, strict=True):
            yield name, _Found(text or "", kind)


def _names_and_pieces(pattern: str) -> tuple[list[str], list[str]]:
    head, *rest = pattern.split("${")
    names, pieces = [], [head]
    for part in rest:
        name, _, tail = part.partition("}")
        names.append(name)
        pieces.append(tail)
    return names, pieces


def _type(value: Any) -> str:
    return {bool: "bool", int: "int", float: "float"}.get(type(value), "str")
