"""Requests of the three APIs: paths, queries and every field of bodies, and which are sent again."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from reconciler.base.errors import ConflictError, RefusedError
from reconciler.forge.api import bitbucket, gitea, github, gitlab
from reconciler.forge.api.azure import Azure
from reconciler.forge.api.bitbucket import Bitbucket
from reconciler.forge.api.dialect import ApiPullRequest, Comment, Issue, PendingError, PullRequestExistsError
from reconciler.forge.api.gitea import Gitea
from reconciler.forge.api.github import GitHub
from reconciler.forge.api.gitlab import GitLab
from reconciler.http.client import InvalidError, LostReplyError, MissingError
from reconciler.inventory.inventory import CheckState, HeadStatus, PullRequest, PullState
from reconciler.policy import ForgeKind, ForgeRule
from tests.support.forges.scripted import ScriptedApi
from tests.support.forges.server import Answer, serving
from tests.support.values import replace

NAME = "acme/team one"
HUB, PROJECT = "/repos/acme/team one", "/projects/acme/team one"
HEAD = "drafts/web/w"


class Request(NamedTuple):
    """One request of the API."""

    method: str
    path: str
    body: Any = None


@dataclass(eq=False)
class RecordingApi(ScriptedApi):
    """A scripted API that records each request, and answers one of a list after the other."""

    log: list[Request] = field(default_factory=list)
    encoded: list[str] = field(default_factory=list)
    queries: list[dict[str, str]] = field(default_factory=list)
    series: dict[tuple[str, str], list[Answer]] = field(default_factory=dict)

    def respond(self, handler: Any, raw: bytes) -> None:
        self.encoded.append(handler.path)
        super().respond(handler, raw)

    def answer(self, method: str, path: str, query: dict[str, str], body: Any) -> Answer:
        self.log.append(Request(method, path, body))
        self.queries.append(query)
        if following := self.series.get((method, path)):
            return following.pop(0)
        return super().answer(method, path, query, body)


@pytest.fixture
def api() -> Iterator[RecordingApi]:
    recording = RecordingApi(Path(), "/api", None)
    with serving(recording):
        yield recording


PULL = ApiPullRequest(5, HEAD, "main", "Update web", "Why.", True, PullState.OPEN, "c0ffee", key="node5")
READY = replace(PULL, draft=False)
DESIRED = PullRequest(HEAD, "main", "Update web", "Why.", draft=True, labels=("fleet", "edge"))
ITEMS: dict[str, dict[str, Any]] = {
    "github": {"number": 5, "title": "Update web", "state": "open", "draft": True,
        "head": {"ref": HEAD, "sha": "c0ffee"}, "base": {"ref": "main"}},
    "gitlab": {"iid": 5, "title": "Draft: Update web", "state": "opened", "sha": "c0ffee",
        "source_branch": HEAD, "target_branch": "main"},
    "gitea": {"number": 5, "title": "WIP: Update web", "state": "open", "draft": True,
        "head": {"label": HEAD, "sha": "c0ffee"}, "base": {"label": "main"}},
}  # fmt: skip
DIALECTS: dict[str, Callable[..., Any]] = {"github": GitHub, "gitlab": GitLab, "gitea": Gitea}


class Row(NamedTuple):
    """One operation of one forge, what it requests, and whether a lost reply is sent again."""

    kind: str
    call: Callable[[Any], Any]
    requests: list[Request]
    repeatable: bool = True


def graphql(document: str, **variables: Any) -> Request:
    return Request("POST", "/graphql", {"query": document, "variables": variables})


def post(path: str, **body: Any) -> Request:
    return Request("POST", path, body)


def put(path: str, **body: Any) -> Request:
    return Request("PUT", path, body)


def patch(path: str, **body: Any) -> Request:
    return Request("PATCH", path, body)


def get(path: str) -> Request:
    return Request("GET", path)


CALLS: dict[str, Callable[[Any], Any]] = {
    "opens a draft": lambda d: d.create(
        replace(DESIRED, labels=() if isinstance(d, Gitea) else DESIRED.labels)
    ),
    "edits": lambda d: d.edit(PULL, "New", "New.", "main"),
    "moves the base": lambda d: d.edit(READY, "New", "New.", "prod"),
    "marks ready": lambda d: d.mark_ready(PULL),
    "removes the label of a draft": lambda d: d.mark_ready(replace(PULL, labels=("a", "draft", "b"))),
    "marks a draft": lambda d: d.mark_draft(READY),
    "closes": lambda d: d.close(PULL),
    "sets labels": lambda d: d.set_labels(PULL, ("a", "b")),
    "merges": lambda d: d.merge(PULL, "c0ffee"),
    "comments": lambda d: d.add_comment(5, "Hm."),
    "edits a comment": lambda d: d.edit_comment(5, Comment("7", "Hm."), "Ah."),
    "opens an issue": lambda d: d.create_issue("Title", "Text"),
    "edits an issue": lambda d: d.edit_issue(9, "Text"),
    "closes an issue": lambda d: d.edit_issue(9, "Text", close=True),
    "assigns": lambda d: d.assign(replace(PULL, assignees=("kim",)), ("bob", "ann")),
    "asks for reviews": lambda d: d.request_reviews(PULL, ("acme/platform", "bob")),
    "sets a status": lambda d: d.set_status("c0ffee", HeadStatus("fleet", True, "Fine."), HEAD, 5),
    "looks one up": lambda d: d.find(5),
}
ONCE = {"opens a draft", "merges", "comments", "opens an issue"}
"""What is not sent again after a lost reply: it may have been done."""
HUB_5, LAB, LAB_5 = f"{HUB}/pulls/5", f"{PROJECT}/merge_requests", f"{PROJECT}/merge_requests/5"
NEW = {"title": "Update web", "head": HEAD, "base": "main", "body": "Why."}
LAB_NEW = {"source_branch": HEAD, "target_branch": "main", "description": "Why.", "labels": "fleet,edge"}
FLEET = "/acme/fleet/_apis/git/repositories/east/pullrequests"
FLEET_5, CLOUD, CLOUD_5 = (
    f"{FLEET}/5",
    "/repositories/acme/edge/pullrequests",
    "/repositories/acme/edge/pullrequests/5",
)
FLEET_NEW = {
    "sourceRefName": f"refs/heads/{HEAD}",
    "targetRefName": "refs/heads/main", "title": "Update web", "description": "Why.", "isDraft": True,
    "labels": [{"name": "fleet"}, {"name": "edge"}],
}  # fmt: skip
THREAD = {"comments": [{"parentCommentId": 0, "content": "Hm.", "commentType": "text"}], "status": "closed"}
CLOUD_NEW = {
    "title": "Update web", "description": "Why.", "draft": True, "close_source_branch": False,
    "source": {"branch": {"name": HEAD}},
    "destination": {"branch": {"name": "main"}},
}  # fmt: skip
ASKED = {"reviewers": ["bob"], "team_reviewers": ["platform"]}
FINE = {"context": "fleet", "description": "Fine."}
REQUESTS: dict[str, list[Request]] = {
    "github opens a draft": [post(f"{HUB}/pulls", draft=True, **NEW)],
    "gitlab opens a draft": [post(LAB, title="Draft: Update web", **LAB_NEW)],
    "gitea opens a draft": [post(f"{HUB}/pulls", **NEW | {"title": "WIP: Update web"})],
    "github edits": [patch(HUB_5, title="New", body="New.")],
    "gitlab edits": [put(LAB_5, title="Draft: New", description="New.")],
    "gitea edits": [patch(HUB_5, title="WIP: New", body="New.")],
    "github moves the base": [patch(HUB_5, title="New", body="New.", base="prod")],
    "gitlab moves the base": [put(LAB_5, title="New", description="New.", target_branch="prod")],
    "gitea moves the base": [patch(HUB_5, title="New", body="New.", base="prod")],
    "github marks ready": [graphql(github.READY, id="node5")],
    "github removes the label of a draft": [put(f"{HUB}/issues/5/labels", labels=["a", "b"])],
    "gitlab marks ready": [put(LAB_5, title="Update web")],
    "gitea marks ready": [patch(HUB_5, title="Update web")],
    "github marks a draft": [graphql(github.DRAFT, id="node5")],
    "gitlab marks a draft": [put(LAB_5, title="Draft: Update web")],
    "gitea marks a draft": [patch(HUB_5, title="WIP: Update web")],
    "github closes": [patch(HUB_5, state="closed")],
    "gitlab closes": [put(LAB_5, state_event="close")],
    "gitea closes": [patch(HUB_5, state="closed")],
    "github sets labels": [put(f"{HUB}/issues/5/labels", labels=["a", "b"])],
    "gitlab sets labels": [put(LAB_5, labels="a,b")],
    "github merges": [put(f"{HUB_5}/merge", sha="c0ffee", merge_method="merge")],
    "gitlab merges": [get(PROJECT), put(f"{LAB_5}/merge", sha="c0ffee")],
    "gitea merges": [get(HUB), post(f"{HUB_5}/merge", Do="merge", head_commit_id="c0ffee"), get(HUB_5)],
    "github comments": [post(f"{HUB}/issues/5/comments", body="Hm.")],
    "gitlab comments": [post(f"{LAB_5}/notes", body="Hm.")],
    "gitea comments": [post(f"{HUB}/issues/5/comments", body="Hm.")],
    "github edits a comment": [graphql(github.EDIT_COMMENT, id="7", body="Ah.")],
    "gitlab edits a comment": [put(f"{LAB_5}/notes/7", body="Ah.")],
    "gitea edits a comment": [patch(f"{HUB}/issues/comments/7", body="Ah.")],
    "github opens an issue": [post(f"{HUB}/issues", title="Title", body="Text")],
    "gitlab opens an issue": [post(f"{PROJECT}/issues", title="Title", description="Text")],
    "gitea opens an issue": [post(f"{HUB}/issues", title="Title", body="Text")],
    "github edits an issue": [patch(f"{HUB}/issues/9", body="Text")],
    "gitlab edits an issue": [put(f"{PROJECT}/issues/9", description="Text")],
    "gitea edits an issue": [patch(f"{HUB}/issues/9", body="Text")],
    "github closes an issue": [patch(f"{HUB}/issues/9", body="Text", state="closed")],
    "gitlab closes an issue": [put(f"{PROJECT}/issues/9", description="Text", state_event="close")],
    "gitea closes an issue": [patch(f"{HUB}/issues/9", body="Text", state="closed")],
    "github assigns": [post(f"{HUB}/issues/5/assignees", assignees=["bob", "ann"])],
    "gitea assigns": [patch(HUB_5, assignees=["ann", "bob", "kim"])],
    "github asks for reviews": [post(f"{HUB_5}/requested_reviewers", **ASKED)],
    "gitea asks for reviews": [post(f"{HUB_5}/requested_reviewers", **ASKED)],
    "github sets a status": [post(f"{HUB}/statuses/c0ffee", state="success", **FINE)],
    "gitlab sets a status": [post(f"{PROJECT}/statuses/c0ffee", state="success", name="fleet",
        description="Fine.")],
    "bitbucket sets a status": [post("/repositories/acme/edge/commit/c0ffee/statuses/build", key="fleet",
        name="fleet", refname=HEAD, state="SUCCESSFUL", description="Fine.",
        url="https://bitbucket.org/acme/edge/commits/c0ffee")],
    "gitea sets a status": [post(f"{HUB}/statuses/c0ffee", state="success", **FINE)],
    "github looks one up": [get(HUB_5)],
    "gitlab looks one up": [get(LAB_5)],
    "gitea looks one up": [get(HUB_5)],
    "azure opens a draft": [post(FLEET, **FLEET_NEW)],
    "azure edits": [patch(FLEET_5, title="New", description="New.")],
    "azure moves the base": [patch(FLEET_5, title="New", description="New.",
        targetRefName="refs/heads/prod")],
    "azure marks ready": [patch(FLEET_5, isDraft=False)],
    "azure marks a draft": [patch(FLEET_5, isDraft=True)],
    "azure closes": [patch(FLEET_5, status="abandoned")],
    "azure sets labels": [post(f"{FLEET_5}/labels", name=name) for name in "ab"],
    "azure merges": [get("/acme/fleet/_apis/git/repositories/east"),
        get("/acme/fleet/_apis/git/policy/configurations"),
        patch(FLEET_5, status="completed", lastMergeSourceCommit={"commitId": "c0ffee"},
        completionOptions={"mergeStrategy": "noFastForward", "deleteSourceBranch": False}), get(FLEET_5)],
    "azure comments": [post(f"{FLEET_5}/threads", **THREAD)],
    "azure edits a comment": [patch(f"{FLEET_5}/threads/7", content="Ah.")],
    "azure looks one up": [get(FLEET_5)],
    "bitbucket opens a draft": [post(CLOUD, **CLOUD_NEW)],
    "bitbucket edits": [put(CLOUD_5, title="New", reviewers=[], description="New.")],
    "bitbucket moves the base": [put(CLOUD_5, title="New", reviewers=[], description="New.",
        destination={"branch": {"name": "prod"}})],
    "bitbucket marks ready": [put(CLOUD_5, title="Update web", reviewers=[], draft=False)],
    "bitbucket marks a draft": [put(CLOUD_5, title="Update web", reviewers=[], draft=True)],
    "bitbucket closes": [Request("POST", f"{CLOUD_5}/decline")],
    "bitbucket merges": [get(CLOUD_5), post(f"{CLOUD_5}/merge", type="pullrequest_merge_parameters",
        merge_strategy="merge_commit", close_source_branch=False)],
    "bitbucket comments": [post(f"{CLOUD_5}/comments", content={"raw": "Hm."})],
    "bitbucket edits a comment": [put(f"{CLOUD_5}/comments/7", content={"raw": "Ah."})],
    "bitbucket looks one up": [get(CLOUD_5)],
}  # fmt: skip
ROWS = {
    name: Row(kind, CALLS[call], requests, call not in ONCE)
    for name, requests in REQUESTS.items()
    for kind, _, call in (name.partition(" "),)
}


OTHERS: dict[str, tuple[Callable[..., Any], str, dict[str, Any]]] = {
    "azure": (Azure, "acme/fleet/_git/east",
        {"pullRequestId": 5, "status": "active", "title": "Update web", "isDraft": True, "value": [],
        "sourceRefName": f"refs/heads/{HEAD}", "targetRefName": "refs/heads/main", "id": 1,
        "creationDate": "1970-01-01T00:00:01Z", "comments": [{"id": 1}]}),
    "bitbucket": (Bitbucket, "acme/edge", {"id": 5, "title": "Update web", "description": "", "state": "OPEN",
        "draft": True, "source": {"branch": {"name": HEAD}, "commit": {"hash": ""}},
        "destination": {"branch": {"name": "main"}, "commit": {"hash": ""}},
        "links": {"html": {"href": "https://bitbucket.org/acme/edge/pull-requests/5"}},
        **dict.fromkeys(("created_on", "updated_on"), "1970-01-01T00:00:01+00:00")}),
}  # fmt: skip
"""Dialect, name of the repository and reply of the forges whose items have other names."""
ENDED = {"status": "completed", "state": "MERGED"}


def reply_to(row: Row, request: Request) -> Any:
    """Return a reply of the right shape."""
    if request.path == "/graphql":
        return {"data": {}}
    if row.kind in OTHERS:
        return OTHERS[row.kind][2] | (ENDED if row.call is CALLS["merges"] else {})
    if request.path.endswith("/labels"):
        return [{"name": name} for name in request.body["labels"]]
    if request.path.endswith(("/comments", "/notes")):
        return {"id": 7, "node_id": "node7", "body": request.body["body"]}
    if "/issues" in request.path:
        return {"number": 9, "iid": 9}
    return ITEMS[row.kind] | ({"sha": "beef"} if request.path.endswith("/merge") else {})


def dialect_of(api: RecordingApi, kind: str, rule: ForgeRule | None = None) -> Any:
    made, name = OTHERS[kind][:2] if kind in OTHERS else (DIALECTS[kind], NAME)
    return made(api.transport(), name, *([rule] if rule else []))


def prepare(api: RecordingApi, row: Row) -> Any:
    for request in row.requests:
        api.answers[request.method, request.path] = Answer(200, reply_to(row, request))
    return dialect_of(api, row.kind)


@pytest.mark.parametrize("name", ROWS)
def test_operation_is_these_requests_with_these_fields(api: RecordingApi, name: str) -> None:
    row = ROWS[name]
    dialect = prepare(api, row)

    row.call(dialect)

    assert api.log == row.requests
    assert dialect.transport.budget.spent == sum(request.method != "GET" for request in row.requests)


WRITES = [name for name, row in ROWS.items() if row.requests[-1].method != "GET" or len(row.requests) > 1]


@pytest.mark.parametrize("name", WRITES)
def test_write_whose_reply_was_lost_is_sent_again_if_that_changes_nothing(
    api: RecordingApi, name: str
) -> None:
    row = ROWS[name]
    dialect = prepare(api, row)
    write = next(request for request in row.requests if request.method != "GET")
    api.series[write.method, write.path] = [Answer(502, None)]

    if row.repeatable:
        row.call(dialect)
    else:
        with pytest.raises(LostReplyError):
            row.call(dialect)

    assert api.log.count(write) == (2 if row.repeatable else 1)


@pytest.mark.parametrize("kind", DIALECTS)
def test_pull_request_that_was_opened_or_changed_is_read_from_the_reply(api: RecordingApi, kind: str) -> None:
    rows = [ROWS[f"{kind} {what}"] for what in ("opens a draft", "looks one up")]
    moved = ROWS[f"{kind} moves the base"]

    pulls = [row.call(prepare(api, row)) for row in (*rows, moved)]

    expected = replace(PULL, body="", key="", merge_oid="c0ffee" if kind == "gitlab" else "")
    assert pulls == [expected] * 3


@pytest.mark.parametrize("kind", DIALECTS)
def test_comment_and_issue_are_read_from_the_reply(api: RecordingApi, kind: str) -> None:
    comment = ROWS[f"{kind} comments"]
    issue = ROWS[f"{kind} opens an issue"]

    assert comment.call(prepare(api, comment)) == Comment("node7" if kind == "github" else "7", "Hm.")
    assert issue.call(prepare(api, issue)) == Issue(9, "Text", title="Title")


def test_gitlab_keeps_the_head_that_a_reply_does_not_have(api: RecordingApi) -> None:
    api.answers["PUT", f"{PROJECT}/merge_requests/5"] = Answer(200, ITEMS["gitlab"] | {"sha": None})

    assert dialect_of(api, "gitlab").set_labels(PULL, ()).head_oid == "c0ffee"


@pytest.mark.parametrize(
    ("kind", "method", "path", "fields"),
    [
        ("github", "squash", f"{HUB}/pulls/5/merge", {"sha": "c0ffee", "merge_method": "squash"}),
        ("gitlab", "squash", f"{PROJECT}/merge_requests/5/merge", {"sha": "c0ffee", "squash": True}),
        ("gitlab", "rebase", f"{PROJECT}/merge_requests/5/merge", {"sha": "c0ffee"}),
        ("gitea", "squash", f"{HUB}/pulls/5/merge", {"Do": "squash", "head_commit_id": "c0ffee"}),
        ("gitea", "rebase", f"{HUB}/pulls/5/merge", {"Do": "rebase", "head_commit_id": "c0ffee"}),
    ],
)
def test_configured_method_merges(
    api: RecordingApi, kind: str, method: Any, path: str, fields: dict[str, Any]
) -> None:
    dialect = prepare(api, ROWS[f"{kind} merges"])
    rule = ForgeRule("*", ForgeKind.LOCAL, merge_method=method)

    DIALECTS[kind](dialect.transport, NAME, rule).merge(PULL, "c0ffee")

    assert [request.body for request in api.log if request.path == path and request.body] == [fields]


def refuse(api: RecordingApi, kind: str, *messages: str) -> None:
    path = f"{PROJECT}/merge_requests/5/merge" if kind == "gitlab" else f"{HUB}/pulls/5/merge"
    answers = [Answer(405, {"message": message}) for message in messages]
    api.series["POST" if kind == "gitea" else "PUT", path] = answers


def test_github_merges_by_the_first_method_that_the_repository_permits(api: RecordingApi) -> None:
    dialect = prepare(api, ROWS["github merges"])
    refuse(api, "github", "Merge commits are not allowed", "Squash merges are not allowed")

    dialect.merge(PULL, "c0ffee")

    assert [request.body["merge_method"] for request in api.log] == ["merge", "squash", "rebase"]


def test_github_queues_what_the_branch_takes_from_its_merge_queue_alone(api: RecordingApi) -> None:
    dialect = prepare(api, ROWS["github merges"])
    refuse(api, "github", "Changes must be made through the merge queue")
    api.series["POST", "/graphql"] = [Answer(502, None), Answer(200, {"data": {}})]

    assert dialect.merge(PULL, "c0ffee") == replace(PULL, handed=True)
    assert api.log[1:] == [graphql(github.ENQUEUE, id="node5", head="c0ffee")] * 2
    assert dialect.transport.budget.spent == 3


def test_gitea_status_that_was_reported_last_in_a_second_counts(api: RecordingApi) -> None:
    dialect = prepare(api, ROWS["gitea merges"])
    statuses = [
        {"id": 8, "context": "ci", "status": "success"},
        {"id": 7, "context": "ci", "status": "failure"},
    ]
    api.answers["GET", f"{HUB}/statuses/c0ffee"] = Answer(200, statuses)

    assert dict(dialect.checks("c0ffee")) == {"ci": CheckState.PASSED}


@pytest.mark.parametrize("method", ["", "squash"])
def test_github_stops_where_no_method_is_permitted(api: RecordingApi, method: Any) -> None:
    dialect = prepare(api, ROWS["github merges"])
    refuse(api, "github", *["Rebase merges are not allowed"] * 4)

    with pytest.raises(RefusedError, match="does not permit to"):
        GitHub(dialect.transport, NAME, ForgeRule("*", ForgeKind.LOCAL, merge_method=method)).merge(PULL, "1")

    assert len(api.log) == (1 if method else 3)


@pytest.mark.parametrize(
    ("repository", "method", "style"),
    [
        ({}, "", "merge"),
        ({"default_merge_style": "squash"}, "", "squash"),
        ({"default_merge_style": "squash"}, "merge", "merge"),
        ({"allow_rebase": False}, "rebase", "rebase-merge"),
        ({"allow_rebase_explicit": False}, "rebase", "rebase"),
        ({"allow_merge_commits": False}, "squash", "squash"),
        ({"allow_rebase": False, "allow_rebase_explicit": False}, "rebase", ""),
        ({"allow_squash_merge": False}, "squash", ""),
        ({"allow_merge_commits": False}, "merge", ""),
    ],
)
def test_gitea_merges_in_a_style_that_the_repository_permits(
    api: RecordingApi, repository: dict[str, Any], method: Any, style: str
) -> None:
    api.answers["GET", HUB] = Answer(200, repository)
    api.answers["GET", f"{HUB}/pulls/5"] = Answer(200, ITEMS["gitea"])
    dialect = dialect_of(api, "gitea", ForgeRule("*", ForgeKind.GITEA, merge_method=method))

    if style:
        dialect.merge(PULL, "c0ffee")
        assert api.log[1].body["Do"] == style
        return
    with pytest.raises(RefusedError) as caught:
        dialect.merge(PULL, "c0ffee")
    assert str(caught.value) == f"{NAME} does not permit to {method} pull requests"
    assert (
        caught.value.hint
        == "Change mergeMethod of the rule in spec.forges, or the settings of the repository."
    )


@pytest.mark.parametrize(
    ("kind", "answer", "error", "text"),
    [
        ("github", (422, "A pull request already exists for acme:x."), PullRequestExistsError,
            "already exists"),
        ("github", (422, "No commits between main and x"), ConflictError,
            f"main has all commits of {HEAD} already"),
        ("github", (422, "head invalid"), RefusedError, f"{HEAD} is not a branch any more"),
        ("github", (422, "base invalid"), RefusedError, "main is not a branch any more"),
        ("github", (422, "head is odd"), InvalidError, "head is odd"),
        ("github", (422, "base is odd"), InvalidError, "base is odd"),
        ("github", (422, "headless invalid"), InvalidError, "headless invalid"),
        ("gitlab", (409, "Another open merge request exists"), PullRequestExistsError, "Another open"),
        ("gitlab", (422, 'Source branch "x" does not exist'), RefusedError,
            f"{HEAD} or main is no branch of {NAME}"),
        ("gitlab", (422, "Title is too long"), InvalidError, "Title is too long"),
        ("gitea", (409, "pull request already exists"), PullRequestExistsError, "already exists"),
        ("gitea", (422, "Title is too long"), InvalidError, "Title is too long"),
        ("gitea", (404, "not found"), PendingError, "the server does not take pull requests yet"),
    ],
)  # fmt: skip
def test_pull_request_that_is_not_opened_has_the_cause(
    api: RecordingApi, kind: str, answer: tuple[int, str], error: type[Exception], text: str
) -> None:
    path = f"{PROJECT}/merge_requests" if kind == "gitlab" else f"{HUB}/pulls"
    api.answers["POST", path] = Answer(answer[0], {"message": answer[1]})

    with pytest.raises(error, match=text) as caught:
        dialect_of(api, kind).create(replace(DESIRED, labels=()))

    assert type(caught.value) is error


def test_missing_repository_is_not_a_missing_branch(api: RecordingApi) -> None:
    api.answers["POST", f"{HUB}/pulls"] = Answer(404, {"message": "not found"})
    api.answers["GET", HUB] = Answer(404, {"message": "no such repository"})

    with pytest.raises(MissingError, match="no such repository"):
        dialect_of(api, "gitea").create(replace(DESIRED, labels=()))


NO_DRAFTS = Answer(422, {"message": "Draft pull requests are not supported in this repository."})


def test_pull_request_becomes_a_draft_by_a_label_where_the_plan_has_no_drafts(api: RecordingApi) -> None:
    api.answers["POST", "/graphql"] = NO_DRAFTS
    api.answers["PUT", f"{HUB}/issues/5/labels"] = Answer(200, [])

    dialect_of(api, "github").mark_draft(replace(READY, labels=("mine",)))

    assert api.log[-1] == Request("PUT", f"{HUB}/issues/5/labels", {"labels": ["mine", "draft"]})


def test_other_refusal_of_a_draft_is_an_error(api: RecordingApi) -> None:
    api.answers["POST", "/graphql"] = Answer(422, {"message": "locked"})

    with pytest.raises(InvalidError, match="locked"):
        dialect_of(api, "github").mark_draft(READY)
    assert len(api.log) == 1


def label(id_: int, name: str) -> dict[str, Any]:
    return {"id": id_, "name": name}


@pytest.mark.parametrize("organization", [True, False])
def test_gitea_uses_labels_of_the_repository_and_its_organization_and_creates_others(
    api: RecordingApi, organization: bool
) -> None:
    api.answers["GET", f"{HUB}/labels"] = Answer(200, [label(7, "a"), label(3, "a"), label(4, "b")])
    shared = Answer(200, [label(2, "b"), label(9, "c")]) if organization else Answer(404, {"message": "no"})
    api.answers["GET", "/orgs/acme/labels"] = shared
    api.answers["POST", f"{HUB}/labels"] = Answer(201, {"id": 20})
    dialect = dialect_of(api, "gitea")

    pull = dialect.set_labels(PULL, ("c", "a", "b", "new"))
    dialect.set_labels(PULL, ("a",))

    ids = [9, 3, 2, 20] if organization else [20, 3, 4, 20]
    created = [{"name": name, "color": "#ededed"} for name in (("new",) if organization else ("c", "new"))]
    assert pull.labels == ("c", "a", "b", "new")
    assert [request.body for request in api.log if request.method == "PUT"] == [
        {"labels": ids},
        {"labels": [3]},
    ]
    assert [request.body for request in api.log if request.method == "POST"] == created
    assert [request.path for request in api.log if request.method == "GET"] == [
        f"{HUB}/labels",
        "/orgs/acme/labels",
        f"{HUB}/labels",
    ]
    assert [query for query in api.queries if query] == [{"limit": "50"}] * 3


def test_gitea_opens_a_pull_request_with_the_ids_of_its_labels(api: RecordingApi) -> None:
    dialect = prepare(api, ROWS["gitea opens a draft"])
    api.answers["GET", f"{HUB}/labels"] = Answer(200, [label(1, "fleet"), label(2, "edge")])
    api.answers["GET", "/orgs/acme/labels"] = Answer(200, [])

    dialect.create(DESIRED)

    assert api.log[-1].body["labels"] == [1, 2]


def nodes(*items: Any, after: str | None = None) -> dict[str, Any]:
    return {"nodes": list(items), "pageInfo": {"hasNextPage": after is not None, "endCursor": after}}


def in_repository(**fields: Any) -> Answer:
    return Answer(200, {"data": {"repository": fields}})


def test_github_comments_of_all_pages_are_those_of_the_user(api: RecordingApi) -> None:
    pages = [
        nodes({"id": "1", "body": "a", "viewerDidAuthor": True}, None, after="x"),
        nodes(
            {"id": "2", "body": "b", "viewerDidAuthor": False},
            {"id": "3", "body": "c", "viewerDidAuthor": True},
        ),
    ]
    api.series["POST", "/graphql"] = [in_repository(pullRequest={"comments": page}) for page in pages]

    assert list(dialect_of(api, "github").comments(5)) == [Comment("1", "a"), Comment("3", "c")]
    named = {"owner": "acme", "name": "team one", "number": 5}
    assert api.log == [
        graphql(github.COMMENTS, **named, after=None),
        graphql(github.COMMENTS, **named, after="x"),
    ]


def test_github_check_passes_if_all_its_runs_do(api: RecordingApi) -> None:
    runs = nodes(
        {"name": "build", "conclusion": "SUCCESS"},
        {"name": "build", "conclusion": "FAILURE"},
        {"name": "test", "conclusion": "FAILURE"},
        {"name": "test", "conclusion": "SUCCESS"},
        {"context": "lint", "state": "SUCCESS"},
        {"context": "scan", "state": "PENDING"},
        {"name": "slow", "conclusion": None},
        {"name": "docs", "conclusion": "SKIPPED"},
        {"name": "docs", "conclusion": "NEUTRAL"},
        {},
    )
    api.series["POST", "/graphql"] = [
        in_repository(object={"statusCheckRollup": {"contexts": runs}}),
        in_repository(object={"statusCheckRollup": None}),
        in_repository(object=None),
    ]
    hub = dialect_of(api, "github")

    assert dict(hub.checks("c0ffee")) == {
        **dict.fromkeys(("build", "test"), CheckState.FAILED),
        **dict.fromkeys(("scan", "slow", ""), CheckState.PENDING),
        "docs": CheckState.SKIPPED,
        "lint": CheckState.PASSED,
    }
    assert [dict(hub.checks("c0ffee")) for _ in range(2)] == [{}, {}]
    assert api.log[0] == graphql(github.CHECKS, owner="acme", name="team one", commit="c0ffee", after=None)


TIMES = {"created_at": "1970-01-01T00:00:01Z", "updated_at": "1970-01-01T00:00:02Z"}


def test_issues_of_the_user_are_read_open_or_closed(api: RecordingApi) -> None:
    hub = {"title": "D", "body": "t", "viewerDidAuthor": True, "updatedAt": "1970-01-01T00:00:02Z"}
    api.series["POST", "/graphql"] = [
        in_repository(
            issues=nodes(
                {**hub, "number": 1, "closed": False},
                {**hub, "number": 2, "closed": True},
                {**hub, "number": 3, "closed": False, "viewerDidAuthor": False},
            )
        )
    ]
    lab = [
        {**TIMES, "iid": 1, "title": "D", "state": "opened", "description": None},
        {**TIMES, "iid": 2, "title": "D", "state": "closed"},
    ]
    api.answers["GET", f"{PROJECT}/issues"] = Answer(200, lab)
    api.answers["GET", "/user"] = Answer(200, {"login": "bot", "username": "bot"})
    tea = [
        {**TIMES, "title": "D", "number": 1, "state": "open", "body": "t", "user": {"login": "bot"}},
        {**TIMES, "title": "D", "number": 2, "state": "closed", "body": None, "user": {"login": "bot"}},
        {**TIMES, "title": "D", "number": 3, "state": "open", "body": "t", "user": {"login": "kim"}},
    ]
    api.answers["GET", f"{HUB}/issues"] = Answer(200, tea)

    assert {kind: list(dialect_of(api, kind).issues()) for kind in DIALECTS} == {
        "github": [Issue(1, "t", True, (2,), "D"), Issue(2, "t", False, (2,), "D")],
        "gitlab": [Issue(1, "", True, (1, 2), "D"), Issue(2, "", False, (1, 2), "D")],
        "gitea": [Issue(1, "t", True, (1, 2), "D"), Issue(2, "", False, (1, 2), "D")],
    }
    assert api.log[0] == graphql(github.ISSUES, owner="acme", name="team one", after=None)
    assert [query for query in api.queries if query] == [
        {"scope": "created_by_me", "per_page": "100"},
        {"type": "issues", "state": "all", "created_by": "bot", "limit": "50"},
    ]


def test_comments_of_the_user_are_read(api: RecordingApi) -> None:
    api.answers["GET", "/user"] = Answer(200, {"login": "bot", "username": "bot"})
    lab = [
        {"id": 1, "body": "a", "author": {"username": "bot"}},
        {"id": 2, "body": "b", "author": {"username": "bot"}, "system": True},
        {"id": 3, "body": "c", "author": {"username": "kim"}},
    ]
    tea = [{"id": 1, "body": "a", "user": {"login": "bot"}}, {"id": 3, "body": "c", "user": {"login": "kim"}}]
    api.answers["GET", f"{PROJECT}/merge_requests/5/notes"] = Answer(200, lab)
    api.answers["GET", f"{HUB}/issues/5/comments"] = Answer(200, tea)

    read = [list(dialect_of(api, kind).comments(5)) for kind in ("gitlab", "gitea")]

    assert read == [[Comment("1", "a")]] * 2
    assert [request.path for request in api.log].count("/user") == 2
    assert [query for query in api.queries if query] == [{"sort": "asc", "per_page": "100"}]


def test_statuses_of_a_commit_are_checks(api: RecordingApi) -> None:
    states = ("success", "failed", "canceled", "running", "created", "skipped", "manual")
    lab = [{"name": state, "status": state} for state in states]
    tea = [{"context": s, "status": s} for s in ("success", "failure", "error", "warning", "pending")]
    api.answers["GET", f"{PROJECT}/repository/commits/c0ffee/statuses"] = Answer(200, lab)
    api.answers["GET", f"{HUB}/statuses/c0ffee"] = Answer(200, tea)

    checks = [list(dialect_of(api, kind).checks("c0ffee")) for kind in ("gitlab", "gitea")]

    passed, failed, pending = CheckState.PASSED, CheckState.FAILED, CheckState.PENDING
    skipped = CheckState.SKIPPED
    assert checks == [
        list(zip(states, (passed, failed, failed, pending, pending, skipped, skipped), strict=True)),
        [("success", passed), *((s, failed) for s in ("failure", "error", "warning")), ("pending", pending)],
    ]
    assert api.queries == [{"per_page": "100"}, {"sort": "oldest", "limit": "50"}]


@pytest.mark.parametrize(
    ("kind", "path", "name", "failed"),
    [
        ("github", f"{HUB}/statuses/c0ffee", "context", "failure"),
        ("gitea", f"{HUB}/statuses/c0ffee", "context", "failure"),
        ("gitlab", f"{PROJECT}/statuses/c0ffee", "name", "failed"),
    ],
)
def test_status_of_a_commit_is_set(api: RecordingApi, kind: str, path: str, name: str, failed: str) -> None:
    api.answers["POST", path] = Answer(201, {})

    for passed in (True, False):
        dialect_of(api, kind).set_status("c0ffee", HeadStatus("fleet", passed, "x" * 300), "drafts/web/a", 5)

    sent = [request.body for request in api.log]
    assert [body["state"] for body in sent] == ["success", failed]
    assert [body[name] for body in sent] == ["fleet", "fleet"]
    assert {len(body["description"]) for body in sent} == {140 if kind == "github" else 255}


def test_usual_addresses_of_apis() -> None:
    assert github.default_api("github.com") == "https://api.github.com"
    assert github.default_api("git.example") == "https://git.example/api/v3"
    assert gitlab.default_api("git.example") == "https://git.example/api/v4"
    assert gitea.default_api("git.example") == "https://git.example/api/v1"
    assert bitbucket.default_api("bitbucket.org") == "https://api.bitbucket.org/2.0"
    assert bitbucket.default_api("git.example") == "https://git.example/2.0"


def test_graphql_of_an_enterprise_server_is_beside_its_rest_api() -> None:
    recording = RecordingApi(Path(), "/api", None)
    with serving(recording):
        transport = recording.transport()
        transport.base += "/v3"
        recording.answers["POST", "/graphql"] = Answer(200, {"data": {}})
        GitHub(transport, NAME).mark_ready(PULL)

    assert recording.log == [graphql(github.READY, id="node5")]


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        ("github", "/api/repos/acme/team%20one/pulls/5"),
        ("gitlab", "/api/projects/acme%2Fteam%20one/merge_requests/5"),
        ("gitea", "/api/repos/acme/team%20one/pulls/5"),
    ],
)
def test_name_of_a_repository_is_encoded_in_paths(api: RecordingApi, kind: str, path: str) -> None:
    row = ROWS[f"{kind} looks one up"]

    row.call(prepare(api, row))

    assert api.encoded == [path]
