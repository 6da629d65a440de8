"""Drafts: their names, their pull requests, and the tasks that their commits record."""

from typing import Any

import orjson
import pytest

from reconciler.base.errors import Location
from reconciler.inventory.inventory import (
    Commit,
    PackageRevision,
    PullRequest,
    PullState,
    Source,
)
from reconciler.names.ids import Lifecycle
from reconciler.names.refs import group_ref
from reconciler.plan.changes import MoveRef
from reconciler.plan.context import PlanTarget
from reconciler.plan.drafts import (
    close_drafts,
    close_pulls,
    draft_message,
    is_behind,
    is_rejected,
    next_workspace,
    wanted_pull,
)
from reconciler.policy import OpenOn
from tests.support.decision_table import Case, DecisionTable, Row
from tests.support.plan_values import (
    BRANCH,
    PACKAGE,
    a_desired_variant,
    a_draft,
    a_pin,
    a_pull,
    a_resolved,
    oid,
)
from tests.support.sets import a_package, repository
from tests.support.values import replace

GROUP = group_ref("default", ("repository", "default", "edge"), 1)
EDGE = repository("edge", head=Commit(oid("e1"), 1))


def a_target(*pulls: PullRequest, **state: Any) -> PlanTarget:
    return PlanTarget(PACKAGE, EDGE, a_package(PACKAGE.path, **state), pulls=pulls)


def a_revision(workspace: str, number: int) -> PackageRevision:
    ref = f"refs/tags/web/v{number}"
    tree = oid(f"b{number}")
    return PackageRevision("web", workspace, number, Lifecycle.PUBLISHED, ref, Commit(oid("f1"), 1), tree)


@pytest.mark.parametrize(
    ("why", "target", "number"),
    [
        ("the first", a_target(), 1),
        ("after every draft", a_target(drafts=(a_draft(workspace="packagevariant-4"), a_draft())), 5),
        ("other people's names do not count", a_target(drafts=(a_draft(workspace="mine-9"),)), 1),
        ("after the workspace of a revision", a_target(published=(a_revision("packagevariant-7", 1),)), 8),
        ("after the number of a revision without a workspace", a_target(published=(a_revision("v3", 3),)), 4),
        ("after a closed pull request", a_target(a_pull(PullState.CLOSED,
            head="drafts/web/packagevariant-6")), 7),
        ("after a merged pull request", a_target(a_pull(PullState.MERGED,
            head="drafts/web/packagevariant-6")), 7),
        ("another package's names do not count", a_target(a_pull(head="drafts/web2/packagevariant-6")), 1),
    ],
)  # fmt: skip
def test_workspace_of_a_new_draft_was_never_used_before(why: str, target: PlanTarget, number: int) -> None:
    assert next_workspace(target) == f"packagevariant-{number}", why


REJECTED: DecisionTable[bool] = DecisionTable(
    {
        "pull requests": ("none", "open", "merged", "closed",
            "closed at a commit that the forge does not tell", "closed at an older commit",
            "closed, and a newer one open", "merged, and a newer one closed",
            "closed, and a newer one merged", "of another branch closed"),
    },
    [
        ({"pull requests": ("closed", "closed at a commit that the forge does not tell")}, True,
            "a person closed the pull request of this commit"),
        ({"pull requests": "merged, and a newer one closed"}, True, "the newest pull request counts"),
        ({}, False, "nobody rejected this commit"),
    ],
)  # fmt: skip


def rejected(case: Case) -> bool:
    closed, merged = (
        {number: a_pull(state, number=number) for number in (3, 12)}
        for state in (PullState.CLOSED, PullState.MERGED)
    )
    pulls = {
        "none": (),
        "open": (a_pull(),),
        "merged": (a_pull(PullState.MERGED),),
        "closed": (a_pull(PullState.CLOSED),),
        "closed at a commit that the forge does not tell": (a_pull(PullState.CLOSED, head_oid=""),),
        "closed at an older commit": (a_pull(PullState.CLOSED, head_oid=oid("d9")),),
        "closed, and a newer one open": (closed[12], a_pull(number=3)),
        "merged, and a newer one closed": (closed[12], merged[3]),
        "closed, and a newer one merged": (closed[3], merged[12]),
        "of another branch closed": (a_pull(PullState.CLOSED, head="drafts/web/packagevariant-2"),),
    }[case["pull requests"]]
    assert is_rejected(a_target(*pulls), a_draft()) is is_rejected(a_target(*pulls[::-1]), a_draft())
    return is_rejected(a_target(*pulls), a_draft())


REQUESTED: DecisionTable[tuple[bool, int] | None] = DecisionTable(
    {
        "opened on": ("draft", "propose"),
        "draft": ("proposed", "not proposed"),
        "pull request": ("none", "open as a draft", "open for review", "closed", "merged"),
    },
    [
        ({"pull request": "open as a draft"}, (True, 1), "an open one keeps its mark"),
        ({"pull request": "open for review"}, (False, 1), "an open one keeps its mark as ready"),
        ({"opened on": "propose", "draft": "not proposed"}, None, "people open it by proposing the draft"),
        ({"draft": "proposed"}, (False, 0), "a new one of a proposed draft is ready for review"),
        ({}, (True, 0), "a new one is a draft"),
    ],
)


