"""The public GraphQL schema as a judge of our documents, where somebody put it."""

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path

import graphql

VARIABLE = "RECONCILER_GRAPHQL_SCHEMA"


def schema_file() -> Path | None:
    """Return the file that the environment names, None if it names none that is there."""
    path = Path(os.environ.get(VARIABLE, ""))
    return path if path.is_file() else None


@cache
def schema() -> graphql.GraphQLSchema | None:
    """Return the schema, None where there is none."""
    path = schema_file()
    return graphql.build_schema(path.read_text(encoding="utf-8"), assume_valid=True) if path else None


def validator() -> Callable[[str], list[str]] | None:
    """Return what says what is wrong with a document, None where there is no schema."""
    known = schema()
    if known is None:
        return None

    @cache
    def check(document: str) -> list[str]:
        return [error.message for error in graphql.validate(known, graphql.parse(document))]

    return check
