"""GitLab: REST only; a draft is a title that begins with `Draft:`. Not tested against an API description."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import quote

from reconciler.errors import RefusedError
from reconciler.forge.api_errors import InvalidError
from reconciler.forge.dialect import (
    ApiPullRequest,
    Comment,
    Issue,
    PullRequestExistsError,
    closed_time,
    parse_pull,
    write_times,
)
from reconciler.forge.http import Transport
from reconciler.inventory import PullRequest, PullState

DRAFT = "Draft: "
_PREFIX = re.compile(r"^\s*(?:\[draft\]|\(draft\)|draft:)\s*", re.IGNORECASE)
_STATES = {"opened": PullState.OPEN, "locked": PullState.OPEN, "merged": PullState.MERGED}
_CONFLICT = 409


def default_api(host: str) -> str:
    """Return the address of a host's API."""
    return f"https://{host}/api/v4"


class GitLab:
    """The dialect of GitLab for one project, `group/subgroup/name`."""

    most_text = 500_000

    def __init__(self, transport: Transport, name: str) -> None:
        self.name = name
        self.transport = transport
        self._root = f"/projects/{quote(name, safe='')}/merge_requests"
        self._issues = f"/projects/{quote(name, safe='')}/issues"
        self._commits = f"/projects/{quote(name, safe='')}/repository/commits"
        self._me = ""

    def list_all(self) -> Iterator[ApiPullRequest]:
        """Yield all merge requests from oldest to newest, so that a new one cannot shift a page."""
        yield from self._list({"state": "all", "order_by": "created_at", "sort": "asc", "per_page": 100})

    def find_open(self, head: str) -> Iterator[ApiPullRequest]:
        """Yield the open merge requests of a branch."""
        yield from self._list({"state": "opened", "source_branch": head})

    def find(self, number: int) -> ApiPullRequest:
        """Return a merge request; MissingError if there is none."""
        return _parse(self.transport.get(f"{self._root}/{number}").data)

    def create(self, desired: PullRequest) -> ApiPullRequest:
        """Open a merge request."""
        title = f"{DRAFT}{desired.title}" if desired.draft else desired.title
        body = {
            "title": title,
            "source_branch": desired.head,
            "target_branch": desired.base,
            "description": desired.body,
        }
        try:
            return _parse(self.transport.write("POST", self._root, body).data)
        except InvalidError as error:
            if error.status == _CONFLICT:
                raise PullRequestExistsError(str(error)) from error
            if re.search(r"branch.*does not exist", str(error), re.IGNORECASE):
                raise RefusedError(f"{desired.head} or {desired.base} is no branch of {self.name}") from error
            raise

    def edit(self, pull: ApiPullRequest, title: str, body: str, base: str) -> ApiPullRequest:
        """Replace title, text and target; a draft stays one."""
        title = f"{DRAFT}{title}" if pull.draft else title
        moved = {"target_branch": base} if base != pull.base else {}
        return self._put(pull, {"title": title, "description": body, **moved})

    def set_labels(self, pull: ApiPullRequest, labels: tuple[str, ...]) -> ApiPullRequest:
        """Replace the labels."""
        return self._put(pull, {"labels": ",".join(labels)})

    def mark_ready(self, pull: ApiPullRequest) -> None:
        """Mark a draft as ready for review."""
        self._put(pull, {"title": pull.title})

    def mark_draft(self, pull: ApiPullRequest) -> None:
        """Turn a pull request into a draft."""
        self._put(pull, {"title": f"{DRAFT}{pull.title}"})

    def close(self, pull: ApiPullRequest) -> None:
        """Close a pull request."""
        self._put(pull, {"state_event": "close"})

    def merge(self, pull: ApiPullRequest, expect: str) -> ApiPullRequest:
        """Merge a merge request if its head is `expect`."""
        return _parse(self.transport.write("PUT", f"{self._root}/{pull.number}/merge", {"sha": expect}).data)

    def comments(self, number: int) -> Iterator[Comment]:
        """Yield the comments of the authenticated user."""
        for note in self.transport.pages(f"{self._root}/{number}/notes", {"sort": "asc", "per_page": 100}):
            if not note.get("system") and note["author"]["username"] == self._login():
                yield Comment(str(note["id"]), note["body"])

    def add_comment(self, number: int, body: str) -> Comment:
        """Comment in one request."""
        reply = self.transport.write("POST", f"{self._root}/{number}/notes", {"body": body})
        return Comment(str(reply.data["id"]), reply.data["body"])

    def edit_comment(self, number: int, comment: Comment, body: str) -> None:
        """Replace the text of a comment."""
        path = f"{self._root}/{number}/notes/{comment.key}"
        self.transport.write("PUT", path, {"body": body}, repeatable=True)

    def checks(self, commit: str) -> Iterator[tuple[str, bool]]:
        """Yield the statuses of a commit; GitLab returns only the newest of a name."""
        statuses = self.transport.pages(f"{self._commits}/{commit}/statuses", {"per_page": 100})
        yield from ((status["name"], status["status"] == "success") for status in statuses)

    def issues(self) -> Iterator[Issue]:
        """Yield the issues of the authenticated user, open or closed."""
        query: dict[str, str | int] = {"scope": "created_by_me", "per_page": 100}
        for item in self.transport.pages(self._issues, query):
            is_open = item["state"] == "opened"
            yield Issue(item["iid"], item.get("description") or "", is_open, write_times(item))

    def create_issue(self, title: str, body: str) -> Issue:
        """Open an issue in one request."""
        reply = self.transport.write("POST", self._issues, {"title": title, "description": body})
        return Issue(reply.data["iid"], body)

    def edit_issue(self, number: int, body: str) -> None:
        """Replace the text of an issue."""
        self.transport.write("PUT", f"{self._issues}/{number}", {"description": body}, repeatable=True)

    def _list(self, query: Mapping[str, str | int]) -> Iterator[ApiPullRequest]:
        for item in self.transport.pages(self._root, query):
            if item["source_project_id"] == item["target_project_id"]:
                yield parse_pull(item, _parse, "iid", lambda i: i["source_branch"])

    def _put(self, pull: ApiPullRequest, body: Mapping[str, str]) -> ApiPullRequest:
        path = f"{self._root}/{pull.number}"
        changed = _parse(self.transport.write("PUT", path, body, repeatable=True).data)
        return replace(changed, head_oid=changed.head_oid or pull.head_oid)

    def _login(self) -> str:
        self._me = self._me or str(self.transport.get("/user").data["username"])
        return self._me


def _parse(item: Mapping[str, Any]) -> ApiPullRequest:
    title, state = str(item["title"]), _STATES.get(item["state"], PullState.CLOSED)
    match = _PREFIX.match(title)
    return ApiPullRequest(
        number=item["iid"],
        head=item["source_branch"],
        base=item["target_branch"],
        title=title[match.end() :] if match else title,
        body=item.get("description") or "",
        draft=bool(match) and state is not PullState.MERGED,
        state=state,
        head_oid=item.get("sha") or "",
        merge_oid=item.get("merge_commit_sha") or item.get("squash_commit_sha") or item.get("sha") or "",
        labels=tuple(item.get("labels") or ()),
        url=item.get("web_url", ""),
        times=write_times(item),
        closed=closed_time(item),
    )
