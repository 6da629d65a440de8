"""Groups: which packages share a branch and a pull request (D4), and the times of their commits."""

from functools import cache

import pytest

from reconciler.api.porch import PackageVariantSpec, Upstream
from reconciler.base.errors import Location
from reconciler.base.reasons import Reason
from reconciler.inventory.inventory import (
    Commit,
    Draft,
    GroupBranch,
    Inventory,
    PullState,
    RepositoryView,
    Source,
)
from reconciler.names.ids import ObjectName
from reconciler.names.refs import group_ref, short_branch
from reconciler.plan.changes import Change, Op, WriteDraft
from reconciler.plan.context import PlanContext, PlanTarget
from reconciler.plan.groups import HELD, RepositoryGroups, find_groups, place_change
from reconciler.policy import GroupBy, Policy, PullRequestPolicy
from reconciler.render.rendered import Package, Rendered, RenderedVariant
from tests.support import plan_values
from tests.support.decision_table import Case, DecisionTable, Row
from tests.support.plan_values import (
    BRANCH,
    PACKAGE,
    URL,
    WEB,
    a_conflict,
    a_context,
    a_desired_variant,
    a_draft,
    a_pull,
    oid,
)
from tests.support.sets import a_package, repository, world
from tests.support.values import replace

REF = group_ref("default", ("repository", "default", "edge"), 1)
BRANCH_OF_GROUP = GroupBranch(REF, Commit(oid("a1"), 1), ("web",))
ENDED = ("in a closed group", "in a merged group", "in a group that main contains")
UNREADY = ("with a conflict", "with an unmet gate", "without its injected object")
WRITTEN = ("written", "written for the first time")
TABLE: DecisionTable[str] = DecisionTable(
    {
        "draft": ("none", "of its own", "in an open group", "in an open group, edited", *ENDED),
        "change": ("kept", *WRITTEN, "obsolete", "orphaned", "not wanted"),
        "package": ("ready", *UNREADY, "with an unmet gate where gates do not hold"),
        "grouped by": ("package", "set", "repository", "upstream"),
        "variant": ("of a set", "authored", "gone"),
    },
    [
        ({"draft": "of its own"}, "apart", "a draft stays on the branch that it has"),
        ({"draft": "in an open group, edited", "change": (*WRITTEN, "orphaned"),
            "package": "with a conflict"}, "stays as people left it",
            "people edited it, and the same values changed"),
        ({"draft": "in an open group, edited"}, "stays", "people edited it on the group's branch"),
        ({"draft": "in an open group", "change": "orphaned"}, "leaves, rewritten",
            "orphans are released apart"),
        ({"draft": "in an open group", "change": WRITTEN, "package": UNREADY}, "leaves, rewritten",
            "a package that is not ready holds back only itself"),
        ({"draft": "in an open group", "change": "obsolete"}, "leaves", "main has its content"),
        ({"draft": "in an open group", "change": "not wanted"}, "leaves", "no variant wants it"),
        ({"draft": "in an open group"}, "stays", "it is proposed with its group"),
        ({"change": ("kept", "obsolete", "orphaned", "not wanted")}, "apart",
            "nothing is proposed with others"),
        ({"package": UNREADY}, "apart", "a package that is not ready is proposed alone"),
        ({"grouped by": ("repository", "upstream")}, "joins",
            "packages of a repository, or of an upstream, share a branch"),
        ({"grouped by": "set", "variant": "of a set"}, "joins", "packages of a set share a branch"),
        ({}, "apart", "the configuration groups no such packages"),
    ],
    {
        "a variant that is gone is orphaned or not wanted": {"variant": "gone",
            "change": ("kept", *WRITTEN, "obsolete")},
        "a declared variant is wanted": {"variant": ("of a set", "authored"),
            "change": ("orphaned", "not wanted")},
        "what is written for the first time has no draft": {"change": "written for the first time",
            "draft": ("of its own", "in an open group", "in an open group, edited", *ENDED)},
    },
)  # fmt: skip


def a_write(**fields: object) -> WriteDraft:
    given: dict[str, object] = {
        "ref": f"refs/heads/{BRANCH}",
        "expect": None,
        "onto": oid("e1"),
        "path": "web",
        "files": {},
        "tree": oid("d5"),
        "message": 'Create\n\n\nkpt:{"package":"web","workspaceName":"packagevariant-1"}\n',
        "time": 40,
        **fields,
    }
    return plan_values.a_write(**given)


CHANGES = {
    "kept": (Op.KEEP, Reason.UP_TO_DATE),
    "written": (Op.UPDATE, Reason.UPSTREAM_CHANGED),
    "written for the first time": (Op.CREATE, Reason.NEW),
    "obsolete": (Op.CLOSE, Reason.DRAFT_SUPERSEDED),
    "orphaned": (Op.ORPHAN, Reason.ORPHANED),
    "not wanted": (Op.DELETE, Reason.NOT_DESIRED),
}


