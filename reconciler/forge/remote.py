"""The forge over an API: everything but the spelling of requests, which is a dialect."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, NamedTuple, Protocol

from reconciler.errors import ConflictError, RefusedError, UnavailableError
from reconciler.forge import marker
from reconciler.forge.faults import InvalidError, MissingError
from reconciler.forge.http import Transport
from reconciler.inventory import PullRequest, PullState
from reconciler.layout import DRAFTS, PROPOSED
from reconciler.report.escape import terminal

LOOKS_S = (1.0, 2.0, 4.0, 8.0, 15.0, 30.0)
"""How long a forge's lists may lag behind its writes, in steps of seconds."""
LONGEST_TITLE = 250


@dataclass(frozen=True, slots=True)
class Seen:
    """A pull request as one forge tells of it; `body` is its whole text, `times` when it was written to.

    `closed` is when it was closed or merged, in seconds, 0 where the forge does not say. `unreadable` says
    why nothing but number and head could be read of it.
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


class Comment(NamedTuple):
    """A comment of ours."""

    key: str
    body: str


class Issue(NamedTuple):
    """An issue of ours; `is_open` is False once somebody closed it."""

    number: int
    body: str
    is_open: bool = True
    times: tuple[float, ...] = ()


class ExistsError(RefusedError):
    """The forge has an open pull request of this head already."""


class Dialect(Protocol):
    """How one kind of forge spells each step; `most_text` bounds a text, in characters."""

    name: str
    most_text: int

    def list_all(self) -> Iterator[Seen]:
        """Yield the repository's own pull requests, none from a fork."""
        ...

    def find_open(self, head: str) -> Iterator[Seen]:
        """Yield the open pull requests of a branch: a forge may have let two in at once."""
        ...

    def find(self, number: int) -> Seen:
        """Return a pull request; MissingError if there is none."""
        ...

    def create(self, wanted: PullRequest) -> Seen:
        """Open a pull request, one request; ExistsError, RefusedError without a branch."""
        ...

    def edit(self, seen: Seen, title: str, body: str, base: str) -> Seen:
        """Give it another title, text and base."""
        ...

    def set_labels(self, seen: Seen, labels: tuple[str, ...]) -> Seen:
        """Give it exactly these labels."""
        ...

    def mark_ready(self, seen: Seen) -> None:
        """Let it be no draft any more."""
        ...

    def mark_draft(self, seen: Seen) -> None:
        """Let it be a draft again."""
        ...

    def close(self, seen: Seen) -> None:
        """Close it."""
        ...

    def merge(self, seen: Seen, expect: str) -> Seen:
        """Merge it if its head is `expect`; InvalidError if it cannot be."""
        ...

    def comments(self, number: int) -> Iterator[Comment]:
        """Yield our own comments."""
        ...

    def add_comment(self, number: int, body: str) -> Comment:
        """Comment, one request."""
        ...

    def edit_comment(self, number: int, comment: Comment, body: str) -> None:
        """Change a comment of ours."""
        ...

    def checks(self, commit: str) -> Iterator[tuple[str, bool]]:
        """Yield the checks of a commit and whether each passed, the newest of a name last."""
        ...

    def issues(self) -> Iterator[Issue]:
        """Yield our own issues, open or closed."""
        ...

    def create_issue(self, title: str, body: str) -> Issue:
        """Open an issue, one request."""
        ...

    def edit_issue(self, number: int, body: str) -> None:
        """Give an issue of ours another text."""
        ...


