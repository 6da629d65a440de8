"""The fields of the configurations of builtin functions: others are refused, never taken as absent (D31)."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from reconciler.api.kptfile import PACKAGE_CONTEXT_NAME
from reconciler.functions.kptfile_check import BOOLEAN, TEXT, TEXT_MAP, TEXTS, FieldFault, check_fields

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
    "SetImage": {
        "image": dict.fromkeys(_CONFIG_MAPS["set-image"], TEXT),
        "additionalImageFields": _SPECS,
    },
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
