"""Records of a plan, each by its whole content, and the packages that they are about."""

import json
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from reconciler.api.kptfile import KptfileHeader
from reconciler.base.errors import Location
from reconciler.base.reasons import Reason
from reconciler.expand import Desired
from reconciler.inventory.inventory import Commit, Control, Former, RepositoryRole
from reconciler.inventory.standing import Position, Standing
from reconciler.names.ids import ObjectName, PackageKey, RolloutKey
from reconciler.names.problems import Problem
from reconciler.plan.changes import Approval, Change, GroupPart, Op, WriteGroup, WriteRemoval
from reconciler.plan.context import PlanContext, PlanTarget, place_consent
from reconciler.plan.records import applied_commit, plan_locks, plan_records, record_owners
from reconciler.plan.set_diff import SetDiff, VariantChange
from reconciler.policy import Policy
from reconciler.records.state import (
    SCHEMA,
    ConflictRecord,
    PackageVariantRecord,
    RecordedDownstream,
    RefusedMerge,
    RolloutRecord,
    SetRecord,
    record_bytes,
    record_path,
)
from reconciler.render.answers import Answer, AnsweredBy
from reconciler.render.rendered import Blocked, Package, Rendered, RenderedVariant
from reconciler.resolve.pins import lock_pin, upstream_data
from reconciler.resolve.resolution import Resolution, ResolvedVariant
from reconciler.resolve.rollout_model import Rollout, RolloutPhase
from tests.support import plan_values
from tests.support.plan_values import (
    EDGE,
    KEPT,
    PACKAGE,
    URL,
    WEB,
    a_conflict,
    a_desired,
    a_draft,
    a_pin,
    a_record,
    a_target,
    a_write,
    oid,
    web_context,
)
from tests.support.sets import package_set, repository, source
from tests.support.values import replace

FLOATING = {"repo": "blueprints", "package": "web", "branch": "main"}
RECORD = "packagevariants/default/web.json"
LOCK = "locks/upstreams/default/web.json"
SET = "packagevariantsets/default/fleet.json"
PLACE = {"branch": "main", "remote": "https://host/edge", "registration": "repositories.yaml"}
OLD = a_record(uid="old", inputs="then", output_tree="b1", **PLACE)
WRITE = a_write()
CONFLICT = a_conflict("a.yaml", "spec", "1", None, "Pod a", "a#spec")
OPEN = ConflictRecord(path="a.yaml", field="spec", upstream="1", local=None, resource="Pod a", name="a#spec")
ANSWER = Answer(
    a_conflict("a.yaml", "spec", "1", "2", "Pod a", "a#spec"), AnsweredBy.POLICY, "2", "keep-local", "the set"
)


def a_resolved(**fields: Any) -> ResolvedVariant:
    """Return the variant `web` at revision 2 with revision 1 on main."""
    given: dict[str, Any] = {
        "variant": a_desired(deletionPolicy="orphan", upstream=FLOATING),
        "downstream": PACKAGE,
        "pin": a_pin(2),
        "base": a_pin(1),
        "local": oid("b1"),
        "inputs": "now",
        "objects": {"Team blue": "digest"},
        "facts": {"engine": "1"},
        **fields,
    }
    return plan_values.a_resolved(**given)


def context_of(
    resolved: ResolvedVariant | None,
    fresh: Package | Blocked | None = None,
    target: PlanTarget | None = None,
    *,
    old: PackageVariantRecord | None = None,
    **fields: Any,
) -> PlanContext:
    inventory = {"records": {WEB: old} if old else {}, **fields.pop("inventory", {})}
    rendered = RenderedVariant(WEB, fresh or Package(oid("e1")))
    given: dict[str, Any] = {
        "resolved": {WEB: resolved} if resolved else {},
        "rendered": Rendered({WEB: rendered}),
        "inventory": inventory,
        **fields,
    }
    return web_context(target, **given)


