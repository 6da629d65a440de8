"""Filters of pull requests on the command line."""

from types import SimpleNamespace
from typing import Any

import pytest

from reconciler.base.errors import UsageError
from reconciler.cli.pull_requests import (
    ListedPull,
    PullFilter,
    _is_proposed,
    _renews,
    approvable,
    find_objection,
    find_pulls,
)
from reconciler.inventory.inventory import Inventory, PullRequest, PullState
from reconciler.names.ids import ObjectKey
from reconciler.plan.changes import Approvable, MoveRef, Objection, Plan, WriteRemoval
from reconciler.records.state import SetRecord
from tests.support.plan_values import BRANCH, EDGE, URL, a_draft, a_pull, a_write, oid
from tests.support.sets import repository, world
from tests.support.values import replace

INVALID = ObjectKey("config.porch.kpt.dev", "PackageVariantSet", "team", "metrics")
NOTHING: Any = None
CLOSED, MERGED = PullState.CLOSED, PullState.MERGED
RECORD = SetRecord(namespace="team", name="logs", uid="u", manifest="m/logs.yaml", targets=1)
INVENTORY = world(stalled=frozenset({INVALID}), set_records={RECORD.key: RECORD})


@pytest.mark.parametrize(
    ("inventory", "name", "refusal"),
    [
        (INVENTORY, "metrics", ""),
        (INVENTORY, "team/metrics", ""),
        (INVENTORY, "logs", ""),
        (INVENTORY, "metrisc", "metrisc: Did you mean metrics or team/metrics?"),
        (INVENTORY, "a", "a: PackageVariantSets of this fleet: team/logs, team/metrics."),
        (world(), "web", "web: No PackageVariantSet is declared."),
    ],
)
def test_a_name_that_no_set_has_is_refused_with_the_names_there_are(
    inventory: Inventory, name: str, refusal: str
) -> None:
    printed = ""
    try:
        PullFilter((name,)).check_sets(inventory)
    except UsageError as error:
        printed = f"{error}: {error.hint}"

    assert printed == (f"There is no PackageVariantSet {refusal}" if refusal else "")


def listed_pull(repo: str = "edge", pull: PullRequest | None = None, **fields: Any) -> ListedPull:
    return ListedPull(repository(repo), pull or a_pull(), NOTHING, NOTHING, **fields)


LISTED = [
    listed_pull(pull=a_pull(CLOSED, number=1)),
    listed_pull(pull=a_pull(MERGED, number=2)),
    listed_pull(pull=a_pull(number=3, head="drafts/db/w")),
    listed_pull(pull=a_pull(number=4, head="group/default/edge/1"), members=("edge/db", "edge/api")),
    listed_pull("far-edge", a_pull(number=3)),
    listed_pull(pull=a_pull(number=6, head="drafts/a/web/w"))._replace(view=repository("app", directory="a")),
    listed_pull("app", a_pull(number=7, head="drafts/lone/w"), is_registered=False),
    listed_pull("far-edge", a_pull(number=5, head="drafts/api/w"), why_left="gone"),
]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("edge/web", "edge#2"),
        ("far-edge/web", "far-edge#3"),
        ("edge#1", "edge#1"),
        ("edge/db", "edge#3"),
        ("edge/api", "edge#4"),
        ("*e/web", "far-edge#3"),
        *((text, "app#6") for text in ("app/web", "app/a/web", "app/*", "6")),
        *((text, "app#7") for text in ("lone", "app#7", "lon?")),
        ("edge/*", "edge#3 edge#4"),
        ("2", "edge#2"),
        ("3", "3 is ambiguous: edge#3, far-edge#3. Name the repository too, as in edge#3."),
        ("edge#5", "There is no pull request edge#5. Did you mean edge#4 or edge#3 or edge#2?"),
        ("f*", "far-edge#3"),
        ("f*i", "f*i matches only what is left: far-edge#5: gone. A pattern leaves it. Name it: far-edge#5."),
        ("far-edge/api", "far-edge#5"),
    ],
)  # fmt: skip
def test_name_finds_what_is_open_or_the_newest_and_a_pattern_what_is_open(text: str, found: str) -> None:
    try:
        names = " ".join(listed.name for listed in find_pulls(LISTED, text))
    except UsageError as error:
        names = f"{error}. {error.hint}"

    assert names == found


