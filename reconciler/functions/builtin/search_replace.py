"""search-replace: find fields by value, path or file, and write a value or a comment there."""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, Final

from msgspec import Struct

from reconciler.base.lazy import regex
from reconciler.base.values import whole_number
from reconciler.functions.builtin.call import BuiltinCall, FunctionFailedError, file_of, masked_in_secret
from reconciler.functions.builtin.fields import plain, put_text
from reconciler.functions.patterns import Pattern, PatternError, compile_pattern
from reconciler.functions.protocol import FunctionResult
from reconciler.functions.resources import Resource
from reconciler.krm.yaml import Edit, Field, Scalar, SetLineComment, SetValue, YamlError, fields_of

_GROUP: Final = regex(r"\$\{(\d+)\}")
_GLOB_TOKENS: Final = regex(r"(/\*\*/|\*\*/|/\*\*|\*\*|\*|\?|\[[^\]]*\]|\{[^{}]*\})")
_GLOB_WILDCARDS: Final = {
    "/**/": "/(?:.*/)?",
    "**/": "(?:.*/)?",
    "/**": "(?:/.*)?",
    "**": ".*",
    "*": "[^/]*",
    "?": "[^/]",
}


class _Search(Struct, frozen=True):
    value: str | None
    regex: Pattern | None
    path: tuple[str, ...]
    file: re.Pattern[str] | None
    put_value: str | None
    put_comment: str | None

    @property
    def has_value(self) -> bool:
        return self.value is not None or self.regex is not None


def search_replace(call: BuiltinCall) -> Iterator[FunctionResult]:
    """Write a value or a comment into every matching field, or list the matches.

    Source: krm-functions-catalog functions/go/search-replace/searchreplace/search_replace.go.
    """
    search = _read_search(call.data)
    matched = False
    for resource in call.items:
        if search.file is not None and search.file.fullmatch(resource.file) is None:
            continue
        edits: list[Edit] = []
        for field in fields_of(resource.tree):
            groups = _match(search, field)
            if groups is None:
                continue
            matched = True
            yield _change(search, resource, field, groups, edits)
        created = _creation(search, resource) if not edits else None
        if created is not None:
            matched = True
            edits.append(created)
            yield _result(resource, ".".join(map(str, created.path)), "Mutated", search.put_value or "")
        if edits:
            try:
                resource.edit(edits)
            except YamlError as error:
                raise FunctionFailedError(f"{resource}: {error.message}") from error
    if not matched:
        yield FunctionResult("no matches")


def _read_search(data: dict[str, str]) -> _Search:
    if "by-value" in data and "by-value-regex" in data:
        raise FunctionFailedError('only one of ["by-value", "by-value-regex"] can be provided')
    try:
        regex = compile_pattern(data["by-value-regex"]) if data.get("by-value-regex") else None
    except PatternError as error:
        raise FunctionFailedError(str(error)) from error
    file = data.get("by-file-path")
    return _Search(
        data.get("by-value") or None,
        regex,
        tuple(data["by-path"].split(".")) if data.get("by-path") else (),
        re.compile(glob_pattern(file)) if file else None,
        data.get("put-value"),
        data.get("put-comment"),
    )


def _match(search: _Search, field: Field) -> Sequence[str | None] | None:
    """Return the groups of the match, None where the field does not match."""
    if search.path and not _name_matches(field.name, search.path):
        return None
    if not isinstance(field.node, Scalar):
        listed = search.path and not search.has_value and search.put_comment is not None
        return () if listed else None
    if search.value is not None:
        return () if field.node.content == search.value else None
    if search.regex is not None:
        match = search.regex.search(field.node.content)
        return match.groups() if match is not None else None
    return () if search.path else None


def _change(
    search: _Search, resource: Resource, field: Field, groups: Sequence[str | None], edits: list[Edit]
) -> FunctionResult:
    value = field.node.content if isinstance(field.node, Scalar) else ""
    if search.put_comment is not None:
        comment = _filled(search.put_comment, groups)
        if _GROUP.search(comment):
            raise FunctionFailedError("unable to resolve capture groups")
        if field.comment != f"# {comment}":
            edits.append(SetLineComment(field.path, f"# {comment}"))
    if search.put_value is not None and isinstance(field.node, Scalar):
        text = _filled(search.put_value, groups)
        if _GROUP.search(text):
            raise FunctionFailedError("unable to resolve capture groups")
        if text != field.node.content:
            # The value first: writing it may move the comment of its line.
            edits.insert(0, put_text(field, text))
        value = text
    verb = "Matched" if search.put_value is None and search.put_comment is None else "Mutated"
    return _result(resource, field.name, verb, value)


def _filled(text: str, groups: Sequence[str | None]) -> str:
    def group(match: re.Match[str]) -> str:
        number = whole_number(match[1]) or 0
        return (groups[number - 1] or "") if 1 <= number <= len(groups) else match[0]

    return _GROUP.sub(group, text)


def _result(resource: Resource, path: str, verb: str, value: str) -> FunctionResult:
    message = f'{verb} field value {"" if verb == "Matched" else "to "}"{masked_in_secret(resource, value)}"'
    return FunctionResult(message, field={"path": path}, file=file_of(resource))


def _creation(search: _Search, resource: Resource) -> SetValue | None:
    """Return the edit that creates an absent field: only for an exact path without a value to search for."""
    if search.put_value is None or search.has_value or not search.path:
        return None
    if any(mark in step for step in search.path for mark in "*["):
        return None
    value: Any = resource.value
    for step in search.path:
        if not isinstance(value, dict):
            return None
        value = value.get(step)
        if value is None:
            break
    return SetValue(search.path, plain(search.put_value)) if value is None else None


@lru_cache(maxsize=4096)
def _name_matches(name: str, pattern: tuple[str, ...]) -> bool:
    """Return whether a field is at a path; resources of one kind have the same fields."""
    return path_matches(name.split("."), pattern)


def path_matches(elements: Sequence[str], pattern: Sequence[str]) -> bool:
    """Return whether a field's path matches: `*` is one element, `**` any number, `[*]` any index."""
    reached = {0}
    for step in pattern:
        if step == "**":
            reached = set(range(min(reached), len(elements) + 1)) if reached else set()
        else:
            reached = {at + 1 for at in reached if at < len(elements) and _element(elements[at], step)}
    return len(elements) in reached


def _element(element: str, pattern: str) -> bool:
    if pattern in ("*", element):
        return True
    parts, expected = element.split("["), pattern.split("[")
    return len(parts) == len(expected) and all(
        text in ("*", "*]", part) for part, text in zip(parts, expected, strict=True)
    )


def glob_pattern(text: str) -> str:
    """Return the regular expression of a file glob: `*` within a directory, `**` over directories, `{a,b}`.

    Nested braces are not supported.

    Source: bmatcuk/doublestar.
    """
    return "".join(_translate_token(token) for token in _GLOB_TOKENS.split(text) if token)


def _translate_token(token: str) -> str:
    if token in _GLOB_WILDCARDS:
        return _GLOB_WILDCARDS[token]
    if token[0] == "[" and token[-1] == "]" and len(token) > 2:  # noqa: PLR2004 - more than the brackets
        body = token[1:-1].replace("\\", "\\\\").replace("[", "\\[")
        return f"[^{body[1:]}]" if body[0] in "!^" else f"[{body}]"
    if token[0] == "{" and token[-1] == "}":
        return f"(?:{'|'.join(glob_pattern(part) for part in token[1:-1].split(','))})"
    return re.escape(token)
