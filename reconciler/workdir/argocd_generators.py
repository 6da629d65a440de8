"""Generators of ApplicationSets: what they give to templates, as values or as expressions of CEL."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from reconciler.api.meta import LabelSelector
from reconciler.api.validation import parse_model
from reconciler.expand.selectors import SelectorError, compile_selector
from reconciler.functions.builtin.search_replace import glob_pattern
from reconciler.functions.values import mapping_at, mappings_at
from reconciler.krm.yaml import PACKAGE_LIMITS, YamlError, load_documents
from reconciler.names.ids import normalise_url

SECRET_TYPE = "argocd.argoproj.io/secret-type"  # noqa: S105 - the label of Secrets with clusters
_ACTION = re.compile(r"\{\{-?\s*(.*?)\s*-?\}\}")
_GO = re.compile(r'\.(?P<path>[\w./-]+)|index\s+\.(?P<in>[\w.]+)\s+(?:"(?P<key>[^"]+)"|(?P<number>\d+))')
_FAST = re.compile(r"(?P<path>[\w./\[\]-]+)")
_WITHOUT: Mapping[str, str] = {
    "clusterDecisionResource": "expressions see metadata, and decisions are in a status",
    "scmProvider": "repositories are registered, each with a Repository",
    "pullRequest": "previews of pull requests are no packages of a fleet",
    "plugin": "nothing is asked of a server while sets are expanded",
}


class NotConvertedError(Exception):
    """A part of an ApplicationSet that has no equivalent, and why."""


class Cel(Struct, frozen=True):
    """An expression of CEL that gives a string for each Repository."""

    text: str


class _Labels(Struct, frozen=True):
    """The labels or annotations of a Repository, which a template asks for one of."""

    field: str


class Parameters(Struct, frozen=True):
    """One set of parameters that a generator gives to the template.

    `selector` selects Repositories: then some values are expressions. It is None where `values` name the
    cluster. `template` overrides parts of the template.
    """

    values: Mapping[str, Any]
    selector: Mapping[str, Any] | None = None
    template: Mapping[str, Any] = {}


class TemplateScope(NamedTuple):
    """The language of templates, and checkouts of Git repositories by their normalised address."""

    is_go: bool
    checkouts: Mapping[str, Path]


def literal(text: str) -> str:
    """Return a string as a literal of CEL."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")
    return f"'{escaped}'"


def render(text: Any, values: Mapping[str, Any], scope: TemplateScope) -> str | Cel:
    """Return a string of a template with its parameters.

    Raises:
        NotConvertedError: It has more than parameters, or one that no generator gives.
    """
    terms: list[str] = []
    plain, at = "", 0
    source = _text(text)
    for action in _ACTION.finditer(source):
        plain += source[at : action.start()]
        at = action.end()
        value = _value(action, values, scope)
        if isinstance(value, Cel):
            terms += [*([literal(plain)] if plain else []), value.text]
            plain = ""
        else:
            plain += value
    plain += source[at:]
    return Cel(" + ".join([*terms, *([literal(plain)] if plain else [])])) if terms else plain


def render_all(value: Any, values: Mapping[str, Any], scope: TemplateScope) -> Any:
    """Return a value with its parameters in all strings; those that are not given yet stay."""
    if isinstance(value, dict):
        return {key: render_all(each, values, scope) for key, each in value.items()}
    if isinstance(value, list):
        return [render_all(each, values, scope) for each in value]
    if not isinstance(value, str):
        return value
    try:
        rendered = render(value, values, scope)
    except NotConvertedError:
        return value
    return value if isinstance(rendered, Cel) else rendered


