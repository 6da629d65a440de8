"""Gitea and Forgejo: their dialect, by REST only, where a prefix of the title marks a draft.

Tested against the published API description.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import quote

from msgspec.structs import replace

from reconciler.base.errors import RefusedError, UnavailableError
from reconciler.forge.api.dialect import (
    UNCONFIGURED,
    ApiPullRequest,
    Check,
    Comment,
    Issue,
    PendingError,
    PullRequestExistsError,
    Query,
    RestDialect,
    closed_time,
    forbidden_method,
    write_times,
)
from reconciler.forge.http import Transport
from reconciler.http.client import InvalidError, MissingError
from reconciler.inventory.inventory import CheckState, PullRequest, PullState
from reconciler.policy import ForgeRule

_CONFLICT = 409
_LABEL_COLOUR = "#ededed"
# The defaults of WORK_IN_PROGRESS_PREFIXES; each server may have others.
_DRAFTS = ("wip:", "[wip]")
_CHECKS = {"success": CheckState.PASSED, "pending": CheckState.PENDING}
_STYLES: Mapping[str, Sequence[str]] = {
    "merge": ("merge",),
    "squash": ("squash",),
    "rebase": ("rebase", "rebase-merge"),
}
_PERMITS = {
    "merge": "allow_merge_commits",
    "squash": "allow_squash_merge",
    "rebase": "allow_rebase",
    "rebase-merge": "allow_rebase_explicit",
    "fast-forward-only": "allow_fast_forward_only_merge",
}
CHECK_DELAYS_S = (1.0, 2.0)
"""Seconds between looks whether a server that does not tell drafts takes a title for one's."""
_PAGE = 50
"""The greatest size of a page that servers permit by default."""


def default_api(host: str) -> str:
    """Return the address of the API of a Gitea or Forgejo server."""
    return f"https://{host}/api/v1"


