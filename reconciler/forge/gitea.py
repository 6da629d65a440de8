"""Gitea and Forgejo: REST only; a draft is a title that begins with `WIP:`. Tried against its description."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import quote

from reconciler.errors import RefusedError
from reconciler.forge.answers import read_seen
from reconciler.forge.faults import InvalidError, MissingError
from reconciler.forge.http import Transport
from reconciler.forge.remote import Comment, ExistsError, Issue, Seen, closed_time, write_times
from reconciler.inventory import PullRequest, PullState

WIP = "WIP: "
_PREFIXES = ("wip:", "[wip]")
_CONFLICT = 409
_COLOUR = "#ededed"


def default_api(host: str) -> str:
    """Return where the API of a host is."""
    return f"https://{host}/api/v1"


class Gitea:
    """The dialect of Gitea and Forgejo for one repository, `owner/name`."""

    most_text = 60_000

    def __init__(self, transport: Transport, name: str) -> None:
        self.name = name
        self.transport = transport
        self._root = f"/repos/{quote(name)}"
        self._me = ""

    def list_all(self) -> Iterator[Seen]:
        """Yield the pull requests from oldest to newest."""
        yield from self._list("all")

    def find_open(self, head: str) -> Iterator[Seen]:
        """Yield the open pull requests of a branch; lists cannot be asked for one."""
        yield from (seen for seen in self._list("open") if seen.head == head)

    def find(self, number: int) -> Seen:
        """Return a pull request; MissingError if there is none."""
        return _seen(self.transport.get(f"{self._root}/pulls/{number}").data)

    def create(self, wanted: PullRequest) -> Seen:
        """Open a pull request; a branch that is not there answers as if nothing was."""
        title = f"{WIP}{wanted.title}" if wanted.draft else wanted.title
        body = {"title": title, "head": wanted.head, "base": wanted.base, "body": wanted.body}
        try:
            return _seen(self.transport.write("POST", f"{self._root}/pulls", body).data)
        except InvalidError as error:
            raise ExistsError(str(error)) if error.status == _CONFLICT else error from error
        except MissingError as error:
            self.transport.get(self._root)
            raise RefusedError(f"{wanted.head} or {wanted.base} is no branch of {self.name}") from error

    def edit(self, seen: Seen, title: str, body: str, base: str) -> Seen:
        """Give it another title, text and base; a draft stays one."""
        moved = {"base": base} if base != seen.base else {}
        return self._patch(seen, {"title": f"{WIP}{title}" if seen.draft else title, "body": body, **moved})

    def set_labels(self, seen: Seen, labels: tuple[str, ...]) -> Seen:
        """Give it exactly these labels; those that the repository does not know are made."""
        pages = self.transport.pages(f"{self._root}/labels", {"limit": 50})
        known = {label["name"]: label["id"] for label in pages}
        for name in labels:
            if name not in known:
                wanted = {"name": name, "color": _COLOUR}
                known[name] = self.transport.write("POST", f"{self._root}/labels", wanted).data["id"]
        body = {"labels": [known[name] for name in labels]}
        self.transport.write("PUT", f"{self._root}/issues/{seen.number}/labels", body, repeatable=True)
        return replace(seen, labels=labels)

    def mark_ready(self, seen: Seen) -> None:
        """Let it be no draft any more."""
        self._patch(seen, {"title": seen.title})

    def mark_draft(self, seen: Seen) -> None:
        """Let it be a draft again."""
        self._patch(seen, {"title": f"{WIP}{seen.title}"})

    def close(self, seen: Seen) -> None:
        """Close it."""
        self._patch(seen, {"state": "closed"})

    def merge(self, seen: Seen, expect: str) -> Seen:
        """Merge it if its head is `expect`; its answer is empty."""
        body = {"Do": "merge", "head_commit_id": expect}
        self.transport.write("POST", f"{self._root}/pulls/{seen.number}/merge", body)
        return self.find(seen.number)

    def comments(self, number: int) -> Iterator[Comment]:
        """Yield our own comments."""
        for found in self.transport.get(f"{self._root}/issues/{number}/comments").data:
            if found["user"]["login"] == self._login():
                yield Comment(str(found["id"]), found["body"])

    def add_comment(self, number: int, body: str) -> Comment:
        """Comment, one request."""
        reply = self.transport.write("POST", f"{self._root}/issues/{number}/comments", {"body": body})
        return Comment(str(reply.data["id"]), reply.data["body"])

    def edit_comment(self, _: int, comment: Comment, body: str) -> None:
        """Change a comment of ours."""
        path = f"{self._root}/issues/comments/{comment.key}"
        self.transport.write("PATCH", path, {"body": body}, repeatable=True)

    def checks(self, commit: str) -> Iterator[tuple[str, bool]]:
        """Yield the statuses of a commit and whether each passed, the newest of a name last."""
        found = self.transport.pages(f"{self._root}/statuses/{commit}", {"sort": "oldest", "limit": 50})
        yield from ((status["context"], status["status"] == "success") for status in found)

    def issues(self) -> Iterator[Issue]:
        """Yield our own issues, open or closed."""
        asked: dict[str, str | int] = {
            "type": "issues",
            "state": "all",
            "created_by": self._login(),
            "limit": 50,
        }
        for item in self.transport.pages(f"{self._root}/issues", asked):
            if item["user"]["login"] == self._login():
                is_open = item["state"] == "open"
                yield Issue(item["number"], item.get("body") or "", is_open, write_times(item))

    def create_issue(self, title: str, body: str) -> Issue:
        """Open an issue, one request."""
        reply = self.transport.write("POST", f"{self._root}/issues", {"title": title, "body": body})
        return Issue(reply.data["number"], body)

    def edit_issue(self, number: int, body: str) -> None:
        """Give an issue of ours another text."""
        self.transport.write("PATCH", f"{self._root}/issues/{number}", {"body": body}, repeatable=True)

    def _list(self, state: str) -> Iterator[Seen]:
        asked: dict[str, str | int] = {"state": state, "sort": "oldest", "limit": 50}
        for item in self.transport.pages(f"{self._root}/pulls", asked):
            if item["head"]["repo_id"] == item["base"]["repo_id"]:
                yield read_seen(item, _seen, "number", lambda i: i["head"]["label"])

    def _patch(self, seen: Seen, body: Mapping[str, str]) -> Seen:
        path = f"{self._root}/pulls/{seen.number}"
        return _seen(self.transport.write("PATCH", path, body, repeatable=True).data)

    def _login(self) -> str:
        self._me = self._me or str(self.transport.get("/user").data["login"])
        return self._me


def _seen(item: Mapping[str, Any]) -> Seen:
    """Return a pull request; `label` names its branch even after that is gone."""
    merged, title = bool(item.get("merged")), str(item["title"])
    prefix = next((p for p in _PREFIXES if title.lower().startswith(p)), "")
    is_open = item["state"] == "open"
    return Seen(
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
