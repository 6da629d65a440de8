"""Decisions about packages that no variant wants, each as the whole change that the plan has."""

from typing import Any

import pytest

from reconciler.api.kptfile import KptfileHeader
from reconciler.base.errors import Location
from reconciler.base.reasons import Reason
from reconciler.expand import Desired
from reconciler.inventory.inventory import (
    Commit,
    DeletionBranch,
    Former,
    PackageRevision,
    PullRequest,
    PullState,
)
from reconciler.names.ids import Lifecycle, ObjectKey, ObjectName, PackageKey
from reconciler.names.problems import Problem
from reconciler.plan.changes import Change, ClosePull, MoveRef, Op, WriteRemoval
from reconciler.plan.compose import Parts, compose
from reconciler.plan.context import PlanTarget, branch_key
from reconciler.plan.deletions import _is_same_upstream, decide_unwanted, guard_moved
from reconciler.plan.set_diff import VariantChange
from reconciler.policy import Policy
from reconciler.records.state import RefusedDeletionsRecord, RefusedPackage
from reconciler.render.rendered import Blocked, Package, Rendered
from tests.support.plan_values import (
    BRANCH,
    EDGE,
    PACKAGE,
    WEB,
    a_change,
    a_desired,
    a_draft,
    a_pull,
    a_record,
    a_resolved,
    a_write,
    oid,
    stateless,
    web_context,
)
from tests.support.sets import a_package
from tests.support.values import replace

OWNED = KptfileHeader(owner="default/default/web", location="edge/web")
ON_MAIN = a_package(main_tree=oid("b1"), main_header=OWNED)
DELETION = "reconciler/default/delete/web"
DELETION_REF = f"refs/heads/{DELETION}"
TIME = web_context().inventory.control.commit.time
GONE = {WEB: VariantChange(WEB, Reason.NOT_DESIRED, "web.yaml is gone")}
CLOSED = a_pull(PullState.CLOSED, head=DELETION, number=6)
PULL = PullRequest(DELETION, "main", "Delete web", "", draft=False)
REMOVAL = WriteRemoval(DELETION_REF, None, oid("b2"), "web", "Delete web\n", TIME)
CLOSE_DRAFT = MoveRef(f"refs/heads/{BRANCH}", oid("d2"), None)
OBSOLETE = "The package is proposed for deletion; this draft is obsolete."


def a_target(**fields: Any) -> PlanTarget:
    """Return the package on main, which the variant `web` owns."""
    given: dict[str, Any] = {"view": EDGE, "package": ON_MAIN, "owner": WEB, "main_owner": WEB, **fields}
    return PlanTarget(PACKAGE, **given)


def proposed(base_tree: str = "b1", *, foreign: bool = False, **fields: Any) -> PlanTarget:
    """Return the package on main with a branch that proposes its deletion."""
    deletion = DeletionBranch(oid(base_tree), has_foreign_commits=foreign)
    branches = {DELETION: Commit(oid("a9"), 25)}
    given: dict[str, Any] = {
        "view": replace(EDGE, branches=branches),
        "package": replace(ON_MAIN, deletion=deletion),
        **fields,
    }
    return a_target(**given)


def decision(target: PlanTarget, *, policy: str = "delete", **fields: Any) -> Change:
    """Return the decision about a package of a variant with a manifest that is gone."""
    record = {"unedited": (oid("b1"), oid("b7")), **fields.pop("record", {})}
    records = {WEB: a_record(deletion_policy=policy, **record)}
    given: dict[str, Any] = {
        "desired": Desired(),
        "variants": {},
        "downstreams": {},
        "gone": GONE,
        **fields,
        "inventory": {"records": records, **fields.get("inventory", {})},
    }
    context = web_context(target, **given)
    return stateless(compose(Parts(decide_unwanted(context.targets[PACKAGE], context))))


KEPT = a_change(reason=Reason.NOT_DESIRED, variant=WEB, before=oid("b1"), tree=oid("b1"))
DELETED = replace(KEPT, op=Op.DELETE, message="web.yaml is gone", tree=None, writes=(REMOVAL,), pull=PULL)
STRANGER = replace(KEPT, reason=Reason.NOT_OURS, variant=None)