class Gitea(RestDialect):
    """The dialect of Gitea and Forgejo for one repository, `owner/name`."""

    def __init__(self, transport: Transport, name: str, rule: ForgeRule = UNCONFIGURED) -> None:
        self._owner = name.partition("/")[0]
        self._method = rule.merge_method
        self._draft_prefix = rule.draft_prefix
        self._label_ids: dict[str, int] = {}
        self._knows_drafts = False  # whether a draft of this run was seen that cannot be merged
        super().__init__(transport, name, f"/repos/{quote(name)}")

    def list_all(self) -> Iterator[list[ApiPullRequest]]:
        """Yield all pull requests from oldest to newest, so that a new one cannot shift a page."""
        yield from self._sorted("all", "oldest")

    def list_open(self) -> Iterator[list[ApiPullRequest]]:
        """Yield the open pull requests from oldest to newest."""
        yield from self._sorted("open", "oldest")

    def list_changed(self, _since: float = 0.0) -> Iterator[list[ApiPullRequest]]:
        """Yield the ended pull requests, the last change first."""
        yield from self._sorted("closed", "recentupdate")

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
        for page in self._sorted("open", "oldest"):
            yield from (pull for pull in page if pull.head == head)

    def find_recent(self, head: str, base: str = "") -> Iterator[ApiPullRequest]:
        """Yield the first open pull request of a branch, or the open ones among those that changed last."""
        if base and "/" not in base:
            with suppress(MissingError):
                pull = self._parse(self.transport.get(f"{self._pulls}/{base}/{quote(head)}").data)
                if pull.state is PullState.OPEN:
                    yield pull
                    return
        pages = self._sorted("open", "recentupdate")
        # A pull request of a moment ago is on the first page.
        yield from (pull for pull in next(pages, ()) if pull.head == head)

    def create(self, desired: PullRequest) -> ApiPullRequest:
        """Open a pull request; Gitea answers 404 for a missing branch as for a missing repository.

        Raises:
            RefusedError: A branch is missing, or a title with the prefix is no draft on this server. Such a
                pull request is closed again: without the mark of a draft it could be merged.
        """
        title = self._title(desired.title, draft=desired.draft)
        body = {"title": title, "head": desired.head, "base": desired.base, "body": desired.body}
        # Labels are ids of the repository or its organization, not names.
        labels = {"labels": self._ids(desired.labels)} if desired.labels else {}
        try:
            data = self.transport.write("POST", self._pulls, {**body, **labels}).data
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
        created = self._parse(data)
        if desired.draft and "draft" not in data:
            created = self._await_check(created)
        if desired.draft and not created.draft:
            self.close(created)
            raise RefusedError(
                f"{self.name}: the server takes no title with {self._draft_prefix!r} for a draft's",
                hint="Set draftPrefix of the rule in spec.forges to one of its WORK_IN_PROGRESS_PREFIXES.",
            )
        return created

    def _await_check(self, pull: ApiPullRequest) -> ApiPullRequest:
        """Read a new draft until its server has tried to merge it, which no draft passes; once a run."""
        if self._knows_drafts:
            return pull
        for delay in CHECK_DELAYS_S:
            self.transport.clock.sleep(delay)
            pull = self.find(pull.number)
            if not pull.draft:
                return pull
        self._knows_drafts = True
        return pull

    def set_labels(self, pull: ApiPullRequest, labels: tuple[str, ...]) -> ApiPullRequest:
        """Replace the labels; labels that neither the repository nor its organization has are created."""
        body = {"labels": self._ids(labels)}
        self.transport.write("PUT", f"{self._issues}/{pull.number}/labels", body, repeatable=True)
        return replace(pull, labels=labels)

    def assign(self, pull: ApiPullRequest, assignees: tuple[str, ...]) -> None:
        """Assign a pull request to people; those that it is assigned to stay."""
        # The list replaces the former one.
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
            # The answer to a second request for auto-merge.
            if "already scheduled" in str(error):
                return pull
            raise

    def _merge(self, pull: ApiPullRequest, expect: str, options: Mapping[str, bool]) -> ApiPullRequest:
        # With `head_commit_id` the server answers 409 if the head is another one by now.
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
        # A style that is not permitted is refused with 405.
        preferred = str(repository.get("default_merge_style") or "merge")
        styles = _STYLES[self._method] if self._method else (preferred, *_PERMITS)
        for style in styles:
            if repository.get(_PERMITS.get(style, ""), True):
                return style
        raise forbidden_method(self.name, self._method or preferred)

    def _ids(self, names: Iterable[str]) -> list[int]:
        """Return the ids of labels, of the repository or of its organization; those it lacks are created.

        They are listed once a run. Of two labels with one name the older counts. The server takes both from
        two runs at once; the run that created the younger one removes it.
        """
        names = tuple(names)
        if not set(names) <= self._label_ids.keys():
            labels = list(self.transport.items(f"{self._root}/labels", {"limit": 50}))
            with suppress(UnavailableError):  # the owner is a user, or the token may not read organizations
                labels += self.transport.items(f"/orgs/{quote(self._owner)}/labels", {"limit": 50})
            self._label_ids = {
                label["name"]: label["id"] for label in sorted(labels, key=lambda label: -label["id"])
            }
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

    def comments(self, number: int) -> Iterator[Comment]:
        """Yield the comments of the authenticated user."""
        for comment in self.transport.get(self._comments(number)).data:
            if comment["user"]["login"] == self._own_login():
                yield Comment(str(comment["id"]), comment["body"])

    def checks(self, commit: str) -> Iterator[Check]:
        """Yield the statuses of a commit, the newest of a name last."""
        query: Query = {"sort": "oldest", "limit": 50}
        statuses = self.transport.items(f"{self._root}/statuses/{commit}", query)
        # The server sorts by seconds: their ids tell the order of those of one second.
        for status in sorted(statuses, key=lambda status: int(status.get("id") or 0)):
            yield Check(status["context"], _CHECKS.get(status["status"], CheckState.FAILED))

    def issues(self) -> Iterator[Issue]:
        """Yield the issues of the authenticated user, open or closed."""
        login = self._own_login()
        # Without a type the list has pull requests, too.
        query: Query = {"type": "issues", "state": "all", "created_by": login, "limit": 50}
        for item in self.transport.items(self._issues, query):
            if item["user"]["login"] == login:
                is_open = item["state"] == "open"
                body = item.get("body") or ""
                yield Issue(item["number"], body, is_open, write_times(item), item["title"])

    def _sorted(self, state: str, sort: str) -> Iterator[list[ApiPullRequest]]:
        return self._list({"state": state, "sort": sort, "limit": _PAGE})

    def _comment(self, _: int, comment: Comment) -> str:
        return f"{self._issues}/comments/{comment.key}"

    def _head(self, item: Any) -> Any:
        return item["head"]["label"]

    def _is_from_this_repository(self, item: Any) -> bool:
        return bool(item["head"]["repo_id"] == item["base"]["repo_id"])

    def _parse(self, item: Mapping[str, Any]) -> ApiPullRequest:
        merged, title = bool(item.get("merged")), str(item["title"])
        labels = item.get("labels") or ()
        self._label_ids |= {label["name"]: label["id"] for label in labels}
        prefixes = (self._draft_prefix.strip().lower(), *_DRAFTS)
        prefix = next((p for p in prefixes if p and title.lower().startswith(p)), "")
        # Servers before 1.22 do not tell; there a title with a prefix counts, unless it could be merged.
        is_draft = bool(item.get("draft", prefix and not item.get("mergeable")))
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
