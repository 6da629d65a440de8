"""Dialects of forge APIs: the requests that differ between forges, and the validation of their replies."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import wraps
from math import inf
from typing import Any, NamedTuple, Protocol, cast

from msgspec import Struct

from reconciler.base.errors import RefusedError, UnavailableError
from reconciler.inventory.inventory import CheckState, HeadStatus, PullRequest, PullState
from reconciler.policy import ForgeKind, ForgeRule

Query = Mapping[str, str | int]
UNCONFIGURED = ForgeRule("*", ForgeKind.LOCAL)
"""A rule with the defaults."""
_MALFORMED = (AttributeError, IndexError, KeyError, TypeError, ValueError)
"""Errors of reading fields that are missing or of another type."""


class ApiPullRequest(Struct, frozen=True):
    """A pull request as a forge returns it.

    Attributes:
        body: The whole text, people's parts included.
        key: The forge's own id, where its API needs one beside the number.
        times: The seconds at which it was opened, changed or closed, by any user.
        reviewers: The people and teams that are asked for a review.
        assignees: The people that it is assigned to.
        closed: The second at which it was closed or merged, 0 where the forge does not tell.
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


class Issue(NamedTuple):
    """An issue that the authenticated user opened, and any user may have closed."""

    number: int
    body: str
    is_open: bool = True
    times: tuple[float, ...] = ()


class PullRequestExistsError(RefusedError):
    """The forge already has an open pull request of this head."""


class MergePendingError(UnavailableError):
    """The forge has not yet found out whether a pull request can be merged, as after another merge."""

    hint = "Run again: the forge had not finished its checks of this pull request."


class ApiDialect(Protocol):
    """Requests about the pull requests of one repository in the API of one kind of forge.

    Attributes:
        name: The repository, as `owner/name`.
        most_text: The greatest length of a text, in characters.
    """

    name: str
    most_text: int

    def has_pulls(self) -> bool:
        """Tell whether pull requests are switched on in the repository."""
        ...

    def list_all(self) -> Iterator[Sequence[ApiPullRequest]]:
        """Yield all pull requests, page by page; the heads of those from forks are empty."""
        ...

    def list_open(self) -> Iterator[Sequence[ApiPullRequest]]:
        """Yield the open pull requests, page by page; the heads of those from forks are empty."""
        ...

    def list_changed(self) -> Iterator[Sequence[ApiPullRequest]]:
        """Yield at least the ended pull requests, the last change first; heads from forks are empty."""
        ...

    def find_open(self, head: str, base: str = "") -> Iterator[ApiPullRequest]:
        """Yield open pull requests of a branch, at least one if there are any.

        With the base a forge may need fewer requests: their number does not grow with the repository.
        """
        ...

    def find_recent(self, head: str) -> Iterator[ApiPullRequest]:
        """Yield the open pull requests of a branch that were opened in the last minutes: a race opens two."""
        ...

    def find(self, number: int) -> ApiPullRequest:
        """Return a pull request; MissingError if there is none."""
        ...

    def create(self, desired: PullRequest) -> ApiPullRequest:
        """Open a pull request in one request, with labels where the forge takes them at once.

        PullRequestExistsError, RefusedError without a branch.
        """
        ...

    def edit(self, pull: ApiPullRequest, title: str, body: str, base: str) -> ApiPullRequest:
        """Replace title, text and base; a draft stays one."""
        ...

    def set_labels(self, pull: ApiPullRequest, labels: tuple[str, ...]) -> ApiPullRequest:
        """Replace the labels."""
        ...

    def request_reviews(self, pull: ApiPullRequest, reviewers: tuple[str, ...]) -> None:
        """Request reviews of people and teams (`owner/team`); InvalidError if the forge refuses one."""
        ...

    def assign(self, pull: ApiPullRequest, assignees: tuple[str, ...]) -> None:
        """Also assign a pull request to people; InvalidError if the forge refuses one."""
        ...

    def mark_ready(self, pull: ApiPullRequest) -> None:
        """Mark a draft as ready for review."""
        ...

    def mark_draft(self, pull: ApiPullRequest) -> None:
        """Turn a pull request into a draft."""
        ...

    def close(self, pull: ApiPullRequest) -> None:
        """Close a pull request."""
        ...

    def reopen(self, pull: ApiPullRequest) -> None:
        """Open a closed pull request again; InvalidError without its branch."""
        ...

    def merge(self, pull: ApiPullRequest, expect: str) -> ApiPullRequest:
        """Merge a pull request if its head is `expect`; MergePendingError, InvalidError if it cannot be."""
        ...

    def enable_auto_merge(self, pull: ApiPullRequest, expect: str) -> ApiPullRequest:
        """Let the forge merge this head when its rules are met, at once if they are; raises as `merge`."""
        ...

    def comments(self, number: int) -> Iterator[Comment]:
        """Yield the comments that the authenticated user wrote on a pull request."""
        ...

    def add_comment(self, number: int, body: str) -> Comment:
        """Comment in one request."""
        ...

    def edit_comment(self, number: int, comment: Comment, body: str) -> None:
        """Replace the text of a comment."""
        ...

    def checks(self, commit: str) -> Iterator[tuple[str, CheckState]]:
        """Yield the checks of a commit with their states, the newest of a name last."""
        ...

    def set_status(self, commit: str, status: HeadStatus) -> None:
        """Set a status of a commit in one request; the newest of a name counts."""
        ...

    def issues(self) -> Iterator[Issue]:
        """Yield the issues that the authenticated user opened, closed ones too."""
        ...

    def create_issue(self, title: str, body: str) -> Issue:
        """Open an issue in one request."""
        ...

    def edit_issue(self, number: int, body: str) -> None:
        """Replace the text of an issue."""
        ...


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


def validated(dialect: ApiDialect) -> ApiDialect:
    """Wrap a dialect so that a malformed reply raises UnavailableError instead of a TypeError or KeyError."""
    return cast("ApiDialect", _Validated(dialect))


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
    def __init__(self, dialect: ApiDialect) -> None:
        self._dialect = dialect

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._dialect, name)
        return _guarded(member, self._dialect.name) if callable(member) else member


def _guarded(call: Callable[..., Any], name: str) -> Callable[..., Any]:
    @wraps(call)
    def guarded(*arguments: Any, **options: Any) -> Any:
        try:
            result = call(*arguments, **options)
        except _MALFORMED as error:
            raise _unavailable(name, error) from error
        return _guarded_items(result, name) if isinstance(result, Iterator) else result

    return guarded


def _guarded_items(result: Iterator[Any], name: str) -> Iterator[Any]:
    try:
        yield from result
    except _MALFORMED as error:
        raise _unavailable(name, error) from error


def _well_typed(pull: ApiPullRequest) -> ApiPullRequest:
    """Return a pull request; TypeError if a field has another type than the rest of the package expects."""
    texts = [pull.head, pull.base, pull.title, pull.body, pull.head_oid, pull.merge_oid, pull.url, pull.key]
    wrong = [type(value).__name__ for value in (*texts, *pull.labels) if type(value) is not str]
    if wrong or type(pull.number) is not int:
        raise TypeError(f"{wrong[0]} instead of text" if wrong else "its number is not an integer")
    return pull


def _unavailable(name: str, error: Exception) -> UnavailableError:
    message = f"{name}: the forge's answer is not as its API describes it ({_reason(error)})"
    return UnavailableError(message, hint="Check spec.forges: is the API of this kind, at this address?")


def _reason(error: Exception) -> str:
    return f"no {error}" if isinstance(error, KeyError) else str(error)
