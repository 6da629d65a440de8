"""The steps that every forge with an API shares: which check counts, and what gets a comment."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product
from typing import Any, cast

import pytest

from reconciler.errors import ConflictError
from reconciler.forge.api_forge import ApiForge
from reconciler.forge.dialect import ApiPullRequest, Comment, Issue, write_times
from reconciler.inventory import PullRequest, PullState
from tests.support.forges.scripted import ScriptedApi


@dataclass
class Dialect:
    """One pull request and the checks of its head; `done` lists the writes."""

    state: PullState = PullState.OPEN
    reports: tuple[tuple[str, bool], ...] = ()
    name: str = "acme/edge"
    most_text: int = 1000
    done: list[str] = field(default_factory=list)
    written: list[Comment] = field(default_factory=list)
    listed: tuple[ApiPullRequest, ...] = ()
    opened: tuple[Issue, ...] = ()
    created: list[PullRequest] = field(default_factory=list)
    edited: list[tuple[int, str]] = field(default_factory=list)

    def checks(self, _: str) -> Iterator[tuple[str, bool]]:
        return iter(self.reports)

    def find(self, number: int) -> ApiPullRequest:
        return ApiPullRequest(number, "drafts/web/w", "main", "Update web", "", False, self.state, "c0ffee")

    def comments(self, _: int) -> Iterator[Comment]:
        return iter(self.written)

    def add_comment(self, _: int, body: str) -> Comment:
        self.done.append("comment")
        self.written.append(Comment(str(len(self.written)), body))
        return self.written[-1]

    def edit_comment(self, _: int, comment: Comment, body: str) -> None:
        self.done.append("edit")
        self.written[int(comment.key)] = Comment(comment.key, body)

    def list_all(self) -> Iterator[tuple[ApiPullRequest, ...]]:
        yield self.listed

    def issues(self) -> Iterator[Issue]:
        return iter(self.opened)

    def create_issue(self, title: str, body: str) -> Issue:
        self.done.append(f"issue {title}")
        self.opened += (Issue(len(self.opened) + 1, body),)
        return self.opened[-1]

    def edit_issue(self, number: int, body: str) -> None:
        self.edited.append((number, body))

    def find_open(self, head: str, _: str) -> Iterator[ApiPullRequest]:
        return (pull for pull in self.listed if pull.head == head and pull.state is PullState.OPEN)

    def find_recent(self, _: str) -> tuple[ApiPullRequest, ...]:
        return ()

    def create(self, desired: PullRequest) -> ApiPullRequest:
        self.created.append(desired)
        return ApiPullRequest(
            1, desired.head, "main", desired.title, desired.body, True, PullState.OPEN, "c0ffee"
        )

    def close(self, _: ApiPullRequest) -> None:
        self.done.append("close")
        self.state = PullState.CLOSED


def forge(api: ScriptedApi, dialect: Dialect) -> ApiForge:
    return ApiForge(cast("Any", dialect), api.transport(), "fleet")


@pytest.mark.parametrize("reports", list(product([True, False], repeat=3)))
def test_check_passed_if_its_newest_report_says_so(api: ScriptedApi, reports: tuple[bool, ...]) -> None:
    dialect = Dialect(reports=tuple(("ci/build", passed) for passed in reports))

    assert forge(api, dialect).passed_checks("c0ffee") == ({"ci/build"} if reports[-1] else set())


def test_checks_of_other_names_do_not_count_for_each_other(api: ScriptedApi) -> None:
    dialect = Dialect(reports=(("ci/lint", False), ("ci/build", True), ("ci/test", False)))

    assert forge(api, dialect).passed_checks("c0ffee") == {"ci/build"}


@dataclass(frozen=True)
class Row:
    state: PullState
    comment: str
    done: tuple[str, ...]
    reason: str


CLOSING = [
    Row(PullState.OPEN, "Obsolete.", ("comment", "close"), "people read why it is closed"),
    Row(PullState.OPEN, "", ("close",), "there is nothing to tell"),
    Row(PullState.CLOSED, "Obsolete.", ("comment",), "the forge closed it with its branch"),
    Row(PullState.CLOSED, "", (), "it is closed already"),
    Row(PullState.MERGED, "Obsolete.", (), "a merged change is in use: nothing was withdrawn"),
    Row(PullState.MERGED, "", (), "it cannot be closed"),
]


@pytest.mark.parametrize("row", CLOSING, ids=lambda row: row.reason)
def test_closing_writes_once_and_never_to_a_merged_pull_request(api: ScriptedApi, row: Row) -> None:
    dialect = Dialect(row.state)

    for _ in range(2):
        forge(api, dialect).close(1, comment=row.comment)

    assert tuple(dialect.done) == row.done


def test_rows_of_closing_are_complete() -> None:
    combinations = set(product(PullState, ["Obsolete.", ""]))

    assert {(row.state, row.comment) for row in CLOSING} == combinations
    assert len(CLOSING) == len(combinations)


def pull_at(number: int, *times: float, head: str = "drafts/web/w") -> ApiPullRequest:
    return ApiPullRequest(number, head, "main", "Update", "", False, PullState.OPEN, "c0ffee", times=times)


def test_writes_of_listed_pull_requests_count_once_and_those_of_others_never(api: ScriptedApi) -> None:
    now = api.clock.now()
    pulls = (pull_at(2, now - 10, now - 5), pull_at(1, now - 20), pull_at(3, now - 1, head="feature/x"))
    writer = forge(api, Dialect(listed=pulls))
    limits = writer.transport.budget.limits

    first = writer.list_pulls()
    again = writer.list_pulls()

    assert [pull.number for pull in first] == [pull.number for pull in again] == [1, 2]
    # The hour is spent after as many writes as the limit leaves beside the three that were listed.
    left = limits.per_hour - 3
    assert writer.transport.budget.eta_s(left) < 3600 - 30 < writer.transport.budget.eta_s(left + 1)


def test_created_pull_request_has_the_generated_text_alone(api: ScriptedApi) -> None:
    dialect = Dialect()

    forge(api, dialect).ensure(PullRequest("drafts/web/w", "main", "Update web", "Why."))

    (created,) = dialect.created
    lines = [line for line in created.body.splitlines() if line and not line.startswith("<!--")]
    assert lines == ["Why."]


def test_of_issues_with_one_key_the_open_one_counts_then_the_oldest(api: ScriptedApi) -> None:
    dialect = Dialect()
    forge(api, dialect).comment(1, key="dashboard", body="Text")
    marked = dialect.written[0].body
    dialect.opened = (Issue(1, marked, is_open=False), Issue(3, marked), Issue(2, marked), Issue(4, "Other"))

    issue = forge(api, dialect).find_issue("dashboard")

    assert issue is not None
    assert issue.number == 2


@pytest.mark.parametrize(
    ("item", "seconds"),
    [
        ({"created_at": "1970-01-01T00:00:01Z"}, (1,)),
        ({"created_at": "1970-01-01T00:00:01Z", "updated_at": "1970-01-01T00:00:02Z"}, (1, 2)),
        ({"updated_at": "1970-01-01T00:00:02Z", "closed_at": "1970-01-01T00:00:03Z"}, (2, 3)),
        (
            {"created_at": "1970-01-01T00:00:01Z", "updated_at": "1970-01-01T00:00:01Z", "closed_at": None},
            (1,),
        ),
    ],
)
def test_each_time_at_which_an_item_was_written_counts_once(
    item: dict[str, str | None], seconds: tuple[float, ...]
) -> None:
    assert write_times(item) == seconds


def test_issue_is_opened_once_edited_when_its_text_changes_and_never_opened_again(api: ScriptedApi) -> None:
    dialect = Dialect()
    writer = forge(api, dialect)

    opened = writer.write_issue("dashboard", "Dashboard", "One")
    same = writer.write_issue("dashboard", "Dashboard", "One")
    edited = writer.write_issue("dashboard", "Dashboard", "Two")
    dialect.opened = (dialect.opened[0]._replace(is_open=False),)
    closed = writer.write_issue("dashboard", "Dashboard", "Three")

    assert dialect.done == ["issue Dashboard"]
    assert [number for number, _ in dialect.edited] == [1]
    assert "Two" in dialect.edited[0][1]
    assert [issue and issue.number for issue in (opened, same, edited, closed)] == [1, None, 1, None]


def test_of_open_pull_requests_of_a_branch_the_one_with_the_lowest_number_is_updated(
    api: ScriptedApi,
) -> None:
    dialect = Dialect(listed=(pull_at(3), pull_at(2)))

    pull = forge(api, dialect)._first_open("drafts/web/w")

    assert pull is not None
    assert pull.number == 2


def test_head_that_moved_is_named_and_not_merged(api: ScriptedApi) -> None:
    with pytest.raises(ConflictError, match="The head of pull request 1 moved"):
        forge(api, Dialect()).merge(1, expect="decaf")
