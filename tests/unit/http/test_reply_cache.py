"""Conditional requests: a reply that the forge confirms comes from the cache, any other from the forge."""

from collections.abc import Callable
from pathlib import Path

import pytest

from reconciler.base.errors import UnavailableError
from reconciler.forge.api.budget import Budget
from reconciler.forge.api.http import Transport
from reconciler.http.client import Clock, StaticToken
from reconciler.http.reply_cache import CachedReply, ReplyCache
from reconciler.policy import WriteLimits
from tests.support.forges.scripted import ScriptedApi
from tests.support.forges.server import Answer

REPLY = CachedReply('W/"1"', "link", b'[{"number": 1}]')


LINK = {"Link": '<https://h/api/list?page=2>; rel="next"'}


def transport(api: ScriptedApi, cache: Path) -> Transport:
    clock = Clock(api.clock.now, api.clock.sleep)
    budget = Budget(WriteLimits(), clock)
    return Transport(api.api, StaticToken("token"), budget, clock=clock, replies=ReplyCache(cache))


def statuses(api: ScriptedApi) -> list[int]:
    return [entry.status for entry in api.journal]


@pytest.mark.parametrize(
    ("change", "status"),
    [
        (lambda _api, _file: None, 304),
        (lambda api, _file: api.answers.update({("GET", "/list"): Answer(200, [3], LINK)}), 200),
        (lambda _api, file: file.unlink(), 200),
        (lambda _api, file: file.write_bytes(b"damaged"), 200),
        (lambda _api, file: file.write_bytes(file.read_bytes()[:-5]), 200),
    ],
    ids=["unchanged", "changed", "no cache", "damaged", "cut"],
)
def test_a_reply_comes_from_the_cache_only_if_the_forge_confirms_it(
    api: ScriptedApi, tmp_path: Path, change: Callable[[ScriptedApi, Path], None], status: int
) -> None:
    api.answers["GET", "/list"] = Answer(200, [1, 2], LINK)
    transport(api, tmp_path).get("/list", {"page": 1}, conditional=True)
    (file,) = tmp_path.iterdir()
    change(api, file)

    reply = transport(api, tmp_path).get("/list", {"page": 1}, conditional=True)

    assert reply.data == api.answers["GET", "/list"].body
    assert reply.headers["link"] == LINK["Link"]
    assert statuses(api) == [200, status]


def test_a_reply_that_was_cut_short_is_not_kept(api: ScriptedApi, tmp_path: Path) -> None:
    api.answers["GET", "/list"] = Answer(200, "[1, 2", LINK)

    with pytest.raises(UnavailableError):
        transport(api, tmp_path).get("/list", {"page": 1}, conditional=True)

    assert not list(tmp_path.iterdir())
    assert set(statuses(api)) == {200}


def test_other_requests_are_not_conditional(api: ScriptedApi, tmp_path: Path) -> None:
    for _ in range(2):
        transport(api, tmp_path).get("/list")

    assert statuses(api) == [200, 200]
    assert not list(tmp_path.iterdir())


def test_a_reply_is_kept_with_its_link_and_for_its_address_alone(tmp_path: Path) -> None:
    cache = ReplyCache(tmp_path / "replies")

    cache.store("https://h/api/list?page=1", REPLY)

    assert cache.find("https://h/api/list?page=1") == REPLY
    assert cache.find("https://h/api/list?page=2") is None
