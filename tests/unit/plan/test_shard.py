"""Shards: every repository has exactly one, whatever the numbers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.errors import UsageError
from reconciler.plan.shard import WHOLE, Shard, parse_shard, shard_of

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
    ],
)
def test_a_shard_is_named(text: str, index: str, want: Shard) -> None:
    assert parse_shard(text, {"JOB_COMPLETION_INDEX": index}) == want


@pytest.mark.parametrize(
    "text", ["8/8", "1", "-1/8", "a/b", "0/0", "auto/8", "1/8/2", "0/100000", " 0/1", "\u0660/1"]
)
def test_what_is_no_shard_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_shard(text, {})
