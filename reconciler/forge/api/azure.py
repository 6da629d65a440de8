"""Azure DevOps: the dialect of its Git repositories, by REST only.

Tested against a simulator that is written from its published description, and never on a live server.

Source: https://github.com/MicrosoftDocs/vsts-rest-api-specs, specification/git/7.1.
"""

import base64
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from itertools import chain
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from msgspec.structs import replace

from reconciler.base.errors import RefusedError
from reconciler.base.lazy import regex
from reconciler.forge import body_marker
from reconciler.forge.api.dialect import (
    UNCONFIGURED,
    ApiPullRequest,
    Check,
    Comment,
    Fields,
    PendingError,
    PullRequestExistsError,
    Query,
    RestDialect,
    closed_time,
    forbidden_method,
    write_times,
)
from reconciler.forge.http import Transport
from reconciler.git.urls import Credential
from reconciler.http.client import InvalidError, MissingError, StaticToken
from reconciler.inventory.inventory import CheckState, HeadStatus, PullRequest, PullState
from reconciler.names.refs import DRAFTS, HEADS, PROPOSED
from reconciler.policy import ForgeRule

HEADERS = {"X-TFS-FedAuthRedirect": "Suppress"}
"""Without it, a request with a wrong token is redirected to the page of another host for people."""
PAGE = 100
_VERSION = "7.1"
_CLOUD, _SSH = "dev.azure.com", "ssh.dev.azure.com"
_SHORTENED = 400
"""The length to which lists shorten descriptions."""
_MARK = regex(r"# \(reconciler:begin [^)]*\)")
_STATES = {"active": PullState.OPEN, "completed": PullState.MERGED}
_CHECKS = {
    "succeeded": CheckState.PASSED,
    "pending": CheckState.PENDING,
    "notSet": CheckState.PENDING,
    "notApplicable": CheckState.SKIPPED,
}
_UNMERGED = {"conflicts", "failure", "rejectedByPolicy"}
_MERGE_TYPES = "fa4e907d-c16b-4a4c-9dfa-4916e5d171ab"
"""The kind of policy that limits how pull requests are merged.

Source: Azure DevOps' documentation of branch policies in its command line.
"""
_STRATEGIES: Mapping[str, Sequence[str]] = {
    "merge": ("noFastForward",),
    "squash": ("squash",),
    "rebase": ("rebase", "rebaseMerge"),
}
_PERMITS = {
    "noFastForward": "allowNoFastForward",
    "squash": "allowSquash",
    "rebase": "allowRebase",
    "rebaseMerge": "allowRebaseMerge",
}
_REJECTED = "RejectedByPolicy"
"""In the name of the error where policies of the branch are not met."""


def default_api(host: str) -> str:
    """Return the address of the API: the host itself, its collections and organizations are in the path."""
    return f"https://{_CLOUD if host == _SSH else host}"


def basic_token(credential: Credential) -> StaticToken:
    """Return the form in which the server takes personal access tokens and those of pipelines."""
    encoded = base64.b64encode(f":{credential.password}".encode()).decode()
    # The user is empty: any name is accepted, and none is needed.
    return StaticToken(encoded if credential.password else "", "Basic")


