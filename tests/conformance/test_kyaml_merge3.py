"""kyaml's own three-way merges of one resource, in `compatible` mode."""

from typing import Any

import pytest

from reconciler.krm.merge import merge_document_like_kpt
from reconciler.krm.schema import Schemas
from reconciler.krm.yaml import Tree
from tests.support.conformance import absence, load_yaml, parameters, vector_files
from tests.support.merges import comments, documents

NAME = "kyaml-merge3.yaml"
CASES = [case for file in vector_files(NAME) for case in load_yaml(file)["cases"]]


@pytest.mark.parametrize(
    "case",
    parameters(
        ((f"{index:02}-{case['name']}", case) for index, case in enumerate(CASES)), absent=absence(NAME)
    ),
)
def test_resource_merges_as_in_kyaml(case: dict[str, Any]) -> None:
    base, upstream, local = (Tree.parse(case.get(side) or "") for side in ("origin", "update", "local"))

    merged = merge_document_like_kpt(base, upstream, local, schemas=Schemas(), infer=bool(case.get("infer")))

    got, want = (merged.text or "").encode(), (case.get("expected") or "").encode()
    if got.split() != want.split():
        assert documents(got) == documents(want)
        assert comments(got) == comments(want)
