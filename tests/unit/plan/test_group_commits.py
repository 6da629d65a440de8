"""Groups of two packages, each case by the whole changes that come of it."""

from collections.abc import Mapping
from typing import Any

import pytest

from reconciler.base.reasons import Reason
from reconciler.inventory.inventory import Commit, Draft, GroupBranch, PullRequest, PullState
from reconciler.names.ids import ObjectName, Oid, PackageKey
from reconciler.names.refs import group_ref
from reconciler.plan.changes import Change, ClosePull, GroupPart, MoveRef, Op, WriteDraft, WriteGroup
from reconciler.plan.context import PlanContext, PlanTarget
from reconciler.plan.groups import DELETED, EMPTIED, ENDED, HELD, TAKEN_OUT, group_changes
from reconciler.policy import GroupBy, Policy, PullRequestPolicy
from reconciler.render.rendered import Package, Rendered, RenderedVariant
from tests.support import plan_values
from tests.support.plan_values import (
    EDGE,
    URL,
    a_conflict,
    a_desired,
    a_draft,
    a_pin,
    a_pull,
    a_resolved,
    oid,
    staged,
    web_context,
)
from tests.support.sets import a_package
from tests.support.values import replace

SCOPE = ("repository", "default", "edge")
REF = group_ref("default", SCOPE, 1)
HEAD = REF.removeprefix("refs/heads/")
BRANCH = GroupBranch(REF, Commit(oid("a1"), 15), ("api", "web"))
BY_REPOSITORY = Policy(pull_requests=PullRequestPolicy(group_by=GroupBy.REPOSITORY))
API, WEB = PackageKey(URL, "api"), PackageKey(URL, "web")
EMPTIED_REF = "refs/heads/drafts/api/packagevariant-3"
EMPTY = "Nothing of this group is left to propose."


def message(path: str, number: int = 1) -> str:
    return (
        "Creating new revision by copying previous revision\n\n\n"
        f'kpt:{{"package":"{path}","workspaceName":"packagevariant-{number}","revision":"0"}}\n'
    )


def a_write(path: str, **fields: Any) -> WriteDraft:
    """Return the write of a new draft of a package, with the tree `e1`."""
    given: dict[str, Any] = {
        "ref": f"refs/heads/drafts/{path}/packagevariant-1",
        "expect": None,
        "onto": oid("b2"),
        "files": {},
        "tree": oid("e1"),
        "message": message(path),
        "time": 40,
        **fields,
    }
    return plan_values.a_write(path=path, **given)


def a_change(key: PackageKey, **fields: Any) -> Change:
    """Return a change that writes a first draft with its pull request, unless told otherwise."""
    given: dict[str, Any] = {
        "op": Op.UPDATE,
        "reason": Reason.UPSTREAM_CHANGED,
        "variant": ObjectName("default", key.path),
        "before": oid("b1"),
        "writes": (a_write(key.path),),
        "pull": PullRequest(f"drafts/{key.path}/packagevariant-1", "main", "", ""),
        **fields,
    }
    return plan_values.a_change(package=key, **given)


def kept(key: PackageKey, **fields: Any) -> Change:
    """Return a change that leaves a draft as it is."""
    return a_change(key, **{"op": Op.KEEP, "reason": Reason.UP_TO_DATE, "writes": (), "pull": None, **fields})


def on_branch(path: str, **fields: Any) -> Draft:
    """Return the draft of a package on the group's branch."""
    return a_draft(**{"path": path, "ref": REF, "workspace": "packagevariant-4", **fields})


def context_of(
    drafts: Mapping[str, Draft | None],
    branch: GroupBranch | None,
    *pulls: PullRequest,
    policy: Policy = BY_REPOSITORY,
    wanted: tuple[str, ...] = ("api", "web"),
    **package: Any,
) -> PlanContext:
    view = replace(EDGE, groups=(branch,) if branch else ())
    state = {"main_tree": oid("b1"), **package}
    targets, variants, resolved, rendered = {}, {}, {}, {}
    for path, draft in drafts.items():
        key, name = PackageKey(URL, path), ObjectName("default", path)
        targets[key] = PlanTarget(key, view, a_package(path, **state), draft=draft, pulls=pulls)
        if path in wanted:
            variants[name] = a_desired(path)
            resolved[name] = a_resolved(variant=variants[name], downstream=key, pin=a_pin(1), base=a_pin(1))
            rendered[name] = RenderedVariant(name, Package(oid("e1")), time=35)
    return web_context(
        inventory={"views": (view,), "policy": policy, "pulls": {URL: pulls}},
        targets=targets,
        variants=variants,
        resolved=resolved,
        rendered=Rendered(rendered),
        downstreams={PackageKey(URL, name.name): (variant,) for name, variant in variants.items()},
    )