class RemoteForge:
    """Pull requests of one repository on a forge with an API. Every method is safe to repeat.

    Looks before it creates, and again after every reply that got lost. What a person wrote is left
    alone: a title that is not ours, text around our part, labels that we did not set.
    """

    def __init__(self, dialect: Dialect, transport: Transport, instance: str) -> None:
        self.dialect = dialect
        self.transport = transport
        self._ours = (DRAFTS, PROPOSED, f"reconciler/{instance}/")
        self._counted = False

    def list_pulls(self) -> tuple[PullRequest, ...]:
        """Return the pull requests of our branches, sorted by number; the budget learns from them."""
        budget, name = self.transport.budget, self.dialect.name
        try:
            listed = {s.number: s for s in self.dialect.list_all() if s.head.startswith(self._ours)}
        except MissingError:
            budget.known(name)
            raise
        except UnavailableError:
            budget.unknown(name)
            raise
        if not self._counted:
            self._counted = True
            budget.known(name)
            budget.learn(time - self.transport.skew_s for seen in listed.values() for time in seen.times)
        return tuple(_pull(listed[number]) for number in sorted(listed) if not _is_duplicate(listed[number]))

    def ensure(self, wanted: PullRequest) -> PullRequest:
        """Open a pull request for `wanted.head`, or bring the open one up to date; return it.

        The text comes last: its hidden digest says that everything before it was written.
        """
        wanted = replace(wanted, title=terminal(wanted.title)[:LONGEST_TITLE])
        found = self._find_wanted(wanted) or self._create(wanted)
        if wanted.redraft and not found.draft:
            self.dialect.mark_draft(found)
            found = replace(found, draft=True)
        before = marker.parse(found.body).labels
        return _pull(self._text(self._label(found, before, wanted.labels), wanted))

    def mark_ready(self, number: int) -> None:
        """Mark a draft pull request as ready for review; do nothing if it is."""
        seen = self._find(number)
        if seen.state is PullState.OPEN and seen.draft:
            self.dialect.mark_ready(seen)

    def mark_draft(self, number: int) -> None:
        """Turn a pull request that is ready back into a draft; do nothing if it is one, or ended."""
        seen = self._find(number)
        if seen.state is PullState.OPEN and not seen.draft:
            self.dialect.mark_draft(seen)

    def close(self, number: int, *, comment: str, duplicate_of: int = 0) -> None:
        """Close a pull request with a comment; do nothing if it is merged.

        One that closed because its branch went still gets the comment, once.
        """
        seen = self._find(number)
        if comment and seen.state is not PullState.MERGED:
            self._comment(number, "close", comment, again=seen.state is PullState.OPEN)
        if seen.state is PullState.OPEN:
            if duplicate_of:
                self.dialect.edit(seen, seen.title, marker.mark_duplicate(seen.body, duplicate_of), seen.base)
            self.dialect.close(seen)

    def comment(self, number: int, *, key: str, body: str) -> None:
        """Write or update the one comment of ours that `key` names."""
        self._find(number)
        self._comment(number, key, body)

    def find_issue(self, key: str) -> Issue | None:
        """Return the issue of ours that `key` names, an open one rather than a closed one."""
        found = [issue for issue in self.dialect.issues() if marker.is_comment(key, issue.body)]
        self.transport.budget.learn(t - self.transport.skew_s for issue in found for t in issue.times)
        return min(found, key=lambda issue: (not issue.is_open, issue.number), default=None)

    def write_issue(self, key: str, title: str, body: str) -> Issue | None:
        """Open the one issue of ours that `key` names, or bring its text up to date; None if it was right.

        One that somebody closed stays closed: whoever closes it does not want it.
        """
        text = marker.comment_text(key, body, self.dialect.most_text)
        found = self.find_issue(key)
        if found is None:
            return self.transport.settle(
                lambda: self.dialect.create_issue(title, text), lambda: self.find_issue(key), LOOKS_S
            )
        if not found.is_open or found.body.replace("\r\n", "\n").rstrip() == text.rstrip():
            return None
        self.dialect.edit_issue(found.number, text)
        return found

    def merge(self, number: int, *, expect: str) -> str:
        """Merge a pull request whose head is still `expect`; return the merge commit's id."""
        seen = self._find(number)
        if seen.state is PullState.OPEN:
            _check_mergeable(seen, expect)
            seen = self._merge(seen, expect)
        if seen.state is not PullState.MERGED:
            raise RefusedError(f"Pull request {number} is closed")
        return seen.merge_oid

    def approve(self, number: int, *, expect: str) -> str:
        """Mark a pull request as ready if it is a draft, and merge it if its head is still `expect`."""
        seen = self._find(number)
        if seen.state is PullState.OPEN and seen.head_oid != expect:
            raise ConflictError(f"The head of pull request {number} moved")
        if seen.state is PullState.OPEN and seen.draft:
            self.dialect.mark_ready(seen)
        return self.merge(number, expect=expect)

    def passed_checks(self, commit: str) -> frozenset[str]:
        """Return the names of the checks of a commit that passed; the newest of a name counts."""
        return frozenset(name for name, passed in dict(self.dialect.checks(commit)).items() if passed)

    def _find_wanted(self, wanted: PullRequest) -> Seen | None:
        """Return the open pull request that is meant: by its number, else the first of its branch."""
        if wanted.number:
            try:
                found = self.dialect.find(wanted.number)
            except MissingError:
                return self._first_open(wanted.head)
            if found.state is PullState.OPEN:
                return found
        return self._first_open(wanted.head)

    def _first_open(self, head: str) -> Seen | None:
        return min(self.dialect.find_open(head), key=lambda seen: seen.number, default=None)

    def _create(self, wanted: PullRequest) -> Seen:
        text = marker.compose(
            wanted.body,
            wanted.title,
            wanted.labels,
            marker.Marked(""),
            self.dialect.most_text,
            content=wanted.digest,
        )
        whole = replace(wanted, body=text)

        def look() -> Seen | None:
            return self._first_open(wanted.head)

        try:
            made = self.transport.settle(lambda: self.dialect.create(whole), look, LOOKS_S)
            return self._keep_first(made)
        except ExistsError as error:
            found = self.transport.find_late(look, LOOKS_S)
            if found is None:
                raise UnavailableError(f"{error}, but it cannot be found") from error
            return found

    def _keep_first(self, made: Seen) -> Seen:
        """Look again after creating: of several pull requests of one branch the lowest number survives.

        Forges look and then insert without a lock, so two runs at once are both told that they created.
        """
        opened = {seen.number: seen for seen in (made, *self.dialect.find_open(made.head))}
        first, *others = (opened[number] for number in sorted(opened))
        for other in others:
            self.close(other.number, comment=duplicate_comment(first.number), duplicate_of=first.number)
        return first

    def _text(self, seen: Seen, wanted: PullRequest) -> Seen:
        """Bring title and text up to date; a title that is not the one we gave is a person's."""
        marked = marker.parse(seen.body)
        ours = marked.found and marked.title == marker.digest(seen.title)
        title = wanted.title if ours else seen.title
        mine = title if ours else wanted.title
        limit = self.dialect.most_text
        body = marker.compose(wanted.body, mine, wanted.labels, marked, limit, content=wanted.digest)
        if (title, body, wanted.base) == (seen.title, seen.body.replace("\r\n", "\n"), seen.base):
            return seen
        kept = self.dialect.edit(seen, title, body, wanted.base)
        return replace(kept, labels=seen.labels)

    def _label(self, seen: Seen, before: Iterable[str], wanted: Iterable[str]) -> Seen:
        """Set our labels; those of people stay."""
        gone = set(before) - set(wanted)
        labels = tuple(sorted((set(seen.labels) - gone) | set(wanted)))
        return seen if labels == tuple(sorted(seen.labels)) else self.dialect.set_labels(seen, labels)

    def _comment(self, number: int, key: str, body: str, *, again: bool = True) -> None:
        text = marker.comment_text(key, body, self.dialect.most_text)

        def look() -> Comment | None:
            return next((c for c in self.dialect.comments(number) if marker.is_comment(key, c.body)), None)

        found = look()
        if found is None:
            found = self.transport.settle(lambda: self.dialect.add_comment(number, text), look, LOOKS_S)
        if again and found.body.replace("\r\n", "\n").rstrip() != text.rstrip():
            self.dialect.edit_comment(number, found, text)

    def _merge(self, seen: Seen, expect: str) -> Seen:
        def look() -> Seen | None:
            now = self.dialect.find(seen.number)
            return now if now.state is PullState.MERGED else None

        try:
            return self.transport.settle(lambda: self.dialect.merge(seen, expect), look, LOOKS_S[:3])
        except InvalidError:
            now = self._find(seen.number)
            if now.state is PullState.OPEN:
                _check_mergeable(now, expect)
                raise
            return now

    def _find(self, number: int) -> Seen:
        try:
            return self.dialect.find(number)
        except MissingError as error:
            raise RefusedError(f"There is no pull request {number} in {self.dialect.name}") from error


