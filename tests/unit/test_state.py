"""Records of variants are lines of one file for each repository; each record is merged by itself."""

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, UnsetType

from reconciler.base.values import read_record
from reconciler.names.ids import RolloutKey
from reconciler.names.trailers import BOX
from reconciler.records.state import (
    VARIANTS_FORMAT,
    ConflictRecord,
    PackageVariantRecord,
    RecordedDownstream,
    RolloutRecord,
    SetRecord,
    branch_files,
    branch_records,
    history_path,
    record_bytes,
    record_path,
    recorded_ticks,
)
from tests.support.plan_values import a_record


def test_ticks_are_the_conflicts_that_boxes_answered_with_the_side_that_they_took() -> None:
    def answer(name: str, chosen: str, policy: str = BOX) -> ConflictRecord:
        given = {"path": "a", "upstream": "1", "local": "2", "by": "policy"}
        return ConflictRecord(name=name, chosen=chosen, policy=policy, **given)

    record = a_record(answers=(answer("mine", "2"), answer("theirs", "1"), answer("set", "2", "keep-local")))

    assert recorded_ticks(record) == {("keep", "mine"), ("take", "theirs")}
    assert recorded_ticks(None) == frozenset()


def test_history_of_a_repository_has_the_path_of_its_address() -> None:
    assert history_path("host/a b/c") == "observed/pulls/host/a%20b/c.json"


SET = SetRecord(namespace="default", name="web", uid="s", manifest="web.yaml", targets=3)


def variant(
    name: str, repository: str = "edge", namespace: str = "default", **more: Any
) -> PackageVariantRecord:
    return a_record(
        namespace=namespace,
        name=name,
        uid="u",
        url=f"/srv/{repository}",
        path="web",
        repository=repository,
        spec={"upstream": {"repo": "blueprints", "package": "web"}},
        **more,
    )


def records_of(*records: PackageVariantRecord | SetRecord) -> dict[str, bytes]:
    return {record_path(record): record_bytes(record) for record in records}


def test_each_repository_has_one_file_sorted_by_name() -> None:
    files = branch_files(
        records_of(
            variant("b"), SET, variant("a-1"), variant("a"), variant("a", "prod", "team"), variant("c", "x/y")
        )
    )

    assert {
        path: [orjson.loads(line)["name"] for line in data.splitlines()]
        for path, data in files.items()
        if path.endswith(".jsonl")
    } == {
        "packagevariants/default/edge.jsonl": ["a", "a-1", "b"],
        "packagevariants/default/x%2Fy.jsonl": ["c"],
        "packagevariants/team/prod.jsonl": ["a"],
    }
    assert files[record_path(SET)] == record_bytes(SET)
    assert files[VARIANTS_FORMAT] == (
        b'{\n  "apiVersion": "reconciler.dev/v1alpha2",\n  "kind": "PackageVariantRecords"\n}\n'
    )


def test_line_leaves_out_what_is_default() -> None:
    conflict = ConflictRecord(path="app.yaml", field="spec", upstream=None, local="x")

    line = record_bytes(variant("web", conflicts=(conflict,), facts={"b": "2", "a": "1"}, unready=("x",)))

    assert line == (
        b'{"conflicts":[{"field":"spec","local":"x","path":"app.yaml","upstream":null}],"facts":{"a":"1","b":"2"},'
        b'"manifest":"web.yaml","name":"web","namespace":"default","path":"web","repository":"edge",'
        b'"spec":{"upstream":{"package":"web","repo":"blueprints"}},"uid":"u","unready":["x"],"url":"/srv/edge"}\n'
    )
    assert read_record(line, PackageVariantRecord) == variant(
        "web", conflicts=(conflict,), facts={"b": "2", "a": "1"}, unready=("x",)
    )


def test_places_of_a_package_are_recorded_and_found() -> None:
    before = RecordedDownstream(
        url="/srv/mono", path="a/web", directory="a", repository="edge", branch="main"
    )
    record = variant("web", branch="prod", remote="../edge.git", registration="edge.yaml", former=(before,))

    read = read_record(record_bytes(record), PackageVariantRecord)

    assert read == record
    assert read.downstreams == (record.downstream, before)
    assert [
        read.is_at(each) for each in (("/srv/edge", "web"), ("/srv/mono", "a/web"), ("/srv/mono", "web"))
    ] == [True, True, False]