def _value(action: re.Match[str], values: Mapping[str, Any], scope: TemplateScope) -> str | Cel:
    match = (_GO if scope.is_go else _FAST).fullmatch(action[1])
    if not scope.is_go and action[1].startswith("."):
        raise NotConvertedError(f"{action[0]} is of Go templates, and goTemplate is not true")
    if match is None:
        raise NotConvertedError(f"{action[0]} is more than a parameter")
    groups = match.groupdict()
    matched = _find(values, groups["path"] or groups["in"], action[0])
    if groups.get("key"):
        matched = _find({"it": matched}, f"it.{groups['key']}", action[0])
    elif groups.get("number") and isinstance(matched, list) and int(groups["number"]) < len(matched):
        matched = matched[int(groups["number"])]
    if isinstance(matched, (dict, list, _Labels)) or matched is None:
        raise NotConvertedError(f"{action[0]} is no string")
    return matched if isinstance(matched, Cel) else _text(matched)


def _find(values: Mapping[str, Any], path: str, shown: str) -> Any:
    current: Any = values
    rest = path
    while rest:
        if isinstance(current, _Labels):
            return Cel(f"repository.{current.field}[{literal(rest)}]")
        if isinstance(current, dict) and rest in current:
            return current[rest]
        head, _, rest = rest.partition(".")
        if not isinstance(current, dict) or head not in current:
            raise NotConvertedError(f"{shown} is given by no generator that can be read here")
        current = current[head]
    return current


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def read_generator(generator: Mapping[str, Any], scope: TemplateScope) -> list[Parameters]:
    """Return what a generator gives.

    Raises:
        NotConvertedError: It has no equivalent, or cannot be read here.

    Source: argo-cd applicationset/generators.
    """
    kinds = [kind for kind in generator if kind != "selector"]
    if len(kinds) != 1:
        raise NotConvertedError(f"a generator has the kinds {', '.join(kinds) or 'none'}")
    (kind,) = kinds
    if kind not in _READERS:
        raise NotConvertedError(f"generator {kind}: {_WITHOUT.get(kind, 'it is unknown')}")
    spec = mapping_at(generator, kind)
    matched = [
        replace(each, template=joined(each.template, mapping_at(spec, "template")))
        for each in _READERS[kind](spec, scope)
    ]
    selector = mapping_at(generator, "selector")
    return [each for each in matched if _is_selected(each, selector)] if selector else matched


