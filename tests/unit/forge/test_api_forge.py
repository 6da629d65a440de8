"""The steps that every forge with an API shares: which check counts, and what gets a comment."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product
from typing import Any, cast

import pytest

from reconciler.forge.api_forge import ApiForge
from reconciler.forge.dialect import ApiPullRequest, Comment
from reconciler.inventory import PullState
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
