"""The state branch is read record by record; one that is not understood owns nothing and says so."""

import json
from collections.abc import Callable
from typing import Any

import msgspec
import orjson
import pytest

from reconciler.base.errors import ConfigurationError, Location
from reconciler.base.reasons import Reason
from reconciler.inventory.inventory import RecordedStatus
from reconciler.names.ids import ObjectName, normalise_url
from reconciler.policy import Limits
from reconciler.read.state import State, at_addresses, read_state, read_statuses
from reconciler.records.state import (
    REFUSED_DELETIONS,
    VARIANTS_FORMAT,
    PackageVariantRecord,
    RecordedDownstream,
    RefusedDeletionsRecord,
    RefusedPackage,
    SetRecord,
    record_bytes,
    record_path,
)
from tests.support.control import World
from tests.support.plan_values import a_record
from tests.support.values import replace

VARIANT = a_record(
    namespace="default",
    name="web",
    uid="u",
    url="/srv/edge",
    path="web",
    spec={"upstream": {"repo": "blueprints"}},
)
SET = SetRecord(namespace="default", name="fleet", uid="u", manifest="fleet.yaml", targets=3)
FILES = {record_path(r): record_bytes(r) for r in (VARIANT, SET)}
LINES = "packagevariants/default/edge.jsonl"
DB = replace(VARIANT, name="db")
BOTH = record_bytes(DB) + record_bytes(VARIANT)


def single_file(record: PackageVariantRecord) -> bytes:
    """Return a record as a file of its own, with its version."""
    return orjson.dumps(msgspec.to_builtins(record), option=orjson.OPT_INDENT_2)


def test_missing_branch_is_empty_state(world: Callable[..., World]) -> None:
    assert read_state(world({"a": ""}).mirror, None, Limits()) == State()


def test_written_records_are_read_back(world: Callable[..., World]) -> None:
    made = world({**FILES, "locks/other.json": "{}"})

    state = read_state(made.mirror, made.commit, Limits())

    assert state.records == {ObjectName("default", "web"): VARIANT}
    assert state.set_records == {ObjectName("default", "fleet"): SET}
    assert state.problems == ()


@pytest.mark.parametrize(
    "data", [b"{", b"{}", b" " * (2 << 20), record_bytes(VARIANT).replace(b'"uid"', b'"uid2"')]
)
def test_unreadable_record_is_a_problem(world: Callable[..., World], data: bytes) -> None:
    made = world({**FILES, "packagevariants/default/bad.json": data})

    state = read_state(made.mirror, made.commit, Limits())

    assert state.records.keys() == {ObjectName("default", "web")}
    (problem,) = state.problems
    assert (problem.location.path, problem.reason) == (
        "packagevariants/default/bad.json",
        Reason.INVALID_STATE,
    )
    assert problem.hint


@pytest.mark.parametrize(
    ("path", "message"),
    [(REFUSED_DELETIONS, "The record cannot be read: "), (f"{REFUSED_DELETIONS}/x", "it is a directory")],
)
def test_every_deletion_needs_consent_where_the_refused_ones_are_unreadable(
    world: Callable[..., World], path: str, message: str
) -> None:
    made = world({path: b"{"})

    state = read_state(made.mirror, made.commit, Limits())

    (problem,) = state.problems
    assert (state.refused, problem.location.path, problem.reason) == (
        None,
        REFUSED_DELETIONS,
        Reason.INVALID_STATE,
    )
    assert message in problem.message
    assert problem.hint == (
        "Until the next apply writes it anew, every deletion needs consent. "
        "Each refusal of the plan prints how to consent."
    )


def test_records_are_read_from_lines_and_beside_them_from_files_of_their_own(
    world: Callable[..., World],
) -> None:
    old = replace(VARIANT, uid="old")
    alone = replace(VARIANT, name="alone")
    made = world({record_path(old): single_file(old), record_path(alone): single_file(alone), LINES: BOTH})

    state = read_state(made.mirror, made.commit, Limits())

    assert state.records == {record.key: record for record in (DB, VARIANT, alone)}
    assert state.problems == ()


def test_lines_of_a_newer_version_are_an_error(world: Callable[..., World]) -> None:
    made = world({LINES: BOTH, VARIANTS_FORMAT: b'{"apiVersion": "reconciler.dev/v1alpha3"}'})

    with pytest.raises(ConfigurationError, match="written by a newer version"):
        read_state(made.mirror, made.commit, Limits())


