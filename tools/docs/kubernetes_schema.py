"""Generate the merge keys of Kubernetes' kinds from its published OpenAPI definitions.

Run as `python -m tools.docs.kubernetes_schema` (part of `make docs`). The definitions of all supported
versions are in the package `kubernetes-validate`; the newest version of each type wins: kinds that
Kubernetes removed keep the merge keys of their last version. `kubernetes-1.21.json` is the schema inside kpt,
which never changes.
"""

import sys
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import orjson

FOLDER = Path(__file__).resolve().parents[2] / "reconciler/krm/schema"
OLD, NEW = Path(__file__).with_name("kubernetes-1.21.json"), FOLDER / "kubernetes.json"
CORE, META = "io.k8s.api.core.v1.", "io.k8s.apimachinery.pkg.apis.meta.v1."
HANDLER = ["exec", "grpc", "httpGet", "sleep", "tcpSocket"]
UNIONS = {
    f"{CORE}EnvVar": ["value", "valueFrom"],
    f"{CORE}LifecycleHandler": HANDLER,
    f"{CORE}Probe": HANDLER,
    f"{CORE}Volume": [
        *("configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "hostPath", "image", "nfs"),
        *("persistentVolumeClaim", "projected", "secret"),
    ],
}
"""Fields of which at most one may be set; OpenAPI cannot express them."""
DEFAULTS = {"protocol": "TCP"}
"""Values of merge keys that may be absent; the published definitions leave them out."""
LEGACY_KINDS = {
    f"{version}/{kind}": f"io.k8s.api.apps.v1.{kind}"
    for version in ("apps/v1beta1", "apps/v1beta2", "extensions/v1beta1")
    for kind in ("DaemonSet", "Deployment", "ReplicaSet", "StatefulSet")
}
"""Kinds that Kubernetes removed before 1.21."""


def generate() -> bytes:
    """Return the content of `kubernetes.json`."""
    types: dict[str, Any] = {}
    kinds: dict[str, str] = {}
    versions = list(_definitions())
    for _, definitions in versions:
        types |= {name: _type(schema) for name, schema in definitions.items()}
        kinds |= _kinds(definitions)
    frozen = orjson.loads(OLD.read_bytes())
    old_types = {name: {"lists": {}, "fields": {}, **entry} for name, entry in frozen["types"].items()}
    types, kinds = {**old_types, **types}, {**frozen["kinds"], **LEGACY_KINDS, **kinds}
    for name, union in UNIONS.items():
        types[name]["union"] = union
    _cut_cycles(types)
    data = {
        "source": f"OpenAPI of Kubernetes 1.21 and {versions[0][0]} to {versions[-1][0]}",
        "types": {name: types[name] for name in sorted(_useful(types))},
        "kinds": dict(sorted(kinds.items())),
    }
    return orjson.dumps(data, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def _definitions() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield version and definitions of each Kubernetes release, the oldest first."""
    folder = files("kubernetes_validate").joinpath("kubernetes-json-schema")
    releases = [path for path in folder.iterdir() if path.name.endswith("-local")]
    for release in sorted(releases, key=lambda path: [int(n) for n in path.name[1:-6].split(".")]):
        document = orjson.loads(release.joinpath("_definitions.json").read_bytes())
        version = ".".join(release.name[1:].split(".")[:2])
        yield version, document.get("$defs") or document["definitions"]


def _type(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the lists with merge keys of a type, and the types of its other fields."""
    lists, fields = {}, {}
    for name, field in sorted((schema.get("properties") or {}).items()):
        keys = _keys(field)
        element, values = field.get("items") or {}, field.get("additionalProperties")
        if keys is not None:
            lists[name] = _list(keys, _reference(element))
        elif (target := _reference(field)) or (isinstance(values, dict) and (target := _reference(values))):
            fields[name] = target
    return {"lists": lists, "fields": fields}


def _list(keys: list[str], target: str) -> dict[str, Any]:
    defaults = {key: DEFAULTS[key] for key in keys if key in DEFAULTS}
    return {
        "keys": keys,
        **({"items": target} if target else {}),
        **({"defaults": defaults} if defaults else {}),
    }


def _keys(field: dict[str, Any]) -> list[str] | None:
    if field.get("x-kubernetes-list-type") == "set":
        return []
    if field.get("x-kubernetes-list-type") == "map":
        return list(field["x-kubernetes-list-map-keys"])
    if "merge" not in str(field.get("x-kubernetes-patch-strategy", "")).split(","):
        return None
    key = field.get("x-kubernetes-patch-merge-key")
    return [key] if key else []


def _reference(schema: dict[str, Any]) -> str:
    references = [schema, *schema.get("allOf", []), *schema.get("oneOf", []), *schema.get("anyOf", [])]
    return next((str(s["$ref"]).rpartition("/")[2] for s in references if "$ref" in s), "")


def _kinds(definitions: dict[str, Any]) -> dict[str, str]:
    """Return the type of every kind with object metadata."""
    kinds = {}
    for name, schema in definitions.items():
        group_kinds = schema.get("x-kubernetes-group-version-kind", [])
        metadata = _reference((schema.get("properties") or {}).get("metadata") or {})
        if len(group_kinds) == 1 and metadata == f"{META}ObjectMeta":
            group, version, kind = (group_kinds[0][part] for part in ("group", "version", "kind"))
            kinds[f"{group}/{version}/{kind}".removeprefix("/")] = name
    return kinds


def _cut_cycles(types: dict[str, Any]) -> None:
    """Remove references to an enclosing type, so that every shape is finite."""
    finished: set[str] = set()

    def visit(name: str, above: tuple[str, ...]) -> None:
        if name in finished or name not in types:
            return
        fields, lists = types[name]["fields"], types[name]["lists"]
        for field in [f for f, target in fields.items() if target in (*above, name)]:
            del fields[field]
        for entry in lists.values():
            if entry.get("items") in (*above, name):
                del entry["items"]
        for target in [*fields.values(), *(entry.get("items", "") for entry in lists.values())]:
            visit(target, (*above, name))
        finished.add(name)

    for name in sorted(types):
        visit(name, ())


def _useful(types: dict[str, Any]) -> set[str]:
    """Return the types with a merge key or a union in or below them; remove references to other types."""
    useful = {name for name, entry in types.items() if entry["lists"] or "union" in entry}
    while True:
        above = {name for name, entry in types.items() if useful & {*entry["fields"].values()}} - useful
        if not above:
            break
        useful |= above
    for entry in types.values():
        entry["fields"] = {field: target for field, target in entry["fields"].items() if target in useful}
        for keyed in entry["lists"].values():
            if keyed.get("items") not in useful:
                keyed.pop("items", None)
        for part in ("lists", "fields"):
            if not entry[part]:
                del entry[part]
    return useful


if __name__ == "__main__":
    NEW.write_bytes(generate())
    sys.stdout.write(f"{NEW.name} is up to date\n")
