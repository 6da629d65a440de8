"""Lists of pull requests: all there are, or those that changed since a recorded list."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from math import ceil
from typing import NamedTuple

from reconciler.forge.api.dialect import ApiPullRequest
from reconciler.forge.api.products import ApiDialect
from reconciler.forge.http import HOUR_S
from reconciler.inventory.inventory import PullRequest, PullState
from reconciler.names.refs import DRAFTS, PROPOSED, workspace_number
from reconciler.records.state import EndedPull, PullHistory, PullMark

LAG_S = 60.0
"""For how long the lists of a forge may lag behind its writes."""


class Listing(NamedTuple):
    """Pull requests by number, those of people and forks too, as a forge listed them.

    `mark` is the one that changed last, None if there is none, or if the repository is another one than that
    of the recorded mark. `is_long` tells whether a list of what changes from now on takes fewer requests.
    """

    pulls: Mapping[int, ApiPullRequest]
    mark: PullMark | None
    is_long: bool


def list_all(dialect: ApiDialect) -> Listing:
    """List every pull request that there ever was."""
    pages = list(dialect.list_all())
    pulls = _by_number(pages)
    ended = (pull for pull in pulls.values() if pull.state is not PullState.OPEN)
    opened = sum(pull.state is PullState.OPEN for pull in pulls.values())
    most = max(map(len, pages), default=0) or 1
    is_long = len(pages) > max(1, ceil(opened / most)) + 1
    return Listing(pulls, _newest(ended), is_long)


def list_since(dialect: ApiDialect, mark: PullMark, now: Callable[[], float]) -> Listing:
    """List the open pull requests, and those that ended since the mark or in the last hour.

    Args:
        dialect: The requests.
        mark: The pull request that had changed last when an earlier run listed them.
        now: Returns the forge's time, which is known after the first request.
    """
    # What ends between the two lists is in the second one.
    opened = _by_number(dialect.list_open())
    hour_ago = now() - HOUR_S  # the budget counts the writes of an hour
    pages = _changed_pages(dialect, min(mark.changed - LAG_S, hour_ago))
    changed = _by_number(pages)
    pulls = {**opened, **changed}
    listed = pulls.get(mark.number)
    if listed is None or listed.created != mark.created:
        return Listing(pulls, None, is_long=False)
    newest = _newest(changed.values()) or mark
    start = min(newest.changed - LAG_S, hour_ago)
    is_long = len(pages) > 1 and all(pull.changed < start for pull in pages[-1])
    return Listing(pulls, newest, is_long)


def _changed_pages(dialect: ApiDialect, since: float) -> list[Sequence[ApiPullRequest]]:
    """Return the pages of the pull requests that changed since a time, the newest change first."""
    pages: list[Sequence[ApiPullRequest]] = []
    for page in dialect.list_changed(since):
        pages.append(page)
        if any(pull.changed < since for pull in page):
            break
    if len(pages) > 1:
        # What changes while pages are read moves to the front, out of the pages to come.
        seen = {pull for page in pages for pull in page}
        front = []
        for page in dialect.list_changed(since):
            front.append(page)
            if not seen.isdisjoint(page):
                break
        pages = [*front, *pages]
    return pages


def _by_number(pages: Iterable[Iterable[ApiPullRequest]]) -> dict[int, ApiPullRequest]:
    """Return the pull requests of all pages, each once: a page may repeat an item of the page before it."""
    pulls: dict[int, ApiPullRequest] = {}
    for pull in (pull for page in pages for pull in page):
        there = pulls.get(pull.number)
        if there is None or pull.changed >= there.changed:
            pulls[pull.number] = pull
    return pulls


def _newest(pulls: Iterable[ApiPullRequest]) -> PullMark | None:
    marks = (PullMark(p.number, p.created, p.changed) for p in pulls if p.times)
    return max(marks, key=lambda mark: (mark.changed, mark.number), default=None)


def recorded_pulls(history: PullHistory) -> Iterator[PullRequest]:
    """Yield the ended pull requests of a history, without their texts."""
    for pull in history.pulls:
        yield PullRequest(
            head=pull.head,
            base="",
            title="",
            body="",
            draft=False,
            number=pull.number,
            state=PullState(pull.state),
            head_oid=pull.head_oid,
            closed=pull.closed,
            url=pull.url,
            proposes=pull.proposes,
        )


def remember(
    url: str, pulls: Iterable[PullRequest], branches: Collection[str], mark: PullMark
) -> PullHistory:
    """Return what a later plan may need of the ended pull requests of a repository, however old they are.

    All of a branch that is there; of any other branch the last one, of the drafts of a package the last one
    and the one with the greatest number. That is enough to tell what was rejected or merged, and which names
    were used.

    Args:
        url: The normalised URL of the repository.
        pulls: All pull requests of our branches.
        branches: The branches of the repository.
        mark: The pull request that had changed last.
    """
    ended = [pull for pull in pulls if pull.state is not PullState.OPEN]
    remembered = {pull.number: pull for pull in ended if pull.head in branches}
    subjects: dict[str, list[PullRequest]] = {}
    for pull in ended:
        subjects.setdefault(_subject(pull.head), []).append(pull)
    for members in subjects.values():
        last = max(members, key=lambda pull: pull.number)
        highest = max(members, key=lambda pull: (_number(pull.head), pull.number))
        remembered |= {last.number: last, highest.number: highest}
    return PullHistory(
        url=url,
        mark=mark,
        pulls=tuple(
            EndedPull(
                number=number,
                head=pull.head,
                state="merged" if pull.state is PullState.MERGED else "closed",
                head_oid=pull.head_oid,
                closed=pull.closed,
                url=pull.url,
                proposes=pull.proposes,
            )
            for number, pull in sorted(remembered.items())
        ),
        branches=tuple(sorted(branch for branch in branches if _is_draft(branch))),
    )


def next_history(
    url: str, listing: Listing, pulls: Iterable[PullRequest], branches: Collection[str]
) -> PullHistory | None:
    """Return the history to record after a list that it would have shortened, else None.

    What is unreadable stays in every list until it is readable.
    """
    pulls = tuple(pulls)
    if not listing.is_long or listing.mark is None or any(pull.unreadable for pull in pulls):
        return None
    return remember(url, pulls, branches, listing.mark)


def is_complete(history: PullHistory, branches: Iterable[str]) -> bool:
    """Tell whether a history has every pull request of any branch that ended before it.

    A branch that came back may have one that the history left out. Numbers of drafts only grow, so a branch
    with a greater number than the ended ones of its package is newer than the history.
    """
    highest: dict[str, int] = {}
    for pull in history.pulls:
        subject = _subject(pull.head)
        highest[subject] = max(highest.get(subject, 0), _number(pull.head))
    others = {branch for branch in branches if _is_draft(branch)}.difference(history.branches)
    return all(_number(branch) > highest.get(_subject(branch), 0) for branch in others)


def _is_draft(branch: str) -> bool:
    return branch.startswith((DRAFTS, PROPOSED))


def _subject(head: str) -> str:
    """Return what a branch is about: the package of a draft, else the branch itself."""
    return head.rpartition("/")[0] if _is_draft(head) else head


def _number(head: str) -> int:
    return workspace_number(head.rpartition("/")[2])