def files_of(change: Change = KEPT, *given: Any, **fields: Any) -> dict[str, Any]:
    resolved, *rest = given or (a_resolved(),)
    context = context_of(resolved, *rest, **fields)
    records = plan_records(context, [change]) | plan_locks(context, [change])
    return {path: json.loads(data) for path, data in records.items()}


NEW = a_record(
    namespace="default",
    name="web",
    url=URL,
    path="web",
    deletion_policy="orphan",
    spec={"upstream": FLOATING, "downstream": {"repo": "edge", "package": "web"}, "deletionPolicy": "orphan"},
    upstream_commit=oid("a2"),
    upstream_tree=oid("c2"),
    inputs="now",
    local_tree=oid("b1"),
    output_tree=oid("e1"),
    objects={"Team blue": "digest"},
    facts={"engine": "1"},
    **PLACE,
)


def record_of(change: Change = KEPT, *given: Any, **fields: Any) -> PackageVariantRecord:
    return msgspec.convert(files_of(change, *given, **fields)[RECORD], PackageVariantRecord)


def test_record_of_an_older_version_gets_its_place() -> None:
    older = replace(OLD, branch="", remote="", registration="")

    assert record_of(replace(KEPT, reason=Reason.PAUSED), a_resolved(), old=older) == OLD


def test_record_has_what_the_package_was_made_from_and_what_is_open_in_it() -> None:
    wanted = replace(
        a_desired(),
        uid="123",
        set_key=ObjectName("default", "fleet"),
        target="Cluster prod",
        requested_by=("prod/gateway",),
        annotations={"reconciler.dev/retry": "4"},
    )
    change = replace(
        KEPT, group="g", conflicts=(CONFLICT,), answers=(ANSWER,), unready=("a gate",), writes=(WRITE,)
    )

    record = record_of(change, a_resolved(variant=wanted, local=None), Package(oid("e7"), injection="Team"))

    assert record == replace(
        NEW,
        uid="123",
        set_name="fleet",
        target="Cluster prod",
        requested_by=("prod/gateway",),
        retry="4",
        deletion_policy="delete",
        spec={
            "upstream": {"repo": "blueprints", "package": "app", "revision": 1},
            "downstream": {"repo": "edge", "package": "web"},
        },
        local_tree="",
        unedited=(oid("e1"),),
        group="g",
        injection="Team",
        conflicts=(OPEN,),
        answers=(
            ConflictRecord(
                path="a.yaml",
                field="spec",
                upstream="1",
                local="2",
                resource="Pod a",
                name="a#spec",
                chosen="2",
                by="policy",
                policy="keep-local",
                source="the set",
            ),
        ),
        asked_from=oid("c1"),
        unready=("a gate",),
        failed=False,
    )


UNDECIDED = [
    Reason.PAUSED,
    Reason.OWNER_STALLED,
    Reason.PACKAGE_EXISTS,
    Reason.DUPLICATE_DOWNSTREAM,
    Reason.HELD_BACK,
    Reason.PIPELINE_FAILED,
    Reason.PULL_REQUEST_UNREADABLE,
    Reason.UPSTREAM_TAG_MOVED,
]


@pytest.mark.parametrize("reason", UNDECIDED)
def test_record_stays_as_it_was_while_nothing_is_applied(reason: Reason) -> None:
    change = replace(KEPT, reason=reason)

    assert files_of(change, a_resolved(), old=OLD) == {RECORD: json.loads(record_bytes(OLD))}
    assert files_of(change) == {}


def test_question_that_is_in_no_commit_yet_is_recorded_all_the_same() -> None:
    held = replace(KEPT, reason=Reason.HELD_BACK, conflicts=(CONFLICT,))

    assert record_of(held, a_resolved(), old=OLD) == replace(OLD, conflicts=(OPEN,))
    assert files_of(held) == {}
    assert record_of(replace(held, reason=Reason.PAUSED), a_resolved(), old=OLD) == OLD


