"""Shards: every repository has exactly one, whatever the numbers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.base.errors import UsageError
from reconciler.inventory.shard import (
    WHOLE,
    Shard,
    dashboard_file,
    files_of_other_shards,
    parse_shard,
    shard_of,
)
from reconciler.names.ids import PackageKey

urls = st.text(min_size=1, max_size=60)
counts = st.integers(1, 40)


@given(urls, counts)
def test_every_repository_belongs_to_exactly_one_shard(url: str, count: int) -> None:
    assert [Shard(i, count).holds(url) for i in range(count)].count(True) == 1


@given(urls, counts)
def test_one_shard_more_moves_a_repository_to_it_or_nowhere(url: str, count: int) -> None:
    assert shard_of(url, count + 1) in {shard_of(url, count), count}


def test_shards_share_a_fleet_about_evenly() -> None:
    shares = [sum(shard_of(f"git.example/acme/cluster-{n}", 8) == i for n in range(4000)) for i in range(8)]

    assert min(shares) > 400
    assert max(shares) < 600


@pytest.mark.parametrize(
    ("text", "index", "want"),
    [
        ("", "", WHOLE),
        ("0/1", "", Shard(0, 1)),
        ("3/8", "5", Shard(3, 8)),
        ("auto/8", "5", Shard(5, 8)),
        ("999/1000", "", Shard(999, 1000)),
    ],
)
def test_a_shard_is_named(text: str, index: str, want: Shard) -> None:
    assert parse_shard(text, {"JOB_COMPLETION_INDEX": index}) == want


@pytest.mark.parametrize(
    ("shard", "text"), [(WHOLE, ""), (Shard(0, 1), ""), (Shard(1, 2), "1/2"), (Shard(5, 8), "5/8")]
)
def test_a_shard_is_written_as_it_is_given(shard: Shard, text: str) -> None:
    assert str(shard) == text


NO_SHARDS = ("half", "1", "-1/8", "a/b", "1/8/2", " 0/1", "\u0660/1", "0/100000")
GRAMMAR = "Give I/N with I from 0 to N-1, or auto/N in an Indexed Job."


@pytest.mark.parametrize(
    ("text", "index", "message"),
    [
        *((text, "", "no shard") for text in NO_SHARDS),
        *((text, "", "There is no shard") for text in ("8/8", "0/0", "0/1001")),
        ("auto/8", "", "'auto/8' needs JOB_COMPLETION_INDEX, which is ''"),
        ("auto/8", "x", "'auto/8' needs JOB_COMPLETION_INDEX, which is 'x'"),
    ],
)
def test_what_is_no_shard_is_refused(text: str, index: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        parse_shard(text, {"JOB_COMPLETION_INDEX": index} if index else {})

    assert caught.value.hint == GRAMMAR


def test_shard_of_a_repository_never_changes() -> None:
    assert [shard_of(f"git.example/acme/cluster-{n}", 8) for n in range(6)] == [1, 3, 5, 2, 0, 4]


def test_other_shards_are_all_but_this_one() -> None:
    assert list(Shard(1, 3).others()) == [Shard(0, 3), Shard(2, 3)]
    assert list(WHOLE.others()) == []


def test_each_shard_has_its_part_of_the_dashboard() -> None:
    assert dashboard_file(Shard(1, 3)) == "dashboard-1-of-3.md"
    assert dashboard_file(WHOLE) == "dashboard.md"


HELD, OTHER = "host/edge", "host/other"
"""Two repositories of different shards of `PARTS`."""
PARTS = next(count for count in range(3, 50) if shard_of(HELD, count) == 1 and shard_of(OTHER, count) == 0)
FIRST, SECOND = Shard(0, PARTS), Shard(1, PARTS)
MINE, THEIRS = PackageKey(HELD, "web"), PackageKey(OTHER, "web")


def test_files_of_other_shards_are_theirs_and_their_dashboards() -> None:
    owners = {"a": MINE, "b": THEIRS}
    dashboards = {f"dashboard-{part}-of-{PARTS}.md" for part in range(PARTS)}

    def others(shard: Shard) -> set[str]:
        files = files_of_other_shards(shard, owners)
        assert files is not None
        return {path for path in ("a", "b", "c", "dashboard.md", *dashboards) if path in files}

    assert others(SECOND) == {"b", *dashboards} - {f"dashboard-1-of-{PARTS}.md"}
    assert others(FIRST) == {"a", *dashboards} - {f"dashboard-0-of-{PARTS}.md"}
    assert files_of_other_shards(WHOLE, owners) is None
