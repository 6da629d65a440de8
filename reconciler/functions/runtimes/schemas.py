"""Validation against the schemas of Kubernetes and of CRDs, in place of kubeconform and kubeval.

Runs in this process, without a network. The schemas come with an optional library (the extra `schemas`).
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import orjson

from reconciler.admission.cluster import definitions_of
from reconciler.admission.structural import Structural
from reconciler.base.suggestions import parse_boolean
from reconciler.functions.catalog import SCHEMA_VALIDATORS
from reconciler.functions.protocol import FunctionCall, FunctionResult, FunctionRun, place_of
from reconciler.names.ids import group_of

_LIBRARIES: Final = ("jsonschema_rs", "kubernetes_validate")
_SKIPPED_GROUPS: Final = frozenset(("kpt.dev", "fn.kpt.dev"))
_LOCAL_CONFIG: Final = "config.kubernetes.io/local-config"
_MOST: Final = 20
"""Errors reported of one resource: the others are often consequences of these."""


class SchemaRuntime:
    """Validates resources and changes nothing. Schemas are compiled once per kind.

    A package's own CustomResourceDefinitions come first, then those of the cluster (`definitions`),
    then the kinds of Kubernetes.
    """

    def __init__(self, definitions: Sequence[Mapping[str, Any]] = ()) -> None:
        self._compiled: dict[tuple[str, bool], Any] = {}
        self._definitions = definitions

    @cached_property
    def _cluster(self) -> "_CustomSchemas":
        return dict(_custom_schemas(self._definitions))

    def can_run(self, call: FunctionCall) -> str:
        """Return "" for a schema validator of the catalog, else the reason."""
        if call.claimed not in SCHEMA_VALIDATORS:
            return "It is not built in"
        if all(find_spec(name) for name in _LIBRARIES):
            return ""
        return (
            "Its schemas are not installed: install the reconciler with its extra `schemas` (docs/install.md)"
        )

    def run(self, call: FunctionCall) -> FunctionRun:
        """Return each error of each resource as a result of severity error."""
        data = (call.config or {}).get("data")
        options = data if isinstance(data, Mapping) else {}
        skipped = frozenset(str(options.get("skip_kinds") or "").replace(" ", "").split(","))
        strict = parse_boolean(options.get("strict")) is True
        lenient = parse_boolean(options.get("ignore_missing_schemas")) is True
        custom_schemas = dict(_custom_schemas(call.items))
        results = [
            result
            for item in call.items
            if str(item.get("kind")) not in skipped and not _is_for_tools(item)
            for result in self._errors(item, custom_schemas, strict=strict, lenient=lenient)
        ]
        return FunctionRun(call.items, tuple(results), 1 if results else 0)

    def _errors(
        self, item: Mapping[str, Any], custom_schemas: "_CustomSchemas", *, strict: bool, lenient: bool
    ) -> Iterator[FunctionResult]:
        version, kind = str(item.get("apiVersion")), str(item.get("kind"))
        schema = custom_schemas.get((version, kind)) or self._cluster.get((version, kind))
        if schema is not None:
            yield from _custom_errors(schema, item)
            return
        validator = self._kubernetes(version, kind, strict=strict)
        if validator is None:
            if not lenient:
                yield _result(item, f"could not find schema for {kind} of {version}")
            return
        for number, error in enumerate(validator.iter_errors(dict(item))):
            if number == _MOST:
                return
            path = ".".join(map(str, error.instance_path))
            # The message of the library quotes the value.
            reason = "it does not fit the schema" if kind == "Secret" else error.message
            yield _result(item, f"{path or 'the resource'}: {reason}", path)

    def _kubernetes(self, version: str, kind: str, *, strict: bool) -> Any:
        """Return the compiled schema of a kind of Kubernetes, None for any other kind."""
        parts = version.split("/")
        group = [part.partition(".")[0] for part in parts[:-1]]
        name = "-".join([kind.lower(), *group, parts[-1]]) + ".json"
        key = (name, strict)
        if key not in self._compiled:
            directory = self._directories[strict]
            file = directory / name
            exists = file.parent == directory and file.is_file()  # a kind may contain `../`
            schema = orjson.loads(file.read_bytes()) if exists else None
            self._compiled[key] = _compile(schema, directory) if schema is not None else None
        return self._compiled[key]

    @cached_property
    def _directories(self) -> dict[bool, Path]:
        """The directories of the newest installed schemas, by whether unknown fields are errors."""
        spec = find_spec("kubernetes_validate")
        home = Path(spec.origin).parent if spec is not None and spec.origin else Path()
        versions = [path for path in (home / "kubernetes-json-schema").glob("v*-local*") if path.is_dir()]
        versions.sort(key=lambda path: [int(part) for part in path.name[1:].partition("-")[0].split(".")])
        newest = {path.name.endswith("-strict"): path for path in versions}
        return {strict: newest.get(strict, home) for strict in (False, True)}


def _compile(schema: Any, directory: Path | None) -> Any:
    from jsonschema_rs import Draft7Validator  # noqa: PLC0415 - optional, and rarely needed

    def retrieve(uri: str) -> Any:
        name = uri.rpartition("/")[2].partition("#")[0]
        if directory is None or name != "_definitions.json":
            raise ValueError(f"A schema must not refer to {uri}")
        return orjson.loads((directory / name).read_bytes())

    return Draft7Validator(schema, retriever=retrieve)


_CustomSchemas = Mapping[tuple[str, str], Structural]
"""Schemas of CustomResourceDefinitions by apiVersion and kind."""


def _custom_schemas(values: Sequence[Mapping[str, Any]]) -> Iterator[tuple[tuple[str, str], Structural]]:
    for kind, definition in definitions_of(values):
        for version, schema in definition.schemas.items():
            yield (f"{kind.group}/{version}", kind.kind), schema.of_files


def _custom_errors(schema: Structural, item: Mapping[str, Any]) -> Iterator[FunctionResult]:
    try:
        faults = [fault for fault in schema.find_faults(None, item) if fault.is_sure]
    except ValueError as invalid:
        version, kind = item.get("apiVersion"), item.get("kind")
        yield _result(item, f"the schema of {kind} of {version} is none: {invalid}")
        return
    for fault in faults[:_MOST]:
        yield _result(item, f"{fault.path or 'the resource'}: {fault.reason}", fault.path)


def _is_for_tools(item: Mapping[str, Any]) -> bool:
    if group_of(str(item.get("apiVersion"))) in _SKIPPED_GROUPS:
        return True
    metadata = item.get("metadata")
    notes = metadata.get("annotations") if isinstance(metadata, Mapping) else None
    return isinstance(notes, Mapping) and str(notes.get(_LOCAL_CONFIG, "false")) not in ("", "false")


def _result(item: Mapping[str, Any], message: str, path: str = "") -> FunctionResult:
    metadata = item.get("metadata")
    named = metadata if isinstance(metadata, Mapping) else {}
    reference = {field: str(item[field]) for field in ("apiVersion", "kind") if field in item}
    reference |= {field: str(named[field]) for field in ("namespace", "name") if field in named}
    field = {"path": path} if path else None
    return FunctionResult(message, "error", reference, field, place_of(item))