def test_deletion_of_what_no_run_made_tells_that_edits_may_go_with_it() -> None:
    message = "web.yaml is gone. People may have edited the package, and their edits go with it"

    assert decision(a_target(), record={"unedited": ()}) == replace(DELETED, message=message)


LATEST = PackageRevision(
    "web", "v2", 2, Lifecycle.PUBLISHED, "refs/tags/web/v2", Commit(oid("f2"), 2), oid("b2")
)
ALIKE = replace(LATEST, revision=1, workspace="v1", commit=Commit(oid("f1"), 1), tree=oid("b1"))


@pytest.mark.parametrize(
    ("published", "branches", "views", "marked"),
    [
        ((ALIKE, LATEST), (), (), [("v2", "f2")]),
        ((ALIKE, LATEST), ("deletionProposed/web/v2",), (), []),
        ((ALIKE, LATEST), (), ("prod",), [("v1", "f1")]),
        ((LATEST,), (), ("prod",), []),
        ((), (), (), []),
    ],
    ids=["the latest tag", "marked already", "of several branches its content", "none of it", "no tag"],
)
def test_proposal_of_a_deletion_marks_the_tag_that_porch_would_delete(
    published, branches, views, marked
) -> None:
    view = replace(EDGE, branches={branch: Commit(oid("a9"), 25) for branch in branches})
    target = a_target(view=view, package=replace(ON_MAIN, published=published))
    others = (replace(EDGE, key=ObjectName("default", branch), branch=branch) for branch in views)

    found = decision(target, inventory={"views": (view, *others)})

    assert [write for write in found.writes if isinstance(write, MoveRef)] == [
        MoveRef(f"refs/heads/deletionProposed/web/{name}", None, oid(commit)) for name, commit in marked
    ]


def test_draft_of_people_stays_beside_the_proposal() -> None:
    touched = a_draft(has_foreign_commits=True)
    left = f"A person committed to {BRANCH}, which no variant wants"
    step = f"{DELETED.message}. {left}: delete the branch to let it go"

    assert decision(a_target(draft=touched)) == replace(DELETED, message=step, waits=True)
    assert decision(a_target(merged=(touched,))) == replace(DELETED, writes=(CLOSE_DRAFT, REMOVAL))
    assert decision(a_target(others=(touched,))) == replace(DELETED, message=step, waits=True)
    for state, way in ((PullState.OPEN, "close pull request #4"), (PullState.MERGED, "delete the branch")):
        found = decision(a_target(draft=touched, pulls=(a_pull(state, number=4),)))
        assert found.message == f"{DELETED.message}. {left}: {way} to let it go"


def test_package_that_was_never_on_main_goes_with_its_draft() -> None:
    package = a_package(drafts=(a_draft(),))
    target = a_target(package=package, main_owner=None, draft=a_draft(), pulls=(a_pull(number=4),))
    comment = "No PackageVariant wants this package any more. It was never published: only its draft goes."
    gone = replace(
        DELETED,
        before=oid("d1"),
        tree=None,
        writes=(CLOSE_DRAFT,),
        close=(ClosePull(4, BRANCH, comment),),
        pull=None,
    )

    assert decision(target) == gone
    edited = a_draft(has_foreign_commits=True)
    assert decision(replace(target, draft=edited)) == replace(
        KEPT,
        reason=Reason.DRAFT_EDITED,
        message=f"A person committed to {BRANCH}, which no variant wants: close pull request #4 to let it go",
        before=oid("d1"),
        tree=oid("d1"),
        waits=True,
    )


@pytest.mark.parametrize(("control", "time"), [(40, 50), (60, 60)])
def test_proposal_that_main_changed_under_is_made_anew(control: int, time: int) -> None:
    commit = Commit(oid("cc"), control)
    inventory = {"control": replace(web_context().inventory.control, commit=commit)}

    opened = decision(proposed("b7", pulls=(a_pull(head=DELETION, number=6),)), inventory=inventory)

    assert opened == replace(
        DELETED,
        reason=Reason.DELETION_PROPOSED,
        repair="web changed on main: its deletion is proposed anew, with that change",
        writes=(replace(REMOVAL, expect=oid("a9"), time=time),),
        pull=None,
    )