@pytest.mark.parametrize(
    ("damaged", "line", "why"),
    [
        (b"", 1, "the file is empty"),
        (BOTH[:20], 1, "the file is cut off"),
        (BOTH[:-1], 2, "the file is cut off"),
        (BOTH.replace(b'"uid"', b'"uid2"', 1), 1, "Object contains unknown field `uid2`"),
        (b"{\n" + record_bytes(VARIANT), 1, "Invalid JSON"),
        (b"<<<<<<< x\n" + BOTH + b">>>>>>> y\n", 1, "Invalid JSON"),
        (record_bytes(DB) + b" " * (2 << 20) + b"\n", 2, "it has 2097153 bytes, more than the limit 1048576"),
    ],
)
def test_damaged_lines_count_as_in_the_last_readable_version(
    world: Callable[..., World], damaged: bytes, line: int, why: str
) -> None:
    made = world({LINES: BOTH}, {LINES: damaged})
    first = made.mirror.commit(made.commit).parents[0]

    state = read_state(made.mirror, made.commit, Limits())

    (problem,) = state.problems
    assert state.records == {DB.key: DB, VARIANT.key: VARIANT}
    assert problem.location == Location(LINES, line)
    assert problem.message.startswith(f"The record cannot be read: {why}")
    assert problem.message.endswith(f"; what commit {first} has instead counts")
    assert f"git show {made.commit}:{LINES}" in problem.hint


def test_readable_lines_count_whatever_earlier_versions_have(world: Callable[..., World]) -> None:
    newer, newest = (record_bytes(replace(VARIANT, uid=uid)) for uid in ("newer", "newest"))
    made = world(
        {LINES: BOTH + b"{\n"},
        {LINES: record_bytes(DB) + newer},
        {LINES: b"{\n{\n" + newer},
        {LINES: b"{\n{\n{\n" + newest},
    )

    state = read_state(made.mirror, made.commit, Limits())

    assert {key.name: record.uid for key, record in state.records.items()} == {"db": "u", "web": "newest"}
    assert ", and 2 more lines; what commit " in state.problems[0].message


@pytest.mark.parametrize(
    ("path", "data", "found"), [(LINES, BOTH, 2), (record_path(VARIANT), record_bytes(VARIANT), 1)]
)
@pytest.mark.parametrize("record_versions", [1, 2])
def test_damaged_records_are_looked_up_in_as_many_versions_as_the_limit(
    world: Callable[..., World], record_versions: int, path: str, data: bytes, found: int
) -> None:
    made = world({path: data}, {path: b"{\n"}, {path: b"{{\n"})

    state = read_state(made.mirror, made.commit, Limits(record_versions=record_versions))

    assert len(state.records) == (found if record_versions == 2 else 0)
    assert ("counts" in state.problems[0].message) is (record_versions == 2)


PACKAGE = {"phase": "Draft", "head": "drafts/web/v1", "message": "waits", "repository": "edge"}


@pytest.mark.parametrize(
    ("value", "status"),
    [
        ({"namespace": "default", "name": "web", "package": {**PACKAGE, "since": "2026-01-01T00:00:00Z"}},
            RecordedStatus("Draft", 1767225600, "drafts/web/v1", "waits", "edge")),
        ({"namespace": "default", "name": "web", "package": {}}, RecordedStatus("")),
        ({"namespace": "default", "name": "web", "package": {**PACKAGE, "since": "yesterday"}},
            RecordedStatus("Draft", 0, "drafts/web/v1", "waits", "edge")),
        ({"namespace": "default", "name": "web", "package": {"since": 5}}, RecordedStatus("")),
        ({"namespace": "default", "package": PACKAGE}, None),
        ({"name": "web", "package": PACKAGE}, None),
        ({"namespace": "default", "name": "web", "package": "x"}, None),
        ({"namespace": "default", "name": "web"}, None),
        ([], None),
    ],
)  # fmt: skip
def test_status_of_the_last_run_is_read_as_far_as_it_is_readable(
    world: Callable[..., World], value: Any, status: RecordedStatus | None
) -> None:
    path = "conditions/packagevariants/default/web.json"
    made = world({path: json.dumps(value), path.replace("web", "broken"): "{"})

    statuses = read_statuses(made.mirror, made.commit, Limits())

    assert statuses == ({ObjectName("default", "web"): status} if status else {})
    assert len(statuses) == bool(status)
    assert read_statuses(made.mirror, None, Limits()) == {}
    assert read_statuses(made.mirror, made.commit, Limits(manifest_bytes=1)) == {}


