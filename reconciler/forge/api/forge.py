"""Pull requests on a forge with an API: the steps that all forges share; requests are an `ApiDialect`'s."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple, TypeGuard

from msgspec.structs import replace

from reconciler.base.errors import ConflictError, RefusedError, UnavailableError
from reconciler.base.redact import mask_credentials, refuse_credentials
from reconciler.base.text import terminal
from reconciler.forge import body_marker
from reconciler.forge.api.dialect import ApiPullRequest, Comment, Issue, PendingError, PullRequestExistsError
from reconciler.forge.api.listing import (
    Listing,
    is_complete,
    list_all,
    list_since,
    next_history,
    recorded_pulls,
)
from reconciler.forge.api.products import ApiDialect
from reconciler.forge.body_marker import outgoing_pull
from reconciler.forge.http import Transport
from reconciler.http.client import ForbiddenError, InvalidError, MissingError
from reconciler.inventory.inventory import CheckState, HeadStatus, PullRequest, PullState
from reconciler.names.refs import DRAFTS, PROPOSED
from reconciler.records.state import PullHistory

POLL_DELAYS_S = (1.0, 2.0, 4.0, 8.0, 15.0, 30.0)
"""Seconds between looks for an effect: the lists of a forge may lag behind its writes by a minute."""
MERGE_DELAYS_S = POLL_DELAYS_S[:3]
RECHECK_DELAYS_S = POLL_DELAYS_S[:5]
"""Seconds between attempts to merge while the forge checks: it does so for each one after every merge."""
LONGEST_TITLE = 250
PROTECTED_HINT = (
    "Do what the protection of the branch demands. With autoMerge: true in the rule of spec.approval.auto "
    "the forge, or its merge queue, merges as soon as that is done."
)
_REVIEWER = "reviewer/"
_ASSIGNEE = "assignee/"


class KnownPulls(NamedTuple):
    """The pull requests that a plan may depend on, and the history that spares the next run a long list.

    With `is_due` the history replaces one that was of no use: it is to be recorded whatever else changes.
    """

    pulls: tuple[PullRequest, ...]
    history: PullHistory | None
    is_due: bool = False


class ApiForge:
    """Pull requests of one repository on a forge with an API. Every method is safe to repeat.

    Looks before it creates, and again after every lost reply. Text of people is kept: an edited title,
    text around the generated part, labels that a run did not set.
    """

    def __init__(self, dialect: ApiDialect, transport: Transport, instance: str) -> None:
        self.dialect = dialect
        self.transport = transport
        # Branches of drafts and proposals as Porch calls them, and the other branches of this instance.
        self._head_prefixes = (DRAFTS, PROPOSED, f"reconciler/{instance}/")
        self._counted = False  # every listing returns all times: they count once

    def list_pulls(self) -> tuple[PullRequest, ...]:
        """Return the pull requests of our branches, sorted by number; their writes count in the budget."""
        return self._our_pulls(self._read(lambda: list_all(self.dialect)))

    def list_known(self, url: str, history: PullHistory | None, branches: Collection[str]) -> KnownPulls:
        """Return the pull requests that a plan may depend on, and the history to record.

        Lists those that are open and those that changed since the history; everything without one, and where
        the repository or a branch may have pull requests that the history does not know.

        Args:
            url: The normalised URL of the repository.
            history: What an earlier run recorded of ended pull requests.
            branches: The branches of the repository, read before this.
        """
        if history is not None:
            # Lists of ended pull requests grow for years; most runs need the last hour of them.
            recent = self._read(lambda: list_since(self.dialect, history.mark, self._now))
            pulls = self._our_pulls(recent, history)
            if recent.mark is not None and is_complete(history, branches):
                return KnownPulls(pulls, next_history(url, recent, pulls, branches) or history)
        listing = self._read(lambda: list_all(self.dialect))
        pulls = self._our_pulls(listing)
        following = next_history(url, listing, pulls, branches)
        return KnownPulls(pulls, following, is_due=history is not None)

    def _now(self) -> float:
        """Return the forge's time."""
        return self.transport.clock.now() + self.transport.skew_s

    def _read(self, read: Callable[[], Listing]) -> Listing:
        """Read a list. If that fails, the share of the budget of this repository counts as spent."""
        budget, name = self.transport.budget, self.dialect.name
        try:
            listing = read()
        except (ForbiddenError, MissingError) as error:
            if isinstance(error, MissingError):
                budget.mark_read(name)
            else:
                budget.mark_unread(name)
            if isinstance(error, MissingError) and self._is_empty():
                return Listing({}, None, is_long=False)
            # Forges answer as if the repository were missing, or forbidden.
            if not self._has_pulls():
                raise UnavailableError(
                    f"Pull requests of {name} are switched off",
                    hint="Switch them on in the settings of the repository.",
                ) from error
            raise
        except UnavailableError:
            budget.mark_unread(name)
            raise
        # The times of what is listed are the writes of earlier runs: no state of the budget is kept.
        if not self._counted:
            self._counted = True
            budget.mark_read(name)
            pulls = (p for p in listing.pulls.values() if p.head.startswith(self._head_prefixes))
            budget.learn(time - self.transport.skew_s for pull in pulls for time in pull.times)
        return listing

    def _has_pulls(self) -> bool:
        """Tell whether pull requests are switched on, as far as the repository can be read."""
        try:
            return self.dialect.has_pulls()
        except UnavailableError:
            return True

    def _is_empty(self) -> bool:
        """Tell whether the repository has no commit yet, as far as it can be read."""
        try:
            return self.dialect.is_empty()
        except UnavailableError:
            return False

    def _our_pulls(self, listing: Listing, history: PullHistory | None = None) -> tuple[PullRequest, ...]:
        """Return the pull requests of our branches, by number; the listed ones replace the recorded."""
        pulls = {pull.number: pull for pull in recorded_pulls(history)} if history else {}
        for number, pull in listing.pulls.items():
            pulls.pop(number, None)
            is_open = pull.state is PullState.OPEN or not body_marker.parse(pull.body).duplicate_of
            if pull.head.startswith(self._head_prefixes) and is_open:
                # The ticks of another account's pull request do not count: its author may edit its text.
                read = _to_pull_request(pull)
                is_by_us = not read.ticks or (has_issues(self) and self.dialect.wrote(pull))
                pulls[number] = read if is_by_us else replace(read, ticks=None)
        handed = [
            n for n, p in pulls.items() if p.state is PullState.OPEN and p.auto_merge == p.head_oid != ""
        ]
        for number in self._dropped([listing.pulls[number] for number in handed]):
            pulls[number] = replace(pulls[number], is_dropped=True)
        return tuple(pulls[number] for number in sorted(pulls))

    def _dropped(self, handed: Sequence[ApiPullRequest]) -> Iterator[int]:
        """Yield the numbers of those that the forge was asked to merge, and merges by itself no more."""
        # GitHub drops auto-merge after a push of somebody without write access, and a queue what fails in it.
        merging = self.dialect.merging(handed) if handed else None
        if merging is None:
            return
        for pull in handed:
            # One that was merged since it was listed has left the queue, too.
            if pull.number not in merging and self.dialect.find(pull.number).state is PullState.OPEN:
                yield pull.number

    def ensure(self, desired: PullRequest) -> PullRequest:
        """Open a pull request for `desired.head`, or update the open one; return it.

        The text is written last: its hidden digest tells that everything else was written.
        """
        # GitHub takes titles of up to 256 characters, GitLab of 255.
        desired = outgoing_pull(replace(desired, title=terminal(desired.title)[:LONGEST_TITLE]))
        pull = self._find_current(desired)
        # Before the pull request is there: its text then tells that this head has its status.
        is_late = pull is None and self.dialect.has_statuses_of_pulls
        unset = None if is_late else self._set_status(pull, desired)
        without = replace(desired, status=None, head_oid="")
        if pull is None:
            pull = self._create(without if is_late or unset else desired)
        unset = self._set_status(pull, desired) if is_late else unset
        desired = without if unset else desired
        if desired.redraft and not pull.draft:
            self.dialect.mark_draft(pull)
            pull = replace(pull, draft=True)
        marked = body_marker.parse(pull.body)
        # Replace the labels of an earlier run by the desired ones; labels of people are kept
        # Most forges replace all labels at once, those of people too.
        removed = set(marked.labels) - set(desired.labels)
        labels = tuple(sorted((set(pull.labels) - removed) | set(desired.labels)))
        pull = pull if labels == tuple(sorted(pull.labels)) else self.dialect.set_labels(pull, labels)
        refused = self._ask_people(pull, set(marked.people), desired)
        if refused is not None:
            # The text does not wait for people; without a digest it says that something is missing.
            self._update_text(pull, replace(desired, digest="", reviewers=(), assignees=()))
            raise refused
        updated = self._update_text(pull, desired)
        if unset is not None:
            raise unset
        return _to_pull_request(updated)

    def mark_ready(self, number: int) -> None:
        """Mark an open draft as ready for review."""
        pull = self._find(number)
        if pull.state is PullState.OPEN and pull.draft:
            self.dialect.mark_ready(pull)

    def mark_draft(self, number: int) -> None:
        """Turn an open pull request that is ready into a draft."""
        pull = self._find(number)
        if pull.state is PullState.OPEN and not pull.draft:
            self.dialect.mark_draft(pull)

    def close(self, number: int, *, comment: str, duplicate_of: int = 0) -> None:
        """Close a pull request with a comment, unless it is merged.

        A pull request that the forge closed with its branch still gets the comment, once.
        """
        pull = self._find(number)
        is_open = pull.state is PullState.OPEN
        if comment and pull.state is not PullState.MERGED:
            self._write_comment(number, "close", comment, update=is_open)
        # Before it is closed: a run that is killed between would leave a rejection of a person.
        if is_open and duplicate_of:
            body = body_marker.mark_duplicate(pull.body, duplicate_of)
            self.dialect.edit(pull, pull.title, body, pull.base)
        if is_open:
            self.dialect.close(pull)

    def comment(self, number: int, *, key: str, body: str) -> None:
        """Write the comment with this hidden key, or update its text."""
        self._find(number)
        self._write_comment(number, key, body)

    def find_issues(self, key: str, title: str) -> tuple[Issue, ...]:
        """Return the issues with this hidden key or this title, open ones first, then by number.

        The first one counts. Two runs at once may open two, and people may wipe a text with its key.
        """
        issues = [i for i in self.dialect.issues() if i.title == title or body_marker.is_comment(key, i.body)]
        self.transport.budget.learn(t - self.transport.skew_s for issue in issues for t in issue.times)
        return tuple(sorted(issues, key=lambda issue: (not issue.is_open, issue.number)))

    def write_issue(self, key: str, title: str, body: str) -> Issue | None:
        """Open the issue with this hidden key, or update its text; return None if it was up to date.

        A closed issue stays closed: closing it is how people turn it off. Text of people around ours is kept,
        and another open issue of this key is closed.
        """
        refuse_credentials(f"{key} {title}", "The title of the dashboard")
        issues, body = self.find_issues(key, title), mask_credentials(body)
        if is_new := not issues:
            text = body_marker.issue_text(key, body, "", self.dialect.most_text)
            created = self.transport.write_once(
                lambda: self.dialect.create_issue(title, text),
                lambda: next(iter(self.find_issues(key, title)), None),
                POLL_DELAYS_S,
                attempts=1,
            )
            issues = self.find_issues(key, title) or (created,)
        first, *others = issues
        for other in others:
            if other.is_open:
                self.dialect.edit_issue(other.number, f"#{first.number} was opened first.", close=True)
        text = body_marker.issue_text(key, body, first.body, self.dialect.most_text)
        if is_new or not first.is_open or body_marker.same_text(first.body, text):
            return first if is_new else None
        self.dialect.edit_issue(first.number, text)
        return first

    def merge(self, number: int, *, expect: str) -> str:
        """Merge a pull request if its head is still `expect`; return the merge commit's id.

        Where the branch demands a merge queue, it joins that and "" is returned.

        Raises:
            RefusedError: It is a draft, closed, or cannot be merged.
            ConflictError: Its head moved.
        """
        pull = self._find(number)
        if pull.state is PullState.OPEN:
            self._check_mergeable(pull, expect)
            pull = self._merge(pull, expect)
        if pull.state is PullState.OPEN:
            self._mark_handed(pull, expect)
            return ""
        if pull.state is not PullState.MERGED:
            raise RefusedError(f"Pull request {number} is closed")
        return pull.merge_oid

    def approve(self, number: int, *, expect: str) -> str:
        """Mark a draft as ready, and merge it if its head is still `expect`; raises as `merge`."""
        self._propose(number, expect)
        return self.merge(number, expect=expect)

    def enable_auto_merge(self, number: int, *, expect: str) -> bool:
        """Mark a draft as ready, and let the forge merge this head by itself; tell whether it did at once.

        Raises:
            RefusedError: The forge refuses, as where auto-merge is off.
            ConflictError: Its head moved.
        """
        pull = self._propose(number, expect)
        if pull.state is PullState.OPEN:
            pull = self._enable_auto_merge(pull, expect)
        if pull.state is PullState.OPEN:
            self._mark_handed(pull, expect)
        if pull.state is PullState.CLOSED:
            raise RefusedError(f"Pull request {number} is closed")
        return pull.state is PullState.MERGED

    def changed_at(self, number: int) -> int:
        """Return when a pull request was last changed, 0 if it cannot be read."""
        with suppress(UnavailableError):
            return _to_pull_request(self.dialect.find(number)).changed
        return 0

    def _mark_handed(self, pull: ApiPullRequest, head: str) -> None:
        """Remember in the text what the forge was asked to merge: not every one shows what waits for that."""
        body = body_marker.mark_auto_merge(pull.body, head)
        if not body_marker.same_text(body, pull.body):
            self.dialect.edit(pull, pull.title, body, pull.base)

    def _enable_auto_merge(self, pull: ApiPullRequest, expect: str) -> ApiPullRequest:
        try:
            return self._until_done(lambda: self.dialect.enable_auto_merge(pull, expect))
        except InvalidError as error:
            message = f"Pull request {pull.number}: the forge does not enable auto-merge: {error}"
            hint = "Allow auto-merge in the settings of the repository, or leave out autoMerge."
            raise RefusedError(message, hint=hint) from error

    def _propose(self, number: int, expect: str) -> ApiPullRequest:
        """Mark an open draft as ready if its head is still `expect`; return the pull request.

        It stays ready if the forge refuses what follows: the next run asks for that again, and marks nothing.
        """
        pull = self._find(number)
        if pull.state is PullState.OPEN:
            _check_head(pull, expect)
        if pull.state is not PullState.OPEN or not pull.draft:
            return pull
        # Forges merge no draft.
        self.dialect.mark_ready(pull)
        return replace(pull, draft=False)

    def checks(self, commit: str) -> Mapping[str, CheckState]:
        """Return the checks of a commit by name, each as its newest run left it."""
        return dict(self.dialect.checks(commit))

    def _find_current(self, desired: PullRequest) -> ApiPullRequest | None:
        """Return the open pull request with the desired number, else the first of the desired head."""
        if desired.number:
            try:
                pull = self.dialect.find(desired.number)
            except MissingError:
                return self._first_open(desired.head, desired.base)
            if pull.state is PullState.OPEN:
                return pull
        return self._first_open(desired.head, desired.base)

    def _first_open(self, head: str, base: str = "") -> ApiPullRequest | None:
        return min(self.dialect.find_open(head, base), key=lambda pull: pull.number, default=None)

    def _create(self, desired: PullRequest) -> ApiPullRequest:
        # Without a digest until the people are asked: a run that is killed between is completed by the next.
        started = replace(desired, digest="", reviewers=(), assignees=()) if _people(desired) else desired
        request = replace(desired, body=self._compose(started, body_marker.MarkedBody("")))

        def look() -> ApiPullRequest | None:
            return self._first_open(desired.head)

        try:
            created = self._until_done(
                lambda: self.transport.write_once(lambda: self.dialect.create(request), look, POLL_DELAYS_S)
            )
            return self._close_duplicates(created)
        except PullRequestExistsError as error:
            pull = self.transport.poll(look, POLL_DELAYS_S)
            if pull is None:
                raise UnavailableError(f"{error}, but it cannot be found") from error
            return pull

    def _close_duplicates(self, created: ApiPullRequest) -> ApiPullRequest:
        """Look again after creating; of several pull requests of one branch keep the lowest number.

        Forges look and then insert without a lock, so two concurrent runs may both succeed in creating.
        """
        recent = (*self.dialect.find_recent(created.head, created.base), created)
        opened = {pull.number: pull for pull in recent}
        first, *others = (opened[number] for number in sorted(opened))
        for other in others:
            why = f"Pull request #{first.number} proposes the same branch and was opened first"
            self.close(other.number, comment=f"{why}; this one is closed.", duplicate_of=first.number)
        # A list may cut the texts of the others.
        return created if first.number == created.number else self.dialect.find(first.number)

    def _update_text(self, pull: ApiPullRequest, desired: PullRequest) -> ApiPullRequest:
        """Update title and text; a title that differs from the generated one is kept."""
        marked = body_marker.parse(pull.body)
        # Only the title that the marker was written with is ours.
        is_generated = marked.has_marker and marked.title == body_marker.digest(pull.title)
        title = desired.title if is_generated else pull.title
        body = self._compose(desired, marked)
        # A web form turns every line break into CR and LF.
        present = (pull.title, body_marker.normalise_newlines(pull.body), pull.base)
        if (title, body, desired.base) == present:
            return pull
        return replace(self.dialect.edit(pull, title, body, desired.base), labels=pull.labels)

    def _compose(self, desired: PullRequest, around: body_marker.MarkedBody) -> str:
        return body_marker.compose(
            desired.body,
            desired.title,
            desired.labels,
            around,
            self.dialect.most_text,
            content=desired.digest,
            people=_people(desired),
            auto_merge=around.auto_merge,
            difference=desired.difference,
            status=_status_of(desired),
            proposes=desired.proposes,
        )

    def _set_status(self, pull: ApiPullRequest | None, desired: PullRequest) -> RefusedError | None:
        """Set the status of the head, unless its text records that; return the error if the forge refuses."""
        status = _status_of(desired)
        if desired.status is None or not status:
            return None
        if pull is not None and body_marker.parse(pull.body).status == status:
            return None
        try:
            self.dialect.set_status(
                desired.head_oid, desired.status, desired.head, pull.number if pull else 0
            )
        except (InvalidError, MissingError, RefusedError) as error:
            message = f"The forge does not set status {desired.status.name} on {desired.head}: {error}"
            hint = "Permit the token to write commit statuses, or leave out spec.pullRequests.status."
            return RefusedError(message, hint=hint)
        return None

    def _ask_people(
        self, pull: ApiPullRequest, before: set[str], desired: PullRequest
    ) -> RefusedError | None:
        """Request reviews and assign, each person once; return an error if the forge refuses any.

        People whom others took away are not asked again.
        """
        reviewers = tuple(name for name in desired.reviewers if f"{_REVIEWER}{name}" not in before)
        assignees = tuple(name for name in desired.assignees if f"{_ASSIGNEE}{name}" not in before)
        names = ", ".join(sorted({*reviewers, *assignees}))
        try:
            if reviewers:
                self.dialect.request_reviews(pull, reviewers)
            if assignees:
                self.dialect.assign(pull, assignees)
        except (InvalidError, MissingError) as error:
            message = f"Pull request {pull.number}: the forge does not ask all of {names}: {error}"
            hint = "Give them access to the repository, or change spec.pullRequests.reviews or CODEOWNERS."
            return RefusedError(message, hint=hint)
        return None

    def _write_comment(self, number: int, key: str, body: str, *, update: bool = True) -> None:
        text = body_marker.comment_text(key, mask_credentials(body), self.dialect.most_comment)

        def look() -> list[Comment]:
            return [c for c in self.dialect.comments(number) if body_marker.is_comment(key, c.body)]

        comments = look()
        if not comments:
            created = self.transport.write_once(
                lambda: self.dialect.add_comment(number, text),
                lambda: next(iter(look()), None),
                POLL_DELAYS_S,
            )
            # A list may not have the new comment yet.
            comments = look() or [created]  # two runs at once may both have seen none
        first, *others = comments
        for other in others:
            with suppress(MissingError):  # the other run removes it, too
                self.dialect.delete_comment(number, other)
        if update and not body_marker.same_text(first.body, text):
            self.dialect.edit_comment(number, first, text)

    def _merge(self, pull: ApiPullRequest, expect: str) -> ApiPullRequest:
        def look() -> ApiPullRequest | None:
            now = self.dialect.find(pull.number)
            return now if now.state is PullState.MERGED else None

        def merge() -> ApiPullRequest:
            return self.transport.write_once(lambda: self.dialect.merge(pull, expect), look, MERGE_DELAYS_S)

        try:
            return self._until_done(merge)
        except InvalidError as error:
            # An earlier run, or a person, may have merged it a moment ago.
            now = self._find(pull.number)
            if now.state is PullState.OPEN:
                self._check_mergeable(now, expect)
                error.hint = PROTECTED_HINT
                raise
            return now

    def _until_done(self, write: Callable[[], ApiPullRequest]) -> ApiPullRequest:
        """Write, and again for half a minute while the forge is at work on what went before."""
        for delay in RECHECK_DELAYS_S:
            try:
                return write()
            except PendingError:
                self.transport.clock.sleep(delay)
        return write()

    def _check_mergeable(self, pull: ApiPullRequest, expect: str) -> None:
        if pull.draft:
            raise RefusedError(
                f"Pull request {pull.number} of {self.dialect.name} is a draft",
                hint="Approve it, which marks it as ready first, or mark it as ready on the forge.",
            )
        _check_head(pull, expect)

    def _find(self, number: int) -> ApiPullRequest:
        try:
            return self.dialect.find(number)
        except MissingError as error:
            raise RefusedError(f"There is no pull request {number} in {self.dialect.name}") from error