def grouped(
    changes: Mapping[Change, Draft | None] | tuple[Change, ...],
    branch: GroupBranch | None = None,
    *pulls: PullRequest,
    drafts: Mapping[str, Draft | None] | None = None,
    **more: Any,
) -> tuple[Change, ...]:
    there = {change.package.path: None for change in changes} | dict(drafts or {})
    return staged("group", group_changes, changes, context_of(there, branch, *pulls, **more))


def kpt_lines(**workspaces: str) -> str:
    return "".join(
        f'kpt:{{"package":"{path}","workspaceName":"{name}","revision":"0"}}\n'
        for path, name in workspaces.items()
    )


GROUP_WRITE = WriteGroup(
    REF,
    None,
    oid("b2"),
    (GroupPart("api", oid("e1")), GroupPart("web", oid("e1"))),
    f"Draft of 2 packages\n\n\n{kpt_lines(api='packagevariant-1', web='packagevariant-1')}",
    40,
)
GROUP_PULL = PullRequest(HEAD, "main", "", "")
OPEN = a_pull(number=6, head=HEAD, draft=False)


def test_first_drafts_share_a_branch_and_a_pull_request() -> None:
    api, web = grouped((a_change(WEB), a_change(API)))[::-1]

    for change, key in ((api, API), (web, WEB)):
        assert change == a_change(key, writes=(GROUP_WRITE,), pull=GROUP_PULL, group=HEAD)


def test_draft_joins_the_open_group_of_its_scope() -> None:
    joining, standing = a_change(API), kept(WEB)
    drafts = {"web": on_branch("web")}
    write = replace(
        GROUP_WRITE,
        expect=oid("a1"),
        parts=(GroupPart("api", oid("e1")), GroupPart("web", oid("d1"))),
        message=f"Draft of 2 packages\n\n\n{kpt_lines(api='packagevariant-1', web='packagevariant-4')}",
    )
    pull = replace(GROUP_PULL, draft=False, number=6)

    assert grouped((joining, standing), BRANCH, OPEN, drafts=drafts) == (
        a_change(API, writes=(write,), pull=pull, group=HEAD),
        replace(standing, group=HEAD),
    )


def test_commit_of_a_group_is_added_to_those_of_people_with_what_changes() -> None:
    foreign = replace(BRANCH, has_foreign_commits=True, foreign_commit_time=90)
    (api, web) = grouped((a_change(API), kept(WEB)), foreign, OPEN, drafts={"web": on_branch("web")})

    assert api.writes == (
        replace(
            GROUP_WRITE,
            expect=oid("a1"),
            onto=oid("a1"),
            parts=(GroupPart("api", oid("e1")),),
            message=f"Draft of 1 package\n\n\n{kpt_lines(api='packagevariant-1')}",
            time=90,
        ),
    )
    assert (web.writes, web.group) == ((), HEAD)


def test_package_that_people_took_out_of_the_open_group_is_kept_back() -> None:
    tag = MoveRef("refs/tags/api/v1", None, oid("f1"))
    taken = replace(BRANCH, dropped=frozenset({"api"}))
    change = a_change(API, writes=(tag, a_write("api")))

    api, _ = grouped((change, kept(WEB)), taken, OPEN, drafts={"web": on_branch("web")})

    assert api == replace(
        change,
        op=Op.PUBLISH,
        reason=Reason.HELD_BACK,
        message=TAKEN_OUT,
        tree=oid("b1"),
        group=HEAD,
        writes=(tag,),
        pull=None,
        waits=True,
    )


def test_edited_draft_with_a_question_stays_as_people_left_it() -> None:
    tag = MoveRef("refs/tags/api/v1", None, oid("f1"))
    asking = a_change(API, conflicts=(a_conflict("a", "b", "1", "2"),), writes=(tag, a_write("api")))
    drafts = {"api": on_branch("api", written=oid("d9")), "web": on_branch("web")}

    api, _ = grouped((asking, kept(WEB)), BRANCH, OPEN, drafts=drafts)

    assert api == replace(
        asking,
        op=Op.PUBLISH,
        reason=Reason.HELD_BACK,
        message=HELD,
        tree=oid("b1"),
        writes=(tag,),
        pull=None,
        waits=True,
        group=HEAD,
    )