@pytest.mark.parametrize(
    ("change", "fresh", "draft", "tree"),
    [
        pytest.param({"writes": (WRITE,)}, Package(oid("e5")), None, "e1", id="written now"),
        pytest.param({}, Package(oid("e5")), None, "e5", id="no draft"),
        pytest.param({}, Package(oid("e5")), a_draft(), "e5", id="draft of ours"),
        pytest.param({}, Package(oid("e5")), a_draft(has_foreign_commits=True), "d1", id="draft of people"),
        pytest.param({}, Package(oid("d4")), a_draft(has_foreign_commits=True, tree=oid("d4"),
            written=oid("d1")), "d4", id="people wrote what we would"),
        pytest.param({}, Package(oid("d1")), a_draft(has_foreign_commits=True, tree=oid("d4"),
            written=oid("d1")), "d1", id="nothing is new on our side"),
        pytest.param({}, Package(oid("b1")), a_draft(has_foreign_commits=True), "b1", id="main has it"),
        pytest.param({}, Blocked(Reason.INVALID_PACKAGE, ""), None, "", id="cannot be rendered"),
        pytest.param({"writes": (WriteGroup("refs/heads/g", None, oid("b2"), (GroupPart("web", oid("e9")),),
            "", 1),), "group": "g"}, Package(oid("e5")), None, "e9", id="written in a group"),
    ],
)  # fmt: skip
def test_proposed_tree_is_what_was_written_or_is_still_up_to_date(change, fresh, draft, tree) -> None:
    record = record_of(replace(KEPT, **change), a_resolved(draft=draft), fresh)

    assert record.output_tree == (oid(tree) if tree else "")
    assert record.injection is None


def test_group_that_was_closed_with_the_package_is_remembered() -> None:
    old = replace(OLD, group="g")

    assert record_of(replace(KEPT, reason=Reason.REJECTED), a_resolved(), old=old).group == "g"
    assert record_of(KEPT, a_resolved(), old=old).group == ""
    assert record_of(replace(KEPT, reason=Reason.REJECTED)).group == ""


# Deletions

REMOVAL = WriteRemoval("refs/heads/reconciler/default/delete/web", None, oid("b2"), "web", "", 90)


@pytest.mark.parametrize(
    ("change", "want"),
    [
        ({"op": Op.DELETE, "reason": Reason.NOT_DESIRED}, {"inputs": "", "output_tree": ""}),
        ({"reason": Reason.DELETION_PROPOSED}, {"inputs": "", "output_tree": "", "deletion_proposed": True}),
        ({"reason": Reason.NOT_DESIRED, "writes": (REMOVAL,)},
            {"inputs": "", "output_tree": "", "deletion_proposed": True}),
        ({"reason": Reason.NOT_DESIRED}, {}),
    ],
)  # fmt: skip
def test_deletion_forgets_what_was_proposed(change: Mapping[str, Any], want: Mapping[str, Any]) -> None:
    assert record_of(replace(KEPT, **change), None, old=OLD) == replace(OLD, **want)


LEAVING = SetDiff(delete=(VariantChange(WEB, Reason.NOT_DESIRED, record=OLD),))