def requested(case: Case) -> tuple[bool, int] | None:
    """Return the draft mark and the number of the pull request that a draft should have."""
    pulls = {
        "none": (),
        "open as a draft": (a_pull(draft=True),),
        "open for review": (a_pull(draft=False),),
        "closed": (a_pull(PullState.CLOSED),),
        "merged": (a_pull(PullState.MERGED),),
    }[case["pull request"]]
    pull = wanted_pull(
        a_target(*pulls),
        a_draft().ref,
        open_on=OpenOn(case["opened on"]),
        proposed=case["draft"] == "proposed",
    )
    if pull is None:
        return None
    assert (pull.head, pull.base, pull.state) == (BRANCH, "main", PullState.OPEN)
    return pull.draft, pull.number


BEHIND: DecisionTable[bool] = DecisionTable(
    {
        "main": ("changed the package", "did not change it", "does not exist"),
        "branch": ("a draft", "a group's", "changes more than its package"),
    },
    [
        ({"main": ("did not change it", "does not exist")}, False, "the draft has all that main has"),
        ({"branch": "a draft"}, True, "one commit of ours takes main's change in"),
        ({}, False, "a merge commit would have to decide about other packages, too"),
    ],
)


def behind(case: Case) -> bool:
    ref = group_ref("default", ("repository", "default", "edge"), 1)
    draft = a_draft(
        ref=ref if case["branch"] == "a group's" else a_draft().ref,
        has_more=case["branch"] == "changes more than its package",
        behind=case["main"] != "did not change it",
    )
    view = replace(EDGE, head=None) if case["main"] == "does not exist" else EDGE
    return is_behind(replace(a_target(), view=view), draft)


TABLES = {
    "rejection": (REJECTED, rejected),
    "pull request": (REQUESTED, requested),
    "draft behind main": (BEHIND, behind),
}


@pytest.mark.parametrize("name", TABLES)
def test_tables_of_drafts_are_complete(name: str) -> None:
    TABLES[name][0].check_complete()


@pytest.mark.parametrize(
    ("name", "row"), [pytest.param(n, r, id=f"{n}: {r}") for n, (t, _) in TABLES.items() for r in t.rows]
)
def test_drafts_follow_their_tables(name: str, row: Row[Any]) -> None:
    table, decide = TABLES[name]
    assert table.mistakes(row, decide) == []


@pytest.mark.parametrize(
    ("fields", "is_added_to"),
    [
        ({}, False),
        ({"written": oid("d9")}, True),
        ({"has_foreign_commits": True}, True),
        ({"is_touched": True}, False),
        ({"ref": GROUP, "has_foreign_commits": True}, False),
        ({"ref": GROUP, "has_foreign_commits": True, "is_touched": True}, True),
        ({"ref": GROUP, "written": oid("d9")}, True),
    ],
)
def test_branch_is_only_added_to_where_people_committed_to_what_is_ours(
    fields: dict[str, Any], *, is_added_to: bool
) -> None:
    assert a_draft(**fields).append_only is is_added_to


def test_obsolete_drafts_go_at_the_commit_that_was_read_and_group_branches_stay() -> None:
    grouped = a_draft(ref=group_ref("default", ("repository", "default", "edge"), 1))
    pulls = (
        a_pull(),
        a_pull(PullState.CLOSED, number=2),
        a_pull(head="drafts/api/packagevariant-1", number=3),
    )

    assert close_drafts([a_draft(), grouped]) == (MoveRef(a_draft().ref, oid("d2"), None),)
    closes = close_pulls(a_target(*pulls), [a_draft().ref, grouped.ref], "obsolete")
    assert [(close.number, close.head, close.comment) for close in closes] == [(1, BRANCH, "obsolete")]


def task(target: PlanTarget, **fields: Any) -> dict[str, Any]:
    """Return the task that the commit of a draft records."""
    variant = a_desired_variant(source=Source(Location("web.yaml")))
    resolved = a_resolved(variant=variant, view=EDGE.key, pin=a_pin(2), **fields)
    message = draft_message(target, resolved, "packagevariant-1")
    recorded: dict[str, Any] = orjson.loads(message.partition("kpt:")[2])
    assert (recorded["package"], recorded["workspaceName"]) == ("web", "packagevariant-1")
    return recorded["task"]


def test_task_of_a_new_package_is_a_clone_of_its_upstream() -> None:
    assert task(a_target()) == {
        "type": "clone",
        "clone": {"upstreamRef": {"upstreamRef": {"name": "blueprints.web.v2"}}},
    }


@pytest.mark.parametrize(
    ("published", "source"),
    [((), "edge.web.main"), ((a_revision("packagevariant-3", 2),), "edge.web.packagevariant-3")],
)
@pytest.mark.parametrize("base", [None, a_pin(2)])
def test_task_of_a_package_with_the_same_upstream_is_an_edit_of_its_latest_revision(
    published: tuple[PackageRevision, ...], source: str, base: Any
) -> None:
    target = a_target(main_tree=oid("b1"), published=published)

    assert task(target, base=base) == {"type": "edit", "edit": {"sourceRef": {"name": source}}}


def test_task_of_another_upstream_is_an_upgrade_from_the_old_one() -> None:
    target = a_target(main_tree=oid("b1"), published=(a_revision("packagevariant-3", 2),))

    assert task(target, base=a_pin(1))["upgrade"] == {
        "oldUpstreamRef": {"name": "blueprints.web.v1"},
        "newUpstreamRef": {"name": "blueprints.web.v2"},
        "localPackageRevisionRef": {"name": "edge.web.packagevariant-3"},
        "strategy": "resource-merge",
    }
