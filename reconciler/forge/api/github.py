"""GitHub: its dialect, by REST and by GraphQL where REST cannot, and the tokens of GitHub Apps.

Tested against the published REST description and GraphQL schema.
"""

import re
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import datetime
from itertools import starmap
from typing import Annotated, Any, NamedTuple
from urllib.parse import quote

import msgspec
from msgspec.structs import replace

from reconciler.base.errors import ConflictError, RefusedError, UnavailableError
from reconciler.base.lazy import regex
from reconciler.base.redact import learn_credential, learn_token
from reconciler.forge.api.dialect import (
    UNCONFIGURED,
    ApiPullRequest,
    Check,
    Comment,
    Issue,
    PendingError,
    PullRequestExistsError,
    RestDialect,
    closed_time,
    forbidden_method,
    write_times,
)
from reconciler.forge.http import Budget, Transport
from reconciler.http.client import SENDABLE, SYSTEM_CLOCK, Clock, InvalidError, StaticToken
from reconciler.inventory.inventory import CheckState, PullRequest, PullState
from reconciler.policy import ForgeRule, MergeMethod, WriteLimits

COMMENTS = """
query Comments($owner: String!, $name: String!, $number: Int!, $after: String) {
  repository(owner: $owner, name: $name) {
    pullRequest(number: $number) {
      comments(first: 100, after: $after) {
        nodes { id body viewerDidAuthor }
        pageInfo { hasNextPage endCursor }
      }
    }
  }
}"""
READY = """
mutation Ready($id: ID!) {
  markPullRequestReadyForReview(input: {pullRequestId: $id}) { pullRequest { isDraft } }
}"""
DRAFT = """
mutation Draft($id: ID!) {
  convertPullRequestToDraft(input: {pullRequestId: $id}) { pullRequest { isDraft } }
}"""
AUTO_MERGE = """
mutation AutoMerge($id: ID!, $head: GitObjectID!, $method: PullRequestMergeMethod!) {
  enablePullRequestAutoMerge(input: {pullRequestId: $id, expectedHeadOid: $head, mergeMethod: $method}) {
    pullRequest { state }
  }
}"""
ENQUEUE = """
mutation Enqueue($id: ID!, $head: GitObjectID!) {
  enqueuePullRequest(input: {pullRequestId: $id, expectedHeadOid: $head}) { mergeQueueEntry { state } }
}"""
QUEUE = """
query Queue($owner: String!, $name: String!, $branch: String!, $after: String) {
  repository(owner: $owner, name: $name) {
    mergeQueue(branch: $branch) {
      entries(first: 100, after: $after) {
        nodes { pullRequest { number } }
        pageInfo { hasNextPage endCursor }
      }
    }
  }
}"""
AUTHOR = """
query Author($owner: String!, $name: String!, $number: Int!) {
  repository(owner: $owner, name: $name) { pullRequest(number: $number) { viewerDidAuthor } }
}"""
EDIT_COMMENT = """
mutation EditComment($id: ID!, $body: String!) {
  updateIssueComment(input: {id: $id, body: $body}) { issueComment { id } }
}"""
DELETE_COMMENT = """
mutation DeleteComment($id: ID!) {
  deleteIssueComment(input: {id: $id}) { clientMutationId }
}"""
ISSUES = """
query Issues($owner: String!, $name: String!, $after: String) {
  repository(owner: $owner, name: $name) {
    issues(first: 100, after: $after, orderBy: {field: UPDATED_AT, direction: DESC}) {
      nodes { number title body closed viewerDidAuthor updatedAt }
      pageInfo { hasNextPage endCursor }
    }
  }
}"""
CHECKS = """
query Checks($owner: String!, $name: String!, $commit: GitObjectID!, $after: String) {
  repository(owner: $owner, name: $name) {
    object(oid: $commit) {
      ... on Commit {
        statusCheckRollup {
          contexts(first: 100, after: $after) {
            nodes {
              ... on CheckRun { name conclusion }
              ... on StatusContext { context state }
            }
            pageInfo { hasNextPage endCursor }
          }
        }
      }
    }
  }
}"""
DOCUMENTS = (COMMENTS, READY, DRAFT, AUTO_MERGE, ENQUEUE, QUEUE, EDIT_COMMENT, DELETE_COMMENT, ISSUES, CHECKS)

