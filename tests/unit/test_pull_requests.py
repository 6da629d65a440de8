"""Pull requests of one repository are found by their heads, as a look at each of them would find them."""

import pytest

from reconciler.inventory.inventory import PullRequest, PullRequests

HEADS = (
    "drafts/web/v1", "drafts/web/v2", "drafts/web2/v1", "drafts/web", "", "drafts/web/v1", "drafts/weA/v1",
)  # fmt: skip
PULLS = PullRequests(PullRequest(head, "main", "", "", number=n) for n, head in enumerate(HEADS))


@pytest.mark.parametrize("head", [*HEADS, "drafts/db/v1"])
def test_pull_requests_of_a_branch_come_in_their_order(head: str) -> None:
    assert PULLS.at(head) == tuple(pull for pull in PULLS if pull.head == head)


@pytest.mark.parametrize("prefix", ["drafts/web/", "drafts/web", "drafts/", "", "drafts/x", "a"])
def test_pull_requests_below_a_prefix_are_all_that_start_with_it(prefix: str) -> None:
    found = sorted(pull.number for pull in PULLS.below(prefix))

    assert found == [pull.number for pull in PULLS if pull.head.startswith(prefix)]


def test_index_is_made_once() -> None:
    assert PullRequests.of(PULLS) is PULLS
    assert PullRequests.of([PULLS[0]]) == (PULLS[0],)
