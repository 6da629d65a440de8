"""A snapshot says the same in every form, and the same of a cluster whatever stands beside it."""

import json
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from reconciler.git.repository import Mirrors
from reconciler.git.working_copy import NewCommit as Commit
from reconciler.git.working_copy import create_bare
from reconciler.inventory.snapshot import Snapshot
from reconciler.names.ids import GroupKind
from reconciler.policy import Limits, Policy
from reconciler.read.snapshot import parse_snapshot_file, read_snapshot, snapshot_limits
from tests.support.snapshot_forms import as_json_lines_of, as_json_of

pytestmark = pytest.mark.slow

TEAM = GroupKind("hr.example.com", "Team")
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


FORMS = st.sampled_from(["yaml", "json", "ndjson"])
BROKEN = st.sampled_from([None, "not an object", "[1"])


class ClusterFiles(NamedTuple):
    """The snapshot of a cluster as it is drawn: its objects, their form, and what is wrong with it."""

    objects: list[dict[str, Any]]
    form: str
    complete: bool
    broken: str | None

    def files(self, directory: str) -> dict[str, bytes]:
        """Return the files of this snapshot below a directory."""
        named = {(one["metadata"]["namespace"], one["metadata"]["name"]): one for one in self.objects}
        objects = list(named.values())
        written = {
            "yaml": "\n---\n".join(json.dumps(one, ensure_ascii=False) for one in objects).encode(),
            "json": as_json_of(objects),
            "ndjson": as_json_lines_of(objects),
        }
        listed = {"group": "hr.example.com", "kind": "Team", "namespace": "*", "count": len(objects)}
        header = {
            "apiVersion": "reconciler.dev/v1alpha1",
            "kind": "Snapshot",
            "metadata": {"name": directory.rpartition("/")[2]},
            "spec": {"lists": [{**listed, "complete": self.complete}]},
        }
        files = {f"{directory}/snapshot.yaml": json.dumps(header).encode()}
        files[f"{directory}/teams.{self.form}"] = written[self.form]
        if self.broken is not None:
            files[f"{directory}/broken.json"] = self.broken.encode()
        return files


CLUSTERS = st.dictionaries(
    st.sampled_from(["edge-1", "edge-2", "edge-3"]),
    st.builds(ClusterFiles, st.lists(OBJECTS, min_size=1, max_size=3), FORMS, st.booleans(), BROKEN),
    min_size=1,
)


@settings(max_examples=25)
@given(clusters=CLUSTERS)
def test_what_is_known_of_a_cluster_does_not_depend_on_the_others(clusters: dict[str, ClusterFiles]) -> None:
    together = read(
        {p: d for name, one in clusters.items() for p, d in one.files(f"snapshot/{name}").items()}
    )

    for name, one in clusters.items():
        alone = read(one.files(f"snapshot/{name}")).of(name)
        beside = together.of(name)
        assert told(beside) == told(alone)
        assert beside.is_complete(TEAM, "default") == (one.complete and one.broken is None)
    assert not together.of("edge-9").present
    assert not together.of("edge-9").is_complete(TEAM, "default")


def read(files: dict[str, bytes]) -> Snapshot:
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "control.git"
        create_bare(path, [Commit("Snapshot", files, 1_767_225_600)])
        mirror = Mirrors(Path(scratch) / "cache").open(str(path))
        mirror.fetch()
        return read_snapshot(mirror, mirror.refs()["refs/heads/main"], Policy())


def told(snapshot: Snapshot) -> tuple[object, ...]:
    objects = snapshot.of_kind("hr.example.com/v1", "Team")
    bodies = [orjson.dumps(one.body, option=orjson.OPT_SORT_KEYS) for one in objects]
    return bodies, snapshot.complete, snapshot.unreadable, snapshot.cluster, snapshot.path