ELSEWHERE = oid("d9")


@pytest.mark.parametrize(
    ("pulls", "is_proposed"),
    [
        ([], False),
        ([a_pull(head_oid=ELSEWHERE)], True),
        ([a_pull(head=BRANCH.replace("drafts", "proposed"))], True),
        ([a_pull(head="drafts/db/w")], False),
        ([a_pull(MERGED)], True),
        ([a_pull(MERGED, head_oid=ELSEWHERE)], False),
        ([a_pull(CLOSED)], True),
        ([a_pull(CLOSED, head_oid="")], True),
        ([a_pull(CLOSED, head_oid=ELSEWHERE)], False),
        ([a_pull(CLOSED, number=1), a_pull(CLOSED, number=2, head_oid=ELSEWHERE)], False),
        ([a_pull(CLOSED, number=2, head_oid=ELSEWHERE), a_pull(number=1)], True),
    ],
)
def test_draft_is_proposed_as_its_newest_pull_request_is(pulls: list[PullRequest], is_proposed: bool) -> None:
    there = [listed_pull(pull=pull) for pull in pulls]
    others = [listed._replace(view=repository("far-edge")) for listed in there]

    assert _is_proposed(a_draft(), EDGE, there) is is_proposed
    assert not _is_proposed(a_draft(), EDGE, others)


MAIN = oid("b3")
REMOVAL = WriteRemoval(f"refs/heads/{BRANCH}", None, MAIN, "web", "", 0)


@pytest.mark.parametrize(
    ("write", "renews"),
    [
        (a_write(onto=MAIN), True),
        (a_write(merges=MAIN), True),
        (a_write(), False),
        (a_write(ref="refs/heads/drafts/db/w", onto=MAIN), False),
        (REMOVAL, True),
        (replace(REMOVAL, onto=oid("b2")), False),
        (MoveRef(REMOVAL.ref, None, MAIN), False),
    ],
)
def test_write_renews_a_branch_that_it_starts_at_the_head_of_the_base_or_merges_that(
    write: object, renews: bool
) -> None:
    refs = {"refs/heads/main": MAIN, "refs/heads/next": oid("b2")}
    mirror: Any = SimpleNamespace(refs=lambda: refs)

    assert _renews(write, listed_pull()._replace(mirror=mirror)) is renews


@pytest.mark.parametrize("why_left", ["", "Repository x is gone"])
def test_gates_hold_where_patterns_leave_a_pull_request(why_left: str) -> None:
    places = [(URL, BRANCH), (URL, "drafts/db/w"), ("host/far-edge", BRANCH)]
    states = (Approvable(unmet=("a",), lenient=("b",)), Approvable(unmet=("db",)), Approvable(unmet=("far",)))
    plan = Plan(approvable=dict(zip(places, states, strict=True)))

    state = approvable(listed_pull(why_left=why_left), plan)

    assert (state.against, state.lenient) == ((("a", "b"), ()) if why_left else (("a",), ("b",)))
    assert approvable(listed_pull(pull=a_pull(head="drafts/api/w")), plan) == Approvable()


def test_first_objection_counts_by_branch_or_number_of_this_repository() -> None:
    by_branch, by_number = Objection((2, 0), "is late"), Objection((1, 0), "is early")
    other = Objection((0, 0), "is another one")
    plan = Plan(objections={(URL, BRANCH): by_branch, (URL, 1): by_number, ("host/far-edge", 1): other})

    assert find_objection(listed_pull(), plan) == by_number
    assert find_objection(listed_pull(pull=a_pull(number=2)), plan) == by_branch
    assert find_objection(listed_pull(pull=a_pull(number=2, head="drafts/db/w")), plan) is None
