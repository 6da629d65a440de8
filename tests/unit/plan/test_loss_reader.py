"""What merging a proposal takes with it: from which content, and by which snapshot it is counted."""

from typing import Any, NamedTuple

import pytest

from reconciler.base.errors import Location
from reconciler.base.reasons import Reason
from reconciler.dependencies.lock.format import LockUpdate
from reconciler.inventory.snapshot import Snapshot, SnapshotObject
from reconciler.names.ids import GroupKind
from reconciler.names.objects import File, Files
from reconciler.plan.changes import Change, MoveRef, Op, WriteRemoval
from reconciler.plan.loss_reader import LossReader
from tests.support.plan_values import (
    PACKAGE,
    URL,
    WEB,
    a_change,
    a_draft,
    a_record,
    a_target,
    a_write,
    oid,
    web_context,
)
from tests.support.sets import COMMIT, a_package, repository
from tests.support.values import replace

MAIN, NEW = oid("b1"), oid("e1")


def definition(kind: str = "Net", group: str = "x.io", more: str = "") -> str:
    return f"""\
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {{name: {kind.lower()}s.{group}}}
spec: {{group: {group}, names: {{kind: {kind}}}{more}}}
"""


def named(kind: str, name: str, namespace: str = "") -> str:
    where = f", namespace: {namespace}" if namespace else ""
    return f"apiVersion: v1\nkind: {kind}\nmetadata: {{name: {name}{where}}}\n"


def claim(namespace: str = "") -> str:
    return named("PersistentVolumeClaim", "data", namespace)


def files(**texts: str) -> Files:
    return {f"{name}.yaml": File.of(text.encode()) for name, text in texts.items()}


def item(api_version: str, kind: str, namespace: str, name: str) -> SnapshotObject:
    return SnapshotObject(api_version, kind, namespace, name, {}, {}, {}, Location("objects.json"))


THERE = (
    item("x.io/v1", "Net", "shop", "a"),
    item("x.io/v2", "Net", "shop", "a"),
    item("x.io/v1", "Net", "bank", "b"),
    item("y.io/v1", "Net", "shop", "c"),
    item("v1", "ConfigMap", "shop", "app"),
    item("x.io/v1", "XDb", "", "db"),
)
LISTED = frozenset({(GroupKind("x.io", "Net"), "*"), (GroupKind("", "ConfigMap"), "shop")})
VIEW = repository("edge", url=URL, cluster="edge", deployment=True)


def a_snapshot(**fields: Any) -> Snapshot:
    objects: dict[tuple[str, str], tuple[SnapshotObject, ...]] = {}
    for there in THERE:
        key = (there.api_version, there.kind)
        objects[key] = (*objects.get(key, ()), there)
    given = {"present": True, "objects": objects, "complete": LISTED, "time": COMMIT.time, **fields}
    return Snapshot(**given)


WRITTEN = a_change(op=Op.UPDATE, variant=WEB, writes=(a_write(tree=NEW),))


def lost(
    old: Files | None,
    new: Files | None = None,
    change: Change = WRITTEN,
    *,
    others: tuple[Any, ...] = (),
    snapshot: Snapshot | None = None,
    policy: str = "delete",
    **target: Any,
) -> list[str]:
    """Return each loss as its cause, its kind and how many objects of it go."""
    contents = {tree: side for tree, side in ((MAIN, old), (NEW, new)) if side is not None}
    goal = a_target(view=VIEW, **target)
    records = {WEB: a_record(deletion_policy=policy)}
    inventory = {"views": (VIEW, *others), "snapshot": snapshot or a_snapshot(), "records": records}
    context = web_context(goal, inventory=inventory, variants={}, downstreams={})
    losses = LossReader(context.inventory, LockUpdate(())).of_changes(context, {PACKAGE: change}, contents)
    return [f"{loss.cause}: {loss.kind} {loss.count}" for loss in losses.get(PACKAGE, ())]


SHOP = [
    "Namespace shop:  None",
    "Namespace shop: ConfigMap 1",
    "Namespace shop: Net.x.io 1",
    "Namespace shop: Net.y.io None",
]
NET = ["CustomResourceDefinition nets.x.io: Net.x.io 2"]


