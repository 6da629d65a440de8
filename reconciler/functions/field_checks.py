"""Fields of Kptfiles and of configurations: unknown and mistyped ones are never taken as absent."""

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

from reconciler.api.kptfile import KPTFILE, KPTFILE_VERSION, PACKAGE_CONTEXT_NAME
from reconciler.base.errors import Location
from reconciler.base.suggestions import boolean_hint, parse_boolean, suggest
from reconciler.base.text import Text
from reconciler.functions.patterns import ignore_spec
from reconciler.functions.resources import IGNORE_FILE
from reconciler.krm.yaml import KPTFILE_LIMITS, Document, Path, YamlError, load_documents, path_text
from reconciler.names.objects import File, Files, Mode


class KptfileError(NamedTuple):
    """One fault of a Kptfile: its place, what is wrong, and what to do."""

    location: Location
    message: Text
    hint: Text = ""

    def __str__(self) -> str:
        return f"{self.location}: {self.message}{f'. {self.hint}' if self.hint else ''}"


TEXT: Final = "text"
BOOLEAN: Final = "boolean"
TEXTS: Final = [TEXT]
TEXT_MAP: Final = {"*": TEXT}
_GIT: Final = {"repo": TEXT, "directory": TEXT, "ref": TEXT}
_SELECTOR: Final = {
    **dict.fromkeys(("apiVersion", "kind", "name", "namespace"), TEXT),
    "labels": TEXT_MAP,
    "annotations": TEXT_MAP,
}
_FUNCTION: Final = {
    **dict.fromkeys(("image", "exec", "configPath", "name", "tag"), TEXT),
    "configMap": TEXT_MAP,
    "selectors": [_SELECTOR],
    "exclude": [_SELECTOR],
}
_KPTFILE: Final[dict[str, Any]] = {
    "apiVersion": TEXT,
    "kind": TEXT,
    # Kubernetes' own fields of metadata are no mistake.
    "metadata": {"name": TEXT, "namespace": TEXT, "labels": TEXT_MAP, "annotations": TEXT_MAP, "*": None},
    "upstream": {"type": TEXT, "git": _GIT, "updateStrategy": TEXT},
    "upstreamLock": {
        "type": TEXT,
        "git": {**_GIT, "commit": TEXT},
        "generic": dict.fromkeys(("storeID", "resourceID", "resourceVersion"), TEXT),
    },
    "info": {
        **dict.fromkeys(("site", "license", "licenseFile", "description", "man"), TEXT),
        "emails": TEXTS,
        "keywords": TEXTS,
        "readinessGates": [{"conditionType": TEXT}],
    },
    "pipeline": {"mutators": [_FUNCTION], "validators": [_FUNCTION]},
    "inventory": {
        **dict.fromkeys(("namespace", "name", "inventoryID"), TEXT),
        "labels": TEXT_MAP,
        "annotations": TEXT_MAP,
    },
    "status": {
        "conditions": [dict.fromkeys(("type", "status", "reason", "message"), TEXT)],
        "renderStatus": None,
    },
}
"""Fields of a Kptfile by name: a text, a list, a mapping (`*` for any key), or None for what is not checked.

Source: kpt api/kptfile/v1, KptFile, which is decoded strictly.
"""
_OLD_VERSIONS: Final = ("kpt.dev/v1alpha1", "kpt.dev/v1alpha2")
_MIGRATION: Final = "Bring the package to kpt.dev/v1: https://kpt.dev/installation/migration."
_HINT: Final = "Write `apiVersion: kpt.dev/v1`, `kind: Kptfile` and `metadata.name` into it."


def check_kptfiles(files: Files) -> tuple[KptfileError, ...]:
    """Return the faults of all Kptfiles of a package, by file and line, and of what its packages ignore."""
    checks: dict[str, Callable[[File], tuple[KptfileError, ...]]] = {
        KPTFILE: _faults,
        IGNORE_FILE: _ignore_faults,
    }
    checked = sorted(
        (path, path.rpartition("/")[2]) for path in files if path.endswith((KPTFILE, IGNORE_FILE))
    )
    return tuple(
        error._replace(location=error.location._replace(path=path))
        for path, name in checked
        if name in checks
        for error in checks[name](files[path])
    )


def _ignore_faults(file: File) -> tuple[KptfileError, ...]:
    if ignore_spec(file.data) is not None:
        return ()
    message = "The file has more or longer patterns than can be compiled"
    return (KptfileError(Location(IGNORE_FILE), message, "Write fewer, shorter ones."),)


