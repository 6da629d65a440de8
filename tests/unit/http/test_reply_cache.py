"""Replies on disk: as they were, for their address alone, and none where the file is missing or damaged."""

from collections.abc import Callable
from pathlib import Path

import pytest

from reconciler.http.client import CachedReply, ReplyCache

REPLY = CachedReply('W/"1"', "link", b'[{"number": 1}]')
URL = "https://h/v2/list?page=1"


def test_a_reply_is_kept_with_its_link_and_for_its_address_alone(tmp_path: Path) -> None:
    cache = ReplyCache(tmp_path / "replies")

    cache.store(URL, REPLY)

    assert cache.find(URL) == REPLY
    assert cache.find("https://h/v2/list?page=2") is None


@pytest.mark.parametrize(
    "spoil",
    [
        Path.unlink,
        lambda file: file.write_bytes(b"damaged"),
        lambda file: file.write_bytes(file.read_bytes()[:-5]),
    ],
    ids=["missing", "damaged", "cut"],
)
def test_a_reply_that_is_not_whole_is_none(tmp_path: Path, spoil: Callable[[Path], object]) -> None:
    cache = ReplyCache(tmp_path)
    cache.store(URL, REPLY)
    (file,) = tmp_path.iterdir()

    spoil(file)

    assert cache.find(URL) is None
