"""apply-replacements: copy a field of one object into fields of others."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from reconciler.functions.builtin.call import Call, FunctionFailedError, as_text
from reconciler.functions.builtin.paths import Place, create_place, find_places, split_path
from reconciler.functions.differences import copy_value
from reconciler.functions.resource import Resource
from reconciler.functions.runtime import FunctionResult
from reconciler.functions.selector import SelectorTextError, matches_selector
from reconciler.krm.yaml import Scalar, Tree, YamlError

_KIND: Final = "ApplyReplacements"
_VERSION: Final = "fn.kpt.dev/v1alpha1"
_DEFAULT_PATH: Final = "metadata.name"


def apply_replacements(call: Call) -> Iterator[FunctionResult]:
    """Do every replacement in order, each on what the ones before it left. Gives no results.

    The lenient profile (v0.1.1) passes over a target field that is not there.

    Source: kustomize api/filters/replacement, v0.19.0 and v0.10.1.
    """
    if call.config is None:
        raise FunctionFailedError("FunctionConfig is missing. Expect `ApplyReplacements`")
    if call.config_kind != _KIND or call.config_api_version != _VERSION:
        raise FunctionFailedError(
            f"received functionConfig of kind {call.config_kind} and apiVersion {call.config_api_version}, "
            f"only functionConfig of kind {_KIND} and apiVersion {_VERSION} is supported"
        )
    for replacement in _mappings(call.config.get("replacements"), "replacements"):
        source, targets = replacement.get("source"), replacement.get("targets")
        if not isinstance(source, Mapping) or not targets:
            raise FunctionFailedError("replacements must specify a source and at least one target")
        value = _source_value(call.items, source)
        for target in _mappings(targets, "targets"):
            _apply(call.items, value, target, lenient=call.profile == "lenient")
    yield from ()


def _mappings(given: Any, where: str) -> list[Mapping[str, Any]]:
    if given is None:
        return []
    if not isinstance(given, list) or not all(isinstance(item, Mapping) for item in given):
        raise FunctionFailedError(f"{where} must be a list of mappings")
    return given


def _source_value(items: Sequence[Resource], source: Mapping[str, Any]) -> Any:
    found = [item for item in items if _is_named(item, source)]
    if not found:
        raise FunctionFailedError(f"nothing selected by {_said(source)}")
    if len(found) > 1:
        names = ", ".join(str(item) for item in found)
        raise FunctionFailedError(f"multiple matches for selector {_said(source)}: {names}")
    path = str(source.get("fieldPath") or _DEFAULT_PATH)
    places = find_places(found[0].value, split_path(path), lenient=True)
    value = places[0].value if places else None
    if value is None or value == "":
        raise FunctionFailedError(f"fieldPath `{path}` is missing for replacement source {_said(source)}")
    options = _options(source)
    delimiter = str(options.get("delimiter") or "")
    if not delimiter:
        return copy_value(value)
    if isinstance(value, (dict, list)):
        raise FunctionFailedError("delimiter option can only be used with scalar nodes")
    parts, index = as_text(value).split(delimiter), _index(options)
    if not 0 <= index < len(parts):
        raise FunctionFailedError(f"options.index {index} is out of bounds for value {as_text(value)}")
    return parts[index]


def _options(holder: Mapping[str, Any]) -> Mapping[str, Any]:
    found = holder.get("options")
    return found if isinstance(found, Mapping) else {}


def _index(options: Mapping[str, Any]) -> int:
    found = options.get("index") or 0
    if not isinstance(found, int):
        raise FunctionFailedError(f"options.index {found!r} is no number")
    return found


def _apply(items: Sequence[Resource], value: Any, target: Mapping[str, Any], *, lenient: bool) -> None:
    select = target.get("select")
    if not isinstance(select, Mapping):
        raise FunctionFailedError("target must specify resources to select")
    rejected = _mappings(target.get("reject"), "reject")
    for item in items:
        if not _is_selected(item, select) or any(each and _is_selected(item, each) for each in rejected):
            continue
        for path in target.get("fieldPaths") or (_DEFAULT_PATH,):
            _put(item, str(path), value, _options(target), lenient=lenient)


def _put(item: Resource, path: str, value: Any, options: Mapping[str, Any], *, lenient: bool) -> None:
    steps = split_path(path)
    places = find_places(item.value, steps, lenient=lenient)
    create = options.get("create") is True
    if not places and create:
        made = create_place(item.value, steps)
        if made is None:
            raise FunctionFailedError(f'unable to find or create field "{path}" in replacement target {item}')
        made.put(_delimited(None, value, options))
        return
    if not places and not lenient:
        raise FunctionFailedError(f'unable to find field "{path}" in replacement target {item}')
    for place in places:
        _write(place, _delimited(place.value, value, options), lenient=lenient)


def _write(place: Place, value: Any, *, lenient: bool) -> None:
    """Copy a value; between two scalars only the text goes over, and the target keeps its type."""
    old = place.value
    if lenient or isinstance(old, (dict, list)) or isinstance(value, (dict, list)):
        place.put(copy_value(value))
    elif isinstance(old, str):
        place.put(as_text(value))
    else:
        place.put(_typed(as_text(value)))


def _typed(text: str) -> Any:
    try:
        root = Tree.parse(text).root
    except YamlError:
        return text
    return root.value if isinstance(root, Scalar) else text


def _delimited(old: Any, value: Any, options: Mapping[str, Any]) -> Any:
    delimiter = str(options.get("delimiter") or "")
    if not delimiter:
        return value
    if isinstance(old, (dict, list)) or isinstance(value, (dict, list)):
        raise FunctionFailedError("delimiter option can only be used with scalar nodes")
    parts, index = as_text(old).split(delimiter), _index(options)
    if index < 0:
        parts.insert(0, as_text(value))
    elif index >= len(parts):
        parts.append(as_text(value))
    else:
        parts[index] = as_text(value)
    return delimiter.join(parts)


def _is_named(item: Resource, wanted: Mapping[str, Any]) -> bool:
    have = {
        "group": item.group,
        "version": item.api_version.rpartition("/")[2],
        "kind": item.kind,
        "name": item.name,
    }
    if any(wanted.get(field) not in (None, "", value) for field, value in have.items()):
        return False
    namespace = wanted.get("namespace")
    return not namespace or (namespace or "default") == (item.namespace or "default")


def _is_selected(item: Resource, wanted: Mapping[str, Any]) -> bool:
    labels = item.metadata.get("labels")
    try:
        return (
            _is_named(item, wanted)
            and matches_selector(str(wanted.get("labelSelector") or ""), labels)
            and matches_selector(str(wanted.get("annotationSelector") or ""), item.annotations)
        )
    except SelectorTextError as error:
        raise FunctionFailedError(str(error)) from error


def _said(wanted: Mapping[str, Any]) -> str:
    fields = ("group", "version", "kind", "name", "namespace", "fieldPath")
    return ", ".join(f"{field}: {wanted[field]}" for field in fields if wanted.get(field)) or "{}"