@pytest.mark.parametrize(
    ("change", "target", "fields", "stays"),
    [
        pytest.param({}, {}, {}, False, id="main names no owner"),
        pytest.param({}, {"main_owner": WEB}, {}, True, id="main names it"),
        pytest.param({}, {"main_owner": ObjectName("default", "api")}, {}, False, id="main names another"),
        pytest.param({}, {"draft": a_draft()}, {}, True, id="a draft names it"),
        pytest.param({}, {"draft": a_draft(header=KptfileHeader())}, {}, False, id="a draft names nobody"),
        pytest.param({"writes": (WRITE,)}, {}, {}, True, id="a draft is written for it"),
        pytest.param({"writes": (WRITE,), "variant": None}, {}, {}, False, id="a draft for nobody"),
        pytest.param({"writes": (WRITE,), "op": Op.ORPHAN}, {"draft": a_draft()}, {}, False, id="released"),
        pytest.param({}, {}, {"diff": SetDiff(transfer=LEAVING.delete)}, False, id="taken over"),
        pytest.param({}, {}, {"diff": SetDiff(keep=LEAVING.delete)}, True, id="kept"),
        pytest.param({}, {}, {"inventory": {"views": (replace(EDGE,
            problem=Problem(Location("a", 1), Reason.REPOSITORY_UNAVAILABLE, "")),)}}, True,
            id="its repository was not read"),
        pytest.param({}, {}, {"diff": SetDiff(delete=(VariantChange(WEB, Reason.NOT_DESIRED),))}, True,
            id="no record"),
    ],
)  # fmt: skip
def test_record_leaves_after_everything_that_names_it(change, target, fields, stays) -> None:
    change = replace(KEPT, reason=Reason.NOT_OURS, **change)

    files = files_of(change, None, None, a_target(**target), old=OLD, **{"diff": LEAVING, **fields})

    assert (RECORD in files) is stays


LEFT = RecordedDownstream(url="host/old", path="web", repository="old")
DOWN = Problem(Location("a", 1), Reason.REPOSITORY_UNAVAILABLE, "")


@pytest.mark.parametrize(
    ("view", "target", "consents", "stays"),
    [
        pytest.param({}, {"main_owner": WEB}, False, True, id="main there names it"),
        pytest.param({}, {}, False, False, id="nothing there names it"),
        pytest.param({"problem": DOWN}, None, False, True, id="nobody can look"),
        pytest.param({"problem": DOWN}, None, True, False, id="people gave it up"),
        pytest.param({"role": RepositoryRole.READ}, None, False, True, id="another shard looks there"),
    ],
)
def test_former_place_is_recorded_while_something_of_the_variant_may_be_there(
    view: Mapping[str, Any], target: Mapping[str, Any] | None, *, consents: bool, stays: bool
) -> None:
    why = Former(Reason.PLACE_GONE, "Repository default/old is gone", {"web": WEB})
    there = repository("old", url=LEFT.url, former=why, **view)
    key = PackageKey(LEFT.url, LEFT.path)
    targets = {} if target is None else {key: replace(a_target(view=there, **target), key=key)}
    changes = [KEPT, replace(KEPT, package=key, reason=Reason.PLACE_GONE)]
    policy = Policy(consents={place_consent(there): "why"} if consents else {})
    inventory = {"former": {there.key: there}, "records": {WEB: replace(OLD, former=(LEFT,))}}
    context = context_of(a_resolved(), targets={PACKAGE: a_target(), **targets}, inventory=inventory)
    context = replace(context, inventory=replace(context.inventory, policy=policy))

    files = plan_records(context, changes if targets else changes[:1])

    record = msgspec.json.decode(files[RECORD], type=PackageVariantRecord)
    assert record.former == ((replace(LEFT, known_as="old"),) if stays else ())


def test_refused_deletions_are_recorded_with_what_they_were_measured_against() -> None:
    waiting = {ObjectName("default", "b"): 7, ObjectName("default", "a"): 8}
    packages = {PackageKey("host/z", "a"): 3, PACKAGE: 4}

    files = plan_records(context_of(None, diff=SetDiff(waiting=waiting)), [KEPT], packages)

    assert json.loads(files["deletions.json"]) == {
        "apiVersion": SCHEMA,
        "kind": "RefusedDeletionsRecord",
        "variants": [
            {"namespace": "default", "name": "a", "of": 8},
            {"namespace": "default", "name": "b", "of": 7},
        ],
        "packages": [{"url": URL, "path": "web", "of": 4}, {"url": "host/z", "path": "a", "of": 3}],
    }
    assert list(plan_records(context_of(None, diff=SetDiff(waiting=waiting)), [KEPT])) == list(files)
    assert plan_records(context_of(None), [KEPT]) == {}


