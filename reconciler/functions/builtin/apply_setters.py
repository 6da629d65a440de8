"""apply-setters: write values of one list into every field whose comment names a setter."""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from reconciler.functions.builtin.call import Call, FunctionFailedError, file_of, shown
from reconciler.functions.builtin.texts import put_text
from reconciler.functions.differences import is_same
from reconciler.functions.patterns import compile_pattern, quote
from reconciler.functions.resource import Resource
from reconciler.functions.runtime import FunctionResult
from reconciler.krm.yaml import Edit, Field, Scalar, SetLineComment, SetValue, Tree, YamlError, fields_of

PREFIX: Final = "# kpt-set: "
_SETTER: Final = re.compile(r"\$\{([^}]*)\}")
_ARRAY: Final = re.compile(r"\$\{([^}]*)\}\Z")


def apply_setters(call: Call) -> Iterator[FunctionResult]:
    """Set every field whose line has a `# kpt-set: ` comment with a setter that was given.

    Source: krm-functions-catalog functions/go/apply-setters/applysetters/apply_setters.go.
    Differs: setters are replaced in the order of their names, and a field that another run would
        change again is named in a warning.
    """
    setters = call.data
    if not setters and call.profile == "required":
        raise FunctionFailedError("failed to configure function: input setters list cannot be empty")
    matched = False
    for resource in call.items if setters else ():
        if PREFIX not in resource.text:
            continue
        edits: list[Edit] = []
        for field in fields_of(resource.tree, PREFIX):
            pattern = setter_pattern(field.comment)
            if not _is_asked_for(pattern, setters):
                continue
            matched = True
            yield from _set(resource, field, pattern, setters, edits)
        if edits:
            resource.edit(edits)
    if not matched:
        yield FunctionResult("no matches for input setter(s)")


def setter_pattern(comment: str) -> str:
    """Return the pattern that a comment holds, "" for any other comment."""
    return comment[len(PREFIX) :].strip() if comment.startswith(PREFIX) else ""


def _is_asked_for(pattern: str, setters: Mapping[str, str]) -> bool:
    return bool(pattern) and any(name in setters for name in _SETTER.findall(pattern))


def _set(
    resource: Resource, field: Field, pattern: str, setters: Mapping[str, str], edits: list[Edit]
) -> Iterator[FunctionResult]:
    if isinstance(field.node, Scalar):
        text = _resolve(pattern, setters, field.node.content)
        if text == field.node.content:
            return
        edits.append(put_text(field, text))
        if _resolve(pattern, setters, text) != text:
            message = f"the value grows with every run; provide all setters of {pattern!r}"
            yield _result(resource, field, message, "warning")
    else:
        edit = _array_edit(field, pattern, setters)
        if edit is None:
            return
        edits.append(edit)
        text = setters[pattern[2:-1]]
        if edit.value == []:
            edits.append(SetLineComment(field.path, field.comment))
    yield _result(resource, field, f'set field value to "{shown(resource, text)}"')


def _array_edit(field: Field, pattern: str, setters: Mapping[str, str]) -> SetValue | None:
    if _ARRAY.match(pattern) is None:
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
    return None if is_same(value, field.node.value) else SetValue(field.path, value)


def _resolve(pattern: str, setters: Mapping[str, str], current: str) -> str:
    """Return the value that a pattern gives; setters that were not given are taken from the current value."""
    text = pattern
    for name in sorted(setters):
        text = text.replace(f"${{{name}}}", setters[name])
    if _SETTER.search(text) is None:
        return text
    for name, value in _current_values(pattern, current).items():
        text = text.replace(f"${{{name}}}", value)
    missing = [found[0] for found in _SETTER.finditer(text)]
    if missing:
        listed = " ".join(missing)
        raise FunctionFailedError(f"failed to apply setters: values for setters [{listed}] must be provided")
    return text


def _current_values(pattern: str, current: str) -> dict[str, str]:
    names = _SETTER.findall(pattern)
    pieces = _SETTER.split(pattern)[::2]
    found = compile_pattern("(.*)".join(map(quote, pieces))).search(current)
    values = [] if found is None else list(found.groups())
    if len(values) != len(names) or not all(values):
        return {}
    return {name: value or "" for name, value in zip(names, values, strict=True)}


def _result(resource: Resource, field: Field, message: str, severity: str = "info") -> FunctionResult:
    return FunctionResult(message, severity, field={"path": field.name}, file=file_of(resource))