class Azure(RestDialect):
    """The dialect of Azure DevOps for one repository, `organization/project/_git/name`."""

    most_text = 3_984  # of 4,000, as what hides a mark is longer there
    most_comment = 100_000
    has_issues = False
    _draft_field = "isDraft"
    has_statuses_of_pulls = True
    _query = f"?api-version={_VERSION}"
    _fields = Fields("PATCH", "pullRequestId", "description", "targetRefName", "", "status", "abandoned")

    def __init__(self, transport: Transport, name: str, rule: ForgeRule = UNCONFIGURED) -> None:
        owner, project, repository = _split(name, urlsplit(transport.base).hostname or "")
        self._method = rule.merge_method
        self._organization = owner
        self._projects = f"{owner}/_apis/projects/{quote(project)}"
        self._project = f"{owner}/{quote(project)}"
        self._web = f"{transport.base}{self._project}/_git/{quote(repository)}"
        self._identities: dict[str, str] = {}
        self._permitted: dict[str, Mapping[str, Any]] = {}
        root = f"{self._project}/_apis/git/repositories/{quote(repository)}"
        super().__init__(transport, name, root, "pullrequests")

    def is_empty(self) -> bool:
        """Tell whether the repository has no commit yet."""
        return "defaultBranch" not in self._get(self._root)

    def list_all(self) -> Iterator[list[ApiPullRequest]]:
        """Yield all pull requests, the newest first: a new one repeats an item of the page before."""
        yield from self._pages("all")

    def list_open(self) -> Iterator[list[ApiPullRequest]]:
        """Yield the open pull requests, the newest first."""
        yield from self._pages("active")

    def list_changed(self, since: float = 0.0) -> Iterator[list[ApiPullRequest]]:
        """Yield the pull requests that ended since a time, the last one first."""
        moment = datetime.fromtimestamp(max(since, 0.0), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        query = {"searchCriteria.queryTimeRangeType": "closed", "searchCriteria.minTime": moment}
        pulls = [pull for page in self._pages("all", query) for pull in page]
        # Lists come in the order of creation.
        pulls.sort(key=lambda pull: (pull.changed, pull.number), reverse=True)
        yield from (pulls[start : start + PAGE] for start in range(0, len(pulls), PAGE))

    def find_open(self, head: str, _base: str = "") -> Iterator[ApiPullRequest]:
        """Yield the open pull requests of a branch."""
        for pull in self.find_recent(head):
            yield self.find(pull.number)

    def find_recent(self, head: str, _base: str = "") -> Iterator[ApiPullRequest]:
        """Yield the open pull requests of a branch, with shortened texts."""
        query = {"searchCriteria.status": "active", "searchCriteria.sourceRefName": f"{HEADS}{head}"}
        pulls = map(self._parse_short, self._get(self._pulls, query)["value"])
        yield from (pull for pull in pulls if pull.head == head)

    def find(self, number: int) -> ApiPullRequest:
        """Return a pull request; MissingError if there is none."""
        return self._parse(self._get(f"{self._pulls}/{number}"))

    def create(self, desired: PullRequest) -> ApiPullRequest:
        """Open a pull request.

        Raises:
            RefusedError: A branch is missing.
        """
        body = {
            "sourceRefName": f"{HEADS}{desired.head}",
            "targetRefName": f"{HEADS}{desired.base}",
            "title": desired.title,
            "description": body_marker.hide(desired.body),
            "isDraft": desired.draft,
            "labels": [{"name": name} for name in desired.labels],
        }
        try:
            return self._parse(self._write("POST", self._pulls, body))
        except (InvalidError, MissingError) as error:
            # The code at the start of a message is the same in every language.
            if "TF401179" in str(error):
                raise PullRequestExistsError(str(error)) from error
            if "TF401398" in str(error):
                raise RefusedError(f"{desired.head} or {desired.base} is no branch of {self.name}") from error
            raise

    def edit(self, pull: ApiPullRequest, title: str, body: str, base: str) -> ApiPullRequest:
        """Replace title, text and base; a draft stays one."""
        moved = {"targetRefName": f"{HEADS}{base}"} if base != pull.base else {}
        return self._update(pull, {"title": title, "description": body_marker.hide(body), **moved})

    def set_labels(self, pull: ApiPullRequest, labels: tuple[str, ...]) -> ApiPullRequest:
        """Replace the labels, each in a request of its own."""
        path = f"{self._pulls}/{pull.number}/labels"
        # There is no request that replaces all labels.
        for name in sorted({*labels} - {*pull.labels}):
            self._write("POST", path, {"name": name}, repeatable=True)
        for name in sorted({*pull.labels} - {*labels}):
            with suppress(MissingError):  # somebody else has removed it
                self._write("DELETE", f"{path}/{quote(name, safe='')}", repeatable=True)
        return replace(pull, labels=labels)

    def request_reviews(self, pull: ApiPullRequest, reviewers: tuple[str, ...]) -> None:
        """Request reviews of people and of teams of the project, each in a request of its own.

        Raises:
            InvalidError: No team of the project is called so, or has such a member.
        """
        if not {name.casefold() for name in map(_identity, reviewers)} <= self._identities.keys():
            self._identities = dict(self._read_identities())
        ids = []
        for name in reviewers:
            if (identity := self._identities.get(_identity(name).casefold())) is None:
                raise InvalidError(f"{self.name}: no team of the project has or is {name}", status=404)
            ids.append(identity)
        for identity in ids:
            path = f"{self._pulls}/{pull.number}/reviewers/{identity}"
            self._write("PUT", path, {"id": identity, "vote": 0}, repeatable=True)

    def _read_identities(self) -> Iterator[tuple[str, str]]:
        """Yield the ids of teams and of their members by their names, without case."""
        for team in chain.from_iterable(self._lists(f"{self._projects}/teams", {})):
            path = f"{self._projects}/teams/{team['id']}/members"
            for member in chain.from_iterable(self._lists(path, {})):
                identity = member["identity"]
                yield identity["displayName"].casefold(), identity["id"]
                yield identity["uniqueName"].casefold(), identity["id"]
            yield f"/{team['name']}".casefold(), team["id"]

    def merge(self, pull: ApiPullRequest, expect: str) -> ApiPullRequest:
        """Complete a pull request if its head is `expect`, and wait for a moment until it is.

        Raises:
            PendingError: The server has not done it yet.
            InvalidError: It has conflicts, or policies of its branch are not met.
        """
        body = {
            "status": "completed",
            # The server refuses if the head is another commit by now.
            "lastMergeSourceCommit": {"commitId": expect},
            "completionOptions": self._completion(pull.base),
        }
        try:
            self._write("PATCH", f"{self._pulls}/{pull.number}", body)
        except RefusedError as error:
            if _REJECTED not in str(error):
                raise
            raise InvalidError(str(error), status=403) from error
        ended = self.await_end(pull)
        # Completing is a job of the server: its answer comes before the merge is done.
        if ended.state is PullState.OPEN:
            raise PendingError(f"{self.name}: the server has not completed pull request {pull.number} yet")
        return ended

    def _find_ended(self, number: int) -> ApiPullRequest | None:
        item = self._get(f"{self._pulls}/{number}")
        pull = self._parse(item)
        if pull.state is PullState.OPEN and item.get("mergeStatus") in _UNMERGED:
            why = item.get("mergeFailureMessage") or item["mergeStatus"]
            raise InvalidError(f"{self.name}: pull request {number} cannot be merged: {why}", status=409)
        return None if pull.state is PullState.OPEN else pull

    def enable_auto_merge(self, pull: ApiPullRequest, expect: str) -> ApiPullRequest:
        """Merge this head, or let the server complete it as soon as the policies of its branch are met."""
        try:
            return self.merge(pull, expect)
        except InvalidError as error:
            if _REJECTED not in str(error):
                raise
        options = self._completion(pull.base)
        return self._update(
            pull, {"autoCompleteSetBy": {"id": self._own_login()}, "completionOptions": options}
        )

    def merging(self, pulls: Collection[ApiPullRequest]) -> Collection[int]:
        """Return the numbers of those that the server completes by itself."""
        return {pull.number for pull in pulls if pull.handed}

    def _completion(self, base: str) -> Mapping[str, object]:
        """Return how to complete: in the configured way, else in one that the policy of the branch permits.

        Raises:
            RefusedError: The policy forbids the configured one.
        """
        if base not in self._permitted:
            query = {
                "repositoryId": self._get(self._root)["id"],
                "refName": f"{HEADS}{base}",
                "policyType": _MERGE_TYPES,
            }
            policies = self._get(f"{self._project}/_apis/git/policy/configurations", query)["value"]
            enabled = [policy["settings"] for policy in policies if policy.get("isEnabled", True)]
            self._permitted[base] = enabled[0] if enabled else dict.fromkeys(_PERMITS.values(), True)
        for strategy in _STRATEGIES[self._method] if self._method else _PERMITS:
            if self._permitted[base].get(_PERMITS[strategy]):
                # The run deletes branches itself, with a lease.
                return {"mergeStrategy": strategy, "deleteSourceBranch": False}
        raise forbidden_method(self.name, self._method or "merge")

    def comments(self, number: int) -> Iterator[Comment]:
        """Yield the comments of the authenticated user; each may be in a thread of its own."""
        for thread in self._get(f"{self._pulls}/{number}/threads")["value"]:
            for comment in thread.get("comments") or ():
                is_by_us = comment["author"]["id"] == self._own_login()
                if is_by_us and comment.get("commentType") != "system" and not comment.get("isDeleted"):
                    text = body_marker.reveal(comment.get("content") or "")
                    yield Comment(f"{thread['id']}/comments/{comment['id']}", text)

    def add_comment(self, number: int, body: str) -> Comment:
        """Comment in a closed thread: a policy may demand that all of them are."""
        comment = {"parentCommentId": 0, "content": body_marker.hide(body), "commentType": "text"}
        thread = self._write(
            "POST", f"{self._pulls}/{number}/threads", {"comments": [comment], "status": "closed"}
        )
        return Comment(f"{thread['id']}/comments/{thread['comments'][0]['id']}", body)

    def edit_comment(self, number: int, comment: Comment, body: str) -> None:
        """Replace the text of a comment."""
        path = self._comment(number, comment)
        self._write("PATCH", path, {"content": body_marker.hide(body)}, repeatable=True)

    def checks(self, commit: str) -> Iterator[Check]:
        """Yield the newest status of each name of a commit, its genre before the name."""
        path = f"{self._root}/commits/{commit}/statuses"
        for status in self._get(path, {"latestOnly": "true"})["value"]:
            genre, name = status["context"].get("genre"), status["context"]["name"]
            yield Check(f"{genre}/{name}" if genre else name, _CHECKS.get(status["state"], CheckState.FAILED))

    def set_status(self, _commit: str, status: HeadStatus, _head: str, number: int) -> None:
        """Set a status of the last iteration of a pull request, which a policy of its branch may demand."""
        iterations = self._get(f"{self._pulls}/{number}/iterations")["value"]
        body = {
            # Each push is an iteration; a policy looks at the status of the last one.
            "iterationId": max(iteration["id"] for iteration in iterations),
            "state": "succeeded" if status.passed else "failed",
            "description": status.text[: self._longest_description],
            "context": {"name": status.name},
        }
        self._write("POST", f"{self._pulls}/{number}/statuses", body, repeatable=True)

    def _comments(self, number: int) -> str:
        return f"{self._pulls}/{number}/threads"

    def _own_login(self) -> str:
        if not self._login:
            path = f"{self._organization}/_apis/connectionData?api-version={_VERSION}-preview.1"
            self._login = str(self.transport.get(path).data["authenticatedUser"]["id"])
        return self._login

    def _get(self, path: str, query: Query | None = None) -> Any:
        return self.transport.get(path, {**(query or {}), "api-version": _VERSION}).data

    def _write(self, method: str, path: str, body: object = None, *, repeatable: bool = False) -> Any:
        return self.transport.write(method, f"{path}{self._query}", body, repeatable=repeatable).data

    def _pages(self, status: str, query: Query | None = None) -> Iterator[list[ApiPullRequest]]:
        for items in self._lists(self._pulls, {"searchCriteria.status": status, **(query or {})}):
            yield [self._parse_item(item) for item in items]

    def _lists(self, path: str, query: Query) -> Iterator[list[Any]]:
        """Return the pages of a list."""

        def read(number: int) -> tuple[list[Any], str]:
            items = self._get(path, {**query, "$top": PAGE, "$skip": PAGE * (number - 1)})["value"]
            return items, "a full page" if len(items) == PAGE else ""

        return self.transport.numbered(path, read)

    def _parse_item(self, item: Any) -> ApiPullRequest:
        """Parse an item of a list; of what may be ours and is shortened, the whole text is read.

        Ended ones need no more than their mark.
        """
        text, head = item.get("description"), str(self._head(item))
        is_short = isinstance(text, str) and len(text) >= _SHORTENED
        is_needed = is_short and (item.get("status") == "active" or not _MARK.search(text))
        if is_needed and head.startswith((DRAFTS, PROPOSED, "reconciler/")):
            item = self._get(f"{self._pulls}/{item['pullRequestId']}")
        return self._parse_short(item)

    def _parse_short(self, item: Any) -> ApiPullRequest:
        return super()._parse_item(item)

    def _head(self, item: Any) -> Any:
        return item["sourceRefName"].removeprefix(HEADS)

    def _is_from_this_repository(self, item: Any) -> bool:
        # Only the pull request of a fork has this field.
        return not item.get("forkSource")

    def _parse(self, item: Mapping[str, Any]) -> ApiPullRequest:
        state = _STATES.get(item["status"], PullState.CLOSED)
        body = body_marker.reveal(item.get("description") or "")
        # A label has the case in which somebody wrote it first. Some answers have none.
        known_labels = {name.casefold(): name for name in body_marker.parse(body).labels}
        there = item.get("labels")
        if there is None and known_labels:
            there = self._get(f"{self._pulls}/{item['pullRequestId']}/labels")["value"]
        labels = [label["name"] for label in there or () if label.get("active", True)]
        merged = (item.get("lastMergeCommit") or {}).get("commitId")
        stamps = {"created_at": item["creationDate"], "closed_at": item.get("closedDate")}
        return ApiPullRequest(
            number=item["pullRequestId"],
            head=self._head(item),
            base=item["targetRefName"].removeprefix(HEADS),
            title=item["title"],
            body=body,
            draft=bool(item.get("isDraft")) and state is not PullState.MERGED,
            state=state,
            head_oid=(item.get("lastMergeSourceCommit") or {}).get("commitId") or "",
            merge_oid=(merged or "") if state is PullState.MERGED else "",
            labels=tuple(known_labels.get(name.casefold(), name) for name in labels),
            url=f"{self._web}/pullrequest/{item['pullRequestId']}",
            times=write_times(stamps),
            closed=closed_time(stamps),
            handed=bool(item.get("autoCompleteSetBy")),
            reviewers=tuple(reviewer["id"] for reviewer in item.get("reviewers") or ()),
        )


def _split(name: str, host: str) -> tuple[str, str, str]:
    """Return the path of an organization or a collection, the project and the repository of a name.

    Source: the documented addresses of repositories; without a project it is called as its repository.
    """
    before, separator, repository = f"/{name}".rpartition("/_git/")
    if not separator:
        before, _, repository = name.removeprefix("v3/").rpartition("/")
    steps = [unquote(step) for step in before.split("/") if step]
    if len(steps) < (2 if host == _CLOUD else 1):
        steps.append(unquote(repository))
    *owner, project = steps
    return "".join(f"/{quote(step)}" for step in owner), project, unquote(repository)


def _identity(name: str) -> str:
    """Return the name of a person, or that of a team of the project behind a slash."""
    return "".join(name.rpartition("/")[1:])