def test_proposal_with_commits_of_people_waits_where_main_changed_under_it() -> None:
    opened = (a_pull(head=DELETION, number=6),)
    waits = replace(
        KEPT,
        reason=Reason.DELETION_PROPOSED,
        message=(
            "web changed on main since its deletion was proposed, and a person committed to the branch: "
            f"merge main into {DELETION} with git, or close pull request #6"
        ),
        waits=True,
    )

    assert decision(proposed("b7", foreign=True, pulls=opened)) == waits
    assert decision(proposed("b7", foreign=True, pulls=opened, draft=a_draft())) == replace(
        waits, op=Op.DELETE, writes=(CLOSE_DRAFT,)
    )
    unchanged = decision(proposed(foreign=True, pulls=opened))
    assert (unchanged.op, unchanged.waits, unchanged.message) == (Op.KEEP, False, "web.yaml is gone")
    unopened = decision(proposed("b7", foreign=True))
    assert (unopened.op, unopened.waits, unopened.pull) == (Op.DELETE, False, PULL)


DECLINED = replace(
    KEPT,
    reason=Reason.REJECTED,
    message=(
        "The pull request #6 of its deletion was closed. Remove web from main to delete it, "
        "or declare its variant again to keep it up to date"
    ),
)


def test_deletion_that_people_declined_is_not_proposed_again() -> None:
    refs = {PACKAGE: ((DELETION_REF, oid("a9")),)}
    cleared = replace(DECLINED, op=Op.CLOSE, writes=(MoveRef(DELETION_REF, oid("a9"), None),))

    assert decision(proposed(pulls=(CLOSED,)), proposed_deletions=refs) == cleared
    assert decision(a_target(pulls=(CLOSED,)), record={"deletion_proposed": True}) == DECLINED
    assert decision(a_target(pulls=(CLOSED,))) == DELETED
    assert decision(
        a_target(pulls=(CLOSED,)), gone={}, variants={WEB: a_desired()}, resolved={WEB: None}
    ) == (replace(DELETED, message="PackageVariant default/web has another downstream now: edge/web"))


def test_repository_without_a_commit_has_nothing_to_delete() -> None:
    assert decision(a_target(view=replace(EDGE, head=None))) == replace(KEPT, message="web.yaml is gone")


@pytest.mark.parametrize(
    ("fields", "reason", "message"),
    [
        pytest.param({"inventory": {"policy": Policy(suspend=True)}}, Reason.PAUSED,
            "The configuration suspends every change", id="suspended"),
        pytest.param({"stalled": frozenset({ObjectKey("config.porch.kpt.dev", "PackageVariant", *WEB)})},
            Reason.OWNER_STALLED, "PackageVariant default/web is not understood",
            id="owner with an invalid manifest"),
        pytest.param({"variants": {WEB: a_desired()}}, Reason.OWNER_STALLED,
            "PackageVariant default/web cannot be resolved", id="owner moved to nowhere"),
        pytest.param({"gone": {WEB: VariantChange(WEB, Reason.SNAPSHOT_STALE, "The snapshot is old")}},
            Reason.SNAPSHOT_STALE, "The snapshot is old", id="no evidence"),
        pytest.param({"gone": {}}, Reason.OWNER_UNKNOWN,
            "No record of PackageVariant default/web: nothing proves that it was deleted", id="no record"),
    ],
)  # fmt: skip
def test_package_is_kept_without_evidence(fields: dict[str, Any], reason: Reason, message: str) -> None:
    assert decision(a_target(draft=a_draft()), **fields) == replace(KEPT, reason=reason, message=message)