# Pins


def a_lock(revision: int = 1, **fields: Any) -> Any:
    lock = lock_pin(WEB, upstream_data(a_resolved().variant), a_pin(revision))
    return msgspec.structs.replace(lock, **fields)


@pytest.mark.parametrize(
    ("change", "fields", "revision"),
    [
        pytest.param({}, {}, 2, id="the pin of this run"),
        pytest.param({}, {"inventory": {"locks": {WEB: a_lock()}}}, 2, id="the old one moves"),
        pytest.param({}, {"inventory": {"locks": {WEB: a_lock(held=True)}}}, 1, id="a person holds it"),
        pytest.param({}, {"inventory": {"locks": {WEB: a_lock(held=True, repository="other")}}}, 2,
            id="a person held it for another upstream"),
        pytest.param({"op": Op.BLOCK}, {"inventory": {"locks": {WEB: a_lock()}}}, None, id="never applied"),
        pytest.param({"op": Op.BLOCK}, {"inventory": {"locks": {WEB: a_lock(held=True)}}}, 1,
            id="held for a first time"),
        pytest.param({"op": Op.BLOCK}, {"inventory": {"locks": {WEB: a_lock(held=True)}}, "variants": {}},
            None, id="held for nobody"),
        pytest.param({"op": Op.BLOCK}, {"inventory": {"locks": {WEB: a_lock()}}, "old": OLD}, 1,
            id="applied before"),
    ],
)  # fmt: skip
def test_pin_is_kept_with_the_record_or_while_a_person_holds_it(change, fields, revision) -> None:
    files = files_of(replace(KEPT, **change), a_resolved(), **fields)

    assert files.get(LOCK, {}).get("commit") == (oid(f"a{revision}") if revision else None)


@pytest.mark.parametrize(
    ("head", "change", "is_kept"),
    [
        ("d2", {}, True),
        ("d3", {}, False),
        ("d2", {"approve": Approval(1, "drafts/web/w", oid("d2"))}, False),
        ("d2", {"writes": (WRITE,)}, False),
    ],
)
def test_refusal_to_merge_is_kept_while_the_draft_has_that_head(head, change, is_kept) -> None:
    refused = RefusedMerge(head=oid(head), basis="a", first=1, last=2)
    draft = a_draft(tip=Commit(oid("d2"), 1))

    record = record_of(replace(KEPT, **change), a_resolved(draft=draft), old=replace(OLD, refused=refused))

    assert record.refused == (refused if is_kept else None)


BEFORE = {WEB: VariantChange(WEB, Reason.NOT_DESIRED, record=a_record())}


@pytest.mark.parametrize(
    ("position", "fields", "counts"),
    [
        (Position.CURRENT, {}, "now"),
        (Position.REWOUND, {"gone": BEFORE}, "now"),
        (Position.REWRITTEN, {}, "now"),
        *((position, {"gone": BEFORE}, "before") for position in (Position.REWRITTEN, Position.UNKNOWN)),
        (Position.REWRITTEN, {"refused": {PACKAGE: 3}}, "before"),
        (Position.CURRENT, {"gone": BEFORE}, "now"),
        (Position.CURRENT, {"suspend": True}, "before"),
        (Position.CURRENT, {"applied": None}, "now"),
        (Position.CURRENT, {"applied": None, "variants": {}}, None),
        (Position.CURRENT, {"applied": None, "variants": {}, "records": {WEB: OLD}}, "now"),
        (Position.CURRENT, {"applied": None, "variants": {}, "set_records": {WEB: SetRecord}}, "now"),
        (Position.CURRENT, {"variants": {}}, "now"),
        (Position.CURRENT, {"applied": None, "suspend": True}, None),
    ],
)
def test_commit_counts_as_applied_unless_what_was_applied_last_still_needs_evidence(
    position: Position, fields: dict[str, Any], counts: str | None
) -> None:
    facts = {"applied": oid("a1"), "suspend": False, "refused": {}, **fields}
    standing = Standing(position, applied=facts.pop("applied"))
    control = Control("u", "u", Commit(oid("a2"), 1), standing=standing)
    policy, refused = Policy(suspend=facts.pop("suspend")), facts.pop("refused")
    read = {name: facts.pop(name) for name in ("records", "set_records") if name in facts}
    context = web_context(inventory={"control": control, "policy": policy, **read}, **facts)

    assert applied_commit(context, (), refused) == {"before": oid("a1"), "now": oid("a2")}.get(counts or "")