@pytest.mark.parametrize(
    ("branch", "main_tree", "op", "reason", "message"),
    [
        ({"deleted": frozenset({"api"})}, oid("b1"), Op.KEEP, Reason.DELETED_BY_PERSON, DELETED),
        ({"deleted": frozenset({"web"})}, oid("b1"), Op.KEEP, None, ""),
        ({"deleted": frozenset({"api"})}, None, Op.KEEP, None, ""),
        ({"deleted": frozenset({"api"})}, oid("b1"), Op.BLOCK, None, ""),
        ({"ref": EMPTIED_REF, "dropped": frozenset({"api"})}, None, Op.KEEP, Reason.HELD_BACK, EMPTIED),
        ({"ref": EMPTIED_REF, "dropped": frozenset({"web"})}, None, Op.KEEP, None, ""),
    ],
)
def test_package_that_a_person_deleted_on_an_open_branch_waits_for_them(
    branch: dict[str, Any], main_tree: Oid | None, op: Op, reason: Reason | None, message: str
) -> None:
    group = replace(BRANCH, **branch)
    head = group.ref.removeprefix("refs/heads/")
    pull, change = a_pull(number=6, head=head), kept(API, op=op)

    (api,) = grouped((change,), group, pull, main_tree=main_tree)
    (over,) = grouped((change,), group, replace(pull, state=PullState.CLOSED), main_tree=main_tree)

    waiting = {Reason.DELETED_BY_PERSON, Reason.HELD_BACK}
    assert over.reason not in waiting, "the branch is not open"
    if reason is None:
        assert api.reason not in waiting
    else:
        assert (api.reason, api.message, api.waits) == (reason, message.format(head, "api"), True)


# Numbers of groups


def test_newest_open_group_of_several_is_joined() -> None:
    older, newer = BRANCH, replace(BRANCH, ref=f"{REF[:-1]}10")
    context = context_of({"api": None}, older)
    view = replace(EDGE, groups=(older, newer, replace(BRANCH, ref=f"{REF[:-1]}9")))
    repositories = replace(context.inventory, repositories={view.key: view})

    (api,) = staged("group", group_changes, (a_change(API),), replace(context, inventory=repositories))

    assert api.group == f"{HEAD[:-1]}10"


def test_number_of_a_group_that_ended_does_not_come_back() -> None:
    ended = a_pull(PullState.CLOSED, head=f"{HEAD[:-1]}12")
    of_another = a_pull(PullState.MERGED, head=group_ref("default", ("set", "default", "edge"), 30))

    (api,) = grouped((a_change(API),), None, ended, of_another)

    assert api.group == f"{HEAD[:-1]}13"


# Drafts that leave a group


UNREADY = (a_conflict("a", "b", "1", "2"),)


def test_branch_of_which_all_leave_is_removed_with_its_pull_request() -> None:
    leaving = kept(API, op=Op.CLOSE, tree=oid("b1"))

    (api,) = grouped((leaving,), BRANCH, OPEN, drafts={"api": on_branch("api")})

    assert api == replace(
        leaving, writes=(MoveRef(REF, oid("a1"), None),), close=(ClosePull(6, HEAD, EMPTY),)
    )


def test_draft_that_no_variant_wants_leaves_as_the_control_repository_removed_it() -> None:
    leaving = kept(API, op=Op.DELETE, reason=Reason.NOT_DESIRED)
    drafts = {"api": on_branch("api"), "web": on_branch("web")}

    api, _ = grouped((leaving, kept(WEB)), BRANCH, OPEN, drafts=drafts, wanted=("web",))

    (write,) = api.writes
    assert isinstance(write, WriteGroup)
    assert write.time == web_context().inventory.control.commit.time
    assert api.op is Op.DELETE


# Groups that ended

CLOSED = a_pull(PullState.CLOSED, head=HEAD, number=6, head_oid=oid("a1"))


def test_draft_in_a_closed_group_that_asks_for_a_pull_request_gets_its_own_branch() -> None:
    asking = kept(API, op=Op.UPDATE, conflicts=UNREADY, pull=PullRequest(HEAD, "main", "", "", number=6))

    (api,) = grouped((asking,), BRANCH, CLOSED, drafts={"api": on_branch("api", tree=oid("d4"))})

    ref = "refs/heads/drafts/api/packagevariant-1"
    assert api.writes[1:] == (MoveRef(REF, oid("a1"), None),)
    assert api.writes[0] == plan_values.a_write(
        ref=ref,
        path="api",
        tree=oid("d4"),
        message="Creating new revision by copying previous revision\n\n\n"
        'kpt:{"package":"api","workspaceName":"packagevariant-1","revision":"0",'
        '"task":{"type":"edit","edit":{"sourceRef":{"name":"edge.api.main"}}}}\n',
        time=35,
    )
    assert api.pull == PullRequest("drafts/api/packagevariant-1", "main", "", "")


def test_undesired_draft_of_a_closed_group_with_commits_of_people_stays() -> None:
    gone = kept(API, op=Op.DELETE, reason=Reason.NOT_DESIRED)
    foreign = replace(BRANCH, has_foreign_commits=True)

    (api,) = grouped((gone,), foreign, CLOSED, drafts={"api": on_branch("api")}, wanted=())

    assert api == kept(API, reason=Reason.REJECTED, message=ENDED, group=HEAD, tree=oid("b1"))