@lru_cache(maxsize=1024)
def _faults(file: File) -> tuple[KptfileError, ...]:
    if file.mode == Mode.SYMLINK:
        return (
            KptfileError(Location(KPTFILE), "The Kptfile is a symbolic link", "Put the file itself there."),
        )
    try:
        file.data.decode()
        documents = load_documents(file.data, KPTFILE_LIMITS)
    except UnicodeDecodeError:
        # YAML may be UTF-16, and nothing else here reads that.
        return (KptfileError(Location(KPTFILE, 1), "The Kptfile is no UTF-8 text", "Save it as UTF-8."),)
    except YamlError as error:
        message = f"The Kptfile cannot be read: {error.message}"
        return (KptfileError(Location(KPTFILE, error.line, error.column), message, error.hint),)
    value = documents[0].value if documents else None
    if not isinstance(value, dict):
        return (KptfileError(Location(KPTFILE, 1), "The Kptfile cannot be read: it has no fields", _HINT),)
    document = documents[0]
    if len(documents) > 1:
        message = "The Kptfile has a second document, which nothing reads"
        return (
            KptfileError(
                Location(KPTFILE, documents[1].line), message, "Remove it, or give it its own file."
            ),
        )
    errors = _version_faults(document) or [
        KptfileError(Location(KPTFILE, *document.key_mark(path)), message, hint)
        for path, message, hint in check_fields(value, _KPTFILE, (), "a Kptfile")
    ]
    return tuple(sorted(errors, key=lambda error: error.location))


def _version_faults(document: Document) -> list[KptfileError]:
    version, kind = document.value.get("apiVersion"), document.value.get("kind")
    if (version, kind) == (KPTFILE_VERSION, KPTFILE):
        return []
    location = Location(
        KPTFILE, *document.key_mark(("kind" if version == KPTFILE_VERSION else "apiVersion",))
    )
    if kind == KPTFILE and version in _OLD_VERSIONS:
        message = f"The Kptfile has an old version ({version}) of its schema"
        return [KptfileError(location, message, _MIGRATION)]
    message = (
        f"The Kptfile has an unknown resource type ({version or 'no apiVersion'}, kind {kind or 'none'})"
    )
    return [KptfileError(location, message, _HINT)]


class FieldFault(NamedTuple):
    """An unknown or mistyped field: its path, what is wrong, and what to do."""

    path: Path
    message: Text
    hint: Text = ""