def test_digests_of_images_are_recorded() -> None:
    files = files_of(KEPT, None, inventory={"images": {"set-labels:v1": "sha256:1"}})

    (path,) = files
    assert "set-labels:v1" in json.dumps(files[path])
    assert "sha256:1" in json.dumps(files[path])


# Sets


FLEET = package_set(at=source("fleet.yaml"))
SET_RECORD = SetRecord(namespace="default", name="fleet", uid="u", manifest="fleet.yaml", targets=3)


def set_files(**fields: Any) -> dict[str, Any]:
    return {path: value for path, value in files_of(KEPT, None, **fields).items() if path == SET}


def test_set_leaves_a_record_with_the_number_of_its_targets() -> None:
    fields = {"inventory": {"manifests": (FLEET,)}, "desired": Desired(targets={FLEET.key: 5})}
    (value,) = set_files(**fields).values()

    assert value.pop("uid")
    assert value == {
        "apiVersion": SET_RECORD.api_version,
        "kind": "PackageVariantSetRecord",
        "namespace": "default",
        "name": "fleet",
        "manifest": "fleet.yaml",
        "targets": 5,
    }
    named = package_set(at=source("fleet.yaml"), uid="mine")
    assert set_files(**{**fields, "inventory": {"manifests": (named,)}})[SET]["uid"] == "mine"


# Owners of the files


def test_files_of_a_variant_belong_to_its_package() -> None:
    moved, old = PackageKey(URL, "moved"), PackageKey(URL, "old")
    context = context_of(
        a_resolved(downstream=moved),
        inventory={"records": {ObjectName("default", "gone"): a_record(name="gone", path="old")}},
    )

    owners = record_owners(context, [replace(KEPT, package=moved), KEPT, replace(KEPT, variant=None)])

    assert owners == {
        "packagevariants/default/gone.json": old,
        RECORD: moved,
        "locks/upstreams/default/gone.json": old,
        LOCK: moved,
    }
    assert list(owners) == sorted(owners)


# Rollouts

ROLLOUT = RolloutRecord(namespace="default", name="fleet", revision="r1", waves=("canary",))
ROLLOUT_PATH = record_path(ROLLOUT)


@pytest.mark.parametrize(
    ("fields", "stays"),
    [
        pytest.param({}, False, id="its set is unknown"),
        pytest.param({"set_records": {FLEET.key: SET_RECORD}}, False, id="its set is gone"),
        pytest.param({"set_records": {FLEET.key: SET_RECORD}, "readable": False}, True, id="it is unread"),
    ],
)
def test_record_of_a_rollout_stays_while_its_set_is_not_understood(fields, stays) -> None:
    given = dict(fields)
    control = replace(web_context().inventory.control, readable=given.pop("readable", True))
    inventory = {"rollouts": {ROLLOUT.rollout: ROLLOUT}, "control": control, **given}

    assert (ROLLOUT_PATH in files_of(KEPT, None, inventory=inventory)) is stays


def test_record_of_a_rollout_that_runs_is_written() -> None:
    rollout = Rollout(RolloutKey(*FLEET.key), RolloutPhase.PROGRESSING, ROLLOUT)

    files = files_of(KEPT, None, resolution=Resolution(rollouts=(rollout,)))

    assert files == {ROLLOUT_PATH: json.loads(record_bytes(ROLLOUT))}
