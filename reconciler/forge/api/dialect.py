"""Base of the dialects of forge APIs: pull requests as values, common requests, validation of replies.

A dialect has the requests that differ between forges. `ApiForge` uses the same methods of each one, those of
`GitHub`: another dialect joins `ApiDialect`, and the type checker tells what it lacks. Each write is one
request, and a method yields the items of a list page by page.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import datetime
from functools import wraps
from math import inf
from typing import Any, NamedTuple, TypeVar, cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from reconciler.base.errors import RefusedError, UnavailableError
from reconciler.forge.http import Transport
from reconciler.inventory.inventory import CheckState, HeadStatus, PullState
from reconciler.policy import ForgeKind, ForgeRule

T = TypeVar("T")
Query = Mapping[str, str | int]
UNCONFIGURED = ForgeRule("*", ForgeKind.LOCAL)
"""A rule with the defaults."""
MERGE_DELAYS_S = (1.0, 2.0)
"""Seconds between looks whether a pull request is merged, where the forge does that in its own time."""
_MALFORMED = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, msgspec.ValidationError)
"""Errors of reading fields that are missing, of another type, or times beyond all calendars."""


class ApiPullRequest(Struct, frozen=True):
    """A pull request as a forge returns it.

    Attributes:
        body: The whole text, people's parts included.
        key: The forge's own id, where its API needs one beside the number.
        times: The seconds at which it was opened, changed or closed, by any user.
        reviewers: The people and teams that are asked for a review.
        assignees: The people that it is assigned to.
        closed: The second at which it was closed or merged, 0 where the forge does not tell.
        handed: Whether the forge shows that it merges it by itself; a queue may do so, too.
        unreadable: Why only number and head could be read, "" if everything could.
    """

    number: int
    head: str
    base: str
    title: str
    body: str
    draft: bool
    state: PullState
    head_oid: str
    merge_oid: str = ""
    labels: tuple[str, ...] = ()
    url: str = ""
    key: str = ""
    times: tuple[float, ...] = ()
    closed: int = 0
    handed: bool = False
    unreadable: str = ""
    reviewers: tuple[str, ...] = ()
    assignees: tuple[str, ...] = ()

    @property
    def created(self) -> float:
        """The second at which it was opened, 0 if it is unreadable."""
        return self.times[0] if self.times else 0.0

    @property
    def changed(self) -> float:
        """The second at which it was last changed, infinite if it is unreadable."""
        return max(self.times, default=inf)


class Comment(NamedTuple):
    """A comment that the authenticated user wrote."""

    key: str
    body: str


class Check(NamedTuple):
    """The newest report of a check of a commit."""

    name: str
    state: CheckState


class Issue(NamedTuple):
    """An issue that the authenticated user opened, and any user may have closed."""

    number: int
    body: str
    is_open: bool = True
    times: tuple[float, ...] = ()
    title: str = ""


class PullRequestExistsError(RefusedError):
    """The forge already has an open pull request of this head."""


class PendingError(UnavailableError):
    """The forge has not finished its own work: on a branch after a push, on a pull request after a merge."""

    hint = "Run again: the forge had not finished its own work on this repository."


class Fields(NamedTuple):
    """The method that updates, the names of fields, and the value of the one that closes."""

    update: str
    number: str
    text: str
    base: str
    user: str
    state: str
    closed: str


class RestDialect(ABC):
    """The requests that differ between forges in paths and in the names of fields only: GitHub's, by default.

    `name` is the repository, `most_text` the greatest length of a text in characters, `most_comment` that of
    a comment. Without issues the dashboard is a file. Where statuses are those of a pull request, one that is
    to be opened gets its status afterwards.
    """

    most_text = 60_000
    most_comment = 60_000
    has_issues = True
    has_statuses_of_pulls = False
    _query = ""
    _draft_prefix = ""
    _draft_field = ""
    _longest_description = 255
    _fields = Fields("PATCH", "number", "body", "base", "login", "state", "closed")

    def __init__(self, transport: Transport, name: str, root: str, pulls: str = "pulls") -> None:
        self.name = name
        self.transport = transport
        self._root = root
        self._pulls = f"{root}/{pulls}"
        self._issues = f"{root}/issues"
        self._login = ""

    def has_pulls(self) -> bool:
        """Tell whether pull requests are switched on in the repository."""
        return (
            self.transport.get(f"{self._root}{self._query}").data.get("has_pull_requests", True) is not False
        )

    def is_empty(self) -> bool:
        """Tell whether the repository has no commit yet, as far as the forge tells it."""
        return self.transport.get(self._root).data.get("empty") is True

    def find(self, number: int) -> ApiPullRequest:
        """Return a pull request; MissingError if there is none."""
        return self._parse(self.transport.get(f"{self._pulls}/{number}").data)

    def edit(self, pull: ApiPullRequest, title: str, body: str, base: str) -> ApiPullRequest:
        """Replace title, text and base; a draft stays one."""
        moved = {self._fields.base: base} if base != pull.base else {}
        return self._update(
            pull, {"title": self._title(title, draft=pull.draft), self._fields.text: body, **moved}
        )

    def mark_ready(self, pull: ApiPullRequest) -> None:
        """Mark a draft as ready for review."""
        self._update(pull, {self._draft_field: False} if self._draft_field else {"title": pull.title})

    def mark_draft(self, pull: ApiPullRequest) -> None:
        """Turn a pull request into a draft."""
        title = {"title": self._title(pull.title, draft=True)}
        self._update(pull, {self._draft_field: True} if self._draft_field else title)

    def await_end(self, pull: ApiPullRequest) -> ApiPullRequest:
        """Return a pull request once it has ended, or as it was after a moment: a merge may take its time."""
        return self.transport.poll(lambda: self._find_ended(pull.number), MERGE_DELAYS_S) or pull

    def _find_ended(self, number: int) -> ApiPullRequest | None:
        pull = self.find(number)
        return None if pull.state is PullState.OPEN else pull

    def close(self, pull: ApiPullRequest) -> None:
        """Close a pull request."""
        self._update(pull, {self._fields.state: self._fields.closed})

    def add_comment(self, number: int, body: str) -> Comment:
        """Comment in one request."""
        reply = self.transport.write("POST", self._comments(number), {"body": body})
        return Comment(str(reply.data["id"]), reply.data["body"])

    def edit_comment(self, number: int, comment: Comment, body: str) -> None:
        """Replace the text of a comment."""
        path = self._comment(number, comment)
        self.transport.write(self._fields.update, path, {"body": body}, repeatable=True)

    def delete_comment(self, number: int, comment: Comment) -> None:
        """Remove a comment of the authenticated user; MissingError if it is gone."""
        self.transport.write("DELETE", f"{self._comment(number, comment)}{self._query}", repeatable=True)

    def create_issue(self, title: str, body: str) -> Issue:
        """Open an issue in one request."""
        reply = self.transport.write("POST", self._issues, {"title": title, self._fields.text: body})
        return Issue(reply.data[self._fields.number], body, title=title)

    def edit_issue(self, number: int, body: str, *, close: bool = False) -> None:
        """Replace the text of an issue, and close it if asked to."""
        state = {self._fields.state: self._fields.closed} if close else {}
        path = f"{self._issues}/{number}"
        self.transport.write(self._fields.update, path, {self._fields.text: body, **state}, repeatable=True)

    def issues(self) -> Iterator[Issue]:
        """Yield the issues of the authenticated user, open or closed; none where repositories have none."""
        return iter(())

    def assign(self, pull: ApiPullRequest, assignees: tuple[str, ...]) -> None:
        """Assign a pull request to people; do nothing where pull requests have no assignees."""
        del pull, assignees

    def request_reviews(self, pull: ApiPullRequest, reviewers: tuple[str, ...]) -> None:
        """Request reviews of people, and of teams of the owner by their name, in one request."""
        # A team is named without its organization there.
        teams = [name.rpartition("/")[2] for name in reviewers if "/" in name]
        body = {"reviewers": [name for name in reviewers if "/" not in name], "team_reviewers": teams}
        path = f"{self._pulls}/{pull.number}/requested_reviewers"
        self.transport.write("POST", path, body, repeatable=True)

    def set_status(self, commit: str, status: HeadStatus, _head: str, _number: int) -> None:
        """Set a status of a commit, with as much of its text as the forge takes.

        It is at the head of the pull request with this number, 0 if that is yet to be opened.
        """
        state = "success" if status.passed else "failure"
        body = {
            "state": state,
            "context": status.name,
            "description": status.text[: self._longest_description],
        }
        self.transport.write("POST", f"{self._root}/statuses/{commit}", body, repeatable=True)

    def wrote(self, pull: ApiPullRequest) -> bool:
        """Tell whether the authenticated user opened a pull request: then who edits it may write here."""
        item = self.transport.get(f"{self._pulls}/{pull.number}").data
        return bool((item.get("author") or item["user"])[self._fields.user] == self._own_login())

    def merging(self, _pulls: Collection[ApiPullRequest]) -> Collection[int] | None:
        """Return the numbers of those that the forge or its queue merges by itself, None if it tells none."""
        return None

    @abstractmethod
    def _parse(self, item: Any) -> ApiPullRequest: ...

    def _comments(self, number: int) -> str:
        return f"{self._issues}/{number}/comments"

    def _comment(self, number: int, comment: Comment) -> str:
        return f"{self._comments(number)}/{comment.key}"

    def _title(self, title: str, *, draft: bool) -> str:
        return f"{self._draft_prefix}{title}" if draft else title

    def _update(self, pull: ApiPullRequest, body: Mapping[str, Any]) -> ApiPullRequest:
        path = f"{self._pulls}/{pull.number}{self._query}"
        return self._parse(self.transport.write(self._fields.update, path, body, repeatable=True).data)

    def _list(self, query: Query) -> Iterator[list[ApiPullRequest]]:
        for page in self.transport.pages(self._pulls, query):
            yield [self._parse_item(item) for item in page]

    def _parse_item(self, item: Any) -> ApiPullRequest:
        """Parse an item of a list, whatever of it can be; the head of a fork may have the name of ours."""
        pull = parse_pull(item, self._parse, self._fields.number, self._head)
        # Without this a stranger's pull request would count as the draft of a package.
        return pull if self._is_from_this_repository(item) else replace(pull, head="")

    @abstractmethod
    def _head(self, item: Any) -> Any: ...

    @abstractmethod
    def _is_from_this_repository(self, item: Any) -> bool: ...

    def _own_login(self) -> str:
        # A GitHub App may not read /user: that dialect asks by GraphQL.
        self._login = self._login or str(self.transport.get("/user").data[self._fields.user])
        return self._login


def parse_pull(
    item: Any, parse: Callable[[Any], ApiPullRequest], number: str, head: Callable[[Any], Any]
) -> ApiPullRequest:
    """Parse an item of a list of pull requests; a malformed one keeps its number and head only.

    Args:
        item: The item of the reply.
        parse: Parses a well-formed item.
        number: The name of the field with the number.
        head: Returns the name of the item's branch.

    Raises: the error of parsing if even number or head is malformed: then the list cannot be used.
    """
    try:
        return _well_typed(parse(item))
    except _MALFORMED as error:
        branch = head(item)
        if not isinstance(branch, str) or not isinstance(item[number], int):
            raise
        why = f"the forge's answer is not as its API describes it ({_reason(error)})"
        return ApiPullRequest(item[number], branch, "", "", "", False, PullState.CLOSED, "", unreadable=why)


def validated(dialect: T) -> T:
    """Wrap a dialect so that a malformed reply raises UnavailableError instead of a TypeError or KeyError."""
    return cast("T", _Validated(dialect))


def write_times(item: Mapping[str, Any]) -> tuple[float, ...]:
    """Return the seconds at which a pull request or issue was opened, closed and last changed."""
    stamps = [item.get(name) for name in ("created_at", "updated_at", "closed_at")]
    return tuple(datetime.fromisoformat(stamp).timestamp() for stamp in dict.fromkeys(filter(None, stamps)))


def closed_time(item: Mapping[str, Any]) -> int:
    """Return the second at which a pull request was closed, 0 where the forge does not tell."""
    stamp = item.get("closed_at")
    return int(datetime.fromisoformat(stamp).timestamp()) if stamp else 0


def forbidden_method(name: str, method: str) -> RefusedError:
    """Return the error for a method of merging that a repository forbids."""
    return RefusedError(
        f"{name} does not permit to {method} pull requests",
        hint="Change mergeMethod of the rule in spec.forges, or the settings of the repository.",
    )


class _Validated:
    def __init__(self, dialect: Any) -> None:
        self._dialect = dialect

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._dialect, name)
        return _guarded(member, self._dialect.name) if callable(member) else member


def _guarded(call: Callable[..., Any], name: str) -> Callable[..., Any]:
    @wraps(call)
    def guarded(*arguments: Any, **options: Any) -> Any:
        try:
            result = call(*arguments, **options)
            return _guarded_items(result, name) if isinstance(result, Iterator) else _well_typed(result)
        except _MALFORMED as error:
            raise _unavailable(name, error) from error

    return guarded


def _guarded_items(result: Iterator[Any], name: str) -> Iterator[Any]:
    try:
        yield from map(_well_typed, result)
    except _MALFORMED as error:
        raise _unavailable(name, error) from error


def _well_typed(value: T) -> T:
    """Return what a dialect made of an answer; ValidationError if a field has another type than declared."""
    if not isinstance(value, ApiPullRequest | Check | Comment | Issue):
        return value
    return msgspec.convert(msgspec.to_builtins(value), type(value))


def _unavailable(name: str, error: Exception) -> UnavailableError:
    message = f"{name}: the forge's answer is not as its API describes it ({_reason(error)})"
    return UnavailableError(message, hint="Check spec.forges: is the API of this kind, at this address?")


def _reason(error: Exception) -> str:
    return f"no {error}" if isinstance(error, KeyError) else str(error)
