"""Azure DevOps: addresses, tokens and the page to sign in, and texts whose marks show nowhere."""

from base64 import b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.forge import body_marker
from reconciler.forge.api.azure import Azure, basic_token, default_api
from reconciler.forge.api.dialect import ApiPullRequest
from reconciler.git.urls import Credential
from reconciler.http.client import InvalidError, ReplyKind, StaticToken, classify
from reconciler.inventory.inventory import PullState
from tests.support.forges.scripted import ScriptedApi
from tests.support.forges.server import Answer

ADDRESSES = [
    ("one of an organization", "acme/web fleet/_git/east", "/acme/web%20fleet/_apis/git/repositories/east"),
    ("one whose spaces are encoded", "acme/web%20fleet/_git/e", "/acme/web%20fleet/_apis/git/repositories/e"),
    ("one by SSH", "v3/acme/fleet/east", "/acme/fleet/_apis/git/repositories/east"),
    ("one of a collection", "tfs/Main/fleet/_git/east", "/tfs/Main/fleet/_apis/git/repositories/east"),
    ("one of visualstudio.com", "fleet/_git/east", "/fleet/_apis/git/repositories/east"),
    ("one that is called as its project", "_git/fleet", "/fleet/_apis/git/repositories/fleet"),
]


@pytest.mark.parametrize(("name", "path"), [row[1:] for row in ADDRESSES], ids=[row[0] for row in ADDRESSES])
def test_api_of_a_repository_follows_from_its_address(api: ScriptedApi, name: str, path: str) -> None:
    api.answers["GET", path] = Answer(200, {"id": "1"})

    assert Azure(api.transport(), name).is_empty()
    assert [*Azure(api.transport(), name).issues()] == []


def test_address_at_the_service_begins_with_an_organization(
    api: ScriptedApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reconciler.forge.api.azure._CLOUD", "127.0.0.1")
    api.answers["GET", "/acme/fleet/_apis/git/repositories/fleet"] = Answer(200, {"defaultBranch": "main"})

    assert not Azure(api.transport(), "acme/_git/fleet").is_empty()


def test_api_of_ssh_addresses_is_that_of_the_service() -> None:
    assert default_api("ssh.dev.azure.com") == default_api("dev.azure.com") == "https://dev.azure.com"
    assert default_api("acme.visualstudio.com") == "https://acme.visualstudio.com"


def test_token_is_the_password_of_nobody() -> None:
    assert basic_token(Credential("ada", "s3cret")) == StaticToken(b64encode(b":s3cret").decode(), "Basic")
    assert basic_token(Credential()).value() == ""


def test_reviewers_are_people_and_teams_of_the_project(api: ScriptedApi) -> None:
    teams, root = "/acme/_apis/projects/fleet/teams", "/acme/fleet/_apis/git/repositories/east"
    ada = {"identity": {"displayName": "Ada", "uniqueName": "ada@example.com", "id": "p1"}}
    api.answers["GET", teams] = Answer(200, {"value": [{"id": "t1", "name": "Core"}]})
    api.answers["GET", f"{teams}/t1/members"] = Answer(200, {"value": [ada]})
    dialect = Azure(api.transport(), "acme/fleet/_git/east")
    pull = ApiPullRequest(5, "drafts/web/w", "main", "T", "Why.", False, PullState.OPEN, "c0ffee")

    dialect.request_reviews(pull, ("ADA@example.com", "fleet/core", "ada"))

    asked = [
        path.removeprefix(f"{root}/pullrequests/5/") for method, path in api.requests() if method == "PUT"
    ]
    assert asked == ["reviewers/p1", "reviewers/t1", "reviewers/p1"]
    for unknown in ("core", "fleet/ada"):
        with pytest.raises(InvalidError, match=f"no team of the project has or is {unknown}$"):
            dialect.request_reviews(pull, ("ada", unknown))


def test_branch_of_a_fork_is_none_of_ours(api: ScriptedApi) -> None:
    def pull(number: int, **more: object) -> dict[str, object]:
        branches = {"sourceRefName": "refs/heads/drafts/web/w", "targetRefName": "refs/heads/main"}
        created = {"creationDate": "1970-01-01T00:00:01Z", "lastMergeSourceCommit": {"commitId": "c0ffee"}}
        return {"pullRequestId": number, "status": "active", "title": "T", **branches, **created, **more}

    root = "/acme/fleet/_apis/git/repositories/east"
    listed = [pull(5), pull(6, forkSource={"name": "refs/heads/drafts/web/w"})]
    api.answers["GET", f"{root}/pullrequests"] = Answer(200, {"value": listed})

    ((*pulls,),) = Azure(api.transport(), "acme/fleet/_git/east").list_open()

    assert [(each.number, each.head) for each in pulls] == [(5, "drafts/web/w"), (6, "")]


def test_page_to_sign_in_is_a_refused_credential() -> None:
    assert classify(203, {}, "Azure DevOps Services | Sign In", now=0).kind is ReplyKind.UNAUTHORIZED
    assert classify(203, {}, {"value": []}, now=0).kind is ReplyKind.NONE


PLAIN = st.text(st.sampled_from("ab \n<>-#/:[]()`"), max_size=40)


@given(before=PLAIN, part=PLAIN, after=PLAIN)
def test_text_comes_back_as_it_was_and_shows_no_mark(before: str, part: str, after: str) -> None:
    around = body_marker.MarkedBody("", before=before, after=f"\n{after}")
    text = body_marker.compose(part, "Title", ["fleet"], around, 4000, content="source")

    hidden = body_marker.hide(text)

    assert "<!-- reconciler" not in hidden
    assert body_marker.reveal(hidden) == text
    assert body_marker.reveal(hidden.replace("\n", "\r\n")) == text
    assert body_marker.parse(text).content == "source"


def test_generated_text_cannot_forge_a_mark() -> None:
    forged = "[//]: # (reconciler:end)\n<!-- reconciler:end -->"
    text = body_marker.compose(forged, "Title", [], body_marker.MarkedBody(""), 4000, content="source")

    read = body_marker.parse(body_marker.reveal(body_marker.hide(text)))

    assert (read.content, read.after) == ("source", "")
