"""JSON schemas of models, each field described by the docstring that follows it.

pydantic can read these docstrings itself (`use_attribute_docstrings`), but does so whenever a class is
made: it parses each module once per class, which took a tenth of a second of every start.
"""

import ast
import inspect
import textwrap
from itertools import pairwise
from typing import Any, get_type_hints

from pydantic.alias_generators import to_camel
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema


class DescribedFields(GenerateJsonSchema):
    """Generates the schema of a model with descriptions of its fields."""

    def dataclass_schema(self, schema: core_schema.DataclassSchema) -> JsonSchemaValue:
        """Return the schema of a dataclass."""
        return _describe(super().dataclass_schema(schema), schema["cls"])

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        """Return the schema of a model."""
        return _describe(super().model_schema(schema), schema["cls"])


def _describe(schema: JsonSchemaValue, cls: type[Any]) -> JsonSchemaValue:
    descriptions = _field_docstrings(cls)
    for name, field in schema.get("properties", {}).items():
        if name in descriptions:
            field.setdefault("description", descriptions[name])
    return schema


def _field_docstrings(cls: type[Any]) -> dict[str, str]:
    """Return the docstrings of the fields of a class and of its bases, by their names on disk."""
    ours = (base for base in reversed(cls.__mro__) if base.__module__.startswith("reconciler."))
    return {name: text for base in ours for name, text in _own_docstrings(base).items()}


def _own_docstrings(cls: type[Any]) -> dict[str, str]:
    annotations = get_type_hints(cls, include_extras=True)
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
    body = definition.body if isinstance(definition, ast.ClassDef) else []
    described = {}
    for field, following in pairwise(body):
        match field, following:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                extras = getattr(annotations[name], "__metadata__", ())
                aliases = [e.alias for e in extras if isinstance(e, FieldInfo) and e.alias]
                described[aliases[0] if aliases else to_camel(name)] = inspect.cleandoc(text)
    return described
