"""`schema`: the JSON schema of what users write and machines read."""

from pathlib import Path
from typing import Any

import click
from pydantic import BaseModel

from reconciler.api.porch import PackageVariant, PackageVariantSet, Repository
from reconciler.api.snapshot import SnapshotHeader
from reconciler.base.errors import Exit
from reconciler.cli.field_descriptions import DescribedFields
from reconciler.cli.output import Output, make_printer, output_options
from reconciler.read.configuration import Configuration

MODELS: dict[str, type[BaseModel]] = {
    "Reconciler": Configuration,
    "PackageVariant": PackageVariant,
    "PackageVariantSet": PackageVariantSet,
    "Repository": Repository,
    "Snapshot": SnapshotHeader,
}
NAMES = tuple(MODELS)
OUTPUTS = {
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
    "kind",
    type=click.Choice((*NAMES, *OUTPUTS), case_sensitive=False),
    default=NAMES[0],
    metavar="[KIND]",
)
@output_options(Output.JSON)
def schema(kind: str, output: str) -> Exit:
    r"""Print the JSON schema of a manifest or an output; of reconciler.yaml unless a kind is named.

    Editors take it for completion and checks. Unknown fields are refused by the schema as they are
    by a run.

    \b
    Example:
      reconciler schema > reconciler.schema.json
      echo '# yaml-language-server: $schema=reconciler.schema.json' | cat - reconciler.yaml
      reconciler schema status             of what `reconciler status -o json` prints
    """
    del output  # a schema is JSON
    if kind in OUTPUTS:
        make_printer().text(_output_schema(kind))
        return Exit.DONE
    make_printer().value(manifest_schema(kind))
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
