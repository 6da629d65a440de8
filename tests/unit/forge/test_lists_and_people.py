"""Requests for lists, for people and for auto-merge, and tokens of Apps, each as it is sent."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jwt
import pytest

from reconciler.base.errors import RefusedError, UnavailableError
from reconciler.base.redact import mask_credentials
from reconciler.forge.api import github
from reconciler.forge.api.dialect import PendingError
from reconciler.forge.api.forge import ApiForge
from reconciler.forge.api.github import App, AppToken
from reconciler.http.client import Clock, ForbiddenError, InvalidError, MissingError
from reconciler.inventory.inventory import PullState
from reconciler.policy import ForgeKind, ForgeRule
from tests.support.forges.server import Answer, serving
from tests.support.signing import app_key, app_pem
from tests.support.values import TOKEN, replace
from tests.unit.forge.test_dialect_requests import (
    DIALECTS,
    HEAD,
    HUB,
    ITEMS,
    PROJECT,
    PULL,
    READY,
    RecordingApi,
    Request,
    dialect_of,
    graphql,
)

PATHS = {"github": f"{HUB}/pulls", "gitlab": f"{PROJECT}/merge_requests", "gitea": f"{HUB}/pulls"}


@pytest.fixture
def api() -> Iterator[RecordingApi]:
    recording = RecordingApi(Path(), "/api", None)
    with serving(recording):
        yield recording


def item(kind: str, number: int = 5, head: str = HEAD, **fields: Any) -> dict[str, Any]:
    """Return an open pull request of the repository itself, as a list has it."""
    match kind:
        case "github":
            repo = {"repo": {"id": 1}}
            own = {
                "number": number,
                "head": {"ref": head, "sha": "c0ffee", **repo},
                "base": {"ref": "main", **repo},
            }
        case "gitlab":
            own = {"iid": number, "source_branch": head, "source_project_id": 1, "target_project_id": 1}
        case _:
            own = {
                "number": number,
                "head": {"label": head, "sha": "c0ffee", "repo_id": 1},
                "base": {"label": "main", "repo_id": 1},
            }
    return {**ITEMS[kind], **own, **fields}


LISTS = {
    ("github", "list_all"): {"state": "all", "sort": "created", "direction": "asc", "per_page": "100"},
    ("github", "list_open"): {"state": "open", "sort": "created", "direction": "asc", "per_page": "100"},
    ("github", "list_changed"): {"state": "closed", "sort": "updated", "direction": "desc",
        "per_page": "100"},
    ("gitlab", "list_all"): {"state": "all", "order_by": "created_at", "sort": "asc", "per_page": "100"},
    ("gitlab", "list_open"): {"state": "opened", "order_by": "created_at", "sort": "asc", "per_page": "100"},
    ("gitlab", "list_changed"): {"state": "all", "order_by": "updated_at", "sort": "desc",
        "per_page": "100"},
    ("gitea", "list_all"): {"state": "all", "sort": "oldest", "limit": "50"},
    ("gitea", "list_open"): {"state": "open", "sort": "oldest", "limit": "50"},
    ("gitea", "list_changed"): {"state": "closed", "sort": "recentupdate", "limit": "50"},
}  # fmt: skip


@pytest.mark.parametrize(("kind", "method"), LISTS)
def test_list_is_one_query_for_state_and_order(api: RecordingApi, kind: str, method: str) -> None:
    api.answers["GET", PATHS[kind]] = Answer(200, [item(kind, 4), item(kind, 5)])

    pages = list(getattr(dialect_of(api, kind), method)())

    assert [[pull.number for pull in page] for page in pages] == [[4, 5]]
    assert api.queries == [LISTS[kind, method]]


CLOSED = {"state": "closed"}


@pytest.mark.parametrize(
    ("kind", "method", "query"),
    [
        ("github", "find_open", {"state": "open", "head": f"acme:{HEAD}"}),
        ("github", "find_recent", {"state": "open", "head": f"acme:{HEAD}"}),
        ("gitlab", "find_open", {"state": "opened", "source_branch": HEAD}),
        ("gitlab", "find_recent", {"state": "opened", "source_branch": HEAD}),
        ("gitea", "find_open", {"state": "open", "sort": "oldest", "limit": "50"}),
        ("gitea", "find_recent", {"state": "open", "sort": "recentupdate", "limit": "50"}),
    ],
)
def test_pull_requests_of_a_branch_are_those_of_its_name(
    api: RecordingApi, kind: str, method: str, query: dict[str, str]
) -> None:
    api.answers["GET", PATHS[kind]] = Answer(200, [item(kind, 4, "drafts/other"), item(kind, 5)])

    found = list(getattr(dialect_of(api, kind), method)(HEAD))

    assert [(pull.number, pull.head) for pull in found] == [(5, HEAD)]
    assert api.queries == [query]


PAIR = f"{HUB}/pulls/main/drafts/web/w"


@pytest.mark.parametrize(
    ("answer", "base", "numbers", "paths"),
    [
        (Answer(200, item("gitea", 7)), "main", [7], [PAIR]),
        (Answer(404, {}), "main", [], [PAIR]),
        (Answer(200, item("gitea", 7, **CLOSED)), "main", [5], [PAIR, PATHS["gitea"]]),
        (Answer(200, item("gitea", 7)), "", [5], [PATHS["gitea"]]),
        (Answer(200, item("gitea", 7)), "release/1", [5], [PATHS["gitea"]]),
    ],
)
def test_gitea_looks_a_pair_of_branches_up_before_it_lists(
    api: RecordingApi, answer: Answer, base: str, numbers: list[int], paths: list[str]
) -> None:
    api.answers["GET", PAIR] = answer
    api.answers["GET", PATHS["gitea"]] = Answer(200, [item("gitea", 5)])

    assert [pull.number for pull in list(dialect_of(api, "gitea").find_open(HEAD, base))] == numbers
    assert [request.path for request in api.log] == paths


# Whether there are pull requests at all


@pytest.mark.parametrize(
    ("kind", "answer", "expected"),
    [
        ("github", {}, True),
        ("github", {"has_pull_requests": True}, True),
        ("github", {"has_pull_requests": False}, False),
        ("gitea", {"has_pull_requests": False}, False),
        ("gitea", {}, True),
        ("gitlab", {}, True),
        ("gitlab", {"merge_requests_access_level": "enabled"}, True),
        ("gitlab", {"merge_requests_access_level": "disabled"}, False),
    ],
)
def test_pull_requests_are_on_unless_the_repository_tells_otherwise(
    api: RecordingApi, kind: str, answer: dict[str, Any], expected: bool
) -> None:
    api.answers["GET", PROJECT if kind == "gitlab" else HUB] = Answer(200, answer)

    assert dialect_of(api, kind).has_pulls() is expected
    assert len(api.log) == 1


# People

TEAMS = ("ann", "acme/core", "bob")


def users(api: RecordingApi, **ids: int) -> None:
    api.series["GET", "/users"] = [Answer(200, [{"id": number}] if number else []) for number in ids.values()]


def test_gitlab_asks_people_by_their_ids_and_keeps_those_it_has(api: RecordingApi) -> None:
    users(api, ann=1, bob=2, kim=3)
    api.answers["PUT", f"{PROJECT}/merge_requests/5"] = Answer(200, ITEMS["gitlab"])
    dialect = dialect_of(api, "gitlab")

    dialect.request_reviews(replace(PULL, reviewers=("kim",)), TEAMS)
    dialect.request_reviews(replace(PULL, reviewers=("kim",)), ("kim", "acme/core"))
    dialect.assign(replace(PULL, assignees=("bob",)), ("ann",))

    assert [query.get("username") for query in api.queries[:3]] == ["ann", "bob", "kim"]
    assert api.log[3:] == [
        Request("PUT", f"{PROJECT}/merge_requests/5", {"reviewer_ids": [1, 2, 3]}),
        Request("PUT", f"{PROJECT}/merge_requests/5", {"assignee_ids": [1, 2]}),
    ]


def test_gitlab_names_a_user_that_the_server_does_not_have(api: RecordingApi) -> None:
    users(api, ann=1, bob=0)

    with pytest.raises(InvalidError, match=r"acme/team one: the server has no user bob$") as caught:
        dialect_of(api, "gitlab").assign(PULL, ("bob", "ann"))

    assert caught.value.status == 404


# Auto-merge


def failed(message: str) -> Answer:
    return Answer(200, {"data": None, "errors": [{"type": "UNPROCESSABLE", "message": message}]})


def auto(method: str) -> Request:
    return graphql(github.AUTO_MERGE, id="node5", head="c0ffee", method=method)


FORBIDDEN = "Merge commits are not allowed on this repository."


def test_github_enables_auto_merge_by_the_first_method_that_is_permitted(api: RecordingApi) -> None:
    api.series["POST", "/graphql"] = [failed(FORBIDDEN), Answer(200, {"data": {}})]

    assert dialect_of(api, "github").enable_auto_merge(READY, "c0ffee") is READY
    assert api.log == [auto("MERGE"), auto("SQUASH")]


def test_github_merges_where_nothing_is_left_to_wait_for(api: RecordingApi) -> None:
    api.series["POST", "/graphql"] = [failed("Pull request is in clean status")]
    api.answers["PUT", f"{HUB}/pulls/5/merge"] = Answer(200, {"sha": "beef"})

    merged = dialect_of(api, "github").enable_auto_merge(READY, "c0ffee")

    assert (merged.state, merged.merge_oid) == (PullState.MERGED, "beef")
    assert [request.path for request in api.log] == ["/graphql", f"{HUB}/pulls/5/merge"]


@pytest.mark.parametrize(("method", "tries"), [("", 3), ("squash", 1)])
def test_github_tells_why_auto_merge_is_off(api: RecordingApi, method: Any, tries: int) -> None:
    api.series["POST", "/graphql"] = [failed(FORBIDDEN)] * 4
    rule = ForgeRule("https://forge.example", ForgeKind.GITHUB, merge_method=method)

    with pytest.raises(InvalidError, match="not allowed"):
        dialect_of(api, "github", rule).enable_auto_merge(READY, "c0ffee")
    assert len(api.log) == tries

    api.series["POST", "/graphql"] = [failed("Auto merge is not enabled")]
    with pytest.raises(InvalidError, match="not enabled"):
        dialect_of(api, "github").enable_auto_merge(READY, "c0ffee")
    assert len(api.log) == tries + 1


def test_gitlab_merges_when_the_pipeline_succeeds(api: RecordingApi) -> None:
    api.answers["PUT", f"{PROJECT}/merge_requests/5/merge"] = Answer(200, ITEMS["gitlab"])

    dialect_of(api, "gitlab").enable_auto_merge(READY, "c0ffee")

    body = {"sha": "c0ffee", "auto_merge": True, "merge_when_pipeline_succeeds": True}
    assert api.log == [Request("GET", PROJECT), Request("PUT", f"{PROJECT}/merge_requests/5/merge", body)]


def test_gitea_merges_when_the_checks_succeed_and_is_asked_once(api: RecordingApi) -> None:
    merge = f"{HUB}/pulls/5/merge"
    api.answers["GET", f"{HUB}/pulls/5"] = Answer(200, ITEMS["gitea"])
    api.answers["GET", f"{HUB}/statuses/c0ffee"] = Answer(
        200, [{"context": "ci", "status": "pending", "id": 1}]
    )
    dialect = dialect_of(api, "gitea")

    dialect.enable_auto_merge(READY, "c0ffee")
    body = {"Do": "merge", "head_commit_id": "c0ffee", "merge_when_checks_succeed": True}
    assert api.log[2:] == [Request("POST", merge, body), Request("GET", f"{HUB}/pulls/5")]

    api.series["POST", merge] = [
        Answer(409, {"message": "already scheduled"}),
        Answer(409, {"message": "no"}),
    ]
    assert dialect.enable_auto_merge(READY, "c0ffee") is READY
    with pytest.raises(InvalidError):
        dialect.enable_auto_merge(READY, "c0ffee")


@pytest.mark.parametrize(
    ("kind", "handed"),
    [("azure", {5}), ("github", {5, 6}), ("gitlab", {5, 6}), ("gitea", None), ("bitbucket", None)],
)
def test_what_the_forge_merges_by_itself_is_shown_or_in_its_queue(
    api: RecordingApi, kind: str, handed: set[int] | None
) -> None:
    queued = {"pullRequest": {"number": 6}}
    page = {"nodes": [queued, {"pullRequest": None}], "pageInfo": {"hasNextPage": False, "endCursor": None}}
    queue = {"data": {"repository": {"mergeQueue": {"entries": page}}}}
    api.answers["POST", "/graphql"] = Answer(200, queue)
    api.answers["GET", f"{PROJECT}/merge_trains"] = Answer(200, [{"merge_request": {"iid": 6}}])

    assert dialect_of(api, kind).merging([replace(READY, handed=True), replace(READY, number=7)]) == handed


@pytest.mark.parametrize(
    ("status", "error", "text"),
    [
        ("checking", PendingError, "405 Method Not Allowed"),
        ("conflict", InvalidError, r"405 Method Not Allowed \(conflict\)$"),
        (None, InvalidError, "405 Method Not Allowed$"),
    ],
)
def test_gitlab_tells_why_it_does_not_merge(
    api: RecordingApi, status: str | None, error: type[Exception], text: str
) -> None:
    merge = f"{PROJECT}/merge_requests/5"
    api.answers["PUT", f"{merge}/merge"] = Answer(405, {"message": "405 Method Not Allowed"})
    api.answers["GET", merge] = Answer(200, {**ITEMS["gitlab"], "detailed_merge_status": status})

    with pytest.raises(error, match=text):
        dialect_of(api, "gitlab").merge(READY, "c0ffee")


# Apps


TOKENS = "/app/installations/34/access_tokens"


def issue(api: RecordingApi, name: str, life_s: float = 3600) -> None:
    """Let the API issue this token next."""
    ends = github.datetime.fromtimestamp(api.clock.now() + life_s, github.datetime.now().astimezone().tzinfo)
    answer = Answer(201, {"token": name, "expires_at": ends.isoformat()})
    api.series.setdefault(("POST", TOKENS), []).append(answer)


def token_of(api: RecordingApi, key_text: str, **permissions: str) -> AppToken:
    clock = Clock(api.clock.now, api.clock.sleep)
    return AppToken(api.api, App("12", "34", key_text), clock, permissions)


def test_token_of_an_app_is_issued_for_its_permissions_and_kept(api: RecordingApi) -> None:
    issue(api, "first")
    token = token_of(api, app_pem(), contents="read")

    assert [token.value(), token.token(), token.value()] == ["Bearer first", "first", "Bearer first"]

    assert api.log == [Request("POST", TOKENS, {"permissions": {"contents": "read"}})]
    proof = api.journal[0].authorization.removeprefix("Bearer ")
    options = {"verify_exp": False, "verify_iat": False}
    claims = jwt.decode(proof, app_key().public_key(), algorithms=["RS256"], options=options)
    now = int(api.clock.now())
    assert claims == {"iat": now - 60, "exp": now + 540, "iss": "12"}


def test_token_of_an_app_is_masked_in_texts(api: RecordingApi) -> None:
    issue(api, TOKEN)
    token_of(api, app_pem()).token()

    assert TOKEN not in mask_credentials(f"fatal: {TOKEN} was refused")


def test_refused_token_is_renewed_at_once(api: RecordingApi) -> None:
    issue(api, "first")
    issue(api, "second")
    token = token_of(api, app_pem())
    token.value()

    assert token.renew("Bearer first", "")
    assert token.value() == "Bearer second"


@pytest.mark.parametrize(
    "answer",
    [
        {},
        [],
        {"token": "t"},
        {"token": "t", "expires_at": "soon"},
        {"token": "t", "expires_at": "2026-01-01T00:00:00"},
        {"token": "a\nb", "expires_at": "2026-01-01T00:00:00Z"},
        {"token": ["t"], "expires_at": "2026-01-01T00:00:00Z"},
    ],
)
def test_reply_without_a_token_is_named(api: RecordingApi, answer: Any) -> None:
    api.answers["POST", TOKENS] = Answer(201, answer)

    with pytest.raises(UnavailableError, match=r"returned no installation token: "):
        token_of(api, app_pem()).token()


def test_key_that_is_none_is_named_and_nothing_is_sent(api: RecordingApi) -> None:
    with pytest.raises(UnavailableError) as caught:
        token_of(api, "no key").token()

    assert str(caught.value) == "The App's private key cannot be used"
    assert caught.value.hint == "Give the PEM file that GitHub made."
    assert api.log == []


def test_text_of_an_app_has_no_key() -> None:
    assert repr(App("12", "34", "secret")) == "App(12, 34)"


def test_every_dialect_is_listed_here() -> None:
    assert {kind for kind, _ in LISTS} == set(DIALECTS)


class Unreadable:
    """A dialect whose list fails, and that tells, or cannot tell, whether there are pull requests."""

    name = "acme/edge"

    def __init__(self, error: Exception, has_pulls: bool | None) -> None:
        self.error, self.answer = error, has_pulls

    def list_all(self) -> Iterator[Any]:
        raise self.error

    def has_pulls(self) -> bool:
        if self.answer is None:
            raise UnavailableError("down")
        return self.answer

    def is_empty(self) -> bool:
        return self.answer is None and self.has_pulls()


OFF = "Pull requests of acme/edge are switched off"
MISSING, FORBIDDEN_LIST = MissingError("no such thing"), ForbiddenError("no access")


@pytest.mark.parametrize(
    ("error", "has_pulls", "message", "unread"),
    [
        (MISSING, True, "no such thing", set()),
        (MISSING, None, "no such thing", set()),
        (MISSING, False, OFF, set()),
        (FORBIDDEN_LIST, True, "no access", {"acme/edge"}),
        (FORBIDDEN_LIST, False, OFF, {"acme/edge"}),
        (UnavailableError("down"), False, "down", {"acme/edge"}),
    ],
)
def test_list_that_fails_is_explained_and_costs_its_share_unless_nothing_can_be_there(
    api: RecordingApi, error: Exception, has_pulls: bool | None, message: str, unread: set[str]
) -> None:
    forge = ApiForge(Unreadable(error, has_pulls), api.transport(), "fleet")  # type: ignore[arg-type]

    with pytest.raises(UnavailableError) as caught:
        forge.list_pulls()

    assert str(caught.value) == message
    if message == OFF:
        assert caught.value.hint == "Switch them on in the settings of the repository."
    budget = forge.transport.budget
    budget.mark_read("acme/other")
    with budget.write():
        pass
    half = budget.limits.per_hour // 2
    assert budget.spent == 1 + half * len(unread)


def test_list_that_is_none_is_named(api: RecordingApi) -> None:
    api.answers["GET", PATHS["github"]] = Answer(200, {"message": "odd"})

    with pytest.raises(UnavailableError, match=r"/pulls answers no list$"):
        list(dialect_of(api, "github").find_open(HEAD))


@pytest.mark.parametrize("is_token", [True, False])
def test_gitlab_answers_alike_for_a_refused_token_and_a_branch_that_may_not_be_merged_into(
    api: RecordingApi, is_token: bool
) -> None:
    api.answers["PUT", f"{PROJECT}/merge_requests/5/merge"] = Answer(401, {"message": "401 Unauthorized"})
    found = Answer(401, {"message": "no"}) if is_token else Answer(200, ITEMS["gitlab"])
    api.answers["GET", f"{PROJECT}/merge_requests/5"] = found

    with pytest.raises((UnavailableError, RefusedError)) as caught:
        dialect_of(api, "gitlab").merge(PULL, "c0ffee")

    if is_token:
        assert "refuses the credential" in str(caught.value)
    else:
        assert str(caught.value).startswith("The account may not merge into main: ")
        assert caught.value.hint == "Let it merge, in the protection of the branch, or merge yourself."