DRAFT_LABEL = "draft"
"""Marks a draft where the plan of a repository has no draft pull requests."""
HEADERS = {"X-GitHub-Api-Version": "2022-11-28"}
_NO_DRAFTS = regex("draft pull requests are not supported", re.IGNORECASE)
_CLEAN = regex("in clean status", re.IGNORECASE)
"""The message where nothing is left to wait for, so that auto-merge cannot be enabled."""
_QUEUED_ONLY = regex("made through the merge queue", re.IGNORECASE)
"""The message where a branch takes what its merge queue merges, and nothing else."""
_METHODS: tuple[MergeMethod, ...] = ("merge", "squash", "rebase")
_FORBIDDEN_METHOD = regex("(merges|merge commits) are not allowed", re.IGNORECASE)
_NOT_YET = regex("base branch was modified", re.IGNORECASE)
"""The message while GitHub checks whether a pull request still merges after its base moved."""

_CHECKS = {
    "SUCCESS": CheckState.PASSED,
    "NEUTRAL": CheckState.SKIPPED,
    "SKIPPED": CheckState.SKIPPED,
    "PENDING": CheckState.PENDING,
    "EXPECTED": CheckState.PENDING,
}
"""States of statuses and conclusions of check runs; every other one is a failure."""
_WORST = tuple(CheckState)

PERMISSIONS = {"contents": "write", "pull_requests": "write", "metadata": "read"}
READ_PERMISSIONS = {"contents": "read", "pull_requests": "read", "metadata": "read"}
"""Permissions of a run that writes nothing."""
CHECK_PERMISSIONS = {"checks": "read", "statuses": "read"}
"""Requested only where approval waits for checks: an App that lacks a permission gets no token at all."""
STATUS_PERMISSIONS = {"statuses": "write"}
"""Requested only where a status is set."""
_RENEW_BEFORE_S = 600
_PROOF_LIFE_S = 540
_CLOCK_SKEW_S = 60


def default_api(host: str) -> str:
    """Return the address of a host's API: github.com's own, or an enterprise server's."""
    return "https://api.github.com" if host == "github.com" else f"https://{host}/api/v3"