def joined(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Return both mappings as one; values of `above` count where both have one that is not empty."""
    result = dict(below)
    for key, value in above.items():
        old = result.get(key)
        if isinstance(old, dict) and isinstance(value, dict):
            result[key] = joined(old, value)
        elif value not in ("", None, {}) or key not in result:
            result[key] = value
    return result


def _is_selected(each: Parameters, selector: Mapping[str, Any]) -> bool:
    if each.selector is not None:
        raise NotConvertedError("a selector over what a cluster generator gives: select the clusters")
    return _predicate(selector)(dict(_flat(each.values)))


def _predicate(selector: Mapping[str, Any]) -> Callable[[Mapping[str, str]], bool]:
    model = parse_model(LabelSelector, dict(selector))
    if isinstance(model, tuple):
        raise NotConvertedError("a selector of a generator is invalid")
    try:
        return compile_selector(model)
    except SelectorError as error:
        raise NotConvertedError(f"a selector of a generator is invalid: {error}") from error


def _flat(values: Mapping[str, Any], start: str = "") -> Iterator[tuple[str, str]]:
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{start}{key}.")
        elif not isinstance(value, (list, Cel)):
            yield f"{start}{key}", _text(value)


def _nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return an element with keys such as `values.redis` as mappings, which templates mean by them."""
    result: dict[str, Any] = {}
    for key, value in values.items():
        head, dot, rest = str(key).partition(".")
        result = joined(result, {head: _nested({rest: value})} if dot else {head: value})
    return result


def _list(spec: Mapping[str, Any], _scope: TemplateScope) -> Iterator[Parameters]:
    if text := str(spec.get("elementsYaml") or ""):
        if _ACTION.search(text):
            raise NotConvertedError("generator list: elementsYaml is made by functions of templates")
        spec = {"elements": _documents(text.encode(), "elementsYaml")}
    yield from (Parameters(_nested(element)) for element in mappings_at(spec, "elements"))


def _clusters(spec: Mapping[str, Any], scope: TemplateScope) -> Iterator[Parameters]:
    if "filters" in spec:
        raise NotConvertedError("generator clusters: filters have no equivalent: write them as a selector")
    selector = mapping_at(spec, "selector")
    labels = {k: v for k, v in mapping_at(selector, "matchLabels").items() if k != SECRET_TYPE}
    terms = [each for each in mappings_at(selector, "matchExpressions") if each.get("key") != SECRET_TYPE]
    chosen = ({"matchLabels": labels} if labels else {}) | ({"matchExpressions": terms} if terms else {})
    _predicate(chosen)
    name = Cel("repository.name")
    metadata = {"labels": _Labels("labels"), "annotations": _Labels("annotations")}
    values: dict[str, Any] = {"name": name, "nameNormalized": name, "metadata": metadata}
    given = mapping_at(spec, "values")
    yield Parameters(
        {**values, "values": {key: render(v, values, scope) for key, v in given.items()}}, chosen
    )


def _git(spec: Mapping[str, Any], scope: TemplateScope) -> Iterator[Parameters]:
    url = str(spec.get("repoURL") or "")
    root = scope.checkouts.get(normalise_url(url))
    if root is None:
        why = f"what {url} has is unknown: give --checkout {url}=DIRECTORY" if url else "it has no repoURL"
        raise NotConvertedError(f"generator git: {why}")
    prefix = str(spec.get("pathParamPrefix") or "")
    paths = sorted(path.relative_to(root) for path in root.rglob("*"))
    shown = [path for path in paths if not any(part.startswith(".") for part in path.parts)]
    is_files = "files" in spec
    listed = mappings_at(spec, "files" if is_files else "directories")
    for path in shown:
        if (root / path).is_dir() is not is_files and _is_listed(path.as_posix(), listed):
            for values in _contents(root / path, path) if is_files else [{}]:
                at = path.parent if is_files else path
                own = {**values, **_path_values(at, path.name if is_files else "", prefix, scope)}
                given = {key: render(v, own, scope) for key, v in mapping_at(spec, "values").items()}
                yield Parameters(own | ({"values": given} if given else {}))


def _is_listed(path: str, listed: Iterable[Mapping[str, Any]]) -> bool:
    matching = [
        each for each in listed if re.fullmatch(glob_pattern(str(each.get("path") or "")), path) is not None
    ]
    return bool(matching) and not any(each.get("exclude") for each in matching)


def _contents(file: Path, path: Path) -> list[dict[str, Any]]:
    value = _documents(file.read_bytes(), path.as_posix())
    return [each for each in (value if isinstance(value, list) else [value]) if isinstance(each, dict)]


def _documents(data: bytes, where: str) -> Any:
    try:
        documents = load_documents(data, PACKAGE_LIMITS)
    except YamlError as error:
        raise NotConvertedError(f"{where}:{error.line}: {error.message}") from error
    return documents[0].value if documents else []


def _path_values(path: Path, filename: str, prefix: str, scope: TemplateScope) -> dict[str, Any]:
    def normalised(text: str) -> str:
        return re.sub(r"[^a-z0-9-]+", "-", text.lower())

    values: dict[str, Any] = {"basename": path.name, "basenameNormalized": normalised(path.name)}
    if filename:
        values |= {"filename": filename, "filenameNormalized": normalised(filename)}
    if scope.is_go:
        own = {"path": {"path": path.as_posix(), **values, "segments": list(path.parts)}}
        return {prefix: own} if prefix else own
    start = f"{prefix}." if prefix else ""
    numbered = {f"{start}path[{number}]": part for number, part in enumerate(path.parts)}
    own = {f"{start}path.{key}": value for key, value in values.items()}
    return {f"{start}path": path.as_posix(), **own, **numbered}


def _matrix(spec: Mapping[str, Any], scope: TemplateScope) -> Iterator[Parameters]:
    generators = mappings_at(spec, "generators")
    if len(generators) != 2:  # noqa: PLR2004 - as in Argo CD
        raise NotConvertedError("generator matrix: it has not two generators")
    for first in read_generator(generators[0], scope):
        for second in read_generator(render_all(generators[1], first.values, scope), scope):
            if first.selector is not None and second.selector is not None:
                raise NotConvertedError("generator matrix: both sides are clusters")
            selector = first.selector if first.selector is not None else second.selector
            template = joined(first.template, second.template)
            yield Parameters(joined(first.values, second.values), selector, template)


def _merge(spec: Mapping[str, Any], scope: TemplateScope) -> Iterator[Parameters]:
    keys = [str(key) for key in spec.get("mergeKeys") or ()]
    first, *others = (read_generator(each, scope) for each in mappings_at(spec, "generators"))
    for base in first:
        merged = base
        for other in (each for group in others for each in group):
            merged = _overridden(merged, other, keys)
        yield merged


def _overridden(base: Parameters, other: Parameters, keys: list[str]) -> Parameters:
    """Return parameters with those of another generator, where the keys are equal."""
    conditions = []
    for key in keys:
        mine, its = (_key(each, key) for each in (base, other))
        if isinstance(mine, Cel) and isinstance(its, str):
            name = cluster_name(other.values, its if key == "server" else "")
            conditions.append(f"repository.name == {literal(name)}")
        elif mine != its or mine is None:
            return base
    if other.selector:
        labels = mapping_at(other.selector, "matchLabels")
        if "matchExpressions" in other.selector or base.selector is None:
            raise NotConvertedError("generator merge: clusters by matchExpressions, or beside a list")
        conditions += [
            f"{literal(k)} in repository.labels && repository.labels[{literal(k)}] == {literal(str(v))}"
            for k, v in labels.items()
        ]
    if not conditions:
        return replace(base, values=joined(base.values, other.values))
    values = _conditional(base.values, other.values, " && ".join(conditions))
    return replace(base, values=values)


def _key(each: Parameters, key: str) -> Any:
    if each.selector is not None and key in ("server", "name", "nameNormalized"):
        return Cel("repository.name")
    return dict(_flat(each.values)).get(key)


def _conditional(base: Mapping[str, Any], other: Mapping[str, Any], condition: str) -> dict[str, Any]:
    result = dict(base)
    for key, value in other.items():
        old = result.get(key)
        if isinstance(old, dict) and isinstance(value, dict):
            result[key] = _conditional(old, value, condition)
        elif isinstance(old, (str, Cel, bool, int, float)) and not isinstance(
            old, Cel if key == "name" else ()
        ):
            new, before = (e.text if isinstance(e, Cel) else literal(_text(e)) for e in (value, old))
            result[key] = old if new == before else Cel(f"({condition} ? {new} : {before})")
    return result


def cluster_name(values: Mapping[str, Any], server: str) -> str:
    """Return the name of a cluster's Repository: what the parameters call it, else the host of its server."""
    named = dict(_flat(values))
    text = next(
        (named[key] for key in ("cluster", "name", "clusterName", "cluster.name") if key in named), ""
    )
    host = "in-cluster" if "kubernetes.default.svc" in server else re.sub(r"^\w+://|[:/].*$", "", server)
    return re.sub(r"[^a-z0-9]+", "-", (text or host).lower()).strip("-")


_READERS: Mapping[str, Callable[[Mapping[str, Any], TemplateScope], Iterator[Parameters]]] = {
    "list": _list,
    "clusters": _clusters,
    "git": _git,
    "matrix": _matrix,
    "merge": _merge,
}
