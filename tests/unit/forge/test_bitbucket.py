"""Bitbucket Cloud: its address, its tokens, what was declined, and commits by their first digits."""

from base64 import b64encode
from typing import Any

import pytest

from reconciler.forge.api.bitbucket import Bitbucket, default_api, token_of
from reconciler.forge.api.dialect import ApiPullRequest
from reconciler.git.urls import Credential
from reconciler.http.client import StaticToken
from reconciler.inventory.inventory import PullState
from tests.support.forges.scripted import ScriptedApi
from tests.support.forges.server import Answer

ROOT = "/repositories/acme/edge"
TIP, GONE = "a" * 40, "b" * 40
ITEM = {
    "id": 5, "title": "T", "description": "Why.", "state": "OPEN",
    "source": {"branch": {"name": "drafts/web/w"}, "commit": {"hash": TIP[:12]},
        "repository": {"uuid": "{1}"}},
    "destination": {"branch": {"name": "main"}, "repository": {"uuid": "{1}"}},
    "links": {"html": {"href": "https://bitbucket.org/acme/edge/pull-requests/5"}},
    "created_on": "1970-01-01T00:00:01+00:00", "updated_on": "1970-01-01T00:00:02+00:00",
}  # fmt: skip
PULL = ApiPullRequest(5, "drafts/web/w", "main", "T", "Why.", True, PullState.OPEN, TIP)


def test_api_of_the_service_has_a_host_of_its_own() -> None:
    assert default_api("bitbucket.org") == "https://api.bitbucket.org/2.0"


@pytest.mark.parametrize("user", ["", "x-token-auth"])
def test_access_token_is_sent_alone(user: str) -> None:
    assert token_of(Credential(user, "s3cret")) == StaticToken("s3cret")


def test_token_of_an_account_is_sent_with_its_user() -> None:
    pair = b64encode(b"ada@example.com:s3cret").decode()
    assert token_of(Credential("ada@example.com", "s3cret")) == StaticToken(pair, "Basic")


def test_commits_are_completed_by_one_list_of_branches(api: ScriptedApi) -> None:
    gone = {**ITEM, "id": 6, "source": {**ITEM["source"], "commit": {"hash": GONE[:12]}}}  # type: ignore[dict-item]
    api.answers["GET", f"{ROOT}/pullrequests"] = Answer(200, {"values": [ITEM, gone]})
    api.answers["GET", f"{ROOT}/refs/branches"] = Answer(200, {"values": [{"target": {"hash": TIP}}]})
    api.answers["GET", f"{ROOT}/commit/{GONE[:12]}"] = Answer(200, {"hash": GONE})

    ((*pulls,),) = Bitbucket(api.transport(), "acme/edge").list_open()

    assert [pull.head_oid for pull in pulls] == [TIP, GONE]
    assert len(api.requests()) == 3


@pytest.mark.parametrize("repository", [None, {"uuid": "{2}"}], ids=["a fork that is gone", "a fork"])
def test_branch_of_a_fork_is_none_of_ours(api: ScriptedApi, repository: Any) -> None:
    fork = {**ITEM, "id": 6, "source": {**ITEM["source"], "repository": repository}}  # type: ignore[dict-item]
    api.answers["GET", f"{ROOT}/pullrequests"] = Answer(200, {"values": [fork, ITEM]})

    assert [pull.number for pull in Bitbucket(api.transport(), "acme/edge").find_open(PULL.head)] == [5]
