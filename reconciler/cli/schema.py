"""`schema`: the JSON schema of what users write and machines read, with a description of each field."""

import ast
import inspect
import textwrap
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, get_type_hints

import click
from pydantic import BaseModel
from pydantic.alias_generators import to_camel
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from reconciler.api.porch import PackageVariant, PackageVariantSet, Repository
from reconciler.api.snapshot import SnapshotHeader
from reconciler.base.errors import Exit
from reconciler.cli.output import Output, Printer, output_options
from reconciler.read.configuration import Configuration


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


@cache  # several schemas have one class
def _own_docstrings(cls: type[Any]) -> dict[str, str]:
    annotations = get_type_hints(cls, include_extras=True)
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
    body = definition.body if isinstance(definition, ast.ClassDef) else []
    described = {}
    for field, following in pairwise(body):
        match field, following:
            case (ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text)))):
                extras = getattr(annotations[name], "__metadata__", ())
                aliases = [e.alias for e in extras if isinstance(e, FieldInfo) and e.alias]
                described[aliases[0] if aliases else to_camel(name)] = inspect.cleandoc(text)
    return described


MODELS: dict[str, type[BaseModel]] = {
    "Reconciler": Configuration,
    "PackageVariant": PackageVariant,
    "PackageVariantSet": PackageVariantSet,
    "Repository": Repository,
    "Snapshot": SnapshotHeader,
}
NAMES = tuple(MODELS)
OUTPUTS = {
    "Answer": ("answer",),
    "Approval": ("approve",),
    "Comparison": ("check",),
    "Diagnosis": ("doctor",),
    "Expansion": ("expand",),
    "Explanation": ("explain",),
    "Files": (
        "index add",
        "index import",
        "index sync",
        "index remove",
        "index set-default",
        "init",
        "demo",
        "repo add",
        "package from-chart",
    ),
    "Functions": ("functions list",),
    "Images": ("functions pull",),
    "IndexPackage": ("index list",),
    "IndexVersion": ("index show",),
    "Lock": ("lock", "lock hold", "lock follow"),
    "MissingPackage": ("index missing",),
    "PackageRender": ("package render",),
    "PackageUpdate": ("package update",),
    "Plan": ("plan", "apply"),
    "PullRequest": ("pr list", "pr show", "pr merge", "pr close", "pr reopen"),
    "SnapshotImport": ("snapshot import",),
    "SnapshotKind": ("snapshot kinds",),
    "RegisteredRepository": ("repo list",),
    "Status": ("status",),
    "Validation": ("validate",),
}
"""The commands that print each kind of JSON output."""


@click.command()
@click.argument(
    "kind", type=click.Choice((*NAMES, *OUTPUTS), case_sensitive=False), default=NAMES[0], metavar="[KIND]"
)
@output_options(Output.JSON)
def schema(kind: str, printer: Printer) -> Exit:
    r"""Print the JSON schema of a manifest or an output; of reconciler.yaml unless a kind is named.

    Editors take it for completion and checks. Unknown fields are refused by the schema as they are
    by a run.

    \b
    Example:
      reconciler schema > reconciler.schema.json
      echo '# yaml-language-server: $schema=reconciler.schema.json' | cat - reconciler.yaml
      reconciler schema status             of what `reconciler status -o json` prints
    """
    if kind in OUTPUTS:
        printer.text(_output_schema(kind))
        return Exit.DONE
    printer.value(manifest_schema(kind))
    return Exit.DONE


def manifest_schema(kind: str) -> dict[str, Any]:
    """Return the JSON schema of what users write."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **MODELS[kind].model_json_schema(by_alias=True, schema_generator=DescribedFields),
        "title": kind,
    }


def _output_schema(kind: str) -> str:
    """Return the schema of an output, from the installed package or from the checkout around it."""
    package = Path(__file__).parents[1]
    name = f"{kind.lower()}.schema.json"
    # A wheel has the schemas inside the package, a checkout beside it.
    folders = (package / "_schemas", package.parent / "docs/schemas")
    return next(path for folder in folders if (path := folder / name).is_file()).read_text()
