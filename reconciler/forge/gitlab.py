"""GitLab: REST only; a draft is a title that begins with `Draft:`. Not verified against a description."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import quote

from reconciler.errors import RefusedError
from reconciler.forge.answers import read_seen
from reconciler.forge.faults import InvalidError
from reconciler.forge.http import Transport
from reconciler.forge.remote import Comment, ExistsError, Issue, Seen, closed_time, write_times
from reconciler.inventory import PullRequest, PullState

DRAFT = "Draft: "
_PREFIX = re.compile(r"^\s*(?:\[draft\]|\(draft\)|draft:)\s*", re.IGNORECASE)
_STATES = {"opened": PullState.OPEN, "locked": PullState.OPEN, "merged": PullState.MERGED}
_CONFLICT = 409


def default_api(host: str) -> str:
    """Return where the API of a host is."""
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

    def list_all(self) -> Iterator[Seen]:
        """Yield the merge requests from oldest to newest."""
        asked: dict[str, str | int] = {
            "state": "all",
            "order_by": "created_at",
            "sort": "asc",
            "per_page": 100,
        }
        yield from self._list(asked)

    def find_open(self, head: str) -> Iterator[Seen]:
        """Yield the open merge requests of a branch."""
        asked: dict[str, str | int] = {"state": "opened", "source_branch": head}
        yield from self._list(asked)

    def find(self, number: int) -> Seen:
        """Return a merge request; MissingError if there is none."""
        return _seen(self.transport.get(f"{self._root}/{number}").data)

    def create(self, wanted: PullRequest) -> Seen:
        """Open a merge request."""
        title = f"{DRAFT}{wanted.title}" if wanted.draft else wanted.title
        body = {
            "title": title,
            "source_branch": wanted.head,
            "target_branch": wanted.base,
            "description": wanted.body,
        }
        try:
            return _seen(self.transport.write("POST", self._root, body).data)
        except InvalidError as error:
            if error.status == _CONFLICT:
                raise ExistsError(str(error)) from error
            if re.search(r"branch.*does not exist", str(error), re.IGNORECASE):
                raise RefusedError(f"{wanted.head} or {wanted.base} is no branch of {self.name}") from error
            raise

    def edit(self, seen: Seen, title: str, body: str, base: str) -> Seen:
        """Give it another title, text and target; a draft stays one."""
        title = f"{DRAFT}{title}" if seen.draft else title
        moved = {"target_branch": base} if base != seen.base else {}
        return self._put(seen, {"title": title, "description": body, **moved})

    def set_labels(self, seen: Seen, labels: tuple[str, ...]) -> Seen:
        """Give it exactly these labels."""
        return self._put(seen, {"labels": ",".join(labels)})

    def mark_ready(self, seen: Seen) -> None:
        """Let it be no draft any more."""
        self._put(seen, {"title": seen.title})

    def mark_draft(self, seen: Seen) -> None:
        """Let it be a draft again."""
        self._put(seen, {"title": f"{DRAFT}{seen.title}"})

    def close(self, seen: Seen) -> None:
        """Close it."""
        self._put(seen, {"state_event": "close"})

    def merge(self, seen: Seen, expect: str) -> Seen:
        """Merge it if its head is `expect`."""
        return _seen(self.transport.write("PUT", f"{self._root}/{seen.number}/merge", {"sha": expect}).data)

    def comments(self, number: int) -> Iterator[Comment]:
        """Yield our own comments."""
        for note in self.transport.pages(f"{self._root}/{number}/notes", {"sort": "asc", "per_page": 100}):
            if not note.get("system") and note["author"]["username"] == self._login():
                yield Comment(str(note["id"]), note["body"])

    def add_comment(self, number: int, body: str) -> Comment:
        """Comment, one request."""
        reply = self.transport.write("POST", f"{self._root}/{number}/notes", {"body": body})
        return Comment(str(reply.data["id"]), reply.data["body"])

    def edit_comment(self, number: int, comment: Comment, body: str) -> None:
        """Change a comment of ours."""
        path = f"{self._root}/{number}/notes/{comment.key}"
        self.transport.write("PUT", path, {"body": body}, repeatable=True)

    def checks(self, commit: str) -> Iterator[tuple[str, bool]]:
        """Yield the statuses of a commit and whether each passed; GitLab has the newest of a name alone."""
        found = self.transport.pages(f"{self._commits}/{commit}/statuses", {"per_page": 100})
        yield from ((status["name"], status["status"] == "success") for status in found)

    def issues(self) -> Iterator[Issue]:
        """Yield our own issues, open or closed."""
        asked: dict[str, str | int] = {"scope": "created_by_me", "per_page": 100}
        for item in self.transport.pages(self._issues, asked):
            is_open = item["state"] == "opened"
            yield Issue(item["iid"], item.get("description") or "", is_open, write_times(item))

    def create_issue(self, title: str, body: str) -> Issue:
        """Open an issue, one request."""
        reply = self.transport.write("POST", self._issues, {"title": title, "description": body})
        return Issue(reply.data["iid"], body)

    def edit_issue(self, number: int, body: str) -> None:
        """Give an issue of ours another text."""
        self.transport.write("PUT", f"{self._issues}/{number}", {"description": body}, repeatable=True)

    def _list(self, asked: Mapping[str, str | int]) -> Iterator[Seen]:
        for item in self.transport.pages(self._root, asked):
            if item["source_project_id"] == item["target_project_id"]:
                yield read_seen(item, _seen, "iid", lambda i: i["source_branch"])

    def _put(self, seen: Seen, body: Mapping[str, str]) -> Seen:
        path = f"{self._root}/{seen.number}"
        changed = _seen(self.transport.write("PUT", path, body, repeatable=True).data)
        return replace(changed, head_oid=changed.head_oid or seen.head_oid)

    def _login(self) -> str:
        self._me = self._me or str(self.transport.get("/user").data["username"])
        return self._me


def _seen(item: Mapping[str, Any]) -> Seen:
    title, state = str(item["title"]), _STATES.get(item["state"], PullState.CLOSED)
    match = _PREFIX.match(title)
    return Seen(
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
