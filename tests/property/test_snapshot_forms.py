"""A snapshot says the same in every form: YAML, the list that kubectl prints, JSON lines."""

import json
from typing import Any

import orjson
from hypothesis import example, given
from hypothesis import strategies as st

from reconciler.policy import Limits
from reconciler.read.snapshot import snapshot_limits
from reconciler.read.snapshot_objects import parse_snapshot_file
from tests.support.snapshot_forms import as_json_lines_of, as_json_of

LIMITS = snapshot_limits(Limits())
NAMES = st.from_regex(r"[a-z][a-z0-9]{0,8}", fullmatch=True)
TEXTS = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E) | st.sampled_from("äß€😀"), max_size=8)
NUMBERS = st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.builds(
    lambda name, namespace, labels, spec: {
        "apiVersion": "hr.example.com/v1",
        "kind": "Team",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": spec,
    },
    NAMES,
    NAMES,
    st.dictionaries(NAMES, TEXTS, max_size=2),
    VALUES,
)


@given(objects=st.lists(OBJECTS, min_size=1, max_size=4))
@example(
    objects=[{"apiVersion": "v1", "kind": "A", "metadata": {"name": "a"}, "spec": [1.0, 1e3, 2**64, -0.0]}]
)
def test_objects_are_equal_in_every_form(objects: list[dict[str, Any]]) -> None:
    yaml = "\n---\n".join(json.dumps(one, ensure_ascii=False) for one in objects).encode()
    read = {
        name: parse_snapshot_file(name, data, LIMITS)
        for name, data in (
            ("a.yaml", b"# read as YAML\n" + yaml),
            ("a.json", as_json_of(objects)),
            ("a.ndjson", as_json_lines_of(objects)),
        )
    }

    assert {name: found.problems for name, found in read.items()} == dict.fromkeys(read, ())
    digests = {
        name: [
            (o.api_version, o.kind, o.namespace, o.name, o.labels, orjson.dumps(o.body))
            for o in found.objects
        ]
        for name, found in read.items()
    }
    assert digests["a.json"] == digests["a.yaml"]
    assert digests["a.ndjson"] == digests["a.yaml"]
