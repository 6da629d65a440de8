"""apply-replacements: copy a field of one object into fields of others."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from reconciler.base.lazy import regex
from reconciler.base.suggestions import parse_boolean
from reconciler.functions.builtin.call import BuiltinCall, FunctionFailedError, as_text
from reconciler.functions.builtin.fields import FieldRef, create_field, find_fields, split_path
from reconciler.functions.protocol import FunctionResult
from reconciler.functions.resources import Resource
from reconciler.krm.values import copy_value
from reconciler.krm.yaml import Scalar, Tree, YamlError

_KIND: Final = "ApplyReplacements"
_VERSION: Final = "fn.kpt.dev/v1alpha1"
_DEFAULT_PATH: Final = "metadata.name"
_KEY: Final = r"[A-Za-z0-9]([A-Za-z0-9._/-]*[A-Za-z0-9])?"
_TERM: Final = regex(
    rf"\s*(?:(?P<absent>!)\s*(?P<no>{_KEY})"
    rf"|(?P<set>{_KEY})\s+(?P<op>in|notin)\s*\((?P<values>[^)]*)\)"
    rf"|(?P<key>{_KEY})\s*(?P<equal>==|=|!=)\s*(?P<value>[A-Za-z0-9._-]*)"
    rf"|(?P<has>{_KEY}))\s*(?:,|\Z)"
)
"""One term of a label selector: `!canary`, `tier in (a, b)`, `app=web`, `app`."""


def apply_replacements(call: BuiltinCall) -> Iterator[FunctionResult]:
    """Make the replacements in order, each on the result of the previous ones. Yields no results.

    The lenient profile (v0.1.1) ignores an absent target field.

    Source: kustomize api/filters/replacement, v0.19.0 and v0.10.1.
    """
    if call.config is None:
        raise FunctionFailedError("FunctionConfig is missing. Expect `ApplyReplacements`")
    if call.config_kind != _KIND or call.config_api_version != _VERSION:
        raise FunctionFailedError(
            f"received functionConfig of kind {call.config_kind} and apiVersion {call.config_api_version}, "
            f"only functionConfig of kind {_KIND} and apiVersion {_VERSION} is supported"
        )
    for replacement in call.config.get("replacements") or ():
        source, targets = replacement.get("source"), replacement.get("targets")
        if not isinstance(source, Mapping) or not targets:
            raise FunctionFailedError("replacements must specify a source and at least one target")
        value = _source_value(call, source)
        for target in targets:
            _apply(call, value, target)
    yield from ()


def _source_value(call: BuiltinCall, source: Mapping[str, Any]) -> Any:
    selected = [item for item in call.items if _is_named(item, source)]
    if not selected:
        raise FunctionFailedError(f"nothing selected by {_selector_text(source)}")
    if len(selected) > 1:
        names = ", ".join(str(item) for item in selected)
        raise FunctionFailedError(f"multiple matches for selector {_selector_text(source)}: {names}")
    path = str(source.get("fieldPath") or _DEFAULT_PATH)
    field = next(find_fields(selected[0].value, split_path(path), call.splits, lenient=True), None)
    value = field.value if field is not None else None
    if value is None or value == "":
        text = _selector_text(source)
        raise FunctionFailedError(f"fieldPath `{path}` is missing for replacement source {text}")
    options = _options(source)
    delimiter = str(options.get("delimiter") or "")
    if not delimiter:
        return copy_value(value)
    parts, index = _parts(value, delimiter, call), _index(options)
    if not 0 <= index < len(parts):
        raise FunctionFailedError(f"options.index {index} is out of bounds for value {as_text(value)}")
    return parts[index]


def _parts(value: Any, delimiter: str, call: BuiltinCall) -> list[str]:
    if isinstance(value, (dict, list)):
        raise FunctionFailedError("delimiter option can only be used with scalar nodes")
    call.splits.append((as_text(value), delimiter))
    return as_text(value).split(delimiter)


def _options(holder: Mapping[str, Any]) -> Mapping[str, Any]:
    options = holder.get("options")
    return options if isinstance(options, Mapping) else {}


def _index(options: Mapping[str, Any]) -> int:
    index = options.get("index") or 0
    if not isinstance(index, int):
        raise FunctionFailedError(f"options.index {index!r} is no number")
    return index


def _apply(call: BuiltinCall, value: Any, target: Mapping[str, Any]) -> None:
    select = target.get("select")
    if not isinstance(select, Mapping):
        raise FunctionFailedError("target must specify resources to select")
    rejected = target.get("reject") or ()
    for item in call.items:
        if not _is_selected(item, select) or any(term and _is_selected(item, term) for term in rejected):
            continue
        for path in target.get("fieldPaths") or (_DEFAULT_PATH,):
            _put(item, str(path), value, _options(target), call)


def _put(item: Resource, path: str, value: Any, options: Mapping[str, Any], call: BuiltinCall) -> None:
    lenient = call.profile == "lenient"
    steps = split_path(path)
    # All fields are found before the first is written: a written value may hold the path again.
    fields = list(find_fields(item.value, steps, call.splits, lenient=lenient))
    if not fields and parse_boolean(options.get("create")):
        created = create_field(item.value, steps, call.splits)
        if created is None:
            raise FunctionFailedError(f'unable to find or create field "{path}" in replacement target {item}')
        created.put(_delimited(None, value, options, call))
        return
    if not fields and not lenient:
        raise FunctionFailedError(f'unable to find field "{path}" in replacement target {item}')
    for field in fields:
        _write(field, _delimited(field.value, value, options, call), lenient=lenient)


def _write(field: FieldRef, value: Any, *, lenient: bool) -> None:
    """Copy a value; between two scalars only the text is copied, and the target keeps its type."""
    old = field.value
    if lenient or isinstance(old, (dict, list)) or isinstance(value, (dict, list)):
        field.put(copy_value(value))
    elif isinstance(old, str):
        field.put(as_text(value))
    else:
        field.put(_typed(as_text(value)))


def _typed(text: str) -> Any:
    try:
        root = Tree.parse(text).root
    except YamlError:
        return text
    return root.value if isinstance(root, Scalar) else text


def _delimited(old: Any, value: Any, options: Mapping[str, Any], call: BuiltinCall) -> Any:
    delimiter = str(options.get("delimiter") or "")
    if not delimiter:
        return value
    if isinstance(value, (dict, list)):
        raise FunctionFailedError("delimiter option can only be used with scalar nodes")
    parts, index = _parts(old, delimiter, call), _index(options)
    if index < 0:
        parts.insert(0, as_text(value))
    elif index >= len(parts):
        parts.append(as_text(value))
    else:
        parts[index] = as_text(value)
    return delimiter.join(parts)


def _is_named(item: Resource, selector: Mapping[str, Any]) -> bool:
    identity = {
        "group": item.group,
        "version": item.api_version.rpartition("/")[2],
        "kind": item.kind,
        "name": item.name,
    }
    if any(selector.get(field) not in (None, "", value) for field, value in identity.items()):
        return False
    namespace = selector.get("namespace")
    return not namespace or namespace == (item.namespace or "default")


def _is_selected(item: Resource, selector: Mapping[str, Any]) -> bool:
    return (
        _is_named(item, selector)
        and matches_selector(str(selector.get("labelSelector") or ""), item.metadata.get("labels"))
        # kustomize matches annotations with the grammar of label selectors.
        and matches_selector(str(selector.get("annotationSelector") or ""), item.annotations)
    )


def matches_selector(text: str, labels: Any) -> bool:
    """Return whether labels match a selector in its text form; an empty selector matches all.

    Raises:
        FunctionFailedError: The text is no selector.

    Source: apimachinery pkg/labels/selector.go.
    """
    present = labels if isinstance(labels, Mapping) else {}
    at, matches = 0, True
    while at < len(text):
        term = _TERM.match(text, at)
        if term is None or term.end() == at:
            raise FunctionFailedError(f"{text!r} is no label selector")
        matches = matches and _matches_term(term, present)
        at = term.end()
    return matches


def _matches_term(term: re.Match[str], labels: Mapping[str, Any]) -> bool:
    if term["absent"]:
        return term["no"] not in labels
    if term["set"]:
        values = {value.strip() for value in term["values"].split(",")}
        inside = labels.get(term["set"]) in values and term["set"] in labels
        return inside if term["op"] == "in" else not inside
    if term["key"]:
        equal = labels.get(term["key"]) == term["value"]
        return not equal if term["equal"] == "!=" else equal
    return term["has"] in labels


def _selector_text(selector: Mapping[str, Any]) -> str:
    fields = ("group", "version", "kind", "name", "namespace", "fieldPath")
    return ", ".join(f"{field}: {selector[field]}" for field in fields if selector.get(field)) or "{}"
