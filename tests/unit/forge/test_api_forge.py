"""The steps that every forge with an API shares, on a dialect that notes what it is called with."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import product
from math import inf
from typing import Any, cast

import pytest

from reconciler.base.effects import StoppedError
from reconciler.base.errors import ConflictError, RefusedError, UnavailableError
from reconciler.forge import body_marker
from reconciler.forge.api.dialect import (
    ApiPullRequest,
    Comment,
    Issue,
    PendingError,
    PullRequestExistsError,
    write_times,
)
from reconciler.forge.api.forge import LONGEST_TITLE, RECHECK_DELAYS_S, ApiForge
from reconciler.http.client import InvalidError, LostReplyError, MissingError
from reconciler.inventory.inventory import CheckState, PullRequest, PullState
from tests.support.forges.scripted import ScriptedApi
from tests.support.values import replace


@dataclass
class Server:
    """A dialect that keeps pull requests in memory, notes each call, and raises what a test plans."""

    name: str = "acme/edge"
    most_text: int = 1000
    most_comment: int = 1000
    has_statuses_of_pulls: bool = False
    pulls: dict[int, ApiPullRequest] = field(default_factory=dict)
    calls: list[tuple[Any, ...]] = field(default_factory=list)
    errors: dict[str, list[Exception]] = field(default_factory=dict)
    recent: tuple[ApiPullRequest, ...] = ()
    written: list[Comment] = field(default_factory=list)
    lists: list[tuple[ApiPullRequest, ...]] = field(default_factory=list)
    """What the next lists of a branch show, where they lag."""
    reports: tuple[tuple[str, CheckState], ...] = ()
    opened: list[Issue] = field(default_factory=list)
    merges_at_once: bool = False
    """Whether auto-merge has nothing to wait for."""
    on_merge: Callable[[], None] = lambda: None
    """What happens at a merge before its reply."""

    def _call(self, name: str, *values: Any) -> None:
        self.calls.append((name, *values))
        if planned := self.errors.get(name):
            raise planned.pop(0)

    def set(self, number: int, **fields: Any) -> ApiPullRequest:
        self.pulls[number] = replace(self.pulls[number], **fields)
        return self.pulls[number]

    def find(self, number: int) -> ApiPullRequest:
        if number not in self.pulls:
            raise MissingError("none")
        return self.pulls[number]

    def find_open(self, head: str, base: str = "") -> Iterator[ApiPullRequest]:
        self._call("find_open", head, base)
        if self.lists:
            return iter(self.lists.pop(0))
        return (p for p in self.pulls.values() if p.head == head and p.state is PullState.OPEN)

    def find_recent(self, head: str, _: str) -> tuple[ApiPullRequest, ...]:
        self._call("find_recent", head)
        return self.recent

    def create(self, desired: PullRequest) -> ApiPullRequest:
        self._call("create", desired.title)
        number = 1 + max(self.pulls, default=0)
        wanted = (desired.head, desired.base, desired.title, desired.body, desired.draft)
        self.pulls[number] = ApiPullRequest(number, *wanted, PullState.OPEN, "1")
        return self.pulls[number]

    def edit(self, pull: ApiPullRequest, title: str, body: str, base: str) -> ApiPullRequest:
        self._call("edit", pull.number, title, base)
        return self.set(pull.number, title=title, body=body, base=base)

    def set_labels(self, pull: ApiPullRequest, labels: tuple[str, ...]) -> ApiPullRequest:
        self._call("set_labels", pull.number, labels)
        return self.set(pull.number, labels=labels)

    def mark_ready(self, pull: ApiPullRequest) -> None:
        self._call("mark_ready", pull.number)
        self.set(pull.number, draft=False)

    def mark_draft(self, pull: ApiPullRequest) -> None:
        self._call("mark_draft", pull.number)
        self.set(pull.number, draft=True)

    def close(self, pull: ApiPullRequest) -> None:
        self._call("close", pull.number)
        self.set(pull.number, state=PullState.CLOSED)

    def merge(self, pull: ApiPullRequest, expect: str) -> ApiPullRequest:
        self._call("merge", pull.number, expect)
        self.on_merge()
        return self.set(pull.number, state=PullState.MERGED, merge_oid="beef")

    def comments(self, number: int) -> Iterator[Comment]:
        del number
        return iter(self.written)

    def add_comment(self, number: int, body: str) -> Comment:
        self._call("add_comment", number)
        self.written.append(Comment(str(len(self.written)), body))
        return self.written[-1]

    def edit_comment(self, number: int, comment: Comment, body: str) -> None:
        self._call("edit_comment", number, comment.key)
        self.written[int(comment.key)] = Comment(comment.key, body)

    def checks(self, _: str) -> Iterator[tuple[str, CheckState]]:
        return iter(self.reports)

    def list_all(self) -> Iterator[tuple[ApiPullRequest, ...]]:
        yield tuple(self.pulls.values())

    def issues(self) -> Iterator[Issue]:
        return iter(self.opened)

    def create_issue(self, title: str, body: str) -> Issue:
        self._call("create_issue", title)
        self.opened.append(Issue(len(self.opened) + 1, body))
        return self.opened[-1]

    def edit_issue(self, number: int, body: str, *, close: bool = False) -> None:
        self._call("close_issue" if close else "edit_issue", number)
        issue = self.opened[number - 1]
        self.opened[number - 1] = issue._replace(body=body, is_open=issue.is_open and not close)

    def request_reviews(self, _: ApiPullRequest, names: tuple[str, ...]) -> None:
        self._call("request_reviews", names)

    def assign(self, _: ApiPullRequest, names: tuple[str, ...]) -> None:
        self._call("assign", names)

    def enable_auto_merge(self, pull: ApiPullRequest, expect: str) -> ApiPullRequest:
        self._call("enable_auto_merge", expect, pull.draft)
        return replace(pull, state=PullState.MERGED if self.merges_at_once else pull.state)

    def writes(self) -> list[tuple[Any, ...]]:
        return [call for call in self.calls if not call[0].startswith("find")]


HEAD = "drafts/web/w"
DESIRED = PullRequest(HEAD, "main", "Update web", "Why.", labels=("b", "a"), digest="d1")


def served(**fields: Any) -> Server:
    """Return a server with pull request 5 in a state."""
    values = {"body": "", "draft": False, "state": PullState.OPEN, "head_oid": "c0ffee", **fields}
    return Server(pulls={5: ApiPullRequest(5, HEAD, "main", "Update web", **values)})


def writer(api: ScriptedApi, server: Server) -> ApiForge:
    return ApiForge(cast("Any", server), api.transport(), "fleet")


@pytest.mark.parametrize("reports", list(product(CheckState, repeat=2)))
def test_state_of_a_check_is_that_of_its_newest_report(
    api: ScriptedApi, reports: tuple[CheckState, ...]
) -> None:
    server = Server(reports=(("ci/lint", CheckState.FAILED), *(("ci/build", state) for state in reports)))

    assert writer(api, server).checks("c0ffee") == {"ci/lint": CheckState.FAILED, "ci/build": reports[-1]}


@pytest.mark.parametrize("duplicate_of", [0, 3])
@pytest.mark.parametrize(
    ("state", "comment", "done"),
    [
        pytest.param(PullState.OPEN, "Obsolete.", ("add_comment", "close"), id="people read why"),
        pytest.param(PullState.OPEN, "", ("close",), id="there is nothing to tell"),
        pytest.param(PullState.CLOSED, "Obsolete.", ("add_comment",), id="its branch is gone"),
        pytest.param(PullState.CLOSED, "", (), id="it is closed already"),
        pytest.param(PullState.MERGED, "Obsolete.", (), id="a merged change is in use"),
        pytest.param(PullState.MERGED, "", (), id="it cannot be closed"),
    ],
)
def test_closing_writes_once_and_never_to_a_merged_pull_request(
    api: ScriptedApi, state: PullState, comment: str, done: tuple[str, ...], duplicate_of: int
) -> None:
    server = served(state=state)

    for _ in range(2):
        writer(api, server).close(5, comment=comment, duplicate_of=duplicate_of)

    assert tuple(call[0] for call in server.calls if call[0] != "edit") == done
    is_marked = state is PullState.OPEN and duplicate_of > 0
    assert ("edit" in {call[0] for call in server.calls}) is is_marked
    assert body_marker.parse(server.pulls[5].body).duplicate_of == (3 if is_marked else 0)


def pull_at(number: int, *times: float, head: str = "drafts/web/w") -> ApiPullRequest:
    return ApiPullRequest(number, head, "main", "Update", "", False, PullState.OPEN, "c0ffee", times=times)


@pytest.mark.parametrize(("reviewers", "content"), [((), "abc"), (("ann",), "")])
def test_text_says_that_something_is_missing_until_people_are_asked(
    api: ScriptedApi, reviewers: tuple[str, ...], content: str
) -> None:
    server = Server(errors={"request_reviews": [StoppedError()]})

    with suppress(StoppedError):
        writer(api, server).ensure(replace(DESIRED, digest="abc", reviewers=reviewers))

    assert body_marker.parse(server.pulls[1].body).content == content


@pytest.mark.parametrize(
    ("times", "created", "changed"), [((), 0.0, inf), ((5.0,), 5.0, 5.0), ((5.0, 9.0, 7.0), 5.0, 9.0)]
)
def test_pull_request_without_readable_times_is_the_oldest_and_the_last_that_changed(
    times: tuple[float, ...], created: float, changed: float
) -> None:
    pull = pull_at(1, *times)

    assert (pull.created, pull.changed) == (created, changed)


@pytest.mark.parametrize(
    ("item", "seconds"),
    [
        ({"created_at": "1970-01-01T00:00:01Z"}, (1,)),
        ({"created_at": "1970-01-01T00:00:01Z", "updated_at": "1970-01-01T00:00:02Z"}, (1, 2)),
        ({"updated_at": "1970-01-01T00:00:02Z", "closed_at": "1970-01-01T00:00:03Z"}, (2, 3)),
        ({"created_at": "1970-01-01T00:00:01Z", "updated_at": "1970-01-01T00:00:01Z", "closed_at": None},
            (1,)),
    ],
)  # fmt: skip
def test_each_time_at_which_an_item_was_written_counts_once(
    item: dict[str, str | None], seconds: tuple[float, ...]
) -> None:
    assert write_times(item) == seconds


def test_title_is_shortened_and_safe_for_a_terminal(api: ScriptedApi) -> None:
    server = Server()

    writer(api, server).ensure(replace(DESIRED, title="x\x1b" + "y" * 400))

    title = server.pulls[1].title
    assert title.startswith("x\\x1byyy")
    assert len(title) == LONGEST_TITLE


@pytest.mark.parametrize("number", [9, 4, 0], ids=["gone", "closed", "unknown"])
def test_pull_request_whose_number_is_of_no_use_is_the_first_of_its_branch(
    api: ScriptedApi, number: int
) -> None:
    server = served()
    server.pulls[4] = replace(server.pulls[5], number=4, state=PullState.CLOSED)
    server.lists = [(replace(server.pulls[5], number=7), server.pulls[5])]

    assert writer(api, server).ensure(replace(DESIRED, number=number)).number == 5


def test_first_open_issue_of_a_dashboard_is_written_and_other_open_ones_are_closed(api: ScriptedApi) -> None:
    text = body_marker.issue_text("key", "Old.", "", 1000)
    opened = [Issue(1, text, is_open=False), Issue(2, text), Issue(3, text), Issue(4, "", title="Fleet")]
    server = Server(opened=[*opened, Issue(5, "Of others.")])

    written = writer(api, server).write_issue("key", "Fleet", "New.")

    assert written is not None
    assert (written.number, written.is_open) == (2, True)
    assert server.calls == [("close_issue", 3), ("close_issue", 4), ("edit_issue", 2)]
    assert "New." in server.opened[1].body
    assert server.opened[2].body == "#2 was opened first."
    assert writer(api, server).write_issue("key", "Fleet", "New.") is None


@pytest.mark.parametrize(("redraft", "draft"), list(product([True, False], repeat=2)))
def test_pull_request_becomes_a_draft_again_where_that_is_planned(
    api: ScriptedApi, redraft: bool, draft: bool
) -> None:
    server = served(draft=draft)

    pull = writer(api, server).ensure(replace(DESIRED, redraft=redraft))

    assert (("mark_draft", 5) in server.calls) is (redraft and not draft)
    assert pull.draft is (redraft or draft)


def test_labels_of_people_stay_and_those_of_an_earlier_run_go(api: ScriptedApi) -> None:
    server = Server()
    writer(api, server).ensure(DESIRED)
    server.pulls[1] = replace(server.pulls[1], labels=("b", "a", "mine"))

    pull = writer(api, server).ensure(replace(DESIRED, labels=("b", "c")))

    assert pull.labels == ("b", "c", "mine")


def test_pull_request_without_a_marker_keeps_its_title_and_text(api: ScriptedApi) -> None:
    server = served(body="By hand.")

    writer(api, server).ensure(replace(DESIRED, title="Another"))

    assert server.pulls[5].title == "Update web"
    assert server.pulls[5].body.startswith("By hand.\n\n<!-- reconciler:begin ")


def test_pull_request_that_exists_already_is_waited_for(api: ScriptedApi) -> None:
    server = served()
    server.errors["create"] = [PullRequestExistsError("exists")]
    server.lists = [(), ()]

    assert (writer(api, server).ensure(DESIRED).number, len(api.clock.slept)) == (5, 1)


def test_pull_request_that_exists_and_is_never_listed_is_unavailable(api: ScriptedApi) -> None:
    server = Server(errors={"create": [PullRequestExistsError("It exists")]})

    with pytest.raises(UnavailableError, match="It exists, but it cannot be found"):
        writer(api, server).ensure(DESIRED)


def test_of_pull_requests_that_two_runs_opened_the_first_stays(api: ScriptedApi) -> None:
    server = served(body="")
    server.recent = (server.pulls[5],)
    server.lists = [()]

    pull = writer(api, server).ensure(DESIRED)

    comment = "Pull request #5 proposes the same branch and was opened first; this one is closed."
    assert pull.number == 5
    assert server.pulls[6].state is PullState.CLOSED
    assert comment in server.written[0].body
    assert body_marker.parse(server.pulls[6].body).duplicate_of == 5
    assert ("find_recent", HEAD) in server.calls


@pytest.mark.parametrize("step", ["mark_ready", "mark_draft", "close", "comment", "merge"])
def test_missing_pull_request_is_named(api: ScriptedApi, step: str) -> None:
    options = {
        "close": {"comment": "No."},
        "comment": {"key": "k", "body": "b"},
        "merge": {"expect": "1"},
    }.get(step, {})

    with pytest.raises(RefusedError, match="There is no pull request 9 in acme/edge"):
        getattr(writer(api, served()), step)(9, **options)


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        ({}, None, ""),
        ({"state": PullState.MERGED, "merge_oid": "beef"}, None, ""),
        ({"draft": True}, RefusedError, "Pull request 5 of acme/edge is a draft"),
        ({"state": PullState.CLOSED}, RefusedError, "Pull request 5 is closed"),
        ({"head_oid": "decaf"}, ConflictError, "The head of pull request 5 moved"),
    ],
)
def test_open_ready_pull_request_is_merged_at_its_head(
    api: ScriptedApi, fields: dict[str, Any], error: Any, message: str
) -> None:
    server = served(**fields)

    if error is None:
        assert writer(api, server).merge(5, expect="c0ffee") == "beef"
    else:
        with pytest.raises(error, match=message):
            writer(api, server).merge(5, expect="c0ffee")

    assert server.calls == ([("merge", 5, "c0ffee")] if not fields else [])


@pytest.mark.parametrize(("state", "draft"), list(product((PullState.OPEN, PullState.CLOSED), (True, False))))
def test_only_an_open_pull_request_becomes_ready_or_a_draft(
    api: ScriptedApi, state: PullState, draft: bool
) -> None:
    server = served(state=state, draft=draft)

    writer(api, server).mark_ready(5)
    writer(api, server).mark_draft(5)

    calls = [("mark_ready", 5), ("mark_draft", 5)][0 if draft else 1 :]
    assert server.calls == (calls if state is PullState.OPEN else [])


def test_merge_that_is_pending_is_tried_again_for_a_while(api: ScriptedApi) -> None:
    server = served()
    server.errors["merge"] = [PendingError("checking")] * 2

    assert writer(api, server).merge(5, expect="c0ffee") == "beef"
    assert api.clock.slept == [*RECHECK_DELAYS_S[:2]]
    server = served()
    server.errors["merge"] = [PendingError("checking")] * 9
    with pytest.raises(PendingError):
        writer(api, server).merge(5, expect="c0ffee")
    assert len(server.calls) == len(RECHECK_DELAYS_S) + 1


@pytest.mark.parametrize(
    ("now", "error"),
    [
        ({"state": PullState.MERGED, "merge_oid": "dad"}, None),
        ({"head_oid": "decaf"}, ConflictError),
        ({"draft": True}, RefusedError),
        ({"state": PullState.CLOSED}, RefusedError),
        ({}, InvalidError),
    ],
)
def test_refused_merge_is_explained_by_the_pull_request_as_it_is_now(
    api: ScriptedApi, now: dict[str, Any], error: Any
) -> None:
    server = served()

    def refuse() -> None:
        server.set(5, **now)
        raise InvalidError("not mergeable", status=405)

    server.on_merge = refuse
    if error is None:
        assert writer(api, server).merge(5, expect="c0ffee") == "dad"
        return
    with pytest.raises(error) as caught:
        writer(api, server).merge(5, expect="c0ffee")
    assert type(caught.value) is error


def test_merge_whose_reply_was_lost_is_looked_for(api: ScriptedApi) -> None:
    server = served()

    def lose() -> None:
        server.set(5, state=PullState.MERGED, merge_oid="beef")
        raise LostReplyError("lost")

    server.on_merge = lose

    assert writer(api, server).merge(5, expect="c0ffee") == "beef"
    assert len(server.calls) == 1


def test_draft_that_cannot_be_merged_stays_ready_and_is_marked_once(api: ScriptedApi) -> None:
    server = served(draft=True)
    server.errors["merge"] = [InvalidError("not mergeable", status=405), InvalidError("not yet", status=405)]

    for message in ("not mergeable", "not yet"):
        with pytest.raises(RefusedError, match=message):
            writer(api, server).approve(5, expect="c0ffee")

    assert not server.pulls[5].draft
    assert server.calls == [("mark_ready", 5), ("merge", 5, "c0ffee"), ("merge", 5, "c0ffee")]


@pytest.mark.parametrize(
    ("fields", "expect", "error", "message"),
    [
        ({"state": PullState.CLOSED}, "c0ffee", RefusedError, "Pull request 5 is closed"),
        ({"draft": True}, "decaf", ConflictError, "The head of pull request 5 moved"),
    ],
)
def test_auto_merge_of_a_closed_or_moved_pull_request_is_refused(
    api: ScriptedApi, fields: dict[str, Any], expect: str, error: type[Exception], message: str
) -> None:
    server = served(**fields)

    with pytest.raises(error, match=f"^{message}$"):
        writer(api, server).enable_auto_merge(5, expect=expect)

    assert server.calls == []


def test_refused_auto_merge_is_told_and_the_draft_stays_ready(api: ScriptedApi) -> None:
    server = served(draft=True)
    server.errors["enable_auto_merge"] = [InvalidError("off", status=422)]

    with pytest.raises(RefusedError) as caught:
        writer(api, server).enable_auto_merge(5, expect="c0ffee")

    assert str(caught.value) == "Pull request 5: the forge does not enable auto-merge: off"
    assert caught.value.hint == "Allow auto-merge in the settings of the repository, or leave out autoMerge."
    assert [call[0] for call in server.calls] == ["mark_ready", "enable_auto_merge"]


WANTED = replace(DESIRED, labels=(), number=5, reviewers=("ann", "bob"), assignees=("kim",))


def test_people_are_asked_once_each_and_named_in_the_marker(api: ScriptedApi) -> None:
    server = served()

    first = writer(api, server).ensure(WANTED)
    writer(api, server).ensure(WANTED)
    writer(api, server).ensure(replace(WANTED, reviewers=("ann", "eve"), assignees=()))

    assert [call for call in server.calls if call[0] in {"request_reviews", "assign"}] == [
        *(("request_reviews", ("ann", "bob")), ("assign", ("kim",)), ("request_reviews", ("eve",)))
    ]
    assert first.digest == "d1"
    assert body_marker.parse(server.pulls[5].body).people == ("reviewer/ann", "reviewer/eve")
