"""Annotations and labels with the prefix `reconciler.dev/`: their kinds of object and valid values."""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from reconciler.api.validation import FieldError, described
from reconciler.base.reasons import Reason
from reconciler.base.suggestions import parse_boolean, suggest

PREFIX = "reconciler.dev/"
DEPENDENCY = "a manifest of dependencies"
"""Manifests of Carvel, Crossplane and Porter, which have the same keys."""
INSTALLATION = "Installation"
VERSION = "PackageVersion"
"""The header of a version in the package index."""
CRD = "CustomResourceDefinition"
RESOURCE = "a resource of a package"
REVISIONS = "the package revisions of a PackageVariant"
"""Annotations and labels in `spec` of a variant or in a template of a set; they go to package revisions."""

_VARIANT, _SET, _REPOSITORY, _KPTFILE = "PackageVariant", "PackageVariantSet", "Repository", "Kptfile"
_KEY_PATHS = (("metadata", "annotations"), ("metadata", "labels"))

Check = Callable[[Any], bool]


class Key(NamedTuple):
    """One key: the kinds that may have it, the check of its value, and its description for people."""

    name: str
    kinds: frozenset[str]
    accepts: Check
    expects: str
    words: tuple[str, ...] = ()
    may_be_label: bool = False


def _of_words(name: str, kinds: set[str], *words: str, may_be_label: bool = False) -> Key:
    quoted = " or ".join(f'"{word}"' for word in words)
    return Key(PREFIX + name, frozenset(kinds), words.__contains__, quoted, words, may_be_label)


def _matching(name: str, kinds: set[str], pattern: str, expects: str) -> Key:
    compiled = re.compile(pattern)
    return Key(
        PREFIX + name,
        frozenset(kinds),
        lambda value: isinstance(value, str) and compiled.fullmatch(value) is not None,
        expects,
    )


def _text(name: str, kinds: set[str]) -> Key:
    # Whoever selects Repositories by `reconciler.dev/environment` needs it as a label, too.
    accepts = lambda value: isinstance(value, str)  # noqa: E731 - a value of the table
    return Key(PREFIX + name, frozenset(kinds), accepts, "a text", may_be_label=True)


_CHOICE = r"(upstream|local|ask|fail)"
_FIELDS = rf"\s*[^=;]+=\s*{_CHOICE}\s*(;\s*[^=;]+=\s*{_CHOICE}\s*)*;?\s*"

_REVISION = r"[^:;\s]+\s*:\s*[^:;\s]+"

_WAVES = r"\s*[^;\s][^;]*/[a-z0-9-]+\s*(;\s*[^;\s][^;]*/[a-z0-9-]+\s*)*;?\s*"
_WAVES_TEXT = "a revision and a wave, separated by a slash, such as web/v2/canary; several by semicolons"

KEYS: Mapping[str, Key] = {
    key.name: key
    for key in (
        _of_words("paused", {_VARIANT, _SET, _REPOSITORY}, "true", "false"),
        _of_words("rollout-paused", {_SET}, "true", "false"),
        _matching("rollout-go", {_SET}, _WAVES, _WAVES_TEXT),
        _matching("rollout-start", {_SET}, _WAVES, _WAVES_TEXT),
        _matching("rollout-skip", {_SET}, _WAVES, _WAVES_TEXT),
        _text("rollout-rollback", {_SET}),
        _matching("allow-deletes", {_SET}, "[0-9]{1,9}", 'a whole number in quotes, such as "12"'),
        _text("cel-extensions", {_SET}),
        _matching(
            "clusters",
            {_SET},
            r"\s*[a-z0-9][-a-z0-9.]*\s*(,\s*[a-z0-9][-a-z0-9.]*\s*)*",
            "names of clusters, separated by commas, such as edge-1,edge-2",
        ),
        _text("retry", {_VARIANT, _SET, _REPOSITORY}),
        _of_words("on-conflict", {_VARIANT, _SET, _KPTFILE, RESOURCE}, "ask", "upstream", "local", "fail"),
        _matching(
            "on-conflict-fields",
            {_VARIANT, _SET, _KPTFILE},
            _FIELDS,
            "patterns of fields with a choice each, such as spec.replicas=local;spec.*=upstream",
        ),
        _matching(
            "follow-moved-tag",
            {_VARIANT, _SET},
            r"\s*[0-9a-f]{7,40}\s*",
            "a commit, at least seven digits of it",
        ),
        _matching(
            "subpackage-revisions",
            {_VARIANT, _SET},
            rf"\s*{_REVISION}(\s*[;\n]\s*{_REVISION})*\s*;?\s*",
            "a directory and a revision, such as infra/db: v3; several by semicolons or lines",
        ),
        _text("service-account", {_VARIANT, REVISIONS}),
        _text("requested-by", {_VARIANT}),
        _text("cluster", {_REPOSITORY, DEPENDENCY, INSTALLATION}),
        _text("environment", {_REPOSITORY}),
        _of_words("unavailable", {_REPOSITORY}, "fail", "warn"),
        _of_words("plain-packages", {_REPOSITORY}, "true", "false"),
        Key(
            f"{PREFIX}dependencies",
            frozenset({_REPOSITORY, INSTALLATION}),
            lambda value: value is False or isinstance(value, str | dict),
            "the path of a package on a Repository; a mapping of aliases, or false, on an Installation",
        ),
        _text("owner", {_VARIANT, _KPTFILE, DEPENDENCY, INSTALLATION}),
        _text("location", {_KPTFILE}),
        _text("needed-by", {DEPENDENCY, INSTALLATION}),
        _text("version", {INSTALLATION}),
        _text("take-over", {DEPENDENCY}),
        _text("withdrawn", {DEPENDENCY}),
        _of_words("retain", {DEPENDENCY, VERSION}, "true", "false", may_be_label=True),
        _of_words("prune-orphaned-crds", {DEPENDENCY}, "true", "false"),
        Key(
            f"{PREFIX}prune-dependencies",
            frozenset({DEPENDENCY, INSTALLATION}),
            lambda value: parse_boolean(value) is not None,
            'true or false ("true" or "false" as an annotation)',
        ),
        Key(
            f"{PREFIX}external",
            frozenset({INSTALLATION}),
            lambda value: isinstance(value, bool),
            "true or false",
        ),
        _text("version-strategy", {INSTALLATION}),
        _text("merge-keys", {CRD, RESOURCE}),
        _of_words("chart-files", {RESOURCE}, "resources", "templates"),
        _of_words("chart-values", {RESOURCE}, "keep"),
        _text("chart-source", {RESOURCE}),
        _text("chart-digest", {RESOURCE}),
        _text("chart-dependencies", {RESOURCE}),
        _text("chart-versions", {RESOURCE}),
    )
}
"""Every key with our prefix; `docs/manifests.md` has the same table."""