def check_fields(value: Any, shape: Any, path: Path, owner: str) -> Iterator[FieldFault]:
    """Yield the unknown and mistyped fields of a value of `owner`; a null is an absent field.

    A shape is TEXT, BOOLEAN, a list of one shape, a mapping of names to shapes (`*` for any), or None for
    anything.
    """
    if value is None or shape is None:
        return
    kind = dict if isinstance(shape, dict) else list if isinstance(shape, list) else str
    if shape is BOOLEAN and value != "" and parse_boolean(value) is None:
        yield FieldFault(path, f"{path_text(path)} must be true or false", boolean_hint(value))
    elif kind is str and isinstance(value, (dict, list)):
        yield FieldFault(path, f"{path_text(path)} must be one value, and is a {_NAMES[type(value)]}")
    elif kind is not str and not isinstance(value, kind):
        yield FieldFault(path, f"{path_text(path)} must be a {_NAMES[kind]}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from check_fields(item, shape[0], (*path, index), owner)
    elif isinstance(value, dict):
        for name, item in value.items():
            at = (*path, name)
            if name in shape or "*" in shape:
                yield from check_fields(item, shape.get(name, shape.get("*")), at, owner)
            else:
                yield FieldFault(at, f"{path_text(at)} is no field of {owner}", suggest(name, shape))


_NAMES: Final[dict[type, str]] = {dict: "mapping", list: "list"}


_VALIDATION: Final = (
    "additional_schema_locations",
    "ignore_missing_schemas",
    "schema_location",
    "skip_kinds",
    "strict",
)
_CONFIG_MAPS: Final[dict[str, tuple[str, ...]]] = {
    **dict.fromkeys(("generate-folders", "list-setters", "remove-local-config-resources"), ()),
    "enable-gcp-services": (),
    "delete-annotations": ("annotationKeys",),
    "ensure-name-substring": ("prepend", "append"),
    "kubeconform": _VALIDATION,
    "kubeval": _VALIDATION,
    "render-helm-chart": (
        *("chartHome", "configHome", "name", "version", "repo", "releaseName", "namespace", "nameTemplate"),
        *("includeCRDs", "skipTests", "valuesFile"),
    ),
    "search-replace": ("by-value", "by-value-regex", "by-path", "by-file-path", "put-value", "put-comment"),
    "set-image": ("name", "newName", "newTag", "digest"),
    "set-namespace": ("namespace", "namespaceMatcher"),
    "set-project-id": ("project-id",),
}
"""Keys of `data`; the other functions take any key, some of those here none."""

_FLAGS: Final = frozenset(("ignore_missing_schemas", "includeCRDs", "skipTests", "strict"))
"""Keys of `data` that are booleans."""
_SPECS: Final = [{**dict.fromkeys(("group", "version", "kind", "path"), TEXT), "create": BOOLEAN}]
_SELECT: Final = dict.fromkeys(
    ("group", "version", "kind", "name", "namespace", "labelSelector", "annotationSelector"), TEXT
)
_OPTIONS: Final = {**dict.fromkeys(("delimiter", "index", "encoding"), TEXT), "create": BOOLEAN}
_ANNOTATIONS: Final = {
    "annotations": TEXT_MAP,
    **dict.fromkeys(("fieldSpecs", "additionalAnnotationFields"), _SPECS),
}
_OBJECTS: Final[dict[str, dict[str, Any]]] = {
    "ApplyReplacements": {
        "replacements": [
            {
                "source": {**_SELECT, "fieldPath": TEXT, "options": _OPTIONS},
                "targets": [
                    {"select": _SELECT, "reject": [_SELECT], "fieldPaths": TEXTS, "options": _OPTIONS}
                ],
            }
        ]
    },
    "EnsureNameSubstring": {
        **dict.fromkeys(("substring", "editMode"), TEXT),
        **dict.fromkeys(("fieldSpecs", "additionalNameFields"), _SPECS),
    },
    "SetAnnotationConfig": _ANNOTATIONS,
    "SetAnnotations": _ANNOTATIONS,
    "RenderHelmChart": {
        "helmGlobals": dict.fromkeys(("chartHome", "configHome"), TEXT),
        "helmCharts": [
            {
                "chartArgs": {**dict.fromkeys(("name", "version", "repo", "registry"), TEXT), "auth": None},
                "templateOptions": {
                    **dict.fromkeys(("releaseName", "namespace", "nameTemplate", "kubeVersion"), TEXT),
                    **dict.fromkeys(("includeCRDs", "skipTests"), BOOLEAN),
                    "description": TEXT,
                    "apiVersions": TEXTS,
                    "values": {"valuesFiles": TEXTS, "valuesInline": {"*": None}, "valuesMerge": TEXT},
                },
            }
        ],
    },
    "SetImage": {"image": dict.fromkeys(_CONFIG_MAPS["set-image"], TEXT), "additionalImageFields": _SPECS},
    "SetLabels": {"labels": None},
    "SetNamespace": dict.fromkeys(_CONFIG_MAPS["set-namespace"], TEXT),
    "StarlarkRun": {"source": TEXT, "params": None},
}
"""Fields of configurations of `fn.kpt.dev`, by kind, besides `apiVersion`, `kind` and `metadata`."""
_OLD_NAMESPACE: Final = {
    "namespace": TEXT,
    **dict.fromkeys(("fieldSpecs", "additionalNamespaceFields"), _SPECS),
}
_KUSTOMIZE: Final = {"SetNamespace": _OLD_NAMESPACE, "SetNamespaceConfig": _OLD_NAMESPACE}
_OLD_OBJECTS: Final[dict[str, dict[str, dict[str, Any]]]] = {
    "default-subjects": _KUSTOMIZE,
    "account-subjects": _KUSTOMIZE,
    "plain": {"SetNamespace": {"namespace": TEXT}},
}
"""The same of profiles of older versions; their ConfigMaps have no `namespaceMatcher` either."""


def check_configuration(function: str, config: Mapping[str, Any], profile: str = "") -> Iterator[FieldFault]:
    """Yield the unknown and mistyped fields of a configuration that a builtin would not read."""
    kind = str(config.get("kind") or "")
    name = (config.get("metadata") or {}).get("name") if isinstance(config.get("metadata"), Mapping) else None
    if kind == "ConfigMap" and function in _CONFIG_MAPS and name != PACKAGE_CONTEXT_NAME:
        keys = ("namespace",) if profile in _OLD_OBJECTS else _CONFIG_MAPS[function]
        shape = {key: BOOLEAN if key in _FLAGS else TEXT for key in keys}
        yield from check_fields(config.get("data"), shape, ("data",), function)
    elif str(config.get("apiVersion") or "").startswith("fn.kpt.dev/") and (
        fields := _OLD_OBJECTS.get(profile, _OBJECTS).get(kind)
    ):
        allowed = {"apiVersion": TEXT, "kind": TEXT, "metadata": None, **fields}
        yield from check_fields(config, allowed, (), kind)
