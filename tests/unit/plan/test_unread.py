"""Which repositories that could not be read are a failure of the run."""

from typing import Any

import pytest

from reconciler.base.errors import Location
from reconciler.base.reasons import Reason
from reconciler.expand.variants import set_key, variant_key
from reconciler.inventory.inventory import PullRequest, RepositoryView
from reconciler.names.ids import ObjectKey, ObjectName
from reconciler.names.problems import Problem
from reconciler.plan.build import find_unread, find_unreadable_pulls, with_unread_repositories
from reconciler.plan.changes import Change, MoveRef, Op
from reconciler.policy import OnUnavailable
from tests.support.plan_values import (
    BRANCH,
    URL,
    WEB,
    a_change,
    a_draft,
    a_target,
    a_write,
    oid,
    staged,
    web_context,
)
from tests.support.sets import repository, world
from tests.support.values import replace

FROM = Location("repositories.yaml", 3)


def unread(name: str, unavailable: OnUnavailable = OnUnavailable.FAIL) -> RepositoryView:
    problem = Problem(FROM, Reason.REPOSITORY_UNAVAILABLE, f"{name} is down").owned_by(repository(name).owner)
    return repository(name, problem=problem, unavailable=unavailable)


def consequence(view: RepositoryView, owner: ObjectKey) -> Problem:
    problem = Problem(Location("web.yaml", 1), Reason.REPOSITORY_UNAVAILABLE, "No way", repository=view.key)
    return problem.owned_by(owner)


def test_owners_that_need_an_unread_repository_are_counted_there() -> None:
    down, fine = unread("down"), repository("fine")
    inventory = world(views=(down, fine, unread("idle")))
    one = consequence(down, variant_key(ObjectName("default", "a")))
    others = (replace(one, repository=None),)

    def told(*problems: Problem) -> dict[str, str]:
        found = with_unread_repositories((*problems, *others), inventory)
        assert found[: len(others)] == others
        return {problem.subject: problem.message for problem in found[len(others) :]}

    down_text, idle_text = down.unread_message, inventory.repositories[unread("idle").key].unread_message
    assert told() == {"Repository default/down": down_text, "Repository default/idle": idle_text}
    assert (
        told(one, one)["Repository default/down"]
        == f"{down_text}; 1 variant or set that needs it is kept as it is"
    )
    sets = one.owned_by(set_key(ObjectName("default", "b")))
    assert told(one, sets) == {
        "Repository default/down": f"{down_text}; 2 variants or sets that need it are kept as they are",
        "Repository default/idle": idle_text,
    }


def test_problems_stay_as_they_are_where_everything_was_read() -> None:
    problems = (Problem(FROM, Reason.INVALID_MANIFEST, "It is wrong"),)

    assert with_unread_repositories(problems, world(views=(repository("edge"),))) == problems


def test_unread_repositories_are_listed_with_what_their_policy_says() -> None:
    control = Problem(Location("a.yaml", 1), Reason.REPOSITORY_UNAVAILABLE, "control", "")
    wrong = replace(control, reason=Reason.INVALID_MANIFEST)
    refused = replace(unread("odd"), problem=replace(control, reason=Reason.REPOSITORY_REFUSED))
    views = (unread("b", OnUnavailable.WARN), unread("a"), refused, repository("fine"))

    assert list(find_unread(world(views=views, problems=(control, wrong))).items()) == [
        (control, OnUnavailable.FAIL),
        (unread("a").problem, OnUnavailable.FAIL),
        (unread("b").problem, OnUnavailable.WARN),
    ]


WRITE = a_write()
TAG = MoveRef("refs/tags/web/v1", None, oid("f1"))
CHANGE = a_change(
    op=Op.UPDATE, reason=Reason.UPSTREAM_CHANGED, variant=WEB, before=oid("b1"), writes=(WRITE,), waits=True
)


def unreadable(head: str) -> PullRequest:
    return PullRequest(head, "main", "", "", number=7, unreadable="version 9")


def kept(change: Change, head: str, url: str = URL, **target: Any) -> tuple[Change, tuple[Problem, ...]]:
    inventory = {"unreadable_pulls": {url: (unreadable(head),)}}
    context = web_context(a_target(**target), inventory=inventory)
    (result,) = staged("unreadable", lambda at, every: find_unreadable_pulls(every, at), [change], context)
    return result, find_unreadable_pulls({change.package: change}, context)[1]


@pytest.mark.parametrize(
    ("change", "head", "target", "is_kept"),
    [
        pytest.param({}, BRANCH, {}, True, id="branch that is written"),
        pytest.param({"writes": ()}, BRANCH, {}, True, id="branch of the package by its name"),
        pytest.param({"writes": ()}, "proposed/web/v1", {}, True, id="proposed branch of the package"),
        pytest.param({"writes": ()}, "drafts/webs/v1", {}, False, id="branch of another package"),
        pytest.param({"writes": ()}, "web/v1", {}, False, id="any other branch"),
        pytest.param({"writes": (), "group": "g"}, "g", {}, True, id="its group"),
        pytest.param({"writes": ()}, "reconciler/default/delete/web", {}, True, id="its deletion"),
        pytest.param(
            {"writes": ()}, "reconciler/other/delete/web", {}, False, id="another instance's deletion"
        ),
        pytest.param({"writes": ()}, "mine", {"draft": a_draft(ref="refs/heads/mine")}, True, id="its draft"),
        pytest.param({"writes": (replace(WRITE, ref="refs/heads/x"),)}, "x", {}, True, id="what it writes"),
        pytest.param({"writes": (TAG,)}, "refs/tags/web/v1", {}, False, id="a tag is no branch"),
        pytest.param({}, "", {}, False, id="a branch that is not legible"),
        pytest.param({"variant": None}, BRANCH, {}, False, id="package of nobody"),
    ],
)
def test_pull_request_is_about_a_package(change, head, target, is_kept) -> None:
    changed = replace(CHANGE, **change)

    found, problems = kept(changed, head, **target)

    assert (found.reason is Reason.PULL_REQUEST_UNREADABLE) is is_kept
    assert (found == changed) is not is_kept
    assert len(problems) == 1
