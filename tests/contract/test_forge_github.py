"""GitHub in particular: what its description says, what it answers, what people do there."""

import os

import pytest

from reconciler.forge.github import DOCUMENTS
from tests.support.forges.schema import VARIABLE, validator


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda d: d.split()[1].partition("(")[0])
def test_every_graphql_document_fits_the_public_schema(document: str) -> None:
    check = validator()
    if check is None and not os.environ.get(VARIABLE):
        pytest.skip(f"{VARIABLE} names no copy of the public schema (npm: @octokit/graphql-schema)")

    assert check is not None, "the schema is not where the environment says"
    assert check(document) == []
    assert check(document.replace("body", "boddy").replace("isDraft", "isDraught")) != []
