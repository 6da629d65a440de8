"""Every list that kpt merges by key has the same keys here; newer versions of Kubernetes add others."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from reconciler.krm.schema import Schemas, Shape
from tests.support.conformance import absence, parameters, vector_files

NAME = "kpt-mergekeys.json"
FACTS = next((json.loads(file.read_text()) for file in vector_files(NAME)), {"gvk": {}, "definitions": {}})
KINDS = ((gvk, (gvk, name)) for gvk, name in FACTS["gvk"].items() if not gvk.endswith("List"))


@pytest.mark.parametrize("kind", parameters(KINDS, absent=absence(NAME)))
def test_merge_keys_include_those_of_kpt(kind: tuple[str, str]) -> None:
    gvk, definition = kind
    version, _, name = gvk.rpartition("/")

    shape = Schemas().shape(version, name)

    assert dict(keys_in(definition)).items() <= dict(keys_of(shape)).items()


def keys_of(shape: Shape, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
    for name, below in shape.fields.items():
        if below.keys is not None:
            yield (*path, name), below.keys
        yield from keys_of(below.items or below, (*path, name))


def keys_in(definition: str, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
    properties: dict[str, Any] = FACTS["definitions"].get(definition, {})
    for name, facts in properties.items():
        if "keys" in facts:
            yield (*path, name), tuple(facts["keys"])
            if "items" in facts:
                yield from keys_in(facts["items"], (*path, name))
        elif len(path) < 12 and (below := facts.get("ref") or facts.get("map")):
            yield from keys_in(below, (*path, name))