@pytest.mark.parametrize(
    ("set_name", "place"), [("", ". PackageVariant default/new has its package now: edge/web"), ("fleet", "")]
)
def test_deletion_names_the_place_of_a_variant_under_its_new_name(set_name: str, place: str) -> None:
    upstream, set_key = {"repo": "blueprints", "package": "web"}, ObjectName("default", set_name)
    new = replace(a_desired("new", upstream=upstream), set_key=set_key if set_name else None)

    found = decision(
        a_target(),
        record={"set_name": set_name, "spec": {"upstream": upstream}},
        desired=Desired((new,)),
        resolved={new.key: a_resolved(variant=new)},
    )

    assert found.message == f"web.yaml is gone{place}"


@pytest.mark.parametrize(
    ("repo", "package"), [("blueprints", "web"), ("blueprints", "app"), ("other", "web")]
)
@pytest.mark.parametrize("is_renamed", [True, False])
def test_variant_follows_one_of_the_same_upstream(repo: str, package: str, *, is_renamed: bool) -> None:
    recorded = {"repo": repo, "package": package}
    variant = a_desired(upstream={"repo": "blueprints", "package": "web"})

    is_same = _is_same_upstream(variant, recorded, is_renamed=is_renamed)

    assert is_same is (repo == "blueprints" and (is_renamed or package == "web"))


def test_package_that_a_paused_variant_left_is_kept() -> None:
    paused = replace(a_desired(), paused=True)
    other = ObjectName("default", "other")

    assert decision(a_target(), variants={WEB: paused}, resolved={WEB: None}) == replace(
        KEPT, reason=Reason.PAUSED, message="Paused by annotation"
    )
    assert decision(a_target(), variants={other: paused}) == DELETED


OLD_PLACE = "Repository default/edge moved from directory a to directory b"


def at_former_place(reason: Reason = Reason.MOVED, *, problem: str = "", branch: bool = False) -> PlanTarget:
    """Return the package at a place that its Repository left, or that cannot be read."""
    view = replace(EDGE, former=Former(reason, OLD_PLACE, {"web": WEB}))
    where = Location("web.yaml")
    unread = Problem(where, Reason.REPOSITORY_UNAVAILABLE, problem) if problem else None
    view = replace(view, problem=unread)
    if problem:
        return a_target(view=view, package=a_package(), owner=None, main_owner=None)
    target = a_target(view=view, draft=a_draft(), pulls=(a_pull(number=4),))
    return replace(target, key=branch_key(target.key, "main")) if branch else target


@pytest.mark.parametrize(
    ("given", "variants", "op", "reason", "waits"),
    [
        pytest.param({}, True, Op.DELETE, Reason.MOVED, False, id="the variant is elsewhere"),
        pytest.param({}, False, Op.DELETE, Reason.NOT_DESIRED, False, id="the variant is gone too"),
        pytest.param({"reason": Reason.PLACE_GONE}, False, Op.DELETE, Reason.PLACE_GONE, False,
            id="the Repository is gone"),
        pytest.param({"reason": Reason.OWNER_STALLED}, False, Op.KEEP, Reason.OWNER_STALLED, False,
            id="the Repository is not understood"),
        pytest.param({"reason": Reason.MANIFEST_UNREADABLE}, True, Op.KEEP, Reason.MANIFEST_UNREADABLE, False,
            id="its file is unreadable"),
        pytest.param({"branch": True}, True, Op.KEEP, Reason.MOVED, True, id="it has another branch"),
        pytest.param({"problem": "down"}, True, Op.KEEP, Reason.MOVED, True, id="the old place is down"),
        pytest.param({"reason": Reason.PLACE_GONE, "problem": "down"}, False, Op.KEEP, Reason.PLACE_GONE,
            True, id="nobody can look"),
    ],
)  # fmt: skip
def test_package_at_a_former_place(given, variants, op, reason, waits) -> None:
    target = at_former_place(**given)
    wanted = replace(a_resolved(), downstream=PackageKey(PACKAGE.url, "b/web"))
    fields: dict[str, Any] = {"variants": {WEB: a_desired()}, "resolved": {WEB: wanted}} if variants else {}
    record = {"repository": "edge", "url": PACKAGE.url, "path": PACKAGE.path}

    change = decision(target, record=record, **fields)

    assert (change.op, change.reason, change.waits, change.variant) == (op, reason, waits, WEB)
    assert OLD_PLACE in change.message
    assert bool(change.writes) is (op is Op.DELETE)
    assert [close.comment for close in change.close] == [f"{OLD_PLACE}. {OBSOLETE}"] * (op is Op.DELETE)
    assert ("spec.consents" in change.message) is ("problem" in given)


