"""GitLab, Gitea and Forgejo: dialects by REST only, where a prefix of the title marks a draft.

Gitea's is tested against its published API description; GitLab publishes none that could be used.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import quote

from msgspec.structs import replace

from reconciler.base.errors import RefusedError, UnavailableError
from reconciler.forge.api.dialect import (
    UNCONFIGURED,
    ApiPullRequest,
    Comment,
    Fields,
    Issue,
    PendingError,
    PullRequestExistsError,
    Query,
    RestDialect,
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


class GitLab(RestDialect):
    """The dialect of GitLab for one project, `group/subgroup/name`."""

    most_text = 500_000
    _draft_prefix = "Draft: "
    _fields = Fields(
        "PUT", "iid", "description", "target_branch", "username", "state_event", "close", "reopen"
    )

    def __init__(self, transport: Transport, name: str, rule: ForgeRule = UNCONFIGURED) -> None:
        self._squash = rule.merge_method == "squash"
        self._user_ids: dict[str, int] = {}
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
            PendingError: GitLab does not know yet whether it can be merged.
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
                raise PendingError(str(error)) from error
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
        path = f"{self._root}/repository/commits/{commit}/statuses"
        for status in self.transport.items(path, {"per_page": 100}):
            yield status["name"], _GITLAB_CHECKS.get(status["status"], CheckState.PENDING)

    def set_status(self, commit: str, status: HeadStatus) -> None:
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

    def __init__(self, transport: Transport, name: str, rule: ForgeRule = UNCONFIGURED) -> None:
        self._owner = name.partition("/")[0]
        self._method = rule.merge_method
        self._draft_prefix = rule.draft_prefix
        self._label_ids: dict[str, int] = {}
        super().__init__(transport, name, f"/repos/{quote(name)}")

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

        Gitea cannot filter by branch. It looks up a pair of branches, but answers the first pull request that
        they ever had: only "none" and an open one spare the whole list.
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

    def find_recent(self, head: str, base: str = "") -> Iterator[ApiPullRequest]:
        """Yield the first open pull request of a branch, or the open ones among those that changed last."""
        if base and "/" not in base:
            with suppress(MissingError):
                pull = self._parse(self.transport.get(f"{self._pulls}/{base}/{quote(head)}").data)
                if pull.state is PullState.OPEN:
                    yield pull
                    return
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
            for branch in (desired.head, desired.base):
                try:
                    self.transport.get(f"{self._root}/branches/{quote(branch, safe='')}")
                except MissingError:
                    raise RefusedError(f"{branch} is no branch of {self.name}") from error
            # For a moment after its first push the server takes a repository for empty.
            raise PendingError(f"{self.name}: the server does not take pull requests yet: {error}") from error
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

    def assign(self, pull: ApiPullRequest, assignees: tuple[str, ...]) -> None:
        """Assign a pull request to people; those that it is assigned to stay."""
        names = sorted({*pull.assignees, *assignees})
        self.transport.write("PATCH", f"{self._pulls}/{pull.number}", {"assignees": names}, repeatable=True)

    def merge(self, pull: ApiPullRequest, expect: str) -> ApiPullRequest:
        """Merge a pull request if its head is `expect`, and read it again: the reply is empty."""
        return self._merge(pull, expect, {})

    def enable_auto_merge(self, pull: ApiPullRequest, expect: str) -> ApiPullRequest:
        """Let the server merge this head when its checks succeed; it does at once if they have.

        Where nothing reports a check, it is merged like any other: servers up to 1.22 would wait for ever.
        What branch protection still demands is refused then, and waited for.
        """
        if next(self.checks(expect), None) is None:
            with suppress(InvalidError):
                return self._merge(pull, expect, {})
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
                raise PendingError(str(error)) from error
            raise
        return self.find(pull.number)

    def _style(self) -> str:
        """Return the style to merge with: the configured one, else one that the repository permits.

        Raises:
            RefusedError: The repository forbids the configured one.
        """
        repository = self.transport.get(self._root).data
        preferred = str(repository.get("default_merge_style") or "merge")
        styles = _GITEA_STYLES[self._method] if self._method else (preferred, *_GITEA_PERMITS)
        for style in styles:
            if repository.get(_GITEA_PERMITS.get(style, ""), True):
                return style
        raise forbidden_method(self.name, self._method or preferred)

    def _ids(self, names: Iterable[str]) -> list[int]:
        """Return the ids of labels, of the repository or of its organization; those it lacks are created.

        They are listed once a run. Of two labels with one name the older counts. The server takes both from
        two runs at once; the run that created the younger one removes it.
        """
        names = tuple(names)
        if not set(names) <= self._label_ids.keys():
            self._label_ids = self._list_labels()
        created: dict[str, int] = {}
        for name in names:
            if name not in self._label_ids:
                label = {"name": name, "color": _LABEL_COLOUR}
                created[name] = self.transport.write("POST", f"{self._root}/labels", label).data["id"]
                self._label_ids[name] = created[name]
        for label in self.transport.items(f"{self._root}/labels", {"limit": 50}) if created else ():
            if label["id"] < created.get(label["name"], 0):
                self._label_ids[label["name"]] = min(label["id"], self._label_ids[label["name"]])
        for name, number in created.items():
            if self._label_ids[name] != number:
                self.transport.write("DELETE", f"{self._root}/labels/{number}", repeatable=True)
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

    def issues(self) -> Iterator[Issue]:
        """Yield the issues of the authenticated user, open or closed."""
        login = self._own_login()
        query: Query = {"type": "issues", "state": "all", "created_by": login, "limit": 50}
        for item in self.transport.items(self._issues, query):
            if item["user"]["login"] == login:
                is_open = item["state"] == "open"
                body = item.get("body") or ""
                yield Issue(item["number"], body, is_open, write_times(item), item["title"])

    def _list(self, state: str, sort: str) -> Iterator[list[ApiPullRequest]]:
        query: Query = {"state": state, "sort": sort, "limit": _PAGE}
        for page in self.transport.pages(self._pulls, query, conditional=True):
            yield [self._parse_item(item) for item in page]

    def _parse_item(self, item: Any) -> ApiPullRequest:
        pull = parse_pull(item, self._parse, "number", lambda i: i["head"]["label"])
        return pull if item["head"]["repo_id"] == item["base"]["repo_id"] else replace(pull, head="")

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