def has_issues(forge: object) -> TypeGuard[ApiForge]:
    """Tell whether a repository has issues: where it has none, the dashboard is a file."""
    return isinstance(forge, ApiForge) and forge.dialect.has_issues


def _people(desired: PullRequest) -> tuple[str, ...]:
    """Return the people to ask, as the marker of a text lists them."""
    reviewers = (f"{_REVIEWER}{name}" for name in desired.reviewers)
    return (*reviewers, *(f"{_ASSIGNEE}{name}" for name in desired.assignees))


def _status_of(pull: PullRequest) -> tuple[str, ...]:
    """Return the head and its status as the marker of a text lists them; empty for none."""
    if pull.status is None or not pull.head_oid:
        return ()
    name, passed, text = pull.status
    return pull.head_oid, name, "passed" if passed else "failed", text


def _read_status(pull: ApiPullRequest, marked: tuple[str, ...]) -> HeadStatus | None:
    """Return the status of the head that the marker of a text tells; None if it is about another head."""
    match marked:
        case [head, name, result, text] if head == pull.head_oid:
            return HeadStatus(name, result == "passed", text)
        case _:
            return None


def _check_head(pull: ApiPullRequest, expect: str) -> None:
    if pull.head_oid != expect:
        raise ConflictError(f"The head of pull request {pull.number} moved")


def _to_pull_request(pull: ApiPullRequest) -> PullRequest:
    marked = body_marker.parse(pull.body)
    return PullRequest(
        head=pull.head,
        base=pull.base,
        title=pull.title,
        body=marked.body,
        draft=pull.draft,
        number=pull.number,
        state=pull.state,
        head_oid=pull.head_oid,
        closed=pull.closed,
        changed=int(pull.changed) if pull.times and pull.state is PullState.OPEN else 0,
        labels=tuple(sorted(pull.labels)),
        url=pull.url,
        digest=marked.content,
        auto_merge=marked.auto_merge,
        unreadable=pull.unreadable,
        status=_read_status(pull, marked.status),
        proposes=marked.proposes,
        ticks=marked.ticks if pull.state is PullState.OPEN else None,
    )