class GitHub(RestDialect):
    """The dialect of GitHub for one repository, `owner/name`."""

    _longest_description = 140

    def __init__(self, transport: Transport, name: str, rule: ForgeRule = UNCONFIGURED) -> None:
        self._methods = (rule.merge_method,) if rule.merge_method else _METHODS
        self.owner, _, self.repository = name.rpartition("/")
        super().__init__(transport, name, f"/repos/{quote(name)}")

    def list_all(self) -> Iterator[list[ApiPullRequest]]:
        """Yield all pull requests from oldest to newest, so that a new one cannot shift a page."""
        yield from self._sorted("all", "created", "asc")

    def list_open(self) -> Iterator[list[ApiPullRequest]]:
        """Yield the open pull requests from oldest to newest."""
        yield from self._sorted("open", "created", "asc")

    def list_changed(self, _since: float = 0.0) -> Iterator[list[ApiPullRequest]]:
        """Yield the ended pull requests, the last change first."""
        yield from self._sorted("closed", "updated", "desc")

    def find_open(self, head: str, _base: str = "") -> Iterator[ApiPullRequest]:
        """Yield the open pull requests of a branch."""
        # The filter takes OWNER:BRANCH; without an owner GitHub ignores it and answers everything.
        for page in self._list({"state": "open", "head": f"{self.owner}:{head}"}):
            yield from (pull for pull in page if pull.head == head and pull.state is PullState.OPEN)

    find_recent = find_open

    def create(self, desired: PullRequest) -> ApiPullRequest:
        """Open a pull request; where the plan has no drafts, a draft gets a label instead."""
        body = {"title": desired.title, "head": desired.head, "base": desired.base, "body": desired.body}
        try:
            reply = self.transport.write("POST", self._pulls, {**body, "draft": desired.draft})
        except InvalidError as error:
            # Private repositories of a free plan have no drafts: GitHub answers 422.
            if _NO_DRAFTS.search(str(error)) and desired.draft:
                ready = self.create(replace(desired, draft=False))
                return replace(self.set_labels(ready, (*ready.labels, DRAFT_LABEL)), draft=True)
            raise _creation_error(desired, str(error)) or error from error
        return self._parse(reply.data)

    def set_labels(self, pull: ApiPullRequest, labels: tuple[str, ...]) -> ApiPullRequest:
        """Replace the labels."""
        path = f"{self._issues}/{pull.number}/labels"
        # GitHub creates labels that the repository lacks.
        reply = self.transport.write("PUT", path, {"labels": list(labels)}, repeatable=True)
        return replace(pull, labels=tuple(label["name"] for label in reply.data))

    def assign(self, pull: ApiPullRequest, assignees: tuple[str, ...]) -> None:
        """Assign a pull request to people; GitHub leaves out whom it cannot be assigned to."""
        path = f"{self._issues}/{pull.number}/assignees"
        self.transport.write("POST", path, {"assignees": list(assignees)}, repeatable=True)

    def mark_ready(self, pull: ApiPullRequest) -> None:
        """Mark a draft as ready, by GraphQL: REST ignores `draft`."""
        if DRAFT_LABEL in pull.labels:
            self.set_labels(pull, tuple(name for name in pull.labels if name != DRAFT_LABEL))
        else:
            # PATCH takes `draft: false`, answers 200 and changes nothing.
            self._graphql(READY, {"id": pull.key}, writes=True)

    def mark_draft(self, pull: ApiPullRequest) -> None:
        """Turn a pull request into a draft, by a label where the plan has no drafts."""
        try:
            self._graphql(DRAFT, {"id": pull.key}, writes=True)
        except InvalidError as error:
            if not _NO_DRAFTS.search(str(error)):
                raise
            self.set_labels(pull, (*pull.labels, DRAFT_LABEL))

    def merge(self, pull: ApiPullRequest, expect: str) -> ApiPullRequest:
        """Merge a pull request if its head is `expect`, by the first method that the repository permits.

        Where the branch demands its merge queue, it is put into that and stays open.
        """
        for method in self._methods:
            # With `sha` GitHub answers 409 if the head is another one by now.
            body = {"sha": expect, "merge_method": method}
            try:
                reply = self.transport.write("PUT", f"{self._pulls}/{pull.number}/merge", body)
            except InvalidError as error:
                if _NOT_YET.search(str(error)):
                    raise PendingError(str(error)) from error
                if _QUEUED_ONLY.search(str(error)):
                    # The queue merges later, with its own checks: REST has no request to join it.
                    self._graphql(ENQUEUE, {"id": pull.key, "head": expect}, writes=True)
                    return replace(pull, handed=True)
                if not _FORBIDDEN_METHOD.search(str(error)):
                    raise
                if method == self._methods[-1]:
                    raise forbidden_method(self.name, method) from error
                continue
            return replace(pull, state=PullState.MERGED, merge_oid=reply.data["sha"])
        raise AssertionError

    def enable_auto_merge(self, pull: ApiPullRequest, expect: str) -> ApiPullRequest:
        """Enable auto-merge for this head, by GraphQL; merge it where nothing is left to wait for."""
        for method in self._methods:
            variables = {"id": pull.key, "head": expect, "method": method.upper()}
            try:
                self._graphql(AUTO_MERGE, variables, writes=True)
            except InvalidError as error:
                # Auto-merge is for what has something to wait for; GitHub refuses it otherwise.
                if _CLEAN.search(str(error)):
                    return self.merge(pull, expect)
                if not _FORBIDDEN_METHOD.search(str(error)) or method == self._methods[-1]:
                    raise
                continue
            return pull
        raise AssertionError

    def merging(self, pulls: Collection[ApiPullRequest]) -> Collection[int]:
        """Return the numbers of those with auto-merge, and of those in the queue of their branch."""
        # Auto-merge is in every list; the queue of a branch has a list of its own.
        numbers = {pull.number for pull in pulls if pull.handed}
        for base in sorted({pull.base for pull in pulls if not pull.handed}):
            # What is in the queue is not shown as auto-merge.
            entries = self._nodes(QUEUE, {"branch": base}, lambda r: (r["mergeQueue"] or {}).get("entries"))
            numbers |= {entry["pullRequest"]["number"] for entry in entries if entry["pullRequest"]}
        return numbers

    def wrote(self, pull: ApiPullRequest) -> bool:
        """Tell whether the authenticated user, or App, opened a pull request, by GraphQL."""
        values = {"owner": self.owner, "name": self.repository, "number": pull.number}
        return bool(self._graphql(AUTHOR, values)["repository"]["pullRequest"]["viewerDidAuthor"])

    def comments(self, number: int) -> Iterator[Comment]:
        """Yield the comments of the authenticated user."""
        # REST names the author by login, and an App has no /user that tells its own.
        nodes = self._nodes(COMMENTS, {"number": number}, lambda r: r["pullRequest"]["comments"])
        yield from (Comment(node["id"], node["body"]) for node in nodes if node and node["viewerDidAuthor"])

    def add_comment(self, number: int, body: str) -> Comment:
        """Comment in one request."""
        reply = self.transport.write("POST", f"{self._issues}/{number}/comments", {"body": body})
        return Comment(reply.data["node_id"], reply.data.get("body") or body)

    def edit_comment(self, _: int, comment: Comment, body: str) -> None:
        """Replace the text of a comment."""
        self._graphql(EDIT_COMMENT, {"id": comment.key, "body": body}, writes=True)

    def delete_comment(self, _: int, comment: Comment) -> None:
        """Remove a comment of the authenticated user."""
        self._graphql(DELETE_COMMENT, {"id": comment.key}, writes=True)

    def checks(self, commit: str) -> Iterator[Check]:
        """Yield the check runs and statuses of a commit; runs of one name pass only if all of them do."""

        def rollup(repository: Any) -> Any:
            return ((repository["object"] or {}).get("statusCheckRollup") or {}).get("contexts")

        states: dict[str, CheckState] = {}
        for node in self._nodes(CHECKS, {"commit": commit}, rollup):
            name = node.get("name") or node.get("context") or ""
            # A check run without a conclusion is still running.
            state = _CHECKS.get(node.get("conclusion") or node.get("state") or "PENDING", CheckState.FAILED)
            # Several workflows may have a job of the same name.
            states[name] = max(state, states.get(name, state), key=_WORST.index)
        yield from starmap(Check, states.items())

    def issues(self) -> Iterator[Issue]:
        """Yield the issues of the authenticated user, open or closed."""
        for node in self._nodes(ISSUES, {}, lambda repository: repository["issues"]):
            if node["viewerDidAuthor"]:
                changed = write_times({"updated_at": node["updatedAt"]})
                yield Issue(node["number"], node["body"], not node["closed"], changed, node["title"])

    def _graphql(self, document: str, variables: Mapping[str, Any], *, writes: bool = False) -> Any:
        # An enterprise server has REST at /api/v3 and GraphQL at /api/graphql.
        path = f"{self.transport.base.removesuffix('/v3')}/graphql"
        body = {"query": document, "variables": variables}
        if writes:
            return self.transport.write("POST", path, body, repeatable=True).data["data"]
        return self.transport.query(path, body).data["data"]

    def _nodes(
        self, document: str, variables: Mapping[str, Any], connection: Callable[[Any], Any]
    ) -> Iterator[Any]:
        """Yield the nodes of all pages of a connection, which `connection` finds in a repository."""
        after = None
        for _ in self.transport.numbers(f" of {self.name}"):
            values = {"owner": self.owner, "name": self.repository, **variables, "after": after}
            page = connection(self._graphql(document, values)["repository"])
            if page is None:
                return
            yield from page["nodes"]
            before, after = after, page["pageInfo"]["endCursor"]
            if not page["pageInfo"]["hasNextPage"]:
                return
            if after == before:
                raise ValueError("its pages go in a circle")

    def _sorted(self, state: str, sort: str, direction: str) -> Iterator[list[ApiPullRequest]]:
        return self._list({"state": state, "sort": sort, "direction": direction, "per_page": 100})

    def _head(self, item: Any) -> Any:
        return item["head"]["ref"]

    def _is_from_this_repository(self, item: Any) -> bool:
        """Tell whether the head is a branch of the repository itself: a fork may use the same names."""
        head, base = item["head"].get("repo"), item["base"].get("repo")
        return bool(head and base and head["id"] == base["id"])

    def _parse(self, item: Mapping[str, Any]) -> ApiPullRequest:
        # Lists have no field `merged`: a time tells closed from merged.
        merged = item.get("merged_at")
        is_open = item["state"] == "open"
        labels = tuple(label["name"] for label in item.get("labels", ()))
        return ApiPullRequest(
            number=item["number"],
            head=item["head"]["ref"],
            base=item["base"]["ref"],
            title=item["title"],
            body=item.get("body") or "",
            # What is closed keeps its `draft`.
            draft=is_open and (bool(item.get("draft")) or DRAFT_LABEL in labels),
            state=PullState.MERGED if merged else PullState.OPEN if is_open else PullState.CLOSED,
            head_oid=item["head"]["sha"],
            merge_oid=item.get("merge_commit_sha") or "",
            labels=labels,
            url=item.get("html_url", ""),
            key=item.get("node_id", ""),
            times=write_times(item),
            closed=closed_time(item),
            handed=item.get("auto_merge") is not None,
        )


