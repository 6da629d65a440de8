"""Bitbucket Cloud: its dialect, by REST only.

Tested against a simulator that is written from its published description, and never on the live service.

Source: https://developer.atlassian.com/cloud/bitbucket/rest/, and its description in OpenAPI.
"""

import base64
import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any
from urllib.parse import quote

from msgspec.structs import replace

from reconciler.base.errors import ConflictError, RefusedError
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
    forbidden_method,
)
from reconciler.forge.http import Transport
from reconciler.git.urls import Credential
from reconciler.http.client import InvalidError, StaticToken
from reconciler.inventory.inventory import CheckState, HeadStatus, PullRequest, PullState
from reconciler.policy import ForgeRule

ACCESS_TOKEN_USER = "x-token-auth"  # noqa: S105 - a user's name
_PAGE = 50
"""The greatest size of a page of pull requests."""
_FIELDS = "+values.reviewers"
_FULL = 40
_LONGEST_KEY = 40
"""Of a build status. Source: https://github.com/buildbot/buildbot/issues/7049, an answer of the service."""
_MOVED = 409
_STATES = {"OPEN": PullState.OPEN, "MERGED": PullState.MERGED}
_ENDED = 'state != "OPEN"'
_CHECKS = {"SUCCESSFUL": CheckState.PASSED, "INPROGRESS": CheckState.PENDING}
_STRATEGIES: Mapping[str, Sequence[str]] = {
    "merge": ("merge_commit",),
    "squash": ("squash", "squash_fast_forward"),
    "rebase": ("rebase_fast_forward", "rebase_merge"),
}
_EXISTS = regex(r"already exists|already a pull request", re.IGNORECASE)
_NO_BRANCH = regex(r"branch.*(not found|does not exist)", re.IGNORECASE)


def default_api(host: str) -> str:
    """Return the address of the API: that of bitbucket.org has a host of its own."""
    return "https://api.bitbucket.org/2.0" if host == "bitbucket.org" else f"https://{host}/2.0"


def token_of(credential: Credential) -> StaticToken:
    """Return an access token of a repository or workspace, else the token of a user with its name."""
    if credential.username in ("", ACCESS_TOKEN_USER) or not credential.password:
        return StaticToken(credential.password)
    pair = f"{credential.username}:{credential.password}".encode()
    return StaticToken(base64.b64encode(pair).decode(), "Basic")


