"""Decisions about packages that no variant wants, each as the whole change that the plan has."""

from typing import Any

import pytest

from reconciler.api.kptfile import KptfileHeader
from reconciler.base.errors import Location
from reconciler.base.reasons import Reason
from reconciler.expand import Desired
from reconciler.inventory.inventory import (
    Commit,
    Former,
    PackageRevision,
    PullRequest,
)
from reconciler.names.ids import Lifecycle, ObjectName, PackageKey
from reconciler.names.problems import Problem
from reconciler.plan.changes import Change, Op, WriteDraft, WriteRemoval
from reconciler.plan.compose import Parts, compose
from reconciler.plan.context import PlanTarget, branch_key
from reconciler.plan.deletions import decide_unwanted
from reconciler.plan.set_diff import VariantChange
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
PULL = PullRequest(DELETION, "main", "Delete web", "", draft=False)
REMOVAL = WriteRemoval(DELETION_REF, None, oid("b2"), "web", "Delete web\n", TIME)
OBSOLETE = "The package is proposed for deletion; this draft is obsolete."
V2 = PackageRevision(
    "web", "packagevariant-2", 2, Lifecycle.PUBLISHED, "refs/tags/web/v2", Commit(oid("f2"), 9), oid("b1")
)


def a_target(**fields: Any) -> PlanTarget:
    """Return the package on main, which the variant `web` owns."""
    given: dict[str, Any] = {"view": EDGE, "package": ON_MAIN, "owner": WEB, "main_owner": WEB, **fields}
    return PlanTarget(PACKAGE, **given)


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
def test_package_at_a_former_place(
    given: dict[str, Any], variants: bool, op: Op, reason: Reason, waits: bool
) -> None:
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


def test_draft_lets_a_package_go_and_keeps_its_content() -> None:
    assert release(a_target()) == RELEASED


def test_release_is_made_from_the_latest_revision() -> None:
    change = release(a_target(package=replace(ON_MAIN, published=(V2,))))
    (write,) = change.writes

    assert isinstance(write, WriteDraft)
    assert write.ref == "refs/heads/drafts/web/packagevariant-3"
    assert '"name":"edge.web.packagevariant-2"' in write.message
    assert '"workspaceName":"packagevariant-3"' in write.message


# Deletions that were refused before