@pytest.mark.parametrize(
    ("package", "directory"), [("web", "clusters/a"), ("a/web", "clusters"), ("", "clusters/a/web")]
)
def test_directory_of_a_record_is_what_is_above_its_package(package: str, directory: str) -> None:
    downstream = {"downstream": {"repo": "edge", "package": package}}

    assert a_record(path="clusters/a/web", spec=downstream).downstream.directory == directory


def test_branch_without_variants_has_no_version_of_them() -> None:
    assert branch_files(records_of(SET)) == records_of(SET)
    assert branch_files({}) == {}


names = st.text(st.characters(codec="utf-8", exclude_characters="/"), min_size=1, max_size=3)
variants = st.builds(
    variant,
    names,
    st.text(st.characters(codec="utf-8"), max_size=3),
    st.sampled_from(["default", "team"]),
    retry=st.sampled_from(["", "1", "\n", "\u2028"]),
)


@given(
    st.lists(variants),
    st.dictionaries(st.sampled_from(["locks/a.json", "packagevariants/d/x.json"]), st.binary()),
)
def test_files_hold_every_record_to_the_byte(
    records: list[PackageVariantRecord], others: dict[str, bytes]
) -> None:
    logical = {**records_of(*records), **others}

    files = branch_files(logical)

    assert branch_records(files) == logical
    assert branch_files(branch_records(files)) == files
    assert branch_files(dict(reversed(logical.items()))) == files


DAMAGED = "packagevariants/default/edge.jsonl"


@pytest.mark.parametrize(
    "damage", [b"{\n", b"<<<<<<<\n{}\n", b'["a"]\n', b"\xff\n", b'{"name": "a"}\n', b"\n"]
)
def test_lines_that_cannot_be_read_stay_in_their_file(damage: bytes) -> None:
    line = record_bytes(variant("web"))

    records = branch_records({DAMAGED: line + damage, VARIANTS_FORMAT: b"{}"})

    assert records == {**records_of(variant("web")), DAMAGED: damage}
    assert branch_files(records)[DAMAGED] == damage + line


def test_line_without_an_end_is_read() -> None:
    assert branch_records({DAMAGED: record_bytes(variant("web")).rstrip()}) == records_of(variant("web"))


@pytest.mark.parametrize(
    ("path", "data"),
    [
        ("packagevariants/default/web.json", b"{"),
        ("packagevariants/default/web.json", record_bytes(variant("other"))),
        ("packagevariants/default/web.json", record_bytes(variant("web")) * 2),
        ("packagevariants/default/web.json", record_bytes(variant("web")).replace(b"{", b"{\n", 1)),
        ("packagevariants/web.json", record_bytes(variant("web"))),
        ("conditions/packagevariants/default/web.json", record_bytes(variant("web"))),
    ],
)
def test_file_that_is_not_the_record_of_its_path_stays_a_file(path: str, data: bytes) -> None:
    assert branch_files({path: data}) == {path: data}
    assert branch_records({path: data}) == {path: data}


@pytest.mark.parametrize(
    ("upstream", "path"),
    [
        (UNSET, "rollouts/default/charts.json"),
        ("redis", "rollouts/redis/default/charts.json"),
        ("apps/redis", "rollouts/apps%2Fredis/default/charts.json"),
    ],
)
def test_each_upstream_of_a_set_has_a_record_of_its_rollout(upstream: str | UnsetType, path: str) -> None:
    record = RolloutRecord(namespace="default", name="charts", upstream=upstream, revision="r", waves=())
    data = record_bytes(record)

    assert record_path(record) == path
    assert (b"upstream" in data) is bool(upstream), "one upstream alone keeps the bytes that it had"
    assert read_record(data, RolloutRecord).rollout == RolloutKey("default", "charts", upstream or "")