class Bitbucket(RestDialect):
    """The dialect of Bitbucket Cloud for one repository, `workspace/name`."""

    most_text = most_comment = 32_000
    has_issues = False
    _draft_field = "draft"
    _fields = Fields("PUT", "id", "description", "destination", "uuid", "", "")

    def __init__(self, transport: Transport, name: str, rule: ForgeRule = UNCONFIGURED) -> None:
        self._workspace = f"/workspaces/{quote(name.partition('/')[0])}"
        self._method = rule.merge_method
        self._commits: dict[str, str] = {}
        self._has_branches = False
        self._requested: dict[int, list[str]] = {}
        self._members: dict[str, str] = {}
        super().__init__(transport, name, f"/repositories/{quote(name)}", "pullrequests")

    def has_pulls(self) -> bool:
        """Tell whether pull requests are switched on: they always are."""
        return True

    def is_empty(self) -> bool:
        """Tell whether the repository has no commit yet: then it has no main branch."""
        return not self.transport.get(self._root).data.get("mainbranch")

    def list_all(self) -> Iterator[list[ApiPullRequest]]:
        """Yield all pull requests from oldest to newest, so that a new one cannot shift a page."""
        # Without a query only the open ones are listed.
        yield from self._sorted("id > 0", "created_on")

    def list_open(self) -> Iterator[list[ApiPullRequest]]:
        """Yield the open pull requests from oldest to newest."""
        yield from self._sorted('state = "OPEN"', "created_on")

    def list_changed(self, _since: float = 0.0) -> Iterator[list[ApiPullRequest]]:
        """Yield the ended pull requests, the last change first."""
        yield from self._sorted(_ENDED, "-updated_on")

    def find_open(self, head: str, _base: str = "") -> Iterator[ApiPullRequest]:
        """Yield the open pull requests of a branch."""
        for page in self._sorted(f'state = "OPEN" AND source.branch.name = "{head}"', "created_on"):
            yield from (pull for pull in page if pull.head == head)

    find_recent = find_open

    def find(self, number: int) -> ApiPullRequest:
        """Return a pull request; MissingError if there is none."""
        return self._parse_whole(self.transport.get(f"{self._pulls}/{number}").data)

    def create(self, desired: PullRequest) -> ApiPullRequest:
        """Open a pull request.

        Raises:
            RefusedError: A branch is missing.
        """
        body = {
            "title": desired.title,
            "description": body_marker.hide(desired.body),
            "source": {"branch": {"name": desired.head}},
            "destination": {"branch": {"name": desired.base}},
            "draft": desired.draft,
            # Otherwise the branch would go without a lease.
            "close_source_branch": False,
        }
        try:
            return self._parse(self.transport.write("POST", self._pulls, body).data)
        except InvalidError as error:
            if _EXISTS.search(str(error)):
                raise PullRequestExistsError(str(error)) from error
            if _NO_BRANCH.search(str(error)):
                raise RefusedError(f"{desired.head} or {desired.base} is no branch of {self.name}") from error
            raise

    def edit(self, pull: ApiPullRequest, title: str, body: str, base: str) -> ApiPullRequest:
        """Replace title, text and base; a draft stays one."""
        destination = {"destination": {"branch": {"name": base}}} if base != pull.base else {}
        return self._update(pull, {"title": title, "description": body_marker.hide(body), **destination})

    def close(self, pull: ApiPullRequest) -> None:
        """Decline a pull request."""
        self.transport.write("POST", f"{self._pulls}/{pull.number}/decline", repeatable=True)

    def _update(self, pull: ApiPullRequest, body: Mapping[str, Any]) -> ApiPullRequest:
        # Whoever is not named again is no reviewer any more.
        uuids = dict.fromkeys((*pull.reviewers, *self._requested.get(pull.number, ())))
        reviewers = [{"uuid": uuid} for uuid in uuids]
        return super()._update(pull, {"title": pull.title, "reviewers": reviewers, **body})

    def set_labels(self, pull: ApiPullRequest, labels: tuple[str, ...]) -> ApiPullRequest:
        """Set no label: there are none, so that those count which the text of a pull request remembers."""
        return replace(pull, labels=labels)

    def request_reviews(self, pull: ApiPullRequest, reviewers: tuple[str, ...]) -> None:
        """Request reviews of members of the workspace; groups are left out.

        Raises:
            InvalidError: The workspace has no such member.
        """
        names = [name for name in reviewers if "/" not in name]
        if names and not self._members:
            for member in self._items(f"{self._workspace}/members", {"pagelen": 100}):
                user = member["user"]
                names_of_user = (user[field] for field in ("nickname", "display_name") if field in user)
                self._members |= dict.fromkeys(names_of_user, user["uuid"])
        if missing := [name for name in names if name not in self._members]:
            raise InvalidError(f"{self.name}: the workspace has no member {missing[0]}", status=404)
        if names:
            # Until the pull request is read again, its own list lacks these.
            self._requested[pull.number] = [self._members[name] for name in names]
            self._update(pull, {})

    def merge(self, pull: ApiPullRequest, expect: str) -> ApiPullRequest:
        """Merge a pull request in the configured way, else as its branch prefers.

        The request cannot name a head: the one that was looked up just before is merged.

        Raises:
            ConflictError: Its head is not `expect`, or a branch moved meanwhile.
            PendingError: The service has not done it yet.
            RefusedError: The branch forbids the configured way.
        """
        item = self.transport.get(f"{self._pulls}/{pull.number}").data
        branch = item["destination"]["branch"]
        preferred = branch.get("default_merge_strategy") or "merge_commit"
        permitted = branch.get("merge_strategies") or _STRATEGIES.get(self._method, [preferred])
        ways = _STRATEGIES[self._method] if self._method else (preferred, *permitted)
        strategy = next((way for way in ways if way in permitted), "")
        if not strategy:
            raise forbidden_method(self.name, self._method)
        moved = ConflictError(f"A branch of pull request {pull.number} moved")
        # Answers have twelve digits of an id.
        if not expect.startswith(item["source"]["commit"]["hash"]):
            raise moved
        body = {"type": "pullrequest_merge_parameters", "merge_strategy": strategy}
        path = f"{self._pulls}/{pull.number}/merge"
        try:
            data = self.transport.write("POST", path, {**body, "close_source_branch": False}).data
        except InvalidError as error:
            raise moved if error.status == _MOVED else error from error
        # Where the answer takes too long, it is empty, and the service goes on merging.
        merged = self._parse_whole(data) if isinstance(data, Mapping) else self.await_end(pull)
        if merged.state is PullState.OPEN:
            raise PendingError(f"{self.name}: the service has not merged pull request {pull.number} yet")
        return merged

    def enable_auto_merge(self, pull: ApiPullRequest, expect: str) -> ApiPullRequest:
        """Merge this head if the checks of its branch are met: what waits for them cannot be handed over."""
        return self.merge(pull, expect)

    def comments(self, number: int) -> Iterator[Comment]:
        """Yield the comments of the authenticated user."""
        for comment in self._items(f"{self._pulls}/{number}/comments", {"pagelen": 100}):
            if not comment.get("deleted") and (comment.get("user") or {}).get("uuid") == self._own_login():
                yield Comment(str(comment["id"]), body_marker.reveal(comment["content"]["raw"]))

    def add_comment(self, number: int, body: str) -> Comment:
        """Comment in one request."""
        content = {"content": {"raw": body_marker.hide(body)}}
        reply = self.transport.write("POST", f"{self._pulls}/{number}/comments", content)
        return Comment(str(reply.data["id"]), body)

    def edit_comment(self, number: int, comment: Comment, body: str) -> None:
        """Replace the text of a comment."""
        path = self._comment(number, comment)
        self.transport.write("PUT", path, {"content": {"raw": body_marker.hide(body)}}, repeatable=True)

    def checks(self, commit: str) -> Iterator[Check]:
        """Yield the build statuses of a commit by their keys, and by their names: CI may make keys up."""
        for status in self._items(f"{self._root}/commit/{commit}/statuses", {"pagelen": 100}):
            for name in {status["key"], status.get("name") or status["key"]}:
                yield Check(name, _CHECKS.get(status["state"], CheckState.FAILED))

    def set_status(self, commit: str, status: HeadStatus, head: str, _number: int) -> None:
        """Set a build status of a commit and its branch, with the address of the commit."""
        name = status.name.encode()
        short = f"{status.name[: _LONGEST_KEY - 9]}-{hashlib.sha256(name).hexdigest()[:8]}"
        body = {
            "key": status.name if len(status.name) <= _LONGEST_KEY else short,
            "name": status.name,
            "refname": head,
            "state": "SUCCESSFUL" if status.passed else "FAILED",
            "description": status.text[: self._longest_description],
            "url": f"https://bitbucket.org/{self.name}/commits/{commit}",
        }
        self.transport.write("POST", f"{self._root}/commit/{commit}/statuses/build", body, repeatable=True)

    def _sorted(self, filter_: str, sort: str) -> Iterator[list[ApiPullRequest]]:
        query: Query = {"q": filter_, "sort": sort, "pagelen": _PAGE, "fields": _FIELDS}
        for page in self._pages(self._pulls, query):
            yield [self._parse_item(item) for item in page]

    def _items(self, path: str, query: Query) -> Iterator[Any]:
        for page in self._pages(path, query):
            yield from page

    def _pages(self, path: str, query: Query) -> Iterator[list[Any]]:
        """Return the pages of a list; only the number counts of the address of the next one."""

        def read(number: int) -> tuple[list[Any], str]:
            data = self.transport.get(path, query if number == 1 else {**query, "page": number}).data
            return data["values"], data.get("next")

        return self.transport.numbered(path, read)

    def _comments(self, number: int) -> str:
        return f"{self._pulls}/{number}/comments"

    def _head(self, item: Any) -> Any:
        return item["source"]["branch"]["name"]

    def _is_from_this_repository(self, item: Any) -> bool:
        source, destination = item["source"].get("repository"), item["destination"].get("repository")
        return bool(source and destination and source["uuid"] == destination["uuid"])

    def _whole(self, short: str) -> str:
        """Return the whole id of a commit: answers about pull requests have its first twelve digits.

        Most are tips of branches, which are listed once a run.
        """
        if not short or len(short) == _FULL:
            return short
        if not self._has_branches:
            self._has_branches = True
            for branch in self._items(f"{self._root}/refs/branches", {"pagelen": 100}):
                oid = branch["target"]["hash"]
                self._commits[oid[: len(short)]] = oid
        if short not in self._commits:
            self._commits[short] = str(self.transport.get(f"{self._root}/commit/{short}").data["hash"])
        return self._commits[short]

    def _parse_whole(self, item: Mapping[str, Any]) -> ApiPullRequest:
        """Parse a pull request with the whole id of its merge, which lists have no need of."""
        pull = self._parse(item)
        return replace(pull, merge_oid=self._whole(pull.merge_oid))

    def _parse(self, item: Mapping[str, Any]) -> ApiPullRequest:
        state = _STATES.get(item["state"], PullState.CLOSED)
        body = body_marker.reveal(item.get("description") or "")
        times = tuple(datetime.fromisoformat(item[name]).timestamp() for name in ("created_on", "updated_on"))
        return ApiPullRequest(
            number=item["id"],
            head=self._head(item),
            base=item["destination"]["branch"]["name"],
            title=item["title"],
            body=body,
            draft=bool(item.get("draft")) and state is not PullState.MERGED,
            state=state,
            head_oid=self._whole((item["source"].get("commit") or {}).get("hash", "")),
            merge_oid=(item.get("merge_commit") or {}).get("hash", ""),
            labels=body_marker.parse(body).labels,
            url=item["links"]["html"]["href"],
            times=tuple(dict.fromkeys(times)),
            closed=0 if state is PullState.OPEN else int(times[1]),
            reviewers=tuple(user["uuid"] for user in item.get("reviewers") or ()),
        )
