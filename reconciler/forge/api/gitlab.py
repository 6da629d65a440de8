"""GitLab: its dialect, by REST only, where a prefix of the title marks a draft.

It publishes no description of its API that could be used: its replies are written from its documentation.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import quote

from msgspec.structs import replace

from reconciler.base.errors import RefusedError
from reconciler.base.lazy import regex
from reconciler.forge.api.dialect import (
    UNCONFIGURED,
    ApiPullRequest,
    Check,
    Comment,
    Fields,
    Issue,
    PendingError,
    PullRequestExistsError,
    RestDialect,
    closed_time,
    write_times,
)
from reconciler.forge.http import Transport
from reconciler.http.client import ForbiddenError, InvalidError, UnauthorizedError
from reconciler.inventory.inventory import CheckState, HeadStatus, PullRequest, PullState
from reconciler.policy import ForgeRule

_CONFLICT = 409
# GitLab keeps no flag: the title decides, in any of three spellings.
_DRAFT = regex(r"^\s*(?:\[draft\]|\(draft\)|draft:)\s*", re.IGNORECASE)
# `locked` is a merge request while it is being merged.
_STATES = {"opened": PullState.OPEN, "locked": PullState.OPEN, "merged": PullState.MERGED}
_UNDECIDED = {"unchecked", "checking", "preparing", "approvals_syncing"}
"""States of a merge request before GitLab knows whether it can be merged.