@pytest.mark.parametrize(
    ("old", "new", "losses"),
    [
        (files(a=definition()), files(), NET),
        (files(a=definition()), files(b=definition()), []),
        (files(a=definition()), files(a=definition(more=", scope: Cluster")), []),
        (files(a=definition(group="y.io")), files(), ["CustomResourceDefinition nets.y.io: Net.y.io None"]),
        (files(a=definition("Db")), files(), ["CustomResourceDefinition dbs.x.io: Db.x.io None"]),
        (files(a=definition("XDb", more=", claimNames: {kind: Net}")), files(),
            [f"CustomResourceDefinition xdbs.x.io: {loss}" for loss in ("Net.x.io 2", "XDb.x.io None")]),
        (files(a=named("Namespace", "shop")), files(), SHOP),
        (files(a=named("Namespace", "empty")), files(), ["Namespace empty:  None"]),
        (files(a=claim()), files(), ["PersistentVolumeClaim data: PersistentVolumeClaim 1"]),
        (files(a=claim()), files(a=claim("shop")), []),
        (files(a=claim("shop")), files(a=claim()), []),
        (files(a=claim("a")), files(a=claim("b")), ["PersistentVolumeClaim a/data: PersistentVolumeClaim 1"]),
        (files(a=named("ConfigMap", "app")), files(), []),
    ],
)  # fmt: skip
def test_removed_resource_takes_what_depends_on_it(old: Files, new: Files, losses: list[str]) -> None:
    assert lost(old, new) == losses


class Proposal(NamedTuple):
    reason: str
    losses: list[str]
    change: Change = a_change()
    fields: dict[str, Any] = {}  # noqa: RUF012 - it is never changed


DRAFT, DELETES = a_draft(tree=NEW), a_change(op=Op.DELETE, reason=Reason.DELETION_PROPOSED)
GUARDED = a_change(reason=Reason.DELETION_GUARD, variant=WEB)
REMOVAL = WriteRemoval("refs/heads/reconciler/default/delete/web", None, oid("b2"), "web", "gone", 1)
UNREAD = ["package web:  None"]
PROPOSALS = [
    Proposal("a draft that is written", NET, WRITTEN),
    Proposal("a draft that stays", NET, fields={"draft": DRAFT}),
    Proposal("no draft", []),
    Proposal("a draft that is closed", [], a_change(op=Op.CLOSE), {"draft": DRAFT}),
    Proposal("a draft whose branch goes", [], a_change(writes=(MoveRef(DRAFT.ref, oid("d2"), None),)),
        {"draft": DRAFT}),
    Proposal("a draft that people rejected", [], a_change(reason=Reason.REJECTED), {"draft": DRAFT}),
    Proposal("a deletion that is proposed", NET, DELETES),
    Proposal("a deletion that is written", NET, a_change(op=Op.DELETE, writes=(REMOVAL,))),
    Proposal("a deletion by a person", NET, a_change(reason=Reason.DELETED_BY_PERSON)),
    Proposal("a deletion that waits for consent", NET, GUARDED),
    Proposal("a release that waits for consent", [], GUARDED, {"policy": "orphan"}),
    Proposal("a draft that was not read", UNREAD, fields={"draft": a_draft(tree=oid("f9"))}),
    Proposal("main was not read", UNREAD, WRITTEN, {"old": None}),
    Proposal("nothing is on main", [], WRITTEN, {"package": a_package(main_tree=None)}),
]  # fmt: skip


@pytest.mark.parametrize("case", PROPOSALS, ids=lambda case: case.reason)
def test_content_of_a_proposal_is_compared_with_main(case: Proposal) -> None:
    fields = {"old": files(a=definition()), "new": files(), **case.fields}

    assert lost(change=case.change, **fields) == case.losses


OTHER = replace(VIEW, key=repository("other").key, url="host/other", cluster="other")
UNKNOWN = ["CustomResourceDefinition nets.x.io: Net.x.io None"]


@pytest.mark.parametrize(
    ("snapshot", "others", "losses"),
    [
        (a_snapshot(), (), NET),
        (a_snapshot(), (OTHER,), UNKNOWN),
        (a_snapshot(), (replace(OTHER, cluster="edge"),), NET),
        (a_snapshot(cluster="edge"), (OTHER,), NET),
        (a_snapshot(cluster="other"), (OTHER,), UNKNOWN),
        (a_snapshot(complete=frozenset()), (), UNKNOWN),
        (a_snapshot(time=COMMIT.time - 7 * 86400), (), NET),
        (a_snapshot(time=COMMIT.time - 7 * 86400 - 1), (), UNKNOWN),
        (a_snapshot(time=0, taken=COMMIT.time), (), NET),
        (Snapshot(), (), UNKNOWN),
        (Snapshot(clusters={"edge": a_snapshot(cluster="edge")}), (OTHER,), NET),
        (Snapshot(clusters={"other": a_snapshot(cluster="other")}), (), UNKNOWN),
    ],
)
def test_objects_are_counted_in_the_recent_and_complete_snapshot_of_the_cluster(
    snapshot: Snapshot, others: tuple[Any, ...], losses: list[str]
) -> None:
    assert lost(files(a=definition()), files(), others=others, snapshot=snapshot) == losses