def a_change(case: Case) -> Change:
    op, reason = CHANGES[case["change"]]
    has_write = case["change"] in (*WRITTEN, "orphaned")
    return plan_values.a_change(
        repository=ObjectName("default", "edge"),
        op=op,
        reason=reason,
        variant=WEB,
        tree=oid("b1") if case["change"] == "obsolete" else oid("d5"),
        writes=(a_write(),) if has_write else (),
        conflicts=(a_conflict("a.yaml", "a", "1", "2"),) if case["package"] == "with a conflict" else (),
        unready=("security.review",) if "unmet gate" in case["package"] else (),
    )


@cache
def edge(*, deployment: bool) -> RepositoryView:
    view = repository("edge", head=Commit(oid("e1"), 1), groups=(BRANCH_OF_GROUP,))
    spec = view.manifest.spec.model_copy(update={"deployment": deployment})
    return replace(view, manifest=view.manifest.model_copy(update={"spec": spec}))


def a_target(case: Case) -> PlanTarget:
    draft: Draft | None = None
    if case["draft"] == "of its own":
        draft = a_draft()
    elif case["draft"] != "none":
        edited = {"written": oid("d9"), "has_foreign_commits": True} if "edited" in case["draft"] else {}
        draft = a_draft(ref=REF, **edited)
    view = edge(deployment=case["package"] != "with an unmet gate where gates do not hold")
    return PlanTarget(PACKAGE, view, a_package(main_tree=oid("b1")), owner=WEB, main_owner=WEB, draft=draft)


def groups_of(case: Case) -> RepositoryGroups:
    states = {"in a closed group": PullState.CLOSED, "in a merged group": PullState.MERGED}
    state = states.get(case["draft"], PullState.OPEN)
    branch = replace(BRANCH_OF_GROUP, merged=case["draft"] == "in a group that main contains")
    return RepositoryGroups({REF: branch}, {short_branch(REF): a_pull(state, head=short_branch(REF))})


@cache
def grouped_by(group_by: str) -> Inventory:
    return replace(world(), policy=Policy(pull_requests=PullRequestPolicy(group_by=GroupBy(group_by))))


def context_of(case: Case) -> PlanContext:
    of_set = ObjectName("default", "fleet") if case["variant"] == "of a set" else None
    source = Source(Location("web.yaml"))
    spec = PackageVariantSpec(upstream=Upstream(repo="blueprints", package="base"))
    variant = a_desired_variant(source=source, set_key=of_set, spec=spec)
    missing = "needs a Team" if case["package"] == "without its injected object" else None
    fresh = Package(oid("d5"), injection=missing)
    declared = case["variant"] != "gone"
    return a_context(
        grouped_by(case["grouped by"]),
        variants={WEB: variant} if declared else {},
        downstreams={PACKAGE: (variant,)} if declared else {},
        rendered=Rendered({WEB: RenderedVariant(WEB, fresh)}),
    )


SCOPES = {
    "repository": ("repository", "default", "edge"),
    "set": ("set", "default", "fleet", "edge"),
    "upstream": ("upstream", "default", "blueprints", "base", "edge"),
}


def membership(case: Case) -> str:
    change, target = a_change(case), a_target(case)
    member = place_change(change, target, groups_of(case), context_of(case))
    own = member.written is not None and member.written.ref.startswith("refs/heads/drafts/")
    if member.scope:
        assert member.scope == SCOPES[case["grouped by"]]
        return "joins"
    if member.leaves:
        assert member.group == groups_of(case).groups[REF]
        return "leaves, rewritten" if own else "leaves"
    if member.group is not None and member.held is not None:
        assert (member.held.reason, member.held.why, member.written) == (Reason.HELD_BACK, HELD, None)
        return "stays as people left it"
    return "stays" if member.group is not None else "apart"


@pytest.mark.parametrize("row", TABLE.rows, ids=str)
def test_package_shares_a_branch_as_the_table_says(row: Row[str]) -> None:
    assert TABLE.mistakes(row, membership) == []


# Commits and branches of groups


@pytest.mark.parametrize("pulls", [(PullState.CLOSED, PullState.OPEN), (PullState.OPEN, PullState.CLOSED)])
def test_open_pull_request_of_a_group_counts_before_ended_ones(pulls: tuple[PullState, ...]) -> None:
    view = edge(deployment=True)
    requests = tuple(a_pull(state, head=short_branch(REF), number=n) for n, state in enumerate(pulls, 1))
    other = a_pull(head=BRANCH, number=9)
    inventory = replace(world(), repositories={view.key: view}, pulls={URL: (*requests, other)})

    groups = find_groups(URL, a_context(inventory))

    assert {head: pull.state for head, pull in groups.pulls.items()} == {short_branch(REF): PullState.OPEN}
    assert groups.is_open(REF)
    assert not groups.is_open("refs/heads/reconciler/default/group/other/1")
