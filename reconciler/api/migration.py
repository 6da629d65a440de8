"""Translate PackageVariantSets of v1alpha1, which no Porch serves any more, to v1alpha2."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from reconciler.api.porch import PACKAGE_VARIANT_SET
from reconciler.base.lazy import regex
from reconciler.krm.yaml import emit

_FIELD = regex(
    r"metadata\.(?:(name|namespace)|(labels|annotations)(?:\.([^\[\]]+)|\[[\"']?([^\[\]\"']+)[\"']?\]))"
)


_NAME: Mapping[str, Any] = {"value": None, "fromField": None}
_SELECTOR: Mapping[str, Any] = {"matchLabels": {}, "matchExpressions": None}
_TARGET: Mapping[str, Any] = {
    "package": {"repo": None, "name": None},
    "repositories": _SELECTOR,
    "objects": {
        "selectors": [
            {
                "apiVersion": None,
                "kind": None,
                "name": None,
                "namespace": None,
                "labelSelector": _SELECTOR,
                "labels": _SELECTOR,
                "annotations": None,
            }
        ],
        "repoName": _NAME,
    },
    "packageName": {"baseName": _NAME, "namePrefix": _NAME, "nameSuffix": _NAME},
}
_SHAPE: Mapping[str, Any] = {
    "apiVersion": None,
    "kind": None,
    "metadata": {},
    "status": None,
    "spec": {
        "upstream": {"package": {"repo": None, "name": None}, "revision": None, "ref": None, "tag": None},
        "targets": [_TARGET],
        "adoptionPolicy": None,
        "deletionPolicy": None,
        "labels": {},
        "annotations": {},
    },
}
"""The fields of v1alpha1 that have a translation; None means any value, {} any keys."""


def untranslated_fields(document: Mapping[str, Any]) -> list[str]:
    """Return the paths of fields that `migrate_set` would lose or change.

    These are fields that v1alpha1 does not have, and empty selectors, with which v1alpha2 selects everything.
    """
    spec = _mapping(document.get("spec"))
    upstream = _mapping(spec.get("upstream"))
    named = [key for key in ("ref", "tag") if upstream.get(key) and upstream.get("revision")]
    unknown = [*_unknown_fields(document, _SHAPE, ""), *(f"spec.upstream.{key}" for key in named)]
    empty = _empty_selectors(_sequence(spec.get("targets")))
    return [*unknown, *(path for path in empty if not any(lost.startswith(path) for lost in unknown))]


def _unknown_fields(value: Any, shape: Any, path: str) -> Iterator[str]:
    """Yield the paths at which a value has another shape. Null has any shape: nothing is lost with it."""
    if shape is None or value is None:
        return
    if shape == {}:
        if not isinstance(value, Mapping):
            yield path
    elif isinstance(shape, list):
        if not isinstance(value, list):
            yield path
            return
        for index, item in enumerate(value):
            yield from _unknown_fields(item, shape[0], f"{path}[{index}]")
    elif not isinstance(value, Mapping):
        yield path
    else:
        for key, child in value.items():
            where = f"{path}.{key}" if path else str(key)
            if key not in shape:
                yield where
            else:
                yield from _unknown_fields(child, shape[key], where)


def _empty_selectors(targets: list[Any]) -> Iterator[str]:
    for index, target in enumerate(map(_mapping, targets)):
        where = f"spec.targets[{index}]"
        if "repositories" in target and not target["repositories"]:
            yield f"{where}.repositories"
        elif not any(True for _ in _targets(target, {}, [])):
            yield where


def migrate_set(document: Mapping[str, Any]) -> str:
    """Return the equivalent v1alpha2 manifest as YAML. Total.

    Features without an equivalent are listed first, in comments: a person must translate them.

    Source: porch api/porchconfig v1alpha1 and v1alpha2 of packagevariantsets.
    """
    notes: list[str] = []
    spec = _mapping(document.get("spec"))
    migrated = {
        "apiVersion": PACKAGE_VARIANT_SET,
        "kind": "PackageVariantSet",
        "metadata": _mapping(document.get("metadata")),
        "spec": {
            "upstream": _upstream(_mapping(spec.get("upstream"))),
            "targets": [
                target
                for old in _sequence(spec.get("targets"))
                for target in _targets(_mapping(old), spec, notes)
            ],
        },
    }
    return "".join(f"# {note}\n" for note in dict.fromkeys(notes)) + emit(migrated) + "\n"


def _upstream(old: Mapping[str, Any]) -> dict[str, Any]:
    package = _mapping(old.get("package"))
    new: dict[str, Any] = {}
    for ours, theirs in (("repo", "repo"), ("package", "name")):
        if theirs in package:
            new[ours] = package[theirs]
    # v1alpha1 has revisions and tags in one field: "v3" is a revision, "stable" a tag.
    revision = str(old.get("revision") or "")
    if revision.removeprefix("v").isdigit():
        new["revision"] = int(revision.removeprefix("v"))
    elif revision:
        new["tag"] = revision
    tag = old.get("tag") or old.get("ref")
    if tag and not revision:
        new["tag"] = tag
    return new


def _targets(old: Mapping[str, Any], spec: Mapping[str, Any], notes: list[str]) -> Iterator[dict[str, Any]]:
    if "package" in old:
        package = _mapping(old["package"])
        repository: dict[str, Any] = {"name": package.get("repo", "")}
        if package.get("name"):
            repository["packageNames"] = [package["name"]]
        yield {"repositories": [repository], **_template(old, {}, spec, notes)}
    if "repositories" in old:
        yield {"repositorySelector": _mapping(old["repositories"]), **_template(old, {}, spec, notes)}
    objects = _mapping(old.get("objects"))
    for selector in map(_mapping, _sequence(objects.get("selectors"))):
        labels = _mapping(selector.get("labelSelector") or selector.get("labels"))
        identity = {key: selector[key] for key in ("apiVersion", "kind", "name") if key in selector}
        notes += [
            f"v1alpha2 selects only in the namespace of the set and by labels: {key} was left out"
            for key in ("namespace", "annotations")
            if selector.get(key)
        ]
        template = _template(old, _mapping(objects.get("repoName")), spec, notes)
        yield {"objectSelector": {**identity, **labels}, **template}


def _template(
    old: Mapping[str, Any], repo: Mapping[str, Any], spec: Mapping[str, Any], notes: list[str]
) -> dict[str, Any]:
    downstream = {**_choice("repo", [repo], notes), **_package(_mapping(old.get("packageName")), spec, notes)}
    template: dict[str, Any] = {"downstream": downstream} if downstream else {}
    for key in ("adoptionPolicy", "deletionPolicy", "labels", "annotations"):
        if key in spec:
            template[key] = spec[key]
    return {"template": template} if template else {}


def _package(name: Mapping[str, Any], spec: Mapping[str, Any], notes: list[str]) -> dict[str, Any]:
    if not name:
        return {}
    upstream = _mapping(_mapping(spec.get("upstream")).get("package")).get("name", "")
    base = _mapping(name.get("baseName")) or {"value": upstream}
    parts = [_mapping(name.get("namePrefix")), base, _mapping(name.get("nameSuffix"))]
    return _choice("package", parts, notes)


def _choice(field: str, parts: Sequence[Mapping[str, Any]], notes: list[str]) -> dict[str, Any]:
    """Return a literal if every part is a literal, else an expression that joins them."""
    parts_with_value = [part for part in parts if part.get("value") or part.get("fromField")]
    if not parts_with_value:
        return {}
    if all(part.get("value") for part in parts_with_value):
        return {field: "".join(str(part["value"]) for part in parts_with_value)}
    return {f"{field}Expr": " + ".join(_expression(part, notes) for part in parts_with_value)}


def _expression(part: Mapping[str, Any], notes: list[str]) -> str:
    if part.get("value"):
        return _quote(str(part["value"]))
    path = str(part["fromField"]).removeprefix(".")
    match = _FIELD.fullmatch(path)
    if match is None:
        notes.append(f"v1alpha2 sees only metadata of an object: {path} has no equivalent")
        return _quote(path)
    plain, kind, dotted, indexed = match.groups()
    return f"target.{plain}" if plain else f"target.{kind}[{_quote(dotted or indexed)}]"


def _quote(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _mapping(value: Any) -> dict[str, Any]:
    return dict(value) if isinstance(value, Mapping) else {}


def _sequence(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list) else []