# Packages without an owner


def test_package_of_strangers_is_kept() -> None:
    assert decision(a_target(owner=None, main_owner=None)) == STRANGER


# Packages that are let go


RELEASE = a_write(
    message="Creating new revision by copying previous revision\n\n\n"
    'kpt:{"package":"web","workspaceName":"packagevariant-1","revision":"0",'
    '"task":{"type":"edit","edit":{"sourceRef":{"name":"edge.web.main"}}}}\n',
    time=TIME,
)
RELEASE_PULL = PullRequest(BRANCH, "main", "Stop managing web", "", draft=False)
RELEASED = replace(
    KEPT,
    op=Op.ORPHAN,
    reason=Reason.ORPHANED,
    message="web.yaml is gone",
    tree=oid("e1"),
    writes=(RELEASE,),
    pull=RELEASE_PULL,
)

NEW = Package(oid("e1"))


def release(target: PlanTarget, package: Package | Blocked | None = NEW, **fields: Any) -> Change:
    releases = {PACKAGE: package} if package else {}
    return decision(target, policy="orphan", rendered=Rendered(releases=releases), **fields)


@pytest.mark.parametrize(
    ("package", "message"),
    [(None, "Its content was not read"), (Blocked(Reason.INVALID_PACKAGE, "It is no YAML"), "It is no YAML")],
)
def test_package_that_cannot_be_rendered_is_not_let_go(package: Blocked | None, message: str) -> None:
    assert release(a_target(), package) == replace(
        KEPT, op=Op.BLOCK, reason=Reason.ORPHANED, message=message, waits=True
    )


def test_release_withdraws_what_proposed_the_deletion() -> None:
    refs = {PACKAGE: ((DELETION_REF, oid("a9")),)}
    withdrawn = MoveRef(DELETION_REF, oid("a9"), None)
    opened = a_pull(head=DELETION, number=6)
    closing = (ClosePull(6, DELETION, "The package is kept after all."),)
    draft = a_draft(tree=oid("e1"))
    proposal = proposed(pulls=(opened,))
    in_review = replace(proposal, package=replace(ON_MAIN, drafts=(draft,)), draft=draft)
    empty = replace(proposal, view=replace(EDGE, head=None))

    assert release(proposal, proposed_deletions=refs) == replace(
        RELEASED, writes=(withdrawn, RELEASE), close=closing
    )
    want = replace(RELEASED, writes=(withdrawn,), close=closing, pull=None)
    assert release(in_review, proposed_deletions=refs) == want
    assert release(empty, proposed_deletions=refs) == want


# Deletions that were refused before


DOWN = Problem(Location("repositories.yaml", 1), Reason.REPOSITORY_UNAVAILABLE, "It is down")


@pytest.mark.parametrize(
    ("target", "fields", "waits"),
    [
        pytest.param({}, {"downstreams": {}}, True, id="it is there, and nobody wants it"),
        pytest.param({}, {}, False, id="it is wanted again"),
        pytest.param({"owner": None}, {"downstreams": {}}, False, id="it is nobody's"),
        pytest.param(None, {}, False, id="it is gone"),
        pytest.param(None, {"view": {"problem": DOWN}}, True, id="its repository cannot be read"),
    ],
)
def test_refused_deletion_waits_while_its_package_may_be_there(target, fields, waits) -> None:
    given = dict(fields)
    refused = RefusedDeletionsRecord(packages=(RefusedPackage(url=PACKAGE.url, path="web", of=9),))
    view = replace(EDGE, **given.pop("view", {}))
    targets = {} if target is None else {PACKAGE: a_target(**target)}
    context = web_context(targets=targets, inventory={"views": (view,), "refused": refused}, **given)

    guarded = guard_moved(context, [])

    assert guarded.waiting == ({PACKAGE: 9} if waits else {})
    assert guarded.refusals == ()
