"""GitLab, Gitea and Forgejo: dialects by REST only, where a prefix of the title marks a draft.

Gitea's is tested against its published API description; GitLab publishes none that could be used.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, ClassVar
from urllib.parse import quote

from msgspec.structs import replace

from reconciler.base.errors import RefusedError, UnavailableError
from reconciler.forge.api.dialect import (
    UNCONFIGURED,
    ApiPullRequest,
    Comment,
    Issue,
    MergePendingError,
    PullRequestExistsError,
    Query,
    closed_time,
    forbidden_method,
    parse_pull,
    write_times,
)
from reconciler.forge.api.errors import InvalidError, MissingError, UnauthorizedError
from reconciler.forge.api.http import Transport
from reconciler.inventory.inventory import CheckState, HeadStatus, PullRequest, PullState
from reconciler.policy import ForgeRule

_CONFLICT = 409
_LABEL_COLOUR = "#ededed"
_GITLAB_DRAFT = re.compile(r"^\s*(?:\[draft\]|\(draft\)|draft:)\s*", re.IGNORECASE)
_GITLAB_STATES = {"opened": PullState.OPEN, "locked": PullState.OPEN, "merged": PullState.MERGED}
_GITEA_DRAFTS = ("wip:", "[wip]")
_GITLAB_UNDECIDED = {"unchecked", "checking", "preparing", "approvals_syncing"}
"""States of a merge request before GitLab knows whether it can be merged.

