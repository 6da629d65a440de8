"""Every list that kpt merges by key has the same keys here; newer versions of Kubernetes add others."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from reconciler.krm.schema import Schemas, Shape
from tests.support.conformance import parameters, root

FILE = root() / "kpt-mergekeys.json"
FACTS = json.loads(FILE.read_text()) if FILE.is_file() else {"gvk": {}, "definitions": {}}
KINDS = ((gvk, (gvk, name)) for gvk, name in FACTS["gvk"].items() if not gvk.endswith("List"))


@pytest.mark.parametrize("kind", parameters(KINDS, absent="no kpt-mergekeys.json"))
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
