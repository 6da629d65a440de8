"""The state branch is read record by record; one that is not understood owns nothing and says so."""

from collections.abc import Callable

import pytest

from reconciler.errors import ConfigurationError
from reconciler.ids import ObjectName
from reconciler.policy import Limits
from reconciler.read.state import State, read_state
from reconciler.reasons import Reason
from reconciler.state import PackageVariantRecord, SetRecord, record_bytes, record_path
from tests.support.control import World

VARIANT = PackageVariantRecord(
    namespace="default",
    name="web",
    uid="u",
    manifest="web.yaml",
    url="/srv/edge",
    path="web",
    repository="edge",
    spec={"upstream": {"repo": "blueprints"}},
)
SET = SetRecord(namespace="default", name="fleet", uid="u", manifest="fleet.yaml", targets=3)
FILES = {record_path(r): record_bytes(r) for r in (VARIANT, SET)}


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


@pytest.mark.parametrize(("record_versions", "records"), [(1, {}), (2, {VARIANT.key: VARIANT})])
def test_as_many_earlier_versions_as_the_limit_are_tried(
    world: Callable[..., World], record_versions: int, records: dict[ObjectName, PackageVariantRecord]
) -> None:
    path = record_path(VARIANT)
    made = world({path: record_bytes(VARIANT)}, {path: b"{"}, {path: b"{{"})

    state = read_state(made.mirror, made.commit, Limits(record_versions=record_versions))

    assert state.records == records
    assert len(state.problems) == 1


def test_state_of_a_newer_version_is_an_error(world: Callable[..., World]) -> None:
    newer = record_bytes(VARIANT).replace(b"reconciler.dev/v1alpha1", b"reconciler.dev/v2")
    made = world({record_path(VARIANT): newer})

    with pytest.raises(ConfigurationError) as caught:
        read_state(made.mirror, made.commit, Limits())

    assert caught.value.location is not None
    assert caught.value.location.path == record_path(VARIANT)
