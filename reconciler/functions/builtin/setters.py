"""The setter functions: apply-setters, create-setters, list-setters and set-project-id.

A setter is a named value. The line comment `# kpt-set: ${name}` marks a field that takes it.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from reconciler.base.lazy import regex
from reconciler.functions.builtin.call import (
    BuiltinCall,
    FunctionFailedError,
    Splits,
    as_text,
    ensure_mapping,
    file_of,
    masked_in_secret,
)
from reconciler.functions.builtin.fields import put_text
from reconciler.functions.catalog import APPLY_SETTERS, parse_image
from reconciler.functions.patterns import compile_pattern, quote
from reconciler.functions.protocol import FunctionResult
from reconciler.functions.resources import Resource
from reconciler.krm.values import differences, is_same
from reconciler.krm.yaml import (
    Edit,
    Field,
    Path,
    Scalar,
    Sequence,
    SetLineComment,
    SetValue,
    Style,
    Tree,
    YamlError,
    fields_of,
)

_COMMENT: Final = "# kpt-set: "
_SETTER: Final = regex(r"\$\{([^}]*)\}")
_SINGLE: Final = regex(r"\$\{([^}]*)\}\Z")
_PROJECT_ANNOTATION: Final = "cnrm.cloud.google.com/project-id"
_PROJECT: Final = "project-id"
_CONNECTOR: Final = regex(r"(?!core\.)\w+\.cnrm\.cloud\.google\.com/\w+\Z")
"""Resources of the cloud; those of the `core` group configure the connector itself."""
_APPLY_SETTERS: Final = "gcr.io/kpt-fn/apply-setters:v0.2"


def apply_setters(call: BuiltinCall) -> Iterator[FunctionResult]:
    """Write the given values into the fields with a comment that names one of the setters.

    Source: krm-functions-catalog functions/go/apply-setters/applysetters/apply_setters.go.
    Differs: setters are replaced in the order of their names, and a warning names every field that
        another run would change again.
    """
    setters = call.data
    if not setters and call.profile == "required":
        raise FunctionFailedError("failed to configure function: input setters list cannot be empty")
    matched = False
    for resource in call.items if setters else ():
        if _COMMENT not in resource.text:
            continue
        edits: list[Edit] = []
        for field in fields_of(resource.tree, _COMMENT):
            if not any(name in setters for name in _SETTER.findall(_setter_pattern(field.comment))):
                continue
            matched = True
            yield from _set_field(resource, field, setters, edits, call.splits)
        if edits:
            resource.edit(edits)
    if not matched:
        yield FunctionResult("no matches for input setter(s)")


def _setter_pattern(comment: str) -> str:
    """Return the pattern of a setter comment, "" for any other comment."""
    return comment[len(_COMMENT) :].strip() if comment.startswith(_COMMENT) else ""


def _set_field(
    resource: Resource,
    field: Field,
    setters: Mapping[str, str],
    edits: list[Edit],
    splits: Splits,
) -> Iterator[FunctionResult]:
    pattern = _setter_pattern(field.comment)
    if isinstance(field.node, Scalar):
        text = _resolve(pattern, setters, field.node.content, splits)
        if text == field.node.content:
            return
        edits.append(put_text(field, text))
        if _resolve(pattern, setters, text, splits) != text:
            message = f"the value grows with every run; provide all setters of {pattern!r}"
            yield _set_result(resource, field, message, "warning")
    else:
        value, old = _array(pattern, setters), field.node.value
        if is_same(value, old):
            return
        edits += differences(old, value, field.path)
        text = setters[pattern[2:-1]]
        if not value:
            edits.append(SetLineComment(field.path, field.comment))
    yield _set_result(resource, field, f'set field value to "{masked_in_secret(resource, text)}"')


def _array(pattern: str, setters: Mapping[str, str]) -> list[Any]:
    if _SINGLE.match(pattern) is None:
        raise FunctionFailedError(
            f'failed to apply setters: invalid setter pattern for array node: "{pattern}"'
        )
    text = setters[pattern[2:-1]]
    try:
        value = Tree.parse(text).value if text else []
    except YamlError:
        value = None
    if not isinstance(value, list):
        raise FunctionFailedError(
            f'failed to apply setters: input to array setter must be an array of values, but found "{text}"'
        )
    return value


def _resolve(pattern: str, setters: Mapping[str, str], current: str, splits: Splits) -> str:
    """Return a pattern with its setters replaced; those without a given value keep the current one."""
    text = pattern
    # In a fixed order: a value may hold the name of another setter.
    for name in sorted(setters):
        text = text.replace(f"${{{name}}}", setters[name])
    if _SETTER.search(text) is None:
        return text
    splits += [(pattern, ""), (current, "")]
    captures = [(name, value) for name, value in _captures(pattern, current) if name not in setters]
    for name, value in (dict(captures) if all(value for _, value in captures) else {}).items():
        text = text.replace(f"${{{name}}}", value)
    missing = [match[0] for match in _SETTER.finditer(text)]
    if missing:
        listed = " ".join(missing)
        raise FunctionFailedError(f"failed to apply setters: values for setters [{listed}] must be provided")
    return text


def _captures(pattern: str, text: str) -> list[tuple[str, str]]:
    """Return the setters of a pattern with their parts of a text; empty if the text does not match."""
    names, pieces = _SETTER.findall(pattern), _SETTER.split(pattern)[::2]
    match = compile_pattern("(.*)".join(map(quote, pieces))).search(text)
    return [] if match is None else list(zip(names, (part or "" for part in match.groups()), strict=True))


def _set_result(resource: Resource, field: Field, message: str, severity: str = "info") -> FunctionResult:
    return FunctionResult(message, severity, field={"path": field.name}, file=file_of(resource))


class _Setter(NamedTuple):
    name: str
    value: str


def create_setters(call: BuiltinCall) -> Iterator[FunctionResult]:
    """Write a setter comment to every field with a given value in it; longer values are replaced first.

    Source: krm-functions-catalog functions/go/create-setters/createsetters/create_setters.go.
    """
    scalars, arrays = _read_setters(call.data)
    if not scalars and not arrays:
        raise FunctionFailedError("failed to configure function: input setters list cannot be empty")
    created = 0
    for resource in call.items:
        # The list of setters holds every value, and gets no comments.
        if call.config_file and resource.file == call.config_file:
            continue
        edits: list[Edit] = []
        flow: dict[Path, Any] = {}
        for field in fields_of(resource.tree):
            pattern = _pattern(field, scalars, arrays)
            if not pattern or _setter_pattern(field.comment) == pattern:
                created += bool(pattern)
                continue
            holder = resource.tree.find(field.path[:-1])
            if isinstance(holder, Sequence) and holder.style is Style.FLOW:
                # An element has a line of its own in block style alone.
                flow.setdefault(field.path[:-1], holder.value)
            edits.append(SetLineComment(field.path, _COMMENT + pattern))
            created += 1
            value = masked_in_secret(resource, _text_of(field))
            yield FunctionResult(
                f'Added line comment "kpt-set: {pattern}" for field with value "{value}"',
                field={"path": field.name},
                file=file_of(resource),
            )
        if edits:
            resource.edit([*(SetValue(path, value) for path, value in flow.items()), *edits])
    if not created:
        raise FunctionFailedError("failed to create setters: no matches for the input list of setters")


def _read_setters(data: Mapping[str, str]) -> tuple[list[_Setter], dict[str, tuple[str, ...]]]:
    scalars, arrays = [], {}
    for name, text in data.items():
        value = _parse(text)
        if isinstance(value, list):
            arrays[name] = tuple(sorted(map(as_text, value)))
        elif text:
            scalars.append(_Setter(name, text))
    # A short value may be a part of a longer one.
    scalars.sort(key=lambda setter: (-len(setter.value), setter.value, setter.name))
    return scalars, arrays


def _parse(text: str) -> Any:
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


def _text_of(field: Field) -> str:
    if isinstance(field.node, Scalar):
        return field.node.content
    return f"[{', '.join(as_text(item) for item in field.node.value)}]"


class _Usage(NamedTuple):
    value: str
    type: str


def list_setters(call: BuiltinCall) -> Iterator[FunctionResult]:
    """List the setters with their values, types and numbers of fields.

    Source: krm-functions-catalog functions/go/list-setters/listsetters/list_setters.go.
    """
    values: dict[str, _Usage] = {}
    counts: dict[str, int] = {}
    for resource in call.items:
        if _COMMENT not in resource.text:
            continue
        for field in fields_of(resource.tree, _COMMENT):
            for name, usage in _used(field):
                values[name] = usage._replace(value=masked_in_secret(resource, usage.value))
                counts[name] = counts.get(name, 0) + 1
    for name in sorted(values):
        value, kind = values[name]
        yield FunctionResult(f"Name: {name}, Value: {value}, Type: {kind}, Count: {counts[name]}")
    if not values:
        yield FunctionResult("no setters found", "warning")


def _used(field: Field) -> Iterator[tuple[str, _Usage]]:
    pattern = _setter_pattern(field.comment)
    if not isinstance(field.node, Scalar):
        items = ", ".join(sorted(as_text(item) for item in field.node.value))
        yield from ((name, _Usage(f"[{items}]", "array")) for name in _SETTER.findall(pattern))
        return
    kinds = {bool: "bool", int: "int", float: "float"} if _SINGLE.match(pattern) else {}
    kind = kinds.get(type(field.node.value), "str")
    for name, text in _captures(pattern, field.node.content):
        yield name, _Usage(text, kind)


def set_project_id(call: BuiltinCall) -> Iterator[FunctionResult]:
    """Set the project of Config Connector resources where none is set yet: as setter and as annotation.

    Source: krm-functions-catalog functions/go/set-project-id/main.go.
    """
    project = call.data.get(_PROJECT, "")
    if not project:
        raise FunctionFailedError("failed to configure function: `project-id` is required")
    for resource in call.items:
        if _CONNECTOR.match(resource.api_version) and _PROJECT_ANNOTATION not in resource.annotations:
            ensure_mapping(resource.value, "metadata", "annotations")[_PROJECT_ANNOTATION] = project
            yield FunctionResult(
                f'set annotation {_PROJECT_ANNOTATION} to "{project}"', file=file_of(resource)
            )
    for kptfile in [item for item in call.items if item.kind == "Kptfile"]:
        changed = _set_project(kptfile, call.items, project)
        if changed is not None:
            yield FunctionResult(f'set setter {_PROJECT} to "{project}"', file=file_of(changed))


def _set_project(kptfile: Resource, items: list[Resource], project: str) -> Resource | None:
    mutators = ensure_mapping(kptfile.value, "pipeline").setdefault("mutators", [])
    if not isinstance(mutators, list):
        raise FunctionFailedError(f"pipeline.mutators of {kptfile.path} is no list")
    step = next((mutator for mutator in mutators if _is_apply_setters(mutator)), None)
    if step is None:
        mutators.append({"image": _APPLY_SETTERS, "configMap": {_PROJECT: project}})
        return kptfile
    if not step.get("configPath"):
        return kptfile if _add_project(ensure_mapping(step, "configMap"), project) else None
    directory = kptfile.path.rpartition("/")[0]
    path = f"{directory}/{step['configPath']}" if directory else str(step["configPath"])
    setters = next((item for item in items if item.path == path), None)
    if setters is None:
        raise FunctionFailedError(f"{kptfile.path}: its setters {step['configPath']} are not here")
    return setters if _add_project(ensure_mapping(setters.value, "data"), project) else None


def _add_project(data: dict[str, Any], project: str) -> bool:
    if data.get(_PROJECT):
        return False
    data[_PROJECT] = project
    return True


def _is_apply_setters(step: Any) -> bool:
    image = step.get("image") if isinstance(step, Mapping) else None
    parsed = parse_image(image) if isinstance(image, str) else None
    return parsed is not None and parsed.short == APPLY_SETTERS