Source: GitLab's documentation of `detailed_merge_status` of merge requests.
"""
_CHECKS = {
    "success": CheckState.PASSED,
    "failed": CheckState.FAILED,
    "canceled": CheckState.FAILED,
    "skipped": CheckState.SKIPPED,
    "manual": CheckState.SKIPPED,
}


def default_api(host: str) -> str:
    """Return the address of the API of a GitLab server."""
    return f"https://{host}/api/v4"


class GitLab(RestDialect):
    """The dialect of GitLab for one project, `group/subgroup/name`."""

    most_text = most_comment = 500_000
    _draft_prefix = "Draft: "
    _fields = Fields("PUT", "iid", "description", "target_branch", "username", "state_event", "close")

    def __init__(self, transport: Transport, name: str, rule: ForgeRule = UNCONFIGURED) -> None:
        self._squash = rule.merge_method == "squash"
        self._user_ids: dict[str, int] = {}
        self._has_trains: bool | None = None
        # A project is named by its whole path with the slashes encoded.
        super().__init__(transport, name, f"/projects/{quote(name, safe='')}", "merge_requests")

    def has_pulls(self) -> bool:
        """Tell whether merge requests are switched on in the project."""
        return bool(self.transport.get(self._root).data.get("merge_requests_access_level") != "disabled")

    def list_all(self) -> Iterator[list[ApiPullRequest]]:
        """Yield all merge requests from oldest to newest, so that a new one cannot shift a page."""
        yield from self._list({"state": "all", "order_by": "created_at", "sort": "asc", "per_page": 100})

    def list_open(self) -> Iterator[list[ApiPullRequest]]:
        """Yield the open merge requests from oldest to newest."""
        yield from self._list({"state": "opened", "order_by": "created_at", "sort": "asc", "per_page": 100})

    def list_changed(self, _since: float = 0.0) -> Iterator[list[ApiPullRequest]]:
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
            # An open merge request of the same branches: 409, where GitHub answers 422.
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
            # The list replaces the former one, and takes ids only.
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
        return self._depart(pull, expect) or self._merge(pull, expect, {})

    def enable_auto_merge(self, pull: ApiPullRequest, expect: str) -> ApiPullRequest:
        """Let GitLab merge this head when its pipeline succeeds; without one it is merged at once.

        Source: GitLab's documentation of the merge requests API: `auto_merge`, before version 17.11
        `merge_when_pipeline_succeeds`.
        """
        # Versions before 17.11 know the second name only, and ignore the first.
        waits = {"auto_merge": True, "merge_when_pipeline_succeeds": True}
        return self._depart(pull, expect) or self._merge(pull, expect, waits)

    def _depart(self, pull: ApiPullRequest, expect: str) -> ApiPullRequest | None:
        """Add a merge request to the merge train of its branch; None where the project has no trains.

        It starts once its pipeline has succeeded. A merge beside the train would make all of its cars anew.

        Source: GitLab's documentation of the merge trains API, and of `merge_trains_enabled` of projects.
        """
        if self._has_trains is None:
            project = self.transport.get(self._root).data
            self._has_trains = bool(project.get("merge_trains_enabled"))
        if not self._has_trains:
            return None
        path = f"{self._root}/merge_trains/merge_requests/{pull.number}"
        squash = {"squash": True} if self._squash else {}
        body = {"sha": expect, "auto_merge": True, "when_pipeline_succeeds": True, **squash}
        try:
            self.transport.write("POST", path, body, repeatable=True)
        except InvalidError as error:
            # 409 is also the answer where it is on the train already.
            if error.status != _CONFLICT or not self.merging([pull]):
                raise
        return replace(pull, handed=True)

    def merging(self, pulls: Collection[ApiPullRequest]) -> Collection[int]:
        """Return the numbers of those with auto-merge, and of those on a merge train."""
        numbers = {pull.number for pull in pulls if pull.handed}
        if len(numbers) < len(pulls):
            with suppress(ForbiddenError):  # projects without trains
                cars = self.transport.items(
                    f"{self._root}/merge_trains", {"scope": "active", "per_page": 100}
                )
                numbers |= {car["merge_request"]["iid"] for car in cars}
        return numbers

    def _merge(self, pull: ApiPullRequest, expect: str, options: Mapping[str, bool]) -> ApiPullRequest:
        """Merge a merge request.

        Raises:
            RefusedError: The user may not merge into this branch, for which GitLab has the status 401, too.
            PendingError: GitLab does not know yet whether it can be merged.
            InvalidError: It cannot be merged; GitLab's message is always the same, so its status is added.

        Source: GitLab's documentation of the merge requests API: statuses of `merge`.
        """
        path = f"{self._pulls}/{pull.number}/merge"
        body = {"sha": expect, **({"squash": True} if self._squash else {}), **options}
        try:
            return self._parse(self.transport.write("PUT", path, body).data)
        except UnauthorizedError as error:
            # GitLab answers 401, not 403, to an account that may not merge.
            self.find(pull.number)  # raises if it is the token that is refused
            raise RefusedError(
                f"The account may not merge into {pull.base}: {error}",
                hint="Let it merge, in the protection of the branch, or merge yourself.",
            ) from error
        except InvalidError as error:
            now = self.transport.get(f"{self._pulls}/{pull.number}").data
            status = now.get("detailed_merge_status")
            if status in _UNDECIDED:
                raise PendingError(str(error)) from error
            message = f"{error} ({status})" if status else str(error)
            raise InvalidError(message, status=error.status) from error

    def comments(self, number: int) -> Iterator[Comment]:
        """Yield the comments of the authenticated user."""
        for note in self.transport.items(self._comments(number), {"sort": "asc", "per_page": 100}):
            # Notes are also the log of a merge request: pushes, labels, approvals.
            if not note.get("system") and note["author"]["username"] == self._own_login():
                yield Comment(str(note["id"]), note["body"])

    def checks(self, commit: str) -> Iterator[Check]:
        """Yield the statuses of a commit; GitLab returns only the newest of a name."""
        path = f"{self._root}/repository/commits/{commit}/statuses"
        for status in self.transport.items(path, {"per_page": 100}):
            yield Check(status["name"], _CHECKS.get(status["status"], CheckState.PENDING))

    def set_status(self, commit: str, status: HeadStatus, _head: str, _number: int) -> None:
        """Set a status of a commit, which is a job of an external pipeline to GitLab."""
        state = "success" if status.passed else "failed"
        body = {"state": state, "name": status.name, "description": status.text[: self._longest_description]}
        self.transport.write("POST", f"{self._root}/statuses/{commit}", body, repeatable=True)

    def issues(self) -> Iterator[Issue]:
        """Yield the issues of the authenticated user, open or closed."""
        for item in self.transport.items(self._issues, {"scope": "created_by_me", "per_page": 100}):
            is_open = item["state"] == "opened"
            body = item.get("description") or ""
            yield Issue(item["iid"], body, is_open, write_times(item), item["title"])

    def _head(self, item: Any) -> Any:
        return item["source_branch"]

    def _is_from_this_repository(self, item: Any) -> bool:
        return bool(item["source_project_id"] == item["target_project_id"])

    def _comments(self, number: int) -> str:
        return f"{self._pulls}/{number}/notes"

    def _update(self, pull: ApiPullRequest, body: Mapping[str, Any]) -> ApiPullRequest:
        updated = super()._update(pull, body)
        # Some answers to an update lack `sha`.
        return replace(updated, head_oid=updated.head_oid or pull.head_oid)

    def _parse(self, item: Mapping[str, Any]) -> ApiPullRequest:
        title, state = str(item["title"]), _STATES.get(item["state"], PullState.CLOSED)
        draft = _DRAFT.match(title)
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
            handed=bool(item.get("merge_when_pipeline_succeeds")),
            reviewers=self._names(item.get("reviewers")),
            assignees=self._names(item.get("assignees")),
        )

    def _names(self, users: Iterable[Mapping[str, Any]] | None) -> tuple[str, ...]:
        """Return the names of users, and remember their ids."""
        self._user_ids |= {user["username"]: user["id"] for user in users or ()}
        return tuple(user["username"] for user in users or ())