def check_keys(kind: str, value: Mapping[str, Any]) -> tuple[FieldError, ...]:
    """Return the errors of our keys on one object, in the order of the object. Total.

    Unknown keys and invalid values are errors: a misspelt safety annotation must not be ignored.
    """
    errors = (error for path in _KEY_PATHS for error in _check_path(kind, value, path))
    return (*errors, *_check_revisions(kind, value))


def check_resource(value: Mapping[str, Any]) -> tuple[FieldError, ...]:
    """Return the errors of our keys on one resource of a package. Total.

    Keys of other kinds are valid: packages may contain variants, sets and dependencies as resources.
    """
    return tuple(error for path in _KEY_PATHS for error in _check_path(RESOURCE, _resource_keys(value), path))


def check_mapping(
    kind: str, prefix: tuple[str | int, ...], entries: Mapping[Any, Any]
) -> Iterator[FieldError]:
    """Yield the errors of our keys in the mapping at path `prefix`."""
    for name, value in entries.items():
        if not isinstance(name, str) or not name.startswith(PREFIX):
            continue
        key, path = KEYS.get(name), (*prefix, name)
        if key is None or kind not in key.kinds:
            valid = (key.name for key in KEYS.values() if kind in key.kinds)
            message = f"{name} is unknown on {_called(kind)}"
            elsewhere = kind == REVISIONS and key is not None and key.kinds & {_VARIANT, _SET}
            hint = "Write it in metadata.annotations." if elsewhere else suggest(name, valid, most=1)
            yield FieldError(path, Reason.UNKNOWN_ANNOTATION, message, hint, of_key=True)
        elif not key.accepts(value):
            text = repr(value[:60]) if isinstance(value, str) else described(value)
            message = f"{name} must be {key.expects}, but is {text}"
            hint = suggest(str(value), key.words, most=1) if key.words else f"Write {key.expects}."
            hint = f"Write it in quotes: {key.expects}." if isinstance(value, bool) else hint
            yield FieldError(path, Reason.INVALID_ANNOTATION, message, hint)
        elif "labels" in prefix and not key.may_be_label:
            message = f"{name} is an annotation, and nothing reads it among the labels"
            hint = "Write it in metadata.annotations."
            yield FieldError(path, Reason.UNKNOWN_ANNOTATION, message, hint, of_key=True)


def _check_path(kind: str, value: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[FieldError]:
    entries: Any = value
    for step in path:
        entries = entries.get(step) if isinstance(entries, Mapping) else None
    if isinstance(entries, Mapping):
        yield from check_mapping(kind, path, entries)


def _check_revisions(kind: str, value: Mapping[str, Any]) -> Iterator[FieldError]:
    """Yield the errors of our keys that a variant or the template of a set gives to revisions."""
    spec = value.get("spec") if kind in (_VARIANT, _SET) else None
    targets = spec.get("targets") if kind == _SET and isinstance(spec, Mapping) else None
    templates: list[tuple[tuple[str | int, ...], Any]] = [(("spec",), spec)] if kind == _VARIANT else []
    for index, target in enumerate(targets if isinstance(targets, list) else ()):
        template = target.get("template") if isinstance(target, Mapping) else None
        templates.append((("spec", "targets", index, "template"), template))
    for path, template in templates:
        for name in ("annotations", "labels") if isinstance(template, Mapping) else ():
            entries = template.get(name)
            if isinstance(entries, Mapping):
                yield from check_mapping(REVISIONS, (*path, name), entries)
            yield from _check_expressions(template, path, f"{name.removesuffix('s')}Exprs")


def _check_expressions(
    template: Mapping[str, Any], path: tuple[str | int, ...], field: str
) -> Iterator[FieldError]:
    """Yield the errors of our keys among expressions; their values are known only after expansion."""
    expressions = template.get(field)
    for index, expression in enumerate(expressions if isinstance(expressions, list) else ()):
        key = expression.get("key") if isinstance(expression, Mapping) else None
        for error in check_mapping(REVISIONS, (), {key: ""}):
            yield error._replace(path=(*path, field, index, "key"), of_key=False)


def _resource_keys(value: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the metadata of a resource without our keys for other kinds."""
    metadata = value.get("metadata")
    if not isinstance(metadata, Mapping):
        return {}
    return {
        "metadata": {
            name: {k: v for k, v in entries.items() if k not in KEYS or RESOURCE in KEYS[k].kinds}
            for name, entries in metadata.items()
            if isinstance(entries, Mapping)
        }
    }


def _called(kind: str) -> str:
    return kind if kind.startswith(("a ", "the ")) else f"{'an' if kind[0] in 'AEIO' else 'a'} {kind}"
