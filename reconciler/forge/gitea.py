"""Gitea and Forgejo: REST only; a draft is a title that begins with `WIP:`. Tested against its API."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import quote

from reconciler.errors import RefusedError
from reconciler.forge.api_errors import InvalidError, MissingError
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

WIP = "WIP: "
_PREFIXES = ("wip:", "[wip]")
_CONFLICT = 409
_COLOUR = "#ededed"


def default_api(host: str) -> str:
    """Return the address of a host's API."""
    return f"https://{host}/api/v1"


class Gitea:
    """The dialect of Gitea and Forgejo for one repository, `owner/name`."""

    most_text = 60_000

    def __init__(self, transport: Transport, name: str) -> None:
        self.name = name
        self.transport = transport
        self._root = f"/repos/{quote(name)}"
        self._me = ""

    def list_all(self) -> Iterator[ApiPullRequest]:
        """Yield all pull requests from oldest to newest, so that a new one cannot shift a page."""
        yield from self._list("all")

    def find_open(self, head: str) -> Iterator[ApiPullRequest]:
        """Yield the open pull requests of a branch; Gitea cannot filter by branch."""
        yield from (pull for pull in self._list("open") if pull.head == head)

    def find(self, number: int) -> ApiPullRequest:
        """Return a pull request; MissingError if there is none."""
        return _parse(self.transport.get(f"{self._root}/pulls/{number}").data)

    def create(self, desired: PullRequest) -> ApiPullRequest:
        """Open a pull request; Gitea answers 404 for a missing branch as for a missing repository."""
        title = f"{WIP}{desired.title}" if desired.draft else desired.title
        body = {"title": title, "head": desired.head, "base": desired.base, "body": desired.body}
        try:
            return _parse(self.transport.write("POST", f"{self._root}/pulls", body).data)
        except InvalidError as error:
            raise PullRequestExistsError(str(error)) if error.status == _CONFLICT else error from error
        except MissingError as error:
            self.transport.get(self._root)
            raise RefusedError(f"{desired.head} or {desired.base} is no branch of {self.name}") from error

    def edit(self, pull: ApiPullRequest, title: str, body: str, base: str) -> ApiPullRequest:
        """Replace title, text and base; a draft stays one."""
        moved = {"base": base} if base != pull.base else {}
        return self._patch(pull, {"title": f"{WIP}{title}" if pull.draft else title, "body": body, **moved})

    def set_labels(self, pull: ApiPullRequest, labels: tuple[str, ...]) -> ApiPullRequest:
        """Replace the labels; labels that the repository lacks are created."""
        pages = self.transport.pages(f"{self._root}/labels", {"limit": 50})
        ids = {label["name"]: label["id"] for label in pages}
        for name in labels:
            if name not in ids:
                label = {"name": name, "color": _COLOUR}
                ids[name] = self.transport.write("POST", f"{self._root}/labels", label).data["id"]
        body = {"labels": [ids[name] for name in labels]}
        self.transport.write("PUT", f"{self._root}/issues/{pull.number}/labels", body, repeatable=True)
        return replace(pull, labels=labels)

    def mark_ready(self, pull: ApiPullRequest) -> None:
        """Mark a draft as ready for review."""
        self._patch(pull, {"title": pull.title})

    def mark_draft(self, pull: ApiPullRequest) -> None:
        """Turn a pull request into a draft."""
        self._patch(pull, {"title": f"{WIP}{pull.title}"})

    def close(self, pull: ApiPullRequest) -> None:
        """Close a pull request."""
        self._patch(pull, {"state": "closed"})

    def merge(self, pull: ApiPullRequest, expect: str) -> ApiPullRequest:
        """Merge a pull request if its head is `expect`, and read it again: the reply is empty."""
        body = {"Do": "merge", "head_commit_id": expect}
        self.transport.write("POST", f"{self._root}/pulls/{pull.number}/merge", body)
        return self.find(pull.number)

    def comments(self, number: int) -> Iterator[Comment]:
        """Yield the comments of the authenticated user."""
        for comment in self.transport.get(f"{self._root}/issues/{number}/comments").data:
            if comment["user"]["login"] == self._login():
                yield Comment(str(comment["id"]), comment["body"])

    def add_comment(self, number: int, body: str) -> Comment:
        """Comment in one request."""
        reply = self.transport.write("POST", f"{self._root}/issues/{number}/comments", {"body": body})
        return Comment(str(reply.data["id"]), reply.data["body"])

    def edit_comment(self, _: int, comment: Comment, body: str) -> None:
        """Replace the text of a comment."""
        path = f"{self._root}/issues/comments/{comment.key}"
        self.transport.write("PATCH", path, {"body": body}, repeatable=True)

    def checks(self, commit: str) -> Iterator[tuple[str, bool]]:
        """Yield the statuses of a commit, the newest of a name last."""
        statuses = self.transport.pages(f"{self._root}/statuses/{commit}", {"sort": "oldest", "limit": 50})
        yield from ((status["context"], status["status"] == "success") for status in statuses)

    def issues(self) -> Iterator[Issue]:
        """Yield the issues of the authenticated user, open or closed."""
        query: dict[str, str | int] = {
            "type": "issues",
            "state": "all",
            "created_by": self._login(),
            "limit": 50,
        }
        for item in self.transport.pages(f"{self._root}/issues", query):
            if item["user"]["login"] == self._login():
                is_open = item["state"] == "open"
                yield Issue(item["number"], item.get("body") or "", is_open, write_times(item))

    def create_issue(self, title: str, body: str) -> Issue:
        """Open an issue in one request."""
        reply = self.transport.write("POST", f"{self._root}/issues", {"title": title, "body": body})
        return Issue(reply.data["number"], body)

    def edit_issue(self, number: int, body: str) -> None:
        """Replace the text of an issue."""
        self.transport.write("PATCH", f"{self._root}/issues/{number}", {"body": body}, repeatable=True)

    def _list(self, state: str) -> Iterator[ApiPullRequest]:
        query: dict[str, str | int] = {"state": state, "sort": "oldest", "limit": 50}
        for item in self.transport.pages(f"{self._root}/pulls", query):
            if item["head"]["repo_id"] == item["base"]["repo_id"]:
                yield parse_pull(item, _parse, "number", lambda i: i["head"]["label"])

    def _patch(self, pull: ApiPullRequest, body: Mapping[str, str]) -> ApiPullRequest:
        path = f"{self._root}/pulls/{pull.number}"
        return _parse(self.transport.write("PATCH", path, body, repeatable=True).data)

    def _login(self) -> str:
        self._me = self._me or str(self.transport.get("/user").data["login"])
        return self._me


def _parse(item: Mapping[str, Any]) -> ApiPullRequest:
    """Parse a pull request; `label` is its branch even after that was deleted."""
    merged, title = bool(item.get("merged")), str(item["title"])
    prefix = next((p for p in _PREFIXES if title.lower().startswith(p)), "")
    is_open = item["state"] == "open"
    return ApiPullRequest(
        number=item["number"],
        head=item["head"]["label"],
        base=item["base"]["label"],
        title=title[len(prefix) :].lstrip(),
        body=item.get("body") or "",
        draft=bool(prefix) and not merged,
        state=PullState.MERGED if merged else PullState.OPEN if is_open else PullState.CLOSED,
        head_oid=item["head"]["sha"],
        merge_oid=item.get("merge_commit_sha") or "",
        labels=tuple(label["name"] for label in item.get("labels") or ()),
        url=item.get("html_url", ""),
        times=write_times(item),
        closed=closed_time(item),
    )