Source: GitLab's documentation of `detailed_merge_status` of merge requests.
"""
_GITLAB_CHECKS = {
    "success": CheckState.PASSED,
    "failed": CheckState.FAILED,
    "canceled": CheckState.FAILED,
    "skipped": CheckState.SKIPPED,
    "manual": CheckState.SKIPPED,
}
_LONGEST_DESCRIPTION = 255
_GITEA_CHECKS = {"success": CheckState.PASSED, "pending": CheckState.PENDING}
_GITEA_STYLES: Mapping[str, Sequence[str]] = {
    "merge": ("merge",),
    "squash": ("squash",),
    "rebase": ("rebase", "rebase-merge"),
}
_GITEA_PERMITS = {
    "merge": "allow_merge_commits",
    "squash": "allow_squash_merge",
    "rebase": "allow_rebase",
    "rebase-merge": "allow_rebase_explicit",
    "fast-forward-only": "allow_fast_forward_only_merge",
}
_PAGE = 50
"""The greatest size of a page that servers permit by default."""


def gitlab_api(host: str) -> str:
    """Return the address of the API of a GitLab server."""
    return f"https://{host}/api/v4"


def gitea_api(host: str) -> str:
    """Return the address of the API of a Gitea or Forgejo server."""
    return f"https://{host}/api/v1"


class RestDialect(ABC):
    """The requests that differ between these forges in paths and in the names of fields only."""

    most_text: int
    _draft_prefix: str
    _update_method: ClassVar[str]
    _number: ClassVar[str]
    _text: ClassVar[str]
    _base: ClassVar[str]
    _user: ClassVar[str]
    _closing: ClassVar[Mapping[str, str]]
    _reopening: ClassVar[Mapping[str, str]]

    def __init__(self, transport: Transport, name: str, pulls: str, issues: str) -> None:
        self.name = name
        self.transport = transport
        self._pulls = pulls
        self._issues = issues
        self._login = ""

    def find(self, number: int) -> ApiPullRequest:
        """Return a pull request; MissingError if there is none."""
        return self._parse(self.transport.get(f"{self._pulls}/{number}").data)

    def edit(self, pull: ApiPullRequest, title: str, body: str, base: str) -> ApiPullRequest:
        """Replace title, text and base; a draft stays one."""
        moved = {self._base: base} if base != pull.base else {}
        return self._update(pull, {"title": self._title(title, draft=pull.draft), self._text: body, **moved})

    def mark_ready(self, pull: ApiPullRequest) -> None:
        """Mark a draft as ready for review."""
        self._update(pull, {"title": pull.title})

    def mark_draft(self, pull: ApiPullRequest) -> None:
        """Turn a pull request into a draft."""
        self._update(pull, {"title": self._title(pull.title, draft=True)})

    def close(self, pull: ApiPullRequest) -> None:
        """Close a pull request."""
        self._update(pull, self._closing)

    def reopen(self, pull: ApiPullRequest) -> None:
        """Open a closed pull request again."""
        self._update(pull, self._reopening)

    def add_comment(self, number: int, body: str) -> Comment:
        """Comment in one request."""
        reply = self.transport.write("POST", self._comments(number), {"body": body})
        return Comment(str(reply.data["id"]), reply.data["body"])

    def create_issue(self, title: str, body: str) -> Issue:
        """Open an issue in one request."""
        reply = self.transport.write("POST", self._issues, {"title": title, self._text: body})
        return Issue(reply.data[self._number], body)

    def edit_issue(self, number: int, body: str) -> None:
        """Replace the text of an issue."""
        path = f"{self._issues}/{number}"
        self.transport.write(self._update_method, path, {self._text: body}, repeatable=True)

    @abstractmethod
    def _parse(self, item: Any) -> ApiPullRequest: ...

    @abstractmethod
    def _comments(self, number: int) -> str: ...

    def _title(self, title: str, *, draft: bool) -> str:
        return f"{self._draft_prefix}{title}" if draft else title

    def _update(self, pull: ApiPullRequest, body: Mapping[str, Any]) -> ApiPullRequest:
        path = f"{self._pulls}/{pull.number}"
        return self._parse(self.transport.write(self._update_method, path, body, repeatable=True).data)

    def _own_login(self) -> str:
        self._login = self._login or str(self.transport.get("/user").data[self._user])
        return self._login


class GitLab(RestDialect):
    """The dialect of GitLab for one project, `group/subgroup/name`."""

    most_text = 500_000
    _draft_prefix = "Draft: "
    _update_method = "PUT"
    _number = "iid"
    _text = "description"
    _base = "target_branch"
    _user = "username"
    _closing = {"state_event": "close"}  # noqa: RUF012 - a constant of the class
    _reopening = {"state_event": "reopen"}  # noqa: RUF012 - a constant of the class

    def __init__(self, transport: Transport, name: str, rule: ForgeRule = UNCONFIGURED) -> None:
        self._squash = rule.merge_method == "squash"
        self._project = f"/projects/{quote(name, safe='')}"
        self._user_ids: dict[str, int] = {}
        super().__init__(transport, name, f"{self._project}/merge_requests", f"{self._project}/issues")

    def has_pulls(self) -> bool:
        """Tell whether merge requests are switched on in the project."""
        return bool(self.transport.get(self._project).data.get("merge_requests_access_level") != "disabled")

    def list_all(self) -> Iterator[list[ApiPullRequest]]:
        """Yield all merge requests from oldest to newest, so that a new one cannot shift a page."""
        yield from self._list({"state": "all", "order_by": "created_at", "sort": "asc", "per_page": 100})

    def list_open(self) -> Iterator[list[ApiPullRequest]]:
        """Yield the open merge requests from oldest to newest."""
        yield from self._list({"state": "opened", "order_by": "created_at", "sort": "asc", "per_page": 100})

    def list_changed(self) -> Iterator[list[ApiPullRequest]]:
        """Yield merge requests of any state, the last change first: no state means merged or closed."""
        yield from self._list({"state": "all", "order_by": "updated_at", "sort": "desc", "per_page": 100})

    def find_open(self, head: str, _base: str = "") -> Iterator[ApiPullRequest]:
        """Yield the open merge requests of a branch."""
        for page in self._list({"state": "opened", "source_branch": head}):
            yield from (pull for pull in page if pull.head == head)

    find_recent = find_open

    def create(self, desired: PullRequest) -> ApiPullRequest:
        """Open a merge request."""
        body = {
            "title": self._title(desired.title, draft=desired.draft),
            "source_branch": desired.head,
            "target_branch": desired.base,
            "description": desired.body,
            "labels": ",".join(desired.labels),
        }
        try:
            return self._parse(self.transport.write("POST", self._pulls, body).data)
        except InvalidError as error:
            if error.status == _CONFLICT:
                raise PullRequestExistsError(str(error)) from error
            if re.search(r"branch.*does not exist", str(error), re.IGNORECASE):
                raise RefusedError(f"{desired.head} or {desired.base} is no branch of {self.name}") from error
            raise

    def set_labels(self, pull: ApiPullRequest, labels: tuple[str, ...]) -> ApiPullRequest:
        """Replace the labels."""
        return self._update(pull, {"labels": ",".join(labels)})

    def request_reviews(self, pull: ApiPullRequest, reviewers: tuple[str, ...]) -> None:
        """Request reviews of people; GitLab takes no groups, which its own CODEOWNERS ask."""
        names = {*pull.reviewers, *(name for name in reviewers if "/" not in name)}
        if names - set(pull.reviewers):
            self._update(pull, {"reviewer_ids": self._users(names)})

    def assign(self, pull: ApiPullRequest, assignees: tuple[str, ...]) -> None:
        """Assign a merge request to people."""
        self._update(pull, {"assignee_ids": self._users({*pull.assignees, *assignees})})

    def _users(self, names: Iterable[str]) -> list[int]:
        """Return the ids of users by their names; each is looked up once a run.

        Raises:
            InvalidError: The server has no such user.
        """
        for name in sorted(names):
            if name not in self._user_ids:
                users = self.transport.get("/users", {"username": name}).data
                if not users:
                    raise InvalidError(f"{self.name}: the server has no user {name}", status=404)
                self._user_ids[name] = users[0]["id"]
        return [self._user_ids[name] for name in sorted(names)]

    def merge(self, pull: ApiPullRequest, expect: str) -> ApiPullRequest:
        """Merge a merge request if its head is `expect`, by the method of the project."""
        return self._merge(pull, expect, {})

    def enable_auto_merge(self, pull: ApiPullRequest, expect: str) -> ApiPullRequest:
        """Let GitLab merge this head when its pipeline succeeds; without one it is merged at once.

        Source: GitLab's documentation of the merge requests API: `auto_merge`, before version 17.11
        `merge_when_pipeline_succeeds`.
        """
        return self._merge(pull, expect, {"auto_merge": True, "merge_when_pipeline_succeeds": True})

    def _merge(self, pull: ApiPullRequest, expect: str, options: Mapping[str, bool]) -> ApiPullRequest:
        """Merge a merge request.

        Raises:
            RefusedError: The user may not merge into this branch, for which GitLab has the status 401, too.
            MergePendingError: GitLab does not know yet whether it can be merged.
            InvalidError: It cannot be merged; GitLab's message is always the same, so its status is added.

        Source: GitLab's documentation of the merge requests API: statuses of `merge`.
        """
        path = f"{self._pulls}/{pull.number}/merge"
        body = {"sha": expect, **({"squash": True} if self._squash else {}), **options}
        try:
            return self._parse(self.transport.write("PUT", path, body).data)
        except UnauthorizedError as error:
            self.find(pull.number)  # raises if it is the token that is refused
            raise RefusedError(
                f"The account may not merge into {pull.base}: {error}",
                hint="Let it merge, in the protection of the branch, or merge yourself.",
            ) from error
        except InvalidError as error:
            now = self.transport.get(f"{self._pulls}/{pull.number}").data
            status = now.get("detailed_merge_status")
            if status in _GITLAB_UNDECIDED:
                raise MergePendingError(str(error)) from error
            message = f"{error} ({status})" if status else str(error)
            raise InvalidError(message, status=error.status) from error

    def comments(self, number: int) -> Iterator[Comment]:
        """Yield the comments of the authenticated user."""
        for note in self.transport.items(self._comments(number), {"sort": "asc", "per_page": 100}):
            if not note.get("system") and note["author"]["username"] == self._own_login():
                yield Comment(str(note["id"]), note["body"])

    def edit_comment(self, number: int, comment: Comment, body: str) -> None:
        """Replace the text of a comment."""
        path = f"{self._comments(number)}/{comment.key}"
        self.transport.write("PUT", path, {"body": body}, repeatable=True)

    def checks(self, commit: str) -> Iterator[tuple[str, CheckState]]:
        """Yield the statuses of a commit; GitLab returns only the newest of a name."""
        path = f"{self._project}/repository/commits/{commit}/statuses"
        for status in self.transport.items(path, {"per_page": 100}):
            yield status["name"], _GITLAB_CHECKS.get(status["status"], CheckState.PENDING)

    def set_status(self, commit: str, status: HeadStatus) -> None:
        """Set a status of a commit, which is a job of an external pipeline to GitLab."""
        state = "success" if status.passed else "failed"
        body = {"state": state, "name": status.name, "description": status.text[:_LONGEST_DESCRIPTION]}
        self.transport.write("POST", f"{self._project}/statuses/{commit}", body, repeatable=True)

    def issues(self) -> Iterator[Issue]:
        """Yield the issues of the authenticated user, open or closed."""
        for item in self.transport.items(self._issues, {"scope": "created_by_me", "per_page": 100}):
            is_open = item["state"] == "opened"
            yield Issue(item["iid"], item.get("description") or "", is_open, write_times(item))

    def _list(self, query: Query) -> Iterator[list[ApiPullRequest]]:
        for page in self.transport.pages(self._pulls, query, conditional=True):
            yield [self._parse_item(item) for item in page]

    def _parse_item(self, item: Any) -> ApiPullRequest:
        pull = parse_pull(item, self._parse, "iid", lambda i: i["source_branch"])
        return pull if item["source_project_id"] == item["target_project_id"] else replace(pull, head="")

    def _comments(self, number: int) -> str:
        return f"{self._pulls}/{number}/notes"

    def _update(self, pull: ApiPullRequest, body: Mapping[str, Any]) -> ApiPullRequest:
        changed = super()._update(pull, body)
        return replace(changed, head_oid=changed.head_oid or pull.head_oid)

    def _parse(self, item: Mapping[str, Any]) -> ApiPullRequest:
        title, state = str(item["title"]), _GITLAB_STATES.get(item["state"], PullState.CLOSED)
        draft = _GITLAB_DRAFT.match(title)
        # A squash has another field; a fast-forward merge has no commit of its own, but the head.
        merge_oid = item.get("merge_commit_sha") or item.get("squash_commit_sha") or item.get("sha")
        return ApiPullRequest(
            number=item["iid"],
            head=item["source_branch"],
            base=item["target_branch"],
            title=title[draft.end() :] if draft else title,
            body=item.get("description") or "",
            draft=bool(draft) and state is not PullState.MERGED,
            state=state,
            head_oid=item.get("sha") or "",
            merge_oid=merge_oid or "",
            labels=tuple(item.get("labels") or ()),
            url=item.get("web_url", ""),
            times=write_times(item),
            closed=closed_time(item),
            reviewers=self._names(item.get("reviewers")),
            assignees=self._names(item.get("assignees")),
        )

    def _names(self, users: Iterable[Mapping[str, Any]] | None) -> tuple[str, ...]:
        """Return the names of users, and remember their ids."""
        self._user_ids |= {user["username"]: user["id"] for user in users or ()}
        return tuple(user["username"] for user in users or ())


class Gitea(RestDialect):
    """The dialect of Gitea and Forgejo for one repository, `owner/name`."""

    most_text = 60_000
    _update_method = "PATCH"
    _number = "number"
    _text = "body"
    _base = "base"
    _user = "login"
    _closing = {"state": "closed"}  # noqa: RUF012 - a constant of the class
    _reopening = {"state": "open"}  # noqa: RUF012 - a constant of the class

    def __init__(self, transport: Transport, name: str, rule: ForgeRule = UNCONFIGURED) -> None:
        self._root = f"/repos/{quote(name)}"
        self._owner = name.partition("/")[0]
        self._method = rule.merge_method
        self._draft_prefix = rule.draft_prefix
        self._label_ids: dict[str, int] = {}
        super().__init__(transport, name, f"{self._root}/pulls", f"{self._root}/issues")

    def has_pulls(self) -> bool:
        """Tell whether pull requests are switched on in the repository."""
        return self.transport.get(self._root).data.get("has_pull_requests", True) is not False

    def list_all(self) -> Iterator[list[ApiPullRequest]]:
        """Yield all pull requests from oldest to newest, so that a new one cannot shift a page."""
        yield from self._list("all", "oldest")

    def list_open(self) -> Iterator[list[ApiPullRequest]]:
        """Yield the open pull requests from oldest to newest."""
        yield from self._list("open", "oldest")

    def list_changed(self) -> Iterator[list[ApiPullRequest]]:
        """Yield the ended pull requests, the last change first."""
        yield from self._list("closed", "recentupdate")

    def find_open(self, head: str, base: str = "") -> Iterator[ApiPullRequest]:
        """Yield the open pull requests of a branch.

        Gitea cannot filter by branch. It looks up a pair of branches, but answers any pull request that they
        ever had: only "none" and an open one spare the whole list.
        """
        if base and "/" not in base:
            try:
                pull = self._parse(self.transport.get(f"{self._pulls}/{base}/{quote(head)}").data)
            except MissingError:
                return
            if pull.state is PullState.OPEN:
                yield pull
                return
        for page in self._list("open", "oldest"):
            yield from (pull for pull in page if pull.head == head)

    def find_recent(self, head: str) -> Iterator[ApiPullRequest]:
        """Yield those of a branch among the pull requests that changed last, in one request."""
        pages = self._list("open", "recentupdate")
        yield from (pull for pull in next(pages, ()) if pull.head == head)

    def create(self, desired: PullRequest) -> ApiPullRequest:
        """Open a pull request; Gitea answers 404 for a missing branch as for a missing repository.

        Raises:
            RefusedError: A branch is missing, or a title with the prefix is no draft on this server. Such a
                pull request is closed again: without the mark of a draft it could be merged.
        """
        title = self._title(desired.title, draft=desired.draft)
        body = {"title": title, "head": desired.head, "base": desired.base, "body": desired.body}
        labels = {"labels": self._ids(desired.labels)} if desired.labels else {}
        try:
            created = self._parse(self.transport.write("POST", self._pulls, {**body, **labels}).data)
        except InvalidError as error:
            raise PullRequestExistsError(str(error)) if error.status == _CONFLICT else error from error
        except MissingError as error:
            self.transport.get(self._root)  # raises if it is the repository that is missing
            raise RefusedError(f"{desired.head} or {desired.base} is no branch of {self.name}") from error
        if desired.draft and not created.draft:
            self.close(created)
            raise RefusedError(
                f"{self.name}: the server takes no title with {self._draft_prefix!r} for a draft's",
                hint="Set draftPrefix of the rule in spec.forges to one of its WORK_IN_PROGRESS_PREFIXES.",
            )
        return created

    def set_labels(self, pull: ApiPullRequest, labels: tuple[str, ...]) -> ApiPullRequest:
        """Replace the labels; labels that neither the repository nor its organization has are created."""
        body = {"labels": self._ids(labels)}
        self.transport.write("PUT", f"{self._issues}/{pull.number}/labels", body, repeatable=True)
        return replace(pull, labels=labels)

    def request_reviews(self, pull: ApiPullRequest, reviewers: tuple[str, ...]) -> None:
        """Request reviews of people, and of teams of the owner by their name, in one request."""
        teams = [name.rpartition("/")[2] for name in reviewers if "/" in name]
        body = {"reviewers": [name for name in reviewers if "/" not in name], "team_reviewers": teams}
        path = f"{self._pulls}/{pull.number}/requested_reviewers"
        self.transport.write("POST", path, body, repeatable=True)

    def assign(self, pull: ApiPullRequest, assignees: tuple[str, ...]) -> None:
        """Assign a pull request to people; those that it is assigned to stay."""
        names = sorted({*pull.assignees, *assignees})
        self.transport.write("PATCH", f"{self._pulls}/{pull.number}", {"assignees": names}, repeatable=True)

    def merge(self, pull: ApiPullRequest, expect: str) -> ApiPullRequest:
        """Merge a pull request if its head is `expect`, and read it again: the reply is empty."""
        return self._merge(pull, expect, {})

    def enable_auto_merge(self, pull: ApiPullRequest, expect: str) -> ApiPullRequest:
        """Let the server merge this head when its checks succeed; it does at once if they have."""
        try:
            return self._merge(pull, expect, {"merge_when_checks_succeed": True})
        except InvalidError as error:
            if "already scheduled" in str(error):
                return pull
            raise

    def _merge(self, pull: ApiPullRequest, expect: str, options: Mapping[str, bool]) -> ApiPullRequest:
        body = {"Do": self._style(), "head_commit_id": expect, **options}
        try:
            self.transport.write("POST", f"{self._pulls}/{pull.number}/merge", body)
        except InvalidError as error:
            if "try again later" in str(error).lower():
                raise MergePendingError(str(error)) from error
            raise
        return self.find(pull.number)

    def _style(self) -> str:
        """Return the style to merge with: the configured one, else the one that the repository prefers.

        Raises:
            RefusedError: The repository forbids the configured one.
        """
        repository = self.transport.get(self._root).data
        if not self._method:
            return str(repository.get("default_merge_style") or "merge")
        styles = _GITEA_STYLES[self._method]
        permitted = [style for style in styles if repository.get(_GITEA_PERMITS[style], True)]
        if not permitted:
            raise forbidden_method(self.name, self._method)
        return permitted[0]

    def _ids(self, names: Iterable[str]) -> list[int]:
        """Return the ids of labels, of the repository or of its organization; those it lacks are created.

        They are listed once a run. Of two labels with one name the older counts.
        """
        names = tuple(names)
        if not set(names) <= self._label_ids.keys():
            self._label_ids = self._list_labels()
        for name in names:
            if name not in self._label_ids:
                label = {"name": name, "color": _LABEL_COLOUR}
                self._label_ids[name] = self.transport.write("POST", f"{self._root}/labels", label).data["id"]
        return [self._label_ids[name] for name in names]

    def _list_labels(self) -> dict[str, int]:
        labels = list(self.transport.items(f"{self._root}/labels", {"limit": 50}))
        with suppress(UnavailableError):  # the owner is a user, or the token may not read organizations
            labels += self.transport.items(f"/orgs/{quote(self._owner)}/labels", {"limit": 50})
        return {label["name"]: label["id"] for label in sorted(labels, key=lambda label: -label["id"])}

    def comments(self, number: int) -> Iterator[Comment]:
        """Yield the comments of the authenticated user."""
        for comment in self.transport.get(self._comments(number)).data:
            if comment["user"]["login"] == self._own_login():
                yield Comment(str(comment["id"]), comment["body"])

    def edit_comment(self, _: int, comment: Comment, body: str) -> None:
        """Replace the text of a comment."""
        path = f"{self._issues}/comments/{comment.key}"
        self.transport.write("PATCH", path, {"body": body}, repeatable=True)

    def checks(self, commit: str) -> Iterator[tuple[str, CheckState]]:
        """Yield the statuses of a commit, the newest of a name last."""
        query: Query = {"sort": "oldest", "limit": 50}
        statuses = self.transport.items(f"{self._root}/statuses/{commit}", query)
        # The server sorts by seconds: their ids tell the order of those of one second.
        for status in sorted(statuses, key=lambda status: int(status.get("id") or 0)):
            yield status["context"], _GITEA_CHECKS.get(status["status"], CheckState.FAILED)

    def set_status(self, commit: str, status: HeadStatus) -> None:
        """Set a status of a commit."""
        state = "success" if status.passed else "failure"
        body = {"state": state, "context": status.name, "description": status.text[:_LONGEST_DESCRIPTION]}
        self.transport.write("POST", f"{self._root}/statuses/{commit}", body, repeatable=True)

    def issues(self) -> Iterator[Issue]:
        """Yield the issues of the authenticated user, open or closed."""
        login = self._own_login()
        query: Query = {"type": "issues", "state": "all", "created_by": login, "limit": 50}
        for item in self.transport.items(self._issues, query):
            if item["user"]["login"] == login:
                is_open = item["state"] == "open"
                yield Issue(item["number"], item.get("body") or "", is_open, write_times(item))

    def _list(self, state: str, sort: str) -> Iterator[list[ApiPullRequest]]:
        query: Query = {"state": state, "sort": sort, "limit": _PAGE}
        for page in self.transport.pages(self._pulls, query, conditional=True):
            yield [self._parse_item(item) for item in page]

    def _parse_item(self, item: Any) -> ApiPullRequest:
        pull = parse_pull(item, self._parse, "number", lambda i: i["head"]["label"])
        return pull if item["head"]["repo_id"] == item["base"]["repo_id"] else replace(pull, head="")

    def _comments(self, number: int) -> str:
        return f"{self._issues}/{number}/comments"

    def _parse(self, item: Mapping[str, Any]) -> ApiPullRequest:
        merged, title = bool(item.get("merged")), str(item["title"])
        labels = item.get("labels") or ()
        self._label_ids |= {label["name"]: label["id"] for label in labels}
        prefixes = (self._draft_prefix.strip().lower(), *_GITEA_DRAFTS)
        prefix = next((p for p in prefixes if p and title.lower().startswith(p)), "")
        # Servers before 1.22 do not tell; there the prefixes that are configured by default count.
        is_draft = bool(item.get("draft", prefix))
        is_open = item["state"] == "open"
        return ApiPullRequest(
            number=item["number"],
            head=item["head"]["label"],  # the branch, even after it was deleted
            base=item["base"]["label"],
            title=title[len(prefix) :].lstrip() if is_draft else title,
            body=item.get("body") or "",
            draft=is_draft and not merged,
            state=PullState.MERGED if merged else PullState.OPEN if is_open else PullState.CLOSED,
            head_oid=item["head"]["sha"],
            merge_oid=item.get("merge_commit_sha") or "",
            labels=tuple(label["name"] for label in labels),
            url=item.get("html_url", ""),
            times=write_times(item),
            closed=closed_time(item),
            assignees=tuple(user["login"] for user in item.get("assignees") or ()),
        )
