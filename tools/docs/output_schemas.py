"""The schemas of outputs: what a type has as columns of JSON is written from the type (`make docs`).

A schema keeps its descriptions; a new column gets the docstring below its field. What no type has, such as
the head of an output, is written by hand.
"""

import ast
import inspect
import json
import textwrap
from collections.abc import Iterator, Mapping
from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from reconciler.admission.judgement import AdmissionJudgement
from reconciler.dependencies.lock.changes import VersionChange
from reconciler.plan.changes import Effect, PinChange, Refusal, SubpackageNote
from reconciler.plan.compare import NamedCommit, Targets, VariantDifference
from reconciler.report.explain import Origin, Standstill
from reconciler.report.json import COMPUTED, columns_of
from reconciler.report.report import HistoryEntry, JudgementRow, Need, PackageOverview, PackageRow, Report
from reconciler.resolve.rollout_model import Rollout
from reconciler.run.doctor import Diagnosis
from tools.docs.manifest_schemas import DIRECTORY

Schema = dict[str, Any]
DEFINITIONS: Mapping[str, type] = {
    "change": PackageRow,
    "effect": Effect,
    "judgement": AdmissionJudgement,
    "judgementRow": JudgementRow,
    "move": VersionChange,
    "need": Need,
    "rollout": Rollout,
}
"""The types of `$defs`, the same in every file."""
PLACES: Mapping[str, Mapping[str, type]] = {
    "plan": {"": Report},
    "explanation": {
        "": PackageRow,
        "properties/fields/items": Origin,
        "properties/history/items": HistoryEntry,
        "properties/standstill": Standstill,
    },
    "comparison": {
        "properties/base": NamedCommit,
        "properties/head": NamedCommit,
        "properties/pins/items": PinChange,
        "properties/refusals/items": Refusal,
        "properties/targets/items": Targets,
        "properties/variants/items": VariantDifference,
    },
    "diagnosis": {"properties/items/items": Diagnosis},
    "status": {
        "$defs/owner/properties/summary": PackageOverview,
        "$defs/owner/properties/subpackages/items": SubpackageNote,
        "$defs/clusterPackage/properties/summary": PackageOverview,
    },
}
"""The types of other places, by kind."""
PRIMITIVES = {str: "string", int: "integer", bool: "boolean"}


def output_schemas() -> dict[Path, str]:
    """Return the text of each file with the columns that its types have now."""
    texts = {}
    for kind, places in PLACES.items():
        path = DIRECTORY / f"{kind}.schema.json"
        schema = json.loads(path.read_text("utf-8"))
        definitions = {
            f"$defs/{name}": DEFINITIONS[name] for name in schema.get("$defs", {}) if name in DEFINITIONS
        }
        for place, of_type in (definitions | dict(places)).items():
            part = schema
            for step in filter(None, place.split("/")):
                part = part[step]
            _describe(part, of_type, has_more=not place)
        texts[path] = f"{json.dumps(schema, indent=2, ensure_ascii=False)}\n"
    return texts


def _describe(schema: Schema, of_type: type, *, has_more: bool = False) -> None:
    """Give an object the properties of a type; if it `has_more`, further ones stay as they are."""
    before, texts = schema.setdefault("properties", {}), _docstrings(of_type)
    columns = columns_of(of_type)
    more = {name for name in before if name not in columns} if has_more or of_type in COMPUTED else set()
    schema["type"] = schema.get("type", "object")
    schema["properties"] = {
        name: _property(before.get(name), _hint(of_type, columns[name]), texts.get(columns[name], ""))
        if name in columns
        else before[name]
        for name in (
            *(name for name in before if name in columns or name in more),
            *(c for c in columns if c not in before),
        )
    }
    optional = more - {*schema.get("required", ())}
    schema["required"] = sorted(schema["properties"].keys() - optional)
    schema["additionalProperties"] = False


def _property(before: Schema | None, hint: Any, text: str) -> Schema:
    """Return the schema of a value of a type, with what is written about it already."""
    made = _of(hint, before or {})
    return made if before is not None or not text else {**made, "description": text}


def _of(hint: Any, before: Schema) -> Schema:
    options = [option for option in get_args(hint) if option is not NoneType]
    origin = get_origin(hint)
    if "$ref" in before or (hint is Any and before):
        return before
    if origin in (Union, UnionType) and len(options) == 1:
        return _of_optional(options[0], before)
    if origin in (tuple, list, frozenset) and options:
        items = before.get("items", {})
        return {
            **before,
            "type": "array",
            "items": before["items"] if "anyOf" in items else _of(options[0], items),
        }
    if isinstance(hint, type) and columns_of(hint):
        schema = dict(before)
        _describe(schema, hint)
        return schema
    if isinstance(hint, type) and issubclass(hint, StrEnum) and "enum" in before:
        return {**before, "enum": list(hint)}
    plain = next(
        (name for kind, name in PRIMITIVES.items() if isinstance(hint, type) and issubclass(hint, kind)), ""
    )
    return before or {"type": plain or "string"}


def _of_optional(hint: Any, before: Schema) -> Schema:
    if "anyOf" in before:
        return {**before, "anyOf": [o if o == {"type": "null"} else _of(hint, o) for o in before["anyOf"]]}
    made = _of(hint, before)
    kinds = made["type"] if isinstance(made.get("type"), list) else [made.get("type", "string")]
    return (
        made
        if "$ref" in made
        else {**made, "type": sorted({*kinds, "null"}, key=lambda kind: kind == "null")}
    )


def _hint(of_type: type, field: str) -> Any:
    """Return the type of a field or property, or of that of a field."""
    hint: Any = of_type
    for name in field.split("."):
        member = getattr(hint, name, None)
        names = {"VersionChange": VersionChange}
        if isinstance(member, property):
            hint = get_type_hints(member.fget, localns=names)["return"]
        else:
            hint = get_type_hints(hint, localns=names)[name]
    return getattr(hint, "__supertype__", hint)


def _docstrings(of_type: type) -> Mapping[str, str]:
    return {
        name: text
        for base in reversed(of_type.__mro__)
        if base.__module__.startswith("reconciler.")
        for name, text in _of_source(base)
    }


def _of_source(of_type: type) -> Iterator[tuple[str, str]]:
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(of_type))).body
    for field, following in pairwise(definition.body if isinstance(definition, ast.ClassDef) else ()):
        match field, following:
            case (ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text)))):
                yield name, inspect.cleandoc(text)


if __name__ == "__main__":
    for path, text in output_schemas().items():
        path.write_text(text, encoding="utf-8")