def test_status_in_the_file_of_another_variant_is_none(world: Callable[..., World]) -> None:
    status = json.dumps({"namespace": "default", "name": "db", "package": PACKAGE})
    made = world({"conditions/packagevariants/default/web.json": status})

    statuses = read_statuses(made.mirror, made.commit, Limits())

    assert (dict(statuses), len(statuses), statuses.get(ObjectName("default", "web"))) == ({}, 0, None)


def test_records_share_equal_values_and_keep_their_types(world: Callable[..., World]) -> None:
    upstream = {"repo": "up", "revision": 1}
    one, other = (
        replace(DB, name=name, manifest=file, spec={"upstream": upstream, **spec}, facts={"engine": "2"})
        for name, file, spec in (
            ("a", "x", {"more": {"x": True}, "flag": True, "y": "x", "downstream": {"package": "a"}}),
            ("b", "'x'", {"more": {"x": 1}, "flag": 1, "y": "'x'", "downstream": {"package": "b"}}),
        )
    )
    made = world({LINES: record_bytes(one) + record_bytes(other)})

    first, second = read_state(made.mirror, made.commit, Limits()).records.values()

    assert first.facts is second.facts
    assert first.spec["upstream"] is second.spec["upstream"]
    assert [record_bytes(first), record_bytes(second)] == [record_bytes(one), record_bytes(other)]


@pytest.mark.parametrize(
    "downstream",
    [
        *({"repo": "edge", "package": "db"}, {"package": "db"}, {"repo": "edge"}, {}, None),
        *({"repo": "edge", "package": "db", "more": 1}, {"repo": ["edge"], "package": None}),
    ],
)
def test_spec_that_records_share_is_the_one_that_was_written(downstream, world: Callable[..., World]) -> None:
    spec = {"upstream": {"repo": "up"}, "downstream": downstream, "pipeline": {"mutators": []}}
    written = [replace(DB, name=name, spec=spec) for name in "ab"]
    made = world({LINES: b"".join(map(record_bytes, written))})

    read = [*read_state(made.mirror, made.commit, Limits()).records.values()]

    assert read == written
    assert [dict(record.spec) for record in read] == [spec, spec]
    assert [len(record.spec) for record in read] == [3, 3]
    assert read[0].spec["downstream"] == downstream
    assert replace(written[0], spec={**spec, "downstream": {"package": "web"}}) != read[0]
    assert [*map(record_bytes, read)] == [*map(record_bytes, written)]


def test_relative_address_means_the_place_beside_the_control_repository_of_today() -> None:
    edge, west = {"url": "old/edge", "remote": "../edge.git"}, {"url": "old/west", "remote": "../west.git"}
    web = replace(VARIANT, **edge, former=(RecordedDownstream(path="a", **west),))
    same = replace(VARIANT, name="same", url="old/edge")
    elsewhere = replace(VARIANT, name="elsewhere", url="host/north", remote="https://host/north")
    records = {record.key: record for record in (web, same, elsewhere)}
    packages = tuple(RefusedPackage(url=url, path="b", of=3) for url in ("old/west", "host/north"))
    state = State(records=records, refused=RefusedDeletionsRecord(packages=packages))

    moved = at_addresses(state, "https://new/acme/control.git")

    here = {name: normalise_url(f"https://new/acme/{name}.git") for name in ("edge", "west")}
    assert moved.records == {
        web.key: replace(web, url=here["edge"], former=(replace(web.former[0], url=here["west"]),)),
        same.key: replace(same, url=here["edge"]),
        elsewhere.key: elsewhere,
    }
    assert moved.refused == RefusedDeletionsRecord(
        packages=(replace(packages[0], url=here["west"]), packages[1])
    )
    assert at_addresses(replace(state, refused=None), "https://new/acme/control.git").refused is None
    assert at_addresses(moved, "https://new/acme/control.git") is moved