class _InstallationToken(msgspec.Struct):
    token: Annotated[str, msgspec.Meta(pattern=SENDABLE)]
    expires_at: Annotated[datetime, msgspec.Meta(tz=True)]


class App(NamedTuple):
    """One installation of a GitHub App; `key` is its private key in PEM, never shown."""

    app_id: str
    installation_id: str
    key: str

    def __repr__(self) -> str:
        return f"App({self.app_id}, {self.installation_id})"


class AppToken:
    """The Authorization of an App's installation, with the permissions that a run needs; thread-safe.

    A token is valid for an hour. It is renewed ten minutes before its end, and once when GitHub refuses it.
    """

    def __init__(
        self, api: str, app: App, clock: Clock = SYSTEM_CLOCK, permissions: Mapping[str, str] = PERMISSIONS
    ) -> None:
        self.api = api
        self.app = app
        learn_credential(app.key, f"the key of GitHub App {app.app_id}")
        self.clock = clock
        self._permissions = dict(permissions)
        self._token = ""
        self._expires_s = 0.0
        self._lock = threading.Lock()

    def value(self) -> str:
        """Return the header's value."""
        return f"Bearer {self.token()}"

    def renew(self, _refused: str, _challenge: str) -> bool:
        """Discard the token."""
        self._expires_s = 0.0
        return True

    def token(self) -> str:
        """Return a token that is valid for minutes to come, for git over https too.

        Raises:
            UnavailableError: The key is unusable, or GitHub issues no token.
        """
        with self._lock:
            if self.clock.now() > self._expires_s - _RENEW_BEFORE_S:
                self._fetch()
            return self._token

    def _fetch(self) -> None:
        budget = Budget(WriteLimits(), self.clock)
        transport = Transport(self.api, StaticToken(self._proof()), budget, clock=self.clock)
        path = f"/app/installations/{self.app.installation_id}/access_tokens"
        reply = transport.write("POST", path, {"permissions": self._permissions}, repeatable=True)
        try:
            issued = msgspec.convert(reply.data, _InstallationToken)
            self._expires_s = issued.expires_at.timestamp()
        except (msgspec.ValidationError, ArithmeticError) as error:
            raise UnavailableError(f"{self.api} returned no installation token: {error}") from error
        self._token = issued.token
        learn_token(self._token)

    def _proof(self) -> str:
        """Return the JSON Web Token that proves the App's identity: RS256, issued a minute ago."""
        import jwt  # noqa: PLC0415 - slow to import, and needed by Apps alone

        # GitHub refuses a proof from the future, and one that is valid for more than ten minutes.
        now = int(self.clock.now())
        claims = {"iat": now - _CLOCK_SKEW_S, "exp": now + _PROOF_LIFE_S, "iss": self.app.app_id}
        try:
            return jwt.encode(claims, self.app.key, algorithm="RS256")
        except (ValueError, TypeError, jwt.PyJWTError) as error:
            raise UnavailableError(
                "The App's private key cannot be used", hint="Give the PEM file that GitHub made."
            ) from error


def _creation_error(desired: PullRequest, message: str) -> Exception | None:
    """Return the error for GitHub's message about a pull request that was not opened, None if unknown."""
    if "already exists" in message:
        return PullRequestExistsError(message)
    # GitHub opens no pull request without a commit of its own.
    if "No commits between" in message:
        return ConflictError(f"{desired.base} has all commits of {desired.head} already")
    if re.search(r"\bhead\b", message) and "invalid" in message:
        return RefusedError(f"{desired.head} is not a branch any more")
    if re.search(r"\bbase\b", message) and "invalid" in message:
        return RefusedError(f"{desired.base} is not a branch any more")
    return None