def duplicate_comment(number: int) -> str:
    """Return what is said where a pull request is closed because another one of its branch is open."""
    return f"Pull request #{number} proposes the same branch and was opened first; this one is closed."


def _is_duplicate(seen: Seen) -> bool:
    return seen.state is not PullState.OPEN and marker.parse(seen.body).duplicate_of > 0


def write_times(item: Mapping[str, Any]) -> tuple[float, ...]:
    """Return when a pull request was written to, by whomever: opened, closed, last changed."""
    stamps = [item.get(name) for name in ("created_at", "updated_at", "closed_at")]
    return tuple(datetime.fromisoformat(stamp).timestamp() for stamp in dict.fromkeys(filter(None, stamps)))


def closed_time(item: Mapping[str, Any]) -> int:
    """Return when a pull request was closed, in seconds, 0 where the forge does not say."""
    stamp = item.get("closed_at")
    return int(datetime.fromisoformat(stamp).timestamp()) if stamp else 0


def _check_mergeable(seen: Seen, expect: str) -> None:
    if seen.draft:
        raise RefusedError(f"Pull request {seen.number} is a draft")
    if seen.head_oid != expect:
        raise ConflictError(f"The head of pull request {seen.number} moved")


def _pull(seen: Seen) -> PullRequest:
    marked = marker.parse(seen.body)
    return PullRequest(
        head=seen.head,
        base=seen.base,
        title=seen.title,
        body=marked.body,
        draft=seen.draft,
        number=seen.number,
        state=seen.state,
        head_oid=seen.head_oid,
        closed=seen.closed,
        labels=tuple(sorted(seen.labels)),
        url=seen.url,
        digest=marked.content,
        unreadable=seen.unreadable,
    )
